"""`dana.gradient` against derivatives that others wrote (autograd) and against finite differences, in binary64.

The graph is evaluated in binary64 for this, so that what is compared is the formula and not its rounding.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import autograd
import autograd.numpy as anp
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import hwgen.spec.numerics as numerics
from dana.compiler.passes import simplify
from dsl import RuleError, compile_rule
from dsl.hdfg.graph import LEAVES, Graph, Op
from dsl.hdfg.interpreter import Interpreter
from dsl.semantics.library import BINARY_OPS, UNARY_OPS
from tests.dsl.programs import Kinds, expressions
from tests.oracles.exact import EXACT
from tests.oracles.functions import FUNCTIONS
from tests.scale import randomised, scaled

Values = Mapping[str, Any]

OPERATIONS = {
    Op.ADD: lambda a, b: a + b,
    Op.SUB: lambda a, b: a - b,
    Op.MUL: lambda a, b: a * b,
    Op.DIV: anp.true_divide,
    Op.SQRT: anp.sqrt,
    Op.BFLOAT16: lambda a: a,  # a rounding, too
    **{op: row.meaning for op, row in EXACT.items()},
    **{Op(name): function.exact for name, function in FUNCTIONS.items()},
}
REDUCED = {Op.SIGMA: anp.sum, Op.PI: anp.prod, Op.AMAX: anp.max}


class Bent(Exception):
    """A value lies where its derivative is a matter of convention."""


def straight(op: Op, operands: Sequence[Any], apart: float) -> None:
    """Raise `Bent` where the operands are nearer to a bend than that."""
    if op in EXACT and np.any(np.abs(np.asarray(EXACT[op].bend(*operands))) < apart):
        raise Bent


def evaluate(graph: Graph, wanted: int, values: Values, *, strict: bool = False) -> Any:
    """A node's value for one tuple, in binary64, by NumPy as autograd follows it."""
    found: dict[int, Any] = {}
    for node in graph.nodes[: wanted + 1]:
        operands = [found[one] for one in node.inputs]
        if node.op in OPERATIONS:
            found[node.id] = OPERATIONS[node.op](*operands)
        elif node.op is Op.WHERE:
            found[node.id] = anp.where(operands[0] != 0, operands[1], operands[2])
        elif node.op in REDUCED:
            found[node.id] = REDUCED[node.op](operands[0], axis=node.axis)
        elif node.op is Op.EXPAND:
            found[node.id] = anp.expand_dims(operands[0], node.axis)
        elif node.op is Op.GATHER:
            found[node.id] = operands[0][int(operands[1])]
        elif node.op is Op.ELEMENT:
            found[node.id] = operands[0][(slice(None),) * (node.axis or 0) + (int(operands[1]),)]
        elif node.op is Op.CONST:
            found[node.id] = node.value
        elif node.op is Op.ARANGE:
            found[node.id] = np.arange(float(graph.concrete_shape(node.id)[0]))
        else:
            found[node.id] = values[str(node.name)]
        if strict:
            straight(node.op, operands, 1e-12)
        if strict and not np.all(np.isfinite(found[node.id])):
            raise Bent
    return found[wanted]


