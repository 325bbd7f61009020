"""Who may do what: tables, rules, models, settings. Each line of the extension's promises to a DBA."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from tests.postgres.cluster import Cluster
from tests.postgres.conftest import Session

errors = psycopg.errors
Connect = Callable[[str], Session]


@pytest.fixture
def connect_as(cluster: Cluster, session: Session) -> Iterator[Connect]:
    """Sessions of alice and bob, who may use the extension, and of carol, who may not."""
    for role in ("alice", "bob", "carol"):
        session.execute(f"CREATE ROLE {role} LOGIN")
        session.execute(f"GRANT USAGE, CREATE ON SCHEMA test TO {role}")
    session.execute(
        "GRANT EXECUTE ON FUNCTION dana_create_udf, dana_drop_rule, dana_train, dana_drop_model TO alice, bob"
    )
    opened: list[Session] = []

    def connect(role: str) -> Session:
        opened.append(cluster.connect(role))
        opened[-1].execute("SET search_path = test, public")
        return opened[-1]

    yield connect
    for each in opened:
        each.close()
    session.execute("DROP OWNED BY alice, bob, carol CASCADE")
    session.execute("SELECT dana_drop_rule(name) FROM dana.rule")
    session.execute("DROP ROLE alice, bob, carol")


def trained(session: Session, table: str = "t", **named: Any) -> tuple[Any, ...]:
    more = "".join(f", {name} => %({name})s" for name in named)
    row = session.execute(f"SELECT model, version FROM dana_train('r', '{table}'{more})", named).fetchone()
    assert row is not None
    return tuple(row)


def test_execute_is_granted_not_given(connect_as: Connect, session: Session) -> None:
    session.execute("CREATE TABLE t AS SELECT 1 AS a")
    session.execute("GRANT SELECT ON t TO carol")
    session.execute("SELECT dana_create_udf('r', '{}')")
    carol = connect_as("carol")
    calls = (
        "dana_train('r', 't')",
        "dana_create_udf('s', '{}')",
        "dana_drop_rule('r')",
        "dana_drop_model('r')",
        "dana.r('t')",
        "dana.dana_train_rule('r', 't', '{}')",
        "dana.dana_trial('r', 't', '{}', 'true', NULL, NULL)",
    )
    for call in calls:
        with pytest.raises(errors.InsufficientPrivilege, match="permission denied for function"):
            carol.execute(f"SELECT {call}")


def test_select_on_the_whole_table(connect_as: Connect, session: Session) -> None:
    session.execute("CREATE TABLE t AS SELECT 1 AS a, 2 AS secret")
    session.execute("SELECT dana_create_udf('r', '{}')")
    alice = connect_as("alice")
    with pytest.raises(errors.InsufficientPrivilege, match=r"permission denied for table t\b"):
        trained(alice)
    session.execute("GRANT SELECT (a) ON t TO alice")
    with pytest.raises(errors.InsufficientPrivilege) as raised:
        trained(alice)
    assert "not on some of its columns" in (raised.value.diag.message_hint or "")
    session.execute("GRANT SELECT ON t TO alice")
    assert trained(alice) == ("r", 1)


def test_row_level_security(connect_as: Connect, session: Session) -> None:
    session.execute("CREATE TABLE t AS SELECT 1 AS a")
    session.execute("GRANT SELECT ON t TO alice")
    session.execute("ALTER TABLE t ENABLE ROW LEVEL SECURITY")
    session.execute("SELECT dana_create_udf('r', '{}')")
    alice = connect_as("alice")
    with pytest.raises(errors.InsufficientPrivilege, match="row-level security for user alice"):
        trained(alice)
    alice.execute("SET row_security = off")
    with pytest.raises(errors.InsufficientPrivilege, match="row-level security"):
        trained(alice)
    assert trained(session) == ("r", 1), "the owner's own table has none for the owner"
    session.execute("ALTER ROLE alice BYPASSRLS")
    assert trained(alice, model="mine") == ("mine", 1)


def test_rules_belong_to_their_owner(connect_as: Connect, session: Session) -> None:
    alice, bob = connect_as("alice"), connect_as("bob")
    alice.execute("CREATE TABLE t AS SELECT 1 AS a")
    alice.execute("SELECT dana_create_udf('r', '{}')")
    with pytest.raises(errors.DuplicateObject, match='the name "r" is in use for another rule'):
        bob.execute("SELECT dana_create_udf('r', '{}')")
    with pytest.raises(errors.InsufficientPrivilege, match='must be owner of rule "r"'):
        bob.execute("SELECT dana_drop_rule('r')")
    with pytest.raises(errors.InsufficientPrivilege):
        alice.execute("CREATE OR REPLACE FUNCTION dana.r(regclass) RETURNS int LANGUAGE sql AS 'SELECT 1'")
    with pytest.raises(errors.InsufficientPrivilege):
        alice.execute("ALTER FUNCTION dana.r OWNER TO alice")
    assert bob.execute("SELECT name, owner::text FROM dana.rule").fetchall() == [("r", "alice")], "rules are public"
    session.execute("GRANT alice TO bob")
    bob.execute("SELECT dana_create_udf('r', '{\"epochs\": 2}')")
    assert alice.execute("SELECT owner::text FROM dana.rule").fetchone() == ("bob",), "whose text it is"
    session.execute("SELECT dana_drop_rule('r')")


def test_who_is_second_to_take_a_name_does_not_have_it(connect_as: Connect, session: Session) -> None:
    """Two roles make a rule of one name at once: the second waits for the first, and hears that the name is in use."""
    alice, bob = connect_as("alice"), connect_as("bob")
    alice.execute("BEGIN; SELECT dana_create_udf('r', '{}')")
    with ThreadPoolExecutor() as pool:
        second = pool.submit(bob.execute, "SELECT dana_create_udf('r', '{\"epochs\": 2}')")
        waiting = "SELECT FROM pg_stat_activity WHERE pid = %s AND wait_event_type = 'Lock'"
        deadline = time.monotonic() + 20
        while not session.execute(waiting, (bob.info.backend_pid,)).rowcount:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        alice.execute("COMMIT")
        with pytest.raises(errors.DuplicateObject, match='the name "r" is in use for another rule'):
            second.result(20)
    assert session.execute("SELECT owner::text, text FROM dana.rule").fetchall() == [("alice", "{}")]


def test_rules_are_granted_and_taken_back(connect_as: Connect, session: Session) -> None:
    """A rule is everybody's until its owner says otherwise; then its text, too, is only for those who may train it."""
    session.execute("GRANT EXECUTE ON FUNCTION dana_grant_rule, dana_revoke_rule, dana_explain TO alice, bob")
    alice, bob, carol = connect_as("alice"), connect_as("bob"), connect_as("carol")
    session.execute("CREATE TABLE t AS SELECT 1 AS a")
    session.execute("GRANT SELECT ON t TO alice, bob")
    alice.execute("SELECT dana_create_udf('r', '{}')")

    def sees(who: Session) -> bool:
        return who.execute("SELECT text FROM dana.rule WHERE name = 'r'").rowcount == 1

    assert trained(bob) == ("r", 1)
    for call in ("dana_grant_rule('r', 'bob')", "dana_revoke_rule('r')", "dana_revoke_rule('r', 'alice')"):
        with pytest.raises(errors.InsufficientPrivilege, match='must be owner of rule "r"'):
            bob.execute(f"SELECT {call}")
        with pytest.raises(errors.InsufficientPrivilege, match="permission denied for function"):
            carol.execute(f"SELECT {call}")
    alice.execute("SELECT dana_revoke_rule('r')")
    assert (sees(alice), sees(bob), sees(carol), sees(session)) == (True, False, False, True)
    for statement in (
        "SELECT dana_train('r', 't', 'm')",
        "SELECT dana.r('t')",
        "SELECT * FROM dana_explain('r', 't')",
    ):
        with pytest.raises(errors.UndefinedObject, match='rule "r" does not exist'):
            bob.execute(statement)
    with pytest.raises(errors.DuplicateObject, match='the name "r" is in use for another rule'):
        bob.execute("SELECT dana_create_udf('r', '{}')")
    assert trained(alice, model="mine") == ("mine", 1)
    alice.execute("SELECT dana_grant_rule('r', 'bob'), dana_grant_rule('r', 'bob')")
    assert (sees(bob), sees(carol)) == (True, False)
    assert trained(bob) == ("r", 2)
    alice.execute("SELECT dana_create_udf('r', '{\"epochs\": 2}')")
    assert (sees(bob), sees(carol)) == (True, False), "a rule that is replaced keeps its users"
    alice.execute("SELECT dana_revoke_rule('r', 'bob')")
    with pytest.raises(errors.UndefinedObject):
        trained(bob)
    alice.execute("SELECT dana_grant_rule('r')")
    assert sees(carol)
    assert trained(bob) == ("r", 3)
    with pytest.raises(errors.UndefinedObject, match='rule "s" does not exist'):
        alice.execute("SELECT dana_grant_rule('s')")


