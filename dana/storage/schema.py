"""The schema of a table: its attributes in attnum order, and which of them a rule uses.

The Strider compiler, the reference reader and the page builder share these types.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass

from dana.errors import UsageError
from dana.storage.layout import ALIGNMENTS
from dana.storage.types import ARRAYS, CATEGORY_HINT, HINT, HINTS, SCALARS

VIRTUAL = "v"
"""pg_attribute.attgenerated of a column that is computed when it is read (PostgreSQL 18)."""


class SchemaError(UsageError):
    """A table or column that cannot be trained on."""


class UnknownColumn(SchemaError):
    """A column does not exist."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribute:
    """One row of pg_attribute.

    Attributes
    ----------
    length
        attlen: bytes, or -1 for varlena, -2 for a C string.
    align
        attalign: c, s, i or d.
    generated
        attgenerated: "s" stored, "v" virtual, "" for an ordinary column.
    has_missing
        atthasmissing: the column was added with a default that old tuples do not hold.
    array_length
        Elements of the array in the table's first row, for array columns; None if the table has no such row.
    out_of_line
        The array in the table's first row is compressed or stored out of line (TOAST).
    number, by_value
        attnum, attbyval: no reader needs them.
    """

    name: str
    type_oid: int
    type_name: str
    length: int
    align: str
    not_null: bool = False
    dropped: bool = False
    generated: str = ""
    has_missing: bool = False
    array_length: int | None = None
    out_of_line: bool = False
    number: int = 0
    by_value: bool = False

    @property
    def alignment(self) -> int:
        return ALIGNMENTS[self.align]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSchema:
    """All attributes of a table, dropped ones included, in attnum order.

    Attributes
    ----------
    part
        Number of values in a part if rows are split (`dana.storage.parts`); 0: a row is a tuple.
    """

    relation: str
    attributes: tuple[Attribute, ...]
    part: int = 0

    def index(self, name: str) -> int:
        """Return the position of a column. Raises UnknownColumn, which lists the existing columns."""
        for position, attribute in enumerate(self.attributes):
            # a dropped column keeps its place, as later columns keep their attnum
            if attribute.name == name and not attribute.dropped:
                return position
        names = {self.attributes[k].name.lower(): self.attributes[k].name for k in self.live()}
        close = difflib.get_close_matches(name.lower(), names, n=1, cutoff=0.7)
        raise UnknownColumn(
            f"column {name!r} of {self.relation} does not exist; it has {self._names()}",
            hint=f"Did you mean {names[close[0]]!r}?" if close else "",
        )

    def no_category(self, position: int) -> SchemaError:
        """Return the error for a column of categories that are not numbers."""
        attribute = self.attributes[position]
        return SchemaError(
            f"column {attribute.name!r} of {self.relation} has type {attribute.type_name}, and the rule wants a number "
            "from 0 for each category: it chooses a row of a model",
            hint=CATEGORY_HINT,
        )

    def usable(self, position: int) -> None:
        """Raise SchemaError with a hint if a Strider cannot read the column."""
        attribute = self.attributes[position]
        where = f"column {attribute.name!r} of {self.relation}"
        if attribute.type_oid not in SCALARS and attribute.type_oid not in ARRAYS:
            raise SchemaError(
                f"{where} has type {attribute.type_name}, which cannot be trained on",
                hint=HINTS.get(attribute.type_oid, HINT),
            )
        if attribute.generated == VIRTUAL:
            raise SchemaError(f"{where} is a virtual generated column and is not stored", hint="Make it STORED.")
        if attribute.has_missing:
            raise SchemaError(
                f"{where} was added with a default that older rows do not hold on their pages",
                hint=f"Rewrite the table once with VACUUM FULL {self.relation}.",
            )

    def live(self) -> tuple[int, ...]:
        """Positions of the columns that are not dropped."""
        return tuple(k for k, attribute in enumerate(self.attributes) if not attribute.dropped)

    def _names(self) -> str:
        names = [self.attributes[k].name for k in self.live()] or ["none"]
        shown = ", ".join(names[:12])
        return shown + (f" and {len(names) - 12} more" if len(names) > 12 else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """A column that a rule reads.

    Attributes
    ----------
    attribute
        Position in the schema.
    input
        Name of the input or output of the rule that it fills.
    element
        First element of the input that it fills.
    count
        Number of elements: 1, or the length of an array column.
    """

    attribute: int
    input: str
    element: int
    count: int
