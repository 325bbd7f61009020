"""What a user would write in the place of a rule of factors or embeddings: numba, on arrays, a row at a time.

In: numbers of rows, from 0, and labels. Out: `Learner`s with the rule's steps, derivatives by hand, and random numbers
of their own. Like `learners`, they need numba.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.peers.learners import Floats, Learner, first_factors

Numbers = NDArray[np.int64]
"""Shape (rows, columns)."""


def _normal(*shape: int, deviation: float = 0.1, seed: int = 1) -> Floats:
    return np.random.default_rng(seed).normal(0, deviation, shape).astype(np.float32)


def _fix_draws() -> None:
    """Begin numba's random numbers anew: they are not those of NumPy."""
    import numba

    @numba.njit
    def begin(seed):  # type: ignore[no-untyped-def]
        np.random.seed(seed)

    begin(1)


def standardised(y: Floats) -> tuple[Floats, np.float32, np.float32]:
    """Labels with mean 0 and deviation 1, and what mean and deviation were."""
    mean, deviation = np.float32(y.mean(dtype=np.float64)), np.float32(y.std(dtype=np.float64))
    return np.asarray((y - mean) / (deviation or np.float32(1)), np.float32), mean, deviation


def factors(pairs: Numbers, y: Floats, m: int, n: int) -> Learner:
    """Matrix factorisation of rank 10 with biases, as rule `lrmf`."""
    import numba

    u, v = first_factors((m, n))
    a, b = np.zeros(m, np.float32), np.zeros(n, np.float32)
    of_size_1, mean, deviation = standardised(y)
    rate, penalty = np.float32(0.02), np.float32(0.05)

    @numba.njit(fastmath=True)
    def epoch(u, v, a, b, pairs, y):  # type: ignore[no-untyped-def]
        total = np.float32(0)
        for row in range(len(y)):
            i, j = pairs[row, 0], pairs[row, 1]
            error = a[i] + b[j] - y[row]
            for k in range(10):
                error += u[i, k] * v[j, k]
            total += error * error
            for k in range(10):
                left, right = u[i, k], v[j, k]
                u[i, k] = left - rate * (error * right + penalty * left)
                v[j, k] = right - rate * (error * left + penalty * right)
            a[i] -= rate * (error + penalty * a[i])
            b[j] -= rate * (error + penalty * b[j])
        return total

    def score(rows: NDArray[Any]) -> NDArray[Any]:
        i, j = rows.astype(int).T
        return np.asarray(mean + deviation * (a[i] + b[j] + (u[i] * v[j]).sum(axis=1)))

    return Learner(lambda: epoch(u, v, a, b, pairs, of_size_1), score)


def ranking(pairs: Numbers, m: int, n: int, *, lr: float = 0.05, penalty: float = 0.02, rank: int = 10) -> Learner:
    """Bayesian personalised ranking with a sampled negative, as rule `bpr`."""
    import numba

    _fix_draws()
    u, v, b = _normal(m, rank), _normal(n, rank, seed=2), np.zeros(n, np.float32)
    lr_, penalty_, one = np.float32(lr), np.float32(penalty), np.float32(1)

    @numba.njit(fastmath=True)
    def epoch(u, v, b, pairs):  # type: ignore[no-untyped-def]
        total = np.float32(0)
        for row in range(len(pairs)):
            i, j, other = pairs[row, 0], pairs[row, 1], np.random.randint(n)
            if other == j:
                continue
            margin = b[j] - b[other]
            for k in range(rank):
                margin += u[i, k] * (v[j, k] - v[other, k])
            wrong = one / (one + np.exp(margin))
            total -= np.log(max(one - wrong, np.float32(1e-30)))
            for k in range(rank):
                mine, good, bad = u[i, k], v[j, k], v[other, k]
                u[i, k] += lr_ * (wrong * (good - bad) - penalty_ * mine)
                v[j, k] += lr_ * (wrong * mine - penalty_ * good)
                v[other, k] += lr_ * (-wrong * mine - penalty_ * bad)
            b[j] += lr_ * (wrong - penalty_ * b[j])
            b[other] += lr_ * (-wrong - penalty_ * b[other])
        return total

    def score(rows: NDArray[Any]) -> NDArray[Any]:
        i, j = rows.astype(int).T
        return np.asarray(b[j] + (u[i] * v[j]).sum(axis=1))

    return Learner(lambda: epoch(u, v, b, pairs), score)


