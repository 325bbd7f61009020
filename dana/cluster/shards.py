"""A table's shards: connections to them, what each is like, and whether they fit together.

In: connection strings; their order numbers the shards, from 1. Out: `Shard`, which reads under one snapshot; errors
that name shard and server. It knows nothing of the server that trains.
"""

from __future__ import annotations

import json
import select
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import DiagnosticField, ExecStatus, TransactionStatus
from psycopg.pq.abc import PGresult

from dana.errors import UsageError
from dana.printable import printable
from dana.session.tables import HEADER, TRAILER

CONNECT_TIMEOUT = 10
"""Seconds to connect in, unless the connection string says otherwise."""

CANCEL_TIMEOUT = 2
"""Seconds to cancel in what runs at a shard."""

OWN_TYPES = 10000
"""First OID that need not be the same type on every server (FirstGenbkiObjectId, access/transam.h)."""

TYPE = """
SELECT pg_catalog.format_type(t.oid, {}) AS type, t.typtype = 'e' AS enum FROM pg_catalog.pg_type AS t WHERE t.oid = {}
"""

FACTS = """
SELECT pg_catalog.current_setting('block_size')::int AS size, pg_catalog.current_setting('server_encoding') AS encoding,
    c.relkind IN ('r', 'm') AND am.amname = 'heap' AND NOT pg_catalog.row_security_active(c.oid)
        AND NOT EXISTS (SELECT FROM pg_catalog.pg_inherits AS i WHERE i.inhparent = c.oid)
        AND NOT EXISTS (SELECT FROM pg_catalog.pg_attribute AS a WHERE a.attrelid = c.oid AND a.attnum > 0
            AND (a.attisdropped OR a.atthasmissing OR a.attgenerated = 'v'))
        AND pg_catalog.has_table_privilege(c.oid, 'SELECT')
        AND (c.reltoastrelid = 0 OR pg_catalog.pg_relation_size(c.reltoastrelid) = 0) AS whole,
    ARRAY(SELECT a.attname::text FROM pg_catalog.pg_index AS i
        CROSS JOIN LATERAL pg_catalog.unnest(i.indkey::int2[]) WITH ORDINALITY AS k (number, place)
        JOIN pg_catalog.pg_attribute AS a ON a.attrelid = c.oid AND a.attnum = k.number
        WHERE i.indrelid = c.oid AND i.indisprimary AND k.place <= i.indnkeyatts ORDER BY k.place) AS key,
    (SELECT p.oid::pg_catalog.regproc::text FROM pg_catalog.pg_extension AS e
        JOIN pg_catalog.pg_depend AS d ON d.refobjid = e.oid AND d.refclassid = 'pg_catalog.pg_extension'::regclass
            AND d.deptype = 'e' AND d.classid = 'pg_catalog.pg_proc'::regclass
        JOIN pg_catalog.pg_proc AS p ON p.oid = d.objid
        WHERE e.extname = 'dana' AND p.proname = 'dana_shard_pages'
            AND pg_catalog.has_function_privilege(p.oid, 'EXECUTE')
            AND pg_catalog.has_schema_privilege(p.pronamespace, 'USAGE')) AS function
FROM pg_catalog.pg_class AS c LEFT JOIN pg_catalog.pg_am AS am ON am.oid = c.relam
WHERE c.oid = {}::pg_catalog.regclass
"""
"""
What a shard's table is like: size of a page, encoding, whether its pages hold its rows as they are, key, function.

Values in the TOAST table would be missing from the pages; a column that was dropped, or added with a default, or is
virtual is not on the pages as others are.
"""


SETTINGS = """
SET LOCAL search_path = pg_catalog; SET LOCAL datestyle = ISO; SET LOCAL intervalstyle = postgres;
SET LOCAL extra_float_digits = 3
"""
"""No operator in a schema that others write; texts of values that mean the same everywhere, as in calls/map.c."""

FOUND = """
SELECT pg_catalog.current_setting('search_path') AS path, {}::pg_catalog.regclass::pg_catalog.oid::bigint AS relation
"""

PLACE = """
SELECT s.system_identifier::text AS system, pg_catalog.pg_postmaster_start_time() AS start, d.oid::bigint AS database,
    {}::pg_catalog.regclass::oid::bigint AS relation
FROM pg_catalog.pg_control_system() AS s, pg_catalog.pg_database AS d
WHERE d.datname = pg_catalog.current_database()
"""


