"""The Python that runs the supervisor and the worker.

In: the interpreter of this process and the server's account. Out: a command prefix and environment variables.
It is this process's own interpreter wherever the account can read it. Root's unprivileged account often cannot: the
checkout, the virtual environment or the interpreter lies below a 0700 home. Then the interpreter, the packages that
the worker needs and ours are copied below the server's folder; no mode of the originals is changed.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import re
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from dana.server.account import Account
from dana.server.installation import make_readable
from dana.server.places import CHECKOUT

DISTRIBUTION = "dana-db"
PACKAGES = ("dana", "dsl", "hwgen")
WORKER_EXTRAS = frozenset({"rtl"})
"""Extras of our distribution that the worker uses."""

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
"""What another process is compiling. The rest of __pycache__ is copied: the account cannot write it, and without it
each start of the worker would compile all that it imports."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interpreter:
    """A Python that can import `dana`.

    Attributes
    ----------
    executable
        Path of the interpreter.
    environment
        Variables that it needs beside the inherited ones.
    """

    executable: Path
    environment: dict[str, str] = field(default_factory=dict)


def worker_interpreter(root: Path, account: Account) -> Interpreter:
    """Interpreter for ``account``: this one, or a copy below ``root`` where the account cannot read this one."""
    if not account.switched or _readable(account):
        return Interpreter(executable=Path(sys.executable))
    prefix = root / f"python-{_environment_key()}"
    if not prefix.exists():
        _copy_environment(prefix)
    # ours change with every edit, the rest does not
    source = root / "source"
    shutil.rmtree(source, ignore_errors=True)
    for package in PACKAGES:
        shutil.copytree(CHECKOUT / package, source / package, ignore=shutil.ignore_patterns(HALF_WRITTEN))
    ours = importlib.metadata.distribution(DISTRIBUTION)
    information = source / f"dana_db-{ours.version}.dist-info"
    information.mkdir()
    # from a checkout's own folder Python finds its egg-info, where the same text has another name
    (information / "METADATA").write_text(ours.read_text("METADATA") or ours.read_text("PKG-INFO") or "")
    make_readable(source)
    return Interpreter(
        executable=prefix / "bin" / "python3",
        environment={"PYTHONPATH": str(source), "LD_LIBRARY_PATH": str(prefix / "lib")},
    )


def _readable(account: Account) -> bool:
    places = [Path(sys.executable), Path(sys.executable).resolve(), Path(sys.base_prefix), Path(sys.prefix)]
    places += [CHECKOUT / package for package in PACKAGES]
    places += [Path(str(distribution.locate_file(""))) for distribution in _distributions()]
    return all(account.can("r", place) and account.can("x", place) for place in places)


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
            yield re.sub(r"[-_.]+", "-", named[1]).lower(), asked


def _environment_key() -> str:
    parts = [sys.version, sys.prefix, *(f"{one.metadata['Name']}=={one.version}" for one in _distributions())]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]


def _copy_environment(prefix: Path) -> None:
    """Build an interpreter with the worker's packages in ``prefix``; it finds its library relative to itself."""
    part = prefix.with_name(f"{prefix.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    library = part / "lib" / version
    base = Path(sys.base_prefix)
    shutil.copytree(base / "lib" / version, library, ignore=shutil.ignore_patterns(*UNUSED_LIBRARY, HALF_WRITTEN))
    (part / "bin").mkdir()
    shutil.copy2(Path(sys.executable).resolve(), part / "bin" / "python3")
    for shared in (base / "lib").glob("libpython*.so*"):
        shutil.copy2(shared, part / "lib")
    site = library / "site-packages"
    for distribution in _distributions():
        for file in distribution.files or ():
            source = Path(str(distribution.locate_file(file))).resolve()
            # a few packages install data beside site-packages, with a path that climbs out of it
            target = (site / str(file)).resolve()
            if source.is_file() and target.is_relative_to(part.resolve()):
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source, target)
    make_readable(part)
    part.rename(prefix)
