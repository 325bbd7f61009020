"""Functions of values, in rule text: classes as vectors, one scale of columns or in a batch, values left out at random.

In: values of a rule. Out: values. A rule imports these functions as it would in Python::

    from dana.functions import one_hot, standardized

The front end reads this file as text; Python imports it for editors and notebooks only. Must not: hold anything but
rule text.
"""

from __future__ import annotations

import dana


def one_hot(number: dana.Number, count: dana.Dim) -> dana.Value:
    """The vector of `count` elements that is 1 at `number`, counted from 0, and 0 elsewhere."""
    return dana.arange(count) == number


def category(number: dana.Number, column: int, count: dana.Dim, learnt: dana.Value) -> tuple[dana.Value, dana.Number]:
    """The row of a category in a table that has `count` rows for each column, and whether the category is known.

    A number below 0 is unknown: multiply the row's result by 0. A number from `count` on is an error while the rule
    trains. In predictions it is unknown, as is a category without a row in the training: `learnt` has a number for each
    row of the table, which is 0 until a row of the training has chosen it.
    """
    row = dana.max(dana.min(number, count - 1), 0) + column * count
    # no model has a row -1: a number beyond the categories is an error while the rule trains
    chosen = dana.where(dana.training, dana.where(number < count, dana.max(number, 0) + column * count, -1), row)
    met = (number >= 0) * (number < count) * (dana.abs(learnt[row]) > 0)
    return chosen, dana.where(dana.training, number >= 0, met)


def masked_softmax(value: dana.Value, mask: dana.Value) -> dana.Value:
    """Of each row of a matrix, exp over its sum, where `mask` is 1; 0 elsewhere, and in a row that is all masked."""
    largest = dana.stop_gradient(dana.amax(dana.where(mask > 0, value, -1e30), 2))
    # a masked value may exceed the largest of the others, and 0 times an infinite exponential is a NaN
    power = mask * dana.exp(dana.min(value - dana.expand(largest, 2), 0))
    # a row that is all masked has the sum 0
    return power / dana.expand(dana.max(dana.sigma(power, 2), 1e-30), 2)


def dropout(value: dana.Value, rate: dana.Number = 0.5) -> dana.Value:
    """A value with elements set to 0 with probability `rate` while the rule trains, independently for each row.

    The other elements are divided by 1 - rate, so that predictions and the loss of held-out rows use the value itself.
    """
    dana.require(rate >= 0)
    dana.require(rate < 1)
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


def batch_norm(
    rule: dana.Algo,
    value: dana.Value,
    batch: dana.Batch,
    scale: dana.Number = 1,
    shift: dana.Number = 0,
    keep: dana.Number = 0.9,
    epsilon: dana.Number = 1e-5,
) -> dana.Value:
    """A value with mean 0 and deviation 1 in each batch, times `scale`, plus `shift` (Ioffe and Szegedy 2015).

    Predictions use means and variances that run over the batches, states that belong to the model: a batch takes
    1 - keep of them, a short one as much less as it has fewer rows. `scale` and `shift` are models where they are
    learnt. Every row counts, regardless of its weight. A batch needs at least two rows. If the last batch of a table is
    a single row, it becomes `shift` and does not change the running variances.
    """
    dana.require(batch > 1)
    dana.require(keep >= 0)
    dana.require(keep < 1)
    dana.require(epsilon >= 0)
    mean = rule.merge(value, batch, "mean")
    centred = value - mean
    variance = rule.merge(centred * centred, batch, "mean")
    running_mean = dana.state(value)
    running_variance = dana.state(value, init=1)
    rows = rule.merge(1, batch, "+")
    share = (1 - keep) * rows / batch
    spread = (1 - keep) * (rows - 1) / (batch - 1)  # a variance of n rows is one of n - 1 differences
    dana.setState(running_mean, running_mean + share * (mean - running_mean))
    dana.setState(running_variance, running_variance + spread * (variance - running_variance))
    middle = dana.where(dana.training, mean, running_mean)
    width = dana.where(dana.training, variance, running_variance)
    return (value - middle) / dana.sqrt(width + epsilon) * scale + shift
