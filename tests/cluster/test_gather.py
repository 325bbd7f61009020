"""A table on three servers trains the bits of one server with the same pages in the same order."""

from __future__ import annotations

import random
import threading
import time
import warnings
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from dana.cli.entry import main
from dana.client.connection import Connection
from dana.cluster.gather import create_like
from dana.cluster.shards import Column, Look, ShardError, opened
from dana.errors import UsageError
from tests.cluster.conftest import everywhere, fetched
from tests.cluster.test_bad_moments import Trickle, proxy
from tests.scale import scaled

# shards of 9,000, 3,000 and 0 rows; sorted by the label; with holes
ROWS = """
CREATE TABLE rows (id int PRIMARY KEY, x float4, z float8, n numeric, city text, day date, item int, y text);
INSERT INTO rows SELECT i * 3 + {shard}, (i * 37 % 101)::float4 / 7, i * 41 % 97, (i * 43 % 89) / 3.0,
    CASE WHEN i % 11 > 0 THEN 'city ' || (i * i % 5 + {shard}) END, date '2024-01-01' + i % 300, i % 10,
    CASE WHEN {shard} = 1 THEN 'no' ELSE 'yes' END
FROM generate_series(1, CASE {shard} WHEN 1 THEN 12000 WHEN 2 THEN 4000 ELSE 0 END) AS i;
DELETE FROM rows WHERE id % 4 = 0
"""