def test_the_rule_that_was_meant_is_one_that_may_be_seen(connect_as: Connect, session: Session) -> None:
    session.execute("GRANT EXECUTE ON FUNCTION dana_revoke_rule TO alice")
    alice, bob = connect_as("alice"), connect_as("bob")
    for name in ("logistic", "linear", "linearR"):
        alice.execute("SELECT dana_create_udf(%s, '{}')", (name,))
    alice.execute("SELECT dana_revoke_rule('logistic')")
    session.execute("CREATE TABLE t AS SELECT 1 AS a; GRANT SELECT ON t TO alice, bob")
    lists = (
        "SELECT name FROM dana.rule lists the rules; dana_create_udf(name, text) makes one, "
        '"dana rules install" those that come along.'
    )
    for who, name, hint in (
        (alice, "logisitc", 'Perhaps you meant "logistic".'),
        (alice, "LINEARr", 'Perhaps you meant "linearR".'),
        (alice, "linera", 'Perhaps you meant "linear".'),
        (bob, "logisitc", lists),
        (alice, "kmeans", lists),
        (alice, "x" * 5000, lists),
    ):
        for call in ("dana_train(%s, 't')", "dana_drop_rule(%s)"):
            with pytest.raises(errors.UndefinedObject) as raised:
                who.execute(f"SELECT {call}", (name,))
            assert raised.value.diag.message_hint == hint


