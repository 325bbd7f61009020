"""Tuples in their turn: what a block of them shares before and after, bit for bit what one after the other gives."""

import math
from dataclasses import replace

import pytest

from dana.compiler.passes import simplify
from dana.jit.plan import Plan
from dana.storage.builder import build_pages
from dana.storage.schema import TableSchema
from hwgen.spec.config import MachineConfig
from tests.lockstep.cases import Case, finished
from tests.lockstep.test_compiled_code import assert_compiled
from tests.storage.schemas import attribute

TURNS = """
import dana
U = dana.model([6, {k}], init=dana.normal(0, 0.5))
b = dana.model([6], init=dana.normal(0, 0.5))
s = dana.model()
i, y = dana.input(), dana.output()
r = dana.algo(U, b, s, i, y)
other = dana.floor(6 * dana.random())
margin = U[i] @ U[other] + b[i]
r.setModel(U[i], U[i] + 0.1 * dana.sigmoid(margin) * U[other])
r.setModel(b[other], b[other] + 0.1 * y * dana.exp(-dana.random(seed=1)))
r.setModel(s, s + dana.log(1 + dana.exp(y)))
r.setLoss({loss})
{more}
r.setEpochs(3)
"""


COLUMNS = TableSchema(relation="t", attributes=(attribute("i", "integer"), attribute("y", "real")))


def pages(rows: int) -> bytes:
    return build_pages(COLUMNS, [[(7 * n) % 6, math.sin(n)] for n in range(rows)])


def turns(rows: int, *, k: int = 3, loss: str, more: str = "") -> Case:
    config = MachineConfig(index_depth=8, program_depth=4096, scratch_depth=4096)
    return finished(config, TURNS.format(k=k, loss=loss, more=more), COLUMNS, pages(rows))


@pytest.mark.parametrize(
    ("loss", "late"),
    [
        ("-dana.log(dana.sigmoid(margin))", True),
        ("dana.log(1 + margin * margin) + y", True),
        ("margin * margin", False),  # no function: the block is not worth it
        ("dana.log(1 + s * s)", False),  # the model has moved on when the block's turns are over
        ("dana.exp(b[i])", False),
        ("dana.exp(-b[i])", True),  # of which the number is kept
    ],
)
def test_blocks_of_tuples_give_the_bits_of_one_at_a_time(loss: str, late: bool) -> None:
    case = turns(1, loss=loss)
    plan = Plan(simplify(case.binding.graph))
    assert plan.by_block
    assert bool(plan.parts.counters)
    assert bool(plan.parts.late) is late
    for rows in (1, 2, 15, 16, 17, 50):
        assert assert_compiled(replace(case, pages=pages(rows)))


def test_convergence_reads_what_the_loss_does() -> None:
    loss = "-dana.log(dana.sigmoid(margin))"
    assert assert_compiled(turns(40, loss=loss, more=f"r.setConvergence({loss} < 0)"))


@pytest.mark.parametrize("k", [2, 4, 5, 8, 9, 16, 17])
def test_rows_of_any_length_are_vectors(k: int) -> None:
    assert assert_compiled(turns(20, k=k, loss="-dana.log(dana.sigmoid(margin))"))
