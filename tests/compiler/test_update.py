"""Updates read the models as they stood before the batch, and write in place where that allows it."""

from __future__ import annotations

import pytest

from dana.compiler.passes import plan_of
from dana.compiler.place.forms import choose_forms
from dana.compiler.place.order import Kind, Order, order_updates
from dana.compiler.place.sections import Plan
from dana.compiler.place.shards import choose_shards
from dana.compiler.target import Target
from dsl.hdfg.text import parse_graph
from hwgen.spec.config import MachineConfig
from tests.compiler.rules import ROOMY, assert_same, random_columns, train

MATRICES = """\
hdfg r
epochs 3
batch {batch}
inputs %0
models %1 %2
%0 = input x : tuple [9]
%1 = model V init=uniform,-1.0,1.0,1 : batch [3,9]
%2 = model w init=uniform,-1.0,1.0,2 : batch [9]
%3 = merge %0 op=add : batch [9]
%4 = const 0.0 : const []
%5 = const 2.0 : const []
%6 = gather %1 %4 : batch [9]
"""

HEAD = """\
hdfg r
epochs 3
batch {batch}
inputs %0
models %1 %2
%0 = input x : tuple [9]
%1 = model v init=uniform,-1.0,1.0,1 : batch [9]
%2 = model w init=uniform,-1.0,1.0,2 : batch [9]
%3 = merge %0 op=add : batch [9]
"""

CASES = {
    # each new value goes into the rows of its model
    "independent": ("%4 = add %1 %3 : batch [9]\n%5 = sub %2 %3 : batch [9]\nupdate %1 <- %4\nupdate %2 <- %5\n", 2, 0),
    # the second reads the first's new value
    "momentum": ("%4 = add %1 %3 : batch [9]\n%5 = sub %2 %4 : batch [9]\nupdate %1 <- %4\nupdate %2 <- %5\n", 2, 0),
    # each reads the other's old value: one of them must wait in rows of its own
    "crossed": ("%4 = add %1 %2 : batch [9]\n%5 = sub %2 %1 : batch [9]\nupdate %1 <- %4\nupdate %2 <- %5\n", 1, 1),
    # the second reads the first's old and new value
    "old and new": (
        "%4 = add %1 %3 : batch [9]\n%5 = sub %4 %1 : batch [9]\nupdate %1 <- %4\nupdate %2 <- %5\n",
        1,
        1,
    ),
    # the models change places: both old values are saved
    "swap": ("update %1 <- %2\nupdate %2 <- %1\n", 0, 2),
    # one value for two models
    "shared": ("%4 = add %1 %3 : batch [9]\nupdate %1 <- %4\nupdate %2 <- %4\n", 1, 1),
    # a merge's value stays in the merge block, of which the stack holds more
    "merged": ("update %1 <- %3\n", 0, 1),
    # a selection writes its last operand first
    "selection of itself": ("%4 = where %3 %1 %2 : batch [9]\nupdate %1 <- %4\n", 0, 1),
    "selection over itself": ("%4 = where %3 %2 %1 : batch [9]\nupdate %1 <- %4\n", 1, 0),
    # a scalar for a vector
    "broadcast": ("%4 = sigma %3 axis=0 : batch []\n%5 = add %4 %4 : batch []\nupdate %1 <- %5\n", 0, 1),
    # unchanged
    "itself": ("update %1 <- %1\n", 0, 0),
}


PARTS = {
    # a row of the model is read after it was overwritten, were it written in place
    "row against all": ("%7 = sub %1 %6 : batch [3,9]\nupdate %1 <- %7\n", 0, 1),
    "all against a vector": ("%7 = sub %1 %2 : batch [3,9]\nupdate %1 <- %7\n", 1, 0),
    # two rows change places: both old ones are saved
    "rows swapped": ("%7 = gather %1 %5 : batch [9]\nupdate %1[%4] <- %7\nupdate %1[%5] <- %6\n", 0, 2),
    "row to vector": ("update %2 <- %6\nupdate %1[%5] <- %3\n", 0, 2),
    # the sum over an axis of one lies in the rows of the model that it is the sum of
    "loss of an axis of one": (
        "%7 = sigma %2 axis=0 : batch []\n%8 = expand %2 axis=0 : batch [1,9]\n%9 = sigma %8 axis=0 : batch [9]\n"
        "%10 = add %2 %3 : batch [9]\nupdate %2 <- %10\nupdate %1 <- %9\n",
        1,
        1,
    ),
    "new axis": ("%7 = expand %2 axis=0 : batch [1,9]\n%8 = add %1 %7 : batch [3,9]\nupdate %1 <- %8\n", 1, 0),
    "new axis of itself": (
        "%7 = expand %2 axis=1 : batch [9,1]\n%8 = mul %7 %2 : batch [9,9]\n"
        "%9 = sigma %8 axis=0 : batch [9]\nupdate %2 <- %9\n",
        0,
        1,
    ),
}


TARGET = Target(threads=1, lanes=8, group=4, divide_interval=27, crossed=True)


def order_of(plan: Plan) -> Order:
    forms = choose_forms(plan, TARGET)
    return order_updates(plan, forms, choose_shards(plan, forms, TARGET, sharded=True))


@pytest.mark.parametrize("name", CASES)
def test_in_place_where_no_old_value_is_lost(name: str) -> None:
    body, in_place, moved = CASES[name]
    graph = parse_graph(HEAD.format(batch=4) + body)
    plan = plan_of(graph)
    order = order_of(plan)
    assert len(order.target) == in_place
    assert sum(step.kind is Kind.MOVE for step in order.steps) == moved


@pytest.mark.parametrize("name", PARTS)
def test_parts_of_models(name: str) -> None:
    body, in_place, moved = PARTS[name]
    for batch in (1, 4):
        graph = parse_graph(MATRICES.format(batch=batch) + body)
        plan = plan_of(graph)
        order = order_of(plan)
        assert len(order.target) == in_place
        assert sum(step.kind is Kind.MOVE for step in order.steps) == moved
        columns = random_columns(graph, 10, seed=1)
        for config in (MachineConfig(**ROOMY), MachineConfig(threads=4, clusters=2, **ROOMY)):
            assert_same(graph, columns, train(graph, columns, config))


@pytest.mark.parametrize("batch", [1, 4])
@pytest.mark.parametrize("name", CASES)
def test_models_are_the_interpreters(name: str, batch: int) -> None:
    graph = parse_graph(HEAD.format(batch=batch) + CASES[name][0])
    columns = random_columns(graph, 10, seed=1)
    for config in (MachineConfig(**ROOMY), MachineConfig(threads=4, clusters=2, **ROOMY)):
        assert_same(graph, columns, train(graph, columns, config))
