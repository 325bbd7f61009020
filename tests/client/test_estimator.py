"""The estimators keep scikit-learn's promises, and train on data frames; what they leave in the database."""

from __future__ import annotations

import gc
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import psycopg
import pytest
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_wine
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from dana import estimator as module
from dana.client.connection import Connection
from dana.client.options import TrainOptions
from dana.client.outcomes import Evaluation
from dana.errors import UsageError
from dana.estimator import DanaClassifier, DanaRegressor
from dana.server.places import PAPER

pytestmark = [pytest.mark.filterwarnings("ignore::dana.ServerWarning", "ignore::dana.ServerNotice")]

FAILING = {
    "check_sample_weight_equivalence_on_dense_data": "machines compute in binary32, where a row that weighs 2 "
    "and one that is there twice round differently"
}
"""Checks of scikit-learn that fail, each with the reason why a database cannot pass it."""


@pytest.fixture
def session(pg_uri: str) -> Iterator[psycopg.Connection[Any]]:
    """A session that sees what is committed; models of the estimators go at the end."""
    with psycopg.connect(pg_uri, autocommit=True) as session:
        yield session
        gc.collect()
        module._drop_unused(module._session)
        session.execute("SELECT dana_drop_model(name) FROM (SELECT DISTINCT name FROM dana.model) AS m")


def models(session: psycopg.Connection[Any]) -> set[str]:
    return {row[0] for row in session.execute("SELECT name FROM dana.model")}


@parametrize_with_checks(
    [DanaRegressor(), DanaClassifier()],
    expected_failed_checks=lambda one: FAILING,
)
def test_scikit_learn_s_checks(estimator: Any, check: Callable[[Any], None], pg_uri: str) -> None:
    estimator.set_params(dsn=pg_uri)
    check(estimator)


def test_weights_of_rows_and_classes(pg_uri: str, session: psycopg.Connection[Any]) -> None:
    """A weight is a number of rows, up to the rule's test; a class's weight is that of its rows; both multiply."""
    random = np.random.default_rng(3)
    x = random.normal(size=(30, 3))
    labels = np.where(x @ [1, -1, 2] + random.normal(size=30) > -1.5, "often", "rare")
    weights = random.integers(0, 3, 30)
    repeated = np.repeat(np.arange(30), weights)
    options: dict[str, Any] = {"dsn": pg_uri, "random_state": 1, "training": {"patience": 0}}
    one = DanaClassifier(**options).fit(x, labels, sample_weight=weights).predict_proba(x)
    other = DanaClassifier(**options).fit(x[repeated], labels[repeated]).predict_proba(x)
    np.testing.assert_allclose(one, other, atol=2e-3)
    frame = pd.DataFrame(x, columns=["y", "y_weight", "c"])
    # means of columns count the rows' weights alone; without a penalty Newton's method would end the second alone
    options |= {"training": {"patience": 0, "standardize": False}, "hyper": {"penalty": 0.01}}
    given = DanaClassifier(**options, class_weight={"rare": 3}).fit(frame, labels, sample_weight=weights)
    by_hand = DanaClassifier(**options).fit(frame, labels, np.where(labels == "rare", 3, 1) * weights)
    np.testing.assert_allclose(given.predict_proba(frame), by_hand.predict_proba(frame), atol=1e-5)
    shares = [
        DanaClassifier(**options, class_weight=each).fit(x, labels).predict_proba(x).mean(axis=0)[1]
        for each in (None, {"rare": 30}, "balanced")
    ]
    assert shares[0] != pytest.approx(shares[2], abs=0.01)
    assert shares[1] > shares[0] + 0.05
    with pytest.raises(ValueError, match=r"class_weight must name classes of .* not 'seldom'"):
        DanaClassifier(**options, class_weight={"seldom": 3}).fit(x, labels)
    for wrong in (-weights, weights[:5], np.full(30, np.nan)):
        with pytest.raises(ValueError, match=r"[Nn]egative|sample_weight|NaN"):
            DanaRegressor(**options).fit(x, weights, sample_weight=wrong)


