"""Models that stay where code has them: the host reads and writes them as if they were in the scratchpad."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dana.compiler.passes import simplify
from dana.jit import compile_graph
from dana.simulator import Simulator
from dana.storage.builder import build_pages
from dana.storage.schema import TableSchema
from hwgen.spec.config import MachineConfig
from tests.lockstep.cases import Case, finished
from tests.lockstep.compiled import CompiledSimulator
from tests.storage.schemas import attribute

RULE = """
import dana
U, b = dana.model([{rows}, 10], init=dana.normal(0, 0.5)), dana.model([{rows}], init=dana.normal(0, 0.5))
s, w = dana.model(), dana.model([3])
i, x, y = dana.input(), dana.input([3]), dana.output()
lr = dana.meta(0.1)
r = dana.algo(U, b, s, w, i, x, y)
error = dana.sigma(U[i], 1) + b[i] + s + dana.sigma(w * x, 1) - y
r.setModel(U[i], U[i] - lr * error)
r.setModel(b[i], b[i] - lr * error)
r.setModel(s, s - lr * error)
r.setModel(w, w - lr * error * x)
r.setLoss(error * error)
r.setEpochs(4)
"""
KINDS = ("model", "meta", "loss")


def case(rows: int) -> Case:
    kinds = ("integer", "real", "real", "real", "real")
    columns = tuple(attribute(name, kind) for name, kind in zip(("i", "a", "b", "c", "y"), kinds, strict=True))
    schema = TableSchema(relation="t", attributes=columns)
    values = [[(7 * n) % rows, math.sin(n), math.cos(n), 0.5, math.sin(2 * n)] for n in range(300)]
    config = MachineConfig(clusters=2, index_depth=2, program_depth=1024, scratch_depth=max(1024, 64 * rows))
    return finished(config, RULE.format(rows=rows), schema, build_pages(schema, values))


def rows_of(machine: Simulator, case: Case) -> dict[str, bytes]:
    """Of everything that has a name; lanes past a vector's end are nobody's."""
    symbols = [symbol for kind in KINDS for symbol in case.bundle.of_kind(kind)]
    rows = {one.name: machine.read_rows(one.row, one.rows(case.bundle.config.lanes)) for one in symbols}
    return {one.name: one.collect(rows[one.name].view(np.float32)).tobytes() for one in symbols}


def both(rows: int) -> tuple[Case, Simulator, CompiledSimulator]:
    made = case(rows)
    plain, fast = Simulator(made.bundle.config), CompiledSimulator(made)
    plain.load(made.bundle)
    fast.load(made.bundle)
    return made, plain, fast


@pytest.mark.parametrize("rows", [9, 3000])
def test_rows_are_those_of_the_engine(rows: int) -> None:
    made, plain, fast = both(rows)
    for _ in range(3):
        assert plain.run_epoch(made.pages) == fast.run_epoch(made.pages)
        assert rows_of(plain, made) == rows_of(fast, made)
    assert fast.proved


@pytest.mark.parametrize("rows", [9, 3000])
@pytest.mark.parametrize("kind", ["model", "meta"])
def test_what_the_host_writes_counts(rows: int, kind: str) -> None:
    made, plain, fast = both(rows)
    for _ in range(3):
        assert plain.run_epoch(made.pages) == fast.run_epoch(made.pages)
        symbol = made.bundle.of_kind(kind)[0]
        written = np.full((1, made.bundle.config.lanes), 0.25, np.float32).view(np.uint32)
        for machine in (plain, fast):
            machine.write_rows(symbol.row, written)
        assert rows_of(plain, made) == rows_of(fast, made)
    assert fast.proved


def test_other_code_goes_on_where_code_was() -> None:
    made, plain, fast = both(9)
    for _ in range(3):
        assert plain.run_epoch(made.pages) == fast.run_epoch(made.pages)
        fast.attach(compile_graph(simplify(made.binding.graph), made.bundle))
        assert rows_of(plain, made) == rows_of(fast, made)
    assert not fast.proved