def words(
    pairs: Numbers, n: int, *, lr: float = 0.025, width: int = 50, negatives: int = 5, skew: float = 4
) -> Learner:
    """Skip-gram with negative samples, as rule `word2vec`."""
    import numba

    _fix_draws()
    start = np.random.default_rng(1).uniform(-0.5 / width, 0.5 / width, (n, width))
    u, v, lr_, one = start.astype(np.float32), np.zeros((n, width), np.float32), np.float32(lr), np.float32(1)

    @numba.njit(fastmath=True)
    def epoch(u, v, pairs):  # type: ignore[no-untyped-def]
        total = np.float32(0)
        step = np.empty(width, np.float32)
        for row in range(len(pairs)):
            i = pairs[row, 0]
            step[:] = 0
            for sample in range(negatives + 1):
                j = pairs[row, 1] if sample == 0 else int(n * np.random.random() ** skew)
                near = np.float32(0)
                for k in range(width):
                    near += u[i, k] * v[j, k]
                p = one / (one + np.exp(-near))
                slope = p - one if sample == 0 else p
                total -= np.log(max(one - abs(slope), np.float32(1e-30)))
                for k in range(width):
                    step[k] += slope * v[j, k]
                    v[j, k] -= lr_ * slope * u[i, k]
            for k in range(width):
                u[i, k] -= lr_ * step[k]
        return total

    def score(rows: NDArray[Any]) -> NDArray[Any]:
        i, j = rows.astype(int).T
        return np.asarray((u[i] * v[j]).sum(axis=1))

    return Learner(lambda: epoch(u, v, pairs), score)


def machine(c: Numbers, y: Floats, n: int, *, lr: float = 0.01, penalty: float = 0.07, rank: int = 10) -> Learner:
    """Factorisation machine over columns of categories, as rule `fm`; numbers below 0 are unknown."""
    import numba

    f = c.shape[1]
    w, v = np.zeros((f, n), np.float32), _normal(f, n, rank)
    of_size_1, mean, deviation = standardised(y)
    lr_, penalty_, half = np.float32(lr), np.float32(penalty), np.float32(0.5)

    @numba.njit(fastmath=True)
    def epoch(w, v, c, y):  # type: ignore[no-untyped-def]
        total = np.float32(0)
        sums = np.empty(rank, np.float32)
        for row in range(len(y)):
            error, squares = -y[row], np.float32(0)
            sums[:] = 0
            for t in range(f):
                if c[row, t] >= 0:
                    error += w[t, c[row, t]]
                    for k in range(rank):
                        one = v[t, c[row, t], k]
                        sums[k] += one
                        squares += one * one
            for k in range(rank):
                error += half * sums[k] * sums[k]
            error -= half * squares
            total += error * error
            for t in range(f):
                if c[row, t] >= 0:
                    w[t, c[row, t]] -= lr_ * (error + penalty_ * w[t, c[row, t]])
                    for k in range(rank):
                        one = v[t, c[row, t], k]
                        v[t, c[row, t], k] = one - lr_ * (error * (sums[k] - one) + penalty_ * one)
        return total

    def score(rows: NDArray[Any]) -> NDArray[Any]:
        numbers = rows.astype(int)
        known = (numbers >= 0)[:, :, None]
        each = v[np.arange(f), numbers] * known
        pairs = (each.sum(axis=1) ** 2 - (each**2).sum(axis=1)).sum(axis=1) / 2
        return np.asarray(mean + deviation * ((w[np.arange(f), numbers] * known[:, :, 0]).sum(axis=1) + pairs))

    return Learner(lambda: epoch(w, v, c, of_size_1), score)


