"""A look at the rows before training: what the columns' means and deviations are, and which values are no numbers.

In: a rule bound to a table, and one pass over the pages, by the simulator's unpacker or by the reference reader. Out:
start values for the models that begin with a statistic of their columns; the same bits whoever looked. A row with a
NaN or an infinity counts for nothing; whether there is one decides how the rows are to come. It trains nothing.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dana.storage.types import SCALARS
from dana.training.contract import Json, Level, Notice, Notify, OutOfLine, SqlState, TrainingError, TrainRequest
from dana.training.data.surveyed import SURVEY_BLOCK, Surveyed
from dana.training.messages.page_errors import ARRAYS
from dana.training.metas import check_requirements
from dsl import Rule
from dsl.hdfg.choice import choosing_inputs
from dsl.hdfg.graph import Graph, Op
from dsl.hdfg.init import OF_TABLE, InitKind
from hwgen.spec.bundle import Bundle

Doubles = NDArray[np.float64]
Floats = NDArray[np.float32]
Place = tuple[str, str, int, int]
"""A column and what it fills: its name, the input, the input's element, how many elements."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistic:
    """A model that begins with a statistic of the columns that fill an input."""

    model: str
    kind: InitKind
    of: str


def statistics_of(graph: Graph) -> tuple[Statistic, ...]:
    """The models of a rule that the table's columns start."""
    found = ((str(node.name), node.init) for node in (graph.nodes[k] for k in graph.models))
    return tuple(Statistic(model=name, kind=init.kind, of=init.of) for name, init in found if init.kind in OF_TABLE)


def started(request: TrainRequest, statistics: tuple[Statistic, ...]) -> tuple[Statistic, ...]:
    """The models that begin with statistics: a warm start has those of its model, but for the number of rows."""
    known = request.warm_start_from or {}
    columns = request.standardize is not False
    return tuple(one for one in statistics if one.kind is InitKind.ROWS or (columns and one.model not in known))


def starts_models(request: TrainRequest, statistics: tuple[Statistic, ...]) -> bool:
    """Whether that takes a pass before the first epoch: statistics of columns, and weights."""
    return bool(started(request, statistics)) or request.weight is not None or request.class_weight is not None


def skips_non_finite(request: TrainRequest) -> bool:
    """Whether rows with a NaN or an infinity are to be left out."""
    return request.nonfinite in (None, "skip")


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """What was seen.

    Attributes
    ----------
    tuples
        Rows of numbers with a weight above 0.
    mean, deviation
        By the rule's name of an input, in its shape; the deviation is that of the rows, not an estimate. A row counts
        as often as its weight says. NaN where nobody wanted them.
    varies
        Likewise, whether an element is not the same in all rows.
    bad
        Likewise, how often an element is NaN or infinite.
    together
        Likewise, of the squared distances from the mean, which part lies between blocks of `SURVEY_BLOCK` rows, one
        after the other: all where the rows are sorted, one in `SURVEY_BLOCK` where they come in random order.
    early
        Likewise the mean of the first rows, `first` of them: between a quarter and a half.
    negative
        How many weights are below 0.
    classes
        Sums of the weights by the label's class.
    kinds
        By the label's class, of rows that have it and rows that do not: as `together`. Empty where nobody asked.
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
        """Rows that `early` is of."""
        return (1 << self.tuples.bit_length()) // 4

    def start(self, statistic: Statistic) -> Floats:
        """The values that a model begins with."""
        if statistic.kind is InitKind.ROWS:
            return np.asarray(self.tuples, dtype=np.float32)
        if statistic.kind is InitKind.MEAN:
            return self.mean[statistic.of].astype(np.float32)
        deviation = self.deviation[statistic.of]
        if statistic.kind is InitKind.DEVIATION:
            return deviation.astype(np.float32)
        largest = np.float64(np.finfo(np.float32).max)
        scale = np.divide(1.0, deviation, out=np.ones_like(deviation), where=deviation > 0)
        return np.asarray(np.minimum(scale, largest), dtype=np.float32)


def survey_of(found: Surveyed, inputs: Iterable[Json]) -> Survey:
    """What the simulator saw, by input; `inputs` as a Bundle's notes have them."""

    def by_input(rows: NDArray[Any]) -> dict[str, NDArray[Any]]:
        return {one["name"]: _taken(rows[one["row"] :], tuple(one["shape"])) for one in inputs}

    def sums(rows: Doubles) -> dict[str, Doubles]:
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
    """Of each class, from how many rows have it, and the sum of squares of how many of a block do, over its rows."""
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
    """What a survey is to fill, for a Bundle of `compile_bundle` and columns of it.

    `classes`, `kinds`: so many classes are weighed, or are looked for in blocks. `summed`: columns whose means and
    deviations are wanted, and so those of all that fill the same input; None: of all.
    """
    rows = {one["name"]: one["row"] for one in bundle.notes["inputs"]}
    row = {column: rows[input] for column, input, _, _ in bundle.notes["fills"]}
    return Surveyed.nothing(
        (bundle.tuple_rows, bundle.config.lanes),
        weight=row.get(weight, -1),
        label=row.get(label, -1),
        classes=classes,
        kinds=kinds,
        summed=None if summed is None else _rows_of(bundle, summed),
    )


