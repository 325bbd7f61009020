"""Under any search_path, operators, types and tables are those of PostgreSQL, and functions those of the extension."""

from __future__ import annotations

import re
from io import StringIO
from pathlib import Path

import psycopg
import pytest
from rich.console import Console

from dana.cli.top import _screen
from dana.client.connection import Connection
from dana.client.models import read_models
from dana.errors import UsageError
from dana.report.history import read_run
from dana.report.scores import Scores, read_scores
from dana.report.stored import read_model
from dana.session.calls import jobs
from dana.ui.app import READING, Asked
from dana.ui.database import Heard, cancel, settings
from tests.sql.conftest import Session, acting, weights
from tests.sql.test_evaluate import LOGISTIC
from tests.sql.test_stored_text import EVIL, caught
from tests.sql.test_surface import MEMBERS

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
        "CREATE TYPE parity AS ENUM ('0', '1'); CREATE TABLE t AS SELECT i AS id, (i % 7)::real AS x,"
        " (i % 2)::real AS y, (i % 2)::text::parity AS z FROM generate_series(1, 60) i"
    )
    session.execute("CREATE TABLE keyless AS TABLE t; ALTER TABLE t ADD PRIMARY KEY (id)")
    for _ in range(2):
        weights(session, "'t', 'm', '{x}', 'y', test_size => 0.25, filter => 'id > 1'")
    session.execute(HOSTILE.format(types=array(TYPES), operators=array(OPERATORS)))
    session.execute(  # fits better than PostgreSQL's own, which takes "any"
        "CREATE FUNCTION test.format(text, text) RETURNS text LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE EXCEPTION 'hostile format'; END $$"
    )
    return session


XY = '"features": ["x"], "label": "y"'
QUERY = '"query": "SELECT * FROM t"'
CALLS = (
    "dana_predict_table('m', 't')",
    "dana_predict_table('m', 't', filter => 'x IS NOT NULL')",
    "dana_predict_table('m', 'keyless')",
    "dana_parameters('m')",
    "dana_parameters('m', 1)",
    "dana_export_model('m')",
    "dana_evaluate('m')",
    "dana_evaluate('m', 't', part => 'train')",
    "dana_evaluate('m', query => 'SELECT * FROM t', filter => 'true', part => 'all', threshold => 0.5)",
    f"dana_cross_validate('fit', 't', 2, '{{{XY}}}')",
    f"dana_cross_validate('fit', 't', 2, '{{{XY}, \"classes\": [\"0\", \"1\"]}}')",
    f"dana_cross_validate('fit', folds => 2, training => '{{{XY}, {QUERY}, \"test_by\": \"id\"}}')",
    f"dana_cross_validate('fit', 't', 2, '{{{XY}}}', metrics => '{{rmse,accuracy}}', threshold => 0.4, seed => 3)",
    f"dana_search('fit', 't', '{{\"lr\": [0.01, 0.02]}}', 'accuracy', 2, training => '{{{XY}}}', seed => 3)",
    f"dana_search('fit', 't', '[{{}}]', 'rmse', test_size => 0.25, training => '{{{XY}}}', keep => 'best')",
    f"dana_search('fit', grid => '[{{}}]', training => '{{{XY}, {QUERY}}}')",
    "dana_train('fit', 't', 'n', '{x}', 'y', test_after => '{\"id\": 9}')",
    "dana_train('fit', query => 'SELECT * FROM t', model => 'n', features => '{x}', label => 'y', test_size => 0.2)",
    "dana_evaluate('n')",
    "dana_test_rows('n')",
    "dana_train('fit', 't', 'n', '{x}', 'y', test_size => 0.2, warm_start_from => 'm')",
    'dana_train_groups(\'fit\', \'t\', \'{y,z}\', \'{"model": "n", "features": ["x"], "label": "id"}\')',
    f"dana_explain('fit', 't', '{{{XY}}}')",
    f"dana.fit('t', '{{{XY}, \"test_size\": 0.2}}')",
    "dana_rollback_model('m')",
)

BACKGROUND = (
    """dana_start('dana_train', '{"rule": "fit", "source": "t", "model": "o", "features": ["x"], "label": "y"}')"""
)


START = f"""dana_start('dana_train', '{{"rule": "fit", "source": "t", "model": "o", {XY}}}')"""


