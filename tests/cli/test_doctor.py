"""``dana doctor`` and ``dana install``: what is wrong with a server, with the command that mends it."""

from __future__ import annotations

import os
import re
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from dana.cli import main
from dana.cli.doctor import FAILED
from dana.server import doctor
from dana.server.embedded import EmbeddedServer
from dana.server.installation import DEFAULT_MAJOR
from dana.server.places import HOME_VARIABLE
from tests.servers import prepared


@contextmanager
def database(server: EmbeddedServer, *statements: str) -> Iterator[str]:
    """Connection string of a new database, in which these statements ran."""
    with psycopg.connect(server.dsn, autocommit=True) as session:
        session.execute("CREATE DATABASE examined")
        try:
            dsn = make_conninfo(server.dsn, dbname="examined")
            with psycopg.connect(dsn, autocommit=True) as made:
                for statement in statements:
                    made.execute(sql.SQL(statement))  # type: ignore[arg-type]
            yield dsn
        finally:
            session.execute("DROP DATABASE examined WITH (FORCE)")
            session.execute("DROP ROLE IF EXISTS ana")


def examined(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    """Exit code and output of ``dana doctor``."""
    code = main(["doctor", *arguments])
    return code, capsys.readouterr().out


def test_a_server_that_trains_has_no_problem(server: EmbeddedServer, capsys: pytest.CaptureFixture[str]) -> None:
    with database(server, "CREATE EXTENSION dana") as dsn:
        code, text = examined(capsys, "--dsn", dsn)
        assert (code, "problem" in text) == (0, False), text
        assert [line.split()[1] for line in text.splitlines()] == [
            "packages",
            "server",
            "extension",
            "rights",
            "worker",
            "settings",
            "memory",
        ]
        assert f"version {version('dana-db')} in database examined" in text
        with psycopg.connect(dsn) as session:
            assert session.execute("SELECT count(*) FROM dana.rule").fetchall() == [(0,)]  # what it asked is undone


def test_a_worker_that_hangs(
    server: EmbeddedServer, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "ANSWER", 1)
    pid = server.worker_pid
    assert pid is not None
    with database(server, "CREATE EXTENSION dana") as dsn:
        os.kill(pid, signal.SIGSTOP)
        try:
            code, text = examined(capsys, "--dsn", dsn)
        finally:
            os.kill(pid, signal.SIGCONT)
    assert code == FAILED
    assert f"worker     does not answer at {server.worker_socket} in 1 seconds" in text
    assert "run:       dana stop && dana start" in text


@pytest.mark.parametrize(
    ("statements", "problem", "command"),
    [
        ([], "extension  none in database examined", "'CREATE EXTENSION dana'"),
        (
            ["CREATE EXTENSION dana", "ALTER DATABASE examined SET dana.socket_path = '/nowhere/w.sock'"],
            'worker     could not reach the dana worker at "/nowhere/w.sock": No such file or directory (08001)',
            "dana worker --socket /nowhere/w.sock, as the server's account",
        ),
        (
            ["CREATE EXTENSION dana", "ALTER DATABASE examined SET dana.max_memory = '200MB'"],
            "settings   dana.max_memory = 200MB, dana.socket_path = ",
            "ALTER DATABASE examined SET dana.max_memory = ",
        ),
        (
            ["CREATE EXTENSION dana", "UPDATE pg_extension SET extversion = '0.0' WHERE extname = 'dana'"],
            f"extension  version 0.0, its library {version('dana-db')}",
            "'ALTER EXTENSION dana UPDATE'",
        ),
    ],
)
def test_a_problem_comes_with_a_command(
    server: EmbeddedServer, capsys: pytest.CaptureFixture[str], statements: list[str], problem: str, command: str
) -> None:
    with database(server, *statements) as dsn:
        code, text = examined(capsys, "--dsn", dsn)
    assert code == FAILED
    found, run = text.splitlines()[-2:]
    assert found.startswith(f"problem  {problem}")
    assert run.startswith("         run:       ")
    assert command in run


def test_too_little_memory(
    server: EmbeddedServer, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "LEAST_MEMORY", 1 << 40)
    with database(server, "CREATE EXTENSION dana") as dsn:
        code, text = examined(capsys, "--dsn", dsn)
    assert code == FAILED
    assert re.fullmatch(r"problem  memory     \d+ MB available", text.splitlines()[-2])


def test_a_role_without_rights(server: EmbeddedServer, capsys: pytest.CaptureFixture[str]) -> None:
    with database(server, "CREATE EXTENSION dana", "CREATE ROLE ana LOGIN") as dsn:
        code, text = examined(capsys, "--dsn", make_conninfo(dsn, user="ana"))
        found, run = text.splitlines()[-2:]
        assert code == FAILED
        assert found == "problem  rights     may not execute public.dana_create_udf, public.dana_train"
        grant = run.partition("run:")[2]
        with psycopg.connect(dsn, autocommit=True) as session:
            session.execute(grant.encode())
        assert examined(capsys, "--dsn", make_conninfo(dsn, user="ana"))[0] == 0
        with psycopg.connect(dsn, autocommit=True) as session:
            session.execute("DROP OWNED BY ana")


def test_a_server_that_does_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path))
    code, text = examined(capsys)
    assert (code, text.splitlines()[-1].split()) == (FAILED, ["run:", "dana", "start"])
    code, text = examined(capsys, "--dsn", f"host={tmp_path} dbname=none")
    assert code == FAILED
    assert text.splitlines()[-2].startswith("problem  server     ")
    assert f"{tmp_path}/.s.PGSQL.5432" in text


def test_no_password_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for dsn in (
        f"host={tmp_path} user=ana password=geheim sslpassword=geheim scram_client_key=geheim",
        "postgresql://ana:geheim@127.0.0.1:1/x",
        "postgresql://ana:ge heim@h/x",
        "host=h password=a geheim",
        "%zzgeheim",
    ):
        code, text = examined(capsys, "--dsn", dsn)
        assert code == FAILED
        assert "heim" not in text


def test_install_needs_a_pg_config_that_runs_and_development_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["install", "--pg-config", "/nowhere/pg_config"]) == FAILED
    assert "/nowhere/pg_config does not run (" in capsys.readouterr().err
    no_text = tmp_path / "pg_config"
    no_text.write_text("#!/bin/sh\nprintf '\\377\\n\\n\\n\\n\\n'\n")
    no_text.chmod(0o755)
    for other, reason in ((Path("/bin/true"), "it prints 0 lines instead of 5"), (no_text, "invalid literal for int")):
        assert main(["install", "--pg-config", str(other)]) == FAILED
        assert f"{other} does not run ({reason}" in capsys.readouterr().err
    copy = tmp_path / "postgresql"
    shutil.copytree(prepared(DEFAULT_MAJOR) / f"postgresql-{DEFAULT_MAJOR}", copy, symlinks=True)
    (header,) = copy.rglob("server/postgres.h")
    header.unlink()
    assert main(["install", "--pg-config", str(next(copy.rglob("bin/pg_config")))]) == FAILED
    said = capsys.readouterr().err
    assert (
        f"development files, and there is no {header}; install them (Debian: apt install postgresql-server-dev-18)"
        in said
    )
