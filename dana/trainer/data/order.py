"""The order in which a training takes the rows; in heap order, a NOTICE names columns by which they are sorted.

A rule that steps by batches trains on its rows in a pseudo-random order.

In random order, 1/`SURVEY_BLOCK` of the variance of a column lies between blocks of that many rows; in a sorted column
all of it does, even for a rare value. The label, each of its classes, and features that are 0 or 1 (such as encoded
categories) are checked. Other numbers, such as dates and keys, grow in nearly every table and do little harm.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from dana.storage.parts import ATTRIBUTES, cut
from dana.storage.permuted import RowOrder
from dana.trainer.contract import Json, Level, Notice, Notify, TrainRequest
from dana.trainer.data.survey import Doubles, Survey, categories_of
from dana.trainer.data.surveyed import SURVEY_BLOCK
from dana.trainer.messages.notices import another_order
from dana.trainer.messages.page_errors import ARRAYS
from dsl.hdfg.graph import Graph
from hwgen.spec.bundle import Fill

TOGETHER = 0.2
"""Fraction of the variance between blocks, in excess of random order, from which a column counts as sorted."""

DEFAULT_SEED = 1

SHOWN = 5
"""Maximum number of columns in the notice."""


def row_order(request: TrainRequest, graph: Graph, columns: Iterable[str], *, whole_table: bool) -> RowOrder | None:
    """Return the order in which a training takes the rows; None: heap order.

    Parameters
    ----------
    graph
        The rule.
    columns
        Columns in use.
    whole_table
        The table is one batch, so that no order makes a difference.
    """
    if whole_table or not (graph.stochastic if request.shuffle is None else request.shuffle):
        return None
    schema, seed = request.relation.schema, DEFAULT_SEED if request.seed is None else request.seed
    if schema.part:
        return RowOrder(seed=seed, used=(ATTRIBUTES - 1,), tuples=len(cut(schema)))
    return RowOrder(seed=seed, used=tuple(sorted({schema.index(name) for name in columns})))


def order_metadata(order: RowOrder | None) -> dict[str, Any]:
    """Return the members of a model's metadata that name a pseudo-random order."""
    return {} if order is None else {"shuffle": True, "seed": order.seed}


def notify_order(
    request: TrainRequest, survey: Survey, fills: Sequence[Fill], labels: Sequence[str], notify: Notify
) -> None:
    """Report the columns by which the rows are sorted."""
    found = []
    for one in fills:
        if one.column in labels:
            together = _lie_together(survey, survey.together[one.input]) or _lie_together(survey, survey.kinds)
        else:
            places = slice(one.element, one.element + one.count)
            mean, deviation, parts = (
                values[one.input].reshape(-1)[places] for values in (survey.mean, survey.deviation, survey.together)
            )
            together = one.column != request.weight and _lie_together(survey, parts[_flags(mean, deviation)])
        if together:
            found.append(one.column)
    texts = categories_of(request)
    # a stable sort: the label first, then columns in their order
    found.sort(key=lambda one: one not in labels)
    # one-hot columns are reported by the text that they encode, once
    names = list(dict.fromkeys(texts.get(one, one) for one in found))
    if names:
        notify(_in_order(request, names))


def kinds_to_count(classes: Json | None) -> int:
    """Return the number of classes to count by block; for two classes the numbers of the label suffice."""
    count = 0 if classes is None else int(classes["count"])
    return count if count > 2 else 0


def _lie_together(survey: Survey, parts: Doubles) -> bool:
    """Whether the fraction of the variance between blocks exceeds that of random order."""
    batches = -(-survey.tuples // SURVEY_BLOCK)
    if batches < 2:
        return False
    # expected share of the variance between `batches` groups of rows in random order (analysis of variance)
    random = (batches - 1) / (survey.tuples - 1)
    return bool((parts > random + TOGETHER * (1 - random)).any())


def _flags(mean: Doubles, deviation: Doubles) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    """Return the elements that are 0 or 1 in all rows: only these have the variance mean * (1 - mean)."""
    square = mean * (1 - mean)
    # the tolerance is that of a sum in binary64; a fraction among the values exceeds it by far
    return (square > 0) & (np.abs(deviation * deviation - square) < 1e-9 * square)


def _in_order(request: TrainRequest, columns: Sequence[str]) -> Notice:
    several = len(columns) > 1
    shown = ", ".join(columns[:SHOWN]) + (f" and {len(columns) - SHOWN} more" if len(columns) > SHOWN else "")
    rows = "rows" if request.relation.name == ARRAYS else f"rows of {request.relation.name}"
    named = f"{'arrays' if several else 'array'}" if request.relation.name == ARRAYS else f"column{'s' * several}"
    return Notice(
        level=Level.NOTICE,
        message=f"{rows} that are alike in {named} {shown} lie together, as in a sorted table",
        hint="Rows are trained in order and the last ones have the greatest effect, so the model may be bad. "
        f"Change the order: {another_order(request)}.",
    )
