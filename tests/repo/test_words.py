"""Names in docstrings and comments exist, and words that were given up do not come back."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator
from importlib import import_module
from inspect import getattr_static
from pathlib import Path

import pytest

import dana
from dana.language.names import NotInRule
from dana.server.places import CHECKOUT

PRODUCT = ("benchmarks", "dana", "docs", "dsl", "examples", "hwgen", "pg_extension")
DOTTED = re.compile(r"`((?:benchmarks|dana|dsl|hwgen|tests)(?:\.\w+)+)`")
C_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
C_FUNCTION = re.compile(r"\b((?:dana|sim|dn)_\w+)\(\)")
DEFINED = re.compile(
    r"^(?:#define |\w[^\n;={]*?\b)?(\w+)\(|FUNCTION (?:dana\.)?(\w+)\(|DANA_\w+\((\w+)\)", re.MULTILINE
)

LIMITS = {
    "of which|whose": 10,
    "told|tells?": 2,
    "besides?": 0.5,
    "somebody|(?<![`\"'])nobody|everybody|anybody": 0.5,  # `nobody` is also an account
    "whatever": 0.5,
    "likewise": 0.5,
    "MOST_|LARGEST_|KEPT_|ACROSS|wish(?:es|ed)?\\b|Refused:|takes it that|Comes in:|Goes out:": 0,
}
"""Maximum number of occurrences in 10,000 lines of the product."""


def texts(*suffixes: str, folders: tuple[str, ...] = (*PRODUCT, "tests")) -> Iterator[tuple[Path, str]]:
    for folder in folders:
        for path in sorted((CHECKOUT / folder).rglob("*")):
            if path.suffix in suffixes and path.is_file():
                yield path.relative_to(CHECKOUT), path.read_text(encoding="utf-8")


def exists(name: str) -> bool:
    """Whether a dotted name is a module, or something in one: a field of a class, too."""
    parts = name.split(".")
    for n in range(len(parts), 0, -1):
        try:
            found = import_module(".".join(parts[:n]))
        except ModuleNotFoundError:
            continue
        except NotInRule:  # a rule, which is read as text
            return True
        for part in parts[n:]:
            if part in getattr(found, "__annotations__", {}):
                return True
            try:
                found = getattr_static(found, part)
            except AttributeError:
                return part in dir(found)
        return True
    return False


def test_names_in_docstrings_exist() -> None:
    named = {(name, path) for path, text in texts(".py") for name in DOTTED.findall(text)}
    sql = "".join(text for _, text in texts(".sql", ".c", folders=("pg_extension",)))  # its tables and settings
    lazy = {f"dana.{name}" for name in dana.__all__}
    unknown = sorted(f"{path}: {name}" for name, path in named if not (name in lazy or name in sql or exists(name)))
    assert not unknown, "\n".join(unknown)


def test_functions_in_comments_of_c_exist() -> None:
    sources = dict(texts(".c", ".h", ".inc", ".sql"))
    defined = {
        name for text in sources.values() for names in DEFINED.findall(C_COMMENT.sub("", text)) for name in names
    }
    named = {
        (name, path)
        for path, text in sources.items()
        for comment in C_COMMENT.findall(text)
        for name in C_FUNCTION.findall(comment)
    }
    unknown = sorted(f"{path}: {name}()" for name, path in named if name not in defined)
    assert not unknown, "\n".join(unknown)


@pytest.mark.parametrize("words", LIMITS)
def test_words_that_were_given_up(words: str) -> None:
    word = re.compile(rf"\b(?:{words})", re.IGNORECASE if words.islower() else 0)
    lines, found = 0, []
    for path, text in texts(".py", ".c", ".h", ".inc", ".sql", ".lark", ".md", folders=PRODUCT):
        lines += text.count("\n")
        found += [
            f"{path}:{k}: {line.strip()}" for k, line in enumerate(text.split("\n"), 1) for _ in word.findall(line)
        ]
    assert len(found) <= LIMITS[words] * lines / 10_000, f"{len(found)} in {lines} lines:\n" + "\n".join(found)


def test_few_values_are_of_any_type() -> None:
    uses = [
        f"{path}: {line.strip()}"
        for path, text in texts(".py", folders=("dana",))
        for line in text.splitlines()
        if not line.lstrip().startswith(("from ", "import "))
        for _ in re.findall(r"\bAny\b", line)
    ]
    assert len(uses) < 100, "\n".join(uses)


@pytest.mark.parametrize("folder", ["dana", "dsl"])
def test_lines_have_comments_where_they_need_one(folder: str) -> None:
    """From 4 to 8 in 100 lines that are not empty, as in the projects that we learn from."""
    commented = lines = 0
    for _, text in texts(".py", folders=(folder,)):
        lines += sum(bool(line.strip()) for line in text.splitlines())
        tokens = tokenize.generate_tokens(io.StringIO(text).readline)
        commented += len({token.start[0] for token in tokens if token.type == tokenize.COMMENT})
    assert 4 <= 100 * commented / lines <= 8
