"""Conjugate gradients: the compiler's curvature against autograd, and the optimum against exact solutions."""

from __future__ import annotations

import autograd
import autograd.numpy as anp
import numpy as np
import pytest
from numpy.typing import NDArray

from dana import rules
from dsl import compile_rule
from dsl.hdfg.graph import Op, Region
from dsl.hdfg.interpreter import Interpreter
from hwgen.spec import numerics

Floats = NDArray[np.float64]

HEAD = """
import dana
from dana.optimizers import conjugate_gradients
w = dana.model([{n}]{init})
b = dana.model()
x = dana.input([{n}])
y = dana.output()
rule = dana.algo(w, b, x, y)
s = dana.sigma(w * x, 1) + b
"""

CURVATURE = """
def curvature(parts, start):
    values = []
    for model, gradient, direction, product in parts:
        dana.setState(direction, 2 * model + gradient)
        values += [dana.where(start > 0, product, model)]
    return values, 0

seen = dana.model()
rule = dana.algo(w, b, seen, x, y)
rule.setModel(seen, seen + 1)
rule.setLoss(loss)
rule.minimize(curvature, start=seen, models=[w, b])
rule.setEpochs(2)
"""

LOSSES = {
    "(s - y) * (s - y)": lambda s, y: (s - y) ** 2,
    "-(y * dana.log(dana.sigmoid(s)) + (1 - y) * dana.log(1 - dana.sigmoid(s)))": lambda s, y: (
        anp.logaddexp(0, s) - y * s
    ),
    "dana.exp(s) - y * s": lambda s, y: anp.exp(s) - y * s,
    "dana.max(1 - (2 * y - 1) * s, 0) * dana.max(1 - (2 * y - 1) * s, 0)": lambda s, y: (
        anp.maximum(1 - (2 * y - 1) * s, 0) ** 2
    ),
    "dana.where(dana.abs(s - y) < 1, (s - y) * (s - y) / 2, dana.abs(s - y) - 0.5)": lambda s, y: anp.where(
        anp.abs(s - y) < 1, (s - y) ** 2 / 2, anp.abs(s - y) - 0.5
    ),
    "dana.sqrt(1 + (s - y) * (s - y))": lambda s, y: anp.sqrt(1 + (s - y) ** 2),
    "-dana.gaussian(s - y)": lambda s, y: -anp.exp(-((s - y) ** 2)),
    "dana.tanh(s) * y + s * s / (2 + y)": lambda s, y: anp.tanh(s) * y + s**2 / (2 + y),
    "dana.sinpi(s / 4) + dana.sigma(w * w, 1)": lambda s, y: anp.sin(np.pi * s / 4),
}


@pytest.mark.parametrize("text", LOSSES)
def test_the_curvature_is_that_of_autograd(text: str) -> None:
    """The derivative of the mean gradient along a direction that mixes all models."""
    random = np.random.default_rng(3)
    x, y = random.standard_normal((50, 3)), (random.random(50) < 0.5) * 1.0
    w, b = np.array([0.5, -0.25, 0.75]), 0.125

    def mean(w: Floats, b: Floats) -> Floats:
        penalty = anp.sum(w * w) if "w * w" in text else 0
        return anp.mean(LOSSES[text](x @ w + b, y)) + penalty  # type: ignore[no-any-return]

    gradients = [autograd.grad(mean, k) for k in (0, 1)]
    along = [2 * w + gradients[0](w, b), 2 * b + gradients[1](w, b)]
    total = [lambda w, b: anp.sum(gradients[0](w, b) * along[0]) + gradients[1](w, b) * along[1]] * 2
    expected = [autograd.grad(one, k)(w, b) for k, one in enumerate(total)]
    head = HEAD.format(n=3, init="").replace("rule = dana.algo(w, b, x, y)\n", "")
    graph = compile_rule(f"{head}loss = {text}\n{CURVATURE}").hdfg
    found = Interpreter(graph, numerics).train({"x": x, "y": y}, {"w": w, "b": b}).models
    np.testing.assert_allclose(found["w"], expected[0], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found["b"], expected[1], rtol=1e-4, atol=1e-5)


