"""Start values of models that are centres of clusters: k-means++ and Lloyd's algorithm on a sample of the rows.

The sample is drawn in a pass before the first epoch and depends on the seed and on the order of the rows alone. Its
numbers are rounded to a grid, fine enough for start values, so that every sum is exact: all processors and libraries
find the same centres, regardless of the order in which they add.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import frexp

import numpy as np
from numpy.typing import NDArray

from dana.trainer.contract import Parameter, Sink, Statistic, Training, TrainingError, TrainRequest
from dana.trainer.data.likelihood import Basis, Doubles, Family, LikelihoodObserver, Sum
from dana.trainer.data.order import DEFAULT_SEED
from dsl import compile_rule
from dsl.hdfg.draw import draw

RUNS = 10
"""Number of runs of a rule that does not declare it, as in scikit-learn."""

ROWS = 8192
"""Maximum number of rows of the sample, unless there are many centres."""

NUMBERS = 1 << 20
"""Maximum number of values of the sample: its width times its rows."""

ROWS_PER_CENTRE = 20
"""Minimum number of rows of the sample for each centre, where the table has as many."""

WORK = 1 << 31
"""Products after which no further iteration of Lloyd's algorithm is made: the training continues from there."""

SWAPS = 2
"""Number of attempts for each run to improve the best one."""

ITERATIONS = 100
"""Maximum number of iterations of a run."""


