"""Classes that some of a table's pages speak for, before all of them are read: what the others hold decides."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from dana import rules
from dana.server.embedded import EmbeddedServer
from tests.postgres.workshop import until
from tests.sql.conftest import Session

errors = psycopg.errors
ROWS = 1600
BETWEEN = "'(3,1)'"
"""A row of a page that is in no sample of 16 evenly spaced ones: of these the first is page 0, the second page 12."""

pytestmark = pytest.mark.usefixtures("new_backend")  # `begun_in_vain` counts what a backend did


@pytest.fixture
def table(session: Session) -> Iterator[Session]:
    """A table of 200 pages, of whose labels every third is 1 and every other one 0."""
    for name in ("logistic", "softmax"):
        session.execute("SELECT dana_create_udf(%s, %s)", (name, rules.text(name)))
    session.execute("CREATE TABLE t (a real, b real, y real, pad text)")
    session.execute("ALTER TABLE t ALTER pad SET STORAGE PLAIN")
    session.execute(
        f"INSERT INTO t SELECT sin(i), cos(i * 3), (i % 3 = 0)::int, repeat('x', 900) FROM generate_series(1, {ROWS}) i"
    )
    session.execute("VACUUM t")
    yield session
    for name in ("logistic", "softmax"):
        session.execute("SELECT dana_drop_rule(%s)", (name,))


def one(session: Session, query: str) -> Any:
    row = session.execute(query).fetchone()
    assert row is not None
    return row[0]


def trained(session: Session, rule: str = "logistic", source: str = "'t'", more: str = "") -> tuple[list[float], Any]:
    """Values of the model, and its classes."""
    session.execute(f"SELECT dana_train('{rule}', {source}, model => 'm', features => '{{a,b}}', label => 'y'{more})")
    last = session.execute(
        "SELECT weights, metadata FROM dana.model WHERE name = 'm' ORDER BY version DESC LIMIT 1"
    ).fetchone()
    assert last is not None
    return last[0], last[1]["classes"]


def begun_in_vain(session: Session, server: EmbeddedServer) -> int:
    """Trainings of this session that the worker was let down in."""
    begun = f"run backend={one(session, 'SELECT pg_backend_pid()')} "
    lines = server.worker_log.read_text().splitlines()
    return sum(begun in line and 'outcome="abandoned"' in line for line in lines)


QUERY = "query => 'SELECT a, b, y FROM t'"


def test_labels_as_they_seem(table: Session, server: EmbeddedServer) -> None:
    weights, classes = trained(table)
    assert classes == ["0", "1"]
    assert weights == trained(table, source=QUERY)[0]
    one_left = "DELETE FROM t WHERE y = 1 AND ctid <> (SELECT ctid FROM t WHERE y = 1 AND ctid > '(3,1)' LIMIT 1)"
    for change in ("DELETE FROM t WHERE a < 0.5", one_left, "UPDATE t SET y = 'NaN' WHERE y = 0 AND b > 0.5"):
        table.execute(change)
        assert trained(table) == (trained(table, source=QUERY)[0], ["0", "1"])
    assert begun_in_vain(table, server) == 0


@pytest.mark.parametrize("kind", ["boolean", "smallint", "bigint", "double precision"])
def test_types(table: Session, server: EmbeddedServer, kind: str) -> None:
    table.execute(f"ALTER TABLE t ALTER y TYPE {kind} USING y::int::{kind}")
    expected = ["false", "true"] if kind == "boolean" else ["0", "1"]
    assert trained(table) == (trained(table, source=QUERY)[0], expected)
    assert begun_in_vain(table, server) == 0


@pytest.mark.parametrize(
    ("kind", "more"),
    [("real", ""), ("real", ", filter => 'a < 2'"), ("numeric", ", hyper => '{\"k\": 3}'")],
)
def test_a_class_that_no_sample_has(table: Session, server: EmbeddedServer, kind: str, more: str) -> None:
    """Of pages as they are, filtered ones, and those of which frames are made for a column that no Strider reads."""
    table.execute(f"ALTER TABLE t ALTER a TYPE {kind}")
    table.execute("VACUUM FULL t")
    table.execute(f"UPDATE t SET y = 2 WHERE ctid = {BETWEEN}")
    table.execute("UPDATE t SET y = 2 WHERE ctid > '(192,0)' AND y = 1")
    weights, classes = trained(table, "softmax", more=more)
    assert classes == ["0", "1", "2"]
    # the session that was let down writes its line while another one trains
    until(lambda: begun_in_vain(table, server) == 1, "a training is begun in vain")
    assert weights == trained(table, "softmax", QUERY)[0]


def test_a_filter_that_leaves_out_what_is_odd(table: Session, server: EmbeddedServer) -> None:
    table.execute("UPDATE t SET y = 7 WHERE a > 0.9")
    expected = trained(table, source="query => 'SELECT a, b, y FROM t WHERE y < 2'")[0]
    assert trained(table, more=", filter => 'y < 2'") == (expected, ["0", "1"])
    assert begun_in_vain(table, server) == 0


def told_of(session: Session, call: str) -> tuple[list[str], list[str]]:
    """Notices, and the error's words without the place of a row."""
    heard: list[str] = []
    session.execute("SET client_min_messages = notice")

    def hear(said: psycopg.errors.Diagnostic) -> None:
        heard.append(f"{said.severity} {said.message_primary}\n{said.message_hint}")

    session.add_notice_handler(hear)
    try:
        session.execute(call)
    except errors.Error as error:
        said = error.diag
        detail = re.sub(r"is \(\d+,\d+\)", "is there", said.message_detail or "")
        return heard, [str(said.message_primary), detail, str(said.message_hint)]
    finally:
        session.remove_notice_handler(hear)
    return heard, []


