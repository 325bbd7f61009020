"""Client: rules, trainings and models of a PostgreSQL server that has the extension.

In: a connection string, rule text, table and column names. Out: results as Python values. All requests go through
SQL functions; nothing here compiles or trains.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from dataclasses import replace as replaced
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Protocol, Self, Unpack, overload

import numpy as np
import psycopg
from numpy.typing import NDArray
from psycopg import sql
from psycopg.rows import class_row

from dana.client.models import Model, encode_model, format_of, read_exported, read_models
from dana.client.options import TrainOptions, TrialOptions
from dana.client.outcomes import Coefficient, Curve, Evaluation, Explanation, Importance, TrainResult, read_curve
from dana.client.predictions import PredictingSession, loaded, read_predicting
from dana.client.progress import shown_progress
from dana.cluster.cost import costs_of_shards
from dana.cluster.gather import TIMEOUT, gather
from dana.cluster.train import MODES, train
from dana.errors import UsageError
from dana.records import Plan
from dana.server.conninfo import parts_of
from dana.session.calls import (
    Call,
    Fold,
    GroupTraining,
    Job,
    MappedShard,
    SearchPoint,
    as_json,
    call,
    given,
    jobs,
    lines,
    start,
    value,
)
from dana.session.frames import Frame, Loadable, columns_of, frame_of
from dana.session.notices import Messages, repeat
from dana.session.results import Rows
from dana.session.sources import LoadedColumn, LoadedTable, identifier, table_of
from dana.session.tables import create_table
from dana.trainer.shard_costs import Cost
from hwgen.folders import write_file

if TYPE_CHECKING:
    from dsl import Rule


__all__ = ["Connection", "LoadedColumn", "LoadedTable", "TrainResult", "connect"]


class Connection(PredictingSession):
    """A session on a server with the extension; a context manager.

    Parameters
    ----------
    session
        Connection of psycopg, which the object owns. Statements commit by themselves if it is in autocommit mode;
        otherwise they belong to its transaction, and so does a trained model.
    """

    def __init__(self, session: psycopg.Connection) -> None:
        self.session = session

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End the session."""
        self.session.close()

    def create_rule(self, name: str, rule: str | Rule) -> None:
        """Register a rule, or its text, under ``name``; a rule of that name is replaced.

        Warnings of the compiler become Python warnings, `dana.ServerWarning`.

        Raises
        ------
        psycopg.Error
            The text is not a rule; the message is the compiler's.
        """
        text = rule if isinstance(rule, str) else rule.text
        value(self.session, "dana_create_udf", {"name": name, "text": text})

    def create_rules(self, *names: str) -> list[str]:
        """Register rules of `dana.rules` under their names, all of them by default; return the names.

        A rule of yours that has such a name is replaced. Either all are registered or none.

        Raises
        ------
        UsageError
            There is no rule of such a name.
        psycopg.Error
            You may not register rules, or another role's rule has such a name.
        """
        from dana import rules

        chosen = list(names or rules.NAMES)
        texts = {name: rules.text(name) for name in chosen}  # before the first is registered: a name may be wrong
        with self.session.transaction():
            for name, text in texts.items():
                self.create_rule(name, text)
        return chosen

    def drop_rule(self, name: str) -> None:
        """Forget the rule ``name``."""
        value(self.session, "dana_drop_rule", {"name": name})

    def load(self, data: Loadable, table: str, *, replace: bool = False, temporary: bool = False) -> LoadedTable:
        """Create a table from a data frame.

        Texts and categories become text, days date, moments timestamp, and so on (`dana.session.frames.columns_of`);
        NaN, NaT, None and nulls become NULL.

        Parameters
        ----------
        data
            A data frame of pandas, Arrow or polars, any object with Arrow's C stream, or a dict of arrays or lists; an
            array of shape (rows, n), with columns x1 to xn; the path of a Parquet or CSV file. The index of pandas is
            left out.
        table
            Name of the table, as in SQL: folded to lower case unless quoted. A name that SQL would not accept without
            quotes, such as ``Größe 2024``, is taken as it is.
        replace
            Drop a table of that name first.
        temporary
            The table goes when the session ends.

        Raises
        ------
        UsageError
            A column is of a kind that has no counterpart in PostgreSQL; a file cannot be read.
        psycopg.Error
            There is such a table, or you may not create one.
        """
        made = columns_of(frame_of(data))
        # without autocommit this begins the transaction, and the block below is a savepoint
        name = identifier(table)
        # parse_ident folds and splits as the server does, which `create_table` quotes again
        parts = self.session.execute("SELECT pg_catalog.parse_ident(%s)", (name,)).fetchall()[0][0]
        with self.session.transaction():
            rows = create_table(self.session, parts, made, replace=replace, temporary=temporary)
            written = self.session.execute("SELECT %s::regclass::text", (name,)).fetchall()[0][0]
        columns = (
            LoadedColumn(name=column, type=each.type, nulls=rows - int(each.valid.sum()))
            for column, each in made.items()
        )
        return LoadedTable(name=written, rows=rows, columns=Rows(columns))

    def gather(
        self,
        table: str,
        shards: Sequence[str] | None = None,
        *,
        into: str | None = None,
        timeout: float = TIMEOUT,
    ) -> str:
        """Gather a table from several servers into a temporary table of this session; its name, as SQL writes it.

        Pages (where only rows can be had: rows) of all shards come in fixed turn: a model trained on the gathered
        table has the bits of one trained where one server has these rows in this order. Each shard is read under a
        snapshot of its own. The temporary table needs as much room on this server as all shards.

        Parameters
        ----------
        table
            Its name on each of the servers, as SQL writes it: a table, a view, a foreign table.
        shards
            Connection strings of the servers. Their order numbers the shards, from 1, and with it the rows. Without
            them: those of the table on this server (`shards`), which connects to their servers itself
            (``dana_gather``).
        into
            Name of the temporary table; by default that of the table.
        timeout
            Seconds without a message after which a shard is lost.

        Raises
        ------
        UsageError
            The shards have not the same columns, types and primary key, or one is listed twice.
        dana.cluster.shards.ShardError
            An error of one shard; the message names the shard and its server.
        psycopg.Error
            This server has such a temporary table, or you may not create one; any error of mapped shards.
        """
        name = identifier(table)
        into = into or self._last_of(name)
        if shards is None:
            return str(value(self.session, "dana_gather", {"source": name, "into": into, "timeout": timeout}))
        return gather(self.session, name, shards, into=into, timeout=timeout)

    def shards(self, table: str, *, timeout: float | None = None) -> Rows[MappedShard]:
        """The shards of a table, by ``dana.shard`` or its partitions on this server, and what each server answers.

        Parameters
        ----------
        table
            The table, as SQL would name it.
        timeout
            Seconds to wait for an answer of each (10).
        """
        return call(self.session, "dana_shards", {"source": identifier(table), "timeout": timeout}, MappedShard)

    def _last_of(self, name: str) -> str:
        """The name of a table without its schema, unquoted."""
        # parse_ident folds and splits as the server does
        [[parts]] = self.session.execute("SELECT pg_catalog.parse_ident(%s)", (name,)).fetchall()
        return str(parts[-1])

    @contextmanager
    def _gathered(
        self, source: str | LoadedTable | None, shards: Sequence[str] | None, timeout: float
    ) -> Iterator[str | LoadedTable | None]:
        """The table of a training: gathered from its shards, if there are any, and dropped at the end."""
        if shards is None:
            yield source
            return
        if source is None:
            raise UsageError("shards are of a table, not of a query", hint="Make the query a view on each shard.")
        name = identifier(source)
        with self.session.transaction():
            table = gather(self.session, name, shards, into=self._last_of(name), timeout=timeout, kept=False)
            yield table
            self.session.execute(sql.SQL("DROP TABLE {}").format(sql.SQL(table)))

    def _asked(self, rule: str, source: str | LoadedTable | None) -> dict[str, str | None]:
        # looked up first: the error of `table_of` suggests a table, that of the server does not
        return {"rule": rule, "source": None if source is None else table_of(self.session, source)}

    def train(
        self,
        rule: str,
        source: str | LoadedTable | None = None,
        *,
        shards: Sequence[str] | None = None,
        timeout: float = TIMEOUT,
        progress: bool | None = None,
        **options: Unpack[TrainOptions],
    ) -> TrainResult:
        """Train a registered rule over a table or a query.

        Parameters
        ----------
        rule
            Its name.
        source
            Table, as SQL would name it (``cancer``, ``public.cancer``, ``"Odd Name"``), or what `load` returned.
        shards
            Connection strings of the servers that have the table. It is gathered (`gather`), trained on and dropped;
            or, with option ``sync``, each server trains on its own rows: with ``batch`` a batch has rows of all
            shards, and its merges are joined; with ``epoch`` the models are averaged after each epoch. ``sync`` alone
            is of the shards that this server knows (`shards`).
        timeout
            Seconds without a message after which a shard is lost; at least 3 with ``sync``.
        progress
            Show each epoch: True in a notebook, and on stderr if that is a terminal; None only in a notebook.
        options
            The other arguments of ``dana_train``: `dana.client.options.TrainOptions`.

        Raises
        ------
        UsageError
            There is no such table.
        psycopg.Error
            The error of the statement. Ctrl-C cancels the statement and leaves the session usable.
        """
        sync = options.get("sync")
        if shards is not None and sync not in (None, "gather"):
            return self._train_there(rule, source, shards, str(sync), timeout, progress, options)
        if shards is not None:
            options.pop("sync", None)
        with self._gathered(source, shards, timeout) as table, self._patient(sync, timeout):
            asked = self._asked(rule, table)
            on = asked["source"] or "a query"
            # around the call alone: the setting that it makes lasts for the transaction
            with shown_progress(self.session, f"training {rule} on {on}", progress):
                rows = call(self.session, "dana_train", {**asked, **options}, TrainResult)
        if not rows:
            raise UsageError(f"dana_train returned no row for {rule} on {on}")
        # the session is for the curve in a notebook; it is no column of the result
        return replaced(rows[0], _session=self.session)

    def refresh(self, model: str) -> TrainResult:
        """Train one of your own models again on the current rows, with its options (``dana_refresh``).

        It starts from the version in use, and becomes the next one.

        Parameters
        ----------
        model
            Its name.

        Raises
        ------
        psycopg.Error
            The error of the statement, such as that of a column that the table no longer has.
        """
        (result,) = call(self.session, "dana_refresh", {"model": model}, TrainResult)
        return replaced(result, _session=self.session)

    @contextmanager
    def _patient(self, sync: str | None, timeout: float) -> Iterator[None]:
        """Have the server wait as long for its shards."""
        if sync is None or timeout == TIMEOUT:
            yield
            return
        with self.session.transaction():
            self.session.execute(
                "SELECT pg_catalog.set_config('dana.shard_timeout', %s, true)", (f"{round(1000 * timeout)}ms",)
            )
            yield

    def _train_there(
        self,
        rule: str,
        source: str | LoadedTable | None,
        shards: Sequence[str],
        sync: str,
        timeout: float,
        progress: bool | None,
        options: TrainOptions,
    ) -> TrainResult:
        """Train on rows that stay at their shards."""
        if sync not in MODES:
            raise UsageError(f"sync must be gather, {' or '.join(MODES)}, not {sync!r}")
        if source is None:
            raise UsageError(f"sync={sync!r} needs a table, and not a query")
        name = identifier(source)
        asked = json.loads(as_json({**(given(options) or {}), "sync": None}))
        with Messages(self.session), shown_progress(self.session, f"training {rule} on {name}", progress):
            row = train(self.session, rule, name, shards, asked, sync=sync, into=self._last_of(name), timeout=timeout)
        columns = [sql.Identifier(one.name) for one in fields(TrainResult) if not one.name.startswith("_")]
        statement = sql.SQL("SELECT {} FROM pg_catalog.json_populate_record(NULL::dana.training, %s::json)")
        with self.session.cursor(row_factory=class_row(TrainResult)) as cursor:
            (found,) = cursor.execute(statement.format(sql.SQL(", ").join(columns)), (row,)).fetchall()
        return replaced(found, _session=self.session)

    def train_groups(
        self,
        rule: str,
        source: str | LoadedTable | None = None,
        *,
        group_by: Sequence[str],
        **options: Unpack[TrainOptions],
    ) -> Rows[GroupTraining]:
        """Train a model for each group of rows (``dana_train_groups``); the options are those of `train`.

        Parameters
        ----------
        group_by
            Columns that define the groups.

        Raises
        ------
        psycopg.Error
            The error of the statement. If a group's data cannot be trained on, only its row has an error.
        """
        arguments = self._asked(rule, source) | {"group_by": group_by, "training": given(options)}
        return call(self.session, "dana_train_groups", arguments, GroupTraining)

    def cross_validate(
        self,
        rule: str,
        source: str | LoadedTable | None = None,
        *,
        folds: int | None = None,
        seed: int | None = None,
        threshold: float | None = None,
        metrics: Sequence[str] | None = None,
        **options: Unpack[TrialOptions],
    ) -> Rows[Fold]:
        """Train on all but a fold of the rows, evaluate on it, for each fold; store no model (``dana_cross_validate``).

        Parameters
        ----------
        folds
            Number of folds; 5.
        seed
            Selects the rows of each fold; ``test_by`` names a column with values that stay in one fold.
        threshold
            Least prediction that counts as positive.
        metrics
            Names of metrics; by default all.
        """
        arguments: dict[str, object] = {
            "folds": folds,
            "seed": seed,
            "threshold": threshold,
            "metrics": metrics,
        }
        arguments |= self._asked(rule, source) | {"training": given(options)}
        return call(self.session, "dana_cross_validate", arguments, Fold)

    def search(
        self,
        rule: str,
        source: str | LoadedTable | None = None,
        *,
        grid: Mapping[str, Sequence[float] | Mapping[str, float]] | Sequence[Mapping[str, float]],
        metric: str | None = None,
        candidates: int | None = None,
        folds: int | None = None,
        test_size: float | None = None,
        test_after: Mapping[str, object] | None = None,
        keep: str | None = None,
        seed: int | None = None,
        threshold: float | None = None,
        halving: bool | None = None,
        **options: Unpack[TrialOptions],
    ) -> Rows[SearchPoint]:
        """Try hyperparameters and rank them, the best first (``dana_search``).

        Parameters
        ----------
        grid
            Values for each meta, in all combinations; or a list of combinations. With ``candidates`` also ranges,
            ``{"low": 0.001, "high": 1, "log": True}``.
        candidates
            Try only so many combinations, drawn at random by ``seed``.
        metric
            The metric that ranks them; ``rmse``.
        folds, test_size, test_after
            Score by cross-validation, on a part that is left out, or on the rows later than a value.
        keep
            Name of a model to train with the best of them.
        halving
            In rounds: train all on a small part of the rows, then the best third on three times as many, up to all.
        """
        arguments: dict[str, object] = {"grid": grid, "metric": metric, "folds": folds, "test_size": test_size}
        arguments |= {"test_after": test_after, "keep": keep, "seed": seed, "threshold": threshold, "halving": halving}
        arguments |= self._asked(rule, source) | {"training": given(options), "candidates": candidates}
        return call(self.session, "dana_search", arguments, SearchPoint)

    def start(self, /, function: Call, rule: str, source: str | LoadedTable | None = None, **arguments: object) -> int:
        """Start a call in the background, with the arguments of the SQL function; the job's number.

        It begins when the session's transaction commits, and goes on when the session ends.
        """
        return start(self.session, function, {**self._asked(rule, source), **arguments})

    def wait(self, job: int, timeout: float | None = None) -> Job:
        """Wait until a job ends, or for ``timeout`` seconds; return the job. Its messages become warnings."""
        value(self.session, "dana_wait", {"job": job, "timeout": timeout})
        # read again: `dana_wait` may have ended by its timeout
        found = jobs(self.session, job)[0]
        repeat(found.notices)
        return found

    def cancel(self, job: int) -> bool:
        """Cancel a job; False where it is over."""
        return bool(value(self.session, "dana_cancel", {"job": job}))

    def jobs(self, limit: int | None = None) -> Rows[Job]:
        """The jobs of your roles, the newest first, at most so many."""
        return jobs(self.session, limit=limit)

    @overload
    def explain(
        self,
        rule: str,
        source: str | LoadedTable | None = None,
        *,
        device: str | None = None,
        search: bool = False,
        format: Literal["text"] = "text",
        **options: Unpack[TrainOptions],
    ) -> Explanation: ...
    @overload
    def explain(
        self,
        rule: str,
        source: str | LoadedTable | None = None,
        *,
        device: str | None = None,
        search: bool = False,
        format: Literal["json"],
        **options: Unpack[TrainOptions],
    ) -> Plan: ...
    def explain(
        self,
        rule: str,
        source: str | LoadedTable | None = None,
        *,
        device: str | None = None,
        search: bool = False,
        format: str = "text",
        **options: Unpack[TrainOptions],
    ) -> Explanation | Plan:
        """The machine and the estimated speed of a training, to ``print`` (``dana_explain``). Nothing is trained.

        Parameters
        ----------
        device
            Name of the FPGA to design for; by default the setting dana.device.
        search
            Explain the best machine for it instead of the one that the training would use.
        format
            ``text``, or ``json``: the numbers, in a dict.
        """
        asked: dict[str, object] = {"training": given(options), "device": device, "search": search, "format": format}
        asked |= self._asked(rule, source)
        text = "\n".join(row[0] for row in lines(self.session, "dana_explain", asked))
        if format != "json":
            return Explanation(text)
        plan: Plan = json.loads(text)
        return plan

    def explain_shards(
        self,
        rule: str,
        source: str | LoadedTable,
        shards: Sequence[str] | None = None,
        *,
        timeout: float = TIMEOUT,
        **options: Unpack[TrainOptions],
    ) -> Rows[Cost]:
        """What a training over shards would cost with each ``sync``: an estimate, before a row is read.

        Parameters
        ----------
        shards
            Connection strings, as for `train`; without them, those that this server knows.
        options
            The other arguments of ``dana_train``.

        Raises
        ------
        UsageError
            The shards have not the same columns, types and primary key, or one is listed twice.
        dana.cluster.shards.ShardError
            An error of one shard; the message names the shard and its server.
        psycopg.Error
            Any error of ``dana_explain``.
        """

        options.pop("sync", None)  # all are shown
        if shards is None:
            options["sync"] = "gather"
            with self._patient("gather", timeout):
                found = self.explain(rule, source, format="json", **options)["shards"]
            return Rows(Cost(**one) for one in found["costs"]) if found else Rows()

        def plan(table: str) -> Plan:
            return self.explain(rule, table, format="json", **options)

        return Rows(costs_of_shards(self.session, identifier(source), shards, plan, timeout=timeout))

    def curve(self, run: int | TrainResult) -> Curve:
        """The epochs of a run, given its number or its result: losses, rows, cycles, seconds; a notebook draws them.

        Raises
        ------
        UsageError
            There is no such run, or it belongs to another role.
        """
        return read_curve(self.session, run.run if isinstance(run, TrainResult) else run)

    def models(self, name: str | None = None, *, metric: str | None = None) -> Rows[Model]:
        """The models that you may use, the newest first.

        Parameters
        ----------
        name
            Only versions of this name.
        metric
            Evaluate each of your own on the rows that `evaluate` takes by default, and put the best first.
        """
        return read_models(self.session, name, metric)

    def drop_model(self, model: str, version: int | None = None) -> int:
        """Remove a version of one of your own models, or all of them; returns how many."""
        return int(value(self.session, "dana_drop_model", {"name": model, "version": version}))

    def export_model(self, model: str, file: str | Path | None = None, *, format: str | None = None) -> bytes:
        """A model for other software: JSON, ONNX or PMML.

        Parameters
        ----------
        model
            ``name``, or ``name@version``.
        file
            File to write it to as well.
        format
            ``json``, ``onnx`` or ``pmml``; by default the file's suffix, else JSON.

        Raises
        ------
        UsageError
            The format cannot express the model's prediction.
        """
        path = None if file is None else Path(file)
        made = encode_model(read_exported(self.session, model), format or format_of(path))
        if path is not None:
            write_file(path, made)
        return made

    def test_rows(self, model: str) -> str:
        """The rows that a training held out, as an SQL condition on those it was trained on (``dana_test_rows``)."""
        return str(value(self.session, "dana_test_rows", {"model": model}))

    def evaluate(
        self,
        model: str,
        source: str | LoadedTable | Frame | None = None,
        *,
        query: str | None = None,
        filter: str | None = None,
        part: str | None = None,
        threshold: float | None = None,
    ) -> Evaluation:
        """The metrics of a model by name: errors, or accuracy, AUC and more for classes (``dana_evaluate``).

        For classes, the result's ``per_class()`` and ``confusion()`` are data frames.

        Parameters
        ----------
        source
            Table or view, as SQL names it; or a data frame, as `load` takes it. By default the data that the model was
            trained on: the held-out part, if there is one.
        query
            One SELECT instead.
        filter
            SQL condition on the rows.
        part
            ``test`` (those that the training left out), ``train`` or ``all``.
        threshold
            Least prediction that counts as positive.
        """
        asked = {"model": model, "query": query, "filter": filter, "part": part, "threshold": threshold}
        with self._rows_of(source) as table:
            metrics = value(self.session, "dana_evaluate", asked | {"source": table})
        # in the order of the class numbers, as the rows of the confusion matrix are
        return Evaluation(metrics, read_predicting(self.session, model).labels())

    def importance(
        self,
        model: str,
        source: str | LoadedTable | Frame | None = None,
        *,
        query: str | None = None,
        filter: str | None = None,
        part: str | None = None,
        threshold: float | None = None,
        metric: str | None = None,
        repeats: int | None = None,
        rows: int | None = None,
        seed: int | None = None,
    ) -> Rows[Importance]:
        """By how much a metric gets worse when a feature's values are permuted, the most first (``dana_importance``).

        Parameters
        ----------
        source, query, filter, part, threshold
            As in `evaluate`.
        metric
            By default ``rmse``; for classes ``log_loss``, or ``accuracy`` where the model predicts no probabilities.
        repeats
            Permutations of each feature; 5.
        rows
            Maximum number of rows; of more, a pseudo-random sample is taken; 10,000.
        seed
            Selects rows and permutations; 1.
        """
        asked = {"model": model, "query": query, "filter": filter, "part": part, "threshold": threshold}
        asked |= {"metric": metric, "repeats": repeats, "rows": rows, "seed": seed}
        with self._rows_of(source) as table:
            return call(self.session, "dana_importance", asked | {"source": table}, Importance)

    @contextmanager
    def _rows_of(self, source: str | LoadedTable | Frame | None) -> Iterator[str | None]:
        """The table with the rows of a source, temporary for a frame."""
        if source is None or isinstance(source, str | LoadedTable):
            yield None if source is None else table_of(self.session, source)
        else:
            with loaded(self.session, source) as table:
                yield table

    def parameters(self, model: str, version: int | None = None) -> dict[str, NDArray[np.float32]]:
        """What a model learnt: each parameter's values in its shape, in the rule's order; the last version by default.

        Raises
        ------
        UsageError
            There is no such model, or it is not yours to read.
        """
        try:
            rows = lines(self.session, "dana_parameters", {"model": model, "version": version})
        # of this list only: an error of the connection must not become a UsageError
        except (
            psycopg.errors.UndefinedObject,
            psycopg.errors.InvalidName,
            psycopg.errors.InsufficientPrivilege,
        ) as error:
            raise UsageError(str(error.diag.message_primary), hint=error.diag.message_hint or "") from None
        return {name: np.asarray(values, dtype=np.float32).reshape(shape) for name, shape, values in rows}

    def coefficients(self, model: str, version: int | None = None) -> Rows[Coefficient]:
        """What each column weighs, by name and in its own unit (``dana_coefficients``).

        Empty if the model's prediction has no weighted sums.
        """
        return call(self.session, "dana_coefficients", {"model": model, "version": version}, Coefficient)


