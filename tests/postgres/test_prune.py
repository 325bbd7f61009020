"""What dana_prune() removes, and what stays."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from tests.postgres.cluster import Cluster
from tests.postgres.conftest import Session

errors = psycopg.errors
Rule = Callable[..., str]


@pytest.fixture
def trained(cluster: Cluster, session: Session, rule: Rule) -> Iterator[str]:
    """Four versions of a, of which the second is in use, two of b, and three jobs; the first of each is 10 days old."""
    session.execute("CREATE TABLE t AS SELECT g AS id FROM generate_series(1, 10) AS g")
    name = rule(epochs=2)
    for model in ("a", "a", "a", "a", "b", "b"):
        session.execute("SELECT dana_train(%s, 't', %s)", (name, model))
    session.execute("SELECT dana_activate_model('a', 2)")
    for _ in range(3):
        job = session.execute(
            "SELECT dana_start('dana_train', %s)", (Jsonb({"rule": name, "query": "SELECT 1/0 AS id"}),)
        ).fetchone()
        session.execute("SELECT dana_wait(%s)", job)
    session.execute("UPDATE dana.model SET created = now() - make_interval(days => 11 - version)")
    session.execute("UPDATE dana.run SET started = now() - make_interval(days => 11 - model_version)")
    session.execute(
        "UPDATE dana.job_log SET ended = now() - make_interval(days => 11 - n::int) FROM"
        " (SELECT id AS i, row_number() OVER (ORDER BY id) AS n FROM dana.job_log) AS r WHERE i = id"
    )
    yield name
    session.execute("TRUNCATE dana.job_log")


def prune(session: Session, arguments: str) -> Any:
    return session.execute(f"SELECT models, runs, jobs FROM dana_prune({arguments})").fetchone()


def left(session: Session) -> tuple[list[str], list[str], int]:
    models = session.execute("SELECT name || version FROM dana.model ORDER BY 1").fetchall()
    runs = session.execute("SELECT model || model_version FROM dana.run ORDER BY 1").fetchall()
    jobs = session.execute("SELECT FROM dana.job_log").rowcount
    epochs = session.execute("SELECT count(*) FROM dana.epoch").fetchone()
    assert epochs == (2 * len(runs),)
    return [row[0] for row in models], [row[0] for row in runs], jobs


@pytest.mark.parametrize(
    ("arguments", "models", "runs", "jobs"),
    [
        ("'1 year'", "a1 a2 a3 a4 b1 b2", "a1 a2 a3 a4 b1 b2", 3),
        ("'8 days 12 hours'", "a2 a3 a4 b2", "a3 a4", 1),
        ("'8 days 12 hours', 3", "a2 a3 a4 b1 b2", "a2 a3 a4 b1 b2", 3),
        ("'8 days 12 hours', 0", "a2 a3 a4 b2", "a3 a4", 1),
        ("keep => 1", "a2 a4 b2", "a4 b2", 1),
        ("keep => 0", "a2 a4 b2", "", 0),
        ("'1 day', 2", "a2 a3 a4 b1 b2", "a3 a4 b1 b2", 2),
    ],
)
def test_by_age_and_number(session: Session, trained: str, arguments: str, models: str, runs: str, jobs: int) -> None:
    assert prune(session, arguments) == (6 - len(models.split()), 6 - len(runs.split()), 3 - jobs)
    assert left(session) == (models.split(), runs.split(), jobs)
    assert prune(session, arguments) == (0, 0, 0)
    assert session.execute("SELECT version FROM dana_train(%s, 't', 'a')", (trained,)).fetchone() == (5,)


def test_refused(session: Session) -> None:
    with pytest.raises(errors.NullValueNotAllowed, match='argument "older_than", argument "keep", or both'):
        prune(session, "")
    with pytest.raises(errors.InvalidParameterValue, match="from 0, not -1"):
        prune(session, "keep => -1")


def test_what_is_one_s_own(cluster: Cluster, session: Session, trained: str) -> None:
    session.execute("CREATE ROLE ann LOGIN")
    try:
        session.execute("UPDATE dana.model SET owner = 'ann' WHERE name = 'b'")
        session.execute("UPDATE dana.run SET owner = 'ann' WHERE model = 'b'")
        session.execute("UPDATE dana.job_log SET owner = 'ann' WHERE id = (SELECT min(id) FROM dana.job_log)")
        with cluster.connect("ann") as ann:
            with pytest.raises(errors.InsufficientPrivilege):
                prune(ann, "keep => 0")
            session.execute("GRANT EXECUTE ON FUNCTION dana_prune TO ann")
            assert prune(ann, "keep => 0") == (1, 2, 1)
        assert left(session) == (["a1", "a2", "a3", "a4", "b2"], ["a1", "a2", "a3", "a4"], 2)
    finally:
        session.execute("UPDATE dana.model SET owner = 'postgres'; DROP OWNED BY ann; DROP ROLE ann")


def test_jobs_that_are_not_over_stay(session: Session, trained: str, rule: Rule) -> None:
    given = Jsonb({"rule": rule(delay_us=20_000, epochs=10_000), "source": "t"})
    row = session.execute("SELECT dana_start('dana_train', %s)", (given,)).fetchone()
    assert row is not None
    assert prune(session, "keep => 0")[2] == 3
    with session.transaction():
        second = session.execute("SELECT dana_start('dana_train', %s)", (given,)).fetchone()
        assert prune(session, "keep => 0")[2] == 0
        session.execute("SELECT dana_cancel(%s)", second)
    deadline = time.monotonic() + 30
    while session.execute("SELECT pg_terminate_backend(pid) FROM dana.job WHERE state = 'running'").rowcount == 0:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert session.execute("SELECT dana_wait(%s)", row).fetchone() == ("lost",)
    assert prune(session, "keep => 0")[2] == 2, "one was lost, one cancelled"
