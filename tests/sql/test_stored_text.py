"""What is stored with a model or a table is somebody's text: who uses it does not run what its owner wrote."""

from __future__ import annotations

import psycopg
import pytest

from tests.sql.conftest import Session, acting

errors = psycopg.errors

EVIL = """
CREATE TABLE caught (role name, body text);
GRANT INSERT ON caught TO PUBLIC;
CREATE FUNCTION evil(value real) RETURNS real LANGUAGE plpgsql STABLE COST 1 AS $$ BEGIN
    PERFORM set_config('test.caught', current_setting('test.caught', true) || ',' || current_user, false);
    RETURN value;
END $$;
"""
"""A function that remembers as whom it ran."""


def caught(session: Session) -> set[str]:
    (roles,) = session.execute("SELECT current_setting('test.caught', true)").fetchall()[0]
    session.execute("SELECT set_config('test.caught', '', false)")
    return set((roles or "").split(",")) - {""}


@pytest.mark.parametrize("victim", ["postgres", "ana", "helper"])
@pytest.mark.parametrize(
    ("trained", "asked"),
    [
        ("source => 'trap'", "'bob.m'"),
        ("query => 'SELECT * FROM trap'", "'bob.m'"),
        ("source => 't1', filter => 'evil(x) > 0'", "'bob.m', 't1'"),
        ("source => 't1', filter => 'evil(x) > 0'", "'bob.m', 't1', part => 'all'"),
    ],
)
def test_nobody_runs_what_is_stored_with_another_role_s_model(
    owners: Session, victim: str, trained: str, asked: str
) -> None:
    """Not a superuser, nor who is a member of the owner's role."""
    owners.execute("SELECT set_config('test.caught', '', false)")
    owners.execute("GRANT bob TO helper")
    with acting(owners, "bob"):
        owners.execute(EVIL)
        owners.execute("CREATE VIEW trap AS SELECT evil(x) AS x, y FROM t1; GRANT SELECT ON trap TO PUBLIC")
        owners.execute(f"SELECT dana_train('sums', model => 'm', {trained})")
        owners.execute("SELECT dana_grant_model('m', 'ana')")
        assert owners.execute("SELECT dana_evaluate('m') -> 'rows'").fetchone() == (1,), "its own"
    assert caught(owners) == {"bob"}
    with acting(owners, victim):
        with pytest.raises(errors.InsufficientPrivilege, match="belongs to another role") as raised:
            owners.execute(f"SELECT dana_evaluate({asked})")
        assert "dana.model.metadata" in str(raised.value.diag.message_hint)
        assert owners.execute("SELECT dana_evaluate('bob.m', 't2', filter => 'true') -> 'rows'").fetchone() == (1,)
        assert owners.execute("SELECT dana_evaluate('bob.m', 't1', filter => 'true') -> 'rows'").fetchone() == (1,)
    assert caught(owners) == set()


@pytest.mark.parametrize("victim", ["postgres", "ana", "helper"])
def test_nobody_reads_the_stored_table_of_another_role_for_a_profile(owners: Session, victim: str) -> None:
    """It may be another one by now, which runs what its owner wrote: a view in its place."""
    owners.execute("SELECT set_config('test.caught', '', false)")
    owners.execute("GRANT bob TO helper")
    with acting(owners, "bob"):
        owners.execute(EVIL)
        owners.execute("CREATE TABLE trap AS TABLE t1; SELECT dana_train('sums', 'trap', 'm')")
        owners.execute("SELECT dana_grant_model('m', 'ana'); ALTER TABLE trap RENAME TO gone")
        owners.execute("CREATE VIEW trap AS SELECT evil(x) AS x, y FROM t1; GRANT SELECT ON trap TO PUBLIC")
    with acting(owners, victim):
        for source in ("", ", 'trap'"):
            if victim == "ana" or not source:
                with pytest.raises(errors.InsufficientPrivilege) as raised:
                    owners.execute(f"SELECT dana_profile('bob.m'{source})")
                said = 'must be owner of model "bob.m"' if victim == "ana" else "belongs to another role, and its table"
                assert said in str(raised.value.diag.message_primary)
        assert caught(owners) == set()
        if victim != "ana":
            owners.execute("SELECT dana_profile('bob.m', 't1')")
    with acting(owners, "bob"):
        owners.execute("SELECT dana_profile('m')")
    assert caught(owners) == {"bob"}


