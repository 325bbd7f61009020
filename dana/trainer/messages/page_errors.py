"""Errors for a table that cannot be trained on: a faulty page, an invalid value, or no rows."""

from __future__ import annotations

import re
from collections.abc import Mapping

from dana.storage.layout import ITEM_ID_SIZE, PAGE_HEADER_SIZE
from dana.trainer.contract import OutOfLine, Relation, SqlState, TrainingError, TrainRequest
from dsl.hdfg.choice import category_inputs
from dsl.hdfg.dims import names_of
from dsl.hdfg.graph import Graph
from hwgen.spec.bundle import RowChoice
from hwgen.spec.counters import UNKNOWN_PAGE
from hwgen.spec.strider import Fault

FAULT_TEXTS = {
    Fault.OUT_OF_PAGE: ("the page points outside itself", ""),
    Fault.PAGE_HEADER: ("the page header contradicts itself", ""),
    Fault.LINE_POINTER: ("a line pointer points outside the page's tuples", ""),
    Fault.TUPLE_HEADER: ("a tuple header contradicts itself", ""),
    Fault.TUPLE_SHORT: ("a tuple ends before its columns do", ""),
    Fault.TOASTED: ("a value in use is stored out of line (TOAST)", ""),
    Fault.COMPRESSED: ("a value in use is compressed", ""),
    Fault.ARRAY_SHAPE: (
        "an array in use has another length than the first row's, or more than one dimension",
        "Give all rows arrays of one length: SELECT array_length(…, 1), count(*) … GROUP BY 1 shows which differ.",
    ),
    Fault.ARRAY_NULLS: ("an array in use has NULL elements", ""),
    Fault.STACK: ("the batch has more tuples than the machine's merge stack holds", "Use a smaller batch in merge."),
    Fault.TUPLE_PARTS: ("the parts of a row do not follow one another", ""),
    Fault.RUNAWAY: ("the Strider program did not end on the page", ""),
}
DATA_FAULTS = (Fault.ARRAY_SHAPE, Fault.STACK)
"""Faults that occur with undamaged pages; the others indicate a damaged page."""

ARRAYS, QUERY = "columns", "the query"
"""Names of sources that are not relations: set by `dana.storage.columns` and by pg_extension/src/source/stream.c."""


class PageError(TrainingError):
    """A page stopped the machine; the message names the page, as it was fed."""


def page_error(fault: Fault, relation: Relation, page: int, pointer: int) -> TrainingError:
    """Return the error for a page that stopped the machine."""
    text, hint = FAULT_TEXTS.get(fault, (f"the machine stopped with fault {fault.name}", ""))
    where = relation.name if page == UNKNOWN_PAGE else f"page {page} of {relation.name}"
    if pointer:
        # numbered from 1, as in a ctid (OffsetNumber, off.h)
        where += f", line pointer {(pointer - PAGE_HEADER_SIZE) // ITEM_ID_SIZE + 1}"
    # in frames the backend has read the row already, so asking for frames again would not help
    arrays = relation.pages is not None and any(one.array_length is not None for one in relation.attributes)
    # reading the row through PostgreSQL distinguishes an empty array from a damaged page
    if fault in (Fault.TOASTED, Fault.COMPRESSED, Fault.ARRAY_NULLS) or (fault is Fault.TUPLE_SHORT and arrays):
        return OutOfLine(f"{text} ({where})", sqlstate=SqlState.DATA_EXCEPTION)
    if fault in DATA_FAULTS:
        return PageError(f"{text} ({where})", sqlstate=SqlState.DATA_EXCEPTION, hint=hint)
    return PageError(
        f"{text} ({where})",
        sqlstate=SqlState.DATA_CORRUPTED,
        hint=hint or "The table is damaged: check it with pg_amcheck, and restore it from a backup.",
    )


def row_dims(graph: Graph) -> dict[str, str]:
    """Return, by model, the dim that is its number of rows, if ``hyper`` may set it.

    Parameters
    ----------
    graph
        The unbound graph of the rule.
    """
    rows = {
        str(graph.nodes[k].name): str(shape[0]) for k in graph.models if (shape := graph.symbolic_shape(graph.nodes[k]))
    }
    return {model: dim for model, dim in rows.items() if dim in _said(graph)}


def _said(graph: Graph) -> set[str]:
    """Return the dims that ``hyper`` may set: they have a default and are not determined by columns."""
    decided = {name for k in graph.inputs for dim in graph.symbolic_shape(graph.nodes[k]) for name in names_of(dim)}
    return {name for name, _ in graph.extents} - decided


def dim_of(graph: Graph, choice: RowChoice) -> str | None:
    """Return the dim that is the number of rows to choose from, if ``hyper`` may set it."""
    if choice.category is None:
        return row_dims(graph).get(choice.model)
    dim = next(str(graph.symbolic_count(one)) for one in category_inputs(graph) if one.name == choice.category.input)
    return dim if dim in _said(graph) else None


