"""Partitions on foreign servers are shards. Only the catalogs are read: the embedded PostgreSQL has no postgres_fdw."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from dana.client.connection import Connection
from dana.errors import UsageError
from tests.cluster.conftest import everywhere

PARENT = """
CREATE FOREIGN DATA WRAPPER postgres_fdw;
CREATE FOREIGN DATA WRAPPER other_fdw;
CREATE TABLE whole (id int, x float4, part int) PARTITION BY LIST (part);
CREATE TABLE part_1 PARTITION OF whole FOR VALUES IN (1);
INSERT INTO part_1 SELECT * FROM rows
"""


def server(
    number: int, dsn: str, wrapper: str = "postgres_fdw", *, host: bool = True, mapping: bool = True
) -> sql.Composed:
    """Statements for the partition on shard ``number``."""
    found = conninfo_to_dict(dsn)
    name = sql.Identifier(f"server_{number}")
    options = sql.SQL("host {}, ").format(sql.Literal(found["host"])) if host else sql.SQL("")
    statements = sql.SQL(
        "CREATE SERVER {name} FOREIGN DATA WRAPPER {wrapper} OPTIONS ({options}dbname 'postgres', fetch_size '10');"
        "CREATE FOREIGN TABLE {part} PARTITION OF whole FOR VALUES IN ({number}) SERVER {name} "
        "OPTIONS (table_name 'rows');"
    ).format(
        name=name,
        wrapper=sql.Identifier(wrapper),
        options=options,
        part=sql.Identifier(f"part_{number}"),
        number=sql.Literal(number),
    )
    if mapping:
        statements += sql.SQL("CREATE USER MAPPING FOR postgres SERVER {} OPTIONS (user 'postgres')").format(name)
    return statements


@pytest.fixture
def parent(db: Connection, shards: list[str]) -> Iterator[Connection]:
    everywhere(
        shards,
        "CREATE TABLE rows AS SELECT i * 3 + {shard} AS id, (i / 7.0)::float4 AS x, {shard} AS part "
        "FROM generate_series(1, 30000) AS i",
    )
    db.session.execute(PARENT)
    yield db
    db.session.execute("DROP FOREIGN DATA WRAPPER postgres_fdw, other_fdw CASCADE")


def test_partitions_are_shards_in_the_order_of_their_names(parent: Connection, shards: list[str]) -> None:
    for number in (3, 2):
        parent.session.execute(server(number, shards[number - 1]))
    table = parent.gather("whole", "partitions", into="by_partitions")
    listed = parent.gather("rows", shards, into="by_list")
    rows = [parent.session.execute(f"SELECT ctid, * FROM {name}").fetchall() for name in (table, listed)]
    assert len(rows[0]) == 90000
    assert rows[0] == rows[1]
    assert {part for *_, part in rows[0][:36000]} == {1, 2, 3}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"wrapper": "other_fdw"}, "partition part_2 is on server server_2 of other_fdw; expected postgres_fdw"),
        ({"mapping": False}, "partition part_2: you have no user mapping for server server_2"),
        ({"host": False}, "the options of server server_2 and its user mapping that you may see have no host"),
    ],
)
def test_a_partition_that_cannot_be_reached_is_named(
    parent: Connection, shards: list[str], change: dict[str, object], message: str
) -> None:
    parent.session.execute(server(2, shards[1], **change))  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=message):
        parent.gather("whole", "partitions")


def test_renamed_columns_and_tables_without_partitions_are_errors(parent: Connection, shards: list[str]) -> None:
    with pytest.raises(UsageError, match="rows has no partitions"):
        parent.gather("rows", "partitions")
    with pytest.raises(psycopg.errors.UndefinedTable, match="nowhere"):
        parent.gather("nowhere", "partitions")
    parent.session.execute("DROP TABLE part_1")
    parent.session.execute(server(2, shards[1]))
    everywhere(shards[1:2], "ALTER TABLE rows RENAME x TO y")
    with pytest.raises(UsageError, match=r"shard 1 \(.*\) has the columns id, part, y, and whole has id, part, x"):
        parent.gather("whole", "partitions")
