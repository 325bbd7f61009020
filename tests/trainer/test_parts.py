"""Trainings in parts, each in a thread: the bits of one training over rows of all parts in blocks."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from hashlib import sha256
from queue import SimpleQueue
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dana import rules
from dana.simulator import Simulator
from dana.storage.columns import column_pages, column_schema
from dana.trainer import machine_code, processors
from dana.trainer.checkpoints import Store, StoredCheckpoints
from dana.trainer.contract import (
    Notify,
    Part,
    Relation,
    Sink,
    Training,
    TrainingError,
    TrainRequest,
)
from dana.trainer.data.combined import Found, combined
from dana.trainer.data.surveyed import Surveyed
from dana.trainer.designs import graph_of
from dana.trainer.loop import Outcome, run
from dana.trainer.machine import feed_pages
from dana.trainer.parts import Following, Leading, like, packed, unpacked
from dana.trainer.trainer import MachineTrainer
from hwgen.cache import CacheFolder
from hwgen.spec import numerics

Columns = Mapping[str, NDArray[Any]]

SECONDS = 120
"""After which a part waits in vain; the hardware's simulation is built in less."""

LEAST = """
import dana
from dana.functions import standardized
n = dana.dim()
w, low, high, both = dana.model([n]), dana.model(), dana.model(), dana.model()
x, y = dana.input([n]), dana.output()
batch = dana.meta(8)
least = dana.algo(w, low, high, both, x, y)
error = dana.sigma(w * standardized(x), 1) - y
least.setModel(w, w - 0.1 * least.merge(error * standardized(x), batch, "mean"))
least.setModel(low, dana.min(low, least.merge(error, batch, "min")))
least.setModel(high, least.merge(error, batch, "max"))
least.setModel(both, both / 2 + least.merge(dana.exp(-error * error), batch, "*"))
least.setLoss(error * error)
least.setEpochs(3)
"""

AGAIN = """
import dana
n = dana.dim()
w, usual = dana.model([n]), dana.model([n])
x, y = dana.input([n]), dana.output()
batch = dana.meta(8)
again = dana.algo(w, usual, x, y)
mean = again.merge(x, batch, "mean")
z = x - mean
square = again.merge(z * z, batch, "mean")
scaled = z / dana.sqrt(square + 1)
error = dana.sigma(w * scaled, 1) - y
again.setModel(w, w - 0.1 * again.merge(error * scaled, batch, "mean"))
again.setModel(usual, usual + (mean - usual) / 8)
again.setLoss(error * error)
again.setEpochs(3)
"""
"""Three passes over each batch."""


SUMMED = """
import dana
n = dana.dim()
w = dana.model([n], init=0.5)
x, y, weight = dana.input([n]), dana.output(), dana.weight()
batch = dana.meta(8)
summed = dana.algo(w, x, y, weight)
PREPARED
error = dana.sigma(w * z, 1) - y
summed.setModel(w, w - 0.001 * summed.merge(weight * error * z, SIZE, "+"))
summed.setLoss(weight * error * error)
summed.setEpochs(3)
"""
"""Rows of weight 0 are as if there were none."""


