"""Text of Strider programs: assembler and disassembler, exact inverses of one another.

In: instructions, or text. Out: the other. No hardware library; what instructions do is in `hwgen.spec.strider`.

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

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, NoReturn

from lark import Lark, Token
from lark.exceptions import UnexpectedInput

from hwgen.spec.strider import CONFIGURATION, TEMPORARIES, WORD_BITS, Condition, Control, Fault, Instruction, Opcode


class AssemblyError(ValueError):
    """Text that is not a Strider program: the message has line, text and a caret."""


@dataclass(frozen=True, slots=True)
class _Number:
    """A number from `low` to `high`, in one field or more; `names` can stand for it."""

    what: str
    low: int
    high: int
    names: type[Condition] | type[Control] | type[Fault] | None = None
    fields: int = 1


@dataclass(frozen=True, slots=True)
class _Register:
    """A register; with `writable` a temporary."""

    writable: bool = False
    fields: int = 1


@dataclass(frozen=True, slots=True)
class _Target:
    """Where to go: a label, an offset in one field, or (`far`) an address in three."""

    far: bool = False

    @property
    def fields(self) -> int:
        return 3 if self.far else 1


_Operand = _Number | _Register | _Target
_READ, _WRITTEN = _Register(), _Register(writable=True)
_BYTES = _Number("a number of bytes", 1, 4)
_SPLIT = _Number("a number", 0, 4095, fields=2)

OPERANDS: Mapping[Opcode, tuple[_Operand, ...]] = {
    Opcode.READB: (_READ, _BYTES, _WRITTEN),
    Opcode.EXTRB: (_WRITTEN, _Number("a byte's number", 0, 3), _BYTES),
    Opcode.WRITEB: (_READ, _SPLIT),
    Opcode.EXTRBI: (_WRITTEN, _Number("a bit's number", 0, 31), _Number("a number of bits", 1, 32)),
    Opcode.CLN: (_READ, _Number("a power of two", 0, 7), _WRITTEN),
    Opcode.INS: (_WRITTEN, _SPLIT),
    Opcode.AD: (_READ, _READ, _WRITTEN),
    Opcode.SUB: (_READ, _READ, _WRITTEN),
    Opcode.MUL: (_READ, _READ, _WRITTEN),
    Opcode.BENTR: (),
    Opcode.BEXIT: (_Number("a condition", 0, 3, Condition), _READ, _READ),
    Opcode.BEQ: (_READ, _READ, _Target()),
    Opcode.BNE: (_READ, _READ, _Target()),
    Opcode.BLT: (_READ, _READ, _Target()),
    Opcode.JMP: (_Target(far=True),),
    Opcode.CTL: (_Number("a code", 0, 3, Control),),
}
"""What an instruction's fields hold, in their order; fields that none names are 0. `ctl` has more, by its code."""

CONTROL_OPERANDS: Mapping[Control, tuple[_Operand, ...]] = {
    Control.END: (),
    Control.SKIP: (),
    Control.FAIL: (_Number("a fault", 1, 255, Fault, fields=2),),
    Control.POP: (_READ, _WRITTEN),
}
MNEMONICS = {op: op.name.lower() for op in Opcode} | {
    Opcode.READB: "readB",
    Opcode.EXTRB: "extrB",
    Opcode.WRITEB: "writeB",
    Opcode.EXTRBI: "extrBi",
}
_BY_NAME = {name.lower(): op for op, name in MNEMONICS.items()}
_FIELD = 6


# --- instructions to text ---------------------------------------------------------------------------------------------