def whole(shards: list[str]) -> None:
    """The table `whole` on the first server: the rows of all in turns of 64 pages, as this test orders them."""
    found: list[tuple[Any, ...]] = []
    for number, dsn in enumerate(shards):
        seen: dict[int, int] = {}
        for row in fetched(dsn, "SELECT (ctid::text::point)[0]::int, rows.* FROM rows ORDER BY ctid"):
            page = seen.setdefault(row[0], len(seen))  # pages without rows do not count
            found.append((page // 64, number, page, len(found), row[1:]))
    with psycopg.connect(shards[0], autocommit=True) as session:
        session.execute("DROP TABLE IF EXISTS whole; CREATE TABLE whole (LIKE rows INCLUDING INDEXES)")
        with session.cursor().copy("COPY whole FROM STDIN") as copy:
            for *_, row in sorted(found):
                copy.write_row(row)


def trained(db: Connection, train: Callable[[], Any], model: str) -> tuple[Any, ...]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = train()
    parameters = {name: values.tobytes() for name, values in db.parameters(model).items()}
    return result.tuples, result.skipped, result.epochs, result.loss, result.validation_loss, parameters


@pytest.mark.parametrize(
    ("rule", "options"),
    [
        ("logistic", {"label": "y", "nulls": "mean", "test_size": 0.2}),
        ("quantile", {"label": "x", "nulls": "median", "epochs": 3, "validation_size": 0.2}),
        ("sums", {"label": "z", "features": ["x", "n"], "shuffle": False}),
        ("bpr", {"features": ["item", "id"], "filter": "id < 900", "epochs": 2}),
        ("logistic", {"label": "y", "features": ["x", "z"], "class_weight": "balanced", "weight": "item"}),
    ],
    ids=["encoded", "medians", "order", "no-merge", "weights"],
)
def test_three_servers_train_the_bits_of_one(
    db: Connection, shards: list[str], rule: str, options: dict[str, Any]
) -> None:
    everywhere(shards, ROWS)
    whole(shards)
    there = trained(db, lambda: db.train(rule, "whole", model="of_one", **options), "of_one")
    here = trained(db, lambda: db.train(rule, "rows", shards=shards, model="of_three", **options), "of_three")
    assert here == there
    # another order of the shards is another order of the rows
    if rule == "quantile":
        turned = trained(db, lambda: db.train(rule, "rows", shards=shards[::-1], model="turned", **options), "turned")
        assert turned[5] != here[5]
    assert not fetched(shards[0], "SELECT FROM pg_class WHERE relnamespace::regnamespace::text LIKE 'pg_temp%'")


OTHERS = {
    "out of line": "CREATE TABLE rows AS SELECT i * 3 + {shard} AS a, array_agg(random()) AS b "
    "FROM generate_series(1, 50) AS i, generate_series(1, 900) GROUP BY i",
    "enum": "DROP TYPE IF EXISTS hue CASCADE; CREATE TYPE hue AS ENUM ('red', 'blue'); "
    "CREATE TABLE rows AS SELECT i * 3 + {shard} AS a, (enum_range(NULL::hue))[i % 2 + 1] AS b "
    "FROM generate_series(1, 9000) AS i",
    "dropped": "CREATE TABLE rows AS SELECT i AS gone, i * 3 + {shard} AS a, i::text AS b "
    "FROM generate_series(1, 9000) AS i; ALTER TABLE rows DROP COLUMN gone",
    "added": "CREATE TABLE rows AS SELECT i * 3 + {shard} AS a FROM generate_series(1, 9000) AS i; "
    "ALTER TABLE rows ADD COLUMN b int DEFAULT {shard}",
    "view": "CREATE TABLE base AS SELECT i * 3 + {shard} AS a, i::text AS b FROM generate_series(1, 9000) AS i; "
    "CREATE VIEW rows AS SELECT * FROM base",
    "partitions": "CREATE TABLE rows (a int, b int) PARTITION BY RANGE (a); "
    "CREATE TABLE low PARTITION OF rows FOR VALUES FROM (0) TO (9000); "
    "CREATE TABLE high PARTITION OF rows FOR VALUES FROM (9000) TO (90000); "
    "INSERT INTO rows SELECT i * 3 + {shard}, i FROM generate_series(1, 9000) AS i",
    "other order": "DO $$BEGIN IF {shard} = 2 THEN CREATE TABLE rows (b text, a int); ELSE CREATE TABLE rows "
    "(a int, b text); END IF; END$$; INSERT INTO rows (a, b) SELECT i * 3 + {shard}, i FROM generate_series(1, 9000) i",
}


@pytest.mark.parametrize("statements", OTHERS.values(), ids=OTHERS)
def test_what_has_no_pages_of_its_own_is_gathered_as_rows(db: Connection, shards: list[str], statements: str) -> None:
    clean = "DROP VIEW IF EXISTS rows; DROP TABLE IF EXISTS base, r"
    try:
        everywhere(shards, statements)
        table = db.gather("rows", shards)
        expected: list[tuple[Any, ...]] = []
        rows = [fetched(dsn, "SELECT a, b::text FROM rows") for dsn in shards]
        for turn in range(0, 9000, 4096):
            for each in rows:
                expected += each[turn : turn + 4096]
        assert db.session.execute(f"SELECT a, b::text FROM {table}").fetchall() == expected
    finally:
        with psycopg.connect(shards[0], autocommit=True) as session:
            views = session.execute("SELECT FROM pg_views WHERE viewname = 'rows'").fetchall()
        if views:
            everywhere(shards, clean)


def test_a_gathered_table_serves_every_call_of_its_session(db: Connection, shards: list[str]) -> None:
    everywhere(shards, ROWS)
    table = db.gather("rows", shards, into="all rows")
    assert table == '"pg_temp"."all rows"'
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        db.train("logistic", table, label="y", nulls="mean", test_size=0.2)
        assert "accuracy" in db.evaluate("logistic")
        assert len(db.cross_validate("logistic", table, label="y", nulls="mean", folds=2, epochs=2)) == 4
    [[key]] = db.session.execute(
        f"SELECT pg_get_indexdef(indexrelid) FROM pg_index WHERE indrelid = '{table}'::regclass"
    )
    assert key.endswith("(id)")


def test_keys_that_shards_share_are_a_warning(db: Connection, shards: list[str]) -> None:
    everywhere(
        shards,
        "CREATE TABLE rows AS SELECT i AS id, i AS y FROM generate_series(1, 9) AS i; "
        "ALTER TABLE rows ADD PRIMARY KEY (id)",
    )
    with pytest.warns(UserWarning, match=r"the primary key \(id\) is not unique over the shards"):
        table = db.gather("rows", shards)
    assert db.session.execute(f"SELECT count(*) FROM {table}").fetchall() == [(27,)]


def only(shards: list[str], number: int, statement: str) -> None:
    everywhere([shards[number - 1]], statement)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            "ALTER TABLE rows ALTER x TYPE float8",
            r"shard 2 \(host=.*\) has column x double precision; shard 1 \(.* has x real",
        ),
        ("ALTER TABLE rows DROP city", r"shard 2 \(.*\) has no column city text, which shard 1 \(.*\) has"),
        ("ALTER TABLE rows ADD more int", r"shard 2 \(.*\) has a column more integer, which shard 1 \(.*\) has not"),
        (
            "ALTER TABLE rows DROP CONSTRAINT rows_pkey",
            r"shard 2 \(.*\) has the primary key \(\) and shard 1 \(.*\) \(id\)",
        ),
    ],
)
def test_shards_that_differ_are_named(db: Connection, shards: list[str], change: str, message: str) -> None:
    everywhere(shards, ROWS)
    only(shards, 2, change)
    with pytest.raises(UsageError, match=message):
        db.gather("rows", shards)