def start_centres(
    training: Training, request: TrainRequest, start: Statistic, *, feed: Callable[[Sink], int]
) -> Parameter:
    """Return the start values of a model: the centres of the best of several runs on a sample of the rows.

    Parameters
    ----------
    feed
        Feeds all pages to a sink.

    Raises
    ------
    TrainingError
        There are more centres than rows that differ.
    """
    models = {one.name: one.values for one in training.parameters()}
    values = models[start.model]
    places = training.layout.inputs[start.of].reshape(-1)
    # the units of `standardized`, where the rule has it
    centre = models.get(f"{start.of}.mean", np.zeros(places.shape, np.float32)).reshape(-1).astype(np.float64)
    scale = models.get(f"{start.of}.scale", np.ones(places.shape, np.float32)).reshape(-1).astype(np.float64)
    seed = DEFAULT_SEED if request.seed is None else request.seed
    most = max(min(ROWS, NUMBERS // places.size), ROWS_PER_CENTRE * len(values))
    observer = LikelihoodObserver(
        family=Family.SAMPLE,
        layout=replace(training.layout, features=places),
        basis=Basis(centre=centre, scale=scale),
        weights=np.zeros((1, places.size + 1)),
        rows=most,
        seed=seed,
    )
    feed(training.look(observer))
    training.end_look()
    rows = observer.matrix[: int(observer.sums[Sum.ROWS]), 1:]
    # a sample that is full may lack rows of the table
    if len(rows) < most and 0 < (distinct := len(np.unique(rows, axis=0))) < len(values):
        raise _too_many(request, start.model, len(values), len(rows), distinct)
    runs = int(training.design["metas"][start.runs]) if start.runs else RUNS
    if len(rows):
        values = centres_of(rows, len(values), runs=runs, seed=seed).astype(np.float32).reshape(values.shape)
    return Parameter(name=start.model, values=values)


def _too_many(request: TrainRequest, model: str, centres: int, rows: int, distinct: int) -> TrainingError:
    graph = compile_rule(request.text, filename=request.rule).hdfg
    dim = next(str(graph.nodes[k].shape[0]) for k in graph.models if graph.nodes[k].name == model)
    same = f", with {distinct} different values" if distinct < rows else ""
    return TrainingError(
        f"rule {request.rule!r} needs at least {centres} different rows for {dim} = {centres}, "
        f"but there are {rows}{same}",
        hint=f"Use a smaller number, as in hyper => '{{\"{dim}\": {distinct}}}', or more rows.",
    )


def centres_of(rows: Doubles, count: int, *, runs: int, seed: int) -> Doubles:
    """Return the centres of the run with the least sum of squared distances, shape [count, columns].

    Parameters
    ----------
    rows
        Shape [rows, columns]; at least one row.
    """
    # twice the bits of a number, and those of a sum of four such products over the columns, fit into binary64's 53
    bits = (50 - int(rows.shape[1]).bit_length()) // 2
    grid = 2.0 ** (bits - frexp(np.abs(rows).max())[1])
    points = np.rint(rows * grid)
    squares = (points * points).sum(axis=1)
    work = (1 + SWAPS) * runs * rows.size * count
    iterations = int(np.clip(WORK // (2 * work) - 4, 2, ITERATIONS))
    best, found = np.inf, points[:0]
    for run in range(runs):
        inertia, centres = _moved(points, squares, _spread(points, squares, count, seed + run), iterations)
        if inertia < best:
            best, found = inertia, centres
    for swap in range(SWAPS * runs if count > 1 else 0):
        swapped = _swapped(points, squares, found, seed + swap, rank=swap % count)
        inertia, centres = _moved(points, squares, swapped, iterations)
        if inertia < best:
            best, found = inertia, centres
    return found / grid


def _draws(purpose: str, count: int, seed: int) -> Doubles:
    """Numbers from 0 to 1 that choose rows, for each centre as many as scikit-learn's k-means++ tries."""
    tries = 2 + int(np.log(count))
    return np.array([draw(purpose, seed, k) >> 11 for k in range(count * tries)]).reshape(count, tries) / 2.0**53


def _distances(points: Doubles, squares: Doubles, centres: Doubles) -> Doubles:
    """Squared distances, shape [rows, centres]; exact, because all are whole numbers below 2**53."""
    # not points @ centres.T, which starts threads of BLAS that wait for a core longer than they compute
    products = np.einsum("ij,kj->ik", points, centres)
    found: Doubles = (squares[:, None] - 2 * products) + (centres * centres).sum(axis=1)
    return found


def _chosen(points: Doubles, squares: Doubles, near: Doubles, numbers: Doubles) -> tuple[int, Doubles]:
    """Return a row by its squared distance `near` from the centres, the best of several; and the distances with it."""
    # in order: unlike a sum, which adds pairwise
    ends = np.cumsum(near)
    rows = np.minimum(np.searchsorted(ends, numbers * ends[-1], side="right"), len(points) - 1)
    nearer = np.minimum(near[:, None], _distances(points, squares, points[rows]))
    best = int(np.argmin(np.cumsum(nearer, axis=0)[-1]))
    return int(rows[best]), nearer[:, best]


def _spread(points: Doubles, squares: Doubles, count: int, seed: int) -> Doubles:
    """Choose rows as centres by k-means++ (Arthur and Vassilvitskii 2007), each the best of several draws."""
    first, *others = _draws("centres", count, seed)
    chosen = [int(first[0] * len(points))]
    near = _distances(points, squares, points[chosen])[:, 0]
    for numbers in others:
        row, near = _chosen(points, squares, near, numbers)
        chosen.append(row)
    return points[chosen]


def _swapped(points: Doubles, squares: Doubles, centres: Doubles, seed: int, *, rank: int) -> Doubles:
    """Replace a centre by a row, chosen as by k-means++; rank 0 is the centre that is needed the least."""
    distances = _distances(points, squares, centres)
    near, second = np.partition(distances, 1, axis=1)[:, :2].T
    needed = np.bincount(np.argmin(distances, axis=1), weights=second - near, minlength=len(centres))
    row, _ = _chosen(points, squares, near, _draws("swap", len(centres), seed)[0])
    swapped = centres.copy()
    swapped[needed.argsort(kind="stable")[rank]] = points[row]
    return swapped


def _moved(points: Doubles, squares: Doubles, centres: Doubles, iterations: int) -> tuple[float, Doubles]:
    """Return the sum of squared distances, and the centres after so many iterations of Lloyd's algorithm."""
    nearest: NDArray[np.intp] | None = None
    for _ in range(iterations):
        before, nearest = nearest, np.argmin(_distances(points, squares, centres), axis=1)
        if before is not None and np.array_equal(before, nearest):
            break
        counts = np.bincount(nearest, minlength=len(centres))
        own = counts > 0
        ends = np.cumsum(counts[own])
        sums = np.add.reduceat(points[np.argsort(nearest, kind="stable")], np.append(0, ends[:-1]), axis=0)
        centres = centres.copy()
        # a centre without a row stays
        centres[own] = np.rint(sums / counts[own, None])
    return float(np.cumsum(_distances(points, squares, centres).min(axis=1))[-1]), centres
