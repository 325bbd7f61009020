"""Optimisers, learning rates and penalties, in rule text: what follows a merge, ready to use in a rule.

In: values of one batch. Out: the model's next value, or a rate, or a gradient. A rule imports these
functions as it would in Python, and calls them once for each model::

    from dana.optimizers import adam

    logistic.setModel(w, adam(w, gradient, lr))

What they remember from batch to batch is a `dana.state`, such as ``w.velocity``: it belongs to the rule's models
without being listed in ``dana.algo``. For a row that each tuple chooses, ``adam(U[i], gradient)``, there is one for
each row. Gradients and rates may be any values of one batch; numbers may be metas. The
front end reads this file as text; Python imports it for editors and notebooks only. Must not: hold anything but rule
text.

Where one number divides many, many are multiplied by its reciprocal: machines have few units that divide.
"""

from __future__ import annotations

import dana

# the next value of a model


def sgd(model: dana.Value, gradient: dana.Number, rate: dana.Number = 0.01) -> dana.Value:
    """Gradient descent: a step of `rate` against the gradient."""
    return model - rate * gradient


def momentum(model: dana.Value, gradient: dana.Number, rate: dana.Number = 0.01, keep: dana.Number = 0.9) -> dana.Value:
    """Gradient descent with a heavy ball (Polyak 1964): each step keeps `keep` of the step before."""
    dana.require(keep >= 0)
    dana.require(keep < 1)
    velocity = dana.state(model)
    step = keep * velocity + rate * gradient
    dana.setState(velocity, step)
    return model - step


def nesterov(model: dana.Value, gradient: dana.Number, rate: dana.Number = 0.01, keep: dana.Number = 0.9) -> dana.Value:
    """Accelerated gradient descent (Nesterov 1983), in the form that needs no gradient ahead (Sutskever 2013)."""
    dana.require(keep >= 0)
    dana.require(keep < 1)
    velocity = dana.state(model)
    step = rate * gradient
    ahead = keep * velocity + step
    dana.setState(velocity, ahead)
    return model - (step + keep * ahead)


def adagrad(
    model: dana.Value, gradient: dana.Number, rate: dana.Number = 0.1, epsilon: dana.Number = 1e-8
) -> dana.Value:
    """A rate for each element, which falls with the squares that its gradient has summed up to (Duchi 2011)."""
    dana.require(epsilon >= 0)
    squares = dana.state(model)
    total = squares + gradient * gradient
    dana.setState(squares, total)
    # epsilon: the gradient of an element may have been 0 in every batch, and 0 / 0 is a NaN
    return model - rate * gradient / (dana.sqrt(total) + epsilon)


def rmsprop(
    model: dana.Value,
    gradient: dana.Number,
    rate: dana.Number = 0.01,
    keep: dana.Number = 0.9,
    epsilon: dana.Number = 1e-8,
) -> dana.Value:
    """As `adagrad`, but old squares fade, so that the rate does not die (Tieleman and Hinton 2012)."""
    dana.require(keep >= 0)
    dana.require(keep < 1)
    dana.require(epsilon >= 0)
    squares = dana.state(model)
    total = keep * squares + (1 - keep) * gradient * gradient
    dana.setState(squares, total)
    return model - rate * gradient / (dana.sqrt(total) + epsilon)


def adam(
    model: dana.Value,
    gradient: dana.Number,
    rate: dana.Number = 0.001,
    keep: dana.Number = 0.9,
    keep_squares: dana.Number = 0.999,
    epsilon: dana.Number = 1e-8,
) -> dana.Value:
    """Momentum with a rate for each element, corrected for the start from 0 (Kingma and Ba 2015)."""
    dana.require(keep >= 0)
    dana.require(keep < 1)
    dana.require(keep_squares >= 0)
    dana.require(keep_squares < 1)
    dana.require(epsilon >= 0)
    mean = dana.state(model)
    square = dana.state(model)
    # the powers of both factors, as products that run along: the language has no power
    faded = dana.state(model, [], init=1)
    faded_squares = dana.state(model, [], init=1)
    new_mean = keep * mean + (1 - keep) * gradient
    new_square = keep_squares * square + (1 - keep_squares) * gradient * gradient
    new_faded = keep * faded
    new_faded_squares = keep_squares * faded_squares
    dana.setState(mean, new_mean)
    dana.setState(square, new_square)
    dana.setState(faded, new_faded)
    dana.setState(faded_squares, new_faded_squares)
    # epsilon is outside of the root, as in algorithm 1 of the paper
    size = dana.sqrt(new_square * (1 / (1 - new_faded_squares))) + epsilon
    return model - rate / (1 - new_faded) * new_mean / size


