"""An installed package: what it keeps of the checkout, where its server lives, the extension that comes compiled, and
packages of the same names.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest

from dana.server import installation
from dana.server.installation import DEFAULT_MAJOR, PREBUILT, Installation, installed_below
from dana.server.places import CHECKOUT
from tests.servers import copy_build, prepared

PREPARE = """
import sys
from pathlib import Path
from dana.errors import SetupError
from dana.server.installation import prepare
try:
    prepare(Path(sys.argv[1]), int(sys.argv[2]), progress=print)
except SetupError as error:
    sys.exit(str(error))
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder such as site-packages, with what setup.py puts there and the libraries of this checkout."""
    folder = tmp_path_factory.mktemp("site")
    other = tmp_path_factory.mktemp("egg")
    build = ["egg_info", "--egg-base", other, "build_py", "--build-lib", folder]
    subprocess.run([sys.executable, "setup.py", *build], cwd=CHECKOUT, check=True, capture_output=True)
    for library in CHECKOUT.glob("dana/**/_*.so"):
        shutil.copy2(library, folder / library.relative_to(CHECKOUT))
    return folder


def run(*arguments: str | Path, path: str = "", **environment: str | Path) -> subprocess.CompletedProcess[str]:
    """A Python with these variables, and none that finds the checkout or a server."""
    variables = {"PATH": path, "HOME": "/nonexistent", **{name: str(value) for name, value in environment.items()}}
    return subprocess.run(
        [sys.executable, *arguments], cwd="/", env=variables, capture_output=True, text=True, check=False
    )


@pytest.fixture
def prebuilt(site: Path) -> Iterator[Path]:
    """The folder with the compiled extension, as a wheel has it."""
    folder = site / "dana" / "checkout" / PREBUILT.name
    (folder / f"pg{DEFAULT_MAJOR}").mkdir(parents=True)
    library = prepared(DEFAULT_MAJOR) / f"build-{DEFAULT_MAJOR}" / "dana.so"
    shutil.copy2(library, folder / f"pg{DEFAULT_MAJOR}" / "dana.so")
    (folder / "key").write_text(installation.sources_key(CHECKOUT / "pg_extension"))
    yield folder
    shutil.rmtree(folder)


def check_extension(made: Installation) -> None:
    """The extension of this version is in this installation."""
    library = made.prefix / "lib" / "postgresql" / "dana.so"
    scripts = made.prefix / "share" / "postgresql" / "extension"
    assert library.read_bytes() == (prepared(made.major) / f"build-{made.major}" / "dana.so").read_bytes()
    release = version("dana-db")
    assert f"default_version = '{release}'\n" in (scripts / "dana.control").read_text()
    script = (scripts / f"dana--{release}.sql").read_bytes()
    assert script == (CHECKOUT / "pg_extension" / "sql" / "dana.sql").read_bytes()
    assert all(file.stat().st_mode & 0o444 == 0o444 for file in (library, *scripts.glob("dana*")))


def test_it_keeps_what_commands_and_the_server_need(site: Path) -> None:
    kept = site / "dana" / "checkout"
    assert {path.name for path in kept.iterdir()} == {"docs", "examples", "pg_extension", "pyproject.toml"}
    assert not (kept / "pg_extension" / "test").exists()
    assert (kept / "docs" / "tutorial.md").is_file()
    assert (kept / "examples" / "customers.csv").is_file()


def test_the_compiled_extension_is_installed_without_a_compiler(site: Path, prebuilt: Path, tmp_path: Path) -> None:
    done = run("-c", PREPARE, tmp_path, str(DEFAULT_MAJOR), PYTHONPATH=site)
    assert (done.returncode, done.stdout) == (0, f"copying PostgreSQL {DEFAULT_MAJOR}\n"), done.stderr
    check_extension(installed_below(tmp_path, DEFAULT_MAJOR))


def test_dana_install_copies_what_fits(site: Path, prebuilt: Path, tmp_path: Path) -> None:
    shutil.copytree(prepared(DEFAULT_MAJOR) / f"postgresql-{DEFAULT_MAJOR}", tmp_path / f"postgresql-{DEFAULT_MAJOR}")
    made = installed_below(tmp_path, DEFAULT_MAJOR)
    (library,) = made.prefix.rglob("dana.so")
    library.write_bytes(b"old")
    with library.open("rb") as mapped:
        done = run("-m", "dana.cli", "install", "--pg-config", made.program("pg_config"), PYTHONPATH=site)
        assert (done.returncode, done.stderr) == (0, "")
        assert mapped.read() == b"old"  # as a backend's memory keeps it
    assert done.stdout.startswith(f"installed: {library}\n")
    check_extension(made)


def test_a_library_of_other_sources_is_not_installed(site: Path, prebuilt: Path, tmp_path: Path) -> None:
    (prebuilt / "key").write_text("another")
    done = run("-c", PREPARE, tmp_path, str(DEFAULT_MAJOR), PYTHONPATH=site)
    assert "building the extension needs 'make', which is not on the PATH" in done.stderr
    assert list(tmp_path.rglob("dana.so")) == []


def test_the_extension_is_compiled_from_the_package_s_sources(site: Path, tmp_path: Path) -> None:
    copy_build(DEFAULT_MAJOR, tmp_path)
    done = run("-c", PREPARE, tmp_path, str(DEFAULT_MAJOR), PYTHONPATH=site, path=os.environ["PATH"])
    assert done.returncode == 0, done.stderr
    check_extension(installed_below(tmp_path, DEFAULT_MAJOR))


@pytest.mark.parametrize(
    ("variables", "root"),
    [
        ({"HOME": "/home/ana"}, "/home/ana/.local/share/dana"),
        ({"HOME": "/home/ana", "XDG_DATA_HOME": "/data"}, "/data/dana"),
        ({"HOME": "/home/ana", "XDG_DATA_HOME": "relative"}, "/home/ana/.local/share/dana"),
        ({"HOME": "/home/ana", "DANA_HOME": "/srv/dana"}, "/srv/dana"),
    ],
)
def test_the_server_lives_in_the_user_s_folder_for_data(site: Path, variables: dict[str, str], root: str) -> None:
    ask = "from dana.server import account, places; print(places.default_root({}))"
    user = "account.Account(name='ana', uid=1000, gid=1000, switched=False)"
    assert run("-c", ask.format(user), PYTHONPATH=site, **variables).stdout == f"{root}\n"
    nobody = "account.Account(name='nobody', uid=65534, gid=65534, switched=True)"
    if "DANA_HOME" not in variables:
        assert run("-c", ask.format(nobody), PYTHONPATH=site, **variables).stdout.startswith("/var/cache/dana/")


@pytest.mark.parametrize("name", ["dsl", "hwgen"])
def test_another_module_of_a_package_s_name_is_an_error(site: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / f"{name}.py").write_text("")
    done = run("-c", "import dana", PYTHONPATH=f"{tmp_path}:{site}")
    expected = f"its own package '{name}', {site}/{name}/__init__.py, but Python finds {tmp_path}/{name}.py: "
    assert f"ImportError: dana needs {expected}" in done.stderr


def test_another_distribution_of_a_package_s_name_is_an_error(site: Path, tmp_path: Path) -> None:
    (tmp_path / "dana-0.6.dist-info").mkdir()
    (tmp_path / "dana-0.6.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: dana\nVersion: 0.6\n")
    done = run("-m", "dana.cli", "rules", PYTHONPATH=f"{site}:{tmp_path}")
    assert (done.returncode, done.stdout) == (4, "")
    said = "dana: installed in this environment, with packages of the same names as those of dana-db: dana; "
    assert done.stderr.startswith(f"{said}run pip uninstall dana, ")


def test_a_package_that_another_distribution_overwrote_is_named(site: Path, tmp_path: Path) -> None:
    shutil.copytree(site, tmp_path / "mixed")
    (tmp_path / "mixed" / "dsl" / "__init__.py").write_text("")
    other = tmp_path / "mixed" / "languages-1.0.dist-info"
    other.mkdir()
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: languages\nVersion: 1.0\n")
    (other / "top_level.txt").write_text("dsl\n")
    rule = tmp_path / "mixed" / "dana" / "checkout" / "examples" / "churn.py"
    done = run("-m", "dana.cli", "check", rule, PYTHONPATH=tmp_path / "mixed")
    assert done.returncode == 4
    assert "with packages of the same names as those of dana-db: languages; " in done.stderr


@pytest.mark.exhaustive
@pytest.mark.skipif(not (CHECKOUT / ".git").exists(), reason="git makes it of a commit, and a source archive has none")
def test_the_archive_for_pgxn_installs(tmp_path: Path) -> None:
    subprocess.run(["make", "-C", CHECKOUT, "pgxn", f"BUILDS={tmp_path}"], check=True, capture_output=True)
    release = version("dana-db")
    with zipfile.ZipFile(tmp_path / f"dana-{release}.zip") as archive:
        archive.extractall(tmp_path)
    (pg_config,) = prepared(DEFAULT_MAJOR).glob(f"postgresql-{DEFAULT_MAJOR}/**/bin/pg_config")
    install = ["make", "-C", tmp_path / f"dana-{release}", "all", "install"]
    subprocess.run(
        [*install, f"PG_CONFIG={pg_config}", f"DESTDIR={tmp_path / 'installed'}"], check=True, capture_output=True
    )
    names = {file.name for file in (tmp_path / "installed").rglob("dana*")}
    assert {"dana.so", "dana.control", f"dana--{release}.sql"} <= names


@pytest.mark.exhaustive
@pytest.mark.timeout(1800)
def test_the_wheel_trains_the_demonstration_without_a_compiler(server_root: Path) -> None:
    """Built by zig, and checked by .ci/wheel; bare systems are .ci/bare's."""
    built = server_root / "dist"
    # without the suite's COPT: another compiler has other warnings
    environment = {name: value for name, value in os.environ.items() if name != "COPT"}
    command = [CHECKOUT / ".ci" / "wheel", sys.executable, built]
    making = subprocess.run(
        command, cwd=CHECKOUT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    assert making.returncode == 0, making.stdout[-5000:]
    (wheel,) = built.glob("*.whl")
    assert wheel.name.endswith("-py3-none-manylinux_2_27_x86_64.whl")
    venv = server_root / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    (site,) = venv.glob("lib/python*/site-packages")
    # the other packages of this environment: but for ours, as such a folder's own .pth files are not read
    (site / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    install = [sys.executable, "-m", "pip", "install", "--no-deps", "--target", site, wheel]
    subprocess.run(install, check=True, capture_output=True)
    variables = {"PATH": "", "DANA_HOME": str(server_root / "home"), "HOME": str(server_root)}

    def dana(command: str) -> subprocess.CompletedProcess[str]:
        arguments = [venv / "bin" / "python", "-m", "dana.cli", command]
        return subprocess.run(arguments, cwd="/", env=variables, capture_output=True, text=True, check=False)

    try:
        done = dana("demo")
    finally:
        dana("stop")
    assert done.returncode == 0, done.stderr
    assert "AUC 0.7" in done.stdout
    assert "Skipped here; for this step, install a C++ compiler and make" in done.stdout
    assert "compiling" not in done.stderr
