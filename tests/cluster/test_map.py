"""The map of shards: rows of `dana.shard`, who may write and use them, what `dana_shards` says of them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from dana.cli.entry import main
from dana.client.connection import Connection
from dana.server.conninfo import SECRETS
from dana.server.places import CHECKOUT
from tests.cluster.conftest import everywhere, fetched, folder
from tests.cluster.test_gather import trained


@pytest.fixture
def mapped(parent: psycopg.Connection, shards: list[str]) -> Iterator[psycopg.Connection]:
    """The table `whole` without partitions: 2 is here, 5 on a foreign server, 9 has a connection string."""
    parent.execute(
        "ALTER TABLE whole DETACH PARTITION rows; DROP TABLE whole; CREATE TABLE whole (LIKE rows);"
        "CREATE SERVER server_2 FOREIGN DATA WRAPPER postgres_fdw "
        f"OPTIONS (host '{folder(shards[1])}', port '5432', dbname 'postgres');"
        "CREATE USER MAPPING FOR postgres SERVER server_2 OPTIONS (user 'postgres');"
        "INSERT INTO dana.shard (source, shard, server, conninfo, relation) VALUES "
        f"('whole', 9, NULL, '{shards[2]}', 'public.rows'), ('whole', 2, NULL, NULL, 'rows'), "
        "('whole', 5, 'server_2', NULL, 'rows')"
    )
    yield parent
    parent.execute("DELETE FROM dana.shard")


@pytest.mark.filterwarnings("ignore")
def test_a_map_trains_the_bits_of_the_list_and_models_say_where_their_rows_are_from(
    db: Connection, mapped: psycopg.Connection, shards: list[str]
) -> None:
    options: dict[str, Any] = {"label": "x", "nulls": "mean", "test_size": 0.2, "epochs": 2}
    listed = trained(db, partial(db.train, "quantile", "rows", shards=shards, model="of_list", **options), "of_list")
    train = partial(db.train, "quantile", "whole", sync="gather", model="of_map", **options)
    assert trained(db, train, "of_map") == listed
    page = (CHECKOUT / "docs" / "cluster.md").read_text(encoding="utf-8")
    [query] = re.findall(r"```sql\n(SELECT s\.\* .*?)```", page, re.DOTALL)
    server = " ".join(f"{key}={conninfo_to_dict(shards[2])[key]}" for key in ("host", "dbname"))
    expected = {
        "of_list": [
            (1, f"host={folder(shards[0])} dbname=postgres", "public.rows", 15000),
            (2, f"host={folder(shards[1])} dbname=postgres", "public.rows", 6000),
            (3, server, "public.rows", 0),
        ],
        "of_map": [
            (2, "this server", "public.rows", 15000),
            (5, "server_2", "public.rows", 6000),
            (9, shards[2], "public.rows", 0),
        ],
    }
    for model, rows in expected.items():
        found = mapped.execute(query.replace("buyers", model)).fetchall()
        assert [row[:4] for row in found] == rows
        near = "SELECT bool_and(now() - t BETWEEN '0' AND '1 minute') FROM unnest(%s::timestamptz[]) AS t"
        assert mapped.execute(near, ([row[4] for row in found],)).fetchall() == [(True,)]
        [[source]] = mapped.execute(
            "SELECT metadata -> 'gathered' ->> 'source' FROM dana.model WHERE name = %s", (model,)
        ).fetchall()
        assert source == ("public.rows" if model == "of_list" else "public.whole")
    # of a table that was not gathered there is nothing to say
    mapped.execute("SELECT dana_train('quantile', 'rows', 'local', label => 'x', epochs => 1)")
    assert mapped.execute("SELECT metadata ? 'gathered' FROM dana.model WHERE name = 'local'").fetchall() == [(False,)]


def test_each_shard_is_shown_with_what_keeps_it_from_being_gathered(
    db: Connection, mapped: psycopg.Connection, shards: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    for dsn in shards:
        fetched(dsn, "SELECT count(*) FROM pg_class")
    everywhere(shards, "ANALYZE rows", "DROP TABLE IF EXISTS other", "CREATE TABLE other (id int)")
    alike = [(one.shard, one.server, one.relation, one.rows, one.reachable, one.error) for one in db.shards("whole")]
    assert alike == [
        (2, "this server", "public.rows", 15000, True, None),
        (5, "server_2", "public.rows", 6000, True, None),
        (9, shards[2], "public.rows", 0, True, None),
    ]
    [[version, pages]] = mapped.execute(
        "SELECT split_part(current_setting('server_version'), ' ', 1), pg_relation_size('rows') / 8192"
    ).fetchall()
    assert next((one.version, one.pages) for one in db.shards("whole")) == (version, pages)
    assert main(["shards", "whole", "--dsn", shards[0]]) == 0
    assert "15,000" in capsys.readouterr().out
    mapped.execute(
        "INSERT INTO dana.shard (source, shard, server, conninfo, relation) VALUES "
        "('whole', 10, NULL, 'host=/nowhere', NULL), ('whole', 11, 'server_2', NULL, 'nothing'), "
        "('whole', 12, 'server_2', NULL, 'other'), ('whole', 13, NULL, NULL, 'public.rows'), "
        "('whole', 14, 'gone', NULL, 'rows'), ('whole', 15, 'server_2', NULL, 'a.b.c')"
    )
    errors = [(one.shard, one.reachable, one.error or "") for one in db.shards("whole") if one.error is not None]
    for (shard, reachable, error), message in zip(
        errors,
        (
            (10, False, 'connection to server on socket "/nowhere/'),
            (11, True, 'ERROR:  relation "public.nothing" does not exist'),
            (12, True, "has other columns than public.whole, or in another order It has: id integer. Expected: id "),
            (13, True, "shard 2 (public.rows on this server) and shard 13 (public.rows on this server) are one table"),
            (14, False, "foreign server gone, of shard 14 of public.whole in dana.shard, does not exist"),
            (15, False, "dana.shard.relation must be a table or schema.table, not a.b.c"),
        ),
        strict=True,
    ):
        assert (shard, reachable) == message[:2]
        assert error.startswith(message[2])
    assert main(["shards", "whole", "--dsn", shards[0]]) == 3
    assert "nowhere" in capsys.readouterr().out
    with pytest.raises(psycopg.Error, match=r"shard 10 \(public.whole on host=/nowhere\): ") as failed:
        mapped.execute("SELECT dana_gather('whole')")
    assert failed.value.sqlstate == "08001"


def test_a_map_is_its_table_s(mapped: psycopg.Connection, shards: list[str]) -> None:
    mapped.execute("DROP ROLE IF EXISTS maker; DROP ROLE IF EXISTS reader; CREATE ROLE maker; CREATE ROLE reader")
    mapped.execute(
        "GRANT EXECUTE ON FUNCTION dana_train TO maker, reader; GRANT CREATE ON SCHEMA public TO maker;"
        "SET ROLE maker; CREATE TABLE own (id int); RESET ROLE"
    )
    insert = "INSERT INTO dana.shard (source, shard, server, conninfo, relation) VALUES "

    def fails(role: str, statement: str, sqlstate: str, message: str) -> None:
        with mapped.transaction(), pytest.raises(psycopg.Error, match=message) as failed, mapped.transaction():
            mapped.execute(f"SET LOCAL ROLE {role}; {statement}")  # type: ignore[arg-type]
        assert failed.value.sqlstate == sqlstate

    try:
        for statement in (insert + "('own', 1, NULL, NULL, NULL)", "LOCK TABLE dana.shard IN ROW EXCLUSIVE MODE"):
            fails("maker", statement, "42501", "permission denied for table shard")
        mapped.execute("GRANT INSERT, UPDATE, DELETE ON dana.shard TO maker")
        # only the table's owner writes; a connection string would log in as the server's own account
        denied = "new row violates row-level security policy"
        fails("maker", insert + "('whole', 20, NULL, NULL, 'x')", "42501", denied)
        fails("maker", insert + "('own', 1, NULL, 'host=a', NULL)", "42501", denied)
        for secret in SECRETS:
            fails("postgres", insert + f"('own', 1, NULL, 'host=a {secret} =b', NULL)", "23514", "conninfo_check")
        fails("postgres", insert + "('own', 1, NULL, 'postgresql://a:b@c/d', NULL)", "23514", "conninfo_check")
        fails("postgres", insert + "('own', 1, 'server_2', 'host=a', NULL)", "23514", "shard_check")
        fails("postgres", insert + "('own', 0, 'server_2', NULL, NULL)", "23514", "shard_shard_check")
        mapped.execute(f"SET ROLE maker; {insert} ('own', 1, 'server_2', NULL, 'a.b.c')")
        assert mapped.execute("SELECT count(*) FROM dana.shard").fetchall() == [(1,)]
        assert mapped.execute("DELETE FROM dana.shard WHERE source <> 'own'::regclass").rowcount == 0
        gather = "SELECT dana_gather('own')"
        fails("maker", gather, "42501", "the owner of public.own has no right to foreign")
        mapped.execute("RESET ROLE; GRANT USAGE ON FOREIGN SERVER server_2 TO maker")
        fails("maker", gather, "42602", r"must be a table or schema\.table, not a\.b\.c")
        mapped.execute("SET ROLE maker; UPDATE dana.shard SET relation = 'rows; DROP TABLE own'; RESET ROLE")
        fails("maker", gather, "42602", "invalid name syntax")
        mapped.execute("SET ROLE maker; UPDATE dana.shard SET server = 'gone', relation = NULL; RESET ROLE")
        fails("maker", gather, "42704", "foreign server gone, of shard 1 of public.own in dana.shard, does not exist")
        # who may read the table reads its map, and connects with a mapping of their own
        fails("reader", "SELECT * FROM dana_shards('whole')", "42501", "permission denied for table whole")
        mapped.execute("GRANT SELECT ON whole TO reader; SET ROLE reader")
        assert mapped.execute("SELECT shard FROM dana.shard ORDER BY 1").fetchall() == [(2,), (5,), (9,)]
        assert mapped.execute("SELECT error FROM dana_shards('whole')").fetchall() == [
            ("permission denied for table rows",),
            ('user mapping not found for user "reader", server "server_2"',),
            (
                "only superusers may use a connection string of dana.shard It has no password, so that the server's "
                "own account would log in.",
            ),
        ]
        # a table that is gone has no map that anyone finds, nor is it dumped
        mapped.execute("RESET ROLE; DROP TABLE own; SET ROLE maker")
        assert mapped.execute("SELECT count(*) FROM dana.shard").fetchall() == [(0,)]
        mapped.execute("RESET ROLE")
        [[condition]] = mapped.execute(
            "SELECT extcondition[array_position(extconfig, 'dana.shard'::regclass)] FROM pg_extension "
            "WHERE extname = 'dana'"
        ).fetchall()
        assert mapped.execute(f"SELECT count(*) FROM dana.shard {condition}").fetchall() == [(3,)]
    finally:
        mapped.execute("RESET ROLE; DROP OWNED BY maker, reader; DROP ROLE maker; DROP ROLE reader")


def test_the_catalog_of_citus_becomes_a_map_as_documented(mapped: psycopg.Connection, shards: list[str]) -> None:
    """Its view is imitated, with a replica of one shard, which is not another shard."""
    page = (CHECKOUT / "docs" / "cluster.md").read_text(encoding="utf-8")
    [statements] = re.findall(r"```sql\n(DELETE FROM dana\.shard .*?)```", page, re.DOTALL)
    mapped.execute(
        "CREATE TEMPORARY TABLE citus_shards (table_name regclass, shardid bigint, shard_name text, nodename text, "
        "nodeport int)"
    )
    hosts = [folder(dsn) for dsn in shards]
    for shardid, host in ((102008, hosts[1]), (102009, hosts[2]), (102008, f"{hosts[1]}/replica")):
        mapped.execute("INSERT INTO citus_shards VALUES ('whole', %s, 'public.rows', %s, 5432)", (shardid, host))
    mapped.execute(statements.replace("ratings", "whole"))
    found = mapped.execute("SELECT shard, server, relation, error FROM dana_shards('whole')").fetchall()
    assert found == [
        (number, make_conninfo(host=hosts[number], port=5432, dbname="postgres", user="postgres"), "public.rows", None)
        for number in (1, 2)
    ]
    assert mapped.execute("SELECT dana_gather('whole', 'all_rows')::text").fetchall() == [("all_rows",)]
    assert mapped.execute("SELECT count(*) FROM all_rows").fetchall() == [(6000,)]
