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
    from dana.trainable import TrainableRule


def read_rule(file: str | PathLike[str]) -> str:
    """Text of a rule file.

    Raises
    ------
    UsageError
        It is not there, or is not UTF-8.
    """
    try:
        return Path(file).read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot read {file}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"{file} must be UTF-8 text; byte {error.start} is not") from None


def load(file: str | PathLike[str]) -> TrainableRule:
    """Read and compile a rule file; it is parsed, never executed.

    What is legal and surely not meant becomes a `UserWarning`. The rule has `name`, `source` and `hdfg`, the dataflow
    graph, which draws itself: as text where it is printed, as a picture where a notebook shows it. `fit`, `predict` and
    `step` try it on arrays.

    Raises
    ------
    UsageError
        The file cannot be read.
    dsl.RuleError
        The text is no rule; the message shows every error in its place.
    """
    from dana.trainable import TrainableRule

    rule = TrainableRule(read_rule(file), filename=str(file))
    _ = rule.hdfg
    if rule.warnings:
        warnings.warn(rule.report, stacklevel=2)
    return rule
