"""Joins the merges of a batch over parts of the rows, for machines that leave it to their host.

In: what a part merged, and a function that carries bytes to all parts and from them. Out: the merges of the whole
batch, by the language's tree, in which a part without tuples is absent. The simulator does the same by itself
(`join.c`), and exchanges the same bytes, so parts may be on either.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import numpy as np
from numpy.typing import NDArray

from dana.simulator.structures import PartFlag
from hwgen.spec import numerics
from hwgen.spec.bundle import Symbol

Floats = NDArray[np.float32]


class Joining:
    """The batches of one machine.

    Parameters
    ----------
    exchange
        See `dana.simulator.Simulator.join`.
    merges
        The Bundle's.
    """

    error: BaseException | None = None

    def __init__(self, exchange: Callable[[bytes], bytes], merges: Sequence[Symbol]) -> None:
        self._exchange = exchange
        self._merges = merges
        self._floats = sum(prod(one.shape) for one in merges)
        self._over = False

    def begin(self) -> None:
        """Begin an epoch."""
        self._over = False

    def __call__(self, own: Floats, last: bool) -> Floats:
        """Return the merges of a batch in all parts, given those of this one and whether the epoch has none behind."""
        every = self._exchanged(PartFlag.HAS_TUPLES | (PartFlag.IS_LAST if last else 0), own)
        absent = every[:, :1].astype(int) & PartFlag.HAS_TUPLES == 0
        joined, at = [], 1
        for one in self._merges:
            values = np.where(absent, np.float32(numerics.IDENTITIES[one.name]), every[:, at : at + prod(one.shape)])
            joined.append(numerics.tree(values, one.name))
            at += prod(one.shape)
        return np.concatenate(joined)

    def finish(self) -> None:
        """Take part in the batches of an epoch for which only other parts have tuples, until there is none."""
        while not self._over:
            self._exchanged(PartFlag.IS_LAST, np.zeros(self._floats, np.float32))

    def _exchanged(self, flags: int, own: Floats) -> Floats:
        """What all parts have, a row of each; flags first."""
        sent = np.concatenate([[flags], own], dtype=np.float32)
        every = np.frombuffer(self._exchange(sent.tobytes()), np.float32).reshape(-1, sent.size)
        self._over = bool((every[:, 0].astype(int) & PartFlag.IS_LAST).all())
        return every
