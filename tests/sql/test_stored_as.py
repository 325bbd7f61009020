"""Numbers of bfloat16 in SQL: options, what is stored, predictions in the backend."""

from __future__ import annotations

import json
from collections.abc import Iterator

import numpy as np
import psycopg
import pytest
from numpy.typing import NDArray
from psycopg.types.json import Jsonb

from dana import rules
from hwgen.spec import numerics
from tests.sql.conftest import Session

errors = psycopg.errors
RULES = ("linear_svm", "logistic")


@pytest.fixture
def table(session: Session) -> Iterator[Session]:
    for name in RULES:
        session.execute("SELECT dana_create_udf(%s, %s)", (name, rules.text(name)))
    session.execute(
        "CREATE TABLE t AS SELECT (sin(i) + 0.3)::real AS a, (2 * cos(i * i))::real AS b,"
        " (sin(i) > cos(i * i))::int AS y FROM generate_series(1, 300) i"
    )
    yield session
    for name in RULES:
        session.execute("SELECT dana_drop_rule(%s)", (name,))


def weights(session: Session) -> NDArray[np.float32]:
    row = session.execute("""SELECT "values" FROM dana_parameters('m') WHERE parameter = 'w'""").fetchone()
    assert row is not None
    return np.float32(row[0])


def test_a_training(table: Session) -> None:
    table.execute("SELECT dana_train('linear_svm', 't', 'm', epochs => 3)")
    assert (numerics.bfloat16(weights(table)) != weights(table)).any()
    table.execute("SELECT dana_train('linear_svm', 't', 'm', epochs => 3, stored_as => 'bfloat16')")
    np.testing.assert_array_equal(numerics.bfloat16(weights(table)), weights(table))
    kept = "SELECT metadata ->> 'stored_as' FROM dana.model WHERE name = 'm' AND version = 2"
    assert table.execute(kept).fetchone() == ("bfloat16",)
    # 1.001 is stored as 1, and so is what is predicted of it
    near, same, other = (
        table.execute(f"SELECT dana_predict('m', {a}::real, 0.5::real)").fetchone() for a in (1.001, 1, 1.01)
    )
    assert near == same != other
    table.execute("SELECT dana_refresh('m')")
    np.testing.assert_array_equal(numerics.bfloat16(weights(table)), weights(table))


def test_what_is_explained(table: Session) -> None:
    """Of the numbers w, w and b have two bytes less each."""
    training = Jsonb({"stored_as": "bfloat16"})
    row = table.execute("SELECT dana_explain('linear_svm', 't', %s, format => 'json')", (training,)).fetchone()
    assert row is not None
    plan = json.loads(row[0])
    assert plan["stored_bytes"] == plan["model_bytes"] - 2 * 3
    text = "\n".join(line for (line,) in table.execute("SELECT dana_explain('linear_svm', 't', %s)", (training,)))
    assert f"models and states of {plan['stored_bytes']:,} bytes with numbers of bfloat16" in text


@pytest.mark.parametrize(
    ("rule", "numbers", "message"),
    [
        ("linear_svm", "float16", "stored_as must be one of binary32, bfloat16, not 'float16'"),
        ("logistic", "bfloat16", "rule 'logistic' takes steps of conjugate_gradients, which converge only if"),
    ],
)
def test_what_is_refused(table: Session, rule: str, numbers: str, message: str) -> None:
    with pytest.raises(errors.InvalidParameterValue, match=message):
        table.execute(f"SELECT dana_train('{rule}', 't', 'm', stored_as => '{numbers}')")
