"""The numeric types of PostgreSQL. The table must match pg_extension/src/values/number_types.h.

A Strider reads some of them in place; the backend converts the others to `real` in frames.
"""

from __future__ import annotations

from dataclasses import dataclass

from hwgen.spec.columns import ColumnType


@dataclass(frozen=True, slots=True)
class NumberType:
    """A type that the backend converts to binary32.

    Attributes
    ----------
    oid, array_oid, typname, length, align
        pg_type: oid, typarray, typname, typlen, typalign.
    name
        Name as given by format_type().
    """

    oid: int
    array_oid: int
    typname: str
    name: str
    length: int
    align: str


@dataclass(frozen=True, slots=True)
class StoredType(NumberType):
    """A type that a Strider reads in place, also in arrays.

    Attributes
    ----------
    column
        Format on a page.
    dtype
        The equivalent NumPy dtype.
    """

    column: ColumnType
    dtype: str


TYPES = (
    StoredType(16, 1000, "bool", "boolean", 1, "c", ColumnType.BOOL, "?"),
    StoredType(21, 1005, "int2", "smallint", 2, "s", ColumnType.INT2, "i2"),
    StoredType(23, 1007, "int4", "integer", 4, "i", ColumnType.INT4, "i4"),
    StoredType(20, 1016, "int8", "bigint", 8, "d", ColumnType.INT8, "i8"),
    StoredType(700, 1021, "float4", "real", 4, "i", ColumnType.FLOAT4, "f4"),
    StoredType(701, 1022, "float8", "double precision", 8, "d", ColumnType.FLOAT8, "f8"),
    NumberType(1700, 1231, "numeric", "numeric", -1, "i"),
    NumberType(1082, 1182, "date", "date", 4, "i"),
    NumberType(1083, 1183, "time", "time without time zone", 8, "d"),
    NumberType(1266, 1270, "timetz", "time with time zone", 12, "d"),
    NumberType(1114, 1115, "timestamp", "timestamp without time zone", 8, "d"),
    NumberType(1184, 1185, "timestamptz", "timestamp with time zone", 8, "d"),
)

SCALARS = {one.oid: one for one in TYPES if isinstance(one, StoredType)}
"""Types that a Strider reads, by OID."""

ARRAYS = {one.array_oid: one for one in SCALARS.values()}
"""Element types of arrays that a Strider reads, by the OID of the array."""

CONVERTED_SCALARS = frozenset(one.oid for one in TYPES) - SCALARS.keys()
CONVERTED_ARRAYS = frozenset(one.array_oid for one in TYPES) - ARRAYS.keys()
"""OIDs of types that the backend converts to `real`, and to `real[]`."""

ALL_ARRAYS = ARRAYS.keys() | CONVERTED_ARRAYS
"""OIDs of arrays of numbers."""

NUMBERS = SCALARS.keys() | ARRAYS.keys() | CONVERTED_SCALARS | CONVERTED_ARRAYS
"""OIDs of all types that can be trained on."""

FEATURE_HINT = (
    "A feature is a number, a boolean, a date, a time or an array of them, in a rule of one vector also a text or an "
    "enum: leave the column out with features => ARRAY['a', 'b'], or make a number of it in a query."
)
HINT = "As a label: choose a rule for classes, such as logistic for two of them, or softmax. " + FEATURE_HINT
"""Hint for a column of another type."""

CATEGORY_HINT = "Number its categories in a query or a view, as docs/recipes.md shows, or name another column."
"""Hint for such a column in an input of categories."""

HINTS = {1186: "Make a number of it in a query, such as extract(epoch FROM …)."}
"""Hints by OID for types that need a function: the months of an interval have no fixed length."""
