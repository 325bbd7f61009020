"""The SQL surface as a whole: what it has, what everything says it is, who may call what; no call ends a server."""

from __future__ import annotations

import psycopg
import pytest

from tests.sql.conftest import Session, new_role

GRANTED = {
    "dana_activate_model",
    "dana_comment_model",
    "dana_create_udf",
    "dana_cross_validate",
    "dana_drop_model",
    "dana_drop_rule",
    "dana_explain",
    "dana_grant_model",
    "dana_grant_rule",
    "dana_profile",
    "dana_prune",
    "dana_refresh",
    "dana_rename_model",
    "dana_revoke_model",
    "dana_revoke_rule",
    "dana_rollback_model",
    "dana_search",
    "dana_start",
    "dana_train",
    "dana_train_groups",
}
"""What a DBA grants."""

PUBLIC = {
    "dana_cancel",
    "dana_classification_metrics",
    "dana_classify",
    "dana_coefficients",
    "dana_contributions",
    "dana_drift",
    "dana_evaluate",
    "dana_export_model",
    "dana_fold",
    "dana_gather",
    "dana_group",
    "dana_holdout",
    "dana_importance",
    "dana_parameters",
    "dana_predict",
    "dana_predict_array",
    "dana_predict_double",
    "dana_predict_table",
    "dana_probabilities",
    "dana_regression_metrics",
    "dana_shard_pages",
    "dana_shards",
    "dana_test_rows",
    "dana_wait",
}
"""What any role may call: it reads what its caller may read, and changes nothing; what is about a job asks whose it
is, and what trains in schema dana asks for the right to dana_train()."""

FOR_USERS = GRANTED | PUBLIC
"""What ``\\df dana_*`` lists."""

MEMBERS = """
SELECT p.oid, p.proname, n.nspname FROM pg_depend AS d JOIN pg_proc AS p ON p.oid = d.objid
JOIN pg_namespace AS n ON n.oid = p.pronamespace
WHERE d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e' AND d.classid = 'pg_proc'::regclass
    AND d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'dana')
"""


def test_what_is_for_users(session: Session) -> None:
    r"""psql's \df dana_* lists the functions that the search_path finds; all others are in schema dana."""
    listed = session.execute(
        "SELECT DISTINCT proname FROM pg_proc WHERE proname LIKE 'dana\\_%' AND pg_function_is_visible(oid)"
    ).fetchall()
    assert {name for (name,) in listed} == FOR_USERS
    assert {name for _, name, schema in session.execute(MEMBERS) if schema != "dana"} == FOR_USERS


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
        f"""
        SELECT m.proname, m.nspname, bool_or(a.grantee = 0) FROM ({MEMBERS}) AS m JOIN pg_proc AS p ON p.oid = m.oid
        CROSS JOIN LATERAL aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) AS a
        GROUP BY m.oid, m.proname, m.nspname
        """
    ).fetchall()
    assert {name for name, _, everybody in rows if not everybody} == GRANTED


def test_nothing_that_writes_runs_in_parallel(session: Session) -> None:
    rows = session.execute(
        f"SELECT p.proname FROM ({MEMBERS}) AS m JOIN pg_proc AS p ON p.oid = m.oid"
        " WHERE p.provolatile = 'v' AND p.proparallel = 's'"
    ).fetchall()
    assert rows == []


def test_no_function_ends_the_server_over_a_null(session: Session) -> None:
    """Whoever may call it, with NULL for each argument alone and for all of them."""
    rows = session.execute(
        f"""
        SELECT m.oid::regproc::text, p.prokind, p.proisstrict,
            ARRAY(SELECT replace(format_type(t, NULL), '"any"', 'real')
                FROM unnest(p.proargtypes::oid[]) WITH ORDINALITY AS a (t, n) ORDER BY n)
        FROM ({MEMBERS}) AS m JOIN pg_proc AS p ON p.oid = m.oid
        """
    ).fetchall()
    session.execute("CREATE TABLE t AS SELECT i::real AS x, (i % 2)::real AS y FROM generate_series(1, 9) AS i")
    (pid,) = session.execute("SELECT pg_backend_pid()").fetchall()[0]
    given = {"text": "'sums'", "regclass": "'t'", "jsonb": "'{}'", "integer": "2", "double precision": "0.5"}
    given |= {"text[]": "'{x}'", "regrole": "'postgres'", "bigint": "1", "boolean": "true", "interval": "'1 day'"}
    given |= {"bytea": "''", "jsonb[]": "'{}'", "real": "1", "real[]": "'{1}'", "double precision[]": "'{{2,0.5}}'"}
    ended: dict[str, str | None] = {}
    for name, kind, strict, declared in rows:
        types = ["real" if one == '"any"' else one for one in declared]
        # procedures: tests/cluster/test_sync.py
        if strict or kind in "ap" or "internal" in types:
            continue
        for missing in [*range(len(types)), None]:
            values = ["NULL" if missing in (None, number) else given[kind] for number, kind in enumerate(types)]
            typed = ", ".join(f"{value}::{kind}" for value, kind in zip(values, types, strict=True))
            call = f"{name}({typed})"
            ended[call] = "00000"
            try:
                with session.transaction(force_rollback=True):
                    session.execute(f"SELECT * FROM {call}")  # type: ignore[arg-type]
            except psycopg.Error as error:
                ended[call] = error.sqlstate
    assert len(ended) > 60
    assert {call: state for call, state in ended.items() if state in (None, "XX000", "57P02", "57P03")} == {}
    assert session.execute("SELECT pg_backend_pid()").fetchone() == (pid,)


def test_a_trial_needs_the_right_to_train(session: Session) -> None:
    session.execute("CREATE TABLE t AS SELECT 1::real AS x, 1::real AS y")
    calls = (
        "dana.dana_trial('sums', 't', '{}', 'true', NULL, NULL)",
        "dana.dana_train_rule('sums', 't', '{}')",
        "dana.sums('t')",
    )
    with new_role(session, "passer_by"):
        session.execute("GRANT SELECT ON t TO passer_by")
        for call in calls:
            session.execute("SET ROLE passer_by")
            with pytest.raises(psycopg.errors.InsufficientPrivilege, match="permission denied for function dana_train"):
                session.execute(f"SELECT {call}")
            session.execute("RESET ROLE")
