"""`dana_evaluate` against scikit-learn, on the same predictions."""

from __future__ import annotations

from typing import Any

import numpy as np
import psycopg
import pytest

from dana import rules
from tests.sql.conftest import Session, new_role

metrics = pytest.importorskip("sklearn.metrics")
errors = psycopg.errors

LOGISTIC = """
import dana
n = dana.dim()
w = dana.model([n])
x = dana.input([n])
y = dana.output()
fit = dana.algo(w, x, y)
p = dana.sigmoid(dana.sigma(w * x, 1))
fit.setModel(w - fit.merge((p - y) * x, 32, "+") / 32)
fit.setPrediction(p)
fit.setEpochs(3)
"""


@pytest.fixture
def trained(session: Session) -> Session:
    session.execute("SELECT setseed(0.25)")
    session.execute(
        "CREATE TABLE t AS SELECT i AS id, a::real, b::numeric,"
        " CASE WHEN a + b + random() > 0.6 THEN 'yes' ELSE 'no' END AS ill"
        " FROM (SELECT i, random() - 0.5 AS a, random() - 0.5 AS b FROM generate_series(1, 1000) i) s"
    )
    session.execute("SELECT dana_create_udf('fit', %s)", (LOGISTIC,))
    session.execute(
        "SELECT dana_train('fit', 't', 'm', '{a,b}', 'ill', classes => '{no,yes}', test_size => 0.25,"
        " filter => 'id > 10')"
    )
    return session


def evaluated(session: Session, arguments: str) -> dict[str, Any]:
    row = session.execute(f"SELECT dana_evaluate({arguments})").fetchone()
    assert row is not None
    assert isinstance(row[0], dict)
    return row[0]


@pytest.mark.parametrize("part", [None, "test", "train", "all"])
def test_classification(trained: Session, part: str | None) -> None:
    found = evaluated(trained, "'m'" if part is None else f"'m', part => '{part}'")
    condition = {"train": "AND NOT dana_holdout(ctid, 0.25)", "all": ""}.get(str(part), "AND dana_holdout(ctid, 0.25)")
    rows = trained.execute(
        f"SELECT (ill = 'yes')::int, dana_predict('m', a, b)::float8 FROM t WHERE id > 10 {condition}"
    ).fetchall()
    y, p = np.array(rows).T
    tn, fp, fn, tp = metrics.confusion_matrix(y, p >= 0.5).ravel()
    expected = {
        "accuracy": metrics.accuracy_score(y, p >= 0.5),
        "precision": metrics.precision_score(y, p >= 0.5),
        "recall": metrics.recall_score(y, p >= 0.5),
        "f1": metrics.f1_score(y, p >= 0.5),
        "auc": metrics.roc_auc_score(y, p),
        "log_loss": metrics.log_loss(y, p),
        "mae": metrics.mean_absolute_error(y, p),
        "rmse": metrics.mean_squared_error(y, p) ** 0.5,
        "r2": metrics.r2_score(y, p),
    }
    assert {name: found[name] for name in expected} == pytest.approx(expected, rel=1e-9)
    assert found["confusion"] == {"tp": tp, "fp": fp, "fn": fn, "tn": tn}
    assert (found["model"], found["version"], found["rows"]) == ("m", 1, len(y))
    assert found["part"] == (part or "test")


def test_a_model_that_takes_every_row_for_one_class_is_told(trained: Session) -> None:
    told: list[str] = []
    trained.execute("SET client_min_messages = notice")
    trained.add_notice_handler(lambda notice: told.append(f"{notice.message_primary} {notice.message_hint}"))
    for threshold, taken in ((1.5, "none"), (-0.5, "each"), (0.5, None)):
        told.clear()
        found = evaluated(trained, f"'m', part => 'all', threshold => {threshold}")
        positives = found["confusion"]["tp"] + found["confusion"]["fn"]
        if taken is None:
            assert not told
        else:
            assert f'model "m" takes {taken} of 990 rows for "yes", the label of {positives} rows' in told[0]
            assert "class_weight" in told[0]