class ShardError(psycopg.OperationalError):
    """An error of one shard; the message names it and its server, and has the server's own message.

    Attributes
    ----------
    shard
        Its number, from 1.
    sqlstate
        The server's; 08001 where it cannot be reached, 08006 where the connection is lost.
    """

    def __init__(self, shard: Shard, message: str, sqlstate: str) -> None:
        super().__init__(printable(f"{shard}: {message.strip()}", lines=True))
        self.shard = shard.number
        self.sqlstate = sqlstate


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column.

    Attributes
    ----------
    type
        Its type as the shard's server writes it, for comparisons and messages.
    builtin
        The OID of a type that is the same on every server.
    modifier
        The type's, such as a length.
    enum
        Whether the type is an enum of that server.
    """

    name: str
    type: str
    builtin: int | None
    modifier: int
    enum: bool

    def __str__(self) -> str:
        return f"{self.name} {self.type}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What a shard's table is like.

    Attributes
    ----------
    key
        Columns of its primary key, if it has one.
    pages
        Name of the function that hands over its pages, qualified as that server needs it; None: only rows can be had.
    snapshot
        When the snapshot was taken, by this machine's clock.
    """

    columns: tuple[Column, ...]
    key: tuple[str, ...]
    block_size: int
    encoding: str
    pages: str | None
    snapshot: datetime


