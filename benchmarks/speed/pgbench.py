"""Throughput of pgbench during a training, relative to pgbench next to a process that only keeps a core busy.

pgbench selects by primary key, with one client; the training runs epoch after epoch in another session.
"""

from __future__ import annotations

import re
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psycopg

from benchmarks.measure import Figure, main
from dana.client.connection import connect
from dana.language.rulefile import load
from dana.server.embedded import EmbeddedServer
from dana.server.places import PAPER

SECONDS, PAIRS, ROWS = 3, 4, 200_000
TABLE = "bench_beside"
UDF = "bench_logistic"


@contextmanager
def training(dsn: str) -> Iterator[None]:
    """A training that runs until the end of the block."""
    with psycopg.connect(dsn, autocommit=True) as session:

        def train() -> None:
            with suppress(psycopg.errors.QueryCanceled):
                session.execute(
                    f"SELECT dana_train('{UDF}', '{TABLE}', '{TABLE}', label => 'y', epochs => 100000, patience => 0)"
                )

        thread = threading.Thread(target=train)
        thread.start()
        try:
            with psycopg.connect(dsn, autocommit=True) as observer:
                while observer.execute("SELECT FROM dana.progress WHERE epoch > 0").rowcount == 0:
                    if not thread.is_alive():
                        raise RuntimeError("the training ended before its first epoch")
                    time.sleep(0.01)
            yield
        finally:
            session.cancel()
            thread.join()


@contextmanager
def busy_core(_: str) -> Iterator[None]:
    """A process that computes until the end of the block, in a session of its own, by which the kernel shares time."""
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"], start_new_session=True)
    try:
        yield
    finally:
        process.kill()
        process.wait()


def pgbench(server: EmbeddedServer, *options: str) -> str:
    """Run pgbench on the server; what it says."""
    command = [str(server.program("pgbench")), *options, server.dsn]
    return subprocess.run(command, capture_output=True, text=True, check=True, env={"LD_LIBRARY_PATH": ""}).stdout


def rate(server: EmbeddedServer) -> float:
    """Transactions per second."""
    said = pgbench(server, "-n", "-S", "-M", "prepared", "-T", str(SECONDS))
    found = re.search(r"tps = ([0-9.]+)", said)
    assert found is not None, said
    return float(found.group(1))


def run() -> list[Figure]:
    """Measure."""
    with connect() as db:
        db.create_rule(UDF, load(PAPER / "logistic.py"))
        db.session.execute(f"DROP TABLE IF EXISTS {TABLE}")
        db.session.execute(
            f"CREATE TABLE {TABLE} AS SELECT sin(i)::real AS x1, cos(i)::real AS x2, (i % 2)::real AS y"
            f" FROM generate_series(1, {ROWS}) i"
        )
    server = EmbeddedServer.start()
    pgbench(server, "-i", "-q", "-s", "2")
    rates: dict[str, list[float]] = {"training": [], "busy": []}
    for _ in range(PAIRS):
        for name, other in (("training", training), ("busy", busy_core)):
            with other(server.dsn):
                rates[name].append(rate(server))
    alone = rate(server)
    during_training, while_busy = statistics.median(rates["training"]), statistics.median(rates["busy"])
    with psycopg.connect(server.dsn, autocommit=True) as session:
        session.execute(f"DROP TABLE {TABLE}, pgbench_accounts, pgbench_branches, pgbench_history, pgbench_tellers")
    return [
        Figure(
            what=f"pgbench, selects, one client, during a training ({alone:,.0f} transactions/s without)",
            measured=f"{during_training:,.0f} transactions/s",
            reference=f"next to a process that keeps a core busy: {while_busy:,.0f}",
            ratio=during_training / while_busy,
            target=0.8,
            at_most=False,
        )
    ]


if __name__ == "__main__":
    main(run)
