"""The columns of a model's table, and the numbers that each becomes.

In: a model's metadata. Out: `Column`s in the order of the prediction's inputs. ``pg_extension/src/values/encode.c``
does the same to the rows of a training and of ``dana_predict``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from dana.errors import UsageError
from dana.records import Metadata, Preprocessed

NUMBERS = ("smallint", "integer", "bigint", "real", "double precision", "numeric")
INTEGERS = NUMBERS[:3]

DATES = ("date", "timestamp", "timestamptz")
DATETIMES = (*DATES, "time", "timetz")
"""As metadata.types has them, also for arrays of them."""

PARTS = ("year", "month", "day", "dow", "hour")


class Kind(Enum):
    """What becomes of a value."""

    NUMBER = "number"
    ARRAY = "array"  # a number for each element
    CATEGORY = "category"  # a 1 at its category's place among zeros
    PARTS = "parts"  # of a date or a timestamp


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of the table.

    Attributes
    ----------
    name, type
        Its name, and SQL's name of its type; empty if unknown.
    numbers
        Names of the numbers that it becomes: ``city=Berlin``, ``since.year``.
    categories, other
        Texts in the order of their numbers; whether one more number is for all other texts.
    parts
        Of a date: some of `PARTS`.
    indicator
        Whether one more number, the last, is 1 for a NULL, else 0.
    fill
        The numbers of a NULL; None: a row with a NULL has no prediction.
    """

    name: str
    type: str = ""
    kind: Kind = Kind.NUMBER
    numbers: tuple[str, ...]
    categories: tuple[str, ...] = ()
    other: bool = False
    parts: tuple[str, ...] = ()
    indicator: bool = False
    fill: tuple[float, ...] | None = None

    @property
    def spellings(self) -> tuple[tuple[str, ...], ...]:
        """The texts of each category: of ``char(n)``, also the one with blanks at its end, as clients read it."""
        if not self.type.startswith("character("):
            return tuple((each,) for each in self.categories)
        wide = int(self.type.removeprefix("character(").removesuffix(")"))
        return tuple(tuple(dict.fromkeys((each, each.ljust(wide)))) for each in self.categories)

    @property
    def without_indicator(self) -> Column:
        """The column without the number that is 1 for a NULL."""
        assert self.fill is not None
        return replace(self, numbers=self.numbers[:-1], fill=self.fill[:-1], indicator=False)

    def elements(self, length: int, columns: Collection[str]) -> tuple[Column, ...]:
        """The elements of an array as columns, named with their index from 1, and unlike all columns."""
        names = (free(f"{self.name}_{k + 1}", columns) for k in range(length))
        fills = [self.fill] * length if self.fill is None or len(self.fill) == 1 else [(one,) for one in self.fill]
        return tuple(
            replace(self, name=name, numbers=(name,), kind=Kind.NUMBER, fill=fill)
            for name, fill in zip(names, fills, strict=True)
        )


def free(name: str, taken: Collection[str]) -> str:
    """Return the name, with a ``_`` appended while it is taken."""
    while name in taken:
        name += "_"
    return name


def read_columns(metadata: Metadata) -> tuple[Column, ...]:
    """Read the columns of a model's features.

    Raises
    ------
    UsageError
        A column is encoded in a way that is unknown here.
    KeyError, TypeError, ValueError
        The metadata lacks or misnames a field.
    """
    types = metadata.get("types", {})
    encoders = metadata.get("preprocess")
    if not encoders:
        names: Sequence[str] = metadata.get("features", ())
        return tuple(Column(name=name, type=types.get(name, ""), numbers=(name,)) for name in names)
    columns, names = [], metadata["encoded"]
    for encoder in encoders:
        column = _column(encoder, types)
        width = len(column.numbers)
        columns.append(replace(column, numbers=tuple(names[:width])))
        names = names[width:]
    return tuple(columns)


def _column(encoder: Preprocessed, types: Mapping[str, str]) -> Column:
    """Read one encoder; its numbers have no names yet."""
    name, encode, fill = encoder["column"], encoder.get("encode"), encoder.get("impute")
    # a member that is not known may change what the numbers mean
    unknown = encoder.keys() - {"column", "encode", "impute", "categories", "other", "indicator"}
    indicator = encoder.get("indicator", False)
    made = Column(
        name=name,
        type=types.get(name, ""),
        numbers=("",) * (1 + indicator),
        indicator=indicator,
        fill=None if fill is None else tuple(map(float, fill)),
    )
    if encode is None and not unknown:
        return made
    if encode == "array" and not unknown:
        return replace(made, kind=Kind.ARRAY)
    if encode == "one_hot" and not unknown:
        categories, other = tuple(encoder["categories"]), encoder["other"]
        width = len(categories) + other + indicator
        return replace(made, kind=Kind.CATEGORY, numbers=("",) * width, categories=categories, other=other)
    if isinstance(encode, list) and set(encode) <= set(PARTS) and not unknown:
        return replace(made, kind=Kind.PARTS, numbers=("",) * (len(encode) + indicator), parts=tuple(encode))
    raise UsageError(
        f"column {name!r} is encoded in a way that exports cannot express: {encoder}",
        hint="Export the model as JSON, or train it with another encoding of the column.",
    )