@dataclass(slots=True, kw_only=True)
class Shard:
    """A connection to a server with a part of the table, in a read-only transaction with one snapshot.

    Attributes
    ----------
    number
        From 1; the place in the caller's list.
    table
        As SQL writes it; once the transaction has begun, qualified.
    server
        Host, port and database, for messages; no password.
    timeout
        Seconds to wait for a message, or for the whole answer to a statement.
    path
        The user's search_path. Our statements run without it, because operators that other roles created in its
        schemas would run with the user's rights.
    """

    number: int
    dsn: str
    table: str
    timeout: float
    server: str
    session: psycopg.Connection = field(init=False)
    path: str = field(init=False, default="")

    def __str__(self) -> str:
        return f"shard {self.number} ({self.server})"

    def connect(self) -> None:
        """Connect to its server."""
        patience = "" if "connect_timeout" in conninfo_to_dict(self.dsn) else f"connect_timeout={CONNECT_TIMEOUT}"
        try:
            self.session = psycopg.connect(make_conninfo(self.dsn, client_encoding="utf8") + f" {patience}")
        except psycopg.OperationalError as error:
            raise ShardError(self, str(error), error.sqlstate or "08001") from error
        self.session.pgconn.nonblocking = 0

    def begin(self) -> None:
        """Begin the transaction, take its snapshot and find the table; sets what the statements that follow need."""
        self._run("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        [[self.path, oid]] = self.rows(FOUND, self.table)
        self._run(SETTINGS)
        [[self.table]] = self.rows("SELECT {}::oid::regclass::text", oid)

    def take_user_path(self) -> None:
        """Restore the user's search_path, for statements that contain the user's filter."""
        self.rows("SELECT pg_catalog.set_config('search_path', {}, true)", self.path)

    def close(self) -> None:
        """End the connection, and what runs at the server, which sees the end only when it sends the next message."""
        if self.session.info.transaction_status == TransactionStatus.ACTIVE:
            with suppress(psycopg.Error):  # of a server that is gone
                self.session.cancel_safe(timeout=CANCEL_TIMEOUT)
        self.session.close()

    def look(self) -> Look:
        """What the table is like; it cannot change any more until the connection ends."""
        # the row's description has domains as their base types, and the statement locks the table
        described = self._run(f"SELECT * FROM {self.table} LIMIT 0")
        snapshot = datetime.now(UTC)
        columns = []
        for i in range(described.nfields):
            type_, modifier = described.ftype(i), described.fmod(i)
            [[written, enum]] = self.rows(TYPE, modifier, type_)
            name = (described.fname(i) or b"").decode()
            builtin = type_ if type_ < OWN_TYPES else None
            columns.append(Column(name=name, type=written, builtin=builtin, modifier=modifier, enum=enum))
        [[block_size, encoding, whole, key, function]] = self.rows(FACTS, self.table)
        return Look(
            columns=tuple(columns),
            key=tuple(key),
            block_size=block_size,
            encoding=encoding,
            pages=function if whole else None,
            snapshot=snapshot,
        )

    def place(self) -> tuple[object, ...]:
        """What tells the table from all others: a copied server has the system identifier of its original."""
        [row] = self.rows(PLACE, self.table)
        return tuple(row)

    def copy(self, query: str) -> Iterator[memoryview]:
        """The rows of a query as binary COPY sends them, without its header and trailer.

        The statement begins at once, and the server is ahead of the reader by what the network holds.
        """
        self._send(f"COPY ({query}) TO STDOUT (FORMAT binary)")
        return self._copied()

    def _copied(self) -> Iterator[memoryview]:
        pgconn, header = self.session.pgconn, len(HEADER)
        self._result()
        until = self._deadline()
        while True:
            with self._lost():
                count, data = pgconn.get_copy_data(1)
            if count == 0:
                self._wait(until)
            elif count < 0:
                while self._result() is not None:
                    pass
                return
            else:
                row, header = data[header:], 0
                if row and row != TRAILER:
                    yield row
                until = self._deadline()

    def rows(self, query: str, *values: object) -> list[list[Any]]:
        """The rows of a query, as JSON has them; its values are in the place of ``{}``."""
        text = query.format(*(sql.Literal(value).as_string(self.session) for value in values)) if values else query
        found = self._run(f"SELECT pg_catalog.row_to_json(q) FROM ({text}) AS q")
        return [list(json.loads(found.get_value(i, 0) or b"{}").values()) for i in range(found.ntuples)]

    def _run(self, statement: str) -> PGresult:
        self._send(statement)
        result = last = self._result()
        while result is not None:
            last, result = result, self._result()
        if last is None:
            raise ShardError(self, "no result", "08P01")
        return last

    def _send(self, statement: str) -> None:
        with self._lost():
            self.session.pgconn.send_query(statement.encode())

    def _result(self) -> PGresult | None:
        """The next result of the statement, if it has one more; an error of the server is raised."""
        pgconn, until = self.session.pgconn, self._deadline()
        while pgconn.is_busy():
            self._wait(until)
        with self._lost():
            result = pgconn.get_result()
        if result is not None and result.status == ExecStatus.FATAL_ERROR:
            state = result.error_field(DiagnosticField.SQLSTATE)
            message = result.error_field(DiagnosticField.MESSAGE_PRIMARY) or result.error_message
            raise ShardError(self, message.decode(errors="replace"), "08006" if state is None else state.decode())
        return result

    def _deadline(self) -> float:
        return time.monotonic() + self.timeout

    def _wait(self, until: float) -> None:
        """Wait for more of a message: a process that was stopped sends none, and its connection stays."""
        ready = select.poll()
        ready.register(self.session.pgconn.socket, select.POLLIN)
        left = until - time.monotonic()
        if left <= 0 or not ready.poll(1000 * left):
            raise ShardError(self, f"no message within {self.timeout:g} s", "08006")
        with self._lost():
            self.session.pgconn.consume_input()

    @contextmanager
    def _lost(self) -> Iterator[None]:
        try:
            yield
        except psycopg.Error as error:
            raise ShardError(self, str(error), "08006") from error


@contextmanager
def opened(dsns: Sequence[str], table: str, timeout: float) -> Iterator[list[Shard]]:
    """The shards in their order, connected; at the end all connections are closed.

    Raises
    ------
    UsageError
        There is none, one is listed twice, or its connection string is not valid.
    ShardError
        One cannot be reached.
    """
    if isinstance(dsns, str) or not dsns:
        raise UsageError("shards must be a list of connection strings, at least one; leave it out for those of the map")
    with ExitStack() as stack:
        shards = []
        for number, dsn in enumerate(dsns, 1):
            shard = Shard(number=number, dsn=dsn, table=table, timeout=timeout, server=_named(dsn))
            shard.connect()
            stack.callback(shard.close)
            shard.begin()
            shards.append(shard)
        _check_distinct(shards)
        yield shards


def _named(dsn: str) -> str:
    """A server for messages, without its password."""
    try:
        given = conninfo_to_dict(dsn)
    except psycopg.ProgrammingError as error:
        raise UsageError(f"a shard's connection string is not valid: {error}") from None
    return " ".join(f"{key}={given[key]}" for key in ("host", "port", "dbname", "service") if key in given) or "default"


def _check_distinct(shards: Sequence[Shard]) -> None:
    """One table under two numbers would count its rows twice."""
    seen: dict[tuple[object, ...], Shard] = {}
    for shard in shards:
        same = seen.setdefault(shard.place(), shard)
        if same is not shard:
            raise UsageError(f"{same} and {shard} are one table, {shard.table}", hint="List each shard once.")


def check_alike(shards: Sequence[Shard], looks: Sequence[Look]) -> None:
    """Raise an error that names shard and column unless all tables have the same columns; their order may differ.

    Raises
    ------
    UsageError
        A column is missing, is new, or is of another type.
    """
    first = {column.name: column for column in looks[0].columns}
    for shard, look in zip(shards[1:], looks[1:], strict=True):
        found = {column.name: column for column in look.columns}
        for name in (*first, *found):
            here, there = found.get(name), first.get(name)
            if here == there:
                continue
            if here is None:
                why = f"has no column {there}, which {shards[0]} has"
            elif there is None:
                why = f"has a column {here}, which {shards[0]} has not"
            else:
                why = f"has column {here}; {shards[0]} has {there}"
            raise UsageError(f"{shard} {why}: table {shard.table}", hint="All shards need the same columns and types.")
    for shard, look in zip(shards, looks, strict=True):
        if look.key != looks[0].key:
            raise UsageError(
                f"{shard} has the primary key ({', '.join(look.key)}) and {shards[0]} ({', '.join(looks[0].key)}): "
                f"table {shard.table}"
            )
