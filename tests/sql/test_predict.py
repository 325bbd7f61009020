"""Predictions from rows, whose columns are found by name, and for whole tables."""

from __future__ import annotations

import psycopg
import pytest

from tests.sql.conftest import Session, new_role

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
        "SELECT id, dana_predict('m', s) FROM (SELECT * FROM t OFFSET 0) AS s ORDER BY id",
        "SELECT id, dana_predict('m', t) FROM t GROUP BY t, id ORDER BY id",
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


@pytest.mark.parametrize(
    ("source", "formed"),
    [
        ("t", False),
        ("v AS t", False),
        ("generate_series(1, 3) AS g JOIN t ON id = g", False),
        ("(SELECT * FROM t OFFSET 0) AS t", True),
        ("generate_series(1, 3) AS g LEFT JOIN t ON id = g", True),
        ("t GROUP BY ROLLUP (t)", True),
        ("wide AS t", True),
    ],
)
def test_a_row_is_not_formed_for_a_prediction(session: Session, table: str, source: str, formed: bool) -> None:
    """Unless it may be NULL, has more columns than a function has arguments, or is a subquery's."""
    session.execute("CREATE VIEW v AS SELECT c, b, y, a, id FROM t")
    listed = ", ".join(f"1 AS x{k}" for k in range(99))
    session.execute(f"CREATE TABLE wide AS SELECT *, {listed} FROM t")  # type: ignore[arg-type]
    for call in ("dana_predict('m', t)", "dana_predict_double('m', t.*)", "dana_classify('m', t)"):
        plan = "\n".join(str(line) for (line,) in rows(session, f"EXPLAIN (VERBOSE) SELECT {call} FROM {source}"))
        assert ("::name[]" not in plan) == formed, plan


def test_a_row_that_an_outer_join_leaves_out_has_no_prediction(session: Session, table: str) -> None:
    session.execute("UPDATE t SET a = NULL WHERE id = 1")
    session.execute(
        "SELECT dana_train('sums', 't', features => '{a,b,c}', label => 'y', model => 'filled', nulls => 'mean')"
    )
    found = rows(
        session, "SELECT g, dana_predict('filled', t) IS NULL FROM generate_series(0, 1) AS g LEFT JOIN t ON id = g"
    )
    assert sorted(found) == [(0, True), (1, False)]


@pytest.mark.parametrize("names", ["{a,b}", "{a,b,c,d}", "{a,NULL,c}"])
def test_names_that_do_not_fit_their_columns(session: Session, table: str, names: str) -> None:
    with pytest.raises((errors.InvalidParameterValue, errors.NullValueNotAllowed)):
        rows(session, f"SELECT dana_predict('m', '{names}'::name[], 1, 2, 3)")


def test_rows_of_several_types_in_one_call(session: Session, table: str) -> None:
    """A column of type record may hold rows of any type; each is looked at anew."""
    session.execute("CREATE TYPE short AS (a real, b int, c numeric)")
    session.execute("CREATE TYPE long AS (c numeric, word text, b int, a real)")
    session.execute(
        "CREATE FUNCTION one_of(t) RETURNS record LANGUAGE plpgsql AS $$ BEGIN IF $1.id % 2 = 0 THEN "
        "RETURN ROW($1.a, $1.b, $1.c)::short; END IF; RETURN ROW($1.c, $1.word, $1.b, $1.a)::long; END $$"
    )
    assert rows(session, "SELECT id, dana_predict('m', one_of(t)) FROM t ORDER BY id") == rows(session, EXPECTED)


def test_anonymous_rows_of_several_shapes_in_one_call(session: Session, table: str) -> None:
    session.execute(
        "CREATE FUNCTION one_of(t) RETURNS record LANGUAGE plpgsql AS $$ DECLARE r record; BEGIN IF $1.id % 2 = 0 THEN "
        "SELECT $1.a AS a, $1.b AS b, $1.c AS c INTO r; ELSE "
        "SELECT $1.c AS c, $1.word AS word, $1.b AS b, $1.a AS a INTO r; END IF; RETURN r; END $$"
    )
    assert rows(session, "SELECT id, dana_predict('m', one_of(t)) FROM t ORDER BY id") == rows(session, EXPECTED)


@pytest.mark.parametrize(
    ("key", "identifies"), [("PRIMARY KEY (b, id)", "(b, id)"), ("UNIQUE (id)", "ctid"), ("PRIMARY KEY (id)", "id")]
)
def test_rows_are_identified_by_their_key_or_their_place(
    session: Session, table: str, key: str, identifies: str
) -> None:
    session.execute(f"CREATE TABLE keyed AS TABLE t; ALTER TABLE keyed ADD {key}")
    found = rows(session, "SELECT id, prediction FROM dana_predict_table('m', 'keyed') ORDER BY 1")
    expected = f"SELECT {identifies}::text, dana_predict('m', a, b, c) FROM keyed ORDER BY 1"
    assert found == rows(session, expected)


