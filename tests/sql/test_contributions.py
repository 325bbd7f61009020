"""dana_contributions(): coefficient * (value - mean), for each feature of each row."""

from __future__ import annotations

from typing import Any

import numpy as np
import psycopg
import pytest

from dana import rules
from dana.cli import main
from dana.cli.entry import OK
from dana.client.connection import Connection
from tests.sql.conftest import Session

FEATURES = ["a", "city", "b"]


@pytest.fixture
def db(session: Session) -> Connection:
    for name in ("linear", "logistic", "softmax", "kmeans", "poisson"):
        if not session.execute("SELECT FROM dana.rule WHERE name = %s", (name,)).fetchall():
            session.execute("SELECT dana_create_udf(%s, %s)", (name, rules.text(name)))
    session.execute("CREATE TABLE test.t (id int PRIMARY KEY, a float8, city text, b real, v real[], y float8, c text)")
    random = np.random.default_rng(3)
    with session.cursor().copy("COPY test.t FROM STDIN") as copy:
        for k in range(300):
            a, b, city = 50 + 9 * random.standard_normal(), 7 + random.random(), random.choice(["Bern", "Oslo", "Rome"])
            y = 0.2 * a + 3 * (city == "Oslo") - b + 0.3 * random.standard_normal()
            copy.write_row((k, a, city, b, f"{{{a},{b}}}", y, "low" if y < 3 else "mid" if y < 5 else "high"))
    return Connection(session)


def by_feature(session: Session, model: str, row: int, label: str | None = None) -> dict[str, float]:
    found = session.execute(
        "SELECT k.feature, k.contribution FROM test.t AS r, dana_contributions(%s, r) AS k "
        "WHERE r.id = %s AND k.label IS NOT DISTINCT FROM %s",
        (model, row, label),
    ).fetchall()
    assert [name for name, _ in found] == ["(base)", *FEATURES]
    return dict(found)


@pytest.mark.parametrize("rule", ["linear", "logistic"])
def test_coefficients_times_distances_from_means(db: Connection, rule: str) -> None:
    session, label = db.session, "y" if rule == "linear" else "y > 3"
    query = f"SELECT *, ({label}) AS target FROM test.t"
    db.train(rule, model="m", query=query, features=FEATURES, label="target")
    weights = {one.term: one.coefficient for one in db.coefficients("m")}
    rows = session.execute(
        "SELECT a, (city = 'Bern')::int, (city = 'Oslo')::int, (city = 'Rome')::int, b FROM test.t ORDER BY id"
    ).fetchall()
    columns = np.array(rows, dtype=float)
    names = ["a", "city=Bern", "city=Oslo", "city=Rome", "b"]
    each = np.array([weights[name] for name in names]) * (columns - columns.mean(axis=0))
    for row in (0, 7):
        found = by_feature(session, "m", row)
        expected = [each[row, 0], each[row, 1:4].sum(), each[row, 4]]
        assert [found[name] for name in FEATURES] == pytest.approx(expected, abs=1e-5)
        score = weights["(intercept)"] + columns[row] @ [weights[name] for name in names]
        assert sum(found.values()) == pytest.approx(score, abs=1e-5)
        predict = "SELECT dana_predict('m', r) FROM test.t AS r WHERE id = %s"
        ((predicted,),) = session.execute(predict, (row,)).fetchall()
        assert predicted == pytest.approx(score if rule == "linear" else 1 / (1 + np.exp(-score)), abs=1e-5)
    # features one by one, as well
    one_by_one = "SELECT k.contribution FROM test.t AS r, dana_contributions('m', a, city, b) AS k WHERE id = 7"
    assert [value for (value,) in session.execute(one_by_one)] == list(found.values())


def test_a_sum_for_each_class(db: Connection) -> None:
    db.train("softmax", "test.t", model="m", features=FEATURES, label="c")
    sums = {label: sum(by_feature(db.session, "m", 5, label).values()) for label in ("high", "low", "mid")}
    power = {label: np.exp(value) for label, value in sums.items()}
    ((found,),) = db.session.execute("SELECT dana_probabilities('m', r) FROM test.t AS r WHERE id = 5").fetchall()
    assert found == pytest.approx([one / sum(power.values()) for one in power.values()], abs=1e-5)
    frame: Any = db.contributions("m", "test.t", filter="id = 5")
    assert sum(frame[("mid", name)][0] for name in ("(base)", *FEATURES)) == pytest.approx(sums["mid"])