# the next values of all models


def conjugate_gradients(parts: list[dana.Part], bounded: dana.Number = 0) -> tuple[list[dana.Value], dana.Value]:
    """Conjugate gradients with exact steps (Hestenes and Stiefel 1952), for smooth convex losses: one step a pass.

    A part is a model, its mean gradient, its direction, and the derivative of the gradient along the directions. The
    number is the most that one of the last three passes gained, in the unit of the loss. If the loss rises at the end
    of a step more steeply than it fell at its start, the curvature has changed on the way, and the step is shortened.
    With `bounded` 1 none is: the curvature is that of a quadratic function above the loss, as in reweighted squares.
    """
    squares: dana.Number = 0
    slope: dana.Number = 0
    curvature: dana.Number = 0
    turn: dana.Number = 0
    known = []
    for model, gradient, direction, product in parts:
        last = dana.state(model)  # the step that led here
        known += [(model, gradient, direction, product, last)]
        squares += dana.total(gradient * gradient)
        slope += dana.total(gradient * direction)
        curvature += dana.total(direction * product)
        turn += dana.total(gradient * last)
    first = parts[0][0]
    start = dana.state(first, [])  # the slope where that step started
    gained, gained_before = dana.state(first, [], init=1e30), dana.state(first, [], init=1e30)
    # less 0, which costs no operation, unless `bounded` is 1
    fits = turn - bounded * 1e38 <= dana.abs(start)
    back = dana.where(turn > 0, dana.max(0.1, start / dana.min(start - turn, -1e-30)), 0.1)
    length = dana.where(curvature == 0, 1, -slope / dana.abs(curvature))
    overlap: dana.Number = 0
    for _model, gradient, _direction, product, _last in known:
        overlap += dana.total((gradient + length * product) * product)
    keep = dana.where(curvature == 0, 0, overlap / curvature)
    values = []
    for model, gradient, direction, product, last in known:
        step = dana.where(fits, length * direction, back * last)
        values += [model + dana.where(fits, step, step - last)]
        dana.setState(last, step)
        dana.setState(direction, dana.where(fits, keep * direction - (gradient + length * product), 0))
    dana.setState(start, dana.where(fits, length * slope, back * start))
    gain = dana.where(fits, dana.where(curvature == 0, squares, dana.abs(length * slope)), turn) / 2
    dana.setState(gained, gain)
    dana.setState(gained_before, gained)
    return values, dana.max(gain, dana.max(gained, gained_before))


def proximal_gradients(parts: list[dana.Part], penalty: dana.Number = 0.01) -> tuple[list[dana.Value], dana.Value]:
    """Least squares with `penalty` × the magnitudes of the first model (FISTA, Beck and Teboulle 2009): a step a pass.

    The second model is the intercept. Steps are as long as the largest curvature permits, which the power method finds
    on the way. Momentum begins again where it leads away from the minimum (O'Donoghue and Candès 2015). The number is
    as for `conjugate_gradients`.
    """
    dana.require(penalty >= 0)
    first = parts[0][0]
    squares: dana.Number = 0
    slopes: dana.Number = 0
    for _model, gradient, _direction, product in parts:
        squares += dana.total(product * product)
        slopes += dana.total(gradient * gradient)
    curvature = largest(dana.sqrt(squares))
    # the first pass only finds a direction
    rate = dana.where(squares == 0, 0, 1 / dana.max(curvature, 1e-30))
    pace = dana.state(first, [], init=1)
    next_pace = (1 + dana.sqrt(1 + 4 * pace * pace)) / 2
    keep = (pace - 1) / next_pace
    starts = []
    targets = []
    for model, gradient, direction, product in parts:
        step, last_gradient = dana.state(model), dana.state(model)
        ahead = model + keep * step
        # of squares the gradient changes linearly
        target = ahead - rate * (gradient + keep * (gradient - last_gradient))
        starts += [(model, step, ahead)]
        targets += [target]
        dana.setState(last_gradient, gradient)
        length = dana.where(squares == 0, slopes, squares)
        dana.setState(direction, dana.where(squares == 0, gradient, product) / dana.sqrt(dana.max(length, 1e-30)))
    # the intercept as a sum alone, so that a label may be centred
    values = [soft_threshold(targets[0], rate * penalty), targets[1]]
    turn: dana.Number = 0
    moved: dana.Number = 0
    for k in range(2):
        model, step, ahead = starts[k]
        turn += dana.total((ahead - values[k]) * (values[k] - model))
        moved += dana.total((ahead - values[k]) * (ahead - values[k]))
        dana.setState(step, values[k] - model)
    dana.setState(pace, dana.where(turn > 0, 1, next_pace))
    gain = curvature * moved / 2
    gained, gained_before = dana.state(first, [], init=1e30), dana.state(first, [], init=1e30)
    dana.setState(gained, gain)
    dana.setState(gained_before, gained)
    return values, dana.max(gain, dana.max(gained, gained_before))


