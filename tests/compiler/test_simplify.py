"""Each simplification: text before, text after, and the same bits from the interpreter before and after."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from dana.compiler.passes import RULE, simplify
from dana.compiler.simplify.constants import fold_constants
from dana.compiler.simplify.prune import prune
from dana.compiler.simplify.reciprocal import divide_by_powers_of_two
from dana.compiler.simplify.share import share_subexpressions
from dsl.hdfg.graph import Graph
from dsl.hdfg.interpreter import Interpreter
from dsl.hdfg.text import graph_text, parse_graph
from dsl.hdfg.verify import verify
from hwgen.spec import numerics
from tests.compiler.rules import RandomRule, random_columns
from tests.scale import scaled

HEAD = """\
hdfg r
epochs 1
batch 2
inputs %0
models %1
%0 = input x : tuple [3]
%1 = model w : batch [3]
"""

CASES: list[tuple[Callable[[Graph], Graph], str, str]] = [
    (
        fold_constants,
        """\
%2 = const 2.0 : const []
%3 = const 3.0 : const []
%4 = mul %2 %3 : const []
%5 = const 1.0 : const []
%6 = mul %4 %5 : const []
%7 = mul %0 %6 : tuple [3]
%8 = mul %7 %5 : tuple [3]
%9 = merge %8 op=add : batch [3]
update %1 <- %9
""",
        """\
%2 = const 2.0 : const []
%3 = const 3.0 : const []
%4 = const 6.0 : const []
%5 = const 1.0 : const []
%6 = const 6.0 : const []
%7 = mul %0 %6 : tuple [3]
%8 = merge %7 op=add : batch [3]
update %1 <- %8
""",
    ),
    (
        fold_constants,  # x + 0 turns -0 into +0, x - 0 and x + -0 change nothing; -(-x) is x
        """\
%2 = const 0.0 : const []
%3 = const -0.0 : const []
%4 = add %0 %2 : tuple [3]
%5 = sub %4 %2 : tuple [3]
%6 = add %5 %3 : tuple [3]
%7 = neg %6 : tuple [3]
%8 = neg %7 : tuple [3]
%9 = merge %8 op=add : batch [3]
update %1 <- %9
""",
        """\
%2 = const 0.0 : const []
%3 = const -0.0 : const []
%4 = add %0 %2 : tuple [3]
%5 = neg %4 : tuple [3]
%6 = merge %4 op=add : batch [3]
update %1 <- %6
""",
    ),
    (
        divide_by_powers_of_two,
        """\
%2 = const 64.0 : const []
%3 = const 10.0 : const []
%4 = const -0.5 : const []
%5 = div %0 %2 : tuple [3]
%6 = div %5 %3 : tuple [3]
%7 = div %6 %4 : tuple [3]
%8 = div %2 %7 : tuple [3]
%9 = merge %8 op=add : batch [3]
update %1 <- %9
""",
        """\
%2 = const 64.0 : const []
%3 = const 10.0 : const []
%4 = const -0.5 : const []
%5 = const 0.015625 : const []
%6 = mul %0 %5 : tuple [3]
%7 = div %6 %3 : tuple [3]
%8 = const -2.0 : const []
%9 = mul %7 %8 : tuple [3]
%10 = div %2 %9 : tuple [3]
%11 = merge %10 op=add : batch [3]
update %1 <- %11
""",
    ),
    (
        divide_by_powers_of_two,  # the reciprocal of 2**127 is subnormal: it would be flushed
        """\
%2 = const 1.7014118346046923e+38 : const []
%3 = div %0 %2 : tuple [3]
%4 = merge %3 op=add : batch [3]
update %1 <- %4
""",
        """\
%2 = const 1.7014118346046923e+38 : const []
%3 = div %0 %2 : tuple [3]
%4 = merge %3 op=add : batch [3]
update %1 <- %4
""",
    ),
    (
        share_subexpressions,
        """\
%2 = mul %0 %1 : tuple [3]
%3 = mul %1 %0 : tuple [3]
%4 = sub %2 %0 : tuple [3]
%5 = sub %0 %3 : tuple [3]
%6 = sub %3 %0 : tuple [3]
%7 = add %4 %6 : tuple [3]
%8 = add %7 %5 : tuple [3]
%9 = merge %8 op=add : batch [3]
%10 = merge %8 op=max : batch [3]
%11 = add %9 %10 : batch [3]
update %1 <- %11
""",
        """\
