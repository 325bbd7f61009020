"""Labels of any kind: numbered by who trains, given back by who predicts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import psycopg
import pytest

from dana import rules
from tests.sql.conftest import Session

errors = psycopg.errors
SPLIT = "(a + b > 40)"


@pytest.fixture
def table(session: Session) -> Iterator[Session]:
    """Points of the plane, which a line tells apart, and a rule for two classes and one for several."""
    for name in ("logistic", "linear_svm", "softmax"):
        session.execute("SELECT dana_create_udf(%s, %s)", (name, rules.text(name)))
    session.execute(
        "CREATE TABLE t AS SELECT i AS id, (i * 7 % 41)::real AS a, (i * 13 % 37)::real AS b"
        " FROM generate_series(1, 400) i"
    )
    yield session
    for name in ("logistic", "linear_svm", "softmax"):
        session.execute("SELECT dana_drop_rule(%s)", (name,))


def one(session: Session, query: str, *values: Any) -> Any:
    row = session.execute(query, values or None).fetchone()
    assert row is not None
    return row[0]


def train(session: Session, rule: str, source: str = "'t'", label: str = "y", **more: Any) -> dict[str, Any]:
    """Train, and return the model's metadata."""
    given = "".join(f", {name} => %s" for name in more)
    call = f"SELECT dana_train('{rule}', {source}, model => 'm', features => '{{a,b}}', label => '{label}'{given})"
    session.execute(call, tuple(more.values()) or None)
    last = "SELECT metadata FROM dana.model WHERE name = 'm' ORDER BY version DESC LIMIT 1"
    found: dict[str, Any] = one(session, last)
    return found


TWO = {
    "text": ("CASE WHEN {} THEN 'yes' ELSE 'no' END", ["no", "yes"]),
    "char(5)": ("(CASE WHEN {} THEN 'yes' ELSE 'no' END)::char(5)", ["no", "yes"]),
    "enum": ("(CASE WHEN {} THEN 'up' ELSE 'down' END)::mood", ["down", "up"]),
    "boolean": ("{}", ["false", "true"]),
    "0 and 1": ("({})::int", ["0", "1"]),
    "-1 and 1": ("CASE WHEN {} THEN 1 ELSE -1 END", ["-1", "1"]),
    "3 and 12": ("(CASE WHEN {} THEN 12 ELSE 3 END)::bigint", ["3", "12"]),
    "numeric": ("(CASE WHEN {} THEN 10.5 ELSE 9.25 END)::numeric(6,2)", ["9.25", "10.50"]),
    "real": ("(CASE WHEN {} THEN 0.1 ELSE -0.5 END)::real", ["-0.5", "0.1"]),
    "date": ("CASE WHEN {} THEN DATE '2024-03-01' ELSE DATE '2024-02-29' END", ["2024-02-29", "2024-03-01"]),
    "domain": ("(CASE WHEN {} THEN 'yes' ELSE 'no' END)::answer", ["no", "yes"]),
}


@pytest.mark.parametrize("kind", TWO)
def test_any_two_values(table: Session, kind: str) -> None:
    """The same model whatever the labels are called; predictions give the labels back."""
    written, names = TWO[kind]
    table.execute("CREATE TYPE mood AS ENUM ('up', 'down'); CREATE DOMAIN answer AS text")
    table.execute(f"CREATE TABLE u AS SELECT *, ({SPLIT})::int AS plain, {written.format(SPLIT)} AS y FROM t")
    train(table, "logistic", "'u'", "plain")
    expected = one(table, "SELECT array_agg(dana_predict('m', a, b) ORDER BY id) FROM u")
    for source in ("'u'", "query => 'SELECT * FROM u'"):
        found = train(table, "logistic", source)
        assert found["classes"] == names
        assert found["predicts"] == "probability"
        assert one(table, "SELECT array_agg(dana_predict('m', a, b) ORDER BY id) FROM u") == expected
    labels = one(table, "SELECT array_agg(dana_classify('m', a, b) ORDER BY id) FROM u")
    assert labels == [names[p >= 0.5] for p in expected]
    right = one(table, "SELECT avg((dana_classify('m', u) = rtrim(y::text))::int) FROM u")
    assert right > 0.9
    both = one(table, "SELECT dana_probabilities('m', a, b) FROM u WHERE id = 7")
    assert both == pytest.approx([1 - expected[6], expected[6]])


