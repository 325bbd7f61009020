"""What is done to columns: categories, parts of dates, values for NULLs; in trainings, and the same in predictions."""

from __future__ import annotations

from typing import Any

import numpy as np
import psycopg
import pytest
from psycopg.types.json import Jsonb

from dana import rules
from tests.sql.conftest import Session, weights

errors = psycopg.errors

TOWNS = ("", "Bonn", "Köln", "O''Hara \"x\"")


def one_hot(column: str, *values: str) -> list[str]:
    return [f"({column}::text = '{value}')::int" for value in values]


def parts(column: str, *names: str) -> list[str]:
    return [f"extract({name} FROM {column})::real" for name in names]


BY_HAND = [
    *one_hot("town", *TOWNS),
    *one_hot("code", "a", "b"),
    *one_hot("tag", "p", "q", "r"),
    *one_hot("level", "bronze", "gold", "silver"),
    "member::int",
    *parts("born", "year", "month", "dow"),
    *parts("seen", "year", "month", "dow", "hour"),
    *parts("at AT TIME ZONE 'UTC'", "year", "month", "dow", "hour"),
    "age",
]
COLUMNS = ", ".join(f"c{k}" for k in range(len(BY_HAND)))
"""Of table `plain`."""


def by_hand(session: Session, expressions: list[str], table: str = "people") -> None:
    """Table `plain`: expressions, as columns c0, c1 …, and the label."""
    listed = ", ".join(f"{one} AS c{k}" for k, one in enumerate(expressions))
    session.execute(f"CREATE TABLE plain AS SELECT {listed}, y FROM {table}")  # type: ignore[arg-type]


def trained(session: Session, source: str | None = "people", **options: Any) -> tuple[dict[str, Any], list[str]]:
    """Train `sums` as model m: metadata, and what was notices of columns."""
    heard: list[str] = []

    def hear(notice: psycopg.errors.Diagnostic) -> None:
        heard.append(str(notice.message_primary))

    session.execute("SET client_min_messages = notice")
    session.add_notice_handler(hear)
    try:
        session.execute("SELECT dana.sums(%s, %s)", (source, Jsonb(options | {"model": "m"})))
    finally:
        session.remove_notice_handler(hear)
        session.execute("SET client_min_messages = warning")
    metadata = value(session, "SELECT metadata FROM dana.model WHERE name = 'm' ORDER BY version DESC LIMIT 1")
    return metadata, [one for one in heard if one.startswith("column ") and "single value in all rows" not in one[-25:]]


def value(session: Session, query: str, *arguments: Any) -> Any:
    row = session.execute(query, arguments or None).fetchone()  # type: ignore[arg-type]
    assert row is not None
    return row[0]


def test_the_same_as_by_hand(people: Session) -> None:
    """Nothing but the table is named; from a table, a view and a query, by every machine."""
    by_hand(people, BY_HAND)
    people.execute("SET timezone = 'Asia/Tokyo'")
    expected = weights(people, "'plain'")
    assert len(expected[0]) == 25
    assert weights(people, "'people'") == expected
    assert weights(people, "'people', machine => 'interp'") == expected
    people.execute("CREATE VIEW v AS SELECT * FROM people")
    assert weights(people, "'v', features => '{town,code,tag,level,member,born,seen,at,age}'") == expected
    assert (
        weights(people, "query => 'SELECT town, code, tag, level, member, born, seen, at, age, y FROM people'")
        == expected
    )


def test_dates_before_christ(people: Session) -> None:
    """There is no year 0: the one before 1 is -1, as SQL's extract() has it."""
    first = ["4713-11-24 BC", "0044-03-15 BC", "0001-01-01 BC", "0001-12-31 BC", "0001-01-01"]
    for k, date in enumerate(first):
        people.execute("UPDATE people SET born = %s::date WHERE id %% 20 = %s", (date, k))
        people.execute("UPDATE people SET seen = %s::timestamp + '23:59' WHERE id %% 20 = %s", (date, k + 5))
    by_hand(people, BY_HAND)
    assert weights(people, "'people'") == weights(people, "'plain'")


