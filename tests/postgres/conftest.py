"""Servers and workers for the tests of the extension; see `tests.postgres.cluster`."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.postgres.cluster import Cluster, running_cluster

Session = psycopg.Connection[Any]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "shared_cluster" in metafunc.fixturenames:
        majors = metafunc.config.getoption("--postgresql")
        metafunc.parametrize(
            "shared_cluster", majors, indirect=True, scope="session", ids=[f"pg{major}" for major in majors]
        )


@pytest.fixture(scope="session")
def clusters(server_root: Path) -> Iterator[Callable[[int], Cluster]]:
    """Clusters by major version: each file asks for all of them in turn, so they run until the end."""
    with ExitStack() as running:
        yield cache(lambda major: running.enter_context(running_cluster(server_root, major, f"pg{major}")))


@pytest.fixture(scope="session")
def shared_cluster(request: pytest.FixtureRequest, clusters: Callable[[int], Cluster]) -> Cluster:
    return clusters(request.param)


@pytest.fixture
def cluster(shared_cluster: Cluster) -> Iterator[Cluster]:
    """A server with a worker, in which a test may kill the worker; checked for damage afterwards."""
    seen = len(shared_cluster.log)
    yield shared_cluster
    shared_cluster.ensure_worker()
    with shared_cluster.connect() as session:
        session.execute("DROP SCHEMA IF EXISTS test CASCADE")
        session.execute("SELECT dana_drop_rule(name) FROM dana.rule")
        session.execute("TRUNCATE dana.model, dana.run, dana.epoch CASCADE")
    added = shared_cluster.log[seen:]
    assert not re.search(r"PANIC|was terminated by signal|leak|TRAP", added), added


@pytest.fixture
def session(cluster: Cluster) -> Iterator[Session]:
    """A superuser's session in autocommit mode, with an empty schema `test` first in its search_path."""
    with cluster.connect() as session:
        session.execute("CREATE SCHEMA test")
        session.execute("SET search_path = test, public")
        yield session


@pytest.fixture
def rule(session: Session) -> Callable[..., str]:
    """Registers a rule of `tests.postgres.worker_main.Rule` and returns its name."""
    numbers = itertools.count(1)

    def register(**fields: Any) -> str:
        name = f"rule{next(numbers)}"
        session.execute("SELECT dana_create_udf(%s, %s)", (name, json.dumps(fields)))
        return name

    return register