def test_no_function_is_taken_for_a_column(owners: Session) -> None:
    """``r.name`` calls a function of that name where the row has no such column; what is stored names no function."""
    owners.execute("SELECT set_config('test.caught', '', false)")
    owners.execute("CREATE VIEW v1 AS TABLE t1")
    with acting(owners, "bob"):
        owners.execute(EVIL)
        owners.execute(
            "CREATE TABLE of_bob AS SELECT 1::real AS trap, 1::real AS snare, 1::real AS pit, x, y"
            " FROM t1, generate_series(1, 40)"
        )
        for name in ("trap", "snare", "pit"):
            for kind in ("t1", "v1", "record"):
                owners.execute(
                    f"CREATE FUNCTION {name}({kind}) RETURNS real LANGUAGE plpgsql AS $$ BEGIN RETURN evil(1); END $$"
                )
        owners.execute("SELECT dana_train('sums', 'of_bob', 'm', '{trap,snare}', 'y', test_size => 0.5)")
        owners.execute("SELECT dana_train('sums', 'of_bob', 'n', '{x}', 'pit', test_size => 0.5)")
        owners.execute("SELECT dana_train('sums', 'of_bob', 'o', '{x}', 'pit', classes => '{0,1}')")
        owners.execute("DROP TABLE of_bob")
    for call in (
        *(f"dana_evaluate('bob.{model}', {of})" for model in "mno" for of in ("'t1'", "'v1'", "query => 'TABLE t1'")),
        "dana_evaluate('bob.m', 't1', part => 'test')",
        "dana_predict_table('bob.m', 't1', 'x')",
        "dana_predict_table('bob.m', 'v1', 'x')",
    ):
        with pytest.raises(errors.UndefinedColumn):
            owners.execute(f"SELECT * FROM {call}")  # type: ignore[arg-type]
    assert caught(owners) == set()


CAST = """
CREATE TYPE answer AS ENUM ('no', 'yes');
CREATE FUNCTION told(answer) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN PERFORM evil(1); RETURN 'yes'; END $$;
CREATE FUNCTION counted(answer) RETURNS float8 LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN PERFORM evil(1); RETURN 1; END $$;
CREATE CAST (answer AS text) WITH FUNCTION told(answer) AS IMPLICIT;
CREATE CAST (answer AS float8) WITH FUNCTION counted(answer) AS IMPLICIT;
CREATE TABLE answers (x real, y answer, z real DEFAULT 1);
INSERT INTO answers (x, y) VALUES (1, 'no'), (2, 'yes'), (3, 'yes');
GRANT SELECT ON answers TO PUBLIC;
"""


def test_no_cast_of_a_column_s_type_is_called(owners: Session) -> None:
    """Of a label, or of a key; who reads a table does not run what its owner wrote."""
    owners.execute("SELECT set_config('test.caught', '', false)")
    with acting(owners, "bob"):
        owners.execute(EVIL + CAST)
    for call in (
        "SELECT tuples FROM dana_train('sums', 'answers', 'm', '{x}', 'y', classes => '{no,yes}')",
        "SELECT dana_evaluate('m') -> 'rows'",
        "SELECT dana_evaluate('m', query => 'TABLE answers') -> 'rows'",
    ):
        assert owners.execute(call).fetchone() == (3,), call  # type: ignore[arg-type]
    by = ', "test_by": "y"}'
    training = """training => '{"features": ["x"], "label": "y", "classes": ["no", "yes"]}'"""
    owners.execute("SELECT dana_train('sums', query => 'SELECT x, x AS y FROM answers', model => 'n')")
    with pytest.raises(errors.DatatypeMismatch, match="answer"):
        owners.execute("SELECT dana_evaluate('n', 'answers', part => 'all')")
    for call in (
        "dana_predict_table('n', 'answers', key => 'y')",
        f"dana_cross_validate('sums', 'answers', 2, {training})",
        f"dana_cross_validate('sums', 'answers', 2, {training.replace('}', by)})",
        f"dana_search('sums', 'answers', '[{{}}]', folds => 2, {training.replace('}', by)})",
        """dana_train_groups('sums', 'answers', '{y}', '{"features": ["x"], "label": "z"}')""",
        """dana_train_groups('sums', NULL, '{y}', '{"features": ["x"], "label": "z", "query": "TABLE answers"}')""",
        "dana_evaluate('sums[yes]')",
    ):
        assert owners.execute(f"SELECT * FROM {call}").rowcount > 0, call  # type: ignore[arg-type]
    assert owners.execute("SELECT DISTINCT name FROM dana.model WHERE name LIKE 'sums[%'").rowcount == 2
    assert caught(owners) == set()