def test_the_table_of_the_training_is_known_by_what_it_names(trained: Session) -> None:
    """However it is quoted; what the training left out is left out."""
    expected = evaluated(trained, "'m', 't'")
    assert expected["part"] == "test"
    trained.execute("SET quote_all_identifiers = on")
    assert evaluated(trained, "'m', 't'") == expected
    trained.execute(
        "SELECT dana_train('fit', 't', 'm', '{a,b}', 'ill', classes => '{no,yes}', test_size => 0.25,"
        " filter => 'id > 10')"
    )
    assert trained.execute("SELECT metadata ->> 'source' FROM dana.model WHERE version = 2").fetchone() == ("test.t",)
    trained.execute("""UPDATE dana.model SET metadata = metadata || '{"source": "\\"test\\".\\"t\\""}'""")
    assert evaluated(trained, "'m@1', 't'") == expected
    trained.execute("RESET quote_all_identifiers")
    assert evaluated(trained, "'m@1', 't'") == expected


def test_that_a_table_is_another_one_is_told(trained: Session) -> None:
    """A name is all that a model knows of its table: of one that was renamed all rows are evaluated."""
    told: list[tuple[str | None, str | None]] = []
    trained.execute("SET client_min_messages = notice; ALTER TABLE t RENAME TO u")
    trained.add_notice_handler(lambda each: told.append((each.message_primary, each.message_hint)))
    found = evaluated(trained, "'m', 'u'")
    assert (found["part"], found["rows"]) == ("all", 1000)
    assert told == [
        (
            'all rows of test.u are evaluated: it is not the table that model "m" was trained on, test.t',
            "If it is that table, under another name by now: give part => 'test' and the training's filter.",
        )
    ]
    assert evaluated(trained, "'m', 'u', part => 'test', filter => 'id > 10'")["part"] == "test"
    assert evaluated(trained, "'m', query => 'TABLE u'")["rows"] == 1000
    assert len(told) == 1


def test_rows_that_the_training_left_out_have_no_metric(session: Session) -> None:
    """With NaN, an infinity, or what float4 makes one of, in a feature or a label; a prediction of them may be sure."""
    session.execute("SELECT dana_create_udf('fit', %s)", (LOGISTIC,))
    session.execute(
        "CREATE TABLE t AS SELECT i % 2 AS y, (i % 7 + i % 2)::float8 AS a, CASE i % 100 WHEN 0 THEN 'Infinity'"
        " WHEN 1 THEN '-Infinity' WHEN 2 THEN 'NaN' WHEN 3 THEN 1e300 ELSE (i % 5)::float8 END AS b"
        " FROM generate_series(1, 1000) AS i"
    )
    session.execute("SET client_min_messages = error")
    for options in ("'t', 'm', '{a,b}', 'y'", "'t', 'n', '{a,b}', 'y', classes => '{0,1}'"):
        session.execute(f"SELECT dana_train('fit', {options})")
        model = options[5:8]
        found = evaluated(session, model)
        finite = evaluated(session, f"{model}, query => 'SELECT * FROM t WHERE abs(b) < 1e30'")
        assert (found.pop("not_finite"), finite.pop("not_finite")) == (40, 0)
        assert found == finite
        assert found["rows"] == 960
    session.execute(
        "CREATE TABLE u AS SELECT y::float8, a, 0 AS b FROM t"
        " UNION ALL VALUES ('NaN'::float8, 1, 1), ('Infinity', 1, 1)"
    )
    found = evaluated(session, "'m', 'u'")
    assert (found["rows"], found["not_finite"], found["confusion"].keys()) == (1000, 2, {"tp", "fp", "fn", "tn"})
    # who wants them trained on wants them evaluated
    session.execute("CREATE TABLE v AS SELECT * FROM t WHERE abs(b) < 1e30")
    session.execute("SELECT dana_train('fit', 'v', 'kept', '{a,b}', 'y', nonfinite => 'keep', epochs => 1)")
    assert evaluated(session, "'kept', 't'")["rows"] > 960
    kept = "SELECT metadata ->> 'nonfinite' FROM dana.model ORDER BY name"
    assert session.execute(kept).fetchall() == [("keep",), (None,), (None,)]


