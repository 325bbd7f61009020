"""Entry of the command line: the parser, and the one place where an error becomes an exit code.

In: arguments. Out: an exit code; on failure a message on stderr. It must not import a command's machinery.
"""

from __future__ import annotations

import argparse
import errno
import io
import os
import sys
import traceback
import warnings
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any, NoReturn

from dana import ours
from dana.cli import (
    bench,
    demo,
    design,
    doctor,
    hardware,
    jobs,
    library,
    load,
    metrics,
    models,
    report,
    rules,
    search,
    server,
    shards,
    top,
    train,
    ui,
)
from dana.cli.screen import integer
from dana.errors import SetupError, UsageError
from dana.printable import printable
from dana.session.terminal import say

OK = 0
USAGE = 2
"""An error of the user: in the arguments (argparse's own code), the rule or the request."""
DATABASE = 3
"""The database returned an error, or cannot be reached."""
INVALID_PARAMETER = "22023"
"""SQLSTATE of an argument that the server rejects: also an error of the user."""
SETUP = 4
"""Something on this machine is missing or does not work."""
INTERNAL = 70
"""Our bug (EX_SOFTWARE of sysexits.h)."""
INTERRUPTED = 130
"""Ctrl-C, as a shell reports it (128 + SIGINT)."""

GROUPS = (
    *(load, rules, library, design, hardware, train, search, shards, jobs, models, top, ui, metrics),
    *(report, server, doctor, demo, bench),
)
"""Modules of commands, in the order in which ``dana --help`` lists them."""


class _Parser(argparse.ArgumentParser):
    """A parser with printable errors: they quote arguments, which may be untrusted names."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.register("type", int, integer)  # for every option with type=int

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
    # as Python does for stderr: an encoding that lacks a character of a name is no bug
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    if foreign := ours.namesakes():
        return _fail(ours.overwritten(foreign), SETUP)
    top = parser()
    for argument in sys.argv[1:] if arguments is None else arguments:
        if any("\ud800" <= one <= "\udfff" for one in argument):
            top.error(f"argument {argument!r} is not text in {sys.getfilesystemencoding()}: set LC_ALL=C.UTF-8")
    # unknown arguments are those of psql, for the one command that passes them on
    options, unknown = top.parse_known_args(arguments)
    if unknown and not hasattr(options, "passed_on"):
        top.error(f"unrecognized arguments: {' '.join(unknown)}")
    options.passed_on = unknown
    # Python sets it to None if descriptor 1 is closed (`>&-`)
    if sys.stdout is None:
        return _fail("standard output is closed: send it to a file or to /dev/null", SETUP)
    try:
        with warnings.catch_warnings():
            # Python shows a warning of one line only once, and a command may repeat a message
            warnings.simplefilter("always", UserWarning)
            warnings.showwarning = _show_warning
            code: int = options.run(options)
        sys.stdout.flush()  # a full disk is an error of this command, not of the interpreter's exit
    except KeyboardInterrupt:
        return _fail("interrupted", INTERRUPTED)
    except BrokenPipeError:
        _discard_output()  # its reader exited (dana compile … | head)
        return OK
    except Exception as error:
        return _report(error)
    return code


def _report(error: Exception) -> int:
    if _is_from("dsl.diagnostics", "RuleError", error):
        return _fail(str(error), USAGE)
    if _is_from("psycopg", "Error", error):
        code = USAGE if getattr(error, "sqlstate", None) == INVALID_PARAMETER else DATABASE
        # the context names internal functions of the extension
        return _fail(str(error).split("\nCONTEXT:", 1)[0].strip(), code)
    if isinstance(error, SetupError) or _is_from("hwgen.folders", "ForeignFolder", error):
        return _fail(str(error), SETUP)
    if isinstance(error, UsageError):
        return _fail(str(error), USAGE)
    # a file that the user named; an OSError without a name is ours, except for a full disk
    if isinstance(error, OSError) and error.filename is not None:
        return _fail(f"{error.filename}: {error.strerror}", SETUP)
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        _discard_output()
        return _fail(f"cannot write the output: {error.strerror}", SETUP)
    if isinstance(error, ImportError) and (foreign := ours.foreign_distributions()):
        return _fail(f"{error}\n{ours.overwritten(foreign)}", SETUP)
    say("".join(traceback.format_exception(error)), lines=True, end="", file=sys.stderr)
    return _fail("this is a bug in dana; please report it with the lines above", INTERNAL)


def _discard_output() -> None:
    """Drop what standard output still buffers; Python would report the same error again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _show_warning(message: Warning | str, *where: object, **more: object) -> None:
    """Print a message of the server or the compiler, without the line of our own code."""
    label = "notice: " if _is_from("dana.session.notices", "ServerNotice", message) else "warning: "
    text = str(message)
    if not text.startswith("warning["):  # the compiler's begin so already
        text = label + text
    say(text, lines=True, file=sys.stderr)


def _is_from(module: str, name: str, error: object) -> bool:
    """Whether ``error`` is of a class of a module; the module is not loaded for it, as nothing can have raised it."""
    loaded = sys.modules.get(module)
    return loaded is not None and isinstance(error, getattr(loaded, name))


def _fail(message: str, code: int) -> int:
    # a message of the server may hold untrusted names
    say(f"dana: {message}", lines=True, file=sys.stderr)
    return code
