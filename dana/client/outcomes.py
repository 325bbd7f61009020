"""What a training, an evaluation, an explanation gave, as values that a notebook shows.

In: rows of the server. Out: values of Python with their numbers, and HTML with a drawing where matplotlib is there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus

from dana.errors import UsageError
from dana.report.history import Epoch, Run, read_run
from dana.session.results import Rows, html_table, html_text, pandas, record_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Coefficient:
    """What one column weighs.

    Attributes
    ----------
    label
        Of several sums, the label's class that this one is for; None where there is one sum.
    term
        The column, or ``(intercept)``.
    coefficient
        What a unit of it adds.
    """

    label: str | None
    term: str
    coefficient: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainResult:
    """The row that ``dana_train`` returns.

    Attributes
    ----------
    model, version
        Name of the model, and which training of that name.
    run
        Its number in ``dana.run``, whose epochs are in ``dana.epoch``.
    epochs
        Passes over the table.
    converged
        Whether the rule's convergence test ended the training.
    loss
        Mean of the rule's loss over the rows trained on, in the epoch that was kept; None for a rule without one.
    test_loss
        The same over the rows that ``test_size`` left out; None where none were.
    tuples, skipped
        Rows trained on and rows left out for a NULL, in one epoch.
    pages
        Pages read, over all epochs.
    cycles
        Cycles of the accelerator, over all epochs; None for the backend ``interp``.
    modelled_seconds
        Those cycles at the design's clock; None likewise.
    wall_seconds
        Time that the statement took in the server.
    """

    model: str
    version: int
    run: int
    epochs: int
    converged: bool
    loss: float | None
    test_loss: float | None
    tuples: int
    skipped: int
    pages: int
    cycles: int | None
    modelled_seconds: float | None
    wall_seconds: float
    _session: psycopg.Connection[Any] | None = field(default=None, repr=False, compare=False)

    def _repr_html_(self) -> str:
        """The numbers, and the curve as long as the session can tell it."""
        shown = html_table([], list(record_of(self).items()))
        session = self._session
        idle = (TransactionStatus.IDLE, TransactionStatus.INTRANS)
        if session is None or session.closed or session.info.transaction_status not in idle:
            return shown
        try:
            return shown + read_curve(session, self.run).drawing()
        except (UsageError, psycopg.Error):  # rolled back, or removed since
            return shown


class Curve(Rows[Epoch]):
    """The epochs of a run, in order; in a notebook a drawing of the loss.

    Attributes
    ----------
    run
        What they are of.
    """

    __slots__ = ("run",)

    def __init__(self, run: Run) -> None:
        super().__init__(run.curve)
        self.run = run

    def drawing(self) -> str:
        """The loss as SVG; empty for a rule without one, or without matplotlib."""
        try:
            from dana.report.curves import loss_chart
        except ModuleNotFoundError:
            return ""
        return loss_chart(self.run) or ""

    def _repr_html_(self) -> str:
        return self.drawing() or super()._repr_html_()


def read_curve(session: psycopg.Connection[Any], run: int) -> Curve:
    """The epochs of the run with this number.

    Raises
    ------
    UsageError
        There is none, or it is somebody else's.
    """
    return Curve(read_run(session, run))


FIRST = [
    "model",
    "version",
    "part",
    "rows",
    "accuracy",
    "auc",
    "f1",
    "precision",
    "recall",
    "log_loss",
    "r2",
    "rmse",
    "mae",
]
"""Metrics in the order in which one reads them; others follow, the nested ones last."""

NESTED = ("classes", "confusion", "outputs")


class Evaluation(dict[str, Any]):
    """Metrics by name; in a notebook tables.

    Parameters
    ----------
    metrics
        As ``dana_evaluate`` gives them.
    labels
        The classes that it tells apart, in their order; where they are not known, those of two are called so.
    """

    __slots__ = ("_labels",)

    def __init__(self, metrics: Mapping[str, Any], labels: Sequence[Any] = ()) -> None:
        place = {name: k - len(FIRST) for k, name in enumerate(FIRST)} | dict.fromkeys(NESTED, 1)
        super().__init__(sorted(metrics.items(), key=lambda one: place.get(one[0], 0)))
        count = len(self.confusion_rows()) if "confusion" in self else 0
        unnamed = ["negative", "positive"] if count == 2 else list(range(count))
        self._labels = list(labels) if len(labels) == count else unnamed

    def to_frame(self) -> Any:
        """The metrics as a ``pandas.DataFrame`` of one row, without the tables of `per_class` and `confusion`."""
        return Rows([{name: each for name, each in self.items() if name not in NESTED}]).to_frame()

    def per_class(self) -> Any:
        """Precision, recall, F1 and the number of rows of each class, as a ``pandas.DataFrame``.

        Raises
        ------
        UsageError
            There are no classes.
        """
        return self._matrix(CLASS_METRICS, self.class_rows())

    def confusion(self) -> Any:
        """How many rows of each label (down) are taken for which (across), as a ``pandas.DataFrame``.

        Raises
        ------
        UsageError
            There are no classes.
        """
        return self._matrix(pandas().Index(self._labels, name="predicted"), self.confusion_rows())

    def per_output(self) -> Any:
        """R², the root of the mean squared error and the mean absolute error of each output, as a ``pandas.DataFrame``.

        Raises
        ------
        UsageError
            The model predicts no several numbers.
        """
        pd = pandas()
        rows = self.output_rows()
        return pd.DataFrame(rows, index=pd.RangeIndex(1, len(rows) + 1, name="output"), columns=OUTPUT_METRICS)

    def output_rows(self) -> list[list[Any]]:
        """The values of `per_output`."""
        if "outputs" not in self:
            raise UsageError("these metrics are not of several numbers")
        return [[one[name] for name in OUTPUT_METRICS] for one in self["outputs"]]

    def _matrix(self, columns: Any, rows: list[list[Any]]) -> Any:
        pd = pandas()
        return pd.DataFrame(rows, index=pd.Index(self._labels, name="label"), columns=columns)

    def class_rows(self) -> list[list[Any]]:
        """The values of `per_class`."""
        if "classes" in self:
            return [[one[name] for name in CLASS_METRICS] for one in self["classes"]]
        rows = self.confusion_rows()
        found = []
        for k, row in enumerate(rows):
            taken, right = sum(other[k] for other in rows), row[k]
            precision, recall = (right / each if each else 0.0 for each in (taken, sum(row)))
            f1 = 2 * right / (taken + sum(row)) if taken + sum(row) else 0.0
            found.append([precision, recall, f1, sum(row)])
        return found

    def confusion_rows(self) -> list[list[int]]:
        """The values of `confusion`."""
        made = self.get("confusion")
        if made is None:
            raise UsageError("these metrics are of numbers, not of classes")
        if isinstance(made, Mapping):
            return [[made["tn"], made["fp"]], [made["fn"], made["tp"]]]
        return [list(row) for row in made]

    def tables(self) -> list[tuple[list[str], list[list[Any]]]]:
        """Titles and rows of `per_class` and `confusion`, or of `per_output`; none for one number."""
        if "outputs" in self:
            outputs = [[k, *row] for k, row in enumerate(self.output_rows(), start=1)]
            return [(["output", *OUTPUT_METRICS], outputs)]
        if "confusion" not in self:
            return []
        named = zip(self._labels, self.class_rows(), self.confusion_rows(), strict=True)
        rows = [([label, *metrics], [label, *counts]) for label, metrics, counts in named]
        taken = [f"taken for {label}" for label in self._labels]
        return [(["class", *CLASS_METRICS], [row for row, _ in rows]), (["label", *taken], [row for _, row in rows])]

    def _repr_html_(self) -> str:
        numbers = [(name, each) for name, each in self.items() if name not in NESTED]
        return html_table([], numbers) + "".join(html_table(titles, rows) for titles, rows in self.tables())


CLASS_METRICS = ["precision", "recall", "f1", "rows"]
OUTPUT_METRICS = ["r2", "rmse", "mae"]


class Explanation(str):
    """Lines of text, which a notebook shows as they are."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        return f"<pre>{html_text(self)}</pre>"
