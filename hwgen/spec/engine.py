"""The engine's instruction set: vector instructions over rows and tuples.

In: fields of an instruction. Out: its 192-bit word, and back. No hardware library, no scheduling.

An instruction runs two nested loops, `outer` around `inner`; iteration (o, i) handles one *row*, a word of
every lane of every thread, in one cycle:

    dst[dst + o*dst_outer + i*dst_inner] <- op(a[a + o*a_outer + i*a_inner], b[b + o*b_outer + i*b_inner])

An address may have an entry of the thread's index file added to it, which SETX sets from a tuple's integer: rows of a
model are then chosen by data. See `docs/machine.md` for sections, masks, indices and timing.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Self

from hwgen.spec.described import Described
from hwgen.spec.fields import Bits, layout, pack, unpack
from hwgen.spec.operations import Opcode as Opcode

WORD_BITS = 192
WORD_U32 = WORD_BITS // 32
"""32-bit words of an instruction in a Bundle and on the host port, least significant first."""

ROW_BITS = 26
"""Of an address, in rows."""

MAX_CHOSEN = 1 << 24
"""Rows that a number of binary32 can choose one of."""


class Source(Described):
    """Where operand b comes from: memory, or the operand b of a partner, to whom the own one goes.

    In an exchange, a lane (a thread) whose number has bit `distance` set reads A at `b` and B at `a`.
    """

    MEMORY = 0, "Memory, at `b`."
    LANE_XOR = 1, "Operand b (after its masks) of the lane with a number that differs in bit `distance`."
    THREAD_XOR = 2, "Operand b (after its masks) of the same lane in the thread that differs in bit `distance`."


class Mask(Described):
    """Which tuples of a round count; operands of absent ones read as the operation's identity."""

    NONE = 0, "All of them."
    PAIR = 1, "a belongs to the thread's tuple 2*o, b to 2*o + 1."
    SINGLE = 2, "a belongs to the thread's tuple o; so does b in an exchange, else it is not masked."


class Section(StrEnum):
    """Straight-line pieces of the program; the sequencer decides which runs when, as the text says."""

    text: str

    def __new__(cls, name: str, text: str = "") -> Self:
        section = str.__new__(cls, name)
        section._value_, section.text = name, text
        return section

    INIT = "init", "At the start of each epoch."
    TUPLE = "tuple", "For each round."
    MERGE = "merge", "Merges the round's block with one of the merge stack, for batches of several rounds."
    PUSH = "push", "Pushes the round's block onto the merge stack, for batches of several rounds."
    BATCH = "batch", "At the end of each batch."
    EPOCH = "epoch", "At the end of an epoch that had a tuple."
    TUPLE_1 = "tuple1", "Instead of `tuple`, for rounds of one tuple."
    TUPLE_2 = "tuple2", "Instead of `tuple`, for rounds of up to 2 tuples."
    TUPLE_4 = "tuple4", "Instead of `tuple`, for rounds of up to 4 tuples."
    TUPLE_8 = "tuple8", "Instead of `tuple`, for rounds of up to 8 tuples."
    TUPLE_16 = "tuple16", "Instead of `tuple`, for rounds of up to 16 tuples."
    TUPLE_32 = "tuple32", "Instead of `tuple`, for rounds of up to 32 tuples."


SHORT = {Section[f"TUPLE_{tuples}"]: tuples for tuples in (1, 2, 4, 8, 16, 32)}
"""Sections for short rounds, shortest first, and tuples that such rounds have at most."""

