"""Why the core refused a Bundle, in words.

In: the core's problem and the Bundle. Out: the exception. The kinds are those of `native/core.h`.
"""

from __future__ import annotations

from enum import IntEnum

from dana.simulator.native import Problem
from hwgen.spec import engine
from hwgen.spec.bundle import Bundle, BundleError


class Kind(IntEnum):
    """enum sim_problem_kind."""

    FITS = 0
    NO_MEMORY = 1
    BAD_SETTING = 2
    NO_END = 3
    BAD_FIELD = 4
    DST_OUTSIDE = 5
    A_OUTSIDE = 6
    B_OUTSIDE = 7
    TOO_SHORT = 8
    WRITES_COLLIDE = 9
    RESULTS_OUTSTAND = 10
    COLUMN_OUTSIDE = 11
    NO_INDEX = 12
    INDEX_UNSET = 13
    INDEX_EARLY = 14
    INDEX_OVERLAPS = 15
    NO_FUNCTION = 16
    NO_CROSSING = 17


class Setting(IntEnum):
    """enum sim_setting."""

    GROUP = 0
    HALVES = 1
    BATCH_SIZE = 2
    IMAGE = 3
    PROGRAM_SIZE = 4
    STRIDER_SIZE = 5
    DESCRIPTORS = 6
    NO_TUPLE = 7
    NO_PUSH = 8
    LEVELS = 9
    SYMBOL = 10
    SEVERAL_ROUNDS = 11


SETTINGS = {
    Setting.GROUP: "group must be a power of two, not {found}",
    Setting.HALVES: "two halves of group x tuple_rows are {found} rows, tuple memory has {limit}",
    Setting.BATCH_SIZE: "batch must be at least 1, not {found}",
    Setting.IMAGE: "the image has {found} rows, the scratchpad {limit}",
    Setting.PROGRAM_SIZE: "the engine program has {found} instructions, the machine holds {limit}",
    Setting.STRIDER_SIZE: "the Strider program has {found} instructions, the machine holds {limit}",
    Setting.DESCRIPTORS: "there are {found} column descriptors, the machine holds {limit}",
    Setting.NO_TUPLE: "a program must have a section 'tuple'",
    Setting.NO_PUSH: "a program with a section 'merge' must have one 'push'",
    Setting.LEVELS: "levels must be from 0 to {limit}, not {found}",
    Setting.SYMBOL: "a symbol needs {found} rows, the scratchpad has {limit}",
    Setting.SEVERAL_ROUNDS: "a batch of {found} tuples takes several rounds of {limit}, which needs a section 'merge'",
}
NO_MEMORY = "the host has not enough memory for the machine"
KINDS = {
    Kind.NO_END: "section {section} has no END",
    Kind.BAD_FIELD: "{where}: {field} must not be {value}",
    Kind.DST_OUTSIDE: "{where} writes row {found} of a scratchpad of {limit}",
    Kind.A_OUTSIDE: "{where} reads operand a from row {found} of {limit}",
    Kind.B_OUTSIDE: "{where} reads operand b from row {found} of {limit}",
    Kind.TOO_SHORT: "{where} takes {found} cycles, an instruction takes at least {limit}",
    Kind.WRITES_COLLIDE: "{where} writes a result in cycle {found} of the section, as another instruction does",
    Kind.RESULTS_OUTSTAND: "section {section} ends {found} cycles before its last result can be read",
    Kind.COLUMN_OUTSIDE: "column descriptor {position} writes row {found} of tuples of {limit} rows",
    Kind.NO_INDEX: "{where} needs {found} entries of an index file, the machine has {limit}",
    Kind.INDEX_UNSET: "{where} uses {found} entries of the index file, the last SETX before it set {limit}",
    Kind.INDEX_EARLY: "{where} comes {found} cycles too early after SETX",
    Kind.INDEX_OVERLAPS: "{where} reads a row before it is visible, which a program with SETX must not",
    Kind.NO_FUNCTION: "{where} needs a special function that the machine does not have",
    Kind.NO_CROSSING: "{where} crosses operands in an exchange, which the machine cannot",
}


def refusal(problem: Problem, bundle: Bundle) -> BundleError | MemoryError:
    """The exception for a Bundle that the machine does not run, or that the host has no memory for."""
    if problem.kind == Kind.NO_MEMORY:
        return MemoryError(NO_MEMORY)
    position, found, limit = problem.position, problem.found, problem.limit
    section = list(engine.Section)[problem.section].value if problem.section >= 0 else ""
    if problem.kind == Kind.BAD_SETTING:
        return BundleError(SETTINGS[Setting(position)].format(found=found, limit=limit))
    kind = Kind(problem.kind)
    field, value, where = "", 0, ""
    if kind in (Kind.BAD_FIELD, *range(Kind.DST_OUTSIDE, Kind.RESULTS_OUTSTAND), *range(Kind.NO_INDEX, len(Kind))):
        instruction = bundle.program[position]
        where = f"instruction {position} ({instruction.op.name} in section {section})"
        if kind is Kind.BAD_FIELD:
            field = engine.FIELDS[found].name
            value = getattr(instruction, field)
    return BundleError(
        KINDS[kind].format(
            where=where, field=field, value=value, found=found, limit=limit, section=section, position=position
        )
    )