def test_a_copied_database_is_another(shards: list[str]) -> None:
    """Its table has the number of the original."""
    names = ("original", "copied")
    everywhere(shards[:1], "CREATE DATABASE original")
    try:
        dsns = [make_conninfo(shards[0], dbname=name) for name in names]
        everywhere(dsns[:1], "CREATE TABLE rows (a int)")
        everywhere(shards[:1], "CREATE DATABASE copied TEMPLATE original")
        with opened(dsns, "rows", 5) as parts:
            assert [part.place()[-1] for part in parts] == [parts[0].place()[-1]] * 2
    finally:
        everywhere(shards[:1], *(f"DROP DATABASE IF EXISTS {name}" for name in names))


def test_a_type_is_this_server_s_or_text(db: Connection, shards: list[str]) -> None:
    """What a shard calls its types is in no statement here; another role's type may run functions."""
    look: dict[str, Any] = {
        "key": (),
        "block_size": 8192,
        "encoding": "UTF8",
        "pages": None,
        "snapshot": datetime.now(UTC),
    }
    evil = "text); CREATE TABLE taken AS SELECT 1; CREATE TEMPORARY TABLE other (a int"
    columns = (
        Column(name="a", type=evil, builtin=25, modifier=-1, enum=False),
        Column(name="b", type=evil, builtin=None, modifier=-1, enum=True),
        Column(name="c", type="numeric", builtin=1700, modifier=(9 << 16 | 3) + 4, enum=False),
        Column(name="d", type="own", builtin=None, modifier=-1, enum=False),
        Column(name="e", type="gone", builtin=None, modifier=-1, enum=False),
    )
    session = db.session
    session.execute("DROP ROLE IF EXISTS maker; CREATE ROLE maker; CREATE DOMAIN own AS int")
    try:
        for owner, expected in (("maker", "text"), ("postgres", "own")):
            session.execute(f"ALTER DOMAIN own OWNER TO {owner}")  # type: ignore[arg-type]
            found = create_like(session, sql.Identifier("pg_temp", "like"), Look(columns=columns, **look))
            assert list(found.values()) == ["text", "text", "numeric(9,3)", expected, "text"]
            session.execute('DROP TABLE pg_temp."like"')
            session.execute("SET SESSION AUTHORIZATION postgres")
    finally:
        session.execute("DROP DOMAIN own; DROP ROLE maker")


def test_bad_lists_of_shards_are_errors(db: Connection, shards: list[str]) -> None:
    everywhere(shards, ROWS)
    with pytest.raises(UsageError, match=r"shard 1 \(.*\) and shard 3 \(.*\) are one table, public\.rows"):
        db.gather("rows", [*shards[:2], shards[0]])
    none: Any
    for none in ([], "host=a"):
        for call in (
            partial(db.gather, "rows"),
            partial(db.train, "logistic", "rows", label="y"),
            partial(db.train, "logistic", "rows", label="y", sync="batch"),
            partial(db.explain_shards, "logistic", "rows", label="y"),
        ):
            with pytest.raises(UsageError, match="at least one"):
                call(shards=none)
    with pytest.raises(UsageError, match="connection string is not valid"):
        db.gather("rows", ["=="])
    with pytest.raises(UsageError, match="not of a query"):
        db.train("logistic", query="SELECT 1", shards=shards)
    with pytest.raises(ShardError, match=r"shard 2 \(host=/nowhere dbname=x\): ") as unreachable:
        db.gather("rows", [shards[0], "host=/nowhere dbname=x password=secret"])
    assert unreachable.value.sqlstate == "08001"
    assert "secret" not in str(unreachable.value)
    only(shards, 3, "DROP TABLE rows")
    with pytest.raises(ShardError, match=r'shard 3 \(.*\): relation "rows" does not exist') as missing:
        db.gather("rows", shards)
    assert (missing.value.shard, missing.value.sqlstate) == (3, "42P01")


