"""Common part of all Strider programs: a page's header, line pointers, tuple headers, columns handed over.

In: where the rule's inputs lie in tuple memory; what a tuple is made of, from a subclass. Out: instructions, %cr
registers and descriptors. Every offset is checked before it is used, fault for fault as `dana.storage.reader` does.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from math import prod
from typing import ClassVar

from dana.compiler.place.rows import InputPlaces
from dana.compiler.strider.assembly import Assembly
from dana.storage import layout
from hwgen.spec.columns import Column, ColumnType
from hwgen.spec.strider import Condition, Control, Fault, Instruction, Opcode

T = IntEnum(
    "T",
    "CURSOR LIMIT UPPER SPECIAL LENGTH WORD START END DATA ADDRESS POINTER NATTS MASK FIRST PAYLOAD STOP",
    start=0,
)
"""Temporaries; %t0 is part of the contract (reported with a fault)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StriderProgram:
    """Configuration of the access engine."""

    instructions: tuple[Instruction, ...]
    constants: tuple[int, ...]
    columns: tuple[Column, ...]


@dataclass(frozen=True, slots=True)
class Run:
    """Adjacent stored elements that become adjacent elements of one input."""

    offset: int
    kind: ColumnType
    input: str
    element: int
    count: int


def append(runs: list[Run], run: Run) -> None:
    """Add a run, joined to the one before it where both the page and the input go on."""
    if runs:
        before = runs[-1]
        if (
            before.kind is run.kind
            and before.input == run.input
            and before.element + before.count == run.element
            and before.offset + before.count * before.kind.bytes == run.offset
        ):
            runs[-1] = replace(before, count=before.count + run.count)
            return
    runs.append(run)


