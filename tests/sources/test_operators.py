"""Functions that run under the caller's search_path, for the caller's texts, call PostgreSQL's operators themselves."""

from __future__ import annotations

import pytest

from tests.sources.conftest import Session, weights
from tests.sources.test_evaluate import LOGISTIC

TYPES = ["oid", "regclass", "regrole", "integer", "bigint", "float8", "numeric", "text", "jsonb", "text[]"]
OPERATORS = ["=", "<>", "<", ">", "<=", ">=", "+", "-", "*", "/", "||", "->", "->>", "#>>", "?"]

HOSTILE = """
DO $do$
DECLARE
    l text;
    r text;
    o text;
BEGIN
    FOREACH l IN ARRAY {types} LOOP
        FOREACH r IN ARRAY {types} LOOP
            EXECUTE format($f$CREATE FUNCTION test.hostile(%1$s, %2$s) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN
                RAISE EXCEPTION 'hostile operator for %1$s, %2$s'; END $$$f$, l, r);
            FOREACH o IN ARRAY {operators} LOOP
                IF to_regoperator(format('pg_catalog.%s(%s, %s)', o, l, r)) IS NULL THEN
                    EXECUTE format('CREATE OPERATOR test.%s', o)
                        || format(' (FUNCTION = test.hostile, LEFTARG = %s, RIGHTARG = %s)', l, r);
                END IF;
            END LOOP;
        END LOOP;
    END LOOP;
END
$do$
"""
"""An operator of each name for each pair of types for which PostgreSQL has none of its own, and converts."""


def array(texts: list[str]) -> str:
    return f"ARRAY[{', '.join(repr(one) for one in texts)}]"


@pytest.fixture
def hostile(session: Session) -> Session:
    rule = LOGISTIC.replace("/ 32", "* lr").replace("n = ", "lr = dana.meta(0.03)\nn = ")
    session.execute("SELECT dana_create_udf('fit', %s)", (rule,))
    session.execute(
        "CREATE TABLE t AS SELECT i AS id, (i % 7)::real AS x, (i % 2)::real AS y FROM generate_series(1, 60) i"
    )
    session.execute("ALTER TABLE t ADD PRIMARY KEY (id)")
    weights(session, "'t', 'm', '{x}', 'y', test => 0.25, filter => 'id > 1'")
    session.execute(HOSTILE.format(types=array(TYPES), operators=array(OPERATORS)))
    return session


CALLS = (
    "dana_predict_table('m', 't')",
    "dana_predict_table('m', 't', filter => 'x IS NOT NULL')",
    "dana_parameters('m')",
    "dana_parameters('m', 1)",
    "dana_export_model('m')",
    "dana_evaluate('m')",
    "dana_evaluate('m', 't', part => 'train')",
    "dana_evaluate('m', query => 'SELECT * FROM t', filter => 'true', part => 'all', threshold => 0.5)",
    "dana_cross_validate('fit', 't', 2, '{x}', 'y')",
    "dana_cross_validate('fit', query => 'SELECT * FROM t', folds => 2, features => '{x}', label => 'y', key => 'id')",
    "dana_cross_validate('fit', 't', 2, '{x}', 'y', metrics => '{rmse,accuracy}', threshold => 0.4)",
    "dana_search('fit', 't', '{\"lr\": [0.01, 0.02]}', 'accuracy', 2, features => '{x}', label => 'y')",
    "dana_search('fit', 't', '[{}]', 'rmse', test => 0.25, features => '{x}', label => 'y', keep => 'best')",
    "dana_search('fit', query => 'SELECT * FROM t', grid => '[{}]', features => '{x}', label => 'y', key => 'id')",
    "dana_train('fit', 't', 'n', '{x}', 'y', test => 0.2, warm => 'm')",
    "dana_train_groups('fit', 't', 'n', '{x}', 'id', group_by => '{y}')",
    "dana_explain('fit', 't', '{x}', 'y')",
)


def test_no_operator_of_somebody_else_is_called(hostile: Session) -> None:
    for call in CALLS:
        assert hostile.execute(f"SELECT * FROM {call}").rowcount > 0, call
    job = hostile.execute("SELECT dana_train_start('fit', 't', 'o', '{x}', 'y')").fetchone()
    assert hostile.execute("SELECT dana_train_wait(%s)", job).fetchone() == ("done",)
    assert hostile.execute("SELECT dana_train_cancel(%s)", job).fetchone() == (False,)
