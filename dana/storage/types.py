"""PostgreSQL's types that are numbers: one row each, as in pg_extension/src/values/number_types.h and nowhere else.

A Strider reads some of them where they lie; of the others the backend makes `real`, which comes in frames.
"""

from __future__ import annotations

from dataclasses import dataclass

from hwgen.spec.columns import ColumnType


@dataclass(frozen=True, slots=True)
class NumberType:
    """A type whose values become one binary32 each, by the backend.

    Attributes
    ----------
    oid, array_oid, typname, length, align
        pg_type: oid, typarray, typname, typlen, typalign.
    name
        What format_type() writes.
    """

    oid: int
    array_oid: int
    typname: str
    name: str
    length: int
    align: str


@dataclass(frozen=True, slots=True)
class StoredType(NumberType):
    """A type that a Strider reads where it lies.

    Attributes
    ----------
    column
        How it lies there.
    dtype
        NumPy's name of the same.
    arrays
        Whether a Strider reads arrays of it, too.
    """

    column: ColumnType
    dtype: str
    arrays: bool = False


TYPES = (
    StoredType(16, 1000, "bool", "boolean", 1, "c", ColumnType.BOOL, "?"),
    StoredType(21, 1005, "int2", "smallint", 2, "s", ColumnType.INT2, "i2"),
    StoredType(23, 1007, "int4", "integer", 4, "i", ColumnType.INT4, "i4"),
    StoredType(20, 1016, "int8", "bigint", 8, "d", ColumnType.INT8, "i8"),
    StoredType(700, 1021, "float4", "real", 4, "i", ColumnType.FLOAT4, "f4", arrays=True),
    StoredType(701, 1022, "float8", "double precision", 8, "d", ColumnType.FLOAT8, "f8", arrays=True),
    NumberType(1700, 1231, "numeric", "numeric", -1, "i"),
    NumberType(1082, 1182, "date", "date", 4, "i"),
    NumberType(1083, 1183, "time", "time without time zone", 8, "d"),
    NumberType(1266, 1270, "timetz", "time with time zone", 12, "d"),
    NumberType(1114, 1115, "timestamp", "timestamp without time zone", 8, "d"),
    NumberType(1184, 1185, "timestamptz", "timestamp with time zone", 8, "d"),
)

SCALARS = {one.oid: one for one in TYPES if isinstance(one, StoredType)}
"""What a Strider reads, by OID."""

ARRAYS = {one.array_oid: one for one in SCALARS.values() if one.arrays}
"""The types of the elements of arrays that a Strider reads, by the array's OID."""

CONVERTED_SCALARS = frozenset(one.oid for one in TYPES) - SCALARS.keys()
CONVERTED_ARRAYS = frozenset(one.array_oid for one in TYPES) - ARRAYS.keys()
"""OIDs of what the backend makes `real`, and `real[]`."""

ALL_ARRAYS = ARRAYS.keys() | CONVERTED_ARRAYS
"""OIDs of arrays of numbers."""

NUMBERS = SCALARS.keys() | ARRAYS.keys() | CONVERTED_SCALARS | CONVERTED_ARRAYS
"""OIDs of all of these."""

FEATURE_HINT = (
    "A feature is a number, a boolean, a date, a time or an array of them, in a rule of one vector also a text or an "
    "enum: leave the column out with features => ARRAY['a', 'b'], or make a number of it in a query."
)
HINT = (
    "As a label: choose a rule that tells classes apart, such as logistic for two of them, or softmax. " + FEATURE_HINT
)
"""What a user can do about a column of a type that is none of those."""

CATEGORY_HINT = "Number its categories in a query or a view, as docs/recipes.md shows, or name another column."
"""The same where the rule's input takes categories."""

HINTS = {1186: "Make a number of it in a query, such as extract(epoch FROM …)."}
"""The same where a function makes the number: interval, whose months have no length."""
