"""Operations made of others are NumPy's, on the interpreter, the simulator and in compiled code."""

from __future__ import annotations

import numpy as np
import pytest

from dana.simulator import Simulator
from dana.storage.builder import build_pages
from dana.storage.schema import TableSchema
from dsl.semantics.composed import COMPOSED
from hwgen.spec.config import MachineConfig
from tests.lockstep.cases import Case, Outcome, finished, interpret, run
from tests.lockstep.compiled import CompiledSimulator
from tests.oracles.rounding import expected, numbers
from tests.storage.schemas import attribute

WIDTH = 64
CONFIG = MachineConfig(threads=2, clusters=1, scratch_depth=4096, tuple_depth=1024, index_depth=16)


def rounding_case(name: str, values: np.ndarray) -> Case:
    """A training that leaves what a function makes of each row of values in a row of the model."""
    source = "\n".join(
        [
            "import dana",
            f"U = dana.model([{len(values)}, {WIDTH}])",
            "i = dana.input()",
            f"x = dana.input([{WIDTH}])",
            "y = dana.output()",
            "rule = dana.algo(U, i, x, y)",
            f"rule.setModel(U[i], dana.{name}(x))",
            "rule.setLoss(y)\n",
        ]
    )
    columns = [attribute("i", "integer"), attribute("x", "real[]", array_length=WIDTH), attribute("y", "real")]
    schema = TableSchema(relation="t", attributes=tuple(columns))
    pages = build_pages(schema, [[k, row, 0.0] for k, row in enumerate(values)], page_size=CONFIG.page_size, fill=1.0)
    return finished(CONFIG, source, schema, pages)


def compiled(case: Case) -> Outcome:
    machine = CompiledSimulator(case)
    found = run(case, machine)
    assert machine.proved
    machine.close()
    return found


@pytest.mark.parametrize("name", COMPOSED)
def test_what_is_made_of_others_is_numpy_s(name: str) -> None:
    values = numbers()
    values = np.append(values, np.zeros(-len(values) % WIDTH, np.float32)).reshape(-1, WIDTH)
    case = rounding_case(name, values)
    bits = expected(name, values).view(np.uint32)
    for found in (interpret(case), run(case, Simulator(case.bundle.config)), compiled(case)):
        np.testing.assert_array_equal(found.models["U"], bits)