class Hub:
    """Links between a leader and its followers."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.commands: list[SimpleQueue[bytes]] = [SimpleQueue() for _ in range(count)]
        self.answers: list[SimpleQueue[bytes]] = [SimpleQueue() for _ in range(count)]
        self.barrier = threading.Barrier(count, timeout=SECONDS)
        self.merges: list[bytes] = [b""] * count
        self.rounds = 0
        self.shared = 0
        """Tuples of the last epoch that other threads ran."""

    def link(self, number: int) -> HubLink:
        return HubLink(self, number - 1)


class HubLink:
    """A link of the hub; implements `Link`."""

    def __init__(self, hub: Hub, place: int) -> None:
        self._hub, self._place, self._ready = hub, place, False

    def lead(self, command: bytes) -> list[bytes]:
        for queue in self._hub.commands:
            queue.put(command)
        return [queue.get(timeout=SECONDS) for queue in self._hub.answers]

    def follow(self, answer: bytes) -> bytes:
        if self._ready:
            self._hub.answers[self._place].put(answer)
        self._ready = True
        return self._hub.commands[self._place].get(timeout=SECONDS)

    def join(self, merges: bytes) -> bytes:
        self._hub.merges[self._place] = merges
        self._hub.rounds += self._place == 0
        self._hub.barrier.wait()
        every = b"".join(self._hub.merges)
        self._hub.barrier.wait()  # no part replaces its own before all have read it
        return every


def asked(text: str, columns: Columns, options: Mapping[str, Any]) -> TrainRequest:
    attributes = tuple(replace(one, type_name="real") for one in column_schema(columns).attributes)
    relation = Relation(name="rows", pages=None, page_size=8192, attributes=attributes, rows=True)
    graph = graph_of(text, "rule")
    given: dict[str, Any] = {
        "features": None,
        "label": "y",
        "epochs": None,
        "hyper": {},
        "machine": "sim",
        "design": {},
    }
    given |= {"shuffle": False, "classes": None if graph.classes is None else ("0", "1")}
    return TrainRequest(rule=graph.name, text=text, relation=relation, **given | options)


def feeding(training: Training, columns: Columns) -> Callable[[Sink], int]:
    stream = training.stream
    assert stream is not None
    names = list(columns)
    frames = {names[number - 1]: columns[names[number - 1]] for number in stream.numbers}
    pages = column_pages(frames, page_size=stream.page_size) if len(columns["y"]) else np.zeros((0, 8192), np.uint8)

    def feed(sink: Sink) -> int:
        # a part without rows is fed nothing
        status = feed_pages(sink, pages) if len(pages) else 0
        if status:
            raise training.failure(status)
        return len(pages)

    return feed


def digest(columns: Columns) -> int:
    """Of rows, as a stream of their pages has one."""
    return int.from_bytes(sha256(b"".join(one.tobytes() for one in columns.values())).digest()[:8], "little")


def trained(text: str, columns: Columns, **options: Any) -> Outcome:
    request = asked(text, columns, options)
    training = MachineTrainer().open(request, lambda notice: None)
    try:
        return run(training, request, feed=feeding(training, columns), notify=lambda notice: None)
    finally:
        training.close()


def in_parts(
    text: str,
    parts: Sequence[Columns],
    mode: str,
    hub: Hub | None = None,
    store: Store | None = None,
    notify: Notify = lambda notice: None,
    cache: CacheFolder | None = None,
    machines: Sequence[str] = ("sim",),
    **options: Any,
) -> Outcome:
    """A training; parts have the machines in turn."""
    hub = hub or Hub(len(parts))
    failed: list[BaseException] = []

    def follow(number: int) -> None:
        columns = parts[number - 1]
        part = Part(mode=mode, number=number, count=len(parts))
        request = asked(text, columns, options | {"part": part, "machine": machines[number % len(machines)]})
        try:
            training = MachineTrainer(cache).open(request, lambda notice: None, hub.link(number))
            assert isinstance(training, Following)
            try:
                training.follow(feeding(training, columns), digest=lambda: digest(columns))
                if training._judge is None and isinstance(training._machine, Simulator):  # which frees the machine
                    hub.shared += training._machine.shared_tuples
            finally:
                training.close()
        except BaseException as error:
            failed.append(error)
            hub.barrier.abort()
        finally:
            hub.answers[number - 1].put(b"")  # the end, or to the leader a malformed message

    threads = [threading.Thread(target=follow, args=(k,), daemon=True) for k in range(1, len(parts) + 1)]
    for thread in threads:
        thread.start()
    part = Part(mode=mode, number=0, count=len(parts))
    request = asked(text, parts[0], options | {"part": part, "machine": machines[0]})
    training = MachineTrainer(cache).open(request, lambda notice: None, hub.link(0))
    assert isinstance(training, Leading)
    try:
        checkpoints = None if store is None else StoredCheckpoints(store, request, training, notify)
        outcome = run(training, request, feed=lambda sink: 0, notify=notify, checkpoints=checkpoints)
        training.dismiss()
    except TrainingError as error:
        raise failed[0] if failed else error from error
    training.close()
    for thread in threads:
        thread.join(SECONDS)
    assert not failed
    return outcome


def drawn(count: int, seed: int, columns: int = 5) -> dict[str, NDArray[Any]]:
    generator = np.random.default_rng(seed)
    values = generator.normal(size=(count, columns)) * np.arange(1, columns + 1) + 3
    label = values @ np.linspace(-1, 1, columns) + generator.normal(size=count) > 1
    found = {f"x{k}": values[:, k].astype(np.float32) for k in range(columns)}
    return found | {"weight": np.ones(count, np.float32), "y": label.astype(np.float32)}


def interleaved(parts: Sequence[Columns], block: int, *, padded: bool = False) -> dict[str, NDArray[Any]]:
    """Rows of all in turns of so many; padded: with rows of weight 0 in the place of those that a part lacks."""
    whole = {}
    most = max(len(one["y"]) for one in parts)
    for name in parts[0]:
        pieces = []
        for start in range(0, most, block):
            for one in parts:
                piece = one[name][start : start + block]
                missing = block - len(piece) if padded else 0
                pieces.append(np.concatenate([piece, np.zeros(missing, np.float32)]))
        whole[name] = np.concatenate(pieces)
    return whole


def bits(outcome: Outcome) -> dict[str, bytes]:
    return {one.name: one.values.tobytes() for one in outcome.result.parameters}


def of(rule: str) -> str:
    return rules.text(rule)


CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "four operators": (LEAST, {}),
    "three passes": (AGAIN, {}),
    "mlp": (of("mlp"), {"epochs": 2, "hyper": {"k": 2, "h": 4, "batch": 8}}),
    "linear_svm": (of("linear_svm"), {"epochs": 2, "hyper": {"batch": 16}}),
    "bfloat16": (of("linear_svm"), {"epochs": 2, "hyper": {"batch": 16}, "stored_as": "bfloat16"}),
    "linear": (of("linear"), {}),
    "logistic": (of("logistic"), {}),
}


@pytest.mark.parametrize("count", [3])
@pytest.mark.parametrize("case", CASES)
def test_batches_have_the_bits_of_one_training(case: str, count: int) -> None:
    text, options = CASES[case]
    parts = [drawn(64, seed) for seed in range(count)]
    features = tuple(name for name in parts[0] if name.startswith("x"))
    hyper = dict(options.get("hyper", {}))
    batch = graph_of(text, "rule").batch
    block = 64 if batch is None else int(hyper.setdefault("batch", batch))
    there = in_parts(text, parts, "batch", features=features, **options | {"hyper": {**hyper}})
    if batch is not None:
        hyper["batch"] = block * count
    here = trained(text, interleaved(parts, block), features=features, **options | {"hyper": hyper})
    assert bits(there) == bits(here)
    assert [one.loss for one in there.reports] == [one.loss for one in here.reports]
    assert there.result.metadata["batch"] == here.result.metadata["batch"]
    assert (there.result.metadata["sync"], there.result.metadata["shards"]) == ("batch", count)


ALONE = {
    "rtl": (["rtl"], {}),
    "without machine code": (["sim"], {"DANA_COMPILED": "never"}),
    "some of each": (["sim", "rtl"], {}),
}


@pytest.mark.parametrize("how", ALONE)
@pytest.mark.parametrize("sizes", [(64, 64, 64), (0, 9, 64)])
def test_machines_pause_to_join_their_sums(how: str, sizes: Sequence[int], monkeypatch: pytest.MonkeyPatch) -> None:
    machines, environment = ALONE[how]
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    parts = [drawn(count, seed) for seed, count in enumerate(sizes)]
    shape = {"threads": 1, "clusters": 1}
    options: dict[str, Any] = {"features": ("x0", "x1", "x2"), "weight": "weight", "design": shape}
    text = SUMMED.replace("SIZE", "batch").replace("PREPARED", "z = x")
    if "rtl" in machines:  # a machine that pauses alone; built once, before parts wait for one another
        alone = [
            trained(text, drawn(20, 0), **options | one)
            for one in ({"machine": "rtl", "design": {**shape, "pause": 1}}, {"machine": "interp"})
        ]
        assert bits(alone[0]) == bits(alone[1])
    there = in_parts(text, parts, "batch", machines=machines, **options)
    here = trained(
        text, interleaved(parts, 8, padded=True), **options, hyper={"batch": 8 * len(parts)}, machine="interp"
    )
    for one, other in zip(there.result.parameters, here.result.parameters, strict=True):
        assert np.array_equal(one.values, other.values)
    assert there.reports[-1].tuples == sum(sizes)


@pytest.mark.parametrize("text", [AGAIN, LEAST])
def test_a_machine_that_cannot_pause_says_why(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rule that returns to its rows, and batches of one row."""
    parts = [drawn(8, seed) for seed in range(2)]
    options: dict[str, Any] = {"features": ("x0", "x1"), "hyper": {"batch": 8 if text is AGAIN else 1}}
    with pytest.raises(TrainingError, match="sync => 'batch' on machine 'rtl', which would have to pause once in a b"):
        in_parts(text, parts, "batch", machines=["rtl"], **options)
    monkeypatch.setenv("DANA_COMPILED", "never")
    with pytest.raises(TrainingError, match=r"sync => 'batch' needs machine code of rule '\w+', which uses values"):
        in_parts(text, parts, "batch", **options)


