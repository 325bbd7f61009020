"""A large model is stored whole or not at all, whoever is killed meanwhile, and what was committed stays as it was."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.postgres.cluster import Cluster
from tests.postgres.moments import at
from tests.postgres.workshop import Session, Workshop, open_workshop, until

TRAIN = "dana_train('lrmf', 'faults.ratings', 'large', epochs => 1, hyper => '{\"m\": 300000, \"n\": 300000}')"
"""26 MB of weights, in two parts and 13,000 chunks."""
TABLES = "dana.model", "dana.weights"
STORED = """
    SELECT array_agg(ROW(version, dana_predict('large@' || version, 7, 9),
            (SELECT array_agg(md5(array_send(values))) FROM dana_parameters('large', version))) ORDER BY version),
        (SELECT count(*) FROM dana.run), (SELECT count(*) FROM dana.epoch)
    FROM dana.model WHERE name = 'large'
"""
SIZE = "SELECT sum(pg_table_size(t::regclass)) FROM unnest(%s::text[]) AS t"
TOAST = "SELECT reltoastrelid::regclass::text FROM pg_class WHERE oid = %s::regclass"


def one_row(later: int) -> str:
    """The prediction for row 7 of U and a row of V, from the parameters and by the database."""
    return f"""WITH p AS MATERIALIZED (SELECT * FROM dana_parameters('large', 1))
    SELECT (SELECT values[1] FROM p WHERE parameter = 'mean') + (SELECT values[1] FROM p WHERE parameter = 'deviation')
        * ((SELECT values[8] FROM p WHERE parameter = 'a') + (SELECT values[{later + 1}] FROM p WHERE parameter = 'b')
            + (SELECT sum(u * v) FROM
                unnest((SELECT values[71:80] FROM p WHERE parameter = 'U'),
                    (SELECT values[{10 * later + 1}:{10 * later + 10}] FROM p WHERE parameter = 'V')) AS x (u, v))),
        dana_predict('large@1', 7, {later})"""


OF_VERSION = "SELECT parameter, md5(array_send(values)) FROM dana_parameters('large', %s)"
LESS = 1 << 20
"""Bytes of chunks after which a kill comes, of the 26 MB."""


@pytest.fixture(scope="module")
def workshop(shared_cluster: Cluster) -> Iterator[Workshop]:
    with open_workshop(shared_cluster) as made:
        yield made


def one(session: Session, query: str, *values: object) -> Any:
    row = session.execute(query, values).fetchone()
    assert row is not None
    return row[0] if len(row) == 1 else row


def chunks(session: Session) -> int:
    """That are seen."""
    return sum(int(one(session, f"SELECT count(*) FROM {one(session, TOAST, table)}")) for table in TABLES)


def size(session: Session) -> int:
    return int(one(session, SIZE, list(TABLES)))


def killed_backend(workshop: Workshop, observer: Session, pid: int, over: Callable[[], bool]) -> None:
    """While it writes chunks."""
    before = size(observer)
    while size(observer) < before + LESS and not over():
        pass
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def killed_session(workshop: Workshop, observer: Session, pid: int, over: Callable[[], bool]) -> None:
    """While it sends the model, of which a backend that reads nothing lets it send a part."""
    while not at(observer, pid, "epoch = 1") and not over():
        pass
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGSTOP)
        time.sleep(0.1)
        for session in workshop.sessions():
            os.kill(session, signal.SIGKILL)
        os.kill(pid, signal.SIGCONT)


@pytest.mark.parametrize("kill", [killed_backend, killed_session])
def test_killed_while_a_large_model_is_stored(
    workshop: Workshop, kill: Callable[[Workshop, Session, int, Callable[[], bool]], None]
) -> None:
    workshop.ensure()
    with workshop.connect() as session:
        session.execute("TRUNCATE dana.model, dana.run, dana.epoch CASCADE")
        session.execute(f"SELECT {TRAIN}")
        committed, stored, least = one(session, STORED), chunks(session), size(session)
        computed, predicted = one(session, one_row(250_000))  # in the second part, where all of a and b are
        assert predicted == pytest.approx(computed, rel=1e-5)
    assert stored > 10_000
    error: psycopg.Error | None = None
    for _ in range(10):  # until it comes in the middle
        error = attempted(workshop, kill)
        with workshop.connect() as session:
            if error is not None:
                break
            session.execute("SELECT dana_drop_model('large', max(version)) FROM dana.model")
            session.execute("DELETE FROM dana.run WHERE id = (SELECT max(id) FROM dana.run)")
            session.execute("VACUUM dana.model, dana.weights")
            least = size(session)
    assert error is not None, "it was over each time"
    with workshop.connect() as session:
        assert one(session, STORED) == committed
        assert chunks(session) == stored, "of what was half there nothing is seen"
        assert kill is not killed_backend or size(session) > least, "chunks of it lie there, until VACUUM"
        session.execute(f"SELECT {TRAIN}")
        first, second = (one(session, f"SELECT array_agg(p::text) FROM ({OF_VERSION}) AS p", k) for k in (1, 2))
        assert first == second, "the next one is as if nothing had been"
        session.execute("TRUNCATE dana.model, dana.run, dana.epoch CASCADE")
    until(lambda: not workshop.sessions(), "a session of the worker is left")


def test_warm_start_of_a_large_model(workshop: Workshop) -> None:
    """Two times one epoch are two epochs, and a question needs no weights."""
    workshop.ensure()
    warm = TRAIN.removesuffix(")") + ", warm_start_from => 'large'"
    question = "SELECT dana_explain('lrmf', 'faults.ratings', %s::jsonb)"
    with workshop.connect() as session:
        for training in (TRAIN, f"{warm})", TRAIN.replace("epochs => 1", "epochs => 2")):
            session.execute(f"SELECT {training}")
        digests = f"SELECT array_agg(p::text) FROM ({OF_VERSION}) AS p"
        first, again, whole = (one(session, digests, version) for version in (1, 2, 3))
        assert first != again == whole
        assert session.execute(question, ['{"warm_start_from": "large"}']).fetchall()
        session.execute("TRUNCATE dana.model, dana.run, dana.epoch CASCADE")


def test_tables_in_files_of_more_than_a_session_may_hold(workshop: Workshop) -> None:
    """An error that names the option; with it the bits of a worker with enough memory, whoever is killed meanwhile."""
    training = TRAIN.replace("300000", "800000")  # 109 MB of tables, 70 MB of weights
    digests = f"SELECT array_agg(p::text) FROM ({OF_VERSION}) AS p"
    folder = workshop.cluster.folder / "models"
    workshop.cluster.account.make_inside(folder)
    usual, limited = workshop.options, (*workshop.options, "--memory-limit", "220MB")
    try:
        workshop.ensure()
        with workshop.connect() as session:
            session.execute(f"SELECT {training}")
            wanted = one(session, digests, 1)
            for row in (50_000, 700_000):  # in the third part and in the fourth
                computed, predicted = one(session, one_row(row))
                assert predicted == pytest.approx(computed, rel=1e-5)
        workshop.stop()
        workshop.options = limited
        workshop.start()
        with workshop.connect() as session, pytest.raises(psycopg.errors.OutOfMemory, match="than the 220 MB") as error:
            session.execute(f"SELECT {training}")
        assert "start the worker with --model-directory" in str(error.value.diag.message_hint)
        workshop.stop()
        workshop.options = (*limited, "--model-directory", str(folder))
        workshop.start()
        with workshop.connect() as observer:
            cut = threading.Thread(target=interrupted, args=(workshop, training))
            cut.start()
            until(lambda: any(mapped_files(pid, folder) for pid in workshop.sessions()), "no file was made")
            for pid in workshop.sessions():
                os.kill(pid, signal.SIGKILL)
            cut.join()
            assert one(observer, "SELECT max(version) FROM dana.model") == 1
        until(lambda: not workshop.sessions(), "a session of the worker is left")
        assert not list(folder.iterdir())
        with workshop.connect() as session:
            session.execute(f"SELECT {training}")
            assert one(session, digests, 2) == wanted
            session.execute(f"SELECT {training[:-1]}, warm_start_from => 'large')")
            assert one(session, digests, 3) != wanted
            session.execute(f"SELECT {training[:-1]}, validation_size => 0.2)")
            assert one(session, "SELECT validation_loss FROM dana.epoch ORDER BY run DESC, epoch DESC LIMIT 1") > 0
    finally:
        workshop.stop()
        workshop.options = usual
        with workshop.connect() as session:
            session.execute("TRUNCATE dana.model, dana.run, dana.epoch CASCADE")


def mapped_files(pid: int, folder: Path) -> bool:
    """Whether a process has files of a folder in its memory, none of which has a name."""
    with suppress(OSError):
        lines = [line for line in Path(f"/proc/{pid}/maps").read_text().splitlines() if str(folder) in line]
        assert all(line.endswith("(deleted)") for line in lines)
        return bool(lines)
    return False


def interrupted(workshop: Workshop, training: str) -> None:
    with workshop.connect() as session, pytest.raises(psycopg.OperationalError, match="worker"):
        session.execute(f"SELECT {training}")


def attempted(
    workshop: Workshop, kill: Callable[[Workshop, Session, int, Callable[[], bool]], None]
) -> psycopg.Error | None:
    """A training of the same, in the middle of which the kill may come; how it ended."""
    found: list[psycopg.Error] = []
    with suppress(psycopg.OperationalError), workshop.connect() as observer:
        session = workshop.connect()

        def run() -> None:
            try:
                session.execute(f"SELECT {TRAIN}")
            except psycopg.Error as error:
                found.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        kill(workshop, observer, session.info.backend_pid, lambda: not thread.is_alive())
        thread.join()
        if kill is killed_backend and found:
            workshop.cluster.until_restarted(observer)
        session.close()
    return found[0] if found else None
