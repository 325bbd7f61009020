"""The arguments of a training as options of a command, generated from `dana.client.options`.

In: a command, or parsed arguments. Out: options, or arguments of the client. Descriptions stand in that module.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar, cast, get_args, get_type_hints

from dana.client.options import TrialOptions
from dana.errors import UsageError

Options = TypeVar("Options", bound=TrialOptions)

SHORT = {"hyper": ("--hyper", "NAME=VALUE"), "design": ("--design", "JSON")}
"""Flags and metavars that differ from the argument's name."""


def add_training(command: argparse.ArgumentParser, declared: type) -> None:
    """Add an option for each member of ``declared``, a TypedDict of `dana.client.options`, and ``--dsn``."""
    # include_extras: the description is in the Annotated, which is otherwise removed
    for name, hint in get_type_hints(declared, include_extras=True).items():
        kind, text = get_args(hint)
        flag, metavar = SHORT.get(name, (f"--{name.replace('_', '-')}", name.upper()))
        reader = _reader(name, kind)
        # given again, a list grows: --features a --features b
        action = "append" if name == "hyper" else "extend" if reader is names else "store"
        command.add_argument(flag, dest=name, action=action, metavar=metavar, type=reader, help=text)
    command.add_argument("--dsn", help="server to train on (the embedded one)")


def training_options(options: argparse.Namespace, declared: type[Options]) -> Options:
    """The options that were given, as arguments of the client."""
    # None is an option that was not given, so that the server's default applies
    found = {name: value for name in get_type_hints(declared) if (value := getattr(options, name)) is not None}
    if "hyper" in found:
        found["hyper"] = dict(found["hyper"])
    return cast(Options, found)


def names(text: str) -> list[str]:
    """Names separated by commas."""
    return [name.strip() for name in text.split(",") if name.strip()]


def path(text: str) -> Path:
    """A path; an empty one would be the current folder."""
    if not text:
        raise argparse.ArgumentTypeError("a path must not be empty")
    return Path(text)


def port(text: str) -> int:
    """A number of a TCP port; 0 stands for any that is free."""
    if not text.isascii() or not text.isdigit() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"a port from 0 to 65535 is expected, not {text!r}")
    return int(text)


def _reader(name: str, kind: object) -> Callable[[str], object]:
    if name == "hyper":
        return assignment
    if name in ("design", "preprocess", "test_after"):
        return json_object
    if kind is bool:
        return _truth
    # a union such as class_weight: an object of JSON, or a word
    if "Mapping" in str(kind):
        return lambda text: json_object(text) if text.lstrip().startswith("{") else text
    if kind is int or kind is float:
        return kind
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


def json_object(text: str) -> dict[str, object]:
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError(f'a JSON object such as {{"threads": 4}} is expected, not {text!r}')
    return value


def table_or_query(options: argparse.Namespace) -> str | None:
    """The given table; None with a query.

    Raises
    ------
    UsageError
        Neither or both are given.
    """
    if (options.table is None) == (options.query is None):
        raise UsageError("pass either a table or --query 'SELECT …'")
    table: str | None = options.table
    return table
