"""Vowpal Wabbit: gradient steps, a row at a time, from the cache that it makes of a text file.

In: rows, labels. Out: a `Learner` with an epoch for each pass over the cache; its scores are those of the last pass.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.peers.learners import Floats

LOSSES: Mapping[str, str] = {
    "linear": "squared",
    "logistic": "logistic",
    "linear_svm": "hinge",
    "poisson": "poisson",
    "quantile": "quantile",
}
"""Of a rule, the loss's name."""


class Vowpal:
    """A training of so many passes, each time from the start."""

    def __init__(self, x: Floats, y: Floats, rule: str, *, passes: int, made: ExitStack) -> None:
        """Write the rows, and have the cache made.

        Raises
        ------
        ModuleNotFoundError
            It is not here: ``pip install vowpalwabbit``.
        """
        from vowpalwabbit import Workspace

        self._workspace = Workspace
        folder = Path(made.enter_context(TemporaryDirectory(prefix="dana-bench-")))
        labels = 2 * y - 1 if LOSSES[rule] in ("logistic", "hinge") else y
        with open(folder / "rows", "w") as file:
            file.writelines(f"{label:.9g} {_text(row)}\n" for label, row in zip(labels, x, strict=True))
        self._options = f"-d {folder / 'rows'} --cache_file {folder / 'cache'} --loss_function {LOSSES[rule]}"
        self._train(1)
        self._passes = passes
        self._trained: Any = None

    def run(self) -> float:
        """Train; how many passes it took."""
        self._trained = self._train(self._passes)
        return self._passes

    def score(self, rows: NDArray[Any]) -> NDArray[Any]:
        """Scores before any link."""
        return np.array([self._trained.predict(_text(row)) for row in rows])

    def _train(self, passes: int) -> Any:
        return self._workspace(f"{self._options} --passes {passes} --holdout_off --quiet")


def _text(row: NDArray[Any]) -> str:
    return "| " + " ".join(f"{k}:{value:.9g}" for k, value in enumerate(row))
