"""Sources without pages, and parts of tables: the model is that of a table with those rows."""

from __future__ import annotations

import psycopg
import pytest

from tests.sql.conftest import Session, new_role, weights

errors = psycopg.errors


@pytest.fixture
def table(session: Session) -> str:
    """A table over several pages, with gaps and a visibility map."""
    session.execute("CREATE TABLE t (k int PRIMARY KEY, x real, name text, y real)")
    session.execute(
        "INSERT INTO t SELECT i, sin(i), CASE i % 3 WHEN 0 THEN 'a' ELSE 'b' END, i % 2 FROM generate_series(1, 3000) i"
    )
    session.execute("DELETE FROM t WHERE k % 7 = 0")
    session.execute("VACUUM t")
    session.execute("UPDATE t SET x = x + 1 WHERE k % 11 = 0")
    return "t"


def same(session: Session, call: str, rows: str) -> None:
    """The call trains as on a table with these rows in this order."""
    session.execute(f"DROP TABLE IF EXISTS plain; CREATE TABLE plain AS {rows}")
    seed = ", seed => 5" if "seed => 5" in call else ""
    expected = weights(session, f"'plain', features => '{{x}}', label => 'y'{seed}")
    assert expected[1] > 0
    for machine in ("sim", "interp"):
        assert weights(session, f"{call}, features => '{{x}}', label => 'y', machine => '{machine}'") == expected


def test_query(session: Session, table: str) -> None:
    for query in (
        "SELECT x, y FROM t ORDER BY k DESC",
        "SELECT avg(x)::real AS x, y FROM t GROUP BY y, name ORDER BY y, name",
        "WITH s AS (SELECT * FROM t) SELECT a.x, b.y FROM s a JOIN s b USING (k) ORDER BY k",
        "VALUES (1::real, 2::real), (3, 4)",
        "SELECT x, y FROM t WHERE name = 'a' -- with a comment",
    ):
        values = query.startswith("VALUES")
        named = f"SELECT column1 AS x, column2 AS y FROM ({query}) v" if values else query
        same(session, f"query => $q$ {named} $q$", named)


def test_query_reads_with_the_rights_of_the_caller(session: Session, table: str) -> None:
    with new_role(session, "reader"):
        session.execute("GRANT EXECUTE ON FUNCTION dana_train, dana_drop_model TO reader")
        session.execute("GRANT SELECT (x, y) ON t TO reader")
        session.execute("SET ROLE reader")
        with pytest.raises(errors.InsufficientPrivilege):
            weights(session, "'t'")
        with pytest.raises(errors.InsufficientPrivilege):
            weights(session, "query => 'SELECT k, y FROM t'")
        assert weights(session, "query => 'SELECT x, y FROM t'")[1] == 2572
        session.execute("RESET ROLE")
        session.execute("GRANT SELECT ON t TO reader")
        session.execute("ALTER TABLE t ENABLE ROW LEVEL SECURITY")
        session.execute("CREATE POLICY p ON t USING (k < 100)")
        session.execute("SET ROLE reader")
        with pytest.raises(errors.InsufficientPrivilege, match="row-level security") as raised:
            weights(session, "'t'")
        assert "query =>" in str(raised.value.diag.message_hint)
        assert weights(session, "query => 'SELECT x, y FROM t'")[1] == 85
        session.execute("SELECT dana_drop_model('sums')")


