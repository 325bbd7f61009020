"""Columns with more digits than binary32 holds: they are trained on, and predicted from, less their centres."""

from __future__ import annotations

import warnings
from typing import Any
from xml.etree import ElementTree as Xml

import numpy as np
import onnxruntime
import psycopg
import pytest

from dana import rules
from dana.client.connection import Connection
from dana.estimator import DanaRegressor
from dana.rules import text
from dana.server.embedded import EmbeddedServer
from dana.trainer.arrays import train
from tests.sql.conftest import Session

ROWS = "sin(i * 0.7)::float8 AS a, (1e6 + cos(i * 1.3)::float8 / 100)::{kind} AS x"
LABEL = "100000000 + 10 * sin(i * 0.7)::float8 + 50 * cos(i * 1.3)::float8 + sin(i * i)::float8"

Numbers = np.ndarray[Any, np.dtype[np.float64]]


@pytest.fixture
def told(session: Session) -> list[str]:
    """Notices of the session, with the rules registered."""
    heard: list[str] = []
    session.execute("SET client_min_messages = notice")
    session.add_notice_handler(lambda said: heard.append(f"{said.message_primary}\n{said.message_hint}"))
    for name in ("linear", "ridge", "huber", "logistic", "poisson"):
        session.execute("SELECT dana_create_udf(%s, %s)", (name, rules.text(name)))
    heard.clear()
    return heard


def columns(session: Session, statement: str) -> list[Numbers]:
    """The columns of a query."""
    return [np.array(each, float) for each in zip(*session.execute(statement).fetchall(), strict=True)]  # type: ignore[arg-type]


def weights(session: Session, model: str) -> list[list[float]]:
    return [row[0] for row in session.execute('SELECT "values" FROM dana_parameters(%s)', (model,)).fetchall()]


def least_squares(y: Numbers, *features: Numbers) -> tuple[Numbers, Numbers]:
    """Coefficients in binary64, of columns less their means, and what they predict."""
    x = np.column_stack(features)
    coefficients = np.linalg.lstsq(x - x.mean(axis=0), y - y.mean(), rcond=None)[0]
    return coefficients, (x - x.mean(axis=0)) @ coefficients + y.mean()


def r2(y: Numbers, predicted: Numbers) -> float:
    return float(1 - ((y - predicted) ** 2).sum() / ((y - y.mean()) ** 2).sum())


@pytest.mark.parametrize("kind", ["float8", "numeric"])
def test_least_squares(session: Session, told: list[str], kind: str) -> None:
    session.execute(
        f"CREATE TABLE t AS SELECT {ROWS.format(kind=kind)}, {LABEL} AS y FROM generate_series(1, 700) AS i"
    )
    session.execute("SELECT dana_train('linear', 't', 'm')")
    a, x, y, predicted, rounded = columns(
        session, "SELECT a, x, y, dana_predict_double('m', a, x), dana_predict('m', t) FROM t"
    )
    coefficients, best = least_squares(y, a, x)
    np.testing.assert_allclose(predicted, best, atol=1e-3)
    assert (rounded.astype(np.float32) == predicted.astype(np.float32)).all()
    (metrics,) = session.execute("SELECT dana_evaluate('m')").fetchone() or ({},)
    assert metrics["r2"] == pytest.approx(r2(y, best), abs=1e-6)
    assert metrics["rmse"] == pytest.approx(float(np.sqrt(((y - best) ** 2).mean())), rel=1e-4)
    found = dict(session.execute("SELECT term, coefficient FROM dana_coefficients('m')").fetchall())
    assert [found["a"], found["x"]] == pytest.approx(coefficients.tolist(), rel=1e-5)
    x_mean, a_mean = (coefficients * [a.mean(), x.mean()]).tolist()
    assert found["(intercept)"] == pytest.approx(y.mean() - x_mean - a_mean, rel=1e-6)
    assert not any("digits" in one and "dana_predict_double" not in one for one in told), told


SAME = """
SELECT dana_train('linear', 't', 'table', machine => 'sim');
SELECT dana_train('linear', query => 'SELECT * FROM t', model => 'query');
SELECT dana_train('linear', 't', 'interp', machine => 'interp');
SELECT dana_train_groups('linear', 't', '{g}', '{"model": "group", "features": ["a", "x"], "label": "y"}')
"""