%2 = mul %0 %1 : tuple [3]
%3 = sub %2 %0 : tuple [3]
%4 = sub %0 %2 : tuple [3]
%5 = add %3 %3 : tuple [3]
%6 = add %5 %4 : tuple [3]
%7 = merge %6 op=add : batch [3]
%8 = merge %6 op=max : batch [3]
%9 = add %7 %8 : batch [3]
update %1 <- %9
""",
    ),
    (
        prune,
        """\
%2 = mul %0 %1 : tuple [3]
%3 = sigma %2 axis=0 : tuple []
%4 = add %0 %0 : tuple [3]
%5 = merge %4 op=add : batch [3]
update %1 <- %5
prediction %3
""",
        """\
%2 = add %0 %0 : tuple [3]
%3 = merge %2 op=add : batch [3]
update %1 <- %3
""",
    ),
]


@pytest.mark.parametrize(("run", "before", "after"), CASES)
def test_before_and_after(run: Callable[[Graph], Graph], before: str, after: str) -> None:
    graph = parse_graph(HEAD + before)
    found = run(graph)
    verify(found)
    assert graph_text(found) == graph_text(parse_graph(HEAD + after))
    same_bits(graph, found, seed=1)


@pytest.mark.parametrize("seed", range(scaled(40)))
def test_every_pass_keeps_every_bit_of_random_rules(seed: int) -> None:
    graph = RandomRule(seed, merges=seed % 4 != 0, matrices=seed % 3 == 0).graph(batch=[2, 3, None][seed % 3])
    before = graph
    for one in RULE:
        if one.makes != "graph":
            continue
        after = one.run(before)
        verify(after)
        same_bits(before, after, seed)
        before = after
    assert graph_text(before) == graph_text(simplify(graph))


def same_bits(before: Graph, after: Graph, seed: int) -> None:
    """The interpreter makes the same of both."""
    columns = random_columns(before, 7, seed)
    left, right = (Interpreter(graph, numerics).train(columns, epochs=2) for graph in (before, after))
    for name, value in left.models.items():
        np.testing.assert_array_equal(value.view(np.uint32), right.models[name].view(np.uint32))
    np.testing.assert_array_equal(left.losses, right.losses)
    assert left.converged == right.converged


SQUARE = """\
hdfg r
epochs 1
batch 1
inputs %0
models %1 %2 %3
%0 = input x : tuple [3,3]
%1 = model a : batch [3]
%2 = model b : batch [3]
%3 = model c : batch [3]
%4 = sigma %0 axis=0 : tuple [3]
%5 = sigma %0 axis=1 : tuple [3]
%6 = sigma %0 axis=0 : tuple [3]
update %1 <- %4
update %2 <- %5
update %3 <- %6
"""


def test_sums_over_other_axes_are_other_values() -> None:
    """Though their shapes be the same."""
    shared = share_subexpressions(parse_graph(SQUARE))
    assert [node.axis for node in shared.nodes if node.axis is not None] == [0, 1]
    assert [update.value for update in shared.updates] == [4, 5, 4]


@pytest.mark.parametrize(
    ("operation", "kept"),
    [
        ("div %2 %0", True),
        ("div %0 %2", False),
        ("mul %2 %0", False),
        ("sub %3 %0", True),
        ("sub %0 %3", False),
        ("sub %0 %4", True),
        ("add %0 %3", True),
        ("add %4 %0", False),
        ("max %0 %3", True),
    ],
)
def test_what_a_literal_changes_is_computed(operation: str, kept: bool) -> None:
    """1 / x, 0 - x, and what makes +0 of -0, are no x."""
    body = "%2 = const 1.0 : const []\n%3 = const 0.0 : const []\n%4 = const -0.0 : const []\n"
    graph = parse_graph(
        f"{HEAD}{body}%5 = {operation} : tuple [3]\n%6 = merge %5 op=add : batch [3]\nupdate %1 <- %6\n"
    )
    word = operation.split()[0]
    assert any(node.op == word for node in fold_constants(graph).nodes) == kept
