"""The inputs of an ONNX graph that takes the table's columns, and the nodes that make a model's features of them.

In: `Column`s. Out: one input for each, named as the column, of shape (rows, 1), or (rows, elements) for an array:

- a text or an enum is a string; NULL is ``\\N``, as COPY writes it, or what runtimes make of Python's missing values,
- a date or a time is an int64, as NumPy counts: days since 1970-01-01, or microseconds since then or since midnight
  (with time zone: in UTC); NULL is the least int64, as NumPy's NaT,
- any other is a double; NULL is NaN.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dana.errors import UsageError
from dana.interchange.columns import DATES, DATETIMES, INTEGERS, Column, Kind
from dana.interchange.onnx_nodes import DOUBLE, FLOAT, INT64, ML, NULL_INTEGER, STRING, Nodes

if TYPE_CHECKING:
    import onnx

NULL_TEXTS = ("\\N", "None", "nan", "<NA>")
"""The first for callers; the others are what onnxruntime makes of None, NaN and pandas' NA in an array of objects."""

POSITIVE_INFINITY = np.iinfo(np.int64).max
NEGATIVE_INFINITY = NULL_INTEGER + 1
"""Dates that are not finite; the second is one above PostgreSQL's, which is NULL here."""

SECOND = 1_000_000
HOUR = 3600 * SECOND
DAY = 24 * HOUR
POSTGRES_EPOCH = 10_957
"""Days from 1970-01-01 to 2000-01-01, where PostgreSQL's numbers of dates start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoded:
    """What the nodes make.

    Attributes
    ----------
    inputs
        The graph's inputs.
    features
        Name of the features (float, rows × numbers).
    null
        Name of whether a row has a NULL that nothing replaces (bool, rows × 1); None if all are replaced.
    """

    inputs: list[onnx.ValueInfoProto]
    features: str
    null: str | None


def encode(nodes: Nodes, columns: Sequence[Column], array: int, centres: Sequence[float] = ()) -> Encoded:
    """Append the nodes; arrays have `array` elements; `centres` are those of the numbers, empty without any.

    Raises
    ------
    UsageError
        Categories of a column of integers are the same number in binary64.
    """
    from onnx import helper

    inputs, blocks = [], []
    null: str | None = None
    for column in columns:
        width = array if column.kind is Kind.ARRAY else 1
        kind, meaning = _input(column)
        inputs.append(helper.make_tensor_value_info(column.name, kind, ["rows", width], meaning))
        count = array if column.kind is Kind.ARRAY else len(column.numbers)
        block, missing = _column(nodes, column, np.array([centres[:count] or [0.0]]))
        centres = centres[count:]
        blocks.append(block)
        if column.fill is None:
            null = missing if null is None else nodes.node("Or", null, missing)
    features = blocks[0] if len(blocks) == 1 else nodes.node("Concat", *blocks, axis=1)
    return Encoded(inputs=inputs, features=features, null=null)


def _is_text(column: Column) -> bool:
    return column.kind is Kind.CATEGORY and column.type not in INTEGERS


def _input(column: Column) -> tuple[int, str]:
    """Return the type of a column's input, and what its values mean."""
    if _is_text(column):
        return STRING, f"{column.type}; NULL is {_null_texts(column)[0]}"
    if column.type in DATETIMES:
        unit = "days" if column.type == "date" else "microseconds"
        since = "1970-01-01" if column.type in DATES else "midnight"
        return INT64, f"{column.type}: {unit} since {since}; NULL is {NULL_INTEGER}"
    return DOUBLE, f"{column.type}; NULL is NaN"


def _null_texts(column: Column) -> list[str]:
    return null_texts({text for texts in column.spellings for text in texts})


def null_texts(known: Collection[str]) -> list[str]:
    """Return the texts that stand for NULL: none of the `known` ones, each of which can be a text of PostgreSQL."""
    free = [text for text in NULL_TEXTS if text not in known]
    return free or ["\\" * (1 + max(map(len, known))) + "N"]


def _column(nodes: Nodes, column: Column, centres: NDArray[np.float64]) -> tuple[str, str]:
    """Return a column's numbers (float, rows × numbers), 0 for a NULL without a fill; where it is NULL (rows × 1)."""
    if _is_text(column):
        return _text(nodes, column)
    if column.indicator:
        made, missing = _column(nodes, column.without_indicator, centres[:, : len(column.numbers) - 1])
        mark = nodes.node("Cast", missing, to=FLOAT)
        return nodes.node("Concat", made, mark, axis=1), missing
    if column.type in DATETIMES:
        missing = nodes.node("Equal", column.name, nodes.ints(NULL_INTEGER))
    else:
        missing = nodes.node("IsNaN", column.name)
    if column.kind is Kind.CATEGORY:
        made = _integer(nodes, column)
    elif column.kind is Kind.PARTS:
        made = _parts(nodes, column)
    elif column.type in DATETIMES:
        made = nodes.less(_moment(nodes, column), centres)
    else:
        made = nodes.less(column.name, centres)
    # without a fill the row has no prediction; 0 is computed with, a row that every model has
    fill = (np.array([column.fill or np.zeros(len(column.numbers))]) - centres).astype(np.float32)
    filled = nodes.node("Where", missing, nodes.constant(fill), made)
    if column.kind is Kind.ARRAY:
        largest = nodes.node("ReduceMax", nodes.node("Cast", missing, to=FLOAT), axes=[1], keepdims=1)
        missing = nodes.node("Greater", largest, nodes.constant(np.zeros((1, 1), np.float32)))
    return filled, missing


