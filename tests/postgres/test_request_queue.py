"""The queue for the worker: fair shares of roles, and the order within. What is counted is who was let in, not when."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from tests.postgres.cluster import Cluster
from tests.postgres.conftest import Session

errors = psycopg.errors
Rule = Callable[..., str]

LOCKS = "SELECT count(*) FROM pg_locks WHERE locktype = 'object' AND classid = 1145130561 AND database <> 0 AND "
PLACES = LOCKS + "objsubid > 0"
WAITING = LOCKS + "objsubid < 0"


class Office:
    """Sessions of roles that train, each in a thread of its own."""

    def __init__(self, cluster: Cluster, session: Session) -> None:
        self.cluster = cluster
        self.session = session
        self.pool = ThreadPoolExecutor(16)
        self.opened: list[Session] = []

    def train(self, role: str, rule: str, model: str = "m") -> tuple[Session, Future[Any]]:
        own = self.cluster.connect(role, options="-c statement_timeout=60s")
        self.opened.append(own)
        statement = "SELECT tuples FROM dana_train(%s, 'test.t', %s)"
        return own, self.pool.submit(lambda: own.execute(statement, (rule, model)).fetchone())

    def until(self, statement: str, count: int) -> None:
        deadline = time.monotonic() + 30
        while self.session.execute(statement).fetchone() != (count,):
            assert time.monotonic() < deadline, f"not {count}: {statement}"
            time.sleep(0.01)

    def wait(self, role: str, rule: str, model: str, ahead: int = 0) -> Future[Any]:
        """A training that joins those that wait."""
        _, future = self.train(role, rule, model)
        self.until(WAITING, ahead + 1)
        return future

    def cancel(self, own: Session) -> None:
        self.session.execute("SELECT pg_cancel_backend(%s)", (own.info.backend_pid,))

    def order(self) -> list[str]:
        return [
            model
            for (model,) in self.session.execute(
                "SELECT model FROM dana.run ORDER BY started + wall_seconds * interval '1 s'"
            )
        ]

    def close(self) -> None:
        for own in self.opened:
            self.cancel(own)
        self.pool.shutdown()
        while self.opened:
            self.opened.pop().close()


@pytest.fixture
def office(cluster: Cluster, session: Session) -> Iterator[Office]:
    roles = "ann", "bob", "carol"
    session.execute(
        "CREATE TABLE t AS SELECT 1 AS id; GRANT USAGE ON SCHEMA test TO PUBLIC; GRANT SELECT ON t TO PUBLIC"
    )
    for role in roles:
        session.execute(f"CREATE ROLE {role} LOGIN; GRANT EXECUTE ON FUNCTION dana_train, dana_create_udf TO {role}")
    made = Office(cluster, session)
    yield made
    made.close()
    session.execute("DROP OWNED BY ann, bob, carol CASCADE; DROP ROLE ann, bob, carol")


@pytest.fixture
def four_places(cluster: Cluster, office: Office) -> Iterator[None]:
    cluster.stop_worker()
    cluster.start_worker(max_sessions=4)
    yield
    office.close()
    cluster.stop_worker()
    cluster.start_worker()


def shared(session: Session, rule: Rule, **fields: Any) -> str:
    name = rule(**fields)
    session.execute("SELECT dana_grant_rule(%s, NULL)", (name,))
    return name


def test_one_role_does_not_fill_all_places(office: Office, session: Session, rule: Rule, four_places: None) -> None:
    """Nor does a second one keep a third out: who has nothing comes first, once a place is free."""
    held, good = shared(session, rule, on_epoch="hang"), shared(session, rule)
    greedy = [office.train("ann", held) for _ in range(6)]
    office.until(PLACES, 3)
    office.until(WAITING, 3)
    for _ in range(3):
        assert office.train("bob", good)[1].result(30) == (1,)
    bob, _ = office.train("bob", held)
    office.until(PLACES, 4)
    more = office.wait("bob", good, "more", 3)
    carol = office.wait("carol", good, "first", 4)
    running = {pid for (pid,) in session.execute("SELECT pid FROM dana.progress WHERE phase = 'training'")}
    office.cancel(next(own for own, _ in greedy if own.info.backend_pid in running))
    assert carol.result(30) == (1,), "the first place that is given back is hers, though others came earlier"
    assert not more.done() or office.order().index("more") > office.order().index("first")
    office.cancel(bob)
    assert more.result(30) == (1,)


def test_requests_that_train_nothing_wait_as_well(
    office: Office, session: Session, rule: Rule, four_places: None
) -> None:
    held = shared(session, rule, on_epoch="hang")
    for _ in range(4):
        office.train("ann", held)
    office.until(PLACES, 3)
    with office.cluster.connect("bob") as bob, office.cluster.connect("ann") as ann:
        bob.execute("SELECT dana_create_udf('his', '{}')")
        ann.execute("SET lock_timeout = '50ms'")
        with pytest.raises(errors.LockNotAvailable):
            ann.execute("SELECT dana_create_udf('hers', '{}')")


@pytest.fixture
def one_place(cluster: Cluster, session: Session, office: Office) -> Iterator[None]:
    cluster.configure(session, "dana.max_runs = 1")
    yield
    office.close()
    cluster.configure(session)


def history(session: Session, rule: str, seconds: float) -> None:
    """A run of a rule on the table: what the next one is predicted to take."""
    session.execute(
        "WITH r AS (INSERT INTO dana.run (owner, model, model_version, rule, source, machine, started, wall_seconds, "
        "epochs, kept, converged, tuples, skipped, pages, design) SELECT oid, 'm', 1, %s, 'test.t', 'sim', now(), "
        "0, 1, 1, false, 1, 0, 1, '{}' FROM pg_roles WHERE rolname = 'ann' RETURNING id) "
        "INSERT INTO dana.epoch (run, epoch, tuples, skipped, seconds, counters) SELECT id, 1, 1, 0, %s, '{}' FROM r",
        (rule, seconds),
    )


def test_the_shortest_first(office: Office, session: Session, rule: Rule, one_place: None) -> None:
    held, short, long = (shared(session, rule, **fields) for fields in ({"on_epoch": "hang"}, {}, {}))
    history(session, short, 0.01)
    history(session, long, 1000.0)
    first, _ = office.train("ann", held)
    office.until(PLACES, 1)
    waiting = [office.wait("ann", *named, ahead) for ahead, named in enumerate([(long, "long"), (held, "unknown")])]
    waiting += [office.wait("ann", short, f"short{k}", 2 + k) for k in range(3)]
    office.cancel(first)
    assert [one.result(30) for one in waiting[2:]] == [(1,)] * 3
    assert not waiting[0].done()
    assert office.order()[-3:] == ["short0", "short1", "short2"]
    office.until(PLACES, 1)


def test_a_long_one_is_not_starved(office: Office, session: Session, rule: Rule, one_place: None) -> None:
    """Whatever comes later than it is long comes after it, however short."""
    held, short, long = (shared(session, rule, **fields) for fields in ({"on_epoch": "hang"}, {}, {}))
    history(session, short, 0.001)
    history(session, long, 0.2)
    first, _ = office.train("ann", held)
    office.until(PLACES, 1)
    waiting = [office.wait("ann", long, "long")]
    time.sleep(0.3)
    waiting += [office.wait("ann", short, f"short{k}", 1 + k) for k in range(4)]
    office.cancel(first)
    assert [one.result(30) for one in waiting] == [(1,)] * 5
    assert office.order()[-5] == "long"


@pytest.mark.parametrize("how", ["pg_cancel_backend", "pg_terminate_backend"])
def test_a_place_comes_back_however_its_training_ends(
    office: Office, session: Session, rule: Rule, one_place: None, how: str
) -> None:
    held, good = shared(session, rule, on_epoch="hang"), shared(session, rule)
    for _ in range(3):
        own, future = office.train("ann", held)
        office.until(PLACES, 1)
        waiting = office.wait("bob", good, "m")
        session.execute(f"SELECT {how}(%s)", (own.info.backend_pid,))
        assert waiting.result(30) == (1,)
        assert isinstance(future.exception(30), psycopg.Error)
    office.until(PLACES, 0)
    office.until(WAITING, 0)
