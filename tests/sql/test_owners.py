"""Names of models are their owner's: two roles never wait for, find or hear of each other's, unless they are let."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest

from dana.server.embedded import EmbeddedServer
from tests.sql.conftest import SUMS, Session, acting

errors = psycopg.errors


def train(session: Session, role: str, model: str, value: int) -> None:
    with acting(session, role):
        session.execute("SELECT dana_train('sums', %s::text::regclass, %s, epochs => 1)", (f"t{value}", model))


def predicted(session: Session, model: str) -> float:
    return float(session.execute("SELECT dana_predict(%s, 1)", (model,)).fetchall()[0][0])


@contextmanager
def another(server: EmbeddedServer, role: str) -> Iterator[Session]:
    """A session that is no superuser's and in no transaction of its own yet; it waits for no lock for long."""
    with psycopg.connect(server.dsn) as session:
        session.execute(f"SET search_path = test, public; SET lock_timeout = '2s'; SET ROLE {role}")
        session.commit()
        yield session
        session.rollback()


@pytest.mark.parametrize("first", ["m", "sales", "sales[zzz", "sales[a]"])
@pytest.mark.parametrize("second", ["m", "sales", "sales[zzz", "sales[a]"])
def test_no_role_waits_for_another(owners: Session, server: EmbeddedServer, first: str, second: str) -> None:
    call = "SELECT version FROM dana_train('sums', %s::text::regclass, %s, epochs => 1)"
    with another(server, "ana") as ana, another(server, "bob") as bob:
        assert ana.execute(call, ("t1", first)).fetchone() == (1,)
        assert bob.execute(call, ("t2", second)).fetchone() == (1,)
        ana.commit()
        bob.commit()
        assert (predicted(ana, first), predicted(bob, second)) == (1, 2)


@pytest.mark.parametrize(
    ("first", "second", "waits"),
    [("m", "m", True), ("m", "n", False), ("sales[a]", "sales", False), ("sales[a]", "sales[b]", True)],
)
def test_who_waits_for_oneself(owners: Session, server: EmbeddedServer, first: str, second: str, waits: bool) -> None:
    """Versions of one name are numbered one after the other; the models of groups share a lock."""
    call = "SELECT version FROM dana_train('sums', 't1', %s, epochs => 1)"
    with another(server, "ana") as one, another(server, "ana") as other:
        one.execute(call, (first,))
        other.execute("SET lock_timeout = '100ms'")
        if waits:
            with pytest.raises(errors.LockNotAvailable):
                other.execute(call, (second,))
        else:
            assert other.execute(call, (second,)).fetchone() == (1,)


@pytest.fixture
def models(owners: Session) -> Session:
    for role, model, value in (
        ("bob", "m", 7),
        ("bob", "m", 1),
        ('"Bob"', "m", 2),
        ("ana", "m", 3),
        ("ana", "bob.m", 4),
        ('"a.b"', "m", 5),
        ("ana", "ana.m", 6),
        ("bob", "a b", 8),
    ):
        train(owners, role, model, value)
    with acting(owners, "bob"):
        owners.execute("SELECT dana_grant_model('m', 'ana')")
    return owners


REFERENCES = {
    ("postgres", "bob.m"): 1,
    ("postgres", "bob.m@1"): 7,
    ("postgres", '"bob".m'): 1,
    ("postgres", '"Bob".m'): 2,
    ("postgres", "Bob.m"): 2,
    ("postgres", '"Bob".m@1'): 2,
    ("postgres", '"a.b".m'): 5,
    ("postgres", "ana.m"): 3,
    ("postgres", "ana.ana.m"): 6,
    ("postgres", "ana.bob.m"): 4,
    ("postgres", "bob.a b"): 8,
    ("bob", "m"): 1,
    ("bob", "m@1"): 7,
    ("bob", "bob.m"): 1,
    ('"Bob"', "m"): 2,
    ('"Bob"', '"Bob".m'): 2,
    ('"a.b"', '"a.b".m@1'): 5,
    ("ana", "m"): 3,
    ("ana", "bob.m"): 4,  # her own, whose name has a point
    ("ana", '"bob".m'): 1,
    ("ana", '"bob".m@1'): 7,
    ("ana", "ana.m"): 6,
    ("ana", "ana.ana.m"): 6,
    ("helper", "ana.m"): 3,
    ("helper", "ana.m@1"): 3,
    ("helper", "bob.m"): 1,  # as a member of ana
}


