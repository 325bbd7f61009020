"""The manual of both instruction sets and of the column descriptors, from their texts in `hwgen.spec`.

In: enumerations, fields and cycles of the specification. Out: Markdown. Nothing is said here that the specification
does not say; how sections, masks and indices work together is in `docs/machine.md`.
"""

from hwgen.export.markdown import table
from hwgen.spec import columns, cycles, engine, strider
from hwgen.spec.columns import ColumnType
from hwgen.spec.described import Described
from hwgen.spec.engine import Mask, Section, Source
from hwgen.spec.engine import Opcode as EngineOpcode
from hwgen.spec.fields import Field
from hwgen.spec.strider import Condition, Control
from hwgen.spec.strider import Opcode as StriderOpcode

INTRODUCTION = """\
<!-- Written by python -m dana.generated. -->
# Instruction sets

Fields, operations and cycles of the machine's two processors. Made by `hwgen/export/manual.py` of
`hwgen/spec/strider.py`, `hwgen/spec/operations.py`, `hwgen/spec/engine.py`, `hwgen/spec/columns.py` and
`hwgen/spec/cycles.py`.
What instructions do together, with masks, rounds and the merge stack, is in `docs/machine.md`; programs of a rule are
printed by `dana compile RULE --emit program` and `dana compile RULE --emit strider`.
"""

STRIDER = """\
## Strider

A word has {bits} bits: the opcode in [21:18], fields a in [17:12], b in [11:6], c in [5:0]. Registers have 32 bits:
%t0 to %t{temporaries} (fields 0 to {temporaries}) are 0 when a page starts, %cr0 to %cr{constants} (fields 32 to 63)
come with the program and cannot be
written by it. Cycles do not depend on operands, or on whether a branch is taken.
"""

ENGINE = """\
## Engine

A word has {bits} bits, on the host port {words} words of 32. An instruction does, for o in 0 … outer-1, for i in
0 … inner-1, one row a cycle in all lanes of all threads:

    dst[dst + o*dst_outer + i*dst_inner] <- op(a[a + o*a_outer + i*a_inner], b[b + o*b_outer + i*b_inner])

*latency*: cycles from a row's issue until one that reads its result may issue; nothing interlocks. *interval*: cycles
from one row to the next, of a special function from one lane to the next if it is not `scalar`; `divide_interval` is
the machine's.
"""

EXCHANGE = """\
Sources of operand b, masks, sections. In an exchange all lanes (threads) keep A, send B, and have their partner's as
operand b; those whose number has bit `distance` set swap the addresses of A and B first.

"""

COLUMNS = """\
## Column descriptors

What `writeB` hands to the unpacker: {words} words of 32 bits on the host port, the lower one first.
"""


def manual() -> str:
    """The document."""
    temporaries, constants = strider.TEMPORARIES - 1, strider.CONFIGURATION - 1
    parts = (
        INTRODUCTION,
        STRIDER.format(bits=strider.WORD_BITS, temporaries=temporaries, constants=constants),
        table(("code", "operation", "cycles", "meaning"), _strider_rows()),
        "First field of `ctl`, and of `bexit`:\n\n" + _enumeration("control", Control),
        table(("code", "condition"), [(str(int(k)), k.name.lower()) for k in Condition]),
        ENGINE.format(bits=engine.WORD_BITS, words=engine.WORD_U32),
        table(("code", "operation", "latency", "interval", "identity", "meaning"), _engine_rows()),
        "Fields, from bit 0 up:\n\n" + _fields(engine.FIELDS),
        EXCHANGE + _enumeration("source", Source),
        _enumeration("mask", Mask),
        table(("section", "runs"), [(section.value, section.text) for section in Section]),
        COLUMNS.format(words=columns.WORD_U32),
        _fields(columns.FIELDS),
        _enumeration("type", ColumnType),
    )
    return "\n".join(parts)


def _strider_rows() -> list[tuple[str, ...]]:
    return [(str(int(op)), op.name.lower(), str(cycles.STRIDER_CYCLES[op]), op.text) for op in StriderOpcode]


def _engine_rows() -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for op in EngineOpcode:
        latency = str(cycles.SPECIAL_LATENCY.get(op, cycles.RESULT_LATENCY))
        interval = "`divide_interval`" if cycles.element_interval(op, 0) == 0 else "1"
        if op is EngineOpcode.END:
            latency = interval = ""
        identity = "" if op.identity is None else f"{op.identity:#010x}"
        rows.append((str(int(op)), op.name.lower(), latency, interval, identity, op.text))
    return rows


def _fields(fields: tuple[Field, ...]) -> str:
    rows = [(f"[{field.offset + field.width - 1}:{field.offset}]", field.name, field.what) for field in fields]
    return table(("bits", "field", "meaning"), rows)


def _enumeration(name: str, members: type[Described]) -> str:
    return table(("code", name, "meaning"), [(str(int(k)), k.name.lower(), k.text) for k in members])
