"""What is seen of a training from outside: notices, wait events, the worker's log."""

from __future__ import annotations

import json
import re
import threading
import time

import psycopg
import pytest

from dana.cli import main
from dana.cli.entry import OK
from dana.server.embedded import EmbeddedServer
from tests.sql.conftest import Session


@pytest.fixture
def table(session: Session) -> str:
    session.execute("CREATE TABLE t AS SELECT i::real AS x, i % 2 AS y FROM generate_series(1, 1000) AS i")
    return "t"


@pytest.mark.parametrize(("level", "count"), [("none", 0), ("run", 1), ("epoch", 4)])
def test_notices(session: Session, table: str, level: str, count: int) -> None:
    heard: list[str] = []
    session.execute("SET client_min_messages = notice")
    session.add_notice_handler(lambda notice: heard.append(str(notice.message_primary)))
    session.execute(f"SET dana.notices = {level}")  # type: ignore[arg-type]
    row = session.execute("SELECT loss, cycles FROM dana_train('sums', 't', epochs => 3)").fetchone()
    assert row is not None
    assert len(heard) == count
    if level == "epoch":
        for number, text in enumerate(heard[:3], 1):
            assert re.fullmatch(rf"epoch {number} of 3, loss 0\.5, 1000 rows, \d+ cycles, [\d.]+ ms", text)
    if count:
        expected = r'model "sums": rule "sums" on test\.t, 3 epochs, loss 0\.5, 1000 rows, 0 skipped'
        assert re.fullmatch(rf"{expected}, {row[1]} cycles, .* ms", heard[-1])


def test_notices_of_the_interpreter(session: Session, table: str) -> None:
    heard: list[str] = []
    session.execute("SET client_min_messages = notice")
    session.add_notice_handler(lambda notice: heard.append(str(notice.message_primary)))
    session.execute("SET dana.notices = epoch")
    session.execute("SELECT dana_train('sums', 't', epochs => 1, machine => 'interp')")
    assert re.fullmatch(r"epoch 1 of 1, loss 0\.5, 1000 rows, [\d.]+ ms", heard[0])


def test_the_setting_knows_its_values(session: Session) -> None:
    session.execute("LOAD 'dana'")
    with pytest.raises(psycopg.errors.InvalidParameterValue) as raised:
        session.execute("SET dana.notices = 'loud'")
    assert raised.value.diag.message_hint == "Available values: none, run, epoch."


def test_wait_events(session: Session, server: EmbeddedServer, table: str) -> None:
    with psycopg.connect(server.dsn, autocommit=True) as other:
        pid = other.info.backend_pid
        ended: list[BaseException] = []

        def train() -> None:
            try:
                other.execute("SELECT dana_train('sums', 'test.t', epochs => 100000, patience => 0)")
            except psycopg.errors.QueryCanceled as error:
                ended.append(error)

        thread = threading.Thread(target=train)
        thread.start()
        wanted = ("Extension", "DanaWorker" if server.major >= 17 else "Extension")
        deadline = time.monotonic() + 30
        seen = None
        while seen != wanted and time.monotonic() < deadline:
            seen = session.execute(
                "SELECT wait_event_type, wait_event FROM pg_stat_activity WHERE pid = %s", (pid,)
            ).fetchone()
        other.cancel()
        thread.join()
    assert seen == wanted
    assert ended


def log_lines(server: EmbeddedServer, session: Session, count: int) -> list[dict[str, object]]:
    """The last lines about runs, which the worker writes after its answer."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        found = re.findall(r"INFO run (.*)", server.worker_log.read_text(encoding="utf-8"))
        made = [dict(re.findall(r'(\w+)=("(?:[^"\\]|\\.)*"|[^ ]+)', line)) for line in found]
        runs = [{name: json.loads(value) for name, value in one.items()} for one in made]
        own = [one for one in runs if one["backend"] == session.info.backend_pid]
        if len(own) >= count:
            return own
        time.sleep(0.02)
    raise AssertionError(f"the log has {own}, not {count} lines of this session")


@pytest.mark.usefixtures("new_backend")
def test_one_line_a_run_in_the_workers_log(session: Session, server: EmbeddedServer, table: str) -> None:
    session.execute("SELECT dana_train('sums', 't', epochs => 2)")
    with pytest.raises(psycopg.errors.UndefinedColumn):
        session.execute("SELECT dana_train('sums', 't', label => 'none')")
    done, refused = log_lines(server, session, 2)
    seconds = done.pop("seconds")
    assert isinstance(seconds, float)
    assert done == {
        "backend": session.info.backend_pid,
        "caller": "postgres@postgres",
        "rule": "sums",
        "source": "test.t",
        "on": "sim",
        "epochs": 2,
        "tuples": 1000,
        "loss": 0.5,
        "outcome": "done",
    }
    assert "epochs" not in refused
    assert str(refused["outcome"]).startswith("42703 column 'none' of test.t does not exist")
    session.execute('CREATE TABLE "a\nrun backend=1" AS SELECT * FROM t')
    session.execute("SET statement_timeout = 300")
    with pytest.raises(psycopg.errors.QueryCanceled):
        session.execute("""SELECT dana_train('sums', '"a\nrun backend=1"', epochs => 100000, patience => 0)""")
    abandoned = log_lines(server, session, 3)[2]
    assert abandoned["outcome"] == "abandoned"
    assert abandoned["source"] == 'test."a\nrun backend=1"'


def test_top(
    session: Session, server: EmbeddedServer, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names are shortened where the terminal is narrow; numbers are not."""
    name = "a_table_with_a_name_that_no_terminal_of_eighty_columns_holds"
    session.execute(f"CREATE TABLE {name} AS SELECT i::real AS x, i % 2 AS y FROM generate_series(1, 100) AS i")  # type: ignore[arg-type]
    row = session.execute(f"SELECT run FROM dana_train('sums', '{name}', epochs => 2)").fetchone()  # type: ignore[arg-type]
    assert row is not None
    for width in (70, 80, 200):
        monkeypatch.setenv("COLUMNS", str(width))
        assert main(["top", "--once", "--dsn", server.dsn]) == OK
        shown = capsys.readouterr().out
        assert all(len(line) <= width for line in shown.splitlines())
        line = next(line for line in shown.splitlines() if line.split()[:1] == [str(row[0])])
        assert re.search(r" sim +2 +0\.5 +(▁+ +)?[\d.]+ m?s +\d\d:\d\d:\d\d *$", line)
        assert (f"test.{name}" in line) == (width == 200)
