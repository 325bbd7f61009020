"""Shapes of results: broadcasting by NumPy's rule, reduction along an axis.

In: shapes that may hold dims. Out: the result's shape, or `ShapeMismatch`. Must not: compare dims by more
than their canonical form: `n` and `m` are different even if they may turn out equal.
"""

from __future__ import annotations

from collections.abc import Sequence

from dsl.hdfg.dims import Dim, Shape, shape_text
from dsl.hdfg.graph import ELEMENTWISE, REDUCTIONS, Op


class ShapeMismatch(Exception):
    """Two shapes do not fit.

    Parameters
    ----------
    left, right
        The shapes.
    left_dim, right_dim
        The first pair of extents, counted from the last axis, that are neither equal nor 1.
    """

    def __init__(self, left: Shape, right: Shape, left_dim: Dim, right_dim: Dim) -> None:
        super().__init__(f"{shape_text(left)} and {shape_text(right)}")
        self.left_dim = left_dim
        self.right_dim = right_dim


def broadcast(left: Shape, right: Shape) -> Shape:
    """Return the shape of an elementwise result: axes aligned at the last, an axis of 1 repeated.

    Raises
    ------
    ShapeMismatch
        If two aligned extents differ and neither is 1.
    """
    result: list[Dim] = []
    for i in range(1, max(len(left), len(right)) + 1):
        # the axes that the shorter shape lacks are in front
        left_dim = left[-i] if i <= len(left) else 1
        right_dim = right[-i] if i <= len(right) else 1
        if left_dim != right_dim and left_dim != 1 and right_dim != 1:
            raise ShapeMismatch(left, right, left_dim, right_dim)
        result.append(right_dim if left_dim == 1 else left_dim)
    return tuple(reversed(result))


def without_axis(shape: Shape, axis: int) -> Shape:
    """Return the shape with one axis, counted from 0, removed."""
    return shape[:axis] + shape[axis + 1 :]


def result_shape(op: Op, operands: Sequence[Shape], axis: int | None = None) -> Shape:
    """Return the shape that an operation other than a leaf gives.

    Raises
    ------
    ShapeMismatch
        If the operands of an elementwise operation do not broadcast.
    ValueError
        If a reduction has no such axis, or rows are taken of a scalar.
    """
    if op in ELEMENTWISE:
        shape: Shape = ()
        # a scalar broadcasts to everything, so that it is neutral here
        for operand in operands:
            shape = broadcast(shape, operand)
        return shape
    if op in REDUCTIONS or op is Op.ELEMENT:
        if axis is None or not 0 <= axis < len(operands[0]):
            raise ValueError(f"{op} must have an axis from 0 to {len(operands[0]) - 1}, not {axis}")
        return without_axis(operands[0], axis)
    # the new axis may also be behind the last one
    if op is Op.EXPAND:
        if axis is None or not 0 <= axis <= len(operands[0]):
            raise ValueError(f"expand must have an axis from 0 to {len(operands[0])}, not {axis}")
        return (*operands[0][:axis], 1, *operands[0][axis:])
    if op is Op.GATHER:
        if not operands[0] or operands[1]:
            raise ValueError("gather must have a model with rows and a scalar index")
        return without_axis(operands[0], 0)
    # a merge joins values of one shape
    return operands[0]