def test_two_classes_and_their_probabilities(pg_uri: str, session: psycopg.Connection[Any]) -> None:
    x, y = load_breast_cancer(return_X_y=True)
    x = StandardScaler().fit_transform(x)
    labels = np.where(y == 1, "benign", "malignant")
    fitted = DanaClassifier(dsn=pg_uri, model="benign_or_not").fit(x, labels)
    assert fitted.model_ == "benign_or_not@1"
    assert fitted.score(x, labels) > 0.97
    probabilities = fitted.predict_proba(x)
    assert np.array_equal(fitted.predict(x), np.where(probabilities[:, 1] >= 0.5, "malignant", "benign"))
    anxious = clone(fitted).set_params(threshold=0.1, epochs=3).fit(x, labels)
    assert anxious.model_ == "benign_or_not@2"
    assert anxious.n_iter_ == 3
    assert (anxious.predict(x) == "malignant").sum() > (fitted.predict(x) == "malignant").sum()
    assert set(anxious.set_params(threshold=0).predict(x)) == {"malignant"}
    assert not hasattr(fitted, "decision_function")
    # nothing is left but the model
    assert session.execute(
        "SELECT count(*) FROM pg_class WHERE relname LIKE 'dana\\_%%' AND relpersistence = 't'"
    ).fetchone() == (0,)
    vectors = DanaClassifier("linear_svm", dsn=pg_uri).fit(x, labels)
    assert vectors.score(x, labels) > 0.97
    assert np.array_equal(vectors.decision_function(x) > 0, vectors.predict(x) == "malignant")
    assert not hasattr(vectors, "predict_proba")


@pytest.mark.parametrize("rule", ["softmax", "mlp"])
def test_partial_fit_is_sql_s_warm_start(rule: str, pg_uri: str, session: psycopg.Connection[Any]) -> None:
    x, y = load_wine(return_X_y=True)
    x, labels = StandardScaler().fit_transform(x), np.array(["a", "b", "c"])[y]
    estimator = DanaClassifier(rule, dsn=pg_uri, epochs=2, class_weight={"c": 2})
    with pytest.raises(ValueError, match="classes must be passed on the first call"):
        estimator.partial_fit(x[:100], labels[:100])
    with pytest.raises(ValueError, match=r"y must have labels of \['a', 'b'\], not 'c'"):
        clone(estimator).set_params(class_weight=None).partial_fit(x, labels, classes=["a", "b"])
    with pytest.raises(ValueError, match="'balanced' needs the labels of all rows"):
        clone(estimator).set_params(class_weight="balanced").partial_fit(x, labels, classes=["a", "b", "c"])
    estimator.partial_fit(x[:100], labels[:100], classes=["a", "b", "c"])  # none of the third
    first = pickle.loads(pickle.dumps(estimator))  # whose model stays
    estimator.partial_fit(x[100:], labels[100:]).partial_fit(x[:50], labels[:50])
    with Connection(psycopg.connect(pg_uri, autocommit=True)) as db:
        start = first.model_
        for name, part in (("second", slice(100, None)), ("third", slice(50))):
            table = {"x": np.float32(x[part]), "y": y[part].astype(np.float64)}
            db.load(table, "batch", replace=True, temporary=True)
            weights = {"0": 1.0, "1": 1.0, "2": 2.0}
            seed = int(np.random.RandomState(0).randint(1 << 31))
            options: TrainOptions = {"features": ["x"], "label": "y", "class_weight": weights, "seed": seed}
            db.train(rule, "batch", model=name, epochs=2, warm_start_from=start, **options)
            start = name
        wanted, found = db.parameters("third"), db.parameters(estimator.model_)
        other = db.parameters("second")
    assert wanted.keys() == found.keys()
    assert all(np.array_equal(wanted[name], found[name]) for name in wanted)
    assert any(not np.array_equal(wanted[name], other[name]) for name in wanted)
    module._drop_unused(module._session)
    # the second call's model had no other owner
    versions = {row[0] for row in session.execute("SELECT name || '@' || version FROM dana.model")}
    assert versions == {first.model_, estimator.model_, "second@1", "third@1"}


def test_a_regressor_goes_on(pg_uri: str, session: psycopg.Connection[Any]) -> None:
    random = np.random.default_rng(5)
    x = random.normal(size=(200, 3))
    y = x @ [1, 2, 3] + random.normal(size=200)
    one = DanaRegressor("huber", dsn=pg_uri, epochs=1, model="going on").partial_fit(x[:100], y[:100])
    assert one.model_ == "going on@1"
    before = one.loss_
    one.partial_fit(x[:100], y[:100])
    assert one.model_ == "going on@2"
    assert one.loss_ < before
    with pytest.raises(ValueError, match="X has 2 features, but DanaRegressor is expecting 3"):
        one.partial_fit(x[:, :2], y)
    assert one.model_ == "going on@2"


def test_a_rule_of_the_name_that_knows_of_no_classes(pg_uri: str, session: psycopg.Connection[Any]) -> None:
    with Connection(psycopg.connect(pg_uri, autocommit=True)) as db:
        db.create_rule("logistic", (PAPER / "logistic.py").read_text(encoding="utf-8"))
        x = np.random.default_rng(1).standard_normal((60, 2))
        fitted = DanaClassifier("logistic", dsn=pg_uri).fit(x, x[:, 0] > 0)
        assert fitted.predict_proba(x).shape == (60, 2)
        assert fitted.score(x, x[:, 0] > 0) > 0.9
        db.create_rules("logistic")


