"""`dana.gradient` through merges, over a whole batch, against autograd and finite differences in binary64."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import autograd
import autograd.numpy as anp
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import hwgen.spec.numerics as numerics
from dsl import compile_rule
from dsl.hdfg.graph import FROM_ROW, Graph, Op, Region
from dsl.hdfg.interpreter import Interpreter
from tests.dsl.programs import Kinds, expressions
from tests.dsl.test_gradient import OPERATIONS, REDUCED, SMOOTH, Bent, straight
from tests.scale import randomised, scaled

Values = Mapping[str, Any]
TUPLES = 5
MERGED = {"add": anp.sum, "mul": anp.prod, "max": anp.max, "min": anp.min}


def evaluate(graph: Graph, values: Values, *, strict: bool = False) -> dict[int, Any]:
    """Every node's value: of those per tuple a list, by NumPy as autograd follows it."""
    found: dict[int, Any] = {}

    def of(k: int, t: int) -> Any:
        return found[k][t] if isinstance(found[k], list) else found[k]

    def one(k: int, t: int) -> Any:
        node = graph.nodes[k]
        operands = [of(i, t) for i in node.inputs]
        if node.op in OPERATIONS:
            if strict:
                straight(node.op, operands, 1e-9)
            return OPERATIONS[node.op](*operands)
        if node.op is Op.WHERE:
            holds = 1.0 * (operands[0] != 0)  # autograd's `where` does not broadcast
            return holds * operands[1] + (1 - holds) * operands[2]
        if node.op in REDUCED:
            return REDUCED[node.op](operands[0], axis=node.axis)
        if node.op is Op.GATHER:
            return operands[0][int(operands[1])]
        if node.op is Op.ELEMENT:
            return operands[0][(slice(None),) * (node.axis or 0) + (int(operands[1]),)]
        assert node.op is Op.EXPAND
        return anp.expand_dims(operands[0], node.axis)

    for node in graph.nodes:
        if node.op is Op.MERGE:
            parts = anp.stack([of(node.inputs[0], t) for t in range(TUPLES)])
            found[node.id] = MERGED[str(node.merge_op)](parts, axis=0)
        elif node.op is Op.CONST:
            found[node.id] = node.value
        elif node.op is Op.ARANGE:
            found[node.id] = np.arange(float(graph.concrete_shape(node.id)[0]))
        elif node.op in FROM_ROW:
            found[node.id] = list(values[str(node.name)])
        elif node.op in (Op.MODEL, Op.META):
            found[node.id] = values[str(node.name)]
        elif node.region is Region.TUPLE:
            found[node.id] = [one(node.id, t) for t in range(TUPLES)]
        else:
            found[node.id] = one(node.id, 0)
        if strict and not np.all(np.isfinite(np.asarray(found[node.id], dtype=float))):
            raise Bent
    return found


