"""Text of Strider programs.

In: instructions. Out: text. What instructions do is in `hwgen.spec.strider`; `tests/assembly` reads the text back.

        ins %t0, 24                 # %t0 <- 24
        bentr
    next:
        readB %t0, 4, %t4
        extrBi %t4, 0, 15
        beq %t4, %cr0, skip
        writeB %t4, 3               # descriptor 3
    skip:
        ad %t0, %cr1, %t0
        bexit ge, %t0, %t1
        ctl end

Operands are written in the order of the fields. `hi, lo` of `ins` and `writeB` is one number, as is the address of
`jmp`; branches name a label or an offset (`+3`, `-2`), `jmp` a label or an address. Numbers are decimal, 0x or 0b. A
word that is no valid instruction is written `.word 0x2fffff`.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from hwgen.spec.strider import TEMPORARIES, Condition, Control, Fault, Instruction, Opcode


@dataclass(frozen=True, slots=True)
class Number:
    """A number from `low` to `high`, in one field or more; `names` can stand for it."""

    what: str
    low: int
    high: int
    names: type[Condition] | type[Control] | type[Fault] | None = None
    fields: int = 1


@dataclass(frozen=True, slots=True)
class Register:
    """A register; with `writable` a temporary."""

    writable: bool = False
    fields: int = 1


@dataclass(frozen=True, slots=True)
class Target:
    """Where to go: a label, an offset in one field, or (`far`) an address in three."""

    far: bool = False

    @property
    def fields(self) -> int:
        return 3 if self.far else 1


Operand = Number | Register | Target
_READ, _WRITTEN = Register(), Register(writable=True)
_BYTES = Number("a number of bytes", 1, 4)
_SPLIT = Number("a number", 0, 4095, fields=2)

OPERANDS: Mapping[Opcode, tuple[Operand, ...]] = {
    Opcode.READB: (_READ, _BYTES, _WRITTEN),
    Opcode.EXTRB: (_WRITTEN, Number("a byte's number", 0, 3), _BYTES),
    Opcode.WRITEB: (_READ, _SPLIT),
    Opcode.EXTRBI: (_WRITTEN, Number("a bit's number", 0, 31), Number("a number of bits", 1, 32)),
    Opcode.CLN: (_READ, Number("a power of two", 0, 7), _WRITTEN),
    Opcode.INS: (_WRITTEN, _SPLIT),
    Opcode.AD: (_READ, _READ, _WRITTEN),
    Opcode.SUB: (_READ, _READ, _WRITTEN),
    Opcode.MUL: (_READ, _READ, _WRITTEN),
    Opcode.BENTR: (),
    Opcode.BEXIT: (Number("a condition", 0, 3, Condition), _READ, _READ),
    Opcode.BEQ: (_READ, _READ, Target()),
    Opcode.BNE: (_READ, _READ, Target()),
    Opcode.BLT: (_READ, _READ, Target()),
    Opcode.JMP: (Target(far=True),),
    Opcode.CTL: (Number("a code", 0, 3, Control),),
}
"""What an instruction's fields hold, in their order; fields that none names are 0. `ctl` has more, by its code."""

CONTROL_OPERANDS: Mapping[Control, tuple[Operand, ...]] = {
    Control.END: (),
    Control.SKIP: (),
    Control.FAIL: (Number("a fault", 1, 255, Fault, fields=2),),
    Control.POP: (_READ, _WRITTEN),
}
MNEMONICS = {op: op.text.partition(":")[0].partition(" ")[0] for op in Opcode}
"""The texts begin with them."""
FIELD_BITS = 6


def disassemble(program: Iterable[Instruction]) -> str:
    """Write a program, labels (`at_12`) where instructions go to."""
    instructions = list(program)
    valid = [is_valid(i) for i in instructions]
    targets = {
        to
        for k, i in enumerate(instructions)
        if valid[k] and (to := target(i, k)) is not None and 0 <= to < len(instructions)
    }
    lines = []
    for k, instruction in enumerate(instructions):
        if k in targets:
            lines.append(f"at_{k}:")
        lines.append(f"    {instruction_text(instruction, address=k, labels=targets)}")
    return "".join(f"{line}\n" for line in lines)


def instruction_text(instruction: Instruction, *, address: int = 0, labels: Iterable[int] = ()) -> str:
    """Write one instruction, which stands at `address`; `labels` are the addresses that have one."""
    if not is_valid(instruction):
        return f".word {instruction.encode():#08x}"
    operands = []
    known = set(labels)
    for operand, value in _values(instruction):
        if isinstance(operand, Register):
            operands.append(f"%t{value}" if value < TEMPORARIES else f"%cr{value - TEMPORARIES}")
        elif isinstance(operand, Target):
            to = target(instruction, address)
            if to in known:
                operands.append(f"at_{to}")
            else:
                operands.append(str(value) if operand.far else f"{_signed(value):+d}")
        elif operand.names is not None and value in set(operand.names):
            name = operand.names(value).name
            operands.append(name if operand.names is Fault else name.lower())
        else:
            operands.append(str(value))
    return " ".join(filter(None, (MNEMONICS[instruction.op], ", ".join(operands))))


def is_valid(instruction: Instruction) -> bool:
    """Whether every field is in its range, and those that mean nothing are 0."""
    named = sum(operand.fields for operand in _operands(instruction))
    return exists(instruction) and not any((instruction.a, instruction.b, instruction.c)[named:])


def exists(instruction: Instruction, *, descriptors: int = 1 << 2 * FIELD_BITS) -> bool:
    """Whether every field is in its range, which is all that a machine checks, and there are so many descriptors."""
    for operand, value in _values(instruction):
        if isinstance(operand, Number) and not operand.low <= value <= operand.high:
            return False
        if isinstance(operand, Register) and operand.writable and value >= TEMPORARIES:
            return False
    return instruction.op is not Opcode.WRITEB or instruction.b << FIELD_BITS | instruction.c < descriptors


def _values(instruction: Instruction) -> Iterator[tuple[Operand, int]]:
    """Operands, each with the number that its fields make."""
    fields = [instruction.a, instruction.b, instruction.c]
    for operand in _operands(instruction):
        value = 0
        for _ in range(operand.fields):
            value = value << FIELD_BITS | fields.pop(0)
        yield operand, value


def _operands(instruction: Instruction) -> tuple[Operand, ...]:
    operands = OPERANDS[instruction.op]
    if instruction.op is Opcode.CTL and instruction.a in set(Control):
        operands += CONTROL_OPERANDS[Control(instruction.a)]
    return operands


def target(instruction: Instruction, address: int) -> int | None:
    """Where an instruction at `address` goes, if it names that."""
    if instruction.op is Opcode.JMP:
        return instruction.a << 2 * FIELD_BITS | instruction.b << FIELD_BITS | instruction.c
    if instruction.op in (Opcode.BEQ, Opcode.BNE, Opcode.BLT):
        return address + _signed(instruction.c)
    return None


def _signed(field: int) -> int:
    return field - (1 << FIELD_BITS) if field >> FIELD_BITS - 1 else field
