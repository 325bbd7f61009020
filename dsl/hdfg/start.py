"""Start values of models, the same bits on every machine.

Comes in: an `Init`, the model's name and its concrete shape. Goes out: a binary32 array. Whole-number arithmetic and
one rounding only: no library's random generator or logarithm, whose results may change. Must not: keep state.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dsl.hdfg.init import OF_TABLE, Init, InitKind

UNIFORMS_PER_NORMAL = 12
"""Irwin-Hall: the sum of 12 uniforms has variance 1; its mean is 6 and it stays within 6 deviations."""


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
        draws / 2**16 - 6). Both computed in binary64 and rounded once; subnormal results are zero. What the table
        decides is `first`, until somebody has looked at the table.
    """
    size = int(np.prod(shape, dtype=np.int64))
    if init.kind is InitKind.CONSTANT or init.kind in OF_TABLE:
        return np.full(shape, init.first, dtype=np.float32)
    start = _mix((init.seed ^ _hash_name(name)) & _MASK)
    if init.kind is InitKind.UNIFORM:
        draws = _draws(start, size) >> np.uint64(40)
        exact = init.first + (init.second - init.first) * (draws.astype(np.float64) / 2.0**24)
    else:
        draws = _draws(start, size * UNIFORMS_PER_NORMAL) >> np.uint64(48)
        total = draws.reshape(size, UNIFORMS_PER_NORMAL).sum(axis=1, dtype=np.uint64)
        exact = init.first + init.second * (total.astype(np.float64) / 2.0**16 - 6.0)
    with np.errstate(over="ignore", under="ignore"):
        rounded = exact.astype(np.float32)
    if init.kind is InitKind.UNIFORM:  # rounding may reach the excluded upper bound
        rounded = np.minimum(rounded, np.nextafter(np.float32(init.second), np.float32(init.first)))
    rounded[np.abs(rounded) < np.float32(2.0**-126)] = 0.0
    return rounded.reshape(shape)


def draw(name: str, seed: int, number: int) -> int:
    """Return one of the 64-bit numbers that a name and a seed stand for."""
    return _mix((_mix((seed ^ _hash_name(name)) & _MASK) + (number + 1) * _GOLDEN) & _MASK)


_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15


def _hash_name(name: str) -> int:
    """FNV-1a of the name's UTF-8 bytes, 64 bits."""
    value = 0xCBF29CE484222325
    for byte in name.encode():
        value = ((value ^ byte) * 0x100000001B3) & _MASK
    return value


def _mix(value: int) -> int:
    """The finaliser of splitmix64 (Steele, Lea, Flood 2014)."""
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)


def _draws(start: int, count: int) -> npt.NDArray[np.uint64]:
    """Return `count` 64-bit numbers of splitmix64 from `start`."""
    with np.errstate(over="ignore"):  # arithmetic modulo 2**64 is meant
        value = np.uint64(start) + np.arange(1, count + 1, dtype=np.uint64) * np.uint64(_GOLDEN)
        value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(value ^ (value >> np.uint64(31)))
