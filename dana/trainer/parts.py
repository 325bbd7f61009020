"""A training on several servers: one trainer leads it, without rows, and one follows for each part of the rows.

The leader decides all that a training decides (start values, when it ends, which epoch is kept, the last steps of a
solver) with what the others count and sum. So what is not sums of whole batches is computed once, and no decision
depends on the processors of several machines. Followers execute commands, each with arrays of known names and shapes,
and join the merges of an epoch's batches among themselves.

In: a `Link` that carries bytes, and knows of no connection. Out: trainings like any other.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cached_property

import numpy as np

from dana.errors import InternalError
from dana.predictor.centres import Centres
from dana.simulator.machine import Observer, Simulator
from dana.trainer.contract import (
    EpochReport,
    HeldOut,
    Link,
    Notify,
    OutOfLine,
    Parameter,
    Part,
    Sink,
    SqlState,
    Stream,
    Training,
    TrainingError,
    TrainRequest,
)
from dana.trainer.data.combined import TALLIED, Array, Found, combined
from dana.trainer.data.likelihood import Basis, Family, LikelihoodObserver
from dana.trainer.designs import Design, rule_graph
from dana.trainer.machine import Joins, Machine, write_symbol
from dana.trainer.machine_code import unavailable
from dana.trainer.messages.page_errors import no_rows_error
from dana.trainer.training import MachineTraining
from dsl.hdfg.graph import Graph, Op, Region
from dsl.hdfg.init import InitKind
from hwgen.spec.bundle import Symbol
from hwgen.spec.counters import COUNTERS, EpochCounters
from hwgen.spec.numerics import bfloat16
from hwgen.spec.strider import Fault

Arrays = Mapping[str, Array]

KINDS = ("<f4", "<f8", "<i8", "<u4")
"""Types of the arrays in a message."""

LIMIT = 2**53
"""Bound of whole numbers in a message."""

NOWHERE = Sink(function=0, context=0)
"""The sink of a pass over no rows."""

RESULTS = ("matrix", "gradient", "moved", "squares", "sums")
"""Arrays of an observer that a pass fills."""


class Again(OutOfLine):
    """The leader begins again: columns are to be less these centres."""

    def __init__(self, centres: Centres) -> None:
        super().__init__("the leader of the training begins again")
        self._centres = centres

    def amended(self, request: TrainRequest) -> TrainRequest:
        """See `OutOfLine.amended`."""
        return replace(OutOfLine.amended(self, request), centres=self._centres)


def packed(name: str, arrays: Arrays) -> bytes:
    """Return a message: a name, and arrays by name."""
    whole = {key: np.asarray(value) for key, value in arrays.items()}
    head = json.dumps([name, {key: [value.dtype.str, value.shape] for key, value in whole.items()}]).encode()
    return b"".join([len(head).to_bytes(4, "little"), head, *(value.tobytes() for value in whole.values())])


def unpacked(message: bytes) -> tuple[str, dict[str, Array]]:
    """Return name and arrays of a message, which another server may have made up.

    Raises
    ------
    TrainingError
        It is none.
    """
    try:
        place = 4 + int.from_bytes(message[:4], "little")
        name, described = json.loads(message[4:place])
        arrays = {}
        for key, (kind, shape) in described.items():
            if kind not in KINDS or min(shape, default=0) < 0:
                raise ValueError(f"an array of type {kind} and shape {shape}")
            count = math.prod(shape)
            # copied: an array on bytes cannot be written
            arrays[str(key)] = np.frombuffer(message, kind, count, place).reshape(shape).copy()
            place += count * np.dtype(kind).itemsize
        if place != len(message):
            raise ValueError(f"{len(message) - place} bytes too many")
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise _malformed(str(error)) from None
    return str(name), arrays


def _malformed(why: str) -> TrainingError:
    return TrainingError(f"a part of the training sent a malformed message: {why}", sqlstate=SqlState.PROTOCOL)


def like(arrays: Arrays, expected: Arrays, *, free: Collection[str] = ()) -> dict[str, Array]:
    """Return those arrays of a message that are expected, or raise TrainingError for another shape or type.

    Parameters
    ----------
    free
        Those of any length of their first axis.
    """
    for name, one in expected.items():
        found = arrays.get(name)
        if found is not None and name in free and found.ndim == one.ndim and found.shape[1:] == one.shape[1:]:
            one = np.zeros(found.shape, one.dtype)
        if found is None or found.shape != one.shape or found.dtype != one.dtype:
            what = "nothing" if found is None else f"{found.dtype} {list(found.shape)}"
            raise _malformed(f"{name} is {what}, not {one.dtype} {list(one.shape)}")
    return {name: arrays[name] for name in expected}


def check_rule(request: TrainRequest, part: Part) -> None:
    """Raise TrainingError if a rule cannot be trained in parts as the caller wants it, with the reason."""
    graph, by = rule_graph(request), f"sync => '{part.mode}'"
    if part.mode not in ("batch", "epoch"):
        raise TrainingError(f'argument "sync" must be gather, batch or epoch, not {part.mode!r}')
    if request.machine == "interp":
        raise TrainingError(f"{by} trains on machine 'sim' or 'rtl', not {request.machine!r}")
    why = _no_batch(graph, request) if part.mode == "batch" else _no_average(graph)
    if any(graph.nodes[k].init.kind is InitKind.CENTRES for k in graph.models):
        why = "it starts from rows of the whole table"
    if why is not None:
        raise TrainingError(
            f"rule {request.rule!r} cannot be trained with {by}: {why}",
            hint="With sync => 'gather', the default, every rule can be.",
        )


def _no_batch(graph: Graph, request: TrainRequest) -> str | None:
    if not graph.has_merge:
        return "it has no merge, so there is nothing to join over the shards"
    for update in graph.updates:
        name = graph.nodes[update.model].name
        if graph.by_tuple(update) or update.adds:
            return f"each row writes rows of model {name!r} that it chooses"
        if graph.nodes[update.value].region is Region.TUPLE:
            return f"model {name!r} takes a value of the batch's last row, which is not merged"
    if any(graph.nodes[k].op is Op.ROW for k in graph.reachable(graph.training_roots)):
        return "it uses the number of a row in its batch, as dana.random does"
    if graph.batch is None:
        return None
    if graph.batch_meta is None:
        return f"its batch size is the literal {graph.batch}; make it a meta, as in batch = dana.meta({graph.batch})"
    name = str(graph.nodes[graph.batch_meta].name)
    size = request.hyper.get(name, graph.batch)
    whole = isinstance(size, int | float) and size >= 1 and size == int(size)
    return (
        None
        if whole and not int(size) & int(size) - 1
        else f"{name}, the rows of a shard in a batch, is {size:g}, which is no power of two"
    )


def _no_average(graph: Graph) -> str | None:
    if graph.has_merge and graph.batch is None:
        return "it takes one step for all rows (dana.all), which sync => 'batch' takes with one round"
    for update in graph.updates:
        if graph.by_tuple(update) or update.adds or update.at_once:
            name = graph.nodes[update.model].name
            return f"rows of model {name!r} are learnt from the rows that choose them, and have no mean over the shards"
    return None


class _Parted(MachineTraining):
    """What leader and followers share."""

    def __init__(
        self,
        request: TrainRequest,
        design: Design,
        machine: Machine,
        notify: Notify,
        stream: Stream | None,
        *,
        judge: Callable[[], Training] | None,
        link: Link,
    ) -> None:
        assert request.part is not None
        self._part, self._link = request.part, link
        super().__init__(request, design, machine, notify, stream, judge=judge)

    @property
    def _states(self) -> dict[str, Symbol]:
        """Models, states, and the results of an epoch, by the names in messages."""
        found = {f"model.{one.name}": one for one in self._bundle.of_kind("model")}
        results = ((kind, self._bundle.symbol(kind)) for kind in ("loss", "convergence"))
        return found | {kind: symbol for kind, symbol in results if symbol is not None}

    def _take(self, arrays: Arrays) -> None:
        for name, symbol in self._states.items():
            if name in arrays:
                write_symbol(self._machine, symbol, arrays[name], self._bundle.config.lanes)

    @property
    def _models(self) -> dict[str, Array]:
        return {f"model.{one.name}": one.values for one in self.parameters()}


class Leading(_Parted):
    """The leader's training. Its sinks take no pages."""

    _observer: LikelihoodObserver | None = None
    _judged: Sequence[Parameter] = ()
    digests: Sequence[int] = ()
    """Of the rows of each part, in their order and as the rule reads them; known after the survey."""

    @cached_property
    def _expected(self) -> Arrays:
        """What a follower's state is like."""
        return {name: np.zeros(one.shape, np.float32) for name, one in self._states.items()}

    def _lead(
        self, name: str, arrays: Arrays, expected: Arrays, *, free: Collection[str] = ()
    ) -> list[dict[str, Array]]:
        """Send a command; return the answers, which have arrays like those expected."""
        return [like(unpacked(answer)[1], expected, free=free) for answer in self._link.lead(packed(name, arrays))]

    def _begin(self) -> None:
        """There are no pages to begin an epoch for."""

    @property
    def survey(self) -> Sink | None:
        return NOWHERE

    def end_survey(self) -> None:
        self._surveyor = None
        empty = Found.of(self._surveyed, 0, 0)
        # a tally has as many values as were found
        answers = self._lead("survey", {}, {**empty.arrays, "digest": np.zeros((), np.int64)}, free=[TALLIED])
        self.digests = [int(one.pop("digest")) for one in answers]
        found = [Found.read(one) for one in answers]
        tuples, skipped = sum(one.rows for one in found), sum(one.skipped for one in found)
        if not tuples:
            raise no_rows_error(self._request, skipped)
        self._surveyed = combined(self._surveyed, found)
        self._apply_survey(tuples)
        self._tell()

    def _tell(self) -> None:
        self._lead("adopt", self._models, {})

    @property
    def sink(self) -> Sink:
        return NOWHERE

    def _ended(self) -> EpochCounters:
        expected: dict[str, Array] = {"counters": np.zeros(len(COUNTERS), np.int64)}
        answers = self._lead("epoch", {}, expected)
        found = [dict(zip(COUNTERS, one["counters"].tolist(), strict=True)) for one in answers]
        # a part with fewer batches than others does not have the last models
        batches = [one["batches"] for one in found]
        if self._part.mode == "epoch":
            self._take(self._averaged([one["tuples"] for one in found]))
        else:
            self._take(*self._followers_states(1 + batches.index(max(batches))))
        if self._part.mode == "epoch" or min(batches) < max(batches):
            self._tell()
        slowest = max(found, key=lambda one: int(one["cycles"]))
        counts = {name: sum(one[name] for one in found) for name in ("tuples", "skipped")}
        return EpochCounters(**{**slowest, **counts})

    def _followers_states(self, part: int = 0) -> list[dict[str, Array]]:
        """Models, states and results of a follower, or of all."""
        answers = [unpacked(answer)[1] for answer in self._link.lead(packed("state", {"part": np.array(part)}))]
        return [like(one, self._expected) for one in answers if one]

    def _averaged(self, tuples: Sequence[int]) -> dict[str, Array]:
        """The mean of models and states over the rows, in binary64 and the order of the parts; the sum of losses."""
        states = self._followers_states()
        total = sum(tuples)
        if len(states) != len(tuples) or not total:
            raise _malformed(f"{len(states)} states of {len(tuples)} parts with {total} rows")
        mean: dict[str, Array] = {}
        for name in self._expected:
            some = [(one[name].astype(np.float64), count) for one, count in zip(states, tuples, strict=True) if count]
            if name == "convergence":
                mean[name] = np.array(all(bool(value) for value, _ in some), np.float32)
            else:
                weighed = [value if name == "loss" else value * count for value, count in some]
                summed = np.sum(np.stack(weighed).cumsum(axis=0)[-1:], axis=0)
                mean[name] = np.asarray(summed if name == "loss" else summed / total).astype(np.float32)
        narrow = [f"model.{name}" for name in self._design.narrow]
        return mean | {name: bfloat16(mean[name]) for name in narrow}

    def adopt(self, parameters: Sequence[Parameter]) -> None:
        super().adopt(parameters)
        self._tell()

    def count(self, reports: Sequence[EpochReport]) -> None:
        """Count epochs of an earlier run as those of this one."""
        self._cycles = sum(one.cycles or 0 for one in reports)

    def look(self, observer: Observer) -> Sink:
        assert isinstance(observer, LikelihoodObserver)
        self._observer = observer
        return NOWHERE

    def end_look(self) -> None:
        at = self._observer
        assert at is not None
        numbers = np.array([at.middle, at.family, at.rows, at.seed], np.float64)
        asked = {"weights": at.weights, "centre": at.basis.centre, "scale": at.basis.scale, "numbers": numbers}
        for answer in self._lead("look", asked, {name: getattr(at, name) for name in RESULTS}):
            for name, value in answer.items():
                mine = getattr(at, name)
                largest = name == "moved" or (name == "matrix" and at.family is Family.BOUNDS)
                mine[...] = np.maximum(mine, value) if largest else mine + value

    def judge(self, parameters: Sequence[Parameter]) -> Sink | None:
        if self._open_judge is None:
            return None
        self._judged = parameters
        return NOWHERE

    def end_judging(self) -> float | None:
        models = {f"model.{one.name}": one.values for one in self._judged}
        found = [one["judged"] for one in self._lead("judge", models, {"judged": np.zeros(2)})]
        return float(sum(one[0] for one in found) / sum(one[1] for one in found))

    def loss(self, parameters: Sequence[Parameter]) -> float | None:
        """See `Validation.loss`: of the rows that are held out at the followers."""
        models = {f"model.{one.name}": one.values for one in parameters}
        found = [one["judged"] for one in self._lead("validate", models, {"judged": np.zeros(2)})]
        rows = sum(one[1] for one in found)
        return float(sum(one[0] for one in found) / rows) if rows else None

    def dismiss(self) -> None:
        """End the followers' part."""
        self._link.lead(packed("end", {}))


