"""Functions along an axis against NumPy: exact where no number is rounded, for every axis of one to three."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from dsl import Rule
from tests.dsl.evaluated import evaluated

Floats = NDArray[np.float64]
SHAPES = [(5,), (1,), (3, 5), (4, 1), (2, 3, 4), (3, 1, 2)]
AXES = [(shape, axis) for shape in SHAPES for axis in range(len(shape))]

EXACT: dict[str, Callable[..., Floats]] = {
    "amax": np.max,
    "amin": np.min,
    "argmax": np.argmax,
    "argmin": np.argmin,
}


@pytest.mark.parametrize(("shape", "axis"), AXES)
@pytest.mark.parametrize("name", EXACT)
def test_extremes(name: str, shape: tuple[int, ...], axis: int) -> None:
    """Whole numbers of a small range, so that several are equal."""
    values = np.random.default_rng(sum(shape)).integers(-2, 3, shape)
    expected = EXACT[name](values, axis=axis)
    found = evaluated(f"dana.{name}(a, {axis + 1})", expected.shape, a=values)
    np.testing.assert_array_equal(found, expected)


def test_a_total_adds_the_last_axis_first() -> None:
    """Each sum is rounded, so that another order is another number."""
    values = np.random.default_rng(0).standard_normal((5, 7, 3))
    found, *others = (
        evaluated(expression, (), a=values)
        for expression in (
            "dana.total(a)",
            "dana.sigma(dana.sigma(dana.sigma(a, 3), 2), 1)",
            "dana.sigma(dana.sigma(dana.sigma(a, 1), 1), 1)",
            "dana.sigma(dana.sigma(dana.sigma(a, 2), 2), 1)",
        )
    )
    assert [float(other) == float(found) for other in others] == [True, False, False]


def powers(values: Floats, axis: int) -> Floats:
    return np.asarray(np.exp(values - values.max(axis=axis, keepdims=True)))


def softmax(values: Floats, axis: int) -> Floats:
    return powers(values, axis) / powers(values, axis).sum(axis=axis, keepdims=True)


def log_softmax(values: Floats, axis: int) -> Floats:
    away = values - values.max(axis=axis, keepdims=True)
    return np.asarray(away - np.log(powers(values, axis).sum(axis=axis, keepdims=True)))


@pytest.mark.parametrize("size", [1, 100, 1e30])
@pytest.mark.parametrize(("shape", "axis"), AXES)
def test_probabilities_of_any_scores(shape: tuple[int, ...], axis: int, size: float) -> None:
    values = (size * np.random.default_rng(7).standard_normal(shape)).astype(np.float32)
    exact = values.astype(np.float64)
    found = evaluated(f"dana.softmax(a, {axis + 1})", shape, a=values)
    # a score near the largest is rounded once more when that is subtracted
    np.testing.assert_allclose(found, softmax(exact, axis), rtol=1e-5, atol=1e-37)
    found = evaluated(f"dana.log_softmax(a, {axis + 1})", shape, a=values)
    np.testing.assert_allclose(found, log_softmax(exact, axis), rtol=1e-6, atol=1e-6)


def test_the_issue_s_scores() -> None:
    scores = [0, -100, -1000]
    np.testing.assert_array_equal(evaluated("dana.softmax(a)", (3,), a=scores)[[0, 2]], [1, 0])
    np.testing.assert_array_equal(evaluated("dana.log_softmax(a)", (3,), a=scores), scores)


def test_one_element_that_is_no_number_makes_the_result_none() -> None:
    values = [[1, np.nan, 2], [3, 2, 1]]
    for name in ("amax", "amin", "argmax", "argmin"):
        found = evaluated(f"dana.{name}(a, 2)", (2,), a=values)
        assert np.isnan(found).tolist() == [True, False], name


HEAD = "import dana\nw = dana.model([4])\nW = dana.model([4, 4])\nx = dana.input([4])\nrule = dana.algo(w, W, x)\n"


@pytest.mark.parametrize(
    ("value", "warned"),
    [
        ("dana.max(w, 1)", True),
        ("dana.min(W * x, 2)", True),
        ("dana.max(w, 2)", False),  # a vector has no second axis
        ("dana.max(w, 0)", False),
        ("dana.max(1, w)", False),
        ("dana.max(w, 1.0)", False),
        ("dana.max(dana.sigma(w), 1)", False),
        ("dana.optimizers.clip(w, 1)", False),
    ],
)
def test_what_looks_like_an_axis(value: str, warned: bool) -> None:
    rule = Rule(f"{HEAD}rule.setModel(W, {value} + W * x)\nrule.setModel(w, 2 * w)\n")
    assert not rule.diagnostics
    assert [one.code for one in rule.warnings] == ["W712"] * warned