def test_ties_thresholds_and_other_sources(trained: Session) -> None:
    query = "SELECT round(a::numeric, 0) AS a, 0::real AS b, ill FROM t"
    found = evaluated(trained, f"'m@1', query => '{query}', threshold => 0.6, filter => 'true', part => 'all'")
    rows = trained.execute(f"SELECT (ill = 'yes')::int, dana_predict('m', a, b)::float8 FROM ({query}) q").fetchall()
    y, p = np.array(rows).T
    assert len(set(p)) < 4
    assert found["auc"] == pytest.approx(metrics.roc_auc_score(y, p))
    assert found["accuracy"] == pytest.approx(metrics.accuracy_score(y, p >= 0.6))


def test_regression(session: Session) -> None:
    session.execute("CREATE TABLE t AS SELECT i::real AS x, (i * 3 + i % 4)::real AS y FROM generate_series(1, 50) i")
    session.execute("SELECT dana_train('sums', 't')")
    found = evaluated(session, "'sums'")
    rows = session.execute("SELECT y, dana_predict('sums', x)::float8 FROM t").fetchall()
    y, p = np.array(rows).T
    assert found["r2"] == pytest.approx(metrics.r2_score(y, p))
    assert "accuracy" not in found


NUMBER = LOGISTIC.replace("setPrediction(p)", "setPrediction(dana.sigma(w * x, 1) * 0 + 2)")


GAMMA = (
    rules.text("poisson")
    .replace("poisson", "gamma")
    .replace("y >= 0", "y > 0")
    .replace("loss = weight * (p - y + y * (dana.log(dana.max(y, 1e-30)) - score))", "loss = weight * (y / p + score)")
)


@pytest.mark.parametrize(
    ("rule", "label", "metric"),
    [
        ("poisson", "round(exp(a) + i % 3)", "mean_poisson_deviance"),
        ("gamma", "exp(a) + i % 3", "mean_gamma_deviance"),
        ("quantile", "a + i % 3", "mean_pinball_loss"),
        ("linear", "a + i % 3", None),
        ("huber", "a + i % 3", None),
        ("lasso", "a + i % 3", None),
    ],
)
@pytest.mark.parametrize("weight", [None, "w"])
def test_a_rule_is_judged_by_what_it_minimises(
    session: Session, rule: str, label: str, metric: str | None, weight: str | None
) -> None:
    session.execute("SELECT dana_create_udf(%s, %s)", (rule, GAMMA if rule == "gamma" else rules.text(rule)))
    session.execute(
        f"CREATE TABLE t AS SELECT a, ({label})::float8 AS y, 1 + i % 2 AS w"
        " FROM (SELECT i, (i * 37 % 101) / 50.0 AS a FROM generate_series(1, 300) i) s"
    )
    hyper = '{"q": 0.8}' if rule == "quantile" else None
    session.execute("SELECT dana_train(%s, 't', 'm', '{a}', 'y', hyper => %s, weight => %s)", (rule, hyper, weight))
    y, p = np.array(session.execute("SELECT y, dana_predict('m', a)::float8 FROM t").fetchall()).T
    found = evaluated(session, "'m'")
    special = {"poisson_deviance", "gamma_deviance", "pinball_loss"}
    if metric is None:
        assert special & found.keys() == set()
        return
    name = metric.removeprefix("mean_")
    assert special & found.keys() == {name}
    more = {"alpha": 0.8} if rule == "quantile" else {}
    assert found[name] == pytest.approx(getattr(metrics, metric)(y, p, **more), rel=1e-6)
    assert found["r2"] == pytest.approx(metrics.r2_score(y, p), rel=1e-6, abs=1e-6)


@pytest.mark.parametrize(("labels", "two"), [("3", False), ("i % 3", False), ("i % 2", True), ("i % 2 * 2 - 1", True)])
def test_a_number_is_no_class(session: Session, labels: str, two: bool) -> None:
    session.execute("SELECT dana_create_udf('fit', %s)", (NUMBER,))
    session.execute(f"CREATE TABLE t AS SELECT i::real AS x, ({labels})::real AS y FROM generate_series(1, 30) i")
    session.execute("SELECT dana_train('fit', 't')")
    found = evaluated(session, "'fit'")
    both = {"precision", "recall", "f1", "auc", "average_precision", "log_loss", "brier", "confusion"} if two else set()
    assert (
        found.keys() - {"accuracy", "calibration"}
        == {"model", "version", "part", "rows", "rmse", "mae", "r2", "not_finite"} | both
    )
    assert found.get("accuracy") == (0.5 if two else None)


