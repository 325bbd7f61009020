"""Sessions on real servers with the real worker, one schema for each test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from dana.server.embedded import EmbeddedServer

Session = psycopg.Connection[Any]


SUMS = """
import dana
n = dana.dim()
w = dana.model([n])
x = dana.input([n])
y = dana.output()
sums = dana.algo(w, x, y)
total = sums.merge(x * (y + 1), 16, "+")
sums.setModel(w / 2 + total)
sums.setLoss(y)
sums.setPrediction(dana.sigma(w * x, 1))
sums.setEpochs(2)
"""
"""A rule whose model tells every row and their order apart: older batches weigh less."""


@pytest.fixture(scope="session")
def connections() -> Iterator[dict[str, Session]]:
    """A session on each server that the tests share, one after the other; a worker's process serves it as long."""
    made: dict[str, Session] = {}
    yield made
    for session in made.values():
        session.close()


def connected(connections: dict[str, Session], dsn: str) -> Session:
    """The shared session on a server, or a new one where a test ended it."""
    if dsn not in connections or connections[dsn].closed:
        # DISCARD ALL would forget statements that psycopg has prepared
        connections[dsn] = psycopg.connect(dsn, autocommit=True, prepare_threshold=None)
    return connections[dsn]


@pytest.fixture
def new_backend(connections: dict[str, Session]) -> None:
    """Have `session` be a new one: for `usefixtures`, which come first."""
    for session in connections.values():
        session.close()


@pytest.fixture
def session(server: EmbeddedServer, connections: dict[str, Session]) -> Iterator[Session]:
    """A superuser's session in autocommit mode, with an empty schema first in its search_path and the rule `sums`.

    It is like a new one: settings, temporary tables, prepared statements and handlers of earlier tests are gone.
    """
    session = connected(connections, server.dsn)
    session.execute("SET client_min_messages = warning")
    session.execute("DROP SCHEMA IF EXISTS test CASCADE")
    session.execute("CREATE SCHEMA test")
    session.execute("SET search_path = test, public")
    # once for the server: a worker's process for it takes longer than all else here
    known = "SELECT FROM dana.rule WHERE (name, text, public, users) = ('sums', %s, true, '{}') "
    if session.execute(known + "AND owner = current_user::regrole", (SUMS,)).rowcount == 0:
        session.execute("SELECT dana_create_udf('sums', %s)", (SUMS,))
    yield session
    session._notice_handlers.clear()
    session = connected(connections, server.dsn)
    session.rollback()
    session.execute("DISCARD ALL")
    session.execute("SET client_min_messages = warning")
    session.execute("DROP SCHEMA test CASCADE")
    session.execute("DELETE FROM dana.model; DELETE FROM dana.job_log")


def weights(session: Session, call: str) -> tuple[list[float], int, int]:
    """Train with ``dana_train('sums', call)``: the model's values, rows trained on and rows skipped."""
    row = session.execute(f"SELECT model, version, tuples, skipped FROM dana_train('sums', {call})").fetchone()
    assert row is not None
    values = session.execute('SELECT "values" FROM dana_parameters(%s, %s)', row[:2]).fetchone()
    assert values is not None
    return values[0], row[2], row[3]


PEOPLE = """
CREATE TYPE tier AS ENUM ('gold', 'silver', 'bronze');
CREATE DOMAIN place AS varchar(20);
CREATE DOMAIN short AS char(4);
CREATE TABLE people (
    id int PRIMARY KEY, name text, town place, code short, tag name, level tier, member boolean, born date,
    seen timestamp, at timestamptz, age int, y real);
INSERT INTO people SELECT i, 'person ' || i, (ARRAY['Köln', '', 'O''Hara "x"', 'Bonn'])[i % 4 + 1],
    (ARRAY['a', 'b  '])[i % 2 + 1], (ARRAY['p', 'q', 'r'])[i % 3 + 1],
    (ARRAY['gold', 'silver', 'bronze']::tier[])[i % 3 + 1],
    i % 5 = 0, date '1999-12-30' + i % 9, timestamp '1999-12-31 22:00' + i * interval '1 hour',
    timestamptz '1999-12-31 22:00Z' + i * interval '25 hours', i % 13, i % 7
FROM generate_series(1, 120) AS i
"""


@pytest.fixture
def people(session: Session) -> Session:
    """A table of every kind of column, `people`."""
    session.execute(PEOPLE)
    return session


ROLES = ("ana", "bob", '"Bob"', '"a.b"', '"ana@example.com"', "helper")
"""`helper` is a member of `ana`."""


@pytest.fixture
def owners(session: Session) -> Iterator[Session]:
    """Roles that may train, and tables t1, t2 … of which a model predicts that number for a feature of 1."""
    drop(session)
    for role in ROLES:
        session.execute(f"CREATE ROLE {role} LOGIN")  # jobs connect as it
        session.execute(f"GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA public TO {role}")
        session.execute(f"GRANT ALL ON SCHEMA test TO {role}")
    session.execute("GRANT ana TO helper")
    for value in range(1, 10):
        session.execute(f"CREATE TABLE t{value} AS SELECT {value}::real AS x, 0::real AS y")
    session.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA test TO {', '.join(ROLES)}")
    yield session
    drop(session)


def drop(session: Session) -> None:
    session.execute("RESET ROLE")
    for role in ROLES:
        if session.execute("SELECT to_regrole(%s)", (role,)).fetchone() != (None,):
            session.execute(f"DROP OWNED BY {role} CASCADE; DROP ROLE {role}")


@contextmanager
def acting(session: Session, role: str) -> Iterator[Session]:
    session.execute(f"SET ROLE {role}")
    try:
        yield session
    finally:
        session.execute("RESET ROLE")


@contextmanager
def new_role(session: Session, name: str) -> Iterator[None]:
    """A role that may use schema test; the session's own role is set again when it goes."""
    session.execute(f"DROP ROLE IF EXISTS {name}; CREATE ROLE {name}; GRANT USAGE ON SCHEMA test TO {name}")
    try:
        yield
    finally:
        session.execute(f"RESET ROLE; DROP OWNED BY {name}; DROP ROLE {name}")
