"""Cycles of epochs on the same pages: reused where they were counted, and the same as if they were counted anew."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import pytest

from dana import rules
from dana.errors import InternalError
from dana.simulator import Simulator
from dana.storage.columns import column_pages, column_schema
from dana.trainer import machine_code
from dana.trainer.arrays import train
from dana.trainer.contract import Relation, Sink, TrainingError, TrainRequest
from dana.trainer.machine import feed_pages
from dana.trainer.trainer import MachineTrainer
from dana.trainer.training import MachineTraining
from dana.worker.epochs import _Pages
from hwgen.spec.counters import EpochCounters
from tests.rules.tables import EXTENTS, WITHOUT_LABEL, table

ROWS = 900


def ratings(seed: int, rows: int = ROWS) -> dict[str, Any]:
    """Which rows come again, and so how many cycles an epoch takes, is another for each seed."""
    random = np.random.default_rng(seed)
    i, j = random.integers(0, 12, (2, rows))
    return {"i": i.astype(np.float32), "j": j.astype(np.float32), "y": (i * j % 5).astype(np.float32)}


def opened() -> MachineTraining:
    columns = ratings(1)
    schema = column_schema(columns)
    request = TrainRequest(
        rule="lrmf",
        text=rules.text("lrmf"),
        relation=Relation(name="t", pages=len(column_pages(columns)), page_size=8192, attributes=schema.attributes),
        features=None,
        label="y",
        epochs=6,
        hyper={"m": 12, "n": 12},
        machine="sim",
        design={},
        standardize=False,
        nonfinite="keep",
    )
    training = MachineTrainer().open(request, lambda notice: None)
    assert isinstance(training, MachineTraining)
    return training


def fed(training: MachineTraining, seed: int, *, again: bool, rows: int = ROWS) -> int | None:
    """An epoch's cycles."""
    sink = training.sink
    sink = sink if again else Sink(function=sink.function, context=sink.context)
    status = feed_pages(sink, column_pages(ratings(seed, rows)))
    if status:
        raise training.failure(status)
    return training.end_epoch().cycles


@pytest.fixture
def counted() -> dict[int, int | None]:
    """Cycles of each seed's pages, counted."""
    found = {}
    for seed in (1, 2):
        training = opened()
        found[seed] = fed(training, seed, again=False)
        training.close()
    assert found[1] != found[2]
    return found


def test_cycles_are_those_of_the_epoch_before(counted: dict[int, int | None]) -> None:
    """Nothing looks at the pages to find them: who says that they are the same is believed."""
    training = opened()
    assert fed(training, 1, again=True) == counted[1], "no epoch was before"
    assert fed(training, 2, again=True) == counted[1]
    assert fed(training, 2, again=False) == counted[2]
    assert fed(training, 1, again=True) == counted[2]
    training.close()


def test_other_rows_are_noticed() -> None:
    training = opened()
    fed(training, 1, again=False)
    with pytest.raises(InternalError, match="said to be those of the one before, and have other rows"):
        fed(training, 1, again=True, rows=ROWS - 1)
    training.close()


def _faulty(training: MachineTraining) -> None:
    pages = np.full_like(column_pages(ratings(1)), 0xFF)
    status = feed_pages(training.sink, pages)
    assert isinstance(training.failure(status), TrainingError)
    training._begun = False


def _forgotten(training: MachineTraining) -> None:
    simulator = cast(Simulator, training._machine)
    simulator.begin_epoch()
    assert simulator.consume(column_pages(ratings(2))[:1])
    simulator.begin_epoch()


def _looked_at(training: MachineTraining) -> None:
    simulator = cast(Simulator, training._machine)
    simulator.begin_epoch(trains=False)
    assert simulator.consume(column_pages(ratings(2)))
    simulator.end_epoch()
    simulator.begin_epoch()


@pytest.mark.parametrize("between", [_faulty, _forgotten, _looked_at])
def test_an_epoch_that_did_not_train_to_its_end_is_none(
    between: Callable[[MachineTraining], None], counted: dict[int, int | None]
) -> None:
    training = opened()
    assert fed(training, 1, again=False) == counted[1]
    between(training)
    assert fed(training, 2, again=True) == counted[2]
    training.close()