def test_same_bits(session: Session, told: list[str]) -> None:
    """From a table, a query, a group, and arrays."""
    session.execute(
        f"CREATE TABLE t AS SELECT {ROWS.format(kind='float8')}, {LABEL} AS y FROM generate_series(1, 300) AS i"
    )
    for call in SAME.replace("'t', 'table'", "'t', 'table'").split(";")[:3]:
        session.execute(call)  # type: ignore[arg-type]
    session.execute("ALTER TABLE t ADD g integer NOT NULL DEFAULT 1")
    session.execute(SAME.split(";")[3])  # type: ignore[arg-type]
    expected = weights(session, "table")
    assert expected == weights(session, "query") == weights(session, "interp") == weights(session, "group[1]")
    a, x, y = columns(session, "SELECT a, x, y FROM t")
    trained = train(text("linear"), {"a": a, "x": x, "y": y})
    assert [np.float32(values).tolist() for values in expected] == [
        values.reshape(-1).tolist() for values in trained.models.values()
    ]
    (stored,) = session.execute("SELECT metadata -> 'centres' FROM dana.model WHERE name = 'table'").fetchone() or ({},)
    assert stored == {"features": list(trained.centres.features), "label": trained.centres.label}
    (predicted,) = columns(session, "SELECT dana_predict_double('table', a, x) FROM t")
    np.testing.assert_allclose(trained.predict({"a": a, "x": x}), predicted, rtol=0, atol=1e-6)


def test_a_training_begins_again_after_its_epochs(session: Session, told: list[str]) -> None:
    """What is left of a column after another decides, which only the solved model shows."""
    session.execute(
        "CREATE TABLE t AS SELECT a, a + d AS x, 2000 * d + sin(i * i)::float8 / 100 AS y "
        "FROM (SELECT i, 1000 + sin(i * 0.7)::float8 AS a, (2 + cos(i * 1.3)::float8) / 1000 AS d "
        "FROM generate_series(1, 300) AS i) AS made"
    )
    for call in SAME.split(";"):
        if "group" in call:
            session.execute("ALTER TABLE t ADD g integer NOT NULL DEFAULT 1")
        session.execute(call)  # type: ignore[arg-type]
    a, x, y = columns(session, "SELECT a, x, y FROM t")
    (found,) = session.execute("SELECT metadata FROM dana.model WHERE name = 'table'").fetchone() or ({},)
    assert found["centres"] == {"features": [1000, 1000], "label": 0}
    best = least_squares(y, a, x - a)[1]
    error = np.sqrt(((y - best) ** 2).sum() / (len(y) - 3))
    assert found["summary"]["residual_error"] == pytest.approx(error, rel=1e-3)
    expected = weights(session, "table")
    assert expected == weights(session, "query") == weights(session, "interp") == weights(session, "group[1]")
    trained = train(text("linear"), {"a": a, "x": x, "y": y})
    assert [np.float32(values).tolist() for values in expected] == [
        values.reshape(-1).tolist() for values in trained.models.values()
    ]
    runs = session.execute(
        "SELECT epochs, count(*), max(epoch), min(epoch) FROM dana.run JOIN dana.epoch ON run = id GROUP BY id "
        "ORDER BY id DESC LIMIT 4"
    ).fetchall()
    assert all(count == last == epochs and first == 1 for epochs, count, last, first in runs), runs
    assert not told


TYPES = {
    "bigint": "3000000000 + (1000 * sin(i))::bigint",
    "numeric": "12345678901.5 + round(sin(i)::numeric, 3)",
    "timestamptz": "timestamptz '2024-05-01 12:00Z' + sin(i) * interval '3 minutes'",
    "timestamp": "timestamp '2024-05-01 12:00' + sin(i) * interval '1 second'",
    "float8": "1e12 + sin(i)::float8 * 0.01",
}


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("rule", ["linear", "logistic"])
def test_types(session: Session, told: list[str], kind: str, rule: str) -> None:
    """The label depends on a column that binary32 rounds to a few values; time is counted from an epoch."""
    label = "sin(i) + cos(i * 7) / 10" if rule == "linear" else "sin(i) + cos(i * 7) > 0.2"
    session.execute(
        f"CREATE TABLE t AS SELECT {TYPES[kind]} AS x, sin(i) AS s, {label} AS y FROM generate_series(1, 500) AS i"
    )
    number = '{"x": {"encode": "none"}}' if "time" in kind else None
    session.execute("SELECT dana_train(%s, 't', 'm', '{x}', 'y', preprocess => %s)", (rule, number))
    session.execute("SELECT dana_train(%s, 't', 'small', '{s}', 'y')", (rule,))
    one, other = columns(session, "SELECT dana_predict('m', x), dana_predict('small', s) FROM t")
    np.testing.assert_allclose(one, other, atol=0.02)
    assert not any("digits" in each or "single value" in each for each in told), told