def test_what_is_told_and_kept(people: Session) -> None:
    metadata, notices = trained(people)
    assert notices == [
        "column id: no feature, it is the primary key",
        "column name: no feature, it has 120 different values in 120 rows",
        "column town: one-hot, 4 categories",
        "column code: one-hot, 2 categories",
        "column tag: one-hot, 3 categories",
        "column level: one-hot, 3 categories",
        "column born: year, month, dow",
        "column seen: year, month, dow, hour",
        "column at: year, month, dow, hour",
    ]
    assert metadata["features"] == ["town", "code", "tag", "level", "member", "born", "seen", "at", "age"]
    assert metadata["encoded"][:6] == ["town=", "town=Bonn", "town=Köln", 'town=O\'Hara "x"', "code=a", "code=b"]
    assert metadata["encoded"][13:16] == ["born.year", "born.month", "born.dow"]
    categories = ["", "Bonn", "Köln", 'O\'Hara "x"']
    assert metadata["preprocess"][0] == {
        "column": "town",
        "encode": "one_hot",
        "categories": categories,
        "other": False,
    }
    assert metadata["preprocess"][-1] == {"column": "age"}


KEYED = """
CREATE TABLE numbers AS SELECT id, age, member, y FROM people;
CREATE TABLE keyed AS SELECT * FROM numbers;
ALTER TABLE keyed ADD PRIMARY KEY (id);
CREATE TABLE numbered (id int GENERATED ALWAYS AS IDENTITY UNIQUE, age int, member boolean, y real);
INSERT INTO numbered (age, member, y) SELECT age, member, y FROM numbers;
CREATE TABLE pair AS SELECT * FROM numbers;
ALTER TABLE pair ADD PRIMARY KEY (id, age)
"""


def test_numbers_are_read_as_ever(people: Session) -> None:
    """From pages, where nothing needs encoding; a key is left out all the same, unless it is named."""
    people.execute(KEYED)
    every, few = ["id", "age", "member"], ["age", "member"]
    for table, options, features in (
        ("numbers", {}, every),
        ("pair", {}, every),
        ("keyed", {}, few),
        ("numbered", {}, few),
        ("keyed", {"features": every}, every),
        ("keyed", {"preprocess": {"id": {}}}, every),
    ):
        metadata, _ = trained(people, table, **options)
        assert metadata["features"] == features, table
        assert "preprocess" not in metadata
        assert value(people, "SELECT design -> 'pages' FROM dana.run ORDER BY id DESC LIMIT 1") == 1


def test_rare_categories_are_one(session: Session) -> None:
    """Of at least 5 rows; "other" has the rest, under a name that no category has."""
    session.execute("CREATE TABLE t (v text, y real)")
    session.execute("INSERT INTO t SELECT 'c' || k, k FROM generate_series(1, 40) k, generate_series(1, k) i")
    metadata, notices = trained(session, "t")
    assert metadata["preprocess"][0]["categories"] == sorted(f"c{k}" for k in range(5, 41))
    assert notices == ["column v: one-hot, the 36 most frequent of 40 categories, and other"]
    assert metadata["encoded"][-1] == "v=other"
    rest, seldom, often = (
        value(session, "SELECT dana_predict('m', %s::text)", one) for one in ("never seen", "c3", "c30")
    )
    assert rest == seldom != often
    session.execute(
        "UPDATE t SET v = CASE WHEN y > 36 THEN 'other' WHEN y > 30 THEN repeat('long', 60) ELSE 'x' || y END;"
        " DELETE FROM t WHERE y BETWEEN 5 AND 29"
    )
    metadata, _ = trained(session, "t")
    assert metadata["encoded"] == ["v=other", "v=x30", "v=(other)"], "a long text is no category"
    session.execute(
        "TRUNCATE t; INSERT INTO t SELECT 'v' || i, 1 FROM generate_series(1, 5000) i, generate_series(1, 4)"
    )
    session.execute("INSERT INTO t SELECT 'often', 2 FROM generate_series(1, 19)")
    metadata, _ = trained(session, "t", label="y", nulls="0", preprocess={"v": {}})
    assert metadata["preprocess"][0]["categories"] == ["often"]


