"""Metrics about trainings, runs, jobs, models and the worker, for Prometheus.

In: a connection string, an address. Out: the text format of Prometheus over HTTP. Each scrape reads views and tables of
the extension in a session of its own; the worker, which has no network, is examined by way of the database. Nothing
that is served or logged has the connection string. Anyone who can reach the address can send requests.
"""

from __future__ import annotations

import ipaddress
import socket
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from importlib.metadata import version
from socketserver import ThreadingMixIn
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

import psycopg
from prometheus_client import CollectorRegistry, Counter, Histogram, make_wsgi_app
from prometheus_client.metrics_core import GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from dana.client.connection import address
from dana.errors import SetupError
from dana.loopback import HOST, MAX_CONNECTIONS
from dana.server.doctor import examine_session
from dana.session.terminal import say

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

PHASES = ("looking", "waiting", "compiling", "streaming", "training", "storing")
STATES = ("queued", "running", "done", "failed", "cancelled", "lost")
TABLES = ("rule", "model", "weights", "run", "epoch", "job_log")

# names of functions and operators are those of pg_catalog, which `_session` sets as the search path
TRAININGS = """
SELECT p.phase, count(*), max(extract(epoch FROM clock_timestamp() - a.query_start))::float8
FROM dana.progress AS p LEFT JOIN pg_stat_activity AS a ON a.pid = p.pid GROUP BY p.phase
"""
JOBS = "SELECT state, count(*) FROM dana.job GROUP BY state"
MODELS = "SELECT count(DISTINCT (owner::text, name)), count(*) FROM dana.model"
SIZES = "SELECT t, pg_total_relation_size(('dana.' || t)::regclass) FROM unnest(%s::text[]) AS t"
NEWEST = "SELECT id FROM dana.run ORDER BY id DESC LIMIT %s::bigint"
RUNS = """
SELECT id, rule, machine, wall_seconds, tuples * epochs, coalesce(cycles, 0) FROM dana.run
WHERE id > %s::bigint AND id <> ALL (%s::bigint[])
"""

CHECKS = "1 if this check of dana doctor finds a problem, which ends the checks; made once a minute"
DURATIONS = "Time from the call to the result of the runs since the first scrape"

SECONDS = 5
"""Longest time of a query of a scrape."""

EXAMINED = 60
"""Seconds between two examinations of the worker, which has it check a rule."""

LATE = 1000
"""Runs may be committed in another order than that of their numbers: later by as many numbers."""

BUCKETS = (0.1, 0.3, 1, 3, 10, 30, 60, 300, 900, 3600, 14400)


