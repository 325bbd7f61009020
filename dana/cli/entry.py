"""Entry of the command line: the parser, and the one place where an error becomes an exit code.

In: arguments. Out: an exit code; on failure a message on stderr. It must not import a command's machinery.
"""

from __future__ import annotations

import argparse
import os
import sys
import traceback
import warnings
from collections.abc import Sequence
from importlib.metadata import version
from typing import NoReturn

from dana.cli import bench, demo, design, hardware, jobs, library, models, report, rules, search, server, top, train
from dana.errors import SetupError, UsageError
from dana.printable import printable
from dana.session.terminal import say

OK = 0
USAGE = 2
"""Your bug: in the arguments (argparse's own code), the rule or the request."""
DATABASE = 3
"""The database answered with an error, or not at all."""
INVALID_PARAMETER = "22023"
"""SQLSTATE of an argument that the server refuses: your bug, too."""
SETUP = 4
"""Something on this machine is missing or refuses."""
INTERNAL = 70
"""Our bug (EX_SOFTWARE of sysexits.h)."""
INTERRUPTED = 130
"""Ctrl-C, as a shell reports it (128 + SIGINT)."""

GROUPS = (rules, library, design, hardware, train, search, jobs, models, top, report, server, demo, bench)
"""Modules of commands, in the order in which ``dana --help`` lists them."""


class _Parser(argparse.ArgumentParser):
    """Its errors quote the arguments, which may be names from elsewhere."""

    def error(self, message: str) -> NoReturn:
        super().error(printable(message, lines=True))


def parser() -> argparse.ArgumentParser:
    """The whole command line."""
    top = _Parser(
        prog="dana",
        description="Train machine-learning rules on PostgreSQL pages with a generated accelerator.",
        epilog="exit codes: 0 done, 2 your bug, 3 database, 4 set-up, 70 our bug, 130 interrupted",
    )
    top.add_argument("--version", action="version", version=f"dana {version('dana-db')}")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for group in GROUPS:
        group.register(commands)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; ``arguments`` default to the process's own."""
    top = parser()
    options, unknown = top.parse_known_args(arguments)
    if unknown and not hasattr(options, "passed_on"):
        top.error(f"unrecognized arguments: {' '.join(unknown)}")
    options.passed_on = unknown
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always", UserWarning)
            warnings.showwarning = _show_warning
            code: int = options.run(options)
    except KeyboardInterrupt:
        return _fail("interrupted", INTERRUPTED)
    except BrokenPipeError:
        # the reader of our output went away (dana compile … | head); Python would complain again at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK
    except Exception as error:
        return _report(error)
    return code


def _report(error: Exception) -> int:
    if _is_from("dsl.diagnostics", "RuleError", error):
        return _fail(str(error), USAGE)
    if _is_from("psycopg", "Error", error):
        code = USAGE if getattr(error, "sqlstate", None) == INVALID_PARAMETER else DATABASE
        # the context is the extension's own functions, which nobody has to know
        return _fail(str(error).split("\nCONTEXT:", 1)[0].strip(), code)
    if isinstance(error, SetupError) or _is_from("hwgen.folders", "ForeignFolder", error):
        return _fail(str(error), SETUP)
    if isinstance(error, UsageError):
        return _fail(str(error), USAGE)
    if isinstance(error, OSError) and error.filename is not None:
        return _fail(f"{error.filename}: {error.strerror}", SETUP)
    say("".join(traceback.format_exception(error)), lines=True, end="", file=sys.stderr)
    return _fail("this is a bug in dana; please report it with the lines above", INTERNAL)


def _show_warning(message: Warning | str, *where: object, **more: object) -> None:
    """Print what the server or the compiler says; where in our own code it was said helps nobody."""
    label = "notice: " if _is_from("dana.session.notices", "ServerNotice", message) else "warning: "
    text = str(message)
    if not text.startswith("warning["):  # the compiler's have it already
        text = label + text
    say(text, lines=True, file=sys.stderr)


def _is_from(module: str, name: str, error: object) -> bool:
    """Whether ``error`` is of a class of a module that may not be loaded: then nothing can have raised it."""
    loaded = sys.modules.get(module)
    return loaded is not None and isinstance(error, getattr(loaded, name))


def _fail(message: str, code: int) -> int:
    # it may be the server's, with names that anybody chose
    say(f"dana: {message}", lines=True, file=sys.stderr)
    return code
