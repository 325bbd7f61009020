"""Vector operations over buffers: the form between the graph and the instructions.

In: nothing. Out: the data types that selection makes, scheduling orders, allocation places and encoding turns into
instructions. A `VectorOp` is an instruction with operands in buffers that have no address yet.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum

from hwgen.spec import cycles
from hwgen.spec.config import LANES_PER_CLUSTER
from hwgen.spec.engine import Mask, Opcode, Source
from hwgen.spec.timing import DIVIDE_INTERVALS


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
    OUTBOX = "outbox"
    """Where PUT writes, by the rows of tuple memory."""
    INDEX = "index"
    """The threads' index file, which has no rows of scratchpad: a row stands for an entry."""


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Buffer:
    """Adjacent rows of one memory; two buffers are equal only if they are the same object. The name is for people."""

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


Span = tuple[range, range]
"""Rows, and the cycles in which they are used; all of them in one, if there is one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorOp:
    """One instruction to be; fields mean what those of `hwgen.spec.engine.Instruction` do. A plain exchange has b = a.

    Attributes
    ----------
    divide_interval
        Of the machine.
    node
        Node of the graph that it computes, -1 for what no node asked for.
    interval
        Cycles from one row to the next.
    busy
        Cycles in which its rows issue.
    first_latency, latency
        Cycles from a row's issue until its result in the first lane, in all lanes can be read.
    writes
        The cycles in which results are written: bit c stands for c cycles after the first row's issue.
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
    each: bool = False
    ordered: bool = False
    divide_interval: int = DIVIDE_INTERVALS[0]
    node: int = -1
    rows: int = field(init=False, compare=False)
    interval: int = field(init=False, compare=False)
    busy: int = field(init=False, compare=False)
    first_latency: int = field(init=False, compare=False)
    latency: int = field(init=False, compare=False)
    writes: int = field(init=False, compare=False)

    def __post_init__(self) -> None:
        special = self.op.special
        # a special function unit serves all lanes of its cluster, one after the other
        results = LANES_PER_CLUSTER if special and not self.scalar else 1
        apart = cycles.element_interval(self.op, self.divide_interval) if special else 1
        rows, interval = self.inner * self.outer, results * apart
        if self.op is Opcode.SETX:
            first = cycles.INDEX_LATENCY
        else:
            first = cycles.SPECIAL_LATENCY[self.op] if special else cycles.RESULT_LATENCY
        # a one every `apart` bits: rows * interval / apart results
        writes = ((1 << rows * interval) - 1) // ((1 << apart) - 1) << first - 1
        for name, value in (
            ("rows", rows),
            ("interval", interval),
            ("busy", rows * interval),
            ("first_latency", first),
            # the first lane's result comes first, the others' behind it: the row is whole with the last
            ("latency", first + (results - 1) * apart),
            ("writes", writes),
        ):
            # the dataclass is frozen, and these follow from its fields
            object.__setattr__(self, name, value)

    def reads(self) -> Iterator[Access]:
        """Operands read from memory, entries of the index file included."""
        yield self.a
        if self.b is not None:
            yield self.b
        # both ends may use the entry: it is read once
        for access in (self.a, self.dst):
            if access.index is not None and access.indexed:
                inner = self.inner if self.each else 0
                yield Access(buffer=access.index.buffer, inner=int(self.each), outer=inner or 1)
                break

    def spans(self, access: Access, *, last: bool = False) -> Iterator[Span]:
        """Rows of an operand's buffer, each with the cycle of its first use, or of its last, behind the first row's."""
        cycle, loops, row = 0, [], self.interval
        for extent, step, apart in ((self.outer, access.outer, self.inner * row), (self.inner, access.inner, row)):
            if step and extent > 1:
                loops.append((extent, step, apart))
            elif last:
                cycle += (extent - 1) * apart
        # the outer loop goes on where the inner one ends
        if len(loops) == 2 and loops[0][1] == loops[1][0] * loops[1][1]:
            loops = [(self.rows, loops[1][1], row)]
        extent, step, apart = loops.pop() if loops else (1, 1, 1)
        around, far, later = loops.pop() if loops else (1, 0, 0)
        for o in range(around):
            base, first = access.base + o * far, cycle + o * later
            rows = range(base, base + extent * step, step)
            if access.index is None or not access.indexed:
                yield rows, range(first, first + extent * apart, apart)
                continue
            # whichever number a tuple has: a hazard with any of these rows is one
            for k, row in enumerate(rows):
                every = range(row, row + access.index.bound * access.index.stride, access.index.stride)
                yield every, range(first + k * apart, first + k * apart + 1)

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
        return text + "".join(f" {name}" for name in ("scalar", "each", "ordered") if getattr(self, name))