def test_more_categories_where_it_is_said(session: Session) -> None:
    """Text columns share 500; the NOTICE of one that has more says how. Where a number is said, rare ones count."""
    session.execute("CREATE TABLE t (zip text, y real)")
    session.execute("INSERT INTO t SELECT 'z' || i % 300, sin(i % 300) FROM generate_series(1, 6000) i")
    session.execute("INSERT INTO t SELECT 'rare', 9 FROM generate_series(1, 5)")
    session.execute("INSERT INTO t SELECT 'once' || i, 9 FROM generate_series(1, 3) i")
    _, notices = trained(session, "t", label="y")
    assert notices == ["column zip: one-hot, the 301 most frequent of 304 categories, and other"]
    session.execute("SELECT dana_create_udf('logistic', %s)", (rules.text("logistic"),))
    session.execute("SELECT dana_train('logistic', query => 'SELECT zip, y > 0 AS y FROM t', model => 'c')")
    found = "SELECT jsonb_array_length(metadata #> '{preprocess,0,categories}') FROM dana.model WHERE name = 'c'"
    assert value(session, found) == 300, "few rows may all be of one class"
    session.execute("ALTER TABLE t ADD x text NOT NULL DEFAULT 'a', ADD z text NOT NULL DEFAULT 'b'")
    session.execute("UPDATE t SET x = 'c', z = 'd' WHERE y > 0")
    hints = []
    session.add_notice_handler(lambda said: hints.append(said.message_hint or ""))
    _, notices = trained(session, "t", label="y")
    assert notices[0] == "column zip: one-hot, the 166 most frequent of 304 categories, and other"
    (hint,) = (one for one in hints if "share" in one)
    assert hint.startswith("To have more of them: preprocess => ")
    assert hint.endswith('; with "hash" in place of "one_hot", all of them share so many columns.')
    advised = value(session, f"SELECT ({hint.split('=> ')[1].partition(';')[0]})::jsonb")
    assert advised == {"zip": {"encode": "one_hot", "categories": 304}}
    for wish, categories in ((advised["zip"], 304), ({"categories": 304}, 304), ({"categories": 40}, 40)):
        hints.clear()
        metadata, notices = trained(session, "t", label="y", preprocess={"zip": wish})
        assert len(metadata["preprocess"][0]["categories"]) == categories
        said = "the 40 most frequent of 304 categories, and other" if categories == 40 else "304 categories"
        assert notices[0] == f"column zip: one-hot, {said}"
        assert any("share" in one for one in hints) is (categories == 40)
        assert value(session, "SELECT count(dana_predict('m', t)) FROM t") == 6008


@pytest.fixture
def odd(session: Session) -> Session:
    session.execute(
        "CREATE TABLE t AS SELECT 'v' || i % 1500 AS many, 'same'::text AS one, NULL::text AS none, NULL::json AS j,"
        " i AS a, (i % 5)::real AS y FROM generate_series(1, 6001) i"
    )
    return session


def test_columns_that_are_no_features(odd: Session) -> None:
    metadata, notices = trained(odd, "t")
    expected = [
        "column many: no feature, it has 1500 different values in 6001 rows",
        "column one: no feature, it has a single value in all rows",
        "column none: no feature, all its values are NULL",
        "column j: no feature, its type is json",
        "column a of test.t numbers the rows, or nearly so, and is a feature",
    ]
    assert notices in (expected, [expected[0], *expected[2:]])
    assert metadata["features"] == ["a"]
    metadata, _ = trained(odd, "t", features=["many", "a"])
    assert metadata["encoded"] == ["many=v1", "many=other", "a"], "what is named is taken"
    with pytest.raises(errors.InvalidParameterValue, match=r"column 'j' of test\.t has type json"):
        trained(odd, "t", features=["j", "a"])


