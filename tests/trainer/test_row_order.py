"""A training in a pseudo-random order: all machines give the same bits, simulator and hardware the same cycles."""

from __future__ import annotations

import gc
import mmap
import weakref

import numpy as np
import pytest

from dana import rules
from dana.storage.permuted import anonymous
from dana.trainer import arrays
from dana.trainer.arrays import Trained, train
from tests.sql.conftest import SUMS
from tests.storage.test_permuted import order_of

ROWS = 500
RANDOM = np.random.default_rng(1)
COLUMNS = {"a": RANDOM.normal(size=ROWS), "b": RANDOM.normal(size=ROWS), "y": np.sort(RANDOM.normal(size=ROWS))}


def test_each_seed_is_an_order_of_its_own() -> None:
    models = {seed: trained("sim", shuffle=True, seed=seed).models["w"].tobytes() for seed in (None, 0, 1, 2, -1)}
    assert models.pop(None) == models[1]
    assert len(set(models.values())) == 4


def trained(machine: str, **options: object) -> Trained:
    return train(SUMS, COLUMNS, label="y", epochs=3, machine=machine, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("design", [{}, {"threads": 4, "striders": 2}])
def test_interpreter_simulator_and_hardware(design: dict[str, int]) -> None:
    one, other, reference = (trained(machine, shuffle=True, design=design) for machine in ("sim", "rtl", "interp"))
    assert one.models["w"].tobytes() == other.models["w"].tobytes() == reference.models["w"].tobytes()
    assert one.cycles == other.cycles
    assert one.losses == other.losses == reference.losses
    order = order_of(1, ROWS)
    ordered = {name: values[order] for name, values in COLUMNS.items()}
    before = train(SUMS, ordered, label="y", epochs=3, shuffle=False, design=design)
    assert before.models["w"].tobytes() == one.models["w"].tobytes()
    assert before.cycles == one.cycles


def test_the_rows_are_freed_without_python_s_collector(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[weakref.ref[mmap.mmap]] = []

    def counted(size: int) -> mmap.mmap:
        memory = anonymous(size)
        made.append(weakref.ref(memory))
        return memory

    monkeypatch.setattr(arrays, "anonymous", counted)
    gc.disable()
    try:
        trained("sim", shuffle=True)
        assert [one() for one in made] == [None]
    finally:
        gc.enable()


def test_where_the_table_is_one_batch_no_order_makes_a_difference() -> None:
    ridge = rules.text("ridge")
    one, other = (train(ridge, COLUMNS, label="y", shuffle=shuffle) for shuffle in (True, False))
    assert one.models["w"].tobytes() == other.models["w"].tobytes()
