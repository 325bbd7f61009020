"""Checks of a training's values against their survey: what cannot be trained, and what is surely not meant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from dana.compiler.binding.precision import is_narrow, narrow_numbers
from dana.predictor.centres import EXACT, NARROW_ROUNDED, is_coarse
from dana.trainer.contract import (
    Level,
    Notice,
    Notify,
    OutOfLine,
    SqlState,
    TrainingError,
    TrainRequest,
)
from dana.trainer.data.centres import INTEGERS, by_column
from dana.trainer.data.survey import Doubles, Floats, Survey, skips_non_finite
from dana.trainer.messages.page_errors import ARRAYS
from dana.trainer.metas import check_requirements
from dsl import Rule
from dsl.hdfg.choice import choosing_inputs
from dsl.hdfg.graph import Op
from hwgen.spec.bundle import Fill


class NotFinite(OutOfLine):
    """Rows contain NaN or infinite values; with frames the backend skips such rows."""


class NegativeWeight(OutOfLine):
    """A weight is negative; with frames the backend names the row."""


COMPARED = "Values are compared as {}, with about {} digits. If they differ by less, subtract one of them from all."
COARSE = 0.02
"""Maximum rounding error relative to the deviation of a column."""
MANY = 50
"""Number of rows from which a column of consecutive numbers is not a coincidence."""

NAMED = 10
"""Columns that a message names at most."""

ORDINARY = 1e3
"""Maximum factor between the mean weight and 1; rates and penalties of rules assume weights of about 1."""


def check_values(request: TrainRequest, survey: Survey) -> None:
    """Raise an error if rows must be streamed as frames.

    Raises
    ------
    NotFinite
        A value is NaN or infinite, and such rows are skipped.
    NegativeWeight
        A weight is negative.
    """
    if survey.negative:
        raise NegativeWeight(f"a weight in column {request.weight} of {request.relation.name} is negative")
    if skips_non_finite(request) and any(bad.any() for bad in survey.bad.values()):
        raise NotFinite(f"a value in use of {request.relation.name} is NaN or infinite")


def check_survey(
    rule: Rule, request: TrainRequest, survey: Survey, fills: Sequence[Fill], labels: Sequence[str], notify: Notify
) -> str:
    """Report constant or badly scaled features, labels and weights.

    Returns
    -------
    str
        Columns with NaN or infinite values and their number, as text for a message; or empty.

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
    for one in (one for one in fills if one.column == request.weight):
        weight = float(survey.mean[one.input].item())
        if not 1 / ORDINARY <= weight <= ORDINARY:
            notify(
                Notice(
                    level=Level.WARNING,
                    message=f"weights in {_named(request, one.column)} are about {weight:.3g}",
                    hint="Rates and penalties assume weights of about 1. Divide the weights by their mean.",
                )
            )
    types = {attribute.name: attribute.type_name for attribute in request.relation.attributes}
    centres = by_column(request, fills, labels)
    varies_by_label = any(survey.varies[one.input].any() for one in fills if one.column in labels)
    if request.centres.label and varies_by_label and request.relation.name != ARRAYS:
        notify(
            Notice(
                level=Level.NOTICE,
                message=f"{_named(request, *labels)}, the label, has more digits than real, the type of dana_predict()",
                hint="dana_predict_double() returns the predictions in double precision.",
            )
        )
    for one in (one for one in fills if one.column in labels):
        if survey.tuples > 1 and not survey.varies[one.input].any():
            kind, centre = types.get(one.column, "real"), centres[one.column].max()
            held = (EXACT, "real", "seven") if not centre else (2.0**53, "double precision", "fifteen")
            exact = kind in ("real", held[1]) or (
                kind in INTEGERS and np.abs(survey.mean[one.input] + centre).max() < held[0]
            )
            notify(
                Notice(
                    level=Level.WARNING,
                    message=f"{_named(request, one.column)}, the label, has a single value in all rows"
                    + ("" if exact else f", as {held[1]}"),
                    hint="A model can learn nothing but that value."
                    + ("" if exact else f" {COMPARED.format(*held[1:])}"),
                )
            )
    bad = _not_finite(survey, fills)
    if bad:
        notify(
            Notice(
                level=Level.NOTICE,
                message=f"{_columns_of(request)} hold NaN or infinite values, which are kept: {bad}",
                hint="Results computed from them are mostly NaN, including the models. Use nonfinite => 'skip' to "
                "exclude such rows.",
            )
        )
    _check_numbers(request, survey, fills, labels, notify)
    _check_narrow(rule, request, survey, fills, notify)
    # lists: `any` on a slice of an array is slow, and a table may have 1,600 columns
    varies = {input: flags.reshape(-1).tolist() for input, flags in survey.varies.items()}
    constant = [
        one.column
        for one in fills
        if one.column not in (*labels, request.weight)
        and not any(varies[one.input][one.element : one.element + one.count])
    ]
    if constant and survey.tuples > 1:
        chooses = choosing_inputs(rule.hdfg)
        constant = [one.column for one in fills if one.column in constant and one.input not in chooses]
    if constant and survey.tuples > 1:
        inexact = [name for name in constant if types.get(name, "real") not in ("real", "boolean", *INTEGERS)]
        have = "have" if len(constant) > 1 else "has"
        notify(
            Notice(
                level=Level.NOTICE,
                message=f"{_named(request, *constant)} {have} a single value in all rows",
                hint=COMPARED.format("real", "seven") if not all(centres[name].all() for name in inexact) else "",
            )
        )
    return bad