def disassemble(program: Iterable[Instruction]) -> str:
    """Write a program, labels (`at_12`) where instructions go to."""
    instructions = list(program)
    valid = [is_valid(i) for i in instructions]
    targets = {
        target
        for k, i in enumerate(instructions)
        if valid[k] and (target := _target(i, k)) is not None and 0 <= target < len(instructions)
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
    fields = [instruction.a, instruction.b, instruction.c]
    known = set(labels)
    for operand in _operands(instruction):
        value = 0
        for _ in range(operand.fields):
            value = value << _FIELD | fields.pop(0)
        if isinstance(operand, _Register):
            operands.append(f"%t{value}" if value < TEMPORARIES else f"%cr{value - TEMPORARIES}")
        elif isinstance(operand, _Target):
            target = _target(instruction, address)
            if target in known:
                operands.append(f"at_{target}")
            else:
                operands.append(str(value) if operand.far else f"{_signed(value):+d}")
        elif operand.names is not None and value in set(operand.names):
            name = operand.names(value).name
            operands.append(name if operand.names is Fault else name.lower())
        else:
            operands.append(str(value))
    return " ".join(filter(None, (MNEMONICS[instruction.op], ", ".join(operands))))


def is_valid(instruction: Instruction) -> bool:
    """Whether every field is in its range, and those that mean nothing are 0. The machine checks the former only."""
    fields = [instruction.a, instruction.b, instruction.c]
    for operand in _operands(instruction):
        value = 0
        for _ in range(operand.fields):
            value = value << _FIELD | fields.pop(0)
        if isinstance(operand, _Number) and not operand.low <= value <= operand.high:
            return False
        if isinstance(operand, _Register) and operand.writable and value >= TEMPORARIES:
            return False
    return not any(fields)


def _operands(instruction: Instruction) -> tuple[_Operand, ...]:
    operands = OPERANDS[instruction.op]
    if instruction.op is Opcode.CTL and instruction.a in set(Control):
        operands += CONTROL_OPERANDS[Control(instruction.a)]
    return operands


def _target(instruction: Instruction, address: int) -> int | None:
    """Where an instruction at `address` goes, if it names that."""
    if instruction.op is Opcode.JMP:
        return instruction.a << 2 * _FIELD | instruction.b << _FIELD | instruction.c
    if instruction.op in (Opcode.BEQ, Opcode.BNE, Opcode.BLT):
        return address + _signed(instruction.c)
    return None


def _signed(field: int) -> int:
    return field - (1 << _FIELD) if field >> _FIELD - 1 else field


# --- text to instructions ---------------------------------------------------------------------------------------------


def assemble(text: str) -> tuple[Instruction, ...]:
    """Read a program.

    Raises
    ------
    AssemblyError
        Where the text is not an instruction, names what does not exist, or a value does not fit.
    """
    lines = text.splitlines()

    def fail(line: int, column: int, message: str) -> NoReturn:
        shown = lines[line - 1].rstrip() if 0 < line <= len(lines) else ""
        column = min(max(column, 1), len(shown) + 1)
        # a caret under a tab stands where the tab ends
        caret = "".join("\t" if c == "\t" else " " for c in shown[: column - 1]) + "^"
        raise AssemblyError(f"line {line}: {message}\n    {shown}\n    {caret}")

    try:
        tree: Any = _parser().parse(text if text.endswith("\n") else text + "\n")
    except UnexpectedInput as error:
        fail(error.line, error.column, "expected `operation operand, operand …`, `label:` or a comment")
    statements: list[list[Token]] = []
    labels: dict[str, int] = {}
    for item in tree.children:
        if item.data == "label":
            name = item.children[0]
            if str(name) in labels:
                fail(name.line, name.column, f"label {str(name)!r} is already at instruction {labels[str(name)]}")
            labels[str(name)] = len(statements)
        else:
            statements.append(list(item.children))
    return tuple(_Statement(tokens, k, labels, fail).read() for k, tokens in enumerate(statements))


@cache
def _parser() -> Lark:
    grammar = resources.files("hwgen.spec").joinpath("strider.lark").read_text(encoding="utf-8")
    return Lark(grammar, parser="lalr")


class _Statement:
    """One instruction's tokens."""

    def __init__(
        self, tokens: list[Token], address: int, labels: Mapping[str, int], fail: Callable[[int, int, str], NoReturn]
    ) -> None:
        self._name, *self._tokens = tokens
        self._address = address
        self._labels = labels
        self._fail = fail

    def read(self) -> Instruction:
        if self._name.type == "WORD":
            word = self._number(self._operand(_Number("a word", 0, (1 << WORD_BITS) - 1)), 0, (1 << WORD_BITS) - 1)
            self._end("a word")
            return Instruction.decode(word)
        op = _BY_NAME.get(self._name.lower())
        if op is None:
            self._wrong(self._name, f"no operation {str(self._name)!r}; there are {', '.join(MNEMONICS.values())}")
        fields: list[int] = []
        for operand in OPERANDS[op]:
            fields += self._fields(operand)
        if op is Opcode.CTL:
            for operand in CONTROL_OPERANDS[Control(fields[0])]:
                fields += self._fields(operand)
        self._end(MNEMONICS[op])
        return Instruction(op, *fields)

    def _wrong(self, token: Token, message: str) -> NoReturn:
        self._fail(token.line or 0, token.column or 0, message)

    def _operand(self, expected: _Operand) -> Token:
        if not self._tokens:
            end = (self._name.end_column or 0) + 1
            self._fail(self._name.line or 0, end, f"{self._name!s} needs {_describe(expected)} next")
        return self._tokens.pop(0)

    def _end(self, what: str) -> None:
        if self._tokens:
            self._wrong(self._tokens[0], f"{what} takes no operand here, found {str(self._tokens[0])!r}")

    def _fields(self, operand: _Operand) -> list[int]:
        token = self._operand(operand)
        if isinstance(operand, _Register):
            value = self._register(token, operand)
        elif isinstance(operand, _Target):
            value = self._target(token, operand)
        else:
            value = self._value(token, operand)
        return [value >> _FIELD * k & (1 << _FIELD) - 1 for k in reversed(range(operand.fields))]

    def _register(self, token: Token, operand: _Register) -> int:
        if token.type != "REGISTER":
            self._wrong(token, f"expected {_describe(operand)}, found {str(token)!r}")
        configuration = token.startswith("%cr")
        number, count = int(token.lstrip("%crt")), CONFIGURATION if configuration else TEMPORARIES
        if number >= count:
            self._wrong(token, f"registers are %t0 … %t{TEMPORARIES - 1} and %cr0 … %cr{CONFIGURATION - 1}")
        if configuration and operand.writable:
            self._wrong(token, f"{token!s} cannot be written; expected {_describe(operand)}")
        return number + TEMPORARIES * configuration

    def _value(self, token: Token, operand: _Number) -> int:
        if token.type == "NAME" and operand.names is not None:
            names = {member.name.lower(): int(member) for member in operand.names if operand.low <= member}
            if token.lower() not in names:
                self._wrong(token, f"expected {operand.what}, one of {', '.join(names)}, found {str(token)!r}")
            return names[token.lower()]
        if token.type != "NUMBER":
            self._wrong(token, f"expected {_describe(operand)}, found {str(token)!r}")
        return self._number(token, operand.low, operand.high)

    def _number(self, token: Token, low: int, high: int) -> int:
        if token.type != "NUMBER":
            self._wrong(token, f"expected a number from {low} to {high}, found {str(token)!r}")
        value = int(token, 0) if token[:2].lower() in ("0x", "0b") else int(token)
        if not low <= value <= high:
            self._wrong(token, f"expected a number from {low} to {high}, found {str(token)!r}")
        return value

    def _target(self, token: Token, operand: _Target) -> int:
        if token.type == "NAME":
            if str(token) not in self._labels:
                self._wrong(token, f"no label {str(token)!r} in this program")
            target = self._labels[str(token)]
            if operand.far:
                return target
            offset = target - self._address
        elif operand.far:
            return self._number(token, 0, (1 << 3 * _FIELD) - 1)
        elif token.type == "OFFSET":
            offset = int(token)
        else:
            self._wrong(token, f"expected {_describe(operand)}, found {str(token)!r}")
        half = 1 << _FIELD - 1
        if not -half <= offset < half:
            self._wrong(token, f"a branch reaches from -{half} to +{half - 1}, this is {offset:+d}; use jmp")
        return offset & (1 << _FIELD) - 1


def _describe(operand: _Operand) -> str:
    if isinstance(operand, _Register):
        return "a register that can be written (%t0 … %t31)" if operand.writable else "a register (%t…, %cr…)"
    if isinstance(operand, _Target):
        return "a label or an address" if operand.far else "a label or an offset such as +2"
    return f"{operand.what} from {operand.low} to {operand.high}"
