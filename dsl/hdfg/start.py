"""Start values of models, the same bits on every machine.

In: an `Init`, the model's name and its concrete shape. Out: a binary32 array. Only integer arithmetic and one
rounding: random generators and logarithms of libraries may change between versions. Must not: keep state.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from dsl.hdfg.draw import GOLDEN, MASK, hash_name, mix
from dsl.hdfg.init import OF_TABLE, Init, InitKind

UNIFORMS_PER_NORMAL = 12
"""Irwin-Hall: the sum of 12 uniforms has variance 1; its mean is 6 and it stays within 6 deviations."""


BLOCK = 1 << 11
"""Elements that are made at a time, so that their draws stay in a near cache."""


def start_values(init: Init, name: str, shape: tuple[int, ...]) -> npt.NDArray[np.float32]:
    """Return the values a model starts with.

    Parameters
    ----------
    init
        How it starts.
    name
        The model's name, mixed into the seed.
    shape
        Concrete extents.

    Returns
    -------
    float32 array of `shape`
        UNIFORM: low + (high - low) * k / 2**24 for a 24-bit draw k. NORMAL: mean + deviation * (sum of 12 16-bit
        draws / 2**16 - 6). Both computed in binary64 and rounded once; subnormal results are zero. Starts that depend
        on the table have the value `first` until the table has been read. With `narrow` all are rounded to bfloat16.
    """
    return start_block(init, name, 0, int(np.prod(shape, dtype=np.int64))).reshape(shape)


def start_block(init: Init, name: str, first: int, count: int) -> npt.NDArray[np.float32]:
    """Return `count` of the values of a model from element `first` on: what `start_values` has there."""
    values = _start_block(init, name, first, count)
    if init.narrow:
        bits = values.view(np.uint32)
        # to nearest, ties to even (docs/arithmetic.md); there are no NaNs here
        bits += (bits >> 16 & 1) + 0x7FFF
        bits &= np.uint32(0xFFFF0000)
    return values


def _start_block(init: Init, name: str, first: int, count: int) -> npt.NDArray[np.float32]:
    values = np.empty(count, dtype=np.float32)
    if init.kind is InitKind.CONSTANT or init.kind in OF_TABLE - {InitKind.CENTRES}:
        values[:] = init.first
        return values
    # as `dsl.hdfg.draw.draw` does without NumPy
    start = mix((init.seed ^ hash_name(name)) & MASK)
    # the largest number below the upper bound, which is excluded
    last = np.nextafter(np.float32(init.second), np.float32(init.first))
    for at in range(0, count, BLOCK):
        block = values[at : at + BLOCK]
        with np.errstate(over="ignore", under="ignore"):
            block[:] = _exact(init, start, first + at, len(block))
        if init.kind is InitKind.UNIFORM:  # rounding may reach the excluded upper bound
            np.minimum(block, last, out=block)
        block[np.abs(block) < np.float32(2.0**-126)] = 0.0
    return values


def _exact(init: Init, start: int, first: int, count: int) -> npt.NDArray[np.float64]:
    """Random start values from element `first` on, in binary64."""
    if init.kind is InitKind.UNIFORM:
        # the upper 24 bits: a binary32 significand has no more
        draws = _draws(start, first, count) >> np.uint64(40)
        return np.asarray(init.first + (init.second - init.first) * (draws.astype(np.float64) / 2.0**24))
    # the upper 16 bits; a sum of 12 of them is exact
    draws = _draws(start, first * UNIFORMS_PER_NORMAL, count * UNIFORMS_PER_NORMAL) >> np.uint64(48)
    draws = draws.reshape(count, UNIFORMS_PER_NORMAL)
    total = sum((draws[:, k] for k in range(1, UNIFORMS_PER_NORMAL)), draws[:, 0])  # across is slower
    return np.asarray(init.first + init.second * (total.astype(np.float64) / 2.0**16 - 6.0))


def _draws(start: int, first: int, count: int) -> npt.NDArray[np.uint64]:
    """Return `count` 64-bit numbers of splitmix64 seeded with `start`, skipping the first `first`."""
    with np.errstate(over="ignore"):  # arithmetic modulo 2**64 is meant
        # a new array: the cached increments must not be changed by what follows
        value = _steps(count) + np.uint64((start + first * GOLDEN) & MASK)
        value ^= value >> np.uint64(30)
        value *= np.uint64(0xBF58476D1CE4E5B9)
        value ^= value >> np.uint64(27)
        value *= np.uint64(0x94D049BB133111EB)
        value ^= value >> np.uint64(31)
    return value


# a full block and a rest, of one draw an element and of 12
@lru_cache(maxsize=4)
def _steps(count: int) -> npt.NDArray[np.uint64]:
    """The increments of splitmix64, from the first number on."""
    with np.errstate(over="ignore"):
        return np.arange(1, count + 1, dtype=np.uint64) * np.uint64(GOLDEN)