def test_coefficients_in_scikit_learn_s_shapes(pg_uri: str, session: psycopg.Connection[Any]) -> None:
    random = np.random.default_rng(5)
    x = random.standard_normal((300, 3)).astype(np.float32)
    y = x @ [1.0, -2.0, 3.0] + 4
    regressor = DanaRegressor(dsn=pg_uri).fit(x, y)
    np.testing.assert_allclose(regressor.coef_, [1, -2, 3], atol=1e-4)
    assert regressor.intercept_ == pytest.approx(4, abs=1e-4)
    noisy = (y + 3 * random.standard_normal(300) > 4).astype(int)
    two = DanaClassifier(dsn=pg_uri).fit(x, noisy)
    assert (two.coef_.shape, two.intercept_.shape) == ((1, 3), (1,))
    exact = LogisticRegression(C=1e9, tol=1e-9).fit(x, noisy)
    np.testing.assert_allclose(two.coef_, exact.coef_, rtol=1e-3)
    assert DanaClassifier(dsn=pg_uri).fit(x, random.integers(0, 3, 300)).coef_.shape == (3, 3)
    again = two.set_params(rule="mlp", epochs=1).fit(x, noisy)
    assert not any(hasattr(again, name) for name in ("coef_", "intercept_"))


def test_many_classes(pg_uri: str, session: psycopg.Connection[Any]) -> None:
    x, y = load_wine(return_X_y=True)
    for rule in (None, "mlp"):
        pipeline = make_pipeline(StandardScaler(), DanaClassifier(rule, dsn=pg_uri)).fit(x, y + 5)
        assert pipeline.score(x, y + 5) > 0.95
        probabilities = pipeline.predict_proba(x)
        assert probabilities.shape == (len(x), 3)
        assert np.allclose(probabilities.sum(axis=1), 1, atol=1e-6)
        assert np.array_equal(probabilities.argmax(axis=1) + 5, pipeline.predict(x))
        assert roc_auc_score(y, probabilities, multi_class="ovr") > 0.99
    with pytest.raises(ValueError, match="logistic is for two classes, but the data contains 3"):
        DanaClassifier("logistic", dsn=pg_uri).fit(x, y)


def test_rows_that_come_class_by_class(pg_uri: str, session: psycopg.Connection[Any]) -> None:
    """A batch of one class after the other would unlearn the first; the order is the same for the same number."""
    x, y = load_wine(return_X_y=True)
    x = StandardScaler().fit_transform(x)
    assert DanaClassifier(dsn=pg_uri, random_state=0).fit(x, y).score(x, y) > 0.97
    first, same, other = (DanaClassifier("mlp", epochs=1, dsn=pg_uri, random_state=k).fit(x, y) for k in (0, 0, 1))
    with Connection(psycopg.connect(pg_uri)) as db:
        weights = [next(iter(db.parameters(each.model_).values())).tobytes() for each in (first, same, other)]
    assert weights[0] == weights[1] != weights[2]


TASKS = """
import dana
n = dana.dim()
k = dana.dim()
W = dana.model([k, n])
x = dana.input([n])
y = dana.output([k])
tasks = dana.algo(W, x, y)
p = dana.sigma(W * x, 2)
tasks.setModel(W - 0.2 * tasks.merge(dana.expand(p - y, 2) * x, 16, "+") / 16)
tasks.setPrediction(p)
tasks.setEpochs(30)
"""