def test_no_operator_of_somebody_else_is_called(hostile: Session) -> None:
    for call in CALLS:
        assert hostile.execute(f"SELECT * FROM {call}").rowcount > 0, call
    with pytest.raises(psycopg.errors.DataException, match=r"^fold 1 of 2: "):
        hostile.execute(f"SELECT dana_cross_validate('fit', 't', 2, '{{{XY}, \"filter\": \"false\"}}')")
    job = hostile.execute(f"SELECT {BACKGROUND}").fetchone()
    assert hostile.execute("SELECT dana_wait(%s)", job).fetchone() == ("done",)
    assert hostile.execute("SELECT dana_cancel(%s)", job).fetchone() == (False,)


TEMPORARY = """
CREATE FUNCTION test.hostile_type(value anyelement) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN
    RAISE EXCEPTION 'hostile type %', pg_catalog.pg_typeof(value); END $$;
CREATE FUNCTION test.hostile_relation() RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN
    RAISE EXCEPTION 'hostile relation'; END $$;
DO $do$
DECLARE
    name name;
BEGIN
    FOR name IN SELECT t.typname FROM pg_catalog.pg_type AS t WHERE t.typnamespace = 'pg_catalog'::regnamespace
            AND t.typtype IN ('b', 'e', 'r', 'm') AND t.typname NOT LIKE '\\_%' LOOP
        EXECUTE pg_catalog.format(
            'CREATE DOMAIN pg_temp.%1$I AS pg_catalog.%1$I CHECK (test.hostile_type(VALUE))', name);
    END LOOP;
    FOR name IN SELECT c.relname FROM pg_catalog.pg_class AS c
            WHERE c.relnamespace = 'pg_catalog'::pg_catalog.regnamespace AND c.relkind IN ('r', 'v') LOOP
        EXECUTE pg_catalog.format(
            'CREATE VIEW pg_temp.%1$I AS SELECT 1 AS oid FROM pg_catalog.pg_class WHERE test.hostile_relation()', name);
    END LOOP;
END
$do$
"""
"""A domain for each type of PostgreSQL, and a view for each of its tables, that a name without a schema would mean:
pg_temp comes before pg_catalog, for types and for relations, whatever search_path says of the others."""


def test_no_type_and_no_table_of_somebody_else_is_used(hostile: Session) -> None:
    hostile.execute(TEMPORARY)
    with pytest.raises(psycopg.errors.RaiseException, match="hostile type"):
        hostile.execute("SELECT 'x'::text")
    for call in CALLS:
        assert hostile.execute(f"SELECT * FROM {call}").rowcount > 0, call
    for call in ("dana_profile('m', 't')", "dana_drift('m', 't')", "dana_coefficients('m')", "dana_prune(keep => 9)"):
        hostile.execute(f"SELECT * FROM {call}")
    (job,) = hostile.execute(f"SELECT {BACKGROUND}").fetchone() or (0,)
    assert hostile.execute(f"SELECT dana_wait({job})").fetchone() == ("done",)
    for view in ("rule", "model", "run", "epoch", "progress", "curve", "job"):
        hostile.execute(f"SELECT * FROM dana.{view}")


@pytest.mark.parametrize("type", ["text", "float8", "jsonb", "name", "regclass"])
def test_no_type_of_a_pooled_session_runs_as_another_role(owners: Session, type: str) -> None:
    """Neither in a function with its owner's rights, nor for the next role that the session is lent to."""
    owners.execute("SELECT set_config('test.caught', '', false)")
    calls = (
        "dana_predict_table('m', 't1')",
        "dana_cross_validate('sums', 't', 2, '{\"epochs\": 1}')",
        "dana_search('sums', 't', '[{}]', folds => 2, training => '{\"epochs\": 1}')",
    )
    owners.execute("CREATE TABLE t AS SELECT i::real AS x, (i % 3)::real AS y FROM generate_series(1, 20) AS i")
    owners.execute("GRANT SELECT ON t TO ana, bob")
    with acting(owners, "ana"):
        owners.execute("SELECT dana_train('sums', 't1', 'm', epochs => 1)")
        for number, call in enumerate(calls):
            owners.execute(
                f"CREATE FUNCTION served_{number}() RETURNS bigint LANGUAGE sql SECURITY DEFINER"
                f" SET search_path = test, public, pg_temp AS $$ SELECT count(*) FROM {call} $$"
            )
    with acting(owners, "bob"):
        owners.execute(EVIL)
        owners.execute("SELECT dana_train('sums', 't1', 'm', epochs => 1)")
        owners.execute(
            "CREATE FUNCTION spy(anyelement) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN"
            " PERFORM test.evil(1); RETURN true; END $$"
        )
        owners.execute(f"CREATE DOMAIN pg_temp.{type} AS pg_catalog.{type} CHECK (test.spy(VALUE))")
        for number, call in enumerate(calls):
            assert owners.execute(f"SELECT * FROM {call}").rowcount > 0
            assert owners.execute(f"SELECT * FROM served_{number}()").rowcount > 0
    with acting(owners, "ana"):
        for call in calls:
            assert owners.execute(f"SELECT * FROM {call}").rowcount > 0
    assert caught(owners) == set()


