"""Versions in use, names, comments, and who else may use a model; and a training seen from another session."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psycopg
import pytest

from dana.server.embedded import EmbeddedServer
from tests.sql.conftest import Session, weights

errors = psycopg.errors


@pytest.fixture
def versions(session: Session) -> Session:
    """Three versions of model `m`, which predict 1, 2 and 3 for a feature of 1."""
    for version in (1, 2, 3):
        session.execute(f"CREATE TABLE t{version} AS SELECT {version}::real AS x, 0::real AS y")
        weights(session, f"'t{version}', 'm', epochs => 1")
    return session


@pytest.fixture
def friend(versions: Session) -> Iterator[str]:
    versions.execute("DROP ROLE IF EXISTS friend")
    versions.execute("CREATE ROLE friend")
    yield "friend"
    versions.execute("RESET ROLE")
    versions.execute("DROP ROLE friend")


def predicted(session: Session, model: str = "m") -> float:
    row = session.execute("SELECT dana_predict(%s, 1)", (model,)).fetchone()
    assert row is not None
    return float(row[0])


def test_what_a_dropped_role_leaves_is_given_to_another(versions: Session, friend: str) -> None:
    """The statements of docs/operating.md."""
    operating = Path(__file__).parents[2] / "docs" / "operating.md"
    given = re.findall(r"^UPDATE dana\..*'ana'.*;$", operating.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(given) == 4
    versions.execute("CREATE ROLE leaver")
    for table in ("model", "rule", "run"):
        versions.execute(f"UPDATE dana.{table} SET owner = 'leaver'")
    versions.execute("DROP ROLE leaver")
    versions.execute("SET ROLE friend")
    with pytest.raises(errors.UndefinedObject, match='model "m" does not exist'):
        predicted(versions)
    versions.execute("RESET ROLE")
    for statement in given:
        changed = versions.execute(statement.replace("'ana'", f"'{friend}'")).rowcount
        assert changed > 0 or "job_log" in statement  # nobody started a job here
    versions.execute("SET ROLE friend")
    assert predicted(versions) == 3
    assert versions.execute("SELECT count(*) > 2 FROM dana.run").fetchone() == (True,)
    versions.execute("RESET ROLE")
    for table in ("model", "rule", "run"):
        versions.execute(f"UPDATE dana.{table} SET owner = 'postgres'")


def test_version_in_use(versions: Session) -> None:
    assert predicted(versions) == 3
    assert versions.execute("SELECT dana_rollback_model('m')").fetchone() == (2,)
    assert predicted(versions) == 2
    assert versions.execute("SELECT \"values\" FROM dana_parameters('m')").fetchone() == ([2.0],)
    weights(versions, "'t1', 'm', epochs => 1")
    assert predicted(versions) == 2, "a chosen version stays in use"
    assert versions.execute("SELECT dana_rollback_model('m')").fetchone() == (1,)
    with pytest.raises(errors.ObjectNotInPrerequisiteState, match="no version before"):
        versions.execute("SELECT dana_rollback_model('m')")
    versions.execute("SELECT dana_activate_model('m', 3)")
    assert predicted(versions) == 3
    with pytest.raises(errors.UndefinedObject, match='model "m" has no version 9'):
        versions.execute("SELECT dana_activate_model('m', 9)")
    assert predicted(versions) == 3
    versions.execute("SELECT dana_activate_model('m')")
    assert predicted(versions) == 1
    assert predicted(versions, "m@2") == 2


CALLS = (
    "dana.dana_find_model(%s)",
    "dana_predict(%s, 1)",
    "dana_predict_table(%s, 't1')",
    "dana_evaluate(%s, 't1')",
    "dana_export_model(%s)",
    "dana_parameters(%s)",
    "dana_train('sums', 't1', 'other', warm_start_from => %s)",
)


@pytest.mark.parametrize("function", CALLS)
def test_every_function_reads_a_reference_alike(versions: Session, function: str) -> None:
    """A name stands for the version in use, name@version for that one, and nothing else for any."""
    versions.execute("SELECT dana_activate_model('m', 2)")
    call = f"SELECT {function}"
    for reference in ("m@01", "m@0", "m@-1", "m@+2", "m@ 2", "m@x", "m@", "m@2@2", "m@99999999999", "m@2147483648"):
        with pytest.raises(errors.InvalidName, match="is not a version of a model"):
            versions.execute(call, (reference,))
    for reference in ("m@4", "m@999999999", "none", "none@1", ""):
        with pytest.raises(errors.UndefinedObject, match=f'model "{reference}" does not exist'):
            versions.execute(call, (reference,))
    named, active = (versions.execute(call, (reference,)).fetchall() for reference in ("m", "m@2"))
    assert function.startswith("dana_train(") or named == active


def test_without_any_model(session: Session) -> None:
    """A table that is known to be empty is not looked at, nor what would be compared with its rows."""
    assert session.execute("SELECT count(*) FROM dana.model").fetchone() == (0,)
    session.execute("VACUUM ANALYZE dana.model")
    session.execute("CREATE TABLE t AS SELECT 1::real AS x, 1::real AS y")
    calls = (
        "dana_predict_table('m', 't')",
        "dana_evaluate('m', 't')",
        "dana_export_model('m')",
        "dana_parameters('m')",
        "dana_rollback_model('m')",
        "dana_predict_table('m', 'empty')",
    )
    session.execute("CREATE TABLE empty (x real)")
    for call in calls:
        with pytest.raises(errors.UndefinedObject, match='model "m" does not exist'):
            session.execute(f"SELECT * FROM {call}")


def test_names_and_comments(versions: Session) -> None:
    versions.execute("SELECT dana_rename_model('m', 'n')")
    assert predicted(versions, "n") == 3
    for bad, error in (("", errors.InvalidName), ("a@b", errors.InvalidName), ("n", errors.DuplicateObject)):
        with pytest.raises(error):
            versions.execute("SELECT dana_rename_model('n', %s)", (bad,))
    with pytest.raises(errors.UndefinedObject, match='model "m" does not exist'):
        versions.execute("SELECT dana_rename_model('m', 'o')")
    versions.execute("SELECT dana_comment_model('n', 'for the doctors', 2)")
    found = versions.execute("SELECT version, comment FROM dana.model WHERE name = 'n' ORDER BY 1").fetchall()
    assert found == [(1, None), (2, "for the doctors"), (3, None)]
    versions.execute("SELECT dana_comment_model('n', NULL)")
    assert versions.execute("SELECT FROM dana.model WHERE comment IS NOT NULL").rowcount == 0


def test_use_is_granted_and_taken_back(versions: Session, friend: str) -> None:
    def as_friend() -> float:
        versions.execute("SET ROLE friend")
        try:
            return predicted(versions, "postgres.m")
        finally:
            versions.execute("RESET ROLE")

    with pytest.raises(errors.UndefinedObject, match=r'model "postgres\.m" does not exist'):
        as_friend()
    versions.execute("SELECT dana_grant_model('m', 'friend')")
    versions.execute("SELECT dana_grant_model('m', 'friend')")
    assert as_friend() == 3
    versions.execute("SET ROLE friend")
    assert versions.execute("SELECT users::text FROM dana.model").fetchall() == [("{friend}",)] * 3
    with pytest.raises(errors.InsufficientPrivilege):
        versions.execute("SELECT dana_drop_model('postgres.m')")
    versions.execute("RESET ROLE")
    weights(versions, "'t2', 'm', epochs => 1")
    assert as_friend() == 2, "a later version is theirs to use too"
    versions.execute("SELECT dana_revoke_model('m', 'friend')")
    with pytest.raises(errors.UndefinedObject):
        as_friend()


def test_only_the_owner_administers(versions: Session, friend: str) -> None:
    functions = {
        "dana_drop_model": "'postgres.m'",
        "dana_activate_model": "'postgres.m', 1",
        "dana_rollback_model": "'postgres.m'",
        "dana_rename_model": "'postgres.m', 'o'",
        "dana_comment_model": "'postgres.m', 'x'",
        "dana_grant_model": "'postgres.m', 'friend'",
        "dana_revoke_model": "'postgres.m', 'friend'",
    }
    steps = (
        ("SELECT", errors.InsufficientPrivilege, "permission denied for function"),
        (f"GRANT EXECUTE ON FUNCTION {', '.join(functions)} TO friend", errors.UndefinedObject, "does not exist"),
        (
            "SELECT dana_grant_model('m', 'friend')",
            errors.InsufficientPrivilege,
            r'must be owner of model "postgres\.m"',
        ),
    )
    for step, error, message in steps:
        versions.execute(step)
        for function, arguments in functions.items():
            versions.execute("SET ROLE friend")
            with pytest.raises(error, match=message):
                versions.execute(f"SELECT {function}({arguments})")
            versions.execute("RESET ROLE")
    versions.execute("DROP OWNED BY friend")
    assert predicted(versions) == 3


def test_progress(session: Session, server: EmbeddedServer) -> None:
    session.execute("CREATE TABLE t AS SELECT i::real AS x, 1::real AS y FROM generate_series(1, 20000) i")
    assert session.execute("SELECT * FROM dana.progress").fetchall() == []
    with psycopg.connect(server.dsn, autocommit=True) as other:
        other.execute("SET search_path = test, public")
        pid = other.info.backend_pid
        failed: list[BaseException] = []

        def train() -> None:
            try:
                other.execute("SELECT dana_train('sums', 't', epochs => 100000, patience => 0)")
            except psycopg.errors.QueryCanceled as error:
                failed.append(error)

        thread = threading.Thread(target=train)
        thread.start()
        seen: list[tuple[object, ...]] = []
        while len({row[3] for row in seen}) < 5:
            row = session.execute(
                "SELECT pid, role, source::text, epoch, epochs, phase, cycles, loss, seconds_left FROM dana.progress"
            ).fetchone()
            if row is not None and row[3] > 0:
                seen.append(row)
        session.execute("SET ROLE pg_signal_backend")
        hidden = session.execute("SELECT * FROM dana.progress").fetchall()
        session.execute("SET ROLE pg_monitor")
        shown = session.execute("SELECT pid FROM dana.progress").fetchall()
        session.execute("RESET ROLE")
        other.cancel()
        thread.join()
    assert (hidden, shown) == ([], [(pid,)]), "other roles' trainings are for pg_read_all_stats"
    assert failed
    assert {row[:3] for row in seen} == {(pid, "postgres", "t")}
    epochs = [int(str(row[3])) for row in seen]
    assert epochs == sorted(epochs)
    last = seen[-1]
    assert last[4] == 100000
    assert last[5] in ("streaming", "training")
    assert int(str(last[6])) > 0
    assert last[7] == 1.0
    assert float(str(last[8])) > 0
    assert session.execute("SELECT * FROM dana.progress").fetchall() == []


HOLD = """
CREATE SEQUENCE calls;
CREATE FUNCTION hold(real) RETURNS real STABLE LANGUAGE plpgsql AS $$
DECLARE
    number bigint := nextval('test.calls');
