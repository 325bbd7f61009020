"""What a training sees is what the statement's snapshot sees: the worker's rows against SQL's, on the same snapshot."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import psycopg
import pytest
from psycopg.pq import TransactionStatus

from tests.postgres.cluster import Cluster
from tests.postgres.conftest import Session
from tests.scale import scaled


def seen_by_training(session: Session, name: str, table: str = "t") -> tuple[int, int]:
    """Rows and their sum, as the worker read them from the pages."""
    session.execute("SELECT * FROM dana_train(%s, %s, 'seen')", (name, table))
    row = session.execute(
        "SELECT metadata FROM dana.model WHERE name = 'seen' ORDER BY version DESC LIMIT 1"
    ).fetchone()
    assert row is not None
    return row[0]["count"], row[0]["sum"]


def seen_by_sql(session: Session, table: str = "t") -> tuple[int, int]:
    row = session.execute(f"SELECT count(*), coalesce(sum(v), 0) FROM {table}").fetchone()
    assert row is not None
    return int(row[0]), int(row[1])


STATES = {
    "fresh": [],
    "all visible": ["VACUUM (FREEZE) t"],
    "deleted": ["DELETE FROM t WHERE v % 3 = 0"],
    "updated": ["UPDATE t SET v = v + 100 WHERE v % 5 = 0"],
    "aborted": ["BEGIN", "DELETE FROM t WHERE v % 2 = 0", "INSERT INTO t VALUES (7)", "ROLLBACK"],
    "pruned": ["DELETE FROM t WHERE v % 3 = 0", "VACUUM t"],
    "redirected": ["ALTER TABLE t SET (fillfactor = 50)", "VACUUM FULL t", "UPDATE t SET v = v + 1", "VACUUM t"],
    "locked": ["BEGIN", "SELECT v FROM t WHERE v % 7 = 0 FOR UPDATE", "COMMIT"],
    "emptied": ["DELETE FROM t"],
    "truncated": ["TRUNCATE t"],
    "own changes": ["BEGIN", "DELETE FROM t WHERE v % 3 = 0", "INSERT INTO t SELECT 5 FROM generate_series(1, 500)"],
    "own subtransaction": [
        "BEGIN",
        "SAVEPOINT a",
        "DELETE FROM t WHERE v % 3 = 0",
        "SAVEPOINT b",
        "INSERT INTO t SELECT 5 FROM generate_series(1, 500)",
        "ROLLBACK TO b",
    ],
}


@pytest.mark.parametrize("state", STATES)
def test_states_of_a_table(session: Session, rule: Callable[..., str], state: str) -> None:
    name = rule(column="v")
    for level in ("READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"):
        session.execute(f"SET default_transaction_isolation = '{level}'")
        session.execute("CREATE TABLE t AS SELECT g AS v FROM generate_series(1, 2000) g")
        for statement in STATES[state]:
            session.execute(statement)
        assert seen_by_training(session, name) == seen_by_sql(session), level
        if session.info.transaction_status != TransactionStatus.IDLE:
            session.execute("ROLLBACK")
        session.execute("DROP TABLE t")


def test_others_uncommitted_rows_are_invisible(cluster: Cluster, session: Session, rule: Callable[..., str]) -> None:
    name = rule(column="v")
    session.execute("CREATE TABLE t AS SELECT g AS v FROM generate_series(1, 1000) g")
    with cluster.connect() as other:
        other.execute("BEGIN")
        other.execute("DELETE FROM test.t WHERE v <= 400")
        other.execute("INSERT INTO test.t SELECT 1 FROM generate_series(1, 50)")
        assert seen_by_training(session, name) == (1000, 500500)
        other.execute("COMMIT")
    assert seen_by_training(session, name) == (650, 500500 - 80200 + 50)


def test_snapshot_of_the_transaction(cluster: Cluster, session: Session, rule: Callable[..., str]) -> None:
    """In REPEATABLE READ the rows of the first statement are those of the last, pruned by nobody."""
    name = rule(column="v", epochs=2)
    session.execute("CREATE TABLE t AS SELECT g AS v FROM generate_series(1, 1000) g")
    session.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    assert seen_by_sql(session) == (1000, 500500)
    with cluster.connect() as other:
        other.execute("DELETE FROM test.t WHERE v > 10")
        other.execute("VACUUM (TRUNCATE false) test.t")  # which would wait for the reader
        other.execute("INSERT INTO test.t SELECT 1000000 FROM generate_series(1, 30)")
        other.execute("SELECT count(*) FROM test.t")  # leaves the hint that who inserted them has committed
    assert seen_by_training(session, name) == seen_by_sql(session) == (1000, 500500)
    session.execute("COMMIT")
    assert seen_by_training(session, name) == (40, 30_000_055)


@pytest.mark.parametrize("written", ["before", "after"])
def test_serializable_sees_the_dependency(
    cluster: Cluster, session: Session, rule: Callable[..., str], written: str
) -> None:
    """Write skew: each transaction reads what the other writes, one of the reads being a training. One must fail."""
    name = rule(column="v")
    session.execute("CREATE TABLE t AS SELECT g AS v FROM generate_series(1, 100) g")
    session.execute("CREATE TABLE u AS SELECT g AS v FROM generate_series(1, 100) g")
    session.execute("VACUUM t")
    with cluster.connect() as other:
        for each in (session, other):
            each.execute("BEGIN ISOLATION LEVEL SERIALIZABLE")
        assert other.execute("SELECT count(*) FROM test.u").fetchone() == (100,)
        if written == "before":
            other.execute("INSERT INTO test.t VALUES (1)")
        assert seen_by_training(session, name) == (100, 5050)
        if written == "after":
            other.execute("INSERT INTO test.t VALUES (1)")
        session.execute("INSERT INTO u VALUES (1)")
        session.execute("COMMIT")
        with pytest.raises(psycopg.errors.SerializationFailure):
            other.execute("COMMIT")


def test_equal_to_sql_beside_writers_and_vacuum(cluster: Cluster, session: Session, rule: Callable[..., str]) -> None:
    """Count and sum of the pages' rows equal SQL's on the same snapshot, with two writers and a VACUUM loop beside."""
    name = rule(column="v")
    session.execute("CREATE TABLE t (v int, filler text) WITH (fillfactor = 70)")
    session.execute("INSERT INTO t SELECT g % 1000, repeat('x', g % 50) FROM generate_series(1, 3000) g")
    stop = threading.Event()
    failures: list[str] = []

    def write(seed: int) -> None:
        choose = random.Random(seed)
        with cluster.connect() as writer:
            while not stop.is_set():
                at = choose.randrange(1000)
                statement = choose.choice(
                    [
                        f"UPDATE test.t SET v = (v * 7 + 1) % 1000 WHERE v BETWEEN {at} AND {at + 20}",
                        f"DELETE FROM test.t WHERE v BETWEEN {at} AND {at + 5}",
                        f"INSERT INTO test.t SELECT g % 1000, 'new' FROM generate_series({at}, {at + 20}) g",
                        "BEGIN; UPDATE test.t SET v = 0 WHERE v < 100; ROLLBACK",
                        f"BEGIN; SAVEPOINT s; DELETE FROM test.t WHERE v > 900; ROLLBACK TO s;"
                        f" INSERT INTO test.t VALUES ({at}, NULL); COMMIT",
                    ]
                )
                try:
                    writer.execute(statement)
                except psycopg.errors.Error as error:
                    # the two writers may lock the same rows in different orders, which is between them
                    if not isinstance(error, psycopg.errors.DeadlockDetected):
                        failures.append(str(error))
                    with suppress(psycopg.errors.Error):
                        writer.execute("ROLLBACK")

    def vacuum() -> None:
        with cluster.connect() as cleaner:
            while not stop.is_set():
                cleaner.execute("VACUUM test.t")
                stop.wait(0.01)

    beside = [threading.Thread(target=write, args=(seed,)) for seed in (1, 2)] + [threading.Thread(target=vacuum)]
    for thread in beside:
        thread.start()
    try:
        seen: set[Any] = set()
        for k in range(scaled(26)):
            level = ("REPEATABLE READ", "SERIALIZABLE")[k % 2]
            session.execute(f"BEGIN ISOLATION LEVEL {level} READ WRITE")
            by_sql = seen_by_sql(session)
            assert seen_by_training(session, name) == by_sql
            session.execute("ROLLBACK")
            seen.add(by_sql)
        assert len(seen) > 5, "the writers wrote nothing"
    finally:
        stop.set()
        for thread in beside:
            thread.join()
    assert failures == []
