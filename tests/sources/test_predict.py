"""Predictions from rows, whose columns are found by name, and for whole tables."""

from __future__ import annotations

import psycopg
import pytest

from tests.sources.conftest import Session

errors = psycopg.errors


@pytest.fixture
def table(session: Session) -> str:
    """A table with a column dropped, a column of text and a model trained on three of the others."""
    session.execute("CREATE TABLE t (gone int, id int PRIMARY KEY, a real, b int, word text, c numeric, y real)")
    session.execute("ALTER TABLE t DROP COLUMN gone")
    session.execute("INSERT INTO t SELECT g, g % 5, g % 7, 'w' || g, g % 3, g % 2 FROM generate_series(1, 300) AS g")
    session.execute("SELECT dana_train('sums', 't', features => '{a,b,c}', label => 'y', model => 'm')")
    return "t"


def rows(session: Session, query: str) -> list[tuple[object, ...]]:
    return session.execute(query).fetchall()  # type: ignore[arg-type]


EXPECTED = "SELECT id, dana_predict('m', a, b, c) FROM t ORDER BY id"


@pytest.mark.parametrize(
    "query",
    [
        "SELECT id, dana_predict('m', t) FROM t ORDER BY id",
        "SELECT id, dana_predict('m', t.*) FROM t ORDER BY id",
        "SELECT id, dana_predict('m', s) FROM (SELECT c, 'x' AS word, b, id, a FROM t) AS s ORDER BY id",
        "SELECT id, dana_predict('m', v) FROM v ORDER BY id",
        "SELECT id, dana_predict('m@1', r) FROM (SELECT id, ROW(word, b, c, a)::kind AS r FROM t) AS s ORDER BY id",
        "SELECT id::int, prediction FROM dana_predict_table('m', 't') ORDER BY 1",
        "SELECT t.id, prediction FROM dana_predict_table('m', 't', 'ctid') p JOIN t ON t.ctid = p.id::tid ORDER BY 1",
        "SELECT id::int, prediction FROM dana_predict_table('m', 'v', key => 'id') ORDER BY 1",
    ],
)
def test_the_same_as_from_columns(session: Session, table: str, query: str) -> None:
    session.execute("CREATE VIEW v AS SELECT c, b, y, a, id FROM t")
    session.execute("CREATE TYPE kind AS (word text, b int, c numeric, a real)")
    expected = rows(session, EXPECTED)
    assert len({value for _, value in expected}) > 50, "predictions tell rows apart"
    assert rows(session, query) == expected


def test_rows_of_several_types_in_one_call(session: Session, table: str) -> None:
    """A column of type record may hold rows of any type; each is looked at anew."""
    session.execute("CREATE TYPE short AS (a real, b int, c numeric)")
    session.execute("CREATE TYPE long AS (c numeric, word text, b int, a real)")
    session.execute(
        "CREATE FUNCTION one_of(t) RETURNS record LANGUAGE plpgsql AS $$ BEGIN IF $1.id % 2 = 0 THEN "
        "RETURN ROW($1.a, $1.b, $1.c)::short; END IF; RETURN ROW($1.c, $1.word, $1.b, $1.a)::long; END $$"
    )
    assert rows(session, "SELECT id, dana_predict('m', one_of(t)) FROM t ORDER BY id") == rows(session, EXPECTED)


def test_nulls_and_columns_added_later(session: Session, table: str) -> None:
    session.execute("UPDATE t SET a = NULL WHERE id = 1")
    session.execute("UPDATE t SET word = NULL WHERE id = 2")
    session.execute("ALTER TABLE t RENAME c TO d")
    session.execute("ALTER TABLE t ADD COLUMN c real DEFAULT 2")
    found = rows(session, "SELECT id, dana_predict('m', t) FROM t WHERE id <= 3 ORDER BY id")
    assert found[0] == (1, None)
    assert found[1:] == rows(session, "SELECT id, dana_predict('m', a, b, 2) FROM t WHERE id IN (2, 3) ORDER BY id")
    assert rows(session, "SELECT dana_predict('m', NULL::t)") == [(None,)]


def test_a_filter_and_a_name_that_needs_quotes(session: Session, table: str) -> None:
    session.execute(
        'CREATE TABLE "Odd table" AS SELECT id AS "my key", a, b, c, 7 AS r, a AS "A b", y AS "of ""y""" FROM t'
    )
    found = rows(
        session,
        """SELECT id, prediction
        FROM dana_predict_table('m', '"Odd table"', 'my key', '"my key" < 3 -- few') ORDER BY 1""",
    )
    assert found == rows(session, "SELECT id::text, dana_predict('m', a, b, c) FROM t WHERE id < 3 ORDER BY 1")
    for classes in (None, ["0", "1"]):
        named = ("sums", '"Odd table"', "it's", ["A b", "c"], 'of "y"', classes)
        session.execute("SELECT dana_train(%s, %s::text::regclass, %s, %s, %s, classes => %s)", named)
        assert rows(session, "SELECT dana_evaluate('it''s') -> 'rows'") == [(300,)]
        found = rows(
            session, """SELECT id, prediction FROM dana_predict_table('it''s', '"Odd table"', 'my key') ORDER BY 1"""
        )
        columns = """SELECT "my key"::text, dana_predict('it''s', "A b", c) FROM "Odd table" ORDER BY 1"""
        assert found == rows(session, columns)


