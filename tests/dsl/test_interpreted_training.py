"""What is one thing while a rule trains and another in what it predicts, by `dana.training`."""

from __future__ import annotations

import numpy as np
import pytest

from dsl import Rule, compile_rule
from dsl.hdfg.choice import element_of
from dsl.hdfg.graph import Graph, Op
from dsl.hdfg.interpreter import Interpreter
from dsl.hdfg.text import graph_text, parse_graph
from dsl.hdfg.verify import verify
from hwgen.spec import numerics

HEAD = """
import dana
n = dana.dim()
w = dana.model([n], init=2)
seen = dana.model()
x = dana.input([n])
y = dana.output()
rule = dana.algo(w, seen, x, y)
"""
X = np.array([[1, 2], [3, 4], [5, 6]], np.float32)
Y = np.array([1, 2, 3], np.float32)


def compiled(*lines: str) -> Graph:
    rule = compile_rule(HEAD + "\n".join(lines) + "\n")
    assert {one.code for one in rule.warnings} <= {"W701"}, "the label may be unused"
    verify(rule.hdfg)
    assert parse_graph(graph_text(rule.hdfg)) == rule.hdfg
    return rule.hdfg.bind({"n": 2})


def alike(one: Graph, other: Graph) -> bool:
    """Whether graphs are the same but for the order of their nodes and the text they came from."""

    def forms(graph: Graph) -> list[str]:
        found: list[str] = []
        for node in graph.nodes:
            found.append(f"{node.op} {node.value} {node.shape} ({' '.join(found[i] for i in node.inputs)})")
        roots = (graph.loss, graph.prediction, *(update.value for update in graph.updates))
        return ["" if root is None else found[root] for root in roots]

    return forms(one) == forms(other)


CHOICES = {
    "dana.where(dana.training, w * x, seen * x)": ("w * x", "seen * x"),
    "dana.where(1 - dana.training, seen * x, w * x)": ("w * x", "seen * x"),
    "dana.where(dana.training == 0, seen * x, w * x)": ("w * x", "seen * x"),
    "dana.where(-dana.training < 0, w * x, seen * x)": ("w * x", "seen * x"),
    "w * dana.where(dana.training, x, dana.where(dana.training, y, seen * x))": ("w * x", "w * (seen * x)"),
    "(1 + dana.training) * w * x": ("2 * w * x", "1 * w * x"),
}


@pytest.mark.parametrize("choice", CHOICES)
def test_one_side_is_left(choice: str) -> None:
    """As if the training and the prediction were written apart."""
    rest = (
        "e = dana.sigma(h) - dana.where(dana.training, y, 0)",
        'rule.setModel(w, w - 0.1 * rule.merge(dana.where(dana.training, h * e, seen), 4, "mean"))',
        'rule.setModel(seen, rule.merge(1, 4, "+"))',
    )
    found = compiled(f"h = {choice}", *rest, "rule.setLoss(e * e)", "rule.setPrediction(e)")
    apart = (
        f"h = {CHOICES[choice][0]}",
        "e = dana.sigma(h) - y",
        'rule.setModel(w, w - 0.1 * rule.merge(h * e, 4, "mean"))',
        rest[2],
        "rule.setLoss(e * e)",
        f"rule.setPrediction(dana.sigma({CHOICES[choice][1]}) - 0)",
    )
    assert alike(found, compiled(*apart))
    assert not any(node.op in (Op.TRAINING, Op.WHERE) for node in found.nodes)
    assert found.test_loss is not None


def test_a_side_keeps_the_shape_of_the_choice() -> None:
    graph = compiled(
        "h = dana.where(dana.training, w * x, seen)",
        "rule.setModel(w, w + h)",
        "rule.setModel(seen, 3)",
        "rule.setPrediction(dana.sigma(h))",
    )
    found = Interpreter(graph, numerics).predict({"x": X}, {"w": [0, 0], "seen": 7})
    np.testing.assert_array_equal(found, [14, 14, 14])