def test_several_numbers(pg_uri: str, session: psycopg.Connection[Any]) -> None:
    with Connection(psycopg.connect(pg_uri, autocommit=True)) as db:
        db.create_rule("tasks", TASKS)
        x = np.random.default_rng(2).standard_normal((200, 3)).astype(np.float32)
        y = x @ np.array([[1, 2], [-1, 0], [0.5, 3]])
        fitted = DanaRegressor("tasks", dsn=pg_uri).fit(x, y)
        predicted = fitted.predict(x)
        assert predicted.shape == (200, 2)
        np.testing.assert_allclose(predicted, y, atol=0.01)
        assert fitted.score(x, y) > 0.999
        assert fitted.predict(x[:1]).shape == (1, 2)
        # the same from the client
        rows = db.predict(fitted.model_, {"x": x})
        assert list(rows.columns) == ["prediction_1", "prediction_2"]
        np.testing.assert_array_equal(rows.to_numpy(), predicted.astype(np.float32))
        with pytest.raises(UsageError, match="prediction, prediction_2"):
            db.predict(fitted.model_, {"x": x, "prediction_2": y[:, 0]}, columns=["prediction_2"])
        with pytest.raises(UsageError, match="does not predict classes"):
            db.classify(fitted.model_, {"x": x})
        missing = db.predict(fitted.model_, query="SELECT NULL::real[] AS x")
        assert missing.isna().to_numpy().tolist() == [[True, True]]
        found = db.evaluate(fitted.model_, {"x": x, "y": y})
        assert list(found)[-1] == "outputs"
        assert found["r2"] > 0.999
        assert found.per_output().shape == (2, 3)
        assert found.to_frame().shape[0] == 1
        ((titles, lines),) = found.tables()
        assert titles == ["output", "r2", "rmse", "mae"]
        assert [line[0] for line in lines] == [1, 2]
        with pytest.raises(UsageError, match="must be of several outputs"):
            Evaluation({"r2": 0.5}).per_output()
        classifier = DanaClassifier("tasks", dsn=pg_uri)
        vars(classifier).update({name: each for name, each in vars(fitted).items() if name.endswith("_")})
        with pytest.raises(ValueError, match="must predict classes, not 2 numbers"):
            classifier.predict(x)
    with pytest.raises(ValueError, match="y should be a 1d array"):
        DanaRegressor(dsn=pg_uri).fit(x, y)


def test_a_search_over_parameters(pg_uri: str, session: psycopg.Connection[Any]) -> None:
    random = np.random.default_rng(4)
    x = random.standard_normal((200, 3))
    y = x @ [1.0, -2.0, 0.5] + 3 + 0.01 * random.standard_normal(200)
    grid = [{"rule": ["linear"]}, {"rule": ["ridge"], "hyper": [None, {"penalty": 0.1}]}]
    search = GridSearchCV(DanaRegressor(dsn=pg_uri), grid, cv=2)
    assert search.fit(x, y).best_score_ > 0.99


def test_a_data_frame(pg_uri: str, session: psycopg.Connection[Any]) -> None:
    """Columns keep their types; a row with a missing value is left out of the training, and has no prediction."""
    random = np.random.default_rng(5)
    frame = pd.DataFrame({"y": random.standard_normal(150), "flag": random.random(150) < 0.5})
    frame["day"] = pd.Series([pd.Timestamp("2000-01-02").date(), pd.Timestamp("2000-01-01").date()] * 75)
    target = 2 * frame["y"] - frame["flag"]
    frame.loc[7, "y"] = np.nan
    fitted = DanaRegressor(dsn=pg_uri, epochs=200).fit(frame, target)
    predicted = fitted.predict(frame)
    assert list(np.flatnonzero(np.isnan(predicted))) == [7]
    assert np.allclose(np.delete(predicted, 7), np.delete(target.to_numpy(), 7), atol=0.1)
    other = DanaRegressor(dsn=pg_uri, epochs=200).fit(pl.DataFrame(frame.astype({"day": "str"})).drop("day"), target)
    assert other.n_features_in_ == 2
    classes = DanaClassifier(dsn=pg_uri).fit(frame, target > 0)
    with pytest.raises(ValueError, match="no prediction for row 7: a value that the model needs is missing"):
        classes.predict(frame)
    with pytest.raises(ValueError, match="feature names"):
        fitted.predict(frame.rename(columns={"y": "z"}))


def test_a_model_without_a_name_goes_with_its_estimator(pg_uri: str, session: psycopg.Connection[Any]) -> None:
    x, y = np.eye(4), np.arange(4.0)
    fitted = DanaRegressor(dsn=pg_uri, epochs=1).fit(x, y)
    name = fitted.model_.partition("@")[0]
    assert name in models(session)
    copied = pickle.loads(pickle.dumps(DanaRegressor(dsn=pg_uri, epochs=1).fit(x, y)))
    del fitted
    gc.collect()
    module._drop_unused(module._session)
    assert name not in models(session)
    # of a copy nobody knows how many there are
    assert copied.model_.partition("@")[0] in models(session)
    assert np.isfinite(copied.predict(x)).all()


def test_a_session_is_kept_and_replaced_when_it_is_lost(pg_uri: str, session: psycopg.Connection[Any]) -> None:
    x, y = np.eye(4), np.arange(4.0)
    fitted = DanaRegressor(dsn=pg_uri, epochs=1).fit(x, y)
    kept = module._session(pg_uri)
    assert fitted.predict(x).shape == (4,)
    assert module._session(pg_uri) is kept
    session.execute("SELECT pg_terminate_backend(%s)", (kept.session.info.backend_pid,))
    with pytest.raises(psycopg.OperationalError):
        fitted.predict(x)
    assert fitted.predict(x).shape == (4,)
    assert isinstance(module._session(pg_uri), Connection)
