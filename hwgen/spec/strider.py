"""The Strider's instruction set: 22-bit words of the paper, opcode [21:18] and three 6-bit fields.

In: fields of an instruction. Out: its word, and back; text is in `hwgen.spec.strider_text`. No hardware library.

Registers are 32 bits: %t0 … %t31 are temporaries (field values 0 … 31), %cr0 … %cr31 configuration (32 … 63),
loaded with the program and read-only to it. Every temporary is 0 when a page starts. The eleven operations of
the paper are kept with their numbers; five were added because PostgreSQL's pages need them: three compares
(null rows, short tuples and damaged pointers are skipped in the middle of a loop), a far jump, and control.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from hwgen.spec.described import Described

WORD_BITS = 22
TEMPORARIES = 32
CONFIGURATION = 32
STRIDER_BOUND = 128
"""A Strider that executes more than STRIDER_BOUND * page_size instructions on one page is stopped (`Fault.RUNAWAY`).
Pages that PostgreSQL writes need less than a tenth of it."""


class Opcode(Described):
    """Operations; a, b, c are the fields [17:12], [11:6], [5:0]."""

    READB = (
        0,
        "readB a, n, d: %d <- n bytes (1 to 4, little-endian) of the page at address %a. Outside the page: fault.",
    )
    EXTRB = (
        1,
        "extrB r, off, n: %r <- n bytes (1 to 4) of %r from byte `off` (0 to 3) up; zeros past the register's end.",
    )
    WRITEB = (
        2,
        "writeB a, hi, lo: hand column descriptor hi*64 + lo, at page address %a, to the unpacker; waits while its "
        "queue is full.",
    )
    EXTRBI = (
        3,
        "extrBi r, off, n: %r <- n bits (1 to 32) of %r from bit `off` (0 to 31) up; zeros past the register's end.",
    )
    CLN = 4, "cln a, k, d: %d <- %a rounded up to a multiple of 2**k, k from 0 to 7: drops padding."
    INS = 5, "ins d, hi, lo: %d <- hi*64 + lo."
    AD = 6, "ad a, b, d: %d <- %a + %b."
    SUB = 7, "sub a, b, d: %d <- %a - %b."
    MUL = 8, "mul a, b, d: %d <- low 16 bits of %a * low 16 bits of %b."
    BENTR = 9, "bentr: the next instruction is the head of the loop (there is one; 0 when a page starts)."
    BEXIT = (
        10,
        "bexit cond, a, b: leave the loop if cond(%a, %b), else go to its head. cond: 0 eq, 1 ne, 2 lt, 3 ge "
        "(unsigned).",
    )
    BEQ = 11, "beq a, b, off: if %a = %b go to this instruction + off (signed, -32 to 31)."
    BNE = 12, "bne a, b, off: the same if %a != %b."
    BLT = 13, "blt a, b, off: the same if %a < %b, unsigned."
    JMP = 14, "jmp target: go to the instruction at the 18-bit address a*4096 + b*64 + c."
    CTL = 15, "ctl code, b, c: see `Control`."


class Control(Described):
    """First field of `ctl`."""

    END = 0, "The page is done; the Strider stops until its buffer holds the next one."
    SKIP = 1, "Count one row that was skipped because of a NULL."
    FAIL = 2, "Stop the machine with error `b*64 + c` (a `Fault`), from 1 to 255."
    POP = 3, "%c <- number of one bits in %b."


class Condition(IntEnum):
    """First field of `bexit`."""

    EQ = 0
    NE = 1
    LT = 2
    GE = 3


class Fault(Described):
    """Why a machine stopped: STATUS reports it with the page's number and the Strider's %t0 (line-pointer address)."""

    NONE = 0, "Nothing is wrong."
    OUT_OF_PAGE = 1, "A read or a column reaches outside the page (raised by the hardware itself)."
    PAGE_HEADER = 2, "pd_lower, pd_upper or pd_special contradict each other or the page size."
    LINE_POINTER = 3, "A line pointer points outside the tuple area, or to an address that is not a multiple of 8."
    TUPLE_HEADER = 4, "t_hoff is outside the tuple or not aligned."
    TUPLE_SHORT = 5, "A tuple ends before its last used column."
    TOASTED = 6, "A used column is stored out of line."
    COMPRESSED = 7, "A used column is compressed."
    ARRAY_SHAPE = (
        8,
        "A used array is not one-dimensional, has another length than the first row's or another element type.",
    )
    ARRAY_NULLS = 9, "A used array holds NULL elements."
    STACK = 10, "A batch has more rounds than the merge stack has levels (raised by the engine)."
    BAD_INSTRUCTION = 11, "No such instruction or descriptor (raised by the hardware itself)."
    RUNAWAY = (
        12,
        "A Strider did not come to the end of a page in `STRIDER_BOUND` * page_size instructions (raised by the "
        "hardware itself).",
    )
    BUS = 13, "The bus answered a page's read, or a record, with an error (raised by the board)."
    INDEX = (
        14,
        "A number that chooses a model's row is not a whole one, or there is no such row (raised by the engine, of "
        "records by the unpacker).",
    )
    TUPLE_PARTS = (
        15,
        "Columns that make no tuple: one begins in another or goes on out of turn, or the epoch ends in one (raised by"
        " the hardware itself); there is no such part of a tuple (by the program).",
    )


@dataclass(frozen=True, slots=True)
class Instruction:
    """One decoded word."""

    op: Opcode
    a: int = 0
    b: int = 0
    c: int = 0

    def encode(self) -> int:
        for name, value in (("a", self.a), ("b", self.b), ("c", self.c)):
            if not 0 <= value < 64:
                raise ValueError(f"field {name} of {self.op.name} must be from 0 to 63, not {value!r}")
        return self.op << 18 | self.a << 12 | self.b << 6 | self.c

    @classmethod
    def decode(cls, word: int) -> Instruction:
        if not 0 <= word < 1 << WORD_BITS:
            raise ValueError(f"a Strider instruction has {WORD_BITS} bits, not {word:#x}")
        return cls(Opcode(word >> 18), word >> 12 & 63, word >> 6 & 63, word & 63)
