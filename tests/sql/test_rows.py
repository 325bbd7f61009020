"""What no Strider reads comes through frames: the model is that of a plain table with the same rows, bit for bit."""

from __future__ import annotations

import psycopg
import pytest

from tests.sql.conftest import Session, weights

TYPES = {
    "numeric": "(i * 1.37)::numeric(12, 3)",
    "numeric that is no number": "CASE i WHEN 7 THEN 'NaN' WHEN 8 THEN 'Infinity' ELSE i::numeric END",
    "date": "date '2000-01-01' + i * 37",
    "infinite date": "CASE WHEN i = 3 THEN '-infinity' ELSE '2024-02-29' END::date",
    "time": "time '00:00:01.5' + i * interval '1 second'",
    "timetz": "timetz '00:00:01.25+02' + i * interval '2 hours' + i * interval '1 second'",
    "timestamp": "timestamp '1999-12-31 12:00' + i * interval '1 hour'",
    "timestamptz": "timestamptz '2010-12-31 12:00+02' + i * interval '1 hour'",
    "bigint": "i::bigint * 123456789123",
    "boolean": "i % 3 = 0",
}
SAME = {
    "numeric": "({0})::float8::real",
    "numeric that is no number": "({0})::float8::real",
    "date": "(({0}) - date '2000-01-01')::real",
    "infinite date": "CASE WHEN isfinite({0}) THEN (({0}) - date '2000-01-01')::real ELSE '-Infinity' END",
    "time": "extract(epoch FROM {0})::float8::real",
    "timetz": "extract(epoch FROM {0})::float8::real",
    "timestamp": "extract(epoch FROM ({0}) - timestamp '2000-01-01')::float8::real",
    "timestamptz": "extract(epoch FROM ({0}) - timestamptz '2000-01-01 00:00Z')::float8::real",
}
"""The documented meaning of a type, in SQL; others mean the same as they are."""


@pytest.mark.parametrize("kind", TYPES)
def test_types(session: Session, kind: str) -> None:
    expression = TYPES[kind]
    same = SAME.get(kind, "{0}").format(expression)
    session.execute(f"CREATE TABLE t AS SELECT {expression} AS x, i::real AS y FROM generate_series(1, 500) i")
    session.execute(f"CREATE TABLE plain AS SELECT {same} AS x, i::real AS y FROM generate_series(1, 500) i")
    expected = weights(session, "'plain'")
    as_numbers = """preprocess => '{"x": {"encode": "none"}}'"""
    assert repr(weights(session, f"'t', {as_numbers}")) == repr(expected)
    assert repr(weights(session, f"query => 'SELECT * FROM t', {as_numbers}")) == repr(expected)
    predicted = "SELECT array_agg(dana_predict('sums', x) ORDER BY y) FROM {}"
    rows = [session.execute(predicted.format(table)).fetchone() for table in ("t", "plain")]
    assert repr(rows[0]) == repr(rows[1])


ARRAYS = {
    "numeric[]": "ARRAY[i, i * 0.1, -i]::numeric[]",
    "integer[]": "ARRAY[i, i * 7, -i]",
    "smallint[]": "ARRAY[i, 7, -i]::smallint[]",
    "bigint[]": "ARRAY[i, 7, -i]::bigint[] * 1",
    "boolean[]": "ARRAY[i % 2 = 0, true, i > 5]",
    "date[]": "ARRAY[date '2000-01-05' + i, '2001-01-01', 'infinity']",
}


@pytest.mark.parametrize("kind", ["numeric[]", "integer[]", "smallint[]", "boolean[]"])
def test_array_types(session: Session, kind: str) -> None:
    session.execute(f"CREATE TABLE t AS SELECT {ARRAYS[kind]} AS x, i::real AS y FROM generate_series(1, 300) i")
    cast = "x::int[]::real[]" if kind == "boolean[]" else "x::float8[]::real[]"
    session.execute(f"CREATE TABLE plain AS SELECT {cast} AS x, y FROM t")
    assert weights(session, "'t'") == weights(session, "'plain'")