@pytest.mark.parametrize(
    ("query", "error", "message"),
    [
        ("DELETE FROM t RETURNING x, y", errors.SyntaxError, "it is not one SELECT"),
        ("SELECT 1; SELECT 2", errors.SyntaxError, "it is not one SELECT"),
        ("SHOW work_mem", errors.SyntaxError, "it is not one SELECT"),
        ("SELECT x, y INTO u FROM t", psycopg.Error, ""),
        (
            "WITH d AS (DELETE FROM t RETURNING x, y) SELECT * FROM d",
            errors.FeatureNotSupported,
            "changes or locks rows",
        ),
        ("SELECT x, y FROM t FOR UPDATE", errors.FeatureNotSupported, "changes or locks rows"),
        ("SELECT x, x FROM t", errors.InvalidParameterValue, "two columns of the query are called 'x'"),
        ("SELECT y * interval '1 day' AS i, y FROM t", errors.InvalidParameterValue, "no column of the query is left"),
        ("SELECT x / 0 AS x, y FROM t", errors.DivisionByZero, "division by zero"),
        ("", psycopg.Error, ""),
    ],
)
def test_queries_that_are_refused(
    session: Session, table: str, query: str, error: type[psycopg.Error], message: str
) -> None:
    with pytest.raises(error, match=message or None):
        weights(session, f"query => $q${query}$q$")
    assert session.execute("SELECT count(*) FROM t").fetchone() == (2572,)
    weights(session, "'t', features => '{x}'")


def test_view_partitions_and_children(session: Session, table: str) -> None:
    session.execute("CREATE VIEW v AS SELECT x, y FROM t WHERE k > 50 ORDER BY k")
    same(session, "'v'", "SELECT x, y FROM t WHERE k > 50 ORDER BY k")
    session.execute("CREATE TABLE parts (x real, gone text, y real) PARTITION BY RANGE (x)")
    session.execute("CREATE TABLE high PARTITION OF parts FOR VALUES FROM (0) TO (10)")
    session.execute("CREATE TABLE low (y real, x real, gone text)")
    session.execute("ALTER TABLE parts ATTACH PARTITION low FOR VALUES FROM (-10) TO (0)")
    session.execute("INSERT INTO parts (x, y) SELECT x, y FROM t")
    session.execute("ALTER TABLE parts DROP gone")
    same(session, "'parts'", "(SELECT x, y FROM low) UNION ALL (SELECT x, y FROM high)")
    session.execute("CREATE TABLE mother AS SELECT x, y FROM t LIMIT 100")
    session.execute("CREATE TABLE child (extra int) INHERITS (mother)")
    session.execute("INSERT INTO child SELECT x, y, 1 FROM t LIMIT 50")
    same(session, "'mother'", "(SELECT x, y FROM ONLY mother) UNION ALL (SELECT x, y FROM child)")


@pytest.mark.parametrize(
    "condition",
    [
        "name = 'a'",
        "k BETWEEN 100 AND 2000 AND x > 0",
        "x > ANY (ARRAY[0.5, 0.7]) -- or so",
        "ctid >= '(3,1)'",
        "CASE WHEN k > 10 THEN NULL ELSE true END",
    ],
)
def test_filter(session: Session, table: str, condition: str) -> None:
    rows = f"SELECT x, y FROM t WHERE {condition}\n ORDER BY ctid"
    same(session, f"'t', filter => $q${condition}$q$", rows)
    session.execute("ALTER TABLE t ALTER x TYPE numeric")
    same(session, f"'t', filter => $q${condition}$q$", rows.replace("SELECT x", "SELECT x::float8::real AS x"))


@pytest.mark.parametrize(
    ("condition", "error", "message"),
    [
        ("true) OR (true", psycopg.Error, ""),
        ("true; DROP TABLE t", psycopg.Error, ""),
        ("true FROM t", errors.SyntaxError, "must be one expression"),
        ("true ORDER BY 1", errors.SyntaxError, "must be one expression"),
        ("", psycopg.Error, ""),
        ("k + 1", errors.DatatypeMismatch, "must be type boolean"),
        ("nowhere = 1", errors.UndefinedColumn, "nowhere"),
        ("random() < 0.5", errors.FeatureNotSupported, "volatile"),
        ("k IN (SELECT 1)", errors.FeatureNotSupported, "subquery"),
        ("sum(k) > 1", errors.GroupingError, "aggregate"),
        ("1 / (k - 5) > 0", errors.DivisionByZero, "division by zero"),
    ],
)
def test_filters_that_are_refused(
    session: Session, table: str, condition: str, error: type[psycopg.Error], message: str
) -> None:
    with pytest.raises(error, match=message or None):
        weights(session, f"'t', features => '{{x}}', filter => $q${condition}$q$")
    assert weights(session, "'t', features => '{x}'")[1] == 2572
    if error is errors.FeatureNotSupported:
        return  # of pages alone
    session.execute("CREATE VIEW v AS TABLE t")  # whose rows a statement reads, with the filter in it
    with pytest.raises(error, match=message or None):
        weights(session, f"'v', features => '{{x}}', filter => $q${condition}$q$")
    assert weights(session, "'v', features => '{x}'")[1] == 2572