BEGIN
    PERFORM pg_advisory_lock_shared(number);
    PERFORM pg_advisory_unlock_shared(number);
    RETURN $1;
END $$
"""
"""A function whose n-th call waits while somebody else has lock n."""


def test_the_curve_as_it_goes(session: Session, server: EmbeddedServer) -> None:
    """Another session sees each epoch's loss when it ended; at the commit the rows of dana.epoch take their place."""
    rows = 10500  # each fills a page: half of `dana.max_memory` cannot keep them, so the second epoch reads them again
    session.execute("CREATE TABLE t (x real, y real, wide text STORAGE PLAIN)")
    session.execute(f"INSERT INTO t SELECT i, 1, repeat('x', 7000) FROM generate_series(1, {rows}) i".encode())
    session.execute(HOLD)
    columns = "epoch, loss, tuples, skipped, cycles, seconds"
    live = f"SELECT {columns}, run, model, source FROM dana.curve WHERE pid = %s ORDER BY epoch"
    session.execute("SELECT pg_advisory_lock(%s)", (rows + 1,))
    with psycopg.connect(server.dsn) as other:
        other.execute("SET search_path = test, public; SET dana.max_memory = '160MB'")
        pid = other.info.backend_pid
        results: list[object] = []
        call = (
            "SELECT run FROM dana_train('sums', 't', 'm', '{x}', 'y', filter => 'hold(x) > 0', shuffle => false, "
            "nonfinite => 'keep')"
        )
        thread = threading.Thread(target=lambda: results.append(other.execute(call).fetchone()))
        thread.start()
        # until the first row of the second epoch
        while not (looks := session.execute(live, (pid,)).fetchall()):
            assert thread.is_alive()
        session.execute("BEGIN")
        assert session.execute(live, (pid,)).fetchall() == looks
        session.execute("SELECT pg_advisory_unlock(%s)", (rows + 1,))
        thread.join()
        run = results[0]
        assert session.execute(live, (pid,)).fetchall() == [], "the training is over, and its rows are not committed"
        assert session.execute("SELECT count(*) FROM dana.epoch WHERE run = %s", run).fetchone() == (0,)
        other.commit()
        # in the same transaction of the reader, to which the other session's state is still that of the training
        assert session.execute(live, (pid,)).fetchall() == []
        kept = session.execute(f"SELECT {columns} FROM dana.epoch WHERE run = %s ORDER BY epoch", run).fetchall()
        curve = f"SELECT {columns} FROM dana.curve WHERE run = %s ORDER BY epoch"
        assert session.execute(curve, run).fetchall() == kept
        session.execute("COMMIT")
    assert looks == [(*kept[0], None, None, "t")]
    assert [row[0] for row in kept] == [1, 2]