def test_texts_without_a_category_are_no_features(session: Session) -> None:
    session.execute(
        "CREATE TABLE t AS SELECT i % 100 || ' rare' AS rare, repeat('x', 200) || i % 3 AS long, (i % 7)::real AS a,"
        " (i % 5)::real AS y FROM generate_series(1, 400) i"
    )
    metadata, notices = trained(session, "t")
    assert notices == [
        "column rare: no feature, none of its 100 values is in 5 rows",
        "column long: no feature, all its values have more than 200 bytes",
    ]
    assert metadata["features"] == ["a"]
    metadata, notices = trained(session, "t", features=["rare", "a"])
    assert notices[0] == "column rare: one-hot, the 0 most frequent of 100 categories, and other"


def test_chosen_otherwise(people: Session) -> None:
    wishes = {
        "born": {"encode": ["day", "month"]},
        "seen": {"encode": "none"},
        "at": {"encode": ["hour"]},
        "age": {"encode": "one_hot"},
    }
    metadata, _ = trained(people, features=list(wishes), preprocess=wishes)
    ages = sorted(map(str, range(13)))
    seconds = "extract(epoch FROM seen - timestamp '2000-01-01')::real"
    hour = parts("at AT TIME ZONE 'UTC'", "hour")
    by_hand(people, [*parts("born", "day", "month"), seconds, *hour, *one_hot("age", *ages)])
    assert metadata["encoded"] == ["born.day", "born.month", "seen", "at.hour", *(f"age={k}" for k in ages)]
    (expected, _, _) = weights(people, "'plain'")
    assert value(people, "SELECT weights FROM dana.model WHERE name = 'm'") == expected


def test_other_rules_stay_as_they_are(people: Session) -> None:
    """One that names its inputs, or has several, has its columns chosen and read as ever; wishes are followed."""
    people.execute(
        "SELECT dana_create_udf('two', %s)",
        (
            "import dana\nw = dana.model()\nborn = dana.input()\nage = dana.input()\ny = dana.output()\n"
            "two = dana.algo(w, born, age, y)\ntwo.setModel(w + two.merge(born * (y + 1) + age, 8, '+'))\n"
            "two.setPrediction(w * born)\ntwo.setEpochs(1)\n",
        ),
    )
    people.execute("CREATE TABLE t AS SELECT born, age, born - date '2000-01-01' AS days, y FROM people")
    people.execute("UPDATE t SET age = NULL WHERE y = 3")
    call = "SELECT loss FROM dana_train('two', {}, label => 'y', model => 'm')"
    found = []
    for arguments in (
        "'t', nulls => '0'",
        "query => 'SELECT born, coalesce(age, 0) AS age, y FROM t'",
        "query => 'SELECT days AS born, coalesce(age, 0) AS age, y FROM t'",
        """'t', features => '{days,age}', preprocess => '{"age": {"impute": 0}}'""",
    ):
        people.execute(call.format(arguments))
        found.append(value(people, "SELECT weights FROM dana.model WHERE name = 'm' ORDER BY version DESC LIMIT 1"))
    assert found[0] == found[1] == found[2] == found[3]
    with pytest.raises(errors.FeatureNotSupported, match=r'a NULL of column "born" .* has no indicator'):
        people.execute(call.format("'t', nulls => 'indicator'"))
    people.execute("SELECT dana_drop_rule('two')")


@pytest.fixture
def gaps(session: Session) -> Session:
    """Numbers of two columns, one with NULLs, NaN and infinities; text and dates with NULLs."""
    session.execute(
        "CREATE TABLE t AS SELECT i AS id, CASE WHEN i % 4 > 0 THEN (i * i % 31)::numeric END AS a, i % 7 AS b,"
        " CASE WHEN i % 5 > 0 THEN (ARRAY['x', 'z'])[i % 2 + 1] END AS c,"
        " CASE WHEN i % 6 > 0 THEN date '2001-01-01' + i END AS d, (i % 3)::real AS y FROM generate_series(1, 200) i"
    )
    return session


