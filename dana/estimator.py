"""Estimators with scikit-learn's interface that train and predict in the database.

In: rows as scikit-learn takes them, or a data frame with texts, dates and missing values as `dana.session.frames`
does. Out: a
model of the server, and its predictions. The rows go to a temporary table, which is gone when the call ends.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Self
from uuid import uuid4
from weakref import finalize

import numpy as np
import psycopg
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    _check_sample_weight,
    check_consistent_length,
    check_is_fitted,
    validate_data,
)

from dana import rules
from dana.client.connection import Connection, connect
from dana.session.frames import columns_of
from dana.session.tables import Column, create_table

TABLE = "dana_fit"
"""The temporary table that a training reads."""

VECTOR = "x"
"""Its column, of arrays, where rows come as a matrix."""

OF_CLASSES = ("softmax", "mlp")
"""Rules that come with DAnA and predict the number of a class."""

PROBABILITIES = ("logistic", *OF_CLASSES)
"""Those that predict probabilities: of the second of two classes, or of each."""

SCORES = ("linear_svm",)
"""Those that predict a score, above 0 for the second of two classes."""

OF_TWO = ("logistic", *SCORES)
"""Those that take two classes, no more."""

_sessions: dict[tuple[int, int, str | None], Connection] = {}
"""By process, thread and connection string: a session's first training waits for a process of the worker's."""

_unused: deque[tuple[str | None, str]] = deque()
"""Models that nobody named, of estimators that are gone. The collector may run in the middle of a statement, so what it
finds is dropped later."""


class DanaEstimator(BaseEstimator):
    """What the classifier and the regressor have in common."""

    def __init__(
        self,
        rule: str | None = None,
        *,
        hyper: Mapping[str, float] | None = None,
        epochs: int | None = None,
        training: Mapping[str, Any] | None = None,
        model: str | None = None,
        dsn: str | None = None,
        random_state: Any = 0,
    ) -> None:
        self.rule = rule
        self.hyper = hyper
        self.epochs = epochs
        self.training = training
        self.model = model
        self.dsn = dsn
        self.random_state = random_state

    def __getstate__(self) -> dict[str, Any]:
        """For a copy or a pickle, for which the model stays in the database."""
        if hasattr(self, "_finalizer"):
            self._finalizer.detach()
        state: dict[str, Any] = super().__getstate__()
        return {name: value for name, value in state.items() if name != "_finalizer"}

    def _train(self, x: Any, y: NDArray[Any], rule: str, sample_weight: Any = None, **more: Any) -> None:
        """Train a model of the server on the rows, and keep its name."""
        columns, label = _columns(x), "y"
        while label in columns:
            label += "_"
        others = {label: y}
        if sample_weight is not None:
            more["weight"] = f"{label}_weight"
            while more["weight"] in columns:
                more["weight"] += "_"
            others[more["weight"]] = _check_sample_weight(sample_weight, x, dtype=np.float64, ensure_non_negative=True)
        name = self.model or f"estimator_{uuid4().hex}"
        options: dict[str, Any] = {"hyper": dict(self.hyper or {}) or None, "epochs": self.epochs}
        options |= {"features": list(columns), "label": label, "model": name, **more, **(self.training or {})}
        db = _session(self.dsn)
        _drop_unused(_session)
        with db.session.transaction():
            _register(db, rule)
            columns |= columns_of(others)
            order = check_random_state(self.random_state).permutation(len(y))
            create_table(db.session, TABLE, {key: each.take(order) for key, each in columns.items()}, temporary=True)
            result = db.train(rule, f"pg_temp.{TABLE}", progress=False, **options)
            db.session.execute(f"DROP TABLE pg_temp.{TABLE}")
        self.model_ = f"{result.model}@{result.version}"
        self.rule_, self.n_iter_, self.loss_ = rule, result.epochs, result.loss
        if self.model is None:
            self._finalizer = finalize(self, _unused.append, (self.dsn, self.model_))

    def _predicted(self, x: Any) -> NDArray[np.float64]:
        """The rule's prediction for each row, of several numbers [rows, numbers]; NaN where the server has none."""
        found = _session(self.dsn).predict(*self._model_and_rows(x))
        columns = [np.asarray(each, dtype=np.float64) for _, each in found.items()]
        return columns[0] if len(columns) == 1 else np.stack(columns, axis=1)

    def _model_and_rows(self, x: Any) -> tuple[str, Any]:
        check_is_fitted(self)
        return self.model_, _table(self._rows(x, reset=False))

    def _rows(self, x: Any, *, reset: bool) -> Any:
        """A matrix of numbers; or the data frame as it is: the server reads its texts and what is missing."""
        if not _is_frame(x):
            return validate_data(self, x, reset=reset, dtype=np.float32)  # what the machine computes with
        validate_data(self, x, reset=reset, skip_check_array=True)
        if len(x) == 0:
            raise ValueError("Found array with 0 sample(s) while a minimum of 1 is required.")
        return x


