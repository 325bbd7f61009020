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
from tests.postgres.moments import MOMENTS

Session = psycopg.Connection[Any]


ONE_VERSION = (
    "test_large_models",
    "test_limits",
    "test_many",
    "test_memory",
    "test_no_look_leaves_a_tuple",
    "test_predict",
    "test_random_damage_under_a_filter",
    "test_refusals",
)
"""Modules, or tests, of C that has no line for one version or another: the newest version that is asked for tells."""


EVERY_CASE = ("test_visibility", "test_types")
"""Modules in which PostgreSQL's own versions, and not ours, may make a difference to each case."""


EVERYWHERE = ("cancel", "terminate", "kill -9 of the worker")
"""Faults that an older version has in turn, at one moment after another: ways on which what was taken is given back."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Have an older version run each test with the first of its cases, the newest one with all."""
    newest = max(int(major) for major in config.getoption("--postgresql").split(","))
    seen: set[tuple[object, ...]] = set()
    items[:] = [item for item in items if not _repeats(item, newest, seen)]


def _repeats(item: pytest.Item, newest: int, seen: set[tuple[object, ...]]) -> bool:
    call: Any = getattr(item, "callspec", None)
    if call is None or call.params.get("shared_cluster", newest) == newest or item.path.stem in EVERY_CASE:
        return False
    if "fault" in call.params:
        return bool(call.params["fault"] != EVERYWHERE[[*MOMENTS].index(call.params["moment"]) % len(EVERYWHERE)])
    test = item.path, item.originalname, call.params["shared_cluster"]  # type: ignore[attr-defined]
    if test in seen:
        return True
    seen.add(test)
    return False


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "shared_cluster" in metafunc.fixturenames:
        majors = [int(major) for major in metafunc.config.getoption("--postgresql").split(",")]
        if {metafunc.module.__name__.rpartition(".")[2], metafunc.function.__name__} & {*ONE_VERSION}:
            majors = [max(majors)]
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