@pytest.mark.parametrize("sizes", [(40, 17, 0), (0, 1, 33), (9, 0, 0, 64, 8)])
@pytest.mark.parametrize("size", ["batch", "dana.all"])
def test_absent_rows_count_nothing(size: str, sizes: Sequence[int]) -> None:
    prepared = 'z = x - summed.merge(weight * x, batch, "+") / 64' if size == "batch" else "z = x"
    text = SUMMED.replace("SIZE", size).replace("PREPARED", prepared)
    parts = [drawn(count, seed) for seed, count in enumerate(sizes)]
    options: dict[str, Any] = {"features": ("x0", "x1", "x2"), "weight": "weight"}
    there = in_parts(text, parts, "batch", **options)
    block, batch = (8, {"batch": 8 * len(sizes)}) if size == "batch" else (64, {})
    here = trained(text, interleaved(parts, block, padded=True), **options, hyper=batch)
    # -0 and 0 are sums of no rows
    assert all(
        np.array_equal(one.values, other.values)
        for one, other in zip(there.result.parameters, here.result.parameters, strict=True)
    )


def test_an_epoch_ends_with_the_mean_over_the_rows() -> None:
    text = of("linear_svm")
    parts = [drawn(size, seed) for seed, size in enumerate((48, 0, 20))]
    features = tuple(name for name in parts[0] if name.startswith("x"))
    options: dict[str, Any] = {"epochs": 1, "standardize": False, "features": features, "patience": 0}
    there = in_parts(text, parts, "epoch", **options)
    alone = [trained(text, one, **options) for one in parts if len(one["y"])]
    for k, one in enumerate(there.result.parameters):
        sums = sum(
            each.result.parameters[k].values.astype(np.float64) * n for each, n in zip(alone, (48, 20), strict=True)
        )
        assert np.array_equal(one.values, np.asarray(sums / 68, np.float32)), one.name
    assert there.result.metadata["sync"] == "epoch"


