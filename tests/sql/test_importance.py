"""dana_importance(): permutation importance, as scikit-learn defines it."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import psycopg
import pytest
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.inspection import permutation_importance

from dana import rules
from dana.cli import main
from dana.cli.entry import OK
from dana.client.connection import Connection
from tests.sql.conftest import Session, new_role

ROWS = 3000


@pytest.fixture
def model(session: Session) -> Connection:
    """Models of a number, of two classes and of three, on columns of which one is of no use."""
    for name in ("linear", "logistic", "softmax", "linear_svm"):
        if not session.execute("SELECT FROM dana.rule WHERE name = %s", (name,)).fetchall():
            session.execute("SELECT dana_create_udf(%s, %s)", (name, rules.text(name)))
    session.execute(
        "CREATE TABLE test.t (id int PRIMARY KEY, a float8, b float8, city text, useless float8, y float8, c text)"
    )
    random = np.random.default_rng(3)
    a, b, useless = random.standard_normal((3, ROWS))
    city = random.choice(["Bern", "Rome", "Oslo"], ROWS)
    y = 3 * a + b + (city == "Rome") + 0.1 * random.standard_normal(ROWS)
    with session.cursor().copy("COPY test.t FROM STDIN") as copy:
        for row in zip(range(ROWS), a, b, city, useless, y, np.where(y > 0, "yes", "no"), strict=True):
            copy.write_row(row)
    return Connection(session)


FEATURES = ["a", "b", "city", "useless"]


def found(session: Session, arguments: str) -> list[tuple[Any, ...]]:
    return session.execute(f"SELECT * FROM dana_importance({arguments})".encode()).fetchall()


class Predicted(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """The model as an estimator of scikit-learn."""

    def __init__(self, coefficients: dict[str, float]) -> None:
        self.coefficients = coefficients

    def fit(self, x: object, y: object) -> Predicted:
        return self

    def predict(self, x: np.ndarray) -> np.ndarray:
        cities = [self.coefficients.get(f"city={one}", 0.0) for one in x[:, 2]]
        numbers = x[:, [0, 1, 3]].astype(float) @ [self.coefficients[name] for name in ("a", "b", "useless")]
        return np.asarray(numbers + cities + self.coefficients["(intercept)"], dtype=float)


def test_as_scikit_learn(model: Connection) -> None:
    model.train("linear", "test.t", features=FEATURES, label="y")
    rows = model.session.execute("SELECT a, b, city, useless, y FROM test.t ORDER BY id").fetchall()
    x, y = np.array([row[:4] for row in rows], dtype=object), np.array([row[4] for row in rows])
    coefficients = {one.term: one.coefficient for one in model.coefficients("linear")}
    theirs = permutation_importance(
        Predicted(coefficients), x, y, scoring="neg_root_mean_squared_error", n_repeats=30, random_state=0
    )
    ours = {one.feature: one for one in model.importance("linear", repeats=30)}
    assert list(ours) == [FEATURES[k] for k in np.argsort(-theirs.importances_mean)]
    for k, feature in enumerate(FEATURES):
        errors = np.hypot(ours[feature].deviation, theirs.importances_std[k]) / 30**0.5
        assert ours[feature].importance == pytest.approx(theirs.importances_mean[k], abs=4 * errors + 1e-6)
        assert ours[feature].deviation == pytest.approx(theirs.importances_std[k], rel=0.5, abs=1e-6)


def test_rows_decide_and_their_order_does_not(model: Connection) -> None:
    session = model.session
    session.execute("SELECT dana_train('logistic', 'test.t', features => %s, label => 'c')", (FEATURES,))
    first = found(session, "'logistic'")
    assert [row[0] for row in first][:2] == ["a", "b"]
    assert first[0][1] > 0.1
    assert first == found(session, "'logistic'")
    assert first == found(session, "'logistic', query => 'SELECT * FROM test.t ORDER BY y'")
    session.execute("CREATE TABLE test.other AS SELECT * FROM test.t ORDER BY b DESC")
    session.execute("SET client_min_messages = error")
    assert first == found(session, "'logistic', 'test.other'")
    assert first != found(session, "'logistic', seed => 2")
    assert first != found(session, "'logistic', filter => 'a < 1'")


@pytest.mark.filterwarnings("ignore:a combination of columns separates")
@pytest.mark.parametrize(
    ("rule", "metric"), [("logistic", "auc"), ("logistic", "log_loss"), ("linear_svm", None), ("softmax", None)]
)
def test_metrics_get_worse(model: Connection, rule: str, metric: str | None) -> None:
    label = "city" if rule == "softmax" else "c"
    model.train(rule, "test.t", features=["a", "b", "y"] if label == "city" else FEATURES, label=label)
    ours = model.importance(rule, metric=metric, repeats=2)
    assert ours[0].importance > 0.05
    assert abs(ours[-1].importance) < 0.05 or label == "city"


def test_a_sample_and_its_notice(model: Connection) -> None:
    model.train("linear", "test.t", features=FEATURES, label="y", test_size=0.5)
    model.session.execute("SET client_min_messages = notice")
    with pytest.warns(match="is measured on 100 rows, a pseudo-random sample"):
        few = model.importance("linear", rows=100)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # half of the rows are held out, and those alone are evaluated
        held = model.importance("linear", rows=ROWS * 6 // 10)
        assert model.importance("linear", part="test") == held
        assert model.importance("linear", part="all") != held
    assert few[0].importance == pytest.approx(held[0].importance, rel=0.3)


def test_arguments_and_errors(model: Connection) -> None:
    session = model.session
    model.train("linear", "test.t", features=FEATURES, label="y")
    for arguments, wrong in {
        "'linear', repeats => 0": "repeats",
        "'linear', rows => 0": "rows",
        "'linear', metric => 'beauty'": "there is no metric .beauty",
        "'linear', metric => 'auc'": "there is no auc on these rows",
        "'nothing'": "nothing",
        "NULL": "model",
        "'linear', filter => 'a > 100'": "there is no row",
        "'linear', query => 'SELECT a, y FROM test.t'": "column .b. of model",
    }.items():
        with pytest.raises(psycopg.Error, match=wrong):
            found(session, arguments)


def test_rights_are_the_caller_s(model: Connection) -> None:
    session = model.session
    model.train("linear", "test.t", features=FEATURES, label="y", filter="a < 9")
    owner = session.execute("SELECT current_user").fetchall()[0][0]
    with new_role(session, "importance_reader"):
        session.execute("SELECT dana_grant_model('linear', 'importance_reader')")
        session.execute("SET ROLE importance_reader")
        for arguments, wrong in {
            "": "its table would be used with your rights",
            ", 'test.t', filter => 'true'": "permission denied for table t",
            ", query => 'SELECT * FROM test.t'": "permission denied for table t",
        }.items():
            with pytest.raises(psycopg.errors.InsufficientPrivilege, match=wrong):
                found(session, f"'{owner}.linear'{arguments}")


def test_command(model: Connection, server: Any, capsys: pytest.CaptureFixture[str]) -> None:
    model.train("linear", "test.t", features=FEATURES, label="y")
    assert main(["importance", "linear", "--repeats", "2", "--dsn", server.dsn]) == OK
    titles, first, *others = capsys.readouterr().out.splitlines()
    assert titles.split() == ["feature", "importance", "±", "deviation"]
    assert first.split()[0] == "a"
    assert len(others) == 3


def test_the_sample_is_the_same_in_every_session(model: Connection) -> None:
    session = model.session
    ((same,),) = session.execute(
        "SELECT dana.dana_draw(ROW(1::money), 1) = dana.dana_draw(ROW(100::bigint), 1)"
    ).fetchall()
    assert same, "not by its text, which depends on lc_monetary"
    session.execute("ALTER TABLE test.t ADD at timestamptz")
    session.execute("UPDATE test.t SET at = 'epoch'::timestamptz + id * '1 hour'::interval")
    model.train("linear", "test.t", features=["a", "at"], label="y")
    expected = model.importance("linear", rows=50, repeats=1)
    settings = {"extra_float_digits": "-10", "DateStyle": "German", "TimeZone": "Asia/Tokyo"}
    for name, value in settings.items():
        session.execute("SELECT set_config(%s, %s, false)", (name, value))
    try:
        found = model.importance("linear", rows=50, repeats=1)
        assert [one.feature for one in found] == [one.feature for one in expected]
        values = ([one.importance for one in each] for each in (found, expected))
        np.testing.assert_allclose(*values, rtol=1e-4)
    finally:
        for name in settings:
            session.execute(f"RESET {name}".encode())
