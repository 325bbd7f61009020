"""Each recipe of docs/recipes.md is trained; NumPy's models in binary64 are the same but for binary32's roundings.

Losses are written anew here, and autograd takes their derivatives. What is no loss is a loop over rows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import autograd
import autograd.numpy as anp
import numpy as np
import pytest

from dana.language.trainable import TrainableRule
from dsl.hdfg.choice import category_inputs
from dsl.hdfg.interpreter import Interpreter
from hwgen.spec import numerics
from tests.oracles.uniform import uniform

TEXT = (Path(__file__).parents[2] / "docs/recipes.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^### (.*?)\n.*?```python\n(.*?)```", TEXT, re.S | re.M)
RECIPES = {title.lower(): block for title, block in BLOCKS}
ROWS, BATCH, EPOCHS = 42, 16, 3
"""The last batch of an epoch is short."""

Models = dict[str, Any]
Row = Mapping[str, Any]
Loss = Callable[[Models, Row], Any]


def sigmoid(z: Any) -> Any:
    return 1 / (1 + anp.exp(-z))


def log_sigmoid(z: Any) -> Any:
    return anp.minimum(z, 0) - anp.log1p(anp.exp(-anp.abs(z)))


def log_loss(z: Any, y: Any) -> Any:
    return -(y * log_sigmoid(z) + (1 - y) * log_sigmoid(-z))


def softmax(z: Any) -> Any:
    power = anp.exp(z - anp.max(z, axis=-1, keepdims=True))
    return power / anp.sum(power, axis=-1, keepdims=True)


def focal(m: Models, r: Row) -> Any:
    z = m["w"] @ r["x"]
    p = sigmoid(z)
    return -(r["y"] * (1 - p) ** 2 * log_sigmoid(z) + (1 - r["y"]) * p**2 * log_sigmoid(-z))


def smooth(m: Models, r: Row) -> Any:
    z = m["W"] @ r["x"]
    target = 0.9 * (np.arange(3) == r["y"]) + 0.1 / 3
    return anp.log(anp.sum(anp.exp(z))) - target @ z


def ordinal(m: Models, r: Row) -> Any:
    wide = anp.exp(m["gap"])
    cuts = [m["first"], m["first"] + wide[0], m["first"] + wide[0] + wide[1]]
    below = [0.0, *(sigmoid(cut - m["w"] @ r["x"]) for cut in cuts), 1.0]
    grade = int(r["y"])
    return -anp.log(below[grade + 1] - below[grade])


def poisson(m: Models, r: Row) -> Any:
    eta = m["w"] @ r["x"] + np.log(r["exposure"])
    return anp.exp(eta) - r["y"] * eta


def squares(m: Models, r: Row) -> Any:
    return (m["w"] @ r["x"] - r["y"]) ** 2 / 2


def lstm(m: Models, r: Row) -> Any:
    state = cell = np.zeros(3)
    for one in r["x"]:
        forget, write, show, new = (m["U"][g] @ state + m["W"][g] * one + m["c"][g] for g in range(4))
        cell = sigmoid(forget) * cell + sigmoid(write) * anp.tanh(new)
        state = sigmoid(show) * anp.tanh(cell)
    return (m["v"] @ state - r["y"]) ** 2 / 2


def attention(m: Models, r: Row) -> Any:
    q, k, v = (anp.dot(r["x"], m[name].T) for name in "QKV")
    share = softmax(anp.dot(q, k.T) / np.sqrt(2))
    return log_loss(m["w"] @ anp.sum(anp.dot(share, v), axis=0), r["y"])


def convolution(m: Models, r: Row) -> Any:
    windows = np.array([r["x"][t : t + 3] for t in range(6)])
    return log_loss(m["v"] @ anp.max(anp.maximum(anp.dot(m["F"], windows.T), 0), axis=1), r["y"])


def autoencoder(m: Models, r: Row) -> Any:
    return anp.sum((m["V"] @ anp.tanh(m["W"] @ r["x"]) - r["x"]) ** 2) / 2


def experts(m: Models, r: Row) -> Any:
    return (softmax(m["G"] @ r["x"]) @ (m["E"] @ r["x"]) - r["y"]) ** 2 / 2


def quantiles(m: Models, r: Row) -> Any:
    over = r["y"] - (m["W"] @ r["x"] + m["b"])
    tau = np.array([0.1, 0.5, 0.9])
    return anp.sum(anp.where(over > 0, tau * over, (tau - 1) * over))


def student(m: Models, r: Row) -> Any:
    return 2.5 * anp.log(1 + (r["y"] - m["w"] @ r["x"]) ** 2 / 4)


def factorization(m: Models, r: Row) -> Any:
    pairs = sum((m["V"][:, a] @ m["V"][:, b]) * r["x"][a] * r["x"][b] for a in range(5) for b in range(a))
    return (m["w"] @ r["x"] + pairs - r["y"]) ** 2 / 2


def categories(models: Models, rows: list[Row]) -> Models:
    """Batch after batch; a category that several columns or rows have changes as often."""
    w, V = models["w"].copy(), models["V"].copy()
    for batch in batches(rows):
        before = w.copy(), V.copy()
        for row in batch:
            c = row["c"].astype(int)
            weights, factors = (one[c] for one in before)
            sums = factors.sum(axis=0)
            error = weights.sum() + (sums @ sums - (factors**2).sum()) / 2 - row["y"]
            np.add.at(w, c, -0.02 * error / len(batch))
            np.add.at(V, c, -0.02 * error * (sums - factors) / len(batch))
    return {"w": w, "V": V}


def sparse(models: Models, rows: list[Row]) -> Models:
    """Batch after batch; a feature that a row has twice changes twice."""
    w, b = models["w"].copy(), models["b"]
    for batch in batches(rows):
        before, errors = w.copy(), []
        for row in batch:
            c = row["c"].astype(int)
            errors.append(1 / (1 + np.exp(-(before[c] @ row["x"] + b))) - row["y"])
            np.add.at(w, c, -0.05 * errors[-1] * row["x"] / len(batch))
        b = b - 0.05 * np.mean(errors)
    return {"w": w, "b": b}


def rated(models: Models, rows: list[Row]) -> Models:
    """Rating after rating, the mean behind each batch."""
    U, V, user, item, mean = (models[name].copy() for name in ("U", "V", "user", "item", "mean"))
    for batch in batches(rows):
        errors = []
        for row in batch:
            i, j = int(row["i"]), int(row["j"])
            error = row["y"] - mean - user[i] - item[j] - U[i] @ V[j]
            errors.append(error)
            user[i] += 0.05 * (error - 0.02 * user[i])
            item[j] += 0.05 * (error - 0.02 * item[j])
            U[i], V[j] = U[i] + 0.05 * (error * V[j] - 0.02 * U[i]), V[j] + 0.05 * (error * U[i] - 0.02 * V[j])
        mean = mean + 0.05 * np.mean(errors)
    return {"U": U, "V": V, "user": user, "item": item, "mean": mean}


def descent(loss: Loss, rate: float, keep: float = 0.0, **options: float) -> Callable[[Models, list[Row]], Models]:
    """Gradient descent on the mean of each batch, with momentum."""
    slope = autograd.grad(loss)

    def train(models: Models, rows: list[Row]) -> Models:
        models = dict(models)
        speed = {name: np.zeros_like(value) for name, value in models.items()}
        for batch in batches(rows):
            slopes = [slope(models, row) for row in batch]
            for name in models:
                speed[name] = keep * speed[name] + np.mean([one[name] for one in slopes], axis=0)
                models[name] = models[name] - rate * speed[name]
        return models

    return train


def batches(rows: list[Row]) -> list[list[Row]]:
    return [rows[k : k + BATCH] for _ in range(EPOCHS) for k in range(0, len(rows), BATCH)]


def logistic(models: Models, rows: list[Row]) -> Models:
    """Adam, on batches of 64: here of all rows."""
    slope = autograd.grad(lambda w, row: log_loss(w @ row["x"], row["y"]))
    w, mean, square = models["w"], 0.0, 0.0
    for t in range(1, EPOCHS + 1):
        g = np.mean([slope(w, row) for row in rows], axis=0)
        mean, square = 0.9 * mean + 0.1 * g, 0.999 * square + 0.001 * g * g
        w = w - 0.01 * mean / (1 - 0.9**t) / (np.sqrt(square / (1 - 0.999**t)) + 1e-8)
    return {"w": w}


def bayes(models: Models, rows: list[Row]) -> Models:
    parts = [np.array([row["x"] for row in rows if row["y"] == one]) for one in (0, 1)]
    found = {"mean": [part.mean(axis=0) for part in parts], "square": [(part**2).mean(axis=0) for part in parts]}
    return {
        **{name: np.array(value) for name, value in found.items()},
        "count": np.array([len(part) for part in parts]),
    }


def pegasos(models: Models, rows: list[Row]) -> Models:
    w = models["w"]
    for t, batch in enumerate(batches(rows), start=1):
        g = np.mean([-row["y"] * row["x"] * (row["y"] * (w @ row["x"]) < 1) for row in batch], axis=0)
        w = w - (g + 0.1 * w) / (0.1 * t)
    return {"w": w}


def ftrl(models: Models, rows: list[Row]) -> Models:
    w, z, n = models["w"], 0.0, 0.0
    for batch in batches(rows):
        g = np.mean([(sigmoid(w @ row["x"]) - row["y"]) * row["x"] for row in batch], axis=0)
        sigma = (np.sqrt(n + g * g) - np.sqrt(n)) / 0.5
        z, n = z + g - sigma * w, n + g * g
        w = np.where(np.abs(z) <= 0.02, 0, -(z - np.sign(z) * 0.02) / ((1 + np.sqrt(n)) / 0.5 + 0.1))
    return {"w": w}


def averaged(models: Models, rows: list[Row]) -> Models:
    w, seen = models["w"], []
    for batch in batches(rows):
        seen.append(w)
        w = w - 0.1 * np.mean([(w @ row["x"] - row["y"]) * row["x"] for row in batch], axis=0)
    return {"w": w, "mean": np.mean(seen, axis=0), "batches": len(seen)}


def lasso(models: Models, rows: list[Row]) -> Models:
    w = models["w"]
    for _ in range(EPOCHS):
        w = w - 0.2 * np.mean([(w @ row["x"] - row["y"]) * row["x"] for row in rows], axis=0)
        w = np.sign(w) * np.maximum(np.abs(w) - 0.2 * 0.1, 0)
    return {"w": w}


def recursive(models: Models, rows: list[Row]) -> Models:
    """Least squares with a penalty of 0.1, by the normal equations."""
    X = np.array([row["x"] for row in rows] * EPOCHS)
    P = np.linalg.inv(X.T @ X + 0.1 * np.eye(5))
    return {"P": P, "w": P @ X.T @ np.array([row["y"] for row in rows] * EPOCHS)}


def bandit(models: Models, rows: list[Row]) -> Models:
    X = np.array([row["x"] for row in rows] * EPOCHS)
    inverse = np.linalg.inv(X.T @ X + np.eye(5))
    return {"A": np.eye(5) - inverse, "b": X.T @ np.array([row["reward"] for row in rows] * EPOCHS)}


def kalman(models: Models, rows: list[Row]) -> Models:
    level, variance = 0.0, 1.0
    for row in rows * EPOCHS:
        prior = variance + 0.1 * row["x"]
        variance = 1 / (1 / prior + 1 / 0.5)
        level = variance * (level / prior + row["y"] / 0.5)
    return {"level": level, "variance": variance}


def normed(models: Models, rows: list[Row]) -> Models:
    m = models | {"raw.running_mean": np.zeros(3), "raw.running_variance": np.ones(3)}
    learnt = ("W", "v", "scale", "shift")

    def loss(part: Models, batch: list[Row]) -> Any:
        raw = anp.stack([part["W"] @ row["x"] for row in batch])
        centred = raw - anp.mean(raw, axis=0)
        units = centred / anp.sqrt(anp.mean(centred**2, axis=0) + 1e-5) * part["scale"] + part["shift"]
        error = anp.maximum(units, 0) @ part["v"] - np.array([row["y"] for row in batch])
        return anp.mean(error**2) / 2

    slope = autograd.grad(loss)
    for batch in batches(rows):
        slopes = slope({name: m[name] for name in learnt}, batch)
        raw = np.array([m["W"] @ row["x"] for row in batch])
        for name, found, share in (
            ("running_mean", raw.mean(axis=0), len(batch) / BATCH),
            ("running_variance", raw.var(axis=0), (len(batch) - 1) / (BATCH - 1)),
        ):
            m[f"raw.{name}"] = m[f"raw.{name}"] + 0.1 * share * (found - m[f"raw.{name}"])
        m |= {name: m[name] - 0.05 * slopes[name] for name in learnt}
    return m


def numbered(rows: list[Row]) -> list[list[tuple[Row, Any]]]:
    """Batches of rows, each with a function from an element to its random number."""
    return [
        [(row, partial(uniform, number, epoch=epoch)) for number, row in enumerate(rows)][k : k + BATCH]
        for epoch in range(EPOCHS)
        for k in range(0, len(rows), BATCH)
    ]


def thinned(models: Models, rows: list[Row]) -> Models:
    def loss(m: Models, row: Row, kept: Any) -> Any:
        return log_loss(m["v"] @ (anp.tanh(m["W"] @ row["x"]) * kept), row["y"])

    slope, models = autograd.grad(loss), dict(models)
    for batch in numbered(rows):
        slopes = [slope(models, row, np.array([2.0 * (u(e) >= 0.5) for e in range(8)])) for row, u in batch]
        models = {name: models[name] - 0.5 * np.mean([one[name] for one in slopes], axis=0) for name in models}
    return models


def coarse(models: Models, rows: list[Row]) -> Models:
    w = models["w"]
    for batch in numbered(rows):
        each = [(w @ row["x"] - row["y"]) * row["x"] / 0.25 + [float(u(e)) for e in range(5)] for row, u in batch]
        w = w - 0.1 * 0.25 * np.mean(np.floor(each), axis=0)
    return {"w": w}


def ranking(models: Models, rows: list[Row]) -> Models:
    U, V = models["U"].copy(), models["V"].copy()
    for row in rows * EPOCHS:
        u, i, j = (int(row[name]) for name in "uij")
        g = sigmoid(-U[u] @ (V[i] - V[j]))
        mine, apart = U[u].copy(), V[i] - V[j]
        U[u] += 0.1 * g * apart
        V[i] += 0.1 * g * mine
        V[j] -= 0.1 * g * mine
    return {"U": U, "V": V}


def mixture(models: Models, rows: list[Row]) -> Models:
    C, share = models["C"], models["share"]
    X = np.array([row["x"] for row in rows])
    for _ in range(EPOCHS):
        r = share * np.exp(-((X[:, None] - C) ** 2).sum(axis=2) / 2)
        r /= r.sum(axis=1, keepdims=True)
        C, share = (r.T @ X) / r.sum(axis=0)[:, None], r.mean(axis=0)
    return {"C": C, "share": share}


ORACLES: dict[str, Callable[[Models, list[Row]], Models]] = {
    "logistic regression": logistic,
    "focal loss": descent(focal, 0.1),
    "label smoothing": descent(smooth, 0.1),
    "ordinal regression": descent(ordinal, 0.05),
    "poisson regression": descent(poisson, 0.02),
    "naive bayes": bayes,
    "pegasos": pegasos,
    "ftrl-proximal": ftrl,
    "averaged gradient descent": averaged,
    "lasso by proximal steps": lasso,
    "recursive least squares": recursive,
    "linucb": bandit,
    "kalman filter": kalman,
    "lstm": descent(lstm, 0.1),
    "attention": descent(attention, 0.1),
    "convolution": descent(convolution, 0.1),
    "autoencoder": descent(autoencoder, 0.1),
    "batch norm with running statistics": normed,
    "dropout": thinned,
    "gradients rounded at random": coarse,
    "mixture of experts": descent(experts, 0.1),
    "sparse rows": sparse,
    "three quantiles at once": descent(quantiles, 0.05),
    "student's t": descent(student, 0.05, keep=0.9),
    "factorization machine": descent(factorization, 0.02),
    "factorization machine over categories": categories,
    "bayesian personalised ranking": ranking,
    "biased matrix factorisation": rated,
    "gaussian mixture": mixture,
}


def columns(rule: TrainableRule, name: str) -> dict[str, np.ndarray]:
    """Rows of what the rule reads; an open dim is 5."""
    rng = np.random.default_rng(len(name))
    graph = rule.hdfg.bind(dict.fromkeys((dim for dim in rule.hdfg.dims), 5))
    found = {}
    for one in graph.inputs:
        node = graph.nodes[one]
        shape = (ROWS, *graph.concrete_shape(one))
        if node.name in ("u", "i", "j"):
            values = rng.integers(0, 6, shape).astype(float)
        elif node.name == "c":
            values = rng.integers(0, 5, shape).astype(float)
        elif node.name == "exposure" or name == "kalman filter":
            values = rng.uniform(0.5, 2, shape)
        elif node.classes is not None or (name == "ordinal regression" and node.name == "y"):
            values = rng.integers(0, 4 if node.classes is None else int(str(node.classes)), shape).astype(float)
        elif name == "poisson regression" and node.name == "y":
            values = rng.poisson(1, shape).astype(float)
        elif name == "pegasos" and node.name == "y":
            values = rng.choice([-1.0, 1.0], shape)
        else:
            values = rng.normal(size=shape)
        found[str(node.name)] = values.astype(np.float32).astype(float)
    return found


def test_every_recipe_is_short_and_has_an_oracle() -> None:
    assert set(RECIPES) == set(ORACLES)
    assert all(len(text.splitlines()) <= 30 for text in RECIPES.values())
    assert len(RECIPES["logistic regression"].splitlines()) == 8


@pytest.mark.parametrize("name", ORACLES)
def test_recipe(name: str) -> None:
    rule = TrainableRule(RECIPES[name])
    assert rule.report == ""
    values = columns(rule, name)
    counted = {str(rule.hdfg.symbolic_count(one)) for one in category_inputs(rule.hdfg)}  # in the rows
    defaults = dict(rule.hdfg.extents).keys() - counted
    graph = rule.hdfg.bind(dict.fromkeys(set(rule.hdfg.dims) - defaults, 5))
    start = {model: value.astype(float) for model, value in Interpreter(graph, numerics).start().items()}
    inputs = {one: values[one] for one in values if one not in labels(rule)}
    outputs = {one: values[one] for one in labels(rule)}
    trained = rule.fit(inputs, outputs or None, epochs=EPOCHS, patience=0, shuffle=False)
    rows = [{key: value[row] for key, value in values.items()} for row in range(ROWS)]
    listed = {model: value for model, value in start.items() if "." not in model}
    for model, expected in ORACLES[name](listed, rows).items():
        np.testing.assert_allclose(trained.models[model], expected, rtol=2e-4, atol=2e-5, err_msg=model)
        assert not np.array_equal(trained.models[model], start[model].astype(np.float32)), model


def labels(rule: TrainableRule) -> list[str]:
    return [str(rule.hdfg.nodes[one].name) for one in rule.hdfg.inputs if rule.hdfg.nodes[one].op == "output"]
