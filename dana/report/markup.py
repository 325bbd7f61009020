"""Drawings as parts of an HTML page, in the page's colours."""

from __future__ import annotations

import re

from markupsafe import Markup

from dana.report import colours

INK = {colours.PAPER: "paper", colours.TEXT: "text", colours.LABEL: "label", colours.EDGE: "edge"}
INK |= {colours.GRID: "grid", colours.FAINT: "faint", colours.LINE: "line", colours.OTHER: "other"}
"""Colours of a drawing that change in dark mode: variables of the page's style."""


def inline(drawing: str | None) -> Markup | None:
    """A drawing with the colours of the page, which scrolls where the page is narrow.

    Colours are replaced inside tags only, not in texts.
    """
    if drawing is None:
        return None
    inks = re.compile("|".join(INK))
    inked = re.sub(r"<[^<>]*>", lambda tag: inks.sub(lambda one: f"var(--{INK[one[0]]})", tag[0]), drawing)
    return Markup(f'<div class="chart" tabindex="0">{inked}</div>')