def test_the_positive_class_has_a_name(trained: Session) -> None:
    assert evaluated(trained, "'m'")["positive"] == "yes"
    folds = trained.execute(
        "SELECT fold, metrics ->> 'positive', metrics ->> 'f1' IS NOT NULL FROM dana_cross_validate('fit', 't', 2,"
        ' \'{"features": ["a", "b"], "label": "ill", "classes": ["yes", "no"]}\')'
    ).fetchall()
    assert folds == [("1", "no", True), ("2", "no", True), ("mean", None, True), ("deviation", None, True)]
    searched = trained.execute(
        "SELECT metrics ? 'positive', metrics ? 'f1' FROM dana_search('fit', 't', '[{}]', 'f1',"
        ' training => \'{"features": ["a", "b"], "label": "ill", "classes": ["yes", "no"]}\')'
    ).fetchall()
    assert searched == [(False, True)]


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        ("'none'", errors.UndefinedObject, 'model "none" does not exist'),
        ("'m@7'", errors.UndefinedObject, 'model "m@7" does not exist'),
        ("'m', 't', 'SELECT 1'", errors.InvalidParameterValue, "not both"),
        ("'m', part => 'half'", errors.InvalidParameterValue, 'not "half"'),
        (
            "'m', 'v', part => 'test'",
            errors.InvalidParameterValue,
            "chosen by their place in a table, which these rows do not have",
        ),
        ("'m', query => 'TABLE t', part => 'train'", errors.InvalidParameterValue, "chosen by their place in a table"),
        ("'m', query => 'TABLE t; TABLE t'", errors.SyntaxError, ""),
        ("'m', query => 'TABLE t) AS r; DROP TABLE t; --'", errors.SyntaxError, ""),
        ("'m', threshold => 'nan'", errors.InvalidParameterValue, "not NaN"),
        ("'m', filter => 'false'", errors.DataException, "no row to evaluate"),
        ("'m', query => 'SELECT a, b, NULL AS ill FROM t'", errors.DataException, "no row to evaluate"),
        ("'m', filter => 'true) OR (true'", errors.SyntaxError, ""),
        ("'m', filter => 'true) OFFSET 0) AS s; DROP TABLE t; --'", errors.SyntaxError, ""),
    ],
)
def test_refusals(trained: Session, call: str, error: type[psycopg.Error], message: str) -> None:
    trained.execute("CREATE VIEW v AS TABLE t; CREATE TABLE other AS TABLE t")
    with pytest.raises(error, match=message or None) as raised:
        evaluated(trained, call)
    assert ("part => 'all'" in str(raised.value.diag.message_hint)) == ("by their place" in message)
    assert ("have no label" in str(raised.value.diag.message_hint)) == ("no row" in message)
    assert trained.execute("SELECT count(*) FROM t").fetchone() == (1000,)


def test_what_is_written_reads_with_the_rights_of_the_caller(trained: Session) -> None:
    with new_role(trained, "asker"):
        trained.execute("SELECT dana_grant_model('m', 'asker')")
        trained.execute("SET ROLE asker")
        for call in (
            "dana_evaluate('postgres.m', 't', filter => 'true')",
            "dana_evaluate('postgres.m', query => 'TABLE t')",
            "dana_predict_table('postgres.m', 't', 'id')",
        ):
            with pytest.raises(errors.InsufficientPrivilege, match="permission denied for table t"):
                trained.execute(f"SELECT {call}")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arguments", "part", "condition"),
    [
        ("", "test", "id > 10 AND dana_holdout(ctid, 0.25)"),
        (", 't'", "test", "id > 10 AND dana_holdout(ctid, 0.25)"),
        (", filter => 'id > 500'", "test", "id > 500 AND dana_holdout(ctid, 0.25)"),
        (", 't', part => 'all'", "all", "id > 10"),
        (", 'v'", "all", "true"),
        (", 'other'", "all", "true"),
        (", 'other', filter => 'id > 500'", "all", "id > 500"),
        (", query => 'TABLE t'", "all", "true"),
    ],
)
def test_which_rows(trained: Session, arguments: str, part: str, condition: str) -> None:
    """The part that was left out, of the table that the model was trained on; of any other rows all."""
    trained.execute("CREATE VIEW v AS TABLE t; CREATE TABLE other AS TABLE t ORDER BY id")
    found = evaluated(trained, f"'m'{arguments}")
    expected = trained.execute(f"SELECT count(*) FROM t WHERE {condition}").fetchone()
    assert (found["part"], (found["rows"],)) == (part, expected)


