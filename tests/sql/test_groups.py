"""`dana_train_groups`: each group's model is the one that `dana_train` makes of its rows."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from dana import rules
from tests.sql.conftest import Session, new_role

errors = psycopg.errors


@pytest.fixture
def table(session: Session) -> str:
    """Groups of unlike sizes, scattered over pages that have gaps and rows out of order."""
    session.execute("CREATE TABLE t (k int, region text, year int, x real, y real)")
    session.execute(
        "INSERT INTO t SELECT i, CASE WHEN i % 50 <> 0 THEN chr(97 + i % 7) END, 2000 + i % 2, sin(i), i % 3"
        " FROM generate_series(1, 2000) i"
    )
    session.execute("UPDATE t SET x = x + 1 WHERE k % 11 = 0")
    session.execute("DELETE FROM t WHERE k % 13 = 0 OR region = 'g' AND k > 100")
    session.execute("CREATE INDEX ON t (region)")
    return "t"


XY = {"features": ["x"], "label": "y"}


def trained(session: Session, source: str | None, by: list[str], **training: object) -> list[tuple[Any, ...]]:
    """Key, model, version, rows and error of each group."""
    return session.execute(
        "SELECT key, model, version, tuples, error FROM dana_train_groups('sums', %s::text::regclass, %s, %s)"
        " ORDER BY model",
        (source, by, Jsonb(training)),
    ).fetchall()


def values(session: Session, model: str) -> list[float]:
    row = session.execute('SELECT "values" FROM dana_parameters(%s)', (model,)).fetchone()
    assert row is not None
    assert isinstance(row[0], list)
    return row[0]


@pytest.mark.parametrize("query", [None, "SELECT * FROM t -- all"])
def test_models_are_those_of_the_groups_rows(session: Session, table: str, query: str | None) -> None:
    found = trained(session, None if query else "t", ["region"], query=query, **XY)
    assert [row[0] for row in found] == [{"region": letter} for letter in "abcdefg"]
    for key, model, version, tuples, error in found:
        condition = f"region = '{key['region']}'"
        alone = f"query => $q$SELECT x, y FROM t WHERE {condition} ORDER BY ctid$q$"
        row = session.execute(f"SELECT tuples FROM dana_train('sums', {alone}, model => 'alone')").fetchone()
        assert row == (tuples,)
        assert (model, version, error) == (f"sums[{key['region']}]", 1, None)
        assert values(session, model) == values(session, "alone")
        assert session.execute("SELECT (dana_evaluate(%s) ->> 'rows')::int", (model,)).fetchone() == (tuples,)
    predicted = session.execute(
        "SELECT count(*) FROM t WHERE dana_predict(dana_group('sums', region), x) = x * (SELECT weights[1]"
        " FROM dana.model WHERE name = dana_group('sums', region))"
    ).fetchone()
    assert predicted == session.execute("SELECT count(region) FROM t").fetchone()


def test_two_columns_a_filter_and_a_part_for_tests(session: Session, table: str) -> None:
    training = XY | {"model": "m", "filter": "k > 100 -- late", "test_size": 0.3}
    found = trained(session, "t", ["region", "year"], **training)
    assert found[0][:2] == ({"region": "a", "year": "2000"}, "m[a,2000]")
    assert len(found) == 12
    test = session.execute(
        "SELECT count(*) FROM t WHERE k > 100 AND region = 'b' AND year = 2001 AND dana_holdout(ctid, 0.3)"
    ).fetchone()
    assert session.execute("SELECT (dana_evaluate('m[b,2001]') ->> 'rows')::int").fetchone() == test
    again = trained(session, "t", ["region", "year"], **training)
    assert [row[2] for row in again] == [2] * 12
    session.execute("DELETE FROM t WHERE k <= 100 OR region = 'b' AND NOT dana_holdout(ctid, 0.3)")
    left = {row[0]["region"]: row[4] for row in trained(session, "t", ["region"], **training)}
    assert left.pop("b") == "the group has no row to train on: all of them are held out for a test"
    assert left == dict.fromkeys("acdef")


def test_a_group_that_fails_leaves_the_others(session: Session) -> None:
    session.execute("CREATE TABLE v (g text, x real[], y text)")
    session.execute(
        "INSERT INTO v VALUES ('a', '{1,2}', 'no'), ('b', '{1,2,3}', 'no'), ('c', '{3,4}', 'what'),"
        " ('d', '{5,6}', 'yes'), ('e', '{NaN,1}', 'no'), ('f', NULL, 'no')"
    )
    heard: list[str] = []
    session.execute("SET client_min_messages = notice")
    session.add_notice_handler(lambda notice: heard.append(notice.message_primary or ""))
    training = XY | {"classes": ["no", "yes"], "nonfinite": "error"}
    found = session.execute(
        "SELECT key ->> 'g', tuples, version, sqlstate, error FROM dana_train_groups('sums', 'v', '{g}', %s)"
        " ORDER BY 1",
        (Jsonb(training),),
    ).fetchall()
    assert [(row[0], row[1], row[2], row[3]) for row in found] == [
        ("a", 1, 1, None),
        ("b", None, None, "22000"),
        ("c", None, None, "22000"),
        ("d", 1, 1, None),
        ("e", None, None, "22000"),
        ("f", None, None, "22000"),
    ]
    wrong = [row[4] for row in found if row[4]]
    for text, part in zip(wrong, ("array of 3 elements", '"what"', "NaN", "no row to train on"), strict=True):
        assert part in text
    assert "4 of 6 groups could not be trained" in heard
    assert session.execute("SELECT name FROM dana.model ORDER BY 1").fetchall() == [("sums[a]",), ("sums[d]",)]


def test_a_group_of_one_class(session: Session) -> None:
    """As dana_train has it; and which group a warning is of."""
    session.execute("SELECT dana_create_udf('logistic', %s)", (rules.text("logistic"),))
    session.execute("SELECT dana_create_udf('linear', %s)", (rules.text("linear"),))
    session.execute(
        "CREATE TABLE c AS SELECT chr(97 + i % 3) AS g, sin(i)::real AS a,"
        " CASE WHEN i % 3 = 0 OR sin(i) > 0 THEN 1 ELSE 0 END AS y FROM generate_series(1, 300) i"
    )
    heard: list[str] = []
    session.execute("SET client_min_messages = warning")
    session.add_notice_handler(lambda notice: heard.append(notice.message_primary or ""))
    groups = "SELECT key ->> 'g', sqlstate, error FROM dana_train_groups(%s, 'c', '{g}', %s) ORDER BY 1"
    for more in ({}, {"nulls": "error"}):
        found = session.execute(groups, ("logistic", Jsonb({"label": "y", **more}))).fetchall()
        alone = "SELECT dana_train('logistic', 'c', label => 'y', features => '{a}', filter => 'g < chr(98)')"
        with pytest.raises(errors.DataException, match='all labels in column "y" of test.c are "1"'):  # noqa: RUF043
            session.execute(alone)
        assert found == [
            ("a", "22000", 'all labels in column "y" of the group are "1"'),
            ("b", None, None),
            ("c", None, None),
        ]
    training = Jsonb({"label": "y", "classes": ["0", "1"]})
    assert [row[2] for row in session.execute(groups, ("logistic", training)).fetchall()] == [None] * 3
    heard.clear()
    session.execute(groups, ("linear", Jsonb({"label": "y"})))
    assert heard == ['column y of test.c, the label, has a single value in all rows (model "linear[a]")']
    heard.clear()
    session.execute("SELECT dana_train('linear', query => 'SELECT a, 1 AS y FROM c')")
    assert heard == ["column y of the query, the label, has a single value in all rows"]


def test_rows_without_a_group(session: Session, table: str) -> None:
    heard: list[str] = []
    session.execute("SET client_min_messages = notice")
    session.add_notice_handler(lambda notice: heard.append(notice.message_primary or ""))
    trained(session, "t", ["region"], **XY)
    missing = session.execute("SELECT count(*) FROM t WHERE region IS NULL").fetchone()
    assert missing is not None
    assert heard == [f"{missing[0]} rows of test.t were left out because of a null in a grouping column"]
    with pytest.raises(errors.NullValueNotAllowed, match="in a grouping column"):
        trained(session, "t", ["region"], nulls="error", **XY)
    with pytest.raises(errors.DataException, match="no row to train on"):
        trained(session, "t", ["region"], filter="region IS NULL", **XY)


def test_one_transaction(session: Session, table: str) -> None:
    """Cancelled or rolled back, it leaves no model; afterwards everything works."""
    session.execute("SET statement_timeout = 200")
    with pytest.raises(errors.QueryCanceled):
        trained(session, "t", ["k"], epochs=2000, patience=0, **XY)
    session.execute("RESET statement_timeout")
    with session.transaction(force_rollback=True):
        assert len(trained(session, "t", ["k"], filter="k < 50", **XY)) == 46
    assert session.execute("SELECT count(*) FROM dana.model").fetchone() == (0,)
    assert len(trained(session, "t", ["k"], filter="k < 50", **XY)) == 46


@pytest.mark.parametrize(
    ("by", "training", "error", "message"),
    [
        (None, {}, errors.InvalidParameterValue, '"group_by" must name a column'),
        ([], {}, errors.InvalidParameterValue, '"group_by" must name a column'),
        ([None], {}, errors.NullValueNotAllowed, "must not contain nulls"),
        (["nowhere"], {}, errors.UndefinedColumn, "nowhere"),
        (["x) FROM t; DROP TABLE t; --"], {}, errors.UndefinedColumn, "DROP"),
        (["region"], {"model": "a@b"}, errors.InvalidName, "cannot be a model's name"),
        (["region"], {"hyper": {"q": 1}}, errors.InvalidParameterValue, "no hyperparameter"),
        (["x"], {"query": "DELETE FROM t RETURNING x"}, errors.SyntaxError, "it is not one SELECT"),
        (["x"], {"query": "SELECT 1) AS r; DROP TABLE t; --"}, errors.SyntaxError, ""),
        (["region"], {"filter": "true) OR (true"}, errors.SyntaxError, ""),
        (["region"], {"filter": "1 / (k - 5) > 0"}, errors.DivisionByZero, ""),
    ],
)
def test_refusals(
    session: Session, table: str, by: list[str], training: dict[str, Any], error: type[psycopg.Error], message: str
) -> None:
    with pytest.raises(error, match=message or None):
        trained(session, None if "query" in training else "t", by, **training)
    assert session.execute("SELECT count(*) FROM t").fetchone() is not None
    assert session.execute("SELECT count(*) FROM dana.model").fetchone() == (0,)


def test_it_reads_with_the_rights_of_the_caller(session: Session, table: str) -> None:
    with new_role(session, "grouper"):
        session.execute("SET ROLE grouper")
        with pytest.raises(errors.InsufficientPrivilege, match="dana_train_groups"):
            trained(session, "t", ["region"])
        session.execute("RESET ROLE")
        session.execute("GRANT EXECUTE ON FUNCTION dana_train_groups, dana_drop_model TO grouper")
        session.execute("SET ROLE grouper")
        with pytest.raises(errors.InsufficientPrivilege):
            trained(session, "t", ["region"])
        session.execute("RESET ROLE")
        session.execute("GRANT SELECT (region, x, y) ON t TO grouper")
        session.execute("SET ROLE grouper")
        assert [row[1] for row in trained(session, "t", ["region"], **XY)] == [f"sums[{one}]" for one in "abcdefg"]
        session.execute(
            "SELECT count(dana_drop_model(format('sums[%s]', one))) FROM unnest('{a,b,c,d,e,f,g}'::text[]) one"
        )
        with pytest.raises(errors.InsufficientPrivilege):
            trained(session, "t", ["region"], label="y")
        session.execute("RESET ROLE")
        session.execute("GRANT SELECT ON t TO grouper")
        session.execute("ALTER TABLE t ENABLE ROW LEVEL SECURITY")
        session.execute("CREATE POLICY p ON t USING (region = 'a')")
        session.execute("SET ROLE grouper")
        found = trained(session, "t", ["region"], **XY)
        assert [row[1] for row in found] == ["sums[a]"]
        session.execute("SELECT dana_drop_model('sums[a]')")


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ("'m', 'a'", "m[a]"),
        ("'m', 'a', 'b c'", "m[a,b c]"),
        ("'m', 'a,b'", "m[a%2Cb]"),
        ("'m', '[x]@2%'", "m[%5Bx%5D%402%25]"),
        ("'m', E'ü\\n'", "m[ü%0A]"),
        ("'m', ''", "m[]"),
        ("'m', NULL, 'a'", None),
    ],
)
def test_names(session: Session, arguments: str, name: str | None) -> None:
    assert session.execute(f"SELECT dana_group({arguments})").fetchone() == (name,)


def test_long_keys_have_names_too(session: Session) -> None:
    session.execute(
        "CREATE TABLE long AS SELECT repeat('ü', 200) || i % 2 AS g, i::real AS x, 1::real AS y"
        " FROM generate_series(1, 10) i"
    )
    found = trained(session, "long", ["g"])
    assert [row[3] for row in found] == [5, 5]
    rows = session.execute("SELECT count(dana_predict(dana_group('sums', g), x)) FROM long").fetchone()
    assert rows == (10,)