def check_labels(
    rule: Rule, request: TrainRequest, metas: Mapping[str, float], labels: Sequence[str], values: Doubles | Floats
) -> None:
    """Raise TrainingError if the smallest or largest label violates a `dana.require` of the rule."""
    graph = rule.hdfg
    outputs = [str(graph.nodes[k].name) for k in graph.inputs if graph.nodes[k].op is Op.OUTPUT]
    # with several labels the tally is of the first one alone
    if len(outputs) == 1 and len(values):
        for value in (values.min(), values.max()):
            check_requirements(rule, {**metas, outputs[0]: float(value)}, _named(request, labels[0]))


def _named(request: TrainRequest, *columns: str) -> str:
    """Format names of columns of a table or of arrays for a message."""
    arrays = request.relation.name == ARRAYS
    several = "s" if len(columns) > 1 else ""
    names = ", ".join(columns[:NAMED]) + (f" and {len(columns) - NAMED} more" if len(columns) > NAMED else "")
    return f"array{several} {names}" if arrays else f"column{several} {names} of {request.relation.name}"


def _columns_of(request: TrainRequest) -> str:
    return "arrays" if request.relation.name == ARRAYS else f"columns of {request.relation.name}"


def _not_finite(survey: Survey, fills: Sequence[Fill]) -> str:
    """Format the columns with NaN or infinite values and their number."""
    if not any(bad.any() for bad in survey.bad.values()):
        return ""
    counts = {
        one.column: int(survey.bad[one.input].reshape(-1)[one.element : one.element + one.count].sum()) for one in fills
    }
    return ", ".join(f"{column} ({count})" for column, count in counts.items() if count)


def _check_narrow(rule: Rule, request: TrainRequest, survey: Survey, fills: Sequence[Fill], notify: Notify) -> None:
    """Warn of columns that bfloat16 represents too coarsely."""
    names = narrow_numbers(rule.hdfg) if is_narrow(request.stored_as) else frozenset()
    coarse = []
    for one in (one for one in fills if one.input in names):
        places = slice(one.element, one.element + one.count)
        mean, deviation = (values[one.input].reshape(-1)[places] for values in (survey.mean, survey.deviation))
        if np.any((deviation > 0) & is_coarse(mean, deviation, narrow=True)):
            coarse.append(one.column)
    if coarse:
        notify(
            Notice(
                level=Level.WARNING,
                message=f"numbers of bfloat16 as large as those of {_named(request, *coarse)} differ by more than "
                f"{2 * NARROW_ROUNDED:.0%} of the standard deviation",
                hint="Use stored_as => 'binary32'; or subtract the mean in a query, or in the rule: "
                "dana.functions.standardized(x) does for features.",
            )
        )


def _check_numbers(
    request: TrainRequest, survey: Survey, fills: Sequence[Fill], labels: Sequence[str], notify: Notify
) -> None:
    """Report columns that binary32 represents too coarsely, and features that number the rows."""
    types = {one.name: one.type_name for one in request.relation.attributes}
    coarse, counting = [], []
    # columns of type real lose no digits
    for one in (one for one in fills if one.count == 1 and types.get(one.column, "real") != "real"):
        mean, deviation, early = (
            float(values[one.input].reshape(-1)[one.element])
            for values in (survey.mean, survey.deviation, survey.early)
        )
        whole = types[one.column] in INTEGERS
        exact = whole and abs(mean) + deviation < EXACT
        # binary32 rounds a number near `mean` by up to abs(mean) / 2^24
        if not exact and 0 < deviation * COARSE < abs(mean) / EXACT:
            coarse.append((one.column, mean))
        # a + b × row has the deviation b × n / √12, and the mean of the first rows differs accordingly
        away = abs(mean - early) / (3**0.5 * (1 - survey.first / max(survey.tuples, 1)))
        in_order = deviation * 12**0.5 > 0.99 * survey.tuples and abs(away - deviation) < 0.01 * deviation
        # n consecutive numbers in any order have the variance (n² - 1) / 12
        in_a_row = abs(12 * deviation**2 + 1 - survey.tuples**2) < 1e-6 * survey.tuples**2
        if whole and survey.tuples >= MANY and (in_order or in_a_row) and one.column not in labels:
            counting.append(one.column)
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
                hint="If it only identifies rows, list the other columns with features => ARRAY[…], or make it the "
                "primary key.",
            )
        )
