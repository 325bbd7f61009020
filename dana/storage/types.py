"""PostgreSQL's types, as far as a Strider reads them, and the reasons for refusing the rest."""

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
COVERED = ", ".join([t.name for t in SCALARS.values()] + [t.name for t in ARRAYS.values()])

HINTS = {
    1700: "Store it as real or double precision: ALTER TABLE … ALTER COLUMN … TYPE real.",
    25: "Give labels numbers: add a column with CASE, or an integer foreign key.",
    1043: "Give labels numbers: add a column with CASE, or an integer foreign key.",
    1082: "Train on a number made from it, such as extract(epoch from …)::real in a column of its own.",
    1114: "Train on a number made from it, such as extract(epoch from …)::real in a column of its own.",
    1184: "Train on a number made from it, such as extract(epoch from …)::real in a column of its own.",
    1005: "Store it as real[]: ALTER TABLE … ALTER COLUMN … TYPE real[].",
    1007: "Store it as real[]: ALTER TABLE … ALTER COLUMN … TYPE real[].",
    1016: "Store it as real[]: ALTER TABLE … ALTER COLUMN … TYPE real[].",
    1231: "Store it as real[]: ALTER TABLE … ALTER COLUMN … TYPE real[].",
}


def hint(oid: int) -> str:
    """What a user can do about a column of a type that is not covered."""
    return HINTS.get(oid, f"Use a column of one of the types {COVERED}.")