# rates


def inverse_decay(rate: dana.Number, per_batch: dana.Number = 0.001) -> dana.Value:
    """The rate divided by 1 + `per_batch` × the batches before this one (Robbins and Monro 1951)."""
    dana.require(per_batch >= 0)
    batches = dana.state(rate, [])
    dana.setState(batches, batches + 1)
    return rate / (1 + per_batch * batches)


def exponential_decay(rate: dana.Number, keep: dana.Number = 0.999) -> dana.Value:
    """The rate, multiplied by `keep` after each batch."""
    dana.require(keep > 0)
    dana.require(keep <= 1)
    share = dana.state(rate, [], init=1)
    dana.setState(share, keep * share)
    return rate * share


def largest(value: dana.Value) -> dana.Value:
    """The largest that a value has been in any batch so far, element by element, and at least 0."""
    seen = dana.state(value)
    now = dana.max(seen, value)
    dana.setState(seen, now)
    return now


def steady_rate(rate: dana.Number, curvature: dana.Value) -> dana.Value:
    """A decaying rate in the unit of the usual curvature, that of the last hundred batches: for features of any scale.

    A batch far steeper than usual takes a step in its own unit, five times shorter: momentum repeats the step about ten
    times before such a batch comes again and could correct it. The decay is fast for a thousand batches, so that a
    small table's noise is averaged away, and four times slower from there on, so that a large table is learnt to its
    end.
    """
    dana.require(rate > 0)
    batches = dana.state(rate, [])
    usual = dana.state(curvature)
    dana.setState(batches, batches + 1)
    dana.setState(usual, usual + (curvature - usual) / dana.min(batches + 1, 100))
    decay = dana.min(1 + 0.004 * batches, 4 + 0.001 * batches)
    return rate / dana.max(decay * usual, 5 * (curvature - usual))


def running_mean(value: dana.Value, keep: dana.Number = 0.9) -> dana.Value:
    """The mean of a value over recent batches, each leaving `keep` of its weight to the next; no bias at the start."""
    dana.require(keep >= 0)
    dana.require(keep < 1)
    total = dana.state(value)
    weight = dana.state(value, [])
    new_total = keep * total + (1 - keep) * value
    new_weight = keep * weight + (1 - keep)
    dana.setState(total, new_total)
    dana.setState(weight, new_weight)
    return new_total * (1 / new_weight)


# gradients and penalties


def clip(gradient: dana.Number, bound: dana.Number) -> dana.Value:
    """The gradient with every element brought into -`bound` … `bound`."""
    dana.require(bound >= 0)
    return dana.max(-bound, dana.min(gradient, bound))


def clip_norm(gradient: dana.Value, bound: dana.Number) -> dana.Value:
    """A vector's gradient, shortened to the length `bound` where it is longer."""
    dana.require(bound > 0)
    # for a gradient of 0 the quotient is infinite, and the factor 1
    return gradient * dana.min(1, bound / dana.norm(gradient, 1))


def l2(model: dana.Value, gradient: dana.Number, penalty: dana.Number) -> dana.Value:
    """The gradient with that of `penalty` / 2 × the sum of the model's squares."""
    dana.require(penalty >= 0)
    return gradient + penalty * model


def l1(model: dana.Value, gradient: dana.Number, penalty: dana.Number) -> dana.Value:
    """The gradient with a subgradient of `penalty` × the sum of the model's magnitudes."""
    dana.require(penalty >= 0)
    return gradient + penalty * ((model > 0) - (model < 0))


def soft_threshold(value: dana.Number, amount: dana.Number) -> dana.Value:
    """The value, brought towards 0 by `amount` and no further: the proximal step of an L1 penalty."""
    dana.require(amount >= 0)
    return dana.max(value - amount, 0) + dana.min(value + amount, 0)
