"""The fields of a PMML document that takes the table's columns.

In: `Column`s that are not arrays. Out: a DataField and a MiningField for each, named as the column; DerivedFields for
what it becomes, named as in ``metadata.encoded``; for each number of the prediction the fields that it is the sum of.
Texts, enums and integers that are categories are categorical. A boolean is a boolean, any other number a float. A date
or a timestamp is a text that starts like ``2000-12-31`` or ``2000-12-31 23:59``: the functions of PMML on its own dates
are missing from some evaluators, which then see no value.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from xml.etree import ElementTree as Xml

from dana.errors import UsageError
from dana.interchange.columns import DATETIMES, INTEGERS, Column, Kind, free

MOMENT = "2000-01-01 00:00"
"""Computed with in the place of a NULL, since some evaluators compute also what they do not use."""

PLACES = {"year": (1, 4), "month": (6, 2), "day": (9, 2), "hour": (12, 2)}
"""First character, from 1, and length in `MOMENT`."""


class Fields:
    """The fields of columns.

    Parameters
    ----------
    type
        PMML's type of a column of numbers.

    Attributes
    ----------
    data, mining
        DataFields and MiningFields, one for each column.
    derived
        DerivedFields, each after those that it needs.
    terms
        For each number of the prediction, names of the fields that it is the sum of.

    Raises
    ------
    UsageError
        PMML cannot express a column.
    """

    def __init__(self, columns: Sequence[Column], type: str = "float") -> None:
        self._type = type
        self.data: list[Xml.Element] = []
        self.mining: list[Xml.Element] = []
        self.derived: list[Xml.Element] = []
        self.terms: list[tuple[str, ...]] = []
        self._names = {column.name for column in columns}
        self._found: dict[tuple[str, str], str] = {}
        """Names of the fields of numbers in texts, by column and part."""
        for column in columns:
            self._add(column)

    def free(self, name: str) -> str:
        """Return a name for another field, and keep it."""
        name = free(name, self._names)
        self._names.add(name)
        return name

    def _add(self, column: Column) -> None:
        mining = Xml.Element("MiningField", name=column.name)
        self.mining.append(mining)
        self._encode(column.without_indicator if column.indicator else column, mining if not column.indicator else None)
        if column.indicator:
            self.terms.append((self._where_known(column, column.numbers[-1], _constant(0), 1.0),))

    def _encode(self, column: Column, mining: Xml.Element | None) -> None:
        """Derive all numbers but the indicator; `mining` may replace a NULL, unless the column has an indicator."""
        if column.kind is Kind.CATEGORY:
            self._declare(column, "categorical", "integer" if column.type in INTEGERS else "string")
            self._category(column)
            return
        if column.kind is Kind.PARTS:
            self._declare(column, "categorical", "string")
            self._parts(column)
            return
        fill = None if column.fill is None else column.fill[0]
        if column.type == "boolean":
            self._declare(column, "categorical", "boolean")
            self.terms.append((self._indicator(column, column.name, "true", fill),))
        elif column.type == "date":
            self._declare(column, "categorical", "string")
            days = _sum(self._days(column), -730_425)  # from 0000-03-01 to 2000-01-01, where PostgreSQL's numbers start
            self.terms.append((self._where_known(column, column.name, days, fill),))
        elif column.type in DATETIMES:
            raise UsageError(
                f"PMML cannot express column {column.name!r} (type {column.type}) with microsecond precision",
                hint="Export it as ONNX, or train it on parts of the column.",
            )
        else:
            self._declare(column, "continuous", self._type)
            if mining is None:
                known = _apply("+", column.name, 0)
                self.terms.append((self._where_known(column, f"{column.name} known", known, fill),))
                return
            if fill is not None:
                mining.set("missingValueReplacement", repr(fill))
            self.terms.append((column.name,))

    def _declare(self, column: Column, optype: str, kind: str) -> None:
        self.data.append(Xml.Element("DataField", name=column.name, optype=optype, dataType=kind))

    def _derive(self, name: str, expression: Xml.Element, kind: str = "double") -> str:
        name = self.free(name)
        optype = "categorical" if kind == "string" else "continuous"
        field = Xml.Element("DerivedField", name=name, optype=optype, dataType=kind)
        field.append(expression)
        self.derived.append(field)
        return name

    def _indicator(self, column: Column, name: str, value: str, fill: float | None) -> str:
        """Derive 1 where the column has the value, else 0; without `fill`, nothing of a NULL."""
        expression = Xml.Element("NormDiscrete", field=column.name, value=value)
        if fill is not None:
            expression.set("mapMissingTo", repr(fill))
        return self._derive(name, expression)

    def _category(self, column: Column) -> None:
        fills: Collection[float | None] = column.fill or (None,) * len(column.numbers)
        numbers = list(zip(column.numbers, fills, strict=True))
        known: list[str] = []
        for (name, fill), texts in zip(numbers, column.spellings, strict=False):
            fields = tuple(
                # the fields of one category are added up, so that one of them has the NULL's number
                self._indicator(column, name, text, fill if k == 0 or fill is None else 0.0)
                for k, text in enumerate(texts)
            )
            known += fields
            self.terms.append(fields)
        if column.other:
            name, fill = numbers[-1]
            # by what is known: MapValues with a default would need the empty text in an InlineTable,
            # where it is missing
            others = _apply("-", 1, _sum(*known)) if known else _constant(1)
            self.terms.append((self._where_known(column, name, others, fill),))

    def _where_known(self, column: Column, name: str, value: Xml.Element, fill: float | None) -> str:
        """Derive a value, or `fill` of a NULL; without it, nothing."""
        # PMML's functions of a missing value are an error in some evaluators: none is called on one
        known = _apply("isNotMissing", column.name)
        return self._derive(name, _apply("if", known, value, *(() if fill is None else (fill,))))

    def _part(self, column: Column, part: str) -> str:
        """Derive a number in the text of a date or a timestamp."""
        if (column.name, "text") not in self._found:
            text = Xml.Element("FieldRef", field=column.name, mapMissingTo=MOMENT)
            self._found[column.name, "text"] = self._derive(f"{column.name} text", text, "string")
        if (column.name, part) not in self._found:
            start, length = (_constant(place, "integer") for place in PLACES[part])
            cut = _apply("substring", self._found[column.name, "text"], start, length)
            self._found[column.name, part] = self._derive(f"{column.name} {part}", cut)
        return self._found[column.name, part]

    def _days(self, column: Column) -> Xml.Element:
        """Days since 0000-03-01: from then on a leap day ends a year."""
        year, month, day = (self._part(column, part) for part in ("year", "month", "day"))
        early = _apply("lessThan", month, 3)
        since = self._derive(f"{column.name} years", _apply("if", early, _apply("-", year, 1), _apply("+", year, 0)))
        months = _apply("if", early, _apply("+", month, 9), _apply("-", month, 3))
        leaps = [_floor(_apply("/", since, each)) for each in (4, 100, 400)]
        return _sum(
            _apply("*", since, 365),
            leaps[0],
            _apply("*", leaps[1], -1),
            leaps[2],
            _floor(_apply("/", _sum(_apply("*", months, 153), 2), 5)),
            day,
            -1,
        )

    def _parts(self, column: Column) -> None:
        fills: Collection[float | None] = column.fill or (None,) * len(column.numbers)
        for name, part, fill in zip(column.numbers, column.parts, fills, strict=True):
            if part == "hour" and column.type == "date":
                value = _constant(0)
            elif part == "dow":
                # 0000-03-01 was a Wednesday
                days = self._derive(f"{column.name} days", _sum(self._days(column), 3))
                value = _apply("-", days, _apply("*", _floor(_apply("/", days, 7)), 7))
            else:
                value = _apply("+", self._part(column, part), 0)
            self.terms.append((self._where_known(column, name, value, fill),))


def _constant(value: float, kind: str = "double") -> Xml.Element:
    made = Xml.Element("Constant", dataType=kind)
    made.text = repr(value)
    return made


def _apply(function: str, *arguments: Xml.Element | str | float) -> Xml.Element:
    """Call a function of fields (by their names), numbers and other calls."""
    made = Xml.Element("Apply", function=function)
    for each in arguments:
        if isinstance(each, str):
            Xml.SubElement(made, "FieldRef", field=each)
        else:
            made.append(each if isinstance(each, Xml.Element) else _constant(float(each)))
    return made


def _sum(*arguments: Xml.Element | str | float) -> Xml.Element:
    return _apply("sum", *arguments)


def _floor(argument: Xml.Element) -> Xml.Element:
    return _apply("floor", argument)
