"""An executor of Strider programs, from `hwgen.spec.strider` and docs/machine.md alone: meaning and cycles."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from hwgen.spec import cycles
from hwgen.spec.config import MachineConfig
from hwgen.spec.strider import STRIDER_BOUND, TEMPORARIES, Condition, Control, Fault, Instruction, Opcode

M32 = 0xFFFFFFFF
ZERO = Instruction(Opcode.READB)


@dataclass(frozen=True, slots=True)
class Push:
    """An entry: `work` cycles after the push before it (or the start), its own instruction's cycles included.

    `column` is the descriptor's number, `end` the page's end, else a fault.
    """

    work: int
    pointer: int
    address: int = 0
    column: int | None = None
    end: bool = False
    fault: Fault = Fault.NONE


@dataclass(slots=True)
class StriderModel:
    """Runs the program on pages; counts skipped rows."""

    config: MachineConfig
    program: tuple[Instruction, ...]
    constants: tuple[int, ...]
    skipped: int = 0

    def run(self, page: bytes) -> Iterator[Push]:
        """The entries that the page gives; the last one is an end or a fault."""
        depth = self.config.strider_depth
        registers = [0] * TEMPORARIES + list(self.constants) + [0] * (32 - len(self.constants))
        pc = head = work = 0
        for _ in range(STRIDER_BOUND * self.config.page_size):
            i = self.program[pc] if pc < len(self.program) else ZERO
            work += cycles.STRIDER_CYCLES[i.op]
            fault = self._fault(i, registers)
            pointer = registers[0] & 0xFFFF
            if fault:
                yield Push(work, pointer, fault=fault)
                return
            if i.op is Opcode.WRITEB:
                yield Push(work, pointer, address=registers[i.a], column=i.b * 64 + i.c)
                work = 0
            elif i.op is Opcode.CTL and i.a == Control.END:
                yield Push(work, pointer, end=True)
                return
            following = (pc + 1) % depth
            if i.op is Opcode.BENTR:
                head = following
            pc = self._step(i, registers, page, pc, following, head) % depth
        yield Push(work, registers[0] & 0xFFFF, fault=Fault.RUNAWAY)

    def _fault(self, i: Instruction, registers: list[int]) -> Fault:
        a, b, c, size = i.a, i.b, i.c, self.config.page_size
        temporary_a, temporary_c = a < TEMPORARIES, c < TEMPORARIES
        match i.op:
            case Opcode.READB:
                good = 1 <= b <= 4 and temporary_c
            case Opcode.EXTRB:
                good = temporary_a and b <= 3 and 1 <= c <= 4
            case Opcode.EXTRBI:
                good = temporary_a and b <= 31 and 1 <= c <= 32
            case Opcode.WRITEB:
                good = b * 64 + c < self.config.descriptor_depth
            case Opcode.CLN:
                good = b <= 7 and temporary_c
            case Opcode.INS:
                good = temporary_a
            case Opcode.AD | Opcode.SUB | Opcode.MUL:
                good = temporary_c
            case Opcode.BEXIT:
                good = a <= 3
            case Opcode.CTL:
                good = a <= 3 and (a != Control.POP or temporary_c) and (a != Control.FAIL or 1 <= b * 64 + c <= 255)
            case _:
                good = True
        if not good:
            return Fault.BAD_INSTRUCTION
        if i.op is Opcode.READB and registers[a] + b > size:
            return Fault.OUT_OF_PAGE
        if i.op is Opcode.WRITEB and registers[a] >= size:
            return Fault.OUT_OF_PAGE
        if i.op is Opcode.CTL and a == Control.FAIL:
            return Fault(b * 64 + c)
        return Fault.NONE

    def _step(self, i: Instruction, r: list[int], page: bytes, pc: int, following: int, head: int) -> int:
        a, b, c = i.a, i.b, i.c
        match i.op:
            case Opcode.READB:
                r[c] = int.from_bytes(page[r[a] : r[a] + b], "little")
            case Opcode.EXTRB:
                r[a] = r[a] >> 8 * b & (1 << 8 * c) - 1
            case Opcode.EXTRBI:
                r[a] = r[a] >> b & (1 << c) - 1
            case Opcode.CLN:
                r[c] = (r[a] + (1 << b) - 1 >> b << b) & M32
            case Opcode.INS:
                r[a] = b * 64 + c
            case Opcode.AD:
                r[c] = r[a] + r[b] & M32
            case Opcode.SUB:
                r[c] = r[a] - r[b] & M32
            case Opcode.MUL:
                r[c] = (r[a] & 0xFFFF) * (r[b] & 0xFFFF)
            case Opcode.BEXIT:
                x, y = r[b], r[c]
                leave = {Condition.EQ: x == y, Condition.NE: x != y, Condition.LT: x < y, Condition.GE: x >= y}
                return following if leave[Condition(a)] else head
            case Opcode.BEQ | Opcode.BNE | Opcode.BLT:
                taken = {Opcode.BEQ: r[a] == r[b], Opcode.BNE: r[a] != r[b], Opcode.BLT: r[a] < r[b]}[i.op]
                return pc + (c - 64 if c >= 32 else c) if taken else following
            case Opcode.JMP:
                return a << 12 | b << 6 | c
            case Opcode.CTL if a == Control.SKIP:
                self.skipped += 1
            case Opcode.CTL if a == Control.POP:
                r[c] = r[b].bit_count()
        return following


@dataclass(slots=True)
class PageTrace:
    """What a program did with a page: (address, descriptor) handed over, rows skipped, how it ended."""

    handed: list[tuple[int, int]] = field(default_factory=list)
    skipped: int = 0
    fault: Fault = Fault.NONE
    pointer: int = 0


def run_page(program: Sequence[Instruction], constants: Sequence[int], page: bytes, config: MachineConfig) -> PageTrace:
    """Run a program on one page."""
    model, trace = StriderModel(config, tuple(program), tuple(constants)), PageTrace()
    for push in model.run(page):
        if push.column is not None:
            trace.handed.append((push.address, push.column))
        if push.fault:
            trace.fault, trace.pointer = push.fault, push.pointer
    trace.skipped = model.skipped
    return trace