def test_rows_left_out_are_judged_as_predictions_are() -> None:
    lines = ("p = dana.sigma(dana.where(dana.training, w, 10 * w) * x)", "rule.setLoss(p - y)")
    graph = compiled(*lines, "rule.setPrediction(p)", "rule.setModel(w, w + 0 * x)", "rule.setModel(seen, 1)")
    for which, factor in ((graph, 1), (graph.judging, 10)):
        losses = Interpreter(which, numerics).train({"x": X, "y": Y}).losses
        assert losses == (float(np.mean(2 * factor * X.sum(axis=1) - Y)),)
    assert graph.judging.updates == ()
    same = compiled("rule.setLoss(dana.sigma(w * x) - y)", "rule.setModel(w, 2 * w)", "rule.setModel(seen, 1)")
    assert same.test_loss is None
    assert same.judging.loss == same.loss


def test_gradients_are_those_of_a_training() -> None:
    lines = ("rule.setModel(seen, 1)", "rule.setLoss(loss)")
    found = compiled(
        "h = dana.where(dana.training, w * x, seen)",
        "loss = dana.sigma(h * h) * dana.stop_gradient(dana.where(dana.training, dana.sigma(w), 1))",
        *lines,
        "rule.minimize(dana.optimizers.sgd, models=w)",
    )
    apart = compiled(
        "h = w * x",
        "loss = dana.sigma(h * h) * dana.stop_gradient(dana.sigma(w))",
        *lines,
        "rule.minimize(dana.optimizers.sgd, models=w)",
    )
    assert alike(found, apart)


def test_the_number_of_a_row_is_that_of_a_training() -> None:
    rows = HEAD.replace("seen = dana.model()", "seen = dana.model([9])")
    lines = ("r = dana.where(dana.training, x[0], x[1])", "rule.setModel(seen[r], 1)", "rule.setLoss(w[0] * y)")
    graph = compile_rule(rows + "\n".join(lines)).hdfg
    (update,) = graph.updates
    assert update.index is not None
    chosen = element_of(graph, update.index)
    assert chosen is not None
    assert (graph.nodes[chosen[0]].name, chosen[1]) == ("x", 0)


def test_a_gradient_of_what_is_the_same_may_be_predicted() -> None:
    lines = ("g = dana.gradient(dana.sigma({}), w)", "rule.setModel(w, w - g)", "rule.setModel(seen, 1)")
    graph = compiled(*(line.format("w * w * x") for line in lines), "rule.setPrediction(dana.sigma(g))")
    assert Interpreter(graph, numerics).predict({"x": X}, {"w": [1, 1]}).tolist() == [6, 14, 22]
    other = [line.format("dana.where(dana.training, w * x, w)") for line in lines]
    text = HEAD + "\n".join((*other, "rule.setPrediction(dana.sigma(g))"))
    assert [one.code for one in Rule(text).diagnostics] == ["E516"]


def test_the_values_of_a_step_are_those_of_a_training() -> None:
    graph = compiled(
        "h = dana.where(dana.training, w, 10 * w) * x",
        "only = dana.where(dana.training, 1, 2) + seen",
        "rule.setModel(w, w + h)",
        "rule.setModel(seen, 1)",
        "rule.setPrediction(dana.sigma(h) + only)",
    )
    values = Interpreter(graph, numerics).step({"x": X[:1], "y": Y[:1]}).values
    np.testing.assert_array_equal(values["h"], [[2, 4]])
    np.testing.assert_array_equal(values["only"], [2])