def solved(loss: str, x: Floats, y: Floats, *, passes: int = 60, init: str = "", tail: str = "") -> dict[str, Floats]:
    text = HEAD.format(n=x.shape[1], init=init)
    text += f"loss = {loss}\nrule.setLoss(loss)\ngain = rule.minimize(conjugate_gradients)\n"
    text += f"{tail}rule.setEpochs({passes})\n"
    found = Interpreter(compile_rule(text).hdfg, numerics).train({"x": x, "y": y})
    return {**{name: values.astype(np.float64) for name, values in found.models.items()}, "passes": found.epochs}


def table(rows: int = 200, columns: int = 6, seed: int = 5) -> tuple[Floats, Floats]:
    random = np.random.default_rng(seed)
    x = random.standard_normal((rows, columns)) @ random.standard_normal((columns, columns))
    x /= x.std(axis=0)
    return x, x @ random.standard_normal(columns) + random.standard_normal(rows) + 2


def test_least_squares_take_as_many_passes_as_there_are_coefficients() -> None:
    x, y = np.random.default_rng(2).standard_normal((50, 3)) * [1, 2, 3], table(rows=50)[1]
    exact = np.linalg.lstsq(np.column_stack([x, np.ones(len(y))]), y, rcond=None)[0]
    found = solved("(s - y) * (s - y)", x, y, passes=5)  # the first pass has no direction yet
    np.testing.assert_allclose([*found["w"], found["b"]], exact, atol=1e-4)
    assert np.abs(solved("(s - y) * (s - y)", x, y, passes=4)["w"] - exact[:-1]).max() > 0.01


def test_a_rule_s_own_test_ends_the_passes() -> None:
    x, y = table()
    exact = np.linalg.lstsq(np.column_stack([x, np.ones(len(y))]), y, rcond=None)[0]
    found = solved("(s - y) * (s - y)", x, y, tail="rule.setConvergence(dana.rows * gain < 1e-4)\n")
    assert 8 < found["passes"] < 30
    np.testing.assert_allclose([*found["w"], found["b"]], exact, atol=1e-4)


def test_logistic_regression_reaches_the_optimum() -> None:
    x, score = table()
    y = (score > 2) * 1.0
    z, w = np.column_stack([x, np.ones(len(y))]), np.zeros(7)
    penalty = np.full(7, 1e-2)
    for _ in range(30):  # Newton's method, in binary64
        p = 1 / (1 + np.exp(-z @ w))
        w = w - np.linalg.solve(
            (z.T * p * (1 - p)) @ z / len(y) + np.diag(penalty), z.T @ (p - y) / len(y) + penalty * w
        )
    p = "dana.sigmoid(s)"
    found = solved(f"-(y * dana.log({p}) + (1 - y) * dana.log(1 - {p})) + 0.005 * (b * b + dana.total(w * w))", x, y)
    np.testing.assert_allclose([*found["w"], found["b"]], w, atol=1e-4)


def test_collinear_columns_get_the_least_norm() -> None:
    x, y = table(columns=2)
    found = solved("(s - y) * (s - y)", np.column_stack([x, x[:, 0], np.zeros(len(y))]), y)
    exact = np.linalg.lstsq(np.column_stack([x, np.ones(len(y))]), y, rcond=None)[0]
    np.testing.assert_allclose(found["w"], [exact[0] / 2, exact[1], exact[0] / 2, 0], atol=1e-4)


def test_a_step_that_is_too_long_is_shortened() -> None:
    """From -5 the first step of exp(s) - 2 s ends near 290, where exp is infinite."""
    found = solved("dana.exp(s) - y * s", np.zeros((8, 1)), np.full(8, 2.0), passes=40, init="")
    assert found["b"] == pytest.approx(np.log(2), abs=1e-5)
    far = HEAD.format(n=1, init="").replace("b = dana.model()", "b = dana.model(init=-5)")
    text = far + "rule.setLoss(dana.exp(s) - y * s)\nrule.minimize(conjugate_gradients)\nrule.setEpochs(60)\n"
    with np.errstate(all="ignore"):
        models = Interpreter(compile_rule(text).hdfg, numerics).train({"x": np.zeros((8, 1)), "y": np.full(8, 2.0)})
    assert models.models["b"] == pytest.approx(np.log(2), abs=1e-5)


