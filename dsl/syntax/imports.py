"""The modules that a text names in its imports.

In: statements. Out: names. Must not: find or read a module.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dsl.syntax import ast


def imported(body: Iterable[ast.Statement]) -> Iterator[str]:
    """Yield the modules' names, those in functions and loops too."""
    for statement in body:
        match statement:
            case ast.Import():
                yield from (alias.name for alias in statement.aliases)
            case ast.FromImport():
                yield statement.module
            case ast.Function() | ast.For():
                yield from imported(statement.body)
