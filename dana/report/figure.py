"""What all drawings have in common: their size, their colours, their SVG."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from dana.printable import printable
from dana.report.history import Run

WIDTH = 9.0
COLOURS = {"arithmetic": "#3b6ea5", "exchange": "#e08a2e", "function": "#7a4fa3", "move": "#9aa5b1"}
LINE = "#3b6ea5"
OTHER = "#e08a2e"
PAPER = "#ffffff"
TEXT = "#222233"
LABEL = "#334455"
EDGE = "#667788"
GRID = "#e3e8ee"
FAINT = "#eef2f6"
STYLE: Any = {
    "svg.fonttype": "path",  # looks the same wherever it is opened
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
        What the file is called: no two on a page have the same.
    heading
        What stands over the axes, if not the title.
    """
    # ids are made of the salt: those of a drawing that a page hides are not there for another one
    with mpl.rc_context(STYLE | {"svg.hashsalt": f"dana {title}"}):
        figure = Figure(figsize=(width, height + 0.25), dpi=72, layout="constrained")
        FigureCanvasSVG(figure)  # measures texts as they will be drawn
        axes = figure.add_subplot()
        # names are users' and no formulas
        axes.set_title(printable(title if heading is None else heading), loc="left", parse_math=False)
        yield axes
        # saving a figure that has a layout engine draws it twice
        engine = figure.get_layout_engine()
        assert engine is not None
        engine.execute(figure)
        figure.set_layout_engine("none")
        text = io.StringIO()
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure.savefig(text, format="svg", metadata={**nothing, "Title": printable(title)})
    out.append(text.getvalue()[text.getvalue().index("<svg") :])


def named(run: Run) -> str:
    """What a drawing of a run begins with."""
    return f"rule {run.rule} on {run.source}, run {run.id}"
