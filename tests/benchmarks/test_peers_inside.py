"""The peers of `dana bench peers` in the database: PL/Python on a PostgreSQL that has it, and servers without."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pytest

from benchmarks.peers import inside, learners, madlib
from benchmarks.peers.cases import SHAPES, prepared, shaped
from benchmarks.peers.contest import measure
from benchmarks.peers.peer import NotHere
from benchmarks.peers.stage import TABLE
from dana.client.connection import Connection
from dana.server.account import server_account
from dana.server.interpreter import worker_interpreter
from dana.server.places import CHECKOUT
from dana.session.frames import columns_of
from dana.session.tables import create_table

Session = psycopg.Connection[Any]
TINY = 0.0
STARTED = 30.0


@pytest.fixture(scope="module")
def plain(server_root: Path) -> Iterator[Session]:
    """A PostgreSQL with PL/Python and without the extension: those of ``make headers`` have it, for this Python."""
    account = server_account()
    built = sorted(CHECKOUT.glob("build/postgresql/1[5-9]/*/lib/plpython3.so"))
    if not built or sys.version_info[:2] != (3, 11):
        pytest.skip("no PostgreSQL with PL/Python for this Python: make headers fetches some for Python 3.11")
    programs = built[-1].parent.parent / "bin"
    if not account.can("x", programs / "postgres"):
        pytest.skip(f"account {account.name} cannot run {programs}")
    python = worker_interpreter(server_root, account, int(built[-1].parents[2].name))
    shown = subprocess.run(
        [python.executable, "-c", "import sys, sysconfig; print(sys.base_prefix, sysconfig.get_path('purelib'))"],
        env=python.environment,
        capture_output=True,
        text=True,
        check=True,
        **account.identity(),
    )
    home, packages = shown.stdout.split()
    environment = {
        "PATH": os.defpath,
        "LD_LIBRARY_PATH": str(Path(home) / "lib"),
        "PYTHONHOME": home,
        "PYTHONPATH": packages,
    }
    folder = server_root / "python-server"
    account.make_private(folder)
    asked: dict[str, Any] = {"cwd": "/", "env": environment, "stdout": subprocess.DEVNULL, **account.identity()}
    options = ["-D", folder / "data", "-U", "postgres", "-A", "trust", "--encoding", "UTF8", "--no-locale", "--no-sync"]
    subprocess.run([programs / "initdb", *options], check=True, **asked)
    command = [programs / "postgres", "-D", folder / "data", "-k", folder, "-c", "listen_addresses=", "-c", "fsync=off"]
    server = subprocess.Popen(command, stderr=subprocess.DEVNULL, **asked)
    try:
        with _connected(folder) as session:
            session.execute("CREATE ROLE anybody")
            yield session
    finally:
        server.terminate()
        server.wait(STARTED)


def _connected(folder: Path) -> Session:
    until = time.monotonic() + STARTED
    while True:
        try:
            return psycopg.connect(host=str(folder), user="postgres", dbname="postgres", autocommit=True)
        except psycopg.OperationalError:
            if time.monotonic() > until:
                raise
            time.sleep(0.1)


def test_python_is_asked_for_where_it_is_not(plain: Session) -> None:
    with ExitStack() as made, pytest.raises(NotHere, match="not in this database; run: CREATE EXTENSION plpython3u"):
        inside.python(Connection(plain), shaped("WLAN", TINY), 1, made)


@pytest.mark.parametrize("name", [name for name in SHAPES if shaped(name, TINY).rule in inside.PYTHON])
def test_python_learns_what_arrays_teach(plain: Session, name: str) -> None:
    """In the server, from the table's rows: the same loss as NumPy here; and its functions go."""
    case = shaped(name, TINY)
    x, y = prepared(case), case.y
    plain.execute("CREATE EXTENSION IF NOT EXISTS plpython3u")
    create_table(plain, TABLE, columns_of(case.columns))
    with ExitStack() as made:
        peer = inside.python(Connection(plain), case, 3, made)
        assert peer.loss is not None
        loss, passes = peer.loss(), peer.run()
    learner = {"softmax": learners.softmax, "mlp": learners.perceptron}.get(case.rule)
    here = learner(x, y) if learner else learners.linear_in_numpy(x, y, learners.ERROR_OF[case.rule])
    for _ in range(3):
        here.train()
    assert passes == 3
    assert loss == pytest.approx(case.judge(here.score(x)), rel=1e-4)
    assert peer.how.startswith(f"Python {sys.version.split()[0]}, NumPy {np.__version__}: ")
    left = "SELECT count(*) FROM pg_proc WHERE proname LIKE 'dana_bench%'"
    assert plain.execute(left).fetchone() == (0,)
    plain.execute(f"DROP TABLE {TABLE}")


def test_python_is_not_everybody_s(plain: Session) -> None:
    """Who may not write functions in it is told so."""
    plain.execute("CREATE EXTENSION IF NOT EXISTS plpython3u")
    plain.execute("SET ROLE anybody")
    try:
        with ExitStack() as made, pytest.raises(NotHere, match="permission denied for language plpython3u"):
            inside.python(Connection(plain), shaped("WLAN", TINY), 1, made)
    finally:
        plain.execute("RESET ROLE")


@pytest.mark.parametrize("refuses", [False, True])
def test_a_server_without_them(pg_uri: str, refuses: bool) -> None:
    """Each is a line that says why; one whose MADlib lacks what is called is told what, and nothing stays."""
    with psycopg.connect(pg_uri, autocommit=True) as session:
        if refuses:
            session.execute("CREATE SCHEMA madlib")
            session.execute("CREATE FUNCTION madlib.version() RETURNS text LANGUAGE sql AS $$ SELECT 'none' $$")
        try:
            found = measure(Connection(session), shaped("WLAN", TINY), passes=1, repeats=1)
        finally:
            session.execute("DROP SCHEMA IF EXISTS madlib CASCADE")
        absent = {line.peer: line.how for line in found.lines if line.trains and line.seconds is None}
        assert absent.pop(inside.IN_PYTHON) == "not here: the server has none"
        if refuses:
            assert set(absent) == {f"MADlib, {method}" for method in madlib.METHODS["logistic"]}
            assert all("function madlib.logregr_train" in how and "does not exist" in how for how in absent.values())
        else:
            assert absent == {"MADlib": "not here: this database has no function madlib.version()"}
        assert session.execute("SELECT to_regclass(%s)", (madlib.ROWS,)).fetchone() == (None,)