@pytest.mark.parametrize(("role", "reference"), REFERENCES)
def test_references(models: Session, role: str, reference: str) -> None:
    """Each function that reads a model finds the same one."""
    value = REFERENCES[role, reference]
    with acting(models, role):
        assert predicted(models, reference) == value
        assert models.execute('SELECT "values" FROM dana_parameters(%s)', (reference,)).fetchall() == [([value],)]
        exported = models.execute("SELECT dana_export_model(%s) -> 'parameters' -> 0 -> 'values'", (reference,))
        assert exported.fetchall() == [([value],)]
        table = "SELECT prediction FROM dana_predict_table(%s, 't1', 'x')"
        assert models.execute(table, (reference,)).fetchall() == [(value,)]
        # the error of a prediction of x = 1 whose label is 0
        evaluated = "SELECT dana_evaluate(%s, query => 'TABLE t1') -> 'mae'"
        assert models.execute(evaluated, (reference,)).fetchall() == [(value,)]
        started = "SELECT loss FROM dana_train('sums', 't1', 'started', epochs => 1, warm_start_from => %s)"
        assert models.execute(started, (reference,)).rowcount == 1
        if role != "postgres":
            assert models.execute("SELECT \"values\" FROM dana_parameters('started')").fetchall() == [
                ([value / 2 + 1],)
            ]
    models.execute("DELETE FROM dana.model WHERE name = 'started'")


@pytest.mark.parametrize(
    ("role", "reference", "hint"),
    [
        ("bob", "ana.m", None),
        ("bob", '"Bob".m', None),
        ("bob", "m@3", None),
        ("bob", "BOB.m", None),
        ("bob", '"bob.m', None),
        ("bob", '"bob"m', None),
        ("bob", ".m", None),
        ("bob", "bob.", None),
        ("bob", '"".m', None),
        ("ana", "a b", None),
        ("helper", "m", '"ana.m"|"bob.m"'),
        ("postgres", "m", r'"(ana|bob|\\"Bob\\"|"Bob"|"a\.b")\.m"'),
        ("postgres", "a b", '"bob.a b"'),
    ],
)
def test_references_to_nothing(models: Session, role: str, reference: str, hint: str | None) -> None:
    """A namesake of somebody else's is named to those who may use it."""
    with acting(models, role), pytest.raises(errors.UndefinedObject) as raised:
        predicted(models, reference)
    assert raised.value.diag.message_primary == f'model "{reference}" does not exist'
    said = str(raised.value.diag.message_hint)
    assert re.search(hint, said) if hint else "Perhaps" not in said


def test_a_dropped_role_is_no_hint(models: Session) -> None:
    models.execute('DROP OWNED BY "Bob"; DROP ROLE "Bob"')
    models.execute("DELETE FROM dana.model WHERE owner::text !~ '^[0-9]+$'")
    assert models.execute("SELECT count(*) FROM dana.model").fetchone() == (1,)
    with pytest.raises(errors.UndefinedObject) as raised:
        predicted(models, "m")
    assert "Perhaps" not in str(raised.value.diag.message_hint)