@pytest.mark.parametrize(
    ("nulls", "expression"),
    [
        ("mean", "SELECT avg(a::float8)::real FROM t"),
        ("median", "SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY a)::real FROM t"),
        ("-1.5", "SELECT -1.5::real"),
    ],
)
def test_nulls_are_filled(gaps: Session, nulls: str, expression: str) -> None:
    number = value(gaps, expression)
    gaps.execute("CREATE TABLE plain AS SELECT coalesce(a::real, %s) AS a, b, y FROM t", (number,))
    expected = weights(gaps, "'plain'")
    metadata, notices = trained(gaps, "t", features=["a", "b"], nulls=nulls)
    assert value(gaps, "SELECT weights FROM dana.model WHERE name = 'm'") == expected[0]
    filled = {"column": "a", "impute": [pytest.approx(number)]}
    assert metadata["preprocess"][0] == filled
    assert notices == ([f"column a: NULL becomes {number:.6g}, the {nulls}"] if nulls in ("mean", "median") else [])
    alone, notices = trained(gaps, "t", features=["a", "b"], preprocess={"a": {"impute": nulls}})
    assert alone["preprocess"] == [filled, {"column": "b"}]
    assert value(gaps, "SELECT dana_predict('m', NULL, 3) - dana_predict('m', %s::real, 3)", number) == 0
    assert value(gaps, "SELECT dana_predict('m', 1, NULL)") is None
    assert value(gaps, "SELECT count(dana_predict('m', t)) FROM t") == 200
    assert value(gaps, "SELECT dana_evaluate('m') -> 'rows'") == 200


def test_the_mean_is_of_the_rows_that_are_trained_on(gaps: Session) -> None:
    gaps.execute("UPDATE t SET a = 'NaN' WHERE id = 1; UPDATE t SET a = 'Infinity' WHERE id = 2")
    for options, where in (
        ({}, "true"),
        ({"filter": "t.b < 3"}, "b < 3"),
        ({"test_size": 0.4, "seed": 3}, "NOT dana_holdout(ctid, 0.4, 3)"),
        ({"test_size": 0.4, "filter": "b < 3 -- or so"}, "b < 3 AND NOT dana_holdout(ctid, 0.4)"),
    ):
        metadata, _ = trained(gaps, "t", features=["a", "b"], preprocess={"a": {"impute": "mean"}}, **options)
        expected = value(
            gaps, f"SELECT avg(a::float8) FILTER (WHERE a NOT IN ('NaN', 'Infinity'))::real FROM t WHERE {where}"
        )
        assert metadata["preprocess"][0]["impute"] == [pytest.approx(expected, rel=1e-6)]


def test_texts_and_dates_that_are_null(gaps: Session) -> None:
    """Rows are left out, unless something is put in their place: "other", and the parts of the mean day."""
    gaps.execute("SELECT dana_train('sums', 't', features => '{c,d}', label => 'y', model => 'm')")
    assert value(gaps, "SELECT tuples FROM dana.run ORDER BY id DESC LIMIT 1") == 133
    assert value(gaps, "SELECT count(dana_predict('m', c, d)) FROM t") == 133
    metadata, notices = trained(gaps, "t", features=["c", "d"], nulls="mean")
    mean = value(gaps, "SELECT date '2000-01-01' + round(avg(d - date '2000-01-01'))::int FROM t")
    assert notices == [
        "column c: one-hot, 2 categories and other; NULL becomes other",
        f"column d: year, month, dow; NULL becomes {mean.year}, {mean.month}, {mean.isoweekday() % 7}, the mean",
    ]
    assert metadata["encoded"] == ["c=x", "c=z", "c=other", "d.year", "d.month", "d.dow"]
    assert value(gaps, "SELECT count(dana_predict('m', c, d)) FROM t") == 200
    assert value(gaps, "SELECT dana_predict('m', NULL, NULL) = dana_predict('m', 'new', %s::date)", mean)
    with pytest.raises(errors.NullValueNotAllowed, match=r'row 4 of test\.t has a NULL in column "a"'):
        trained(gaps, "t", nulls="mean", preprocess={"a": {"impute": "error"}})
    metadata, _ = trained(gaps, "t", nulls="mean", features=["a", "b"], preprocess={"a": {"impute": "skip"}})
    assert [("impute" in one) for one in metadata["preprocess"]] == [False, True]