@pytest.mark.parametrize("storage", ["EXTERNAL", "EXTENDED"])
@pytest.mark.parametrize(
    ("count", "expression"), [(1500, "random() * k + 0 * i"), (1500, "k % 2"), (6000, "random() * k + 0 * i")]
)
def test_toasted_and_compressed_arrays(session: Session, storage: str, count: int, expression: str) -> None:
    """Also where the first row is plain and only later ones are not, and beyond a page's length."""
    session.execute("CREATE TABLE t (x real[], y real)")
    session.execute(f"ALTER TABLE t ALTER x SET STORAGE {storage}")
    session.execute("SELECT setseed(0.5)")
    session.execute(
        f"INSERT INTO t SELECT (SELECT array_agg(({expression})::real) FROM generate_series(1, {count}) k), i"
        " FROM generate_series(1, 40) i"
    )
    values, rows, skipped = weights(session, "'t', machine => 'interp'")
    assert (rows, skipped, len(values)) == (40, 0, count)
    assert weights(session, "'t'") == (values, rows, skipped)
    last = session.execute("SELECT sum(x[7] * (y + 1)::float8) FROM t WHERE y > 32").fetchone()
    assert last is not None
    assert values[6] >= last[0] * 0.999


def test_row_that_turns_out_to_be_out_of_line(session: Session) -> None:
    session.execute("CREATE TABLE t (note text, x real[], y real)")
    session.execute("ALTER TABLE t ALTER x SET STORAGE EXTERNAL")
    long = "(SELECT string_agg(md5(k::text || i), '') FROM generate_series(1, 55) k)"
    session.execute(
        f"INSERT INTO t SELECT CASE WHEN i > 20 THEN {long} END, array_fill(i, '{{300}}')::real[], i % 7"
        " FROM generate_series(1, 40) i"
    )
    session.execute("ALTER TABLE t ALTER note SET STORAGE MAIN")
    session.execute("UPDATE t SET note = note || ' ' WHERE y > 20")
    session.execute("CREATE TABLE plain AS SELECT x, y FROM t ORDER BY t.ctid")
    outside = session.execute(
        "SELECT pg_relation_size(reltoastrelid) FROM pg_class WHERE oid = 't'::regclass"
    ).fetchone()
    assert outside is not None
    assert outside[0] > 0
    for machine in ("sim", "interp"):
        call = f"features => '{{x}}', label => 'y', machine => '{machine}'"
        assert weights(session, f"'t', {call}") == weights(session, f"'plain', {call}")


def test_added_dropped_and_generated_columns(session: Session) -> None:
    virtual = session.info.server_version >= 180000
    kind = "VIRTUAL" if virtual else "STORED"
    session.execute(f"CREATE TABLE t (gone text, a real, b real GENERATED ALWAYS AS (a * 2) {kind})")
    session.execute("INSERT INTO t SELECT 'x', i FROM generate_series(1, 100) i")
    session.execute("ALTER TABLE t DROP gone, ADD c real DEFAULT 2.5, ADD y real DEFAULT 3")
    session.execute("INSERT INTO t (a, y) SELECT i, 1 FROM generate_series(1, 50) i")
    session.execute("CREATE TABLE plain AS SELECT * FROM t")
    assert weights(session, "'t'") == weights(session, "'plain'")


@pytest.mark.parametrize("labels", ["text", "varchar(5)", "mood", "char(3)"])
def test_classes(session: Session, labels: str) -> None:
    session.execute("CREATE TYPE mood AS ENUM ('no', 'yes')")
    session.execute(
        f"CREATE TABLE t AS SELECT i::real AS x, (ARRAY['no', 'yes'])[1 + i % 2]::{labels} AS y"
        " FROM generate_series(1, 99) i"
    )
    session.execute("CREATE TABLE plain AS SELECT x, CASE WHEN y = 'yes' THEN 1 ELSE 0 END AS y FROM t")
    padded = "ARRAY['no ', 'yes']" if labels == "char(3)" else "ARRAY['no', 'yes']"
    assert weights(session, f"'t', classes => {padded}") == weights(session, "'plain'")
    with pytest.raises(psycopg.errors.DataException, match="which is none of the classes"):
        weights(session, "'t', classes => ARRAY['nope']")
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="cannot be trained on"):
        weights(session, "'t'")


