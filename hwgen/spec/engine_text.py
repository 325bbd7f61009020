"""Text of engine programs, each field of an instruction once.

In: instructions and the sections they start. Out: text. No scheduling. `tests/assembly` reads it back.

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
`put o8+i <- s3+i inner=2` puts rows in the outbox, from row 8 on.
"""

from collections.abc import Iterable, Mapping

from hwgen.spec.engine import FIELDS, Instruction, Mask, Opcode, Section, Source

LEAST = {field.name: 0 for field in FIELDS} | {"inner": 1, "outer": 1}
_OPERAND_FIELDS = frozenset(
    name
    for operand in ("dst", "a", "b")
    for name in (operand, *(f"{operand}_{part}" for part in ("tuple", "inner", "outer", "level", "index")))
)
B_FIELDS = ("b", "b_tuple", "b_inner", "b_outer")
_ADDED = {"level": "+level", "index": "+x"}
_EXCHANGES = {Source.LANE_XOR: "lane", Source.THREAD_XOR: "thread"}


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
    has_b = instruction.op.reads_b or any(getattr(instruction, name) for name in B_FIELDS)
    has_a = any(getattr(instruction, name, 0) for name in _OPERAND_FIELDS if not name.startswith("b"))
    if has_a or has_b or exchange is not None or instruction.op is not Opcode.END:
        text += f" {_operand(instruction, 'dst', shown)} <- {_operand(instruction, 'a', shown)}"
        if exchange is None:
            text += f", {_operand(instruction, 'b', shown)}" if has_b else ""
        else:
            crossed = any(getattr(instruction, name) != getattr(instruction, f"a{name[1:]}") for name in B_FIELDS)
            text += f", {_operand(instruction, 'b', shown)}" if crossed else ""
            text += f", {exchange}^{1 << instruction.distance}"
            shown |= {name: getattr(instruction, name) for name in B_FIELDS}
            shown |= {"source": int(instruction.source), "distance": instruction.distance}
    for field in FIELDS:
        value = getattr(instruction, field.name)
        if value != shown.get(field.name, LEAST[field.name]):
            text += f" {field.name}={value.name.lower() if isinstance(value, Mask) else int(value)}"
    return text


MEMORIES = {Opcode.SETX: "x", Opcode.PUT: "o"}
"""Where results go that are no rows of the scratchpad: index file, outbox."""


def _operand(instruction: Instruction, name: str, shown: dict[str, int]) -> str:
    """Text of an operand; notes in `shown` the fields that the text holds."""
    fields = {key: getattr(instruction, key, 0) for key in (name, f"{name}_tuple", f"{name}_inner", f"{name}_outer")}
    shown |= {key: value for key, value in fields.items() if hasattr(instruction, key)}
    base, in_tuples, inner, outer = fields.values()
    memory = MEMORIES.get(instruction.op, "s") if name == "dst" else "t" if in_tuples else "s"
    text = f"{memory}{base}{'+i' if inner else ''}{f'+{outer}o' if outer else ''}"
    for added, suffix in _ADDED.items():
        if getattr(instruction, f"{name}_{added}", 0):
            shown[f"{name}_{added}"] = 1
            text += suffix
    return text
