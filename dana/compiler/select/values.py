"""Values of the graph as rows in buffers, and the emission of operations on them.

In: values and what to do with them. Out: `VectorOp`s, section by section. It knows loops, strides and lanes, and
nothing of the graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod
from typing import Any

from dana.compiler.place.rows import Form, row_shape
from dana.compiler.place.shards import Grain, parts_of, shard_of
from dana.compiler.select.nest import pieces
from dana.compiler.select.ops import Access, Buffer, Home, Index, VectorOp
from dana.compiler.target import Target
from hwgen.spec.engine import Opcode, Section, Source


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """Where a node's value lies.

    Attributes
    ----------
    buffer, base
        Its first row; the others follow.
    shape, form
        Its elements, and how they lie in rows. A scalar is broadcast.
    stride
        Rows from one tuple's value to the next, 0 if all tuples share one value.
    repeats
        A packed value repeats over the lanes of its rows (`dana.compiler.place.repeat`).
    owned
        The buffer holds this value and nothing else, and may be overwritten by the value's last reader.
    grain
        None if each thread holds the whole value; else each has a shard, and these axes of rows are not shared out
        (`place/shards.py`).
    """

    buffer: Buffer
    base: int = 0
    shape: tuple[int, ...] = ()
    form: Form = Form.BROADCAST
    stride: int = 0
    repeats: bool = False
    owned: bool = False
    grain: Grain = None


@dataclass(frozen=True, slots=True)
class View:
    """Rows of a buffer as a loop nest goes through them: the first one, and the step of each loop."""

    buffer: Buffer
    base: int
    steps: tuple[int, ...]
    level: bool = False
    index: Index | None = None

    def moved(self, loop: int, count: int) -> View:
        """The view from iteration `count` of a loop on."""
        return replace(self, base=self.base + count * self.steps[loop])


@lru_cache(1 << 10)
def dense(rows: tuple[int, ...]) -> tuple[int, ...]:
    """Steps of a contiguous array; none along an axis of one."""
    # an axis of one has no step, so that it fuses with any loop and repeats along it
    return tuple([prod(rows[k + 1 :]) if extent > 1 else 0 for k, extent in enumerate(rows)])


class Emitter:
    """Collects operations.

    Attributes
    ----------
    lanes, threads, group, together, records
        Of the target.
    short
        The target is rounds of fewer tuples than a batch may have.
    ops
        Operations of each section, in an order in which they may run.
    node
        Node that the operations emitted next belong to.
    """

    def __init__(self, target: Target) -> None:
        self.lanes, self.threads, self.group = target.lanes, target.threads, target.group
        self.together, self.records = target.together, target.records
        self.short = target.round_tuples < target.together
        self._divide_interval = target.divide_interval
        self.ops: dict[Section, list[VectorOp]] = {section: [] for section in Section}
        self.node = -1

    def row_shape(self, value: Value) -> tuple[int, ...]:
        """Rows of one value, or of a thread's shard of it, as an array."""
        return self._row_shape(value.shape, value.form, value.grain)

    def _row_shape(self, shape: tuple[int, ...], form: Form, grain: Grain) -> tuple[int, ...]:
        rows = row_shape(shape, form, self.lanes)
        return rows if grain is None else shard_of(rows, grain, self.threads)

    def parts(self, value: Value) -> tuple[int, int, int]:
        """(vectors, chunks, rows of each), as `shards.parts_of`; a whole value is one chunk."""
        rows = row_shape(value.shape, value.form, self.lanes)
        return (1, 1, prod(rows)) if value.grain is None else parts_of(rows, value.grain)

    def rows(self, value: Value) -> int:
        """Rows of one value."""
        return prod(self.row_shape(value))

    def instances(self, value: Value) -> int:
        """Values that lie side by side: one, or one for each tuple of the group."""
        return self.group if value.stride else 1

    def placed(
        self, name: str, home: Home, shape: tuple[int, ...], form: Form, *, grain: Grain = None, owned: bool = False
    ) -> Value:
        """A value, whole or a shard, in a buffer of its size."""
        buffer = Buffer(name=name, rows=prod(self._row_shape(shape, form, grain)), home=home)
        return Value(buffer=buffer, shape=shape, form=form, grain=grain, owned=owned)

    def temporary(
        self, name: str, shape: tuple[int, ...], form: Form, *, per_tuple: bool, grain: Grain = None
    ) -> Value:
        """Room for a value, or for one for each tuple of the group."""
        if per_tuple and not shape and form is Form.PACKED:
            # a vector of the tuples: there is one
            return self.temporary(name, (self.group,), form, per_tuple=False)
        room = self.room(name, self._row_shape(shape, form, grain), per_tuple=per_tuple)
        return Value(buffer=room.buffer, shape=shape, form=form, stride=room.steps[0], grain=grain, owned=True)

    def room(self, name: str, rows: tuple[int, ...], *, per_tuple: bool) -> View:
        """Room for an array of rows, or for one for each tuple of the group."""
        size = prod(rows)
        # one tuple to a round: its value lies as one that all tuples share
        several = per_tuple and self.group > 1
        buffer = Buffer(name=name, rows=size * (self.group if several else 1), home=Home.TEMP)
        return View(buffer, 0, (size if several else 0, *dense(rows)))

    def view(self, value: Value, rows: tuple[int, ...]) -> View:
        """A value's rows, repeated along the axes of `rows` that it does not have or in which it has one element."""
        own = self.row_shape(value)
        own = own[max(0, len(own) - len(rows)) :]  # a whole value of one chunk may have more axes of one than a shard
        steps = (0,) * (len(rows) - len(own)) + dense(own)
        return View(value.buffer, value.base, (value.stride, *steps))

    def nest(
        self,
        section: Section,
        op: Opcode,
        extents: Sequence[int],
        dst: View,
        a: View,
        b: View | None = None,
        *,
        inner: int | None = None,
        outer: int | None = None,
        lane: int | None = None,
        thread: int | None = None,
        **fields: Any,
    ) -> None:
        """Add the operations of a loop nest.

        Parameters
        ----------
        extents
            Of the loops, tuples first.
        inner, outer
            The loop that has to be the instruction's inner or outer one.
        lane, thread
            The bit of the number in which partners of an exchange differ.
        fields
            Of `VectorOp`.
        """
        if lane is not None:
            fields |= {"source": Source.LANE_XOR, "distance": lane}
        elif thread is not None:
            fields |= {"source": Source.THREAD_XOR, "distance": thread}
        views = [dst, a] if b is None else [dst, a, b]
        for piece in pieces(tuple(extents), tuple(view.steps for view in views), inner=inner, outer=outer):
            accesses = [
                Access(
                    buffer=view.buffer,
                    base=view.base + piece.offsets[k],
                    inner=piece.inner_steps[k],
                    outer=piece.outer_steps[k],
                    level=view.level,
                    index=view.index,
                )
                for k, view in enumerate(views)
            ]
            self.add(section, op, *accesses, inner=piece.inner, outer=piece.outer, **fields)

    def add(self, section: Section, op: Opcode, dst: Access, a: Access, b: Access | None = None, **fields: Any) -> None:
        """Add an operation as it is; `fields` of `VectorOp`."""
        interval = self._divide_interval
        self.ops[section].append(VectorOp(op=op, dst=dst, a=a, b=b, divide_interval=interval, node=self.node, **fields))

    def elementwise(self, section: Section, op: Opcode, dst: Value, a: Value, b: Value | None = None) -> None:
        """`dst[e] <- op(a[e], b[e])` for all elements and, where dst has several, all tuples."""
        rows = self.row_shape(dst)
        self.nest(
            section,
            op,
            (self.instances(dst), *rows),
            self.view(dst, rows),
            self.view(a, rows),
            None if b is None else self.view(b, rows),
            # a broadcast row holds one value in all lanes: the special function unit evaluates it once
            scalar=op.special and dst.form is Form.BROADCAST,
        )
