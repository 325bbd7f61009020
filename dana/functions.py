"""Functions of values, in rule text: classes, probabilities, the largest and the smallest of a vector.

Comes in: vectors of a rule. Goes out: values. A rule imports these functions as it would in Python::

    from dana.functions import argmax, one_hot, softmax

The front end reads this file as text; Python imports it for editors and notebooks only. Must not: hold anything but
rule text.
"""

from __future__ import annotations

import dana


def one_hot(number: dana.Number, count: dana.Dim) -> dana.Value:
    """The vector of `count` elements that is 1 at `number`, counted from 0, and 0 elsewhere."""
    return dana.arange(count) == number


def softmax(score: dana.Value, count: dana.Dim) -> dana.Value:
    """Probabilities from a vector of `count` scores.

    The scores' mean is taken off first, and what is above 80 then counts as 80: beyond it exp is no number.
    """
    power = dana.exp(dana.min(score - dana.sigma(score, 1) / count, 80))
    return power * (1 / dana.sigma(power, 1))  # the sum is 1 or more


def argmax(score: dana.Value, count: dana.Dim) -> dana.Value:
    """Where the largest of a vector of `count` elements is, counted from 0; the first of equals."""
    other, own = dana.expand(score, 1), dana.expand(score, 2)
    before = dana.expand(dana.arange(count), 1) < dana.expand(dana.arange(count), 2)
    ahead = dana.sigma(dana.max(other > own, before * (other == own)), 2)
    return dana.sigma(dana.arange(count) * (ahead == 0), 1)


def argmin(score: dana.Value, count: dana.Dim) -> dana.Value:
    """Where the smallest of a vector of `count` elements is, counted from 0; the first of equals."""
    return argmax(-score, count)
