"""Weights in SQL: of rows, from a column; of classes, by label or balanced."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from dana import rules
from tests.sql.conftest import Session

errors = psycopg.errors
RULES = ("logistic", "linear", "softmax")


@pytest.fixture
def table(session: Session) -> Iterator[Session]:
    """Rows of which one in twenty says yes, and how much each counts."""
    for name in RULES:
        session.execute("SELECT dana_create_udf(%s, %s)", (name, rules.text(name)))
    session.execute(
        "CREATE TABLE t AS SELECT i AS id, (i * 7 % 41 + 12 * (i % 20 = 0)::int)::real AS a,"
        " (i * 13 % 37)::real AS b, 3 * (i % 7) AS count,"
        " CASE WHEN i % 20 = 0 THEN 'yes' ELSE 'no' END AS y FROM generate_series(1, 600) i"
    )
    yield session
    for name in RULES:
        session.execute("SELECT dana_drop_rule(%s)", (name,))


def train(session: Session, rule: str, source: str, **options: Any) -> tuple[Any, ...]:
    """What dana_train returns."""
    given = "".join(f", {name} => %s" for name in options)
    values = tuple(json.dumps(value) if name == "class_weight" else value for name, value in options.items())
    row = session.execute(f"SELECT * FROM dana_train('{rule}', {source}, model => 'm'{given})", values).fetchone()
    assert row is not None
    return row


def parameters(session: Session) -> dict[str, list[float]]:
    return dict(session.execute("""SELECT parameter, "values" FROM dana_parameters('m')""").fetchall())


def metadata(session: Session) -> dict[str, Any]:
    row = session.execute("SELECT metadata FROM dana.model WHERE name = 'm' ORDER BY version DESC LIMIT 1").fetchone()
    assert row is not None
    found: dict[str, Any] = row[0]
    return found


PLACES = {
    "pages": ("count", "real", "'u'", {"label": "y"}),
    "numeric": ("count", "numeric", "'u'", {"label": "y"}),
    "a query": ("count", "int", "query => 'SELECT * FROM u'", {"label": "y"}),
    "the last column, no label named": ("count", "float8", "'u'", {}),
    "named as in SQL": ("select", "smallint", "'u'", {}),
    "a hostile name": ('"; DROP TABLE t; --', "bigint", "'u'", {}),
    "a name with an umlaut and a dot": ("größe.\\u", "real", "'u'", {}),
    "encoded features": (
        "count",
        "real",
        "query => 'SELECT a, ''c'' || mod(b::int, 7) AS b, count, y FROM u'",
        {"label": "y"},
    ),
    "another column as text": ("count", "real", "query => 'SELECT *, id::text AS c FROM u'", {"features": ["a", "b"]}),
    "the interpreter": ("count", "real", "'u'", {"machine": "interp", "epochs": 2}),
}


@pytest.mark.parametrize("place", PLACES)
def test_a_column_of_weights(table: Session, place: str) -> None:
    """Read like the label, no feature; the same model from pages and from frames."""
    name, kind, source, options = PLACES[place]
    if "text" in place:
        options = {**options, "label": "y"}
    quoted = psycopg.sql.Identifier(name).as_string()
    table.execute(
        f"CREATE TABLE u AS SELECT a, b, (y = 'yes')::int::real AS y, count::{kind} AS {quoted} FROM t ORDER BY id"
    )
    if "text" in place:
        table.execute("ALTER TABLE u ADD id int")
    label = "y"
    if "last column" in place:
        label = "answer"
        table.execute("ALTER TABLE u RENAME y TO answer")
    epochs = {"epochs": options.get("epochs", 4)}
    train(
        table,
        "logistic",
        "query => 'SELECT a, b, count::real AS v, (y = ''yes'')::int AS y FROM t ORDER BY id'",
        features=["a", "b"],
        label="y",
        weight="v",
        **epochs,
    )
    expected = parameters(table)
    train(table, "logistic", source, **{**epochs, **options, "weight": name})
    found = metadata(table)
    assert found["weight"] == name
    assert name not in found["features"]
    assert found["labels"] == [label]
    if place == "encoded features":
        table.execute("ALTER TABLE u ALTER b TYPE text USING 'c' || mod(b::int, 7)")
        assert len(found["encoded"]) == 8
    else:
        assert found["features"] == ["a", "b"]
        assert parameters(table) == expected
    assert table.execute("SELECT dana_predict('m', u) FROM u LIMIT 1").fetchone() is not None
    source = "'u'" if place == "encoded features" else source
    train(table, "logistic", source, **{**epochs, **options, "weight": name, "warm_start_from": "m"})


def test_weights_differ_from_none(table: Session) -> None:
    options = {"features": ["a", "b"], "label": "y", "epochs": 4}
    train(table, "logistic", "'t'", **options)
    plain = parameters(table)
    train(table, "logistic", "'t'", weight="count", **options)
    assert parameters(table) != plain
    train(table, "logistic", "'t'", class_weight="balanced", **options)
    assert parameters(table)["w"] != plain["w"]


def test_weights_are_read_from_pages(table: Session) -> None:
    table.execute("ALTER TABLE t ADD z int; UPDATE t SET z = (y = 'yes')::int")
    given = json.dumps({"features": ["a", "b"], "label": "z", "weight": "count", "class_weight": "balanced"})
    (found,) = table.execute("SELECT dana_explain('logistic', 't', %s, format => 'json')", (given,)).fetchone() or ()
    assert json.loads(found)["reads"]["frames"] is False


def test_rows_without_a_weight_are_left_out(table: Session) -> None:
    """A NULL, a NaN and an infinity are those of any column in use."""
    table.execute("ALTER TABLE t ALTER count TYPE real")
    options = {"features": ["a", "b"], "label": "y", "weight": "count", "epochs": 2}
    for value in ("NULL", "'NaN'", "'Infinity'"):
        table.execute(f"UPDATE t SET count = {value} WHERE id < 10")
        notices: list[str] = []
        table.add_notice_handler(lambda each, to=notices: to.append(str(each.message_primary)))
        table.execute("SET client_min_messages = notice")
        row = train(table, "logistic", "'t'", **options)
        table.execute("SET client_min_messages = warning")
        assert (row[4], row[5]) == (591, 9) or 591 in row
        assert any("count" in one or "null" in one.lower() for one in notices), notices


@pytest.mark.parametrize("source", ["'t'", "query => 'SELECT * FROM t'"])
def test_a_negative_weight_names_its_row(table: Session, source: str) -> None:
    table.execute("UPDATE t SET count = -1 WHERE id = 77")
    table.execute("CREATE TABLE s AS SELECT * FROM t ORDER BY id; DROP TABLE t; ALTER TABLE s RENAME TO t")
    for rule, label in (("logistic", "y"), ("linear", "b")):
        with pytest.raises(errors.DataException) as raised:
            train(table, rule, source, features=["a"], label=label, weight="count")
        assert raised.value.sqlstate == "22000"
        wanted = "row 77 of test.t" if source == "'t'" else "row 77 of the query"
        assert raised.value.diag.message_primary == f'{wanted} has a negative weight in column "count"'
    # also among the rows that are held out, and among values so small that the machine takes them for 0
    table.execute("UPDATE t SET count = 0")
    with pytest.raises(errors.DataException, match=r'every row of .*t.* has the weight 0 in column "count"'):
        train(table, "logistic", "'t'", features=["a"], label="y", weight="count")


LABELS = {
    "text": ("y", {"yes": 9, "no": 0.5}),
    "boolean": ("y = 'yes'", {"true": 9, "false": 0.5}),
    "number": ("CASE y WHEN 'yes' THEN 1 ELSE -1 END", {"1": 9, "-1": 0.5}),
    "numeric": ("CASE y WHEN 'yes' THEN 2.50 ELSE 1 END", {"2.5": 9, "1.0": 0.5}),
    "hostile": ("CASE y WHEN 'yes' THEN 'z\"};''' ELSE '{' END", {"z\"};'": 9, "{": 0.5}),
}


@pytest.mark.parametrize("kind", LABELS)
def test_weights_of_classes(table: Session, kind: str) -> None:
    """By label as text; those of a column that holds the same numbers give the same model."""
    written, given = LABELS[kind]
    table.execute(f"CREATE TABLE u AS SELECT id, a, b, {written} AS y FROM t")
    table.execute("ALTER TABLE u ADD v real; UPDATE u SET v = CASE WHEN id % 20 = 0 THEN 9 ELSE 0.5 END")
    table.execute("CREATE TABLE sorted AS SELECT * FROM u ORDER BY id")
    options = {"features": ["a", "b"], "label": "y", "epochs": 5, "standardize": False}
    train(table, "logistic", "'sorted'", weight="v", **options)
    expected = parameters(table)
    train(table, "logistic", "'sorted'", class_weight=given, **options)
    found = parameters(table)
    assert found.pop("weight.classes") == [value for _, value in sorted(given.items())]
    assert found == expected
    assert metadata(table)["class_weight"] == given


def test_balanced(table: Session) -> None:
    """More of what is rare is found; of the rows that are trained on, in folds and groups too."""
    options = {"features": ["a", "b"], "label": "y"}
    recall = []
    for more in ({}, {"class_weight": "balanced"}, {"class_weight": {"yes": 19}}):
        train(table, "logistic", "'t'", **options, **more)
        (metrics,) = table.execute("SELECT dana_evaluate('m', 't')").fetchone() or ()
        recall.append(metrics["recall"])
    assert recall[0] < 0.2
    assert min(recall[1:]) > 0.6
    train(table, "logistic", "'t'", filter="id > 300 OR y = 'no'", class_weight="balanced", **options)
    assert parameters(table)["weight.classes"] == pytest.approx([585 / 1140, 585 / 30])
    train(table, "logistic", "'t'", validation_size=0.3, class_weight="balanced", weight="count", **options)
    found = table.execute("SELECT validation_loss FROM dana.epoch ORDER BY run DESC, epoch DESC LIMIT 1")
    assert found.fetchone() is not None
    training = json.dumps({**options, "class_weight": "balanced", "epochs": 3})
    rows = table.execute("SELECT * FROM dana_cross_validate('logistic', 't', 3, %s)", (training,)).fetchall()
    assert len(rows) >= 3
    table.execute("ALTER TABLE t ADD half int; UPDATE t SET half = id % 2")
    table.execute("SELECT * FROM dana_train_groups('logistic', 't', '{half}', %s)", (training,))
    assert table.execute("SELECT * FROM dana_explain('logistic', 't', %s)", (training,)).fetchall()
    train(table, "softmax", "'t'", class_weight="balanced", **options)
    assert parameters(table)["weight.classes"] == pytest.approx([600 / 1140, 600 / 60])


def test_balance_is_that_of_the_group(table: Session) -> None:
    table.execute("ALTER TABLE t ADD half int; UPDATE t SET half = (id > 300)::int; DELETE FROM t WHERE id IN (20, 40)")
    training = json.dumps({"features": ["a", "b"], "label": "y", "class_weight": "balanced", "epochs": 1, "model": "m"})
    table.execute("SELECT * FROM dana_train_groups('logistic', 't', '{half}', %s)", (training,))
    found = table.execute(
        """SELECT m.metadata -> 'group' -> 'key' ->> 'half', p."values" FROM dana.model m,"""
        " dana_parameters(m.name) p WHERE p.parameter = 'weight.classes' ORDER BY 1"
    ).fetchall()
    assert found == [("0", pytest.approx([298 / 570, 298 / 26])), ("1", pytest.approx([300 / 570, 300 / 30]))]


def test_warm_start_takes_the_weights_of_its_own_training(table: Session) -> None:
    options = {"features": ["a", "b"], "label": "y", "epochs": 2}
    train(table, "logistic", "'t'", class_weight="balanced", **options)
    train(table, "logistic", "'t'", warm_start_from="m", **options)
    assert "weight.classes" not in parameters(table)
    train(table, "logistic", "'t'", warm_start_from="m", class_weight={"yes": 3}, **options)
    assert parameters(table)["weight.classes"] == [1, 3]
    train(table, "logistic", "'t'", warm_start_from="m", class_weight="balanced", **options)
    assert parameters(table)["weight.classes"] == pytest.approx([600 / 1140, 10])


@pytest.mark.parametrize("machine", ["sim", "interp"])
def test_weights_far_from_1_are_said(table: Session, machine: str) -> None:
    heard: list[str | None] = []
    table.add_notice_handler(lambda notice: heard.append(notice.message_primary))
    for factor, said in ((1e-9, ["weights in column v of test.u are about 1.3e-08"]), (10, [])):
        table.execute("DROP TABLE IF EXISTS u")
        table.execute("CREATE TABLE u AS SELECT a, b, count * %s::float8 AS v, y FROM t", (factor,))
        heard.clear()
        train(table, "logistic", "'u'", weight="v", label="y", machine=machine, epochs=1)
        assert [one for one in heard if one is not None and "weights in" in one] == said


REFUSED: dict[str, tuple[str, dict[str, Any], str, str]] = {
    "a rule without": ("sums", {"weight": "count", "label": "b"}, "22023", "rule 'sums' takes no weights"),
    "no classes": ("linear", {"class_weight": "balanced", "label": "b"}, "22023", "has no classes to give weights to"),
    "no such column": ("logistic", {"weight": "absent"}, "42703", "column 'absent' of test.t does not exist"),
    "text": ("logistic", {"weight": "word"}, "22023", "has type text"),
    "the label": ("logistic", {"weight": "y"}, "22023", "is used twice"),
    "a feature": ("logistic", {"weight": "a"}, "22023", "is used twice"),
    "a list": ("logistic", {"class_weight": [1]}, "22023", 'argument "class_weight" must be a JSON object'),
    "another word": (
        "logistic",
        {"class_weight": "even"},
        "22023",
        '"class_weight" must be a JSON object or "balanced"',
    ),
    "a number": ("logistic", {"class_weight": 3}, "22023", '"class_weight" must be a JSON object or "balanced"'),
    "no such class": (
        "logistic",
        {"class_weight": {"maybe": 2}},
        "22023",
        'names "maybe", which is none of the classes',
    ),
    "a negative one": ("logistic", {"class_weight": {"yes": -2}}, "22023", "must give numbers from 0 to 1e+30, not -2"),
    "a text for one": (
        "logistic",
        {"class_weight": {"yes": "2"}},
        "22023",
        'must give numbers from 0 to 1e+30, not "2"',
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals(table: Session, case: str) -> None:
    rule, options, sqlstate, message = REFUSED[case]
    table.execute("ALTER TABLE t ADD word text DEFAULT 'x'")
    with pytest.raises(psycopg.Error) as raised:
        train(table, rule, "'t'", **{"features": ["a"], "label": "y", **options})
    assert raised.value.sqlstate == sqlstate, raised.value
    assert message in str(raised.value)