def test_negative_curvature_leads_downhill() -> None:
    """Two deviations from the middle a bell is convex: Newton's step would lead away from it."""
    x = np.zeros((8, 1))
    far = HEAD.format(n=1, init="").replace("b = dana.model()", "b = dana.model(init=2)")
    text = far + "rule.setLoss(-dana.gaussian(s - y))\nrule.minimize(conjugate_gradients)\nrule.setEpochs(40)\n"
    found = Interpreter(compile_rule(text).hdfg, numerics).train({"x": x, "y": np.zeros(8)})
    assert found.models["b"] == pytest.approx(0, abs=1e-4)


def test_where_there_is_no_curvature_the_step_is_the_gradient() -> None:
    """Every error of the start is beyond the bound of the Huber loss, where the loss is linear."""
    y = np.linspace(9.5, 10.5, 8)
    error = "dana.max(dana.min(s - y, 1), -1)"
    found = solved(f"{error} * (s - y - {error} / 2)", np.zeros((8, 1)), y, passes=30)
    assert found["b"] == pytest.approx(10, abs=1e-4)


def test_weights_of_rows_and_a_model_of_two_axes() -> None:
    """Softmax regression of a row twice is that of its weight 2; all but one score of a class are free."""
    text = """
import dana
from dana.optimizers import conjugate_gradients
W = dana.model([3, 2])
x, y = dana.input([2]), dana.output(classes=3)
weight = dana.weight()
rule = dana.algo(W, x, y, weight)
loss = -weight * dana.sigma(dana.log_softmax(W @ x) * (dana.arange(3) == y))
rule.setLoss(loss)
gain = rule.minimize(conjugate_gradients, loss=loss + weight * 0.01 * dana.total(W * W))
rule.setEpochs(40)
"""
    random = np.random.default_rng(1)
    x, y = random.standard_normal((60, 2)), random.integers(0, 3, 60)
    graph = compile_rule(text).hdfg
    twice = np.repeat(np.arange(60), np.where(np.arange(60) < 20, 2, 1))
    weight = np.where(np.arange(60) < 20, 2.0, 1.0)
    found = Interpreter(graph, numerics).train({"x": x, "y": y, "weight": weight}).models["W"]
    again = Interpreter(graph, numerics).train({"x": x[twice], "y": y[twice]}).models["W"]
    np.testing.assert_allclose(found, again, atol=1e-4)
    assert np.abs(found).max() > 0.1
    np.testing.assert_allclose(found.sum(axis=0), 0, atol=1e-4)


def test_fixed_rows_belong_to_their_model() -> None:
    text = """
import dana
U = dana.model([2])
x, y = dana.input([2]), dana.output()
rule = dana.algo(U, x, y)
error = U[0] * x[0] + U[1] * x[1] - y
rule.setLoss(error * error)
rule.minimize(dana.optimizers.conjugate_gradients)
rule.setEpochs(5)
"""
    x, y = table(columns=2)
    found = Interpreter(compile_rule(text).hdfg, numerics).train({"x": x, "y": y}).models
    np.testing.assert_allclose(found["U"], np.linalg.lstsq(x, y, rcond=None)[0], atol=1e-4)


@pytest.mark.parametrize("name", ["ridge", "logistic", "poisson", "elastic_net", "softmax"])
def test_of_a_penalty_no_array_is_merged(name: str) -> None:
    """Of each tuple four products are of the model's shape: for scores, for errors, and each along a step."""
    graph = getattr(rules, name).hdfg
    model = max((graph.nodes[one].shape for one in graph.models), key=len)
    large = [one.op for one in graph.nodes if one.region is Region.TUPLE and one.shape == model]
    standardised = [Op.INPUT, Op.SUB, Op.MUL] if len(model) == 1 else []
    assert large == [*standardised, *[Op.MUL] * 4]