def test_nulls(session: Session) -> None:
    session.execute(
        "CREATE TABLE t AS SELECT CASE WHEN i % 5 > 0 THEN i::real END AS x, i::numeric AS y"
        " FROM generate_series(1, 100) i"
    )
    session.execute("CREATE TABLE plain AS SELECT coalesce(x, -1.5)::real AS x, y::real FROM t")
    session.execute("CREATE TABLE complete AS SELECT x, y::real FROM t WHERE x IS NOT NULL")
    kept, rows, _ = weights(session, "'complete'")
    assert weights(session, "'t', nulls => 'skip'") == (kept, rows, 20)
    assert weights(session, "'t', nulls => '-1.5'") == weights(session, "'plain'")
    with pytest.raises(psycopg.errors.NullValueNotAllowed, match=r'row 5 of test\.t has a NULL in column "x"'):
        weights(session, "'t', nulls => 'error'")
    session.execute("ALTER TABLE t ALTER y TYPE real")
    with pytest.raises(psycopg.errors.NullValueNotAllowed, match=r"20 rows of test\.t have a NULL"):
        weights(session, "'t', nulls => 'error'")
    assert weights(session, "'complete', nulls => 'error'") == (kept, rows, 0)


def test_nulls_in_arrays(session: Session) -> None:
    session.execute(
        "CREATE TABLE t AS SELECT ARRAY[i, NULL, 3, NULL]::real[] AS x, i AS y FROM generate_series(1, 9) i"
    )
    session.execute("CREATE TABLE plain AS SELECT array_replace(x, NULL, 7) AS x, y FROM t")
    assert weights(session, "'t', nulls => '7'") == weights(session, "'plain'")
    with pytest.raises(psycopg.errors.DataException, match=r'no row to train on: of 9 rows "x" is null \(9\)'):
        weights(session, "'t'")


@pytest.mark.parametrize("kind", ["real[]", "numeric[]"])
def test_nulls_in_arrays_follow_nulls(session: Session, kind: str) -> None:
    """A row with such an array is skipped, an error, or filled with the element's mean; a NULL array, too."""
    session.execute(
        "CREATE TABLE t AS SELECT CASE WHEN i = 7 THEN NULL ELSE ARRAY[i, CASE WHEN i % 3 > 0 THEN 2 * i END, 8 - i]"
        f"::{kind} END AS x, i::real AS y FROM generate_series(1, 12) i"  # type: ignore[arg-type]
    )
    session.execute("CREATE TABLE complete AS SELECT x::real[], y FROM t WHERE x[2] IS NOT NULL")
    kept, rows, _ = weights(session, "'complete'")
    for source in ("'t'", "query => 'SELECT * FROM t'"):
        assert weights(session, f"{source}, nulls => 'skip'") == (kept, rows, 5)
        with pytest.raises(psycopg.errors.NullValueNotAllowed, match=r"row 3 of .* has an array with NULL elements"):
            weights(session, f"{source}, nulls => 'error'")
    median = "percentile_cont(0.5) WITHIN GROUP (ORDER BY x[{0}]::float8)"
    for nulls, middle in (("mean", "avg(x[{0}]::float8)"), ("median", median)):
        each = ", ".join(f"coalesce(x[{k}], (SELECT {middle.format(k)} FROM t))" for k in (1, 2, 3))
        session.execute(f"CREATE TABLE plain AS SELECT ARRAY[{each}]::real[] AS x, y FROM t")  # type: ignore[arg-type]
        expected = weights(session, "'plain'")
        for source in ("'t'", "query => 'SELECT * FROM t'"):
            assert weights(session, f"{source}, nulls => '{nulls}', model => 'filled'") == expected
        of_table, of_plain = (f"SELECT dana_predict('filled', x) FROM {name} ORDER BY y" for name in ("t", "plain"))
        filled = session.execute(of_table).fetchall()  # type: ignore[arg-type]
        assert filled == session.execute(of_plain).fetchall()  # type: ignore[arg-type]
        assert (None,) not in filled
        session.execute("DROP TABLE plain")
    session.execute("UPDATE t SET x[3] = NULL WHERE x IS NOT NULL")
    with pytest.raises(psycopg.errors.DataException, match='element 3 of the arrays in column "x" of'):
        weights(session, "'t', nulls => 'mean'")