WITHOUT_SCHEMA = r"""
(?: :: | \bCAST\ \( | ^\t(?! END | RETURN ) \w+\ (?= [\w.\[\]"]+ (?: ; | \ := ) ) )  # also a variable of PL/pgSQL
(?! pg_catalog\. | dana\. | record\b | (?: boolean | smallint | integer | bigint | real | numeric | interval )\b )
[\w"]+
"""
"""A type that a name stands for, but for those that the grammar has a word for: these are PostgreSQL's always."""


def test_no_name_without_a_schema_is_looked_for_where_the_caller_says(session: Session) -> None:
    """Bodies that are parsed when they are called, under no search_path of their own; defaults were parsed before."""
    bodies = session.execute(
        f"""
        SELECT p.proname, p.prosrc FROM ({MEMBERS}) AS m JOIN pg_proc AS p USING (oid)
        JOIN pg_language AS l ON l.oid = p.prolang
        WHERE l.lanname IN ('sql', 'plpgsql') AND p.prosqlbody IS NULL
            AND NOT coalesce(array_to_string(p.proconfig, ' '), '') LIKE '%search_path=%'
        UNION ALL SELECT 'dana.sums', prosrc FROM pg_proc WHERE oid = 'dana.sums'::regproc
        """
    ).fetchall()
    assert len(bodies) >= 5
    for name, body in bodies:
        assert re.findall(WITHOUT_SCHEMA, body, re.VERBOSE | re.MULTILINE) == [], name
    sources = Path(__file__).parents[2] / "pg_extension" / "src"
    for file in sorted(sources.glob("*.c")):
        text = file.read_text(encoding="utf-8")
        text = re.sub(r"DANA_STATEMENT\(.*?;", "", text, flags=re.DOTALL)  # these run under a search_path of their own
        strings = "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', text))
        assert re.findall(WITHOUT_SCHEMA, strings, re.VERBOSE) == [], file.name


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
    read = read_run(hostile, run[0])
    assert read.model == "m"
    scores = read_scores(hostile, read, read_model(hostile, read))
    assert isinstance(scores, Scores), scores
    assert scores.ranking is not None
    with pytest.raises(UsageError, match="does not exist"):
        read_run(hostile, run[0] + 1)
    assert jobs(hostile, 1) == []
    assert jobs(hostile, limit=5) == []
    assert [model.version for model in read_models(hostile, "m", "accuracy")] == [2, 1]
    db = Connection(hostile)
    assert list(db.predict("m", "t").columns) == ["id", "prediction"]
    with pytest.raises(UsageError, match=r"Perhaps you meant t\."):
        db.predict("m", "tt")
    assert db.evaluate("m")["rows"] > 0
    fields = {"id": [str(run[0])], "name": ["m"], "version": ["1"], "source": ["t"], "of": ["m@1", "m@2"]}
    for answer in READING.values():  # the pages of dana ui
        answer(Asked(fields=fields, db=db, heard=Heard()))
    assert settings(hostile)
    assert not cancel(hostile, 1)


