"""Shared by the commands of ``dana bench``: console, page renderer, BLAS on one thread."""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

MAX_QUOTED = 40
"""Characters of an argument that a message quotes."""

WIDTH = 160
"""Characters of a line of tables in a file."""


def console(width: int = WIDTH) -> Console:
    """A console; wide for files and pipes, where 80 columns would break every cell."""
    from rich.console import Console

    terminal = Console()
    return terminal if terminal.is_terminal else Console(width=width)


def renderer(module: str) -> Callable[..., str]:
    """A page's `render`; checked before minutes of measurement."""
    from dana.errors import SetupError
    from dana.extras import install_command

    try:
        found: Callable[..., str] = import_module(module).render
    except ModuleNotFoundError as error:
        raise SetupError(f"pages need the package {error.name}; run: {install_command('report')}") from None
    return found


def one_thread() -> None:
    """Limit BLAS to one thread; call it before NumPy is loaded, which reads the limit then."""
    for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[variable] = "1"


def integer(text: str, bits: int = 32) -> int:
    """An argument that is an integer of SQL with so many bits."""
    end = 1 << (bits - 1)
    try:
        value = int(text)
    except ValueError:  # no number, or one with thousands of digits
        value = end
    if not -end <= value < end:
        found = repr(text if len(text) <= MAX_QUOTED else text[:MAX_QUOTED] + "…")
        raise argparse.ArgumentTypeError(f"a whole number from {-end} to {end - 1} is expected, not {found}")
    return value


def bigint(text: str) -> int:
    """The same with 64 bits, as numbers of runs and jobs have."""
    return integer(text, 64)


def positive(text: str) -> float:
    """An argument that is a number above 0."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"a number above 0 is expected, not {text!r}")
    return value
