"""The bound counts what a rule computes, and no program is below it."""

from __future__ import annotations

import pytest

from dana.compiler import bind, compile_bundle
from dana.compiler.cost import Cost, count_cost
from dana.storage.schema import TableSchema
from dsl import compile_rule
from tests.compiler.test_stages import FACTORS, LOGISTIC, MOMENTUM, PERCEPTRON, PLAIN_SGD, SOFTMAX
from tests.storage.schemas import attribute


def cost_of(source: str, n: int, **design: int) -> Cost:
    columns = [attribute(name, "integer") for name in ("i", "j") if f"{name} = dana.input" in source]
    columns += [attribute("x", "real[]", array_length=n), attribute("y", "real")]
    schema = TableSchema(relation="t", attributes=tuple(columns))
    binding = bind(compile_rule(source).hdfg, schema)
    return count_cost(binding.graph, compile_bundle(binding, schema, max_tuples=10_000, design=design))


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


def test_what_a_batch_shares_is_divided_by_its_tuples() -> None:
    # per tuple w * x, its sum, p - y, (p - y) * x and its square; the sigmoid; per batch 54 merges of 63 additions,
    # lr * grad / 64 and the difference. What only the convergence test needs is an epoch's.
    found = cost_of(LOGISTIC, 54)
    assert found.operations == pytest.approx(54 + 53 + 1 + 54 + 1 + 54 * 63 / 64 + 3 * 54 / 64)
    assert found.special == 1


@pytest.mark.parametrize("source", [LOGISTIC, PLAIN_SGD, MOMENTUM, SOFTMAX, PERCEPTRON, FACTORS])
def test_no_program_is_below_the_bound(source: str) -> None:
    assert cost_of(source, 54).ratio >= 1


@pytest.mark.parametrize(("source", "n", "limit"), [(LOGISTIC, 2000, 1.2), (SOFTMAX, 784, 1.5), (PERCEPTRON, 784, 1.5)])
def test_programs_stay_near_the_bound(source: str, n: int, limit: float) -> None:
    assert cost_of(source.replace('8, "+"', '64, "+"').replace('4, "+"', '64, "+"'), n).ratio <= limit
