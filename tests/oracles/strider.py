"""An executor of Strider programs, from `hwgen.spec.strider` alone: what instructions mean, not when."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from hwgen.spec.strider import TEMPORARIES, Condition, Control, Fault, Instruction, Opcode

M32 = 0xFFFFFFFF


@dataclass(slots=True)
class PageTrace:
    """What a program did with a page: (address, descriptor) handed over, rows skipped, how it ended."""

    handed: list[tuple[int, int]] = field(default_factory=list)
    skipped: int = 0
    fault: Fault = Fault.NONE
    pointer: int = 0
    executed: list[Opcode] = field(default_factory=list)


def run_page(
    program: Sequence[Instruction], constants: Sequence[int], page: bytes, *, limit: int = 1_000_000
) -> PageTrace:
    """Run a program on one page, at most `limit` instructions."""
    registers = [0] * TEMPORARIES + list(constants) + [0] * (32 - len(constants))
    trace = PageTrace()
    pc = head = 0
    for _ in range(limit):
        i = program[pc]
        trace.executed.append(i.op)
        a, b, c = i.a, i.b, i.c
        ra, rb = registers[a], registers[b]
        following = pc + 1
        write: tuple[int, int] | None = None
        match i.op:
            case Opcode.READB:
                if ra + b > len(page):
                    trace.fault, trace.pointer = Fault.OUT_OF_PAGE, registers[0]
                    return trace
                write = c, int.from_bytes(page[ra : ra + b], "little")
            case Opcode.EXTRB:
                write = a, ra >> 8 * b & (1 << 8 * c) - 1
            case Opcode.EXTRBI:
                write = a, ra >> b & (1 << c) - 1
            case Opcode.WRITEB:
                trace.handed.append((ra, b * 64 + c))
            case Opcode.CLN:
                write = c, (ra + (1 << b) - 1) & -(1 << b)
            case Opcode.INS:
                write = a, b * 64 + c
            case Opcode.AD:
                write = c, ra + rb
            case Opcode.SUB:
                write = c, ra - rb
            case Opcode.MUL:
                write = c, (ra & 0xFFFF) * (rb & 0xFFFF)
            case Opcode.BENTR:
                head = pc + 1
            case Opcode.BEXIT:
                x, y = registers[b], registers[c]
                leave = {Condition.EQ: x == y, Condition.NE: x != y, Condition.LT: x < y, Condition.GE: x >= y}
                if not leave[Condition(a)]:
                    following = head
            case Opcode.BEQ | Opcode.BNE | Opcode.BLT:
                taken = {Opcode.BEQ: ra == rb, Opcode.BNE: ra != rb, Opcode.BLT: ra < rb}[i.op]
                if taken:
                    following = pc + (c - 64 if c >= 32 else c)
            case Opcode.JMP:
                following = a << 12 | b << 6 | c
            case Opcode.CTL:
                match Control(a):
                    case Control.END:
                        return trace
                    case Control.SKIP:
                        trace.skipped += 1
                    case Control.FAIL:
                        trace.fault, trace.pointer = Fault(b * 64 + c), registers[0]
                        return trace
                    case Control.POP:
                        write = c, registers[b].bit_count()
        if write is not None:
            assert write[0] < TEMPORARIES, f"{i} writes a configuration register"
            registers[write[0]] = write[1] & M32
        pc = following
    raise AssertionError(f"the program ran {limit} instructions without an end")
