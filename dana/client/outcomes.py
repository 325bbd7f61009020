"""Results of trainings, evaluations and explanations, as values that a notebook shows.

In: rows of the server. Out: Python values, and HTML with a drawing if matplotlib is installed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

import psycopg
from psycopg.pq import TransactionStatus

from dana.errors import UsageError
from dana.metrics import TABLES, ordered
from dana.records import Metrics
from dana.report.history import Epoch, Run, read_run
from dana.session.results import Rows, html_table, html_text, pandas, record_of

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True, kw_only=True)
class Coefficient:
    """What one column weighs.

    Attributes
    ----------
    label
        The class, if the prediction has a sum for each; None for a single sum.
    term
        The column, or ``(intercept)``.
    coefficient
        Change of the sum for one unit of the column.
    standard_error, statistic, p_value, lower, upper
        Its standard error, the quotient of both, the probability of one as large by chance, and the 95 % confidence
        interval; None unless the model is at the maximum of its likelihood.
    """

    label: str | None
    term: str
    coefficient: float
    standard_error: float | None
    statistic: float | None
    p_value: float | None
    lower: float | None
    upper: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Importance:
    """What a model loses without the values of one feature.

    Attributes
    ----------
    feature
        The column.
    importance, deviation
        By how much the metric gets worse when its values are permuted among the rows: mean and standard deviation over
        the permutations.
    """

    feature: str
    importance: float
    deviation: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainResult:
    """The row that ``dana_train`` returns.

    Attributes
    ----------
    model, version
        Name of the model, and which training of that name.
    run
        Its number in ``dana.run`` and ``dana.epoch``.
    epochs
        Passes over the table.
    kept
        The epoch with the model that was kept.
    converged
        Whether the rule's convergence test ended the training.
    loss
        Mean loss of the kept model over the rows trained on, measured after the last epoch; None for a rule without
        one.
    validation_loss
        The same over the rows for validation, which choose the epoch; None without any.
    tuples, skipped
        Rows trained on and rows left out for a NULL, in one epoch.
    pages
        Pages read, over all epochs.
    cycles
        Cycles of the accelerator, over all epochs; None for ``interp``.
    modelled_seconds
        Those cycles at the design's clock; None for ``interp``.
    wall_seconds
        Time that the statement took in the server.
    """

    model: str
    version: int
    run: int
    epochs: int
    kept: int
    converged: bool
    loss: float | None
    validation_loss: float | None
    tuples: int
    skipped: int
    pages: int
    cycles: int | None
    modelled_seconds: float | None
    wall_seconds: float
    # private names are no columns: `call` and `record_of` leave them out
    _session: psycopg.Connection | None = field(default=None, repr=False, compare=False)

    def _repr_html_(self) -> str:
        """The numbers, and the curve while the session is open and idle."""
        shown = html_table([], list(record_of(self).items()))
        session = self._session
        # during a query, or in a failed transaction, another query is an error
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
        The run of these epochs.
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


def read_curve(session: psycopg.Connection, run: int) -> Curve:
    """The epochs of the run with this number.

    Raises
    ------
    UsageError
        There is no such run, or it belongs to another role.
    """
    return Curve(read_run(session, run))


class Evaluation(dict[str, object]):
    """Metrics by name; in a notebook tables.

    Parameters
    ----------
    metrics
        As ``dana_evaluate`` returns them.
    labels
        The model's classes, in order; unknown ones are ``negative`` and ``positive``, or numbers if more than two.
    """

    __slots__ = ("_labels",)

    def __init__(self, metrics: Metrics, labels: Sequence[object] = ()) -> None:
        values: dict[str, object] = dict(metrics)
        super().__init__((name, values[name]) for name in ordered(values))
        count = len(self.confusion_rows()) if "confusion" in self else 0
        unnamed: Sequence[object] = ["negative", "positive"] if count == 2 else range(count)
        # a warm start from a model with other labels, or a dropped label, makes the counts differ
        self._labels = list(labels if len(labels) == count else unnamed)

    @property
    def metrics(self) -> Metrics:
        """The same, in which an editor knows the type of each."""
        return cast(Metrics, self)

    def to_frame(self) -> pd.DataFrame:
        """The metrics as a ``pandas.DataFrame`` of one row, without those that are tables."""
        return Rows([{name: each for name, each in self.items() if name not in TABLES}]).to_frame()

    def per_class(self) -> pd.DataFrame:
        """Precision, recall, F1 and the number of rows of each class, as a ``pandas.DataFrame``.

        Raises
        ------
        UsageError
            There are no classes.
        """
        return self._matrix(CLASS_METRICS, self.class_rows())

    def confusion(self) -> pd.DataFrame:
        """The number of rows by label (down) and predicted class (across), as a ``pandas.DataFrame``.

        Raises
        ------
        UsageError
            There are no classes.
        """
        return self._matrix(pandas().Index(self._labels, name="predicted"), self.confusion_rows())

    def per_output(self) -> pd.DataFrame:
        """R², the root of the mean squared error and the mean absolute error of each output, as a ``pandas.DataFrame``.

        Raises
        ------
        UsageError
            The model predicts a single number.
        """
        if "outputs" not in self.metrics:
            raise UsageError("the metrics must be of several outputs, not of one number")
        (columns, rows), pd = _table(self.metrics["outputs"]), pandas()
        return pd.DataFrame(rows, index=pd.RangeIndex(1, len(rows) + 1, name="output"), columns=columns)

    def calibration(self) -> pd.DataFrame:
        """Rows, mean probability and share of positive rows by tenths of the probability, as a ``pandas.DataFrame``.

        Raises
        ------
        UsageError
            The predictions are not probabilities of two classes.
        """
        if "calibration" not in self.metrics:
            raise UsageError("the metrics must be of probabilities of two classes")
        return pandas().DataFrame(self.metrics["calibration"], columns=CALIBRATION)

    def _matrix(self, columns: object, rows: Sequence[Sequence[object]]) -> pd.DataFrame:
        pd = pandas()
        return pd.DataFrame(rows, index=pd.Index(self._labels, name="label"), columns=columns)

    def class_rows(self) -> list[list[object]]:
        """The values of `per_class`."""
        if "classes" in self.metrics:
            return _picked(self.metrics["classes"], CLASS_METRICS)
        rows = self.confusion_rows()
        found: list[list[object]] = []
        for k, row in enumerate(rows):
            taken, right = sum(other[k] for other in rows), row[k]
            # 0 for a class without rows or predictions, as in scikit-learn by default
            precision, recall = (right / each if each else 0.0 for each in (taken, sum(row)))
            f1 = 2 * right / (taken + sum(row)) if taken + sum(row) else 0.0
            found.append([precision, recall, f1, sum(row)])
        return found

    def confusion_rows(self) -> list[list[int]]:
        """The values of `confusion`."""
        made = self.metrics.get("confusion")
        if made is None:
            raise UsageError("the metrics must be of classes, not of numbers")
        if isinstance(made, list):
            return [list(row) for row in made]
        # as a matrix: label down, prediction across, the negative class first
        return [[made["tn"], made["fp"]], [made["fn"], made["tp"]]]

    def tables(self) -> list[tuple[list[str], list[list[object]]]]:
        """Titles and rows of `per_class`, `confusion` and `calibration`, or of `per_output`; none for one number."""
        if "outputs" in self:
            columns, found = _table(self.metrics["outputs"])
            return [(["output", *columns], [[k, *row] for k, row in enumerate(found, start=1)])]
        if "confusion" not in self:
            return []
        named = zip(self._labels, self.class_rows(), self.confusion_rows(), strict=True)
        rows = [([label, *metrics], [label, *counts]) for label, metrics, counts in named]
        taken = [f"taken for {label}" for label in self._labels]
        tables = [(["class", *CLASS_METRICS], [row for row, _ in rows]), (["label", *taken], [row for _, row in rows])]
        if "calibration" in self:
            tables.append((CALIBRATION, _picked(self.metrics["calibration"], CALIBRATION)))
        return tables

    def _repr_html_(self) -> str:
        numbers = [(name, each) for name, each in self.items() if name not in TABLES]
        return html_table([], numbers) + "".join(html_table(titles, rows) for titles, rows in self.tables())


CLASS_METRICS = ["precision", "recall", "f1", "rows"]
CALIBRATION = ["predicted", "observed", "rows"]


def _picked(records: Sequence[Mapping[str, object]], names: Sequence[str]) -> list[list[object]]:
    return [[one[name] for name in names] for one in records]


def _table(records: Sequence[Mapping[str, object]]) -> tuple[list[str], list[list[object]]]:
    """Names of metrics, and their values in each record."""
    names = ordered(records[0])
    return names, _picked(records, names)


class Explanation(str):
    """Lines of text; a notebook shows them in a fixed-width font."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        return f"<pre>{html_text(self)}</pre>"
