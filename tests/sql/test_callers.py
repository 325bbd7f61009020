"""Functions and rules that others made of the names that a DBA uses: theirs are not called, and do not stay theirs."""

from __future__ import annotations

import pytest

from dana.cli import main
from dana.client.connection import Connection
from tests.sql.conftest import SUMS, Session, new_role

OVERLOADS = (
    "dana_create_udf(name varchar, source varchar)",
    "dana_wait(job smallint, timeout double precision)",
    "dana_wait(job bigint)",
    "dana_cancel(job smallint)",
    "dana_evaluate(model text)",
    "dana_evaluate(model text, source regclass, query text)",
    "dana_train(rule text, source regclass)",
    "dana_train(rule text, source regclass, epochs smallint)",
    "dana_start(function text, arguments json)",
    "dana_parameters(model text)",
    "dana_export_model(model varchar)",
    "dana_explain(rule text, source regclass, training jsonb)",
    "dana_drop_rule(name varchar)",
)
"""What somebody who may create in the extension's schema could make: fewer arguments, or the types of a driver."""


@pytest.fixture
def hostile(session: Session) -> Session:
    session.execute("CREATE TABLE t AS SELECT 1::real AS x, 0::real AS y")
    session.execute("SELECT dana_create_udf('sums', %s)", (SUMS,))
    session.execute("SELECT dana_train('sums', 't', 'm', epochs => 1)")
    for overload in OVERLOADS:
        session.execute(
            f"CREATE FUNCTION public.{overload} RETURNS void LANGUAGE plpgsql AS "
            "$$ BEGIN RAISE EXCEPTION 'hostile function'; END $$"
        )
    return session


def test_the_client_calls_no_function_of_somebody_else(hostile: Session, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        db = Connection(hostile)
        assert db.train("sums", "t", epochs=1).model == "sums"
        assert db.evaluate("m")["rows"] == 1
        assert "Rule sums" in db.explain("sums", "t")
        assert set(db.parameters("m")) > set()
        job = db.start("train", "sums", "t", model="later")
        assert db.wait(job, timeout=60).state == "done"
        assert db.cancel(job) is False
        with pytest.warns(UserWarning, match="depends on no model"):
            db.create_rule("other", SUMS)
        db.drop_rule("other")
        assert main(["export", "m", "--dsn", hostile.info.dsn]) == 0
        assert '"m"' in capsys.readouterr().out
    finally:
        for overload in OVERLOADS:
            hostile.execute(f"DROP FUNCTION public.{overload}")


def test_who_replaces_a_rule_owns_it(session: Session) -> None:
    with new_role(session, "eve"):
        session.execute("GRANT EXECUTE ON FUNCTION dana_create_udf TO eve")
        session.execute("SET ROLE eve")
        session.execute("SELECT dana_create_udf('owned', %s)", (SUMS,))
        session.execute("RESET ROLE")
        session.execute("SELECT dana_create_udf('owned', %s)", (SUMS,))
        mine = "SELECT owner = current_user::regrole FROM dana.rule WHERE name = 'owned'"
        assert session.execute(mine).fetchone() == (True,)
        session.execute("SELECT dana_drop_rule('owned')")


def test_texts_are_those_of_casts(session: Session) -> None:
    """But for casts that users made."""
    session.execute(
        "CREATE TYPE mood AS ENUM ('no', 'yes'); CREATE DOMAIN flag AS boolean; CREATE DOMAIN town AS char(5)"
    )
    for value in (
        "true", "true::flag", "'ab'::char(5)",
        "'ab '::town", "'x'::\"char\"", "'n'::name", "'10.0.0.1'::inet", "'yes'::mood",
        "1.50::numeric", "0.1::real", "date '2020-02-02'", "'{1,NULL}'::int[]", "ROW(1, 'a')", "'(0,1)'::tid", "'t'",
        "'a'::varchar(3)", "'{\"a\": 1}'::jsonb",
    ):  # fmt: skip
        same = f"SELECT dana.dana_text({value}) = ({value})::text, dana.dana_text({value})"
        assert session.execute(same).fetchall()[0][0], value  # type: ignore[arg-type]
    assert session.execute("SELECT dana.dana_text(NULL::mood)").fetchone() == (None,)


def test_a_rule_replaced_by_another_text_is_said(session: Session) -> None:
    heard: list[str] = []
    session.execute("SET client_min_messages = notice")
    session.add_notice_handler(
        lambda notice: heard.append(str(notice.message_primary)) if notice.severity == "NOTICE" else None
    )
    session.execute("SELECT dana_create_udf('sums', %s)", (SUMS,))
    assert heard == []
    session.execute("SELECT dana_create_udf('sums', %s)", (SUMS.replace("setEpochs(2)", "setEpochs(3)"),))
    assert heard == ['rule "sums" is replaced by another text']
    session.execute("SELECT dana_create_udf('sums', %s)", (SUMS,))
