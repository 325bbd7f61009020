"""What happens around a training: other sessions' DDL, a standby, a restart, a full disk, parallel queries."""

from __future__ import annotations

import json
import os
import re
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psycopg
import pytest

from dana.trainer.memory import RESERVE
from dana.worker.protocol import RELEASE
from tests.postgres.cluster import Cluster
from tests.postgres.conftest import Session
from tests.postgres.test_predict_plans import predictor

errors = psycopg.errors
Rule = Callable[..., str]
ROWS = 200 * 226


@contextmanager
def held_training(cluster: Cluster, name: str, table: str = "test.t", epochs: int = 2) -> Iterator[list[object]]:
    """A training that streams its pages for a second or two while the block runs; what it came to, afterwards."""
    came_to: list[object] = []
    with cluster.connect() as own:

        def run() -> None:
            try:
                call = "SELECT tuples FROM dana_train(%s, %s::regclass, epochs => %s)"
                came_to.append(own.execute(call, (name, table, epochs)).fetchone())
            except psycopg.Error as error:
                came_to.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        with cluster.connect() as observer:
            deadline = time.monotonic() + 30
            while observer.execute("SELECT FROM dana.progress WHERE page > 0").rowcount == 0:
                assert time.monotonic() < deadline, "no page was streamed"
                time.sleep(0.01)
        yield came_to
        thread.join()


DEFINITIONS = {
    "dropped": "DROP TABLE test.t",
    "truncated": "TRUNCATE test.t",
    "rewritten": "ALTER TABLE test.t ALTER id TYPE bigint",
    "rewritten in order": "VACUUM FULL test.t",
    "cut off": "DELETE FROM test.t; VACUUM test.t",
}


@pytest.mark.parametrize("deed", DEFINITIONS)
def test_what_others_do_to_the_table(cluster: Cluster, session: Session, rule: Rule, deed: str) -> None:
    """A table that is read is locked: who drops or rewrites it waits, and the training reads it to its end, twice."""
    session.execute("CREATE TABLE t AS SELECT g AS id FROM generate_series(1, %s) g", (ROWS,))
    good, slow = rule(), rule(delay_us=1500)
    with held_training(cluster, slow) as came_to, cluster.connect() as other:
        started = time.monotonic()
        if deed == "cut off":
            other.execute("DELETE FROM test.t")
            other.execute("VACUUM test.t")
        else:
            other.execute(DEFINITIONS[deed])
        waited = time.monotonic() - started
    assert came_to == [(ROWS,)]
    if deed != "cut off":
        assert waited > 0.1, "the lock was not held"
    if deed == "dropped":
        with pytest.raises(errors.UndefinedTable):
            session.execute("SELECT dana_train(%s, 't')", (good,))
        session.execute("CREATE TABLE t AS SELECT 1 AS id")
    left = session.execute("SELECT count(*) FROM t").fetchone()
    assert session.execute("SELECT tuples FROM dana_train(%s, 't')", (good,)).fetchone() == left


LISTENER = """
import os, socket, sys
with socket.socket(socket.AF_UNIX) as listener:
    listener.bind(sys.argv[1] + ".new")
    listener.listen()
    os.rename(sys.argv[1] + ".new", sys.argv[1])
    client, _ = listener.accept()
    header = client.recv(5)
    client.recv(int.from_bytes(header[:4], sys.byteorder), socket.MSG_WAITALL)
    client.sendall(bytes.fromhex(sys.argv[2]))
"""


def frame(kind: bytes, payload: bytes) -> bytes:
    return struct.pack("=I", len(payload)) + kind + payload


ANSWERS = {
    "another release": (
        frame(b"h", b'{"release": "9.9", "pid": 1}'),
        f'the dana worker is of release "9.9", and this extension of {RELEASE}',
    ),
    "no JSON": (frame(b"h", b"hello"), "json"),
    "another message": (frame(b"r", b"{}"), "unexpected message of type 114"),
    "too long": (struct.pack("=I", 2**32 - 1) + b"h", "announced a message of 4294967295 bytes"),
    "a refusal": (
        frame(b"x", b'{"sqlstate": "08P01", "message": "this worker is of release 9.9", "detail": "", "hint": ""}'),
        "this worker is of release 9.9",
    ),
    "half a message": (frame(b"h", b'{"release": "9.9", "pid": 1}')[:9], "dana worker"),
    "nothing": (b"", "dana worker"),
}