class PageWriter(ABC):
    """Writes a program.

    Parameters
    ----------
    inputs
        Where a tuple's values go.
    page_size
        Bytes of a page.
    attributes
        Attributes that a tuple must have, or its row is skipped.
    total
        Values that are handed over of a tuple.
    """

    faults: ClassVar[Sequence[Fault]]
    """What `_row` and `_nulls` branch to, by name, in addition to LINE_POINTER, TUPLE_HEADER and TUPLE_SHORT."""
    chained: ClassVar[bool] = False
    """Whether each column is to come behind the one before it in the table, and nowhere else: then no two share one."""

    def __init__(self, inputs: InputPlaces, page_size: int, *, attributes: int, total: int) -> None:
        self.asm = Assembly()
        self.inputs = inputs
        self.page_size = page_size
        self.needed = attributes
        self.columns: list[Column] = []
        self.written = 0
        self.total = total

    def write(self) -> StriderProgram:
        asm = self.asm
        self._page()
        # handlers of common faults lie between, in reach of branches before and behind them
        asm.jump("start")
        for fault in (Fault.LINE_POINTER, Fault.TUPLE_HEADER, Fault.TUPLE_SHORT):  # in reach of the loop's branches
            asm.label(fault.name)
            asm.fail(fault)
        asm.label("start")
        asm.emit(Opcode.INS, T.CURSOR, 0, layout.PAGE_HEADER_SIZE)
        asm.emit(Opcode.BENTR)
        self._line_pointer()
        self._header()
        asm.label("whole")
        self._row()
        asm.label("next")
        asm.emit(Opcode.AD, T.CURSOR, asm.constant(layout.ITEM_ID_SIZE), T.CURSOR)
        asm.emit(Opcode.BEXIT, Condition.GE, T.CURSOR, T.LIMIT)
        asm.label("end")
        asm.emit(Opcode.CTL, Control.END)
        asm.label("skip")
        asm.emit(Opcode.CTL, Control.SKIP)
        asm.jump("next")
        self._nulls()
        for fault in (Fault.PAGE_HEADER, *self.faults):
            asm.label(fault.name)
            asm.fail(fault)
        return StriderProgram(instructions=asm.finish(), constants=asm.constants, columns=tuple(self.columns))

    @abstractmethod
    def _row(self) -> None:
        """Hand over the columns of the tuple from %DATA to before %END, and go on to `next`."""

    @abstractmethod
    def _nulls(self) -> None:
        """From the label `nulls`: a tuple with a null bitmap, its header's length in %DATA."""

    # --- page and line pointers -----------------------------------------------------------------------------------

    def _page(self) -> None:
        asm = self.asm
        asm.constant(4096)  # Assembly needs it to load large constants once %cr is full
        for register, address in (
            (T.LIMIT, layout.PD_LOWER),
            (T.UPPER, layout.PD_UPPER),
            (T.SPECIAL, layout.PD_SPECIAL),
        ):
            asm.emit(Opcode.READB, asm.constant(address), 2, register)
        asm.branch(Opcode.BLT, asm.constant(layout.PAGE_HEADER_SIZE), T.LIMIT, "used")
        asm.jump("end")  # new or empty
        asm.label("used")
        asm.branch(Opcode.BLT, T.UPPER, T.LIMIT, Fault.PAGE_HEADER.name)
        asm.branch(Opcode.BLT, T.SPECIAL, T.UPPER, Fault.PAGE_HEADER.name)
        asm.branch(Opcode.BLT, asm.constant(self.page_size), T.SPECIAL, Fault.PAGE_HEADER.name)
        # a pointer counts if all of it lies below pd_lower: cursor < pd_lower - 3
        asm.emit(Opcode.SUB, T.LIMIT, asm.constant(layout.ITEM_ID_SIZE - 1), T.LIMIT)
        asm.branch(Opcode.BLT, asm.constant(layout.PAGE_HEADER_SIZE), T.LIMIT, "start")
        asm.jump("end")

    def copy(self, source: int, target: int) -> None:
        self.asm.emit(Opcode.AD, source, self.asm.constant(0), target)

    def _line_pointer(self) -> None:
        asm = self.asm
        asm.emit(Opcode.READB, T.CURSOR, 4, T.LENGTH)
        self.copy(T.LENGTH, T.WORD)
        asm.emit(Opcode.EXTRBI, T.WORD, layout.LP_FLAGS_SHIFT, layout.LP_FLAGS_BITS)
        asm.branch(Opcode.BNE, T.WORD, asm.constant(layout.LP_NORMAL), "next")
        self.copy(T.LENGTH, T.START)
        asm.emit(Opcode.EXTRBI, T.START, 0, layout.LP_OFFSET_BITS)
        asm.emit(Opcode.EXTRBI, T.LENGTH, layout.LP_LENGTH_SHIFT, layout.LP_LENGTH_BITS)
        asm.emit(Opcode.AD, T.START, T.LENGTH, T.END)
        # CLN rounds up: a multiple of 8 stays as it is
        asm.emit(Opcode.CLN, T.START, 3, T.WORD)
        asm.branch(Opcode.BNE, T.START, T.WORD, Fault.LINE_POINTER.name)  # tuples start at multiples of MAXALIGN
        asm.branch(Opcode.BLT, T.START, T.UPPER, Fault.LINE_POINTER.name)
        asm.branch(Opcode.BLT, T.SPECIAL, T.END, Fault.LINE_POINTER.name)

    # --- tuple header ---------------------------------------------------------------------------------------------

    def _header(self) -> None:
        asm = self.asm
        asm.branch(Opcode.BLT, T.LENGTH, asm.constant(layout.TUPLE_HEADER_SIZE + 1), Fault.TUPLE_HEADER.name)
        asm.emit(Opcode.READB, self.behind(T.START, layout.T_INFOMASK2), 4, T.NATTS)  # t_infomask2, t_infomask
        asm.emit(Opcode.READB, self.behind(T.START, layout.T_HOFF), 1, T.DATA)
        self.copy(T.NATTS, T.MASK)
        # HEAP_HASNULL is bit 0 of t_infomask, which lies behind the 16 bits of t_infomask2 (htup_details.h)
        asm.emit(Opcode.EXTRBI, T.MASK, 16, 1)
        asm.emit(Opcode.EXTRBI, T.NATTS, 0, layout.HEAP_NATTS_BITS)
        asm.branch(Opcode.BNE, T.MASK, asm.constant(0), "nulls")
        plain = layout.align_up(layout.TUPLE_HEADER_SIZE, layout.MAXALIGN)
        asm.branch(Opcode.BNE, T.DATA, asm.constant(plain), Fault.TUPLE_HEADER.name)
        asm.branch(Opcode.BLT, T.NATTS, asm.constant(self.needed), "skip")  # added later, so NULL
        asm.emit(Opcode.AD, T.START, T.DATA, T.DATA)

    # --- columns --------------------------------------------------------------------------------------------------

    def behind(self, register: int, offset: int) -> int:
        """A register that holds %register + offset: %ADDRESS, or itself."""
        if not offset:
            return register
        self.asm.emit(Opcode.AD, register, self.asm.constant(offset), T.ADDRESS)
        return T.ADDRESS

    def within(self, register: int, extra: int, end: int = T.END) -> None:
        """Fault unless %register + extra <= %end."""
        self.asm.branch(Opcode.BLT, end, self.behind(register, extra), Fault.TUPLE_SHORT.name)

    def hand_over(self, base: int, run: Run) -> None:
        """Hand a run over, a matrix vector by vector: each of them starts a row of lanes."""
        place, lanes = self.inputs.place(run.input), self.inputs.lanes
        shape = place.shape
        # a matrix with rows of whole rows of lanes lies in memory as it lies on the page: one run
        length = shape[-1] if len(shape) > 1 and shape[-1] % lanes else prod(shape)
        lanes = 1 if place.broadcast else lanes
        done = 0
        while done < run.count:
            vector, element = divmod(run.element + done, length)
            count = min(run.count - done, length - element)
            self.written += count
            column = Column(
                count=count,
                row=place.row + vector * -(-length // lanes) + element // lanes,
                lane=element % lanes,
                type=run.kind,
                scalar=int(not shape or place.broadcast),
                first=int(self.written == count),
                last=int(self.written == self.total),
                follows=int(self.chained and bool(self.columns)),
            )
            self.hand_column(base, run.offset + done * run.kind.bytes, column)
            done += count

    def hand_column(self, base: int, offset: int, column: Column) -> None:
        """Hand what lies at %base + offset over, as a descriptor says."""
        # equal columns share a descriptor, unless each says what it follows
        if self.chained or column not in self.columns:
            self.columns.append(column)
        number = len(self.columns) - 1 if self.chained else self.columns.index(column)
        self.asm.emit(Opcode.WRITEB, self.behind(base, offset), number >> 6, number & 63)
