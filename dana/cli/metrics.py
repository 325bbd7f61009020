"""The command ``dana metrics``: what Prometheus scrapes."""

from __future__ import annotations

import argparse

from dana.cli.options import port
from dana.session.terminal import say


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command."""
    metrics = commands.add_parser("metrics", help="serve metrics of trainings, jobs and the worker to Prometheus")
    metrics.add_argument("--dsn", help="server to look at (the embedded one)")
    metrics.add_argument("--address", default="127.0.0.1", help="address to listen on (127.0.0.1)")
    metrics.add_argument("--port", type=port, default=9836, help="its port (9836); 0: any that is free")
    metrics.set_defaults(run=run_metrics)


def run_metrics(options: argparse.Namespace) -> int:
    """Print the address, and serve until Ctrl-C."""
    from dana.cli.server import dsn_of
    from dana.client.connection import connect
    from dana.errors import SetupError
    from dana.extras import install_command

    try:
        from dana.integrations.prometheus import serve
    except ModuleNotFoundError as error:
        raise SetupError(f"dana metrics needs the package {error.name}; run: {install_command('metrics')}") from None
    dsn = dsn_of(options)
    connect(dsn).close()  # an error of the connection string is one of this command, not of its first scrape
    server, thread = serve(dsn, options.address, options.port)
    say(f"serving:  http://{options.address}:{server.server_port}/metrics", flush=True)
    thread.join()
    return 0
