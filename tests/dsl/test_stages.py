"""What each stage prints for the shared rules: golden trees and graphs, and both printed forms read back."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest

from dsl import compile_rule
from dsl.binary32 import round32
from dsl.hdfg.builder import GraphBuilder
from dsl.hdfg.graph import BindError, Op, Region, Update
from dsl.hdfg.interpreter import Interpreter
from dsl.hdfg.text import GraphSyntaxError, graph_text, parse_dim, parse_graph
from dsl.hdfg.verify import InvalidGraph
from dsl.source import Source
from dsl.syntax.parser import parse
from dsl.syntax.printer import rule_text, tree_text
from hwgen.spec import numerics
from tests.dsl.rules import PAPER, RULES
from tests.golden import Golden


@pytest.mark.parametrize("name", sorted(RULES.keys() - {"linear", "svm", "two_models", "cube"}))
def test_hdfg(name: str, golden: Golden) -> None:
    """The four left out run no line of the language that these do not."""
    golden(graph_text(compile_rule(RULES[name]).hdfg))


@pytest.mark.parametrize("name", RULES)
def test_graphs_read_back(name: str) -> None:
    graph = compile_rule(RULES[name]).hdfg
    assert parse_graph(graph_text(graph)) == graph


@pytest.mark.parametrize("name", ["functions", "softmax"])
def test_ast(name: str, golden: Golden) -> None:
    golden(tree_text(compile_rule(RULES[name]).ast))


@pytest.mark.parametrize("name", RULES)
def test_rule_text_parses_to_an_equal_tree(name: str) -> None:
    module = compile_rule(RULES[name]).ast
    again, diagnostics = parse(Source(text=rule_text(module), filename="again"))
    assert not diagnostics
    without_places = [re.sub(r" @ \S+", "", tree_text(tree)) for tree in (module, again)]
    assert without_places[0] == without_places[1]
    assert graph_text(compile_rule(rule_text(module)).hdfg, spans=False) == graph_text(
        compile_rule(RULES[name]).hdfg, spans=False
    )


@pytest.mark.parametrize("path", sorted(PAPER.glob("*.py")), ids=lambda path: path.stem)
def test_examples_are_short_and_have_no_warnings(path: object) -> None:
    text = RULES[path.stem]  # type: ignore[attr-defined]
    rule = compile_rule(text)
    assert rule.name == path.stem  # type: ignore[attr-defined]
    assert rule.report == ""
    assert len(text.splitlines()) <= 30


def test_special_numbers_survive_the_text_form() -> None:
    builder = GraphBuilder()
    w = builder.leaf(Op.MODEL, region=Region.BATCH, name="w")
    x = builder.leaf(Op.INPUT, region=Region.TUPLE, name="x")
    total = x
    for number in (math.nan, math.inf, -math.inf, -0.0, 2.0**-126, round32(0.1)):
        const = builder.leaf(Op.CONST, region=Region.CONST, value=number)
        total = builder.add(Op.ADD, (total, const), region=Region.TUPLE)
    graph = builder.finish("special", inputs=(x,), models=(w,), updates=(Update(model=w, value=total),))
    assert graph_text(parse_graph(graph_text(graph))) == graph_text(graph)
    assert [str(node.value) for node in graph.nodes if node.op is Op.CONST][:4] == ["nan", "inf", "-inf", "-0.0"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no line 'hdfg'"),
        ("hdfg a\nepochs 1\nbatch 1\nnonsense", "line 4"),
        ("hdfg a\nepochs 1\nbatch 1\n%0 = model w", "line 4"),
        ("hdfg a\nepochs 1\nbatch 1\n%0 = frob w : batch []", "line 4"),
        ("hdfg a\nepochs one\nbatch 1\n", "must be numbers"),
        ("hdfg a\nepochs 1\nbatch 1\nupdate w <- %0", "line 4"),
    ],
)
def test_text_that_is_no_graph_is_refused(text: str, message: str) -> None:
    with pytest.raises(GraphSyntaxError, match=message):
        parse_graph(text)


GRAPH = graph_text(compile_rule(RULES["logistic"]).hdfg, spans=False)


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("%5 = sigma %4 axis=0", "%5 = sigma %4 axis=1", "axis from 0 to 0"),
        ("%5 = sigma %4 axis=0", "%5 = sigma %4", "if and only if it is a reduction"),
        ("%4 = mul %0 %1 : tuple", "%4 = mul %0 %1 : batch", "must not read node 1"),
        ("%4 = mul %0 %1", "%4 = mul %0 %9", "must read earlier nodes"),
        ("%4 = mul %0 %1", "%4 = mul %0", "must have 2 inputs, not 1"),
        ("%4 = mul %0 %1 : tuple [n]", "%4 = mul %0 %1 : tuple [m]", r"must have shape \[n\], not \[m\]"),
        ("%9 = merge %8 op=add : batch", "%9 = merge %8 op=sub : batch", "merge_op"),
        ("%9 = merge %8 op=add : batch", "%9 = merge %8 op=add : tuple", "must be in region batch"),
        ("%0 = model w : batch", "%0 = model w : tuple", "must be in region batch"),
        ("%10 = mul %3 %9", "%10 = mul %1 %9", "must not read node 1"),
        ("update %0 <- %13", "update %0 <- %8", "value in region batch"),
        ("update %0 <- %13", "update %1 <- %13", "must write a model"),
        ("update %0 <- %13", "update %0[%13] <- %11", "indexed by a scalar of the tuple or const"),
        ("loss %16", "loss %8", "must be a scalar"),
        ("prediction %6", "prediction %21", "region tuple, not batch"),
        ("prediction %6", "prediction %16", "depend on no output"),
        ("convergence %21", "convergence %16", "region batch, not tuple"),
        ("dims n\n", "", "dims must be"),
        ("inputs %1 %2", "inputs %1", "inputs must list nodes"),
        ("batch 64", "batch 0", "at least 1"),
        ("batch 64", "batch 64 from %0", "must be a meta"),
        ("%20 = const 0.009999999776482582", "%20 = const", "value or an extent"),
        ("%2 = output y", "%2 = output x", "names of leaves must differ"),
        ("%10 = mul %3 %9 : batch [n]", "%10 = mul %3 %3 : batch []", "depends on nothing but consts"),
    ],
)
def test_broken_graphs_are_found(before: str, after: str, message: str) -> None:
    assert before in GRAPH
    text = GRAPH.replace(before, after)
    with pytest.raises((InvalidGraph, GraphSyntaxError), match=message):
        parse_graph(text)


ROWS = """\
hdfg rows
epochs 1
batch 1
inputs %0 %1
models %2
%0 = input i : tuple []
%1 = input x : tuple [4,2]
%2 = model U : batch [4,2]
%3 = const 1.0 : const []
%4 = gather %2 %0 : tuple [2]
%5 = gather %2 %3 : batch [2]
update %2[%0] <- %4
loss %0
"""


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("", "", None),
        ("gather %2 %0", "gather %1 %0", "must select from a model, not from input"),
        ("update %2[%0]", "update %2[%1]", "indexed by a scalar of the tuple or const"),
        ("batch 1", "batch 2", "without merge must have batches of 1, not 2"),
        ("gather %2 %0", "gather %0 %0", "gather must have a model with rows"),
        ("const 1.0", "const 0.5", "by a whole number, not by 0.5"),
        ("const 1.0", "const -1.0", "by a whole number, not by -1.0"),
    ],
)
def test_broken_rows_are_found(before: str, after: str, message: str | None) -> None:
    assert before in ROWS
    if message is None:
        parse_graph(ROWS)
        return
    with pytest.raises(InvalidGraph, match=message):
        parse_graph(ROWS.replace(before, after))


CLASSES = """
import dana
k = dana.dim(3)
W = dana.model([k, 2])
x = dana.input([2])
y = dana.output(classes=k)
wide = dana.algo(W, x, y)
score = dana.sigma(W * x, 2)
wide.setModel(W, W - dana.expand((score - (dana.arange(k) == y)), 2) * x)
wide.setPrediction(score)
"""


def test_classes() -> None:
    """They are of the output alone, written and bound with it; a prediction may be a vector of so many numbers."""
    graph = compile_rule(CLASSES).hdfg
    assert str(graph.classes) == "k"
    text = graph_text(graph)
    assert "= output y classes=k : tuple []" in text
    assert graph_text(parse_graph(text)) == text
    bound = graph.bind({"k": 4})
    assert bound.classes == 4
    assert bound.prediction is not None
    assert bound.concrete_shape(bound.prediction) == (4,)
    with pytest.raises(BindError, match="y would have 1 classes; needs >= 2"):
        graph.bind({"k": 1})
    with pytest.raises(InvalidGraph, match=r"prediction must be a scalar or of shape \[3\], not of shape \[k\]"):
        parse_graph(text.replace("classes=k", "classes=3"))
    with pytest.raises(InvalidGraph, match="an input, or a scalar output, for its values to be numbered"):
        parse_graph(text.replace("model W", "model W classes=k"))
    bound = parse_graph(text.replace("input x", "input x classes=k")).bind({"k": 4})
    assert [node.classes for node in bound.nodes if node.name in ("x", "y")] == [4, 4]
    columns = {"x": np.float32([[1, 2], [3, 4]])}
    models = {"W": np.float32([[1, 0], [0, 1], [1, 1], [0, 0]])}
    predicted = Interpreter(bound, numerics).predict(columns, models)
    np.testing.assert_array_equal(predicted, np.float32([[1, 2, 3, 0], [3, 4, 7, 0]]))


@pytest.mark.parametrize("text", ["8", "n", "2*k*n+3", "n*n-n-1", "-n+5", "k+n"])
def test_extents_read_back(text: str) -> None:
    assert str(parse_dim(text)) == text
