"""Where everything lies in the memory that a rule's functions share.

In: shapes, a plan. Out: first floats and steps. The last axis of a value of several elements is filled up to whole
vectors.
"""

from dataclasses import dataclass, field
from math import prod

from dana.jit.plan import LANES


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """An input: its number among a tuple's, the floats from row to row of a matrix.

    `spacing`: from a tuple's to the next one's where it is packed, and its subnormals flushed, 1: a number; None: it is
    on a page.
    """

    number: int
    stride: int
    spacing: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Merged:
    """A merge's stack: `size` floats a level from `first` on."""

    first: int
    size: int
    op: str


@dataclass(slots=True, kw_only=True)
class Memory:
    """What the functions share, in floats."""

    size: int = 0
    at: dict[int, int] = field(default_factory=dict)
    merged: list[Merged] = field(default_factory=list)

    def room(self, size: int) -> int:
        first = self.size
        self.size += -(-size // LANES) * LANES
        return first


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
