"""Operations made of others are NumPy's, functions the machine's: interpreted, simulated and compiled."""

from __future__ import annotations

import numpy as np
import pytest

from dana.simulator import Simulator
from dana.storage.builder import build_pages
from dana.storage.schema import TableSchema
from dsl.hdfg import ops
from dsl.hdfg.arithmetic import function
from dsl.semantics.composed import COMPOSED
from hwgen.spec import numerics
from hwgen.spec.config import MachineConfig
from tests.hwgen import vectors
from tests.lockstep.cases import Case, Outcome, finished, interpret, run
from tests.lockstep.compiled import CompiledSimulator
from tests.oracles.rounding import expected, numbers
from tests.scale import scaled
from tests.storage.schemas import attribute

WIDTH = 64
CONFIG = MachineConfig(threads=2, clusters=1, scratch_depth=4096, tuple_depth=1024, index_depth=16)


def case_of(value: str, *columns: np.ndarray) -> Case:
    """A training that leaves what a row's vectors x and z give in a row of the model."""
    names = "xz"[: len(columns)]
    source = "\n".join(
        [
            "import dana",
            f"U = dana.model([{len(columns[0])}, {WIDTH}])",
            "i = dana.input()",
            *(f"{name} = dana.input([{WIDTH}])" for name in names),
            "y = dana.output()",
            f"rule = dana.algo(U, i, {', '.join(names)}, y)",
            f"rule.setModel(U[i], {value})",
            "rule.setLoss(y)\n",
        ]
    )
    lists = [attribute(name, "real[]", array_length=WIDTH) for name in names]
    schema = TableSchema(relation="t", attributes=(attribute("i", "integer"), *lists, attribute("y", "real")))
    rows = [[k, *row, 0.0] for k, row in enumerate(zip(*columns, strict=True))]
    pages = build_pages(schema, rows, page_size=CONFIG.page_size, fill=1.0)
    return finished(CONFIG, source, schema, pages)


def compiled(case: Case) -> Outcome:
    machine = CompiledSimulator(case)
    found = run(case, machine)
    assert machine.proved
    machine.close()
    return found


def everywhere(case: Case) -> list[np.ndarray]:
    """What the interpreter, the simulator and compiled code leave, as bits."""
    found = (interpret(case), run(case, Simulator(case.bundle.config)), compiled(case))
    return [one.models["U"] for one in found]


@pytest.mark.parametrize("name", COMPOSED)
def test_what_is_made_of_others_is_numpy_s(name: str) -> None:
    values = numbers()
    values = np.append(values, np.zeros(-len(values) % WIDTH, np.float32)).reshape(-1, WIDTH)
    bits = expected(name, values).view(np.uint32)
    for found in everywhere(case_of(f"dana.{name}(x)", values)):
        np.testing.assert_array_equal(found, bits)


@pytest.mark.parametrize("op", ops.FUNCTIONS)
def test_functions_of_one_operand(op: ops.Op) -> None:
    """Of every edge, and of what rounding may get wrong."""
    values = np.concatenate([vectors.floats(vectors.EDGES), numbers()])
    values = np.resize(values, (-(-values.size // WIDTH), WIDTH))
    bits = function(numerics, op)(values).view(np.uint32)
    for found in everywhere(case_of(f"dana.{op}(x)", values)):
        np.testing.assert_array_equal(found, bits)


@pytest.mark.parametrize("second", ["z", "z - z"])
@pytest.mark.parametrize("op", ops.FUNCTIONS_OF_TWO)
def test_functions_of_two_operands(op: ops.Op, second: str) -> None:
    """Of every two edges; and of NaNs as processors make them, which have a sign."""
    edges = vectors.floats(vectors.EDGES)
    left, right = (np.resize(each, (-(-(edges.size**2) // WIDTH), WIDTH)) for each in np.meshgrid(edges, edges))
    other = right if second == "z" else numerics.sub(right, right)
    bits = function(numerics, op)(left, other).view(np.uint32)
    for found in everywhere(case_of(f"dana.{op}(x, {second})", left, right)):
        np.testing.assert_array_equal(found, bits)


@pytest.mark.parametrize("op", [ops.Op.ADD, ops.Op.SUB, ops.Op.MUL, ops.Op.DIV])
def test_results_at_the_ends_of_the_range(op: ops.Op) -> None:
    """Subnormal, rounded up to the smallest normal number or not, infinite: as operands and as results."""
    pairs = vectors.pairs(scaled(8192))
    left, right = (np.resize(each, (-(-each.size // WIDTH), WIDTH)) for each in pairs)
    bits = function(numerics, op)(left, right).view(np.uint32)
    sign = {ops.Op.ADD: "+", ops.Op.SUB: "-", ops.Op.MUL: "*", ops.Op.DIV: "/"}[op]
    for found in everywhere(case_of(f"x {sign} z", left, right)):
        np.testing.assert_array_equal(found, bits)
