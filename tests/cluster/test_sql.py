"""`dana_gather`: pages of partitions on foreign servers, from SQL. Its connections are the server's own."""

from __future__ import annotations

from functools import partial
from typing import Any

import psycopg
import pytest

from dana.cli.entry import main
from dana.client.connection import Connection
from tests.cluster.conftest import everywhere, folder, left
from tests.cluster.test_gather import trained


@pytest.mark.filterwarnings("ignore")
def test_partitions_train_the_bits_of_the_list_of_their_servers_in_sql_and_python(
    db: Connection, whole: psycopg.Connection, shards: list[str]
) -> None:
    listed = db.gather("rows", shards, into="listed")
    with whole.transaction():
        [[made]] = whole.execute("SELECT dana_gather('whole')::text").fetchall()
        rows = [whole.execute(f"SELECT ctid, * FROM {name}").fetchall() for name in (listed, f"pg_temp.{made}")]
        assert len(rows[0]) == 21000
        assert rows[0] == rows[1]
        [[key]] = whole.execute(
            "SELECT conkey FROM pg_constraint WHERE conrelid = 'pg_temp.whole'::regclass AND contype = 'p'"
        ).fetchall()
        assert key == [1]
    options: dict[str, Any] = {"label": "x", "nulls": "mean", "test_size": 0.2, "epochs": 3}
    there = trained(db, lambda: db.train("quantile", listed, model="listed", **options), "listed")
    call = (
        "SELECT dana_train('quantile', dana_gather('whole'), 'in_sql', label => 'x', nulls => 'mean', "
        "test_size => 0.2, epochs => 3)"
    )
    whole.execute(call)
    assert {name: values.tobytes() for name, values in db.parameters("in_sql").items()} == there[5]
    train = partial(db.train, "quantile", "whole", sync="gather", model="in_python", **options)
    assert trained(db, train, "in_python") == there
    command = ["train", "quantile", "whole", "--sync", "gather", "--label", "x", "--nulls", "mean"]
    assert main([*command, "--epochs", "3", "--test-size", "0.2", "--model", "in_shell", "--dsn", shards[0]]) == 0
    assert {name: values.tobytes() for name, values in db.parameters("in_shell").items()} == there[5]
    # it goes with the transaction; by name, with the session
    assert left(shards) == [("listed",)]
    assert whole.execute("SELECT dana_gather('whole', 'kept rows')::text").fetchall() == [('"kept rows"',)]
    assert whole.execute('SELECT count(*) FROM "kept rows"').fetchall() == [(21000,)]


CHANGES = {
    "type": (2, "ALTER TABLE rows ALTER x TYPE float8", "42804", "shard 2 .* has other columns than public.whole"),
    "more": (2, "ALTER TABLE rows ADD secret text", "42804", "shard 2 .* has other columns"),
    "key": (
        3,
        "ALTER TABLE rows DROP CONSTRAINT rows_pkey",
        "42804",
        r"shard 3 .* has the primary key \(\), and shard 1",
    ),
    "missing": (3, "DROP TABLE rows", "42P01", 'shard 3 .*: ERROR:  relation "public.rows" does not exist'),
    "dropped": (2, "ALTER TABLE rows ADD b int; ALTER TABLE rows DROP b", "0A000", "no pages to gather: columns of it"),
    "view": (
        2,
        "ALTER TABLE rows RENAME TO t; CREATE VIEW rows AS TABLE t",
        "0A000",
        "it is not a table of heap pages",
    ),
    "child": (2, "CREATE TABLE t () INHERITS (rows)", "0A000", "it has child tables"),
    "long": (
        2,
        "ALTER TABLE rows ALTER city SET STORAGE EXTERNAL; UPDATE rows SET city = repeat('x', 9000) WHERE id < 9",
        "0A000",
        "values of it are stored out of line",
    ),
}


@pytest.mark.parametrize(("number", "change", "sqlstate", "message"), CHANGES.values(), ids=CHANGES)
def test_a_shard_that_does_not_fit_is_named(
    whole: psycopg.Connection, shards: list[str], number: int, change: str, sqlstate: str, message: str
) -> None:
    everywhere([shards[number - 1]], change)
    try:
        with pytest.raises(psycopg.Error, match=message) as failed:
            whole.execute("SELECT dana_gather('whole')")
        assert failed.value.sqlstate == sqlstate
        assert f"public.rows_{number} on server_{number}" in str(failed.value)
    finally:
        everywhere(
            [shards[number - 1]], "DROP VIEW IF EXISTS rows" if "VIEW" in change else "", "DROP TABLE IF EXISTS t"
        )