class DanaCollector(Collector):
    """Reads the metrics of one database; counts the runs that were committed since the first scrape.

    Parameters
    ----------
    dsn
        Connection string. Its role sees its own runs and jobs, a superuser all; of others' trainings, those that
        it may monitor (pg_monitor).
    """

    def __init__(self, dsn: str) -> None:
        self._dsn = address(dsn)
        self._scraping = threading.Lock()
        self._reachable = True
        self._checks = GaugeMetricFamily("dana_problem", CHECKS)
        self._examined = -float("inf")
        # numbers of the last runs; None before the first scrape
        self._seen: set[int] | None = None
        by = ("rule", "machine")
        self._durations = Histogram("dana_run_seconds", DURATIONS, by, registry=None, buckets=BUCKETS)
        self._rows = Counter("dana_run_rows", "Rows trained on, over all epochs", by, registry=None)
        self._cycles = Counter("dana_run_cycles", "Cycles of the machine; 0 for interp", by, registry=None)

    def describe(self) -> Iterable[Metric]:
        """Nothing: a registry would otherwise connect when it is made."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """All families; ``dana_up`` alone says that the database cannot be reached."""
        with self._scraping:
            up = GaugeMetricFamily("dana_up", "1 if this scrape could read the database", value=1)
            found: list[Metric] = []
            try:
                with psycopg.connect(
                    self._dsn, autocommit=True, client_encoding="utf8", connect_timeout=SECONDS
                ) as session:
                    found = [*self._read(session), *self._problems(session)]
                self._reachable = True
            except psycopg.Error as error:
                up = GaugeMetricFamily("dana_up", up.documentation, value=0)
                # libpq's own messages quote the connection string
                message = error.diag.message_primary or "the database cannot be reached; dana doctor finds out why"
                if self._reachable:
                    say(f"dana: {message}", flush=True)
                self._reachable = False
        yield up
        yield InfoMetricFamily("dana_build", "Release of this exporter", value={"version": version("dana-db")})
        yield from found
        for each in (self._durations, self._rows, self._cycles):
            yield from each.collect()

    def _read(self, session: psycopg.Connection) -> Iterator[Metric]:
        for name, value in (
            ("search_path", "pg_catalog"),
            ("default_transaction_read_only", "on"),
            ("statement_timeout", f"{SECONDS}s"),
            ("application_name", "dana metrics"),
        ):
            session.execute("SELECT pg_catalog.set_config(%s, %s, false)", (name, value))
        trainings = session.execute(TRAININGS).fetchall()
        yield _labelled("dana_trainings", "Trainings that run now", "phase", PHASES, [row[:2] for row in trainings])
        longest = max((row[2] or 0.0 for row in trainings), default=0.0)
        yield GaugeMetricFamily("dana_training_longest_seconds", "Time since the first of them began", value=longest)
        yield _labelled("dana_jobs", "Jobs", "state", STATES, session.execute(JOBS).fetchall())
        ((models, versions),) = session.execute(MODELS).fetchall()
        yield GaugeMetricFamily("dana_models", "Models", value=models)
        yield GaugeMetricFamily("dana_model_versions", "Versions of all models", value=versions)
        sizes = session.execute(SIZES, (list(TABLES),)).fetchall()
        yield _labelled("dana_table_bytes", "Size of a table of schema dana with its indexes", "table", TABLES, sizes)
        self._count(session)

    def _count(self, session: psycopg.Connection) -> None:
        if self._seen is None:
            self._seen = {row[0] for row in session.execute(NEWEST, (LATE,))}
        least = max(self._seen, default=0) - LATE
        for number, rule, machine, seconds, rows, cycles in session.execute(RUNS, (least, [*self._seen])).fetchall():
            self._seen.add(number)
            self._durations.labels(rule, machine).observe(seconds)
            self._rows.labels(rule, machine).inc(rows)
            self._cycles.labels(rule, machine).inc(cycles)
        self._seen = {one for one in self._seen if one > least}

    def _problems(self, session: psycopg.Connection) -> Iterator[Metric]:
        if time.monotonic() - self._examined >= EXAMINED:
            session.execute("SELECT pg_catalog.set_config('default_transaction_read_only', 'off', false)")
            checks = GaugeMetricFamily("dana_problem", CHECKS, labels=("check",))
            for finding in examine_session(session, "psql -c"):
                checks.add_metric((finding.what,), bool(finding.fix))
            self._checks, self._examined = checks, time.monotonic()
        yield self._checks


def _labelled(
    name: str, meaning: str, label: str, known: Iterable[str], rows: Iterable[tuple[str, int]]
) -> GaugeMetricFamily:
    """A gauge with a value for each label that is known, 0 without a row."""
    made = GaugeMetricFamily(name, meaning, labels=(label,))
    for key, value in (dict.fromkeys(known, 0) | dict(rows)).items():
        made.add_metric((key,), value)
    return made


class _Handler(WSGIRequestHandler):
    server: _Server

    def get_environ(self) -> WSGIEnvironment:
        self.server.has_asked(self.connection)
        return super().get_environ()

    def log_message(self, *_: object) -> None:
        """Nothing."""


class _Server(ThreadingMixIn, WSGIServer):
    """A thread for each connection; where there are too many, the one ends that has waited longest with its request."""

    daemon_threads = True
    request_queue_size = 128  # with socketserver's 5, other clients delay Prometheus by seconds

    def __init__(self, host: str, port: int) -> None:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        self.address_family = found[0][0]
        self._is_waiting: dict[socket.socket, bool] = {}
        super().__init__((str(found[0][4][0]), port), _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        self._is_waiting[request] = True
        if len(self._is_waiting) > MAX_CONNECTIONS:
            oldest = next(one for one, waiting in list(self._is_waiting.items()) if waiting)
            self._is_waiting.pop(oldest, None)
            with suppress(OSError):  # it has just ended
                oldest.shutdown(socket.SHUT_RDWR)
        super().process_request(request, client_address)

    def has_asked(self, connection: socket.socket) -> None:
        """Its request is complete."""
        if connection in self._is_waiting:
            self._is_waiting[connection] = False

    def shutdown_request(self, request: Any) -> None:
        self._is_waiting.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, *_: object) -> None:
        """Nothing, of a connection that the client broke off; errors of a scrape are not handled here."""


def _of_loopback(metrics: WSGIApplication) -> WSGIApplication:
    """Answers requests that name this machine: a page of another site, with a name rebound to it, does not."""

    def answer(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        if HOST.fullmatch(environ.get("HTTP_HOST", "")):
            return metrics(environ, start_response)
        start_response("421 Misdirected Request", [("Content-Type", "text/plain")])
        return [b"The name of this server is localhost.\n"]

    return answer


def serve(dsn: str, host: str, port: int) -> tuple[WSGIServer, threading.Thread]:
    """Serve the metrics of a database from a thread.

    Parameters
    ----------
    host, port
        Where to listen; port 0 is any free one.

    Raises
    ------
    SetupError
        The address is not this machine's, or in use.
    """
    registry = CollectorRegistry()
    registry.register(DanaCollector(dsn))
    try:
        server = _Server(host, port)
    except OSError as error:
        raise SetupError(f"cannot listen on port {port} of {host}: {error.strerror}; choose another: --port") from None
    metrics = make_wsgi_app(registry)
    is_loopback = ipaddress.ip_address(str(server.server_address[0])).is_loopback
    server.set_app(_of_loopback(metrics) if is_loopback else metrics)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    return server, thread