OVERLOADS = (
    "dana_predict(text, integer)",
    "dana_predict(text, real)",
    "dana_predict(text, t)",
    "dana_predict(text, record)",
    "dana_holdout(tid, numeric, integer)",
    "dana_holdout(text, numeric, integer)",
    "dana_holdout(tid, float8, text)",
    "dana_fold(tid, integer, text)",
    "dana_fold(text, integer, text)",
    "dana_group(text, text)",
    "dana_train(text, regclass)",
    "dana_train(text, regclass, text)",
    "dana_evaluate(text, regclass, text)",
    "dana_regression_metrics(numeric, float8)",
    "dana_regression_metrics(float8, real)",
    "dana_classification_metrics(float8, real)",
    "dana_classification_metrics(float8, float8, numeric)",
    "dana_cross_validate(text, regclass)",
    "dana_search(text, regclass)",
    # the internal ones, which are in schema dana, called without it
    "dana_number(real)",
    "dana_text(integer)",
    "dana_text(parity)",
    "dana_fixed_text(integer)",
    "dana_class(real, text[])",
    "dana_find_model(text)",
    "dana_arguments(jsonb)",
    "dana_split(regclass, jsonb, text, integer, float8, integer)",
    "dana_trial(text, regclass, jsonb, text, integer, float8)",
    "dana_grid(jsonb)",
    "dana_train_rule(text, regclass, jsonb)",
)
"""Functions that would fit the types of our own calls as well as the extension's do, or better."""


def test_no_function_of_somebody_else_is_called(hostile: Session) -> None:
    """The extension's schema may be one in which others create: public, on PostgreSQL 14.

    A view calls the function that its statement meant when it was made; what that one calls is what is tested.
    """
    for number, call in enumerate((*CALLS, START)):
        hostile.execute(f"CREATE VIEW called_{number} AS SELECT * FROM {call}")
    for function in OVERLOADS:
        hostile.execute(
            f"CREATE FUNCTION public.{function} RETURNS real LANGUAGE plpgsql AS $$ BEGIN "
            f"RAISE EXCEPTION 'hostile {function}'; END $$"
        )
    try:
        for number, call in enumerate(CALLS):
            assert hostile.execute(f"SELECT * FROM called_{number}").rowcount > 0, call
        job = hostile.execute(f"SELECT * FROM called_{len(CALLS)}").fetchone()
        assert hostile.execute("SELECT dana_wait(%s)", job).fetchone() == ("done",)
    finally:
        for function in OVERLOADS:
            hostile.execute(f"DROP FUNCTION public.{function}")


def test_a_rule_takes_no_name_of_the_extension_s(session: Session) -> None:
    for name in ("dana_predict", "dana_number"):
        with pytest.raises(psycopg.errors.ReservedName, match="cannot be a rule's name"):
            session.execute("SELECT dana_create_udf(%s, %s)", (name, LOGISTIC))


@pytest.mark.parametrize(
    "call",
    [
        "dana_predict_table('m', 't')",
        "dana_cross_validate('fit', 't', 2)",
        "dana_search('fit', 't', '[{}]', 'r2')",
    ],
)
def test_pg_catalog_comes_first(session: Session, call: str) -> None:
    """Behind a schema with the same operator for the same types, that one would be called."""
    session.execute("SELECT dana_create_udf('fit', %s)", (LOGISTIC,))
    session.execute(
        "CREATE TABLE t AS SELECT i AS id, (i % 7)::real AS x, (i % 2)::real AS y FROM generate_series(1, 60) i"
    )
    session.execute("SELECT dana_train('fit', 't', 'm', '{x}', 'y', epochs => 1)")
    session.execute(
        """
        DROP SCHEMA IF EXISTS evil CASCADE;
        CREATE SCHEMA evil;
        CREATE FUNCTION evil.mine(text, text) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RAISE 'called'; END $$;
        CREATE OPERATOR evil.= (LEFTARG = text, RIGHTARG = text, FUNCTION = evil.mine);
        CREATE OPERATOR evil.<> (LEFTARG = text, RIGHTARG = text, FUNCTION = evil.mine);
        """
    )
    path = session.execute("SHOW search_path").fetchone()
    assert path is not None
    session.execute(f"SET search_path = evil, {path[0]}, pg_catalog")
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="schema pg_catalog must not come after"):
        session.execute(f"SELECT * FROM {call}")
    session.execute(f"SET search_path = evil, {path[0]}")
    session.execute("CREATE TEMP TABLE other ()")  # a schema before pg_catalog in which no operator is looked for
    session.execute(f"SELECT * FROM {call}")