def _text(nodes: Nodes, column: Column) -> tuple[str, str]:
    """The place of a text among the categories: the last is for other texts, -1 is no place, -2 is NULL."""
    width = len(column.numbers)
    places = {text: k for k, texts in enumerate(column.spellings) for text in texts}
    null = -2 if column.fill is None else column.fill.index(1) if 1 in column.fill else -1
    # after the categories, because the text of a NULL is never a category
    places |= dict.fromkeys(_null_texts(column), null)
    place = nodes.node(
        "LabelEncoder",
        column.name,
        domain=ML,
        keys_strings=list(places),
        values_int64s=list(places.values()),
        default_int64=len(column.categories) if column.other else -1,
    )
    block = nodes.node("OneHotEncoder", place, domain=ML, cats_int64s=list(range(width)), zeros=1)
    missing = nodes.node("Equal", place, nodes.ints(-2))
    return nodes.node("Reshape", block, nodes.ints(-1, width)), missing


def _integer(nodes: Nodes, column: Column) -> str:
    """Compare a whole number with each category; NaN is none."""
    categories = np.array([[float(each) for each in column.categories]]).reshape(1, -1)
    if len(set(categories[0])) < len(column.categories):
        raise UsageError(
            f"column {column.name!r} has categories that are the same number in binary64, which ONNX files here read",
            hint="Train on the column as a text.",
        )
    # in binary64: binary32 would confuse whole numbers from 2**24 on
    known = nodes.node("Cast", nodes.node("Equal", column.name, nodes.constant(categories)), to=FLOAT)
    if not column.other:
        return known
    one = nodes.constant(np.ones((1, 1), np.float32))
    return nodes.node("Concat", known, nodes.node("Sub", one, nodes.node("ReduceSum", known, nodes.ints(1))), axis=1)


def _moment(nodes: Nodes, column: Column) -> str:
    """PostgreSQL's number of a date or a time: days or seconds, from 2000-01-01 or midnight."""
    made = column.name
    if column.type in DATES:
        since = POSTGRES_EPOCH * (1 if column.type == "date" else DAY)
        made = nodes.node("Sub", made, nodes.ints(since))
    made = nodes.node("Cast", made, to=DOUBLE)  # holds microseconds of 285 years
    if column.type != "date":
        made = nodes.node("Div", made, nodes.constant(np.array([SECOND], np.float64)))
    for stands, value in ((POSITIVE_INFINITY, np.inf), (NEGATIVE_INFINITY, -np.inf)):
        infinite = nodes.node("Equal", column.name, nodes.ints(stands))
        made = nodes.node("Where", infinite, nodes.constant(np.array([value])), made)
    return made


def _parts(nodes: Nodes, column: Column) -> str:
    """Parts of a date in the Gregorian calendar, NaN of an infinite one.

    Days are counted from 0000-03-01, so that a leap day ends a year, in eras of 400 years. ONNX's Div of integers cuts
    the fraction off; here no dividend is negative.
    """

    def by(operator: str, left: str, right: str | int) -> str:
        return nodes.node(operator, left, nodes.ints(right) if isinstance(right, int) else right)

    ends = [nodes.node("Equal", column.name, nodes.ints(each)) for each in (POSITIVE_INFINITY, NEGATIVE_INFINITY)]
    infinite = by("Or", *ends)
    # neither NULL nor an infinite date may overflow below
    finite = by("Or", infinite, by("Equal", column.name, NULL_INTEGER))
    value = nodes.node("Where", finite, nodes.ints(0), column.name)
    rest = nodes.ints(0)
    if column.type != "date":
        rest = by("Mod", value, DAY)  # of the sign of the divisor
        value = by("Div", by("Sub", value, rest), DAY)  # exact
    shifted = by("Add", value, 719_468)
    of_era = by("Mod", shifted, 146_097)
    eras = by("Div", by("Sub", shifted, of_era), 146_097)  # exact
    leap = by(
        "Sub",
        by("Add", by("Sub", of_era, by("Div", of_era, 1460)), by("Div", of_era, 36_524)),
        by("Div", of_era, 146_096),
    )
    year_of_era = by("Div", leap, 365)
    before = by("Sub", by("Add", by("Mul", year_of_era, 365), by("Div", year_of_era, 4)), by("Div", year_of_era, 100))
    of_year = by("Sub", of_era, before)
    march = by("Div", by("Add", by("Mul", of_year, 5), 2), 153)  # months since March
    month = by("Add", by("Mod", by("Add", march, 2), 12), 1)
    late = nodes.node("Cast", by("Less", month, 3), to=INT64)  # January and February belong to the year before
    year = by("Add", by("Add", year_of_era, by("Mul", eras, 400)), late)
    found = {
        # there is no year 0: the one before 1 is -1, as extract() has it
        "year": by("Sub", year, nodes.node("Cast", by("Less", year, 1), to=INT64)),
        "month": month,
        "day": by("Add", by("Sub", of_year, by("Div", by("Add", by("Mul", march, 153), 2), 5)), 1),
        "dow": by("Mod", by("Add", value, 4), 7),  # 1970-01-01 was a Thursday
        "hour": by("Div", rest, HOUR),
    }
    zeros = by("Mul", value, 0)  # of a date the hour is a constant, which has one row
    parts = [by("Add", found[part], zeros) if part == "hour" else found[part] for part in column.parts]
    made = nodes.node("Cast", nodes.node("Concat", *parts, axis=1), to=FLOAT)
    return nodes.node("Where", infinite, nodes.constant(np.array([[np.nan]], np.float32)), made)