@pytest.mark.parametrize("role", ["postgres", "helper", "ana"])
def test_administration_by_reference(models: Session, role: str) -> None:
    """Of superusers, and of members of the owner's role; what others call so stays as it is."""
    before = models.execute("SELECT * FROM dana.model WHERE NOT (owner = 'ana'::regrole AND name IN ('m', 'n'))")
    others = before.fetchall()
    train(models, "ana", "m", 9)
    reference = "m" if role == "ana" else "ana.m"
    renamed = "n" if role == "ana" else "ana.n"
    with acting(models, role):
        for statement, value in (
            (f"dana_activate_model('{reference}', 1)", 3),
            (f"dana_activate_model('{reference}')", 9),
            (f"dana_rollback_model('{reference}')", 3),
            (f"dana_comment_model('{reference}', 'of ana')", 3),
            (f"dana_grant_model('{reference}', '\"a.b\"')", 3),
            (f"dana_drop_model('{reference}', 2)", 3),
        ):
            models.execute(f"SELECT {statement}")
            assert predicted(models, reference) == value, statement
        models.execute(f"SELECT dana_rename_model('{reference}', 'n')")
        assert predicted(models, renamed) == 3
        found = models.execute("SELECT version, comment, users::text FROM dana.model WHERE name = 'n'").fetchall()
        assert found == [(1, "of ana", '{"\\"a.b\\""}')]
    with acting(models, '"a.b"'):
        assert predicted(models, "ana.n") == 3
    with acting(models, role):
        models.execute(f"SELECT dana_revoke_model('{renamed}', '\"a.b\"')")
    with acting(models, '"a.b"'), pytest.raises(errors.UndefinedObject):
        predicted(models, "ana.n")
    with acting(models, role):
        assert models.execute(f"SELECT dana_drop_model('{renamed}')").fetchone() == (1,)
    after = models.execute("SELECT * FROM dana.model WHERE NOT (owner = 'ana'::regrole AND name IN ('m', 'n'))")
    assert after.fetchall() == others


def test_a_role_with_a_sign_of_versions(owners: Session) -> None:
    """Its models are administered by others as those of any role; a version has no name of its own there either."""
    role = '"ana@example.com"'
    train(owners, role, "m", 1)
    train(owners, role, "m", 2)
    for statement, value in (
        ("dana_rollback_model('{}')", 1),
        ("dana_activate_model('{}')", 2),
        ("dana_activate_model('{}', 1)", 1),
        ("dana_comment_model('{}', 'words')", 1),
        ("dana_grant_model('{}', 'bob')", 1),
        ("dana_revoke_model('{}', 'bob')", 1),
        ("dana_profile('{}', 't1')", 1),
        ("dana_drop_model('{}', 2)", 1),
        ("dana_rename_model('{}', 'm')", None),
    ):
        call = f"SELECT {statement}"
        if value is not None:
            owners.execute(call.format(f"{role}.m"))  # type: ignore[arg-type]
            assert predicted(owners, f"{role}.m") == value, statement
        for versioned in (f"{role}.m@1", "m@1"):
            with pytest.raises(errors.InvalidName):
                owners.execute(call.format(versioned))  # type: ignore[arg-type]
    owners.execute(f"SELECT dana_rename_model('{role}.m', 'n')")
    assert predicted(owners, f"{role}.n@1") == 1
    assert owners.execute(f"SELECT dana_drop_model('{role}.n')").fetchone() == (1,)


def whole(error: psycopg.Error, name: str) -> dict[str, str | None]:
    """All that an error tells, with the name that was asked for as NAME."""
    told = ("sqlstate", "message_primary", "message_detail", "message_hint", "context", "schema_name", "table_name")
    told += ("column_name", "datatype_name", "constraint_name", "internal_query", "source_function", "source_line")
    return {key: (value := getattr(error.diag, key)) and value.replace(name, "NAME") for key in told}


MODEL_CALLS = (
    "dana.dana_find_model('{}')",
    "dana_predict('{}', 1)",
    "dana_predict_table('{}', 't1')",
    "dana_predict_table('{}', 'empty')",
    "dana_parameters('{}')",
    "dana_export_model('{}')",
    "dana_evaluate('{}')",
    "dana_evaluate('{}', 't1')",
    "dana_train('sums', 't1', warm_start_from => '{}')",
    "dana.sums('t1', '{{\"warm_start_from\": \"{}\"}}')",
    "dana_cross_validate('sums', 't1', training => '{{\"warm_start_from\": \"{}\"}}')",
    "dana_drop_model('{}')",
    "dana_drop_model('{}', 1)",
    "dana_activate_model('{}', 1)",
    "dana_rollback_model('{}')",
    "dana_profile('{}')",
    "dana_profile('{}', 't1')",
    "dana_rename_model('{}', 'other')",
    "dana_comment_model('{}', 'words')",
    "dana_grant_model('{}', 'bob')",
    "dana_revoke_model('{}', 'bob')",
)


