"""Training a model again on the current rows, with the options of its training."""

from __future__ import annotations

import psycopg
import pytest
from psycopg.types.json import Jsonb

from dana import rules
from dana.client.connection import Connection
from dana.server.embedded import EmbeddedServer
from tests.sql.conftest import SUMS, Session

errors = psycopg.errors
LATEST = 'SELECT "values" FROM dana_parameters(%s)'


@pytest.fixture
def table(session: Session) -> Session:
    session.execute(
        "CREATE TABLE t AS SELECT nullif(i % 7, 3)::real AS a, (ARRAY['x', 'z'])[i % 2 + 1] AS c, 1::real AS w,"
        " (i % 5)::real AS y, i FROM generate_series(1, 100) AS i"
    )
    return session


@pytest.mark.parametrize(
    "rows",
    [
        "'t', features => '{a,c}', label => 'y'",
        "'t', features => '{a,c}', label => 'y', filter => 'i > 10'",
        "query => 'SELECT a, c, y FROM t WHERE i > 10'",
    ],
)
def test_it_is_the_same_training_from_the_model(table: Session, rows: str) -> None:
    """Whatever became of the table: the bits of dana_train() with the options again."""
    options = "epochs => 3, machine => 'interp', nulls => 'mean', test_size => 0.2, seed => 3"
    told: list[str] = []
    table.execute(f"SELECT dana_train('sums', {rows}, model => 'm', {options})")
    table.execute("INSERT INTO t SELECT 9, NULL, 2, 7, i FROM generate_series(101, 120) AS i")
    table.execute("DELETE FROM t WHERE i BETWEEN 20 AND 30; UPDATE t SET y = 4 WHERE i = 50")
    table.execute("ALTER TABLE t ADD COLUMN later real DEFAULT 3")
    table.execute(f"SELECT dana_train('sums', {rows}, model => 'by_hand', warm_start_from => 'm', {options})")
    table.execute("SET client_min_messages = notice")
    table.add_notice_handler(lambda notice: told.append(str(notice.message_primary)))
    ((version, epochs, tuples),) = table.execute("SELECT version, epochs, tuples FROM dana_refresh('m')").fetchall()
    assert (version, epochs) == (2, 3)
    assert told[-1] == f'model "m": a warm start from version 1, which read all {tuples} rows 3 times'
    assert table.execute(LATEST, ("m",)).fetchall() == table.execute(LATEST, ("by_hand",)).fetchall()
    repeated = ", ".join(f"metadata -> '{member}'" for member in ("asked", "preprocess", "filter", "query", "settings"))
    kept = f"SELECT {repeated} FROM dana.model WHERE name = %s ORDER BY version DESC LIMIT 1"
    assert table.execute(kept, ("m",)).fetchall() == table.execute(kept, ("by_hand",)).fetchall()


def test_from_python(table: Session) -> None:
    """Without a label, too; a version that was chosen is the one that it starts from, and stays in use."""
    table.execute("SELECT dana_create_udf('kmeans', %s)", (rules.text("kmeans"),))
    for _ in range(2):
        table.execute("SELECT dana_train('kmeans', 't', 'm', '{y,w}', epochs => 1, hyper => '{\"k\": 2}')")
    table.execute("SELECT dana_activate_model('m', 1)")
    table.execute("INSERT INTO t (y, w) VALUES (2, 3)")
    again = Connection(table).refresh("m")
    assert (again.version, again.tuples, again.epochs) == (3, 101, 1)
    assert table.execute("SELECT version FROM dana.model WHERE name = 'm' AND active").fetchall() == [(1,)]
    last = table.execute("SELECT metadata ->> 'warm_start_from' FROM dana.model WHERE version = 3").fetchall()
    assert last == [("m",)]


