"""The map with postgres_fdw itself: it comes with the PostgreSQL that check-headers fetches, not the embedded one."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from dana.client.connection import Connection
from dana.client.options import TrainOptions
from tests.cluster.conftest import TABLES, everywhere, folder
from tests.postgres.cluster import whole_server

MAJOR = 17


@pytest.fixture(scope="module")
def whole(server_root: Path, shards: list[str]) -> Iterator[Connection]:
    """A session with the table `whole`, its partitions on three servers of a later version."""
    everywhere(shards, TABLES)
    with whole_server(server_root, MAJOR) as (_, dsn), Connection(psycopg.connect(dsn, autocommit=True)) as db:
        db.session.execute(
            "CREATE EXTENSION dana; CREATE EXTENSION postgres_fdw;"
            "CREATE TABLE whole (id int, x float4, n numeric(9, 3), city text, part int) PARTITION BY LIST (part)"
        )
        for number, shard in enumerate(shards, 1):
            db.session.execute(
                f"CREATE SERVER server_{number} FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host '{folder(shard)}', "
                "port '5432', dbname 'postgres', fetch_size '1000');"
                f"CREATE FOREIGN TABLE rows_{number} PARTITION OF whole FOR VALUES IN ({number}) "
                f"SERVER server_{number} OPTIONS (schema_name 'public', table_name 'rows');"
                f"CREATE USER MAPPING FOR postgres SERVER server_{number} OPTIONS (user 'postgres')"
            )
        yield db
    everywhere(shards, "DROP TABLE rows")


def test_pages_are_the_rows_that_postgres_fdw_reads(whole: Connection, shards: list[str]) -> None:
    session = whole.session
    assert [(one.shard, one.server, one.error) for one in whole.shards("whole")] == [
        (number, f"server_{number}", None) for number in (1, 2, 3)
    ]
    with session.transaction():  # postgres_fdw keeps a transaction of its own open on each server
        by_rows = session.execute("SELECT * FROM whole ORDER BY id").fetchall()
        session.execute("SELECT dana_gather('whole', 'pages')")
    assert session.execute("SELECT * FROM pages ORDER BY id").fetchall() == by_rows
    assert len(by_rows) == 21000
    whole.create_rules("logistic")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        slow = whole.train("logistic", "whole", label="part", features=["x", "n"], filter="part < 3", epochs=2)
        fast = whole.train(
            "logistic", "whole", sync="gather", label="part", features=["x", "n"], filter="part < 3", epochs=2
        )
        options: TrainOptions = {"label": "part", "features": ["x", "n"], "filter": "part < 3", "sync": "batch"}
        here = whole.train("logistic", "whole", model="here", **options)
        whole.train("logistic", "rows", shards=shards, model="listed", **options)
    assert fast.tuples == slow.tuples == here.tuples == 21000
    listed, mapped = (
        {name: values.tobytes() for name, values in whole.parameters(model).items()} for model in ("listed", "here")
    )
    assert listed == mapped


def test_rights_are_those_of_postgres_fdw(whole: Connection) -> None:
    """Its validator has accepted the options; a role without a password in its mapping fails in either road."""
    session = whole.session
    whole.create_rules("logistic")
    session.execute("CREATE ROLE reader; SELECT dana_grant_rule('logistic', 'reader')")
    session.execute("GRANT SELECT ON whole TO reader; GRANT EXECUTE ON FUNCTION dana_train TO reader")
    session.execute(
        "CREATE USER MAPPING FOR reader SERVER server_1 OPTIONS (user 'postgres');"
        "CREATE USER MAPPING FOR reader SERVER server_2 OPTIONS (user 'postgres', password_required 'false');"
        "CREATE USER MAPPING FOR reader SERVER server_3 OPTIONS (user 'postgres', password_required 'false');"
        "SET ROLE reader"
    )
    for call in ("SELECT count(*) FROM whole", "SELECT dana_gather('whole')"):
        with pytest.raises(psycopg.Error) as failed:
            session.execute(call)
        assert failed.value.sqlstate == "2F003"
    session.execute(
        "RESET ROLE; ALTER USER MAPPING FOR reader SERVER server_1 OPTIONS (password_required 'false'); SET ROLE reader"
    )
    assert session.execute("SELECT count(*) FROM whole").fetchall() == [(21000,)]
    assert session.execute("SELECT dana_gather('whole')::text").fetchall() == [("whole",)]
    call = "SELECT tuples FROM dana_train('logistic', 'whole', label => 'part', features => '{{x}}', sync => 'batch'{})"
    assert session.execute(call.format("")).fetchall() == [(21000,)]  # type: ignore[arg-type]
    # no text of the role's is run with the rights of the mapping
    for text in (
        "pg_read_file(''x'') IS NULL",
        "EXISTS (SELECT FROM pg_authid)",
        "x > random()",
        "pg_sleep(0) IS NULL",
    ):
        with pytest.raises(psycopg.errors.FeatureNotSupported, match="filter"):
            session.execute(call.format(f", filter => '{text}'"))  # type: ignore[arg-type]