ROUNDS = (Section.TUPLE, *SHORT)
"""Sections of which each round runs one: the first of `SHORT` that the program has and that has room, else `tuple`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Instruction:
    """One decoded instruction."""

    op: Annotated[Opcode, Bits(6, "operation")]
    wait: Annotated[int, Bits(12, "idle cycles before the first row")] = 0
    inner: Annotated[int, Bits(14, "rows of the inner loop, at least 1")] = 1
    outer: Annotated[int, Bits(12, "rounds of the outer loop, at least 1")] = 1
    dst: Annotated[int, Bits(ROW_BITS, "scratchpad address of the result")] = 0
    dst_inner: Annotated[int, Bits(1, "step of the result in the inner loop")] = 1
    dst_outer: Annotated[int, Bits(14, "step of the result in the outer loop")] = 0
    dst_level: Annotated[int, Bits(1, "add level * LEVEL_STRIDE to dst")] = 0
    a: Annotated[int, Bits(ROW_BITS, "address of operand a")] = 0
    a_tuple: Annotated[int, Bits(1, "operand a is in tuple memory, the half being executed")] = 0
    a_inner: Annotated[int, Bits(1, "step of a in the inner loop")] = 1
    a_outer: Annotated[int, Bits(14, "step of a in the outer loop")] = 0
    a_level: Annotated[int, Bits(1, "add level * LEVEL_STRIDE to a")] = 0
    b: Annotated[int, Bits(ROW_BITS, "address of operand b")] = 0
    b_tuple: Annotated[int, Bits(1, "operand b is in tuple memory, the half being executed")] = 0
    b_inner: Annotated[int, Bits(1, "step of b in the inner loop")] = 1
    b_outer: Annotated[int, Bits(14, "step of b in the outer loop")] = 0
    source: Annotated[Source, Bits(2, "where b comes from")] = Source.MEMORY
    distance: Annotated[
        int,
        Bits(3, "bit of the lane or thread number that LANE_XOR or THREAD_XOR flips; lanes with it set swap a and b"),
    ] = 0
    mask: Annotated[Mask, Bits(2, "tuple mask")] = Mask.NONE
    tail_a: Annotated[int, Bits(1, "in the last inner row, a is the identity in lanes from `tail` on")] = 0
    tail_b: Annotated[
        int, Bits(1, "in the last inner row, b (before an exchange) is the identity in lanes from `tail` on")
    ] = 0
    tail: Annotated[int, Bits(7, "first lane that the tail masks replace")] = 0
    scalar: Annotated[int, Bits(1, "special function: take the cluster's lane 0, write all its lanes")] = 0
    a_index: Annotated[int, Bits(1, "add an entry of the thread's index file, `o`, to a")] = 0
    dst_index: Annotated[int, Bits(1, "add an entry of the thread's index file, `o`, to dst")] = 0
    each: Annotated[int, Bits(1, "every row has an entry of the index file: `o` * inner + `i` in place of `o`")] = 0
    ordered: Annotated[int, Bits(1, "a row with an entry that was used shortly before waits for that row's result")] = 0

    @property
    def rows(self) -> int:
        return self.inner * self.outer

    @property
    def entries(self) -> int:
        """Entries of the index file that it sets or uses."""
        return self.rows if self.each else self.outer

    @property
    def indexed(self) -> bool:
        """Whether it uses the index file."""
        return bool(self.a_index or self.dst_index)

    @property
    def crossed(self) -> bool:
        """Whether it needs a machine whose lanes choose: operands of an exchange that differ, LOW and HIGH."""
        apart = (self.a, self.a_inner, self.a_outer) != (self.b, self.b_inner, self.b_outer)
        return self.op.chooses or (self.source is not Source.MEMORY and apart)

    @property
    def index_reach(self) -> int:
        """Of SETX: the largest entry that it can set, in rows."""
        return (self.dst - 1) * self.dst_outer

    def encode(self) -> int:
        """The instruction's word."""
        return pack(FIELDS, self)

    @classmethod
    def decode(cls, word: int) -> Instruction:
        """Read a word. Raises ValueError where it names no operation, source or mask."""
        return cls(**unpack(FIELDS, word))


FIELDS = layout(Instruction)
WIDTHS = {field.name: field.width for field in FIELDS}