def test_numbers_of_classes_stay_on_their_pages(table: Session) -> None:
    """Only what has to be numbered makes frames."""
    table.execute(f"CREATE TABLE u AS SELECT *, ({SPLIT})::int AS y, 2 * ({SPLIT})::int AS z FROM t")
    pages = one(table, "SELECT pg_relation_size('u') / 8192")
    train(table, "logistic", "'u'")
    assert one(table, "SELECT pages / epochs FROM dana.run ORDER BY id DESC LIMIT 1") == pages
    train(table, "logistic", "'u'", "z")
    assert one(table, "SELECT pages / epochs FROM dana.run ORDER BY id DESC LIMIT 1") < pages, (
        "frames hold three columns"
    )


@pytest.mark.parametrize(
    ("values", "classes", "shape"),
    [
        ("'{red,green,blue}'::text[]", ["blue", "green", "red"], 3),
        ("'{10,9,100,1}'::int[]", ["1", "9", "10", "100"], 4),
        ("'{0,1,2,3,4}'::real[]", ["0", "1", "2", "3", "4"], 5),
        ("'{t,f}'::bool[]", ["false", "true"], 2),
    ],
)
def test_as_many_classes_as_there_are(table: Session, values: str, classes: list[str], shape: int) -> None:
    table.execute(f"CREATE TABLE u AS SELECT *, ({values})[1 + id % {shape}] AS y FROM t")
    table.execute("UPDATE u SET a = id %% %s * 10", (shape,))
    found = train(table, "softmax", "'u'")
    assert found["classes"] == classes
    assert found["dims"]["k"] == shape
    rows = table.execute(
        "SELECT y::text, dana_classify('m', a, b), dana_predict('m', a, b), dana_probabilities('m', a, b) FROM u"
    ).fetchall()
    for label, given, number, each in rows:
        assert len(each) == shape
        assert sum(each) == pytest.approx(1, abs=1e-5)
        assert number == int(np.argmax(each))
        assert given == classes[int(number)]
        assert label == given, "a column gives it away"


def test_hyper_says_how_many(table: Session) -> None:
    table.execute("CREATE TABLE u AS SELECT *, 2 * (id % 3) AS y FROM t")
    assert train(table, "softmax", "'u'")["classes"] == ["0", "2", "4"], "in sorted order"
    wide = train(table, "softmax", "'u'", hyper='{"k": 6}')
    assert (wide["dims"]["k"], wide["classes"]) == (6, ["0", "1", "2", "3", "4"]), "their own numbers"
    assert len(one(table, "SELECT dana_probabilities('m', a, b) FROM u LIMIT 1")) == 6
    with pytest.raises(
        errors.InvalidParameterValue, match="the labels have 3 classes, more than hyper gives to 'k': 2"
    ):
        train(table, "softmax", "'u'", hyper='{"k": 2}')
    table.execute("ALTER TABLE u ALTER y TYPE text")
    assert train(table, "softmax", "'u'", hyper='{"k": 5}')["classes"] == ["0", "2", "4"]


@pytest.mark.parametrize(
    ("change", "odd", "more"),
    [
        ("y = 'maybe' WHERE id IN (200, 300)", "maybe", 200),
        ("y = 'a' WHERE id > 250", "a", 251),
    ],
)
def test_a_third_value(table: Session, change: str, odd: str, more: int) -> None:
    """The first row that has it is named."""
    table.execute(f"CREATE TABLE u AS SELECT *, CASE WHEN {SPLIT} THEN 'yes' ELSE 'no' END AS y FROM t ORDER BY id")
    changed = f"CASE WHEN {change.split('WHERE')[1]} THEN '{odd}' ELSE y END AS y"
    table.execute(f"CREATE TABLE changed AS SELECT id, a, b, {changed} FROM u ORDER BY id")
    place = one(table, "SELECT ctid FROM changed WHERE id = %s", more)
    with pytest.raises(
        errors.DataException, match='3 different labels, more than the 2 classes of rule "logistic"'
    ) as raised:
        train(table, "logistic", "'changed'")
    assert str(raised.value.diag.message_detail).endswith(f'The first row with "{odd}" is {place}.')
    assert "filter" in str(raised.value.diag.message_hint)
    with pytest.raises(errors.DataException, match=f'The first row with "{odd}" is number {more}'):
        train(table, "logistic", "query => 'SELECT * FROM changed'")
    train(table, "logistic", "'changed'", filter=f"y <> '{odd}'")
    assert train(table, "softmax", "'changed'")["dims"]["k"] == 3


