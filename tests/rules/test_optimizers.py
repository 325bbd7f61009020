"""Optimisers, rates and penalties in rule text: against the papers' formulas, written anew in float64 with NumPy.

Each formula runs over the same gradients for `STEPS` batches. The rule computes in binary32; a step moves a model by at
most about 1, so what is off after all steps is bounded by a few roundings of each step.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from dsl import compile_rule
from dsl.hdfg.interpreter import Interpreter
from hwgen.spec import numerics

Floats = NDArray[np.float64]
STEPS = 40
TOLERANCE = STEPS * 2.0**-21
"""Of a model of size 1: eight roundings a step."""

RULE = """
import dana
from dana.functions import *
from dana.optimizers import *

w = dana.model([3], init=0.5)
x = dana.input([3])
lr = dana.meta(0.1)
rule = dana.algo(w, x)
g = rule.merge(x, 1, "+")
rule.setModel({value})
"""


def gradients(seed: int = 5) -> Floats:
    """Of every size from 1/100 to 1, as binary32 holds them."""
    random = np.random.default_rng(seed)
    values = random.standard_normal((STEPS, 3)) * 10.0 ** random.uniform(-2, 0, (STEPS, 1))
    return values.astype(np.float32).astype(np.float64)


def trained(value: str, x: Floats) -> Floats:
    graph = compile_rule(RULE.format(value=value)).hdfg
    models = Interpreter(graph, numerics).train({"x": x}).models
    return models["w"].astype(np.float64)


def sgd(g: Floats, w: Floats) -> Floats:
    for step in g:
        w = w - 0.1 * step
    return w


def momentum(g: Floats, w: Floats) -> Floats:
    """Polyak (1964): w' = w − rate · g + keep · (w − the model before)."""
    before = w
    for step in g:
        w, before = w - 0.1 * step + 0.9 * (w - before), w
    return w


def nesterov(g: Floats, w: Floats) -> Floats:
    """Sutskever (2013), the model being the place looked ahead to.

    v' = keep · v − rate · g; w' = w − keep · v + (1 + keep) · v'.
    """
    v = np.zeros(3)
    for step in g:
        old, v = v, 0.9 * v - 0.1 * step
        w = w - 0.9 * old + 1.9 * v
    return w


def adagrad(g: Floats, w: Floats) -> Floats:
    """Duchi (2011): the rate over the root of the sum of squares."""
    for t in range(1, len(g) + 1):
        w = w - 0.1 * g[t - 1] / (np.sqrt(np.sum(g[:t] ** 2, axis=0)) + 1e-8)
    return w


def rmsprop(g: Floats, w: Floats) -> Floats:
    """Tieleman and Hinton (2012), the mean of squares written out as a sum of powers."""
    for t in range(1, len(g) + 1):
        weights = 0.1 * 0.9 ** np.arange(t - 1, -1, -1)[:, None]
        w = w - 0.01 * g[t - 1] / (np.sqrt(np.sum(weights * g[:t] ** 2, axis=0)) + 1e-8)
    return w


def adam(g: Floats, w: Floats) -> Floats:
    """Kingma and Ba (2015), algorithm 1."""
    m, v = np.zeros(3), np.zeros(3)
    for t, step in enumerate(g, start=1):
        m = 0.9 * m + (1 - 0.9) * step
        v = 0.999 * v + (1 - 0.999) * step**2
        w = w - 0.01 * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
    return w


def inverse_decay(g: Floats, w: Floats) -> Floats:
    return w - np.sum(0.1 / (1 + 0.05 * np.arange(STEPS))[:, None] * g, axis=0)


def exponential_decay(g: Floats, w: Floats) -> Floats:
    return w - np.sum(0.1 * 0.95 ** np.arange(STEPS)[:, None] * g, axis=0)


def steady_rate(g: Floats, w: Floats) -> Floats:
    """The usual curvature is the mean of those before; gradients of every size make some batches far steeper."""
    curvature = np.sum(g**2, axis=1)
    for t, step in enumerate(g):
        usual = np.mean(curvature[:t]) if t > 0 else 0
        w = w - 0.1 * step / max(usual * min(1 + t / 250, 4 + t / 1000), 5 * (curvature[t] - usual))
    return w


def largest(g: Floats, w: Floats) -> Floats:
    return w - 0.1 * np.sum(np.maximum(0, np.maximum.accumulate(g, axis=0)), axis=0)