def test_means_of_narrow_models_are_narrow() -> None:
    parts = [drawn(64, seed) for seed in range(3)]
    features = tuple(name for name in parts[0] if name.startswith("x"))
    found = in_parts(of("linear_svm"), parts, "epoch", epochs=2, features=features, stored_as="bfloat16")
    models = {one.name: one.values for one in found.result.parameters}
    np.testing.assert_array_equal(models["w"], numerics.bfloat16(models["w"]))
    assert (models["w.velocity"] != numerics.bfloat16(models["w.velocity"])).any()


def test_parts_learn_as_much_by_epochs_as_by_batches() -> None:
    parts = [drawn(2048, seed) for seed in range(3)]
    features = tuple(name for name in parts[0] if name.startswith("x"))
    losses = {
        mode: in_parts(of("linear_svm"), parts, mode, epochs=10, features=features).kept.loss
        for mode in ("batch", "epoch")
    }
    assert losses["epoch"] is not None
    assert losses["batch"] is not None
    assert losses["epoch"] <= 1.01 * losses["batch"]


def test_threads_of_a_part_change_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = [drawn(count, seed) for seed, count in enumerate((20001, 30000))]
    monkeypatch.setattr(machine_code, "SHARED_SECONDS", 0.0)
    found = []
    for threads in (1, 2):
        monkeypatch.setattr(processors, "free", lambda count=threads: count)
        hub = Hub(2)
        found.append(bits(in_parts(of("linear"), parts, "batch", hub, features=("x0", "x1"))))
        assert (hub.shared > 0) == (threads > 1)
    assert found[0] == found[1]


