"""The evaluation as one HTML page: a drawing and a table for each of the paper's; it needs nothing else.

In: a run's document and its tables. Out: HTML.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, NullFormatter

from benchmarks.paper.cells import MEANINGS, Mark, Table, written
from benchmarks.paper.tables import (
    DANA,
    FED,
    FPGA,
    FPGA_COLD,
    HERE,
    HERE_COLD,
    MADLIB,
    ON_IT,
    SENT,
    STRIDERS,
    TRAINED,
)  # fmt: skip
from dana.report import colours, figure
from dana.report.markup import inline
from dana.report.templates import environment, stylesheet

MARKERS = ("o", "D", "s", "^", "v", "P", "X", "<", ">", "*", "p", "h", "d", "8")
SHADES = (
    "#3b6ea5", "#e08a2e", "#7a4fa3", "#3d8f6a", "#c44e52", "#8c6d31", "#5b8db8",
    "#d17aa8", "#6b7a3a", "#a04030", "#4aa3a2", "#b39b2f", "#555f6d", "#2f4b7c",
)  # fmt: skip


DOTS: dict[str, tuple[str, ...]] = {
    "end to end": (FPGA, FPGA_COLD, HERE, HERE_COLD, DANA),
    "striders": (STRIDERS, FED, SENT),
    "madlib": (MADLIB, ON_IT, TRAINED),
    "tabla": ("best machine", "with Striders", FED),
}
"""Drawings with a line for each data set, by table: the columns that they show."""
LINES: dict[str, tuple[str, str, str]] = {
    "threads": ("threads, logarithmic", "times as fast as one thread", "1"),
    "link": ("times the link, logarithmic", "times as fast as on the machine's link", "1 ×"),
    "pages": ("bytes of a page", "times as fast as on 32 KB pages", "32 KB"),
}
"""Drawings with a curve for each data set: the axes' labels, and the column that is 1."""


def render(run: Mapping[str, Any], found: Sequence[Table], sources: Mapping[str, str]) -> str:
    """The page."""
    return (
        environment("benchmarks.paper", {})
        .get_template("page.html")
        .render(
            style=stylesheet(),
            run=run,
            tables=[(table, inline(drawing(table)), table.notes()) for table in found],
            meanings=MEANINGS,
            sources=sources,
            places={key: place for place, key in enumerate(sources, 1)},
        )
    )


def drawing(table: Table) -> str | None:
    """What shows a table, where one does."""
    if table.name in DOTS:
        return dots(table, DOTS[table.name])
    if table.name in LINES:
        return curves(table, *LINES[table.name])
    return uses(table) if table.name == "machines" else None


def dots(table: Table, heads: Sequence[str]) -> str:
    """Seconds, a line for each data set and a mark for each column."""
    out: list[str] = []
    with figure.drawn(1.0 + 0.3 * len(table.rows), table.title, out) as axes:
        for head, marker, colour in zip(heads, MARKERS, SHADES, strict=False):
            cells = [cell for _, cell in table.column(head)]
            points = [(cell.value, place) for place, cell in enumerate(cells) if cell.value is not None]
            if points:
                mark = next(cell.mark for cell in cells if cell.value is not None)
                x, y = [x for x, _ in points], [y for _, y in points]
                axes.plot(x, y, marker, color=colour, alpha=0.85, markersize=6, label=f"{head} ({mark})")
        axes.set_yticks(range(len(table.rows)), [name for name, _ in table.rows])
        axes.set_ylim(len(table.rows) - 0.5, -0.5)
        axes.grid(axis="both")
        _seconds(axes)
        axes.legend(loc="upper left", bbox_to_anchor=(1, 1))
    return out[0]


def _seconds(axes: Axes) -> None:
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: _short(value)))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel("a pass, logarithmic")


def _short(seconds: float) -> str:
    if seconds < 1:
        return written(seconds, "s")
    return f"{seconds:,.0f} s"


def curves(table: Table, across: str, up: str, one: str) -> str:
    """How much faster than in one column, a curve for each data set; logarithmic both ways."""
    out: list[str] = []
    base = dict(table.column(one))
    with figure.drawn(3.6, table.title, out) as axes:
        for k, (name, cells) in enumerate(table.rows):
            least = base[name].value
            points = [
                (place, least / cell.value) for place, cell in enumerate(cells) if least is not None and cell.value
            ]
            if points:
                axes.plot(
                    [x for x, _ in points], [y for _, y in points], color=SHADES[k % len(SHADES)],
                    marker=MARKERS[k % len(MARKERS)], markersize=5, linewidth=1.3, alpha=0.85, label=name,
                )  # fmt: skip
        axes.set_xticks(range(len(table.heads)), table.heads)
        axes.set_yscale("log", base=2)
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.3g} ×"))
        low, high = axes.get_ylim()
        if high / low < 2:  # nothing happens, and shall not look as if it did
            axes.set_ylim(0.7, 1.4)
            axes.set_yticks([0.75, 1, 1.25])
        axes.yaxis.set_minor_formatter(NullFormatter())
        axes.grid(axis="y")
        axes.set_xlabel(across)
        axes.set_ylabel(f"{up}\n(computed)")
        axes.legend(loc="upper left", bbox_to_anchor=(1, 1))
    return out[0]


def uses(table: Table) -> str:
    """How much of the device each machine takes."""
    out: list[str] = []
    resources = ("LUT", "FF", "DSP", "RAM")
    with figure.drawn(0.9 + 0.42 * len(table.rows), "of what a design may take (computed)", out) as axes:
        for k, head in enumerate(resources):
            cells = list(table.column(head))
            axes.barh(
                [place + 0.19 * (k - 1.5) for place in range(len(cells))],
                [100 * (cell.value or 0) for _, cell in cells], height=0.17, color=SHADES[k], label=head,
            )  # fmt: skip
        for place, (_, cell) in enumerate(table.column("units")):
            if cell.mark is Mark.MISSING:
                axes.text(1, place, "no machine fits", va="center", color=colours.EDGE)
        axes.set_yticks(range(len(table.rows)), [name for name, _ in table.rows])
        axes.set_ylim(len(table.rows) - 0.4, -0.6)
        axes.set_xlim(0, 100)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0f} %"))
        axes.grid(axis="x")
        axes.legend(loc="upper left", bbox_to_anchor=(1, 1))
    return out[0]
