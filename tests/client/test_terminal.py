"""Names that would act on a terminal are shown there, whichever command prints them."""

from __future__ import annotations

import csv
import os
import re
import subprocess
import sys
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql
from rich.console import Console
from rich.status import Status
from rich.text import Text

from dana.cli import entry, main, search
from dana.cli.entry import DATABASE, OK, USAGE
from dana.client.connection import Connection
from dana.errors import SetupError, UsageError
from dana.printable import printable
from dana.report.history import read_run
from dana.report.machine import machine_of
from dana.report.page import render
from dana.server.places import PAPER
from dana.session.calls import SearchPoint
from dana.session.notices import ServerNotice, repeat

TITLE = "\x1b]0;owned\x07"
NAME = f"m{TITLE}\x9b2J\u202eevil\u2066\u200f\x7f\u2028\rx\tz\n[b]"
SHOWN = r"m\x1b]0;owned\x07\x9b2J\u202eevil\u2066\u200f\x7f\u2028\rx\tz\n[b]"


def test_what_is_shown() -> None:
    assert printable(NAME) == SHOWN
    assert printable(NAME, lines=True) == SHOWN.replace(r"\t", "\t").replace(r"\n", "\n")
    assert printable("a\n\tb\udc80", lines=True) == "a\n\tb\\udc80"
    for one in ("", "plain", "Größe 大きさ", "a [bold]name[/bold] \\x1b"):
        assert printable(one) == one


def acts(text: str) -> set[str]:
    """Characters of a text that do something to a terminal, but for those that messages have."""
    return {one for one in text if unicodedata.category(one) in ("Cc", "Cf", "Zl", "Zp") and one not in "\n\t"}


def test_texts_of_files_and_of_errors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good, wrong = tmp_path / f"good{TITLE}.py", tmp_path / f"wrong{TITLE}.py"
    good.write_text((PAPER / "linear.py").read_text())
    wrong.write_text("nothing")
    point = SearchPoint(rank=1, hyper={NAME: 1.0}, score=None, deviation=None, metrics=None, error=NAME, round=1)
    says: list[Callable[[], object]] = [
        lambda: main(["check", str(good)]),
        lambda: main(["check", str(wrong)]),
        lambda: Console(width=300).print(search._table([point], rounds=True)),
        lambda: entry._show_warning(UserWarning(NAME)),
        lambda: entry._report(RuntimeError(NAME)),
    ]
    for say in says:
        say()
        said = capsys.readouterr()
        assert acts(said.out + said.err) == set()
        assert SHOWN[1:11] in said.out + said.err


