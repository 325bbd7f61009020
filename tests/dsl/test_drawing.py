"""How graphs look to people: golden listings and pictures, and what must hold of every picture."""

from __future__ import annotations

import itertools
import re
import xml.etree.ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsl import compile_rule
from dsl.hdfg.drawing.layout import Link, Thing, order, place, spread
from dsl.hdfg.drawing.listing import listing
from dsl.hdfg.drawing.picture import Kind, Part, picture
from dsl.hdfg.drawing.svg import MARGIN, svg
from dsl.hdfg.graph import LEAVES, Graph, Op, Region
from tests.dsl.programs import rules
from tests.dsl.rules import HEAD, RULES
from tests.golden import Golden
from tests.scale import randomised

SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize("name", ["logistic", "centres", "every_function", "rows_in_batches", "extents"])
def test_listing(name: str, golden: Golden) -> None:
    golden(compile_rule(RULES[name]).listing)


@pytest.mark.parametrize("name", ["logistic", "rows_in_batches"])
def test_svg(name: str, golden: Golden) -> None:
    golden(compile_rule(RULES[name])._repr_svg_() or "", ".svg")


def boxes_of(drawn: ET.Element) -> list[tuple[float, float, float, float]]:
    """Left, top, right and bottom of every box."""
    found = []
    for group in drawn.iter(f"{SVG}g"):
        box = group.find(f"{SVG}rect")
        assert box is not None
        x, y, width, height = (float(box.attrib[name]) for name in ("x", "y", "width", "height"))
        found.append((x, y, x + width, y + height))
    return found


def check(graph: Graph) -> None:
    """A picture shows everything, in its part, and nothing lies on anything else."""
    shown = picture(graph)
    for arrow in shown.arrows:
        source, target = shown.boxes[arrow.source], shown.boxes[arrow.target]
        if (source.part, target.part) == (Part.BATCH, Part.TUPLE):  # the batch's value in its rows again: upwards
            assert graph.returns_to_rows
            continue
        assert source.row < target.row
        assert source.part <= target.part
    rows: dict[int, set[Part]] = {}
    for box in shown.boxes:
        rows.setdefault(box.row, set()).add(box.part)
    assert sorted(rows) == list(range(len(rows)))
    assert [len(parts) for parts in rows.values()] == [1] * len(rows)
    # equal operations are drawn once, so there may be fewer boxes than nodes, but none may be missing
    roots = [*graph.training_roots, *([] if graph.prediction is None else [graph.prediction])]
    wanted = {
        (node.op, node.region)
        for node in (graph.nodes[i] for i in graph.reachable(roots))
        if node.op not in LEAVES and node.op is not Op.GATHER and node.region is not Region.CONST
    }
    operations = [box for box in shown.boxes if box.kind in (Kind.OPERATION, Kind.MERGE)]
    assert len(operations) >= len(wanted)
    results = [box for box in shown.boxes if box.kind is Kind.RESULT]
    ends = (graph.loss, graph.prediction, graph.convergence)
    assert len(results) == len(graph.updates) + sum(end is not None for end in ends)

    drawn = ET.fromstring(svg(graph))
    width, height = float(drawn.attrib["width"]), float(drawn.attrib["height"])
    boxes = boxes_of(drawn)
    assert len(boxes) == len(shown.boxes)
    for left, top, right, bottom in boxes:
        assert MARGIN < left < right < width - MARGIN
        assert MARGIN < top < bottom < height
    for one, other in itertools.combinations(boxes, 2):
        assert one[2] < other[0] or other[2] < one[0] or one[3] < other[1] or other[3] < one[1]


@pytest.mark.parametrize("name", RULES)
def test_pictures_of_rules(name: str) -> None:
    check(compile_rule(RULES[name]).hdfg)


@randomised(40)
@given(rules())
def test_pictures_of_generated_rules(text: str) -> None:
    graph = compile_rule(text).hdfg
    check(graph)
    assert len(listing(graph).splitlines()) > 5


def test_names_are_escaped_and_wide_ones_have_room() -> None:
    text = HEAD + "数据模型数据模型数据模型 = dana.model([n])\nr = dana.algo(数据模型数据模型数据模型, x, y)\n"
    text += "r.setModel(dana.where(y < 数据模型数据模型数据模型, x, 0))\n"
    graph = compile_rule(text).hdfg
    check(graph)
    assert "&lt;" in svg(graph)


def test_a_graph_that_is_too_large_says_so() -> None:
    body = "w = dana.model([n])\nr = dana.algo(w, x, y)\ne = y\nfor i in range(9000):\n    e = -e\n"
    body += "r.setModel(w - e * x)\n"
    graph = compile_rule(HEAD + body).hdfg
    assert "too large to draw, with 9,00" in svg(graph)
    assert len(listing(graph).splitlines()) > 9000


def test_constant_expressions_that_double_stay_short() -> None:
    body = "w = dana.model([n])\nm = dana.meta(1)\nr = dana.algo(w, x, y)\n"
    body += "for i in range(1000):\n    m = m * m\nr.setModel(w - m * y * x)\n"
    graph = compile_rule(HEAD + body).hdfg
    assert max(map(len, listing(graph).splitlines())) < 120
    check(graph)


@randomised(100)
@given(st.lists(st.tuples(st.floats(-100, 100), st.floats(0.5, 5), st.floats(0, 30)), min_size=1, max_size=12))
def test_spread_keeps_order_and_distance_and_moves_no_more_than_needed(
    things: list[tuple[float, float, float]],
) -> None:
    wanted, weights, apart = ([thing[k] for thing in things] for k in range(3))
    places = spread(wanted, weights, apart[1:])
    for left, right, distance in zip(places, places[1:], apart[1:], strict=False):
        assert right - left >= distance - 1e-6
    free = sorted(wanted)
    assert spread(free, weights, [0.0] * (len(free) - 1)) == pytest.approx(free)
    # optimal: the forces within each group that touches are balanced, so the total force is zero
    force = sum(weight * (place - wish) for weight, place, wish in zip(weights, places, wanted, strict=True))
    assert force == pytest.approx(0, abs=1e-6)


def test_a_crossing_that_can_be_avoided_is() -> None:
    things = [Thing(row=row, width=10.0) for row in (0, 0, 0, 1, 1, 1)]
    links = [Link(upper=0, lower=5), Link(upper=1, lower=4), Link(upper=2, lower=3)]
    rows = order(things, links)
    place(things, rows, 5.0)
    assert [rows[0].index(i) for i in (0, 1, 2)] == [rows[1].index(i) for i in (5, 4, 3)]
    assert all(things[link.upper].x == pytest.approx(things[link.lower].x) for link in links)
    assert re.fullmatch(r"0\.0*", f"{min(thing.x - thing.width / 2 for thing in things):.6f}")