def test_models_belong_to_their_owner(connect_as: Connect, session: Session) -> None:
    alice, bob = connect_as("alice"), connect_as("bob")
    alice.execute("CREATE TABLE t AS SELECT 1 AS a")
    alice.execute("GRANT SELECT ON t TO bob")
    alice.execute("SELECT dana_create_udf('r', '{}')")
    trained(alice, model="m")
    for name in ("m", "alice.m", '"alice".m'):
        calls = ("dana_drop_model(%s)", "dana_drop_model(%s, 1)", "dana_predict(%s, 1.0)", "dana_parameters(%s, 1)")
        for call in calls:
            with pytest.raises(errors.UndefinedObject, match=r'model "\S*m(@1)?" does not exist') as caught:
                bob.execute(f"SELECT {call}", (name,))
            assert "alice" not in (caught.value.diag.message_hint or ""), "nobody is told of what he may not see"
    for table in ("model", "run", "epoch"):
        assert bob.execute(f"SELECT FROM dana.{table}").rowcount == 0
        assert alice.execute(f"SELECT FROM dana.{table}").rowcount == 1
    session.execute("GRANT alice TO bob")
    assert bob.execute("SELECT FROM dana.model").rowcount == 1
    assert trained(bob, model="m") == ("m", 1), "each role has names of its own"
    assert bob.execute("SELECT dana_drop_model('alice.m')").fetchone() == (1,)
    assert session.execute("SELECT owner::text FROM dana.model").fetchall() == [("bob",)]


def test_tables_are_written_by_functions_only(connect_as: Connect) -> None:
    alice = connect_as("alice")
    for statement in (
        "INSERT INTO dana.rule VALUES ('x', '{}', '{}', 'alice')",
        "UPDATE dana.rule SET text = ''",
        "DELETE FROM dana.model",
        "TRUNCATE dana.run",
        "INSERT INTO dana.epoch VALUES (1, 1, 1, 1, 1, 1, 1, 1, '{}')",
        "CREATE TABLE dana.mine (a int)",
    ):
        with pytest.raises(errors.InsufficientPrivilege):
            alice.execute(statement)
    more = """
        SELECT c.relname, a.privilege_type FROM pg_class AS c LEFT JOIN pg_attribute AS t ON t.attrelid = c.oid,
            aclexplode(c.relacl || t.attacl) AS a
        WHERE c.relnamespace = 'dana'::regnamespace AND a.grantee <> c.relowner AND a.privilege_type <> 'SELECT'
    """
    assert alice.execute(more).fetchall() == []