ENDING = """
import os, socket, sys
path, worker, welcome, bye, patient = sys.argv[1:]
with socket.socket(socket.AF_UNIX) as listener:
    listener.bind(path + ".new")
    listener.listen()
    os.rename(path + ".new", path)
    client, _ = listener.accept()
    header = client.recv(5)
    client.recv(int.from_bytes(header[:4], sys.byteorder), socket.MSG_WAITALL)
    client.sendall(bytes.fromhex(welcome))
    if patient == "True":
        client.recv(1)
    os.unlink(path)
    os.symlink(worker, path)
    client.sendall(bytes.fromhex(bye))
    client.close()
"""


@pytest.mark.parametrize("patient", [True, False], ids=["when the request is there", "before"])
def test_a_request_that_crosses_the_end_of_an_idle_session(
    cluster: Cluster, session: Session, rule: Rule, patient: bool
) -> None:
    """A session that idled says that it ends, and has not looked at the request: the next session answers it."""
    session.execute("CREATE TABLE t AS SELECT 1 AS id")
    name = rule()
    path = cluster.folder / "ending.sock"
    welcome = frame(b"h", json.dumps({"release": RELEASE, "pid": 1}).encode())
    words = [str(path), str(cluster.worker_socket), welcome.hex(), frame(b"z", b"{}").hex(), str(patient)]
    with spawned(cluster, ENDING, words, path):
        session.execute(f"SET dana.socket_path = '{path}'")
        assert session.execute("SELECT tuples FROM dana_train(%s, 't')", (name,)).fetchone() == (1,)
    session.execute("RESET dana.socket_path")


@contextmanager
def spawned(cluster: Cluster, script: str, words: list[str], path: Path) -> Iterator[None]:
    """A Python script under the server's account that listens at ``path``."""
    command = [str(cluster.python.executable), "-c", script, *words]
    environment = {**os.environ, **cluster.python.environment}
    with subprocess.Popen(command, cwd="/", env=environment, **cluster.account.identity()) as process:
        try:
            deadline = time.monotonic() + 30
            while not path.exists():
                assert time.monotonic() < deadline
                time.sleep(0.01)
            yield
        finally:
            process.kill()
            path.unlink()


@pytest.mark.parametrize("answer", ANSWERS)
def test_other_protocols(cluster: Cluster, session: Session, rule: Rule, answer: str) -> None:
    """Another version of the worker listens at the socket's path, or something that is none."""
    session.execute("CREATE TABLE t AS SELECT 1 AS id")
    name = rule()
    path = cluster.folder / "other.sock"
    said, message = ANSWERS[answer]
    with spawned(cluster, LISTENER, [str(path), said.hex()], path):
        session.execute(f"SET dana.socket_path = '{path}'")
        with pytest.raises(psycopg.Error, match=message) as raised:
            session.execute("SELECT * FROM dana_train(%s, 't')", (name,))
        assert raised.value.sqlstate in ("08P01", "08006", "22P02")
    session.execute("RESET dana.socket_path")
    assert session.execute("SELECT tuples FROM dana_train(%s, 't')", (name,)).fetchone() == (1,)


OTHER_RELEASE = """
import importlib.metadata, runpy, sys
real = importlib.metadata.version
importlib.metadata.version = lambda name: "9.9" if name == "dana-db" else real(name)
runpy.run_module("dana.cli", run_name="__main__", alter_sys=True)
"""


def test_a_worker_of_another_release(cluster: Cluster, session: Session, rule: Rule) -> None:
    """The worker itself, but for its number: it is asked first, and names both."""
    session.execute("CREATE TABLE t AS SELECT 1 AS id")
    name = rule()
    path = cluster.folder / "other.sock"
    with spawned(cluster, OTHER_RELEASE, ["worker", "--socket", str(path)], path):
        session.execute(f"SET dana.socket_path = '{path}'")
        says = f"the extension is of release '{RELEASE}', this worker of 9.9; install both from the same release"
        for call in (f"dana_train('{name}', 't')", "dana_create_udf('r', '{}')", f"dana_explain('{name}', 't')"):
            with pytest.raises(errors.ProtocolViolation, match=re.escape(says)):
                session.execute(f"SELECT {call}")


SET_LIMIT = """
import resource, sys
limit, process, value = getattr(resource, sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
soft, hard = resource.prlimit(process, limit)
resource.prlimit(process, limit, (value, hard))
print(soft)
"""


def set_limit(cluster: Cluster, process: int, limit: str, value: int) -> int:
    """Set a soft limit of a process of the server's account, from another one of that account; what it was before."""
    command = [str(cluster.python.executable), "-c", SET_LIMIT, limit, str(process), str(value)]
    environment = {**os.environ, **cluster.python.environment}
    done = subprocess.run(
        command, cwd="/", env=environment, capture_output=True, text=True, check=True, **cluster.account.identity()
    )
    return int(done.stdout)


