"""Rows that a call returned: a list, a data frame, a table in a notebook.

In: records (dataclasses or mappings). Out: columns. pandas is loaded only for a data frame.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from html import escape
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from dana.errors import UsageError
from dana.extras import install_command
from dana.printable import printable

if TYPE_CHECKING:
    import pandas as pd

Row = TypeVar("Row")
MAX_SHOWN = 100
"""Rows of a table in a notebook; the others are in the list."""


MAX_PRINTED = 20
"""Rows of a table in a terminal."""

LONGEST = 40
"""Characters of a value there."""


class Rows(list[Row]):
    """A list of records, shown as a table; `to_frame` converts it to a data frame."""

    __slots__ = ()

    def columns(self) -> dict[str, list[object]]:
        """The values of each column, in which members of a mapping are columns of their own: ``metrics.auc``."""
        records = [flat(record) for record in self]
        names = dict.fromkeys(name for record in records for name in record)
        return {name: [record.get(name) for record in records] for name in names}

    def to_frame(self) -> pd.DataFrame:
        """The rows as a ``pandas.DataFrame``, with the columns of `columns`."""
        return pandas().DataFrame(self.columns())

    def __repr__(self) -> str:
        shown = Rows(self[:MAX_PRINTED]).columns().items()
        # matrices do not fit into a line
        plain = [(name, values) for name, values in shown if not any(isinstance(each, list) for each in values)]
        texts = [[printable(name), *map(_short, values)] for name, values in plain]
        widths = [max(map(len, column)) for column in texts]
        lines = ["  ".join(map(str.rjust, row, widths)) for row in zip(*texts, strict=True)]
        return "\n".join([*lines, f"({len(self):,} row{'' if len(self) == 1 else 's'})"])

    def _repr_html_(self) -> str:
        if not self:
            return "<p>(0 rows)</p>"
        columns = Rows(self[:MAX_SHOWN]).columns()
        return html_table(list(columns), zip(*columns.values(), strict=True))


def _short(value: object) -> str:
    if value is None:
        return ""
    text = printable(f"{value:.6g}" if isinstance(value, float | np.floating) else str(value))
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def record_of(record: object) -> dict[str, object]:
    """Names and values of a dataclass's fields that are not private, or of a mapping."""
    if is_dataclass(record):
        return {each.name: getattr(record, each.name) for each in fields(record) if not each.name.startswith("_")}
    assert isinstance(record, Mapping)
    return dict(record)


def flat(record: object) -> dict[str, object]:
    """The same, with the members of a mapping as columns of their own."""
    found: dict[str, object] = {}
    for name, value in record_of(record).items():
        found |= (
            {f"{name}.{key}": inner for key, inner in value.items()} if isinstance(value, Mapping) else {name: value}
        )
    return found


def pandas() -> ModuleType:
    """The package pandas.

    Raises
    ------
    UsageError
        It is not installed.
    """
    try:
        return import_module("pandas")
    except ModuleNotFoundError:
        hint = f"Run: {install_command('analyst')}"
        raise UsageError("a data frame needs the package pandas", hint=hint) from None


def html_table(names: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table; without names, two columns with the first as the heading."""
    head = "".join(f"<th>{html_text(name)}</th>" for name in names)
    body = ""
    for row in rows:
        cells = [html_cell(value) for value in row]
        if not names:
            cells[0] = f"<th>{html_text(row[0])}</th>"
        body += f"<tr>{''.join(cells)}</tr>"
    return f"<table>{f'<thead><tr>{head}</tr></thead>' if head else ''}<tbody>{body}</tbody></table>"


def html_cell(value: object) -> str:
    """A value as a cell: numbers shortened, mappings and matrices as tables, None as an empty cell."""
    if isinstance(value, Mapping):
        return f"<td>{html_table([], list(value.items()))}</td>"
    if isinstance(value, list) and value and all(isinstance(each, list) for each in value):
        return f"<td>{html_table([str(k) for k in range(len(value[0]))], value)}</td>"
    if isinstance(value, float | np.floating):
        return f"<td>{float(value):.6g}</td>"
    return f"<td>{'' if value is None else html_text(value)}</td>"


def html_text(value: object) -> str:
    """A text with all markup escaped."""
    return escape(printable(str(value), lines=True))
