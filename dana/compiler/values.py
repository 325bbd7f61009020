"""Values of the graph as rows in buffers, and the emission of operations on them.

In: values and what to do with them. Out: `VectorOp`s, section by section. It knows loops, strides and lanes, and
nothing of the graph.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dana.compiler.layout import rows_of
from dana.compiler.ops import Access, Buffer, Home, VectorOp
from hwgen.spec.engine import Opcode, Section


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """Where a node's value lies.

    Attributes
    ----------
    buffer, base
        Its first row.
    shape
        `()` is one row with the scalar in every lane, `(n,)` is `ceil(n / lanes)` rows.
    stride
        Rows from one tuple's value to the next, 0 if all tuples share one value.
    owned
        The buffer holds this value and nothing else, and may be overwritten by the value's last reader.
    """

    buffer: Buffer
    base: int = 0
    shape: tuple[int, ...] = ()
    stride: int = 0
    owned: bool = False


class Emitter:
    """Collects operations.

    Attributes
    ----------
    lanes, threads, group
        Shape of the machine and of a round.
    ops
        Operations of each section, in an order in which they may run.
    node
        Node that the operations emitted next belong to.
    """

    def __init__(self, *, lanes: int, threads: int, group: int) -> None:
        self.lanes = lanes
        self.threads = threads
        self.group = group
        self.ops: dict[Section, list[VectorOp]] = {section: [] for section in Section}
        self.node = -1

    def rows(self, shape: tuple[int, ...]) -> int:
        """Rows of one value."""
        return rows_of(shape, self.lanes)

    def instances(self, value: Value) -> int:
        """Values that lie side by side: one, or one for each tuple of the group."""
        return self.group if value.stride else 1

    def temporary(self, name: str, shape: tuple[int, ...], *, per_tuple: bool) -> Value:
        """Room for a value, or for one for each tuple of the group."""
        rows = self.rows(shape)
        stride = rows if per_tuple and self.group > 1 else 0
        buffer = Buffer(name=name, rows=rows * (self.group if stride else 1), home=Home.TEMP)
        return Value(buffer=buffer, shape=shape, stride=stride, owned=True)

    def operand(self, value: Value, *, row: int = 0) -> Access:
        """All rows of a value from `row` on; a scalar's one row is repeated."""
        return Access(buffer=value.buffer, base=value.base + row, inner=int(bool(value.shape)), outer=value.stride)

    def emit(
        self, section: Section, op: Opcode, dst: Access, a: Access, b: Access | None = None, **fields: Any
    ) -> VectorOp:
        """Add an operation; steps of loops that run once are dropped."""
        inner, outer = fields.get("inner", 1), fields.get("outer", 1)

        def canonical(access: Access) -> Access:
            return Access(
                buffer=access.buffer,
                base=access.base,
                inner=access.inner if inner > 1 else 0,
                outer=access.outer if outer > 1 else 0,
                level=access.level,
            )

        second = None if b is None else canonical(b)
        emitted = VectorOp(op=op, dst=canonical(dst), a=canonical(a), b=second, node=self.node, **fields)
        self.ops[section].append(emitted)
        return emitted

    def elementwise(self, section: Section, op: Opcode, dst: Value, a: Value, b: Value | None = None) -> None:
        """`dst[e] <- op(a[e], b[e])` for all elements and, where dst has several, all tuples."""
        self.emit(
            section,
            op,
            self.operand(dst),
            self.operand(a),
            None if b is None else self.operand(b),
            inner=self.rows(dst.shape),
            outer=self.instances(dst),
            scalar=op.special and dst.shape == (),
        )
