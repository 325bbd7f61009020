"""Memory: the total of the host, the use of processes, and the limit of a request.

Errors name the limit that was exceeded and how to raise it.
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
from dana.trainer.contract import SqlState, TrainingError
from dsl import RuleError

RESERVE = 24 << 20
"""Minimum headroom of a request above the memory that its process already has, bytes; a small rule takes 18 MB with
its machine code."""

_SHORTAGE = re.compile(
    r"failed to map segment|cannot allocate memory|memory allocation|out of memory|bad_alloc|can't start new thread"
    # CPython reports this if an extension module ran out of memory while it raised an exception
    r"|without setting an exception",
    re.IGNORECASE,
)
_CGROUPS = Path("/sys/fs/cgroup")


class StartAnew(Exception):
    """This process has outgrown the limit of the request; a new process may satisfy it."""


def machine_bytes() -> int:
    """Return the memory of the host, or of the container or service that confines this process, bytes."""
    # in a container this is still the memory of the host; its cgroup has the limit
    found = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    with suppress(OSError, StopIteration):
        lines = Path("/proc/self/cgroup").read_text().splitlines()
        # the line of cgroup v2; with v1 alone there is none, and the host's memory is returned
        own = next(line[3:] for line in lines if line.startswith("0::"))
        folder = _CGROUPS / own.lstrip("/")
        # each ancestor may set a limit, and the lowest one applies
        for path in (folder, *folder.parents):
            if path.is_relative_to(_CGROUPS):
                with suppress(OSError, ValueError):  # the root has no such file; the content may be "max"
                    found.append(int((path / "memory.max").read_text()))
    return min(found)


def held_bytes(pid: int, *, exact: bool = False) -> int:
    """Return the memory of a process and its descendants: anonymous and shared pages, resident or swapped.

    Parameters
    ----------
    exact
        Divide shared pages among the processes that share them, which is slower; otherwise each process counts all.
    """
    name, members = ("smaps_rollup", _SHARES) if exact else ("status", _HELD)
    return sum(sum(_kilobytes(Path(f"/proc/{one}/{name}"), members)) << 10 for one in _with_descendants(pid))


_HELD = ("RssAnon", "RssShmem", "VmSwap")
_SHARES = ("Pss_Anon", "Pss_Shmem", "SwapPss")


def _kilobytes(path: Path, members: tuple[str, ...]) -> list[int]:
    with suppress(OSError):  # the process has exited
        return [int(line.split()[1]) for line in path.read_text().splitlines() if line.partition(":")[0] in members]
    return []


def _with_descendants(pid: int) -> Iterator[int]:
    yield pid
    # children belong to the thread that forked them (proc(5))
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            for child in task.read_text().split():
                yield from _with_descendants(int(child))


def least_bytes() -> int:
    """Return the lowest limit under which this process can serve a request."""
    return _private_bytes() + RESERVE


def room_bytes() -> float:
    """Return the bytes that this process may still allocate under its current limit."""
    # RLIMIT_DATA covers private writable mappings, which the kernel counts as VmData (getrlimit(2))
    soft, _ = resource.getrlimit(resource.RLIMIT_DATA)
    return inf if soft == resource.RLIM_INFINITY else soft - _private_bytes()


def _private_bytes() -> int:
    return sum(_kilobytes(Path("/proc/self/status"), ("VmData",)) or [0]) * 1024


MANY_CLASSES = 1000


@contextmanager
def memory_at_most(limit: int, *, fresh: bool, classes: int = 0) -> Iterator[None]:
    """Limit the private memory of this process during a request; 0: only the limit of the worker applies.

    Parameters
    ----------
    limit
        Bytes: dana.max_memory.
    fresh
        The process has served no request yet.
    classes
        Number of classes of the label, 0 without classes; many classes are a likely cause of a shortage.

    Raises
    ------
    TrainingError
        The limit is below the minimum of any request, or the request exceeded it.
    StartAnew
        The limit is below the current use of this process.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    bounds = [(limit, "dana.max_memory", "Raise dana.max_memory")] if limit else []
    if soft != resource.RLIM_INFINITY:
        bounds.append((soft, "the worker's --memory-limit", "Start the worker with a higher --memory-limit"))
    if not bounds:
        yield
        return
    # the lower limit is the one that the user has to raise
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
    # the soft limit alone: a process without privileges cannot raise the hard one again
    resource.setrlimit(resource.RLIMIT_DATA, (bound, hard))
    asked = large.asked()
    try:
        yield
    # not BaseException: a cancelled request passes unchanged
    except Exception as error:
        if not lacks_memory(error):
            raise
        hint = f"{mend}, or train on fewer columns."
        if classes > MANY_CLASSES:
            hint = (
                f"The label has {classes:,} classes, and each has its own part of the models. If the labels are "
                f"numbers, use a regression rule such as ridge; otherwise combine rare classes. {mend} otherwise."
            )
        # only if the request asked for an array that a file could have held
        elif large.asked() > asked:
            hint = f"{mend}, or keep large models in files: start the worker with --model-directory."
        raise TrainingError(
            f"the request needs more memory than the {megabytes(bound)} of {name}",
            sqlstate=SqlState.OUT_OF_MEMORY,
            hint=hint,
        ) from error
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def lacks_memory(error: BaseException) -> bool:
    """Whether an error or one of its causes is a lack of memory, in any of the forms that libraries report it."""
    return any(
        isinstance(one, MemoryError)
        or (isinstance(one, OSError) and one.errno == errno.ENOMEM)
        # the text of a user error may quote user input
        or (not isinstance(one, UsageError | RuleError) and _SHORTAGE.search(str(one)))
        for one in causes(error)
    )


def megabytes(size: int) -> str:
    """Format a size as PostgreSQL formats settings."""
    return f"{-(-size // (1 << 20))} MB"