def test_without_standardize_and_with_null(db: Connection) -> None:
    db.train("linear", "test.t", model="m", features=FEATURES, label="y", standardize=False)
    weights = {one.term: one.coefficient for one in db.coefficients("m")}
    found = by_feature(db.session, "m", 3)
    assert found["(base)"] == pytest.approx(weights["(intercept)"])
    ((a,),) = db.session.execute("SELECT a FROM test.t WHERE id = 3").fetchall()
    assert found["a"] == pytest.approx(weights["a"] * a, rel=1e-6)
    assert db.session.execute("SELECT * FROM dana_contributions('m', NULL::float8, 'Bern', 7)").fetchall() == []
    frame: Any = db.contributions("m", query="SELECT id, NULL::float8 AS a, city, b FROM test.t", filter="id < 2")
    assert np.isnan(frame["a"]).all()


def test_an_array_contributes_as_a_whole(db: Connection) -> None:
    db.train("linear", "test.t", model="m", features=["v"], label="y")
    weights = [one.coefficient for one in db.coefficients("m")][1:]
    ((mean_a, mean_b, a, b),) = db.session.execute(
        "SELECT avg(a), avg(b), min(a) FILTER (WHERE id = 4), min(b) FILTER (WHERE id = 4) FROM test.t"
    ).fetchall()
    found = db.session.execute(
        "SELECT k.feature, k.contribution FROM test.t AS r, dana_contributions('m', r) AS k WHERE id = 4"
    ).fetchall()
    assert found[1] == ("v", pytest.approx(weights[0] * (a - mean_a) + weights[1] * (b - mean_b), abs=1e-5))


def test_a_column_far_from_zero(db: Connection) -> None:
    """A mean of a million deviations: the base has it, not the contribution."""
    query = "SELECT id, (1000000 + a)::float8 AS a, y FROM test.t"
    db.train("linear", model="m", query=query, features=["a"], label="y")
    ((mean, a, y),) = db.session.execute("SELECT avg(a), min(a) FILTER (WHERE id = 4), avg(y) FROM test.t").fetchall()
    weight = db.coefficients("m")[1].coefficient
    (_, base), (_, of_a) = db.session.execute(
        "SELECT k.feature, k.contribution FROM test.t AS r, dana_contributions('m', (1000000 + r.a)::float8) AS k "
        "WHERE r.id = 4"
    ).fetchall()
    assert base == pytest.approx(y, abs=0.1)
    assert of_a == pytest.approx(weight * (a - mean), abs=0.1)


def test_other_models_have_none(db: Connection) -> None:
    db.train("kmeans", "test.t", model="m", features=["a"], hyper={"k": 2})
    with pytest.raises(psycopg.Error, match="does not predict a weighted sum of its features") as caught:
        db.session.execute("SELECT * FROM dana_contributions('m', 1.0)")
    assert caught.value.sqlstate == "55000"
    with pytest.raises(psycopg.Error, match="does not predict a weighted sum"):
        db.contributions("m", "test.t")


def test_python_and_command(db: Connection, server: Any, capsys: pytest.CaptureFixture[str]) -> None:
    db.train("linear", "test.t", model="m", features=FEATURES, label="y")
    frame: Any = db.contributions("m", "test.t")
    assert list(frame.columns) == ["id", "(base)", *FEATURES]
    expected = by_feature(db.session, "m", 0)
    assert {name: frame[name][0] for name in expected} == expected
    assert main(["predict", "m", "--source", "test.t", "--contributions", "--dsn", server.dsn]) == OK
    titles, first, *others = capsys.readouterr().out.splitlines()
    assert titles == "id,(base),a,city,b"
    assert [float(value) for value in first.split(",")] == [0.0, *expected.values()]
    assert len(others) == 299
