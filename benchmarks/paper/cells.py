"""Tables whose cells say where they are from.

In: numbers. Out: `Table`s of `Cell`s: computed by this project's cycle model, measured here, quoted, chosen for want of
a source, or not there, with the reason.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from benchmarks.paper.evidence import CHOSEN, Figure


class Mark(StrEnum):
    """Where a cell is from."""

    COMPUTED = "computed"
    MIXED = "mixed"
    MEASURED = "measured"
    QUOTED = "quoted"
    CHOSEN = "chosen"
    MISSING = "missing"
    LABEL = "label"

    @property
    def letter(self) -> str:
        """What stands behind a number in text."""
        return {Mark.MISSING: "", Mark.LABEL: "", Mark.CHOSEN: "*", Mark.MIXED: "cm"}.get(self, self.value[0])


MEANINGS = {
    Mark.COMPUTED: "computed: by this project's cycle and area model, and by arithmetic on other cells",
    Mark.MIXED: "computed from what was measured here, in this run",
    Mark.MEASURED: "measured here, in this run",
    Mark.QUOTED: "quoted, with the number of its source below",
    Mark.CHOSEN: "chosen here, since no source says",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """A number or a word, and where it is from.

    Attributes
    ----------
    text
        What people read, with its unit.
    value, unit
        For programs; None where it is no number.
    note
        How it was come by; why it is missing.
    source
        Of what is quoted: a key of `Evidence.sources`.
    """

    text: str
    mark: Mark
    value: float | None = None
    unit: str = ""
    note: str = ""
    source: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table or figure of the evaluation.

    Attributes
    ----------
    name
        A key, for programs.
    about
        What it shows, and how it was come by.
    heads
        Of the columns after the first.
    rows
        Each with its name.
    """

    name: str
    title: str
    about: str
    first: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Cell, ...]], ...]

    def column(self, head: str) -> Iterator[tuple[str, Cell]]:
        """The cells below a head, with their rows' names."""
        k = self.heads.index(head)
        return ((name, cells[k]) for name, cells in self.rows)

    def notes(self) -> list[str]:
        """What there is to say of cells, each once, with the rows that it is said of."""
        said: dict[str, list[str]] = {}
        for name, cells in self.rows:
            heads: dict[str, list[str]] = {}
            for head, cell in zip(self.heads, cells, strict=True):
                if cell.note:
                    heads.setdefault(cell.note, []).append(head)
            for note, above in heads.items():
                several = cells[self.heads.index(above[0])].mark is Mark.MISSING and len(above) < len(cells)
                said.setdefault(f"{', '.join(above)}: {note}" if several else note, []).append(name)
        most = 0.5 * len(self.rows)
        return [
            note if len(names) > most else f"{', '.join(dict.fromkeys(names))}: {note}" for note, names in said.items()
        ]

    def document(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "name": self.name,
            "title": self.title,
            "about": self.about,
            "columns": list(self.heads),
            "rows": [
                {
                    "name": name,
                    "cells": [asdict(cell) for cell in cells],
                }
                for name, cells in self.rows
            ],
        }


def number(mark: Mark, value: float, unit: str = "", note: str = "", source: str = "") -> Cell:
    """A number."""
    return Cell(text=written(value, unit), mark=mark, value=value, unit=unit, note=note, source=source)


def computed(value: float | str, unit: str = "", note: str = "") -> Cell:
    """By the model; a text is why there is nothing."""
    return missing(value) if isinstance(value, str) else number(Mark.COMPUTED, value, unit, note)


def mixed(value: float | str, unit: str = "") -> Cell:
    """By the model, from what was measured here; a text is why there is nothing."""
    return missing(value) if isinstance(value, str) else number(Mark.MIXED, value, unit)


def measured(value: float | str | None, unit: str = "", note: str = "") -> Cell:
    """Here; None, or a text that says why: not."""
    if value is None or isinstance(value, str):
        return missing(value or "not measured in this run")
    return number(Mark.MEASURED, value, unit, note)


def quoted(figure: Figure, unit: str = "", note: str = "") -> Cell:
    """A figure of the file; one that was chosen is marked so."""
    mark = Mark.CHOSEN if figure.source == CHOSEN else Mark.QUOTED
    return number(mark, figure.value, unit, note, figure.source)


def words(mark: Mark, text: str, source: str = "") -> Cell:
    """A text."""
    return Cell(text=text, mark=mark, source=source)


def missing(why: str = "") -> Cell:
    """Nothing, and why."""
    return Cell(text="–", mark=Mark.MISSING, note=why)


def written(value: float, unit: str) -> str:
    """As people read it: seconds in the unit that suits."""
    if unit == "s":
        for factor, name in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
            if value >= factor or name == "µs":
                return f"{_digits(value / factor)} {name}"
    if unit == "%":
        return f"{100 * value:.0f} %"
    return f"{_digits(value)} {unit}".strip()


def _digits(value: float) -> str:
    """Three that count; more where a number is whole."""
    if value == int(value) or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.2f}" if abs(value) < 10 else f"{value:.1f}"


def by_name(rows: Mapping[str, Sequence[Cell]]) -> tuple[tuple[str, tuple[Cell, ...]], ...]:
    """Rows of a table."""
    return tuple((name, tuple(cells)) for name, cells in rows.items())
