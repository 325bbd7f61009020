"""The command ``dana ui``: pages about trainings, models and jobs, for a browser on this machine."""

from __future__ import annotations

import argparse

from dana.cli.options import path, port
from dana.session.terminal import say


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command."""
    ui = commands.add_parser("ui", help="serve pages about trainings, models and jobs to a browser on this machine")
    ui.add_argument("--dsn", help="server to look at (the embedded one)")
    where = ui.add_mutually_exclusive_group()
    where.add_argument("--port", type=port, default=8765, help="port of 127.0.0.1 (8765); 0: any that is free")
    where.add_argument("--socket", type=path, metavar="FILE", help="unix socket instead, for a tunnel: ssh -L")
    ui.set_defaults(run=run_ui)


def run_ui(options: argparse.Namespace) -> int:
    """Print the address, and serve until Ctrl-C."""
    import warnings

    from dana.cli.server import dsn_of
    from dana.client.connection import connect
    from dana.errors import SetupError
    from dana.extras import install_command

    try:
        from dana.ui.serve import address, listen, listen_at, new_token, serve
    except ModuleNotFoundError as error:
        raise SetupError(f"the pages need the package {error.name}; run: {install_command('ui')}") from None
    dsn = dsn_of(options)
    connect(dsn).close()  # an error of the address is one of this command, not of its first page
    token = new_token()
    listening = listen(options.port) if options.socket is None else listen_at(options.socket)
    if options.socket is None:
        say(f"open:  {address(listening.getsockname()[1], token)}")
    else:
        say(f"tunnel:  ssh -L 8765:{options.socket.absolute()} THIS-MACHINE")
        say(f"open:    {address(8765, token)}")
    say("The link works once. Ctrl-C ends the pages.", flush=True)
    # the pages show the server's notices
    warnings.simplefilter("ignore", UserWarning)
    serve(dsn, listening, token)
    return 0
