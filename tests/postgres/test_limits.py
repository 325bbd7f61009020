"""Settings that bound trainings: what happens to the one that wants more."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from dana.server.places import CHECKOUT
from dana.trainer.machines import MACHINES
from tests.postgres.cluster import Cluster
from tests.postgres.conftest import Session

errors = psycopg.errors
Rule = Callable[..., str]

BOUNDED = "-c statement_timeout=20s"
"""For a session that hangs: where the test fails, closing it waits for its statement."""


@pytest.fixture
def one_at_a_time(cluster: Cluster, session: Session) -> Iterator[None]:
    """At most one training in the server."""
    cluster.configure(session, "dana.max_runs = 1")
    yield
    cluster.configure(session)


def wait_for_phase(session: Session, phase: str) -> None:
    deadline = time.monotonic() + 30
    while session.execute("SELECT FROM dana.progress WHERE phase = %s", (phase,)).rowcount == 0:
        assert time.monotonic() < deadline, f"no training is {phase}"
        time.sleep(0.01)


def test_the_next_training_waits(cluster: Cluster, session: Session, rule: Rule, one_at_a_time: None) -> None:
    session.execute("CREATE TABLE t AS SELECT 1 AS id")
    held, good = rule(on_epoch="hang"), rule()
    done: list[object] = []

    def run(name: str, own: Session) -> None:
        try:
            done.append(own.execute("SELECT tuples FROM dana_train(%s, 'test.t')", (name,)).fetchone())
        except psycopg.Error as error:
            done.append(error)

    with cluster.connect(options=BOUNDED) as first, cluster.connect() as second, cluster.connect() as third:
        assert first.execute("SHOW dana.max_runs").fetchone() == ("1",)
        threads = [threading.Thread(target=run, args=(held, first)), threading.Thread(target=run, args=(good, second))]
        threads[0].start()
        wait_for_phase(session, "training")
        threads[1].start()
        wait_for_phase(session, "waiting")
        if cluster.major >= 17:
            waits = session.execute(
                "SELECT wait_event FROM pg_stat_activity WHERE pid = %s", (second.info.backend_pid,)
            )
            assert waits.fetchone() == ("DanaTurn",)
        third.execute("SET lock_timeout = '50ms'")
        with pytest.raises(errors.LockNotAvailable):
            third.execute("SELECT dana_train(%s, 'test.t')", (good,))
        third.execute("RESET lock_timeout; SET statement_timeout = '50ms'")
        with pytest.raises(errors.QueryCanceled, match="statement timeout"):
            third.execute("SELECT dana_train(%s, 'test.t')", (good,))
        assert done == []
        session.execute("SELECT pg_cancel_backend(%s)", (first.info.backend_pid,))
        for thread in threads:
            thread.join()
        assert isinstance(done[0], errors.QueryCanceled)
        assert done[1] == (1,)
        two = "SELECT (SELECT tuples FROM dana_train(%s, 'test.t')) + (SELECT tuples FROM dana_train(%s, 'test.t'))"
        third.execute("RESET statement_timeout")
        with third.transaction():
            assert third.execute(two, (good, good)).fetchone() == (2,)
            assert first.execute("SELECT tuples FROM dana_train(%s, 'test.t', 'other')", (good,)).fetchone() == (1,), (
                "the place is given back with the training's end"
            )
    assert session.execute("SELECT FROM pg_locks WHERE locktype = 'object'").rowcount == 0


def test_time(cluster: Cluster, session: Session, rule: Rule) -> None:
    session.execute("CREATE TABLE t AS SELECT 1 AS id")
    good = rule()
    session.execute("SET dana.training_timeout = '300ms'; SET statement_timeout = '20s'")
    for held in (rule(on_open="hang"), rule(on_epoch="hang")):
        for statement in (
            f"SELECT dana_train('{held}', 't')",
            f"DO $$ BEGIN PERFORM dana_train('{held}', 't'); EXCEPTION WHEN query_canceled THEN RAISE; END $$",
        ):
            with pytest.raises(errors.QueryCanceled, match=r"due to dana\.training_timeout") as raised:
                session.execute(statement)
            assert raised.value.diag.message_hint
    with pytest.raises(errors.QueryCanceled, match="training_timeout"):
        session.execute("SELECT dana_train(%s, query => 'SELECT pg_sleep(60)::text::real AS id')", (rule(rows=True),))
    session.execute("SET dana.training_timeout = '2s'")
    assert session.execute("SELECT tuples FROM dana_train(%s, 't')", (good,)).fetchone() == (1,)
    session.execute("SELECT pg_sleep(2.1)")  # the clock of a training that ended says nothing


CATCHES = """
    CREATE FUNCTION catches(x int, times int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN
        FOR i IN 1 .. times LOOP
            BEGIN PERFORM pg_sleep(4); EXCEPTION WHEN query_canceled THEN NULL; END;
        END LOOP;
        RETURN x;
    END $$
"""


CATCHING = (
    "query => 'SELECT catches(id, {}) AS id FROM t'",
    "query => 'SELECT catches(id, {}) AS id FROM t LIMIT 1'",
    "query => 'SELECT catches(id, {}) AS id FROM t ORDER BY 1 LIMIT 1'",
    "source => 't', filter => 'catches(id, {}) > 0'",
    "source => 't', filter => 'catches(1, {}) > 0'",  # known before the first row
)


def test_time_that_a_function_does_not_want_to_end(cluster: Cluster, session: Session, rule: Rule) -> None:
    """It may catch a cancel, but not go on for ever. Each waits for seconds, so all do at once."""
    session.execute("CREATE TABLE t AS SELECT g AS id FROM generate_series(1, 2) AS g")
    session.execute(CATCHES)

    def ends(source: str, name: str) -> None:
        call = f"SELECT dana_train('{name}', {source})"
        with cluster.connect() as other:
            other.execute("SET search_path = test, public; SET dana.training_timeout = '300ms'")
            started = time.monotonic()
            with pytest.raises(errors.QueryCanceled, match=r"due to dana\.training_timeout"):
                other.execute(call.format(1))
            with pytest.raises(errors.AdminShutdown):
                other.execute(call.format(6))
            assert time.monotonic() - started < 30

    with ThreadPoolExecutor(len(CATCHING)) as pool:
        pending = {source: pool.submit(ends, source, rule(rows="query" in source)) for source in CATCHING}
    for source, one in pending.items():
        assert one.exception() is None, source
    assert session.execute("SELECT count(*) FROM dana.model").fetchone() == (0,)


def test_time_of_groups(session: Session, rule: Rule) -> None:
    """Each group has its time, with the reading of its rows."""
    session.execute("CREATE FUNCTION slow(x int) RETURNS int LANGUAGE sql AS 'SELECT $1 FROM pg_sleep(0.1)'")
    session.execute("SET dana.training_timeout = '2s'")
    training = "jsonb_build_object('query', %s::text)"
    call = f"SELECT count(*) FROM dana_train_groups(%s, group_by => '{{g}}', training => {training})"
    rows = "SELECT g, slow(g) AS id FROM generate_series(1, {}) AS g"
    with pytest.raises(errors.QueryCanceled, match="training_timeout"):
        session.execute(call, (rule(rows=True), rows.format(30)))  # all are read and sorted before the first
    assert session.execute(call, (rule(rows=True, delay_us=600_000), rows.format(4))).fetchone() == (4,)


NESTED = (
    "SELECT * FROM dana_train('{0}', 't')",
    "SELECT * FROM dana_train_groups('{0}', 't', '{{id}}')",
    "SELECT dana.dana_trial('{0}', 't', NULL, 'id % 2', 1, NULL)",
    "SELECT * FROM dana_explain('{0}', 't')",
    "SELECT dana_create_udf('nested', '{{}}')",
)


@pytest.mark.parametrize(
    ("outer", "inner"),
    # the groups are trained between rows: then the worker can be asked for something else
    [("dana_train", inner) for inner in NESTED] + [("dana_train_groups", inner) for inner in NESTED[:3]],
)
def test_a_training_inside_a_training(
    session: Session, rule: Rule, one_at_a_time: None, outer: str, inner: str
) -> None:
    """It is refused, and the one around it is none the worse."""
    session.execute("CREATE TABLE t AS SELECT 1 AS g, g AS id FROM generate_series(1, 1000) AS g")
    name = rule(rows=True, epochs=3)
    statement = inner.format(name).replace("'", "''")
    session.execute(
        f"""
        CREATE FUNCTION nested(x int, caught bool) RETURNS int LANGUAGE plpgsql AS $$ BEGIN
            IF x % 500 = 0 THEN EXECUTE '{statement}'; END IF;
            RETURN x;
        EXCEPTION WHEN object_in_use THEN
            IF NOT caught THEN RAISE; END IF;
            RETURN x;
        END $$
        """
    )
    query = "SELECT g, nested(id, CAUGHT) AS id FROM t"
    asked = f"query => '{query}'" if outer == "dana_train" else f"""NULL, '{{g}}', '{{"query": "{query}"}}'"""
    call = f"SELECT tuples, epochs FROM {outer}('{name}', {asked})"
    with pytest.raises(errors.ObjectInUse, match=r"while this session (is training|waits)") as raised:
        session.execute(call.replace("CAUGHT", "false"))
    assert raised.value.diag.message_detail
    for _ in range(2):
        assert session.execute(call.replace("CAUGHT", "true")).fetchone() == (1000, 3)
        assert session.execute("SELECT FROM pg_locks WHERE locktype = 'object'").rowcount == 0
    assert session.execute("SELECT FROM dana.progress").rowcount == 0
    run = session.execute("SELECT id FROM dana.run").fetchall()
    assert session.execute("SELECT count(*) FROM dana.epoch").fetchone() == (3 * len(run),)
    assert len(run) == 2


def test_a_client_that_is_gone(cluster: Cluster, session: Session, rule: Rule) -> None:
    session.execute("CREATE TABLE t AS SELECT g AS id FROM generate_series(1, 1000) AS g")
    name = rule(delay_us=20_000, epochs=10_000)
    sessions = len(cluster.sessions())
    program = f"import psycopg; psycopg.connect({cluster.dsn()!r}).execute(\"SELECT dana_train('{name}', 'test.t')\")"
    with subprocess.Popen([sys.executable, "-c", program]) as client:
        wait_for_phase(session, "training")
        row = session.execute("SELECT pid FROM dana.progress").fetchone()
        client.kill()
    deadline = time.monotonic() + 20
    while session.execute("SELECT FROM pg_stat_activity WHERE pid = %s", row).rowcount > 0:
        if time.monotonic() > deadline:
            session.execute("SELECT pg_terminate_backend(%s)", row)  # or its table is not ours for minutes
            pytest.fail("it trains on")
        time.sleep(0.05)
    cluster.until_sessions(sessions)
    assert session.execute("SELECT count(*) FROM dana.model").fetchone() == (0,)
    with pytest.raises(errors.InvalidParameterValue):
        session.execute("SELECT dana_train(%s, 't', epochs => 0)", (name,))
    session.execute("SELECT dana_train(%s, 't', epochs => 1)", (name,))
    assert session.execute("SHOW client_connection_check_interval").fetchone() == ("0",)


def test_machines(session: Session, rule: Rule) -> None:
    session.execute("CREATE TABLE t AS SELECT 1 AS id")
    name = rule(rows=True)
    session.execute("SET dana.machines = 'sim,interp'")
    for call in (
        "dana_train(%s, 't', machine => '{}')",
        """dana_train_groups(%s, 't', '{{id}}', '{{"machine": "{}"}}')""",
    ):
        with pytest.raises(errors.InsufficientPrivilege, match='permission denied for machine "rtl"') as raised:
            session.execute("SELECT * FROM " + call.format("rtl"), (name,))
        assert raised.value.diag.message_detail == "Allowed are: sim,interp."
        assert session.execute("SELECT * FROM " + call.format("interp"), (name,)).rowcount == 1
    session.execute("RESET dana.machines")
    assert session.execute("SHOW dana.machines").fetchone() == (", ".join(MACHINES),)
    with pytest.raises(errors.InvalidParameterValue) as invalid:
        session.execute("SET dana.machines = 'sim, fpga'")
    assert "fpga" in str(invalid.value.diag.message_detail)
    session.execute("SET dana.machines = ''")
    with pytest.raises(errors.InsufficientPrivilege) as raised:
        session.execute("SELECT dana_train(%s, 't')", (name,))
    assert raised.value.diag.message_detail == "No machine is allowed."


def test_a_users_cancel_is_a_users_cancel(cluster: Cluster, session: Session, rule: Rule) -> None:
    session.execute("CREATE TABLE t AS SELECT 1 AS id")
    session.execute("SET dana.training_timeout = '60s'; SET statement_timeout = '300ms'")
    with pytest.raises(errors.QueryCanceled, match="statement timeout"):
        session.execute("SELECT dana_train(%s, 't')", (rule(on_epoch="hang"),))


def test_memory(session: Session, rule: Rule) -> None:
    session.execute("CREATE TABLE t AS SELECT 1 AS id")
    greedy = rule(allocate_mb=600)
    assert session.execute("SELECT tuples FROM dana_train(%s, 't')", (greedy,)).fetchone() == (1,)
    session.execute("SET dana.max_memory = '500MB'")
    with pytest.raises(errors.OutOfMemory) as raised:
        session.execute("SELECT dana_train(%s, 't')", (greedy,))
    assert "dana.max_memory" in (raised.value.diag.message_hint or "")
    session.execute("SET dana.max_memory = '64MB'")
    with pytest.raises(errors.OutOfMemory, match=r"dana\.max_memory of 64 MB is less than the \d+ MB that a session"):
        session.execute("SELECT dana_train(%s, 't')", (greedy,))
    session.execute("RESET dana.max_memory")
    assert session.execute("SELECT tuples FROM dana_train(%s, 't')", (greedy,)).fetchone() == (1,)


def test_sessions_of_the_worker(cluster: Cluster, session: Session, rule: Rule) -> None:
    """One more than there may be takes the place of one that idles, and its backend notices nothing."""
    session.execute("CREATE TABLE t AS SELECT 1 AS id")
    good = rule()
    cluster.stop_worker()
    cluster.start_worker(max_sessions=2)
    try:
        first, second, third = (cluster.connect(options=BOUNDED) for _ in range(3))
        with first, second, third:
            for own in (first, second, third, first, second, third):
                assert own.execute("SELECT tuples FROM dana_train(%s, 'test.t')", (good,)).fetchone() == (1,)
                assert len(cluster.sessions()) <= 2
    finally:
        cluster.stop_worker()
        cluster.start_worker()


def test_settings_are_documented(session: Session) -> None:
    """Those of the server, with their defaults, are those of the table in docs/operating.md."""
    text = (CHECKOUT / "docs" / "operating.md").read_text(encoding="utf-8")
    documented = dict(re.findall(r"^\| `(dana\.\w+)` \| ([^|]+) \|", text, re.MULTILINE))
    session.execute("LOAD 'dana'")
    found = session.execute("SELECT name, boot_val FROM pg_settings WHERE name ~ '^dana'").fetchall()
    assert {name: value.strip("`").replace("empty", "") for name, value in documented.items()} == {
        name: "$PGDATA/dana/worker.sock" if name == "dana.socket_path" else value for name, value in found
    }


def test_limits_are_not_the_users(cluster: Cluster, session: Session) -> None:
    session.execute("CREATE ROLE limited LOGIN")
    try:
        with cluster.connect("limited") as user:
            user.execute("SELECT dana_holdout(1, 0.5)")  # loads the library
            settings = user.execute(
                "SELECT name FROM pg_settings WHERE name ~ '^dana'"
                " AND name NOT IN ('dana.device', 'dana.notices', 'dana.shard_timeout')"
            )
            names = [name for (name,) in settings.fetchall()]
            for setting in names:
                with pytest.raises((errors.InsufficientPrivilege, errors.CantChangeRuntimeParam)):
                    user.execute(f"SET {setting} TO DEFAULT")
        for setting in names:  # until the library is loaded, PostgreSQL takes anything
            with cluster.connect("limited", options=f"-c {setting}=1") as user:
                with pytest.raises(errors.InsufficientPrivilege, match=setting):
                    user.execute("SELECT dana_holdout(1, 0.5)")
                assert user.closed
        with cluster.connect("limited", options="-c dana.notices=none") as user:
            assert user.execute("SELECT dana_holdout(1, 0.5), current_setting('dana.notices')").fetchone() == (
                True, "none",
            )  # fmt: skip
        with cluster.connect(options="-c dana.max_epochs=7") as superuser:
            superuser.execute("LOAD 'dana'")
            assert superuser.execute("SHOW dana.max_epochs").fetchone() == ("7",)
    finally:
        session.execute("DROP ROLE limited")
