"""Trainings over shards on a Ray cluster: their messages are relayed on a node near the servers, by a process that Ray
places, watches and starts again.

In: connection strings that work on Ray's nodes, the arguments of a training. Out: its result, or its error. Nodes need
this package, of the same release. Ray carries the arguments and the result, never a message of the training: a call of
an actor takes as long as 24 to 52 round trips. A training is one transaction of the server that leads: if its process
ends, nothing is left, and the next one has the same bits.
"""

from __future__ import annotations

import importlib
import os
import socket
import warnings
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from types import ModuleType
from typing import Any, Unpack

import psycopg

from dana.client.connection import connect
from dana.client.options import TrainOptions
from dana.client.outcomes import TrainResult
from dana.cluster.gather import TIMEOUT
from dana.errors import SetupError, UsageError
from dana.extras import install_command
from dana.server.conninfo import SECRETS, parts_of
from dana.session.notices import repeat

RETRIES = 3
"""How often a training begins again whose process or node ended."""

CONNECT_TIMEOUT = 5
"""Seconds to look in whether anything listens at Ray's address."""

MODE = "RAY_AUTH_MODE"
"""Ray's setting: whether a token is needed to use a cluster, and with it to run any code there."""


def train(
    rule: str,
    table: str,
    shards: Sequence[str],
    *,
    dsn: str,
    address: str | None = None,
    node: str | None = None,
    retries: int = RETRIES,
    timeout: float = TIMEOUT,
    **options: Unpack[TrainOptions],
) -> TrainResult:
    """Train over shards as `Connection.train` does, in a process on a node of a Ray cluster.

    Parameters
    ----------
    shards
        Connection strings that work on the node, without secrets: files there have these (``passfile``, ``service``).
    dsn
        The server that trains: such a string, too.
    address
        Of the cluster's head, ``host:port``. None: a Ray of this machine alone, for this training.
    node
        IP address of the node to relay on, while it lives. None: Ray chooses.
    retries
        How often the training begins again if its process or node ends. If it ended just after it had stored the
        model, there is another version of it, with the same bits.

    Raises
    ------
    UsageError
        Ray would work without a token; a connection string has a secret; an error of the request.
    SetupError
        Ray is not installed, does not answer, or refuses the token; or the process ended more than ``retries`` times.
    psycopg.Error
        As for `Connection.train`.
    """
    if os.environ.get(MODE) != "token":
        raise UsageError(
            f"Ray would let everybody run code who reaches its ports: {MODE} is not token",
            hint=f"Set {MODE}=token, and RAY_AUTH_TOKEN or RAY_AUTH_TOKEN_PATH, here and where the nodes are started.",
        )
    for given in (dsn, *shards):
        if secrets := SECRETS & parts_of(given).keys():
            raise UsageError(
                f"a connection string has {min(secrets)}, which Ray would send in the clear",
                hint="Put it into a file on the nodes: passfile or service.",
            )
    ray = _ray()
    _init(ray, address)
    try:
        return _result(ray, _submitted(ray, node, retries, (dsn, rule, table, list(shards), timeout, options)))
    finally:
        ray.shutdown()


def _ray() -> ModuleType:
    try:
        found = importlib.import_module("ray")
    except ModuleNotFoundError:
        raise SetupError(f"a training on Ray needs the package ray; run: {install_command('cluster')}") from None
    own = importlib.import_module("ray._raylet")
    if own.get_authentication_mode() != own.AuthenticationMode.TOKEN:
        raise UsageError(f"Ray was used in this process before {MODE} was set", hint="Set it before Python starts.")
    return found


def _init(ray: ModuleType, address: str | None) -> None:
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    if address is None:
        ray.init(address="local", num_cpus=1, include_dashboard=False, **quiet)
        return
    host, _, port = address.rpartition(":")
    try:
        # Ray says the same of a wrong token as of a port where nothing listens, after 20 s
        socket.create_connection((host, int(port)), CONNECT_TIMEOUT).close()
    except (OSError, ValueError) as error:
        raise SetupError(f"no Ray cluster listens at {address}: {error}") from None
    try:
        ray.init(address=address, **quiet)
    except Exception as error:  # ConnectionError or RuntimeError, or one of its own, by release
        raise SetupError(
            f"the Ray cluster at {address} refuses this process; the token (RAY_AUTH_TOKEN, RAY_AUTH_TOKEN_PATH) is "
            f"another than the cluster's, or its release is not {ray.__version__}: {error}"
        ) from error


def _submitted(ray: ModuleType, node: str | None, retries: int, arguments: tuple[object, ...]) -> Any:
    strategy: object = "DEFAULT"
    if node is not None:
        alive = {one["NodeManagerAddress"]: one["NodeID"] for one in ray.nodes() if one["Alive"]}
        if node not in alive:
            raise UsageError(f"the Ray cluster has no node {node}", hint=f"Its nodes are {', '.join(sorted(alive))}.")
        near = importlib.import_module("ray.util.scheduling_strategies").NodeAffinitySchedulingStrategy
        strategy = near(alive[node], soft=True)
    remote = ray.remote(num_cpus=1, max_retries=retries, scheduling_strategy=strategy)(_run)
    return remote.remote(*arguments)


def _run(
    dsn: str,
    rule: str,
    table: str,
    shards: list[str],
    timeout: float,
    options: TrainOptions,
) -> tuple[TrainResult | None, tuple[str, str] | None, list[str]]:
    """On the node: the result, or an error and its SQLSTATE; and what was said. Errors of a shard are not pickled."""
    result, failed = None, None
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            with closing(connect(dsn)) as db:
                trained = db.train(rule, table, shards=shards, timeout=timeout, progress=False, **options)
            result = replace(trained, _session=None)
        except UsageError as error:
            failed = str(error), ""
        except psycopg.Error as error:
            failed = str(error), error.sqlstate or ""
    return result, failed, [f"{_level(one.category)}: {one.message}" for one in said]


def _level(category: type[Warning]) -> str:
    return "NOTICE" if "Notice" in category.__name__ else "WARNING"


def _result(ray: ModuleType, task: Any) -> TrainResult:
    try:
        result, failed, said = ray.get(task)
    except (ray.exceptions.WorkerCrashedError, ray.exceptions.NodeDiedError) as error:
        raise SetupError(f"the process that relays ended, and so did those that Ray started again: {error}") from error
    except KeyboardInterrupt:
        ray.cancel(task, force=True)  # the servers see its connections end
        raise
    repeat(said)
    if failed is None:
        assert isinstance(result, TrainResult)
        return result
    message, sqlstate = failed
    if not sqlstate:
        raise UsageError(message)
    found = psycopg.OperationalError(message)
    found.sqlstate = sqlstate
    raise found
