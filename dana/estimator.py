"""Estimators with scikit-learn's interface that train and predict in the database.

In: rows as scikit-learn accepts them, or a data frame with texts, dates and missing values as `dana.session.frames`
does. Out: a model of the server, and its predictions. The rows are copied to a temporary table for the call.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence, Sized
from contextlib import suppress
from typing import Self, TypeAlias, cast
from uuid import uuid4
from weakref import finalize

import numpy as np
import psycopg
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import _check_partial_fit_first_call, check_classification_targets
from sklearn.utils.validation import (
    _check_sample_weight,
    check_consistent_length,
    check_is_fitted,
    validate_data,
)

from dana import rules
from dana.client.connection import Connection, connect
from dana.client.options import TrainOptions
from dana.predictor.centres import is_coarse
from dana.session.frames import Frame, columns_of
from dana.session.tables import Column, create_table

Rows: TypeAlias = "ArrayLike | Frame"
Seed: TypeAlias = "int | np.random.RandomState | None"
LabelWeights: TypeAlias = Mapping[str, float] | Mapping[int, float] | Mapping[float, float]
"""A mapping of strings is none of objects: the kinds of labels are listed."""
ClassWeight: TypeAlias = Mapping[str, float] | str | None

TABLE = "dana_fit"
"""The temporary table that a training reads."""

VECTOR = "x"
"""Its column of arrays, for rows that are a matrix."""

OF_CLASSES = ("softmax", "mlp")
"""Rules of the library that predict the number of a class."""

PROBABILITIES = ("logistic", *OF_CLASSES)
"""Rules that predict probabilities: of the second of two classes, or of each class."""

SCORES = ("linear_svm",)
"""Rules that predict a score, above 0 for the second of two classes."""

OF_TWO = ("logistic", *SCORES)
"""Rules that support only two classes."""

_sessions: dict[tuple[int, int, str | None], Connection] = {}
"""By process, thread and connection string; kept, because a session's first training starts a process of the worker."""

_unused: deque[tuple[str | None, str]] = deque()
"""Unnamed models of deleted estimators, to drop later: the collector may run in the middle of a statement."""


