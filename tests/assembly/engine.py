"""Assembler of engine programs: the inverse of `hwgen.spec.engine_text`, which has the syntax.

In: text. Out: instructions and the sections they start.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from lark import Lark
from lark.exceptions import UnexpectedInput

from hwgen.spec.engine import Instruction, Mask, Opcode, Section, Source
from hwgen.spec.engine_text import B_FIELDS, LEAST, MEMORIES


class AssemblyError(ValueError):
    """Text that is not an engine program."""


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
    grammar = Path(__file__).with_name("engine.lark").read_text(encoding="utf-8")
    return Lark(grammar, parser="lalr", maybe_placeholders=True)


def _instruction(tree: Any) -> Instruction:
    name, *rest = tree.children
    try:
        values: dict[str, int] = dict(LEAST) | {"op": Opcode[str(name).upper()]}
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
                values |= {key: values[f"a{key[1:]}"] for key in B_FIELDS}
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
    apart = MEMORIES.get(Opcode(values["op"]), "") if name == "dst" else ""
    added = {"tuple": memory[0] == "t", "level": level is not None, "index": index is not None}
    for key, given in ((f"{name}_{what}", given) for what, given in added.items()):
        if (given and key not in values) or (memory[0] if memory[0] in "xo" else "") != apart:
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