def test_what_stays_as_it_is(session: Session, told: list[str]) -> None:
    """Numbers that binary32 holds, a rule that reads its label, and columns that are not to be scaled."""
    session.execute(
        "CREATE TABLE t AS SELECT (16000000 + i % 7) AS a, (1e6 + i % 5)::real AS r, 1::float8 AS one,"
        " 1e6 + sin(i) / 100 AS x, (i * 37 % 11)::float8 AS y FROM generate_series(1, 200) AS i"
    )
    session.execute("SELECT dana_train('linear', 't', 'exact', '{a,r,one}', 'y')")
    session.execute("SELECT dana_train('linear', 't', 'raw', '{x}', 'y', standardize => false, epochs => 3)")
    told.clear()
    session.execute("CREATE TABLE u AS SELECT i % 3 AS a, 2e8 + 10 * (i % 7) AS y FROM generate_series(1, 200) AS i")
    session.execute("SELECT dana_train('poisson', 'u', 'counts', epochs => 3)")
    assert any(one.startswith("column y of test.u loses most of its digits") for one in told), told
    assert session.execute("SELECT count(*) FROM dana.model WHERE metadata ? 'centres'").fetchone() == (0,)


def test_nulls_arrays_and_held_out_rows(session: Session, told: list[str]) -> None:
    """The mean that replaces a NULL, elements of an array, and rows for validation are centred, too."""
    session.execute(
        "CREATE TABLE t AS SELECT i AS id, CASE WHEN i % 4 > 0 THEN 1e6 + sin(i) / 100 END AS x,"
        " ARRAY[cos(i), 1e7 + cos(i * 3) / 10] AS v, 1e8 + 3 * sin(i) + cos(i) + cos(i * 3) AS y"
        " FROM generate_series(1, 400) AS i; ALTER TABLE t ADD PRIMARY KEY (id)"
    )
    session.execute("SELECT dana_train('linear', 't', 'a', '{v}', 'y')")
    v, w, y, predicted = columns(session, "SELECT v[1], v[2], y, dana_predict_double('a', v) FROM t")
    np.testing.assert_allclose(predicted, least_squares(y, v, w)[1], rtol=0, atol=1e-3)
    session.execute("SELECT dana_train('linear', 't', 'm', '{x}', 'y', nulls => 'mean', early_stopping => true)")
    x, y, predicted = columns(
        session, "SELECT coalesce(x, (SELECT avg(x) FROM t)), y, dana_predict_double('m', x) FROM t"
    )
    _, best = least_squares(y, x)
    assert r2(y, predicted) == pytest.approx(r2(y, best), abs=0.01)
    (run,) = session.execute("SELECT validation_loss FROM dana.run ORDER BY id DESC LIMIT 1").fetchone() or (0,)
    assert run == pytest.approx(float(((y - best) ** 2).mean()), rel=0.5)


def test_warm_start(session: Session, told: list[str]) -> None:
    """It keeps the centres of the model, also on rows that need none."""
    session.execute(
        f"CREATE TABLE t AS SELECT {ROWS.format(kind='float8')}, {LABEL} AS y FROM generate_series(1, 300) AS i"
    )
    session.execute("SELECT dana_train('linear', 't', 'm')")
    session.execute("SELECT dana_train('linear', 't', 'next', warm_start_from => 'm')")
    centres = "SELECT metadata -> 'centres' FROM dana.model WHERE name = %s"
    assert session.execute(centres, ("m",)).fetchone() == session.execute(centres, ("next",)).fetchone() != (None,)
    one, other = columns(session, "SELECT dana_predict_double('m', a, x), dana_predict_double('next', a, x) FROM t")
    np.testing.assert_allclose(one, other, rtol=0, atol=1e-3)
    session.execute(
        "SELECT dana_train('linear', query => 'SELECT a, x + i AS x, y + 10 * i AS y FROM t, generate_series(1, 9) i',"
        " model => 'wide', warm_start_from => 'm')"
    )
    assert session.execute(centres, ("m",)).fetchone() == session.execute(centres, ("wide",)).fetchone()


def test_notices_come_once(session: Session, told: list[str]) -> None:
    session.execute(
        "CREATE TABLE t AS SELECT 1e6 + sin(i) / 100 AS x, CASE WHEN i > 5 THEN cos(i)::numeric END AS c, sin(i) AS y"
        " FROM generate_series(1, 200) AS i"
    )
    session.execute("SELECT dana_train('linear', 't', 'm')")
    assert len([one for one in told if "are left out" in one]) == 1, told
    assert len(told) == len(set(told))


