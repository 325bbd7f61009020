"""Random rules and tables, and the comparison of a compiled rule with the interpreter.

In: a seed. Out: a bound graph that the engine supports and columns for it; `train` runs a compiled rule on
`tests.oracles.machine`, `assert_same` compares it with the interpreter bit for bit.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from dana.compiler.compile import EngineProgram, compile_engine
from dana.compiler.passes import TARGET, Pass
from dana.compiler.place.rows import InputPlaces, place_inputs
from dana.compiler.strider.pages import StriderProgram
from dsl.hdfg.builder import GraphBuilder
from dsl.hdfg.graph import BINARY, COMPARISONS, LEAVES, MERGE_OPS, UNARY, Graph, Op, Region, Update
from dsl.hdfg.init import ZEROS, Init, InitKind
from dsl.hdfg.interpreter import Interpreter
from dsl.hdfg.shapes import ShapeMismatch, result_shape
from hwgen.spec import numerics
from hwgen.spec.bundle import Bundle
from hwgen.spec.config import MachineConfig
from tests.oracles.machine import Machine, tuple_rows

Floats = npt.NDArray[np.float32]
LENGTHS = (1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 54, 64, 72, 100, 130)
LARGEST = 2000
"""Elements of a value at most."""

CONSTANTS = (0.0, 1.0, -1.0, 2.0, 0.1, 3.0, 64.0, 0.25, -7.0)
ROOMY = {"scratch_depth": 16384, "tuple_depth": 65536, "program_depth": 4096, "index_depth": 64}


LATENESS = (Region.CONST, Region.BATCH, Region.TUPLE)
"""Of two operands the region of the later one is the result's; a model of its own is in BATCH."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """A node of a random rule."""

    id: int
    op: Op
    region: Region
    shape: tuple[int, ...]


