"""The Python that runs the supervisor and the worker.

In: the interpreter of this process and the server's account. Out: a command prefix and environment variables.
It is this process's own interpreter wherever the account can read it. Root's unprivileged account often cannot: the
checkout, the virtual environment or the interpreter lies below a 0700 home, or a umask of 077 made them. Then a virtual
environment below the server's folder gets the packages that the worker needs, and ours; the interpreter itself is
copied only where the account cannot run the original. What every account may read and only root may write is linked,
not copied; no mode of the originals changes.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from dana.errors import SetupError
from dana.server.account import Account
from dana.server.installation import make_readable
from dana.server.places import SITE

DISTRIBUTION = "dana-db"
PACKAGES = ("dana", "dsl", "hwgen")
WORKER_EXTRAS = frozenset({"rtl"})
"""Extras of our distribution that the worker uses."""

VERSION = f"python{sys.version_info.major}.{sys.version_info.minor}"

UNUSED_LIBRARY = (
    "site-packages",
    "dist-packages",
    "test",
    "idlelib",
    "tkinter",
    "ensurepip",
    "config-*",
)

HALF_WRITTEN = "*.pyc.*"
"""What another process is compiling. The rest of __pycache__ is copied."""

COMPILES = (
    "-c",
    "import dana.cli, dana.jit, dana.trainer.trainer, dana.worker.process\n"
    "dana.trainer.trainer.warm_up()\n"
    "import hwgen.harness",  # needs an extra
)
"""Arguments that make an interpreter write to __pycache__ what a worker needs: its modules, the grammar's tables. The
account cannot write there, so each start of the worker would make all of it again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interpreter:
    """A Python that can import `dana`.

    Attributes
    ----------
    executable
        Path of the interpreter.
    environment
        Variables that it needs in addition to the inherited ones.
    """

    executable: Path
    environment: dict[str, str] = field(default_factory=dict)

    def fault(self, account: Account, *arguments: str) -> str:
        """The reason that ``account`` cannot run this interpreter with ``arguments``; empty if it can."""
        try:
            done = subprocess.run(
                [str(self.executable), *arguments],
                cwd="/",
                env=self.environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                check=False,
                **account.identity(),
            )
        except OSError as error:
            return str(error)
        return "" if done.returncode == 0 else [f"exit code {done.returncode}", *done.stderr.splitlines()][-1]


READS_ALL = ("-m", "dana.server.interpreter")
"""Arguments that make an interpreter read all that a worker needs."""


def worker_interpreter(
    root: Path, account: Account, major: int, progress: Callable[[str], None] = lambda _: None
) -> Interpreter:
    """Interpreter for the worker of server ``major``: this one, or an environment below ``root``.

    The caller holds the server's lock, and the server does not run: an older environment in that place is replaced.

    Raises
    ------
    SetupError
        The account can read neither this one nor its copy; the message says what the copy did.
    """
    own = Interpreter(executable=Path(sys.executable))
    if not account.switched or not own.fault(account, *READS_ALL):
        return own
    prefix, source = root / f"python-{major}", root / f"source-{major}"
    base = _base()
    # -I: neither PYTHON variables nor the site-packages of a user; ctypes: an extension module of the base
    closed = bool(Interpreter(executable=base).fault(account, "-I", "-c", "import ctypes"))
    key = _environment_key(base, closed)
    stamp = prefix / "key"
    if not stamp.exists() or stamp.read_text() != key:
        progress(f"copying the packages that account {account.name} cannot read here")
        _make_environment(prefix, base, closed)
        stamp.write_text(key)
    libraries = {"LD_LIBRARY_PATH": str(prefix / "base" / "lib")} if closed else {}
    made = Interpreter(executable=prefix / "bin" / "python3", environment={"PYTHONPATH": str(source), **libraries})
    key, stamp = f"{key} {packages_key()}", source / "key"
    if not stamp.exists() or stamp.read_text() != key:
        _copy_ours(source)  # which change with every edit, the rest does not
        # its failure is found below, as the account; the umask for folders, files get the modes of their sources
        subprocess.run(
            [str(made.executable), *COMPILES],
            cwd="/",
            env=made.environment,
            stderr=subprocess.DEVNULL,
            umask=0o022,
            check=False,
        )
        stamp.write_text(key)
    if fault := made.fault(account, *READS_ALL):
        raise SetupError(f"account {account.name} cannot run the worker's Python, {made.executable}: {fault}")
    return made


def _base() -> Path:
    """The interpreter that this process's virtual environment was made with."""
    return Path(sys.executable).resolve()


def main() -> None:
    """Read every file that a worker may need, as the account that this process runs as; OSError where it may not."""
    for package in PACKAGES:
        for folder, _, names in os.walk(SITE / package, onerror=_raise):
            for name in names:
                _read(Path(folder) / name)
    for distribution in _distributions():
        for file in distribution.files or ():
            _read(Path(str(distribution.locate_file(file))))


def _read(path: Path) -> None:
    with suppress(FileNotFoundError):  # a package may list what an installer leaves out; an editor's files come and go
        path.open("rb").close()


def _raise(error: OSError) -> None:
    raise error


