"""`dana start`, `psql` and `stop` on a server of their own, as a user types them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from dana.cli.entry import main
from dana.server.places import HOME_VARIABLE
from dana.trainer import processors
from dana.trainer.memory import machine_bytes
from dana.worker.process import WorkerOptions
from tests.servers import install


@pytest.fixture
def home(own_root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folder that the commands keep the server in."""
    monkeypatch.setenv(HOME_VARIABLE, str(own_root))
    return own_root


def dana(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command."""
    command = [sys.executable, "-m", "dana.cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)


def test_a_server_s_life(home: Path) -> None:
    assert dana("stop").stdout == "not running\n"

    started = dana("start")
    assert started.returncode == 0, started.stderr
    assert "dana: starting the server and the worker …" in started.stderr
    said = dict(re.findall(r"^(\w+): +(.*)$", started.stdout, re.M))
    assert said["folder"] == str(home)
    assert os.path.exists(said["logs"])
    with psycopg.connect(said["connect"]) as session:
        assert session.execute("SELECT 1").fetchone() == (1,)

    assert dana("start").stdout == started.stdout

    shell = dana("psql", "--", "-AtX", "-c", "SELECT current_setting('server_version_num')::int / 10000")
    assert (shell.returncode, shell.stdout) == (0, "18\n"), shell.stderr

    assert dana("stop").stdout == "stopped\n"
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(said["connect"])


def test_psql_starts_what_does_not_run_and_hands_on_its_exit_code(home: Path) -> None:
    shell = dana("psql", "-X", "-v", "ON_ERROR_STOP=1", "-c", "SELECT nothing")
    assert shell.returncode == 1
    assert 'column "nothing" does not exist' in shell.stderr


def test_the_other_major_version_is_another_server(home: Path) -> None:
    install(home, 16)
    shell = dana("psql", "--major", "16", "-AtX", "-c", "SHOW server_version")
    assert shell.stdout.startswith("16."), shell.stderr
    assert dana("stop").stdout == "not running\n"
    assert dana("stop", "--major", "16").stdout == "stopped\n"


def test_a_home_that_cannot_be_made_is_a_set_up_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path / "file" / "home"))
    done = dana("start")
    assert done.returncode == 4
    assert "dana: cannot make" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_worker_s_socket_needs_a_folder(tmp_path: Path) -> None:
    done = dana("worker", "--socket", str(tmp_path / "nowhere" / "worker.sock"))
    assert done.returncode == 4
    assert "cannot listen on" in done.stderr


def test_options_of_a_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    served: list[WorkerOptions] = []
    monkeypatch.setattr("dana.worker.process.serve", lambda trainer, options, load_ahead: served.append(options))
    monkeypatch.setattr(processors, "_most", processors.MOST)
    socket = str(tmp_path / "worker.sock")
    assert main(["worker", "--socket", socket, "--cache-limit", "1GB"]) == 0
    assert processors._most == processors.MOST
    assert main(["worker", "--socket", socket, "--threads", "3", "--max-sessions", "5", "--memory-limit", "2 GB"]) == 0
    assert (processors._most, type(processors._most)) == (3, int)
    first, second = served
    assert (first.cache_limit, first.max_sessions) == (1 << 30, 64)
    assert (second.max_sessions, second.memory_limit, second.cache_limit) == (5, 2 << 30, machine_bytes() // 4)


def test_a_worker_has_a_thread_at_least(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["worker", "--socket", str(tmp_path / "w"), "--threads", "0"]) == 4
    assert "--threads must be at least 1, not 0" in capsys.readouterr().err