class RandomRule:
    """Draws one graph.

    The bodies are random, so the numbers soon overflow, vanish and become NaN: what is compared are bits, not sense.

    Parameters
    ----------
    merges
        Whether the rule merges.
    special
        Whether it uses functions of the special function unit.
    matrices
        Whether its values have up to three axes, and rows are selected by number.
    rows
        Whether tuples choose rows of models, to read and to update.
    """

    def __init__(
        self, seed: int, *, merges: bool = True, special: bool = True, matrices: bool = False, rows: bool = False
    ) -> None:
        self.rng = random.Random(seed)
        self.builder = GraphBuilder()
        self.drawn: list[Drawn] = []
        self.merges = merges
        self.rows = rows
        self.numbers: dict[int, list[Drawn]] = {}
        self.unary = sorted(UNARY) if special else [Op.NEG, Op.ABS]
        # of a comparison nothing is left but 0 and 1
        self.binary = 2 * sorted(BINARY - COMPARISONS - (set() if special else {Op.DIV})) + sorted(COMPARISONS)
        self.lengths = self.rng.sample(LENGTHS, 2)
        self.leading = self.rng.sample((1, 2, 3, 5, 9), 2) if matrices else []

    def graph(self, *, batch: int | None, size: int = 10) -> Graph:
        """The rule; `batch` counts only if it merges, None is the whole table."""
        rng = self.rng
        inputs = [self._leaf(Op.INPUT, Region.TUPLE, f"x{k}", self._shape(0.8)) for k in range(rng.randint(1, 3))]
        inputs.append(self._leaf(Op.OUTPUT, Region.TUPLE, "y", ()))
        models = [self._leaf(Op.MODEL, Region.BATCH, f"w{k}", self._shape(0.7)) for k in range(rng.randint(1, 3))]
        metas = [self._leaf(Op.META, Region.CONST, f"m{k}", ()) for k in range(rng.randint(0, 2))]
        for model in models if self.rows else ():
            if model.shape and model.shape[0] not in self.numbers:
                extent = model.shape[0]
                self.numbers[extent] = [
                    self._leaf(Op.INPUT, Region.TUPLE, f"number{k}_{extent}", ()) for k in range(rng.randint(1, 2))
                ]
                inputs += self.numbers[extent]
        for _ in range(2):
            self._leaf(Op.CONST, Region.CONST, None, ())
        if rng.random() < 0.3:
            self._leaf(Op.ARANGE, Region.CONST, None, (rng.choice(self.lengths),))
        for _ in range(rng.randint(2, size)):
            self._operation(Region.TUPLE)
        for _ in range(rng.randint(1, 3) if self.merges else 0):
            vector = rng.random() < 0.6 and any(d.shape and d.region is Region.TUPLE for d in self.drawn)
            source = self._any(
                lambda d, vector=vector: (d.region is not Region.BATCH or d.op is Op.MODEL) and (d.shape or not vector)
            )
            self._add(Op.MERGE, (source,), Region.BATCH, merge_op=rng.choice(("add", *MERGE_OPS)))
        for _ in range(rng.randint(1, size)):
            self._operation(Region.BATCH)
        late = (Region.BATCH, Region.CONST) if self.merges else tuple(Region)
        updates = []
        for model in rng.sample(models, rng.randint(1, len(models))):
            if self.rows and model.shape and rng.random() < 0.7:
                updates += self._row_updates(model, 1 if self.merges and batch != 1 else rng.randint(1, 2))
                continue
            rows = [None]
            if self.leading and model.shape and rng.random() < 0.3:
                rows = rng.sample(range(model.shape[0]), min(model.shape[0], rng.randint(1, 2)))
            for row in rows:
                shape = model.shape if row is None else model.shape[1:]
                value = self._value_for(shape, lambda d: d.region in late)
                index = None if row is None else self._number(row)
                updates.append(Update(model=model.id, value=value.id, index=index))
        loss = self._any(lambda d: d.shape == () and d.op is not Op.MERGE and d.region is not Region.BATCH)
        convergence = [d for d in self.drawn[-6:] if d.shape == () and d.region in late]
        return self.builder.finish(
            f"random{rng.randrange(1000)}",
            inputs=tuple(d.id for d in inputs),
            models=tuple(d.id for d in models),
            metas=tuple(d.id for d in metas),
            updates=tuple(updates),
            loss=loss.id if rng.random() < 0.7 else None,
            convergence=rng.choice(convergence).id if convergence and rng.random() < 0.7 else None,
            epochs=3,
            batch=batch if self.merges else 1,
        )

    def _shape(self, vector: float) -> tuple[int, ...]:
        if self.rng.random() >= vector:
            return ()
        leading: list[int] = []
        while self.leading and len(leading) < 2 and self.rng.random() < 0.5:
            leading.append(self.rng.choice(self.leading))
        return (*leading, self.rng.choice([*self.lengths, *self.leading]))

    def _row_updates(self, model: Drawn, count: int) -> list[Update]:
        """Updates of rows that the tuple chooses."""

        def fits(d: Drawn) -> bool:
            early = d.region is not Region.BATCH or d.op is Op.MODEL or not self.merges
            return early and d.op is not Op.MERGE

        numbers = [self.rng.choice(self.numbers[model.shape[0]]) for _ in range(count)]
        row = model.shape[1:]
        return [
            Update(model=model.id, value=self._value_for(row, fits, make=False).id, index=number.id)
            for number in numbers
        ]

    def _value_for(self, shape: tuple[int, ...], fits: Callable[[Drawn], bool], *, make: bool = True) -> Drawn:
        """A value that a model takes: seldom one that gives all elements the same, which would hide where they lie."""
        full = [d for d in self.drawn if d.shape == shape and d.op not in LEAVES and fits(d)]
        models = [d for d in self.drawn if d.op is Op.MODEL and d.shape == shape and make]
        telling = self.rng.random() < 0.8
        if telling and full and (self.rng.random() < 0.7 or not models):
            return self.rng.choice([*full, *full[-2:], *full[-2:]])
        if telling and models:
            other = self._any(lambda d: fits(d) and result_shape(Op.ADD, [d.shape, shape]) == shape)
            op = self.rng.choice((Op.ADD, Op.SUB, Op.MUL, Op.MAX))
            self._add(op, (self.rng.choice(models), other), max(other.region, Region.BATCH, key=LATENESS.index))
            return self.drawn[-1]
        return self._any(lambda d: fits(d) and result_shape(Op.ADD, [d.shape, shape]) == shape)

    def _number(self, value: int) -> int:
        return self.builder.leaf(Op.CONST, region=Region.CONST, shape=(), value=float(value))

    def _leaf(self, op: Op, region: Region, name: str | None, shape: tuple[int, ...]) -> Drawn:
        rng = self.rng
        init = (
            Init(kind=InitKind.UNIFORM, first=-1.0, second=1.0, seed=rng.randrange(99)) if rng.random() < 0.8 else ZEROS
        )
        value = rng.choice(CONSTANTS) if op in (Op.META, Op.CONST) else None
        node = self.builder.leaf(op, region=region, shape=shape, name=name, value=value, init=init)
        self.drawn.append(Drawn(node, op, region, shape))
        return self.drawn[-1]

    def _any(self, fits) -> Drawn:  # type: ignore[no-untyped-def]
        """A node that fits, new ones more often."""
        pool = []
        for d in self.drawn:
            with contextlib.suppress(ShapeMismatch):
                pool += [d] if fits(d) else []
        return self.rng.choice([*pool, *pool[-4:], *pool[-4:]])

    def _operation(self, stage: Region) -> None:
        """One operation of the tuple or of the batch part; constants come of constants."""
        rng = self.rng
        while True:
            kind = rng.random()
            if self.leading and kind < 0.1:
                op, count = Op.EXPAND, 1
            elif (self.leading or self.rows) and kind < (0.25 if self.rows else 0.15):
                self._fixed_row(stage)
                return
            elif kind < 0.3:
                op, count = rng.choice((Op.SIGMA, Op.SIGMA, Op.PI)), 1
            elif kind < 0.4:
                op, count = rng.choice(self.unary), 1
            elif kind < 0.5:
                op, count = Op.WHERE, 3
            else:
                op, count = rng.choice(self.binary), 2
            operands = tuple(
                self._any(lambda d: d.region in (Region.CONST, stage) or d.op is Op.MODEL) for _ in range(count)
            )
            if all(d.region is Region.CONST for d in operands):
                region = Region.CONST
            else:
                region = stage
            rank = len(operands[0].shape)
            axis = None
            if op in (Op.SIGMA, Op.PI, Op.EXPAND):
                axis = rng.randrange(max(1, rank + (op is Op.EXPAND)))
            try:
                shape = result_shape(op, [operand.shape for operand in operands], axis)
                if len(shape) <= 3 and prod(shape) <= LARGEST:  # type: ignore[arg-type]
                    self._add(op, operands, region, axis=axis)
                    return
            except (ShapeMismatch, ValueError):
                continue

    def _fixed_row(self, stage: Region) -> None:
        """A row of a model, chosen by a number of the rule's or, per tuple, of the table's."""
        models = [d for d in self.drawn if d.op is Op.MODEL and d.shape]
        if models:
            model = self.rng.choice(models)
            if self.rows and stage is Region.TUPLE and self.rng.random() < 0.8:
                self._add(Op.GATHER, (model, self.rng.choice(self.numbers[model.shape[0]])), stage)
                return
            number = Drawn(self._number(self.rng.randrange(model.shape[0])), Op.CONST, Region.CONST, ())
            self._add(Op.GATHER, (model, number), stage)

    def _add(self, op: Op, operands: tuple[Drawn, ...], region: Region, **fields: object) -> None:
        shape = result_shape(op, [d.shape for d in operands], fields.get("axis"))  # type: ignore[arg-type]
        node = self.builder.add(op, tuple(d.id for d in operands), region=region, **fields)  # type: ignore[arg-type]
        self.drawn.append(Drawn(node, op, region, shape))  # type: ignore[arg-type]


