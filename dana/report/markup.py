"""Templates, style and inline drawings of HTML pages.

All texts are escaped; only the style and the drawings are inserted as markup.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from importlib.resources import files

from jinja2 import Environment, StrictUndefined, Template
from markupsafe import Markup

from dana.printable import printable
from dana.report import figure

INK = {figure.PAPER: "paper", figure.TEXT: "text", figure.LABEL: "label", figure.EDGE: "edge"}
INK |= {figure.GRID: "grid", figure.FAINT: "faint", figure.LINE: "line"}
"""Colours of a drawing that change in dark mode: variables of the page's style."""


def page_template(package: str, filters: Mapping[str, Callable[..., object]]) -> Template:
    """A package's ``page.html``."""
    # StrictUndefined: a misspelt name is an error, not an empty place
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, finalize=_finalize
    )
    environment.filters |= filters
    return environment.from_string(files(package).joinpath("page.html").read_text(encoding="utf-8"))


def stylesheet() -> Markup:
    """The style of all pages: light and dark."""
    return Markup(files("dana.report").joinpath("style.css").read_text(encoding="utf-8"))


def inline(drawing: str | None) -> Markup | None:
    """A drawing with the colours of the page; they are replaced inside tags only, not in texts."""
    if drawing is None:
        return None
    colours = re.compile("|".join(INK))
    return Markup(re.sub(r"<[^<>]*>", lambda tag: colours.sub(lambda one: f"var(--{INK[one[0]]})", tag[0]), drawing))


def _finalize(value: object) -> object:
    """Replace control characters in texts: a name must not reverse the direction of the text next to it."""
    return printable(value, lines=True) if isinstance(value, str) and not isinstance(value, Markup) else value