# one of the rows fails when it is read
FAILING = """
CREATE TABLE base AS SELECT i AS a, 0 AS b FROM generate_series(1, 20000) AS i;
CREATE FUNCTION fail(a int) RETURNS int VOLATILE LANGUAGE plpgsql AS
    $$BEGIN IF a = 9000 AND {shard} = 2 THEN PERFORM {what}; END IF; RETURN 0; END$$;
CREATE VIEW rows AS SELECT a, fail(a) AS b FROM base
"""
UNDO = "DROP VIEW rows; DROP FUNCTION fail; DROP TABLE base"


@pytest.mark.parametrize(
    ("what", "message", "sqlstate"),
    [
        ("pg_terminate_backend(pg_backend_pid())", "terminating connection", "57P01"),
        ("1 / 0", "division by zero", "22012"),
        ("pg_sleep(600)", r"no message within 0\.5 s", "08006"),
    ],
    ids=["killed", "error", "silent"],
)
def test_a_shard_that_fails_is_named_and_nothing_is_left(
    db: Connection, shards: list[str], what: str, message: str, sqlstate: str
) -> None:
    everywhere(shards, FAILING.replace("{what}", what))
    try:
        with pytest.raises(ShardError, match=rf"shard 2 \(host=.*\): .*{message}") as failed:
            db.gather("rows", shards, timeout=0.5 if "sleep" in what else 60)
        assert (failed.value.shard, failed.value.sqlstate) == (2, sqlstate)
        assert fetched(shards[0], "SELECT relname FROM pg_class WHERE relnamespace = pg_my_temp_schema()") == []
        assert db.session.execute("SELECT pg_catalog.to_regclass('pg_temp.rows')").fetchall() == [(None,)]
        running = "SELECT FROM pg_stat_activity WHERE query LIKE 'COPY%' AND state = 'active'"
        while any(fetched(dsn, running) for dsn in shards):  # a cancel is not waited for
            time.sleep(0.01)
    finally:
        everywhere(shards, UNDO)


@pytest.mark.parametrize("begins", [b"PGCOPY", b'"search_path"|"path"'], ids=["pages", "an answer"])
def test_a_shard_that_sends_a_byte_at_a_time_is_named(db: Connection, shards: list[str], begins: bytes) -> None:
    everywhere(shards, ROWS)
    with proxy(shards[1], Trickle(begins)) as (host, port):
        trickling = make_conninfo(shards[1], host=host, port=port)
        with pytest.raises(ShardError, match=r"shard 2 \(host=127.*\): no message within 0\.5 s") as failed:
            db.gather("rows", [shards[0], trickling, shards[2]], timeout=0.5)
    assert failed.value.sqlstate == "08006"