def test_the_last_epochs_of_a_long_curve(session: Session, server: EmbeddedServer) -> None:
    """The last 4,096 are shown, whole and in order; none of a training that was cancelled."""
    session.execute("CREATE TABLE t AS SELECT 1::real AS x, 1::real AS y")
    live = "SELECT epoch, loss, tuples, skipped, source FROM dana.curve WHERE pid = %s ORDER BY epoch"
    with psycopg.connect(server.dsn, autocommit=True) as other:
        other.execute("SET search_path = test, public")
        pid = other.info.backend_pid
        call = "SELECT dana_train('sums', 't', epochs => 100000, patience => 0)"
        thread = threading.Thread(target=lambda: until_cancelled(other, call))
        thread.start()
        lengths: set[int] = set()
        while 4096 not in lengths:
            assert thread.is_alive()
            rows = session.execute(live, (pid,)).fetchall()
            first = rows[0][0] if rows else 1
            assert rows == [(first + k, 1.0, 1, 0, "t") for k in range(len(rows))]
            assert first == 1 or len(rows) > 2048
            lengths.add(len(rows))
        session.execute("BEGIN")
        assert session.execute(live, (pid,)).fetchall()
        other.cancel()
        thread.join()
        assert session.execute(live, (pid,)).fetchall() == []
        session.execute("COMMIT")
    assert max(lengths) == 4096


