"""Predictions of a model for the rows of a table, a query or a data frame.

In: a session, a model's name, rows. Out: a data frame if pandas is installed, else arrays of NumPy. The server
predicts: `dana_predict` finds its columns by name in the whole row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import psycopg
from numpy.typing import NDArray
from psycopg import sql
from psycopg.rows import TupleRow

from dana.errors import UsageError
from dana.records import Metadata
from dana.session.frames import Frame, columns_of
from dana.session.notices import Messages
from dana.session.sources import LoadedTable, names_of, table_of
from dana.session.tables import checked_name, create_table

if TYPE_CHECKING:
    import pandas as pd

Source: TypeAlias = "str | LoadedTable | Frame | None"
Framed: TypeAlias = "pd.DataFrame | dict[str, np.ndarray]"

PREDICTION = "prediction"
CONTRIBUTIONS = "dana_contributions"
LOADED = "dana_rows"
"""The temporary table that holds a frame's rows; one at a time."""

# WITH ORDINALITY: in the order of the key, which may differ from that of the table
PRIMARY_KEY = """
SELECT a.attname FROM pg_catalog.pg_index AS i
CROSS JOIN LATERAL pg_catalog.unnest(i.indkey::int2[]) WITH ORDINALITY AS k (attnum, n)
JOIN pg_catalog.pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
WHERE i.indrelid = %s::regclass::oid AND i.indisprimary ORDER BY k.n
"""


@contextmanager
def loaded(session: psycopg.Connection, frame: Frame) -> Iterator[str]:
    """The name of a temporary table with the rows of a data frame. Changes of the database in the block are undone."""
    columns = columns_of(frame)
    with session.transaction(force_rollback=True):  # a pooler may give the server process to another client next
        create_table(session, LOADED, columns, temporary=True)
        yield f"pg_temp.{LOADED}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicting:
    """How a model predicts.

    Attributes
    ----------
    classes
        Texts of its label's classes; None if it predicts numbers.
    type
        SQL's name of the label's type, if known.
    width
        Numbers that it predicts for a row.
    probable
        Whether they are probabilities.
    several
        Whether they are several outputs, not scores of classes.
    features
        Columns that it was trained on.
    double
        Whether they have more digits than binary32.
    """

    classes: list[str] | None
    type: str | None
    width: int
    probable: bool
    several: bool
    features: list[str]
    double: bool = False

    def function(self, *, labels: bool = False) -> str:
        """The function of schema dana to call; with ``labels``, the one that returns labels."""
        if labels or (self.classes is not None and self.width > 1):
            return "dana_classify"
        return "dana_predict_array" if self.several else "dana_predict_double" if self.double else "dana_predict"

    def titles(self) -> list[str]:
        """Names of the columns of its prediction."""
        return [f"{PREDICTION}_{k}" for k in range(1, self.width + 1)] if self.several else [PREDICTION]

    def contributions(self) -> list[object]:
        """Names of contributions: features after ``(base)``, with a label before each if there are several sums."""
        names = ["(base)", *self.features]
        sums = self.width if self.several else len(self.classes or ()) if self.width > 1 else 1
        labels = range(1, sums + 1) if self.several else self.labels()
        return [*names] if sums == 1 else [(label, name) for label in labels for name in names]

    def numbers(self, values: list[list[float] | None]) -> NDArray[np.float32]:
        """Results of ``dana_predict_array``, [rows, width]; NaN for a row without a prediction."""
        none = [float("nan")] * self.width
        return np.array([none if each is None else each for each in values], dtype=np.float32).reshape(-1, self.width)

    def labels(self) -> list[object]:
        """The classes, as numbers or truth values if the label's type has them."""
        read = READERS.get(self.type or "", str)
        texts = self.classes or []
        try:
            return [read(text) for text in texts]
        except (KeyError, ValueError):  # warm-started from a model with labels of another type
            return list(texts)


READERS: dict[str, Callable[[str], object]] = {
    **dict.fromkeys(("smallint", "integer", "bigint"), int),
    **dict.fromkeys(("real", "double precision", "numeric"), float),
    "boolean": {"false": False, "true": True}.__getitem__,
}
"""Types of labels that are not texts in a data frame."""