def test_notices_while_it_trains(session: psycopg.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []
    monkeypatch.setattr("rich.console.Console.is_terminal", True)
    monkeypatch.setattr("rich.status.Status.update", lambda _self, text: shown.append(str(text)))
    session.execute(
        "CREATE FUNCTION pg_temp.says(real) RETURNS real LANGUAGE plpgsql AS "
        f"$$ BEGIN RAISE NOTICE '%', {sql.quote(NAME)}; RETURN $1; END $$"
    )
    session.execute("SET client_min_messages = notice")
    query = "SELECT pg_temp.says(a) AS a, y FROM shown"
    Connection(session).train("shown", query=query, label="y", model=NAME, progress=True)
    assert any(SHOWN[:20] in one for one in shown)
    assert acts("".join(shown)) == set()


def test_what_trains_is_named_in_the_progress_line(
    session: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[str] = []
    begin = Status.__init__

    def begins(self: Status, text: Text, **more: Any) -> None:
        shown.append(str(text))
        begin(self, text, **more)

    monkeypatch.setattr("rich.console.Console.is_terminal", True)
    monkeypatch.setattr("rich.status.Status.__init__", begins)
    monkeypatch.setattr("rich.status.Status.update", lambda _self, text: shown.append(str(text)))
    table = sql.Identifier(NAME)
    session.execute(sql.SQL("CREATE TABLE {} AS SELECT * FROM shown").format(table))
    try:
        Connection(session).train("shown", table.as_string(session), label="y", model=NAME, progress=True)
    finally:
        session.execute(sql.SQL("DROP TABLE {}").format(table))
    assert shown
    assert all(SHOWN in one for one in shown)
    assert acts("".join(shown)) == set()


def test_texts_that_a_spreadsheet_would_run(
    pg_uri: str, session: psycopg.Connection, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Data goes through CSV as it is, with a warning; for a spreadsheet there is an option."""
    Connection(session).train("shown", "shown", label="y", model=NAME)
    texts = ['=HYPERLINK("http://x";"y")', "@SUM(A1)", "+1 (555)", "-a", "\t=1", "\uff1d1", "-1.5e3", "plain", "a=b"]
    session.execute('DROP TABLE IF EXISTS texts; CREATE TABLE texts ("=t" text, a real, n integer)')
    try:
        for text in texts:
            session.execute("INSERT INTO texts VALUES (%s, 1, -7)", (text,))
        read = {}
        for options in ([], ["--spreadsheet"]):
            file = tmp_path / "made.csv"
            columns = ["predict", NAME, "--source", "texts", "--columns", "=t,n", "-o", str(file), "--dsn", pg_uri]
            assert main([*columns, *options]) == OK
            said = capsys.readouterr().err
            assert ("warning: 7 of the texts begin like formulas" in said) == (not options)
            with file.open(newline="") as rows:
                read[bool(options)] = list(csv.reader(rows))
        run = [sys.executable, "-c", "import sys; from dana.cli import main; sys.exit(main(sys.argv[1:]))", *columns]
        del run[run.index("-o") : run.index("--dsn")]
        piped = subprocess.run(run, capture_output=True, check=True, env={**os.environ, "PYTHONIOENCODING": "ascii"})
        assert list(csv.reader(piped.stdout.decode().split("\n")))[:-1] == read[False]
    finally:
        session.execute("DROP TABLE texts")
    assert [row[:2] for row in read[False]] == [["=t", "n"], *([text, "-7"] for text in texts)]
    safe = [f"'{text}" for text in texts[:6]] + texts[6:]
    assert [row[:2] for row in read[True]] == [["'=t", "n"], *([text, "-7"] for text in safe)]


def test_errors_and_warnings_of_the_client() -> None:
    for error in (UsageError(NAME, hint=NAME), SetupError(NAME)):
        assert acts(str(error)) == set()
    with pytest.warns(ServerNotice) as said:
        repeat([f"NOTICE: {NAME}"])
    assert acts(str(said[0].message)) == set()


def test_arguments_that_are_quoted(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["models", "a", NAME])
    assert acts(capsys.readouterr().err) == set()


@pytest.mark.parametrize("file", sorted(Path(entry.__file__).parent.glob("*.py")), ids=lambda file: file.name)
def test_the_command_line_prints_by_one_function(file: Path) -> None:
    """`dana.session.terminal.say`; what goes to rich has no markup but its own."""
    assert not re.search(r"(?<![\w.])print\(", file.read_text())


@pytest.fixture
def session(pg_uri: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(pg_uri, autocommit=True) as session:
        session.execute("SET client_min_messages = warning")
        session.execute("CREATE TABLE shown AS SELECT random()::real a, random()::real y FROM generate_series(1, 50)")
        session.execute("SELECT dana_create_udf('shown', %s)", ((PAPER / "linear.py").read_text(),))
        yield session
        session.execute("DROP TABLE shown; SELECT dana_drop_rule('shown')")
        session.execute("SELECT dana_drop_model(%s)", (NAME,))


def test_no_command_sends_a_name_as_it_is(
    pg_uri: str,
    session: psycopg.Connection,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    train = ["train", "shown", "shown", "--label", "y", "--model", NAME]
    commands = [
        (train, OK),
        ([*train, "--background"], OK),
        (["jobs"], OK),
        (["top", "--once"], OK),
        (["export", NAME, "-o", str(tmp_path / "made.json")], OK),
        (["export", NAME + "?"], DATABASE),
        (["train", "shown", "shown", "--label", NAME], DATABASE),
    ]
    for command, code in commands:
        assert main([*command, "--dsn", pg_uri]) == code, command
        said = capsys.readouterr()
        assert acts(said.out + said.err) == set(), command
        if command[-1] != "--background" and command != ["jobs"]:
            assert SHOWN[:20] in said.out + said.err, command
        if command[-1] == "--background":
            session.execute("SELECT dana_wait(max(id)) FROM dana.job")

    # JSON has the name as it is: in a file, and not on a terminal
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert main(["export", NAME, "--format", "json", "--dsn", pg_uri]) == OK
    assert acts(capsys.readouterr().out) == set()
    assert main(["export", NAME, "--format", "pmml", "--dsn", pg_uri]) == USAGE, "XML has no ESC"
    said = capsys.readouterr().err
    assert "U+001B in the model's name" in said
    assert acts(said) == set()

    number = session.execute("SELECT max(id) FROM dana.run WHERE model = %s", (NAME,)).fetchone()
    assert number
    run = read_run(session, number[0])
    page = render(replace(run, rule=NAME, source=NAME), machine_of(run))
    assert acts(page) == set()
    assert SHOWN[:20] in page