@pytest.mark.parametrize(("usual", "odd"), [((0, 1), "5"), ((-1, 1), "0.5"), ((7, 9), "8")])
def test_which_value_is_odd(table: Session, usual: tuple[int, int], odd: str) -> None:
    """0 and 1, or -1 and 1, are meant where they are there, wherever others come first; else the first two."""
    first = "id = 1" if usual != (7, 9) else "id = 100"
    others = f"('{{{usual[0]},{usual[1]}}}'::int[])[1 + id % 2]"
    table.execute(f"CREATE TABLE u AS SELECT *, CASE WHEN {first} THEN {odd} ELSE {others} END AS y FROM t ORDER BY id")
    with pytest.raises(errors.DataException, match=f'The first row with "{odd}" is'):
        train(table, "logistic", "'u'")


def test_one_value_and_none(table: Session) -> None:
    table.execute("CREATE TABLE u AS SELECT *, 'yes'::text AS y FROM t")
    for rule in ("logistic", "softmax"):
        with pytest.raises(errors.DataException, match=r'all labels in column "y" of test\.u are "yes"'):
            train(table, rule, "'u'")
    table.execute("UPDATE u SET y = NULL")
    with pytest.raises(errors.DataException, match=r'test\.u has no row with a label in column "y"'):
        train(table, "logistic", "'u'")
    table.execute(
        "CREATE TABLE wide AS SELECT i AS id, i::real AS a, i::real AS b, i::text AS y FROM generate_series(1, 10001) i"
    )
    with pytest.raises(errors.DataException, match="more than 10000 different values, too many for classes"):
        train(table, "softmax", "'wide'")


def test_what_is_not_finite_is_no_class(table: Session) -> None:
    table.execute(f"CREATE TABLE u AS SELECT *, (CASE WHEN {SPLIT} THEN 1 ELSE -1 END)::real AS y FROM t")
    table.execute("UPDATE u SET y = 'NaN' WHERE id = 9; UPDATE u SET y = 'Infinity' WHERE id = 10")
    assert train(table, "logistic", "'u'")["classes"] == ["-1", "1"]
    assert one(table, "SELECT tuples FROM dana.run ORDER BY id DESC LIMIT 1") == 398


def test_all_rows_say_the_classes(table: Session) -> None:
    """Those that are held out, too, and the other groups'; so all models number alike."""
    table.execute("CREATE TABLE u AS SELECT *, (ARRAY['a', 'b', 'c'])[1 + id % 3] AS y, id % 2 AS half FROM t")
    table.execute("UPDATE u SET y = 'd' WHERE dana_holdout(ctid, 0.2, 1)")
    table.execute("VACUUM FULL u")
    everything = train(table, "softmax", "'u'", test_size=0.2)
    assert everything["classes"] == ["a", "b", "c", "d"]
    table.execute("UPDATE u SET y = 'a' WHERE half = 0 AND y <> 'b'")
    table.execute(
        'SELECT dana_train_groups(\'softmax\', \'u\', \'{half}\', \'{"features": ["a", "b"], "label": "y"}\')'
    )
    found = table.execute("SELECT metadata -> 'classes' FROM dana.model WHERE name LIKE 'softmax[%'").fetchall()
    assert found == [(["a", "b", "c", "d"],)] * 2


def test_going_on_from_a_model(table: Session) -> None:
    """Its classes stay, whatever the new rows have."""
    table.execute("CREATE TABLE u AS SELECT *, (ARRAY['b', 'c'])[1 + id % 2] AS y FROM t")
    train(table, "softmax", "query => 'SELECT a, b, (ARRAY[''a'', ''b'', ''c''])[1 + id % 3] AS y FROM t'")
    assert train(table, "softmax", "'u'", warm_start_from="m")["classes"] == ["a", "b", "c"]
    table.execute("UPDATE u SET y = 'd' WHERE id = 5")
    with pytest.raises(errors.DataException, match='holds "d", which is none of the classes of model "m"'):
        train(table, "softmax", "'u'", warm_start_from="m")
    with pytest.raises(
        errors.DataException, match='model "m", to start from, is of rule "softmax", not of "logistic"'
    ) as told:
        train(table, "logistic", "'u'", warm_start_from="m")
    assert told.value.diag.message_detail == 'Nor are its classes those of column "y" of test.u, which holds "d".'