def test_filter_runs_with_the_rights_of_the_caller(session: Session, table: str) -> None:
    session.execute("CREATE FUNCTION mine(int) RETURNS bool LANGUAGE sql STABLE AS 'SELECT current_user = ''nobody'''")
    with new_role(session, "nobody"):
        session.execute("GRANT SELECT ON t TO nobody")
        session.execute("GRANT EXECUTE ON FUNCTION dana_train, dana_drop_model TO nobody")
        session.execute("SET ROLE nobody")
        assert weights(session, "'t', features => '{x}', filter => 'mine(k)'")[1] == 2572
        session.execute("SELECT dana_drop_model('sums')")
        session.execute("RESET ROLE")
        session.execute("REVOKE EXECUTE ON FUNCTION mine FROM PUBLIC")
        session.execute("SET ROLE nobody")
        with pytest.raises(errors.InsufficientPrivilege, match="permission denied for function mine"):
            weights(session, "'t', features => '{x}', filter => 'mine(k)'")


def test_holdout(session: Session, table: str) -> None:
    call = "'t', test_size => 0.3, seed => 5"
    same(session, call, "SELECT x, y FROM t WHERE NOT dana_holdout(k, 0.3, 5) ORDER BY ctid")
    row = session.execute("SELECT count(*) FROM t WHERE dana_holdout(k, 0.3, 5)").fetchone()
    assert row is not None
    assert 650 < row[0] < 890
    other = session.execute(
        "SELECT count(*) FROM t WHERE dana_holdout(k, 0.3, 5) AND dana_holdout(k, 0.3, 6)"
    ).fetchone()
    assert other is not None
    assert 150 < other[0] < 320
    both = "SELECT x, y FROM t WHERE NOT dana_holdout(k, 0.3, 5) AND (k > 9 OR k < 3) ORDER BY ctid"
    same(session, call + ", filter => 'k > 9 OR k < 3'", both)
    keys = session.execute(
        "SELECT count(*) FROM t WHERE dana_holdout(k, 0.5) AND dana_holdout(name || k, 0.5)"
    ).fetchone()
    assert keys is not None
    assert 500 < keys[0] < 800
    for bad in ("0", "1", "-0.1", "'NaN'"):
        with pytest.raises(errors.InvalidParameterValue, match="between 0 and 1"):
            weights(session, f"'t', test_size => {bad}")


