"""A table's pages out of all memory, so that whoever reads it next waits for the disk.

In: a session of a server on this machine, whose files are within reach. Out: bytes a second of the disk.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import time
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

PLACE = """
SELECT current_setting('data_directory', true), pg_relation_filepath(oid), reltoastrelid > 0 AND
    pg_relation_size(NULLIF(reltoastrelid, 0)) > 0
FROM pg_class WHERE oid = %s::regclass
"""
BLOCK = 1 << 20
STILL_THERE = 0.01
"""Fraction of a file in memory from which on it is not cold."""


class NotCold(Exception):
    """The pages cannot be put out of memory; says why."""


def chill(session: psycopg.Connection[Any], table: str) -> list[Path]:
    """Put a table's pages out of the server's buffers and of the system's cache.

    Returns
    -------
    list
        Its files.

    Raises
    ------
    NotCold
        The server is elsewhere or another account's; or the arrays lie out of line, where no rewrite passes the
        buffers by.
    """
    try:
        # a rewrite passes the buffers by (rewriteheap.c), and its table is in none
        session.execute(sql.SQL("VACUUM FULL {}").format(sql.Identifier(table)))
        folder, path, apart = session.execute(PLACE, (table,)).fetchall()[0]
    except psycopg.Error as error:
        raise NotCold(f"the server does not say where the table is: {error}") from None
    if apart:
        raise NotCold("not cold: arrays that lie out of line cannot be put out of the server's buffers")
    first = Path(folder or "", path)
    # segments of 1 GB: 16384, 16384.1, …
    files = [first, *sorted(first.parent.glob(f"{first.name}.*"))]
    for file in files:
        try:
            _drop(file)
        except OSError as error:
            raise NotCold(f"not cold: the server's files cannot be reached from here ({error.strerror})") from None
    return files


def _drop(file: Path) -> None:
    handle = os.open(file, os.O_RDONLY)
    try:
        os.fsync(handle)  # what is not written yet would stay
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        size = os.fstat(handle).st_size
        if size and _resident(handle, size) > STILL_THERE:
            raise NotCold("not cold: the system keeps the files in memory")
    finally:
        os.close(handle)


def _resident(handle: int, size: int) -> float:
    """Fraction of a file that is in memory: mincore(2)."""
    pages = -(-size // mmap.PAGESIZE)
    with mmap.mmap(handle, size, access=mmap.ACCESS_COPY) as mapped:
        start = ctypes.c_char.from_buffer(mapped)
        there = (ctypes.c_ubyte * pages)()
        libc = ctypes.CDLL(None, use_errno=True)
        failed = libc.mincore(ctypes.c_void_p(ctypes.addressof(start)), ctypes.c_size_t(size), there)
        del start  # a mapping that is pointed to cannot be closed
    if failed:
        raise OSError(ctypes.get_errno(), "mincore")
    return sum(one & 1 for one in there) / pages


def disk_rate(files: list[Path]) -> float:
    """Bytes a second, files read from their beginning to their end."""
    begun, size = time.perf_counter(), 0
    for file in files:
        with file.open("rb", buffering=0) as stream:
            while block := stream.read(BLOCK):
                size += len(block)
    return size / (time.perf_counter() - begun)
