"""What a user would write in the place of a shipped rule, on arrays that are there: one pass over them, each time.

In: rows and labels of binary32, standardised. Out: `Learner`s, as fast as NumPy (BLAS on one thread) or numba with
`fastmath` allow, with the rule's batches and steps. numba is no dependency of the project: `pip install numba`; what
needs it raises `ModuleNotFoundError` without.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Learner:
    """A model that learns from arrays.

    Attributes
    ----------
    train
        One more pass over the rows.
    score
        Of rows of shape (rows, columns): scores before any link, (rows,) or (rows, classes); of pairs, shape (rows, 2),
        the predicted values; of what has centres, each row's squared distance to the nearest.
    """

    train: Callable[[], object]
    score: Callable[[NDArray[Any]], NDArray[Any]]


BATCH = 64
RATE, KEEP = np.float32(0.01), np.float32(0.9)
ERRORS: dict[str, Callable[[Any, Any], tuple[Any, Any]]] = {
    "squared": lambda z, y: (z - y, (z - y) * (z - y)),
    "huber": lambda z, y: (min(max(z - y, np.float32(-1.35)), np.float32(1.35)), abs(z - y)),
    "quantile": lambda z, y: (np.float32(y < z) - np.float32(0.5), abs(z - y)),
    "hinge": lambda z, y: (
        -(2 * y - 1) * max(1 - (2 * y - 1) * z, np.float32(0)),
        max(1 - (2 * y - 1) * z, np.float32(0)) ** 2,
    ),
}
"""Slope and loss of a row, by its score and its label."""
ERROR_OF = {
    "linear": "squared",
    "ridge": "squared",
    "lasso": "squared",
    "elastic_net": "squared",
    "huber": "huber",
    "quantile": "quantile",
    "poisson": "poisson",
    "logistic": "logistic",
    "linear_svm": "hinge",
}
"""The error of each linear rule."""


def _logistic(z, y):  # type: ignore[no-untyped-def]
    p = 1 / (1 + np.exp(-z))
    return p - y, -np.log(max(1 - abs(p - y), np.float32(1e-30)))


def _poisson(z, y):  # type: ignore[no-untyped-def]
    p = np.exp(min(z, np.float32(40)))
    return p - y, p - y * z


ERRORS |= {"logistic": _logistic, "poisson": _poisson}
CURVATURES: dict[str, Callable[[Any, Any], Any]] = {
    "squared": lambda z, y: np.float32(1),
    "huber": lambda z, y: np.float32(1) if abs(z - y) <= np.float32(1.35) else np.float32(1.35) / abs(z - y),
    "quantile": lambda z, y: np.float32(0.5) / max(abs(z - y), np.float32(1e-3)),
    "logistic": lambda z, y: np.float32(0.25) * (1 - np.tanh(np.float32(0.5) * z) ** 2),
    "poisson": lambda z, y: np.exp(min(z, np.float32(40))),
}
"""The derivative of a row's slope by its score."""


def conjugate(x: Floats, y: Floats, error: str) -> Learner:
    """A linear model by conjugate gradients, in numba: a pass finds the gradient and its change along the direction."""
    import numba

    judge: Any = numba.njit(fastmath=True)(ERRORS[error])
    curvature: Any = numba.njit(fastmath=True)(CURVATURES[error])
    step: Any = numba.njit(fastmath=True)(_conjugate_step)
    w, d = (np.zeros(x.shape[1] + 1, np.float32) for _ in range(2))

    @numba.njit(fastmath=True)
    def epoch(x, y, w, d):  # type: ignore[no-untyped-def]
        n = x.shape[1]
        g, h = np.zeros(n + 1, np.float32), np.zeros(n + 1, np.float32)
        total = np.float32(0)
        for row in range(len(x)):
            z, along = w[n], d[n]
            for k in range(n):
                z += w[k] * x[row, k]
                along += d[k] * x[row, k]
            slope, loss = judge(z, y[row])
            change = curvature(z, y[row]) * along
            for k in range(n):
                g[k] += slope * x[row, k]
                h[k] += change * x[row, k]
            g[n] += slope
            h[n] += change
            total += loss
        step(w, d, g, h)
        return total

    return Learner(lambda: epoch(x, y, w, d), lambda rows: rows @ w[:-1] + w[-1])


def _conjugate_step(w: Any, d: Any, g: Any, h: Any) -> None:
    """Along the direction d to the minimum, and the next direction; g, h: the gradient, its change along d."""
    bend = np.sum(d * h)
    if bend != 0:
        length = -np.sum(g * d) / bend
        w += length * d
        g += length * h
        d *= np.sum(g * h) / bend
    d -= g


