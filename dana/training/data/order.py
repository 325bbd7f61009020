"""The order in which a table's rows lie: whether rows that are alike lie together, as in a table that was sorted.

In: what a survey found. Out: one NOTICE that names the columns. Of random order, one in `SURVEY_BLOCK` of a column's
variance lies between batches of so many rows; of a sorted column all of it does, however rare what it tells apart is.
Looked at are labels, each class of them too, and features that are 0 or 1, as those made of a text's categories are:
other numbers grow with nearly every table (dates, keys, amounts), and do little harm.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dana.training.contract import Json, Level, Notice, Notify, TrainRequest
from dana.training.data.survey import Doubles, Place, Survey, categories_of
from dana.training.data.surveyed import SURVEY_BLOCK
from dana.training.messages.notices import another_order
from dana.training.messages.page_errors import ARRAYS

TOGETHER = 0.2
"""Part of a column's variance between batches, beyond that of random order, from which its rows lie together."""

SHOWN = 5
"""Columns that are named."""


def notify_order(
    request: TrainRequest, survey: Survey, fills: Sequence[Place], labels: Sequence[str], notify: Notify
) -> bool:
    """Say of which columns the rows lie together; whether there are any."""
    found = []
    for column, input, element, count in fills:
        if column in labels:
            together = _lie_together(survey, survey.together[input]) or _lie_together(survey, survey.kinds)
        else:
            places = slice(element, element + count)
            mean, deviation, parts = (
                one[input].reshape(-1)[places] for one in (survey.mean, survey.deviation, survey.together)
            )
            together = column != request.weight and _lie_together(survey, parts[_flags(mean, deviation)])
        if together:
            found.append(column)
    texts = categories_of(request)
    found.sort(key=lambda one: one not in labels)
    names = list(dict.fromkeys(texts.get(one, one) for one in found))
    if names:
        notify(_in_order(request, names))
    return bool(names)


def kinds_to_count(classes: Json | None) -> int:
    """Of how many of a label's classes a survey counts who lies together: two are told by the label's numbers."""
    count = 0 if classes is None else int(classes["count"])
    return count if count > 2 else 0


def _lie_together(survey: Survey, parts: Doubles) -> bool:
    """Whether such a part of a variance between batches is more than random order has."""
    batches = -(-survey.tuples // SURVEY_BLOCK)
    if batches < 2:
        return False
    random = (batches - 1) / (survey.tuples - 1)
    return bool((parts > random + TOGETHER * (1 - random)).any())


def _flags(mean: Doubles, deviation: Doubles) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    """Which elements are 0 or 1 in all rows: no other numbers of such a mean between them have such a deviation."""
    square = mean * (1 - mean)
    return (square > 0) & (np.abs(deviation * deviation - square) < 1e-9 * square)


def _in_order(request: TrainRequest, columns: Sequence[str]) -> Notice:
    several = len(columns) > 1
    shown = ", ".join(columns[:SHOWN]) + (f" and {len(columns) - SHOWN} more" if len(columns) > SHOWN else "")
    rows = "rows" if request.relation.name == ARRAYS else f"rows of {request.relation.name}"
    named = f"{'arrays' if several else 'array'}" if request.relation.name == ARRAYS else f"column{'s' * several}"
    return Notice(
        level=Level.NOTICE,
        message=f"{rows} that are alike in {named} {shown} lie together, as in a sorted table",
        hint="Rows are trained in their order, and the last ones weigh most, so the model may be bad. Train in "
        f"another: {another_order(request)}.",
    )