def test_non_finite_values(session: Session) -> None:
    heard: list[str] = []
    session.execute(
        "CREATE TABLE t AS SELECT CASE i WHEN 3 THEN 'NaN' WHEN 9 THEN '-Infinity' ELSE i::real END AS x, i AS y"
        " FROM generate_series(1, 50) i"
    )
    session.execute("CREATE TABLE plain AS SELECT * FROM t WHERE y NOT IN (3, 9)")
    values, rows, _ = weights(session, "'plain'")
    session.execute("SET client_min_messages = notice")
    session.add_notice_handler(lambda notice: heard.append(str(notice.message_primary)))
    told = ['2 of 50 rows of test.t are left out: "x" is NaN or infinite (2)']
    assert weights(session, "'t'") == (values, rows, 2)
    assert heard[:-1] == told
    assert heard[-1].startswith('model "sums" was trained on test.plain (version 1), and is now trained on test.t')
    heard.clear()
    assert weights(session, "query => 'SELECT * FROM t'") == (values, rows, 2)
    assert heard[:-1] == [line.replace("test.t", "the query") for line in told]
    assert heard[-1].startswith('model "sums" was trained on test.t (version 2), and is now trained on a query')
    with pytest.raises(psycopg.errors.DataException, match="the training gave no finite result"):
        weights(session, "'t', nonfinite => 'keep'")
    with pytest.raises(psycopg.errors.DataException, match=r"row 3 of test\.t has a NaN or an infinity"):
        weights(session, "'t', nonfinite => 'error'")


def test_nulls_are_errors_where_others_are_skipped(session: Session) -> None:
    session.execute(
        "CREATE TABLE t AS SELECT i::real AS x, CASE i WHEN 4 THEN 'NaN' ELSE i::real END AS y"
        " FROM generate_series(1, 9) i"
    )
    session.execute("CREATE TABLE plain AS SELECT * FROM t WHERE x <> 4")
    values, rows, _ = weights(session, "'plain'")
    both = "nulls => 'error', nonfinite => 'skip'"
    assert weights(session, f"'t', {both}") == (values, rows, 1)
    assert weights(session, f"query => 'SELECT * FROM t', {both}") == (values, rows, 1)
    with pytest.raises(psycopg.errors.DataException, match='no row to train on: of 1 rows "y" is NaN or infinite'):
        weights(session, f"'t', filter => 'x = 4', {both}")
    session.execute("UPDATE t SET x = NULL WHERE x = 7")
    with pytest.raises(psycopg.errors.NullValueNotAllowed, match=r'of test\.t has a NULL in column "x"'):
        weights(session, f"'t', {both}")


def test_arrays_of_different_lengths(session: Session) -> None:
    session.execute(
        "CREATE TABLE t AS SELECT array_fill(1::numeric, ARRAY[CASE i WHEN 7 THEN 4 ELSE 3 END]) AS x, i AS y"
        " FROM generate_series(1, 9) i"
    )
    with pytest.raises(psycopg.errors.DataException, match=r"row 7 of test\.t has an array of 4 elements"):
        weights(session, "'t'")