class Following(_Parted):
    """A follower's training."""

    _held_out: HeldOut | None = None
    _joined: Joins | None = None
    """What exchanges merges while an epoch runs; None: models are averaged after it."""

    def _exchange(self, merges: bytes) -> bytes:
        every = self._link.join(merges)
        if len(every) != len(merges) * self._part.count:
            raise _malformed(f"merges of {len(every)} bytes, not {len(merges)} of each of {self._part.count} parts")
        return every

    def _failure(self, status: int) -> Exception:
        self._check_joined()
        return super()._failure(status)

    def _check_joined(self) -> None:
        if self._joined is not None and self._joined.error is not None:
            raise self._joined.error

    def follow(
        self, feed: Callable[[Sink], int], held_out: HeldOut | None = None, digest: Callable[[], int] = int
    ) -> None:
        """Execute commands until the last one.

        Parameters
        ----------
        digest
            Of the rows that were streamed first, in 64 bits.
        """
        self._held_out, self._digest = held_out, digest
        if self._part.mode == "batch":
            self._joined = self._machine.join(self._exchange, self._part.count)
        answer = b""
        while True:
            name, arrays = unpacked(self._link.follow(answer))
            if name == "end":
                return
            if name == "again":
                given = like(arrays, {"label": np.zeros(())})
                features = arrays.get("features", np.zeros(0))
                raise Again(Centres(features=tuple(features.astype(float).tolist()), label=float(given["label"])))
            if name not in COMMANDS:
                raise _malformed(f"a command {name!r}")
            answer = packed(name, COMMANDS[name](self, arrays, feed))

    def _survey(self, _: Arrays, feed: Callable[[Sink], int]) -> Arrays:
        sink = self.survey
        if sink is None or self._surveyor is None:
            raise _malformed("a second survey")
        feed(sink)
        counters = self._surveyor.end_epoch()
        self._surveyor = None
        self._check_fault(counters)
        found = Found.of(self._surveyed, counters.tuples, counters.skipped)
        return {**found.arrays, "digest": np.array(self._digest(), np.uint64).view(np.int64)}

    def _adopt(self, arrays: Arrays, _: Callable[[Sink], int]) -> Arrays:
        expected = {name: np.zeros(one.shape, np.float32) for name, one in self._states.items() if one.kind == "model"}
        self._take(like(arrays, expected))
        return {}

    def _epoch(self, _: Arrays, feed: Callable[[Sink], int]) -> Arrays:
        sink = self.sink
        compiled = self._compiled
        coded = compiled is not None and compiled.attached
        if self._joined is not None and not coded and not self._bundle.merges:
            raise TrainingError(
                f"sync => 'batch' needs machine code of rule {self._request.rule!r}, which uses values of a batch in "
                f"its rows again, or batches of one row, and there is none: {unavailable() or 'it was not compiled'}",
                sqlstate=SqlState.FEATURE_NOT_SUPPORTED,
                hint="The worker's log has the details. With sync => 'gather' it is not needed.",
            )
        feed(sink)
        counters = self._ended()
        self._begun = False
        self._check_joined()
        if self._joined is not None and isinstance(self._machine, Simulator) and self._machine.differs:
            raise InternalError(
                f"the machine code of rule {self._request.rule!r} differs from its accelerator program; please report "
                "this with the rule"
            )
        self._check_fault(counters)
        if compiled is not None:
            compiled.after_epoch(self._notify)
        return {"counters": np.array([getattr(counters, name) for name in COUNTERS], np.int64)}

    def _state(self, arrays: Arrays, _: Callable[[Sink], int]) -> Arrays:
        part = int(like(arrays, {"part": np.zeros((), np.int64)})["part"])
        return {name: self._read(one) for name, one in self._states.items()} if part in (0, self._part.number) else {}

    def _look(self, arrays: Arrays, feed: Callable[[Sink], int]) -> Arrays:
        layout = self.layout
        size = len(layout.features)
        basis = like(arrays, {"centre": np.zeros(size), "scale": np.zeros(size), "numbers": np.zeros(4)})
        weights = arrays.get("weights", np.zeros((0, 0)))
        middle, family, rows, seed = basis["numbers"].tolist()
        whole = weights.ndim == 2 and weights.shape[1] == size + 1 and family in set(Family)
        if not whole or not 0 <= rows < LIMIT or not 0 <= seed < LIMIT:
            raise _malformed(f"weights of shape {weights.shape} for family {family}")
        observer = LikelihoodObserver(
            family=Family(int(family)),
            layout=layout,
            basis=Basis(centre=basis["centre"], scale=basis["scale"]),
            weights=weights,
            middle=middle,
            rows=int(rows),
            seed=int(seed),
        )
        feed(self.look(observer))
        self.end_look()
        return {name: getattr(observer, name) for name in RESULTS}

    def _judge_models(self, arrays: Arrays, feed: Callable[[Sink], int]) -> Arrays:
        models = [Parameter(name=name.removeprefix("model."), values=values) for name, values in arrays.items()]
        sink = self.judge(models)
        judge = self._judge
        assert sink is not None
        assert isinstance(judge, MachineTraining)
        feed(sink)
        counters, loss = judge.judged()
        return {"judged": np.array([loss, counters.tuples], np.float64)}

    def _validate(self, arrays: Arrays, _: Callable[[Sink], int]) -> Arrays:
        if self._held_out is None:
            raise _malformed("a command to validate, without rows for it")
        models = [Parameter(name=name.removeprefix("model."), values=values) for name, values in arrays.items()]
        return {"judged": np.array(self._held_out.losses(models), np.float64)}

    def _check_fault(self, counters: EpochCounters) -> None:
        if counters.fault is not Fault.NONE:
            raise self._fault(counters)


COMMANDS: Mapping[str, Callable[[Following, Arrays, Callable[[Sink], int]], Arrays]] = {
    "survey": Following._survey,
    "adopt": Following._adopt,
    "epoch": Following._epoch,
    "state": Following._state,
    "look": Following._look,
    "judge": Following._judge_models,
    "validate": Following._validate,
}
"""By the name in a message: what a follower does with its arrays, and the arrays that it answers."""


def begin_again(link: Link, centres: Centres) -> None:
    """Have the followers begin again, with columns less other centres."""
    link.lead(packed("again", {name: np.array(value, np.float64) for name, value in asdict(centres).items()}))