def test_the_time_between_two_columns_is_no_feature(session: Session) -> None:
    session.execute(
        "CREATE TABLE t AS SELECT timestamptz '2024-03-01' + i * interval '7 hours' AS opened,"
        " date '2024-03-02' + i AS \"Due\", i::real AS y FROM generate_series(1, 300) i"
    )
    hints: list[str | None] = []
    session.add_notice_handler(lambda said: hints.append(said.message_hint))
    trained(session, "t", label="y")
    (hint,) = (one for one in hints if one and "time from" in one)
    assert hint.startswith("The time from opened to Due is no feature; ")
    difference = hint.split("; ")[1].removesuffix(" in a query would be.")
    assert value(session, f"SELECT count({difference}) FROM t") == 300


def test_nulls_with_an_indicator(gaps: Session) -> None:
    """The mean and a column that is 1 for a NULL; of a text a category; none where the rows have no NULL."""
    mean = value(gaps, "SELECT avg(a::float8) FROM t")
    day = value(gaps, "SELECT date '2000-01-01' + round(avg(d - date '2000-01-01'))::int FROM t")
    filled = f"coalesce(d, '{day}')"
    categories = [f"(c IS NOT DISTINCT FROM '{one}')::int" for one in "xz"]
    day_parts = parts(filled, "year", "month", "dow")
    numbers = [f"coalesce(a, {mean!r})::float8", "(a IS NULL)::int", "b"]
    by_hand(gaps, [*numbers, *categories, "(c IS NULL)::int", *day_parts, "(d IS NULL)::int"], "t")
    expected = weights(gaps, "'plain'")[0]
    metadata, notices = trained(gaps, "t", features=["a", "b", "c", "d"], nulls="indicator")
    assert value(gaps, "SELECT weights FROM dana.model WHERE name = 'm'") == expected
    assert notices == [
        f"column a: NULL becomes {mean:.6g}, the mean, and a.null is 1",
        "column c: one-hot, 2 categories; NULL becomes a category of its own",
        f"column d: year, month, dow; NULL becomes {day.year}, {day.month}, {day.isoweekday() % 7}, the mean, "
        "and d.null is 1",
    ]
    names = ["a", "a.null", "b", "c=x", "c=z", "c.null", "d.year", "d.month", "d.dow", "d.null"]
    assert metadata["encoded"] == names
    assert weights(gaps, "query => 'SELECT a, b, c, d, y FROM t', nulls => 'indicator'")[0] == expected
    assert value(gaps, "SELECT count(dana_predict('m', a, b, c, d)) FROM t") == 200
    gaps.execute("CREATE TABLE again AS SELECT dana_predict('m', a, b, c, d) AS p, id FROM t")
    of_plain = f"dana_predict('sums', {', '.join(f'c{k}' for k in range(len(names)))})"
    gaps.execute("SELECT dana_train('sums', 'plain', label => 'y')")
    assert value(gaps, f"SELECT array_agg({of_plain}) FROM plain") == value(gaps, "SELECT array_agg(p) FROM again")


