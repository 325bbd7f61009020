"""The extension in a database of the embedded server, created by this checkout's script.

In: a superuser's session, and whether the script changed since the last start. Out: the extension of this script.
There are no upgrade scripts, and during development the script changes under one version number. So an extension of
another script is created again; its rows and the privileges on its functions are kept. This is only for databases of
the embedded server.
"""

from __future__ import annotations

from contextlib import suppress

import psycopg
from psycopg import sql

from dana.errors import SetupError

TABLES = """
SELECT t.relname FROM pg_depend AS d JOIN pg_class AS t ON t.oid = d.objid AND d.classid = 'pg_class'::regclass::oid
WHERE d.deptype = 'e' AND d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'dana') AND t.relkind = 'r'
ORDER BY EXISTS (SELECT FROM pg_constraint WHERE conrelid = t.oid AND contype = 'f'), t.relname
"""
"""The extension's tables, those that reference others last."""

RIGHTS = """
SELECT p.oid::regprocedure::text, p.proname, a.grantee,
    CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE a.grantee::regrole::text END, coalesce(a.is_grantable, false)
FROM pg_depend AS d JOIN pg_proc AS p ON p.oid = d.objid AND d.classid = 'pg_proc'::regclass::oid
LEFT JOIN LATERAL aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) AS a ON a.grantee <> p.proowner
WHERE d.deptype = 'e' AND d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'dana')
"""
"""The extension's functions and the roles other than the owner with EXECUTE: a row for each, or one with NULL."""


def ensure_extension(connection: psycopg.Connection, *, script_changed: bool) -> None:
    """Create the extension, again if the script changed.

    Parameters
    ----------
    connection
        A superuser's session in autocommit mode, on a server with a running worker.
    """
    # CREATE IF NOT EXISTS would report a NOTICE at each start
    connection.execute("SET client_min_messages = warning")
    there = connection.execute("SELECT FROM pg_extension WHERE extname = 'dana'").fetchone() is not None
    if there and script_changed:
        _make_anew(connection)
    connection.execute("CREATE EXTENSION IF NOT EXISTS dana")


def _make_anew(connection: psycopg.Connection) -> None:
    # one transaction: an error leaves the old extension with its rows
    with connection.transaction():
        kept = _tables(connection)
        for table in kept:
            connection.execute(
                sql.SQL("CREATE TEMPORARY TABLE {} ON COMMIT DROP AS SELECT {} FROM dana.{}").format(
                    sql.Identifier(f"kept_{table}"), _without_our_types(connection, table), sql.Identifier(table)
                )
            )
        rights = _rights(connection)
        schema = connection.execute("SELECT extnamespace::regnamespace FROM pg_extension WHERE extname = 'dana'")
        place = sql.SQL(schema.fetchall()[0][0])  # as regnamespace writes it: quoted
        rules = connection.execute("SELECT name, text FROM dana.rule").fetchall() if "rule" in kept else []
        try:
            for name, _ in rules:
                connection.execute(
                    sql.SQL("DROP ROUTINE IF EXISTS {}").format(
                        sql.Identifier("dana", name)
                    )  # the only one of its name
                )
            connection.execute("DROP EXTENSION dana")
        except psycopg.errors.DependentObjectsStillExist as error:
            raise SetupError(
                "the extension's script changed, but objects of yours depend on it: "
                f"{error.diag.message_detail}; drop them and start again"
            ) from None
        connection.execute(sql.SQL("CREATE EXTENSION dana SCHEMA {}").format(place))
        for name, text in rules:  # which makes their functions; what is a rule no longer keeps its row
            with suppress(psycopg.Error), connection.transaction():
                connection.execute(sql.SQL("SELECT {}.dana_create_udf(%s, %s)").format(place), (name, text))
        connection.execute("DELETE FROM dana.rule")  # for the rows as they were
        try:
            for table in _tables(connection):
                if table in kept:
                    _carry_over(connection, table)
        except psycopg.IntegrityError as error:
            raise SetupError(
                f"the extension's script changed, and rows of its tables do not fit it: {error.diag.message_primary}; "
                "drop the extension, or choose another folder with DANA_HOME, and start again"
            ) from None
        _grant_again(connection, rights)


