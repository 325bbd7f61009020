"""Assembler of Strider programs: the inverse of `hwgen.spec.strider_text`, which has the syntax.

In: text. Out: instructions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

from lark import Lark, Token
from lark.exceptions import UnexpectedInput

from hwgen.spec.strider import CONFIGURATION, TEMPORARIES, WORD_BITS, Control, Instruction, Opcode
from hwgen.spec.strider_text import (
    CONTROL_OPERANDS,
    FIELD_BITS,
    MNEMONICS,
    OPERANDS,
    Number,
    Operand,
    Register,
    Target,
)

_BY_NAME = {name.lower(): op for op, name in MNEMONICS.items()}


class AssemblyError(ValueError):
    """Text that is not a Strider program: the message has line, text and a caret."""


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
    grammar = Path(__file__).with_name("strider.lark").read_text(encoding="utf-8")
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
            word = self._number(self._operand(Number("a word", 0, (1 << WORD_BITS) - 1)), 0, (1 << WORD_BITS) - 1)
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

    def _operand(self, expected: Operand) -> Token:
        if not self._tokens:
            end = (self._name.end_column or 0) + 1
            self._fail(self._name.line or 0, end, f"{self._name!s} needs {_describe(expected)} next")
        return self._tokens.pop(0)

    def _end(self, what: str) -> None:
        if self._tokens:
            self._wrong(self._tokens[0], f"{what} takes no operand here, found {str(self._tokens[0])!r}")

    def _fields(self, operand: Operand) -> list[int]:
        token = self._operand(operand)
        if isinstance(operand, Register):
            value = self._register(token, operand)
        elif isinstance(operand, Target):
            value = self._target(token, operand)
        else:
            value = self._value(token, operand)
        return [value >> FIELD_BITS * k & (1 << FIELD_BITS) - 1 for k in reversed(range(operand.fields))]

    def _register(self, token: Token, operand: Register) -> int:
        if token.type != "REGISTER":
            self._wrong(token, f"expected {_describe(operand)}, found {str(token)!r}")
        configuration = token.startswith("%cr")
        number, count = int(token.lstrip("%crt")), CONFIGURATION if configuration else TEMPORARIES
        if number >= count:
            self._wrong(token, f"registers are %t0 … %t{TEMPORARIES - 1} and %cr0 … %cr{CONFIGURATION - 1}")
        if configuration and operand.writable:
            self._wrong(token, f"{token!s} cannot be written; expected {_describe(operand)}")
        return number + TEMPORARIES * configuration

    def _value(self, token: Token, operand: Number) -> int:
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

    def _target(self, token: Token, operand: Target) -> int:
        if token.type == "NAME":
            if str(token) not in self._labels:
                self._wrong(token, f"no label {str(token)!r} in this program")
            target = self._labels[str(token)]
            if operand.far:
                return target
            offset = target - self._address
        elif operand.far:
            return self._number(token, 0, (1 << 3 * FIELD_BITS) - 1)
        elif token.type == "OFFSET":
            offset = int(token)
        else:
            self._wrong(token, f"expected {_describe(operand)}, found {str(token)!r}")
        half = 1 << FIELD_BITS - 1
        if not -half <= offset < half:
            self._wrong(token, f"a branch reaches from -{half} to +{half - 1}, this is {offset:+d}; use jmp")
        return offset & (1 << FIELD_BITS) - 1


def _describe(operand: Operand) -> str:
    if isinstance(operand, Register):
        return "a register that can be written (%t0 … %t31)" if operand.writable else "a register (%t…, %cr…)"
    if isinstance(operand, Target):
        return "a label or an address" if operand.far else "a label or an offset such as +2"
    return f"{operand.what} from {operand.low} to {operand.high}"
