"""Trainings that Ray places: the same bits, also where process or node end; none without a token; nothing remains."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psycopg
import pytest

from dana.client.connection import Connection
from dana.client.outcomes import TrainResult
from dana.errors import SetupError, UsageError
from dana.integrations import ray as placed
from tests.cluster.test_sync import filled, parameters, training_backends


def test_no_training_without_a_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(placed.MODE, raising=False)
    with pytest.raises(UsageError, match=r"RAY_AUTH_MODE is not token\nHint: Set RAY_AUTH_MODE=token"):
        placed.train("logistic", "rows", ["host=a"], dsn="host=b")
    monkeypatch.setenv(placed.MODE, "token")
    for name in ("password", "sslpassword", "scram_client_key", "oauth_client_secret"):
        with pytest.raises(UsageError, match=f"a connection string has {name}, which Ray would send in the clear"):
            placed.train("logistic", "rows", [f"host=a {name}=secret"], dsn="host=b")


@pytest.fixture(scope="module")
def nodes() -> Iterator[Any]:
    """A cluster of a head, on which nothing runs, and two nodes."""
    if find_spec("ray") is None:  # Ray reads its mode when it is imported
        pytest.skip("Ray is not installed")
    given = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(16), "RAY_USAGE_STATS_ENABLED": "0"}
    before = dict(os.environ)
    os.environ.update(given)
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    try:
        for _ in range(2):
            made.add_node(num_cpus=1)
        yield made
    finally:
        made.shutdown()
        os.environ.clear()
        os.environ.update(before)


def relays() -> list[int]:
    """Processes of this cluster that relay."""
    token, found = f"RAY_AUTH_TOKEN={os.environ['RAY_AUTH_TOKEN']}".encode(), []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended
            if (process / "cmdline").read_bytes().startswith(b"ray::_run"):
                found += [int(process.name)] * (token in (process / "environ").read_bytes())
    return found


def trained(shards: list[str], nodes: Any, **options: Any) -> TrainResult:
    given = {"dsn": shards[0], "address": nodes.address, "sync": "batch", **OPTIONS}
    return placed.train("linear_svm", "rows", shards, **given | options)


OPTIONS: dict[str, Any] = {"label": "y", "shuffle": False}


def test_a_training_on_ray_has_the_bits_of_one_here(db: Connection, shards: list[str], nodes: Any) -> None:
    filled(shards, 256, 256, 256)
    db.train("linear_svm", "rows", shards=shards, sync="batch", model="here", epochs=3, **OPTIONS)
    found = trained(shards, nodes, epochs=3, model="there", node=nodes.head_node.node_ip_address)
    assert (found.tuples, found.epochs) == (768, 3)
    assert parameters(db, "here") == parameters(db, "there")
    with pytest.raises(psycopg.OperationalError, match=r"shard 2 .*nowhere") as caught:
        placed.train("linear_svm", "rows", [shards[0], "host=/nowhere"], dsn=shards[0], address=nodes.address)
    assert caught.value.sqlstate == "08001"
    with pytest.raises(UsageError, match=r"has no node 10\.0\.0\.1"):
        trained(shards, nodes, node="10.0.0.1")


def test_another_token_is_named(monkeypatch: pytest.MonkeyPatch, shards: list[str], nodes: Any) -> None:
    import ray

    monkeypatch.setenv("RAY_AUTH_TOKEN", "0" * 32)
    code = (
        "from dana.errors import SetupError; from dana.integrations.ray import train\n"
        f"try: train('linear_svm', 'rows', ['host=a'], dsn='host=b', address={nodes.address!r})\n"
        "except SetupError as error: print(error)"
    )
    # Ray reads the token once in a process
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "refuses this process; the token (RAY_AUTH_TOKEN, RAY_AUTH_TOKEN_PATH) is another" in said
    with pytest.raises(SetupError, match=r"no Ray cluster listens at 127\.0\.0\.1:1: "):
        trained(shards, nodes, address="127.0.0.1:1")
    assert not ray.is_initialized()


def kill_process(_: Any, relay: int) -> None:
    os.kill(relay, signal.SIGKILL)


def kill_node(nodes: Any, relay: int) -> None:
    raylet = int((Path("/proc") / str(relay) / "stat").read_text().rpartition(")")[2].split()[1])
    [node] = [one for one in nodes.worker_nodes if one.all_processes["raylet"][0].process.pid == raylet]
    nodes.remove_node(node, allow_graceful=False)


@pytest.mark.parametrize(("kill", "retries"), [(kill_process, 0), (kill_process, 2), (kill_node, 2)])
def test_a_kill_ends_in_the_same_bits_or_an_error(
    db: Connection, shards: list[str], nodes: Any, kill: Callable[[Any, int], None], retries: int
) -> None:
    filled(shards, 256, 256, 256)
    epochs = 2000
    db.train("linear_svm", "rows", shards=shards, sync="batch", model="here", epochs=epochs, **OPTIONS)
    killed: list[int] = []

    def later() -> None:
        while not training_backends(shards[1]):
            time.sleep(0.05)
        killed.extend(relays())
        kill(nodes, killed[0])

    thread = threading.Thread(target=later)
    thread.start()
    try:
        if retries:
            trained(shards, nodes, epochs=epochs, model="there", retries=retries)
            assert parameters(db, "here") == parameters(db, "there")
        else:
            with pytest.raises(SetupError, match="the process that relays ended"):
                trained(shards, nodes, epochs=epochs, model="there", retries=retries)
    finally:
        thread.join()
    assert len(killed) == 1
    deadline = time.monotonic() + 30
    while relays() or any(training_backends(dsn) for dsn in shards):
        assert time.monotonic() < deadline, "a process or a backend is left"
        time.sleep(0.1)
    assert len([one for one in db.models() if one.name == "there"]) == (1 if retries else 0)
