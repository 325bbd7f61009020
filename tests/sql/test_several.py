"""Rules that predict a vector: several tasks, quantiles, probabilities of labels that do not exclude each other."""

from __future__ import annotations

from typing import Any

import numpy as np
import psycopg
import pytest

from dsl import compile_rule
from dsl.hdfg.interpreter import Interpreter
from hwgen.spec import numerics
from tests.sql.conftest import Session

metrics = pytest.importorskip("sklearn.metrics")
errors = psycopg.errors

TASKS = """
import dana
n = dana.dim()
k = dana.dim()
W = dana.model([k, n])
b = dana.model([k])
x = dana.input([n])
y = dana.output([k])
tasks = dana.algo(W, b, x, y)
p = dana.sigma(W * x, 2) + b
e = p - y
tasks.setModel(W, W - 0.5 * tasks.merge(dana.expand(e, 2) * x, 16, "+") / 16)
tasks.setModel(b, b - 0.5 * tasks.merge(e, 16, "+") / 16)
tasks.setLoss(dana.sigma(e * e, 1))
tasks.setPrediction(p)
tasks.setEpochs(20)
"""

QUANTILES = """
import dana
n = dana.dim()
k = dana.dim(3)
W = dana.model([k, n])
b = dana.model([k])
x = dana.input([n])
y = dana.output()
quantiles = dana.algo(W, b, x, y)
level = (dana.arange(k) + 1) / (k + 1)
p = dana.sigma(W * x, 2) + b
e = y - p
g = dana.where(e > 0, level, level - 1)
quantiles.setModel(W, W + 0.2 * quantiles.merge(dana.expand(g, 2) * x, 16, "+") / 16)
quantiles.setModel(b, b + 0.2 * quantiles.merge(g, 16, "+") / 16)
quantiles.setLoss(dana.sigma(dana.max(level * e, (level - 1) * e), 1))
quantiles.setPrediction(p)
quantiles.setEpochs(60)
"""


@pytest.fixture
def trained(session: Session) -> Session:
    """Models `tasks`, of two labels in one array, and `quantiles`, of one label and three numbers."""
    session.execute("SELECT setseed(0.5)")
    session.execute(
        "CREATE TABLE t AS SELECT i AS id, a::real, b::real, ARRAY[2 * a - b, a + 3 * b + 1]::real[] AS ys,"
        " (a + random() - 0.5)::real AS y"
        " FROM (SELECT i, random() - 0.5 AS a, random() - 0.5 AS b FROM generate_series(1, 800) AS i) AS s"
    )
    session.execute("ALTER TABLE t ADD PRIMARY KEY (id)")
    for name, rule in (("tasks", TASKS), ("quantiles", QUANTILES)):
        session.execute("SELECT dana_create_udf(%s, %s)", (name, rule))
    session.execute("SELECT dana_train('tasks', 't', features => '{a,b}', label => 'ys')")
    session.execute("SELECT dana_train('quantiles', 't', features => '{a,b}', label => 'y')")
    return session


def rows(session: Session, query: str) -> list[tuple[Any, ...]]:
    return session.execute(query).fetchall()  # type: ignore[arg-type]


@pytest.mark.parametrize(("model", "rule", "dims"), [("tasks", TASKS, {"k": 2}), ("quantiles", QUANTILES, {"k": 3})])
def test_the_interpreter_s_bits(trained: Session, model: str, rule: str, dims: dict[str, int]) -> None:
    x = np.array(rows(trained, "SELECT a, b FROM t ORDER BY id"), np.float32)
    found = rows(trained, f"SELECT dana_predict_array('{model}', a, b) FROM t ORDER BY id")
    graph = compile_rule(rule, filename=model).hdfg.bind({"n": 2, **dims})
    parameters = rows(trained, f"SELECT parameter, shape, \"values\" FROM dana_parameters('{model}')")
    models = {name: np.array(values, np.float32).reshape(shape) for name, shape, values in parameters}
    expected = Interpreter(graph, numerics).predict({"x": x}, models)
    assert expected.shape == (800, dims["k"])
    np.testing.assert_array_equal(np.array([each for (each,) in found], np.float32), expected)


def test_what_is_learnt(trained: Session) -> None:
    tasks = np.array([row[0] + row[1] for row in rows(trained, "SELECT ys, dana_predict_array('tasks', t) FROM t")])
    np.testing.assert_allclose(tasks[:, :2], tasks[:, 2:], atol=0.01)
    pairs = rows(trained, "SELECT y, dana_predict_array('quantiles', t) FROM t")
    below = np.mean([[y <= each for each in found] for y, found in pairs], axis=0)
    np.testing.assert_allclose(below, [0.25, 0.5, 0.75], atol=0.05)


