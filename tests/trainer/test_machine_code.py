"""Which trainings get code of their own; what happens where there can be none, or it is wrong."""

from __future__ import annotations

import logging
import random
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import pytest

from dana import rules
from dana.compiler.passes import simplify
from dana.jit import code, compile_graph
from dana.simulator import Simulator
from dana.storage.builder import build_pages
from dana.trainer import machine_code, processors
from dana.trainer.arrays import train
from dana.trainer.contract import Level, Notice, TrainingError
from dana.trainer.trainer import MachineTrainer
from dana.trainer.training import MachineTraining
from dsl.hdfg.graph import Op
from tests.lockstep.cases import assert_same, network_case, run
from tests.lockstep.machines import random_config
from tests.rules.tables import EXTENTS, WIDE, WITHOUT_LABEL, table
from tests.trainer.test_training import REALS, feed, relation, request, rows


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    machine_code.unavailable.cache_clear()
    yield
    machine_code.unavailable.cache_clear()


def trained(
    epochs: int = 3,
    *,
    pages: int = 1,
    before: Callable[[int, MachineTraining], object] = lambda epoch, training: None,
    trainer: MachineTrainer | None = None,
) -> tuple[dict[str, bytes], MachineTraining]:
    """Models and losses, and the training, which was closed."""
    known = relation(REALS, pages=pages)
    heap = build_pages(known.schema, rows(100), page_size=8192)
    training = (trainer or MachineTrainer()).open(request(known, epochs=epochs), notify=lambda notice: None)
    assert isinstance(training, MachineTraining)
    losses = []
    for epoch in range(epochs):
        before(epoch, training)
        feed(training, training.sink, heap)
        losses.append(training.end_epoch().loss)
    models = {one.name: np.asarray(one.values).tobytes() for one in training.parameters()}
    models["losses"] = repr(losses).encode()
    training.close()
    return models, training


def has_code(training: MachineTraining) -> bool:
    assert training._compiled is not None
    return training._compiled.attached


def test_only_long_trainings_are_worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(machine_code.VARIABLE, raising=False)
    few, short = trained()
    assert not has_code(short)
    many, long = trained(pages=1_000_000)  # as the table says it has
    assert has_code(long)
    monkeypatch.setenv(machine_code.VARIABLE, "always")
    forced, always = trained()
    assert has_code(always)
    monkeypatch.setenv(machine_code.VARIABLE, "never")
    plain, never = trained(pages=1_000_000)
    assert not has_code(never)
    assert few == many == forced == plain


def test_short_trainings_pay_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one design: the third finds that the ones before took long enough, and the fourth the code of the third."""
    monkeypatch.setenv(machine_code.VARIABLE, "never")
    expected, _ = trained(1)
    monkeypatch.delenv(machine_code.VARIABLE)
    trainer = MachineTrainer()
    made: list[machine_code.Compiled] = []
    spent: list[float] = []
    compile_ = machine_code.Compiled._compile

    def counted(self: machine_code.Compiled) -> None:
        made.append(self)
        compile_(self)

    monkeypatch.setattr(machine_code.Compiled, "_compile", counted)
    monkeypatch.setattr(machine_code, "WORTH_SECONDS", np.inf)
    for number in range(4):
        if number == 2:
            monkeypatch.setattr(machine_code, "READ_SECONDS", spent[-1])
            monkeypatch.setattr(machine_code, "WORTH_SECONDS", spent[-1])
        models, training = trained(1, trainer=trainer)
        assert models == expected
        assert len(made) == (number >= 2)
        assert training._compiled is not None
        spent.append(training._compiled._history.seconds)
    assert 0 < spent[0] < spent[1] <= spent[2] == spent[3]
    assert has_code(training)
    code = training._compiled._history.code
    assert code is not None
    assert code.size <= machine_code.KEPT
    assert code._state is not None
    monkeypatch.setattr(machine_code, "KEPT", 0)  # of a large model the code stays, and not what it works on
    for _ in range(2):
        models, training = trained(1, trainer=trainer)
        assert (models, has_code(training), len(made)) == (expected, True, 1)
        assert code is training._compiled._history.code
        assert code._state is None
    monkeypatch.setenv(machine_code.VARIABLE, "never")
    assert not has_code(trained(trainer=trainer)[1])


BY_ROW = """
import dana
U, b = dana.model([9, 3], init=dana.normal(0, 1)), dana.model()
i, y = dana.input(), dana.output()
rows = dana.algo(U, b, i, y)
error = dana.sigma(U[i], 1) + b - y
rows.setModel(U[i], U[i] - 0.1 * error)
rows.setModel(b, b - 0.1 * rows.merge(error, 4, "mean"))
rows.setLoss(error * error)
rows.setPrediction(dana.sigma(U[i], 1) + b)
"""


def test_code_is_as_new_after_a_training_that_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the middle of a batch, with rows that were chosen and not written."""
    known = relation([("i", "real"), ("y", "real")])
    random = np.random.default_rng(5)
    good = [[float(k % 9), random.standard_normal()] for k in range(40)]
    bad = [*good[:21], [9.0, 1.0], *good[21:]]

    notices: list[Notice] = []

    def fitted(trainer: MachineTrainer, rows: list[list[float]]) -> bytes:
        training = trainer.open(request(known, text=BY_ROW, epochs=2), notify=notices.append)
        assert isinstance(training, MachineTraining)
        try:
            for _ in range(2):
                feed(training, training.sink, build_pages(known.schema, rows, page_size=8192))
                training.end_epoch()
            return np.asarray(training.parameters()[0].values).tobytes()
        finally:
            training.close()

    monkeypatch.setenv(machine_code.VARIABLE, "never")
    expected = fitted(MachineTrainer(), good)
    monkeypatch.setenv(machine_code.VARIABLE, "always")
    trainer = MachineTrainer()
    assert fitted(trainer, good) == expected
    with pytest.raises(TrainingError, match="chooses rows of U"):
        fitted(trainer, bad)
    made: list[machine_code.Compiled] = []
    monkeypatch.setattr(machine_code.Compiled, "_compile", made.append)
    assert fitted(trainer, good) == expected
    assert (made, [one for one in notices if "differs" in one.message]) == ([], [])