@contextmanager
def file_size_limit(cluster: Cluster, process: int, size: int) -> Iterator[None]:
    """A process that cannot write beyond ``size`` bytes of any file: what a full disk is to it, and to it alone."""
    before = set_limit(cluster, process, "RLIMIT_FSIZE", size)
    try:
        yield
    finally:
        set_limit(cluster, process, "RLIMIT_FSIZE", before)


def test_no_room_for_the_ring(cluster: Cluster, session: Session, rule: Rule) -> None:
    session.execute("CREATE TABLE t AS SELECT 1 AS id")
    name = rule()
    with cluster.connect() as own:
        pid = own.info.backend_pid
        own.execute("SET dana.ring_pages = 4096")
        with file_size_limit(cluster, pid, 17 << 20), pytest.raises(errors.OutOfMemory) as raised:
            own.execute("SELECT dana_train(%s, 'test.t')", (name,))
        assert raised.value.diag.message_hint == "Lower dana.ring_pages."
        assert own.execute("SELECT tuples FROM dana_train(%s, 'test.t')", (name,)).fetchone() == (1,)


def test_no_room_for_the_curve(cluster: Cluster, session: Session, rule: Rule) -> None:
    """Others cannot watch the training; it is none the worse."""
    session.execute("CREATE TABLE t AS SELECT 1 AS id")
    name = rule()
    heard: list[str] = []
    with cluster.connect() as own:
        # not from the server's log, which may itself be longer than the limit
        own.execute("SET client_min_messages = log; SET dana.ring_pages = 16")
        own.add_notice_handler(lambda notice: heard.append(str(notice.message_primary)))
        with own.transaction():
            with file_size_limit(cluster, own.info.backend_pid, 200 << 10):
                assert own.execute("SELECT tuples FROM dana_train(%s, 'test.t')", (name,)).fetchone() == (1,)
            assert any("dana.curve will not show the epochs of this training" in one for one in heard), heard
        heard.clear()
        assert own.execute("SELECT tuples FROM dana_train(%s, 'test.t')", (name,)).fetchone() == (1,)
        assert heard == []
    assert session.execute("SELECT count(*) FROM dana.run").fetchone() == (2,)


def test_no_room_for_the_model(cluster: Cluster, session: Session, rule: Rule) -> None:
    """The disk is full when the model is to be stored: neither model nor run nor epoch is there."""
    session.execute("CREATE TABLE t AS SELECT 1 AS id")
    name = rule(random_weights=5_000_000)
    with cluster.connect() as own:
        with (
            file_size_limit(cluster, own.info.backend_pid, 16 << 20),
            pytest.raises(psycopg.Error, match="extend file"),
        ):
            own.execute("SELECT dana_train(%s, 'test.t')", (name,))
        for table in ("model", "run", "epoch"):
            assert session.execute(f"SELECT FROM dana.{table}").rowcount == 0
        assert own.execute("SELECT tuples FROM dana_train(%s, 'test.t')", (name,)).fetchone() == (1,)
    counted = "SELECT sum(cardinality(values)) FROM dana_parameters(%s)"
    assert session.execute(counted, (name,)).fetchone() == (5_000_001,)
    parts = "SELECT cardinality(m.weights), cardinality(w.values) FROM dana.model AS m JOIN dana.weights AS w"
    assert session.execute(f"{parts} USING (owner, name, version)").fetchone() == (1 << 22, 5_000_001 - (1 << 22))


def test_no_room_to_keep_pages(cluster: Cluster, session: Session, rule: Rule) -> None:
    """Where the worker has no memory for a table's pages, each epoch streams them again."""
    session.execute("CREATE TABLE t AS SELECT g AS id, repeat('x', 1900) FROM generate_series(1, 32000) g")
    pages = session.execute("SELECT pg_relation_size('t') / 8192").fetchall()[0][0]
    name = rule(epochs=3)
    cluster.until_sessions(1)
    (worker,) = cluster.sessions()
    status = Path(f"/proc/{worker}/status").read_text()
    used = int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmData:"))) << 10

    def blocks_read() -> int:
        return int(session.execute("SELECT pg_stat_get_xact_blocks_fetched('t'::regclass)").fetchall()[0][0])

    for streams in (1, 3):
        session.execute("BEGIN")
        before = blocks_read()
        row = session.execute("SELECT tuples, epochs FROM dana_train(%s, 't')", (name,)).fetchone()
        assert row == (32000, 3)
        assert blocks_read() - before == pages * streams
        session.execute("ROLLBACK")
        # enough for a request, not for 64 MB of pages
        set_limit(cluster, worker, "RLIMIT_DATA", used + RESERVE + (8 << 20))
    assert cluster.sessions() == [worker], "no session was lost"


