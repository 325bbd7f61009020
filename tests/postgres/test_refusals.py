"""What cannot be trained on, named with the reason; and arguments that make no sense. One SQL error each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import psycopg
import pytest

from tests.postgres.cluster import Cluster
from tests.postgres.conftest import Session

errors = psycopg.errors


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A table that is refused.

    Attributes
    ----------
    make
        Statements that make it.
    table
        What is trained on.
    error
        Class of the error.
    message, hint
        Parts of its texts.
    """

    make: tuple[str, ...] = ()
    table: str = "x"
    error: type[psycopg.Error]
    message: str
    hint: str = ""


TABLES = {
    "index": Refusal(
        make=("CREATE TABLE t (a int PRIMARY KEY)",),
        table="t_pkey",
        error=psycopg.Error,
        message="t_pkey",
    ),
    "sequence": Refusal(make=("CREATE SEQUENCE x",), error=errors.WrongObjectType, message="test.x: it is not a table"),
    "type": Refusal(
        make=("CREATE TYPE x AS (a int)",), error=errors.WrongObjectType, message="test.x: it is not a table"
    ),
    "catalog": Refusal(
        table="pg_class", error=errors.WrongObjectType, message="pg_catalog.pg_class: it is a system catalog"
    ),
    "toast": Refusal(table="pg_toast.pg_toast_2619", error=psycopg.Error, message="pg_toast"),
    "unpopulated": Refusal(
        make=("CREATE MATERIALIZED VIEW x AS SELECT 1 AS a WITH NO DATA",),
        error=errors.ObjectNotInPrerequisiteState,
        message="has not been populated",
        hint="REFRESH",
    ),
    "missing": Refusal(table="nowhere", error=errors.UndefinedTable, message="nowhere"),
    "dropped": Refusal(table="4000000000", error=errors.UndefinedTable, message="OID 4000000000"),
}


@pytest.mark.parametrize("case", TABLES)
def test_tables(session: Session, rule: Callable[..., str], case: str) -> None:
    refusal = TABLES[case]
    name = rule()
    with session.transaction(force_rollback=True):
        for statement in refusal.make:
            session.execute(statement)
        with pytest.raises(refusal.error) as raised, session.transaction():
            session.execute("SELECT * FROM dana_train(%s, %s)", (name, refusal.table))
    assert refusal.message in str(raised.value.diag.message_primary)
    assert refusal.hint in (raised.value.diag.message_hint or "")


def test_temporary_table_of_another_session(cluster: Cluster, session: Session, rule: Callable[..., str]) -> None:
    name = rule()
    with cluster.connect() as other:
        other.execute("CREATE TEMPORARY TABLE x AS SELECT 1 AS a")
        row = other.execute("SELECT 'x'::regclass::oid").fetchone()
        assert row is not None
        with pytest.raises(errors.FeatureNotSupported, match="temporary table of another session"):
            session.execute("SELECT * FROM dana_train(%s, %s::oid::regclass)", (name, row[0]))


@dataclass(frozen=True, slots=True, kw_only=True)
class BadCall:
    """A call that is refused: its arguments after the rule's name, and the error."""

    arguments: str
    error: type[psycopg.Error]
    message: str


CALLS = {
    "no rule": BadCall(
        arguments="'nothing', 't'", error=errors.UndefinedObject, message='rule "nothing" does not exist'
    ),
    "null rule": BadCall(arguments="NULL, 't'", error=errors.NullValueNotAllowed, message='"rule" must not be null'),
    "null table": BadCall(arguments="'r', NULL", error=errors.NullValueNotAllowed, message='"source" must not be null'),
    "no epochs": BadCall(
        arguments="'r', 't', epochs => 0", error=errors.InvalidParameterValue, message="from 1 to 100000, not 0"
    ),
    "null feature": BadCall(
        arguments="'r', 't', features => ARRAY['a', NULL]",
        error=errors.NullValueNotAllowed,
        message='"features" must not contain nulls',
    ),
    "hyper": BadCall(
        arguments="'r', 't', hyper => '[1]'",
        error=errors.InvalidParameterValue,
        message='"hyper" must be a JSON object',
    ),
    "design": BadCall(
        arguments="'r', 't', design => '3'",
        error=errors.InvalidParameterValue,
        message='"design" must be a JSON object',
    ),
    "model with version": BadCall(
        arguments="'r', 't', 'm@2'", error=errors.InvalidName, message='"m@2" cannot be a model\'s name'
    ),
    "empty model": BadCall(arguments="'r', 't', ''", error=errors.InvalidName, message="cannot be a model's name"),
    "long model": BadCall(
        arguments="'r', 't', repeat('m', 1000000)", error=errors.InvalidName, message=f'"{"m" * 255}" cannot be a'
    ),
}


@pytest.mark.parametrize("case", CALLS)
def test_calls(session: Session, case: str) -> None:
    session.execute("CREATE TABLE t AS SELECT 1 AS a")
    session.execute("SELECT dana_create_udf('r', '{}')")
    call = CALLS[case]
    with pytest.raises(call.error) as raised:
        session.execute(f"SELECT * FROM dana_train({call.arguments})")
    assert call.message in str(raised.value.diag.message_primary)
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


def test_read_only_transaction(session: Session, rule: Callable[..., str]) -> None:
    """Refused before the work, not after it."""
    name = rule(on_open="abort")
    session.execute("CREATE TABLE t AS SELECT 1 AS a")
    session.execute("SET default_transaction_read_only = on")
    for call in (f"dana_train('{name}', 't')", "dana_create_udf('r', '{}')"):
        with pytest.raises(errors.ReadOnlySqlTransaction):
            session.execute(f"SELECT {call}")