def linear(x: Floats, y: Floats, error: str) -> Learner:
    """A linear model by Nesterov's steps, in numba."""
    import numba

    judge: Any = numba.njit(fastmath=True)(ERRORS[error])
    w, v = (np.zeros(x.shape[1] + 1, np.float32) for _ in range(2))

    @numba.njit(fastmath=True)
    def epoch(x, y, w, v):  # type: ignore[no-untyped-def]
        n = x.shape[1]
        g = np.zeros(n + 1, np.float32)
        total = np.float32(0)
        for first in range(0, len(x), BATCH):
            g[:] = 0
            for row in range(first, min(first + BATCH, len(x))):
                z = w[n]
                for k in range(n):
                    z += w[k] * x[row, k]
                slope, loss = judge(z, y[row])
                for k in range(n):
                    g[k] += slope * x[row, k]
                g[n] += slope
                total += loss
            for k in range(n + 1):
                step = RATE * g[k] / np.float32(BATCH)
                v[k] = KEEP * v[k] + step
                w[k] -= step + KEEP * v[k]
        return total

    return Learner(lambda: epoch(x, y, w, v), lambda rows: rows @ w[:-1] + w[-1])


def linear_in_numpy(x: Floats, y: Floats, error: str) -> Learner:
    """The same steps in NumPy."""
    slopes: dict[str, Callable[[Any, Any], Any]] = {
        "squared": lambda z, y: z - y,
        "logistic": lambda z, y: 1 / (1 + np.exp(-z)) - y,
        "hinge": lambda z, y: -(2 * y - 1) * np.maximum(1 - (2 * y - 1) * z, 0),
    }
    slope = slopes[error]
    w, v = (np.zeros(x.shape[1] + 1, np.float32) for _ in range(2))
    gradient = np.empty_like(w)

    def epoch() -> None:
        for first in range(0, len(x), BATCH):
            rows = x[first : first + BATCH]
            errors = slope(rows @ w[:-1] + w[-1], y[first : first + BATCH])
            np.dot(errors, rows, out=gradient[:-1])
            gradient[-1] = errors.sum()
            np.multiply(gradient, RATE / np.float32(BATCH), out=gradient)
            v[...] = KEEP * v + gradient
            w[...] -= gradient + KEEP * v

    return Learner(epoch, lambda rows: rows @ w[:-1] + w[-1])


def _shares(scores: Floats) -> Floats:
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True), dtype=np.float32)


def conjugate_softmax(x: Floats, y: Floats) -> Learner:
    """A layer by conjugate gradients, in NumPy: two products of matrices for so many rows at a time."""
    rows_at_once, n = 1000, x.shape[1]  # of 64 to 4,000 the fastest
    wanted = np.eye(10, dtype=np.float32)[y.astype(int)]
    both = np.zeros((20, n + 1), np.float32)  # the model and its direction; the intercept comes last
    model, direction = both[:10], both[10:]

    def epoch() -> float:
        total, change = 0.0, np.zeros_like(both)
        for first in range(0, len(x), rows_at_once):
            rows, own = x[first : first + rows_at_once], wanted[first : first + rows_at_once]
            scores = rows @ both[:, :n].T + both[:, n]
            shares, along = _shares(scores[:, :10]), scores[:, 10:]
            error = np.hstack([shares - own, shares * (along - (shares * along).sum(axis=1, keepdims=True))])
            total -= float(np.log((shares * own).sum(axis=1)).sum())
            change[:, :n] += error.T @ rows
            change[:, n] += error.sum(axis=0)
        _conjugate_step(model, direction, change[:10], change[10:])
        return total

    return Learner(epoch, lambda rows: rows @ model[:, :n].T + model[:, n])


def softmax(x: Floats, y: Floats) -> Learner:
    """A layer, with Nesterov's steps, in NumPy."""
    wanted = np.eye(10, dtype=np.float32)[y.astype(int)]
    w, b = np.zeros((10, x.shape[1]), np.float32), np.zeros(10, np.float32)
    vw, vb = np.zeros_like(w), np.zeros_like(b)

    def epoch() -> None:
        for first in range(0, len(x), BATCH):
            rows = x[first : first + BATCH]
            error = _shares(rows @ w.T + b) - wanted[first : first + BATCH]
            for model, velocity, gradient in ((w, vw, error.T @ rows), (b, vb, error.sum(axis=0))):
                gradient *= np.float32(0.01 / BATCH)
                velocity *= np.float32(0.9)
                velocity -= gradient
                model += np.float32(0.9) * velocity - gradient

    return Learner(epoch, lambda rows: rows @ w.T + b)


def perceptron(x: Floats, y: Floats) -> Learner:
    """A hidden layer of 32 rectified units, with Adam's steps, in NumPy."""
    wanted = np.eye(10, dtype=np.float32)[y.astype(int)]
    models = first_layers(x.shape[1])
    means, squares = ([np.zeros_like(model) for model in models] for _ in range(2))

    def epoch() -> None:
        w, b, v, c = models
        for first in range(0, len(x), BATCH):
            rows = x[first : first + BATCH]
            hidden = np.maximum(rows @ w.T + b, 0)
            error = _shares(hidden @ v.T + c) - wanted[first : first + BATCH]
            back = (hidden > 0) * (error @ v)
            gradients = (back.T @ rows, back.sum(axis=0), error.T @ hidden, error.sum(axis=0))
            for model, mean, square, gradient in zip(models, means, squares, gradients, strict=True):
                gradient *= np.float32(1 / BATCH)
                mean *= np.float32(0.9)
                mean += np.float32(0.1) * gradient
                square *= np.float32(0.999)
                square += np.float32(0.001) * gradient * gradient
                model -= np.float32(0.001) * mean / (np.sqrt(square) + np.float32(1e-8))

    def score(rows: NDArray[Any]) -> NDArray[Any]:
        w, b, v, c = models
        return np.asarray(np.maximum(rows @ w.T + b, 0) @ v.T + c)

    return Learner(epoch, score)