def random_columns(graph: Graph, count: int, seed: int) -> dict[str, Floats]:
    """Columns for the inputs: whole numbers below m for `number…_m`, else a few are infinite, NaN or huge."""
    rng = np.random.default_rng(seed)
    columns = {}
    for k in graph.inputs:
        name = str(graph.nodes[k].name)
        if name.startswith("number"):
            columns[name] = rng.integers(0, int(name.split("_")[1]), count).astype(np.float32)
            continue
        values = rng.normal(size=(count, *graph.concrete_shape(k))).astype(np.float32)
        odd = rng.random(values.shape) < rng.choice([0.0, 0.0, 0.0, 0.0, 0.02])
        columns[name] = np.where(
            odd, rng.choice(np.float32([np.nan, np.inf, -np.inf, 3e38, 1e-39, -0.0]), size=values.shape), values
        )
    return columns


def tells_elements_apart(graph: Graph, columns: Mapping[str, Floats]) -> bool:
    """Whether elements of a model that is updated differ after an epoch: else it hides in which order they lie."""
    with np.errstate(all="ignore"):
        models = Interpreter(graph, numerics).train(columns, epochs=1).models
    updated = {str(graph.nodes[update.model].name) for update in graph.updates}
    return any(np.unique(models[name].view(np.uint32)).size > 1 for name in updated)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """What a run left behind, epoch by epoch."""

    models: list[dict[str, Floats]]
    losses: list[float]
    converged: list[float]
    bundle: Bundle


