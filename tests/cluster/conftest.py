"""Three embedded servers; the first also trains, and has a table with a partition on each."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from dana.client.connection import Connection
from dana.server.embedded import EmbeddedServer
from tests.servers import MAJORS, running
from tests.sql.conftest import SUMS


@pytest.fixture(scope="session")
def shards(server_root: Path, servers: dict[int, EmbeddedServer]) -> Iterator[list[str]]:
    """Connection strings of three servers."""
    major = MAJORS[-1]

    with ExitStack() as stack:
        dsns = [running(servers, server_root, major).dsn]
        for _ in range(2):
            root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="dana-test-")))
            root.chmod(0o755)
            dsns.append(running({}, root, major).dsn)
            stack.callback(EmbeddedServer.at(root, major).stop)
        yield dsns


@pytest.fixture
def db(shards: list[str]) -> Iterator[Connection]:
    """A connection to the server that trains, with rules; its models and the tables `rows` go after it."""
    with Connection(psycopg.connect(shards[0], autocommit=True)) as made:
        before = [name for (name,) in made.session.execute("SELECT DISTINCT name FROM dana.model").fetchall()]
        made.session.execute("SELECT dana_create_udf('sums', %s)", (SUMS,))
        made.create_rules("logistic", "quantile", "bpr", "softmax", "linear", "linear_svm", "mlp")
        yield made
    with psycopg.connect(shards[0], autocommit=True) as session:
        models = "SELECT DISTINCT name FROM dana.model WHERE name <> ALL (%s)"
        session.execute(f"SELECT dana_drop_model(name) FROM ({models}) AS m", (before,))
    everywhere(shards, "DROP TABLE IF EXISTS rows CASCADE", "DROP TABLE IF EXISTS whole CASCADE")


def everywhere(shards: list[str], *statements: str) -> None:
    """Execute statements on each shard; ``{shard}`` in them is its number, from 1."""
    for number, dsn in enumerate(shards, 1):
        with psycopg.connect(dsn, autocommit=True) as session:
            for statement in statements:
                session.execute(statement.replace("{shard}", str(number)))


def fetched(dsn: str, query: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(dsn) as session:
        return session.execute(query).fetchall()


TABLES = """
CREATE TABLE rows (id int PRIMARY KEY, x float4, n numeric(9, 3), city text, part int);
INSERT INTO rows SELECT i * 3 + {shard}, (i * 37 % 101)::float4 / 7, (i * 43 % 89) / 3.0,
    CASE WHEN i % 11 > 0 THEN 'city ' || (i * i % 5 + {shard}) END, {shard}
FROM generate_series(1, CASE {shard} WHEN 1 THEN 20000 WHEN 2 THEN 8000 ELSE 0 END) AS i;
DELETE FROM rows WHERE id % 4 = 0
"""

# the embedded PostgreSQL has no postgres_fdw; its catalogs are all that is read
PARENT = """
CREATE FOREIGN DATA WRAPPER postgres_fdw;
CREATE TABLE whole (id int, x float4, n numeric(9, 3), city text, part int) PARTITION BY LIST (part);
ALTER TABLE whole ATTACH PARTITION rows FOR VALUES IN (1)
"""


def add(session: psycopg.Connection, number: int, host: str, port: str = "5432") -> None:
    """Attach the partition that is shard ``number``'s table."""
    session.execute(
        f"CREATE SERVER server_{number} FOREIGN DATA WRAPPER postgres_fdw "
        f"OPTIONS (host '{host}', port '{port}', dbname 'postgres', fetch_size '10', use_remote_estimate 'true');"
        f"CREATE FOREIGN TABLE rows_{number} PARTITION OF whole FOR VALUES IN ({number}) SERVER server_{number} "
        "OPTIONS (schema_name 'public', table_name 'rows');"
        f"CREATE USER MAPPING FOR postgres SERVER server_{number} OPTIONS (user 'postgres', password 'it''s \\')"
    )


@pytest.fixture
def parent(db: Connection, shards: list[str]) -> Iterator[psycopg.Connection]:
    """A session with the table `whole`, partition 1 on its own server."""
    everywhere(shards, TABLES)
    db.session.execute(PARENT)
    yield db.session
    db.session.execute("DROP FOREIGN DATA WRAPPER postgres_fdw CASCADE; DROP TABLE whole")


def folder(dsn: str) -> str:
    return str(conninfo_to_dict(dsn)["host"])


@pytest.fixture
def whole(parent: psycopg.Connection, shards: list[str]) -> psycopg.Connection:
    """The table `whole` has partitions on three servers, added in another order."""
    for number in (3, 2):
        add(parent, number, folder(shards[number - 1]))
    return parent


def left(shards: list[str]) -> list[tuple[Any, ...]]:
    """Temporary tables of the server that trains."""
    return fetched(shards[0], "SELECT relname::text FROM pg_class WHERE relpersistence = 't' AND relkind = 'r'")