def running_mean(g: Floats, w: Floats) -> Floats:
    weights = 0.9 ** np.arange(STEPS - 1, -1, -1)
    return np.asarray(np.average(g, axis=0, weights=weights))


def clipped(g: Floats, w: Floats) -> Floats:
    return sgd(np.clip(g, -0.25, 0.25), w)


def clipped_by_norm(g: Floats, w: Floats) -> Floats:
    length = np.sqrt(np.sum(g**2, axis=1, keepdims=True))
    return sgd(np.where(length > 0.25, 0.25 * g / length, g), w)


def l2(g: Floats, w: Floats) -> Floats:
    for step in g:
        w = w - 0.1 * (step + 0.2 * w)
    return w


def l1(g: Floats, w: Floats) -> Floats:
    for step in g:
        w = w - 0.1 * (step + 0.2 * np.sign(w))
    return w


def soft_threshold(g: Floats, w: Floats) -> Floats:
    """The proximal map of an L1 penalty (Donoho 1995)."""
    for step in g:
        moved = w - 0.1 * step
        w = np.sign(moved) * np.maximum(np.abs(moved) - 0.05, 0)
    return w


CASES: dict[str, tuple[str, Callable[[Floats, Floats], Floats]]] = {
    "sgd": ("sgd(w, g, lr)", sgd),
    "momentum": ("momentum(w, g, lr)", momentum),
    "nesterov": ("nesterov(w, g, lr)", nesterov),
    "adagrad": ("adagrad(w, g, lr)", adagrad),
    "rmsprop": ("rmsprop(w, g, lr / 10)", rmsprop),
    "adam": ("adam(w, g, lr / 10)", adam),
    "inverse_decay": ("sgd(w, g, inverse_decay(lr, 0.05))", inverse_decay),
    "exponential_decay": ("sgd(w, g, exponential_decay(lr, 0.95))", exponential_decay),
    "steady_rate": ("sgd(w, g, steady_rate(lr, dana.sigma(g * g, 1)))", steady_rate),
    "largest": ("sgd(w, largest(g), lr)", largest),
    "running_mean": ("0 * lr * w + running_mean(g)", running_mean),
    "clip": ("sgd(w, clip(g, 0.25), lr)", clipped),
    "clip_norm": ("sgd(w, clip_norm(g, 0.25), lr)", clipped_by_norm),
    "l2": ("sgd(w, l2(w, g, 0.2), lr)", l2),
    "l1": ("sgd(w, l1(w, g, 0.2), lr)", l1),
    "soft_threshold": ("soft_threshold(sgd(w, g, lr), 0.05)", soft_threshold),
}


@pytest.mark.parametrize("name", CASES)
def test_formula(name: str) -> None:
    value, formula = CASES[name]
    x = gradients()
    expected = formula(x, np.full(3, 0.5))
    found = trained(value, x)
    scale = max(1.0, float(np.abs(expected).max()))
    np.testing.assert_allclose(found, expected, rtol=0, atol=TOLERANCE * scale)
    # the bound is not idle: the formula itself moves the model far more
    assert np.abs(expected - 0.5).max() > 100 * TOLERANCE * scale


def test_a_steady_rate_decays_fast_at_first() -> None:
    """Fourfold over a thousand batches, then as slowly as a long training needs: beyond what `gradients` reach."""
    steps = 2000
    w = 0.5 - np.sum(0.1 / (3 * np.minimum(1 + np.arange(steps) / 250, 4 + np.arange(steps) / 1000)[1:]))
    found = trained("sgd(w, g, steady_rate(lr, dana.sigma(g * g, 1)))", np.ones((steps, 3)))
    first = 0.1 / 15  # before a batch was seen, a curvature is five times the usual
    np.testing.assert_allclose(found, w - first, rtol=2e-5)