def test_killed_postmaster(shared_cluster: Cluster) -> None:
    """After a crash of the whole server in the middle of a training: what was committed is there, and nothing else."""
    cluster = shared_cluster
    cluster.ensure_worker()
    with cluster.connect() as session:
        session.execute("CREATE SCHEMA test; CREATE TABLE test.t AS SELECT g AS id FROM generate_series(1, 45200) g")
        session.execute("SELECT dana_create_udf('r', '{}'), dana_create_udf('slow', '{\"delay_us\": 20000}')")
        session.execute("SELECT dana_train('r', 'test.t', 'kept')")
        session.execute("BEGIN; SELECT dana_train('r', 'test.t', 'lost')")
        with suppress(psycopg.OperationalError), held_training(cluster, "slow", epochs=1) as came_to:
            cluster.kill_server()
        session.close()
    assert isinstance(came_to[0], psycopg.OperationalError)
    cluster.start_server()
    cluster.until_sessions(0)
    with cluster.connect() as session:
        assert session.execute("SELECT name FROM dana.model").fetchall() == [("kept",)]
        assert session.execute("SELECT version FROM dana_train('r', 'test.t', 'kept')").fetchone() == (2,)
        session.execute("DROP SCHEMA test CASCADE; SELECT dana_drop_rule(name) FROM dana.rule")
        session.execute("TRUNCATE dana.model, dana.run, dana.epoch CASCADE")


def test_hot_standby(shared_cluster: Cluster) -> None:
    """On a standby predictions work, and training is refused before any work."""
    cluster = shared_cluster
    cluster.ensure_worker()
    standby = cluster.folder / "data" / "standby.signal"
    cluster.stop_server()
    cluster.start_server(wal_level="replica")
    with cluster.connect() as session:
        session.execute("CREATE TABLE t AS SELECT 1 AS id")
        session.execute("SELECT dana_create_udf('r', %s)", (json.dumps({"weights": [1.0], "predictor": predictor(1)}),))
        session.execute("SELECT dana_train('r', 't', 'm')")
    cluster.stop_server()
    try:
        standby.touch()
        cluster.start_server(wal_level="replica", hot_standby="on")
        with cluster.connect() as session:
            assert session.execute("SELECT pg_is_in_recovery()").fetchone() == (True,)
            assert session.execute("SELECT dana_predict('m', 1.5)").fetchone() == (1.5,)
            for call in (
                "dana_train('r', 't')",
                "dana_create_udf('s', '{}')",
                "dana_drop_model('m')",
                "dana_grant_rule('r')",
                "dana_profile('m')",
                "dana_refresh('m')",
                "dana_rollback_model('m')",
            ):
                with pytest.raises(errors.ReadOnlySqlTransaction, match=f"cannot execute {call.split('(')[0]}\\(\\) "):
                    session.execute(f"SELECT {call}")
            assert session.execute("SELECT * FROM dana.progress").fetchall() == []
        assert cluster.sessions() == [], "the worker was not asked"
    finally:
        cluster.stop_server()
        standby.unlink()
        cluster.start_server()
    with cluster.connect() as session:
        assert session.execute("SELECT tuples FROM dana_train('r', 't')").fetchone() == (1,)
        session.execute("DROP TABLE t; SELECT dana_drop_rule(name) FROM dana.rule")
        session.execute("TRUNCATE dana.model, dana.run, dana.epoch CASCADE")


def test_parallel_queries(session: Session, rule: Rule) -> None:
    """Training is not for parallel workers, whatever the planner is told."""
    session.execute("CREATE TABLE t AS SELECT g AS id FROM generate_series(1, %s) g", (ROWS,))
    name = rule()
    forced = "debug_parallel_query" if session.info.server_version >= 160000 else "force_parallel_mode"
    session.execute(f"SET {forced} = on; SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0")
    session.execute("SET min_parallel_table_scan_size = 0")
    plan = session.execute("EXPLAIN SELECT sum(id) FROM t").fetchall()
    assert any("Gather" in line for (line,) in plan)
    assert session.execute("SELECT tuples FROM dana_train(%s, 't')", (name,)).fetchone() == (ROWS,)
    rows = rule(rows=True)
    assert session.execute(f"SELECT tuples FROM dana_train('{rows}', query => 'SELECT id FROM t')").fetchone() == (
        ROWS,
    )
    plan = session.execute(f"EXPLAIN SELECT (dana_train('{name}', 't')).version FROM t LIMIT 1").fetchall()
    assert not any("Gather" in line for (line,) in plan)
