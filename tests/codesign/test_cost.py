"""The bound counts what a rule computes, and no program is below it."""

from __future__ import annotations

import re

import pytest

from dana import rules
from dana.codesign.cost import Cost, count_cost
from dana.codesign.cycles import measure_cycles
from dana.codesign.default import default_bundle
from dana.codesign.sample import sample_pages
from dana.compiler import bind
from dana.compiler.passes import plan_of
from dana.compiler.place.triangles import mirror_rows
from dana.storage.schema import TableSchema
from dsl import compile_rule
from hwgen.spec import cycles
from hwgen.spec.bundle import WHOLE_EPOCH
from hwgen.spec.engine import Opcode, Section
from tests.compiler.test_compiler_stages import FACTORS, LOGISTIC, MOMENTUM, PERCEPTRON, PLAIN_SGD, SOFTMAX
from tests.storage.schemas import attribute


def cost_of(source: str, n: int, **design: int) -> Cost:
    columns = [attribute(name, "integer") for name in ("i", "j") if f"{name} = dana.input" in source]
    columns += [attribute("x", "real[]", array_length=n), attribute("y", "real")]
    schema = TableSchema(relation="t", attributes=tuple(columns))
    binding = bind(compile_rule(source).hdfg, schema)
    return count_cost(plan_of(binding.graph), default_bundle(binding, schema, max_tuples=10_000, design=design))


def test_operations_of_plain_sgd_are_counted_by_hand() -> None:
    # w * x, its sum, - y, lr * e, (lr * e) * x, w - …, e * e
    found = cost_of(PLAIN_SGD, 54, threads=1, clusters=1)
    assert found.operations == 54 + 53 + 1 + 1 + 54 + 54 + 1
    assert found.bound == found.operations / 8
    assert (found.rounds, found.special) == (1, 0)
    # seven rows of lanes: their products, six additions, three steps in the last row
    assert found.kinds["sums over lanes"] == 3
    assert found.kinds["rows"] >= 7 + 6 + 1 + 1 + 7 + 7 + 1
    assert sum(found.kinds.values()) == found.per_tuple
    assert found.kinds["waits"] > 0
    assert not any(found.kinds[kind] for kind in ("lanes to new places", "exchanges of threads", "special functions"))
    # w * x, six steps of its sum, - y, lr * e, (lr * e) * x, w - …; not the way from w to w - … alone
    assert found.chain == (1 + 6 + 1 + 1 + 1 + 1) * cycles.RESULT_LATENCY


def test_what_a_batch_shares_is_divided_by_its_tuples() -> None:
    # per tuple w * x, its sum, p - y, (p - y) * x and its square; the sigmoid; per batch 54 merges of 63 additions,
    # lr * grad / 64 and the difference. What only the convergence test needs is an epoch's.
    found = cost_of(LOGISTIC, 54)
    assert found.operations == pytest.approx(54 + 53 + 1 + 54 + 1 + 54 * 63 / 64 + 3 * 54 / 64)
    assert found.special == 1
    # w * x, six steps of its sum, the sigmoid, p - y, times x, six steps of 64 merged tuples, lr *, / 64, w - …
    chain = (1 + 6 + 1 + 1 + 6 + 3) * cycles.RESULT_LATENCY + cycles.SPECIAL_LATENCY[Opcode.SIGMOID]
    assert found.chain == chain / 64


def test_the_chain_is_the_longest_of_the_models() -> None:
    """Two models of which each leads to itself; what one reads of the other is there from the batch before."""
    source = PLAIN_SGD.replace("sgd = dana.algo(w, x", "b = dana.model()\nsgd = dana.algo(w, b, x").replace(
        "sgd.setModel(w - lr * e * x)", "sgd.setModel(w, w - lr * e * x)\nsgd.setModel(b, b - lr * w_sum)"
    )
    source = source.replace("sgd.setLoss", "").replace("(e * e)", "")
    source = source.replace("sgd.setModel(w,", "w_sum = dana.sigma(w, 1)\nsgd.setModel(w,")
    # b's is one subtraction; w's is as without b
    assert cost_of(source, 54).chain == (1 + 6 + 1 + 1 + 1 + 1) * cycles.RESULT_LATENCY