def test_exports_and_clients(session: Session, told: list[str]) -> None:
    """ONNX, PMML and Python predict what SQL predicts, with all digits."""
    session.execute(
        f"CREATE TABLE t AS SELECT {ROWS.format(kind='float8')}, timestamp '2024-05-01' + cos(i) * interval '1m' AS at"
        f", {LABEL} + 20 * cos(i) AS y FROM generate_series(1, 300) AS i"
    )
    db = Connection(session)
    session.execute("SELECT dana_train('linear', 't', 'plain', '{a,x}', 'y')")
    a, x, y = columns(session, "SELECT a, x, y FROM t")
    expected = least_squares(y, a, x)[1]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = db.predict("plain", "t")["prediction"]
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-3)
    exported = db.export_model("plain", format="onnx")
    assert isinstance(exported, bytes)
    (ran,) = onnxruntime.InferenceSession(exported).run(["prediction"], {"features": np.column_stack([a, x])})
    np.testing.assert_allclose(ran, found, rtol=0, atol=1e-5)
    root = Xml.fromstring(db.export_model("plain", format="pmml"))
    table = next(one for one in root.iter() if one.tag.endswith("RegressionTable"))
    terms = {one.get("name"): float(one.get("coefficient", "nan")) for one in table}
    np.testing.assert_allclose(
        float(table.get("intercept", "nan")) + terms["a"] * a + terms["x"] * x, found, rtol=0, atol=1e-3
    )
    assert {one.get("dataType") for one in root.iter() if one.tag.endswith("DataField")} == {"double"}
    encoded = '{"at": {"encode": "none"}, "x": {"impute": "mean"}}'
    session.execute("SELECT dana_train('linear', 't', 'encoded', '{at,x}', 'y', preprocess => %s)", (encoded,))
    (predicted,) = columns(session, "SELECT dana_predict_double('encoded', at, x) FROM t")
    (moments,) = columns(session, "SELECT extract(epoch FROM at) * 1e6 FROM t")
    x[0] = np.nan
    inputs = {"at": moments.astype(np.int64)[:, None], "x": x[:, None]}
    exported = db.export_model("encoded", format="onnx")
    (ran,) = onnxruntime.InferenceSession(exported).run(["prediction"], inputs)
    np.testing.assert_allclose(ran[1:], predicted[1:], rtol=0, atol=1e-5)
    (mean,) = session.execute(
        "SELECT dana_predict_double('encoded', timestamp '2024-05-01', NULL::float8)"
    ).fetchone() or (0,)
    assert mean == pytest.approx(predicted.mean(), abs=10)


def test_estimator(server: EmbeddedServer, session: Session) -> None:
    random = np.random.default_rng(1)
    x = np.column_stack([1e6 + 0.01 * random.standard_normal(300), random.standard_normal(300)])
    y = 1e8 + 200 * (x[:, 0] - 1e6) + x[:, 1]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted = DanaRegressor(dsn=server.dsn).fit(x, y)
        np.testing.assert_allclose(fitted.predict(x), y, rtol=0, atol=1e-4)
    np.testing.assert_allclose(fitted.coef_, [200, 1], rtol=1e-4)
    np.testing.assert_allclose(x @ fitted.coef_ + fitted.intercept_, y, rtol=0, atol=1e-3)


def test_contributions_far_from_zero(session: Session) -> None:
    """Up to the rounding of binary64 at the label's distance from 0; a column's own distance adds nothing."""
    session.execute(
        "CREATE TABLE t AS SELECT 1e15 + 8 * (i % 50) AS a, 1e12 + i % 7 AS x, 1e12 + 3 * (i % 50) "
        "+ (i * 7919 % 13) / 4.0 AS y FROM generate_series(1, 300) AS i"
    )
    session.execute("SELECT dana_train('linear', 't', 'm')")
    total, predicted = columns(
        session,
        "SELECT (SELECT sum(contribution) FROM dana_contributions('m', a, x)), dana_predict_double('m', a, x) FROM t",
    )
    assert np.abs(total - predicted).max() <= 4 * np.spacing(1e12)
    session.execute("UPDATE t SET y = y - 1e12::numeric")
    session.execute("SELECT dana_train('linear', 't', 'm')")
    total, predicted = columns(
        session,
        "SELECT (SELECT sum(contribution) FROM dana_contributions('m', a, x)), dana_predict_double('m', a, x) FROM t",
    )
    np.testing.assert_allclose(total, predicted, rtol=1e-6, atol=1e-4)


def test_contributions_and_damaged_metadata(session: Session, told: list[str]) -> None:
    session.execute(
        f"CREATE TABLE t AS SELECT {ROWS.format(kind='float8')}, {LABEL} AS y FROM generate_series(1, 300) AS i"
    )
    session.execute("SELECT dana_train('linear', 't', 'm')")
    total, predicted = columns(
        session,
        "SELECT (SELECT sum(contribution) FROM dana_contributions('m', a, x)), dana_predict_double('m', a, x) FROM t",
    )
    np.testing.assert_allclose(total, predicted, rtol=0, atol=1e-3)
    for damaged in ('{"features": [1], "label": 0}', '"x"', '{"label": 1}'):
        session.execute("UPDATE dana.model SET metadata = jsonb_set(metadata, '{centres}', %s)", (damaged,))
        with pytest.raises(psycopg.errors.DataCorrupted, match=r"metadata\.centres of model \"m\" is malformed"):
            session.execute("SELECT dana_predict('m', a, x) FROM t")
