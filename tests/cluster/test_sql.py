"""`dana_gather`: pages of partitions on foreign servers, from SQL. Its connections are the server's own."""

from __future__ import annotations

import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from dana.cli.entry import main
from dana.client.connection import Connection
from tests.cluster.conftest import everywhere
from tests.cluster.test_gather import fetched, trained
from tests.scale import scaled

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
    train = partial(db.train, "quantile", "whole", shards="map", model="in_python", **options)
    assert trained(db, train, "in_python") == there
    command = ["train", "quantile", "whole", "--shard", "map", "--label", "x", "--nulls", "mean"]
    assert main([*command, "--epochs", "3", "--test-size", "0.2", "--model", "in_shell", "--dsn", shards[0]]) == 0
    assert {name: values.tobytes() for name, values in db.parameters("in_shell").items()} == there[5]
    # it goes with the transaction; by name, with the session
    assert left(shards) == [("listed",)]
    assert whole.execute("SELECT dana_gather('whole', 'kept rows')::text").fetchall() == [('"kept rows"',)]
    assert whole.execute('SELECT count(*) FROM "kept rows"').fetchall() == [(21000,)]


def left(shards: list[str]) -> list[tuple[Any, ...]]:
    """Temporary tables of the server that trains."""
    return fetched(shards[0], "SELECT relname::text FROM pg_class WHERE relpersistence = 't' AND relkind = 'r'")


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
    with pytest.raises(psycopg.Error, match=r"shard 2 \(public.rows_2 on .*\) and shard 3 \(public.rows_3 on .*\) are one table"):
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


@contextmanager
def proxy(dsn: str, change: Callable[[bytes, int], bytes | None]) -> Iterator[tuple[str, str]]:
    """Host and port of a network to a server: ``change`` has what the server sends, and how much it has sent before.

    None ends the connection.
    """
    ends: list[socket.socket] = []

    def forward(source: socket.socket, target: socket.socket, change: Callable[[bytes, int], bytes | None]) -> None:
        before = 0
        with suppress(OSError):
            while data := source.recv(1 << 16):
                changed = change(data, before)
                before += len(data)
                if changed is None:
                    break
                target.sendall(changed)
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def accept() -> None:
        with suppress(OSError):
            while True:
                client = listening.accept()[0]
                server = socket.socket(socket.AF_UNIX)
                server.connect(f"{folder(dsn)}/.s.PGSQL.5432")
                ends.extend((client, server))
                for arguments in ((client, server, lambda data, _: data), (server, client, change)):
                    threading.Thread(target=forward, args=arguments, daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        try:
            yield "127.0.0.1", str(listening.getsockname()[1])
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            thread.join()
            for end in ends:
                # a thread that reads keeps a closed socket open
                with suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
                end.close()


def quiet(data: bytes, before: int) -> bytes:
    return data if before < 50_000 else b""


def slow(data: bytes, before: int) -> bytes:
    time.sleep(0.002)
    return data


def cut(data: bytes, before: int) -> bytes | None:
    return data if before < 50_000 else None


def long(data: bytes, before: int) -> bytes:
    """The first message of the copy claims to have 1 GB."""
    at = data.find(b"PGCOPY")
    return data if at < 4 else data[: at - 4] + b"\x3f\xff\xff\xff" + data[at:]


def turned(data: bytes, before: int) -> bytes:
    return data if before < 50_000 else bytes(data[:64]) + bytes(each ^ 0xFF for each in data[64:])


def busy(shards: list[str]) -> bool:
    """Whether a connection for pages is left on any of the servers."""
    return any(fetched(dsn, "SELECT FROM pg_stat_activity WHERE application_name = 'dana'") for dsn in shards)


def wait_for_the_end(shards: list[str]) -> None:
    while busy(shards):
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (quiet, r"no message within 0\.5 s"),
        (cut, "server closed the connection unexpectedly"),
        (long, r"no message within 0\.5 s"),
        (turned, "lost synchronization|has no pages|no message within|corrupt"),
    ],
)
def test_a_shard_that_fails_on_the_way_is_named_and_nothing_is_left(
    parent: psycopg.Connection, shards: list[str], change: Callable[[bytes, int], bytes | None], message: str
) -> None:
    with proxy(shards[1], change) as (host, port):
        add(parent, 2, host, port)
        with pytest.raises(psycopg.Error, match=message) as failed:
            parent.execute("SELECT dana_gather('whole', 'kept', 0.5)")
        assert failed.value.sqlstate in ("08006", "08P01", "XX001")
        assert "shard 2 (public.rows_2 on server_2)" in f"{failed.value} {failed.value.diag.context}"
    wait_for_the_end(shards)
    assert left(shards) == []


def test_kills_at_any_moment_end_in_the_same_rows_or_a_named_error(
    whole: psycopg.Connection, shards: list[str]
) -> None:
    """Of a shard's backend, of the session that gathers; a cancel; over a slow network, too."""
    rows = "SELECT md5(string_agg(r::text, ',' ORDER BY ctid)) FROM calm AS r"
    whole.execute("SELECT dana_gather('whole', 'calm')")
    undisturbed = whole.execute(rows).fetchall()
    whole.execute("DROP TABLE calm")
    generator = random.Random(38)
    ends = set()
    with proxy(shards[1], slow) as (host, port):
        for _ in range(scaled(20)):
            slowly = generator.random() < 0.3
            with psycopg.connect(shards[0], autocommit=True) as session:
                session.execute(
                    f"ALTER SERVER server_2 OPTIONS (SET host '{host if slowly else folder(shards[1])}', "
                    f"SET port '{port if slowly else 5432}')"
                )
                pid = session.info.backend_pid
                number = generator.choice((2, 3))
                victim, statement = generator.choice(
                    (
                        (0, f"SELECT pg_terminate_backend({pid})"),
                        (0, f"SELECT pg_cancel_backend({pid})"),
                        (
                            number - 1,
                            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'dana'",
                        ),
                    )
                )
                killer = threading.Timer(generator.random() * 0.1, fetched, (shards[victim], statement))
                killer.start()
                failed: psycopg.Error | None = None
                try:
                    session.execute("SELECT dana_gather('whole', 'calm')")
                    assert session.execute(rows).fetchall() == undisturbed
                except psycopg.Error as error:
                    failed = error
                finally:
                    killer.join()
            if failed is not None and victim > 0:
                assert f"shard {number} (public.rows_{number} on server_{number}): " in str(failed)
            ends.add(failed is None)
    assert ends == {True, False}
    wait_for_the_end(shards)
    while left(shards):
        time.sleep(0.01)
