"""Rows that no frame holds: arrays of many thousand numbers train, predict and are refused as short ones are."""

from __future__ import annotations

import psycopg
import pytest

from dana import rules
from tests.sql.conftest import Session, weights

ELEMENT = "(sin(k * 0.37 + i) * i)::real"

PAIR = """
import dana
n = dana.dim()
w = dana.model([n])
v = dana.model([n])
b = dana.model()
a = dana.input()
x = dana.input([n])
z = dana.input([n])
y = dana.output()
pair = dana.algo(w, v, b, a, x, z, y)
pair.setModel(w, w / 2 + pair.merge(x * (y + 1), 16, "+"))
pair.setModel(v, v / 2 + pair.merge(z * (y + 1), 16, "+"))
pair.setModel(b, b + pair.merge(a + a, 16, "+"))
"""


@pytest.fixture
def wide(session: Session) -> Session:
    """A table of 24 rows of 9,000 numbers, two groups, a NULL array and a NULL label."""
    session.execute("CREATE TABLE t (i int, x real[], y real)")
    session.execute(
        f"INSERT INTO t SELECT i, (SELECT array_agg({ELEMENT}) FROM generate_series(1, 9000) k), i % 3"
        " FROM generate_series(1, 22) i"
    )
    session.execute("INSERT INTO t SELECT 23, NULL, 1 UNION ALL SELECT 24, x, NULL FROM t WHERE i = 1")
    return session


def test_twenty_thousand_numbers(session: Session) -> None:
    """The models of simulator and interpreter are the same, and so are the predictions of both."""
    session.execute("CREATE TABLE t (x real[], y real)")
    session.execute(
        f"INSERT INTO t SELECT (SELECT array_agg({ELEMENT}) FROM generate_series(1, 20000) k), i"
        " FROM generate_series(1, 40) i"
    )
    interpreted = weights(session, "'t', 'interpreted', machine => 'interp'")
    assert weights(session, "'t', 'simulated'") == interpreted
    assert (len(interpreted[0]), *interpreted[1:]) == (20_000, 40, 0)
    assert any(interpreted[0])
    row = session.execute(
        "SELECT count(*) FILTER (WHERE dana_predict('simulated', x) = dana_predict('interpreted', x)), count(*) FROM t"
    ).fetchone()
    assert row == (40, 40)
    evaluated = session.execute("SELECT dana_evaluate('simulated') -> 'rows'").fetchone()
    assert evaluated == (40,)


def test_rows_are_chosen_skipped_and_grouped(wide: Session) -> None:
    names = "features => '{x}', label => 'y'"
    whole = weights(wide, f"'t', {names}")
    assert whole[1:] == (22, 2)
    assert weights(wide, f"'t', {names}, machine => 'interp'") == whole
    assert weights(wide, "query => 'SELECT x, y FROM t'") == whole
    some = weights(wide, f"'t', {names}, filter => 'i % 2 = 0'")
    assert some[1:] == (11, 1)
    assert weights(wide, "query => 'SELECT x, y FROM t WHERE i % 2 = 0'") == some
    filled = weights(wide, f"'t', {names}, nulls => '0.5'")
    assert filled[1:] == (23, 1), "a label is none to fill"
    assert weights(wide, f"'t', {names}, nulls => '0.5', machine => 'interp'") == filled
    training = '{"features": ["x"], "label": "y"}'
    grouped = wide.execute(
        f"SELECT tuples, error FROM dana_train_groups('sums', 't', '{{y}}', '{training}')"
    ).fetchall()
    assert sorted(grouped, key=str)[:3] == [(7, None), (7, None), (8, None)]


def test_a_number_in_front_of_two_arrays(wide: Session) -> None:
    """No part of a row begins where an array does."""
    wide.execute("SELECT dana_create_udf('pair', %s)", (PAIR,))
    call = "SELECT model, version, tuples, skipped FROM dana_train('pair', query => %s, machine => %s)"
    read = 'SELECT "values" FROM dana_parameters(%s, %s)'
    query = "SELECT i::real AS a, x, x AS z, y FROM t"
    found = []
    for machine in ("sim", "interp"):
        trained = wide.execute(call, (query, machine)).fetchall()[0]
        assert trained[2:] == (22, 2)
        found.append(wide.execute(read, trained[:2]).fetchall())
    assert found[0] == found[1]
    (w,), (v,), (b,) = found[0]
    assert w == v
    assert b == [2 * sum(range(1, 23))]
    assert weights(wide, "'t', features => '{x}', label => 'y', epochs => 1")[0] == w


def test_nonfinite_numbers_and_lengths(wide: Session) -> None:
    names = "features => '{x}', label => 'y'"
    wide.execute("UPDATE t SET x[8999] = 'NaN' WHERE i = 3")
    skipped = weights(wide, f"'t', {names}, filter => 'i < 24', nonfinite => 'skip'")
    assert skipped[1:] == (21, 2)
    again = weights(wide, "query => 'SELECT x, y FROM t WHERE i NOT IN (3, 24) ORDER BY t.ctid'")
    assert again[0] == skipped[0]
    with pytest.raises(psycopg.errors.DataException, match="NaN or an infinity"):
        weights(wide, f"'t', {names}, nonfinite => 'error'")
    wide.execute("UPDATE t SET x = x[1:8999] WHERE i = 5")
    with pytest.raises(psycopg.errors.DataException, match=r"array of 8999 elements in column .x., not of 9000"):
        weights(wide, f"'t', {names}")


def test_explained(wide: Session) -> None:
    wide.execute("ANALYZE t")
    lines = wide.execute("SELECT dana_explain('sums', 't', %s)", ('{"features": ["x"], "label": "y"}',)).fetchall()
    assert "rows, made into 120 pages of 8192 bytes, 5 to a tuple" in "\n".join(line for (line,) in lines)


def test_rows_that_no_machine_holds(session: Session) -> None:
    session.execute("CREATE TABLE t AS SELECT array_fill(1::real, '{8400000}') AS x, 1::real AS y")
    with pytest.raises(psycopg.errors.ProgramLimitExceeded, match=r"8,400,000 numbers, a machine holds at most"):
        weights(session, "'t'")


def test_an_empty_array_is_no_damage(session: Session) -> None:
    session.execute(
        "CREATE TABLE t AS SELECT CASE WHEN g % 5 = 0 THEN '{}'::real[] ELSE ARRAY[g::real, 1] END AS x, g::real AS y "
        "FROM generate_series(1, 100) AS g"
    )
    with pytest.raises(psycopg.errors.DataException, match=r"row 5 of .* array of 0 elements in column .x., not of 2"):
        weights(session, "'t', features => '{x}', label => 'y'")


def test_a_query_of_more_columns_than_a_row_of_a_table_has(session: Session) -> None:
    session.execute("SELECT dana_create_udf('linear', %s)", (rules.text("linear"),))
    columns = ", ".join(f"{i}::real AS c{i}" for i in range(1, 1601))
    with pytest.raises(psycopg.errors.TooManyColumns, match="1601 columns, a row of a training has at most 1600"):
        session.execute(
            "SELECT dana_train('linear', label => 'b', epochs => 1, query => %s)", (f"SELECT {columns}, 1 AS b",)
        )
