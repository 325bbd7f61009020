"""Epochs over known pages by several threads: the same bits, wherever pieces meet; and when there are none."""

from __future__ import annotations

import ctypes
import signal
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dana import rules
from dana.compiler.passes import simplify
from dana.errors import InternalError
from dana.jit import compile_graph
from dana.simulator import Simulator, structures
from dana.storage.columns import column_pages, column_schema
from dana.trainer.contract import Relation, TrainRequest
from dana.trainer.designs import bound_graph, compile_design
from hwgen.spec.counters import EpochCounters
from tests.guarded import consumed
from tests.rules.tables import EXTENTS, table

Pages = NDArray[np.uint8]

ROWS = 12_000
SPLIT = {"linear", "ridge", "lasso", "elastic_net", "huber", "quantile", "poisson", "logistic", "softmax", "kmeans"}
"""Rules whose batch is the epoch."""


class Machines:
    """A simulator that runs epochs alone, and one with helpers."""

    def __init__(self, text: str, columns: Mapping[str, Any], *, threads: int, **extents: int) -> None:
        request = TrainRequest(
            rule="rule",
            text=text,
            relation=Relation(name="t", pages=1000, page_size=8192, attributes=column_schema(columns).attributes),
            features=None,
            label="y" if "y" in columns else None,
            epochs=None,
            hyper=extents,
            machine="sim",
            design={},
        )
        design = compile_design(request, extents=extents)
        self.bundle = design.bundle
        self.alone, self.with_helpers = Simulator(self.bundle.config), Simulator(self.bundle.config)
        for machine in (self.alone, self.with_helpers):
            code = compile_graph(simplify(bound_graph(request, design)), self.bundle)
            machine.load(self.bundle)
            machine.attach(code)
        self.splits = code.splits
        self.with_helpers.add_helpers([code.copy() for _ in range(threads)])
        self.with_helpers.threads = threads

    def epoch(self, calls: Sequence[Pages]) -> EpochCounters:
        """One epoch by each, the pages in some calls; the same comes of it."""
        alone, shared = (self._epoch(machine, calls) for machine in (self.alone, self.with_helpers))
        assert alone == shared
        return alone[0]

    def _epoch(self, machine: Simulator, calls: Sequence[Pages]) -> tuple[EpochCounters, dict[str, bytes]]:
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ())
        machine.begin_epoch()
        for pages in calls:
            assert consumed(*machine.sink_again, pages) == 0
        assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == blocked, "only helpers get no signals"
        counters = machine.end_epoch()
        assert machine.proved
        lanes = self.bundle.config.lanes
        symbols = [one for one in self.bundle.symbols if not one.table]
        return counters, {one.name: machine.read_rows(one.row, one.rows(lanes)).tobytes() for one in symbols}

    @property
    def shared(self) -> int:
        """Tuples that helpers ran."""
        assert self.alone.shared_tuples == 0
        return self.with_helpers.shared_tuples


def holed(pages: Pages) -> Pages:
    """Pages without every third row of each second one, and without any row of some."""
    found = pages.copy()
    for k, page in enumerate(found):
        lines = page[24 : int.from_bytes(page[12:14].tobytes(), "little")].view("<u4")
        lines[:: 3 if k % 2 else len(lines)] = 0
        lines[:: 1 if k % 7 == 0 else len(lines)] = 0
    return found


@pytest.mark.parametrize("name", rules.NAMES)
def test_models_are_the_same(name: str) -> None:
    count = ROWS if name in SPLIT else 600
    columns = table(name, count)
    if name == "lrmf_dense":
        columns["i"] %= 150  # as many rows as the model has
    machines = Machines(rules.text(name), columns, threads=3, **EXTENTS.get(name, {}))
    pages = column_pages(columns)
    for epoch in range(3):
        machines.epoch([pages])
        assert (machines.shared > 0) == (epoch > 0 and machines.splits)
    assert machines.splits == (name in SPLIT)


