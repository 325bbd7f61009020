"""Texts that are kept (classes of a label, keys of groups) are the same in every session, and what they choose."""

from __future__ import annotations

import psycopg
import pytest

from dana import rules
from tests.sql.conftest import Session

errors = psycopg.errors

SESSIONS = ("'SQL, DMY', 'Asia/Tokyo'", "'SQL, MDY', 'America/New_York'", "'German', 'UTC'", "'Postgres, YMD', 'UTC'")
LABELS = {
    "date": ("2024-02-01", "2024-01-02", "0044-03-15 BC", "-infinity"),
    "timestamp": ("2024-02-01 00:00:00", "2024-01-02 12:34:56.789", "0044-03-15 00:00:01 BC", "infinity"),
    "timestamptz": ("2024-02-01 00:00:00+00", "2024-01-02 23:30:00+00", "0044-03-15 00:00:01+00 BC", "infinity"),
    "interval": ("1 day", "2 mons 03:00:00", "-1 days", "1 year"),
}


@pytest.fixture
def table(session: Session) -> Session:
    for rule in ("logistic", "softmax", "linear"):
        session.execute("SELECT dana_create_udf(%s, %s)", (rule, rules.text(rule)))
    session.execute(
        "CREATE TABLE t AS SELECT cos(i % 4 * 1.57)::real AS a, sin(i % 4 * 1.57)::real AS b, i % 4 AS k"
        " FROM generate_series(1, 400) AS i"
    )
    return session


def enter(session: Session, settings: str) -> None:
    """One that has its own style of dates and its own time zone."""
    style, zone = settings.rsplit(", ", 1)
    session.execute(f"SET datestyle = {style}; SET timezone = {zone}; SET intervalstyle = iso_8601")  # type: ignore[arg-type]


def one(session: Session, query: str, *values: object) -> object:
    (row,) = session.execute(query, values).fetchall()  # type: ignore[arg-type]
    return row[0]


def plain(session: Session) -> None:
    session.execute("SET datestyle = 'ISO, MDY'; SET timezone = 'UTC'; RESET intervalstyle")


@pytest.mark.parametrize("kind", LABELS)
def test_a_label_is_the_same_in_every_session(table: Session, kind: str) -> None:
    texts = LABELS[kind]
    table.execute(
        f"CREATE TABLE u AS SELECT a, b, (%s::text[])[k + 1]::{kind} AS y FROM t",  # type: ignore[arg-type]
        (list(texts),),
    )
    classify = "dana_classify('m', a, b)"
    for settings in SESSIONS:
        enter(table, settings)
        table.execute("SELECT dana_train('softmax', 'u', 'm', '{a,b}', 'y', epochs => 60)")
        assert one(table, "SELECT metadata -> 'classes' FROM dana.model WHERE name = 'm'") == sorted(texts)
        for other in SESSIONS:
            enter(table, other)
            assert one(table, "SELECT dana_evaluate('m') -> 'accuracy'") == 1
            assert one(table, f"SELECT bool_and({classify}::{kind} IS NOT DISTINCT FROM y) FROM u") is True
            plain(table)
            assert one(table, f"SELECT bool_and({classify} = y::text) FROM u") is True
        enter(table, SESSIONS[1])
        table.execute("SELECT dana_train('softmax', 'u', 'm', '{a,b}', 'y', warm_start_from => 'm', epochs => 1)")
        assert one(table, "SELECT dana_evaluate('m') -> 'accuracy'") == 1
        table.execute("SELECT dana_drop_model('m')")


def test_weights_of_classes_and_classes_by_name(table: Session) -> None:
    enter(table, SESSIONS[0])
    table.execute("CREATE TABLE u AS SELECT a, b, date '2024-01-02' + k % 2 * 30 AS y FROM t")
    table.execute(
        "SELECT dana_train('logistic', 'u', 'm', '{a,b}', 'y',"
        " class_weight => '{\"2024-01-02\": 5, \"2024-02-01\": 1}', classes => '{2024-02-01,2024-01-02}')"
    )
    with pytest.raises(errors.DataException, match=r'holds "2024-0.-0.", which is none of the classes'):
        table.execute("SELECT dana_train('logistic', 'u', 'm', '{a,b}', 'y', classes => '{02/01/2024,01/02/2024}')")


def test_groups(table: Session) -> None:
    """Their names, their conditions, and who looks for one."""
    table.execute(
        "CREATE TABLE u AS SELECT a, b, date '2024-01-02' + k % 2 * 30 AS d, '2024-01-02 23:30+00'::timestamptz AS at,"
        " a + b AS y FROM t"
    )
    names = ["m[2024-01-02,2024-01-02 23:30:00+00]", "m[2024-02-01,2024-01-02 23:30:00+00]"]
    groups = (
        "SELECT model, error FROM dana_train_groups('linear', 'u', '{d,at}', '{\"model\": \"m\", \"label\": \"y\"}')"
    )
    for settings in SESSIONS:
        enter(table, settings)
        assert table.execute(groups).fetchall() == [(name, None) for name in names]  # type: ignore[arg-type]
    for name in names:
        assert one(table, "SELECT dana_evaluate(%s) -> 'rows'", name) == 200
        key = "SELECT metadata #>> '{group,key,d}' FROM dana.model WHERE name = %s LIMIT 1"
        assert one(table, key, name) == name[2:12]
    mine = "SELECT DISTINCT dana_group('m', dana.dana_fixed_text(d), dana.dana_fixed_text(at)) FROM u ORDER BY 1"
    assert [row[0] for row in table.execute(mine)] == names  # type: ignore[arg-type]


def test_folds_by_a_key(table: Session) -> None:
    """Rows are chosen by the column's values, which are the same in every session."""
    table.execute(
        "CREATE TABLE u AS SELECT a, b, a + b AS y, timestamptz '2026-01-01 00:00Z' + k * interval '1h' AS at FROM t"
    )
    found = set()
    for settings in SESSIONS:
        enter(table, settings)
        query = "SELECT trained, metrics FROM dana_cross_validate('linear', 'u', folds => 2, training => %s)"
        found.add(str(table.execute(query, ('{"features": ["a", "b"], "label": "y", "test_by": "at"}',)).fetchall()))
    assert len(found) == 1