def test_what_a_rule_requires_is_no_part_of_it() -> None:
    """Graphs, their constants' order too, are those of the rule without it; so are the states that it counts by."""
    text = (
        "import dana\nw = dana.model([3])\nx = dana.input([3])\nm = dana.meta(0.5)\nrule = dana.algo(w, x)\n"
        "def f(a):\n    {}\n    return 0.25 * a * dana.epoch / (a + 7)\n"
        "rule.setModel(w, f(w) + f(m) + f(dana.epoch) + f(0.25) + x * (f(dana.random([3])) < 7))\n"
    )
    asked, plain = (
        compile_rule(text.format(line)) for line in ("dana.require(3 * a / 7 - dana.random() < 7 * dana.batch)", "pass")
    )
    assert graph_text(asked.hdfg, spans=False) == graph_text(plain.hdfg, spans=False)
    assert asked.warnings == plain.warnings


@pytest.mark.parametrize(
    "condition",
    [
        'rule.merge(dana.sigma(v, 1), 8, "mean") < 3',
        "dana.gradient(dana.where(dana.training, dana.sigma(v * v, 1), 0), v) < 3",
        "rule.minimize(dana.optimizers.conjugate_gradients) < 3",
    ],
)
def test_what_a_condition_records_leaves_nothing_behind(condition: str) -> None:
    """Neither a batch or an update, nor values that stand for those that are recorded later, with the same ids."""
    text = (
        "import dana\nw = dana.model([2])\nx = dana.input([2])\ny = dana.output()\nrule = dana.algo(w, x, y)\n"
        "rule.setLoss((w @ x - y) * (w @ x - y))\n"
        "def f(v):\n    {}\n    return v\n"
        "p = f(w) @ x\nc = dana.where(dana.training, p, 0) + dana.where(dana.training, p * 3, 1)\n"
        'rule.setModel(w - rule.merge((c - y) * x, 4, "mean"))\n'
    )
    asked, plain = (Rule(text.format(line)) for line in (f"dana.require({condition})", "pass"))
    assert not asked.diagnostics, asked.report
    assert graph_text(asked.hdfg, spans=False) == graph_text(plain.hdfg, spans=False)


def test_a_function_that_nothing_calls_asks_nothing_of_a_table() -> None:
    text = "import dana\nn = dana.dim()\nw = dana.model([n])\nx = dana.input([n])\nrule = dana.algo(w, x)\n"
    text += 'def f(v):\n    return v + x[5] * rule.merge(x[7], 8, "+")\nrule.setModel(w - x)\n'
    rule = Rule(text)
    assert not rule.warnings
    assert rule.hdfg.bind({"n": 3}).batch == 1


def test_a_function_that_nothing_calls_asks_nothing_of_a_training() -> None:
    text = "import dana\nw = dana.model([2])\nx = dana.input([2])\nrate = dana.meta(0.5)\nrule = dana.algo(w, x)\n"
    text += "def f(v):\n    dana.require(rate < 1)\n    return dana.optimizers.adam(w, x, rate)\n"
    called, uncalled = Rule(f"{text}rule.setModel(f(w))\n"), Rule(f"{text}rule.setModel(w - rate * x)\n")
    assert (len(called.checked.requirements), called.checked.optimizers) == (6, ("adam",))
    assert (uncalled.checked.requirements, uncalled.checked.optimizers) == ((), ())


def test_rows_of_models_come_one_by_one_unless_something_is_merged() -> None:
    text = (
        "import dana\nU = dana.model([9, 2])\nw = dana.model([2])\ni = dana.input()\nx = dana.input([2])\n"
        "rule = dana.algo(U, w, i, x)\ne = U[i] @ x + w @ x - 1\nrule.setLoss(e * e)\n"
    )
    rows = "rule.minimize(dana.optimizers.sgd, models=[U], rate=0.1, batch=16)\n"
    alone, merged = Rule(text + rows), Rule(text + rows + 'rule.setModel(w, rule.merge(x, 16, "mean"))\n')
    assert not alone.diagnostics
    assert not merged.diagnostics
    assert "W713" not in [one.code for one in alone.warnings]
    assert "W713" in [one.code for one in merged.warnings]
