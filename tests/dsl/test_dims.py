"""Extents that are bound at train time: arithmetic, binding, inference from a table's shapes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsl import RuleError, compile_rule
from dsl.hdfg.dims import Dim, add, evaluate, multiply, subtract, symbol
from dsl.hdfg.graph import BindError
from dsl.hdfg.text import graph_text, parse_graph
from tests.dsl.rules import RULES
from tests.scale import randomised

dims = st.recursive(
    st.one_of(st.integers(-9, 9), st.sampled_from([symbol("n"), symbol("k"), symbol("m")])),
    lambda inner: st.tuples(st.sampled_from([add, subtract, multiply]), inner, inner).map(lambda t: t[0](t[1], t[2])),
    max_leaves=8,
)


@randomised(100)
@given(dims, dims, dims, st.fixed_dictionaries({name: st.integers(1, 9) for name in "nkm"}))
def test_arithmetic_is_that_of_whole_numbers(a: Dim, b: Dim, c: Dim, values: dict[str, int]) -> None:
    assert evaluate(add(a, b), values) == evaluate(a, values) + evaluate(b, values)
    assert evaluate(subtract(a, b), values) == evaluate(a, values) - evaluate(b, values)
    assert evaluate(multiply(a, b), values) == evaluate(a, values) * evaluate(b, values)
    assert multiply(a, add(b, c)) == add(multiply(c, a), multiply(b, a))
    assert subtract(a, a) == 0


def test_bind_gives_concrete_shapes() -> None:
    graph = compile_rule(RULES["extents"]).hdfg
    assert graph.dims == ("n", "k")
    bound = graph.bind({"n": 3, "k": 2})
    assert bound.is_bound
    assert bound.concrete_shape(bound.models[0]) == (7,)
    assert [node.value for node in bound.nodes if node.op == "const"] == [6.0, 3.0]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"n": 3}, "missing: k"),
        ({"n": 3, "k": 2, "m": 1}, "has no dim m; its dims are: n, k"),
        ({"n": 0, "k": 2}, r"z would have shape \[2, 0\] under k=2, n=0"),
    ],
)
def test_bind_says_what_does_not_fit(values: dict[str, int], message: str) -> None:
    with pytest.raises(BindError, match=message):
        compile_rule(RULES["extents"]).hdfg.bind(values)


COUNTED = """\
import dana
n = dana.dim()
k = dana.dim(2)
x = dana.input([n])
y = dana.output(classes=k)
W = dana.model([k + 1, n])
rule = dana.algo(W, x, y)
z = 0
for j in range(k):
    z = z + dana.sigma(W[j] * x, 1) * (y == j)
rule.setModel(W, W - z / k)
rule.setPrediction(W[k - 1] @ x * dana.arange(k))
"""


def test_a_loop_that_counts_a_dim_is_unrolled_for_its_extent() -> None:
    """The graph is that of the text with a number in the dim's place, for its default and for others."""
    graph = compile_rule(COUNTED).hdfg
    assert (graph.dims, graph.extents, graph.symbolic_classes) == (("n", "k"), (("k", 2),), symbol("k"))
    assert [str(dim) for dim in graph.symbolic_shape(graph.nodes[graph.models[0]])] == ["k+1", "n"]
    assert graph.infer_dims({"W": (6, 4)}) == {"k": 5, "n": 4}
    for dims in ({"n": 4}, {"n": 4, "k": 2}, {"n": 3, "k": 5}):
        fixed = compile_rule(COUNTED.replace("dana.dim(2)", str(dims.get("k", 2))))
        wanted = graph_text(fixed.hdfg.bind({"n": dims["n"]}), spans=False)
        assert graph_text(graph.bind(dims), spans=False) == wanted
    again = parse_graph(graph_text(graph))
    assert again.bind({"n": 4}) == graph.bind({"n": 4})
    with pytest.raises(BindError, match="loops of rule 'rule' are unrolled for k = 2; other extents need its text"):
        again.bind({"n": 4, "k": 3})


