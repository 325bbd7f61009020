"""The command ``dana``. One file for each group of commands; `entry` parses, dispatches, and maps errors to exit codes.

A command's module registers arguments at import and loads what it runs inside the function, so that ``dana --help``
stays fast.
"""

from dana.cli.entry import main

__all__ = ["main"]