def test_every_way_to_ask(trained: Session) -> None:
    expected = rows(trained, "SELECT id, dana_predict_array('tasks', a, b) FROM t ORDER BY id")
    for query in (
        "SELECT id, dana_predict_array('tasks@1', ARRAY[a, b]) FROM t ORDER BY id",
        "SELECT id, dana_predict_array('tasks', t) FROM t ORDER BY id",
        "SELECT id::int, predictions FROM dana_predict_table('tasks', 't') ORDER BY 1",
    ):
        assert rows(trained, query) == expected
    table = rows(trained, "SELECT DISTINCT prediction, label FROM dana_predict_table('tasks', 't')")
    assert table == [(None, None)]
    assert rows(trained, "SELECT dana_predict_array('tasks', NULL::real, 1)") == [(None,)]
    # a scalar is an array of one, and has no predictions in a table
    trained.execute("SELECT dana_train('sums', 't', features => '{a,b}', label => 'y')")
    both = rows(trained, "SELECT dana_predict('sums', t), dana_predict_array('sums', t) FROM t")
    assert all(several == [one] for one, several in both)
    assert rows(trained, "SELECT DISTINCT predictions FROM dana_predict_table('sums', 't')") == [(None,)]


@pytest.mark.parametrize(
    ("query", "message", "hint"),
    [
        ("SELECT dana_predict('tasks', t) FROM t", 'model "tasks" predicts 2 numbers', "dana_predict_array()"),
        ("SELECT dana_classify('tasks', t) FROM t", "does not predict classes", "dana_predict_array()"),
        (
            "SELECT dana_probabilities('tasks', t) FROM t",
            "does not predict probabilities",
            "dana_predict_array()",
        ),
        ("SELECT dana_evaluate('quantiles')", "not 3 predictions and 1 labels", "Compare one prediction"),
        ("SELECT dana_evaluate('tasks', query => 'SELECT a, b FROM t')", 'column "ys"', ""),
    ],
)
def test_refusals(trained: Session, query: str, message: str, hint: str) -> None:
    with pytest.raises(psycopg.Error) as raised:
        rows(trained, query)
    assert message in str(raised.value.diag.message_primary)
    assert hint in str(raised.value.diag.message_hint)


def judged(pairs: list[tuple[Any, ...]]) -> dict[str, Any]:
    """What scikit-learn says of labels and predictions."""
    y, p = (np.array(each, np.float32).astype(np.float64) for each in zip(*pairs, strict=True))
    each = [
        {
            "mae": metrics.mean_absolute_error(y[:, k], p[:, k]),
            "rmse": metrics.mean_squared_error(y[:, k], p[:, k]) ** 0.5,
            "r2": metrics.r2_score(y[:, k], p[:, k]),
        }
        for k in range(y.shape[1])
    ]
    means = {name: np.mean([one[name] for one in each]) for name in each[0]}
    assert means["r2"] == pytest.approx(metrics.r2_score(y, p))
    return {"rows": len(y), "not_finite": 0, "outputs": each, **means}


def same(found: dict[str, Any], expected: dict[str, Any]) -> None:
    assert found.keys() == expected.keys()
    for one, other in zip(found.pop("outputs"), expected.pop("outputs"), strict=True):
        assert one == pytest.approx(other, rel=1e-6)
    assert found == pytest.approx(expected, rel=1e-6)


def test_evaluate(trained: Session) -> None:
    trained.execute("SELECT dana_train('tasks', 't', 'two', '{a,b}', 'ys', epochs => 2)")
    expected = judged(rows(trained, "SELECT ys, dana_predict_array('two', t) FROM t"))
    ((found,),) = rows(trained, "SELECT dana_evaluate('two')")
    assert (found.pop("model"), found.pop("version"), found.pop("part")) == ("two", 1, "all")
    assert min(one["rmse"] for one in found["outputs"]) > 0.005
    same(found, expected)
    # folds, and a search by the mean
    validated = rows(
        trained,
        """SELECT fold, metrics -> 'rmse' FROM dana_cross_validate('tasks', 't', 3,
            '{"features": ["a", "b"], "label": "ys"}')""",
    )
    assert [fold for fold, _ in validated] == ["1", "2", "3", "mean", "deviation"]
    assert validated[3][1] == pytest.approx(np.mean([score for _, score in validated[:3]]))


