"""Where everything lies in the memory that a rule's functions share.

In: sizes. Out: first floats.
"""

from dataclasses import dataclass, field

from dana.simulator.layout import LANES


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
    levels: int
    op: str


@dataclass(slots=True, kw_only=True)
class Memory:
    """Size of the functions' shared memory, in floats."""

    size: int = 0
    at: dict[int, int] = field(default_factory=dict)
    merged: list[Merged] = field(default_factory=list)

    def room(self, size: int) -> int:
        first = self.size
        self.size += -(-size // LANES) * LANES
        return first
