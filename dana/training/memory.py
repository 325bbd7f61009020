"""Memory: what this machine has, what processes hold, and the bound of a request.

In: process ids and limits. Out: bytes, and errors of SQL that say which limit it was. It ends no process.
"""

from __future__ import annotations

import errno
import os
import re
import resource
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from math import inf
from pathlib import Path

from dana.errors import UsageError, causes
from dana.simulator import large
from dana.training.contract import SqlState, TrainingError
from dsl import RuleError

RESERVE = 16 << 20
"""Bytes that a request takes at least, beyond what its process has when it comes: a small rule on a small machine
takes 5 MB."""

_SHORTAGE = re.compile(
    r"failed to map segment|cannot allocate memory|memory allocation|out of memory|bad_alloc|can't start new thread"
    # what the interpreter says where an extension module had no memory for its exception
    r"|without setting an exception",
    re.IGNORECASE,
)
_CGROUPS = Path("/sys/fs/cgroup")


class StartAnew(Exception):
    """This process has grown too large for the request's bound; a new one might not have."""


def machine_bytes() -> int:
    """Memory of the machine, or of the container or service that this process is confined to."""
    found = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    with suppress(OSError, StopIteration):
        lines = Path("/proc/self/cgroup").read_text().splitlines()
        own = next(line[3:] for line in lines if line.startswith("0::"))
        folder = _CGROUPS / own.lstrip("/")
        for path in (folder, *folder.parents):
            if path.is_relative_to(_CGROUPS):
                with suppress(OSError, ValueError):  # the root has no such file; "max"
                    found.append(int((path / "memory.max").read_text()))
    return min(found)


def held_bytes(pid: int, *, exact: bool = False) -> int:
    """Memory that a process and what it started hold: anonymous and shared pages, in memory or swapped out.

    Parameters
    ----------
    exact
        Reckon with pages that processes share, which takes longer; else each counts them all.
    """
    name, members = ("smaps_rollup", _SHARES) if exact else ("status", _HELD)
    return sum(sum(_kilobytes(Path(f"/proc/{one}/{name}"), members)) << 10 for one in _with_descendants(pid))


_HELD = ("RssAnon", "RssShmem", "VmSwap")
_SHARES = ("Pss_Anon", "Pss_Shmem", "SwapPss")


def _kilobytes(path: Path, members: tuple[str, ...]) -> list[int]:
    with suppress(OSError):  # it has ended
        return [int(line.split()[1]) for line in path.read_text().splitlines() if line.partition(":")[0] in members]
    return []


def _with_descendants(pid: int) -> Iterator[int]:
    yield pid
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            for child in task.read_text().split():
                yield from _with_descendants(int(child))


def least_bytes() -> int:
    """The least bound under which this process can answer a request."""
    return _private_bytes() + RESERVE


def room_bytes() -> float:
    """What this process may still take, as it is bounded now."""
    soft, _ = resource.getrlimit(resource.RLIMIT_DATA)
    return inf if soft == resource.RLIM_INFINITY else soft - _private_bytes()


def _private_bytes() -> int:
    return sum(_kilobytes(Path("/proc/self/status"), ("VmData",)) or [0]) * 1024


MANY_CLASSES = 1000


@contextmanager
def memory_at_most(limit: int, *, fresh: bool, classes: int = 0) -> Iterator[None]:
    """Bound this process's private memory, below what the worker bounds it to; 0: leave it at that.

    Parameters
    ----------
    limit
        Bytes: dana.max_memory.
    fresh
        The process has answered no request yet.
    classes
        Of the label, 0 if it has none: where they are many, these are what takes memory.

    Raises
    ------
    TrainingError
        The bound is less than any request takes, or this one took more.
    StartAnew
        The bound is less than this process has by now.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    bounds = [(limit, "dana.max_memory", "Raise dana.max_memory")] if limit else []
    if soft != resource.RLIM_INFINITY:
        bounds.append((soft, "the worker's --memory-limit", "Start the worker with a higher --memory-limit"))
    if not bounds:
        yield
        return
    bound, name, mend = min(bounds)
    least = least_bytes()
    if bound < least:
        if not fresh:
            raise StartAnew
        raise TrainingError(
            f"{name} of {megabytes(bound)} is less than the {megabytes(least)} that a session of the worker needs",
            sqlstate=SqlState.OUT_OF_MEMORY,
            hint=f"{mend}.",
        )
    resource.setrlimit(resource.RLIMIT_DATA, (bound, hard))
    asked = large.asked()
    try:
        yield
    except Exception as error:
        if not lacks_memory(error):
            raise
        hint = f"{mend}, or train on fewer columns."
        if classes > MANY_CLASSES:
            hint = (
                f"The label has {classes:,} classes, each with its own part of the models: choose a rule that learns "
                f"numbers, such as ridge, where they are numbers, or put rare ones together. {mend} otherwise."
            )
        elif large.asked() > asked:  # whatever it was that had no room beside them
            hint = f"{mend}; or have large models lie in files: start the worker with --model-directory."
        raise TrainingError(
            f"the request needs more memory than the {megabytes(bound)} of {name}",
            sqlstate=SqlState.OUT_OF_MEMORY,
            hint=hint,
        ) from error
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def lacks_memory(error: BaseException) -> bool:
    """Whether an error, or what caused it, is a lack of memory, whoever ran into it and however they said so."""
    return any(
        isinstance(one, MemoryError)
        or (isinstance(one, OSError) and one.errno == errno.ENOMEM)
        # of a user's errors the text may be a user's
        or (not isinstance(one, UsageError | RuleError) and _SHORTAGE.search(str(one)))
        for one in causes(error)
    )


def megabytes(size: int) -> str:
    """A size as PostgreSQL writes those of settings."""
    return f"{-(-size // (1 << 20))} MB"
