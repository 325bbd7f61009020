"""Losses with kinks and penalties with kinks are solved: the minimum is that of scikit-learn, with outliers, too."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn import linear_model

from dana import rules
from dana.trainer.arrays import Trained, train
from dana.trainer.contract import Notice, SqlState, TrainingError

Doubles = np.ndarray[Any, np.dtype[np.float64]]

ROWS = 400


def table(kind: str) -> tuple[Doubles, Doubles]:
    random = np.random.default_rng(1)
    x = random.normal(size=(ROWS, 5))
    x[:, 1] += 0.9 * x[:, 0]
    signal = x @ random.normal(size=5)
    y = signal + (random.standard_t(1.5, ROWS) if kind == "heavy tails" else random.normal(size=ROWS))
    if kind == "outliers":
        y[random.choice(ROWS, ROWS // 100, replace=False)] *= 1000
    if kind == "skewed":
        y = np.exp(signal / 2 + random.normal(size=ROWS))
    if kind == "far":
        y = 1e7 + 1e6 * y
    if kind == "ordered":
        x, y = x[np.argsort(y)], np.sort(y)
    return np.float32(x).astype(float), np.float32(y).astype(float)


def fitted(rule: str, x: Doubles, y: Doubles, **options: Any) -> tuple[Trained, Doubles]:
    columns = {f"x{k}": values for k, values in enumerate(x.T)} | {"y": y}
    found = train(rules.text(rule), columns, label="y", **options)
    return found, found.predict(columns).astype(float)


@pytest.mark.parametrize("q", [0.05, 0.5, 0.95])
@pytest.mark.parametrize("kind", ["plain", "heavy tails", "outliers", "skewed", "far", "ordered"])
def test_quantiles(kind: str, q: float) -> None:
    x, y = table(kind)
    found, predicted = fitted("quantile", x, y, hyper={"q": q})
    best = linear_model.QuantileRegressor(quantile=q, alpha=0).fit(x, y).predict(x)
    ours, theirs = (float(np.maximum(q * (y - p), (q - 1) * (y - p)).mean()) for p in (predicted, best))
    assert found.converged
    assert ours < 1.005 * theirs


@pytest.mark.parametrize("rule", ["quantile", "huber"])
def test_labels_without_noise(rule: str) -> None:
    x, _ = table("plain")
    y = x @ np.arange(1.0, 6)
    found, predicted = fitted(rule, x, y)
    assert found.converged
    assert abs(predicted - y).max() < 1e-5 * abs(y).max()


@pytest.mark.parametrize("kind", ["plain", "heavy tails", "outliers", "skewed", "far"])
def test_huber_and_its_deviation(kind: str) -> None:
    x, y = table(kind)
    found, _ = fitted("huber", x, y)
    middle, unit = np.median(y), np.quantile(y, 0.75) - np.quantile(y, 0.25)
    z = (x - x.mean(axis=0)) / x.std(axis=0)
    other = linear_model.HuberRegressor(alpha=0, max_iter=10_000, tol=1e-9).fit(z, (y - middle) / unit)
    spread = other.scale_ * unit
    assert found.models["spread"] == pytest.approx(spread, rel=0.005)
    assert found.models["w"] == pytest.approx(other.coef_ * unit, abs=0.1 * spread / ROWS**0.5)


@pytest.mark.parametrize("scale", [1e-6, 1, 1e6])
@pytest.mark.parametrize("rule", ["lasso", "elastic_net"])
def test_penalties_are_in_the_unit_of_the_label(rule: str, scale: float) -> None:
    x, y = table("plain")
    z, y = (x - x.mean(axis=0)) / x.std(axis=0), scale * y
    penalty = 0.3 * (scale if rule == "lasso" else 1)
    found, _ = fitted(rule, x, y, hyper={"penalty": penalty})
    kind = linear_model.Lasso if rule == "lasso" else linear_model.ElasticNet
    other = kind(alpha=penalty, tol=1e-12, max_iter=100_000).fit(z, y)
    assert found.converged
    assert found.models["w"] == pytest.approx(other.coef_, rel=1e-3, abs=1e-6 * scale)
    assert ((found.models["w"] == 0) == (other.coef_ == 0)).all()


def test_small_coefficients_of_alike_columns() -> None:
    random = np.random.default_rng(3)
    x = random.normal(size=(ROWS, 20))
    for k in range(1, 20):
        x[:, k] = 0.9 * x[:, k - 1] + 0.4 * x[:, k]
    y = x[:, ::5] @ [1, -0.5, 0.1, 2] + random.normal(size=ROWS)
    z = (x - x.mean(axis=0)) / x.std(axis=0)
    other = linear_model.Lasso(alpha=0.01, tol=1e-12, max_iter=100_000).fit(z, y).coef_
    found, _ = fitted("lasso", x, y)
    assert found.models["w"] == pytest.approx(other, abs=1e-3)
    assert ((found.models["w"] == 0) == (other == 0)).all()


def test_a_penalty_that_leaves_no_coefficient() -> None:
    x, y = table("plain")
    notices: list[Notice] = []
    fitted("lasso", x, 1e-6 * y, notify=notices.append)
    (one,) = notices
    assert one.message == "all coefficients are 0: the model predicts the same number for every row"
    assert one.hint.startswith("penalty is 0.01; for numbers it is in the unit of the label. Decrease it, as in ")


def test_the_constant_has_the_rule_s_own_loss() -> None:
    """Huber's loss of a constant is measured with the deviation that the model has found."""
    x, y = table("outliers")
    notices: list[Notice] = []
    fitted("huber", x, y, notify=notices.append)
    assert notices == []
    fitted("huber", x, np.random.default_rng(5).normal(size=ROWS), notify=notices.append)
    (one,) = notices
    assert one.message.startswith("the model is no better than a constant prediction: its loss is ")
    assert "more epochs" not in one.hint


@pytest.mark.parametrize(("values", "rows"), [(5, "5"), (3, "30, with 3 different values")])
def test_more_centres_than_rows(values: int, rows: str) -> None:
    column = np.arange(5.0) if values == 5 else np.repeat(np.arange(3.0), 10)
    with pytest.raises(TrainingError, match=f"at least 8 different rows for k = 8, but there are {rows}\n") as raised:
        train(rules.text("kmeans"), {"a": column})
    assert raised.value.sqlstate == SqlState.INVALID_PARAMETER
    assert raised.value.hint.startswith(f"Use a smaller number, as in hyper => '{{\"k\": {values}}}'")
    assert train(rules.text("kmeans"), {"a": column}, hyper={"k": values}).loss == pytest.approx(0, abs=1e-9)
