"""The arguments of a training as options of a command: made from what `dana.client.options` declares.

In: a command, or what was typed. Out: options, or arguments of the client. What an argument means is said there alone.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from typing import Any, get_args, get_type_hints

from dana.errors import UsageError

SHORT = {"hyper": ("--hyper", "NAME=VALUE"), "design": ("--design", "JSON")}
"""Options that are not called as the argument is."""


def add_training(command: argparse.ArgumentParser, declared: type) -> None:
    """The options that ``declared``, a TypedDict of `dana.client.options`, has, and the server to call."""
    for name, hint in get_type_hints(declared, include_extras=True).items():
        kind, text = get_args(hint)
        flag, metavar = SHORT.get(name, (f"--{name.replace('_', '-')}", name.upper()))
        reader = _reader(name, kind)
        # given again, a list grows: --features a --features b
        action = "append" if name == "hyper" else "extend" if reader is names else "store"
        command.add_argument(flag, dest=name, action=action, metavar=metavar, type=reader, help=text)
    command.add_argument("--dsn", help="server to train on (the embedded one)")


def training_options(options: argparse.Namespace, declared: type) -> dict[str, Any]:
    """What was typed, as arguments of the client; None where nothing was."""
    found = {name: getattr(options, name) for name in get_type_hints(declared)}
    return found | {"hyper": dict(found["hyper"]) if found["hyper"] else None}


def names(text: str) -> list[str]:
    """Names with commas between them."""
    return [name.strip() for name in text.split(",") if name.strip()]


def _reader(name: str, kind: Any) -> Callable[[str], Any]:
    if name == "hyper":
        return assignment
    if name in ("design", "preprocess"):
        return _object
    if kind is bool:
        return _truth
    if "Mapping" in str(kind):
        return lambda text: _object(text) if text.lstrip().startswith("{") else text
    if kind in (int, float):
        reader: Callable[[str], Any] = kind
        return reader
    return names if "Sequence" in str(kind) else str


def assignment(text: str) -> tuple[str, float]:
    """A hyperparameter's value, as an argument."""
    name, _, value = text.partition("=")
    try:
        return name.strip(), float(value)
    except ValueError:
        raise argparse.ArgumentTypeError(f"NAME=NUMBER is expected, not {text!r}") from None


def _truth(text: str) -> bool:
    known = {"true": True, "on": True, "yes": True, "false": False, "off": False, "no": False}
    if text.lower() not in known:
        raise argparse.ArgumentTypeError(f"true or false is expected, not {text!r}")
    return known[text.lower()]


def _object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError(f'a JSON object such as {{"threads": 4}} is expected, not {text!r}')
    return value


def table_or_query(options: argparse.Namespace) -> str | None:
    """The table that was named; None where a query was given.

    Raises
    ------
    UsageError
        Neither was given, or both.
    """
    if (options.table is None) == (options.query is None):
        raise UsageError("name a table, or give --query 'SELECT …'; one of them")
    table: str | None = options.table
    return table