LABELS = {"boolean": "i % 3 = 0", "date": "date '2000-01-01' + i", "time": "time '00:00' + i * interval '1 second'"}
LABELS |= {kind: f"{kind} '2000-01-01 00:00:00' + i * interval '1 second'" for kind in ("timestamp", "timestamptz")}


@pytest.mark.parametrize("read", ["'hours', filter => $$%s$$", "query => $$SELECT x, y FROM hours WHERE %s$$"])
def test_words_of_a_training_mean_what_they_meant(session: Session, read: str) -> None:
    session.execute(
        "CREATE TABLE hours AS SELECT '2024-01-01 00:00+00'::timestamptz + g * interval '1 hour' AS t,"
        " (g % 10)::real AS x, (g % 10)::real AS y FROM generate_series(0, 99) g;"
        " CREATE SCHEMA other; CREATE TABLE other.hours AS TABLE hours LIMIT 1;"
        " SET timezone = 'UTC'"
    )
    rows = read % "t < '2024-01-02'"
    session.execute(f"SELECT dana_train('sums', {rows}, model => 'm', features => '{{x}}', label => 'y')")
    session.execute("SET timezone = 'Asia/Tokyo'; SET search_path = other, public")
    assert evaluated(session, "'m'")["rows"] == 24
    shown = session.execute("SELECT current_setting('timezone'), current_setting('search_path')")
    assert shown.fetchone() == ("Asia/Tokyo", "other, public")
    session.execute("DROP SCHEMA other CASCADE")


def test_a_filter_means_what_it_meant(session: Session) -> None:
    """Settings that change how its text is read are those of the training."""
    session.execute(
        "CREATE TABLE t AS SELECT i::real AS x, i::real AS y, CASE WHEN i % 4 = 0 THEN E'a\\\\b' END AS c "
        "FROM generate_series(1, 40) AS i"
    )
    train = "SELECT dana_train('sums', 't', model => 'm', features => '{x}', label => 'y', filter => %s)"
    for setting, value, condition, rows in (
        ("standard_conforming_strings", "off", "c = 'a\\\\b'", 10),
        ("transform_null_equals", "on", "c = NULL", 30),
    ):
        session.execute(f"SET {setting} = {value}")
        session.execute(train, (condition,))
        session.execute(f"RESET {setting}")
        assert evaluated(session, "'m'")["rows"] == rows, setting


@pytest.mark.parametrize("kind", LABELS)
def test_labels_of_types_that_no_cast_makes_a_number(session: Session, kind: str) -> None:
    session.execute("SET TimeZone = 'UTC'")
    session.execute(f"CREATE TABLE t AS SELECT i::real AS x, {LABELS[kind]} AS y FROM generate_series(1, 60) i")
    session.execute("SELECT dana_train('sums', 't')")
    found = evaluated(session, "'sums'")
    number = "y::int" if kind == "boolean" else "i"
    rows = session.execute(
        f"SELECT {number}, dana_predict('sums', x)::float8 FROM (SELECT *, x::int AS i FROM t) s"
    ).fetchall()
    y, p = np.array(rows, dtype=float).T
    assert (found["rows"], found["rmse"]) == (60, pytest.approx(metrics.mean_squared_error(y, p) ** 0.5))
    assert ("auc" in found) == (kind == "boolean")
    validated = session.execute("SELECT count(*) FROM dana_cross_validate('sums', 't', 3)")
    assert validated.fetchone() == (5,)