def recommender(c: Numbers, x: Floats, y: Floats, n: int, *, lr: float = 0.01, k: int = 8, h: int = 16) -> Learner:
    """Embeddings, a layer for the numbers, products of all pairs, a layer on top, as rule `dlrm`."""
    import numba

    f, d = c.shape[1], x.shape[1]
    e, low, low_bias = _normal(f, n, k), _normal(k, d, deviation=0.3, seed=2), np.zeros(k, np.float32)
    pair, direct = _normal(h, f + 1, f + 1, deviation=0.3, seed=3), _normal(h, k, deviation=0.3, seed=4)
    bias, top, end = np.zeros(h, np.float32), _normal(h, deviation=0.3, seed=5), np.zeros(1, np.float32)
    lr_, one = np.float32(lr), np.float32(1)

    @numba.njit(fastmath=True)
    def forward(models, vectors, products, hidden, c, x):  # type: ignore[no-untyped-def]
        e, low, low_bias, pair, direct, bias, top, end = models
        vectors[:] = 0
        for q in range(k):
            total = low_bias[q]
            for j in range(d):
                total += low[q, j] * x[j]
            vectors[0, q] = max(total, np.float32(0))
        for t in range(f):
            if c[t] >= 0:
                for q in range(k):
                    vectors[t + 1, q] = e[t, c[t], q]
        score = end[0]
        for s in range(f + 1):
            for t in range(s):
                total = np.float32(0)
                for q in range(k):
                    total += vectors[s, q] * vectors[t, q]
                products[s, t] = total
        for u in range(h):
            total = bias[u]
            for s in range(f + 1):
                for t in range(s):
                    total += pair[u, s, t] * products[s, t]
            for q in range(k):
                total += direct[u, q] * vectors[0, q]
            hidden[u] = max(total, np.float32(0))
            score += top[u] * hidden[u]
        return score

    @numba.njit(fastmath=True)
    def epoch(models, c, x, y):  # type: ignore[no-untyped-def]
        e, low, low_bias, pair, direct, bias, top, end = models
        vectors, slopes = np.zeros((f + 1, k), np.float32), np.zeros((f + 1, k), np.float32)
        products, back = np.zeros((f + 1, f + 1), np.float32), np.zeros((f + 1, f + 1), np.float32)
        hidden = np.zeros(h, np.float32)
        for row in range(len(y)):
            z = forward(models, vectors, products, hidden, c[row], x[row])
            wrong = one / (one + np.exp(-z)) - y[row]
            slopes[:] = 0
            back[:] = 0
            for u in range(h):
                if hidden[u] > 0:
                    slope = wrong * top[u]
                    for s in range(f + 1):
                        for t in range(s):
                            back[s, t] += slope * pair[u, s, t]
                            pair[u, s, t] -= lr_ * slope * products[s, t]
                    for q in range(k):
                        slopes[0, q] += slope * direct[u, q]
                        direct[u, q] -= lr_ * slope * vectors[0, q]
                    bias[u] -= lr_ * slope
                    top[u] -= lr_ * wrong * hidden[u]
            end[0] -= lr_ * wrong
            for s in range(f + 1):
                for t in range(s):
                    for q in range(k):
                        slopes[s, q] += back[s, t] * vectors[t, q]
                        slopes[t, q] += back[s, t] * vectors[s, q]
            for q in range(k):
                if vectors[0, q] > 0:
                    low_bias[q] -= lr_ * slopes[0, q]
                    for j in range(d):
                        low[q, j] -= lr_ * slopes[0, q] * x[row, j]
            for t in range(f):
                if c[row, t] >= 0:
                    for q in range(k):
                        e[t, c[row, t], q] -= lr_ * slopes[t + 1, q]

    @numba.njit
    def scores(models, c, x):  # type: ignore[no-untyped-def]
        vectors, products = np.zeros((f + 1, k), np.float32), np.zeros((f + 1, f + 1), np.float32)
        hidden, found = np.zeros(h, np.float32), np.zeros(len(c), np.float32)
        for row in range(len(c)):
            found[row] = forward(models, vectors, products, hidden, c[row], x[row])
        return found

    models = (e, low, low_bias, pair, direct, bias, top, end)

    def score(rows: NDArray[Any]) -> NDArray[Any]:
        return np.asarray(scores(models, rows[:, :f].astype(int), rows[:, f:].astype(np.float32)))

    return Learner(lambda: epoch(models, c, x, y), score)


