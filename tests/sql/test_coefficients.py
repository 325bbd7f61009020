"""Coefficients by the columns' names, in their own units: what the prediction is made of."""

from __future__ import annotations

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
