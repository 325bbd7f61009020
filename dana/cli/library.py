"""Command ``dana rules``: the rules that come with DAnA, listed, shown, registered in a database."""

from __future__ import annotations

import argparse
import sys

from dana.session.terminal import say


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add this group's commands."""
    rules = commands.add_parser("rules", help="the rules that come with DAnA: list, show, install them")
    rules.set_defaults(run=run_list)
    actions = rules.add_subparsers(metavar="ACTION")
    actions.add_parser("list", help="name and purpose of each").set_defaults(run=run_list)
    show = actions.add_parser("show", help="print a rule's text")
    show.add_argument("name", metavar="NAME")
    show.set_defaults(run=run_show)
    install = actions.add_parser("install", help="register rules in a database, under their names")
    install.add_argument("names", nargs="*", metavar="NAME", help="which (all)")
    install.add_argument("--dsn", help="server to register them on (the embedded one)")
    install.set_defaults(run=run_install)


def run_list(options: argparse.Namespace) -> int:
    """One line for each rule."""
    from dana import rules

    width = max(map(len, rules.NAMES))
    for name in rules.NAMES:
        say(f"{name:{width}}  {rules.summary(name)}")
    return 0


def run_show(options: argparse.Namespace) -> int:
    """The text."""
    from dana import rules

    sys.stdout.write(rules.text(options.name))
    return 0


def run_install(options: argparse.Namespace) -> int:
    """Register, and say which."""
    from dana.cli.server import dsn_of
    from dana.client.connection import connect

    dsn = dsn_of(options)
    with connect(dsn) as db:
        names = db.create_rules(*options.names)
    say(f"registered: {', '.join(names)}")
    return 0