OPEN = ("rule", "model", "run", "epoch", "metric", "progress", "curve", "job", "checkpoint", "shard")
"""Tables and views that everybody may read; what rows are seen there, policies and views say."""


def test_default_privileges_open_nothing(connect_as: Connect, cluster: Cluster, session: Session) -> None:
    """What a superuser lets roles do with all that it makes is not meant for the extension's own tables."""
    session.execute("CREATE DATABASE fresh TEMPLATE template0")
    try:
        with cluster.connect(dbname="fresh") as fresh:
            for kind in ("TABLES", "SEQUENCES", "SCHEMAS"):
                fresh.execute(f"ALTER DEFAULT PRIVILEGES GRANT ALL ON {kind} TO PUBLIC, alice")
            fresh.execute("CREATE EXTENSION dana")
            given = """
                SELECT c.relname, a.grantee, a.privilege_type FROM pg_class AS c, aclexplode(c.relacl) AS a
                WHERE c.relnamespace = 'dana'::regnamespace AND a.grantee <> c.relowner
            """
            assert {*fresh.execute(given).fetchall()} == {(name, 0, "SELECT") for name in OPEN}
            schema = """
                SELECT a.grantee, a.privilege_type FROM pg_namespace AS n, aclexplode(n.nspacl) AS a
                WHERE n.nspname = 'dana' AND a.grantee <> n.nspowner
            """
            assert fresh.execute(schema).fetchall() == [(0, "USAGE")]
    finally:
        session.execute("DROP DATABASE fresh WITH (FORCE)")


def test_who_may_read_every_table_sees_no_rows(connect_as: Connect, session: Session) -> None:
    """Of other roles, in any table; a member of the owner's role, and whom a model was granted, see theirs."""
    alice, bob, carol = connect_as("alice"), connect_as("bob"), connect_as("carol")
    session.execute("GRANT pg_read_all_data TO bob, carol; GRANT EXECUTE ON FUNCTION dana_grant_model TO alice")
    alice.execute("CREATE TABLE t AS SELECT 1 AS a")
    alice.execute("SELECT dana_create_udf('r', '{}')")
    trained(alice)
    session.execute("INSERT INTO dana.weights SELECT owner, name, version, 1, '{1}' FROM dana.model")
    session.execute(
        "INSERT INTO dana.job_log (function, arguments, settings, limits, owner)"
        " VALUES ('dana_train', '{}', '{}', '{}', 'alice')"
    )
    session.execute("INSERT INTO dana.checkpoint VALUES ('alice'::regrole, 'r', 1, now(), '')")
    session.execute("UPDATE dana.rule SET public = false")
    # a map is for all who may read its table
    ours = "SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = 'dana'::regnamespace"
    ours += " AND relname <> 'shard'"
    tables = [name for (name,) in session.execute(ours)]

    def seen(who: Session) -> set[str]:
        return {name for name in tables if who.execute(f"SELECT FROM dana.{name}").rowcount}

    try:
        assert seen(session) == {*tables}
        assert seen(bob) == seen(carol) == set()
        alice.execute("SELECT dana_grant_model('r', 'carol')")
        assert seen(carol) == {"model", "weights"}
        session.execute("GRANT alice TO bob")
        assert seen(bob) == {*tables}
        with pytest.raises(errors.InsufficientPrivilege):
            alice.execute("SELECT FROM dana.job_log")
    finally:
        session.execute("DELETE FROM dana.job_log; DELETE FROM dana.checkpoint")


def test_own_operators_never_run_as_the_owner(connect_as: Connect, session: Session) -> None:
    """A user's "=" in front of pg_catalog must not be called by our statements, which run as a superuser."""
    alice = connect_as("alice")
    alice.execute("CREATE TABLE t AS SELECT 1 AS a")
    alice.execute("CREATE TABLE caught (who text)")
    alice.execute("GRANT INSERT ON caught TO PUBLIC")
    alice.execute(
        "CREATE FUNCTION trap(text, text) RETURNS boolean LANGUAGE plpgsql AS"
        " $$ BEGIN INSERT INTO test.caught VALUES (current_user); RETURN true; END $$"
    )
    alice.execute("CREATE OPERATOR test.= (LEFTARG = text, RIGHTARG = text, FUNCTION = test.trap)")
    alice.execute("CREATE FUNCTION test.max(int) RETURNS int LANGUAGE sql AS 'SELECT 1'")
    alice.execute("SET search_path = test, pg_catalog, public")
    alice.execute("SELECT dana_create_udf('r', '{}')")
    trained(alice)
    alice.execute("SELECT dana_drop_model('r')")
    alice.execute("SELECT dana_drop_rule('r')")
    assert session.execute("SELECT FROM caught").rowcount == 0