def read_predicting(session: psycopg.Connection, model: str) -> Predicting:
    """How a model predicts, from its metadata; an error if it does not exist."""
    from dana.predictor.centres import centres_of
    from dana.predictor.program import decode_predictor

    statement = "SELECT metadata, predictor FROM dana.dana_find_model(%s)"
    metadata: Metadata
    metadata, predictor = session.execute(statement, (model,)).fetchall()[0]
    predicts = metadata.get("predicts")
    return Predicting(
        classes=None if predicts == "number" else metadata.get("classes"),
        type=metadata.get("class_type"),
        width=1 if predictor is None else decode_predictor(predictor).width,
        probable=predicts == "probability",
        several=predicts == "numbers",
        features=metadata["features"],
        double=centres_of(metadata).label != 0,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Predicted:
    """Rows with their predictions.

    Attributes
    ----------
    names, kept
        The columns to keep.
    values
        Results of the function for each row; None is NULL.
    index
        The rows' index of pandas, or None.
    """

    names: list[str]
    kept: list[list[object]]
    values: list[Any]
    index: object = None


def _predicted(
    session: psycopg.Connection,
    model: str,
    source: Source,
    function: str,
    *,
    query: str | None,
    columns: Iterable[str] | None,
    filter: str | None,
) -> _Predicted:
    if (source is None) == (query is None):
        raise UsageError("pass either a source (a table or a data frame) or a query")
    index = None
    if source is None or isinstance(source, str | LoadedTable):
        names, rows = predicted_rows(
            session, model, source, query=query, columns=columns, filter=filter, function=function
        )
    else:
        with loaded(session, source) as table:
            names, rows = predicted_rows(
                session, model, table, query=None, columns=columns or (), filter=filter, function=function
            )
        # a temporary table is scanned in the order of its rows: no synchronised scan, no parallel worker
        # with a filter, rows are missing and the index would be too long
        index = getattr(source, "index", None) if filter is None else None
    # the prediction is the last column
    *kept, values = map(list, zip(*rows, strict=True)) if rows else [[] for _ in names]
    # a list has a method `index`; only pandas' attribute is data
    return _Predicted(names=names[:-1], kept=kept, values=values, index=None if callable(index) else index)


def predicted_rows(
    session: psycopg.Connection,
    model: str,
    source: str | LoadedTable | None,
    *,
    query: str | None,
    columns: Iterable[str] | None,
    filter: str | None,
    function: str,
) -> tuple[list[str], list[TupleRow]]:
    """The columns' names, and the rows of a table or a query with the result of a function of schema dana."""
    if source is not None:
        table = table_of(session, source)
        rows: sql.Composable = sql.SQL(table)
        if columns is None:
            columns = [name for (name,) in session.execute(PRIMARY_KEY, (table,))]
    else:
        # the line break ends a comment in the query's last line
        rows = sql.SQL("({}\n)").format(sql.SQL((query or "").rstrip().rstrip(";")))
    wanted = names_of("columns", columns or ())
    names = [*wanted, PREDICTION]
    if len(set(names)) < len(names):
        raise UsageError(f"the columns to keep must have different names, and none may be {PREDICTION}")
    # not r.name: without a column of that name it would call a function of that name
    kept = sql.SQL("").join(sql.SQL("{}, ").format(sql.Identifier(checked_name("column", name))) for name in wanted)
    # the statement has a parameter, so psycopg reads every % as the start of one
    before, after, where = (
        part.as_string(session).replace("%", "%%") for part in (kept, rows, sql.SQL(filter or "true"))
    )
    predicted = f"dana.{function}(%s::pg_catalog.text, r.*)"
    if function == CONTRIBUTIONS:  # a row for each
        predicted = f"(SELECT pg_catalog.array_agg(c.contribution) FROM {predicted} AS c)"
    # with a parameter the server accepts only one statement, so a filter cannot add another
    statement = f"SELECT {before}{predicted} FROM {after} AS r WHERE ({where}\n)"
    with Messages(session):
        return names, session.execute(statement.encode(), (model,)).fetchall()


def _framed(rows: _Predicted, added: Mapping[object, np.ndarray | list[object]]) -> Framed:
    """The columns to keep and the predictions, as a data frame if pandas is installed."""
    columns = dict(zip(rows.names, rows.kept, strict=True))
    if twice := columns.keys() & added.keys():
        raise UsageError(f"a column to keep must not have the name of a prediction, {sorted(map(str, twice))[0]}")
    try:
        import pandas as pd
    except ModuleNotFoundError:
        return {name: np.asarray(values) for name, values in (columns | dict(added)).items()}
    return pd.DataFrame(columns | {name: _column(values) for name, values in added.items()}, index=rows.index)


def _column(values: np.ndarray | list[object]) -> object:
    """Values for pandas; whole numbers and truth values with missing ones in a nullable type, to keep their kind."""
    known = [each for each in values if each is not None] if isinstance(values, list) else []
    # pandas would turn whole numbers with a None into floats
    if len(known) < len(values) and known and isinstance(known[0], int):
        import pandas as pd

        return pd.array(values, dtype="boolean" if isinstance(known[0], bool) else "Int64")
    return values


class PredictingSession:
    """Predictions as methods of a session."""

    session: psycopg.Connection

    def predict(
        self,
        model: str,
        source: Source = None,
        *,
        query: str | None = None,
        columns: Iterable[str] | None = None,
        filter: str | None = None,
    ) -> Framed:
        """Predictions of a model for the rows of a table, a query or a data frame.

        The model's columns are found by name; other columns are ignored.

        Parameters
        ----------
        model
            ``name``, or ``name@version``.
        source
            Table or view, as SQL names it; or a data frame, as `load` takes it.
        query
            One SELECT instead.
        columns
            Columns of the rows to keep; by default the primary key of a table, and none otherwise.
        filter
            SQL condition on the rows.

        Returns
        -------
        pandas.DataFrame or dict
            The columns to keep, and ``prediction``: the rule's prediction, binary64 where the label has more digits
            than binary32. For rules that predict a number for each class (``softmax``) it is the label, as `classify`
            returns it; for other rules with several numbers the columns are ``prediction_1``, ``prediction_2`` and so
            on. The rows of a frame keep their order and, without ``filter``, their index. Without pandas the result is
            a dict of NumPy arrays.

        Raises
        ------
        UsageError
            There is no such table.
        psycopg.Error
            The model or a column is missing.
        """
        how = read_predicting(self.session, model)
        if how.function() == "dana_classify":
            return self.classify(model, source, query=query, columns=columns, filter=filter)
        rows = _predicted(self.session, model, source, how.function(), query=query, columns=columns, filter=filter)
        values = rows.values
        if how.several:
            return _framed(rows, dict(zip(how.titles(), how.numbers(values).T, strict=True)))
        if all(each is None or isinstance(each, float) for each in values):
            kind = np.float64 if how.double else np.float32
            return _framed(rows, {PREDICTION: np.array(values, dtype=kind)})  # NULL is NaN
        return _framed(rows, {PREDICTION: values})

    def classify(
        self,
        model: str,
        source: Source = None,
        *,
        query: str | None = None,
        columns: Iterable[str] | None = None,
        filter: str | None = None,
        threshold: float | None = None,
    ) -> Framed:
        """The label that a model predicts for each row; the other arguments are those of `predict`.

        Parameters
        ----------
        threshold
            Least prediction that counts as the second of two classes: by default 0.5 for probabilities, 0 for scores.

        Returns
        -------
        pandas.DataFrame or dict
            The columns to keep, and ``prediction``, a label; None if a value is missing. Labels have the kind of the
            training's label column: numbers, truth values or texts.

        Raises
        ------
        UsageError
            The model does not predict classes.
        """
        how = read_predicting(self.session, model)
        if how.classes is None:
            raise UsageError(f"model {model!r} does not predict classes", hint="predict() returns its numbers.")
        if threshold is not None and how.width > 1:
            raise UsageError("threshold requires a model that predicts one number for two classes")
        function = "dana_classify" if threshold is None else "dana_predict"
        rows = _predicted(self.session, model, source, function, query=query, columns=columns, filter=filter)
        labels = how.labels()
        if threshold is None:
            label_of = dict(zip(how.classes, labels, strict=True))
            chosen = [None if each is None else label_of[each] for each in rows.values]
        else:
            # each != each: NaN has no class
            chosen = [None if each is None or each != each else labels[int(each >= threshold)] for each in rows.values]
        return _framed(rows, {PREDICTION: chosen})

    def contributions(
        self,
        model: str,
        source: Source = None,
        *,
        query: str | None = None,
        columns: Iterable[str] | None = None,
        filter: str | None = None,
    ) -> Framed:
        """What each feature adds to the weighted sum of a linear model, for each row (``dana_contributions``).

        The arguments are those of `predict`.

        Returns
        -------
        pandas.DataFrame or dict
            The columns to keep, ``(base)``, the sum for a row of means, and a column for each feature; together they
            are the sum. With a sum for each class the names are pairs of label and feature. NaN for a row with a NULL.

        Raises
        ------
        psycopg.Error
            The model does not predict from weighted sums.
        """
        names = read_predicting(self.session, model).contributions()
        rows = _predicted(self.session, model, source, CONTRIBUTIONS, query=query, columns=columns, filter=filter)
        none = [float("nan")] * len(names)
        found = np.array([none if each is None else each for each in rows.values]).reshape(-1, len(names))
        return _framed(rows, dict(zip(names, found.T, strict=True)))

    def probabilities(
        self,
        model: str,
        source: Source = None,
        *,
        query: str | None = None,
        columns: Iterable[str] | None = None,
        filter: str | None = None,
    ) -> Framed:
        """The probability of each class for each row; the arguments are those of `predict`.

        Returns
        -------
        pandas.DataFrame or dict
            The columns to keep, and one for each class, named by its label.

        Raises
        ------
        UsageError
            The model does not predict probabilities of classes.
        """
        how = read_predicting(self.session, model)
        if how.classes is None or not how.probable:
            raise UsageError(
                f"model {model!r} does not predict probabilities of classes",
                hint="predict() returns its numbers" + ("." if how.classes is None else ", classify() its classes."),
            )
        function = "dana_predict_array"
        rows = _predicted(self.session, model, source, function, query=query, columns=columns, filter=filter)
        found = how.numbers(rows.values)
        if how.width == 1:
            # a single probability is that of the second class
            found = np.concatenate([1 - found, found], axis=1)
        return _framed(rows, {label: found[:, place] for place, label in enumerate(how.labels())})