def test_models_of_rows_and_of_a_batch_are_compared() -> None:
    """Of a batch of 4: w's way is the longer one with 54 features, and that of the rows of U with one."""
    # w * x, six steps of its sum, + …, - y, times x, two steps of the merge, times 0.1, w - …
    assert cost_of(FACTORS, 54).chain == (1 + 6 + 1 + 1 + 1 + 2 + 1 + 1) * cycles.RESULT_LATENCY / 4
    # U[i], times V[j], two steps of its sum, + …, + …, - y, times 0.1, times V[j], U[i] - …, and into its row
    assert cost_of(FACTORS, 1).chain == (1 + 1 + 2 + 1 + 1 + 1 + 1 + 1 + 1 + 1) * cycles.RESULT_LATENCY / 4


def test_each_tuple_goes_the_way_of_rows_that_the_next_one_sees() -> None:
    source = re.sub(r"^([UVa]) = dana.model", r"\1 = dana.table", FACTORS, flags=re.MULTILINE)
    assert source.count("table") == 3
    assert cost_of(source, 1).chain == (1 + 1 + 2 + 1 + 1 + 1 + 1 + 1 + 1 + 1) * cycles.RESULT_LATENCY


@pytest.mark.parametrize("source", [LOGISTIC, PLAIN_SGD, MOMENTUM, SOFTMAX, PERCEPTRON, FACTORS])
def test_no_program_is_below_the_bound(source: str) -> None:
    assert cost_of(source, 54).ratio >= 1


@pytest.mark.parametrize(("source", "n", "limit"), [(LOGISTIC, 2000, 1.2), (SOFTMAX, 784, 1.5), (PERCEPTRON, 784, 1.5)])
def test_programs_stay_near_the_bound(source: str, n: int, limit: float) -> None:
    assert cost_of(source.replace('8, "+"', '64, "+"').replace('4, "+"', '64, "+"'), n).ratio <= limit


def test_a_batch_of_the_whole_table_is_rated_by_its_rounds() -> None:
    """As the simulator counts them: what comes once in an epoch is no part of a row's cycles."""
    columns = [attribute("x", "real[]", array_length=54), attribute("y", "real")]
    schema = TableSchema(relation="t", attributes=tuple(columns))
    binding = bind(compile_rule(rules.text("logistic")).hdfg, schema)
    bundle = default_bundle(binding, schema, max_tuples=581_012)
    found = count_cost(plan_of(binding.graph), bundle)
    assert (bundle.batch, found.rounds, found.chain) == (WHOLE_EPOCH, 1, 0)
    pages = sample_pages(schema, page_size=bundle.config.page_size)
    assert found.per_tuple == pytest.approx(measure_cycles(bundle, pages).per_tuple, rel=0.005)
    assert sum(found.kinds.values()) == pytest.approx(found.per_tuple)
    # scalars over lanes: 1.56 without
    assert found.ratio <= 1.22


@pytest.mark.parametrize(("source", "batch"), [(PLAIN_SGD, 1), (LOGISTIC, 64), (FACTORS, 4)])
def test_lines_share_the_chain_and_the_operations(source: str, batch: int) -> None:
    found = cost_of(source, 10)
    assert sum(found.chain_lines.values()) == pytest.approx(found.chain * batch)
    assert sum(found.work_lines.values()) == pytest.approx(found.operations + found.special)
    assert {*found.chain_lines, *found.work_lines} <= set(range(1, source.count("\n") + 2))


SYMMETRIC = """import dana
n = dana.dim()
G = dana.model([n, n])
x = dana.input([n])
gram = dana.algo(G, x)
gram.setModel(G, gram.merge({value}, dana.all, "+"))
"""


def gram(value: str, n: int, **design: int) -> Cost:
    columns = TableSchema(relation="t", attributes=(attribute("x", "real[]", array_length=n),))
    binding = bind(compile_rule(SYMMETRIC.format(value=value)).hdfg, columns)
    return count_cost(plan_of(binding.graph), default_bundle(binding, columns, max_tuples=100_000, design=design))


def test_half_of_a_symmetric_matrix_is_computed_and_merged() -> None:
    """The bound counts it so: 70 % of the units' time are its operations."""
    half, whole = gram("dana.expand(x, 2) * x", 55), gram("dana.expand(x, 2) * dana.abs(x)", 55)
    assert half.operations == pytest.approx(55 * 56)
    assert whole.operations == 2 * 55 * 55 + 55
    assert half.per_tuple < 0.64 * whole.per_tuple
    assert 1 < half.ratio < 1.43


def test_the_rows_of_a_mirror_are_those_that_are_counted() -> None:
    """Of whole blocks: of one that is not, rows beyond the matrix are not made."""
    sections = gram("dana.expand(x, 2) * x", 24, threads=1, clusters=1).sections
    assert sections[Section.BATCH].busy == mirror_rows(24, 8) == 8 * (3 + 2 + 1) + 3 * 8 * 3