def killed(dsn: str, trainer: int, driver: bool) -> None:
    """End the trainer's backend, or all others of clients at that server."""
    chosen = f"pid = {trainer}" if driver else f"pid NOT IN ({trainer}, pg_backend_pid())"
    fetched(dsn, f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {chosen} AND datname IS NOT NULL")


def test_kills_at_any_moment_end_in_the_same_bits_or_a_named_error(db: Connection, shards: list[str]) -> None:
    everywhere(shards, ROWS)
    options: dict[str, Any] = {"label": "y", "features": ["x", "z"], "epochs": 2, "shards": shards}
    undisturbed = trained(db, lambda: db.train("logistic", "rows", model="calm", **options), "calm")
    generator = random.Random(38)
    for _ in range(scaled(24)):
        with Connection(psycopg.connect(shards[0], autocommit=True)) as other:
            number, driver = generator.randrange(3), generator.random() < 0.25
            victim = shards[0 if driver else number]
            arguments = (victim, other.session.info.backend_pid, driver)
            killer = threading.Timer(generator.random() * 0.3, killed, arguments)
            killer.start()
            failed: psycopg.Error | None = None
            try:
                train = partial(other.train, "logistic", "rows", model="stormy", **options)
                assert trained(other, train, "stormy") == undisturbed
            except psycopg.Error as error:
                failed = error
            finally:
                killer.join()
            if isinstance(failed, ShardError):
                assert not driver
                assert str(failed).startswith(f"shard {number + 1} (")
            else:
                assert failed is None or driver
    left = "SELECT FROM pg_class WHERE relname = 'rows' AND relpersistence = 't'"
    copying = "SELECT FROM pg_stat_activity WHERE query LIKE 'COPY%' AND state = 'active'"
    while any(fetched(dsn, query) for dsn in shards for query in (left, copying)):
        time.sleep(0.01)


def test_rows_under_row_security_are_those_of_the_role(db: Connection, shards: list[str]) -> None:
    everywhere(
        shards,
        "CREATE TABLE rows AS SELECT i AS a FROM generate_series(1, 9) AS i; "
        "ALTER TABLE rows ENABLE ROW LEVEL SECURITY; "
        "CREATE POLICY small ON rows USING (a < 4); DROP ROLE IF EXISTS reader; CREATE ROLE reader LOGIN; "
        "GRANT SELECT ON rows TO reader",
    )
    table = db.gather("rows", [f"{dsn} user=reader" for dsn in shards])
    try:
        assert db.session.execute(f"SELECT a FROM {table}").fetchall() == [(1,), (2,), (3,)] * 3
        with (
            psycopg.connect(f"{shards[0]} user=reader") as reader,
            pytest.raises(psycopg.errors.InsufficientPrivilege, match="row-level security"),
        ):
            reader.execute("SELECT dana_shard_pages('rows')")
    finally:
        everywhere(shards, "DROP TABLE rows; DROP ROLE reader")


def test_every_type_that_pages_carry_arrives(db: Connection, shards: list[str]) -> None:
    """Every type that pages may carry, with NULLs, NaN and infinities."""
    everywhere(
        shards,
        "CREATE TABLE rows AS SELECT i % 2 = 0 AS a, i::int2 AS b, i::int8 AS c, 'NaN'::float4 AS d, "
        "'-inf'::float8 AS e, (i / 7.0)::numeric(12, 4) AS f, time '01:02' AS g, timetz '01:02+03' AS h, "
        "timestamp 'infinity' AS i, "
        "now() AS j, interval '1 day' AS k, gen_random_uuid() AS l, repeat('ä', i) AS m, 'v'::varchar(4) AS n, "
        "'c'::char(3) AS o, '\\x00ff'::bytea AS p, ARRAY[true, NULL] AS q, ARRAY[i, -i]::int2[] AS r, "
        "ARRAY[[i, 2], [3, NULL]] AS s, '{}'::int8[] AS t, ARRAY[i, 'NaN']::float4[] AS u, "
        "ARRAY[0.5, i]::float8[] AS v, NULL::text AS w, 'NaN'::numeric AS x, repeat('x', 3000) AS y, 1::money AS z "
        "FROM generate_series(1, 300) AS i",
        "DELETE FROM rows WHERE b % 3 > 0",
    )
    table = db.gather("rows", shards)
    # pages keep the holes of deleted rows
    pages = "SELECT count(DISTINCT split_part(ctid::text, ',', 1)) FROM "
    [[count]] = db.session.execute(pages + table)
    assert count == sum(fetched(dsn, pages + "rows")[0][0] for dsn in shards)
    gathered = db.session.execute(f"SELECT t::text FROM {table} AS t").fetchall()
    rows = [fetched(dsn, "SELECT t::text FROM rows AS t") for dsn in shards]
    assert gathered == rows[0] + rows[1] + rows[2]


def test_the_command_takes_shards(db: Connection, shards: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    everywhere(shards, ROWS)
    asked = ["train", "logistic", "rows", "--label", "y", "--features", "x,z", "--dsn", shards[0]]
    parts = [word for dsn in shards for word in ("--shard", dsn)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert main([*asked, *parts]) == 0
    assert "12,000, 0 skipped" in capsys.readouterr().out
    assert main([*asked, *parts, "--background"]) == 2
    assert "--shard and --background exclude each other" in capsys.readouterr().err
