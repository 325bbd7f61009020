"""The extension in a database of the embedded server: of this checkout's version, and made by its scripts.

In: a superuser's session, and whether the scripts changed since the last start. Out: the extension as they make it now.
PostgreSQL updates from version to version only; while a version is in the making its scripts change under one number.
So an extension of the same version but of other scripts is made anew, and its rows are carried over. This is for
databases that are ours; elsewhere ALTER EXTENSION UPDATE is the user's.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import psycopg
from psycopg import sql

from dana.errors import SetupError

TABLES = ("udf", "model", "run", "epoch")
"""Tables that hold what users made, referenced ones first."""


def ensure_extension(connection: psycopg.Connection[Any], *, scripts_changed: bool) -> None:
    """Create or update the extension; make it anew where that changes nothing though its scripts are others.

    Parameters
    ----------
    connection
        A superuser's session in autocommit mode, on a server whose worker runs.
    """
    connection.execute("SET client_min_messages = warning")
    before = _version(connection)
    connection.execute("CREATE EXTENSION IF NOT EXISTS dana")
    connection.execute("ALTER EXTENSION dana UPDATE")
    if scripts_changed and before is not None and before == _version(connection):
        _make_anew(connection)


def _version(connection: psycopg.Connection[Any]) -> str | None:
    row = connection.execute("SELECT extversion FROM pg_extension WHERE extname = 'dana'").fetchone()
    return None if row is None else str(row[0])


def _make_anew(connection: psycopg.Connection[Any]) -> None:
    with connection.transaction():
        for table in TABLES:
            connection.execute(
                sql.SQL("CREATE TEMPORARY TABLE {} ON COMMIT DROP AS SELECT * FROM dana.{}").format(
                    sql.Identifier(f"kept_{table}"), sql.Identifier(table)
                )
            )
        schema = connection.execute("SELECT extnamespace::regnamespace FROM pg_extension WHERE extname = 'dana'")
        place = sql.SQL(schema.fetchall()[0][0])  # as regnamespace writes it: quoted
        rules = connection.execute("SELECT name, source FROM dana.udf").fetchall()
        for name, _ in rules:
            connection.execute(
                sql.SQL("DROP ROUTINE IF EXISTS {}").format(sql.Identifier("dana", name))  # the only one of its name
            )
        try:
            connection.execute("DROP EXTENSION dana")
        except psycopg.errors.DependentObjectsStillExist as error:
            raise SetupError(
                "the extension's scripts changed, but objects of yours depend on it: "
                f"{error.diag.message_detail}; drop them and start again"
            ) from None
        connection.execute(sql.SQL("CREATE EXTENSION dana SCHEMA {}").format(place))
        for table in TABLES:
            _carry_over(connection, table)
        connection.execute("SELECT setval('dana.run_id_seq', greatest(1, (SELECT max(id) FROM dana.run)))")
    for name, source in rules:  # which makes their functions; a rule that is none any more keeps its row
        with suppress(psycopg.Error):
            connection.execute(sql.SQL("SELECT {}.dana_create_udf(%s, %s)").format(place), (name, source))


def _carry_over(connection: psycopg.Connection[Any], table: str) -> None:
    """Copy the columns that the table had and has."""
    common = connection.execute(
        "SELECT attname FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped"
        " INTERSECT SELECT attname FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped",
        (f"dana.{table}", f"pg_temp.kept_{table}"),
    ).fetchall()
    columns = sql.SQL(", ").join(sql.Identifier(name) for (name,) in common)
    connection.execute(
        sql.SQL("INSERT INTO dana.{} ({}) OVERRIDING SYSTEM VALUE SELECT {} FROM pg_temp.{}").format(
            sql.Identifier(table), columns, columns, sql.Identifier(f"kept_{table}")
        )
    )