ODD = {
    "another number": ("logistic", f"UPDATE t SET y = 7 WHERE ctid = {BETWEEN}"),
    "no whole number": ("logistic", f"UPDATE t SET y = 0.5 WHERE ctid = {BETWEEN}"),
    "whole as binary32 alone": ("logistic", f"UPDATE t SET y = 1.0000000001 WHERE ctid = {BETWEEN}"),
    "one below": ("logistic", f"UPDATE t SET y = -1 WHERE ctid = {BETWEEN}"),
    "in a row that is skipped": ("logistic", f"UPDATE t SET y = 7, a = NULL WHERE ctid = {BETWEEN}"),
    "nothing but zeros": ("logistic", "UPDATE t SET y = 0"),
    "a class that nothing is of": ("softmax", "UPDATE t SET y = 5 WHERE y = 1 AND ctid > '(3,1)' AND ctid < '(4,9)'"),
    "more numbers": (
        "softmax",
        "UPDATE t SET y = i FROM generate_series(2, 6) i WHERE ctid = ('(3,' || i || ')')::tid",
    ),
    "a zero below zero": ("softmax", f"UPDATE t SET y = '-0' WHERE ctid = {BETWEEN}"),
}


@pytest.mark.parametrize("odd", ODD)
def test_what_is_told(table: Session, odd: str) -> None:
    """The same as of a table of the same rows that is so small that all labels are looked at first; and once."""
    rule, change = ODD[odd]
    table.execute("ALTER TABLE t ALTER y TYPE double precision")
    table.execute("VACUUM FULL t")
    table.execute(change)
    table.execute("CREATE TABLE u AS SELECT a, b, y FROM t")
    assert one(table, "SELECT pg_relation_size('u') < 64 * 8192")
    call = f"SELECT dana_train('{rule}', '{{}}', model => 'm', features => '{{{{a,b}}}}', label => 'y')"
    heard, error = told_of(table, call.format("t"))
    assert bool(error) == (rule == "logistic")
    others, expected = told_of(table, call.format("u"))
    assert [text.replace("test.t", "test.u") for text in heard] == others
    assert [text.replace("test.t", "test.u") for text in error] == expected
    if not error:
        given = "SELECT weights, metadata -> 'classes' FROM dana.model WHERE name = 'm' ORDER BY version DESC LIMIT 2"
        ours, theirs = table.execute(given).fetchall()
        assert ours == theirs
