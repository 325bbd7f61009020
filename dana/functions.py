"""Functions of values, in rule text: classes as vectors, columns of one scale, values left out at random.

Comes in: values of a rule. Goes out: values. A rule imports these functions as it would in Python::

    from dana.functions import one_hot, standardized

The front end reads this file as text; Python imports it for editors and notebooks only. Must not: hold anything but
rule text.
"""

from __future__ import annotations

import dana


def one_hot(number: dana.Number, count: dana.Dim) -> dana.Value:
    """The vector of `count` elements that is 1 at `number`, counted from 0, and 0 elsewhere."""
    return dana.arange(count) == number


def dropout(value: dana.Value, rate: dana.Number = 0.5) -> dana.Value:
    """A value of which each element is 0 with a probability of `rate` while the rule trains, others in each row.

    What stays is divided by 1 - rate, so that predictions, and the loss of rows left out, take the value as it is.
    """
    kept = (dana.random(value) >= rate) * (1 / (1 - rate))
    return dana.where(dana.training, value * kept, value)


def standardized(value: dana.Value) -> dana.Value:
    """An input with mean 0 and deviation 1 in every column of the table that the rule is trained on.

    A column that is constant becomes 0. Means and scales are states: they belong to the model, and a warm start keeps
    them. Without standardize, or without a table, the input is as it was.
    """
    mean = dana.state(value, init=dana.column_mean(value))
    scale = dana.state(value, init=dana.column_scale(value))
    return (value - mean) * scale
