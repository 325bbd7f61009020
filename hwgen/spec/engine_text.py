"""Text of engine programs: assembler and disassembler, exact inverses of one another.

In: instructions and the sections they start, or text. Out: the other. No hardware library, no scheduling.

    tuple:
        mul s40+i+4o <- t0+i+5o, s8+i inner=4 outer=16
        add s40+4o <- s40+4o, lane^8 outer=16 wait=6 tail_a=1 tail_b=1 tail=6
        add s40 <- s41, s42, lane^4
        end wait=9

A line is an operation, `dst <- a, b`, and every other field that is not at its least value as `field=value`. `s40` is
row 40 of the scratchpad, `t0` row 0 of tuple memory; `+i` steps with the inner loop, `+4o` by four rows with the outer
one, `+level` by levels of the merge stack; `+x` adds an entry of the index file. `lane^8` exchanges with the lane whose
number differs by 8: one operand that all send and keep, or two, of which each lane sends one and keeps the other.
`setx x100+4o <- t3+5o outer=16` sets entries from numbers below 100, each 4 rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from importlib import resources
from typing import Any

from lark import Lark
from lark.exceptions import UnexpectedInput

from hwgen.spec.engine import FIELDS, Instruction, Mask, Opcode, Section, Source

_LEAST = {field.name: 0 for field in FIELDS} | {"inner": 1, "outer": 1}
_OPERAND_FIELDS = frozenset(
    name
    for operand in ("dst", "a", "b")
    for name in (operand, *(f"{operand}_{part}" for part in ("tuple", "inner", "outer", "level", "index")))
)
_B_FIELDS = ("b", "b_tuple", "b_inner", "b_outer")
_ADDED = {"level": "+level", "index": "+x"}
_EXCHANGES = {Source.LANE_XOR: "lane", Source.THREAD_XOR: "thread"}


class AssemblyError(ValueError):
    """Text that is not an engine program."""


def disassemble(program: Iterable[Instruction], sections: Mapping[Section, int]) -> str:
    """Write a program as text, a label where a section starts."""
    lines = []
    for index, instruction in enumerate(program):
        lines += [f"{section}:" for section in Section if sections.get(section) == index]
        lines.append(f"    {instruction_text(instruction)}")
    return "\n".join(lines) + "\n"


def instruction_text(instruction: Instruction) -> str:
    """Write one instruction."""
    shown = {"op": int(instruction.op), "inner": 1, "outer": 1}
    text = instruction.op.name.lower()
    exchange = _EXCHANGES.get(instruction.source)
    has_b = instruction.op.reads_b or any(getattr(instruction, name) for name in _B_FIELDS)
    has_a = any(getattr(instruction, name, 0) for name in _OPERAND_FIELDS if not name.startswith("b"))
    if has_a or has_b or exchange is not None or instruction.op is not Opcode.END:
        text += f" {_operand(instruction, 'dst', shown)} <- {_operand(instruction, 'a', shown)}"
        if exchange is None:
            text += f", {_operand(instruction, 'b', shown)}" if has_b else ""
        else:
            crossed = any(getattr(instruction, name) != getattr(instruction, f"a{name[1:]}") for name in _B_FIELDS)
            text += f", {_operand(instruction, 'b', shown)}" if crossed else ""
            text += f", {exchange}^{1 << instruction.distance}"
            shown |= {name: getattr(instruction, name) for name in _B_FIELDS}
            shown |= {"source": int(instruction.source), "distance": instruction.distance}
    for field in FIELDS:
        value = getattr(instruction, field.name)
        if value != shown.get(field.name, _LEAST[field.name]):
            text += f" {field.name}={value.name.lower() if isinstance(value, Mask) else int(value)}"
    return text


def assemble(text: str) -> tuple[tuple[Instruction, ...], dict[Section, int]]:
    """Read a program.

    Raises
    ------
    AssemblyError
        Where the text names no operation, field or section, or a value does not fit; with the line.
    """
    try:
        tree: Any = _parser().parse(text if text.endswith("\n") else text + "\n")
    except UnexpectedInput as error:
        line = text.splitlines()[error.line - 1] if 0 < error.line <= len(text.splitlines()) else ""
        raise AssemblyError(
            f"line {error.line}, column {error.column}: not an instruction or a label: {line.strip()!r}"
        ) from None
    program: list[Instruction] = []
    sections: dict[Section, int] = {}
    for item in tree.children:
        name = item.children[0]
        if item.data == "label":
            if str(name) not in set(Section):
                raise AssemblyError(f"line {name.line}: a section is one of {', '.join(Section)}, not {str(name)!r}")
            sections[Section(str(name))] = len(program)
        else:
            program.append(_instruction(item))
    return tuple(program), sections


@cache
def _parser() -> Lark:
    grammar = resources.files("hwgen.spec").joinpath("engine.lark").read_text(encoding="utf-8")
    return Lark(grammar, parser="lalr", maybe_placeholders=True)


def _operand(instruction: Instruction, name: str, shown: dict[str, int]) -> str:
    """Text of an operand; notes in `shown` the fields that the text holds."""
    fields = {key: getattr(instruction, key, 0) for key in (name, f"{name}_tuple", f"{name}_inner", f"{name}_outer")}
    shown |= {key: value for key, value in fields.items() if hasattr(instruction, key)}
    base, in_tuples, inner, outer = fields.values()
    memory = "x" if name == "dst" and instruction.op is Opcode.SETX else "t" if in_tuples else "s"
    text = f"{memory}{base}{'+i' if inner else ''}{f'+{outer}o' if outer else ''}"
    for added, suffix in _ADDED.items():
        if getattr(instruction, f"{name}_{added}", 0):
            shown[f"{name}_{added}"] = 1
            text += suffix
    return text


def _instruction(tree: Any) -> Instruction:
    name, *rest = tree.children
    try:
        values: dict[str, int] = dict(_LEAST) | {"op": Opcode[str(name).upper()]}
    except KeyError:
        known = ", ".join(op.name.lower() for op in Opcode)
        raise AssemblyError(f"line {name.line}: no operation {str(name)!r}; there are {known}") from None
    operands = iter(("dst", "a", "b"))
    for part in rest:
        if part is None:
            continue
        if part.data == "operand":
            _read_operand(next(operands), part, values, name.line)
        elif part.data == "exchange":
            if next(operands, None) is not None:  # without b it repeats a
                values |= {key: values[f"a{key[1:]}"] for key in _B_FIELDS}
            _read_exchange(str(part.children[0]), values, name.line)
        else:
            _read_option(part, values, name.line)
    try:
        instruction = Instruction(
            op=Opcode(values.pop("op")), source=Source(values.pop("source")), mask=Mask(values.pop("mask")), **values
        )
        instruction.encode()
    except ValueError as error:
        raise AssemblyError(f"line {name.line}: {error}") from None
    return instruction


def _read_operand(name: str, part: Any, values: dict[str, int], line: int) -> None:
    memory, inner, outer, level, index = part.children
    values[name] = int(memory[1:])
    values[f"{name}_inner"] = int(inner is not None)
    values[f"{name}_outer"] = int(outer[1:-1]) if outer is not None else 0
    entries = name == "dst" and values["op"] == Opcode.SETX
    added = {"tuple": memory[0] == "t", "level": level is not None, "index": index is not None}
    for key, given in ((f"{name}_{what}", given) for what, given in added.items()):
        if (given and key not in values) or (memory[0] == "x") != entries:
            raise AssemblyError(
                f"line {line}: operand {name} cannot be {''.join(str(c) for c in part.children if c)!r}"
            )
        if key in values:
            values[key] = int(given)


def _read_exchange(text: str, values: dict[str, int], line: int) -> None:
    kind, _, number = text.partition("^")
    step = int(number)
    if step == 0 or step & (step - 1):
        raise AssemblyError(f"line {line}: an exchange flips one bit, so {text!r} must name a power of two")
    source = Source.LANE_XOR if kind == "lane" else Source.THREAD_XOR
    values |= {"source": source, "distance": step.bit_length() - 1}


def _read_option(part: Any, values: dict[str, int], line: int) -> None:
    key, value = (str(child) for child in part.children)
    if key not in values or key == "op":
        raise AssemblyError(
            f"line {line}: no field {key!r}; there are {', '.join(name for name in values if name != 'op')}"
        )
    if value.isdigit():
        values[key] = int(value)
    elif key == "mask" and value.upper() in Mask.__members__:
        values[key] = Mask[value.upper()]
    else:
        raise AssemblyError(f"line {line}: {key} cannot be {value!r}")