def test_a_steady_rate_forgets_what_is_a_hundred_batches_old() -> None:
    """The unit is a mean of all batches up to the hundredth, and from there on one in which each fades."""
    steps = 400
    x = np.where(np.arange(steps) < 200, 1.0, 2.0)[:, None] * np.ones(3)
    curvature, usual, w = 3 * x[:, 0] ** 2, 0.0, np.full(3, 0.5)
    for t in range(steps):
        decay = min(1 + t / 250, 4 + t / 1000)
        w = w - 0.1 * x[t] / max(usual * decay, 5 * (curvature[t] - usual))
        usual = usual + (curvature[t] - usual) / min(t + 1, 100)
    assert usual > 0.8 * curvature[-1], "of all batches alike it would be 0.63 of it"
    found = trained("sgd(w, g, steady_rate(lr, dana.sigma(g * g, 1)))", x)
    np.testing.assert_allclose(found, w, rtol=2e-5)


ROWS = """
import dana
from dana.optimizers import *

U = dana.model([5, 3], init=0.5)
i = dana.input()
x = dana.input([3])
lr = dana.meta(0.1)
rule = dana.algo(U, i, x)
rule.setModel(U[i], {value})
"""


@pytest.mark.parametrize("name", ["momentum", "nesterov", "adagrad", "rmsprop", "adam"])
def test_each_row_of_a_table_has_its_own_states(name: str) -> None:
    """An optimiser of `U[i]` is one optimiser for each row, which sees the row's gradients alone, and counts them."""
    value, formula = CASES[name]
    x, row = gradients(), np.random.default_rng(3).integers(0, 4, STEPS)  # no tuple has the last row
    graph = compile_rule(ROWS.format(value=value.replace("(w, g,", "(U[i], x,"))).hdfg
    shapes = {str(graph.nodes[k].name): graph.concrete_shape(k) for k in graph.models}
    assert all(shape[0] == 5 and key.startswith("U") for key, shape in shapes.items())
    found = Interpreter(graph, numerics).train({"x": x, "i": row}).models["U"]
    expected = [formula(x[row == r], np.full(3, 0.5)) for r in range(5)]
    np.testing.assert_allclose(found, expected, rtol=0, atol=TOLERANCE)
    assert np.unique(np.round(expected, 3), axis=0).shape == (5, 3), "all rows differ"


def test_states_of_rows_in_batches() -> None:
    """A row that a batch has twice takes the later of its steps, its state too: both from before the batch."""
    text = ROWS.replace("rule = dana.algo(U, i, x)", "b = dana.model()\nrule = dana.algo(U, b, i, x)")
    text = text.format(value="momentum(U[i], x, lr)") + 'rule.setModel(b, rule.merge(dana.sigma(x), 4, "+"))\n'
    x, row = gradients(), np.random.default_rng(4).integers(0, 5, STEPS)
    found = Interpreter(compile_rule(text).hdfg, numerics).train({"x": x, "i": row}).models
    u, velocity = np.full((5, 3), 0.5), np.zeros((5, 3))
    for start in range(0, STEPS, 4):
        before = velocity.copy(), u.copy()
        for t in range(start, min(start + 4, STEPS)):
            r = row[t]
            velocity[r] = 0.9 * before[0][r] + 0.1 * x[t]
            u[r] = before[1][r] - velocity[r]
    np.testing.assert_allclose(found["U"], u, rtol=0, atol=TOLERANCE)
    np.testing.assert_allclose(found["U.velocity"], velocity, rtol=0, atol=TOLERANCE)


def test_a_model_at_0_has_no_l1_penalty() -> None:
    x = np.array([[0.25, -0.5, 0.0]])
    np.testing.assert_array_equal(trained("l1(0 * w, g, 0.2)", x), x[0])


def test_one_hot() -> None:
    np.testing.assert_array_equal(trained("0 * w + one_hot(1 + 0 * dana.sigma(g, 1), 3)", np.ones((1, 3))), [0, 1, 0])


def test_every_function_is_covered() -> None:
    """What a module of the language offers is proven here, or in the tests that are named."""
    import dana.functions
    import dana.optimizers

    offered = {
        name for module in (dana.functions, dana.optimizers) for name, thing in vars(module).items() if callable(thing)
    }
    # tests/trainer/test_training.py has standardized, tests/rules/test_recipes.py what goes by batches and at random,
    # tests/benchmarks/test_rule_accuracy.py what fm, dlrm and autoint choose and look at
    elsewhere = {"one_hot", "standardized", "batch_norm", "dropout", "category", "masked_softmax"}
    elsewhere |= {"conjugate_gradients", "proximal_gradients"}  # test_conjugate_gradients.py and test_kinks.py
    assert offered == set(CASES) | elsewhere