class DanaEstimator(BaseEstimator):
    """The base class of classifier and regressor."""

    def __init__(
        self,
        rule: str | None = None,
        *,
        hyper: Mapping[str, float] | None = None,
        epochs: int | None = None,
        training: TrainOptions | None = None,
        model: str | None = None,
        dsn: str | None = None,
        random_state: Seed = 0,
    ) -> None:
        self.rule = rule
        self.hyper = hyper
        self.epochs = epochs
        self.training = training
        self.model = model
        self.dsn = dsn
        self.random_state = random_state

    def __getstate__(self) -> dict[str, object]:
        """The state for a copy or a pickle, which keeps the model in the database."""
        # before the copy is made: two objects now refer to the model, and neither may drop it
        if hasattr(self, "_finalizer"):
            self._finalizer.detach()
        state: dict[str, object] = super().__getstate__()
        return {name: value for name, value in state.items() if name != "_finalizer"}

    def _train(
        self,
        x: Rows,
        y: NDArray[np.float64],
        rule: str,
        sample_weight: ArrayLike | None,
        class_weight: ClassWeight = None,
        *,
        classes: Sequence[str] | None = None,
        start: str | None = None,
    ) -> None:
        """Train a model of the server on the rows, from the model ``start`` if there is one, and keep its name."""
        columns = columns_of(_table(x))
        label = _unused_name("y", columns)
        options: TrainOptions = {"features": list(columns), "label": label}
        former = None if start is None else start.rpartition("@")[0]
        options["model"] = self.model or former or f"estimator_{uuid4().hex}"
        others = {label: y}
        if sample_weight is not None:
            options["weight"] = weight = _unused_name(f"{label}_weight", columns)
            others[weight] = _check_sample_weight(sample_weight, x, dtype=np.float64, ensure_non_negative=True)
        if class_weight is not None:
            options["class_weight"] = class_weight
        if self.hyper:
            options["hyper"] = dict(self.hyper)
        if self.epochs is not None:
            options["epochs"] = self.epochs
        options["seed"] = int(check_random_state(self.random_state).randint(1 << 31))
        options |= self.training or {}
        if classes is not None:
            options["classes"] = classes
        if start is not None:
            options["warm_start_from"] = start
        db = _session(self.dsn)
        former_model = getattr(self, "_finalizer", None)
        # before the transaction, which a drop that fails would end
        _drop_unused(_session)
        # one transaction: an error leaves neither the table nor a model
        with db.session.transaction():
            _register(db, rule)
            # label and weight are added after the list of features is made: they are not features
            columns |= columns_of(others)
            create_table(db.session, TABLE, columns, temporary=True)
            result = db.train(rule, f"pg_temp.{TABLE}", progress=False, **options)
            db.session.execute(f"DROP TABLE pg_temp.{TABLE}")
        if former_model is not None:
            former_model()  # unless a copy has it
        self.model_ = f"{result.model}@{result.version}"
        self.rule_, self.n_iter_, self.loss_ = rule, result.epochs, result.loss
        self._set_coefficients(db)
        if self.model is None:
            self._finalizer = finalize(self, _unused.append, (self.dsn, self.model_))

    def _set_coefficients(self, db: Connection) -> None:
        """Set ``coef_`` and ``intercept_`` in scikit-learn's shapes, if the prediction is made of weighted sums."""
        for name in ("coef_", "intercept_"):
            self.__dict__.pop(name, None)
        found: dict[str | None, list[float]] = {}
        for one in db.coefficients(self.model_):
            found.setdefault(one.label, []).append(one.coefficient)
        sums = np.array(list(found.values()))
        if sums.size:
            single = len(sums) == 1 and not hasattr(self, "classes_")
            self.coef_ = sums[0, 1:] if single else sums[:, 1:]
            self.intercept_ = float(sums[0, 0]) if single else sums[:, 0]

    def _predicted(self, x: Rows) -> NDArray[np.float64]:
        """The rule's prediction for each row, [rows, numbers] if it has several; NaN for a row without one."""
        found = _session(self.dsn).predict(*self._model_and_rows(x))
        columns = [np.asarray(each, dtype=np.float64) for _, each in found.items()]
        return columns[0] if len(columns) == 1 else np.stack(columns, axis=1)

    def _model_and_rows(self, x: Rows) -> tuple[str, Frame]:
        check_is_fitted(self)
        return self.model_, _table(self._rows(x, reset=False))

    def _rows(self, x: Rows, *, reset: bool) -> Rows:
        """A matrix of numbers; or the data frame itself, as the server encodes texts and missing values."""
        if not _is_frame(x):
            numbers = validate_data(self, x, reset=reset, dtype=np.float32)  # the machine's numbers
            exact = np.asarray(x, np.float64)
            # columns that the server trains on less their centres need all digits
            coarse = is_coarse(np.abs(exact).max(axis=0), exact.std(axis=0))
            return cast(Rows, exact if coarse.any() else numbers)
        # records or compares the names of the columns; values are the server's to check
        validate_data(self, x, reset=reset, skip_check_array=True)
        if len(cast(Sized, x)) == 0:
            # the text of scikit-learn's check_array, which is skipped for frames
            raise ValueError("Found array with 0 sample(s) while a minimum of 1 is required.")
        return x


def _is_frame(x: object) -> bool:
    return hasattr(x, "iloc") or hasattr(x, "__arrow_c_stream__")


def _table(rows: Rows) -> Frame:
    return cast(Frame, rows if _is_frame(rows) else {VECTOR: rows})


def _unused_name(name: str, columns: Mapping[str, Column]) -> str:
    while name in columns:
        name += "_"
    return name


def _session(dsn: str | None) -> Connection:
    key = os.getpid(), threading.get_ident(), dsn
    if key not in _sessions or _sessions[key].session.closed:
        _sessions[key] = connect(dsn)
    return _sessions[key]


def _register(db: Connection, rule: str) -> None:
    """Create a rule of the library unless it exists."""
    if rule in rules.NAMES and not db.session.execute("SELECT FROM dana.rule WHERE name = %s", (rule,)).fetchall():
        db.create_rules(rule)


def _drop_unused(session: Callable[[str | None], Connection | None]) -> None:
    """Drop the unnamed models of deleted estimators, if ``session`` finds a session for their server."""
    while _unused:
        dsn, model = _unused.popleft()
        name, _, version = model.partition("@")
        db = session(dsn)
        if db is not None:
            with suppress(psycopg.Error):  # dropped already, or renamed
                db.drop_model(name, int(version))


@atexit.register
def _end() -> None:
    # only through open sessions: an ending process must not start a server
    _drop_unused(lambda dsn: _sessions.get((os.getpid(), threading.get_ident(), dsn)))
    for (process, _, _), db in _sessions.items():
        if process == os.getpid():  # a forked child must not close its parent's sessions
            db.close()


