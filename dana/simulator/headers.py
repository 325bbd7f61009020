"""Generates `native/contract.h`: constants of `hwgen.spec`, and the structures that Python fills.

In: enumerations, operations, limits, structures. Out: the header's text. `setup.py` writes it before it builds what
includes it, and `python -m dana.generated`; no checkout has it.
Constants of the cycle contract are not in it: they come with struct sim_machine.
"""

import ctypes
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from functools import cache
from hashlib import sha256
from itertools import groupby
from textwrap import fill
from typing import Any

from dana.simulator.structures import BLOCK, ENGINE_CODES, NO_OPCODE, STRUCTURES, PartFlag, ProblemKind
from hwgen.spec import columns, engine, strider
from hwgen.spec.bundle import WHOLE_EPOCH
from hwgen.spec.config import LANES_PER_CLUSTER, MAX_WATCHED
from hwgen.spec.counters import UNKNOWN_PAGE
from hwgen.spec.operations import Opcode, Unit

LIMITS = {
    "CLUSTER": str(LANES_PER_CLUSTER),
    "TEMPORARIES": str(strider.TEMPORARIES),
    "REGISTERS": str(strider.TEMPORARIES + strider.CONFIGURATION),
    "WHOLE_EPOCH": f"UINT32_C({WHOLE_EPOCH:#x})",
    "UNKNOWN_PAGE": f"UINT32_C({UNKNOWN_PAGE:#x})",
    "ENGINE_CODES": str(ENGINE_CODES),
    "MAX_WATCHED": str(MAX_WATCHED),
    "MAX_TABLES": str(columns.MAX_TABLES),
    "SECTIONS": str(len(engine.Section)),
    "BLOCK": str(BLOCK),
    "NO_OPCODE": str(NO_OPCODE),
}
# enumerators of C share one namespace
STRIDER_NAMES = {"SUB": "SUBTRACT", "MUL": "MULTIPLY"}
"""Of the Strider's operations that the engine has, too."""

PROPERTIES: Mapping[str, tuple[str, Callable[[Opcode], bool]]] = {
    "WITH_B": ("that read an operand b", lambda op: op.reads_b),
    "SPECIAL": ("of a cluster's units", lambda op: op.special),
}
"""Sets of operations, as bits of a word."""

LISTS: Mapping[str, tuple[str, Callable[[Opcode], bool]]] = {
    "REDUCTIONS": ("that have an identity", lambda op: op.identity is not None),
    "BINARIES": ("two operands", lambda op: op.reads_b and not op.chooses and op is not Opcode.MOVC),
    "UNARIES": (
        "one operand, which they change",
        lambda op: op.operands == 1 and op.unit is not Unit.SEQUENCER and op is not Opcode.MOV,
    ),
}
"""Operations with the same code except for the computation itself, for X(NAME, name)."""


CODE = """\
/* Code made from a rule's graph, which runs in the place of the engine's instructions: dana/jit, compiled.c. tuples:
 * where each tuple's inputs lie, one tuple's after the other's. */
typedef void sim_compiled_function(float *state, const float *const *tuples, const int64_t *slots, int64_t carry);
/* Batches of one tuple each; `loss`: sum over the epoch, and of its errors */
typedef void sim_compiled_rows(float *state, const float *const *tuples, float *loss, int64_t count);
/* Of struct sim_join: hands `floats` numbers of this part over, and fills all [parts][floats] with those of every part;
 * other than 0: it cannot, and the epoch ends */
typedef int32_t sim_exchange(void *context, const float *own, float *all, int64_t floats);

/* Of struct sim_observer */
struct sim_column;
struct sim_handed;
typedef void sim_observe_tuples(void *context, const uint8_t *page, const struct sim_handed *handed, int32_t n_handed,
\t\tint32_t row, int32_t count);
typedef void sim_observe_column(void *context, const struct sim_column *column, const uint8_t *from);
typedef void sim_observe_end(void *context);
"""
TYPES: dict[Any, str] = {ctypes.c_int32: "int32_t", ctypes.c_int64: "int64_t", ctypes.c_double: "double"}
TYPES |= {ctypes.c_uint32: "uint32_t", ctypes.c_uint64: "uint64_t"}


def header() -> str:
    """The text."""
    parts = "\n".join(_parts())
    lines = (
        "/* What hwgen/spec and dana/simulator/structures.py say, in C. Written by python -m dana.generated. */",
        "#ifndef DANA_SIMULATOR_CONTRACT_H",
        "#define DANA_SIMULATOR_CONTRACT_H",
        "",
        "#include <stdbool.h>",
        "#include <stdint.h>",
        "",
        "/* Of all below: a core that was built from another text is not used */",
        f"#define SIM_CONTRACT UINT64_C({digest():#x})",
        parts,
        "#endif",
        "",
    )
    return "\n".join(lines)


