"""Fixtures that every test folder may use: golden text here; the PostgreSQL servers come from `tests.servers`."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from dana.server.installation import DEFAULT_MAJOR
from dana.simulator import Simulator
from dana.trainer import compiled
from hwgen.spec.counters import EpochCounters
from tests.golden import Golden
from tests.servers import connection, own_root, pg_uri, server, server_root, servers, share_installations

__all__ = ["connection", "golden", "own_root", "pg_uri", "server", "server_root", "servers"]


LONG = (
    "lockstep/test_rtl.py",
    "hwgen/export/test_package.py",
    "lockstep",
    "hwgen",
    "rules/test_rules_in_rtl.py",
    "benchmarks",
    "simulator/test_sanitized.py",
    "trainer/test_builds.py",
    "dsl/test_editors.py",
    "postgres/test_faults.py",
    "client",
    "repo/test_commands.py",
    "server",
)
"""Files, or folders of such, that take long for the number of their tests, the longest first.

Compilations of hardware come before what wants servers, which both workers would wait for at once.
"""


EXHAUSTIVE = (
    "benchmarks",  # the measurements, not what is measured
    "dsl/test_editors.py",
    "hwgen/export/test_netlist.py",
    "hwgen/formal",
    "rules/test_rules_in_rtl.py",
    "server/test_soak.py",
    "simulator/test_sanitized.py",
)
"""Files and folders that ``make test`` leaves to ``make test-all``."""


def place(path: str) -> int:
    """Where a file comes, one of `LONG` or behind all of them."""
    return next((k for k, start in enumerate(LONG) if path.startswith(start)), len(LONG))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what is exhaustive; have what takes long begin first, so that no process is left with it at the end."""
    paths = {item: item.path.relative_to(Path(__file__).parent).as_posix() for item in items}
    for item, path in paths.items():
        if path.startswith(EXHAUSTIVE):
            item.add_marker("exhaustive")
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: place(paths[item]))


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        share_installations(config)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite the golden files with what the tests print")
    parser.addoption(
        "--postgresql",
        default=[DEFAULT_MAJOR],
        type=lambda text: [int(major) for major in text.split(",")],
        metavar="MAJORS",
        help="major versions that the tests of a server run on, such as 16,18 (18); tests/postgres runs on 14, 15 and "
        "17, too, which come with make -C pg_extension check-headers",
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run what takes `server` on each version that was asked for."""
    marks = [mark.args[0] for mark in metafunc.definition.iter_markers("parametrize")]
    if "server" in metafunc.fixturenames and "server" not in marks:
        majors = metafunc.config.getoption("--postgresql")
        metafunc.parametrize("server", majors, indirect=True, scope="session", ids=[f"pg{major}" for major in majors])


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """Comparison with ``<test folder>/golden/<module>/<test name>.txt``."""
    path = request.node.path
    return Golden(
        folder=path.parent / "golden" / path.stem.removeprefix("test_"),
        name=request.node.name.removeprefix("test_"),
        update=request.config.getoption("--update-golden"),
    )


@pytest.fixture
def wrong_code() -> Iterator[None]:
    """For tests of what happens where code is wrong: nothing else may train with such code unseen."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Simulator, "end_epoch", _end_epoch)
        yield


_end_epoch = Simulator.end_epoch


def _end_right(self: Simulator) -> EpochCounters:
    counters = _end_epoch(self)
    assert not self.differs, "the code differs from the program, which trained in its place"
    return counters


class _NoCode(logging.Handler):
    """A mistake in making code ends no training, but a test: in its thread, where pytest sees it."""

    def emit(self, record: logging.LogRecord) -> None:
        if record.msg.startswith("compiling rule %r failed"):
            raise AssertionError(record.getMessage()) from (record.exc_info or (None, None))[1]


@pytest.fixture(autouse=True, scope="session")
def right_code() -> Iterator[None]:
    """Wherever a test trains with code in this process, it is the program's."""
    handler = _NoCode(logging.ERROR)
    compiled.log.addHandler(handler)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Simulator, "end_epoch", _end_right)
        yield
    compiled.log.removeHandler(handler)