def test_a_stream_of_rows_of_which_nobody_knows_how_many_come(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first epoch tells."""
    monkeypatch.delenv(machine_code.VARIABLE, raising=False)
    monkeypatch.setattr(machine_code, "READ_SECONDS", 0.0)
    monkeypatch.setattr(machine_code, "WORTH_SECONDS", 0.0)
    monkeypatch.setattr(machine_code, "WAIT_SECONDS", 0.0)
    known = replace(relation(REALS), pages=None)
    heap = build_pages(known.schema, rows(100), page_size=8192)
    training = MachineTrainer().open(request(known, epochs=2), notify=lambda notice: None)
    assert isinstance(training, MachineTraining)
    found = []
    for _ in range(2):
        feed(training, training.sink, heap)
        found.append(has_code(training))
        training.end_epoch()
    assert found == [False, True]
    training.close()


@pytest.mark.parametrize("first", range(3))
def test_a_training_begins_without_waiting(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whenever the code comes, the models and losses are the same."""
    monkeypatch.setenv(machine_code.VARIABLE, "never")
    expected, _ = trained(4)
    monkeypatch.delenv(machine_code.VARIABLE)
    monkeypatch.setattr(machine_code, "WAIT_SECONDS", np.inf)
    come, make = Event(), machine_code.Compiled._compile
    monkeypatch.setattr(machine_code.Compiled, "_compile", lambda self: (come.wait(), make(self))[1])
    found = []

    def before(epoch: int, training: MachineTraining) -> None:
        assert training._compiled is not None
        assert training._compiled._compilation is not None
        if epoch == first:
            come.set()
            training._compiled._compilation.join()
        found.append(has_code(training))

    models, training = trained(4, pages=1_000_000, before=before)
    assert models == expected
    assert (*found, has_code(training)) == tuple(epoch > first for epoch in range(5))


def test_no_room_for_llvm(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would end the process: a session with little memory left trains as before."""
    monkeypatch.setenv(machine_code.VARIABLE, "always")
    monkeypatch.setattr(machine_code, "room_bytes", lambda: machine_code.ROOM - 1)
    _, training = trained()
    assert not has_code(training)


def test_a_rule_whose_code_would_be_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(machine_code.VARIABLE, "always")
    monkeypatch.setattr(code, "MAX_TEXT", 1000)
    _, training = trained()
    assert not has_code(training)


def test_without_llvm(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setenv(machine_code.VARIABLE, "always")
    expected, _ = trained()
    machine_code.unavailable.cache_clear()
    monkeypatch.setitem(sys.modules, "llvmlite", None)
    monkeypatch.setitem(sys.modules, "llvmlite.binding", None)
    with caplog.at_level(logging.WARNING):
        found = [trained() for _ in range(2)]
    assert [models for models, _ in found] == [expected] * 2
    assert not any(has_code(training) for _, training in found)
    (said,) = (one.getMessage() for one in caplog.records)
    assert "llvmlite is not installed" in said


def test_an_older_llvm(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Debian 13 has 0.44."""
    monkeypatch.setenv(machine_code.VARIABLE, "always")
    machine_code.unavailable.cache_clear()
    monkeypatch.setattr("llvmlite.__version__", "0.44.0")
    with caplog.at_level(logging.WARNING):
        assert not has_code(trained()[1])
    assert "is older than 0.46" in caplog.text


def test_a_worker_starts_where_llvm_cannot_be_loaded(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def unavailable() -> None:
        raise OSError("libllvmlite.so: cannot map")

    monkeypatch.delenv(machine_code.VARIABLE, raising=False)
    monkeypatch.setattr(machine_code, "unavailable", unavailable)
    machine_code.load_ahead()
    assert "cannot map" in caplog.text


OLDER = 77
CONFINED = """
import ctypes, os, sys
confined = ctypes.CDLL(None).prctl(65, 1, 0, 0, 0) == 0  # PR_SET_MDWE: Linux 6.3; an older one confines nobody
os.environ["DANA_COMPILED"] = "always"
from tests.trainer.test_machine_code import has_code, trained
models, training = trained()
assert has_code(training) != confined
sys.exit(0 if confined else OLDER)
"""


def test_a_process_that_may_not_execute_what_it_wrote() -> None:
    """Where the kernel can say so, no code runs and the log tells why; an older one lets it, and it has code."""
    script = CONFINED.replace("OLDER", str(OLDER))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode in (0, OLDER), done.stderr
    assert ("PR_SET_MDWE" in done.stderr) == (done.returncode == 0)


def test_memory_that_the_system_does_not_make_executable(monkeypatch: pytest.MonkeyPatch) -> None:
    """As under SELinux, where LLVM says nothing and a call would end the process."""
    monkeypatch.setenv(machine_code.VARIABLE, "always")
    monkeypatch.setattr("dana.jit.code._executable", lambda address: False)
    _, training = trained()
    assert not has_code(training)


def test_code_that_takes_more_memory_than_is_left(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(machine_code.VARIABLE, "always")
    monkeypatch.setattr(machine_code, "room_bytes", lambda: machine_code.ROOM)
    with caplog.at_level(logging.INFO):
        _, training = trained()
    assert not has_code(training)
    assert "its code would work on 0 MB, it may on 0" in caplog.text


def test_no_memory_to_run_code(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """It trains as it would without."""
    monkeypatch.setenv(machine_code.VARIABLE, "never")
    expected, _ = trained()

    def attach(self: Simulator, code: object) -> None:
        raise MemoryError

    monkeypatch.setenv(machine_code.VARIABLE, "always")
    monkeypatch.setattr(Simulator, "attach", attach)
    with caplog.at_level(logging.INFO):
        models, training = trained()
    assert (models, has_code(training)) == (expected, False)
    assert "trains without machine code: out of memory" in caplog.text


def test_no_name_of_a_rule_reaches_llvm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its text is made of operations and numbers: a name could be more than a name there."""
    monkeypatch.setenv(machine_code.VARIABLE, "always")
    texts: list[str] = []
    emit = code._machine_code
    monkeypatch.setattr(code, "_machine_code", lambda text: (texts.append(text), emit(text))[1])
    _, training = trained()
    assert has_code(training)
    (text,) = texts
    assert not re.search(r"logistic|grad|size|lr", text)


@pytest.mark.usefixtures("wrong_code")
def test_wrong_code_is_found_and_not_used() -> None:
    """The first pages of a training go both ways; one constant that differs is enough."""
    case = network_case(random.Random(3), replace(random_config(random.Random(3)), threads=2, tuple_depth=256))
    graph = simplify(case.binding.graph)
    k = next(k for k in sorted(graph.reachable(graph.training_roots)) if graph.nodes[k].op is Op.CONST)
    wrong = replace(graph.nodes[k], value=(graph.nodes[k].value or 0.0) + 1.0)
    attached = compile_graph(replace(graph, nodes=(*graph.nodes[:k], wrong, *graph.nodes[k + 1 :])), case.bundle)

    class Wrong(Simulator):
        def load(self, bundle: object) -> None:
            super().load(bundle)  # type: ignore[arg-type]
            self.attach(attached)

    machine = Wrong(case.bundle.config)
    assert_same(run(case, machine), run(case, Simulator(case.bundle.config)), case.source)
    assert machine.differs
    assert not machine.proved


@pytest.mark.usefixtures("wrong_code")
def test_who_trains_hears_of_wrong_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(machine_code.VARIABLE, "always")
    monkeypatch.setattr(Simulator, "differs", property(lambda self: True))
    known = relation(REALS)
    heap = build_pages(known.schema, rows(100), page_size=8192)
    heard: list[Notice] = []
    training = MachineTrainer().open(request(known, epochs=2), notify=heard.append)
    for _ in range(2):
        feed(training, training.sink, heap)
        training.end_epoch()
    training.close()
    (said,) = (one for one in heard if one.level is Level.WARNING)
    assert "differs from its accelerator program" in said.message


@pytest.mark.parametrize(("extents", "features"), [(EXTENTS, 5), (WIDE, 37)], ids=["small", "wide"])
@pytest.mark.parametrize("name", rules.NAMES)
def test_code_of_the_library(
    name: str, extents: dict[str, dict[str, int]], features: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every rule has code, with weights of rows and classes where it takes them, and trains the same models by it."""
    columns = {key: np.asarray(one, np.float32) for key, one in table(name, features=features).items()}
    options: dict[str, Any] = {"label": None if name in WITHOUT_LABEL else "y", "hyper": extents.get(name), "epochs": 3}
    given: list[dict[str, Any]] = [{}]
    if extents is EXTENTS and "dana.weight()" in rules.text(name):
        columns["v"] = np.float32(np.arange(150) % 3)
        given = [{"weight": "v"}]
        if "classes=" in rules.text(name):
            given += [{"class_weight": "balanced"}, {"weight": "v", "class_weight": {"0": 3}}]
    attached: list[Simulator] = []
    attach, close = Simulator.attach, Simulator.close
    monkeypatch.setattr(Simulator, "attach", lambda self, one: (attached.append(self), attach(self, one))[1])
    differing: list[bool] = []
    proved: list[bool] = []
    monkeypatch.setattr(
        Simulator,
        "close",
        lambda self: (differing.append(self.differs), proved.append(self.proved), close(self))[2],
    )
    for more in given:
        asked = {**columns} if "weight" in more else {key: one for key, one in columns.items() if key != "v"}
        found = []
        for mode in ("never", "always"):
            monkeypatch.setenv(machine_code.VARIABLE, mode)
            attached.clear()
            proved.clear()
            found.append(train(rules.text(name), asked, **options, **more))
            assert bool(attached) == (mode == "always")
            assert sum(proved) == len(attached), "code that was attached trained"
            assert differing, "closed after it was asked"
            assert not any(differing), "else the program trained, and its models are no witness"
        plain, fast = found
        assert (plain.losses, plain.cycles, plain.models.keys()) == (fast.losses, fast.cycles, fast.models.keys())
        for key, values in plain.models.items():
            assert values.tobytes() == fast.models[key].tobytes(), key


@pytest.mark.parametrize("name", ["logistic", "softmax"])
def test_free_processors_share_epochs(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the first epoch, with any number of threads: the same models, losses and cycles."""
    monkeypatch.setenv(machine_code.VARIABLE, "always")
    monkeypatch.setattr(machine_code, "SHARED_SECONDS", 0.0)
    shared: list[int] = []
    end = Simulator.end_epoch
    monkeypatch.setattr(Simulator, "end_epoch", lambda self: (end(self), shared.append(self.shared_tuples))[0])
    columns = table(name, 20_000)

    def found(free: int) -> tuple[object, ...]:
        shared.clear()
        monkeypatch.setattr(processors, "free", lambda: free)
        made = train(rules.text(name), columns, label="y", hyper=EXTENTS.get(name), epochs=4, patience=0)
        return {key: one.tobytes() for key, one in made.models.items()}, made.losses, made.cycles

    alone = found(1)
    assert not any(shared)
    for free in (2, 5):
        assert found(free) == alone
        assert sum(one > 0 for one in shared) == 4, "three epochs, and the pass that measures the loss"
    # no memory for others: this thread alone
    monkeypatch.setattr(machine_code, "room_bytes", lambda: 1 << 20)
    monkeypatch.setattr(machine_code, "ROOM", 0)
    assert found(2) == alone
    assert not any(shared)


def test_processors_that_are_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as nothing runs on, of those that the process may use and an option allows."""
    load = tmp_path / "loadavg"
    monkeypatch.setattr(processors, "LOAD", load)
    monkeypatch.setattr(processors, "_most", 8)
    monkeypatch.setattr("os.cpu_count", lambda: 16)
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: set(range(12)))
    for runnable, expected in ((1, 8), (9, 8), (10, 7), (16, 1), (40, 1)):
        load.write_text(f"0.42 0.38 0.30 {runnable}/412 9123\n")
        assert processors.free() == expected
    load.write_text("")
    assert processors.free() == 8, "nothing is known"
    processors.limit(3)
    assert processors.free() == 3
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {5})
    assert processors.free() == 1