def row_error(
    relation: Relation,
    choice: RowChoice,
    dim: str | None = None,
    largest: Mapping[str, float | None] | None = None,
) -> TrainingError:
    """Return the error for the number of a row that a model does not have.

    Parameters
    ----------
    dim
        The dim that is the number of rows or categories, if ``hyper`` may set it.
    largest
        See `TrainRequest.largest`.
    """
    model, category = choice.model, choice.category
    last = (choice.rows if category is None else category.count) - 1
    arrays = relation.name == ARRAYS
    columns = [(_in_numpy if arrays else _in_sql)(*column) for column in choice.columns]
    more = f"ive {model} more rows" if category is None else "ive the rule more categories"
    if dim is not None:
        more += f", hyper={{'{dim}': …}}" if arrays else f""", hyper => '{{"{dim}": …}}'"""
    hint = f"G{more}, or see how the rule computes the number."
    if choice.element is not None or category is not None:
        unknown = category is not None and category.unknown
        find, least = _find(relation, columns[0], last, unknown=unknown)
        other = f"{'a negative number or ' * (not unknown)}a fraction"
        known = (largest or {}).get(choice.columns[0][0])
        if known is not None and known <= last:
            help_ = f"None is larger, so that it is {other}: docs/recipes.md shows how to number things from 0"
        else:
            help_ = f"If it is larger, g{more}{'' if dim is None else f': at least {least}'}; {other} has no row"
        hint = f"Find it: {find}. {help_}."
    several = len(columns) > 1
    what = ("array" if arrays else "column") + "s" * several
    what = f"{what} {', '.join(columns)}{'' if arrays else f' of {relation.name}'}"
    says = f"{'choose' if several else 'chooses'} rows of {model}, which are numbered from 0 to {last}"
    if category is not None:
        says = f"holds categories, which are numbered from 0 to {last}{' (below 0: unknown)' * category.unknown}"
    return TrainingError(f"{what} {says}, but a value is not one of these", sqlstate=SqlState.DATA_EXCEPTION, hint=hint)


def _find(relation: Relation, name: str, last: int, *, unknown: bool) -> tuple[str, str]:
    """Return expressions that find the rows with invalid numbers and the required number of rows."""
    outside = f"{name} > {last}" if unknown else f"{name} NOT BETWEEN 0 AND {last}"
    where = f"WHERE {outside} OR {name} <> trunc({name}::numeric)"
    if relation.name == ARRAYS:
        wrong = f"({name} > {last}) | ({name} % 1 != 0)" if unknown else f"~numpy.isin({name}, range({last + 1}))"
        return f"numpy.flatnonzero({wrong})", f"{name}.max() + 1"
    if relation.name == QUERY:
        return (
            f"SELECT * FROM (…) AS r {where}, with the query in the brackets",
            f"SELECT max({name}) + 1 FROM (…) AS r",
        )
    return f"SELECT * FROM {relation.name} {where}", f"SELECT max({name}) + 1 FROM {relation.name}"


def _in_numpy(array: str, element: int | None) -> str:
    return array if element is None else f"{array}[:, {element - 1}]"


def _in_sql(column: str, element: int | None) -> str:
    name = column if re.fullmatch("[a-z_][a-z0-9_]*", column) else '"' + column.replace('"', '""') + '"'
    return name if element is None else f"{name}[{element}]"


def nulls_error(relation: Relation, skipped: int) -> TrainingError:
    """Return the error for rows with a NULL under nulls => 'error'."""
    return TrainingError(
        (f"1 row of {relation.name} has" if skipped == 1 else f"{skipped} rows of {relation.name} have")
        + " a NULL in a column in use",
        sqlstate=SqlState.NULL_VALUE,
        hint="Fill them in, or use nulls => 'skip' or nulls => '0'.",
    )


class NoRows(TrainingError):
    """There is no row, or no complete row."""


def no_rows_error(request: TrainRequest, skipped: int) -> TrainingError:
    """Return the error for a table without a row to train on."""
    relation = request.relation
    if skipped and request.nulls == "error":
        return nulls_error(relation, skipped)
    if skipped:
        # retrying with frames lets the backend name the columns with NULLs
        kind = OutOfLine if relation.pages is not None else NoRows
        return kind(
            f"{relation.name} has no row to train on: all {skipped} have a NULL, a NaN or an infinity "
            "in a column in use",
            sqlstate=SqlState.DATA_EXCEPTION,
            hint="Fill them in, or name other columns with features => ARRAY[…].",
        )
    chosen = [f"argument {name} leaves none" for name in ("filter", "test_size") if name in request.metadata]
    return NoRows(
        f"{relation.name} has no row to train on",
        sqlstate=SqlState.DATA_EXCEPTION,
        hint=f"Perhaps {', or '.join(chosen)}." if chosen else "",
    )
