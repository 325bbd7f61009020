"""Probabilities of the normal and of Student's distribution."""

from __future__ import annotations

from functools import lru_cache
from math import erfc, exp, lgamma, log, log1p, sqrt

LEVEL = 0.05
"""1 - the level of the confidence intervals."""


def two_sided(statistic: float, freedom: float | None) -> float:
    """Return the probability of a statistic at least as far from 0: Student's t, or normal if `freedom` is None."""
    if freedom is None:
        return erfc(statistic / sqrt(2))
    return incomplete_beta(freedom / 2, 0.5, freedom / (freedom + statistic * statistic))


@lru_cache(maxsize=256)  # groups of equal size ask again
def critical(freedom: float | None) -> float:
    """Return the statistic that is exceeded with probability `LEVEL`."""
    low, high = 0.0, 1e4  # Student's t of one degree of freedom: 12.7
    for _ in range(64):
        middle = (low + high) / 2
        low, high = (middle, high) if two_sided(middle, freedom) > LEVEL else (low, middle)
    return high


def incomplete_beta(a: float, b: float, x: float) -> float:
    """Return the regularised incomplete beta function, by its continued fraction (Numerical Recipes, 6.4)."""
    if not 0 < x < 1:
        return float(x >= 1) if x == x else x
    front = exp(lgamma(a + b) - lgamma(a) - lgamma(b) + a * log(x) + b * log1p(-x))
    if x > (a + 1) / (a + b + 2):
        return 1 - incomplete_beta(b, a, 1 - x)
    tiny = 1e-300
    c, d = 1.0, 1 / ((1 - (a + b) * x / (a + 1)) or tiny)
    result = d
    for k in range(1, 1000):
        for term in (
            k * (b - k) * x / ((a + 2 * k - 1) * (a + 2 * k)),
            -(a + k) * (a + b + k) * x / ((a + 2 * k) * (a + 2 * k + 1)),
        ):
            d = 1 / ((1 + term * d) or tiny)
            c = (1 + term / c) or tiny
            result *= c * d
        if abs(c * d - 1) < 1e-15:
            break
    return front * result / a
