"""The SQL surface as a whole: everything says what it is, and who may call what is written down."""

from __future__ import annotations

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from dana.server.embedded import EmbeddedServer
from tests.sources.conftest import Session

FOR_ALL = {
    "dana_apart",
    "dana_arguments",
    "dana_cancel",
    "dana_evaluate",
    "dana_export_model",
    "dana_find_model",
    "dana_fold",
    "dana_grid",
    "dana_group",
    "dana_holdout",
    "dana_job_lost",
    "dana_live_epochs",
    "dana_number",
    "dana_parameters",
    "dana_predict",
    "dana_predict_table",
    "dana_progress",
    "dana_statement",
    "dana_trial",
    "dana_wait",
}
"""Functions that nobody has to be granted: they read what their caller may read, and change nothing; dana_trial() calls
dana_train() with its caller's rights; the functions about a job ask whose it is."""


def test_everything_has_a_comment(session: Session) -> None:
    """Row and array types, which PostgreSQL makes by itself, take theirs from what they belong to."""
    objects = session.execute(
        """
        SELECT pg_describe_object(d.classid, d.objid, 0) FROM pg_depend AS d
        LEFT JOIN pg_type AS t ON d.classid = 'pg_type'::regclass AND t.oid = d.objid
        LEFT JOIN pg_class AS c ON c.oid = t.typrelid
        WHERE d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e'
            AND d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'dana')
            AND (t.oid IS NULL OR c.relkind = 'c')
            AND obj_description(d.objid, d.classid::regclass::name) IS NULL
        """
    ).fetchall()
    assert objects == []
    columns = session.execute(
        """
        SELECT c.oid::regclass::text, a.attname FROM pg_class AS c JOIN pg_attribute AS a ON a.attrelid = c.oid
        WHERE c.relnamespace = 'dana'::regnamespace AND c.relkind IN ('r', 'v', 'c') AND a.attnum > 0
            AND NOT a.attisdropped AND col_description(c.oid, a.attnum) IS NULL
        """
    ).fetchall()
    assert columns == []


def test_who_may_call_what(session: Session) -> None:
    rows = session.execute(
        """
        SELECT p.proname, bool_or(a.grantee = 0) FROM pg_depend AS d JOIN pg_proc AS p ON p.oid = d.objid
        CROSS JOIN LATERAL aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) AS a
        WHERE d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e' AND d.classid = 'pg_proc'::regclass
            AND d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'dana')
        GROUP BY p.oid, p.proname
        """
    ).fetchall()
    assert {name for name, public in rows if public} == FOR_ALL
    assert {"dana_train", "dana_explain", "dana_create_udf"} <= {name for name, public in rows if not public}


def test_nothing_that_writes_runs_in_parallel(session: Session) -> None:
    rows = session.execute(
        """
        SELECT p.proname FROM pg_depend AS d JOIN pg_proc AS p ON p.oid = d.objid
        WHERE d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e' AND d.classid = 'pg_proc'::regclass
            AND d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'dana')
            AND p.provolatile = 'v' AND p.proparallel = 's'
        """
    ).fetchall()
    assert rows == []


def test_a_trial_needs_the_right_to_train(session: Session) -> None:
    session.execute("CREATE TABLE t AS SELECT 1::real AS x, 1::real AS y")
    session.execute("DROP ROLE IF EXISTS passer_by")
    session.execute("CREATE ROLE passer_by")
    try:
        session.execute("GRANT USAGE ON SCHEMA test TO passer_by")
        session.execute("GRANT SELECT ON t TO passer_by")
        session.execute("SET ROLE passer_by")
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="permission denied for function dana_train"):
            session.execute("""SELECT dana_trial('{"udf": "sums", "source": "t"}', '{}')""")
    finally:
        session.execute("RESET ROLE")
        session.execute("DROP OWNED BY passer_by")
        session.execute("DROP ROLE passer_by")


def test_an_update_keeps_who_may_train(session: Session, server: EmbeddedServer) -> None:
    """From the first version on; who might train may also explain, and who might predict may do so by both names."""
    session.execute("DROP DATABASE IF EXISTS updated")
    session.execute("CREATE DATABASE updated")
    session.execute("DROP ROLE IF EXISTS former_analyst")
    session.execute("CREATE ROLE former_analyst")
    try:
        dsn = make_conninfo(server.dsn, dbname="updated")
        with psycopg.connect(dsn, autocommit=True) as other:
            other.execute("CREATE SCHEMA ml")
            other.execute("CREATE EXTENSION dana SCHEMA ml VERSION '0.1.0'")
            other.execute("GRANT EXECUTE ON FUNCTION ml.dana_train TO former_analyst WITH GRANT OPTION")
            other.execute("REVOKE EXECUTE ON FUNCTION ml.dana_predict FROM PUBLIC")
            other.execute("GRANT EXECUTE ON FUNCTION ml.dana_predict TO former_analyst WITH GRANT OPTION")
            other.execute("ALTER EXTENSION dana UPDATE")
            for function in ("ml.dana_train", "ml.dana_explain", "dana.dana_predict"):
                everybody = other.execute(
                    "SELECT has_function_privilege('pg_monitor', %s::regproc, 'EXECUTE')", (function,)
                ).fetchone()
                assert everybody == (False,)
                rights = other.execute(
                    "SELECT a.privilege_type, a.is_grantable FROM pg_proc AS p, aclexplode(p.proacl) AS a "
                    "WHERE p.oid = %s::regproc AND a.grantee = 'former_analyst'::regrole",
                    (function,),
                ).fetchall()
                assert rights == [("EXECUTE", True)]
            other.execute("DROP OWNED BY former_analyst")
    finally:
        session.execute("DROP DATABASE updated")
        session.execute("DROP ROLE former_analyst")
