"""Triangles of symmetric matrices: operations on the rows at and above the diagonal, and matrices made of them.

In: values, whole or in triangles (`dana/compiler/place/triangles.py`). Out: operations that fill one
or the other.

A block of the matrix, P rows of one row of lanes each, is transposed in log₂ P steps of P rows. Step b swaps bit b of
an element's row number with bit b of its lane number. It reads rows i and i + 2^b, which differ in that bit alone: a
crossed LOW makes the new row i, and a crossed HIGH the new row i + 2^b.
"""

from collections.abc import Sequence

from dana.compiler.place.triangles import strips
from dana.compiler.select.values import Emitter, Value, View
from hwgen.spec.engine import Opcode, Section


def in_triangle(
    emitter: Emitter, section: Section, op: Opcode, n: int, dst: Value, operands: Sequence[tuple[Value, bool]]
) -> None:
    """`dst[e] <- op(a[e], b[e])` for a triangle's elements, of values and whether they are of the whole [n, n]."""
    lanes = emitter.lanes
    for strip, (first, rows, wide) in enumerate(strips(n, lanes)):

        def view(value: Value, whole: bool, strip: int = strip, first: int = first, wide: int = wide) -> View:
            if whole:
                return emitter.view(value, (n, -(-n // lanes))).moved(1, strip * lanes).moved(2, strip)
            # a triangle, or one element for all
            steps = (wide, 1) if emitter.rows(value) > 1 else (0, 0)
            return View(value.buffer, value.base + first * steps[1], (value.stride, *steps))

        views = [view(dst, False), *(view(value, whole) for value, whole in operands)]
        emitter.nest(section, op, (emitter.instances(dst), rows, wide), *views)


def mirror(emitter: Emitter, section: Section, triangle: Value, matrix: Value) -> None:
    """Fill `matrix` with the matrix of a triangle."""
    lanes, (n, _) = emitter.lanes, matrix.shape
    wide = -(-n // lanes)
    for strip, (first, rows, right) in enumerate(strips(n, lanes)):
        upper = View(triangle.buffer, triangle.base + first, (0, right, 1))
        place = View(matrix.buffer, matrix.base + strip * (lanes * wide + 1), (0, wide, 1))
        emitter.nest(section, Opcode.MOV, (1, rows, right), place, upper)
        others = right - 1
        if not others:
            break
        # blocks side by side are transposed together, to blocks one below the other
        below = place.moved(1, lanes)
        here = upper.moved(2, 1)
        for bit in range((lanes - 1).bit_length()):
            step = 1 << bit
            room = None if 2 * step == lanes else emitter.room("block", (lanes, others), per_tuple=False)
            for op, above in ((Opcode.LOW, 0), (Opcode.HIGH, step)):
                a, b = _pairs(here, step, 0), _pairs(here, step, step)
                extents = (1, lanes // (2 * step), step, others)
                if room is not None:
                    emitter.nest(section, op, extents, _pairs(room, step, above), a, b, lane=bit)
                    continue
                # row i of block c is row i of those from row c * P on; the last block may have fewer
                into = View(below.buffer, below.base, (0, 0, wide, lanes * wide)).moved(2, above)
                whole, last = divmod(n - (strip + 1) * lanes, lanes)
                emitter.nest(section, op, (*extents[:3], whole), into, a, b, lane=bit)
                some = min(max(last - above, 0), step)
                ends = [one.moved(3, whole) for one in (into, a, b)]
                emitter.nest(section, op, (*extents[:2], some, 1), *ends, lane=bit)
            here = room or here


def _pairs(view: View, step: int, row: int) -> View:
    """Rows of blocks in groups of twice a step: loops over groups, rows of a half from `row` on, and blocks."""
    tuples, rows, blocks = view.steps
    return View(view.buffer, view.base + row * rows, (tuples, 2 * step * rows, rows, blocks))