def first_layers(n: int) -> list[Floats]:
    """What a network of n features, 32 hidden units and 10 classes begins with: W, b, V, c."""
    random = np.random.default_rng(1)
    shapes = ((32, n), (32,), (10, 32), (10,))
    return [random.standard_normal(shape).astype(np.float32) * np.float32(0.1) for shape in shapes]


def first_factors(extents: Iterable[int]) -> list[Floats]:
    """What factors of rank 10 begin with."""
    random = np.random.default_rng(1)
    return [random.standard_normal((n, 10)).astype(np.float32) * np.float32(0.1) for n in extents]


def components(x: Floats, k: int) -> Learner:
    """Principal components by Sanger's rule, in NumPy."""
    w = np.random.default_rng(1).standard_normal((k, x.shape[1])).astype(np.float32) * np.float32(0.1)

    def epoch() -> float:
        total = 0.0
        for first in range(0, len(x), BATCH):
            rows = x[first : first + BATCH]
            z = rows @ w.T
            size = np.einsum("ij,ij", rows, rows)
            total += size - np.einsum("ij,ij", z, z)
            w[...] += (z.T @ rows - np.tril(z.T @ z) @ w) / size
        return total

    return Learner(epoch, lambda rows: rows @ w.T)


def means(x: Floats, k: int) -> Learner:
    """K-means by mini-batches, each row to its nearest centre, in numba."""
    import numba

    centres = x[:k].copy()

    @numba.njit(fastmath=True)
    def epoch(x, centres):  # type: ignore[no-untyped-def]
        k, n = centres.shape
        counts, sums = np.ones(k, np.float32), np.zeros((k, n), np.float32)
        total = np.float32(0)
        for first in range(0, len(x), BATCH):
            sums[:] = 0
            for row in range(first, min(first + BATCH, len(x))):
                least, nearest = np.float32(np.inf), 0
                for c in range(k):
                    distance = np.float32(0)
                    for j in range(n):
                        distance += (x[row, j] - centres[c, j]) ** 2
                    if distance < least:
                        least, nearest = distance, c
                counts[nearest] += 1
                total += least
                for j in range(n):
                    sums[nearest, j] += x[row, j] - centres[nearest, j]
            for c in range(k):
                for j in range(n):
                    centres[c, j] += sums[c, j] / counts[c]
        return total

    return Learner(lambda: epoch(x, centres), lambda rows: nearest(rows, centres))


def nearest(rows: NDArray[Any], centres: NDArray[Any]) -> NDArray[Any]:
    """Squared distances of rows to the nearest of the centres, shape (rows,)."""
    squares = (rows * rows).sum(axis=1)[:, None] - 2 * rows @ centres.T + (centres * centres).sum(axis=1)
    return np.asarray(np.maximum(squares.min(axis=1), 0))


def dense_factors(numbers: NDArray[np.int64], x: Floats) -> Learner:
    """Matrix factorisation over whole rows, rank 10, a row at a time, in numba."""
    import numba

    random = np.random.default_rng(1)
    u, v = (
        random.standard_normal(shape).astype(np.float32) * np.float32(0.1) for shape in ((1000, 10), (10, x.shape[1]))
    )

    @numba.njit(fastmath=True)
    def epoch(u, v, numbers, x):  # type: ignore[no-untyped-def]
        n = x.shape[1]
        error, known = np.zeros(n, np.float32), np.zeros(n, np.float32)
        total = np.float32(0)
        for row in range(len(x)):
            i = numbers[row]
            error[:] = 0
            for k in range(10):
                for j in range(n):
                    error[j] += u[i, k] * v[k, j]
            count = loss = np.float32(0)
            for j in range(n):
                known[j] = np.float32(x[row, j] != 0)
                error[j] = known[j] * (error[j] - x[row, j])
                count += known[j]
                loss += error[j] * error[j]
            total += loss / max(count, np.float32(1))
            for k in range(10):
                a, slope = u[i, k], np.float32(0)
                for j in range(n):
                    slope += v[k, j] * error[j]
                    v[k, j] -= np.float32(0.005) * (a * error[j] + np.float32(0.02) * known[j] * v[k, j])
                u[i, k] = a - np.float32(0.005) * (slope + np.float32(0.02) * count * a)
        return total

    return Learner(lambda: epoch(u, v, numbers, x), lambda rows: u[rows.astype(int)] @ v)
