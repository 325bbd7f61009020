"""Trainings that go on from a checkpoint: the bits of one that was not interrupted, or an error that says why not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from dana.trainer import checkpoints
from dana.trainer.contract import EpochReport, Level, Notice, Parameter, Part, SqlState, TrainingError
from dana.trainer.loop import Outcome, State, _Loop
from dana.trainer.stopping import Stopping
from dana.trainer.trainer import MachineTrainer
from hwgen.cache import CacheFolder
from tests.trainer.test_parts import asked, bits, drawn, in_parts, of


class Kept:
    """A store that keeps all states; it loads one."""

    def __init__(self, state: bytes = b"") -> None:
        self.state = state
        self.saved: dict[int, bytes] = {}

    def load(self) -> bytes:
        return self.state

    def save(self, epoch: int, state: bytes) -> None:
        self.saved[epoch] = state


@pytest.fixture(autouse=True, scope="module")
def often() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoints, "INTERVAL", 0.0)
        yield


DROPPED = """
import dana
n = dana.dim()
w = dana.model([n])
x, y = dana.input([n]), dana.output()
dropped = dana.algo(w, x, y)
z = x * (dana.random(n) > 0.5)
error = dana.sigma(w * z, 1) - y
dropped.setModel(w, w - 0.01 * dropped.merge(error * z, 8, "+") / 8)
dropped.setLoss(error * error)
dropped.setEpochs(6)
"""

RARE = ("solver", "random")
CASES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "ends by its loss": (of("linear_svm"), "batch", {"patience": 3, "hyper": {"batch": 8}}),
    "solver": (of("linear"), "batch", {}),
    "newton": (of("logistic"), "batch", {}),
    "means": (of("linear_svm"), "epoch", {"epochs": 5}),
    "random": (DROPPED, "epoch", {"epochs": 4}),
}


def same(one: Outcome, other: Outcome) -> bool:
    ends = [(each.result.metadata, each.result.modelled_seconds, each.converged, each.kept) for each in (one, other)]
    return bits(one) == bits(other) and list(one.reports) == list(other.reports) and ends[0] == ends[1]


@pytest.mark.parametrize(
    "case", [pytest.param(one, marks=pytest.mark.exhaustive if one in RARE else ()) for one in CASES]
)
def test_it_has_the_same_bits_from_any_epoch(case: str, tmp_path: Path) -> None:
    text, mode, options = CASES[case]
    cache = CacheFolder(path=tmp_path, limit=1 << 26)
    parts = [drawn(64, seed) for seed in range(3)]
    if case == "newton":  # which follows 20 epochs: columns that depend on each other
        for one in parts:
            one["x1"] = one["x0"] + one["x1"] / 300
    options = {**options, "features": tuple(name for name in parts[0] if name.startswith("x")), "resume": "unchanged"}
    first, said = Kept(), list[Notice]()
    whole = in_parts(text, parts, mode, store=first, cache=cache, **options)
    assert ("newton" in whole.result.metadata) == (case == "newton")
    # there is one after the last epoch unless that decided to be the last
    assert sorted(first.saved) == list(range(1, len(first.saved) + 1))
    assert len(whole.reports) - len(first.saved) == (whole.result.metadata["ended"] != "epochs")
    assert len(first.saved) >= 3
    for epoch in (len(first.saved) // 2, len(first.saved)):
        later = Kept(first.saved[epoch])
        assert same(in_parts(text, parts, mode, store=later, notify=said.append, cache=cache, **options), whole), epoch
        assert sorted(later.saved) == list(range(epoch + 1, len(first.saved) + 1))
    assert f"the training continues after epoch {len(first.saved)}" in [one.message for one in said][-1]


class Holding:
    """What a state needs of a training: its models, and the rows that it has."""

    digests = ("of one shard",)

    def __init__(self) -> None:
        self.models: Sequence[Parameter] = ()
        self.counted = 0

    def adopt(self, models: Sequence[Parameter]) -> None:
        self.models = models

    def parameters(self) -> Sequence[Parameter]:
        return self.models

    def count(self, reports: Sequence[EpochReport]) -> None:
        self.counted = len(reports)


def test_all_of_a_state_comes_back() -> None:
    """Also what few trainings have: models from before a rule began again, and those of the best epoch."""

    def models(first: float) -> list[Parameter]:
        values = np.array([first, 1 / 3], np.float32)
        return [Parameter(name="w", values=values), Parameter(name="w.direction", values=-values)]

    reports = [
        EpochReport(loss=1 / k, converged=k == 2, tuples=3, skipped=k, cycles=9 * k, counters={"link": k})
        for k in range(1, 4)
    ]
    stopping = Stopping(patience=3, tolerance=0.5)
    for one in reports:
        stopping.better(one.loss or 0, 0.01)
    state = State(
        models=models(1),
        reports=reports,
        seconds=[0.5, 0.25, 0.125],
        stopping=stopping,
        best=(3, models(2)),
        first=(2, models(3)),
        stepped=True,
    )
    store, training, told = Kept(), Holding(), list[tuple[int, EpochReport, float]]()
    request = asked(of("linear"), drawn(8, 1), {"resume": "unchanged", "part": Part(mode="batch", number=0, count=1)})
    kept = checkpoints.StoredCheckpoints(store, request, cast("Any", training), lambda notice: None)
    kept.save(3, lambda: state)
    store.state = store.saved[3]
    found = kept.load()
    assert found is not None
    loop = _Loop(
        training=cast("Any", training),
        request=request,
        feed=lambda sink: 0,
        notify=lambda notice: None,
        report_epoch=lambda *one: told.append(one),
        held_out=None,
        validates=False,
        solves=True,
        conjugate=True,
        stopping=Stopping(),
    )
    loop.resume(found)
    assert repr(loop._state()) == repr(state)
    assert told == list(zip((1, 2, 3), reports, state.seconds, strict=True))
    assert training.counted == 3


OPTIONS: dict[str, Any] = {"features": ("x0", "x1", "x2"), "epochs": 5, "patience": 0, "hyper": {"batch": 8}}


@pytest.fixture(scope="module")
def stored(often: None) -> bytes:
    """Of epoch 2."""
    store = Kept()
    in_parts(of("linear_svm"), [drawn(32, 1), drawn(32, 2)], "batch", store=store, resume="never", **OPTIONS)
    return store.saved[2]


def test_rows_that_changed_end_it_unless_they_are_accepted(stored: bytes) -> None:
    first, second = drawn(32, 1), drawn(32, 2)
    second["x2"][7], second["x2"][8] = second["x2"][8], second["x2"][7]  # all sums are the same
    with pytest.raises(TrainingError, match=r"rows of shard 2 of 2, .* have changed since epoch 2") as failed:
        in_parts(of("linear_svm"), [first, second], "batch", store=Kept(stored), resume="unchanged", **OPTIONS)
    assert failed.value.sqlstate == SqlState.ROWS_CHANGED
    said = list[Notice]()
    store = Kept(stored)
    in_parts(of("linear_svm"), [first, second], "batch", store=store, notify=said.append, resume="anyway", **OPTIONS)
    assert sorted(store.saved) == [3, 4, 5]
    [warning] = [one for one in said if "have changed" in one.message]
    assert warning.level is Level.WARNING
    store = Kept(stored)
    in_parts(of("linear_svm"), [first, second], "batch", store=store, resume="never", **OPTIONS)
    assert sorted(store.saved) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("other", "named"),
    [
        ({"hyper": {"batch": 16}}, "another hyper"),
        ({"features": ("x0", "x2", "x1"), "seed": 2}, "another features, another seed"),
        ({"epochs": 6}, "another epochs"),
    ],
)
def test_the_checkpoint_of_another_training_is_named(stored: bytes, other: dict[str, Any], named: str) -> None:
    parts = [drawn(32, 1), drawn(32, 2)]
    with pytest.raises(TrainingError, match=f"a training with {named}\n"):
        in_parts(of("linear_svm"), parts, "batch", store=Kept(stored), resume="anyway", **OPTIONS | other)


def test_it_goes_with_shards() -> None:
    for resume, message in (("unchanged", "goes with sync"), ("yes", "must be unchanged, anyway or never, not 'yes'")):
        with pytest.raises(TrainingError, match=message):
            MachineTrainer().open(asked(of("linear"), drawn(8, 1), {"resume": resume}), lambda notice: None)
