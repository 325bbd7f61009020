"""Coefficients by the columns' names, in their own units: what the prediction is made of."""

from __future__ import annotations

import re

import numpy as np
import psycopg
import pytest

from dana import rules
from tests.sql.conftest import Session

ROWS = "SELECT age, income, y, c FROM t"


@pytest.fixture
def table(session: Session) -> Session:
    """A table of unlike scales; y depends on it."""
    session.execute(
        "CREATE TABLE t AS SELECT (20 + i % 60)::integer AS age, 1e5 * (1 + sin(i)) AS income,"
        " 3 * (20 + i % 60) - 2e-4 * 1e5 * (1 + sin(i)) + 7 + cos(i * i) AS y, (i % 3)::integer AS c"
        " FROM generate_series(1, 900) i"
    )
    for name in ("linear", "logistic", "softmax", "mlp"):
        session.execute("SELECT dana_create_udf(%s, %s)", (name, rules.text(name)))
    return session


def terms(session: Session, model: str) -> dict[tuple[str | None, str], float]:
    return {row[:2]: row[2] for row in session.execute("SELECT * FROM dana_coefficients(%s)", (model,)).fetchall()}


@pytest.mark.parametrize("machine", ["sim", "interp"])
def test_of_numbers(table: Session, machine: str) -> None:
    table.execute("SELECT dana_train('linear', 't', 'm', '{age,income}', 'y', machine => %s)", (machine,))
    found = terms(table, "m")
    assert list(found) == [(None, "(intercept)"), (None, "age"), (None, "income")]
    assert found[None, "age"] == pytest.approx(3, rel=0.01)
    assert found[None, "income"] == pytest.approx(-2e-4, rel=0.01)
    rows = table.execute("SELECT age, income, dana_predict('m', age, income) FROM t").fetchall()
    sums = [found[None, "(intercept)"] + found[None, "age"] * a + found[None, "income"] * i for a, i, _ in rows]
    np.testing.assert_allclose(sums, [row[2] for row in rows], rtol=1e-4)


def test_the_reference_of_categories_is_no_dependent_column(table: Session) -> None:
    """Of a text with NULLs, and of hashed values; a year that all dates share differs by no digit that is lost."""
    table.execute(
        "CREATE TABLE texts AS SELECT CASE WHEN i % 5 > 0 THEN 'c' || i % 5 END AS c, 'k' || i % 40 AS k,"
        " date '2024-01-01' + i % 300 AS day, sin(i) + i % 5 AS y FROM generate_series(1, 900) i"
    )
    heard: list[str] = []
    table.add_notice_handler(lambda said: heard.append(f"{said.message_primary}: {said.message_hint}"))
    table.execute("SET client_min_messages = notice")
    hashed = '{"k": {"encode": "hash", "categories": 8}, "day": {"encode": ["year", "month"]}}'
    for source in ("'texts'", "query => 'SELECT * FROM texts'"):
        table.execute(
            f"SELECT dana_train('linear', {source}, label => 'y', nulls => 'indicator', preprocess => %s)", (hashed,)
        )
    assert not [one for one in heard if "depend" in one and not one.startswith("column day.year depends")]
    assert [one.split(": ")[1] for one in heard if "day.year" in one and "single value" in one] == ["None"] * 2


@pytest.mark.parametrize("rule", ["linear", "logistic"])
def test_standard_errors(table: Session, rule: str) -> None:
    """As statsmodels computes them; interval and p-value follow from them."""
    import statsmodels.api as sm

    table.execute("ALTER TABLE t ADD twice integer; UPDATE t SET twice = 2 * age")
    table.execute("ALTER TABLE t ADD z boolean; UPDATE t SET z = hashint4(age + c) % 3 = 0")
    label = "y" if rule == "linear" else "z"
    heard: list[str] = []
    table.add_notice_handler(lambda said: heard.append(str(said.message_primary)))
    table.execute("SET client_min_messages = notice; SET dana.notices = 'run'")
    features = "{age,twice,income}"
    table.execute("SELECT dana_train(%s, 't', 'm', %s, label => %s)", (rule, features, label))
    assert any("column twice depends on the columns before: no coefficient of its own" in one for one in heard)
    assert re.search(r" \d+ epochs of conjugate_gradients \(converged\), loss ", heard[-1])
    names = "standard_error, statistic, p_value, lower, upper"
    found = table.execute(f"SELECT term, coefficient, {names} FROM dana_coefficients('m')").fetchall()
    rows = np.array(table.execute("SELECT age, income::real, y::real, z::integer FROM t").fetchall(), float)
    design = sm.add_constant(rows[:, :2])
    fitted = sm.OLS(rows[:, 2], design).fit() if rule == "linear" else sm.Logit(rows[:, 3], design).fit(disp=0)
    assert found[2] == ("twice", 0, None, None, None, None, None)
    known = np.array([one[1:] for one in (*found[:2], found[3])], float)
    assert np.abs((known[:, 0] - fitted.params) / fitted.bse).max() < 1e-3
    np.testing.assert_allclose(known[:, 1], fitted.bse, rtol=1e-4)
    np.testing.assert_allclose(known[:, 2], known[:, 0] / known[:, 1])
    np.testing.assert_allclose(known[:, 3], fitted.pvalues, rtol=0.01, atol=1e-12)
    np.testing.assert_allclose(known[:, 4:], fitted.conf_int(), rtol=1e-3, atol=1e-9)
    summary = table.execute("SELECT metadata -> 'summary' FROM dana.model WHERE name = 'm'").fetchall()[0][0]
    assert summary["aic"] == pytest.approx(fitted.aic, rel=1e-6)
    assert summary["log_likelihood"] == pytest.approx(fitted.llf, rel=1e-6)