@pytest.mark.parametrize("count", [98, 99])
def test_many_features_of_any_type(session: Session, count: int) -> None:
    columns = [
        f"(i + {k}) % 2 = 0 AS x{k}" if k % 2 else f"date '2000-01-01' + i % {k + 2} AS x{k}" for k in range(count)
    ]
    session.execute(f"CREATE TABLE t AS SELECT {', '.join(columns)}, i::real AS y FROM generate_series(1, 40) i")
    session.execute("SELECT dana_train('sums', 't')")
    rows = session.execute("SELECT y, dana_predict('sums', t)::float8 FROM t").fetchall()
    y, p = np.array(rows).T
    found = evaluated(session, "'sums'")
    assert (found["rows"], found["rmse"]) == (40, pytest.approx(metrics.mean_squared_error(y, p) ** 0.5))


def test_numbers_are_those_of_a_training(session: Session) -> None:
    values = {"true": 1, "7::smallint": 7, "8.5::numeric": 8.5, "date '2000-01-03'": 2, "time '00:01:00.5'": 60.5}
    values |= {"'infinity'::date": float("inf"), "'-infinity'::timestamp": float("-inf")}
    row = session.execute(f"SELECT {', '.join(f'dana.dana_number({value})' for value in values)}").fetchone()
    assert row == tuple(values.values())
    assert session.execute("SELECT dana.dana_number(NULL::real)").fetchone() == (None,)
    for value, kind in (("'{1}'::real[]", "real[]"), ("'1'::text", "text")):
        with pytest.raises(errors.DatatypeMismatch) as raised:
            session.execute(f"SELECT dana.dana_number({value})")
        assert str(raised.value.diag.message_primary) == f"a value of type {kind} is not one number"


@pytest.fixture
def warned(session: Session) -> list[str]:
    """WARNINGs."""
    heard: list[str] = []
    session.add_notice_handler(lambda said: heard.append(str(said.message_primary)))
    return heard


MOVES = {
    "written in its place": "UPDATE t SET a = a",
    "sorted": "CREATE INDEX by_y ON t (y DESC); CLUSTER t USING by_y",
    "packed": "DELETE FROM t WHERE a < 20; VACUUM FULL t",
    "of another type": "ALTER TABLE t ALTER a TYPE bigint, ALTER k TYPE varchar(9)",
}
KEYS = {
    "a": "dana_holdout(a, 0.25, 3)",
    "k": "dana_holdout(k, 0.25, 3)",
    "a, b": "dana.dana_part('{{2,0.25}}', 3, NULL::int, a, b) = 0",
    "b, d, n, u, at": "dana.dana_part('{{2,0.25}}', 3, NULL::int, b, d, n, u, at) = 0",
}
TABLE = """
CREATE TABLE t AS SELECT i AS a, (i * 37 % 1000)::smallint AS b, chr(65 + i % 26) || i AS k, i / 4::numeric AS n,
    date '2020-01-01' + i AS d, md5(i::text)::uuid AS u, timestamptz '2020-01-01' + i * interval '1 minute' AS at,
    i::real AS x, sin(i)::real AS y
FROM generate_series(1, 400) AS i
"""
TRAIN = "SELECT tuples FROM dana_train('sums', 't', 'm', '{x}', 'y', test_size => 0.25, seed => 3)"


@pytest.mark.parametrize("key", KEYS)
def test_a_primary_key_keeps_a_part_what_it_is(session: Session, warned: list[str], key: str) -> None:
    session.execute(TABLE)
    session.execute(f"ALTER TABLE t ADD PRIMARY KEY ({key})")  # type: ignore[arg-type]
    trained = session.execute(TRAIN).fetchone()
    assert trained == session.execute(f"SELECT count(*) FROM t WHERE NOT ({KEYS[key]})").fetchone()  # type: ignore[arg-type]
    assert session.execute("SELECT run.pages FROM dana.run").fetchall()[-1][0] > 0, "as pages"
    before = session.execute(f"SELECT a FROM t WHERE {KEYS[key]} ORDER BY a").fetchall()  # type: ignore[arg-type]
    for how, move in MOVES.items():
        for statement in move.split(";"):
            session.execute(statement)  # type: ignore[arg-type]
        found = evaluated(session, "'m'")
        least = 20 if list(MOVES).index(how) >= 2 else 0
        assert (found["part"], found["rows"]) == ("test", len([a for (a,) in before if a >= least])), how
    assert warned == []
    session.execute(f"ALTER TABLE t RENAME {key.split(',', 1)[0]} TO other")  # type: ignore[arg-type]
    with pytest.raises(errors.UndefinedColumn, match="by which the test rows of model"):
        evaluated(session, "'m'")