def test_categories_by_hash(session: Session) -> None:
    """Each value, also a new one, has its column; equal values of text, name, char(n) and integers have the same."""
    session.execute(
        "CREATE TABLE t AS SELECT i AS id, CASE WHEN i % 9 > 0 THEN 'town ' || i % 700 END AS c, i % 800 AS n,"
        " i % 20 AS few, (i % 7)::real AS y FROM generate_series(1, 2000) i"
    )
    hashed = {"encode": "hash", "categories": 50}
    metadata, notices = trained(session, "t", features=["c"], nulls="indicator", preprocess={"c": hashed})
    assert notices == ["column c: 700 categories hashed into 50 columns; NULL becomes a category of its own"]
    assert metadata["encoded"] == [*(f"c#{k}" for k in range(50)), "c.null"]
    assert metadata["preprocess"][0] | {"impute": None} == {
        "column": "c", "encode": "hash", "buckets": 50, "indicator": True, "impute": None
    }  # fmt: skip
    expected = weights(
        session,
        """'t', features => '{c}', label => 'y', nulls => 'indicator',
        preprocess => '{"c": {"encode": "hash", "categories": 50}}'""",
    )
    assert expected[1:] == (2000, 0)
    columns = "ARRAY(SELECT dana_predict('m', c)::text FROM t ORDER BY id)"
    assert value(session, f"SELECT count(DISTINCT e) FROM unnest({columns}) AS e") <= 51
    assert value(session, "SELECT dana_predict('m', 'town 8') = dana_predict('m', 'town 8'::char(20))")
    assert value(session, "SELECT dana_predict('m', 'a new one') IS NOT NULL")
    assert value(session, "SELECT dana_evaluate('m') -> 'unseen_categories'") is None
    metadata, notices = trained(session, "t", features=["c", "n"], nulls="mean", preprocess={"c": hashed, "n": hashed})
    assert notices[0] == "column c: 700 categories hashed into 50 columns; NULL becomes no category"
    assert notices[1] == "column n: 800 categories hashed into 50 columns"
    assert value(session, "SELECT dana_predict('m', NULL, 7) IS NOT NULL")
    hints: list[str] = []
    session.add_notice_handler(lambda said: hints.append(said.message_hint or ""))
    for column, count, shared in (("n", 50, 800), ("few", 32, 9), ("few", 1000, None)):
        hints.clear()
        trained(session, "t", features=[column], preprocess={column: {"encode": "hash", "categories": count}})
        said = [one for one in hints if one.endswith('"categories" is the number of columns.')]
        assert [one.split()[1] for one in said] == ([] if shared is None else [str(shared)])
    with pytest.raises(errors.InvalidParameterValue, match="from 1 to 1600"):
        trained(session, "t", preprocess={"c": {"encode": "hash", "categories": 2000}})


