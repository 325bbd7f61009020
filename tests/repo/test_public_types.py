"""The types of what users call: no annotation leaves an argument or a result to `Any`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from dana.server.places import CHECKOUT
from tests.repo.test_site import site_builder

OTHERS = (
    "dana.client.asynchronous",
    "dana.client.options",
    "dana.client.predictions",
    "dana.integrations.mlflow",
    "dana.language.trainable",
    "dana.records",
    "dana.session.frames",
)
"""Modules with public names, or with types of theirs, that the site's reference does not show."""


def annotations(module: str) -> Iterator[tuple[str, ast.expr]]:
    """Annotations of a module's public functions, methods and attributes, and its types' definitions, each by name."""
    todo: list[tuple[str, ast.stmt]] = [
        (module, one) for one in ast.parse((CHECKOUT / f"{module.replace('.', '/')}.py").read_text()).body
    ]
    while todo:
        place, one = todo.pop()
        if isinstance(one, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and (
            not one.name.startswith("_") or one.name == "__init__"
        ):
            name = f"{place}.{one.name}"
            if isinstance(one, ast.ClassDef):
                todo += [(name, each) for each in one.body]
                yield from ((name, base) for base in one.bases)
                continue
            given = one.args
            every = [*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg]
            yield from ((name, each.annotation) for each in every if each is not None and each.annotation is not None)
            if one.returns is not None:
                yield name, one.returns
        elif isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name) and one.target.id[0] != "_":
            yield f"{place}.{one.target.id}", one.annotation
            if isinstance(one.annotation, ast.Name) and one.annotation.id == "TypeAlias" and one.value is not None:
                yield f"{place}.{one.target.id}", one.value


def test_public_signatures_have_no_any() -> None:
    modules = {*OTHERS, *(one for _, several in site_builder().API.values() for one in several)}
    found = [(name, one) for module in sorted(modules) for name, one in annotations(module)]
    assert len(found) > 500
    texts = [f"{name}: {ast.unparse(one)}" for name, one in found]
    assert [text for text in texts if re.search(r"\bAny\b", text)] == []
