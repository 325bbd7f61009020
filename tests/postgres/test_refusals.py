"""What cannot be trained on, named with the reason; and arguments that make no sense. One SQL error each."""

from __future__ import annotations

from collections.abc import Callable

import psycopg
import pytest

from tests.postgres.cluster import Cluster
from tests.postgres.conftest import Session

errors = psycopg.errors


@pytest.mark.parametrize(
    ("make", "table", "error", "message"),
    [
        ("CREATE TABLE t (a int PRIMARY KEY)", "t_pkey", psycopg.Error, "t_pkey"),
        ("CREATE SEQUENCE x", "x", errors.WrongObjectType, "test.x: it is not a table"),
        ("CREATE TYPE x AS (a int)", "x", errors.WrongObjectType, "test.x: it is not a table"),
        ("", "pg_class", errors.WrongObjectType, "pg_catalog.pg_class: it is a system catalog"),
        ("", "pg_toast.pg_toast_2619", psycopg.Error, "pg_toast"),
        (
            "CREATE MATERIALIZED VIEW x AS SELECT 1 AS a WITH NO DATA",
            "x",
            errors.ObjectNotInPrerequisiteState,
            "(?s)has not been populated.*REFRESH",
        ),
        ("", "nowhere", errors.UndefinedTable, "nowhere"),
        ("", "4000000000", errors.UndefinedTable, "OID 4000000000"),
    ],
)
def test_tables(
    session: Session, rule: Callable[..., str], make: str, table: str, error: type[psycopg.Error], message: str
) -> None:
    name = rule()
    with session.transaction(force_rollback=True):
        session.execute(make)
        with pytest.raises(error, match=message), session.transaction():
            session.execute("SELECT * FROM dana_train(%s, %s)", (name, table))


def test_temporary_table_of_another_session(cluster: Cluster, session: Session, rule: Callable[..., str]) -> None:
    name = rule()
    with cluster.connect() as other:
        other.execute("CREATE TEMPORARY TABLE x AS SELECT 1 AS a")
        row = other.execute("SELECT 'x'::regclass::oid").fetchone()
        assert row is not None
        with pytest.raises(errors.FeatureNotSupported, match="temporary table of another session"):
            session.execute("SELECT * FROM dana_train(%s, %s::oid::regclass)", (name, row[0]))


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ("'nothing', 't'", errors.UndefinedObject, 'rule "nothing" does not exist'),
        ("NULL, 't'", errors.NullValueNotAllowed, '"rule" must not be null'),
        ("'r', NULL", errors.NullValueNotAllowed, '"source" must not be null'),
        ("'r', 't', epochs => 0", errors.InvalidParameterValue, "from 1 to 100000, not 0"),
        (
            "'r', 't', features => ARRAY['a', NULL]",
            errors.NullValueNotAllowed,
            '"features" must not contain nulls',
        ),
        ("'r', 't', hyper => '[1]'", errors.InvalidParameterValue, '"hyper" must be a JSON object'),
        ("'r', 't', design => '3'", errors.InvalidParameterValue, '"design" must be a JSON object'),
        ("'r', 't', 'm@2'", errors.InvalidName, '"m@2" cannot be a model\'s name'),
        ("'r', 't', ''", errors.InvalidName, "cannot be a model's name"),
        ("'r', 't', repeat('m', 1000000)", errors.InvalidName, f'"{"m" * 255}" cannot be a'),
    ],
)
def test_calls(session: Session, arguments: str, error: type[psycopg.Error], message: str) -> None:
    session.execute("CREATE TABLE t AS SELECT 1 AS a")
    session.execute("SELECT dana_create_udf('r', '{}')")
    with pytest.raises(error, match=message):
        session.execute(f"SELECT * FROM dana_train({arguments})")
    assert session.execute("SELECT FROM dana.model").rowcount == 0


@pytest.mark.parametrize("name", ["", "n" * 64])
def test_rule_names(session: Session, name: str) -> None:
    with pytest.raises(errors.InvalidName, match="cannot be a rule's name"):
        session.execute("SELECT dana_create_udf(%s, '{}')", (name,))


def test_rule_that_is_none(session: Session) -> None:
    """The worker's diagnostics arrive whole: message, detail, hint and SQLSTATE."""
    with pytest.raises(errors.SyntaxError) as raised:
        session.execute("SELECT dana_create_udf('r', 'this is no JSON')")
    diagnosis = raised.value.diag
    assert diagnosis.message_primary == "the rule has 1 error"
    assert (diagnosis.message_detail or "").startswith("line 1: Expecting value")
    assert diagnosis.message_hint == "Write JSON."
    assert session.execute("SELECT FROM dana.rule").rowcount == 0


def test_unknown_objects(session: Session) -> None:
    for call in ("dana_drop_rule('none')", "dana_drop_model('none')", "dana_predict('none', 1.0)"):
        with pytest.raises(errors.UndefinedObject, match="does not exist"):
            session.execute(f"SELECT {call}")


def test_reserved_function_name(session: Session) -> None:
    """A rule does not take the name of a function that is not its own."""
    for result in ("int LANGUAGE sql AS 'SELECT 1'", "dana.training LANGUAGE sql AS 'SELECT NULL::dana.training'"):
        session.execute(f"CREATE FUNCTION dana.taken(regclass, jsonb) RETURNS {result}")
        try:
            with pytest.raises(
                errors.DuplicateFunction, match=r"function dana.taken\(regclass, jsonb\) exists, and does not belong"
            ):
                session.execute("SELECT dana_create_udf('taken', '{}')")
            assert session.execute("SELECT FROM dana.rule").rowcount == 0
        finally:
            session.execute("DROP FUNCTION dana.taken")


QUERY = '{"query": "SELECT 1 / 0 AS a"}'
GRID = '{"penalty": [1]}'


def test_read_only_transaction(session: Session, rule: Callable[..., str]) -> None:
    """Refused before the work, not after it."""
    name = rule(on_open="abort")
    session.execute("CREATE TABLE t AS SELECT 1 AS a")
    session.execute("SET default_transaction_read_only = on")
    query = "query => 'SELECT 1 / 0 AS a'"  # an error where its rows are read
    for call in (
        f"dana_train('{name}', 't')",
        f"dana_train('{name}', {query})",
        f"dana_cross_validate('{name}', training => '{QUERY}')",
        f"dana_search('{name}', grid => '{GRID}', training => '{QUERY}')",
        "dana_create_udf('r', '{}')",
    ):
        command = call.partition("(")[0]
        with pytest.raises(errors.ReadOnlySqlTransaction, match=rf"cannot execute {command}\(\) in a read-only"):
            session.execute(f"SELECT {call}")
