"""Rules that are ready to use: regression, classification, factors, clusters, components, embeddings.

Each other file of this package is the text of one rule; ``dana rules show NAME`` prints it. In: a rule's name. Out:
its text, its first line, or the compiled rule: ``dana.rules.logistic`` is what ``dana.load`` returns for the file.
Must not: run a rule file as Python, or import the front end before a rule is requested.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING

from dana.errors import UsageError

if TYPE_CHECKING:
    from dana.language.trainable import TrainableRule

__all__ = ["FOLDER", "NAMES", "summary", "text"]

FOLDER = Path(__file__).parent
"""Where the files are."""

NAMES = (
    "linear",
    "ridge",
    "lasso",
    "elastic_net",
    "huber",
    "quantile",
    "poisson",
    "logistic",
    "linear_svm",
    "softmax",
    "mlp",
    "kmeans",
    "pca",
    "lrmf",
    "lrmf_dense",
    "bpr",
    "word2vec",
    "fm",
    "dlrm",
    "autoint",
)
"""The rules, in the order in which they are listed."""


def text(name: str) -> str:
    """Text of a rule.

    Raises
    ------
    UsageError
        There is no such rule.
    """
    if name not in NAMES:
        raise UsageError(f"there is no rule {name!r} in dana.rules", hint=f"The rules are {', '.join(NAMES)}.")
    return (FOLDER / f"{name}.py").read_text(encoding="utf-8")


def summary(name: str) -> str:
    """First line of a rule's description."""
    # a rule is valid Python, which is parsed here, not run
    description = ast.get_docstring(ast.parse(text(name))) or ""
    return description.partition("\n")[0]


def __getattr__(name: str) -> TrainableRule:
    if name not in NAMES:
        raise AttributeError(f"module 'dana.rules' has no attribute {name!r}")
    from dana.language.trainable import TrainableRule

    return TrainableRule(text(name), filename=f"dana/rules/{name}.py")
