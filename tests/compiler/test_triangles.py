"""Which merges are computed by half, and where that pays; that the bits are right is in tests/lockstep."""

from __future__ import annotations

import pytest

from dana.compiler.fit import fit
from dana.compiler.passes import plan_of
from dana.compiler.place.sections import Plan
from dana.compiler.place.triangles import fold_symmetric, strips, triangle_rows
from dana.compiler.target import Target
from dsl import compile_rule
from hwgen.spec.config import MachineConfig

RULE = """import dana
G, m = dana.model([{n}, {n}]), dana.model([{n}])
x = dana.input([{n}])
y = dana.output()
r = dana.algo(G, m, x, y)
{before}
r.setModel(G, r.merge({value}, {batch}, "+"))
r.setModel(m, r.merge({other}, {batch}, "+"))
"""
ROUND = Target(threads=8, lanes=8, group=8, levels=4, divide_interval=27, crossed=True)


def folded(value: str, *, n: int = 55, batch: str = "dana.all", before: str = "", other: str = "x") -> Plan:
    source = RULE.format(n=n, value=value, batch=batch, before=before, other=other)
    return fold_symmetric(plan_of(compile_rule(source).hdfg.bind({})), ROUND)


def test_a_product_of_a_column_and_a_row() -> None:
    """A view of each, their product in a triangle, its merge, and once for a batch the matrix."""
    plan = folded("dana.expand(x, 2) * x", n=17)
    graph = plan.graph
    (mirror,) = (k for k in plan.section if graph.nodes[k].op == "mirror")
    (merge,) = plan.operands(mirror)
    (product,) = plan.operands(merge)
    assert [graph.nodes[k].op for k in plan.operands(product)] == ["upper", "upper"]
    assert graph.nodes[mirror].shape == (17, 17)
    # 8 rows of three rows of lanes, 8 of two, and one of one
    assert strips(17, 8) == [(0, 8, 3), (24, 8, 2), (40, 1, 1)]
    assert graph.nodes[merge].shape == graph.nodes[product].shape == (8 * 41,) == (8 * triangle_rows(17, 8),)
    assert plan.section[mirror] == "batch"


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ("dana.expand(x, 2) * x", True),
        ("y * (x * dana.expand(x, 2))", True),
        ("(dana.expand(x, 2) - dana.expand(m, 2)) * (x - m)", True),
        ("dana.expand(x - m, 2) * (x - m)", True),
        ("dana.expand(x, 2) * x + (dana.expand(m, 2) + m)", True),
        # two roundings in another order
        ("(y * dana.expand(x, 2)) * x", False),
        ("dana.expand(x, 2) - x", False),
        ("dana.expand(x, 2) * m", False),
        ("(dana.expand(x, 2) * x) * G", False),
        ("dana.expand(x, 2) + dana.expand(x, 2) * dana.arange(55)", False),
    ],
)
def test_what_is_symmetric(value: str, found: bool) -> None:
    assert folded(value).mirrors == found


def test_what_something_else_reads_is_computed_as_a_whole() -> None:
    assert not folded("p", before="p = dana.expand(x, 2) * x", other="dana.sigma(p, 1)").mirrors


@pytest.mark.parametrize(
    ("n", "batch", "found"), [(8, "dana.all", False), (17, "64", False), (17, "256", True), (55, "64", True)]
)
def test_it_has_to_pay(n: int, batch: str, found: bool) -> None:
    """More rows are saved in a batch than the matrix takes to be made of its half."""
    assert folded("dana.expand(x, 2) * x", n=n, batch=batch).mirrors == found


@pytest.mark.parametrize(("depth", "found"), [(512, False), (1024, True)])
def test_a_machine_that_holds_no_triangle_and_its_matrix_merges_the_whole(depth: int, found: bool) -> None:
    """Triangles take rows for the matrix that is made of them, where an operation reads it."""
    source = RULE.format(n=33, before="", value="dana.expand(x, 2) * x", other="x", batch=64)
    plan = plan_of(compile_rule(source.replace("(G, r", "(G, 0.5 * G + r")).hdfg.bind({}))
    config = MachineConfig(threads=8, scratch_depth=depth, tuple_depth=4096)
    assert fit(plan, config, max_tuples=1000).plan.mirrors == found
