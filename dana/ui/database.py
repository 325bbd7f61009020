"""Sessions of the window on the database, and what its pages read there.

In: a connection string. Out: a session for each request; rows. Requests that only read have read-only transactions, so
that no function in a query or a view writes for them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import psycopg
from psycopg.errors import Diagnostic
from psycopg.rows import class_row

from dana.client.connection import Connection, connect
from dana.errors import UsageError
from dana.records import Metadata
from dana.session.calls import value
from dana.session.notices import category_of, text_of

COLUMNS = """
SELECT a.attname::text, pg_catalog.format_type(a.atttypid, a.atttypmod) FROM pg_catalog.pg_attribute AS a
WHERE a.attrelid = %s::pg_catalog.regclass::oid AND a.attnum > 0::smallint AND NOT a.attisdropped ORDER BY a.attnum
"""
MAPPED = """
SELECT s.source::text, count(*), 'shard' FROM dana.shard AS s GROUP BY s.source
UNION ALL
SELECT i.inhparent::pg_catalog.regclass::text, count(*), 'foreign partition'
FROM pg_catalog.pg_inherits AS i JOIN pg_catalog.pg_foreign_table AS f ON f.ftrelid = i.inhrelid
JOIN pg_catalog.pg_partitioned_table AS p ON p.partrelid = i.inhparent
WHERE pg_catalog.has_any_column_privilege(i.inhparent, 'SELECT')
    AND NOT EXISTS (SELECT FROM dana.shard AS s WHERE s.source::oid = i.inhparent)
GROUP BY i.inhparent ORDER BY 1
"""
SETTINGS = """
SELECT name, pg_catalog.current_setting(name), short_desc FROM pg_catalog.pg_settings WHERE name ~ '^dana\\.'::text
ORDER BY name
"""
CANCEL = """
SELECT count(pg_catalog.pg_cancel_backend(p.pid)) FROM dana.progress AS p WHERE p.pid = %s::integer
"""
"""Cancels a training that runs, and no other statement of a session."""

# as in dana.client.models: operators that are not those of another role
STORED = """
SELECT m.metadata, m.comment, m.owner::oid OPERATOR(pg_catalog.=) c.oid AS own,
    pg_catalog.cardinality(m.weights) AS numbers
FROM dana.model AS m
JOIN pg_catalog.pg_roles AS c ON c.rolname = CURRENT_USER
WHERE m.version = %(version)s::integer AND CASE WHEN m.owner::oid OPERATOR(pg_catalog.=) c.oid THEN m.name
    ELSE pg_catalog.concat(m.owner::text, '.', m.name) END OPERATOR(pg_catalog.=) %(name)s::text
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """A version of a model.

    Attributes
    ----------
    own
        Whether the reader is the owner itself.
    numbers
        How many numbers it has.
    """

    metadata: Metadata
    comment: str | None
    own: bool
    numbers: int


@dataclass(frozen=True, slots=True)
class Heard:
    """Notices and warnings of the server during a request, each once."""

    texts: dict[str, None] = field(default_factory=dict)

    def hear(self, said: Diagnostic) -> None:
        if category_of(said) is not None:
            self.texts[text_of(said)] = None


class Database:
    """Opens sessions; knows a connection string that no page shows.

    Parameters
    ----------
    dsn
        Connection string of libpq.
    """

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn

    @contextmanager
    def session(self, heard: Heard | None = None, *, writes: bool = False) -> Iterator[Connection]:
        """A session in autocommit mode, for one request."""
        with connect(self._dsn) as db:
            if not writes:
                # in autocommit mode psycopg begins no transaction that its `read_only` could make so
                db.session.execute("SET default_transaction_read_only = on")
            if heard is not None:
                db.session.add_notice_handler(heard.hear)
            yield db


def columns(session: psycopg.Connection, table: str) -> list[tuple[str, str]]:
    """Names and types of a table's columns; ``table`` as the server writes it."""
    return list(session.execute(COLUMNS, (table,)).fetchall())


def mapped(session: psycopg.Connection) -> list[tuple[str, int, str]]:
    """Tables that have shards, how many, and of which kind."""
    return list(session.execute(MAPPED).fetchall())


def settings(session: psycopg.Connection) -> list[tuple[str, str, str]]:
    """Names, values and meanings of the extension's settings."""
    return list(session.execute(SETTINGS).fetchall())


def stored(session: psycopg.Connection, name: str, version: int) -> Stored:
    """A version of a model.

    Raises
    ------
    UsageError
        There is none, or it is not the reader's to use.
    """
    with session.cursor(row_factory=class_row(Stored)) as cursor:
        found = cursor.execute(STORED, {"name": name, "version": version}).fetchone()
    if found is None:
        raise UsageError(f"model {name}@{version} does not exist, or is not yours to use")
    return found


def cancel(session: psycopg.Connection, pid: int) -> bool:
    """Cancel a running training; False if it is over."""
    return bool(session.execute(CANCEL, (pid,)).fetchall()[0][0])


def activate(session: psycopg.Connection, name: str, version: int) -> None:
    """Let the name of a model stand for this version."""
    value(session, "dana_activate_model", {"name": name, "version": version})


def keep_profile(session: psycopg.Connection, name: str) -> None:
    """Keep the distribution of the rows that a model's version in use was trained on."""
    value(session, "dana_profile", {"model": name})
