"""Commands for a server of one's own: put the extension into it, and find out what keeps it from training."""

from __future__ import annotations

import argparse
from pathlib import Path

from dana.cli.options import path
from dana.session.terminal import say

FAILED = 4
"""Exit code if there is a problem: that of a set-up that does not work."""


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add this group's commands."""
    install = commands.add_parser("install", help="put the extension into a PostgreSQL of your own (run it as root)")
    install.add_argument(
        "--pg-config", type=path, required=True, metavar="FILE", help="the program pg_config of that PostgreSQL"
    )
    install.set_defaults(run=run_install)

    doctor = commands.add_parser("doctor", help="check a server and its worker; print a command for each problem")
    doctor.add_argument("--dsn", help="server to check (the embedded one)")
    doctor.set_defaults(run=run_doctor)


def run_install(options: argparse.Namespace) -> int:
    """Put the extension's library and scripts into an installation."""
    from tempfile import TemporaryDirectory

    from dana.cli.server import shown_progress
    from dana.server.installation import put_extension

    with shown_progress() as progress, TemporaryDirectory() as folder:
        library = put_extension(options.pg_config, Path(folder), progress=progress)
    say(f"installed: {library}")
    say("Next, start the worker, and in each database: CREATE EXTENSION dana, or ALTER EXTENSION dana UPDATE.")
    return 0


def run_doctor(options: argparse.Namespace) -> int:
    """Print what was found, and a command for each problem; 4 if there is one."""
    from dana.server.doctor import examine

    code = 0
    for finding in examine(options.dsn):
        say(f"{'problem' if finding.fix else 'ok':8} {finding.what:10} {finding.text}")
        if finding.fix:
            say(f"{'':8} {'run:':10} {finding.fix}")
            code = FAILED
    return code