def _is_frame(x: Any) -> bool:
    return hasattr(x, "iloc") or hasattr(x, "__arrow_c_stream__")


def _table(rows: Any) -> Any:
    return rows if _is_frame(rows) else {VECTOR: rows}


def _columns(rows: Any) -> dict[str, Column]:
    return columns_of(_table(rows))


def _session(dsn: str | None) -> Connection:
    key = os.getpid(), threading.get_ident(), dsn
    if key not in _sessions or _sessions[key].session.closed:
        _sessions[key] = connect(dsn)
    return _sessions[key]


def _register(db: Connection, rule: str) -> None:
    """Create a rule of the library where it is not there."""
    if rule in rules.NAMES and not db.session.execute("SELECT FROM dana.rule WHERE name = %s", (rule,)).fetchall():
        db.create_rules(rule)


def _drop_unused(session: Callable[[str | None], Connection | None]) -> None:
    """Drop the models of estimators that are gone, and that nobody named, where there is a session."""
    while _unused:
        dsn, model = _unused.popleft()
        name, _, version = model.partition("@")
        db = session(dsn)
        if db is not None:
            with suppress(psycopg.Error):  # dropped already, or renamed
                db.drop_model(name, int(version))


@atexit.register
def _end() -> None:
    # by the sessions that there are: a process that ends starts no server
    _drop_unused(lambda dsn: _sessions.get((os.getpid(), threading.get_ident(), dsn)))
    for (process, _, _), db in _sessions.items():
        if process == os.getpid():  # not those that a parent goes on with
            db.close()