def test_evaluation_runs_no_text_of_another_role(session: Session, connect_as: Connect) -> None:
    """A model's filter and query are its owner's words; a superuser evaluates what he names himself."""
    alice = connect_as("alice")
    alice.execute("CREATE TABLE t AS SELECT g AS x, g % 2 AS y FROM generate_series(1, 4) g")
    alice.execute("CREATE TABLE caught (who text)")
    alice.execute("GRANT INSERT ON caught TO PUBLIC")
    alice.execute(
        "CREATE FUNCTION catch() RETURNS void LANGUAGE plpgsql AS"
        " $$ BEGIN INSERT INTO test.caught VALUES (current_user); END $$"
    )
    alice.execute(  # calls itself stable, as filters must be, and is not
        "CREATE FUNCTION trap(a int) RETURNS boolean LANGUAGE plpgsql STABLE AS"
        " $$ BEGIN IF current_user <> 'alice' THEN PERFORM test.catch(); END IF; RETURN true; END $$"
    )
    alice.execute("SELECT dana_create_udf('r', '{}')")
    alice.execute("""SELECT dana_create_udf('q', '{"rows": true}')""")
    alice.execute("SELECT dana_train('r', 't', 'filtered', filter => 'test.trap(x)')")
    alice.execute("SELECT dana_train('q', query => 'SELECT * FROM test.t WHERE test.trap(x)', model => 'queried')")
    for model in ("filtered", "queried"):
        with pytest.raises(errors.InsufficientPrivilege, match="with your rights"):
            session.execute("SELECT dana_evaluate(%s)", (f"alice.{model}",))
    assert session.execute("SELECT FROM caught").rowcount == 0


def test_the_socket_is_not_the_users_choice(connect_as: Connect, cluster: Cluster) -> None:
    """Neither after the library is loaded nor before, when the setting is only a placeholder."""
    alice = connect_as("alice")
    alice.execute("CREATE TABLE t AS SELECT 1 AS a")
    alice.execute("SELECT dana_create_udf('r', '{}')")
    for setting in ("dana.socket_path = '/tmp/evil.sock'", "dana.ring_pages = 16"):
        with pytest.raises(errors.InsufficientPrivilege):
            alice.execute(f"SET {setting}")
    fresh = connect_as("alice")
    fresh.execute("SET dana.socket_path = '/tmp/evil.sock'")
    trained(fresh)
    assert fresh.execute("SHOW dana.socket_path").fetchone() == (str(cluster.worker_socket),)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another account than the server")
def test_other_accounts_are_refused(cluster: Cluster, session: Session, rule: Callable[..., str]) -> None:
    """The backend refuses a process that runs as another user; the worker refuses such a client."""
    name = rule()
    session.execute("CREATE TABLE t AS SELECT 1 AS a")
    path = cluster.folder / "foreign.sock"
    with socket.socket(socket.AF_UNIX) as foreign:
        foreign.bind(str(path))
        path.chmod(0o777)
        foreign.listen(1)
        session.execute(f"SET dana.socket_path = '{path}'; SET statement_timeout = '10s'")
        with pytest.raises(errors.InsufficientPrivilege, match="runs as user 0, not as the server's user"):
            session.execute("SELECT * FROM dana_train(%s, 't')", (name,))
    path.unlink()
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(cluster.worker_socket))
        client.settimeout(10)
        assert client.recv(1) == b"", "hung up without a word"
    assert "rejected a connection of uid 0" in cluster.worker_log


def test_a_superuser_installs_it(connect_as: Connect, cluster: Cluster, session: Session) -> None:
    session.execute("CREATE DATABASE of_alice OWNER alice")
    try:
        with cluster.connect("alice", dbname="of_alice") as alice:
            for statement in (
                "CREATE EXTENSION dana",
                "CREATE FUNCTION mine(text, text) RETURNS void LANGUAGE c AS '$libdir/dana', 'dana_create_udf'",
            ):
                with pytest.raises(errors.InsufficientPrivilege):
                    alice.execute(statement)
    finally:
        session.execute("DROP DATABASE of_alice")
