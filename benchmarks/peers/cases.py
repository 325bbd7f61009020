"""What is compared: a rule on a table, the rows as arrays, and the loss that each model is judged by in the end.

In: a case's name and a scale, or a table of the user's. Out: `Case`s. The tables have the shapes of the paper's public
data, and of digits; their rows are drawn here, with fixed seeds, for only shapes count for speed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.peers.learners import Floats, nearest

Numbers = NDArray[Any]
CENTRES = 8
"""Of k-means."""
MAX_IN_ROW = 2000
"""Elements of an array that a page of 8 KB holds in its row."""
JUDGED = 50_000
"""Rows, the first ones, that a loss is the mean over."""


@dataclass(frozen=True, slots=True)
class Loss:
    """A mean over rows.

    Attributes
    ----------
    name
        For people.
    of
        Of scores, as `Learner.score` gives them, and labels.
    """

    name: str
    of: Callable[[Numbers, Numbers], float]


def _log_loss(score: Numbers, y: Numbers) -> float:
    return float(np.mean(np.logaddexp(0, score) - y * score))


def _hinge(score: Numbers, y: Numbers) -> float:
    return float(np.mean(np.maximum(1 - (2 * y - 1) * score, 0) ** 2))


def _squared(score: Numbers, y: Numbers) -> float:
    return float(np.mean((score - y) ** 2))


def _cross_entropy(score: Numbers, y: Numbers) -> float:
    away = score - score.max(axis=1, keepdims=True)
    return float(np.mean(np.log(np.exp(away).sum(axis=1)) - away[np.arange(len(y)), y.astype(int)]))


def _linear(x: Numbers, models: Mapping[str, Numbers]) -> Numbers:
    return np.asarray(x @ models["w"] + models["b"])


def _softmax(x: Numbers, models: Mapping[str, Numbers]) -> Numbers:
    return np.asarray(x @ models["W"].T + models["b"])


def _network(x: Numbers, models: Mapping[str, Numbers]) -> Numbers:
    return np.asarray(np.maximum(x @ models["W"].T + models["b"], 0) @ models["V"].T + models["c"])


def _rating(x: Numbers, models: Mapping[str, Numbers]) -> Numbers:
    i, j = x.astype(int).T
    biases = models["a"][i] + models["b"][j] if "a" in models else 0
    return np.asarray(models["mean"] + models["deviation"] * (biases + (models["U"][i] * models["V"][j]).sum(axis=1)))


@dataclass(frozen=True, slots=True)
class Task:
    """What a rule learns, for both sides.

    Attributes
    ----------
    loss
        What models are judged by.
    score
        Of standardised rows and a model's parameters: in binary64, as `Learner.score`.
    standardised
        Whether the rule brings columns to mean 0 and deviation 1, and references get them so.
    """

    loss: Loss
    score: Callable[[Numbers, Mapping[str, Numbers]], Numbers]
    standardised: bool = True


TASKS = {
    "logistic": Task(Loss("log loss", _log_loss), _linear),
    "linear_svm": Task(Loss("squared hinge", _hinge), _linear),
    "linear": Task(Loss("squared error", _squared), _linear),
    "softmax": Task(Loss("cross entropy", _cross_entropy), _softmax),
    "mlp": Task(Loss("cross entropy", _cross_entropy), _network),
    "kmeans": Task(
        Loss("squared distance", lambda score, _: float(score.mean())), lambda x, models: nearest(x, models["C"])
    ),
    "lrmf": Task(Loss("squared error", _squared), _rating, standardised=False),
}
"""By rule; the rules that have peers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A rule on a table.

    Attributes
    ----------
    name, rule
        What the table is like; a rule of `TASKS`.
    columns
        The table: columns of shape (rows,), or an array of shape (rows, n).
    features
        Names of those that the rule gets; the label, if it has one, is column ``y``.
    hyper
        Values of the rule's metas and dims.
    left_out
        Rows of the user's table that are not among them.
    unused
        Further features that a training on the user's table would have: they are not numbers.
    """

    name: str
    rule: str
    columns: Mapping[str, Floats]
    features: tuple[str, ...]
    hyper: Mapping[str, float] = field(default_factory=dict)
    left_out: int = 0
    unused: tuple[str, ...] = ()

    @property
    def task(self) -> Task:
        """What the rule learns."""
        return TASKS[self.rule]

    @property
    def x(self) -> Floats:
        """The features as one array, (rows, columns), as they are in the table."""
        return np.column_stack([self.columns[name] for name in self.features])

    @property
    def y(self) -> Floats:
        """The label, (rows,); zeros where there is none."""
        return self.columns["y"] if "y" in self.columns else np.zeros(self.rows, np.float32)

    @property
    def rows(self) -> int:
        """How many there are."""
        return len(self.columns[self.features[0]])

    def judge(self, scores: Numbers) -> float:
        """The loss of scores of the first `JUDGED` rows."""
        return self.task.loss.of(scores.astype(np.float64), self.y[:JUDGED].astype(np.float64))


def prepared(case: Case) -> Floats:
    """The features as references get them."""
    x = case.x
    if not case.task.standardised:
        return x
    mean, deviation = x.mean(axis=0, dtype=np.float64), x.std(axis=0, dtype=np.float64)
    return np.asarray((x - mean) / np.where(deviation > 0, deviation, 1), dtype=np.float32)


# --- tables ---------------------------------------------------------------------------------------------------------


def _rows(random: np.random.Generator, rows: int, columns: int) -> tuple[Floats, Floats]:
    x = random.standard_normal((rows, columns), dtype=np.float32)
    return x, (x @ random.standard_normal(columns).astype(np.float32)) / np.float32(np.sqrt(columns))


def _draws(random: np.random.Generator, score: Floats) -> Floats:
    return (random.random(len(score)) < 1 / (1 + np.exp(-3 * score))).astype(np.float32)


def _columns(x: Floats) -> dict[str, Floats]:
    return {f"x{k + 1}": x[:, k] for k in range(x.shape[1])}


def numbers(rule: str, rows: int, columns: int, *, array: bool) -> Case:
    """Rows of N(0, 1) with the rule's labels; `array`: in one column, an array."""
    random = np.random.default_rng(columns)
    x, score = _rows(random, rows, columns)
    noise = random.standard_normal(rows).astype(np.float32)
    y = score + np.float32(0.3) * noise if rule == "linear" else _draws(random, score)
    features: Mapping[str, Floats] = {"x": x} if array else _columns(x)
    return Case(name="", rule=rule, columns={**features, "y": y}, features=tuple(features))