class DanaRegressor(RegressorMixin, DanaEstimator):
    """A regressor that trains in PostgreSQL.

    Parameters
    ----------
    rule
        Name of a rule that predicts a number, or several; ``linear``. A rule of `dana.rules` is registered on first
        use.
    hyper
        Values for the rule's metas.
    epochs
        Passes over the rows.
    training
        Further options of `dana.client.options.TrainOptions`, such as ``{"nulls": "skip"}``.
    model
        Name of the model in the database. An unnamed model is dropped some time after the estimator is deleted; a copy
        or a pickle keeps it.
    dsn
        Connection string; None is the embedded server.
    random_state
        Seed of the order in which rows are trained. The same seed gives the same model; None gives another order each
        time.

    Attributes
    ----------
    model_
        The trained model, ``name@version``, for `dana_predict` and `dana.client`.
    n_iter_, loss_
        Epochs, and the rule's mean loss in the last one.
    coef_, intercept_
        Coefficients of the columns in their own units, shape (columns,), if the prediction is a weighted sum of them or
        a function of one; (numbers, columns) for several. A text or a date of a frame counts as the columns that it
        becomes; `Connection.coefficients` names them, and has standard errors.
    """

    def fit(self, X: Rows, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Train on the rows ``X``, a matrix or a data frame, and the numbers ``y``; each row counts by its weight.

        For a rule with a vector as its output, ``y`` has a column for each element.
        """
        return self._fit(X, y, sample_weight, None)

    def partial_fit(self, X: Rows, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Go on training the model on these rows, as ``warm_start_from`` does; the first call is `fit`.

        Each call makes as many passes as `fit`. A rule that finds the optimum of its rows, such as ``linear``, ends at
        that of the last rows; one of stochastic gradient descent keeps more of the earlier ones with fewer ``epochs``.
        """
        return self._fit(X, y, sample_weight, getattr(self, "model_", None))

    def _fit(self, x: Rows, y: ArrayLike, sample_weight: ArrayLike | None, start: str | None) -> Self:
        several = self.rule is not None and self.rule not in rules.NAMES
        numbers = validate_data(self, "no_validation", y, y_numeric=True, multi_output=several)
        rows = self._rows(x, reset=start is None)
        check_consistent_length(rows, numbers)
        self._train(rows, numbers.astype(np.float64), self.rule or "linear", sample_weight, start=start)
        return self

    def predict(self, X: Rows) -> NDArray[np.float64]:
        """A number for each row, or several; NaN if a value that the model needs is missing."""
        return self._predicted(X)


def _calibrated(estimator: DanaEstimator) -> bool:
    return (estimator.training or {}).get("calibrate") is not None


def _predicts_probabilities(estimator: DanaEstimator) -> bool:
    return getattr(estimator, "rule_", estimator.rule or PROBABILITIES[0]) in PROBABILITIES or _calibrated(estimator)


def _predicts_scores(estimator: DanaEstimator) -> bool:
    return getattr(estimator, "rule_", estimator.rule) in SCORES and not _calibrated(estimator)


class DanaClassifier(ClassifierMixin, DanaEstimator):
    """A classifier that trains in PostgreSQL.

    Parameters
    ----------
    rule
        Name of a rule for classes: ``logistic``, or ``softmax`` for more than two. A rule of `dana.rules` is registered
        on first use.
    hyper, epochs, training, model, dsn, random_state
        As `DanaRegressor` has them.
    class_weight
        Weight of the rows by label, ``{label: weight}``, 1 by default; or ``"balanced"``, which gives all classes the
        same total weight.
    threshold
        Least prediction that counts as the second of two classes; 0 for ``linear_svm`` without ``calibrate``, else 0.5.

    Attributes
    ----------
    classes_
        The labels, sorted; the rule sees their numbers.
    model_, n_iter_, loss_
        As `DanaRegressor` has them.
    coef_, intercept_
        As `DanaRegressor` has them, with an axis of the classes, or of length 1 for two.
    """

    def __init__(
        self,
        rule: str | None = None,
        *,
        hyper: Mapping[str, float] | None = None,
        epochs: int | None = None,
        training: TrainOptions | None = None,
        model: str | None = None,
        dsn: str | None = None,
        random_state: Seed = 0,
        class_weight: LabelWeights | str | None = None,
        threshold: float | None = None,
    ) -> None:
        super().__init__(
            rule, hyper=hyper, epochs=epochs, training=training, model=model, dsn=dsn, random_state=random_state
        )
        self.class_weight = class_weight
        self.threshold = threshold

    def fit(self, X: Rows, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Train on the rows ``X``, a matrix or a data frame, and the labels ``y``, of any kind that can be sorted.

        Each row counts by its weight in ``sample_weight``, times that of its class.
        """
        labels = validate_data(self, "no_validation", y)
        check_classification_targets(labels)
        rows = self._rows(X, reset=True)
        check_consistent_length(rows, labels)
        self.classes_ = np.unique(labels)
        return self._fit(rows, labels, sample_weight, None)

    def partial_fit(
        self,
        X: Rows,
        y: ArrayLike,
        classes: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Go on training the model on these rows, as ``warm_start_from`` does.

        Each call makes as many passes as `fit`. A rule that finds the optimum of its rows, such as ``logistic``, ends
        at that of the last rows; one of stochastic gradient descent keeps more of the earlier ones with fewer
        ``epochs``.

        Parameters
        ----------
        classes
            All labels; required in the first call, since its rows may not have all of them.
        """
        if self.class_weight == "balanced":
            raise ValueError("class_weight='balanced' needs the labels of all rows: give partial_fit a weight by label")
        first = _check_partial_fit_first_call(self, classes)
        labels = validate_data(self, "no_validation", y)
        check_classification_targets(labels)
        rows = self._rows(X, reset=first)
        check_consistent_length(rows, labels)
        unknown = np.setdiff1d(labels, self.classes_)
        if len(unknown):
            raise ValueError(f"y must have labels of {self.classes_.tolist()}, not {unknown.tolist()[0]!r}")
        return self._fit(rows, labels, sample_weight, getattr(self, "model_", None))

    def _fit(self, rows: Rows, labels: NDArray[np.generic], sample_weight: ArrayLike | None, start: str | None) -> Self:
        numbers = np.searchsorted(self.classes_, labels)
        count = len(self.classes_)
        # `check_estimator` of scikit-learn requires the word class in the message
        if count < 2:
            raise ValueError(
                "This classifier needs samples of at least 2 classes, but the data contains only one class"
            )
        rule = self.rule or ("logistic" if count == 2 else "softmax")
        if count > 2 and rule in OF_TWO:
            raise ValueError(f"The rule {rule} is for two classes, but the data contains {count} classes")
        weights: ClassWeight = None
        if isinstance(self.class_weight, str):
            weights = self.class_weight
        elif self.class_weight is not None:
            # the server's classes are these numbers as texts
            number = {label: str(k) for k, label in enumerate(self.classes_.tolist())}
            unknown = [label for label in self.class_weight if label not in number]
            if unknown:
                raise ValueError(f"class_weight must name classes of {list(number)}, not {unknown[0]!r}")
            weights = {number[label]: float(weight) for label, weight in self.class_weight.items()}
        # of these rows: others of the model may have all classes
        missing = start is None and len(np.unique(numbers)) < count
        classes = [str(k) for k in range(count)] if missing else None
        self._train(rows, numbers.astype(np.float64), rule, sample_weight, weights, classes=classes, start=start)
        return self

    def predict(self, X: Rows) -> NDArray[np.generic]:
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
            scores = _predicts_scores(self)
            least = (0.0 if scores else 0.5) if self.threshold is None else self.threshold
            # a score of 0 predicts the first class, as in scikit-learn
            numbers = (predicted > least if scores else predicted >= least).astype(np.intp)
        return np.asarray(self.classes_[numbers])

    @available_if(_predicts_probabilities)
    def predict_proba(self, X: Rows) -> NDArray[np.float64]:
        """The probability of each class in the order of ``classes_``, if the rule predicts it.

        ``training={"calibrate": "platt"}`` makes one of a score.
        """
        check_is_fitted(self)
        if self.rule_ not in OF_CLASSES:  # an older rule of that name may not know of classes
            second = self._known(X)
            return np.stack([1 - second, second], axis=1)
        found = _session(self.dsn).probabilities(*self._model_and_rows(X))
        return self._complete(np.stack([np.asarray(each, dtype=np.float64) for _, each in found.items()], axis=1))

    @available_if(_predicts_scores)
    def decision_function(self, X: Rows) -> NDArray[np.float64]:
        """The score of each row, above 0 for the second class, if the rule predicts it."""
        return self._known(X)

    def _known(self, x: Rows) -> NDArray[np.float64]:
        predicted = self._predicted(x)
        if predicted.ndim > 1:
            raise ValueError(f"The rule {self.rule_} must predict classes, not {predicted.shape[1]} numbers")
        return self._complete(predicted)

    def _complete(self, predicted: NDArray[np.float64]) -> NDArray[np.float64]:
        missing = np.isnan(predicted.reshape(len(predicted), -1)).any(axis=1)
        if missing.any():
            row = int(np.argmax(missing))
            raise ValueError(f"There is no prediction for row {row}: a value that the model needs is missing")
        return predicted