def _tables(connection: psycopg.Connection) -> list[str]:
    return [name for (name,) in connection.execute(TABLES)]


def _rights(connection: psycopg.Connection) -> dict[str, set[tuple[str, bool]]]:
    """Who may call a function, by its signature, and those of a name, and whether they may grant it."""
    found: dict[str, set[tuple[str, bool]]] = {}
    for signature, name, grantee, role, grantable in connection.execute(RIGHTS):
        # by name, too: a function with new arguments inherits the rights of the old one
        for key in (signature, name):
            found.setdefault(key, set()).update({(role, grantable)} if grantee is not None else ())
    return found


def _grant_again(connection: psycopg.Connection, rights: dict[str, set[tuple[str, bool]]]) -> None:
    """Restore EXECUTE on the functions; with changed arguments, by the function's name."""
    functions = {row[0]: row[1] for row in connection.execute(RIGHTS)}
    for signature, name in functions.items():
        callers = rights.get(signature, rights.get(name))
        if callers is None:
            continue
        function = sql.SQL(signature)  # as regprocedure writes it: quoted
        # PostgreSQL grants EXECUTE on a new function to PUBLIC
        connection.execute(sql.SQL("REVOKE EXECUTE ON ROUTINE {} FROM PUBLIC").format(function))
        for role, grantable in callers:
            option = sql.SQL(" WITH GRANT OPTION" if grantable else "")
            connection.execute(sql.SQL("GRANT EXECUTE ON ROUTINE {} TO {}{}").format(function, sql.SQL(role), option))


def _without_our_types(connection: psycopg.Connection, table: str) -> sql.Composable:
    """A table's columns: roles as regrole, for dana.role goes with the extension."""
    columns = connection.execute(
        "SELECT attname, replace(format_type(atttypid, atttypmod), 'dana.role', 'regrole') FROM pg_attribute"
        " WHERE attrelid = %s::regclass::oid AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
        (f"dana.{table}",),
    )
    return sql.SQL(", ").join(
        sql.SQL("{0}::{1} AS {0}").format(sql.Identifier(name), sql.SQL(kind)) for name, kind in columns.fetchall()
    )


def _carry_over(connection: psycopg.Connection, table: str) -> None:
    """Copy the columns that the table had and has; numbers go on behind the highest."""
    common = connection.execute(
        "SELECT attname FROM pg_attribute WHERE attrelid = %s::regclass::oid AND attnum > 0 AND NOT attisdropped"
        " INTERSECT "
        "SELECT attname FROM pg_attribute WHERE attrelid = %s::regclass::oid AND attnum > 0 AND NOT attisdropped",
        (f"dana.{table}", f"pg_temp.kept_{table}"),
    ).fetchall()
    columns = sql.SQL(", ").join(sql.Identifier(name) for (name,) in common)
    connection.execute(
        # OVERRIDING SYSTEM VALUE: numbers of rows are identity columns, and other rows refer to them
        sql.SQL("INSERT INTO dana.{} ({}) OVERRIDING SYSTEM VALUE SELECT {} FROM pg_temp.{}").format(
            sql.Identifier(table), columns, columns, sql.Identifier(f"kept_{table}")
        )
    )
    numbered = connection.execute(
        "SELECT attname FROM pg_attribute WHERE attrelid = %s::regclass::oid AND attidentity <> ''", (f"dana.{table}",)
    ).fetchall()
    for (column,) in numbered:  # sequences of the new tables start at 1
        connection.execute(
            sql.SQL("SELECT setval(pg_get_serial_sequence(%s, %s), max({})) FROM dana.{} HAVING count(*) > 0").format(
                sql.Identifier(column), sql.Identifier(table)
            ),
            (f"dana.{table}", column),
        )