def test_a_solved_rule_exchanges_once_in_a_pass() -> None:
    parts = [drawn(64, seed) for seed in range(3)]
    hub = Hub(3)
    outcome = in_parts(of("linear"), parts, "batch", hub, features=("x0", "x1"))
    # and once for the loss of the kept model
    assert hub.rounds == len(outcome.reports) + 1


@pytest.mark.parametrize(
    ("rule", "mode", "options", "message"),
    [
        ("bpr", "batch", {}, "it has no merge, so there is nothing to join over the shards"),
        ("bpr", "epoch", {}, "are learnt from the rows that choose them"),
        ("logistic", "epoch", {}, r"it takes one step for all rows \(dana.all\)"),
        ("kmeans", "batch", {}, "it starts from rows of the whole table"),
        (
            "linear_svm",
            "batch",
            {"hyper": {"batch": 9}},
            "batch, the rows of a shard in a batch, is 9, which is no power",
        ),
        ("linear_svm", "batch", {"hyper": {"batch": 8.5}}, "is 8.5, which is no power"),
        ("linear_svm", "batch", {"machine": "interp"}, "trains on machine 'sim' or 'rtl', not 'interp'"),
        ("linear_svm", "all", {}, "must be gather, batch or epoch, not 'all'"),
        (LEAST.replace("dana.meta(8)", "8"), "batch", {}, "its batch size is the literal 8; make it a meta"),
        (
            LEAST.replace("error = ", "noise = dana.random()\nerror = noise + "),
            "batch",
            {},
            "it uses the number of a row in its batch, as dana.random does",
        ),
    ],
)
def test_rules_that_cannot_say_why(rule: str, mode: str, options: dict[str, Any], message: str) -> None:
    columns = drawn(8, 0)
    text = rule if "\n" in rule else of(rule)
    request = asked(text, columns, options | {"part": Part(mode=mode, number=0, count=2)})
    with pytest.raises(TrainingError, match=message):
        MachineTrainer().open(request, lambda notice: None, HubLink(Hub(2), 0))


