"""The extension in a database that has one of another script: made anew with what users made."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from dana.errors import SetupError
from dana.server.embedded import EmbeddedServer
from dana.server.extension import ensure_extension
from tests.sql.conftest import SUMS

Session = psycopg.Connection[Any]


@pytest.fixture
def database(server: EmbeddedServer) -> Iterator[Session]:
    """A session in an empty database of its own."""
    with psycopg.connect(server.dsn, autocommit=True) as admin:
        admin.execute("DROP DATABASE IF EXISTS other WITH (FORCE)")
        admin.execute("CREATE DATABASE other TEMPLATE template0")
        with psycopg.connect(server.dsn, dbname="other", autocommit=True) as session:
            yield session
        admin.execute("DROP DATABASE other WITH (FORCE)")


def contents(session: Session) -> dict[str, list[tuple[Any, ...]]]:
    tables = session.execute(
        "SELECT c.relname FROM pg_depend d JOIN pg_extension e ON e.oid = d.refobjid AND e.extname = 'dana'"
        " JOIN pg_class c ON c.oid = d.objid AND d.classid = 'pg_class'::regclass"
        " WHERE d.deptype = 'e' AND c.relkind = 'r'"
    ).fetchall()
    return {table: session.execute(f"SELECT x::text FROM dana.{table} x ORDER BY 1").fetchall() for (table,) in tables}


def rights(session: Session) -> list[tuple[Any, ...]]:
    return session.execute(
        "SELECT proname, proargtypes::regtype[], a.* FROM pg_proc p,"
        " aclexplode(coalesce(proacl, acldefault('f', proowner))) a"
        " WHERE pronamespace = '\"Odd one\"'::regnamespace ORDER BY 1, 2, 4"
    ).fetchall()


def test_made_anew_it_keeps_what_users_made(database: Session) -> None:
    database.execute('CREATE SCHEMA "Odd one"')
    database.execute('CREATE EXTENSION dana SCHEMA "Odd one"')
    database.execute('SET search_path = "Odd one", public')
    database.execute("CREATE TABLE public.t AS SELECT i::real AS x, 1::real AS y FROM generate_series(1, 100) i")
    database.execute("SELECT dana_create_udf('sums', %s)", (SUMS,))
    database.execute("SELECT dana_train('sums', 't')")
    # as of a model of more than four million numbers
    database.execute("INSERT INTO dana.weights SELECT owner, name, version, 1, '{1}' FROM dana.model")
    database.execute(
        "INSERT INTO dana.checkpoint (owner, model, epoch, state) SELECT owner, name, 1, '' FROM dana.model"
    )
    database.execute("INSERT INTO dana.shard (source, shard) VALUES ('public.t', 1)")
    start = """SELECT dana_start('dana_train', '{"rule": "sums", "source": "t", "model": "other"}')"""
    job = database.execute(start).fetchone()
    assert database.execute("SELECT dana_wait(%s)", job).fetchone() == ("done",)
    analyst = f"analyst {database.info.server_version}"
    database.execute(f'DROP ROLE IF EXISTS "{analyst}"')
    database.execute(f'CREATE ROLE "{analyst}"')
    database.execute(
        f'GRANT EXECUTE ON FUNCTION dana_train, dana_holdout(tid, float8, int) TO "{analyst}" WITH GRANT OPTION'
    )
    database.execute("REVOKE EXECUTE ON FUNCTION dana_predict FROM PUBLIC")
    before, allowed = contents(database), rights(database)
    assert all(before.values()), "a table without rows shows nothing"
    made = database.execute("SELECT oid FROM pg_extension WHERE extname = 'dana'").fetchone()
    ensure_extension(database, script_changed=False)
    assert database.execute("SELECT oid FROM pg_extension WHERE extname = 'dana'").fetchone() == made
    ensure_extension(database, script_changed=True)
    assert database.execute("SELECT oid FROM pg_extension WHERE extname = 'dana'").fetchone() != made
    assert contents(database) == before
    assert rights(database) == allowed
    assert database.execute("SELECT version, run FROM dana.sums('t', '{\"epochs\": 1}')").fetchone() == (2, 3)
    assert database.execute(f"{start} > %s", job).fetchone() == (True,)
    database.execute(f'DROP OWNED BY "{analyst}"; DROP ROLE "{analyst}"')


def test_views_of_users_are_not_dropped(database: Session) -> None:
    ensure_extension(database, script_changed=True)
    database.execute("CREATE VIEW v AS SELECT dana_predict('m', 1.0)")
    with pytest.raises(SetupError, match="view v depends on function dana_predict"):
        ensure_extension(database, script_changed=True)
    database.execute("DROP VIEW v")
    database.execute("SELECT dana_create_udf('sums', %s)", (SUMS,))
    database.execute("CREATE VIEW v AS SELECT (dana.sums('pg_class')).run")
    with pytest.raises(SetupError, match=r"view v depends on function dana\.sums"):
        ensure_extension(database, script_changed=True)
    assert database.execute("SELECT count(*) FROM dana.rule").fetchone() == (1,)