def test_predictions(people: Session) -> None:
    """By name and by order, of every type that holds the same; the table's way and by hand."""
    trained(people)
    by_hand(people, BY_HAND)
    people.execute("SELECT dana_train('sums', 'plain', label => 'y', model => 'hand')")
    hand = people.execute(f"SELECT dana_predict('hand', {COLUMNS}) FROM plain").fetchall()  # type: ignore[arg-type]
    listed = "town, code, tag, level, member, born, seen, at, age"
    for arguments in (
        listed,
        "people",
        "town::text, code::char(30), tag::text, level::text, member::int, born::timestamp, seen, at, age::float8",
    ):
        assert people.execute(f"SELECT dana_predict('m', {arguments}) FROM people").fetchall() == hand  # type: ignore[arg-type]
    found = people.execute("SELECT prediction FROM dana_predict_table('m', 'people')").fetchall()
    assert found == hand
    people.execute("UPDATE people SET name = repeat('far from here', 1000), town = NULL WHERE id < 3")
    assert value(people, "SELECT count(dana_predict('m', p)) FROM people p") == 118
    assert value(people, f"SELECT dana_predict(NULL, {listed}) IS NULL FROM people LIMIT 1")
    assert value(people, "SELECT dana_predict('m', NULL::people)") is None
    infinite = (
        f"SELECT dana_predict('m', {listed.replace('born', chr(39) + 'infinity' + chr(39) + '::date')}) FROM people"
    )
    assert np.isnan(value(people, f"{infinite} ORDER BY id DESC LIMIT 1"))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        ("'Bonn', 'a', 'p', 'gold', 'true', now(), '2020-01-01', now(), '3'", None, None),
        (
            "1, 'a', 'p', 'gold', true, now(), now(), now(), 3",
            errors.DatatypeMismatch,
            'feature 1 .* integer.*text or an enum .column "town"',
        ),
        (
            "1.5, 'a', 'p', 'gold', true, now(), now(), now(), 3",
            errors.DatatypeMismatch,
            "feature 1 .* numeric.*text or an enum",
        ),
        ("'a', 'a', 'p', 'gold', true, 7, now(), now(), 3", errors.DatatypeMismatch, "feature 6 .* integer.*a date"),
        (
            "'a', 'a', 'p', 'gold', 'x', now(), now(), now(), 3",
            errors.InvalidTextRepresentation,
            'type double precision: "x"',
        ),
        ("'a', 'a', 'p'", errors.InvalidParameterValue, "takes 9 features, not 3"),
        ("ARRAY[1, 2]", errors.InvalidParameterValue, "takes 9 features, not 1"),
        ("(SELECT r FROM (SELECT 'x'::text AS town) r)", errors.UndefinedColumn, 'needs column "code"'),
    ],
)
def test_predictions_that_are_refused(people: Session, call: str, error: type[Exception] | None, message: str) -> None:
    trained(people)
    if error is None:
        assert value(people, f"SELECT dana_predict('m', {call})") is not None
        return
    with pytest.raises(error, match=message):
        value(people, f"SELECT dana_predict('m', {call})")


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"preprocess": []}, errors.InvalidParameterValue, 'argument "preprocess" must be a JSON object'),
        (
            {"preprocess": {"nothing": {}}},
            errors.UndefinedColumn,
            'names "nothing", which is no feature of test.people',
        ),
        ({"preprocess": {"y": {}}}, errors.UndefinedColumn, 'names "y", which is no feature'),
        ({"preprocess": {"town": 3}}, errors.InvalidParameterValue, 'an object for column "town"'),
        ({"preprocess": {"town": {"encode": "x"}}}, errors.InvalidParameterValue, 'encode column "town" as "one_hot"'),
        ({"preprocess": {"born": {"encode": [1]}}}, errors.InvalidParameterValue, 'encode column "born" as'),
        ({"preprocess": {"born": {"encode": []}}}, errors.InvalidParameterValue, 'encode column "born" as'),
        ({"preprocess": {"born": {"encode": ["year", "year"]}}}, errors.InvalidParameterValue, "encode column"),
        ({"preprocess": {"born": {"encode": "one_hot"}}}, errors.DatatypeMismatch, "cannot be encoded as categories"),
        ({"preprocess": {"town": {"encode": ["year"]}}}, errors.DatatypeMismatch, "which has no date or time parts"),
        ({"preprocess": {"town": {"colour": 1}}}, errors.InvalidParameterValue, 'not "colour"'),
        ({"preprocess": {"age": {"impute": "x"}}}, errors.InvalidParameterValue, "must impute 'skip'.* not \"x\""),
        ({"preprocess": {"town": {"encode": "none"}}}, errors.InvalidParameterValue, "cannot be trained on"),
        (
            {"preprocess": {"town": {"categories": 0}}},
            errors.InvalidParameterValue,
            'from 1 to 1600 .* "town", not "0"',
        ),
        ({"preprocess": {"town": {"categories": 2.5}}}, errors.InvalidParameterValue, 'not "2.5"'),
        ({"preprocess": {"town": {"categories": "x"}}}, errors.InvalidParameterValue, 'not "x"'),
        ({"preprocess": {"age": {"categories": 4}}}, errors.InvalidParameterValue, '"hash" of column "age"'),
        ({"nulls": "mode"}, errors.InvalidParameterValue, "must be 'skip', 'error', 'mean', 'median'"),
        (
            {"features": ["town", "y"], "label": "y"},
            errors.InvalidParameterValue,
            '"y" of test.people is a feature and',
        ),
        ({"features": ["town", "town"]}, errors.InvalidParameterValue, "two columns|used twice"),
        ({"features": ["town", "no"]}, errors.UndefinedColumn, "'no' of test.people does not exist"),
    ],
)
def test_refusals(people: Session, options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        trained(people, **options)


def test_more_columns_than_there_may_be(session: Session) -> None:
    columns = ", ".join(f"'v' || i % 30 AS c{k}" for k in range(60))
    session.execute(f"CREATE TABLE t AS SELECT {columns}, i::real AS y FROM generate_series(1, 300) i")  # type: ignore[arg-type]
    with pytest.raises(errors.ProgramLimitExceeded, match="become 1800 columns, more than 1599"):
        trained(session, "t")