def test_more_columns_than_a_function_has_arguments(session: Session) -> None:
    listed = ", ".join(f"(g * {k}) % 11 AS x{k}" for k in range(150))
    session.execute(f"CREATE TABLE wide AS SELECT g AS id, {listed}, g % 2 AS y FROM generate_series(1, 100) AS g")  # type: ignore[arg-type]
    names = [f"x{k}" for k in range(150)]
    session.execute("SELECT dana_train('sums', 'wide', features => %s, label => 'y', model => 'w')", (names,))
    array = ", ".join(names)
    assert rows(session, "SELECT id::int, prediction FROM dana_predict_table('w', 'wide', 'id') ORDER BY 1") == rows(
        session, f"SELECT id, dana_predict('w', ARRAY[{array}]) FROM wide ORDER BY 1"
    )


@pytest.mark.parametrize(
    ("query", "error", "message"),
    [
        ("SELECT dana_predict('m', s) FROM (SELECT a, b FROM t) AS s", errors.UndefinedColumn, 'needs column "c"'),
        (
            "SELECT dana_predict('m', s) FROM (SELECT a, b, word AS c FROM t) AS s",
            errors.DatatypeMismatch,
            'column "c" has type text',
        ),
        ("SELECT * FROM dana_predict_table('none', 't')", errors.UndefinedObject, 'model "none" does not exist'),
        ("SELECT * FROM dana_predict_table('m', 't', 'nokey')", errors.UndefinedColumn, "nokey"),
        ("SELECT * FROM dana_predict_table('m', NULL)", errors.NullValueNotAllowed, 'argument "source"'),
    ],
)
def test_refusals(session: Session, table: str, query: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error) as raised:
        rows(session, query)
    assert isinstance(raised.value, psycopg.Error)
    assert message in str(raised.value.diag.message_primary)


def test_parallel_workers(session: Session, table: str) -> None:
    """A row is found by name in parallel workers too; the function for tables starts them itself."""
    session.execute("INSERT INTO t SELECT g, g % 5, g % 7, 'w' || g, g % 3 FROM generate_series(301, 20000) AS g")
    session.execute("ANALYZE t")
    query = "SELECT sum(dana_predict('m', t)::numeric) FROM t"
    alone = rows(session, query)
    for setting in ("parallel_setup_cost = 0", "parallel_tuple_cost = 0", "min_parallel_table_scan_size = 0"):
        session.execute(f"SET {setting}")
    assert "Parallel Seq Scan" in str(rows(session, f"EXPLAIN {query}"))
    assert rows(session, query) == alone
    assert rows(session, "SELECT count(prediction) FROM dana_predict_table('m', 't')") == [(20000,)]


def test_a_model_that_changes_while_a_procedure_runs(session: Session, table: str) -> None:
    """PL/pgSQL keeps what an expression has loaded until the transaction ends; a later call sees what is there then."""
    session.execute(
        """
        CREATE FUNCTION twice(OUT seen real[], OUT now real[]) LANGUAGE plpgsql AS $$
        DECLARE value real;
        BEGIN
            FOR i IN 1..4 LOOP
                BEGIN
                    UPDATE dana.model SET weights = ARRAY[i, 0, 0] WHERE name = 'm';
                    value := dana_predict('m', 10, 0, 0);
                    IF i = 3 THEN RAISE division_by_zero; END IF;
                EXCEPTION WHEN division_by_zero THEN NULL;
                END;
                FOR k IN 1..2 LOOP
                    value := dana_predict('m', 10, 0, 0);
                    seen := seen || value;
                END LOOP;
                EXECUTE 'SELECT dana_predict(''m'', 10, 0, 0)' INTO value;
                now := now || value;
            END LOOP;
        END $$
        """
    )
    row = session.execute("SELECT * FROM twice()").fetchone()
    assert row == ([10, 10, 20, 20, 20, 20, 40, 40], [10, 20, 20, 40])


def test_another_role_in_the_same_transaction(session: Session, table: str) -> None:
    session.execute("DROP ROLE IF EXISTS later_reader")
    session.execute("CREATE ROLE later_reader")
    try:
        with pytest.raises(errors.UndefinedObject, match='model "m" does not exist'):
            session.execute(
                """
                DO $$ DECLARE value real; BEGIN
                    FOR i IN 1..2 LOOP
                        value := dana_predict('m', 1, 2, 3);
                        SET LOCAL ROLE later_reader;
                    END LOOP;
                END $$
                """
            )
    finally:
        session.execute("DROP ROLE later_reader")


def test_a_row_number_that_the_model_does_not_have(session: Session) -> None:
    text = """
import dana
V = dana.model([2])
U = dana.model([5, 3])
i, r = dana.input(), dana.output()
rows = dana.algo(V, U, i, r)
e = dana.sigma(U[i], 1) + dana.sigma(V, 1) - r
rows.setModel(U[i], U[i] - 0.1 * e)
rows.setModel(V, V)
rows.setPrediction(dana.sigma(V, 1) + dana.sigma(U[i], 1))
"""
    session.execute("SELECT dana_create_udf('chosen', %s)", (text,))
    session.execute("CREATE TABLE t AS SELECT (k % 5)::real AS i, 1::real AS r FROM generate_series(1, 20) k")
    session.execute("SELECT dana_train('chosen', 't', label => 'r', model => 'm')")
    session.execute("SELECT dana_predict('m', 4::real)")
    for number, said in (("5", "5"), ("-1", "-1"), ("0.5", "0.5"), ("'NaN'", "nan"), ("1e30", "1.00000002e+30")):
        with pytest.raises(psycopg.errors.DataException) as caught:
            session.execute(f"SELECT dana_predict('m', {number}::real)")  # type: ignore[arg-type]
        assert str(caught.value.diag.message_primary).lower() == (
            f'model "m" cannot predict: it chooses row {said} of u, whose rows are numbered from 0 to 4'
        )
        assert "with a WHERE, or train again with more rows of U" in str(caught.value.diag.message_hint)
    session.execute("SELECT dana_drop_rule('chosen')")