def test_a_call_that_cannot_be_is_an_error(whole: psycopg.Connection, shards: list[str]) -> None:
    for call, sqlstate, message in (
        ("dana_gather('rows')", "42809", "has no shards: no rows in dana.shard, and no partitions"),
        ("dana_gather(NULL)", "22004", 'argument "source" must not be null'),
        ("dana_gather(0)", "42P01", "does not exist"),
        ("dana_gather('whole', '')", "22023", 'argument "into" must be a name'),
        ("dana_gather('whole', repeat('x', 64))", "22023", 'argument "into" must be a name'),
        ("dana_gather('whole', timeout => 'NaN')", "22023", 'argument "timeout" must be from'),
    ):
        with pytest.raises(psycopg.Error, match=message) as failed:
            whole.execute(f"SELECT {call}")
        assert failed.value.sqlstate == sqlstate
    whole.execute("SELECT dana_gather('whole', 'x')")
    with pytest.raises(psycopg.errors.DuplicateTable):
        whole.execute("SELECT dana_gather('whole', 'x')")
    with pytest.raises(psycopg.errors.ReadOnlySqlTransaction), whole.transaction():
        whole.execute("SET TRANSACTION READ ONLY; SELECT dana_gather('whole', 'y')")
    # one table under two numbers would count its rows twice
    whole.execute(f"ALTER SERVER server_3 OPTIONS (SET host '{folder(shards[1])}')")
    with pytest.raises(
        psycopg.Error, match=r"shard 2 \(public.rows_2 on .*\) and shard 3 \(public.rows_3 on .*\) are one table"
    ):
        whole.execute("SELECT dana_gather('whole')")
    whole.execute("ALTER SERVER server_3 OPTIONS (SET host '/nowhere')")
    with pytest.raises(psycopg.Error, match=r"shard 3 \(public.rows_3 on server_3\): .*/nowhere") as failed:
        whole.execute("SELECT dana_gather('whole')")
    assert failed.value.sqlstate == "08001"
    assert "it's" not in str(failed.value)
    whole.execute("ALTER FOREIGN DATA WRAPPER postgres_fdw RENAME TO other_fdw")
    with pytest.raises(psycopg.errors.FeatureNotSupported, match="the foreign-data wrapper is other_fdw"):
        whole.execute("SELECT dana_gather('whole')")
    whole.execute("ALTER FOREIGN DATA WRAPPER other_fdw RENAME TO postgres_fdw")


def test_keys_that_shards_share_are_a_warning(whole: psycopg.Connection, shards: list[str]) -> None:
    everywhere(shards[1:2], "UPDATE rows SET id = id - 1")
    messages: list[str] = []
    whole.add_notice_handler(lambda note: messages.append(f"{note.severity} {note.message_primary}"))
    whole.execute("SELECT dana_gather('whole')")
    assert messages[0].startswith("NOTICE the snapshots of 3 shards were taken within ")
    assert messages[1].startswith("WARNING the primary key (id) is not unique over the shards")


def test_a_role_reaches_with_its_mapping_what_it_may_read(whole: psycopg.Connection, shards: list[str]) -> None:
    """The embedded servers ask for no password, so that nothing but the server's own account would let it in."""
    whole.execute("DROP ROLE IF EXISTS reader; CREATE ROLE reader; GRANT SELECT ON rows TO reader")

    def fails(sqlstate: str, message: str) -> None:
        with pytest.raises(psycopg.Error, match=message) as failed:
            whole.execute("SELECT dana_gather('whole')")
        assert failed.value.sqlstate == sqlstate

    try:
        whole.execute("SET ROLE reader")
        whole.execute("RESET ROLE; GRANT SELECT (id) ON whole TO reader; SET ROLE reader")
        fails("42501", "permission denied for function dana_train")
        whole.execute("RESET ROLE; GRANT EXECUTE ON FUNCTION dana_train TO reader; SET ROLE reader")
        fails("42501", "permission denied for table whole")
        whole.execute("RESET ROLE; GRANT SELECT ON whole TO reader; SET ROLE reader")
        fails("42704", 'user mapping not found for user "reader"')
        whole.execute(
            "RESET ROLE; CREATE USER MAPPING FOR reader SERVER server_2 OPTIONS (user 'postgres'); SET ROLE reader"
        )
        fails("2F003", r"shard 2 \(public.rows_2 on server_2\): a password is required")
        whole.execute(
            "RESET ROLE; ALTER USER MAPPING FOR reader SERVER server_2 OPTIONS (password 'x'); SET ROLE reader"
        )
        fails("2F003", r"password is required(.|\n)*shard 2 \(public.rows_2 on server_2\)")
        whole.execute(
            "RESET ROLE; ALTER USER MAPPING FOR reader SERVER server_2 OPTIONS (password_required 'false');"
            "CREATE USER MAPPING FOR PUBLIC SERVER server_3 OPTIONS (user 'postgres', password_required 'false');"
            "SET ROLE reader"
        )
        assert whole.execute("SELECT dana_gather('whole')::text").fetchall() == [("whole",)]
        whole.execute("RESET ROLE; ALTER TABLE whole ENABLE ROW LEVEL SECURITY; SET ROLE reader")
        fails("0A000", "it has row-level security")
    finally:
        whole.execute("RESET ROLE; DROP OWNED BY reader; DROP USER MAPPING IF EXISTS FOR reader SERVER server_2")
        whole.execute("DROP ROLE reader")
