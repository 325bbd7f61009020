"""The command ``dana report``: an HTML report on a run."""

from __future__ import annotations

import argparse
from pathlib import Path

from dana.cli.options import path
from dana.cli.screen import bigint
from dana.session.terminal import say
from hwgen.folders import write_file


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command."""
    report = commands.add_parser(
        "report", help="write an HTML report on a run: metrics, curves, coefficients, data, and the machine"
    )
    report.add_argument("number", type=bigint, metavar="RUN", help="number of the run, as dana_train returns it")
    report.add_argument("-o", "--output", type=path, metavar="FILE", help="file to write (run-RUN.html)")
    report.add_argument("--threshold", type=float, metavar="NUMBER", help="least prediction that counts as positive")
    report.add_argument(
        "--no-rows", action="store_true", help="read only the record of the training: no metrics and their curves"
    )
    report.add_argument("--dsn", help="server that has the run (the embedded one)")
    report.set_defaults(run=run_report)


def run_report(options: argparse.Namespace) -> int:
    """Read the run, evaluate its model, compile its machine again, write the page."""
    from dana.cli.server import dsn_of
    from dana.client.connection import connect
    from dana.errors import SetupError
    from dana.extras import install_command

    try:
        from dana.report.page import render
    except ModuleNotFoundError as error:
        raise SetupError(f"reports need the package {error.name}; run: {install_command('report')}") from None
    from dana.report.history import read_run
    from dana.report.machine import machine_of
    from dana.report.scores import read_scores
    from dana.report.stored import read_model

    with connect(dsn_of(options)) as db:
        run = read_run(db.session, options.number)
        model = read_model(db.session, run)
        scores = "" if options.no_rows else read_scores(db.session, run, model, options.threshold)
    file = options.output or Path(f"run-{run.id}.html")
    # outside of the session, which compiling the machine again does not need
    write_file(file, render(run, machine_of(run), model, scores).encode())
    say(file)
    return 0
