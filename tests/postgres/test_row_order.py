"""Rows in a pseudo-random order, in the worker that users run: beyond its memory, on damaged pages, without a disk."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from tests.postgres.cluster import Cluster
from tests.postgres.test_corruption import DAMAGES, ROWS, damage
from tests.postgres.workshop import Session, Workshop, open_workshop
from tests.sql.conftest import SUMS

SOURCES = ("'faults.wide'", "query => 'TABLE faults.wide'")


@pytest.fixture(scope="module")
def workshop(shared_cluster: Cluster) -> Iterator[Workshop]:
    with open_workshop(shared_cluster) as made:
        with made.connect() as session:
            session.execute("SELECT dana_create_udf('sums', %s)", (SUMS,))
        yield made


def restarted(workshop: Workshop, *options: str) -> Session:
    workshop.stop()
    workshop.options = options
    workshop.start()
    return workshop.connect()


def weights(session: Session, source: str, more: str = "shuffle => true") -> bytes:
    done = session.execute(
        "SELECT model, version FROM "
        f"dana_train('sums', {source}, features => '{{x}}', label => 'y', epochs => 3, {more})"
    ).fetchone()
    found = session.execute(
        "SELECT array_send(weights) FROM dana.model WHERE name = %s AND version = %s", done
    ).fetchone()
    assert found is not None
    return bytes(found[0])


@pytest.mark.parametrize("source", SOURCES)
def test_the_model_does_not_depend_on_the_memory_limit(workshop: Workshop, source: str) -> None:
    with restarted(workshop, "--cache-limit", "1GB") as session:
        expected = weights(session, source)
        assert weights(session, source, "shuffle => false") != expected
        session.execute("SET dana.max_memory = '300MB'")
        assert weights(session, source) == expected
    for limit in ("0", "2MB", "20MB"):
        with restarted(workshop, "--cache-limit", limit) as session:
            assert weights(session, source) == expected


def test_no_folder_for_the_rows(workshop: Workshop) -> None:
    folder = workshop.cluster.folder / "rows"
    workshop.cluster.account.make_inside(folder)
    with restarted(workshop, "--cache-limit", "2MB", "--model-directory", str(folder)) as session:
        assert weights(session, SOURCES[0])
        assert not list(folder.iterdir())
        folder.rmdir()
        with pytest.raises(psycopg.errors.IoError) as raised:
            weights(session, SOURCES[0])
        assert raised.value.diag.message_primary == (
            "the worker cannot create files in its --model-directory, or in $TMPDIR without one"
        )
        assert raised.value.diag.message_detail is not None
        assert "no file for 67,108,864 bytes of rows: No such file or directory" in raised.value.diag.message_detail
        assert weights(session, SOURCES[0], "shuffle => false")


def test_temp_file_limit(workshop: Workshop) -> None:
    with restarted(workshop, "--cache-limit", "2MB") as session:
        expected = weights(session, SOURCES[0])
        session.execute("SET temp_file_limit = '100MB'")
        assert weights(session, SOURCES[0]) == expected
        session.execute("SET temp_file_limit = '1MB'")
        with pytest.raises(psycopg.errors.ConfigurationLimitExceeded, match=r'"temp_file_limit" \(1,024 kB\)'):
            weights(session, SOURCES[0])
        assert weights(session, SOURCES[0], "shuffle => false")


def test_a_damaged_page_is_named_as_in_the_table(cluster: Cluster, workshop: Workshop) -> None:
    files: list[tuple[str]] = []
    with cluster.connect() as session:
        session.execute("CREATE SCHEMA test")
        for k in range(len(DAMAGES)):
            session.execute(f"CREATE TABLE test.t{k} AS SELECT g AS id FROM generate_series(1, {ROWS}) g")
            session.execute(f"VACUUM (FREEZE) test.t{k}")
            files += session.execute(f"SELECT pg_relation_filepath('test.t{k}')").fetchall()

    def change(k: int, pages: bytearray) -> None:
        offset, written = list(DAMAGES.values())[k]
        pages[8192 + offset : 8192 + offset + len(written)] = written

    damage(cluster, [cluster.folder / "data" / name for (name,) in files], change)
    with restarted(workshop, "--cache-limit", "1GB") as session:
        session.execute("SET ignore_checksum_failure = on")
        session.execute("SELECT dana_create_udf('keep', %s)", (KEEP,))
        for k in range(len(DAMAGES)):
            said = []
            for more in ("shuffle => false", "shuffle => true", "shuffle => true, machine => 'interp'"):
                with pytest.raises(psycopg.Error) as raised:
                    session.execute(f"SELECT dana_train('keep', 'test.t{k}', {more})".encode())
                said.append((raised.value.sqlstate, raised.value.diag.message_primary))
            assert said == said[:1] * 3
            assert said[0][0] == "XX001"
            assert "page" in str(said[0][1])


def test_a_compressed_value_before_another_fault(workshop: Workshop) -> None:
    """In the other order the fault comes first; then the training finds the value before it, on the table's pages."""
    with workshop.connect() as session:
        session.execute("CREATE TABLE compressed (x real[])")
        for storage in ("PLAIN", "EXTENDED", "PLAIN"):
            session.execute(f"ALTER TABLE compressed ALTER x SET STORAGE {storage}".encode())
            session.execute("INSERT INTO compressed SELECT array_agg(1::real) FROM generate_series(1, 600)")
        session.execute("INSERT INTO compressed SELECT array_agg(nullif(g, 9)::real) FROM generate_series(1, 600) g")
        for _ in range(11):  # more pages than the ring holds
            session.execute("INSERT INTO compressed SELECT * FROM compressed WHERE array_position(x, NULL) > 0")
        text = KEEP.replace("model()", "model([600])").replace("input()", "input([600])")
        session.execute("SELECT dana_create_udf('keep600', %s)", (text,))
        session.execute("SET statement_timeout = '60s'")
        session.execute("SET dana.ring_pages = 64")
        said = []
        for shuffle in ("false", "true"):
            with pytest.raises(psycopg.Error) as raised:
                session.execute(
                    f"SELECT dana_train('keep600', 'compressed', shuffle => {shuffle}, nulls => 'error')".encode()
                )
            said.append((raised.value.sqlstate, raised.value.diag.message_primary))
        assert said == said[:1] * 2


KEEP = """
import dana
w, x = dana.model(), dana.input()
keep = dana.algo(w, x)
keep.setModel(w + keep.merge(x, 8, "+"))
"""