@cache
def digest() -> int:
    """Return a hash of the contract."""
    # of the parts alone: the line with this number is no part of them
    return int.from_bytes(sha256("\n".join(_parts()).encode()).digest()[:8], "little")


def _parts() -> Iterator[str]:
    types = " ".join(f"X({kind.name}, {kind.c_type}, dn_{kind.convert.__name__})" for kind in columns.ColumnType)
    parts = [f"#define SIM_{name} {value}" for name, value in LIMITS.items()]
    parts += [
        "",
        _enum("opcode", {op.name: int(op) for op in Opcode}),
        _enum("source", {source.name: int(source) for source in engine.Source}),
        _enum("tuple_mask", _prefixed("MASK", engine.Mask)),
        _enum("section", {section.name: k for k, section in enumerate(engine.Section)}),
        _enum("strider_opcode", {STRIDER_NAMES.get(op.name, op.name): int(op) for op in strider.Opcode}),
        _enum("control", _prefixed("CTL", strider.Control)),
        _enum("condition", _prefixed("COND", strider.Condition)),
        _enum("fault", _prefixed("FAULT", strider.Fault)),
        _enum("column_type", {kind.name: int(kind) for kind in columns.ColumnType}),
        _enum("part_flag", _prefixed("PART", PartFlag)),
        _enum("problem_kind", {kind.name: int(kind) for kind in ProblemKind}),
        "/* Column types: X(NAME, C's type, conversion) */",
        f"#define SIM_COLUMN_TYPES(X) {types}",
        "",
        "/* Operations of a property: bit SIM_X of a word */",
    ]
    for name, (what, has) in PROPERTIES.items():
        # an opcode is a bit number of a 64-bit word
        parts.append(f"#define SIM_{name} UINT64_C({sum(1 << op for op in Opcode if has(op)):#x}) /* {what} */")
    parts += ["", "static inline bool", "sim_is(uint64_t property, int32_t op)", "{"]
    parts += ["\treturn op >= 0 && op < SIM_ENGINE_CODES && (property >> op & 1) != 0;", "}", ""]
    for name, (what, has) in LISTS.items():
        entries = " ".join(f"X({op.name}, {op.name.lower()})" for op in Opcode if has(op))
        parts += [f"/* {what} */", f"#define SIM_{name}(X) {entries}"]
    identities = " ".join(f"X({op.name}, {op.identity:#x}u)" for op in Opcode if op.identity is not None)
    parts += ["/* e with x op e = x, as bits; +0.0 of all others */", f"#define SIM_IDENTITIES(X) {identities}"]
    parts += ["", CODE, *(struct(f"sim_{name}", kind) for name, kind in STRUCTURES.items())]
    yield from parts


def struct(name: str, kind: type[ctypes.Structure]) -> str:
    """Return the C declaration of a structure, with its docstring as a comment."""
    # part of the digest: another wording of a docstring needs a rebuild of the core, too
    comment = fill(f"/* {' '.join((kind.__doc__ or '').split())} */", 120, subsequent_indent=" * ")
    members = []
    # only neighbours are joined: the order of members is the layout
    for declared, group in groupby(kind._fields_, key=lambda field: _declared(field[1])):
        typ, star, extent = declared
        names = ", ".join(f"{star}{member[0]}{extent}" for member in group)
        members.append(fill(f"{typ} {names};", 110, initial_indent="\t", subsequent_indent="\t\t"))
    body = "\n".join(members)
    return f"{comment}\nstruct {name}\n{{\n{body}\n}};\n"


def _declared(kind: type) -> tuple[str, str, str]:
    """Type, asterisk and extent of a member's declaration."""
    if issubclass(kind, ctypes.c_void_p):
        return kind.__name__, "*", ""
    if issubclass(kind, ctypes.Array):
        return TYPES[kind._type_], "", f"[{kind._length_}]"
    return TYPES[kind], "", ""


def _prefixed(prefix: str, members: Iterable[Enum]) -> dict[str, int]:
    return {f"{prefix}_{member.name}": int(member.value) for member in members}


def _enum(name: str, values: Mapping[str, int]) -> str:
    entries = ",\n".join(f"\tSIM_{key} = {value}" for key, value in values.items())
    return f"enum sim_{name}\n{{\n{entries}\n}};\n"
