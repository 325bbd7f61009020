"""Size, style and SVG of all drawings."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from dana.printable import printable
from dana.report.colours import EDGE, GRID, LABEL, TEXT
from dana.report.history import Run

WIDTH = 9.0
COLOURS = {"arithmetic": "#3b6ea5", "exchange": "#e08a2e", "function": "#7a4fa3", "move": "#9aa5b1"}
STYLE: dict[str, object] = {
    "svg.fonttype": "path",  # independent of installed fonts
    "font.size": 9,
    "text.color": TEXT,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": EDGE,
    "axes.labelcolor": LABEL,
    "grid.color": GRID,
    "xtick.color": LABEL,
    "ytick.color": LABEL,
    "legend.frameon": False,
}


@contextmanager
def drawn(
    height: float, title: str, out: list[str], *, heading: str | None = None, width: float = WIDTH
) -> Iterator[Axes]:
    """A figure with one pair of axes; its SVG is appended to `out`.

    Parameters
    ----------
    title
        Title of the SVG, unique on a page.
    heading
        Text above the axes, by default the title.
    """
    # ids are derived from the salt: a drawing must not refer to ids of another one, which the page may hide
    style: dict[Any, object] = STYLE | {"svg.hashsalt": f"dana {title}"}
    with mpl.rc_context(style):
        figure = Figure(figsize=(width, height + 0.25), dpi=72, layout="constrained")
        FigureCanvasSVG(figure)  # measures texts as they will be drawn
        axes = figure.add_subplot()
        # names of users are not formulas
        axes.set_title(printable(title if heading is None else heading), loc="left", parse_math=False)
        yield axes
        # saving a figure that has a layout engine draws it twice
        engine = figure.get_layout_engine()
        assert engine is not None
        engine.execute(figure)
        figure.set_layout_engine("none")
        text = io.StringIO()
        # the time and version would make equal drawings differ; with a title it would repeat that as metadata
        figure.savefig(text, format="svg", metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
    # matplotlib repeats texts, names among them, in comments
    # from <svg on: the XML declaration and DOCTYPE must not be inside of an HTML page
    attributes, _, rest = text.getvalue().partition("<svg")[2].partition(">")
    named = f'<svg role="img"{attributes}>\n <title>{escape(title)}</title>{rest}'
    out.append(printable(named, lines=True))


def named(run: Run) -> str:
    """The run in the title of a drawing."""
    return f"rule {run.rule} on {run.source}, run {run.id}"