def test_curves_are_their_owner_s(session: Session, server: EmbeddedServer) -> None:
    session.execute("CREATE TABLE t AS SELECT 1::real AS x, 1::real AS y")
    session.execute("TRUNCATE dana.run CASCADE")
    session.execute("SELECT dana_train('sums', 't')")
    count = "SELECT count(*) FROM dana.curve"
    assert session.execute(f"{count} WHERE model = 'sums'").fetchone() == (2,)
    with psycopg.connect(server.dsn, autocommit=True) as other:
        other.execute("SET search_path = test, public")
        thread = threading.Thread(
            target=lambda: until_cancelled(other, "SELECT dana_train('sums', 't', epochs => 100000, patience => 0)")
        )
        thread.start()
        while session.execute(f"{count} WHERE pid = %s", (other.info.backend_pid,)).fetchone() == (0,):
            assert thread.is_alive()
        session.execute("SET ROLE pg_signal_backend")
        hidden = session.execute(count).fetchone()
        session.execute("SET ROLE pg_monitor")
        watched = session.execute(f"{count} WHERE pid = %s", (other.info.backend_pid,)).fetchone()
        session.execute("RESET ROLE")
        other.cancel()
        thread.join()
    assert hidden == (0,)
    assert watched is not None
    assert watched[0] > 0, "pg_read_all_stats"
    assert session.execute(f"{count} WHERE pid IS NOT NULL").fetchone() == (0,)


def until_cancelled(session: Session, statement: str) -> None:
    with suppress(errors.QueryCanceled):
        session.execute(statement)
