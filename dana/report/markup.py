"""What HTML pages have in common: their template's rules, their style, drawings inside of them.

Every text that came from elsewhere is escaped; the only markup that is put in as it is are the style and the drawings.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from importlib.resources import files
from typing import Any

from jinja2 import Environment, StrictUndefined, Template
from markupsafe import Markup

from dana.printable import printable
from dana.report import figure

INK = {figure.PAPER: "paper", figure.TEXT: "text", figure.LABEL: "label", figure.EDGE: "edge"}
INK |= {figure.GRID: "grid", figure.FAINT: "faint", figure.LINE: "line"}
"""Colours of a drawing that are others in the dark: variables of the page's style."""


def page_template(package: str, filters: Mapping[str, Callable[..., Any]]) -> Template:
    """A package's ``page.html``."""
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, finalize=_finalize
    )
    environment.filters |= filters
    return environment.from_string(files(package).joinpath("page.html").read_text(encoding="utf-8"))


def stylesheet() -> Markup:
    """The style of all pages: light and dark."""
    return Markup(files("dana.report").joinpath("style.css").read_text(encoding="utf-8"))


def inline(drawing: str | None) -> Markup | None:
    """A drawing whose colours are the page's; its texts are between tags, and stay."""
    if drawing is None:
        return None
    colours = re.compile("|".join(INK))
    return Markup(re.sub(r"<[^<>]*>", lambda tag: colours.sub(lambda one: f"var(--{INK[one[0]]})", tag[0]), drawing))


def _finalize(value: object) -> object:
    """What is not markup of ours is shown as it is: a name must not turn round what stands beside it."""
    return printable(value, lines=True) if isinstance(value, str) and not isinstance(value, Markup) else value
