"""Many trainings in one call, and calls in the background: what they take and what they give, as Python values.

In: a session, the name of a function of the extension, Python values as arguments. Out: its rows; messages of the
server become warnings (`dana.session.notices`). The server makes all decisions and checks.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import date, datetime
from typing import Any, Literal, TypeVar

import psycopg
from psycopg import sql
from psycopg.rows import TupleRow, class_row

from dana.errors import UsageError
from dana.records import Metrics
from dana.session.notices import Messages
from dana.session.results import Rows
from dana.session.sources import names_of

NAMES = ("features", "group_by", "metrics")
"""Arguments that are names of columns or metrics."""

Call = Literal["train", "train_groups", "cross_validate", "search"]
"""What can run in the background."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupTraining:
    """One group's training; where its data could not be trained on, ``error`` says why and the numbers are None.

    Attributes
    ----------
    key
        The group: texts by column.
    model
        Its model, named by ``dana_group`` from the key.
    """

    key: Mapping[str, str]
    model: str
    version: int | None
    run: int | None
    epochs: int | None
    converged: bool | None
    loss: float | None
    tuples: int | None
    skipped: int | None
    wall_seconds: float | None
    sqlstate: str | None
    error: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fold:
    """A fold of a cross-validation; after the last one the ``mean`` over the folds, and the ``deviation``.

    Attributes
    ----------
    fold
        ``1``, ``2`` …, ``mean``, ``deviation``.
    trained, tested
        Rows.
    metrics
        What ``dana_evaluate`` returns, by name.
    """

    fold: str
    trained: int | None
    tested: int | None
    epochs: float
    loss: float | None
    metrics: Metrics


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchPoint:
    """A point of a grid; a failed training has an ``error`` and no rank.

    Attributes
    ----------
    rank
        1 is the best.
    score, deviation
        The metric's mean over the folds, and its deviation.
    round
        The last round that it took part in; 1 without halving.
    """

    rank: int | None
    hyper: Mapping[str, float]
    score: float | None
    deviation: float | None
    metrics: Metrics | None
    error: str | None
    round: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MappedShard:
    """A shard of a table, as ``dana_shards`` shows it.

    Attributes
    ----------
    shard
        Its number; rows are gathered in the order of the numbers.
    relation
        The part's name on its server.
    rows
        As the planner there estimates them; None without an estimate.
    error
        Why it cannot be gathered; None: it can.
    """

    shard: int
    server: str
    relation: str
    rows: int | None
    pages: int | None
    version: str | None
    reachable: bool
    error: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A call in the background, as ``dana.job`` shows it.

    Attributes
    ----------
    state
        ``queued``, ``running``, ``done``, ``failed``, ``cancelled``; ``lost`` if its process ended without a result.
    result
        The rows of a completed call.
    sqlstate, message, detail, hint
        The error of a failed call.
    notices
        Warnings and notices of an ended job.
    """

    id: int
    function: str
    arguments: Mapping[str, object]
    owner: str
    state: str
    pid: int | None
    created: datetime
    started: datetime | None
    ended: datetime | None
    result: Sequence[Mapping[str, object]] | None
    sqlstate: str | None
    message: str | None
    detail: str | None
    hint: str | None
    notices: Sequence[str]

    @property
    def title(self) -> str:
        """Function and rule."""
        return f"{self.function.removeprefix('dana_')} {self.arguments.get('rule')}"

    @property
    def outcome(self) -> str:
        """The error of an ended job, or what it has made; empty if it has not ended."""
        if self.message is not None:
            return f"{self.sqlstate}: {self.message}"
        if not self.result:
            return ""
        first = self.result[0]
        if self.function == "dana_train":
            return f"model {first['model']}, version {first['version']}, run {first['run']}"
        return f"{len(self.result)} rows in dana.job.result"


Row = TypeVar("Row")


def as_sql(arguments: Mapping[str, object]) -> dict[str, object]:
    """The arguments that are not None, as the driver takes them: objects as JSON text, sequences as lists."""
    return {name: _value(name, value) for name, value in arguments.items() if value is not None}


def given(options: Mapping[str, object]) -> dict[str, object] | None:
    """The options that are not None, for the argument ``training``; None without any."""
    return {name: _checked(name, value) for name, value in options.items() if value is not None} or None


def _checked(name: str, value: object) -> object:
    if name in NAMES:
        return names_of(name, value)
    # checked here: the server would take the text of any object for a name
    if name in ("label", "model", "key", "keep", "test_by") and not isinstance(value, str):
        raise TypeError(f"{name} must be a name, not a {type(value).__name__}")
    return value


def _value(name: str, value: object) -> object:
    value = _checked(name, value)
    # a fill value may be a number, and the argument is text
    if name == "nulls" and not isinstance(value, Mapping):
        return str(value)
    if name in ("grid", "class_weight") or isinstance(value, Mapping):
        return as_json(value)
    if isinstance(value, Sequence) and not isinstance(value, str):
        return list(value)
    return value


def as_json(value: object) -> str:
    """Text of a value in which mappings, sequences and NumPy's numbers may be of any kind."""
    return json.dumps(_with_plain_keys(value), default=_plain)