def test_a_score_is_no_probability(table: Session) -> None:
    table.execute(f"CREATE TABLE u AS SELECT *, CASE WHEN {SPLIT} THEN 'yes' ELSE 'no' END AS y FROM t")
    assert train(table, "linear_svm", "'u'")["predicts"] == "score"
    rows = table.execute("SELECT dana_predict('m', a, b), dana_classify('m', a, b) FROM u").fetchall()
    assert {label for _, label in rows} == {"no", "yes"}
    assert all((score >= 0) == (label == "yes") for score, label in rows)
    with pytest.raises(errors.ObjectNotInPrerequisiteState, match="does not predict probabilities"):
        table.execute("SELECT dana_probabilities('m', a, b) FROM u")
    table.execute("SELECT dana_train('sums', 'u', 'n', '{a}', 'b')")
    with pytest.raises(errors.ObjectNotInPrerequisiteState, match='model "n" does not predict classes'):
        table.execute("SELECT dana_classify('n', a) FROM u")
    assert one(table, "SELECT dana_classify('m', NULL::real, b) FROM u LIMIT 1") is None
    assert one(table, "SELECT dana_classify('m', 'NaN'::real, b) FROM u LIMIT 1") is None


def test_with_the_callers_rights(table: Session) -> None:
    """The look reads what the training may read, and calls no function that a user made for a type."""
    table.execute("CREATE TYPE mood AS ENUM ('no', 'yes')")
    table.execute("CREATE FUNCTION shout(mood) RETURNS text LANGUAGE plpgsql AS $$BEGIN RAISE 'called'; END$$")
    table.execute("CREATE CAST (mood AS text) WITH FUNCTION shout(mood)")
    table.execute("CREATE FUNCTION same(mood, mood) RETURNS bool LANGUAGE plpgsql AS $$BEGIN RAISE 'called'; END$$")
    table.execute("CREATE OPERATOR = (LEFTARG = mood, RIGHTARG = mood, FUNCTION = same)")
    table.execute(f"CREATE TABLE u AS SELECT *, (CASE WHEN {SPLIT} THEN 'yes' ELSE 'no' END)::mood AS y FROM t")
    assert train(table, "logistic", "'u'")["classes"] == ["no", "yes"]
    table.execute("CREATE VIEW v AS SELECT * FROM u")
    assert train(table, "logistic", "'v'")["classes"] == ["no", "yes"]


def test_how_good_several_classes_are(table: Session) -> None:
    """Means over classes, each of them, by its name; in cross-validation and search, too."""
    table.execute(
        "CREATE TABLE u AS SELECT *, (ARRAY['a', 'b', 'c'])[1 + (a + b > 30)::int + (a + b > 50)::int] AS y FROM t"
    )
    train(table, "softmax", "'u'")
    found = one(table, "SELECT dana_evaluate('m')")
    rows = table.execute("SELECT y, dana_classify('m', u), dana_probabilities('m', u) FROM u").fetchall()
    assert found["accuracy"] == pytest.approx(np.mean([y == chosen for y, chosen, _ in rows]))
    loss = -np.mean([np.log(each["abc".index(y)]) for y, _, each in rows])
    assert found["log_loss"] == pytest.approx(loss, rel=1e-5)
    assert [each["class"] for each in found["classes"]] == ["a", "b", "c"]
    assert [each["rows"] for each in found["classes"]] == [sum(y == name for y, _, _ in rows) for name in "abc"]
    assert (found["rows"], found["not_finite"]) == (400, 0)
    assert "rmse" not in found
    assert "other_labels" not in found
    table.execute("CREATE TABLE other AS SELECT a, b, CASE WHEN id < 5 THEN 'd' ELSE y END AS y FROM u")
    table.execute("UPDATE other SET a = 'NaN' WHERE b = 0 AND y <> 'd'")
    changed = one(table, "SELECT dana_evaluate('m', 'other')")
    assert changed["other_labels"] == 4
    assert changed["rows"] + changed["not_finite"] == 396, "rows are those that are judged, as of numbers"
    assert changed["not_finite"] == one(table, "SELECT count(*) FROM other WHERE a = 'NaN' AND y <> 'd'") > 0
    training = '{"features": ["a", "b"], "label": "y", "epochs": 5}'
    folds = table.execute(
        "SELECT fold, metrics FROM dana_cross_validate('softmax', 'u', 4, %s)", (training,)
    ).fetchall()
    assert [fold for fold, _ in folds] == ["1", "2", "3", "4", "mean", "deviation"]
    mean = np.mean([each["log_loss"] for _, each in folds[:4]])
    assert folds[4][1]["log_loss"] == pytest.approx(mean)
    assert "classes" in folds[0][1]
    assert "classes" not in folds[4][1]


