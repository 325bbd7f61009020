"""Three embedded servers; the first also trains."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest

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
    """A connection to the server that trains, with the rule `sums`; the tables `rows` of all servers go at the end."""
    with Connection(psycopg.connect(shards[0], autocommit=True)) as made:
        made.session.execute("SELECT dana_create_udf('sums', %s)", (SUMS,))
        made.create_rules("logistic", "quantile", "bpr", "softmax")
        yield made
    everywhere(shards, "DROP TABLE IF EXISTS rows CASCADE", "DROP TABLE IF EXISTS whole CASCADE")


def everywhere(shards: list[str], *statements: str) -> None:
    """Execute statements on each shard; ``{shard}`` in them is its number, from 1."""
    for number, dsn in enumerate(shards, 1):
        with psycopg.connect(dsn, autocommit=True) as session:
            for statement in statements:
                session.execute(statement.replace("{shard}", str(number)))
