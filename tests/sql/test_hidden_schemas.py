"""A table that a number stands for is read only where its name could be written: USAGE on its schema, and SELECT."""

from __future__ import annotations

import psycopg
import pytest

from tests.sql.conftest import Session, acting
from tests.sql.test_surface import MEMBERS

errors = psycopg.errors

PROCEDURE = "dana.dana_train_part"

CALLS = {
    "dana_train": "('sums', {})",
    "dana.dana_train_rule": "('sums', {}, '{{}}')",
    "dana.sums": "({})",
    "dana_train_groups": "('sums', {}, '{{y}}', '{{}}')",
    "dana_explain": "('sums', {})",
    "dana.dana_arguments": """('{{"features": ["x"]}}', 'm', {})""",
    "dana_predict_table": "('m', {}, 'x')",
    "dana_evaluate": "('m', {})",
    "dana.dana_counted": """('m', '{{"features": ["x"], "labels": []}}', {})""",
    "dana_profile": "('m', {})",
    "dana_drift": "('m', {})",
    "dana.dana_permuted": "('m', {}, NULL, NULL, NULL, NULL, 1, 10, 1)",
    "dana_importance": "('m', {})",
    "dana.dana_trial_rows": "('sums', {}, '{{}}', 2, NULL, NULL, 1)",
    "dana.dana_trial": "('sums', {}, '{{}}', 'true', NULL, NULL)",
    "dana_cross_validate": "('sums', {}, 2)",
    "dana_search": "('sums', {}, '[{{}}]')",
    "dana_shard_pages": "({})",
    "dana.dana_take_pages": "({}, '')",
    "dana_gather": "({})",
    "dana_shards": "({})",
    "dana.dana_record_shards": "({}, '{{}}', '{{}}')",
    PROCEDURE: "('sums', {}, '{{}}', '{{\"number\": 1}}', NULL, NULL)",
    "dana_start": """('dana_train', '{{"rule": "sums", "source": "{}"}}')""",
}
"""A call of each function that takes a table, and of one that takes it in JSON."""


def test_every_function_with_a_table_is_here(session: Session) -> None:
    declared = session.execute(
        f"SELECT p.oid::regproc::text FROM ({MEMBERS}) AS m JOIN pg_proc AS p USING (oid)"
        " WHERE 'regclass'::regtype = ANY (p.proargtypes::oid[])"
    ).fetchall()
    assert {name for (name,) in declared} | {"dana.sums", "dana_start"} == set(CALLS)


@pytest.mark.parametrize("kind", ["TABLE", "VIEW"])
def test_without_usage_on_the_schema(owners: Session, kind: str) -> None:
    owners.execute("DROP SCHEMA IF EXISTS hidden CASCADE; CREATE SCHEMA hidden")
    owners.execute(f"CREATE {kind} hidden.t AS SELECT x, y FROM test.t1; GRANT SELECT ON hidden.t TO ana")
    owners.execute("CREATE TABLE closed AS SELECT x, y FROM test.t1")
    numbers = owners.execute("SELECT 'hidden.t'::regclass::oid, 'closed'::regclass::oid, 999999999").fetchone()
    assert numbers is not None
    schema, table, nothing = numbers
    with acting(owners, "ana"):
        owners.execute("SELECT dana_train('sums', 't1', 'm', epochs => 1)")
        owners.execute("SELECT dana_profile('m', 't1')")
        with pytest.raises(errors.InsufficientPrivilege, match="permission denied for schema hidden"):
            owners.execute("SELECT * FROM hidden.t")
        for function, arguments in CALLS.items():
            if function == "dana_gather" and owners.info.server_version < 170000:
                continue  # an error there whatever the table
            call = f"{'CALL' if function == PROCEDURE else 'SELECT * FROM'} {function}{arguments}"
            for number, state, message in (
                (schema, "42501", "permission denied for schema hidden"),
                (table, "42501", "permission denied for table closed"),
                (nothing, "42P01", "relation with OID 999999999 does not exist"),
            ):
                with pytest.raises(psycopg.Error) as raised:
                    owners.execute(call.format(number))
                assert (raised.value.sqlstate, raised.value.diag.message_primary) == (state, message), function
    owners.execute("GRANT USAGE ON SCHEMA hidden TO ana")
    with acting(owners, "ana"):
        owners.execute(f"SELECT dana_train('sums', {schema}, epochs => 1)")
    owners.execute("DROP SCHEMA hidden CASCADE")
