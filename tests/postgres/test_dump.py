"""Rules, models and their history go through pg_dump, with the functions that rules have."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from tests.postgres.cluster import Cluster
from tests.postgres.conftest import Session


@pytest.fixture
def restored_dsn(cluster: Cluster, session: Session) -> Iterator[str]:
    """An empty database."""
    session.execute("CREATE DATABASE restored TEMPLATE template0")
    yield cluster.dsn().replace("dbname=postgres", "dbname=restored")
    session.execute("DROP DATABASE restored WITH (FORCE)")


def contents(session: Session) -> dict[str, list[tuple[Any, ...]]]:
    return {
        table: session.execute(f"SELECT x::text FROM dana.{table} x ORDER BY 1").fetchall()
        for table in ("rule", "model", "weights", "run", "epoch")
    }


def through_dump(cluster: Cluster, restored_dsn: str, *options: str) -> None:
    """What these options of pg_dump choose of the database, all without, into the empty one."""
    environment = {"LD_LIBRARY_PATH": ""}
    dump = subprocess.run(
        [str(cluster.installation.program("pg_dump")), *options, cluster.dsn()],
        capture_output=True,
        check=True,
        env=environment,
    )
    restore = subprocess.run(
        [str(cluster.installation.program("psql")), "-X", "-v", "ON_ERROR_STOP=1", "-d", restored_dsn],
        input=dump.stdout,
        capture_output=True,
        check=False,
        env=environment,
    )
    assert restore.returncode == 0, restore.stderr.decode()


def test_dump_and_restore(cluster: Cluster, session: Session, rule: Callable[..., str], restored_dsn: str) -> None:
    session.execute("CREATE TABLE t AS SELECT g AS id FROM generate_series(1, 100) g")
    name = rule(epochs=3, weights=[0.1, 1e-45, 3.4028235e38, float("inf"), -0.0])
    for _ in range(2):
        session.execute(f"SELECT * FROM dana.{name}('t')")
    session.execute("SELECT dana_train(%s, 't', 'large')", (rule(random_weights=(1 << 22) + 5),))  # of two parts
    profile = '[{"feature": "id", "element": 1, "values": null, "bounds": [50], "rows": [0, 49, 51]}]'
    session.execute("SELECT dana.dana_store_profile(%s, %s, 2)", (name, profile))
    before = contents(session)
    through_dump(cluster, restored_dsn)
    with cluster.connect(dbname="restored") as other:
        restored = contents(other)
        assert {table: restored[table] == rows for table, rows in before.items()} == dict.fromkeys(before, True)
        assert len(restored["weights"]) == 1
        profiles = other.execute("SELECT version FROM dana.model WHERE metadata ? 'profile'").fetchall()
        assert profiles == [(2,)]
        row = other.execute(f"SELECT version, run FROM dana.{name}('test.t')").fetchone()
        assert row == (3, last_run(before) + 1), "versions and run numbers go on"
        other.execute("SELECT dana_rename_model('large', 'other')")
        assert other.execute("SELECT name FROM dana.weights").fetchall() == [("other",)]
        other.execute("SELECT dana_drop_model('other')")
        assert other.execute("SELECT FROM dana.weights").rowcount == 0
    cluster.until_sessions(1)


def test_a_dump_of_half_a_rule(cluster: Cluster, session: Session, rule: Callable[..., str], restored_dsn: str) -> None:
    """Of the schema alone it has the function without the rule, of the data alone the rule without the function."""
    session.execute("CREATE TABLE t AS SELECT 1 AS id; CREATE ROLE another SUPERUSER")
    try:
        made, dropped = rule(), rule()
        session.execute(f"ALTER FUNCTION dana.{made}(regclass, jsonb) OWNER TO another")
        through_dump(cluster, restored_dsn, "--schema-only")
        with cluster.connect(dbname="restored") as other:
            assert other.execute("SELECT FROM dana.rule").rowcount == 0
            for name in (made, dropped):
                other.execute("SELECT dana_create_udf(%s, '{}')", (name,))
            assert other.execute(f"SELECT model FROM dana.{made}('test.t')").fetchall() == [(made,)]
            owners = "SELECT DISTINCT proowner::regrole::text FROM pg_proc WHERE proname = ANY (%s)"
            assert other.execute(owners, ([made, dropped],)).fetchall() == [("postgres",)]
            other.execute("SELECT dana_drop_rule(name) FROM dana.rule; DROP SCHEMA test CASCADE")
            assert other.execute(owners, ([made, dropped],)).fetchall() == []
            other.execute("DELETE FROM dana.model; CREATE SCHEMA test; CREATE TABLE test.t (id int)")
        through_dump(cluster, restored_dsn, "--data-only", "--table=test.t", "--extension=dana", "--table=dana.rule")
        with cluster.connect(dbname="restored") as other:
            assert other.execute("SELECT FROM dana.rule").rowcount == 2
            other.execute("SELECT dana_create_udf(%s, '{}')", (made,))
            assert other.execute(f"SELECT model FROM dana.{made}('test.t')").fetchall() == [(made,)]
            other.execute("SELECT dana_drop_rule(name) FROM dana.rule")
            assert other.execute("SELECT FROM dana.rule").rowcount == 0
            assert other.execute(owners, ([made, dropped],)).fetchall() == []
    finally:
        session.execute("DROP OWNED BY another CASCADE; DROP ROLE another")
    cluster.until_sessions(1)


def last_run(before: dict[str, list[tuple[Any, ...]]]) -> int:
    return max(int(row[0].split(",")[0].lstrip("(")) for row in before["run"])


def test_a_role_that_is_gone_is_nobody_elsewhere(
    cluster: Cluster, session: Session, rule: Callable[..., str], restored_dsn: str
) -> None:
    """Its number may be somebody's there, who then had its models, and what was granted it."""
    session.execute("CREATE TABLE t AS SELECT 1 AS id; CREATE ROLE gone; CREATE ROLE stays")
    try:
        name = rule()
        for model in ("its", "ours"):
            session.execute("SELECT dana_train(%s, 't', %s)", (name, model))
        session.execute("SELECT dana_grant_model('ours', role) FROM unnest('{gone,stays}'::regrole[]) AS r (role)")
        session.execute("UPDATE dana.model SET owner = 'gone' WHERE name = 'its'")
        (number,) = session.execute("SELECT 'gone'::regrole::oid::bigint").fetchall()[0]
        session.execute("DROP ROLE gone")
        through_dump(cluster, restored_dsn)
        with cluster.connect(dbname="restored") as other:
            rows = other.execute("SELECT owner::text, users::text, owner::oid::bigint FROM dana.model ORDER BY name")
            nobody = number + (1 << 31)
            (postgres,) = session.execute("SELECT 'postgres'::regrole::oid::bigint").fetchall()[0]
            assert rows.fetchall() == [(str(nobody), "{}", nobody), ("postgres", f"{{{nobody},stays}}", postgres)]
        with pytest.raises(psycopg.errors.UndefinedObject):
            session.execute("SELECT dana_grant_model('ours', %s::oid::regrole)", (number,))
        with pytest.raises(psycopg.errors.UndefinedObject):
            session.execute("SELECT dana_grant_rule(%s, %s::oid::regrole)", (name, number))
    finally:
        session.execute("DROP ROLE IF EXISTS gone; DROP ROLE stays")
    cluster.until_sessions(1)
