"""Pages that go to another server have the visible rows alone; a server that takes pages trusts nothing in them."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator

import psycopg
import pytest

from dana.server.embedded import EmbeddedServer
from tests.scale import scaled

BLOCK = 8192


@pytest.fixture
def session(server: EmbeddedServer) -> Iterator[psycopg.Connection]:
    with psycopg.connect(server.dsn) as made:
        yield made
        made.rollback()


def pages(session: psycopg.Connection, table: str, most: int = 64) -> bytes:
    rows = session.execute("SELECT dana_shard_pages(%s, %s)", (table, most), binary=True).fetchall()
    assert all(0 < len(row[0]) <= most * BLOCK for row in rows)
    return b"".join(row[0] for row in rows)


def take(session: psycopg.Connection, data: bytes, like: str = "t") -> list[tuple[str]]:
    session.execute(f"CREATE TEMPORARY TABLE taken (LIKE {like})")
    session.execute("SELECT dana.dana_take_pages('taken', %b)", (data,))
    return session.execute("SELECT taken::text FROM taken").fetchall()


@pytest.mark.parametrize("most", [1, 7, 4096])
def test_pages_have_the_rows_that_the_snapshot_sees(server: EmbeddedServer, most: int) -> None:
    with psycopg.connect(server.dsn) as session, psycopg.connect(server.dsn) as other:
        session.execute(
            "CREATE TABLE t WITH (fillfactor = 50) AS SELECT i, 'word ' || i AS w FROM generate_series(1, 5000) AS i"
        )
        session.commit()
        try:
            other.execute("INSERT INTO t VALUES (0, 'of another transaction')")
            other.execute("DELETE FROM t WHERE i > 4990")
            session.execute("UPDATE t SET w = 'new' WHERE i % 7 = 0 AND i < 4990")
            session.execute("DELETE FROM t WHERE i BETWEEN 1000 AND 2500")
            session.execute("SELECT FROM t WHERE i = 1 FOR UPDATE")
            data = pages(session, "t", most)
            assert data.count(b"of another") == 0 == data.count(b"word 1234")  # its bytes are not there at all
            assert take(session, data) == session.execute("SELECT t::text FROM t").fetchall()
            # an index finds them: no tuple is part of a chain
            session.execute("CREATE INDEX ON taken (i); SET LOCAL enable_seqscan = off")
            assert session.execute("SELECT count(*) FROM taken WHERE i > 0").fetchall() == [(5000 - 1501,)]
        finally:
            session.rollback()
            other.rollback()
            session.execute("DROP TABLE t")


def test_what_has_no_pages_is_an_error(session: psycopg.Connection) -> None:
    session.execute("CREATE TEMPORARY TABLE t AS SELECT array_agg(random()) AS a FROM generate_series(1, 900)")
    session.execute("CREATE TEMPORARY VIEW v AS SELECT * FROM t")
    for call, error in (
        ("dana_shard_pages('t')", "values are stored out of line"),
        ("dana_shard_pages('v')", "v has rows, and no pages of its own"),
        ("dana_shard_pages('t', 0)", 'argument "pages" must be from 1 to 4096, not 0'),
        ("dana_shard_pages('t', 4097)", 'argument "pages" must be from 1 to 4096, not 4097'),
        ("dana_shard_pages('t', NULL)", 'argument "pages" must not be null'),
        ("dana_shard_pages('pg_class')", "it is a system catalog"),
    ):
        with pytest.raises(psycopg.Error, match=error), session.transaction():
            session.execute(f"SELECT {call}")
    session.execute("CREATE TEMPORARY TABLE none (i int)")
    assert session.execute("SELECT dana_shard_pages('none')").fetchall() == []
    # a query that reads no further leaves nothing open
    session.execute("CREATE TEMPORARY TABLE many AS SELECT i FROM generate_series(1, 9999) AS i")
    assert len(session.execute("SELECT dana_shard_pages('many', 1) LIMIT 2").fetchall()) == 2


@pytest.mark.parametrize("before", [1, 30, 64])
def test_pages_are_appended_over_the_end_of_a_segment(session: psycopg.Connection, before: int) -> None:
    """A file of a table ends at 1 GB; so many blocks before its end are free. Those in front are a hole."""
    session.execute("CREATE TEMPORARY TABLE t AS SELECT i FROM generate_series(1, 20000) AS i")
    session.execute("CREATE TEMPORARY TABLE taken (i int)")
    [[file, blocks]] = session.execute(
        "SELECT current_setting('data_directory') || '/' || pg_relation_filepath('taken'), setting::int "
        "FROM pg_settings WHERE name = 'segment_size'"
    ).fetchall()
    first = blocks - before
    os.truncate(file, first * BLOCK)
    session.execute("SELECT dana.dana_take_pages('taken', %b)", (pages(session, "t"),))
    rows = f"SELECT i, split_part(ctid::text, ',', 1) FROM taken WHERE ctid >= '({first},0)'"
    places = session.execute(f"SELECT i, '(' || (ctid::text::point)[0] + {first} FROM t").fetchall()
    assert session.execute(rows).fetchall() == places
    assert len({page for _, page in places}) > 64


def test_only_an_own_new_temporary_table_takes_pages(session: psycopg.Connection) -> None:
    session.execute("CREATE TEMPORARY TABLE t AS SELECT 1 AS a")
    data = pages(session, "t")
    for statement, error in (
        ("CREATE TABLE taken (a int)", "cannot append pages to public.taken"),
        ("CREATE TEMPORARY TABLE taken (a int PRIMARY KEY)", "must be a temporary table of yours without indexes"),
        ("CREATE TEMPORARY TABLE taken (a regclass)", "column 1, a, is of a type that is not checked"),
        ("CREATE TEMPORARY TABLE taken (a int, b int); ALTER TABLE taken DROP b", "is of a type that is not checked"),
        ("CREATE TEMPORARY VIEW taken AS SELECT 1", "cannot append pages to pg_temp"),
    ):
        with session.transaction(force_rollback=True):
            session.execute(statement)
            with pytest.raises(psycopg.Error, match=error), session.transaction():
                session.execute("SELECT dana.dana_take_pages('taken', %b)", (data,))
    with pytest.raises(psycopg.Error, match="pages of 8192 bytes, not 8191 bytes"), session.transaction():
        take(session, data[1:])
    session.execute("CREATE TEMPORARY TABLE earlier (a int)")
    session.commit()
    with pytest.raises(psycopg.Error, match="created in this transaction"), session.transaction():
        session.execute("SELECT dana.dana_take_pages('earlier', %b)", (data,))
    session.execute("CREATE ROLE visitor; SET LOCAL ROLE visitor; CREATE TEMPORARY TABLE taken (a int)")
    with pytest.raises(psycopg.Error, match="permission denied for function dana_train"), session.transaction():
        session.execute("SELECT dana.dana_take_pages('taken', %b)", (data,))


@pytest.mark.parametrize("row", ["1 AS a, NULL::int AS b", "1 AS a"])
def test_a_column_without_nulls_takes_none(session: psycopg.Connection, row: str) -> None:
    """A key is made of it, for which nobody looks for NULLs again; nor may it be missing at the end of a tuple."""
    session.execute(f"CREATE TEMPORARY TABLE t AS SELECT {row}; CREATE TEMPORARY TABLE taken (a int, b int NOT NULL)")
    data = pages(session, "t")
    with pytest.raises(psycopg.errors.DataCorrupted, match="line pointer 1: column b is NULL"):
        session.execute("SELECT dana.dana_take_pages('taken', %b)", (data,))


WIDE = """
CREATE TEMPORARY TABLE t AS SELECT i AS a, i::numeric / 7 AS b, 'ä ' || i AS c, repeat('x', 100 * i) AS d,
    ARRAY[i, NULL, 3]::float4[] AS e, ARRAY[[1, 2], [3, i]]::int8[] AS f, '\\x00ff'::bytea AS g, NULL::text AS h,
    (1e200)::numeric AS i
FROM generate_series(1, 60) AS i
"""


def test_pages_of_a_hostile_server_are_errors_or_values(server: EmbeddedServer, session: psycopg.Connection) -> None:
    """Damaged anywhere: the backend that takes and reads them survives, and so does the server."""
    session.execute(WIDE)
    data = pages(session, "t")
    generator = random.Random(38)
    found = 0
    for _ in range(scaled(200)):
        damaged = bytearray(data)
        for _ in range(generator.choice((1, 1, 2, 8, 100))):
            # most bytes of a page are its end, where the values are
            at = generator.choice((generator.randrange(len(data)), generator.randrange(200)))
            damaged[at] = generator.choice((0, 1, 2, 127, 128, 255, generator.randrange(256)))
        try:
            with session.transaction():
                take(session, bytes(damaged))
                raise psycopg.Rollback
        except psycopg.errors.DataCorrupted:
            found += 1
        except psycopg.DataError:  # a number that no type's output function writes
            pass
    assert found > scaled(30)
    session.rollback()
    with psycopg.connect(server.dsn) as other:  # not restarted
        assert other.execute("SELECT 1").fetchall() == [(1,)]