@pytest.mark.parametrize("part", ["-1, 1", "0, -1", "0, 3", "2147483647, 2147483647", "3, 0"])
def test_values_that_a_model_has_not(session: Session, part: str) -> None:
    session.execute("CREATE TABLE t AS SELECT i::real AS x, 1::real AS y FROM generate_series(1, 9) i")
    weights(session, "'t', 'm'")
    with pytest.raises(errors.InvalidParameterValue, match=r"there are no -?\d+ values from number -?\d+ on"):
        session.execute(f"SELECT dana.dana_values('m', {part})".encode())


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            "dana_train('sums', query => 'SELECT x, random() AS y FROM t', test_size => 0.2)",
            "differ each time they are read",
        ),
        ("dana_cross_validate('sums', 'volatile')", "differ each time they are read"),
        ("dana_predict_table('m', 'v')", "a column of the view that identifies its rows"),
    ],
)
def test_rows_of_views_have_no_place(session: Session, call: str, words: str) -> None:
    session.execute("CREATE TABLE t AS SELECT i::real AS x, 1::real AS y FROM generate_series(1, 9) i")
    session.execute("CREATE VIEW v AS SELECT * FROM t; CREATE VIEW volatile AS SELECT x, random() AS y FROM t")
    weights(session, "'t', 'm'")
    with pytest.raises(errors.InvalidParameterValue, match=words):
        session.execute(f"SELECT * FROM {call}")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("filter => 'x > 9'", "no row to train on\nHINT:  Perhaps argument filter leaves none"),
        (
            "filter => 'x > 9', test_size => 0.5",
            "Perhaps argument filter leaves none, or argument test_size leaves none",
        ),
        ("nulls => 'error'", "9 rows of test.n have a NULL"),
    ],
)
def test_why_no_row_is_left(session: Session, arguments: str, words: str) -> None:
    session.execute("CREATE TABLE n AS SELECT 1::real AS x, i::real AS y FROM generate_series(1, 9) i")
    if "nulls" in arguments:
        session.execute("UPDATE n SET x = NULL")
    with pytest.raises(errors.Error, match=words):
        weights(session, f"'n', {arguments}")


def test_volatile_query_sees_its_rows_once(session: Session, table: str) -> None:
    """With room for the rows every epoch sees the same ones: two epochs double what one gives, up to the decay."""
    query = "query => 'SELECT 1::real AS x, (random() * 1000)::int::real AS y FROM generate_series(1, 16)'"
    first, _, _ = weights(session, f"{query}, epochs => 1")
    twice, _, _ = weights(session, f"{query}, epochs => 2")
    loss = session.execute(
        "SELECT loss FROM dana.epoch WHERE run = (SELECT max(id) FROM dana.run) ORDER BY epoch"
    ).fetchall()
    assert len(first) == len(twice) == 1
    assert loss[0] == loss[1]


def test_warm_start(session: Session, table: str) -> None:
    for machine in ("sim", "interp"):
        call = f"'t', features => '{{x}}', machine => '{machine}'"
        whole, _, _ = weights(session, f"{call}, epochs => 5")
        weights(session, f"{call}, model => 'half', epochs => 2")
        assert weights(session, f"{call}, warm_start_from => 'half', epochs => 3")[0] == whole
        with pytest.raises(errors.InvalidParameterValue, match=r"w has shape \[1\], not \[2\]"):
            weights(session, f"'t', features => '{{x,k}}', warm_start_from => 'half', machine => '{machine}'")
    with pytest.raises(errors.UndefinedObject, match='model "none" does not exist'):
        weights(session, "'t', features => '{x}', warm_start_from => 'none'")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("'t', query => 'SELECT 1'", 'either argument "source" or argument "query"'),
        ("query => 'SELECT 1', filter => 'true'", 'argument "filter" goes with a table'),
        ("'t', nulls => 'sometimes'", 'argument "nulls" must be'),
        ("'t', nulls => 'inf'", 'argument "nulls" must be'),
        ("'t', nonfinite => 'x'", 'argument "nonfinite" must be'),
        ("'t', classes => '{}'", 'argument "classes" must be'),
        ("'t', epochs => 100001", "from 1 to 100000"),
    ],
)
def test_calls_that_are_refused(session: Session, table: str, call: str, message: str) -> None:
    with pytest.raises(errors.InvalidParameterValue, match=message):
        weights(session, call)


def test_limit_of_epochs(session: Session, table: str) -> None:
    session.execute("SET dana.max_epochs = 1")
    with pytest.raises(
        errors.ProgramLimitExceeded, match=r"the rule has 2 epochs, more than the 1 of dana\.max_epochs"
    ):
        weights(session, "'t', features => '{x}'")
    with pytest.raises(errors.InvalidParameterValue, match="from 1 to 1, not 3"):
        weights(session, "'t', features => '{x}', epochs => 3")
