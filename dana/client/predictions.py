"""Predictions of a model for the rows of a table, a query or a data frame.

In: a session, a model's name, rows. Out: a data frame of pandas where that is there, else arrays of NumPy. The server
predicts: `dana_predict` finds the columns by name in the whole row, whatever else is in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import psycopg
from numpy.typing import NDArray
from psycopg import sql

from dana.errors import UsageError
from dana.session.frames import columns_of
from dana.session.notices import Messages
from dana.session.sources import LoadedTable, is_frame, names_of, table_of
from dana.session.tables import checked_name, create_table

PREDICTION = "prediction"
LOADED = "dana_rows"
"""The temporary table that holds a frame's rows; one at a time."""

PRIMARY_KEY = """
SELECT a.attname FROM pg_catalog.pg_index AS i
CROSS JOIN LATERAL pg_catalog.unnest(i.indkey::int2[]) WITH ORDINALITY AS k (attnum, n)
JOIN pg_catalog.pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
WHERE i.indrelid = %s::regclass::oid AND i.indisprimary ORDER BY k.n
"""


@contextmanager
def loaded(session: psycopg.Connection[Any], frame: Any) -> Iterator[str]:
    """A temporary table with the rows of a data frame; its name. What is done to the database meanwhile is undone."""
    columns = columns_of(frame)
    with session.transaction(force_rollback=True):  # a server process of a pool may be another's afterwards
        create_table(session, LOADED, columns, temporary=True)
        yield f"pg_temp.{LOADED}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicting:
    """How a model predicts.

    Attributes
    ----------
    classes
        Texts of its label's classes; None where its prediction chooses none.
    type
        SQL's name of the label's type, where that is known.
    width
        Numbers that it predicts of a row.
    probable
        They are probabilities.
    several
        They are several, and say nothing of classes.
    """

    classes: list[str] | None
    type: str | None
    width: int
    probable: bool
    several: bool

    def function(self, *, labels: bool = False) -> str:
        """The function of schema dana that predicts: labels, instead of the numbers of classes or of any prediction."""
        if labels or (self.classes is not None and self.width > 1):
            return "dana_classify"
        return "dana_predict_array" if self.several else "dana_predict"

    def titles(self) -> list[str]:
        """What the columns of its prediction are called."""
        return [f"{PREDICTION}_{k}" for k in range(1, self.width + 1)] if self.several else [PREDICTION]

    def numbers(self, values: list[list[float] | None]) -> NDArray[np.float32]:
        """What ``dana_predict_array`` said of rows, [rows, width]; NaN of a row that has no prediction."""
        none = [float("nan")] * self.width
        return np.array([none if each is None else each for each in values], dtype=np.float32).reshape(-1, self.width)

    def labels(self) -> list[Any]:
        """The classes, as values of Python where the label has numbers or truth values."""
        read = READERS.get(self.type or "", str)
        texts = self.classes or []
        try:
            return [read(text) for text in texts]
        except (KeyError, ValueError):  # of a model that it was warm-started from, whose labels were of another type
            return list(texts)


READERS: dict[str, Callable[[str], Any]] = {
    **dict.fromkeys(("smallint", "integer", "bigint"), int),
    **dict.fromkeys(("real", "double precision", "numeric"), float),
    "boolean": {"false": False, "true": True}.__getitem__,
}
"""Labels of these types are no texts in a data frame either."""


