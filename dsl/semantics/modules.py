"""Modules of functions in rule text that a rule can import, such as `dana.optimizers`.

In: a module's name. Out: its statements, and trees moved to the place of a call. A module is a file of the package
`dana`, so that editors and Python find it under the same name; here it is read as rule text. Must not: import or run
a module, or read any file that `MODULES` does not name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, TypeVar, cast

from dsl.render import render
from dsl.source import Source, Span
from dsl.syntax import ast
from dsl.syntax.parser import parse

MODULES: Final = ("dana.functions", "dana.optimizers")

Tree = TypeVar("Tree")


# trees are immutable and shared by all rules of the process; `moved` makes copies
@cache
def statements(name: str) -> tuple[ast.Statement, ...]:
    """Statements of a module, parsed once in a process; their spans are those of the module's file.

    Raises
    ------
    ValueError
        The file is no rule text: our bug.
    """
    package, _, stem = name.partition(".")
    found = find_spec(package)  # a top-level package is found without being imported
    folders = [] if found is None else found.submodule_search_locations or []
    file = next(path for path in (Path(folder, f"{stem}.py") for folder in folders) if path.is_file())
    source = Source(text=file.read_text(encoding="utf-8"), filename=str(file))
    module, errors = parse(source)
    if errors:
        raise ValueError(render(errors, source))
    return module.body


@cache
def _homes() -> dict[str, str]:
    return {
        statement.name: module
        for module in MODULES
        for statement in statements(module)
        if isinstance(statement, ast.Function)
    }


def import_of(name: str) -> str:
    """Return the import that a rule lacks to use a function of a module; empty where no module has the function."""
    home = _homes().get(name)
    return "" if home is None else f"from {home} import {name}"


def moved(tree: Tree, place: Span) -> Tree:
    """Return statements as if all of them stood at `place`, where the rule's own text is: the call."""
    if isinstance(tree, Span):
        return cast(Tree, place)
    # recursive: depth is bounded by MAX_NESTING
    if isinstance(tree, tuple):
        return cast(Tree, tuple(moved(part, place) for part in cast(Sequence[Any], tree)))
    if isinstance(tree, ast.Node):
        parts = {field.name: moved(getattr(tree, field.name), place) for field in fields(tree)}
        return cast(Tree, replace(tree, **parts))
    return tree
