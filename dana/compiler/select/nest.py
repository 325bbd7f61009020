"""Loop nests on the two loops of an instruction.

In: the extents of a nest and, for each operand, its step in rows from one iteration of each loop to the next. Out: the
instructions' loops (`Piece`). It knows nothing of operations and values.

A nest is the tuples of a round around the axes of a value. Loops with contiguous steps in every operand are fused; of
the rest one that steps by single rows becomes the inner loop, one becomes the outer, and the others are unrolled: the
choice is the one of fewest instructions, and among those the one with the tuples in the outer loop.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import permutations, product
from math import prod

from hwgen.spec.engine import WIDTHS

MAX_INNER = (1 << WIDTHS["inner"]) - 1
MAX_OUTER = (1 << WIDTHS["outer"]) - 1
MAX_STEP = (1 << WIDTHS["a_outer"]) - 1


class LoopLimit(Exception):
    """A loop that must be one instruction's is beyond its fields; rounds of fewer tuples may do."""


@dataclass(frozen=True, slots=True)
class Piece:
    """The loops of one instruction.

    Attributes
    ----------
    inner, outer
        Their extents.
    inner_steps, outer_steps
        Rows from one iteration to the next, for each operand.
    offsets
        First row, for each operand.
    """

    inner: int
    outer: int
    inner_steps: tuple[int, ...]
    outer_steps: tuple[int, ...]
    offsets: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Loop:
    extent: int
    steps: tuple[int, ...]
    inner: bool = False
    """This and no other loop may be the instruction's inner one."""
    outer: bool = False
    """This and no other loop may be the instruction's outer one."""
    tuples: bool = False

    @property
    def fixed(self) -> bool:
        return self.inner or self.outer


# candidates of a search repeat most of their nests
@lru_cache(1 << 10)
def pieces(
    extents: tuple[int, ...], steps: tuple[tuple[int, ...], ...], *, inner: int | None = None, outer: int | None = None
) -> tuple[Piece, ...]:
    """Map a nest.

    Parameters
    ----------
    extents
        Of each loop; the first one counts tuples.
    steps
        For each operand its step in each loop.
    inner, outer
        Number of the loop that has to be the inner or the outer one; if it runs once, no other loop takes its place.

    Raises
    ------
    LoopLimit
        A loop that has to be the inner or outer one counts or steps too far.
    """
    if 0 in extents:
        return ()
    # a loop that runs once needs no instruction loop for any step
    loops = [
        _Loop(extent, tuple(s[k] for s in steps), inner=k == inner, outer=k == outer, tuples=k == 0)
        for k, extent in enumerate(extents)
        if extent > 1
    ]
    allowed = (inner is None, outer is None)
    # the tuples' loop apart, and joined with others: it depends on the extents which takes fewer instructions
    apart = _joined([loop for loop in loops if not loop.tuples]) + [loop for loop in loops if loop.tuples]
    together = _joined(loops)
    count, chosen = min(
        ((_count(mapping), mapping) for mapping in (_best(apart, *allowed), _best(together, *allowed))),
        key=lambda option: option[0],  # the first of equals: the tuples are the outer loop
    )
    if count > MAX_PIECES:
        raise LoopLimit(f"a loop nest of {list(extents)} takes {count} instructions")
    return tuple(_unrolled(chosen, len(steps)))


MAX_PIECES = 1 << 14
"""Instructions to which a nest may be unrolled, far beyond what a machine holds."""

_Mapping = tuple[_Loop | None, _Loop | None, tuple[_Loop, ...]]


def _joined(loops: list[_Loop]) -> list[_Loop]:
    """Make one loop of two where every operand steps through both as through one."""
    # both ways round: either loop may be the outer one of the two
    for around, within in permutations(loops, 2):
        alike = all(far == near * within.extent for far, near in zip(around.steps, within.steps, strict=True))
        if alike and not around.fixed and not within.fixed:
            both = _Loop(around.extent * within.extent, within.steps)
            return _joined([both if loop is within else loop for loop in loops if loop is not around])
    return loops


def _best(loops: list[_Loop], inner_free: bool, outer_free: bool) -> _Mapping:
    must_inner = next((loop for loop in loops if loop.inner), None)
    must_outer = next((loop for loop in loops if loop.outer), None)
    # the inner loop's step is one bit of an instruction: 0 or 1 rows
    if must_inner is not None and (must_inner.extent > MAX_INNER or not _single(must_inner)):
        raise LoopLimit(f"an inner loop of {must_inner.extent} rows")
    if must_outer is not None and (must_outer.extent > MAX_OUTER or max(must_outer.steps) > MAX_STEP):
        raise LoopLimit(f"an outer loop of {must_outer.extent} tuples, {max(must_outer.steps)} rows apart")
    free = [loop for loop in loops if not loop.fixed]
    inners = [None, *(loop for loop in free if _single(loop))] if inner_free else [must_inner]
    outers = [None, *(loop for loop in free if max(loop.steps) <= MAX_STEP)] if outer_free else [must_outer]
    options = [
        (inner, outer, tuple(loop for loop in free if loop is not inner and loop is not outer))
        for inner, outer in product(inners, outers)
        if inner is None or inner is not outer
    ]

    def weight(option: _Mapping) -> tuple[int, bool, int]:
        inner, outer, _ = option
        # one loop alone: over tuples it is the outer one, over rows the inner
        misplaced = (inner is not None and inner.tuples) or (inner is None and outer is not None and not outer.tuples)
        return _count(option), misplaced, -(inner.extent if inner is not None else 1)

    return min(options, key=weight)


def _single(loop: _Loop) -> bool:
    """Whether an inner loop can step so."""
    return max(loop.steps) <= 1


def _count(mapping: _Mapping) -> int:
    """Instructions that a mapping takes: one for each round of what is unrolled, more where a loop is too long."""
    inner, outer, rest = mapping
    count = prod(loop.extent for loop in rest)
    if inner is not None:
        count *= -(-inner.extent // MAX_INNER)
    if outer is not None:
        count *= -(-outer.extent // MAX_OUTER)
    return count


def _unrolled(mapping: _Mapping, operands: int) -> Iterator[Piece]:
    inner, outer, rest = mapping
    still = (0,) * operands
    inner_steps = inner.steps if inner is not None else still
    outer_steps = outer.steps if outer is not None else still
    for position in product(*(range(loop.extent) for loop in rest)):
        for first_outer, outer_count in _spans(outer, MAX_OUTER):
            for first_inner, inner_count in _spans(inner, MAX_INNER):
                offsets = tuple(
                    sum(at * loop.steps[k] for at, loop in zip(position, rest, strict=True))
                    + first_outer * outer_steps[k]
                    + first_inner * inner_steps[k]
                    for k in range(operands)
                )
                yield Piece(inner_count, outer_count, inner_steps, outer_steps, offsets)


def _spans(loop: _Loop | None, most: int) -> list[tuple[int, int]]:
    """(first iteration, iterations) of the parts of a loop that an instruction can count."""
    extent = loop.extent if loop is not None else 1
    return [(first, min(most, extent - first)) for first in range(0, extent, most)]