@pytest.mark.parametrize("key", [None, "PRIMARY KEY (id, b)"])
def test_rows_of_partitions_are_identified(session: Session, table: str, key: str | None) -> None:
    session.execute(
        "CREATE TABLE parts (LIKE t) PARTITION BY LIST (b);"
        "CREATE TABLE low PARTITION OF parts FOR VALUES IN (0, 1, 2); CREATE TABLE high PARTITION OF parts DEFAULT;"
        "INSERT INTO parts SELECT * FROM t"
    )
    if key is not None:
        session.execute(f"ALTER TABLE parts ADD {key}")
    place = "(tableoid::regclass, ctid)" if key is None else "(id, b)"
    found = rows(
        session,
        "SELECT count(*), count(DISTINCT p.id), count(DISTINCT r.id) FROM dana_predict_table('m', 'parts') AS p"
        f" JOIN parts AS r ON p.id = {place}::text AND p.prediction = dana_predict('m', r)".replace(
            "(id, b)", "(r.id, r.b)"
        ),
    )
    assert found == rows(session, "SELECT count(*), count(*), count(*) FROM t")


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
    with new_role(session, "later_reader"), pytest.raises(errors.UndefinedObject, match='model "m" does not exist'):
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


ROWS = """
import dana
m = dana.dim(5)
U = dana.model([m, 3])
V = dana.model([4, 3])
user, item, pair, r = dana.input(), dana.input(), dana.input([2]), dana.output()
chosen = dana.algo(U, V, user, item, pair, r)
e = dana.sigma(U[user - 1] * V[item], 1) + V[pair[0] + pair[1]] @ V[0] - r
chosen.setModel(U[user - 1], U[user - 1] - 0.1 * e)
chosen.setPrediction(dana.sigma(U[user - 1] * V[item], 1) + V[pair[0] + pair[1]] @ V[0])
"""


def test_a_row_number_that_the_model_does_not_have(session: Session) -> None:
    """The column is named, its value, the row and the dim that would make room, whatever way features are given."""
    session.execute("SELECT dana_create_udf('chosen', %s)", (ROWS,))
    session.execute(
        """CREATE TABLE t AS
        SELECT 1 + k % 5 AS "User", 1 AS item, '{1,2}'::real[] AS pair, 1::real AS r FROM generate_series(1, 20) k"""
    )
    session.execute(
        """SELECT dana_train('chosen', 't', label => 'r', features => '{"User",item,pair}', model => 'm')"""
    )
    session.execute("SELECT dana_predict('m', 5, 1, '{1,2}'::real[])")
    shifted, computed = 'number of the row from "User".', "number of the row from pair."
    out, more = "Leave such rows out", "hyper => '{\"m\": 6}', or more"
    row = """(SELECT t FROM (SELECT '{1,2}'::int[] AS pair, 4 AS item, 1 AS "User") AS t)"""
    cases = [
        (
            "6, 1, '{1,2}'::real[]",
            '"User" is 6: it chooses row 5 of U, which has rows 0 to 4',
            shifted,
            more,
        ),
        ("0, 1, '{1,2}'::real[]", '"User" is 0: it chooses row -1 of U, which', shifted, out),
        ("1.5, 1, '{1,2}'::real[]", '"User" is 1.5: it chooses row 0.5 of U', shifted, out),
        ("'NaN', 1, '{1,2}'::real[]", '"User" is nan: it chooses row nan of U', shifted, out),
        ("1e30, 1, '{1,2}'::real[]", '"User" is 1.00000002e+30: it chooses row 1.00000002e+30 of U', shifted, out),
        ("1, 4, '{1,2}'::int[]", "item is 4: it chooses row 4 of V", None, "WHERE item BETWEEN 0 AND 3, or"),
        ("1, 0.5, '{1,2}'::real[]", "item is 0.5", None, "WHERE item BETWEEN 0 AND 3 AND item = trunc(item)"),
        ("1, 4, '{1,2}'::int[]", "it chooses row 4 of V", None, "Or train with more rows of V."),
        ("1, 4, 1, 2", "feature 2 is 4: it chooses row 4 of V", None, "more rows of V"),
        (row, "item is 4", None, "WHERE item BETWEEN"),
        ("1, 1, '{2,2}'::int[]", 'model "m" cannot predict: it chooses row 4 of V', computed, out),
        ("1, 1, 2, 2", 'model "m" cannot predict: it chooses row 4 of V', "several columns", out),
    ]
    for features, said, detail, hint in cases:
        with pytest.raises(psycopg.errors.DataException) as caught:
            session.execute(f"SELECT dana_predict('m', {features})")  # type: ignore[arg-type]
        assert said.lower() in str(caught.value.diag.message_primary).lower()
        assert (detail or "") in str(caught.value.diag.message_detail)
        assert hint in str(caught.value.diag.message_hint)
        assert ("hyper" in str(caught.value.diag.message_hint)) is (hint == more), "more rows have no row -1"
    session.execute("SELECT dana_drop_rule('chosen')")
