"""Loop nests on two loops: every iteration once, in fields that an instruction has, in few instructions."""

from __future__ import annotations

import random
from itertools import product

import pytest

from dana.compiler.select.nest import MAX_INNER, MAX_OUTER, LoopLimit, Piece, pieces

Rows = list[tuple[int, ...]]


def visited(found: tuple[Piece, ...]) -> Rows:
    """Rows of all operands, iteration by iteration."""
    return sorted(
        tuple(at + o * far + i * near for at, far, near in zip(p.offsets, p.outer_steps, p.inner_steps, strict=True))
        for p in found
        for o in range(p.outer)
        for i in range(p.inner)
    )


def mapped(extents: list[int], steps: list[list[int]], **loops: int | None) -> tuple[Piece, ...]:
    return pieces(tuple(extents), tuple(tuple(operand) for operand in steps), **loops)


def expected(extents: list[int], steps: list[list[int]]) -> Rows:
    return sorted(
        tuple(sum(at * step for at, step in zip(position, operand, strict=True)) for operand in steps)
        for position in product(*(range(extent) for extent in extents))
    )


@pytest.mark.parametrize("seed", range(100))
def test_every_iteration_once(seed: int) -> None:
    rng = random.Random(seed)
    extents = [rng.choice([1, 1, 2, 3, 5, 8]) for _ in range(rng.randint(1, 4))]
    dense = [[1] * len(extents)]
    for k in reversed(range(len(extents) - 1)):
        dense[0][k] = dense[0][k + 1] * extents[k + 1]
    repeated = [[0 if rng.random() < 0.3 else step for step in dense[0]] for _ in range(2)]
    steps = [dense[0], *repeated]
    inner = rng.choice([None, len(extents) - 1])
    outer = rng.choice([None, 0]) if inner != 0 else None
    found = mapped(extents, steps, inner=inner, outer=outer)
    assert visited(found) == expected(extents, steps)
    assert all(max(p.inner_steps) <= 1 for p in found)
    if outer == 0:
        assert {p.outer for p in found} == {extents[0]}
    if inner is not None:
        assert {p.inner for p in found} == {extents[-1]}


@pytest.mark.parametrize(
    ("extents", "steps", "instructions"),
    [
        ([4, 3, 7], [[21, 7, 1], [21, 7, 1]], 1),  # whole matrices of several tuples are one vector each
        ([1, 10, 13], [[0, 13, 1], [0, 13, 1], [0, 0, 1]], 1),  # one tuple: matrix times vector
        ([64, 10, 13], [[130, 13, 1], [0, 13, 1], [14, 0, 1]], 10),  # the classes are fewer than the tuples
        ([8, 10, 13], [[130, 13, 1], [0, 13, 1], [14, 0, 1]], 8),  # the tuples are fewer than the classes
        ([64, 10, 1], [[10, 1, 0], [0, 1, 0], [2, 0, 0]], 1),  # vectors of one row
        ([1, 2 * MAX_INNER], [[0, 1]], 2),
        ([MAX_OUTER + 1, 1], [[3, 0]], 2),
    ],
)
def test_instructions(extents: list[int], steps: list[list[int]], instructions: int) -> None:
    assert len(mapped(extents, steps)) == instructions


def test_loops_that_have_to_be_one_instructions_are_refused_beyond_its_fields() -> None:
    with pytest.raises(LoopLimit):
        mapped([4, MAX_INNER + 1], [[MAX_INNER + 1, 1]], inner=1)
    with pytest.raises(LoopLimit):
        mapped([4, 2], [[1 << 14, 1]], outer=0)