def values_of(graph: Graph, seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    models = {str(graph.nodes[k].name): rng.normal(size=graph.concrete_shape(k)) for k in graph.models}
    inputs = {str(graph.nodes[k].name): rng.normal(size=(TUPLES, *graph.concrete_shape(k))) for k in graph.inputs}
    return {**models, **inputs, **{str(graph.nodes[k].name): graph.nodes[k].value for k in graph.metas}}


def total(graph: Graph, values: Values) -> Any:
    """The loss of the batch, summed over its tuples."""
    assert graph.loss is not None
    loss = evaluate(graph, values)[graph.loss]
    return sum(loss) if isinstance(loss, list) else TUPLES * loss


def compare(graph: Graph, values: Values, tolerance: float, scale: float = 1.0) -> None:
    """What the rule makes of its models is the derivative of the summed loss, times `scale`."""

    def loss(models: Mapping[str, Any]) -> Any:
        return total(graph, {**values, **models})

    names = [str(graph.nodes[one.model].name) for one in graph.updates]
    theirs = autograd.grad(loss)({name: values[name] for name in names})
    found = evaluate(graph, values)
    for one in graph.updates:
        name = str(graph.nodes[one.model].name)
        expected = scale * np.asarray(theirs[name])
        if one.index is not None:  # of a model of which one row is read
            expected = expected[int(graph.nodes[one.index].value or 0)]
        if not np.all(np.isfinite(expected)):  # so autograd says of a product of zeros
            raise Bent
        size = max(1.0, float(np.max(np.abs(expected), initial=0)))
        np.testing.assert_allclose(found[one.value], expected, rtol=tolerance, atol=tolerance * size, err_msg=name)


HEAD = """import dana
n, k = 3, 2
w, b, M = dana.model([n]), dana.model(), dana.model([k, n])
x, z, y = dana.input([n]), dana.input([k]), dana.output()
lr = dana.meta(0.125)
rule = dana.algo(w, b, M, x, z, y)
"""
MERGED_GRADIENTS = """
rule.setLoss(loss)
gw, gb, gM = dana.gradient(loss, [w, b, M])
rule.setModel(w, rule.merge(gw, 8, "+"))
rule.setModel(b, rule.merge(gb, 8, "+"))
rule.setModel(M, rule.merge(gM, 8, "+"))
"""
MINIMIZED = """
def against(model, gradient):
    return gradient

rule.setLoss(loss)
rule.minimize(against, batch=8)
"""
LOSSES = {
    "batch norm": """
h = M @ x
centred = h - rule.merge(h, 8, "mean")
normed = centred / dana.sqrt(rule.merge(centred * centred, 8, "mean") + 0.1)
e = dana.tanh(normed) @ z + dana.sigma(w * x) * b - y
loss = e * e""",
    "a batch's value of models": """
m = dana.sigma(w * rule.merge(M * x * b, 8, "+")[0], 1)
e = m * dana.sigma(M * x * w, 2) @ z - y * b
loss = e * e / 4""",
    "contrast": """
h = dana.tanh(M @ x)
far = rule.merge(h, 8, "max") - h
near = h - rule.merge(h * (1 + b), 8, "min")
loss = dana.sigma(far * near * w[0] + far / (1 + near * near), 1)""",
    "a product over the batch": """
p = dana.sigmoid(M @ x * b)
loss = dana.sigma(rule.merge(p, 8, "*") * p * w[1:], 1)""",
    "three phases": """
h = M @ x
a = rule.merge(dana.tanh(h), 8, "mean")
c = rule.merge(dana.sigma(w * x) * (h - a) * h, 8, "+")
d = rule.merge(dana.sigmoid(h * c) * b, 8, "max")
loss = dana.sigma((h - d) * c, 1) * y + a @ d""",
    "of the batch alone": """
h = M @ x
m = rule.merge(h * h, 8, "mean")
loss = dana.norm(m * b + w[:2], 1)""",
}


@pytest.mark.parametrize("name", [name for name in LOSSES if name != "of the batch alone"])
@pytest.mark.parametrize("seed", range(3))
def test_sums_over_the_batch(name: str, seed: int) -> None:
    graph = compile_rule(HEAD + LOSSES[name] + MERGED_GRADIENTS).hdfg
    compare(graph, values_of(graph, seed), 1e-9)


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("seed", range(3))
def test_minimize_has_the_mean(name: str, seed: int) -> None:
    graph = compile_rule(HEAD + LOSSES[name] + MINIMIZED).hdfg
    assert len(graph.updates) == 3
    compare(graph, values_of(graph, seed), 1e-9, 1 / TUPLES)


def test_a_value_of_the_batch_has_one_derivative() -> None:
    text = HEAD + LOSSES["of the batch alone"] + "\nrule.setLoss(loss)\ng = dana.gradient(loss, [w, b, M, x])\n"
    text += "rule.setModel(w, g[0])\nrule.setModel(b, g[1])\nrule.setModel(M, g[2] + 0 * rule.merge(g[3], 8, '+'))"
    graph = compile_rule(text).hdfg
    compare(graph, values_of(graph, 1), 1e-9, 1 / TUPLES)


def test_a_value_of_the_batch_by_a_tuple_s() -> None:
    """m = sum of x², by x: each tuple's 2x."""
    text = HEAD + "m = dana.sigma(rule.merge(x * x, 8, '+'), 1)\nd = dana.gradient(m, x)\nrule.setLoss(m)\n"
    graph = compile_rule(text + "rule.setModel(w, rule.merge(d * z[0], 8, '+') + 0 * m * w)").hdfg
    values = values_of(graph, 0)
    mine = evaluate(graph, values)[graph.updates[0].value]
    np.testing.assert_allclose(mine, 2 * (values["x"] * values["z"][:, :1]).sum(axis=0), rtol=1e-12)


@pytest.mark.parametrize("name", LOSSES)
def test_finite_differences(name: str) -> None:
    graph = compile_rule(HEAD + LOSSES[name] + MINIMIZED).hdfg
    values = values_of(graph, 4)
    found, step = evaluate(graph, values), 1e-5
    for update in graph.updates:
        if update.index is not None:
            continue
        model, mine = str(graph.nodes[update.model].name), np.asarray(found[update.value])
        for place in np.ndindex(mine.shape):
            sides = []
            for side in (step, -step):
                moved = np.array(values[model])
                moved[place] += side
                sides.append(total(graph, {**values, model: moved}))
            slope = (sides[0] - sides[1]) / (2 * step) / TUPLES
            assert mine[place] == pytest.approx(slope, rel=1e-6, abs=1e-6)


def of_two(merged: str, x: list[float]) -> list[float]:
    """What each of two tuples is asked for by a merge of theirs, through one model for each."""
    text = "import dana\nw = dana.model([2], init=1)\nx, i = dana.input(), dana.input([2])\nrule = dana.algo(w, x, i)\n"
    text += f"m = rule.merge(dana.sigma(w * i) * x, 2, '{merged}')\nrule.setModel(dana.gradient(m, w))\n"
    columns = {"x": np.float32(x), "i": np.eye(2, dtype=np.float32)}
    found = Interpreter(compile_rule(text).hdfg, numerics).train(columns).models["w"]
    return [float(one) for one in found]


@pytest.mark.parametrize(
    ("merged", "x", "slopes"),
    [
        ("+", [2, 5], [2, 5]),
        ("mean", [2, 5], [1, 2.5]),
        ("max", [2, 5], [0, 5]),
        ("max", [3, 3], [1.5, 1.5]),
        ("min", [2, 5], [2, 0]),
        ("min", [4, 4], [2, 2]),
        ("*", [2, 5], [10, 10]),
    ],
)
def test_each_merge(merged: str, x: list[float], slopes: list[float]) -> None:
    assert of_two(merged, x) == slopes


def test_a_product_with_zeros() -> None:
    text = "import dana\nw = dana.model([3])\ni = dana.input([3])\nrule = dana.algo(w, i)\n"
    text += "rule.setModel(dana.gradient(rule.merge(dana.sigma(w * i), 3, '*'), w))\n"
    interpreter = Interpreter(compile_rule(text).hdfg, numerics)
    for start, slopes in (([2, 0, 3], [0, 6, 0]), ([0, 0, 3], [0, 0, 0]), ([2, 5, 3], [15, 6, 10])):
        found = interpreter.train({"i": np.eye(3, dtype=np.float32)}, models={"w": np.float32(start)}).models["w"]
        np.testing.assert_array_equal(found, slopes)


NAMES = {"": ("b", "y", "lr"), "n": ("w", "x"), "k": ("z",), "kn": ("M",)}


@st.composite
def losses(draw: st.DrawFn) -> str:
    """Two or three merges, each of what those before it gave."""
    names, text = {shape: list(listed) for shape, listed in NAMES.items()}, HEAD
    for step in range(draw(st.integers(2, 3))):
        shape = draw(st.sampled_from(["", "n", "kn"]))
        kinds = Kinds(names={key: tuple(listed) for key, listed in names.items()}, unary=SMOOTH)
        anchor = {"": "y", "n": "x", "kn": "M * x"}[shape]
        text += f"t{step} = ({draw(expressions(kinds, shape, 2))}) + 0.5 * {anchor}\n"
        sign = draw(st.sampled_from(["+", "mean", "max", "min", "*"]))
        text += f'm{step} = rule.merge(t{step}, 8, "{sign}")\n'
        names[shape] += [f"t{step}", f"m{step}", f"m{step}"]
    kinds = Kinds(names={key: tuple(listed) for key, listed in names.items()}, unary=SMOOTH)
    used = " + ".join({"": "m{}", "n": "w @ m{}", "kn": "w @ dana.sigma(m{}, 1)"}[s].format(k) for k, s in shapes(text))
    return f"{text}loss = ({draw(expressions(kinds, '', 3))}) + y * ({used}) + b * y + w @ x + w @ M[0]\n"


def shapes(text: str) -> list[tuple[int, str]]:
    anchors = [line.rsplit("0.5 * ", 1)[1] for line in text.splitlines() if line.startswith("t")]
    return [(k, {"y": "", "x": "n", "M * x": "kn"}[anchor]) for k, anchor in enumerate(anchors)]


compared = 0


@randomised(40)
@given(losses(), st.integers(0, 2**20))
def check_random(text: str, seed: int) -> None:
    global compared
    graph = compile_rule(text + MINIMIZED).hdfg
    values = values_of(graph, seed)
    with np.errstate(all="ignore"):
        try:
            found = evaluate(graph, values, strict=True)
            assume(all(np.max(np.abs(np.asarray(one, dtype=float)), initial=0) < 1e9 for one in found.values()))
            compare(graph, values, 1e-6, 1 / TUPLES)
        except Bent:
            assume(False)
    compared += 1


def test_random_losses() -> None:
    check_random()
    assert compared > scaled(20)
