"""A peer that lies, at either end: one error that says so, or the answer to what the message then means.

Worker, rules and tables are real. Messages are changed at random from fixed seeds (`tests.postgres.liar`).
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.postgres.cluster import Cluster
from tests.postgres.test_surroundings import spawned
from tests.postgres.workshop import Session, Workshop, open_workshop
from tests.scale import SEED, scaled

STATEMENTS = {
    "dana_create_udf": ("SELECT dana_create_udf('lied', text) FROM dana.rule WHERE name = 'linear'", 1, 1),
    "dana_train": (
        "SELECT dana_train('logistic', 'faults.narrow', 'lied', '{a,b}', epochs => 2, hyper => '{\"penalty\": 0.1}')",
        2,
        5,
    ),
    "categories": ("SELECT dana_train('lrmf', 'faults.ratings', 'lied', epochs => 1)", 2, 4),
    "a model to start from": (
        "SELECT dana_train('linear', 'faults.narrow', 'lied', '{a,b}', 'y', warm_start_from => 'start')",
        1,
        4,
    ),
    "dana_explain": ("SELECT * FROM dana_explain('linear', 'faults.narrow')", 1, 1),
}
"""Statements, with how many messages go to the worker and, at least, come back."""

LIES = scaled(12)
"""Of each statement in each direction."""


@pytest.fixture(scope="module")
def workshop(shared_cluster: Cluster) -> Iterator[Workshop]:
    with open_workshop(shared_cluster) as made:
        with made.connect() as session:
            session.execute("SELECT dana_train('linear', 'faults.narrow', 'start', '{a,b}', 'y')")
        yield made


def lied_to(session: Session, statement: str) -> psycopg.Error | None:
    try:
        session.execute(statement)
    except psycopg.Error as error:
        return error
    return None


@pytest.mark.parametrize("direction", ["to worker", "to backend"])
@pytest.mark.parametrize("which", STATEMENTS)
def test_lies(shared_cluster: Cluster, workshop: Workshop, direction: str, which: str) -> None:
    statement, sent, received = STATEMENTS[which]
    messages = sent if direction == "to worker" else received
    plan, path = shared_cluster.folder / "plan.json", shared_cluster.folder / "liar.sock"
    honest = json.dumps({"direction": "", "number": 0, "seed": 0})
    plan.write_text(honest)
    plan.chmod(0o644)
    script = (Path(__file__).parent / "liar.py").read_text()
    log, server_log = len(workshop.log), len(shared_cluster.log)
    chance = random.Random(f"{which} {direction} {SEED}")
    with (
        spawned(shared_cluster, script, [str(path), str(workshop.socket), str(plan)], path),
        workshop.connect() as other,
    ):
        for _ in range(LIES):
            told = {"direction": direction, "number": chance.randint(1, messages), "seed": chance.random()}
            plan.write_text(json.dumps(told))
            with workshop.connect() as session:
                session.execute(f"SET dana.socket_path = '{path}'; SET statement_timeout = '5s'; BEGIN")
                error = lied_to(session, statement)
                plan.write_text(honest)  # where the time was over before the lie
                said = f"{told}: {error!r}"
                assert error is None or (error.sqlstate is not None and error.sqlstate[:2] != "XX"), said
                assert session.info.transaction_status == psycopg.pq.TransactionStatus.INERROR or error is None, said
                session.execute("ROLLBACK; RESET statement_timeout")
                session.execute("SELECT * FROM dana_explain('linear', 'faults.narrow')")
        assert other.execute("SELECT * FROM dana_explain('linear', 'faults.narrow')").rowcount > 0
        assert other.execute("SELECT FROM pg_locks WHERE classid = 1145130561").rowcount == 0
        assert other.execute("SELECT FROM dana.progress").rowcount == 0
    assert "Traceback" not in workshop.log[log:], workshop.log[log:]
    added = shared_cluster.log[server_log:]
    assert not re.search(r"PANIC|was terminated by signal|leak|TRAP", added), added
