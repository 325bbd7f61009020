"""Under any search_path what is called are operators of PostgreSQL and functions of the extension, nobody else's."""

from __future__ import annotations

from io import StringIO

import psycopg
import pytest
from rich.console import Console

from dana.cli.top import _screen
from dana.errors import UsageError
from dana.experiments import jobs
from dana.report.history import read_run
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
    weights(session, "'t', 'm', '{x}', 'y', test_size => 0.25, filter => 'id > 1'")
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
    "dana_search('fit', 't', '[{}]', 'rmse', test_size => 0.25, features => '{x}', label => 'y', keep => 'best')",
    "dana_search('fit', query => 'SELECT * FROM t', grid => '[{}]', features => '{x}', label => 'y', key => 'id')",
    "dana_train('fit', 't', 'n', '{x}', 'y', test_size => 0.2, warm_start_from => 'm')",
    "dana_train_groups('fit', 't', 'n', '{x}', 'id', group_by => '{y}')",
    "dana_explain('fit', 't', '{x}', 'y')",
)


WITHOUT_SEED = (
    "dana_train('fit', 't', 'n', '{x}', 'y', test_size => 0.2, seed => NULL)",
    "dana_cross_validate('fit', 't', 2, '{x}', 'y', seed => NULL)",
    "dana_search('fit', 't', '[{}]', 'rmse', 2, features => '{x}', label => 'y', seed => NULL)",
    "dana_search('fit', 't', '[{}]', 'rmse', test_size => 0.25, features => '{x}', label => 'y', seed => NULL)",
)

BACKGROUND = (
    """dana_start('dana_train', '{"rule": "fit", "source": "t", "model": "o", "features": ["x"], "label": "y"}')"""
)


def test_no_operator_of_somebody_else_is_called(hostile: Session) -> None:
    for call in CALLS:
        assert hostile.execute(f"SELECT * FROM {call}").rowcount > 0, call
    job = hostile.execute(f"SELECT {BACKGROUND}").fetchone()
    assert hostile.execute("SELECT dana_wait(%s)", job).fetchone() == ("done",)
    assert hostile.execute("SELECT dana_cancel(%s)", job).fetchone() == (False,)


def test_tools_of_the_command_line_call_no_operator_of_somebody_else(hostile: Session) -> None:
    hostile.execute(
        "CREATE FUNCTION test.part(bigint, smallint) RETURNS bigint LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE EXCEPTION 'hostile ntile'; END $$"
    )
    hostile.execute("CREATE AGGREGATE test.ntile(smallint) (SFUNC = test.part, STYPE = bigint)")
    shown = StringIO()
    Console(file=shown, width=200).print(_screen(hostile, 200, {}))
    assert "m@1" in shown.getvalue()
    run = hostile.execute("SELECT max(id) FROM dana.run").fetchone()
    assert run
    assert read_run(hostile, run[0]).model == "m"
    with pytest.raises(UsageError, match="there is no run"):
        read_run(hostile, run[0] + 1)
    assert jobs(hostile, 1) == []
    assert jobs(hostile, limit=5) == []


OVERLOADS = (
    "dana_predict(text, integer)",
    "dana_predict(text, real)",
    "dana_predict(text, t)",
    "dana_predict(text, record)",
    "dana.dana_number(real)",
    "dana.dana_number(integer)",
    "dana_holdout(tid, numeric, integer)",
    "dana_holdout(text, numeric, integer)",
    "dana_holdout(tid, float8, text)",
    "dana_fold(tid, integer, text)",
    "dana.dana_find_model(varchar)",
    "dana.dana_find_model(name)",
    "dana.dana_arguments(json)",
    "dana_group(text, text)",
    "dana_trial(json, json, boolean)",
    "dana_start(name, jsonb)",
)
"""Functions that would fit the types of our own calls as well as the extension's do, or better."""


def test_no_function_of_somebody_else_is_called(hostile: Session) -> None:
    """The extension's schema may be one in which others create: public, on PostgreSQL 14."""
    for function in OVERLOADS:
        hostile.execute(
            f"CREATE FUNCTION public.{function} RETURNS real LANGUAGE plpgsql AS $$ BEGIN "
            f"RAISE EXCEPTION 'hostile {function}'; END $$"
        )
    try:
        for call in (*CALLS, BACKGROUND):
            assert hostile.execute(f"SELECT * FROM {call}").rowcount > 0, call
        for call in WITHOUT_SEED:  # NULL would be text, too
            with pytest.raises(psycopg.errors.NullValueNotAllowed, match='argument "seed" must not be NULL'):
                hostile.execute(f"SELECT * FROM {call}")
    finally:
        for function in OVERLOADS:
            hostile.execute(f"DROP FUNCTION public.{function}")


def test_a_rule_takes_no_name_of_the_extension_s(session: Session) -> None:
    for name in ("dana_predict", "dana_number"):
        with pytest.raises(psycopg.errors.ReservedName, match="cannot be a rule's name"):
            session.execute("SELECT dana_create_udf(%s, %s)", (name, LOGISTIC))