def _rows_of(bundle: Bundle, columns: Container[str]) -> set[int]:
    """Rows of a tuple that hold the inputs which these columns fill."""
    filled = {input for column, input, _, _ in bundle.notes["fills"] if column in columns}
    starts = sorted((one["row"], one["name"]) for one in bundle.notes["inputs"])
    ends = [*(row for row, _ in starts[1:]), bundle.tuple_rows]
    return {k for (row, name), end in zip(starts, ends, strict=True) if name in filled for k in range(row, end)}


def columns_to_sum(request: TrainRequest, fills: Iterable[Place], labels: Sequence[str]) -> set[str]:
    """Columns of which `judge` and `dana.training.data.order` want means and deviations, besides weights."""
    exact = {one.name for one in request.relation.attributes if one.type_name == "real"}
    return {
        *labels,
        *categories_of(request),
        *(column for column, _, _, count in fills if count == 1 and column not in exact),
    }


def categories_of(request: TrainRequest) -> dict[str, str]:
    """Columns that a text's categories became, 0 or 1 each, and the text's."""
    encoders = request.metadata.get("preprocess", ())
    texts = [one["column"] for one in encoders if one.get("encode") == "one_hot"]
    encoded = request.metadata.get("encoded", ())
    return {name: text for text in texts for name in encoded if name.startswith(f"{text}=")}


