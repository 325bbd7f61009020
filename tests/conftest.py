"""Fixtures that every test folder may use: golden text here; the PostgreSQL servers come from `tests.servers`."""

from __future__ import annotations

import pytest

from dana.server.installation import MAJORS
from tests.golden import Golden
from tests.servers import connection, own_root, pg_uri, server, server_root, servers

__all__ = ["connection", "golden", "own_root", "pg_uri", "server", "server_root", "servers"]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite the golden files with what the tests print")
    parser.addoption(
        "--postgresql",
        default=",".join(str(major) for major in MAJORS),
        metavar="MAJORS",
        help="major versions for tests/pg (16,18); the others come with make -C pg_extension check-headers",
    )


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """Comparison with ``<test folder>/golden/<module>/<test name>.txt``."""
    path = request.node.path
    return Golden(
        folder=path.parent / "golden" / path.stem.removeprefix("test_"),
        name=request.node.name.removeprefix("test_"),
        update=request.config.getoption("--update-golden"),
    )