def test_what_is_refused(table: Session) -> None:
    table.execute("SELECT dana_train('sums', 't', 'm', '{a}', 'y', filter => 'i > 10')")
    table.execute("SELECT dana_train_groups('sums', 't', '{c}', '{\"features\": [\"a\"], \"label\": \"y\"}')")
    with pytest.raises(errors.FeatureNotSupported, match="is that of a group"):
        table.execute("SELECT dana_refresh('sums[x]')")
    with pytest.raises(errors.ObjectNotInPrerequisiteState, match="TimeZone is 'Asia/Tokyo', but was "):
        table.execute("SET TimeZone = 'Asia/Tokyo'; SELECT dana_refresh('m')")
    table.execute("RESET TimeZone")
    table.execute("ALTER TABLE t DROP COLUMN a")
    with pytest.raises(errors.Error, match=r"column 'a' of test\.t does not exist"):
        table.execute("SELECT dana_refresh('m')")
    table.execute("DROP TABLE t")
    with pytest.raises(errors.UndefinedTable, match="t"):
        table.execute("SELECT dana_refresh('m')")
    temporary = "UPDATE dana.model SET metadata = jsonb_set(metadata - 'filter', '{source}', '\"pg_temp_99.t\"')"
    table.execute(temporary + " WHERE name = 'm'")
    with pytest.raises(
        errors.UndefinedTable, match=r"\"pg_temp_99\.t\" does not exist\nHINT:  It was a temporary table"
    ):
        table.execute("SELECT dana_evaluate('m')")
    assert table.execute("SELECT max(version) FROM dana.model WHERE name = 'm'").fetchone() == (1,)


def test_only_the_owner(owners: Session) -> None:
    """Not a member of its role: the model's table, or view, would be read with the member's rights."""
    owners.execute("SET ROLE ana; SELECT dana_train('sums', 't1', 'm')")
    for role, error in (("bob", "does not exist|permission|belongs"), ("helper", "belongs to another role")):
        owners.execute(f"RESET ROLE; SET ROLE {role}")
        with pytest.raises(errors.Error, match=error):
            owners.execute("SELECT dana_refresh('ana.m')")
    owners.execute("RESET ROLE; SET ROLE ana")
    assert owners.execute("SELECT version FROM dana_refresh('m')").fetchone() == (2,)


def test_a_rule_that_was_replaced(table: Session) -> None:
    """By its owner, who may be another role: the model would mean something else."""
    table.execute("SELECT dana_create_udf('own', %s)", (SUMS,))
    table.execute("SELECT dana_train('own', 't', 'm', '{a}', 'y')")
    table.execute("SELECT dana_create_udf('own', %s)", (SUMS + "\n# as before, but for this line",))
    with pytest.raises(errors.ObjectNotInPrerequisiteState, match="it has been replaced, or dropped"):
        table.execute("SELECT dana_refresh('m')")
    table.execute("SELECT dana_create_udf('own', %s)", (SUMS,))
    assert table.execute("SELECT version FROM dana_refresh('m')").fetchone() == (2,)


CALLS = ("dana_refresh('m')", "dana_evaluate('m')", "dana_profile('m')", "dana_importance('m')")


@pytest.mark.parametrize("call", CALLS)
def test_a_table_of_the_name_that_is_another_role_s(owners: Session, server: EmbeddedServer, call: str) -> None:
    """A view that calls its owner's functions would run them with the rights of the model's owner."""
    owners.execute("CREATE TABLE t AS SELECT 1::real AS x, 0::real AS y; SELECT dana_train('sums', 't', 'm')")
    owners.execute(f"SELECT * FROM {call}")
    owners.execute("DROP TABLE t; SET ROLE bob; CREATE VIEW t AS SELECT 1::real AS x, 1 / 0::real AS y")
    owners.execute("RESET ROLE")
    with pytest.raises(errors.InsufficientPrivilege, match=r"test\.t belongs to bob, and did not when the model was"):
        owners.execute(f"SELECT * FROM {call}")
    # a temporary table's name is that of whoever has the session's place now
    with psycopg.connect(server.dsn, autocommit=True) as other:
        other.execute("CREATE TEMP VIEW tt AS SELECT 1::real AS x, 1 / 0::real AS y")
        [[place]] = other.execute("SELECT pg_my_temp_schema()::regnamespace::text").fetchall()
        named = Jsonb(f"{place}.tt")
        owners.execute(
            "UPDATE dana.model SET metadata = jsonb_set(metadata, '{source}', %s) WHERE name = 'm'", (named,)
        )
        with pytest.raises(errors.FeatureNotSupported, match="tt is a temporary table of another session"):
            owners.execute(f"SELECT * FROM {call}")