def read_predicting(session: psycopg.Connection[Any], model: str) -> Predicting:
    """What the server knows of a model; an error where it does not exist."""
    from dana.predictor.program import decode_predictor

    statement = "SELECT metadata, predictor FROM dana.dana_find_model(%s)"
    metadata, predictor = session.execute(statement, (model,)).fetchall()[0]
    predicts = metadata.get("predicts")
    return Predicting(
        classes=None if predicts == "number" else metadata.get("classes"),
        type=metadata.get("class_type"),
        width=1 if predictor is None else decode_predictor(predictor).width,
        probable=predicts == "probability",
        several=predicts == "numbers",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicted:
    """Rows with what a function said of each.

    Attributes
    ----------
    names, kept
        The columns to keep.
    values
        What it said; None is NULL.
    index
        That of pandas which the rows have, or None.
    """

    names: list[str]
    kept: list[list[Any]]
    values: list[Any]
    index: Any = None


def _predicted(
    session: psycopg.Connection[Any],
    model: str,
    source: Any,
    function: str,
    *,
    query: str | None,
    columns: Iterable[str] | None,
    filter: str | None,
) -> Predicted:
    if (source is None) == (query is None):
        raise UsageError("name a table, give a data frame, or a query; one of them")
    index = None
    if not is_frame(source):
        names, rows = predicted_rows(
            session, model, source, query=query, columns=columns, filter=filter, function=function
        )
    else:
        with loaded(session, source) as table:
            names, rows = predicted_rows(
                session, model, table, query=None, columns=columns or (), filter=filter, function=function
            )
        # a scan of a temporary table reads in the order of the rows: no other session scans it, no worker helps
        index = getattr(source, "index", None) if filter is None else None
    *kept, values = map(list, zip(*rows, strict=True)) if rows else [[] for _ in names]
    return Predicted(names=names[:-1], kept=kept, values=values, index=None if callable(index) else index)


def predicted_rows(
    session: psycopg.Connection[Any],
    model: str,
    source: str | LoadedTable | None,
    *,
    query: str | None,
    columns: Iterable[str] | None,
    filter: str | None,
    function: str,
) -> tuple[list[str], list[tuple[Any, ...]]]:
    """The rows of a table or a query, with what a function of schema dana says of each; and the columns' names."""
    if source is not None:
        table = table_of(session, source)
        rows: sql.Composable = sql.SQL(table)
        if columns is None:
            columns = [name for (name,) in session.execute(PRIMARY_KEY, (table,))]
    else:
        rows = sql.SQL("({}\n)").format(sql.SQL((query or "").rstrip().rstrip(";")))
    wanted = names_of("columns", columns or ())
    names = [*wanted, PREDICTION]
    if len(set(names)) < len(names):
        raise UsageError(f"the columns to keep must have different names, and none may be {PREDICTION}")
    # not r.name: without such a column that calls a function of the name
    kept = sql.SQL("").join(sql.SQL("{}, ").format(sql.Identifier(checked_name("column", name))) for name in wanted)
    before, after, where = (
        part.as_string(session).replace("%", "%%") for part in (kept, rows, sql.SQL(filter or "true"))
    )
    # with a parameter, so that the server takes one statement and no more, whatever a filter says
    statement = f"SELECT {before}dana.{function}(%s::pg_catalog.text, r.*) FROM {after} AS r WHERE ({where}\n)"
    with Messages(session):
        return names, session.execute(statement.encode(), (model,)).fetchall()


def _framed(rows: Predicted, added: Mapping[Any, Any]) -> Any:
    """The columns to keep and what was found, as a data frame where pandas is there."""
    columns = dict(zip(rows.names, rows.kept, strict=True))
    if twice := columns.keys() & added.keys():
        raise UsageError(f"a column to keep must not be called {sorted(map(str, twice))[0]}, as a prediction is")
    try:
        import pandas as pd
    except ModuleNotFoundError:
        return {name: np.asarray(values) for name, values in (columns | dict(added)).items()}
    return pd.DataFrame(columns | {name: _column(values) for name, values in added.items()}, index=rows.index)


def _column(values: Any) -> Any:
    """Labels in pandas' type that has missing ones, where there are some: whole numbers and truth values stay such."""
    known = [each for each in values if each is not None] if isinstance(values, list) else []
    if len(known) < len(values) and known and isinstance(known[0], int):
        import pandas as pd

        return pd.array(values, dtype="boolean" if isinstance(known[0], bool) else "Int64")
    return values


class PredictingSession:
    """What a client has of this."""

    session: psycopg.Connection[Any]

    def predict(
        self,
        model: str,
        source: Any = None,
        *,
        query: str | None = None,
        columns: Iterable[str] | None = None,
        filter: str | None = None,
    ) -> Any:
        """Predictions of a model for the rows of a table, a query or a data frame.

        The model's columns are found by name, whatever else is there.

        Parameters
        ----------
        model
            ``name``, or ``name@version``.
        source
            Table or view, as SQL names it; or a data frame, as `load` takes it.
        query
            One SELECT instead.
        columns
            Columns of the rows to keep; by default the primary key of a table, of others none.
        filter
            SQL condition on the rows.

        Returns
        -------
        pandas.DataFrame or dict
            The columns to keep, and ``prediction``: what the rule predicts; where that is a number for each class
            (``softmax``), the label, as `classify` gives it; where it is several numbers otherwise, ``prediction_1``,
            ``prediction_2`` and so on. Of a frame in its order and, without `filter`, with its index. Without pandas a
            dict of NumPy arrays.

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
            return _framed(rows, {PREDICTION: np.array(values, dtype=np.float32)})  # real; NULL is NaN
        return _framed(rows, {PREDICTION: values})

    def classify(
        self,
        model: str,
        source: Any = None,
        *,
        query: str | None = None,
        columns: Iterable[str] | None = None,
        filter: str | None = None,
        threshold: float | None = None,
    ) -> Any:
        """The label that a model gives each row; the other arguments are those of `predict`.

        Parameters
        ----------
        threshold
            Of two classes, the least prediction that counts as the second: 0.5 of a probability, 0 of a score.

        Returns
        -------
        pandas.DataFrame or dict
            The columns to keep, and ``prediction``, a label; None where a value is missing. Labels are numbers or
            truth values where the training's table had such, and texts otherwise.

        Raises
        ------
        UsageError
            The model's rule has no classes.
        """
        how = read_predicting(self.session, model)
        if how.classes is None:
            raise UsageError(f"model {model!r} tells no classes apart", hint="predict() gives its numbers.")
        if threshold is not None and how.width > 1:
            raise UsageError("a threshold is for models that predict one number of two classes")
        function = "dana_classify" if threshold is None else "dana_predict"
        rows = _predicted(self.session, model, source, function, query=query, columns=columns, filter=filter)
        labels = how.labels()
        if threshold is None:
            label_of = dict(zip(how.classes, labels, strict=True))
            chosen = [None if each is None else label_of[each] for each in rows.values]
        else:
            chosen = [None if each is None or each != each else labels[int(each >= threshold)] for each in rows.values]
        return _framed(rows, {PREDICTION: chosen})

    def probabilities(
        self,
        model: str,
        source: Any = None,
        *,
        query: str | None = None,
        columns: Iterable[str] | None = None,
        filter: str | None = None,
    ) -> Any:
        """How probable each class is for each row; the arguments are those of `predict`.

        Returns
        -------
        pandas.DataFrame or dict
            The columns to keep, and one for each class, called as the label is.

        Raises
        ------
        UsageError
            The model predicts no probabilities of classes.
        """
        how = read_predicting(self.session, model)
        if how.classes is None or not how.probable:
            raise UsageError(
                f"model {model!r} predicts no probabilities of classes",
                hint="predict() gives its numbers" + ("." if how.classes is None else ", classify() its classes."),
            )
        function = "dana_predict_array"
        rows = _predicted(self.session, model, source, function, query=query, columns=columns, filter=filter)
        found = how.numbers(rows.values)
        if how.width == 1:
            found = np.concatenate([1 - found, found], axis=1)
        return _framed(rows, {label: found[:, place] for place, label in enumerate(how.labels())})