def columns(graph: Graph, seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    leaves = [graph.nodes[one] for one in (*graph.models, *graph.inputs)]
    found = {str(leaf.name): rng.normal(size=graph.concrete_shape(leaf.id)) for leaf in leaves}
    return found | {str(graph.nodes[one].name): graph.nodes[one].value for one in graph.metas}


def by_others(graph: Graph, values: Values) -> dict[str, Any]:
    """The derivatives of the loss by each model, by autograd."""

    def loss(models: Mapping[str, Any]) -> Any:
        assert graph.loss is not None
        return evaluate(graph, graph.loss, {**values, **models})

    names = [str(graph.nodes[one].name) for one in graph.models]
    found: dict[str, Any] = autograd.grad(loss)({name: values[name] for name in names})
    return found


def by_us(graph: Graph, values: Values) -> dict[str, Any]:
    """What the rule's text makes of them: each model's new value."""
    return {str(graph.nodes[one.model].name): evaluate(graph, one.value, values) for one in graph.updates}


def agree(graph: Graph, seed: int, tolerance: float = 1e-9, **chosen: Any) -> None:
    values = columns(graph, seed) | chosen
    with np.errstate(all="ignore"):
        mine, theirs = by_us(graph, values), by_others(graph, values)
    assert set(mine) <= set(theirs)
    for name, value in mine.items():
        expected = np.asarray(theirs[name])
        assert np.shape(value) == expected.shape, name
        scale = max(1.0, float(np.max(np.abs(expected), initial=0)))
        np.testing.assert_allclose(value, expected, rtol=tolerance, atol=tolerance * scale, err_msg=name)


HEAD = """import dana
n, k = {n}, {k}
w = dana.model([n])
b = dana.model()
v = dana.model([k])
M = dana.model([k, n])
x = dana.input([n])
z = dana.input([k])
y = dana.output()
lr = dana.meta(0.125)
rule = dana.algo(w, b, v, M, x, z, y)
"""
TAIL = """
loss = loss + 0.25 * (dana.sigma(w * x, 1) + b * y + dana.sigma(dana.sigma(M * x, 2) * v, 1))
rule.setLoss(loss)
gw, gb, gv, gM = dana.gradient(loss, [w, b, v, M])
rule.setModel(w, gw)
rule.setModel(b, gb)
rule.setModel(v, gv)
rule.setModel(M, gM)
"""
NAMES = {"": ("b", "y", "lr"), "n": ("w", "x"), "k": ("v", "z"), "kn": ("M",)}
SMOOTH = tuple(name for name in UNARY_OPS if name not in FUNCTIONS or not FUNCTIONS[name].slope_error)
"""Without what binary64 cannot evaluate by binary32's formula: `floor`, `round`, slopes with rounded constants."""


@st.composite
def losses(draw: st.DrawFn) -> str:
    kinds = Kinds(names=dict(NAMES), unary=SMOOTH)
    text = HEAD.format(n=draw(st.integers(1, 5)), k=draw(st.integers(1, 4)))
    text += f"h = ({draw(expressions(kinds, 'n', 3))}) + 0 * x\n"
    text += f"H = ({draw(expressions(kinds, 'kn', 3))}) + 0 * M\n"
    more = Kinds(names={**NAMES, "n": ("w", "x", "h"), "kn": ("M", "H")}, unary=SMOOTH)
    return text + f"loss = {draw(expressions(more, '', 3))}" + TAIL


compared = 0


@randomised(160)
@given(losses(), st.integers(0, 2**20))
def check_random(text: str, seed: int) -> None:
    global compared
    graph = compile_rule(text).hdfg
    values = columns(graph, seed)
    try:
        with np.errstate(all="ignore"):
            assert graph.loss is not None
            evaluate(graph, graph.loss, values, strict=True)
            theirs = by_others(graph, values)
    except Bent:
        assume(False)
    assume(all(np.all(np.isfinite(one)) for one in theirs.values()))
    assume(all(np.max(np.abs(one), initial=0) < 1e12 for one in theirs.values()))
    agree(graph, seed, tolerance=1e-7)
    compared += 1


def test_random_losses() -> None:
    check_random()
    assert compared > scaled(80)


OPERANDS = (("a", "c"), ("c", "a"), ("a", "a"), ("3", "a"))
VECTORS = [
    "-a",
    "a < c",
    "dana.where(a > c, a * a, c)",
    "dana.where(c, a, c)",
    "dana.softmax(a)",
    "dana.log_softmax(a)",
]
VECTORS += [f"dana.{name}(a)" for name in UNARY_OPS]
VECTORS += [f"{left} {sign} {right}" for sign in "+-*/" for left, right in OPERANDS]
VECTORS += [f"dana.{name}({left}, {right})" for name in BINARY_OPS for left, right in OPERANDS if left != right]
SCALARS = [f"dana.sigma({vector})" for vector in VECTORS]
SCALARS += ["a @ c", *(f"dana.{name}(a)" for name in ("norm", "pi", "amax", "amin"))]


@pytest.mark.parametrize("value", SCALARS)
def test_each_operation(value: str) -> None:
    """Alone, where no other hides it; squared, so that not only 1 is asked of it, nor 0 where it is 0."""
    text = HEAD.format(n=4, k=2) + f"a, c = dana.abs(w) + 0.1, dana.abs(x) + 0.2\nlone = {value}\n"
    text += "loss = lone * (lone + 3) + dana.sigma(w * x)\n"
    text += "rule.setLoss(loss)\nrule.setModel(w, dana.gradient(loss, w))\n"
    rounded = sum(function.slope_error for name, function in FUNCTIONS.items() if f"dana.{name}(" in value)
    agree(compile_rule(text).hdfg, 7, tolerance=1e-9 + rounded)


SIGNED = [f"{left} {sign} {right}" for sign in "+-*/<" for left, right in (("w", "x"), ("x", "w"))]
SIGNED += [f"dana.{name}({left}, {right})" for name in BINARY_OPS for left, right in (("w", "x"), ("x", "w"))]
SIGNED += ["dana.where(x, w, w * w)", "dana.where(w > x, w * w, x)", *(f"dana.{name}(w)" for name in ("abs", "tanh"))]


@pytest.mark.parametrize("value", SIGNED)
def test_each_operation_of_each_sign(value: str) -> None:
    """Both operands below and above 0, and either one the larger in size."""
    grid = np.array([(a, b) for a in (-2.5, -0.5, 0.5, 2.5) for b in (-1.5, 1.5, -0.25, 0.25)])
    text = HEAD.format(n=len(grid), k=2) + f"loss = dana.sigma(({value}) * z[0] + w * w)\n"
    text += "rule.setLoss(loss)\nrule.setModel(w, dana.gradient(loss, w))\n"
    agree(compile_rule(text).hdfg, 7, w=grid[:, 0], x=grid[:, 1])


@pytest.mark.parametrize(
    ("output", "label"), [("", 7.0), ("", 1.0), ("classes=k", 1.0), ("classes=n", 1.0), ("classes=n", 4.0)]
)
def test_a_label_need_not_be_among_those_that_are_counted(output: str, label: float) -> None:
    """The sum of `arange == y` is 1 for a class among all classes; otherwise it may be 0."""
    text = HEAD.format(n=5, k=3).replace("output()", f"output({output})")
    text += "loss = -dana.sigma(dana.log_softmax(v) * (dana.arange(k) == y))\n"
    text += "rule.setLoss(loss)\nrule.setModel(v, dana.gradient(loss, v))\n"
    agree(compile_rule(text).hdfg, 3, y=label)


RULES = {
    "logistic": """
p = dana.sigmoid(dana.sigma(w * x, 1) + b)
loss = -(y * dana.log(p) + (1 - y) * dana.log(1 - p))""",
    "product with zeros": """
loss = dana.pi(dana.max(w, 0) * x, 1) + dana.sigma(dana.pi(M * dana.expand(v, 2), 2), 1)""",
    "largest": """
loss = dana.amax(w * x, 1) + dana.amax(dana.amax(M * x, 2) * v, 1)""",
    "cross entropy": """
scores = dana.sigma(M * x, 2) + v
loss = -dana.sigma(dana.log_softmax(scores) * (dana.arange(k) == 1), 1)""",
    "attention": """
shares = dana.softmax(M * x, 2)
loss = dana.sigma(dana.sigma(shares * w, 2) * v, 1)""",
    "fixed rows": """
loss = dana.sigma(M[0] * M[0] * x, 1) + dana.sigma(M[k - 1] * w, 1)""",
    "perceptron": """
hidden = dana.tanh(dana.sigma(M * x, 2) + v)
loss = (dana.sigma(hidden * z, 1) + b - y) * (dana.sigma(hidden * z, 1) + b - y) * 0.5""",
    "the same weight at every step": """
s = v
for step in range(4):
    s = dana.tanh(dana.sigma(M * x, 2) * s + b * z)
loss = dana.sigma(s * s, 1)""",
    "broadcast by a choice": """
loss = dana.sigma(dana.sigma(dana.where(b > 0, M, w), 2), 1) * b + dana.sigma(dana.where(b < 9, w, b), 1)""",
    "norm": """
loss = dana.norm(w - x, 1) + dana.norm(dana.norm(M * x, 2), 1)""",
}


WITHOUT_AUTOGRAD = ("product with zeros", "broadcast by a choice")
"""Of zeros in products it makes NaN, and it repeats no side of a choice."""


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", [name for name in RULES if name not in WITHOUT_AUTOGRAD])
def test_rules(name: str, seed: int) -> None:
    agree(compile_rule(HEAD.format(n=5, k=3) + RULES[name] + TAIL).hdfg, seed)


@pytest.mark.parametrize("name", RULES)
def test_finite_differences(name: str) -> None:
    graph = compile_rule(HEAD.format(n=5, k=3) + RULES[name] + TAIL).hdfg
    values = columns(graph, 4)
    assert graph.loss is not None
    step = 1e-5
    for model, mine in by_us(graph, values).items():
        for place in np.ndindex(np.shape(mine)):
            sides = []
            for side in (step, -step):
                moved = np.array(values[model])
                moved[place] += side
                sides.append(evaluate(graph, graph.loss, {**values, model: moved}))
            assert np.asarray(mine)[place] == pytest.approx((sides[0] - sides[1]) / (2 * step), rel=1e-6, abs=1e-6)


@pytest.mark.parametrize(
    ("loss", "at", "slope"),
    [
        ("dana.pi(w)", [2, 0, 3], [0, 6, 0]),
        ("dana.pi(w)", [0, 0, 3], [0, 0, 0]),
        ("dana.amax(w)", [5, 1, 5], [0.5, 0, 0.5]),
        ("dana.amin(w)", [2, 1, 5], [0, 1, 0]),
        ("dana.norm(w)", [0, 0, 0], [0, 0, 0]),
        ("dana.norm(w)", [3, 0, 4], [0.6, 0, 0.8]),
    ],
)
def test_along_an_axis(loss: str, at: list[float], slope: list[float]) -> None:
    text = "import dana\nw, x = dana.model([3]), dana.input()\nrule = dana.algo(w, x)\n"
    text += f"rule.setModel(dana.gradient({loss}, w))\n"
    models = {"w": np.float32(at)}
    found = Interpreter(compile_rule(text).hdfg, numerics).train({"x": np.zeros(1, np.float32)}, models=models).models
    np.testing.assert_allclose(found["w"], slope, rtol=1e-6)


def gradient_of(loss: str, head: str = "w = dana.model()\nx = dana.input()\n") -> float:
    text = f"import dana\n{head}rule = dana.algo(w, x)\nrule.setModel(w, dana.gradient({loss}, w))\n"
    graph = compile_rule(text).hdfg
    models = Interpreter(graph, numerics).train({"x": np.zeros(1, np.float32)}, models={"w": np.float32(0)}).models
    return float(models["w"])


@pytest.mark.parametrize(
    ("loss", "slope"),
    [
        ("dana.max(w, 0)", 0),
        ("dana.max(0, w)", 0),
        ("dana.min(w, 0)", 0),
        ("dana.abs(w)", 0),
        ("dana.sqrt(w * w)", 0),
        ("dana.max(w, x)", 1),
        ("dana.max(x, w)", 0),
        ("dana.min(w, x)", 1),
        ("dana.min(x, w)", 0),
        ("dana.copysign(w + 1, 0.0) + 2 * dana.copysign(w + 1, -0.0)", -1),
        ("w + dana.floor(w + 0.5)", 1),
        ("dana.round(w) * w + w", 1),
        ("w * (w >= 0) + w", 2),
        ("w * dana.stop_gradient(w + 3)", 3),
        ("dana.stop_gradient(w) * w + w", 1),
        ("w + dana.log(dana.stop_gradient(dana.sigmoid(w)))", 1),
        ("w + dana.log(dana.stop_gradient(1 - dana.sigmoid(w)))", 1),
        ("w + dana.log(1 - dana.stop_gradient(dana.sigmoid(w)))", 1),
        ("w * x - x * w", 0),
        ("w / 1e-30 / 1e30", 1),
        ("dana.log(dana.sigmoid(w + 100))", 0),
        ("dana.log(dana.sigmoid(w - 100))", 1),
        ("dana.log(1 - dana.sigmoid(w + 100))", -1),
    ],
)
def test_where_a_function_bends_or_saturates(loss: str, slope: float) -> None:
    assert gradient_of(loss) == slope


@pytest.mark.parametrize("z", [-1000.0, -100.0, -20.0, -1.0, 0.0, 1.0, 20.0, 100.0, 1000.0])
def test_log_loss_is_right_for_every_score(z: float) -> None:
    text = """import dana
w = dana.model()
x = dana.input()
y = dana.output()
rule = dana.algo(w, x, y)
p = dana.sigmoid(x)
rule.setModel(w)
rule.setLoss(-(y * dana.log(p) + (1 - y) * dana.log(1 - p)))
"""
    for label in (0.0, 1.0):
        columns = {"x": np.float32([z]), "y": np.float32([label])}
        loss = Interpreter(compile_rule(text).hdfg, numerics).train(columns).losses[0]
        assert loss == pytest.approx(np.logaddexp(0, -z if label else z), rel=1e-6, abs=2**-23)


def test_a_gradient_of_a_gradient() -> None:
    assert gradient_of("dana.gradient(w * w * w + 3 * w * w, w) + 5 * w") == 11


ROWS = """import dana
U, V = dana.model([4, 3], init=dana.normal(0, 1)), dana.model([4, 3], init=dana.normal(0, 1))
b = dana.model()
i, j, y = dana.input(), dana.input(), dana.output()
rule = dana.algo(U, V, b, i, j, y)
"""


def updated(text: str, i: float, j: float) -> dict[str, np.ndarray]:
    """What a step of the rule adds to each model."""
    machine = Interpreter(compile_rule(ROWS + text).hdfg, numerics)
    columns = {"i": np.float32([i]), "j": np.float32([j]), "y": np.float32([1])}
    start, end = machine.start(), machine.train(columns).models
    return {name: end[name] - start[name] for name in ("U", "V", "b")}


def test_a_row_that_two_inputs_choose_has_the_derivative_of_both() -> None:
    text = "rule.setLoss((U[i] @ U[j] + b - y) * dana.stop_gradient(1))\nrule.minimize(dana.optimizers.sgd, rate=1)\n"
    start = Interpreter(compile_rule(ROWS + text).hdfg, numerics).start()["U"]
    same, apart = updated(text, 2, 2)["U"], updated(text, 2, 0)["U"]
    np.testing.assert_allclose(same[2], -2 * start[2], rtol=1e-6)
    np.testing.assert_allclose(apart[[0, 2]], -start[[2, 0]], rtol=1e-6)
    assert not same[[0, 1, 3]].any()
    assert not apart[[1, 3]].any()


def test_minimize_leaves_alone_what_is_stopped() -> None:
    text = (
        "e = U[i] @ dana.stop_gradient(V[j] + b) - y\nrule.setLoss(e * e)\nrule.minimize(dana.optimizers.sgd, rate=1)\n"
    )
    moved = updated(text, 1, 2)
    assert moved["U"].any()
    assert not moved["V"].any()
    assert not moved["b"].any()


def computed(text: str) -> int:
    """How many elements a machine computes for a rule."""
    graph = simplify(compile_rule(text).hdfg)
    return sum(prod(graph.concrete_shape(node.id)) for node in graph.nodes if node.op not in LEAVES)


BY_HAND = HEAD.format(n=5, k=3) + "p = dana.sigmoid(dana.sigma(w * x, 1) + b)\n"
PAIRS = {
    "cross entropy": (
        "s = dana.sigma(M * x, 2)\nc = dana.arange(k) == y\nloss = -dana.sigma(dana.log_softmax(s) * c, 1)\n"
        "g = dana.gradient(loss, M)\nrule.setPrediction(dana.softmax(s))",
        "s = dana.sigma(M * x, 2)\nc = dana.arange(k) == y\nloss = -dana.sigma(dana.log_softmax(s) * c, 1)\n"
        "p = dana.softmax(s)\ng = dana.expand(p - c, 2) * x\nrule.setPrediction(p)",
    ),
    "log loss": (
        "loss = -(y * dana.log(p) + (1 - y) * dana.log(1 - p))\ng = dana.gradient(loss, w)",
        "loss = -(y * dana.log(p) + (1 - y) * dana.log(1 - p))\ng = (p - y) * x",
    ),
    "squares": (
        "e = dana.sigma(w * x, 1) - y\nloss = 0.5 * e * e\ng = dana.gradient(loss, w)",
        "e = dana.sigma(w * x, 1) - y\nloss = 0.5 * e * e\ng = e * x",
    ),
    "squares of a perceptron": (
        "e = dana.sigma(v * dana.max(dana.sigma(M * x, 2), 0), 1) - y\nloss = e * e / 2\ng = dana.gradient(loss, M)",
        "h = dana.max(dana.sigma(M * x, 2), 0)\ne = dana.sigma(v * h, 1) - y\nloss = e * e / 2\n"
        "g = dana.expand(e * (dana.sigma(M * x, 2) > 0) * v, 2) * x",
    ),
    "tanh of tanh": (
        "t = dana.tanh(w * x)\nu = dana.tanh(t)\nloss = dana.sigma(u, 1)\ng = dana.gradient(loss, w)",
        "t = dana.tanh(w * x)\nu = dana.tanh(t)\nloss = dana.sigma(u, 1)\ng = (1 - u * u) * (1 - t * t) * x",
    ),
    "hinge": (
        "loss = dana.max(0, 1 - y * dana.sigma(w * x, 1))\ng = dana.gradient(loss, w)",
        "m = y * dana.sigma(w * x, 1)\nloss = dana.max(0, 1 - m)\ng = -((1 - m > 0) * y) * x",
    ),
}


@pytest.mark.parametrize("name", PAIRS)
def test_costs_what_it_costs_by_hand(name: str) -> None:
    model = "M" if "M)" in PAIRS[name][0] else "w"
    tail = f"\nrule.setLoss(loss)\nrule.setModel({model}, g)"
    head = BY_HAND.replace("output()", "output(classes=k)") if name == "cross entropy" else BY_HAND
    taken, by_hand = (computed(head + text + tail) for text in PAIRS[name])
    assert taken <= by_hand


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("rule.setModel(w, dana.gradient(w * x, w))", "a gradient is taken of a scalar"),
        ("rule.setModel(w, dana.gradient(dana.sigma(x, 1), w))", "it is not computed from this"),
        ("rule.setModel(w, dana.gradient(dana.sigma(w > x, 1), w))", "a comparison has no slope"),
    ],
)
def test_says_where_there_is_none(text: str, told: str) -> None:
    with pytest.raises(RuleError, match=told):
        compile_rule(HEAD.format(n=5, k=3) + text)


@pytest.mark.parametrize("factor", [48, 49])
def test_what_a_sum_s_terms_share_is_no_factor_of_them(factor: int) -> None:
    """Nor what rounding leaves of it: 98 * (1 / 98) is less than 1."""
    graph = compile_rule(f"""
import dana
n = dana.dim()
b, x = dana.model(), dana.input([n])
rule = dana.algo(b, x)
rule.setLoss(dana.sigma({factor} * (b - x) * (b - x), 1))
rule.minimize(dana.optimizers.sgd, rate=0.1, batch=4)
""").hdfg
    training = graph.reachable(graph.nodes[update.value].id for update in graph.updates)
    # by the factor of all terms, the mean and the rate
    assert sum(graph.nodes[k].op is Op.MUL for k in training) == 3