LOGISTIC = rules.text("logistic")


@pytest.fixture
def logistic() -> tuple[Machines, Pages]:
    columns = table("logistic", ROWS)
    machines = Machines(LOGISTIC, columns, threads=2)
    pages = holed(column_pages(columns))
    machines.epoch([pages])
    return machines, pages


@pytest.mark.parametrize("cuts", [(), (40,), (1, 2), (3, 41, 80), (50, 51)])
def test_pages_may_come_in_any_calls(logistic: tuple[Machines, Pages], cuts: tuple[int, ...]) -> None:
    """Before its first piece and behind its last a call's tuples are the simulator's own."""
    machines, pages = logistic
    counters = machines.epoch(np.split(pages, cuts))
    assert counters.tuples / 2 < machines.shared < counters.tuples


def test_an_epoch_ends_where_a_piece_does() -> None:
    """The last tuple is no helper's: the code of the epoch's end may read it."""
    columns = table("logistic", 1 << 13)
    machines = Machines(LOGISTIC, columns, threads=2)
    pages = column_pages(columns)
    for _ in range(3):
        machines.epoch([pages])
    assert machines.shared < 1 << 13
    assert machines.shared % 128 == 0


def test_few_rows_are_one_threads() -> None:
    columns = table("logistic", 300)
    machines = Machines(LOGISTIC, columns, threads=2)
    for _ in range(2):
        machines.epoch([column_pages(columns)])
    assert machines.shared == 0


def test_the_number_of_threads_may_change(logistic: tuple[Machines, Pages]) -> None:
    machines, pages = logistic
    for threads, expected in ((1, 1), (2, 2), (9, 2)):
        machines.with_helpers.threads = threads
        assert machines.with_helpers.threads == expected
        machines.epoch([pages])
        assert (machines.shared > 0) == (threads > 1)


def test_a_look_at_the_rows_is_not_shared(logistic: tuple[Machines, Pages]) -> None:
    machine, pages = logistic[0].with_helpers, logistic[1]
    machine.begin_epoch(trains=False)
    assert consumed(*machine.sink_again, pages) == 0
    machine.end_epoch()
    assert machine.shared_tuples == 0
    logistic[0].epoch([pages])  # is counted again
    logistic[0].epoch([pages])
    assert machine.shared_tuples > 0


TUPLES = ctypes.CFUNCTYPE(None, *(ctypes.c_void_p,) * 3, *(ctypes.c_int32,) * 3)


class Counting:
    """An observer that counts rows."""

    def __init__(self) -> None:
        self.rows = 0
        self._function = TUPLES(self._count)
        self.data = structures.ObserverData(tuples=ctypes.cast(self._function, ctypes.c_void_p).value)

    def _count(self, *given: int) -> None:
        self.rows += given[-1]


def test_an_observer_sees_all_rows(logistic: tuple[Machines, Pages]) -> None:
    machine, pages = logistic[0].with_helpers, logistic[1]
    observer = Counting()
    machine.begin_epoch(observer=observer)
    assert consumed(*machine.sink_again, pages) == 0
    assert machine.end_epoch().tuples == observer.rows > 0


@pytest.mark.parametrize("other", ["fewer", "more", "empty"])
def test_other_pages_are_noticed(logistic: tuple[Machines, Pages], other: str) -> None:
    machine, pages = logistic[0].with_helpers, logistic[1]
    changed = {"fewer": pages[:-1], "more": np.concatenate([pages, pages[-1:]]), "empty": pages.copy()}[other]
    if other == "empty":
        changed[60, 24 : int.from_bytes(changed[60, 12:14].tobytes(), "little")] = 0
    machine.begin_epoch()
    assert consumed(*machine.sink_again, changed) == 0
    assert (machine.shared_tuples > 0) == (other == "fewer")
    with pytest.raises(InternalError, match="have other rows"):
        machine.end_epoch()