@pytest.mark.parametrize(
    ("rule", "metric"), [("softmax", "log_loss"), ("logistic", "log_loss"), ("linear_svm", "accuracy")]
)
def test_a_search_takes_the_metric_that_suits(table: Session, rule: str, metric: str) -> None:
    table.execute(f"CREATE TABLE u AS SELECT *, CASE WHEN {SPLIT} THEN 'yes' ELSE 'no' END AS y FROM t")
    training = '{"features": ["a", "b"], "label": "y", "epochs": 5}'
    found = table.execute(
        "SELECT score, metrics FROM dana_search(%s, 'u', '{\"penalty\": [0.0001, 10]}', folds => 3, training => %s)",
        (rule, training),
    ).fetchall()
    assert [score for score, _ in found] == [each[metric] for _, each in found]
    assert (found[0][0] > found[1][0]) == (metric == "accuracy")


def test_scores_are_judged_from_zero(table: Session) -> None:
    table.execute(f"CREATE TABLE u AS SELECT *, CASE WHEN {SPLIT} THEN 'yes' ELSE 'no' END AS y FROM t")
    train(table, "linear_svm", "'u'")
    right = one(table, "SELECT avg((dana_classify('m', u) = y)::int)::float8 FROM u")
    found = one(table, "SELECT dana_evaluate('m')")
    assert found["accuracy"] == pytest.approx(right)
    assert found["log_loss"] is None
    half = one(table, "SELECT avg(((dana_predict('m', u) >= 0.5) = (y = 'yes'))::int)::float8 FROM u")
    assert one(table, "SELECT dana_evaluate('m', threshold => 0.5)")["accuracy"] == pytest.approx(half)


def test_rows_without_a_prediction_are_counted_apart(session: Session) -> None:
    session.execute("SELECT dana_create_udf('logistic', %s)", (rules.text("logistic"),))
    session.execute(
        "CREATE TABLE t AS SELECT CASE WHEN i % 10 > 0 THEN i % 7 END AS x, (i % 7 > 3) AS y"
        " FROM generate_series(1, 100) i"
    )
    session.execute("SELECT dana_train('logistic', 't', 'm', label => 'y', epochs => 3)")
    (found,) = session.execute("SELECT dana_evaluate('m')").fetchall()[0]
    assert (found["rows"], found["not_predicted"]) == (90, 10)
    assert sum(found["confusion"].values()) == 90


def test_regressions_count_rows_without_a_prediction(session: Session) -> None:
    """Below half of the rows a WARNING reports what the metrics stand for."""
    session.execute("SELECT dana_create_udf('linear', %s)", (rules.text("linear"),))
    session.execute(
        "CREATE TABLE t AS SELECT i, CASE WHEN i % 10 > 5 THEN i % 7 END AS x, (i % 7)::real AS y"
        " FROM generate_series(1, 100) i"
    )
    session.execute("SELECT dana_train('linear', 't', 'm', '{x}', 'y')")
    heard: list[str] = []
    session.add_notice_handler(lambda notice: heard.append(f"{notice.severity}: {notice.message_primary}"))
    found = one(session, "SELECT dana_evaluate('m')")
    assert (found["rows"], found["not_predicted"]) == (40, 60)
    assert heard == ['WARNING: model "m" predicts 40 of 100 rows: the others have a NULL in a feature']
    heard.clear()
    found = one(session, "SELECT dana_evaluate('m', filter => 'i % 10 > 1')")
    assert (found["rows"], found["not_predicted"]) == (40, 40)
    assert "not_predicted" not in one(session, "SELECT dana_evaluate('m', filter => 'x >= 0')")
    assert heard == []


def test_many_numbers_as_classes_are_said(session: Session) -> None:
    session.execute("SELECT dana_create_udf('softmax', %s)", (rules.text("softmax"),))
    session.execute("CREATE TABLE t AS SELECT sin(i) AS x, (i * 37 % 101) / 4.0 AS y FROM generate_series(1, 404) i")
    heard: list[str] = []
    session.execute("SET client_min_messages = notice")
    session.add_notice_handler(lambda notice: heard.append(str(notice.message_primary)))
    session.execute("SELECT dana_train('softmax', 't', 'm', label => 'y', epochs => 1)")
    assert [one for one in heard if "takes each for a class" in one] == [
        'column "y" of test.t has 101 different numbers, and rule "softmax" takes each for a class'
    ]
