"""A date or a time is read in the units of the training's column, whatever type it is given as, or refused."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from tests.sql.conftest import Session
from tests.sql.test_classes import SOFT

errors = psycopg.errors

TWO = """
import dana
w = dana.model([1])
d = dana.input()
t = dana.input()
y = dana.output()
two = dana.algo(w, [d, t], y)
two.setModel(w + two.merge(w * 0 + y, 16, "+"))
two.setPrediction(d * 1000000 + t)
two.setEpochs(1)
"""

LABEL = """
import dana
n = dana.dim()
w = dana.model([n])
x = dana.input([n])
y = dana.output()
day = dana.algo(w, x, y)
day.setModel(w + day.merge(w * 0, 16, "+"))
day.setPrediction(dana.sigma(x, 1))
day.setEpochs(1)
"""


@pytest.fixture
def table(session: Session) -> Session:
    session.execute("SET TimeZone = 'UTC'")
    session.execute("SELECT dana_create_udf('two', %s), dana_create_udf('day', %s)", (TWO, LABEL))
    session.execute(
        "CREATE TABLE t AS SELECT i AS id, date '2000-01-01' + i AS d, time '00:00' + i * interval '1 second' AS t,"
        " i::real AS n, (i % 3)::real AS y FROM generate_series(1, 100) i"
    )
    return session


def trained(session: Session, rule: str, features: str, label: str, more: str = "") -> None:
    session.execute(f"SELECT dana_train('{rule}', 't', '{rule}', '{features}', '{label}' {more})")


def one(session: Session, query: str) -> Any:
    row = session.execute(query).fetchone()
    assert row is not None
    return row[0]


ENCODED = """, preprocess => '{"d": {"encode": "none"}}'"""
GIVEN = ["date '2000-01-11'", "timestamp '2000-01-11 10:00'", "timestamptz '2000-01-11 10:00Z'", "'2000-01-11'"]


@pytest.mark.parametrize("given", GIVEN)
def test_a_prediction(table: Session, given: str) -> None:
    trained(table, "day", "{d}", "y", ENCODED)
    trained(table, "two", "{d,t}", "y")
    assert one(table, f"SELECT dana_predict('day', {given})") == 10
    assert one(table, f"SELECT dana_predict('two', {given}, '00:00:05')") == 10_000_005
    types = one(table, "SELECT metadata -> 'types' FROM dana.model WHERE name = 'two'")
    assert types == {"d": "date", "t": "time", "y": "real"}


def test_an_enum_that_is_named_as_a_date(session: Session) -> None:
    session.execute("CREATE TYPE date AS ENUM ('early', 'late'); SET search_path = test, pg_catalog, public")
    session.execute(
        "CREATE TABLE u AS SELECT (ARRAY['early', 'late']::test.date[])[1 + i % 2] AS c, (i % 2)::real AS y"
        " FROM generate_series(1, 100) AS i"
    )
    session.execute("SELECT dana_train('sums', 'u', 'm', '{c}', 'y')")
    assert one(session, "SELECT metadata -> 'types' FROM dana.model WHERE name = 'm'") == {"c": "enum", "y": "real"}
    early, late = (f"dana_predict('m', '{value}'::test.date)" for value in ("early", "late"))
    assert one(session, f"SELECT {early} <> {late}")


def test_a_row(table: Session) -> None:
    trained(table, "two", "{d,t}", "y")
    predicted = "SELECT dana_predict('two', r) FROM (SELECT timestamp '2000-01-11 10:00' AS d, {}::timetz AS t) r"
    assert one(table, predicted.format("'00:00:05Z'")) == 10_000_005
    assert one(table, predicted.format("NULL")) is None


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("dana_predict('two', time '10:00', time '10:00')", r"not date as in the training \(column \"d\"\)"),
        ("dana_predict('two', date '2000-01-01', timestamp '2000-01-01 10:00')", r"not time .* \(column \"t\"\)"),
        ("dana_predict('two', r) FROM (SELECT now() AS d, now() AS t) r", 'column "t" has type timestamp with'),
        ("dana_predict('two', ARRAY[now(), now()])", r"timestamp with time zone\[\], which is not"),
        ("dana_evaluate('two', query => 'SELECT d, d AS t, y FROM t')", "has type date, which is not time"),
        ("dana_evaluate('day', query => 'SELECT n, t AS d FROM t')", 'column "d" has type time .* not date'),
        ("dana_drift('day', 'other')", 'column "d" has type time .* not date'),
        ("dana_train('day', 'other', features => '{n}', label => 'd', warm_start_from => 'day')", "which is not date"),
        ("dana_train('day', 'later', features => '{n}', label => 'd', warm_start_from => 'day')", "another than when"),
    ],
)  # fmt: skip
def test_what_has_no_such_units(table: Session, call: str, message: str) -> None:
    trained(table, "two", "{d,t}", "y")
    trained(table, "day", "{n}", "d")
    table.execute("SELECT dana_profile('day')")
    table.execute("CREATE VIEW other AS SELECT n, t AS d FROM t; CREATE VIEW later AS SELECT n, d::timestamp FROM t")
    with pytest.raises(errors.DatatypeMismatch, match=message):
        table.execute(f"SELECT {call}")


@pytest.mark.parametrize("kind", ["date", "timestamp", "timestamptz"])
def test_a_label_and_a_profile(table: Session, kind: str) -> None:
    trained(table, "day", "{n}", "d")
    table.execute(f"CREATE VIEW other AS SELECT n, d::{kind} AS d FROM t")
    found = one(table, "SELECT dana_evaluate('day', 'other')")
    assert (found["mae"], found["rows"]) == (0, 100)
    table.execute("SELECT dana_profile('day')")
    assert table.execute("SELECT max(psi) FROM dana_drift('day', 'other')").fetchall() == [(0,)]


@pytest.mark.parametrize("kind", ["timestamp", "timestamptz"])
def test_parts_of_a_date_have_the_profile_of_its_column(table: Session, kind: str) -> None:
    trained(table, "day", "{d}", "y")
    table.execute(f"SELECT dana_profile('day'); CREATE VIEW other AS SELECT d::{kind} AS d, y FROM t")
    assert table.execute("SELECT max(psi) FROM dana_drift('day', 'other')").fetchall() == [(0,)]


def test_a_literal_has_the_time_zone_of_the_column(table: Session) -> None:
    table.execute("CREATE VIEW v AS SELECT timestamptz '2000-01-01Z' + i * interval '1 hour' AS d, 1::real AS y"
                  " FROM generate_series(1, 50) i")  # fmt: skip
    table.execute("""SELECT dana_train('day', 'v', 'day', '{d}', 'y', preprocess => '{"d": {"encode": ["hour"]}}')""")
    assert one(table, "SELECT dana_predict('day', '2000-01-01 10:00+02')") == 8


def test_classes(table: Session) -> None:
    table.execute("SELECT dana_create_udf('soft', %s)", (SOFT,))
    table.execute("CREATE TABLE c AS SELECT n, date '2000-01-01' + id % 3 AS d FROM t")
    table.execute("SELECT dana_train('soft', 'c', 'soft', '{n}', 'd')")
    whole = one(table, "SELECT dana_evaluate('soft')")
    assert one(table, "SELECT dana_evaluate('soft', query => 'SELECT n, d::timestamp FROM c')") == whole


@pytest.mark.parametrize("kind", ["date", "timestamp", "timestamptz"])
def test_parts_are_those_of_the_columns_type(table: Session, kind: str) -> None:
    """A moment is a day, and a day a moment, in the session's time zone, as of a literal."""
    table.execute(f"CREATE TABLE u AS SELECT d::{kind} + interval '13 hours' AS d, y FROM t")
    table.execute(f"ALTER TABLE u ALTER d TYPE {kind}")
    table.execute("SELECT dana_train('day', 'u', 'day', '{d}', 'y')")
    assert one(table, "SELECT metadata #> '{preprocess,0,encode}' FROM dana.model")[:2] == ["year", "month"]
    table.execute("SET TimeZone = 'Asia/Tokyo'")
    for other in ("date", "timestamp", "timestamptz"):
        same = f"dana_predict('day', d::{other}) = dana_predict('day', d::{other}::{kind})"
        assert one(table, f"SELECT bool_and({same}) FROM u") is True, other
        rows = f"SELECT dana_predict('day', r) FROM (SELECT d::{other} FROM u) AS r"
        assert table.execute(rows).fetchall() == table.execute(rows.replace(other, f"{other}::{kind}")).fetchall()
    assert one(
        table, "SELECT dana_predict('day', '2000-02-29 01:00') = dana_predict('day', timestamp '2000-02-29 01:00')"
    )
    other = "date" if kind == "timestamptz" else "timestamptz"
    with pytest.raises(errors.DatatypeMismatch, match="another than when"):
        table.execute(
            f"SELECT dana_train('day', query => 'SELECT d::{other}, y FROM u', label => 'y', warm_start_from => 'day')"
        )