@pytest.mark.parametrize("code", ["never", "always", "late"])
@pytest.mark.parametrize("name", rules.NAMES)
def test_reused_is_as_counted(name: str, code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every counter of every epoch, and every bit of the models; code is compared with the engine in any epoch."""
    monkeypatch.setenv(machine_code.VARIABLE, "never" if code == "never" else "always")
    attach, before = Simulator.attach, machine_code.Compiled.before_epoch
    proved: list[bool] = []
    close = Simulator.close
    monkeypatch.setattr(Simulator, "close", lambda self: (proved.append(self.proved), close(self))[1])
    if code == "late":
        monkeypatch.setattr(machine_code.Compiled, "before_epoch", _late(before))
    end, found = Simulator.end_epoch, list[EpochCounters]()
    monkeypatch.setattr(Simulator, "end_epoch", lambda self: (found.append(end(self)), found[-1])[1])
    columns = {key: np.asarray(one, np.float32) for key, one in table(name).items()}

    def trained() -> tuple[list[EpochCounters], int, dict[str, bytes]]:
        found.clear()
        label = None if name in WITHOUT_LABEL else "y"
        made = train(rules.text(name), columns, label=label, hyper=EXTENTS.get(name), epochs=4, patience=0)
        return [*found], len(made.losses), {key: values.tobytes() for key, values in made.models.items()}

    reused = trained()
    # late code comes to none that has converged before
    assert any(proved) == (code == "always" or (code == "late" and reused[1] > 2))
    monkeypatch.setattr(Simulator, "sink_again", Simulator.sink)
    assert reused == trained()
    assert attach is Simulator.attach


def _late(before: Callable[[machine_code.Compiled], None]) -> Callable[[machine_code.Compiled], None]:
    """Code comes before the third epoch."""
    epochs: dict[int, int] = {}

    def before_epoch(self: machine_code.Compiled) -> None:
        epochs[id(self)] = epochs.get(id(self), 0) + 1
        if epochs[id(self)] > 2:
            before(self)

    return before_epoch


@pytest.mark.parametrize("code", ["never", "always"])
@pytest.mark.parametrize("again", [False, True])
def test_cycles_that_nobody_asks_for_are_not_counted(code: str, again: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor are they taken for those of a later epoch."""
    monkeypatch.setenv(machine_code.VARIABLE, code)
    pages, found = column_pages(ratings(1)), []
    for counts in (None, False):
        training = opened()
        training._begin()
        simulator = cast(Simulator, training._machine)
        simulator.begin_epoch(counts=counts)
        function, context = simulator.sink_again if again else simulator.sink
        assert feed_pages(Sink(function=function, context=context), pages) == 0
        counters = simulator.end_epoch()
        training._begun = False
        found.append((counters, [one.values.tobytes() for one in training.parameters()]))
        assert fed(training, 1, again=True) == found[0][0].cycles
        training.close()
    (counted, models), (not_counted, same) = found
    assert models == same
    assert counted.cycles > 0
    assert not_counted == EpochCounters(
        **{field: 0 for field in EpochCounters.__dataclass_fields__ if field != "fault"}
        | {"fault": counted.fault, "tuples": counted.tuples, "skipped": counted.skipped}
    )


@pytest.mark.parametrize("epochs", [1, 2])
def test_only_epochs_count_cycles(epochs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not the survey before them, and not the pass of the judge."""
    end, found = Simulator.end_epoch, list[EpochCounters]()
    monkeypatch.setattr(Simulator, "end_epoch", lambda self: (found.append(end(self)), found[-1])[1])
    train(rules.text("lrmf"), ratings(1), label="y", hyper={"m": 12, "n": 12}, epochs=epochs, patience=0)
    assert [one.tuples for one in found] == [ROWS] * (epochs + 2)
    assert [one.cycles > 0 for one in found] == [False, *[True] * epochs, False]


@dataclass
class FakeRing:
    """Notes which function gets a stream, and which kept pages."""

    kept: int
    calls: list[tuple[str, int]] = field(default_factory=list)

    def reset(self) -> None:
        self.calls.append(("reset", 0))

    def stream(self, function: int, context: int, *, digests: bool) -> tuple[int, int]:
        assert not digests
        self.calls.append(("stream", function))
        return 1, 0

    def replay(self, function: int, context: int) -> tuple[int, int]:
        self.calls.append(("replay", function))
        return 1, 0


class FakeChannel:
    def send(self, *message: object) -> None:
        pass


@pytest.mark.parametrize("kept", [0, 1])
def test_only_kept_pages_are_the_same(kept: int) -> None:
    """Between two streams VACUUM may have changed pages, though not the rows of the snapshot."""
    ring = FakeRing(kept=kept)
    source = _Pages(cast(Any, None), cast(Any, FakeChannel()), cast(Any, ring), -1, None, digests=False)
    for _ in range(2):
        source.feed(Sink(function=1, context=0, again=2))
    assert ring.calls == [("stream", 1), *([("replay", 2)] if kept else [("reset", 0), ("stream", 1)])]
    ring.calls.clear()
    source.feed(Sink(function=1, context=0))
    assert [function for name, function in ring.calls if name != "reset"] == [1], "who knows no other takes all alike"
