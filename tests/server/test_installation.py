"""The installation: copied whole, the extension built into the copy, the originals left alone."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from dataclasses import dataclass
from importlib.metadata import version as installed_version
from pathlib import Path

import pytest

from dana.errors import SetupError
from dana.server import installation
from dana.server.embedded import EmbeddedServer
from dana.server.installation import DEFAULT_MAJOR, Installation, prepare, sources_key, wheel_installation
from dana.server.places import CHECKOUT
from tests.servers import copy_build

SOURCES = CHECKOUT / "pg_extension"


PACKAGE = wheel_installation(18).prefix.parent
UNTOUCHED = (PACKAGE, SOURCES / "src", SOURCES / "sql")


def listing(folder: Path) -> dict[str, int]:
    """Every file of ``folder`` with the time of its last change."""
    return {str(path): path.lstat().st_mtime_ns for path in sorted(folder.rglob("*")) if path.is_file()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """Installations of each version of --postgresql, made under a umask that keeps others out."""

    root: Path
    installations: dict[int, Installation]
    untouched: bool


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Made:
    majors = {DEFAULT_MAJOR, *pytestconfig.getoption("--postgresql")}
    root = tmp_path_factory.mktemp("installations")
    before = [listing(folder) for folder in UNTOUCHED]
    for major in majors:
        copy_build(major, root)
    umask = os.umask(0o077)
    try:
        installations = {major: prepare(root, major) for major in majors}
    finally:
        os.umask(umask)
    untouched = [listing(folder) for folder in UNTOUCHED] == before
    return Made(root=root, installations=installations, untouched=untouched)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "major" in metafunc.fixturenames:
        majors = metafunc.config.getoption("--postgresql")
        metafunc.parametrize("major", majors, ids=[f"pg{major}" for major in majors])


def test_the_copy_runs_and_has_the_extension(made: Made, major: int) -> None:
    installation = made.installations[major]
    shown = subprocess.run([installation.program("postgres"), "-V"], capture_output=True, text=True, check=True)
    assert f"PostgreSQL) {major}." in shown.stdout
    assert (installation.prefix / "lib" / "postgresql" / "dana.so").is_file()
    version = installed_version("dana-db")
    scripts = installation.prefix / "share" / "postgresql" / "extension"
    assert f"default_version = '{version}'\n" in (scripts / "dana.control").read_text()
    assert [path.name for path in scripts.glob("dana--*")] == [f"dana--{version}.sql"]


def test_nothing_is_written_into_the_package_or_the_sources(made: Made) -> None:
    assert made.untouched


def test_a_strict_umask_does_not_keep_the_server_s_account_out(made: Made, major: int) -> None:
    installation = made.installations[major]
    files = [path for path in [installation.prefix, *installation.prefix.rglob("*")] if not path.is_symlink()]
    assert len(files) > 1000
    closed = [path for path in files if path != installation.stamp and not stat.S_IMODE(path.stat().st_mode) & 0o004]
    assert closed == []


def test_what_is_made_is_not_made_again(made: Made, major: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installation, "_copy", lambda *_: pytest.fail("copied again"))
    monkeypatch.setattr(installation, "_build_extension", lambda *_: pytest.fail("built again"))
    assert prepare(made.root, major) == made.installations[major]


def test_changed_sources_are_built_again(made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sources = tmp_path / "sources"
    shutil.copytree(SOURCES, sources, ignore=shutil.ignore_patterns("build"))
    assert sources_key(sources) == sources_key(SOURCES)
    control = sources / "dana.control.in"
    control.write_text(control.read_text() + "# changed\n")
    built: list[Path] = []
    monkeypatch.setattr(installation, "_build_extension", lambda sources, *_: built.append(sources))
    stamp = made.installations[DEFAULT_MAJOR].stamp.read_text()
    try:
        prepare(made.root, DEFAULT_MAJOR, sources)
    finally:
        made.installations[DEFAULT_MAJOR].stamp.write_text(stamp)
    assert built == [sources]


def test_sources_that_do_not_compile_are_an_error_with_the_compiler_s_words(made: Made, tmp_path: Path) -> None:
    sources = tmp_path / "sources"
    shutil.copytree(SOURCES, sources, ignore=shutil.ignore_patterns("build"))
    for file in (sources / "src").glob("*/*.c"):
        file.write_text("int f(void) { return nothing_of_that_name; }\n")
    with pytest.raises(SetupError, match=r"does not compile for \S+pg_config:(.|\n)*nothing_of_that_name"):
        prepare(made.root, DEFAULT_MAJOR, sources)
    assert made.installations[DEFAULT_MAJOR].stamp.read_text() == sources_key(SOURCES)  # and what was there stays


def test_missing_sources_and_missing_tools_are_named(
    made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SetupError, match="extension's sources are expected in"):
        prepare(made.root, DEFAULT_MAJOR, tmp_path / "nowhere")
    sources = tmp_path / "sources"
    sources.mkdir()
    (sources / "Makefile").write_text("")
    with monkeypatch.context() as patch:
        patch.setenv("PATH", "")
        with pytest.raises(SetupError, match=r"needs 'make'.* install gcc libc6-dev make"):
            prepare(made.root, DEFAULT_MAJOR, sources)
    spaced = tmp_path / "a folder"
    shutil.copytree(sources, spaced)
    with pytest.raises(SetupError, match=r"make cannot build in \S+/a folder, for the character ' ' in its name"):
        prepare(made.root, DEFAULT_MAJOR, spaced)


def test_an_unknown_major_version_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Exception, match="the embedded server has PostgreSQL 16 and 18, not 15"):
        EmbeddedServer.at(tmp_path, 15)