def test_messages_of_another_server_are_arrays_or_errors() -> None:
    arrays = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.array(7.0)}
    name, found = unpacked(packed("some", arrays))
    assert name == "some"
    assert all(np.array_equal(found[key], arrays[key]) for key in arrays)
    message = packed("some", arrays)
    malformed = [b"", b"\xff" * 8, message[:-1], message + b"\0", message.replace(b"<f4", b"|O8"), b"\2\0\0\0[]"]
    malformed += [message.replace(b"[2, 3]", b"[2,-3]"), (10**5).to_bytes(4, "little") + b"[" * 10**5]
    for one in malformed:
        with pytest.raises(TrainingError, match="sent a malformed message"):
            unpacked(one)
    for other in (np.zeros((2, 3)), np.zeros((3, 2), np.float32)):
        with pytest.raises(TrainingError, match=r"a is float\d\d \[\d, \d\], not float\d\d \[\d, \d\]"):
            like(found, {"a": other})
    with pytest.raises(TrainingError, match="c is nothing"):
        like(found, {"c": np.zeros(1)})


@pytest.mark.parametrize("ends", [(0, 100, 100, 257), (1, 2, 3, 400), (200,)])
def test_surveys_of_parts_are_that_of_all_rows(ends: Sequence[int]) -> None:
    values = np.random.default_rng(1).normal(size=(400, 8)).astype(np.float32) * 3 + 1000
    weights = np.ones(400)

    def found(part: NDArray[np.float32]) -> Surveyed:
        empty = Surveyed.nothing((1, 8))
        if not len(part):
            return empty
        bits_ = part.view(np.uint32)
        mean = part.astype(np.float64).mean(axis=0)[None]
        return replace(
            empty,
            tuples=np.array(float(len(part))),
            weights=np.array(weights[: len(part)].sum()),
            mean=mean,
            squares=((part - mean) ** 2).sum(axis=0)[None],
            first=bits_[:1].copy(),
            differ=np.bitwise_or.reduce(bits_ ^ bits_[0], axis=0)[None],
        )

    parts = [Found.of(found(one), len(one), 0) for one in np.split(values, ends)]
    total, whole = combined(Surveyed.nothing((1, 8)), parts), found(values)
    assert (float(total.tuples), float(total.weights)) == (400, 400)
    assert np.array_equal(total.first, whole.first)
    assert np.array_equal(total.varies, whole.varies)
    assert np.array_equal(total.mean.astype(np.float32), whole.mean.astype(np.float32))
    deviations = [np.sqrt(one.squares / 400).astype(np.float32) for one in (total, whole)]
    assert np.array_equal(*deviations)


@pytest.mark.parametrize(
    ("commands", "merges", "error", "message"),
    [
        (["survey", "epoch"], None, ConnectionResetError, "the other part is gone"),
        (["survey", "epoch"], b"", TrainingError, "malformed message: merges of 0 bytes, not 20 of each of 2 parts"),
        (["survey", "survey"], None, TrainingError, "malformed message: a second survey"),
    ],
)
def test_what_a_part_cannot_exchange_ends_its_epoch(
    commands: list[str], merges: bytes | None, error: type[Exception], message: str
) -> None:
    columns = drawn(64, 0)
    part = Part(mode="batch", number=1, count=2)
    request = asked(of("linear_svm"), columns, {"part": part, "features": ("x0",)})

    class Lost(HubLink):
        def join(self, _: bytes) -> bytes:
            if merges is None:
                raise ConnectionResetError("the other part is gone")
            return merges

    training = MachineTrainer().open(request, lambda notice: None, Lost(Hub(1), 0))
    assert isinstance(training, Following)
    feed = partial(training.follow, feeding(training, columns))
    training._link = Commands(commands, Lost(Hub(1), 0))
    with pytest.raises(error, match=message):
        feed()
    training.close()


class Commands:
    """A link that gives commands one after the other."""

    def __init__(self, names: Sequence[str], link: HubLink) -> None:
        self._names = list(names)
        self.lead, self.join = link.lead, link.join

    def follow(self, answer: bytes) -> bytes:
        return packed(self._names.pop(0), {})