def _distributions() -> list[importlib.metadata.Distribution]:
    """Installed distributions that ours needs to run a worker, ours left out; by name."""
    found: dict[str, importlib.metadata.Distribution] = {}
    waiting = list(_requirements(importlib.metadata.distribution(DISTRIBUTION), WORKER_EXTRAS))
    followed: set[tuple[str, frozenset[str]]] = set()
    while waiting:
        name, extras = waiting.pop()
        if (name, extras) in followed:
            continue
        followed.add((name, extras))
        try:
            found[name] = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue  # for another platform, or an extra that was not installed
        waiting += _requirements(found[name], extras)
    return [found[name] for name in sorted(found)]


def _requirements(
    distribution: importlib.metadata.Distribution, extras: frozenset[str]
) -> Iterator[tuple[str, frozenset[str]]]:
    """Names that ``distribution`` requires with these extras, each with the extras that it asks of them."""
    for requirement in distribution.requires or ():
        condition = re.search(r"""extra\s*==\s*['"]([^'"]+)""", requirement)
        named = re.match(r"([A-Za-z0-9._-]+)\s*(?:\[([^\]]*)\])?", requirement)
        if named and (condition is None or condition[1] in extras):
            asked = frozenset(extra.strip() for extra in (named[2] or "").split(",") if extra.strip())
            # PEP 503: names are equal up to case and these characters
            yield re.sub(r"[-_.]+", "-", named[1]).lower(), asked


def packages_key() -> str:
    """Digest of our packages, by size and time instead of contents: every start computes it."""
    digest = hashlib.sha256()
    for package in PACKAGES:
        for file in sorted((SITE / package).rglob("*")):
            if file.is_file() and file.suffix != ".pyc":
                found = file.stat()
                digest.update(f"{file}\0{found.st_size}\0{found.st_mtime_ns}\0".encode())
    return digest.hexdigest()


def _environment_key(base: Path, closed: bool) -> str:
    parts = [sys.version, sys.prefix, str(base), str(closed)]
    parts += [f"{one.metadata['Name']}=={one.version}" for one in _distributions()]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _make_environment(prefix: Path, base: Path, closed: bool) -> None:
    """Make a virtual environment with the worker's packages in ``prefix``, with a copy of its base where it is closed.

    Debian's Python looks in site-packages only where ``pyvenv.cfg`` makes the place a virtual environment.
    """
    part = prefix.with_name(f"{prefix.name}.part")
    for old in (part, prefix):
        shutil.rmtree(old, ignore_errors=True)
    (part / "bin").mkdir(parents=True)
    home = base.parent
    if closed:
        home = prefix / "base" / "bin"
        _copy_base(base, part / "base")
    (part / "bin" / "python3").symlink_to(home / base.name)
    (part / "pyvenv.cfg").write_text(f"home = {home}\n", encoding="utf-8")
    site = part / "lib" / VERSION / "site-packages"
    site.mkdir(parents=True)
    for distribution in _distributions():
        for file in distribution.files or ():
            source = Path(str(distribution.locate_file(file))).resolve()
            # a few packages install data next to site-packages, with a path that climbs out of it
            target = (site / str(file)).resolve()
            if source.is_file() and target.is_relative_to(part.resolve()):
                target.parent.mkdir(parents=True, exist_ok=True)
                _link(source, target)
    make_readable(part)
    part.rename(prefix)


def _copy_base(base: Path, target: Path) -> None:
    """Copy an interpreter and its library; it finds them relative to itself."""
    installed = Path(sys.base_prefix) / "lib"
    unused = shutil.ignore_patterns(*UNUSED_LIBRARY, HALF_WRITTEN)
    shutil.copytree(installed / VERSION, target / "lib" / VERSION, ignore=unused, copy_function=_link)
    (target / "bin").mkdir()
    for source in (base, *installed.glob("libpython*.so*")):
        _link(source, target / source.parent.name / source.name)


def _copy_ours(source: Path) -> None:
    shutil.rmtree(source, ignore_errors=True)
    for package in PACKAGES:
        unused = shutil.ignore_patterns(HALF_WRITTEN)
        shutil.copytree(SITE / package, source / package, ignore=unused, copy_function=_link)
    ours = importlib.metadata.distribution(DISTRIBUTION)
    information = source / f"dana_db-{ours.version}.dist-info"
    information.mkdir()
    # from a checkout's own folder Python finds its egg-info, where the same text has another name
    (information / "METADATA").write_text(ours.read_text("METADATA") or ours.read_text("PKG-INFO") or "")
    make_readable(source)


def _link(source: str | Path, target: str | Path) -> None:
    """Link a file that every account may read and only we may write; copy another, or where links are not possible."""
    source = os.path.realpath(source)
    found = os.stat(source)
    readable = 0o555 if found.st_mode & 0o100 else 0o444
    # a hard link shares its mode: a file that others may write must not be linked
    if found.st_uid == os.geteuid() and not found.st_mode & 0o022 and found.st_mode & readable == readable:
        with suppress(OSError):  # another file system, or one without links
            os.link(source, target)
            return
    shutil.copy2(source, target)


if __name__ == "__main__":
    main()
