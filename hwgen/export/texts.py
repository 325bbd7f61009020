"""What stands beside the members of an enumeration, and tables in Markdown: documents are made of them.

In: enumerations of `hwgen.spec`, rows. Out: text. A member without a text is an error, so no document has a gap.
"""

import ast
import inspect
import sys
from collections.abc import Sequence
from enum import Enum


def texts(enumeration: type[Enum]) -> dict[str, str]:
    """What stands beside each member; a member without a text raises ValueError."""
    tree = ast.parse(inspect.getsource(sys.modules[enumeration.__module__]))
    (definition,) = (node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == enumeration.__name__)
    found: dict[str, str] = {}
    name = None
    for node in definition.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
        elif name is not None and isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            found[name] = " ".join(str(node.value.value).split())
            name = None
    bare = [member.name for member in enumeration if member.name not in found]
    if bare:
        raise ValueError(
            f"each member of {enumeration.__name__} must have a text behind it; {', '.join(bare)} has none"
        )
    return found


def table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """A table, a line a row."""
    lines = [head, tuple("---" for _ in head), *rows]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines)