class DanaRegressor(RegressorMixin, DanaEstimator):
    """A regressor that trains in PostgreSQL.

    Parameters
    ----------
    rule
        Name of a rule that predicts a number, or several; ``linear``. One of `dana.rules` is registered where it is not
        there.
    hyper
        Values for the rule's metas.
    epochs
        Passes over the rows.
    training
        Further options of `dana.client.options.TrainOptions`, such as ``{"nulls": "skip"}``.
    model
        Name of the model in the database. Without one it is dropped some time after the estimator is gone; a copy or a
        pickle keeps it.
    dsn
        Connection string; None is the embedded server.
    random_state
        Chooses the order of the rows: rules step through batches in the order of the table, and rows that come sorted,
        class by class, would be learnt badly. The same number gives the same model, None another order each time.

    Attributes
    ----------
    model_
        The trained model, ``name@version``, for `dana_predict` and `dana.client`.
    n_iter_, loss_
        Epochs, and the rule's mean loss in the last one.
    """

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Train on the rows ``X``, a matrix or a data frame, and the numbers ``y``; each row counts by its weight.

        Of a rule with a vector for its output, ``y`` has a column for each element.
        """
        several = self.rule is not None and self.rule not in rules.NAMES
        numbers = validate_data(self, "no_validation", y, y_numeric=True, multi_output=several)
        rows = self._rows(X, reset=True)
        check_consistent_length(rows, numbers)
        self._train(rows, numbers.astype(np.float64), self.rule or "linear", sample_weight)
        return self

    def predict(self, X: Any) -> NDArray[np.float64]:
        """A number for each row, or several; NaN where a value that the model needs is missing."""
        return self._predicted(X)


class DanaClassifier(ClassifierMixin, DanaEstimator):
    """A classifier that trains in PostgreSQL.

    Parameters
    ----------
    rule
        Name of a rule of classes: ``logistic``, and ``softmax`` where there are more than two. One of `dana.rules` is
        registered where it is not there.
    hyper, epochs, training, model, dsn, random_state
        As `DanaRegressor` has them.
    class_weight
        How much rows count by their label, ``{label: weight}``, 1 for those that are left out; or ``"balanced"``, all
        classes as much.
    threshold
        Least prediction of a rule of two classes that counts as the second; 0 for ``linear_svm``, else 0.5.

    Attributes
    ----------
    classes_
        The labels, sorted; the rule sees their numbers.
    model_, n_iter_, loss_
        As `DanaRegressor` has them.
    """

    def __init__(
        self,
        rule: str | None = None,
        *,
        hyper: Mapping[str, float] | None = None,
        epochs: int | None = None,
        training: Mapping[str, Any] | None = None,
        model: str | None = None,
        dsn: str | None = None,
        random_state: Any = 0,
        class_weight: Mapping[Any, float] | str | None = None,
        threshold: float | None = None,
    ) -> None:
        super().__init__(
            rule, hyper=hyper, epochs=epochs, training=training, model=model, dsn=dsn, random_state=random_state
        )
        self.class_weight = class_weight
        self.threshold = threshold

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Train on the rows ``X``, a matrix or a data frame, and the labels ``y``, of any kind that can be sorted.

        Each row counts by its weight in ``sample_weight``, times that of its class.
        """
        labels = validate_data(self, "no_validation", y)
        check_classification_targets(labels)
        rows = self._rows(X, reset=True)
        check_consistent_length(rows, labels)
        self.classes_, numbers = np.unique(labels, return_inverse=True)
        count = len(self.classes_)
        if count < 2:
            raise ValueError(
                "This classifier needs samples of at least 2 classes, but the data contains only one class"
            )
        rule = self.rule or ("logistic" if count == 2 else "softmax")
        if count > 2 and rule in OF_TWO:
            raise ValueError(f"The rule {rule} is for two classes, but the data contains {count} classes")
        weights = self.class_weight
        if weights is not None and not isinstance(weights, str):
            number = {label: str(k) for k, label in enumerate(self.classes_.tolist())}
            unknown = [label for label in weights if label not in number]
            if unknown:
                raise ValueError(f"class_weight names {unknown[0]!r}, which is none of the classes {list(number)}")
            weights = {number[label]: float(weight) for label, weight in weights.items()}
        more = {} if weights is None else {"class_weight": weights}
        self._train(rows, numbers.astype(np.float64), rule, sample_weight, **more)
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        """The label of each row.

        Raises
        ------
        ValueError
            A value that the model needs is missing.
        """
        predicted = self._known(X)
        if self.rule_ in OF_CLASSES or len(self.classes_) > 2:
            numbers = predicted.astype(np.intp)
        else:
            least = (0.0 if self.rule_ in SCORES else 0.5) if self.threshold is None else self.threshold
            # a score of 0 is the first class's, as scikit-learn has it
            numbers = (predicted > least if self.rule_ in SCORES else predicted >= least).astype(np.intp)
        return np.asarray(self.classes_[numbers])

    @available_if(lambda self: getattr(self, "rule_", self.rule or PROBABILITIES[0]) in PROBABILITIES)
    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """The probability of each class, in the order of ``classes_``, where the rule predicts it."""
        check_is_fitted(self)
        if self.rule_ not in OF_CLASSES:  # a rule of that name may be an older one, which knows of no classes
            second = self._known(X)
            return np.stack([1 - second, second], axis=1)
        found = _session(self.dsn).probabilities(*self._model_and_rows(X))
        return self._complete(np.stack([np.asarray(each, dtype=np.float64) for _, each in found.items()], axis=1))

    @available_if(lambda self: getattr(self, "rule_", self.rule) in SCORES)
    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """The score of each row, above 0 for the second class, where the rule predicts it."""
        return self._known(X)

    def _known(self, x: Any) -> NDArray[np.float64]:
        predicted = self._predicted(x)
        if predicted.ndim > 1:
            raise ValueError(f"The rule {self.rule_} predicts {predicted.shape[1]} numbers, which choose no class")
        return self._complete(predicted)

    def _complete(self, predicted: NDArray[np.float64]) -> NDArray[np.float64]:
        missing = np.isnan(predicted.reshape(len(predicted), -1)).any(axis=1)
        if missing.any():
            row = int(np.argmax(missing))
            raise ValueError(f"There is no prediction for row {row}: a value that the model needs is missing")
        return predicted