def _digits(rule: str, rows: int) -> Case:
    random = np.random.default_rng(784)
    y = random.integers(0, 10, rows)
    x = random.standard_normal((rows, 784), dtype=np.float32)
    x += random.standard_normal((10, 784)).astype(np.float32)[y] * np.float32(0.1)
    return Case(name="", rule=rule, columns={"x": x, "y": y.astype(np.float32)}, features=("x",))


def _clusters(rows: int) -> Case:
    random = np.random.default_rng(CENTRES)
    x = random.standard_normal((rows, 54), dtype=np.float32)
    x += 2 * random.standard_normal((CENTRES, 54)).astype(np.float32)[random.integers(0, CENTRES, rows)]
    columns = _columns(x)
    return Case(name="", rule="kmeans", columns=columns, features=tuple(columns), hyper={"k": CENTRES})


def _ratings(rows: int) -> Case:
    random = np.random.default_rng(10)
    m, n = 6040, 3952
    i, j = random.integers(0, m, rows), random.integers(0, n, rows)
    u, v = (random.standard_normal((count, 10)) / np.sqrt(10) for count in (m, n))
    y = 3.5 + (u[i] * v[j]).sum(axis=1) + 0.5 * random.standard_normal(rows)
    columns = {"i": i.astype(np.float32), "j": j.astype(np.float32), "y": y.astype(np.float32)}
    return Case(name="", rule="lrmf", columns=columns, features=("i", "j"), hyper={"m": m, "n": n, "k": 10})


SHAPES: dict[str, tuple[int, Callable[[int], Case]]] = {
    "Remote Sensing LR": (581_102, lambda rows: numbers("logistic", rows, 54, array=False)),
    "Remote Sensing SVM": (581_102, lambda rows: numbers("linear_svm", rows, 54, array=False)),
    "WLAN": (19_937, lambda rows: numbers("logistic", rows, 520, array=True)),
    "Patient": (53_500, lambda rows: numbers("linear", rows, 384, array=True)),
    "Blog Feedback": (52_397, lambda rows: numbers("linear", rows, 280, array=True)),
    "Netflix": (1_000_209, _ratings),
    "Digits softmax": (20_000, lambda rows: _digits("softmax", rows)),
    "Digits MLP": (20_000, lambda rows: _digits("mlp", rows)),
    "Remote Sensing k-means": (581_102, _clusters),
}
"""By name: rows, and a table of so many. The first six have the shapes of the paper's public data; of its others one
table takes more than a gigabyte. Ratings are triples, where the paper has dense rows."""


def shaped(name: str, scale: float = 1.0) -> Case:
    """A case of `SHAPES` with so many times the rows, at least a thousand."""
    rows, make = SHAPES[name]
    made = make(max(1000, round(rows * scale)))
    return Case(name=name, rule=made.rule, columns=made.columns, features=made.features, hyper=made.hyper)