@pytest.mark.parametrize("call", MODEL_CALLS)
@pytest.mark.parametrize(
    ("hidden", "absent"), [("ana.secret", "ana.nothing"), ("secret", "nothing"), ("ana.secret", "noone.secret")]
)
def test_a_hidden_model_is_as_one_that_does_not_exist(owners: Session, call: str, hidden: str, absent: str) -> None:
    train(owners, "ana", "secret", 1)
    owners.execute("CREATE TABLE empty (x real); GRANT SELECT ON empty TO bob")
    told = []
    with acting(owners, "bob"):
        for name in (hidden, absent):
            with pytest.raises(errors.UndefinedObject) as raised:
                owners.execute(f"SELECT * FROM {call.format(name)}")  # type: ignore[arg-type]
            told.append(whole(raised.value, name))
    assert told[0] == told[1]
    assert told[0]["message_primary"] == 'model "NAME" does not exist'


RULE_CALLS = (
    "dana_train('{}', 't1')",
    "dana.dana_train_rule('{}', 't1', '{{}}')",
    "dana_train_groups('{}', 't1', '{{y}}')",
    "dana_cross_validate('{}', 't1')",
    "dana_search('{}', 't1', '[{{}}]')",
    "dana_explain('{}', 't1')",
    "dana.dana_trial('{}', 't1', '{{}}', 'true', NULL, NULL)",
    "dana_drop_rule('{}')",
    "dana_grant_rule('{}', 'bob')",
    "dana_grant_rule('{}')",
    "dana_revoke_rule('{}')",
)


@pytest.fixture
def secret(owners: Session) -> Iterator[Session]:
    """A rule of ana's that bob may not see."""
    with acting(owners, "ana"):
        owners.execute("SELECT dana_create_udf('secret', %s), dana_revoke_rule('secret')", (SUMS,))
    yield owners
    owners.execute("RESET ROLE; SELECT dana_drop_rule('secret')")


@pytest.mark.parametrize("call", RULE_CALLS)
def test_a_hidden_rule_is_as_one_that_does_not_exist(secret: Session, call: str) -> None:
    told = []
    with acting(secret, "bob"):
        for name in ("secret", "absent"):
            with pytest.raises(errors.UndefinedObject) as raised:
                secret.execute(f"SELECT * FROM {call.format(name)}")  # type: ignore[arg-type]
            told.append(whole(raised.value, name))
    assert told[0] == told[1]
    assert told[0]["message_primary"] == 'rule "NAME" does not exist'


def test_what_is_said_of_a_rule_s_name(secret: Session) -> None:
    """A name that is taken is taken, whosever it is; nothing else is said of it."""
    with acting(secret, "ana"):
        secret.execute("SELECT dana_create_udf('shown', %s)", (SUMS,))
    told = []
    with acting(secret, "bob"):
        for name in ("secret", "shown"):
            with pytest.raises(errors.DuplicateObject) as raised:
                secret.execute("SELECT dana_create_udf(%s, %s)", (name, SUMS))
            told.append(whole(raised.value, name))
        with pytest.raises(errors.UndefinedObject) as hidden:
            secret.execute("SELECT dana_train('secre', 't1')")
        with pytest.raises(errors.UndefinedObject) as shown:
            secret.execute("SELECT dana_train('show', 't1')")
        with pytest.raises(errors.UndefinedObject, match='rule "secret" does not exist'):
            secret.execute("SELECT dana.secret('t1')")
        job = secret.execute("""SELECT dana_start('dana_train', '{"rule": "secret", "source": "t1"}')""").fetchone()
        assert secret.execute("SELECT dana_wait(%s)", job).fetchone() == ("failed",)
        message = secret.execute("SELECT message FROM dana.job WHERE id = %s", job).fetchone()
    assert told[0] == told[1]
    assert message == ('rule "secret" does not exist',)
    assert "secret" not in str(hidden.value.diag.message_hint)
    assert "shown" in str(shown.value.diag.message_hint)
    with acting(secret, "ana"):
        secret.execute("SELECT dana_drop_rule('shown')")


def test_a_role_with_capitals_evaluates_its_own_model(models: Session) -> None:
    for role, value in (("bob", 1), ('"Bob"', 2)):
        with acting(models, role):
            models.execute("SELECT dana_profile('m')")
            assert models.execute(
                "SELECT dana_evaluate('m') -> 'mae', dana_evaluate('m', 't1') -> 'mae'"
            ).fetchone() == (
                float(value * value),
                float(value),
            )