def test_a_negated_dim_of_a_loop_stays_symbolic() -> None:
    text = COUNTED.replace("W = dana.model([k + 1, n])", "W = dana.model([k + 1, n])\nV = dana.model([-(-k - 1)])")
    graph = compile_rule(text.replace("(W, x, y)", "(W, V, x, y)")).hdfg
    assert [str(dim) for dim in graph.symbolic_shape(graph.nodes[graph.models[1]])] == ["k+1"]


def test_what_is_wrong_with_another_extent_is_said_when_it_is_bound() -> None:
    text = COUNTED.replace("W[k - 1] @ x", "W[7 - 7 // k] @ x")
    rule = compile_rule(text.replace("dana.dim(2)", "dana.dim(8)"))
    with pytest.raises(RuleError, match=r"(?s)the row does not fit.*loops are unrolled for k = 2"):
        rule.hdfg.bind({"n": 4, "k": 2})


def test_one_number_tells_two_classes_apart() -> None:
    """Of an open dim it is known only where the dim is bound; so is a vector of a number for each."""
    text = COUNTED.replace("W[k - 1] @ x * dana.arange(k)", "{}").replace("dana.dim(2)", "dana.dim()")
    text = text.replace("range(k)", "range(2)")
    graph = compile_rule(text.format("W[1] @ x")).hdfg
    assert graph.bind({"n": 4, "k": 2}).is_bound
    with pytest.raises(BindError, match=r"'rule' predicts a scalar, .* a vector \[3\] with one score per class"):
        graph.bind({"n": 4, "k": 3})
    assert compile_rule(text.format("W[1:] @ x")).hdfg.bind({"n": 4, "k": 3}).is_bound


def test_infer_dims_solves_axis_by_axis() -> None:
    graph = compile_rule(RULES["extents"]).hdfg
    assert graph.infer_dims({"x": (7,)}) == {}
    assert graph.infer_dims({"z": (2, 3)}) == {"n": 3, "k": 2}
    assert graph.infer_dims({"x": (7,), "z": (2, 3)}) == {"n": 3, "k": 2}
    with pytest.raises(BindError, match=r"axis 1 of x must have n\*k\+1|axis 1 of x must have k\*n\+1"):
        graph.infer_dims({"x": (8,), "z": (2, 3)})
    with pytest.raises(BindError, match="z must have 2 axes as the rule says, not 1"):
        graph.infer_dims({"z": (2,)})
    with pytest.raises(BindError, match="no input, output or model 'q'"):
        graph.infer_dims({"q": (2,)})


def test_infer_dims_solves_linear_expressions() -> None:
    text = RULES["plain_sgd"].replace("dana.model([n])", "dana.model([n])").replace("[n])", "[2 * n + 1])")
    graph = compile_rule(text).hdfg
    assert graph.infer_dims({"x": (9,)}) == {"n": 4}
    with pytest.raises(BindError, match=r"axis 1 of x has 8 elements, which no n makes of 2\*n\+1"):
        graph.infer_dims({"x": (8,)})
    for extent in (1, -1):
        with pytest.raises(BindError, match="which no n makes of"):
            graph.infer_dims({"x": (extent,)})


def test_a_fixed_row_must_exist_once_bound() -> None:
    text = RULES["centres"].replace("C = dana.model([k, 2]", "n = dana.dim()\nC = dana.model([n, 2]")
    graph = compile_rule(text).hdfg
    assert graph.bind({"n": 3}).is_bound
    with pytest.raises(BindError, match="C would have 2 rows, but the rule selects row 2"):
        graph.bind({"n": 2})


CLASSES = """
import dana
n = dana.dim()
k = dana.dim(3)
W = dana.model([k, n])
x = dana.input([n])
rule = dana.algo(W, x)
rule.setModel(W, W - dana.expand(dana.arange(k), 2) * x)
"""


def test_an_extent_by_default_holds_until_somebody_says_otherwise() -> None:
    graph = compile_rule(CLASSES).hdfg
    assert graph.extents == (("k", 3),)
    assert parse_graph(graph_text(graph)) == graph
    for dims_given, shape in (({"n": 2}, (3, 2)), ({"n": 2, "k": 5}, (5, 2))):
        bound = graph.bind(dims_given)
        assert bound.concrete_shape(bound.models[0]) == shape
        assert bound.extents == ()
    with pytest.raises(BindError, match="missing: n"):
        graph.bind({"k": 3})
