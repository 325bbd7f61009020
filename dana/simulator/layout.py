"""How a value lies in memory, where nothing but computing with it matters: the last axis filled up to whole vectors.

In: shapes. Out: extents and steps, in floats.
"""

from math import prod

LANES = 16
"""Floats of a vector, a cache line; the last axis of what is kept is filled up to a multiple, or to a part of one."""


def lanes_of(shape: tuple[int, ...]) -> int:
    """Floats of a vector along the last axis; 0: it is a single element's."""
    if not shape or shape[-1] == 1:
        return 0
    return LANES if shape[-1] > LANES // 2 else LANES // 2 if shape[-1] > LANES // 4 else LANES // 4


def padded(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The extents of a value in memory."""
    lanes = lanes_of(shape)
    return (*shape[:-1], -(-shape[-1] // lanes) * lanes) if lanes else shape


def strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Floats from element to element along each axis, in memory."""
    extents = padded(shape)
    return tuple(prod(extents[axis + 1 :]) for axis in range(len(extents)))