def test_rows_that_moved_without_a_key_are_told(session: Session, warned: list[str]) -> None:
    session.execute(TABLE)
    with psycopg.connect(session.info.dsn) as other:
        other.execute("UPDATE test.t SET x = -1 WHERE a BETWEEN 100 AND 140")
        session.execute(TRAIN)
        expected = session.execute("SELECT count(*) FROM t WHERE dana_holdout(ctid, 0.25, 3)").fetchone()
        assert (evaluated(session, "'m'")["rows"],) == expected
        assert warned == []
        other.commit()
    changed = {"x = -1": "SELECT", "x = -1 OR x < 20": "UPDATE t SET x = x + 0 WHERE a < 20"}
    for condition, statement in changed.items():
        session.execute(statement)  # type: ignore[arg-type]
        found = evaluated(session, "'m'")
        (said,) = warned
        written = session.execute(
            f"SELECT count(*) FROM t WHERE dana_holdout(ctid, 0.25, 3) AND ({condition})"  # type: ignore[arg-type]
        ).fetchone()
        assert written is not None
        assert 0 < written[0] < found["rows"]
        assert said.startswith(
            f"{written[0]} of {found['rows']} rows in part 'test' of test.t were written after model"
        )
        warned.clear()
    evaluated(session, "'m', part => 'all'")
    assert warned == []
    session.execute("VACUUM FULL t")
    evaluated(session, "'m', part => 'train'")
    assert warned == [
        "rows of test.t have moved since model \"m\" was trained, or may have: part 'train' is no longer those that "
        "test_size chose"
    ]


def test_partitions_without_a_key(session: Session, warned: list[str]) -> None:
    session.execute("CREATE TABLE t (a int, x real, y real) PARTITION BY RANGE (a)")
    session.execute("CREATE TABLE low PARTITION OF t FOR VALUES FROM (0) TO (200)")
    session.execute("CREATE TABLE high PARTITION OF t FOR VALUES FROM (200) TO (1000)")
    session.execute("INSERT INTO t SELECT i, i, sin(i) FROM generate_series(0, 399) AS i")
    session.execute(TRAIN)
    evaluated(session, "'m'")
    session.execute("CREATE TABLE more PARTITION OF t FOR VALUES FROM (1000) TO (2000)")
    evaluated(session, "'m'")
    assert warned == []
    session.execute("VACUUM FULL high")
    evaluated(session, "'m'")
    assert len(warned) == 1


def test_a_rare_class_that_is_hardly_found_is_reported_with_its_share(session: Session) -> None:
    """Of 15 rows in a hundred few are found at a threshold of 0.5; with class weights most are."""
    session.execute(
        "CREATE TABLE t AS SELECT x::real, x + 2.5 * sin(i) > 2.7 AS ill"
        " FROM (SELECT i, 2 * sin(i * i) AS x FROM generate_series(1, 2000) i) s"
    )
    session.execute("SELECT dana_create_udf('logistic', %s)", (rules.text("logistic"),))
    session.execute("SET client_min_messages = notice")
    for option in ("", ", class_weight => '\"balanced\"'"):
        session.execute(f"SELECT dana_train('logistic', 't', 'm', '{{x}}', 'ill'{option})")
        told: list[str] = []
        session.add_notice_handler(lambda notice, told=told: told.append(str(notice.message_primary)))
        found = evaluated(session, "'m'")["confusion"]
        rare = found["tp"] + found["fn"]
        assert 0 < rare < 400
        assert (2 * found["tp"] < rare) == (not option)
        share = f"{100 * rare / 2000:.2g}"
        text = f'model "m" finds only {found["tp"]} of the {rare} rows of the rarer class, {share} % of all'
        assert [one for one in told if "rarer class" in one] == ([] if option else [text])