def bundle_of(compiled: EngineProgram, config: MachineConfig) -> Bundle:
    """The engine's part of a Bundle."""
    return compiled.bundle(config, StriderProgram(instructions=(), constants=(), columns=()))


def with_pass(name: str, run: Callable[..., Any]) -> tuple[Pass, ...]:
    """The passes for a target, one of them done by another function."""
    return tuple(replace(one, run=run) if one.name == name else one for one in TARGET)


def laid_out(layout: InputPlaces, columns: Mapping[str, Floats], seed: int = 0) -> Floats:
    """Rows of the tuples, as the unpacker writes them."""
    return tuple_rows([(p.row, columns[p.name]) for p in layout.places], layout.rows, layout.lanes, seed)


def train(
    graph: Graph,
    columns: Mapping[str, Floats],
    config: MachineConfig,
    *,
    metas: Mapping[str, float] | None = None,
    epochs: int | None = None,
) -> Trained:
    """Compile a rule and run it, however the convergence test stands."""
    layout = place_inputs(graph, config.lanes)
    count = len(next(iter(columns.values())))
    bundle = bundle_of(compile_engine(graph, config, max_tuples=count), config)
    machine = Machine(bundle, seed=1)
    for name, value in (metas or {}).items():
        symbol = bundle.symbol("meta", name)
        assert symbol is not None
        machine.write(symbol, value)
    tuples = laid_out(layout, columns)
    trained = Trained(models=[], losses=[], converged=[], bundle=bundle)
    for _ in range(epochs or graph.epochs):
        machine.epoch(tuples)
        trained.models.append({symbol.name: machine.read(symbol) for symbol in bundle.of_kind("model")})
        for kind, into in (("loss", trained.losses), ("convergence", trained.converged)):
            symbol = bundle.symbol(kind)
            if symbol is not None:
                into.append(float(machine.read(symbol)))  # type: ignore[attr-defined]
    return trained


def assert_same(
    graph: Graph, columns: Mapping[str, Floats], trained: Trained, metas: Mapping[str, float] | None = None
) -> None:
    """Every epoch's models, losses and convergence tests are the interpreter's, bit for bit, all NaNs being equal."""
    interpreter = Interpreter(graph, numerics)
    count = len(next(iter(columns.values())))
    models = interpreter.start()
    epochs = len(trained.models)
    assert len(trained.losses) == (epochs if graph.loss is not None else 0), "a loss without its symbol, or the reverse"
    assert len(trained.converged) == (epochs if graph.convergence is not None else 0), "likewise a convergence test"
    for epoch, found in enumerate(trained.models):
        expected = interpreter.train(columns, models=models, metas=metas, epochs=1)
        models = expected.models
        for name, value in expected.models.items():
            same = found[name].view(np.uint32) == value.view(np.uint32)
            assert same.all(), f"epoch {epoch}, model {name}: {found[name][~same][:3]} is not {value[~same][:3]}"
        if trained.losses:
            mean, wanted = float(np.float32(trained.losses[epoch])) / count, expected.losses[0]
            assert mean == wanted or (mean != mean and wanted != wanted), f"epoch {epoch}, loss: {mean} is not {wanted}"
        if trained.converged:
            assert (trained.converged[epoch] != 0.0) == expected.converged, f"epoch {epoch}, convergence"