@pytest.mark.parametrize(("offset", "kind"), [(0, "float8"), (1000, "float8"), (1000, "real")])
def test_a_small_difference_of_prices(table: Session, offset: int, kind: str) -> None:
    """Coefficients, contributions and predictions are those of one model, also where binary32 hides the difference."""
    table.execute(
        f"CREATE TABLE prices AS SELECT o::{kind} AS opened, (o + d * 1e-5::float8)::{kind} AS closed, "
        "d + sin(i) / 10 AS y FROM (SELECT i, %s + sin(i * 1.7::float8) AS o, sin(i * i * 0.7::float8) AS d "
        "FROM generate_series(1, 400) i)",
        (offset,),
    )
    heard: list[str] = []
    table.add_notice_handler(lambda said: heard.append(str(said.message_primary)))
    table.execute("SET client_min_messages = warning")
    table.execute("SELECT dana_train('linear', 'prices', 'm', label => 'y')")
    hidden = "columns opened and closed differ by little more than their rounding to binary32"
    assert [one.split(":")[0] for one in heard][:1] == ([hidden] if kind == "real" else [])
    terms = dict(table.execute("SELECT term, coefficient FROM dana_coefficients('m')").fetchall())
    if kind == "float8":
        assert terms["closed"] * 1e-5 == pytest.approx(1, rel=0.01)
    ((most,),) = table.execute(
        "SELECT max(abs(dana_predict('m', opened, closed) - (SELECT sum(contribution) "
        "FROM dana_contributions('m', opened, closed)))) FROM prices"
    ).fetchall()
    assert most < 0.1


def test_separation_is_a_warning(table: Session) -> None:
    table.execute("SET client_min_messages = warning")
    heard: list[str] = []
    table.add_notice_handler(lambda said: heard.append(str(said.message_primary)))
    table.execute("CREATE TABLE s AS SELECT age, income, age > 50 AS old FROM t")
    table.execute("SELECT dana_train('logistic', 's', 'm', label => 'old')")
    assert heard == [
        "column age separates rows by their label: the better the model fits, the larger its coefficients, without end"
    ]
    assert table.execute("SELECT metadata -> 'summary' ->> 'separated' FROM dana.model").fetchall() == [("true",)]
    assert table.execute("SELECT DISTINCT standard_error FROM dana_coefficients('m')").fetchall() == [(None,)]


def test_of_arrays_and_of_classes(table: Session) -> None:
    table.execute("CREATE TABLE a AS SELECT ARRAY[age, income]::real[] AS x, c FROM t")
    table.execute("SELECT dana_train('softmax', 'a', 'm', '{x}', 'c', hyper => '{\"k\": 3}', epochs => 3)")
    found = terms(table, "m")
    assert list(found) == [(str(k), term) for k in range(3) for term in ("(intercept)", "x[1]", "x[2]")]
    table.execute("SELECT dana_train('softmax', 't', 'n', '{age,income}', 'c', classes => '{0,1,2}', epochs => 3)")
    assert {name for name, _ in terms(table, "n")} == {"0", "1", "2"}


def test_where_there_are_none(table: Session) -> None:
    table.execute("SELECT dana_train('mlp', 't', 'm', '{age,income}', 'c', hyper => '{\"k\": 3}', epochs => 1)")
    assert terms(table, "m") == {}
    with pytest.raises(psycopg.errors.UndefinedObject):
        terms(table, "nobody")
