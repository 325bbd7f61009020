"""Templates and style of HTML pages; loads no drawing.

All texts are escaped, and their control characters are shown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.resources import files

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from dana.printable import printable


def environment(package: str, filters: Mapping[str, Callable[..., object]]) -> Environment:
    """The templates of a package."""
    # StrictUndefined: a misspelt name is an error, not an empty place
    made = Environment(
        loader=PackageLoader(package, "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_finalize,
    )
    made.filters |= filters
    return made


def stylesheet() -> Markup:
    """The style of all pages: light and dark."""
    return Markup(files("dana.report").joinpath("style.css").read_text(encoding="utf-8"))


def _finalize(value: object) -> object:
    """Replace control characters in texts: a name must not reverse the direction of the text next to it."""
    return printable(value, lines=True) if isinstance(value, str) and not isinstance(value, Markup) else value