def test_chunks_in_any_order(session: Session) -> None:
    """Out of line values are read where they lie behind one another, and by the index where they do not."""
    session.execute("CREATE TABLE t (k int, x real[], more real[], y real)")
    session.execute("ALTER TABLE t ALTER x SET STORAGE EXTERNAL, ALTER more SET STORAGE EXTERNAL")
    row = "ARRAY(SELECT sin(g + {0} * i)::real FROM generate_series(1, {1}) i)"
    rows = f"SELECT g, {row.format(1, 1500)}, {row.format(2, 700)}, g % 3 FROM generate_series"
    for statement in (
        f"INSERT INTO t {rows}(1, 60) g",
        f"BEGIN; INSERT INTO t {rows}(900, 920) g; ROLLBACK",
        "DELETE FROM t WHERE k % 4 = 0",
        "VACUUM t",
        f"INSERT INTO t {rows}(100, 130) g ORDER BY random()",
        f"UPDATE t SET x = {row.format(3, 1500).replace('sin(g', 'sin(k')} WHERE k % 5 = 0",
        "CREATE TABLE other (LIKE t INCLUDING ALL) INHERITS (t)",
        f"INSERT INTO other {rows}(200, 210) g",
        "ALTER TABLE t ALTER x SET STORAGE EXTENDED",
        "INSERT INTO t SELECT g, ARRAY(SELECT (i % 11)::real FROM generate_series(1, 1500) i), more, y"
        " FROM t JOIN generate_series(1, 5) g ON t.k = g",
    ):
        session.execute(statement)
    for order in ("", "ORDER BY k % 7, k"):
        for column in ("x", "more"):
            session.execute(f"CREATE TABLE plain AS SELECT {column}, y FROM t {order}")
            session.execute(f"ALTER TABLE plain ALTER {column} SET STORAGE MAIN")
            session.execute("VACUUM FULL plain")
            expected = weights(session, f"query => 'SELECT {column}, y FROM plain'")
            assert weights(session, f"query => 'SELECT {column}, y FROM t {order}'") == expected
            session.execute("DROP TABLE plain")


def test_pgvector(session: Session) -> None:
    """Type vector of pgvector, as the server of the tests has it: in pages, out of line, in queries, in predictions."""
    session.execute("CREATE EXTENSION vector SCHEMA test")
    session.execute("CREATE TABLE t (k int, x vector(3), wide vector, y real)")
    session.execute("ALTER TABLE t ALTER wide SET STORAGE EXTERNAL")
    wide = "(SELECT array_agg((i * j)::real) FROM generate_series(1, 700) j)::vector"
    session.execute(f"INSERT INTO t SELECT i, ARRAY[i, 0.5, -i]::vector, {wide}, i % 2 FROM generate_series(1, 40) i")
    session.execute("INSERT INTO t VALUES (0, NULL, '[1]', 1)")
    session.execute("CREATE TABLE plain AS SELECT x::real[] AS x, wide::real[] AS wide, y FROM t WHERE k > 0")
    for column in ("x", "wide"):
        expected = weights(session, f"query => 'SELECT {column}, y FROM plain'")
        for machine in ("sim", "interp"):
            arguments = f"features => '{{{column}}}', label => 'y', filter => 'k > 0', machine => '{machine}'"
            assert weights(session, f"'t', 'v', {arguments}") == expected
        assert weights(session, f"query => 'SELECT {column}, y FROM t WHERE k > 0'") == expected
        row = session.execute(
            f"SELECT count(*) FILTER (WHERE dana_predict('v', {column}) = dana_predict('v', {column}::real[])),"
            " count(*) FROM t WHERE k > 0"
        ).fetchone()
        assert row == (40, 40)
    assert weights(session, "'t', features => '{x}', label => 'y'")[2] == 1, "a NULL is skipped"
    with pytest.raises(psycopg.errors.DataException, match="array of 1 elements"):
        weights(session, "'t', features => '{wide}', label => 'y'")
    session.execute("CREATE SCHEMA other; CREATE TYPE other.vector AS (a int)")
    try:
        session.execute("CREATE TABLE u (x other.vector, y real)")
        session.execute("INSERT INTO u VALUES (ROW(1), 1)")
        with pytest.raises(psycopg.errors.InvalidParameterValue, match=r"no column of test\.u is left for x"):
            weights(session, "'u'")
    finally:
        session.execute("DROP SCHEMA other CASCADE")
