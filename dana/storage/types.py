"""PostgreSQL's types, as far as a Strider reads them, and what to do about the rest."""

from __future__ import annotations

from dataclasses import dataclass

from hwgen.spec.columns import ColumnType


@dataclass(frozen=True, slots=True)
class ScalarType:
    """A type whose values become one binary32 each."""

    name: str
    column: ColumnType


@dataclass(frozen=True, slots=True)
class ArrayType:
    """A one-dimensional array whose elements become binary32 values."""

    name: str
    element: ColumnType
    element_oid: int


# catalog/pg_type.dat
SCALARS = {
    16: ScalarType("boolean", ColumnType.BOOL),
    20: ScalarType("bigint", ColumnType.INT8),
    21: ScalarType("smallint", ColumnType.INT2),
    23: ScalarType("integer", ColumnType.INT4),
    700: ScalarType("real", ColumnType.FLOAT4),
    701: ScalarType("double precision", ColumnType.FLOAT8),
}
ARRAYS = {
    1021: ArrayType("real[]", ColumnType.FLOAT4, 700),
    1022: ArrayType("double precision[]", ColumnType.FLOAT8, 701),
}

HINT = (
    "As a label: give its classes in the order of their numbers, classes => ARRAY['no', 'yes']. "
    "As a feature: leave it out with features => ARRAY['a', 'b'], or make a number of it in a query."
)
"""What a user can do about a column of a type that is none of those."""

_SPAN = "Make a number of it in a query, such as extract(epoch FROM …)."
HINTS = {1186: _SPAN, 1266: _SPAN}
"""The same where a function makes the number: interval, time with time zone."""