def test_metrics_of_other_rows(session: Session) -> None:
    y = "ARRAY[i, i % 3]::real[]"
    p = "ARRAY[i + 1, (i + 1) % 3]::real[]"
    expected = judged(rows(session, f"SELECT {y}, {p} FROM generate_series(1, 20) AS i"))
    ((found,),) = rows(session, f"SELECT dana_regression_metrics({y}, {p}) FROM generate_series(1, 20) AS i")
    same(found, expected)
    ((found,),) = rows(
        session,
        "SELECT dana_regression_metrics(y, p) FROM (VALUES ('{1,2}'::real[], '{1,2}'::real[]), ('{1,NaN}', '{1,2}'),"
        " ('{3,2}', '{2,2}'), (NULL, '{1,2}'), ('{1,2}', '{1,Infinity}')) AS s (y, p)",
    )
    assert found == {
        "rows": 2,
        "not_finite": 2,
        "mae": 0.25,
        "rmse": pytest.approx(0.5**0.5 / 2),
        "r2": 0.5,  # the second output has none: its labels are all the same
        "outputs": [{"mae": 0.5, "rmse": pytest.approx(0.5**0.5), "r2": 0.5}, {"mae": 0, "rmse": 0, "r2": None}],
    }
    assert rows(session, "SELECT dana_regression_metrics(NULL::real[], '{1}'::real[])") == [(None,)]


@pytest.mark.parametrize(
    ("values", "error", "message"),
    [
        ("('{1,2}'::real[], '{1}'::real[])", errors.InvalidParameterValue, "not 1 predictions and 2 labels"),
        ("('{}'::real[], '{}'::real[])", errors.InvalidParameterValue, "at least one label"),
        (
            "('{1}'::real[], '{1}'::real[]), ('{1,2}', '{1,2}')",
            errors.InvalidParameterValue,
            "as the first, 1, not 2",
        ),
        ("('{1,NULL}'::real[], '{1,2}'::real[])", errors.NullValueNotAllowed, "must not hold a NULL"),
    ],
)
def test_metrics_refuse(session: Session, values: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        rows(session, f"SELECT dana_regression_metrics(y, p) FROM (VALUES {values}) AS s (y, p)")


def test_labels_as_numbers(session: Session) -> None:
    """Values of any type that trains, one after the other, as binary32."""
    found = rows(
        session,
        "SELECT dana.dana_numbers('{1,2}'::float8[], true, '{{3},{4}}'::int[], 0.1::numeric),"
        " dana.dana_numbers(1, NULL::int), dana.dana_numbers('{1,NULL}'::real[]), dana.dana_numbers('{}'::real[])",
    )
    assert found == [([1, 2, 1, 3, 4, pytest.approx(0.1)], None, None, [])]
    with pytest.raises(errors.DatatypeMismatch, match="a value of type text is not a number"):
        rows(session, "SELECT dana.dana_numbers(1, 'a'::text)")


def test_labels_in_columns(session: Session) -> None:
    """A rule with several outputs; values of several types, and a NULL."""
    session.execute(
        "SELECT dana_create_udf('pairs', %s)",
        (
            "import dana\nn = dana.dim()\nW = dana.model([2, n])\nx = dana.input([n])\nlow = dana.output()\n"
            "high = dana.output()\npairs = dana.algo(W, x, low, high)\np = dana.sigma(W * x, 2)\n"
            "e = p - dana.where(dana.arange(2) == 0, low, high)\npairs.setModel(W - 0.1 * dana.expand(e, 2) * x)\n"
            "pairs.setPrediction(p)\npairs.setEpochs(20)\n",
        ),
    )
    session.execute(
        "CREATE TABLE t AS SELECT (i % 7 / 7.0)::real AS a, 1 AS one, i % 7 AS low, (i % 7 > 3) AS high"
        " FROM generate_series(1, 200) AS i"
    )
    session.execute("SELECT dana_train('pairs', 't', features => '{a,one}')")
    session.execute("UPDATE t SET low = NULL WHERE ctid = (SELECT min(ctid) FROM t)")
    expected = judged(
        rows(
            session,
            "SELECT ARRAY[low, high::int]::real[], dana_predict_array('pairs', t) FROM t WHERE low IS NOT NULL",
        )
    )
    ((found,),) = rows(session, "SELECT dana_evaluate('pairs') - '{model,version,part}'::text[]")
    assert found["rows"] == 199
    assert found["outputs"][0]["r2"] > 0.9
    same(found, expected)


def test_coefficients(trained: Session) -> None:
    found = rows(trained, "SELECT label, term, coefficient FROM dana_coefficients('tasks')")
    assert [row[:2] for row in found] == [(k, term) for k in "12" for term in ("(intercept)", "a", "b")]
    np.testing.assert_allclose([row[2] for row in found], [0, 2, -1, 1, 1, 3], atol=0.03)
