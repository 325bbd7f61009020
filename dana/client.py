"""Client: rules, trainings and models of a PostgreSQL server that has the extension.

In: a connection string, rule text, table and column names. Out: results as Python values. Everything goes through the
SQL surface that psql has; nothing here compiles or trains.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import psycopg
from numpy.typing import NDArray
from psycopg import sql
from psycopg.rows import class_row

from dana.errors import UsageError

if TYPE_CHECKING:
    from dsl import Rule


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
        Mean of the rule's loss over the last epoch; None for a rule without one.
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
    tuples: int
    skipped: int
    pages: int
    cycles: int | None
    modelled_seconds: float | None
    wall_seconds: float


RESULT_COLUMNS = tuple(field.name for field in fields(TrainResult))


class Connection:
    """A session on a server with the extension; a context manager.

    Parameters
    ----------
    session
        Connection of psycopg, which the object owns. Statements commit by themselves if it is in autocommit mode;
        otherwise they belong to its transaction, and so does a trained model.
    """

    def __init__(self, session: psycopg.Connection[Any]) -> None:
        self.session = session

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End the session."""
        self.session.close()

    def create_udf(self, name: str, rule: str | Rule) -> None:
        """Register a rule, or its text, under ``name``; a rule of that name is replaced.

        What the compiler warns of becomes a `UserWarning` of Python.

        Raises
        ------
        psycopg.Error
            The text is no rule: the message is what the compiler says of it.
        """
        text = rule if isinstance(rule, str) else rule.source.text
        found: list[str] = []
        with self._notices(found.append):
            self.session.execute("SELECT dana_create_udf(%s, %s)", (name, text))
        for message in found:
            warnings.warn(message, stacklevel=2)

    def create_rules(self, *names: str) -> list[str]:
        """Register rules of `dana.rules` under their names, all of them by default; return the names.

        A rule of yours that has such a name is replaced. Either all are registered or none.

        Raises
        ------
        UsageError
            There is no rule of such a name.
        psycopg.Error
            You may not register rules, or somebody else's rule has such a name.
        """
        from dana import rules

        chosen = list(names or rules.NAMES)
        texts = {name: rules.text(name) for name in chosen}
        with self.session.transaction():
            for name, text in texts.items():
                self.create_udf(name, text)
        return chosen

    def drop_udf(self, name: str) -> None:
        """Forget the rule ``name``."""
        self.session.execute("SELECT dana_drop_udf(%s)", (name,))

    def train(
        self,
        udf: str,
        source: str | None = None,
        *,
        query: str | None = None,
        model: str | None = None,
        features: Sequence[str] | None = None,
        label: str | None = None,
        epochs: int | None = None,
        hyper: Mapping[str, float] | None = None,
        backend: str | None = None,
        design: Mapping[str, Any] | None = None,
        filter: str | None = None,
        nulls: str | float | None = None,
        nonfinite: str | None = None,
        classes: Sequence[str] | None = None,
        test: float | None = None,
        seed: int | None = None,
        warm: str | None = None,
        progress: bool = False,
    ) -> TrainResult:
        """Train a registered rule over a table or a query.

        Parameters
        ----------
        udf
            Name of the rule.
        source
            Table, as SQL would name it (``cancer``, ``public.cancer``, ``"Odd Name"``).
        query
            One SELECT, instead of a table.
        model
            Name for the model; by default the extension's choice.
        features, label
            Columns; by default the extension's choice from the table.
        epochs
            Passes over the table; by default the rule's.
        hyper
            New values for the rule's metas.
        backend
            ``sim``, ``rtl`` or ``interp``.
        design
            Wishes for the machine (threads, clusters …).
        filter
            SQL condition on the table's rows.
        nulls
            Rows with a NULL: ``skip``, ``error``, or a number to put in its place.
        nonfinite
            Rows with a NaN or an infinity: ``keep``, ``skip`` or ``error``.
        classes
            Texts of the label's classes, which become 0, 1, ….
        test, seed
            Part of the table to leave out for `evaluate`, and which rows that is.
        warm
            Model to start from.
        progress
            Show a spinner and the server's notices on stderr, if it is a terminal.

        Raises
        ------
        psycopg.Error
            Whatever the statement ended with. Ctrl-C cancels it and leaves the session usable.
        """
        arguments: dict[str, Any] = {
            "udf": udf,
            "model": model,
            "features": list(features) if features is not None else None,
            "label": label,
            "epochs": epochs,
            "hyper": json.dumps(dict(hyper)) if hyper is not None else None,
            "backend": backend,
            "design": json.dumps(dict(design)) if design is not None else None,
            "query": query,
            "filter": filter,
            "nulls": None if nulls is None else str(nulls),
            "nonfinite": nonfinite,
            "classes": list(classes) if classes is not None else None,
            "test": test,
            "seed": seed,
            "warm": warm,
        }
        given = {name: value for name, value in arguments.items() if value is not None}
        passed = [sql.SQL("{} => {}").format(sql.Identifier(name), sql.Placeholder(name)) for name in given]
        if source is not None:
            passed.append(sql.SQL("source => {}::regclass").format(sql.Placeholder("source")))
        statement = sql.SQL("SELECT {} FROM dana_train({})").format(
            sql.SQL(", ").join(map(sql.Identifier, RESULT_COLUMNS)), sql.SQL(", ").join(passed)
        )
        with (
            self._shown(f"training {udf} on {source or 'a query'}", progress),
            self.session.cursor(row_factory=class_row(TrainResult)) as cursor,
        ):
            result = cursor.execute(statement, given | {"source": source}).fetchone()
        if result is None:
            raise UsageError(f"dana_train returned no row for {udf} on {source or 'a query'}")
        return result

    def evaluate(self, model: str, source: str | None = None, *, query: str | None = None) -> dict[str, Any]:
        """How good a model is: errors, and for two classes accuracy, AUC and more, by name (``dana_evaluate``).

        On the part that its training left out, if it did; else on what it was trained on, or on what you name.
        """
        row = self.session.execute("SELECT dana_evaluate(%s, %s::regclass, %s)", (model, source, query)).fetchone()
        if row is None:
            raise UsageError(f"dana_evaluate returned no row for {model}")
        return dict(row[0])

    def parameters(self, model: str, version: int | None = None) -> dict[str, NDArray[np.float32]]:
        """What a model learnt: each parameter's values in its shape, in the rule's order; the last version by default.

        Raises
        ------
        UsageError
            There is no such model, or it is not yours to read.
        """
        rows = self.session.execute(
            'SELECT parameter, shape, "values" FROM dana_parameters(%s, %s)', (model, version)
        ).fetchall()
        if not rows:
            which = model if version is None else f"{model}@{version}"
            raise UsageError(f"there is no model {which}, or it belongs to somebody else; dana.model lists yours")
        return {name: np.asarray(values, dtype=np.float32).reshape(shape) for name, shape, values in rows}

    @contextmanager
    def _shown(self, what: str, progress: bool) -> Iterator[None]:
        if not progress:
            yield
            return
        from rich.console import Console

        console = Console(stderr=True)
        if not console.is_terminal:
            yield
            return
        with console.status(f"{what} …") as status, self._notices(lambda text: status.update(f"{what}: {text}")):
            yield

    @contextmanager
    def _notices(self, show: Callable[[str], None]) -> Iterator[None]:
        def handle(diagnostic: psycopg.errors.Diagnostic) -> None:
            show(diagnostic.message_primary or "")

        self.session.add_notice_handler(handle)
        try:
            yield
        finally:
            self.session.remove_notice_handler(handle)


def connect(dsn: str | None = None) -> Connection:
    """Connect to a server that has the extension.

    Parameters
    ----------
    dsn
        Connection string of libpq; None is the embedded server, which is started where it does not run.

    Examples
    --------
    >>> with dana.connect() as db:                              # doctest: +SKIP
    ...     db.train("logistic", "cancer", label="y").loss
    """
    if dsn is None:
        from dana.server.embedded import EmbeddedServer

        dsn = EmbeddedServer.start().dsn
    return Connection(psycopg.connect(dsn, autocommit=True))
