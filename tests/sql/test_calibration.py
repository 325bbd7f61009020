"""calibrate => 'platt': probabilities from scores, fitted to rows that trained nothing, as scikit-learn fits them."""

from __future__ import annotations

from typing import Any

import numpy as np
import psycopg
import pytest
from sklearn.calibration import _SigmoidCalibration

from dana import rules
from dana.client.connection import Connection
from dana.client.models import encode_model, read_exported
from dana.estimator import DanaClassifier
from dana.trainer.calibration import platt
from tests.interchange.test_columns import onnx_outputs, pmml_outputs
from tests.sql.conftest import Session

ROWS = 500
OPTIONS: dict[str, Any] = {"features": ["a", "b"], "label": "ill", "calibrate": "platt", "test_by": "g"}


@pytest.fixture
def db(session: Session) -> Connection:
    for name in ("linear", "linear_svm", "logistic"):
        if not session.execute("SELECT FROM dana.rule WHERE name = %s", (name,)).fetchall():
            session.execute("SELECT dana_create_udf(%s, %s)", (name, rules.text(name)))
    session.execute("CREATE TABLE test.t (id int PRIMARY KEY, g int, a float8, b real, w real, ill text)")
    random = np.random.default_rng(3)
    with session.cursor().copy("COPY test.t FROM STDIN") as copy:
        for k in range(ROWS):
            a, b = 1e6 + 0.01 * random.normal(), random.normal()
            ill = 100 * (a - 1e6) + b + random.normal() > 0.7
            copy.write_row((k, k % 10, a, b, random.integers(0, 4), "yes" if ill else "no"))
    return Connection(session)


def columns(db: Connection, condition: str = "true") -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    found = db.session.execute(f"SELECT a, b, w, ill = 'yes' FROM test.t WHERE {condition} ORDER BY id").fetchall()  # type: ignore[arg-type]
    values = np.array(found, float)
    return values[:, :2], values[:, 3].astype(int), values[:, 2].copy()


def calibration(db: Connection) -> dict[str, Any]:
    found = db.session.execute("SELECT metadata FROM dana.model WHERE name = 'm' ORDER BY version DESC").fetchone()
    assert found is not None
    assert found[0]["predicts"] == "probability"
    made: dict[str, Any] = found[0]["calibration"]
    return made


@pytest.mark.parametrize("weight", [None, "w"])
@pytest.mark.parametrize("rule", ["linear_svm", "logistic"])
def test_the_numbers_of_scikit_learn_on_rows_for_validation(db: Connection, rule: str, weight: str | None) -> None:
    result = db.train(rule, "test.t", model="m", test_size=0.2, weight=weight, **OPTIONS)
    found = calibration(db)
    intercept, *weights = (one.coefficient for one in db.coefficients("m"))
    fitted = {}
    for one in range(10):
        for other in range(one):
            x, y, w = columns(db, f"g IN ({one}, {other})")
            fit = _SigmoidCalibration().fit(x @ weights + intercept, y, None if weight is None else w)
            fitted[one, other] = fit.a_, fit.b_
    near = [pair for pair, of in fitted.items() if of == pytest.approx((found["a"], found["b"]), abs=1e-4)]
    assert len(near) == 1
    x, y, w = columns(db, f"g IN ({near[0][0]}, {near[0][1]})")
    rows = y.size if weight is None else int((w > 0).sum())
    assert found == {"method": "platt", "a": found["a"], "b": found["b"], "rows": rows}
    # two values of g for the test, two for validation
    everywhere, others = columns(db), columns(db, f"g NOT IN ({near[0][0]}, {near[0][1]})")
    judged = db.evaluate("m")
    assert judged["rows"] == ROWS / 5
    assert result.tuples <= others[1].size - ROWS / 5
    # what predicts: SQL, of rows near the boundary
    p = 1 / (1 + np.exp(found["a"] * (everywhere[0] @ weights + intercept) + found["b"]))
    again = db.session.execute("SELECT dana_predict('m', a, b), dana_classify('m', a, b) FROM test.t ORDER BY id")
    numbers, labels = zip(*again.fetchall(), strict=True)
    np.testing.assert_allclose(numbers, p, atol=2e-5)
    assert [one == "yes" for one in labels] == [one >= 0.5 for one in numbers]
    assert {"log_loss", "brier"} <= set(judged)


