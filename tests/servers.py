"""The PostgreSQL servers that tests run against.

`pg_uri` is a server for tests of the SQL surface: a new database on ``$DANA_TEST_PG_URI``, else a container built from
the Dockerfile where a Docker engine answers, else the embedded server. `server` is the embedded server, once for each
major version, for tests that need its files, processes or logs. Both last for the session; a test that changes
settings, kills processes or stops a server starts one of its own in `own_root`. What all of them run is made once,
for all processes of a run of pytest: `share_installations`.
"""

from __future__ import annotations

import fcntl
import gc
import os
import re
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from dana.server import cluster, installation, interpreter
from dana.server.account import Account, server_account
from dana.server.embedded import EmbeddedServer
from dana.server.installation import MAJORS, Installation
from dana.server.places import CHECKOUT

URI_VARIABLE = "DANA_TEST_PG_URI"
SHARED_VARIABLE = "DANA_TEST_INSTALLATIONS"
"""Set for the processes of a run: the folder that they share."""


def share_installations(config: pytest.Config) -> None:
    """Have this process, and those that are forked of it, make installations and the worker's Python once."""
    folder = tempfile.TemporaryDirectory(prefix="dana-test-")
    Path(folder.name).chmod(0o755)
    os.environ[SHARED_VARIABLE] = folder.name
    os.environ.setdefault("COPT", "-Werror")  # of the extension: a warning is an error
    config.add_cleanup(folder.cleanup)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """No other process is in here with the same file."""
    with open(path, "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@cache
def prepared(major: int) -> Path:
    """The folder that the processes of a run share: PostgreSQL, the extension, the worker's Python.

    The extension is compiled in a folder of the checkout, which stays: the next run compiles what has changed. It is
    copied since the server's account may have no right to enter the checkout.
    """
    shared, name = Path(os.environ[SHARED_VARIABLE]), f"postgresql-{major}"
    with locked(shared / f"{name}.lock"):
        if not (shared / name).exists():
            kept = CHECKOUT / "build" / re.sub(r"\W", "_", f"tests{os.environ['COPT']}")
            kept.mkdir(parents=True, exist_ok=True)
            with locked(kept / f"{name}.lock"):
                installation.prepare(kept, major)
                for folder in (f"build-{major}", name):
                    shutil.copytree(kept / folder, shared / folder, symlinks=True)
    with locked(shared / "python.lock"):
        interpreter.worker_interpreter(shared, server_account(), major)
    return shared


def copy_build(major: int, root: Path) -> None:
    """Have make find in ``root`` what was compiled for the servers of this run, from the same sources."""
    build = f"build-{major}"
    # as new: sources may have got later times without a change since it was compiled
    shutil.copytree(prepared(major) / build, root / build, copy_function=shutil.copy)


def install(root: Path, major: int) -> None:
    """Give ``root`` PostgreSQL with the extension, the worker's Python, and a folder for the embedded server.

    It holds a data directory, which takes seconds to make.
    """
    shared, name = prepared(major), f"postgresql-{major}"
    if not (root / name).exists():  # a tree of its own: tests add files
        shutil.copytree(shared / name, root / name, symlinks=True, copy_function=os.link)
    if (python := shared / f"python-{major}").exists():
        with suppress(FileExistsError):
            (root / python.name).symlink_to(python)
            shutil.copytree(shared / f"source-{major}", root / f"source-{major}", copy_function=os.link)
    account = server_account()
    folder = root / str(major)
    account.make_private(folder)
    initialise(installation.installed_below(root, major), folder / "data", account)


def initialise(installed: Installation, data: Path, account: Account) -> None:
    """As `cluster.initialise`, but initdb runs once for all processes of a run: a copy takes a tenth of its time."""
    made = Path(os.environ[SHARED_VARIABLE]) / f"initialised-{installed.major}"
    with locked(made.with_suffix(".lock")):
        account.make_private(made)
        cluster.initialise(installed, made / "data", account)
    if not data.exists():
        account.run('cp -a -- "$1" "$2"', made / "data", data)


@pytest.fixture(scope="session")
def server_root() -> Iterator[Path]:
    """Folder for embedded servers.

    Not pytest's: below root's that one is 0700, and the server, which then runs as another account, cannot enter it.
    """
    with tempfile.TemporaryDirectory(prefix="dana-test-") as folder:
        root = Path(folder)
        root.chmod(0o755)
        yield root
        for major in MAJORS:
            EmbeddedServer.at(root, major).stop()


@pytest.fixture(scope="session")
def servers(server_root: Path) -> dict[int, EmbeddedServer]:
    """Embedded servers that run, by major version; filled by `running`."""
    return {}


def running(servers: dict[int, EmbeddedServer], root: Path, major: int) -> EmbeddedServer:
    """The session's embedded server of ``major``; started when it is first asked for."""
    if major not in servers:
        install(root, major)
        servers[major] = EmbeddedServer.start(root, major)
    return servers[major]


@pytest.fixture(scope="session")
def server(request: pytest.FixtureRequest, servers: dict[int, EmbeddedServer], server_root: Path) -> EmbeddedServer:
    """An embedded server with the extension and a worker; tests run once for each of --postgresql."""
    return running(servers, server_root, request.param)


@pytest.fixture
def own_root() -> Iterator[Path]:
    """Folder for embedded servers of one test alone, which may stop, kill and break them."""
    with tempfile.TemporaryDirectory(prefix="dana-test-") as folder:
        root = Path(folder)
        root.chmod(0o755)
        install(root, MAJORS[-1])
        yield root
        for major in MAJORS:
            EmbeddedServer.at(root, major).stop()


@pytest.fixture(scope="session")
def pg_uri(request: pytest.FixtureRequest) -> Iterator[str]:
    """Connection string of a superuser, on a database that has the extension and whose server has a worker."""
    given = os.environ.get(URI_VARIABLE)
    if given:
        yield from own_database(given)
    elif docker_answers():
        yield from container_uri()
    else:
        servers = request.getfixturevalue("servers")
        yield running(servers, request.getfixturevalue("server_root"), MAJORS[-1]).dsn


def own_database(uri: str) -> Iterator[str]:
    """A database on a server that stays: what tests leave behind goes with it, so that each run begins alike."""
    name = f"dana_test_{os.getpid()}"
    with psycopg.connect(uri, autocommit=True) as session:
        session.execute(f"CREATE DATABASE {name} TEMPLATE template0")
        try:
            own = make_conninfo(uri, dbname=name)
            with psycopg.connect(own, autocommit=True) as inside:
                inside.execute("CREATE EXTENSION dana")
            yield own
        finally:
            session.execute(f"DROP DATABASE {name} WITH (FORCE)")


def docker_answers() -> bool:
    """Whether a Docker engine answers; a ``docker`` command alone says nothing."""
    import docker  # type: ignore[import-untyped]

    try:
        docker.from_env().close()
    except docker.errors.DockerException:
        answers = False
    else:
        answers = True
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # docker forgets the socket that nobody answered on
        gc.collect()
    return answers


def container_uri() -> Iterator[str]:
    """Run the image of our Dockerfile: PostgreSQL, the extension, and the worker in one container."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of testcontainers, about itself
        from testcontainers.community.postgres import PostgresContainer
        from testcontainers.core.image import DockerImage

    with (
        DockerImage(path=CHECKOUT, tag="dana-test:latest", clean_up=False) as image,
        PostgresContainer(str(image), driver=None) as container,
    ):
        yield container.get_connection_url()


@pytest.fixture
def connection(pg_uri: str) -> Iterator[psycopg.Connection]:
    """A session on `pg_uri` in a transaction that is rolled back."""
    with psycopg.connect(pg_uri) as session:
        yield session
        session.rollback()
