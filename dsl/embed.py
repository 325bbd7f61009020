"""A rule written as a Python function.

In: a function under `@dana.rule`. Out: a rule's text that stands alone: the imports and numbers that the
function takes from its module are written above it. Must not: call the function.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import CodeType, ModuleType

from dsl.semantics.library import NAMES
from dsl.semantics.modules import MODULES
from dsl.source import Source

NAMED = ("dana.language.names", "dana.language.elementwise")
"""Modules in which the names of the language stand for editors."""


def function_source(function: Callable[[], object]) -> Source:
    """Return the text of the rule that a function's body is.

    Raises
    ------
    OSError
        If Python does not know the function's source, as in `exec`.
    """
    # decorators included: elaboration runs the body of what stands under `@dana.rule`
    lines, first = inspect.getsourcelines(function)
    preamble = _preamble(function)
    indent = lines[0][: len(lines[0]) - len(lines[0].lstrip())]  # kept, so that columns are those of the file
    text = "".join(f"{indent}{line}\n" for line in preamble) + "".join(lines)
    filename = inspect.getsourcefile(function) or "<function>"
    # lines are counted back from the function's, so that errors name lines of the file; the preamble's may be negative
    return Source(text=text, filename=filename, first_line=first - len(preamble))


def _preamble(function: Callable[[], object]) -> list[str]:
    """Write the statements that give the function the names it takes from its module."""
    nonlocals = inspect.getclosurevars(function).nonlocals
    # the decorator's own names are not among the function's
    module = getattr(function, "__globals__", {})
    found = {**module, **nonlocals}
    wanted = _names(getattr(function, "__code__", None))
    lines: list[str] = []
    for name, value in sorted(found.items(), key=lambda item: item[0]):
        if isinstance(value, ModuleType) and value.__name__ == "dana":
            lines.append("import dana" if name == "dana" else f"import dana as {name}")
        elif isinstance(value, ModuleType) and value.__name__ in MODULES:
            lines.append(f"import {value.__name__} as {name}")
        elif getattr(value, "__module__", None) in MODULES and name in wanted:
            word = getattr(value, "__name__", name)
            lines.append(f"from {value.__module__} import {word}" + ("" if word == name else f" as {name}"))
        elif getattr(value, "__module__", None) in NAMED and _language_name(value) in NAMES:
            word = _language_name(value)
            lines.append(f"from dana import {word}" if word == name else f"from dana import {word} as {name}")
        # bool is a subclass of int, and rule text has no True
        elif name in wanted and isinstance(value, int | float) and not isinstance(value, bool):
            lines.append(f"{name} = {_number_text(value)}")
    # imports first; the sort is stable, so that names stay in order and the text does not depend on the module's
    return sorted(lines, key=lambda line: " = " in line)


def _names(code: object) -> set[str]:
    """Names that a function's code takes from around it, and those that the code of functions in it takes."""
    if not isinstance(code, CodeType):
        return set()
    return {*code.co_names, *code.co_freevars}.union(*map(_names, code.co_consts))


def _number_text(number: float) -> str:
    """A number in rule text: what derives from int or float, such as NumPy's float64, shows itself in another way."""
    if isinstance(number, int):
        return str(int(number))
    # a literal beyond binary32 has a warning, and NaN has no literal
    return repr(float(number)).replace("inf", "1 / 0").replace("nan", "0 / 0")


def _language_name(value: object) -> str:
    # `dana.all` is an object, which has no `__name__`
    return "all" if type(value).__name__ == "AllTuples" else str(getattr(value, "__name__", ""))
