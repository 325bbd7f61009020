"""Commands for the embedded server: start, stop, psql; and the worker, for any server."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from dana.cli.options import path
from dana.cli.screen import positive
from dana.session.terminal import say

if TYPE_CHECKING:
    from dana.server.embedded import EmbeddedServer, Progress


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add this group's commands."""
    start = commands.add_parser("start", help="start the embedded PostgreSQL and its worker, print how to connect")
    _add_major(start)
    start.set_defaults(run=run_start)

    stop = commands.add_parser("stop", help="stop the embedded PostgreSQL and its worker")
    _add_major(stop)
    stop.set_defaults(run=run_stop)

    psql = commands.add_parser(
        "psql",
        usage="dana psql [-h] [--major {16,18}] [ARGUMENT OF PSQL ...]",
        help="open a shell on the embedded PostgreSQL (starts it if necessary)",
    )
    _add_major(psql)
    psql.set_defaults(run=run_psql, passed_on=[])

    worker = commands.add_parser(
        "worker", help="run a worker for an existing PostgreSQL (the embedded one has its own)"
    )
    worker.add_argument(
        "--socket", type=path, required=True, help="unix socket to listen on: the setting dana.socket_path"
    )
    worker.add_argument(
        "--memory-limit", type=size, metavar="SIZE", help="memory of a session, such as 4GB (half of the machine's)"
    )
    worker.add_argument(
        "--total-memory", type=size, metavar="SIZE", help="memory of all sessions (three quarters of the machine's)"
    )
    worker.add_argument(
        "--cache-limit",
        type=size,
        metavar="SIZE",
        help="pages cached between epochs (a quarter of the machine's memory)",
    )
    worker.add_argument(
        "--idle-seconds", type=positive, metavar="N", help="end a session that had no request for so long (600)"
    )
    worker.add_argument(
        "--max-sessions", type=int, metavar="N", help="sessions at a time; for one more, an idle one ends (64)"
    )
    worker.add_argument("--threads", type=int, metavar="N", help="processors that a training may use at a time (8)")
    worker.add_argument(
        "--model-directory",
        type=path,
        metavar="DIR",
        help="folder for models that are too large for a session's memory",
    )
    worker.add_argument(
        "--design-cache", type=size, metavar="SIZE", help="compiled rules on disk; the least recently used go (256MB)"
    )
    worker.add_argument(
        "--rtl-cache", type=size, metavar="SIZE", help="compiled hardware on disk, for the machine rtl (1GB)"
    )
    worker.set_defaults(run=run_worker)


def size(text: str) -> int:
    """Bytes of a size as PostgreSQL writes it: 512MB, 4GB."""
    found = re.fullmatch(r"(\d+) ?(kB|MB|GB|TB)?", text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size such as 512MB or 4GB")
    units = {None: 1, "kB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30, "TB": 1 << 40}
    return int(found[1]) * units[found[2]]


def _add_major(command: argparse.ArgumentParser) -> None:
    command.add_argument("--major", type=int, default=18, choices=(16, 18), help="PostgreSQL's major version (18)")


@contextmanager
def shown_progress() -> Iterator[Progress]:
    """Progress on stderr: a spinner in a terminal, one line for each step elsewhere."""
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda text: say(f"dana: {text} …", file=sys.stderr, flush=True)
        return
    with console.status("") as status:
        yield lambda text: status.update(f"{text} …")


def started(major: int) -> EmbeddedServer:
    """The embedded server, started with its progress shown if it is not running."""
    from dana.server.embedded import EmbeddedServer

    with shown_progress() as progress:
        return EmbeddedServer.start(major=major, progress=progress)


def dsn_of(options: argparse.Namespace) -> str:
    """Connection string of ``--dsn``, or of the embedded server, which is started if it is not running."""
    from dana.server.installation import DEFAULT_MAJOR

    return str(options.dsn) if options.dsn else started(DEFAULT_MAJOR).dsn


def run_start(options: argparse.Namespace) -> int:
    """Start the embedded server; print its connection string and its folder."""
    server = started(options.major)
    say(f"connect:  {server.dsn}")
    say(f"folder:   {server.root}")
    say(f"logs:     {server.server_log}")
    say(f"          {server.worker_log}")
    return 0


def run_stop(options: argparse.Namespace) -> int:
    """Stop the embedded server."""
    from dana.server.embedded import EmbeddedServer

    say("stopped" if EmbeddedServer.at(major=options.major).stop() else "not running")
    return 0


def run_psql(options: argparse.Namespace) -> int:
    """Execute psql on the embedded server; print the connection string if psql is missing."""
    server = started(options.major)
    psql = server.program("psql")
    if not os.access(psql, os.X_OK):
        say(server.dsn)
        return 0
    # argparse leaves a leading "--" in what it does not know
    arguments = options.passed_on[1:] if options.passed_on[:1] == ["--"] else options.passed_on
    # in place of this process, so that psql gets the terminal's signals
    os.execv(psql, [str(psql), server.dsn, *arguments])


def run_worker(options: argparse.Namespace) -> int:
    """Serve trainings until a signal to stop; the log goes to stderr."""
    import logging

    from dana.trainer import processors
    from dana.trainer.machine_code import load_ahead
    from dana.trainer.trainer import MAX_CACHE_BYTES, MachineTrainer, design_cache
    from dana.worker.process import WorkerOptions, serve
    from hwgen.rtl.verilate import limit_cache, object_cache  # loads no Amaranth: the worker starts without the extra

    logging.basicConfig(level=logging.INFO, format="%(asctime)s [%(process)d] %(levelname)s %(message)s")
    names = ("memory_limit", "total_memory", "cache_limit", "idle_seconds", "max_sessions", "model_directory")
    # the options' defaults depend on the machine and stand in `WorkerOptions` alone
    chosen = {name: getattr(options, name) for name in names if getattr(options, name) is not None}
    designs = design_cache(MAX_CACHE_BYTES if options.design_cache is None else options.design_cache)
    # before `object_cache`, which returns the folder with its limit
    if options.rtl_cache is not None:
        limit_cache(options.rtl_cache)
    if options.threads is not None:
        processors.limit(options.threads)
    serve(
        MachineTrainer(designs),
        WorkerOptions(socket_path=options.socket, caches=(designs, object_cache()), **chosen),
        load_ahead,
    )
    return 0
