"""Vector operations over buffers: the form between the graph and the instructions.

In: nothing. Out: the data types that selection makes, scheduling orders, allocation places and encoding turns into
instructions. A `VectorOp` is an instruction whose operands lie in buffers that have no address yet.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

import numpy as np
import numpy.typing as npt

from hwgen.spec import cycles
from hwgen.spec.config import LANES_PER_CLUSTER
from hwgen.spec.engine import Mask, Opcode, Source
from hwgen.spec.timing import DIVIDE_INTERVALS

Integers = npt.NDArray[np.int64]


class Home(Enum):
    """Which part of memory a buffer belongs to."""

    IMAGE = "image"
    """Scratchpad rows that the host fills: literals, metas, models."""
    STATE = "state"
    """Scratchpad rows that live as long as the epoch."""
    BLOCK = "block"
    """Scratchpad rows of the merge block: written by `tuple`, dead after `batch` and `epoch` have read them."""
    STACK = "stack"
    """Scratchpad rows of the merge stack, all levels."""
    TEMP = "temp"
    """Scratchpad rows that are anyone's when their last reader is done."""
    TUPLE = "tuple"
    """Tuple memory, the half being executed."""
    INDEX = "index"
    """The threads' index file, which has no rows of scratchpad: a row stands for an entry."""


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Buffer:
    """Adjacent rows of one memory; two buffers are equal only if they are the same object.

    Attributes
    ----------
    name
        For people.
    rows
        Its size.
    """

    name: str
    rows: int
    home: Home


@dataclass(frozen=True, slots=True, kw_only=True)
class Index:
    """What a SETX makes of a tuple's number: `number * stride` rows, which entry o of the index file holds for tuple o.

    Attributes
    ----------
    buffer
        The index file (`Home.INDEX`); all Indices of a program share it.
    bound
        Numbers are below it; the machine stops at others.
    stride
        Rows that a number stands for.
    tag
        What the machine reports when it stops.
    """

    buffer: Buffer
    bound: int
    stride: int
    tag: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """An operand: row `base + o * outer + i * inner` of its buffer (plus the merge stack's level).

    Attributes
    ----------
    index
        Entry o of the index file is added. The result of a SETX is an access to the file itself, one entry for each
        round of the outer loop, with the Index that it sets.
    """

    buffer: Buffer
    base: int = 0
    inner: int = 0
    outer: int = 0
    level: bool = False
    index: Index | None = None

    @property
    def indexed(self) -> bool:
        """Whether the address depends on a tuple's number."""
        return self.index is not None and self.buffer.home is not Home.INDEX

    def __str__(self) -> str:
        steps = ("+i" if self.inner else "") + (f"+{self.outer}o" if self.outer else "")
        return f"{self.buffer.name}[{self.base}{steps}{'+level' if self.level else ''}{'+x' if self.indexed else ''}]"


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorOp:
    """One instruction to be; the fields mean what `hwgen.spec.engine.FIELDS` says. A plain exchange has b = a.

    Attributes
    ----------
    divide_interval
        Of the machine.
    node
        Node of the graph that it computes, -1 for what no node asked for.
    """

    op: Opcode
    dst: Access
    a: Access
    b: Access | None = None
    inner: int = 1
    outer: int = 1
    source: Source = Source.MEMORY
    distance: int = 0
    mask: Mask = Mask.NONE
    tail_a: bool = False
    tail_b: bool = False
    tail: int = 0
    scalar: bool = False
    divide_interval: int = DIVIDE_INTERVALS[0]
    node: int = -1

    @property
    def rows(self) -> int:
        return self.inner * self.outer

    @property
    def interval(self) -> int:
        """Cycles from one row to the next."""
        if not self.op.special:
            return 1
        # a special function unit serves all lanes of its cluster, one after the other
        return self._element_interval * (1 if self.scalar else LANES_PER_CLUSTER)

    @property
    def _element_interval(self) -> int:
        return cycles.element_interval(self.op, self.divide_interval)

    @property
    def first_latency(self) -> int:
        """Cycles from a row's issue until its result in the first lane can be read."""
        if self.op is Opcode.SETX:
            return cycles.INDEX_LATENCY
        return cycles.SPECIAL_LATENCY[self.op] if self.op.special else cycles.RESULT_LATENCY

    @property
    def latency(self) -> int:
        """Cycles from a row's issue until its result in all lanes can be read."""
        # the first lane's result comes first, the others' behind it: the row is whole with the last
        lanes = LANES_PER_CLUSTER if self.op.special and not self.scalar else 1
        return self.first_latency + (lanes - 1) * self.interval // LANES_PER_CLUSTER

    def write_cycles(self) -> Integers:
        """Cycles after the first row's issue in which results are written, rising."""
        rows = np.arange(self.rows) * self.interval + self.first_latency - 1
        if not self.op.special or self.scalar:
            return rows
        return np.asarray((rows[:, None] + np.arange(LANES_PER_CLUSTER) * self._element_interval).ravel())

    def reads(self) -> Iterator[Access]:
        """Operands read from memory, entries of the index file included."""
        yield self.a
        if self.b is not None:
            yield self.b
        # both ends may use the entry: it is read once
        for access in (self.a, self.dst):
            if access.index is not None and access.indexed:
                yield Access(buffer=access.index.buffer, outer=1)
                break

    def touched(self, access: Access) -> Integers:
        """Rows of an operand's buffer in the order in which they are used; with an index, shape [numbers, rows]."""
        o = np.arange(self.outer)[:, None] * access.outer
        rows = np.asarray(access.base + (o + np.arange(self.inner)[None, :] * access.inner).ravel())
        if access.index is None or not access.indexed:
            return rows
        # whichever number a tuple has: a hazard with any of these rows is one
        return np.asarray(rows + np.arange(access.index.bound)[:, None] * access.index.stride)

    def __str__(self) -> str:
        text = f"{self.op.name.lower()} {self.dst} <- {self.a}"
        exchange = {Source.LANE_XOR: "lane", Source.THREAD_XOR: "thread"}.get(self.source)
        if self.b is not None and (exchange is None or self.b != self.a):
            text += f", {self.b}"
        text += f", {exchange}^{1 << self.distance}" if exchange else ""
        for name in ("inner", "outer"):
            text += f" {name}={getattr(self, name)}" if getattr(self, name) != 1 else ""
        text += f" mask={self.mask.name.lower()}" if self.mask is not Mask.NONE else ""
        for name in ("tail_a", "tail_b"):
            text += f" {name}={self.tail}" if getattr(self, name) else ""
        return text + (" scalar" if self.scalar else "")