def attention(c: Numbers, y: Floats, n: int, *, lr: float = 0.01, k: int = 8) -> Learner:
    """Attention between columns of categories that are known, as rule `autoint`."""
    import numba

    f, zero, one = c.shape[1], np.float32(0), np.float32(1)
    w, e, end, out = (
        np.zeros((f, n), np.float32),
        _normal(f, n, k),
        np.zeros(1, np.float32),
        _normal(f, k, deviation=0.3),
    )
    heads = [_normal(k, k, deviation=0.4, seed=seed) for seed in (2, 3, 4)]
    models = (w, e, *heads, out, end)
    lr_, root = np.float32(lr), np.float32(np.sqrt(k))

    @numba.njit(fastmath=True)
    def product(a, b):  # type: ignore[no-untyped-def]
        total = zero
        for i in range(k):
            total += a[i] * b[i]
        return total

    @numba.njit(fastmath=True)
    def add(to, factor, what):  # type: ignore[no-untyped-def]
        for i in range(k):
            to[i] += factor * what[i]

    @numba.njit(fastmath=True)
    def forward(models, x, q, r, v, share, read, c):  # type: ignore[no-untyped-def]
        w, e, ask, answer, value, out, end = models
        score = end[0]
        for t in range(f):
            x[t] = 0
            if c[t] >= 0:
                score += w[t, c[t]]
                add(x[t], one, e[t, c[t]])
            for i in range(k):
                q[t, i], r[t, i], v[t, i] = product(ask[i], x[t]), product(answer[i], x[t]), product(value[i], x[t])
        for t in range(f):
            total = zero
            for s in range(f):
                share[t, s] = np.exp(product(q[t], r[s]) / root) if s != t and c[s] >= 0 else zero
                total += share[t, s]
            read[t] = 0
            for s in range(f):
                share[t, s] /= max(total, np.float32(1e-30))
                add(read[t], share[t, s], v[s])
            for i in range(k):
                score += out[t, i] * max(read[t, i], zero)
        return score

    @numba.njit(fastmath=True)
    def epoch(models, c, y):  # type: ignore[no-untyped-def]
        w, e, ask, answer, value, out, end = models
        x, q, r, v, read = [np.zeros((f, k), np.float32) for _ in range(5)]
        dx, dq, dr, dv, dread = [np.zeros((f, k), np.float32) for _ in range(5)]
        share, dfit = np.zeros((f, f), np.float32), np.zeros((f, f), np.float32)
        for row in range(len(y)):
            z = forward(models, x, q, r, v, share, read, c[row])
            wrong = one / (one + np.exp(-z)) - y[row]
            dq[:], dr[:], dv[:], dx[:] = 0, 0, 0, 0
            for t in range(f):
                for i in range(k):
                    dread[t, i] = wrong * out[t, i] if read[t, i] > 0 else zero
                    out[t, i] -= lr_ * wrong * max(read[t, i], zero)
                total = zero
                for s in range(f):
                    dfit[t, s] = product(dread[t], v[s])
                    total += share[t, s] * dfit[t, s]
                    add(dv[s], share[t, s], dread[t])
                for s in range(f):
                    slope = share[t, s] * (dfit[t, s] - total) / root
                    add(dq[t], slope, r[s])
                    add(dr[s], slope, q[t])
            end[0] -= lr_ * wrong
            for t in range(f):
                for i in range(k):
                    add(dx[t], dq[t, i], ask[i])
                    add(dx[t], dr[t, i], answer[i])
                    add(dx[t], dv[t, i], value[i])
            for t in range(f):
                for i in range(k):
                    add(ask[i], -lr_ * dq[t, i], x[t])
                    add(answer[i], -lr_ * dr[t, i], x[t])
                    add(value[i], -lr_ * dv[t, i], x[t])
                if c[row, t] >= 0:
                    w[t, c[row, t]] -= lr_ * wrong
                    add(e[t, c[row, t]], -lr_, dx[t])

    @numba.njit
    def scores(models, c):  # type: ignore[no-untyped-def]
        x, q, r, v, read = [np.zeros((f, k), np.float32) for _ in range(5)]
        share, found = np.zeros((f, f), np.float32), np.zeros(len(c), np.float32)
        for row in range(len(c)):
            found[row] = forward(models, x, q, r, v, share, read, c[row])
        return found

    return Learner(lambda: epoch(models, c, y), lambda rows: np.asarray(scores(models, rows.astype(int))))
