"""Rule files: a path in, a rule out. Nothing in the file is executed.

In: a path. Out: the text, or the rule, to look at and to try. It must not import the front end before a rule is loaded.
"""

from __future__ import annotations

import warnings
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from dana.errors import UsageError

if TYPE_CHECKING:
    from dana.language.trainable import TrainableRule


MAX_CHARACTERS = 1 << 20
"""Maximum length of a file: devices have no end. The front end reports the exact limit of a rule's text."""


def read_text(file: str | PathLike[str]) -> str:
    """Text of a file, alone.

    Raises
    ------
    UsageError
        It is not there, is too large for a rule, or is not UTF-8.
    """
    try:
        with open(file, encoding="utf-8") as opened:
            # one more than allowed tells a file that is too long from one that just fits
            text = opened.read(MAX_CHARACTERS + 1)
    except OSError as error:
        raise UsageError(f"cannot read {file}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"{file} must be UTF-8 text; byte {error.start} is not") from None
    if len(text) > MAX_CHARACTERS:
        raise UsageError(f"{file} must be the text of a rule, but has more than {MAX_CHARACTERS:,} characters")
    return text


def read_rule(file: str | PathLike[str]) -> str:
    """Text of a rule file, with the modules behind it that it imports from its folder (`modules_beside`).

    Raises
    ------
    UsageError
        A file cannot be read, or is not UTF-8.
    """
    text = read_text(file)
    return text + modules_beside(text, Path(file).parent)


def modules_beside(text: str, folder: Path) -> str:
    """What a rule's text imports from a folder, and what that imports, as `dsl.sections` has it; often nothing.

    A module that is not there, or lies elsewhere by a link, is left out: the rule's check says so, with the line.
    """
    from dsl.sections import section, sections
    from dsl.source import Source
    from dsl.syntax.imports import imported
    from dsl.syntax.parser import parse

    texts = sections(text)
    added: dict[str, str] = {}
    waiting = list(texts.values())
    while waiting:
        # errors of a module are left to the rule's check, which shows them in their place
        names = imported(parse(Source(text=waiting.pop(), filename="<rule>"))[0].body)
        for name in names:
            path = folder / f"{name}.py"
            # neither a name with dots nor a link may lead out of the rule's folder
            here = name.isidentifier() and path.is_file() and path.resolve().parent == folder.resolve()
            if here and name not in texts and name not in added and name != "dana":
                added[name] = read_text(path)
                waiting.append(added[name])
    made = "".join(section(name, one) for name, one in added.items())
    # a mark is a mark at the beginning of a line only
    return "\n" + made if made and text and not text.endswith("\n") else made


def load(file: str | PathLike[str]) -> TrainableRule:
    """Read and compile a rule file; it is parsed, never executed.

    Warnings of the front end become a `UserWarning`. The rule has `name`, `text`, `hdfg`, the dataflow graph, and
    `listing`, the graph as text; a notebook shows it as a picture. `fit`, `predict` and `step` run it on arrays.

    Raises
    ------
    UsageError
        The file cannot be read.
    dsl.RuleError
        The text is no rule; the message shows every error in its place.
    """
    from dana.language.trainable import TrainableRule

    rule = TrainableRule(read_rule(file), filename=str(file))
    _ = rule.hdfg
    if rule.warnings:
        # the line that called `dana.load`
        warnings.warn(rule.report, stacklevel=2)
    return rule
