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
    """Probabilities from a vector of `count` scores, whatever their size: the largest is taken off first."""
    power = dana.exp(score - dana.amax(score))
    return power * (1 / dana.sigma(power, 1))  # the sum is 1 or more


def argmax(score: dana.Value, count: dana.Dim) -> dana.Value:
    """Where the largest of a vector of `count` elements is, counted from 0; the first of equals; a NaN if one is."""
    top = dana.amax(score)
    place = -dana.amax(dana.where(score == top, -dana.arange(count), -count))
    return dana.where(top == top, place, top)


def argmin(score: dana.Value, count: dana.Dim) -> dana.Value:
    """Where the smallest of a vector of `count` elements is, counted from 0; the first of equals."""
    return argmax(-score, count)


def standardized(value: dana.Value) -> dana.Value:
    """An input with mean 0 and deviation 1 in every column of the table that the rule is trained on.

    A column that is constant becomes 0. Means and scales are states: they belong to the model, and a warm start keeps
    them. Without standardize, or without a table, the input is as it was.
    """
    mean = dana.state(value, init=dana.column_mean(value))
    scale = dana.state(value, init=dana.column_scale(value))
    return (value - mean) * scale