def _with_plain_keys(value: object) -> object:
    """A value in which keys of mappings are Python's numbers, not NumPy's: labels often are."""
    if not isinstance(value, Mapping):
        return value
    return {key.item() if hasattr(key, "item") else key: _with_plain_keys(one) for key, one in value.items()}


def _plain(value: object) -> object:
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Iterable):
        return list(value)
    raise TypeError(f"{value!r} has no counterpart in JSON")


# proargnames continues with the columns of the result; only pronargs of them are arguments. By extension and schema:
# another role may own a function of the same name
DECLARED = """
SELECT n.nspname, p.proargnames[1:p.pronargs],
    ARRAY(SELECT pg_catalog.format_type(t.type, NULL)
        FROM pg_catalog.unnest(p.proargtypes) WITH ORDINALITY AS t (type, n) ORDER BY t.n)
FROM pg_catalog.pg_extension AS e
JOIN pg_catalog.pg_depend AS d ON d.refobjid = e.oid
    AND d.refclassid = 'pg_catalog.pg_extension'::pg_catalog.regclass::oid
    AND d.classid = 'pg_catalog.pg_proc'::pg_catalog.regclass::oid AND d.deptype = 'e'::"char"
JOIN pg_catalog.pg_proc AS p ON p.oid = d.objid AND p.pronamespace = e.extnamespace
JOIN pg_catalog.pg_namespace AS n ON n.oid = p.pronamespace
WHERE e.extname = 'dana'::name AND p.proname = %s::name
"""
"""Schema of one of the extension's functions for users, and names and types of its arguments."""


def _invocation(
    session: psycopg.Connection, function: str, arguments: Mapping[str, object]
) -> tuple[sql.Composed, dict[str, object]]:
    """The call of one of the extension's functions, and its parameters.

    Every argument is passed by name and cast to its declared type: a shorter call could resolve to a function of the
    same name that another role created in that schema.
    """
    found = session.execute(DECLARED, (function,)).fetchone()
    if found is None:
        raise UsageError(f"the database has no function {function}()", hint="Run CREATE EXTENSION dana there.")
    schema, names, types = found
    unknown = sorted({name for name, value in arguments.items() if value is not None} - set(names))
    if unknown:
        known = ", ".join(names)
        raise UsageError(f"{function}() has no argument {', '.join(unknown)}", hint=f"It has: {known}.")
    values = as_sql(arguments)
    passed = [
        # the type as format_type writes it: quoted
        sql.SQL("{} => {}::{}").format(sql.Identifier(name), sql.Placeholder(name), sql.SQL(kind))
        for name, kind in zip(names, types, strict=True)
    ]
    # qualified, so that search_path does not decide which function is called
    made = sql.SQL("{}({})").format(sql.Identifier(schema, function), sql.SQL(", ").join(passed))
    # arguments that were not given are NULL, which the functions treat as their defaults
    return made, {name: values.get(name) for name in names}


def call(session: psycopg.Connection, function: str, arguments: Mapping[str, object], row: type[Row]) -> Rows[Row]:
    """Call a function of the extension with named arguments; its rows, with the fields of ``row`` as columns."""
    invocation, values = _invocation(session, function, arguments)
    # by name, so that a column that the extension adds does not shift the others
    columns = [sql.Identifier(one.name) for one in fields(row) if not one.name.startswith("_")]  # type: ignore[arg-type]
    statement = sql.SQL("SELECT {} FROM {}").format(sql.SQL(", ").join(columns), invocation)
    with Messages(session), session.cursor(row_factory=class_row(row)) as cursor:
        return Rows(cursor.execute(statement, values).fetchall())


def value(session: psycopg.Connection, function: str, arguments: Mapping[str, object]) -> Any:
    """Call a function that returns one value; None if it returns no row."""
    invocation, values = _invocation(session, function, arguments)
    with Messages(session):
        row = session.execute(sql.SQL("SELECT {}").format(invocation), values).fetchone()
    return None if row is None else row[0]


def lines(session: psycopg.Connection, function: str, arguments: Mapping[str, object]) -> list[TupleRow]:
    """Call a function; its rows with all columns."""
    invocation, values = _invocation(session, function, arguments)
    with Messages(session):
        return session.execute(sql.SQL("SELECT * FROM {}").format(invocation), values).fetchall()


def start(session: psycopg.Connection, call: Call, arguments: Mapping[str, object]) -> int:
    """Start a call in the background; the job's number."""
    asked = {"function": f"dana_{call.removeprefix('dana_')}", "arguments": given(arguments) or {}}
    return int(value(session, "dana_start", asked))


def jobs(session: psycopg.Connection, number: int | None = None, limit: int | None = None) -> Rows[Job]:
    """The jobs of the session's roles, the newest first, at most so many; or the one of a number."""
    columns = sql.SQL(", ").join(sql.Identifier(field.name) for field in fields(Job))
    statement = sql.SQL(
        "SELECT {} FROM dana.job WHERE %(id)s::bigint IS NULL OR id = %(id)s ORDER BY id DESC LIMIT %(limit)s"
    )
    with session.cursor(row_factory=class_row(Job)) as cursor:
        return Rows(cursor.execute(statement.format(columns), {"id": number, "limit": limit}).fetchall())