def test_platt_on_hard_scores() -> None:
    random = np.random.default_rng(5)
    for scale, shift in ((1e-6, 0), (1, 3), (1e5, 0), (20, -60)):
        scores = scale * random.normal(size=300) + shift
        second = scores + scale * random.normal(size=300) > shift + scale
        weights = random.random(300)
        fit = _SigmoidCalibration().fit(scores, second.astype(int), weights)
        p = 1 / (1 + np.exp(fit.a_ * scores + fit.b_))
        a, b = platt(scores, second, weights)
        np.testing.assert_allclose(1 / (1 + np.exp(a * scores + b)), p, atol=1e-3)
    # separated rows: the smoothed targets keep the slope finite
    a, b = platt(np.array([-1.0, 1.0]), np.array([False, True]), np.ones(2))
    assert (a, b) == pytest.approx((-np.log(2), 0))


def test_exports_and_machines(db: Connection) -> None:
    options = OPTIONS | {"features": ["b"], "epochs": 3}
    predictors = []
    for machine in ("sim", "interp"):
        db.train("linear_svm", "test.t", model="m", machine=machine, **options)
        exported = read_exported(db.session, "m")
        predictors.append((exported["parameters"], exported["predictor"]))
    assert predictors[0] == predictors[1]
    found = db.session.execute("SELECT b, dana_predict('m', b) FROM test.t ORDER BY id LIMIT 20").fetchall()
    expected = [number for _, number in found]
    answers = pmml_outputs(encode_model(exported, "pmml"), [{"b": b} for b, _ in found])
    assert [one["prediction"] for one in answers] == pytest.approx(expected, abs=1e-5)
    data = encode_model(exported, "onnx")
    outputs = onnx_outputs(data, {"features": np.array([[b] for b, _ in found], np.float32)})
    np.testing.assert_allclose(outputs["prediction"].ravel(), expected, atol=1e-6)


def test_trials_and_early_stopping(db: Connection) -> None:
    folds = db.cross_validate("linear_svm", "test.t", folds=2, **OPTIONS)
    assert all("log_loss" in one.metrics for one in folds)
    plain = {name: value for name, value in OPTIONS.items() if name != "test_by"}
    db.train("linear_svm", "test.t", model="m", validation_size=0.3, **plain)
    assert calibration(db)["rows"] == ROWS * 0.3
    db.session.execute("SET client_min_messages = notice")
    with pytest.warns(match="is kept: its loss on the rows for validation"):
        db.train("linear_svm", "test.t", model="m", early_stopping=True, **plain)


def test_an_estimator(db: Connection, pg_uri: str) -> None:
    x, y, _ = columns(db)
    one = DanaClassifier("linear_svm", dsn=pg_uri)
    assert not hasattr(one, "predict_proba")
    one.set_params(training={"calibrate": "platt"}).fit(x, y)
    assert not hasattr(one, "decision_function")
    probabilities = one.predict_proba(x)
    assert np.array_equal(one.predict(x), (probabilities[:, 1] >= 0.5).astype(int))
    assert probabilities.min() > 0
    assert probabilities.sum(axis=1) == pytest.approx(1)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        ("dana_train('linear_svm', 't', label => 'ill', calibrate => 'isotonic')", "22023", "must be 'platt'"),
        ("dana_train('linear', 't', label => 'w', calibrate => 'platt')", "22023", "score of two classes"),
        (
            "dana_train('linear_svm', 't', label => 'ill', calibrate => 'platt', validation_size => 0.3,"
            " features => '{a}', filter => 'ill = ''no'' OR id < 3')",
            "22000",
            "of both classes",
        ),
        ("dana_train_groups('linear_svm', 't', '{g}', '{\"calibrate\": \"platt\"}')", "0A000", "without rows for"),
    ],
)
def test_what_cannot_be_calibrated(db: Connection, call: str, error: str, message: str) -> None:
    with pytest.raises(psycopg.Error, match=message) as raised:
        db.session.execute(f"SELECT {call}")  # type: ignore[arg-type]
    assert raised.value.sqlstate == error
