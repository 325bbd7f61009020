"""Rows of a fixed shape from a server to arrays, in COPY's binary format: no number becomes text on the way.

In: a query whose columns are real, and arrays of real of one length. Out: arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import psycopg
from psycopg import sql

from benchmarks.peers.learners import Floats
from dana.errors import UsageError
from dana.session.tables import HEADER, TRAILER


def export(session: psycopg.Connection[Any], query: sql.Composable, widths: Sequence[int | None]) -> list[Floats]:
    """The rows of a query.

    Parameters
    ----------
    widths
        Of each column: the array's length, or None for a number.

    Returns
    -------
    list
        For each column an array of shape (rows,) or (rows, width).

    Raises
    ------
    UsageError
        The rows are not of that shape: there is a NULL, or an array of another length.
    """
    kind = _row(widths)
    with session.cursor() as cursor, cursor.copy(sql.SQL("COPY ({}) TO STDOUT (FORMAT binary)").format(query)) as copy:
        text = b"".join(bytes(block) for block in copy)
    body = memoryview(text)[len(HEADER) : -len(TRAILER)]
    rows = np.frombuffer(body[: len(body) // kind.itemsize * kind.itemsize], kind)
    lengths = (4 if width is None else 20 + 8 * width for width in widths)
    if len(body) % kind.itemsize or any((rows[f"bytes{k}"] != bytes_).any() for k, bytes_ in enumerate(lengths)):
        raise UsageError("the rows must have no NULL, and arrays of one axis and one length")
    found = []
    for k, width in enumerate(widths):
        cells = rows[f"value{k}"]
        found.append(np.ascontiguousarray(cells if width is None else cells["value"], dtype=np.float32))
    return found


def _row(widths: Sequence[int | None]) -> np.dtype[Any]:
    """A row in COPY's binary format: size and value of each field; an array has its axes, then its elements so."""
    fields: list[Any] = [("fields", ">i2")]
    for k, width in enumerate(widths):
        fields.append((f"bytes{k}", ">i4"))
        if width is None:
            fields.append((f"value{k}", ">f4"))
        else:
            axes = [(name, ">i4") for name in ("count", "nulls", "type", "length", "first")]
            fields += [(f"axes{k}", axes), (f"value{k}", [("bytes", ">i4"), ("value", ">f4")], (width,))]
    return np.dtype(fields)
