"""The survey: statistics of the columns from one pass over the pages.

Means and deviations initialise the models of standardised inputs. The simulator and the reference reader compute them
bit for bit alike. Rows with a NaN or an infinity are not counted; if there are any, the training is repeated with
frames, from which the backend excludes them.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dana.compiler.binding.precision import is_narrow
from dana.trainer.contract import (
    Statistic,
    TrainRequest,
)
from dana.trainer.data.surveyed import SURVEY_BLOCK, Surveyed
from dsl.hdfg.graph import Graph
from dsl.hdfg.init import OF_COLUMNS, OF_TABLE, InitKind
from hwgen.spec.bundle import Bundle, Fill, InputPlace

Doubles = NDArray[np.float64]
Floats = NDArray[np.float32]


def statistics_of(graph: Graph) -> tuple[Statistic, ...]:
    """Return the models of a rule that are initialised from the table."""
    found = ((str(node.name), node.init) for node in (graph.nodes[k] for k in graph.models))
    return tuple(
        Statistic(model=name, kind=init.kind, of=init.of, runs=init.runs)
        for name, init in found
        if init.kind in OF_TABLE
    )


def started(request: TrainRequest, statistics: tuple[Statistic, ...]) -> tuple[Statistic, ...]:
    """Return the models that the survey initialises; after a warm start only the number of rows is from the table."""
    known = request.warm_start_from or {}
    # None is the default of dana_train() and means true
    columns = request.standardize is not False
    return tuple(
        one
        for one in statistics
        if one.kind is InitKind.ROWS or (columns and one.kind in OF_COLUMNS and one.model not in known)
    )


def clustered(request: TrainRequest, statistics: tuple[Statistic, ...]) -> tuple[Statistic, ...]:
    """Return the models that centres of the rows initialise."""
    known = request.warm_start_from or {}
    return tuple(one for one in statistics if one.kind is InitKind.CENTRES and one.model not in known)


def starts_models(request: TrainRequest, statistics: tuple[Statistic, ...]) -> bool:
    """Whether a pass before the first epoch is needed, for statistics or for weights."""
    return bool(started(request, statistics)) or request.weight is not None or request.class_weight is not None


def skips_non_finite(request: TrainRequest) -> bool:
    """Whether rows with a NaN or an infinity are skipped."""
    return request.nonfinite in (None, "skip")


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """Statistics of the rows; mappings are by input, in the shape of the input.

    Attributes
    ----------
    tuples
        Number of finite rows with a weight above 0.
    mean, deviation
        Weighted mean and population standard deviation; NaN where they were not requested.
    varies
        Whether an element differs between rows.
    bad
        Number of NaN and infinite values of an element.
    together
        Fraction of the variance between consecutive blocks of `SURVEY_BLOCK` rows: 1 if the rows are sorted,
        1/`SURVEY_BLOCK` in random order.
    early
        Mean of the first rows, `first` of them: between a quarter and a half.
    negative
        Number of negative weights.
    classes
        Sum of the weights of each class of the label.
    kinds
        As `together`, for the indicator of each class of the label; empty if not requested.
    """

    tuples: int
    mean: Mapping[str, Doubles]
    deviation: Mapping[str, Doubles]
    varies: Mapping[str, NDArray[np.bool_]]
    bad: Mapping[str, Doubles]
    together: Mapping[str, Doubles]
    early: Mapping[str, Doubles]
    negative: int
    classes: Doubles
    kinds: Doubles

    @property
    def first(self) -> int:
        """Number of rows in `early`."""
        return (1 << self.tuples.bit_length()) // 4

    def start(self, statistic: Statistic) -> Floats:
        """Return the initial values of a model."""
        if statistic.kind is InitKind.ROWS:
            return np.asarray(self.tuples, dtype=np.float32)
        if statistic.kind is InitKind.MEAN:
            return self.mean[statistic.of].astype(np.float32)
        deviation = self.deviation[statistic.of]
        if statistic.kind is InitKind.DEVIATION:
            return deviation.astype(np.float32)
        largest = np.float64(np.finfo(np.float32).max)
        scale = np.divide(1.0, deviation, out=np.ones_like(deviation), where=deviation > 0)
        # 1 over a subnormal deviation exceeds binary32; an infinite scale would turn 0 into a NaN
        return np.asarray(np.minimum(scale, largest), dtype=np.float32)


def survey_of(found: Surveyed, inputs: Iterable[InputPlace]) -> Survey:
    """Return the statistics that the simulator collected; `inputs` are those of the Bundle."""

    def by_input(rows: NDArray[Any]) -> dict[str, NDArray[Any]]:
        return {one.name: taken(rows[one.row :], one.shape) for one in inputs}

    def sums(rows: Doubles) -> dict[str, Doubles]:
        # NaN, so that a statistic that was not requested cannot pass for a number
        return by_input(np.where(summed, rows, np.nan))

    summed = found.summed[:, None] != 0
    deviation = np.sqrt(found.squares / (float(found.weights) or 1.0))
    return Survey(
        tuples=int(found.tuples),
        mean=sums(found.mean),
        deviation=sums(deviation),
        varies=by_input(np.where(summed, deviation > 0, found.varies)),
        bad=by_input(found.bad),
        together=sums(_part(found.between, found.squares)),
        early=sums(found.earlier),
        negative=int(found.negative),
        classes=found.classes,
        kinds=_kinds(found.seen, found.together, int(found.tuples)),
    )


def _part(between: Doubles, squares: Doubles) -> Doubles:
    return np.divide(between, squares, out=np.zeros_like(squares), where=squares > 0)


def _kinds(seen: Doubles, together: Doubles, tuples: int) -> Doubles:
    """Return `Survey.kinds` from the rows of each class and the sums of squares of their counts by block."""
    # the sum that equal shares in all blocks would give
    squares = seen * seen / max(tuples, 1)
    return _part(together - squares, seen - squares)


def nothing_surveyed(
    bundle: Bundle,
    *,
    weight: str | None,
    label: str | None,
    classes: int,
    kinds: int,
    summed: Container[str] | None,
) -> Surveyed:
    """Return an empty survey for a Bundle.

    Parameters
    ----------
    classes, kinds
        Number of classes to sum the weights of, and to count by block.
    summed
        Columns that need means and deviations, which are computed for the whole input; None: all.
    """
    rows = {one.name: one.row for one in bundle.inputs}
    row: dict[str | None, int] = {one.column: rows[one.input] for one in bundle.fills}
    return Surveyed.nothing(
        (bundle.tuple_rows, bundle.config.lanes),
        weight=row.get(weight, -1),
        label=row.get(label, -1),
        classes=classes,
        kinds=kinds,
        summed=None if summed is None else _rows_of(bundle, summed),
    )


def _rows_of(bundle: Bundle, columns: Container[str]) -> set[int]:
    """Return the rows of tuple memory of the inputs that contain these columns."""
    filled = {one.input for one in bundle.fills if one.column in columns}
    return {one.row + k for one in bundle.inputs if one.name in filled for k in range(one.rows(bundle.config.lanes))}


def columns_to_sum(request: TrainRequest, fills: Iterable[Fill], labels: Sequence[str]) -> set[str]:
    """Return the columns that need means and deviations for `check_survey` and `dana.trainer.data.order`."""
    exact = {one.name for one in request.relation.attributes if one.type_name == "real"}
    narrow = is_narrow(request.stored_as)
    return {
        *labels,
        *categories_of(request),
        *(one.column for one in fills if narrow or (one.count == 1 and one.column not in exact)),
    }


def categories_of(request: TrainRequest) -> dict[str, str]:
    """Return the 0-or-1 columns of encoded texts, with the column of the text."""
    marks = {"one_hot": "=", "hash": "#"}
    encoders = request.metadata.get("preprocess", ())
    # of dates, "encode" is a list of parts
    texts = [(one["column"], marks[one["encode"]]) for one in encoders if str(one.get("encode")) in marks]
    encoded = request.metadata.get("encoded", ())
    return {
        name: text
        for text, mark in texts
        for name in encoded
        if name.startswith(f"{text}{mark}") or name == f"{text}.null"
    }


def taken(rows: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    """Return the elements of an input: its last axis is laid out over the lanes, a scalar is in every lane."""
    if not shape:
        return np.asarray(rows[0, 0])
    vectors = prod(shape[:-1])
    length = -(-shape[-1] // rows.shape[1])
    return rows[: vectors * length].reshape(vectors, -1)[:, : shape[-1]].reshape(shape)


def survey_columns(
    columns: Mapping[str, Floats],
    *,
    weight: str | None = None,
    label: str | None = None,
    classes: int = 0,
    kinds: int = 0,
) -> Survey:
    """Compute a survey of arrays of shape [rows, *shape], with the operations of the simulator in the same order."""
    flat = {name: values.reshape(len(values), -1) for name, values in columns.items()}
    # binary64 holds each binary32 exactly; sums are rounded as in C
    rows = np.concatenate(list(flat.values()), axis=1).astype(np.float64)
    good = np.isfinite(rows).all(axis=1)
    mean, squares, between = (np.zeros(rows.shape[1]) for _ in range(3))
    total, early, earlier = 0.0, mean, mean
    every = np.ones(len(rows)) if weight is None else columns[weight].astype(np.float64)
    numbers = np.full(len(rows), -1.0) if label is None else columns[label].astype(np.float64)
    sums = np.zeros(classes)
    for one, number in zip(every[good], numbers[good], strict=True):
        if one >= 0 and 0 <= number < classes:
            sums[int(number)] += one
    counted = good & (every > 0)
    values, weights = rows[counted], every[counted]
    for first, last in pairwise(_block_ends(len(values))):
        away = values[first:last] - mean
        weighed = weights[first:last, None] * away
        # numpy.sum adds pairwise; the simulator adds in order, as cumsum does
        block, block_squares = (np.cumsum(each, axis=0)[-1] for each in (weighed, weighed * away))
        before, total = total, np.cumsum([total, *weights[first:last]])[-1]
        # not 0: the rows of weight 0 are left out above
        mean = mean + block / total
        # of equal values, rounding can make the difference negative
        squares = squares + np.maximum(block_squares - block * block / total, 0)
        if last > SURVEY_BLOCK and total > before:
            # the last block counts as if it were full, as in `end_block` of native/survey.c
            full = SURVEY_BLOCK / (last % SURVEY_BLOCK or SURVEY_BLOCK)
            between = between + block * block * (before / (total * (total - before) * full))
        # at powers of two: `earlier` is the mean of half as many rows as `early`
        if not last & last - 1:
            early, earlier = mean, early
    deviation = np.sqrt(squares / (total or 1.0))
    seen, together = np.zeros(kinds), np.zeros(kinds)
    for first in range(0, len(values) if kinds else 0, SURVEY_BLOCK):
        labels = numbers[counted][first : first + SURVEY_BLOCK]
        in_block = np.bincount(labels[(labels >= 0) & (labels < kinds)].astype(np.intp), minlength=kinds)
        seen += in_block
        # by a full block for the last one as well, as in `tally_block` of native/tally.h
        together += in_block * in_block / SURVEY_BLOCK
    ends = np.cumsum([values.shape[1] for values in flat.values()])[:-1]

    def by_input(numbers: NDArray[Any]) -> dict[str, NDArray[Any]]:
        parts = zip(columns.items(), np.split(numbers, ends), strict=True)
        return {name: part.reshape(values.shape[1:]) for (name, values), part in parts}

    return Survey(
        tuples=len(values),
        mean=by_input(mean),
        deviation=by_input(deviation),
        varies=by_input(deviation > 0),
        bad=by_input((~np.isfinite(rows)).sum(axis=0).astype(np.float64)),
        together=by_input(_part(between, squares)),
        early=by_input(earlier),
        negative=int((every[good] < 0).sum()),
        classes=sums,
        kinds=_kinds(seen, together, len(values)),
    )


def _block_ends(tuples: int) -> list[int]:
    """Return the ends of the blocks of native/survey.c, starting with 0."""
    powers = [1 << k for k in range(tuples.bit_length())]
    # short blocks at first: distances are summed from the mean of the blocks before
    return sorted({0, *powers, *range(SURVEY_BLOCK, tuples, SURVEY_BLOCK), tuples})
