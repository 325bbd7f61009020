"""A role with SELECT on the columns in use can call what reads rows; others get an error that names the columns."""

from __future__ import annotations

import psycopg
import pytest

from dana import rules
from tests.sql.conftest import Session, acting

errors = psycopg.errors

GROUPS = "SELECT count(*) FROM dana_train_groups('linear', 't', '{c}', '{\"features\": [\"a\"], \"label\": \"y\"%s}')"
QUERY = "query => 'SELECT id, a, y FROM t'"


@pytest.fixture
def session(owners: Session) -> Session:
    owners.execute("SELECT dana_create_udf('linear', %s)", (rules.text("linear"),))
    owners.execute(
        "CREATE TABLE t AS SELECT i AS id, sin(i)::real AS a, sin(i) * 2 AS y, 'c' || i % 2 AS c, 'x' AS secret,"
        " 0 AS more FROM generate_series(1, 300) AS i; ALTER TABLE t ADD PRIMARY KEY (id);"
        " GRANT SELECT (id, a, y, c) ON t TO ana; SELECT dana_grant_rule('linear', 'ana')"
    )
    return owners


def test_the_columns_in_use_suffice(session: Session) -> None:
    with acting(session, "ana"):
        for split in ("", ', "test_size": 0.2', ', "test_size": 0.2, "test_by": "a"', ', "test_after": {"id": 200}'):
            assert session.execute((GROUPS % split).encode()).fetchone() == (2,)
        session.execute(f"SELECT dana_train('linear', model => 'm', {QUERY}, test_size => 0.2)")
        for call in (
            "dana_evaluate('linear[c0]', part => 'test')",
            "dana_evaluate('m')",
            "dana_evaluate('m', 't')",
            "dana_predict_table('m', 't')",
            "dana_importance('m')",
            "dana_importance('m', 't', repeats => 1)",
            "dana_profile('m', 't')",
            "dana_drift('m', 't')",
            """dana_cross_validate('linear', folds => 2, training => '{"query": "SELECT a, y FROM t"}')""",
            """dana_search('linear', NULL, '[{}]', test_size => 0.2, training => '{"query": "SELECT a, y FROM t"}')""",
        ):
            assert session.execute(f"SELECT count(*) FROM {call}".encode()).fetchall()[0][0] > 0, call


@pytest.mark.parametrize(
    "call",
    [
        "dana_train('linear', 't')",
        "dana_train('linear', 't', features => '{a}', label => 'y')",
        "dana_train_groups('linear', 't', '{c}', '{\"label\": \"y\"}')",
        "dana_cross_validate('linear', 't')",
        "dana_search('linear', 't', '[{}]', test_size => 0.2)",
    ],
)
def test_an_error_names_the_columns(session: Session, call: str) -> None:
    with acting(session, "ana"), pytest.raises(errors.InsufficientPrivilege) as raised:
        session.execute(f"SELECT {call}".encode())
    assert raised.value.diag.message_primary == "permission denied for table test.t"
    assert "secret, more." in str(raised.value.diag.message_detail)