class Address(Protocol):
    """A URL of SQLAlchemy."""

    def render_as_string(self, hide_password: bool = True) -> str:
        """The address as a text."""


class Engine(Protocol):
    """An engine of SQLAlchemy."""

    @property
    def url(self) -> Address:
        """The server."""


def connect(dsn: str | psycopg.Connection | Address | Engine | None = None) -> Connection:
    """Connect to a server that has the extension.

    Parameters
    ----------
    dsn
        Connection string of libpq, such as ``postgresql://ana@db/shop`` or ``service=shop``, or an address of
        SQLAlchemy, ``postgresql+psycopg://…``; an engine or a URL of SQLAlchemy, which name the server of a new
        connection; an open connection of psycopg, which then belongs to the object. None connects to the embedded
        server and starts it if necessary.

    Raises
    ------
    UsageError
        ``dsn`` cannot be read, is of another type, names another kind of database, or is a connection with another
        encoding than UTF-8.
    psycopg.OperationalError
        The server cannot be reached.

    Examples
    --------
    >>> with dana.connect() as db:                              # doctest: +SKIP
    ...     db.train("logistic", "cancer", label="y").loss
    """
    if dsn is None:
        from dana.server.embedded import EmbeddedServer

        dsn = EmbeddedServer.start().dsn
    # JSON and names are UTF-8 here; the database may have another encoding, or none
    if isinstance(dsn, psycopg.Connection):
        if dsn.info.encoding != "utf-8":
            raise UsageError(
                f"the connection has client_encoding {dsn.info.encoding}", hint="SET client_encoding TO 'UTF8' in it."
            )
        return Connection(dsn)
    return Connection(psycopg.connect(address(dsn), autocommit=True, client_encoding="utf8"))


def address(dsn: str | Address | Engine) -> str:
    """The connection string of libpq.

    Raises
    ------
    UsageError
        It cannot be read, is of another type, or names another kind of database.
    """
    url = getattr(dsn, "url", dsn)
    text = url if isinstance(url, str) else getattr(url, "render_as_string", lambda **_: None)(hide_password=False)
    if text is None:
        raise UsageError(
            "connect takes a connection string, a connection of psycopg, or an engine or URL of SQLAlchemy, not "
            f"{type(dsn).__name__}",
            hint="An asynchronous connection, or one of another driver, cannot be used: pass its address.",
        )
    scheme = re.match(r"(\w+)(\+\w+)?://", text)
    if scheme is not None and scheme[1] not in {"postgres", "postgresql"}:
        raise UsageError(f"{scheme[0]}… is not a PostgreSQL server", hint="Use postgresql://host/database.")
    found = text if scheme is None or scheme[2] is None else f"postgresql://{text[scheme.end() :]}"
    parts_of(found)
    return found