def _taken(rows: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    """Elements as the layout has them: the last axis over the lanes, a scalar in each of them."""
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
    """The same of the values of a rule's inputs, shapes [rows, *shape], row by row as the simulator does it."""
    flat = {name: values.reshape(len(values), -1) for name, values in columns.items()}
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
        # added up one after the other, as NumPy's sum does not
        block, block_squares = (np.cumsum(each, axis=0)[-1] for each in (weighed, weighed * away))
        before, total = total, np.cumsum([total, *weights[first:last]])[-1]
        mean = mean + block / total
        squares = squares + np.maximum(block_squares - block * block / total, 0)
        if last > SURVEY_BLOCK and total > before:
            full = SURVEY_BLOCK / (last % SURVEY_BLOCK or SURVEY_BLOCK)
            between = between + block * block * (before / (total * (total - before) * full))
        if not last & last - 1:
            early, earlier = mean, early
    deviation = np.sqrt(squares / (total or 1.0))
    seen, together = np.zeros(kinds), np.zeros(kinds)
    for first in range(0, len(values) if kinds else 0, SURVEY_BLOCK):
        labels = numbers[counted][first : first + SURVEY_BLOCK]
        in_block = np.bincount(labels[(labels >= 0) & (labels < kinds)].astype(np.intp), minlength=kinds)
        seen += in_block
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
    """Where the survey in C ends its blocks (native/survey.c), from 0 on."""
    powers = [1 << k for k in range(tuples.bit_length())]
    return sorted({0, *powers, *range(SURVEY_BLOCK, tuples, SURVEY_BLOCK), tuples})


class NotFinite(OutOfLine):
    """Rows hold values that are no numbers; the backend leaves such rows out where it makes frames of them."""


class NegativeWeight(OutOfLine):
    """A weight is below 0; the backend names the row where it makes frames of them."""


INTEGERS = {one.name for one in SCALARS.values() if np.dtype(one.dtype).kind in "iu"}
EXACT = 2.0**24
"""Whole numbers up to this one are exact in binary32."""
COMPARED = (
    "Values are compared as real, of about seven digits: where they differ by less, train on their differences from "
    "one of them."
)
COARSE = 0.02
"""Share of a column's deviation that rounding may take."""
MANY = 50
"""Rows from which a column that counts them is no coincidence."""

ORDINARY = 1e3
"""Times that weights may be larger or smaller than 1: a rule's rate and penalty are made for weights of about 1."""


def check_values(request: TrainRequest, survey: Survey) -> None:
    """Raise where pages hold what only frames leave out.

    Raises
    ------
    NotFinite
        A value is none, and such rows are to be left out.
    NegativeWeight
        A weight is below 0.
    """
    if survey.negative:
        raise NegativeWeight(f"a weight in column {request.weight} of {request.relation.name} is negative")
    if skips_non_finite(request) and any(bad.any() for bad in survey.bad.values()):
        raise NotFinite(f"a value in use of {request.relation.name} is NaN or infinite")


def check_survey(
    rule: Rule, request: TrainRequest, survey: Survey, fills: Sequence[Place], labels: Sequence[str], notify: Notify
) -> str:
    """Say what a user should know: of features and labels that they tell nothing, or lose their digits.

    Returns the columns whose values are not all finite, and how many of each are not; empty where all are.

    Raises
    ------
    TrainingError
        All weights are 0.
    NotFinite, NegativeWeight
        As `check_values`.
    """
    check_values(request, survey)
    if not survey.tuples and request.weight is not None:
        raise TrainingError(
            f'every row of {request.relation.name} has the weight 0 in column "{request.weight}"',
            sqlstate=SqlState.DATA_EXCEPTION,
        )
    for column, input, _, _ in (one for one in fills if one[0] == request.weight):
        weight = float(survey.mean[input].item())
        if not 1 / ORDINARY <= weight <= ORDINARY:
            notify(
                Notice(
                    level=Level.WARNING,
                    message=f"weights in {_named(request, column)} are about {weight:.3g}",
                    hint="Rates and penalties are made for weights of about 1: divide the weights by their mean.",
                )
            )
    for column, input, _, _ in (one for one in fills if one[0] in labels):
        if survey.tuples > 1 and not survey.varies[input].any():
            kind = next((one.type_name for one in request.relation.attributes if one.name == column), "real")
            exact = kind == "real" or (kind in INTEGERS and np.abs(survey.mean[input]).max() <= EXACT)
            notify(
                Notice(
                    level=Level.WARNING,
                    message=f"{_named(request, column)}, the label, has a single value in all rows"
                    + ("" if exact else ", as real"),
                    hint="A model can learn nothing but that value." + ("" if exact else f" {COMPARED}"),
                )
            )
    bad = _not_finite(survey, fills)
    if bad:
        notify(
            Notice(
                level=Level.NOTICE,
                message=f"{_columns_of(request)} hold NaN or infinite values, which are kept: {bad}",
                hint="What is computed of them is mostly NaN, and so are the models then: nonfinite => 'skip' leaves "
                "such rows out.",
            )
        )
    _check_numbers(request, survey, [one for one in fills if one[0] not in labels], notify)
    varies = {input: flags.reshape(-1).tolist() for input, flags in survey.varies.items()}
    constant = [
        column
        for column, input, element, count in fills
        if column not in (*labels, request.weight) and not any(varies[input][element : element + count])
    ]
    if constant and survey.tuples > 1:
        chooses = choosing_inputs(rule.hdfg)
        constant = [column for column, input, _, _ in fills if column in constant and input not in chooses]
    if constant and survey.tuples > 1:
        have = "have" if len(constant) > 1 else "has"
        notify(
            Notice(
                level=Level.NOTICE,
                message=f"{_named(request, *constant)} {have} a single value in all rows",
                hint=COMPARED,
            )
        )
    return bad


def check_labels(
    rule: Rule, request: TrainRequest, metas: Mapping[str, float], labels: Sequence[str], values: Doubles | Floats
) -> None:
    """Raise TrainingError where the label's least or largest value breaks what the rule asks for by `dana.require`."""
    graph = rule.hdfg
    outputs = [str(graph.nodes[k].name) for k in graph.inputs if graph.nodes[k].op is Op.OUTPUT]
    if len(outputs) == 1 and len(values):
        for value in (values.min(), values.max()):
            check_requirements(rule, {**metas, outputs[0]: float(value)}, _named(request, labels[0]))


def _named(request: TrainRequest, *columns: str) -> str:
    """Columns of a table, or arrays that somebody gave, for people."""
    arrays = request.relation.name == ARRAYS
    several = "s" if len(columns) > 1 else ""
    names = ", ".join(columns)
    return f"array{several} {names}" if arrays else f"column{several} {names} of {request.relation.name}"


def _columns_of(request: TrainRequest) -> str:
    return "arrays" if request.relation.name == ARRAYS else f"columns of {request.relation.name}"


def _not_finite(survey: Survey, fills: Sequence[Place]) -> str:
    """Columns with values that are NaN or infinite, and how many they have."""
    if not any(bad.any() for bad in survey.bad.values()):
        return ""
    counts = {
        column: int(survey.bad[input].reshape(-1)[element : element + count].sum())
        for column, input, element, count in fills
    }
    return ", ".join(f"{column} ({count})" for column, count in counts.items() if count)


def _check_numbers(request: TrainRequest, survey: Survey, fills: Sequence[Place], notify: Notify) -> None:
    """Say of which columns the machine's numbers are too coarse, and which of them number the rows."""
    types = {one.name: one.type_name for one in request.relation.attributes}
    coarse, counting = [], []
    # numbers that are real already lose nothing, and are not whole
    for column, input, element, _ in (one for one in fills if one[3] == 1 and types.get(one[0], "real") != "real"):
        mean, deviation, early = (
            float(values[input].reshape(-1)[element]) for values in (survey.mean, survey.deviation, survey.early)
        )
        whole = types[column] in INTEGERS
        exact = whole and abs(mean) + deviation < EXACT
        if not exact and 0 < deviation * COARSE < abs(mean) / EXACT:
            coarse.append((column, mean))
        # of a + b × row: deviation b × n / √12, and the mean of the first ones is as far away as their number says
        away = abs(mean - early) / (3**0.5 * (1 - survey.first / max(survey.tuples, 1)))
        in_order = deviation * 12**0.5 > 0.99 * survey.tuples and abs(away - deviation) < 0.01 * deviation
        # of n numbers in a row, each there once, in any order: the variance is (n² - 1) / 12
        in_a_row = abs(12 * deviation**2 + 1 - survey.tuples**2) < 1e-6 * survey.tuples**2
        if whole and survey.tuples >= MANY and (in_order or in_a_row):
            counting.append(column)
    for column, mean in coarse:
        notify(
            Notice(
                level=Level.NOTICE,
                message=f"{_named(request, column)} loses most of its digits: its numbers, near "
                f"{mean:.6g}, become real, which has seven, and differ by less",
                hint=f"Subtract a number in a query or a view, as in {column} - {mean:.0f}.",
            )
        )
    for column in counting:
        notify(
            Notice(
                level=Level.NOTICE,
                message=f"{_named(request, column)} numbers the rows, or nearly so, and is a feature",
                hint="Where it only tells rows apart, name the others with features => ARRAY[…], or make it the "
                "primary key.",
            )
        )
