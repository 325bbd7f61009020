"""What a Bundle must be before any hardware is loaded with it: `docs/machine.md`, rules that make a program refused.

In: a Bundle. Out: nothing, or a `BundleError` with the first rule that it breaks. It looks at instructions one by one,
at sizes, and at the entries of the index file that a section sets and uses; that other results are there when they are
read, and addresses right, is the compiler's to prove, with what it knows of the whole program. It trusts nobody: a
Bundle may be damaged, or made by somebody else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from hwgen.spec.bundle import Bundle, BundleError
from hwgen.spec.config import LANES_PER_CLUSTER, MachineConfig
from hwgen.spec.cycles import INDEX_LATENCY, element_interval
from hwgen.spec.engine import Instruction, Mask, Opcode, Section, Source
from hwgen.spec.strider import CONFIGURATION

Rule = tuple[str, Callable[[Instruction, MachineConfig], bool]]
"""What must be, and whether it is."""

MOST_LEVELS = 32
"""Levels that a round's number, of 32 bits, can name."""

WITHOUT_PARTNER = frozenset({Opcode.MOV, Opcode.NEG, Opcode.ABS, Opcode.MOVC, Opcode.SETX})
"""Operations of one operand, and the two whose operand b is no operand."""


def _partners(instruction: Instruction, config: MachineConfig) -> int:
    """How many lanes or threads an exchange may be among."""
    return config.lanes if instruction.source is Source.LANE_XOR else config.threads


LOOPS: tuple[Rule, ...] = (("loops run at least once", lambda i, _: i.inner >= 1 and i.outer >= 1),)
CHOICES: tuple[Rule, ...] = (("LOW and HIGH need an exchange", lambda i, _: i.source is not Source.MEMORY),)
EXCHANGES: tuple[Rule, ...] = (
    (
        "an exchange has an operation of two operands that is no special function",
        lambda i, _: i.op not in WITHOUT_PARTNER and not i.op.special,
    ),
    (
        "2**distance of an exchange is below the number of lanes (threads)",
        lambda i, config: 1 << i.distance < _partners(i, config),
    ),
    ("an exchange has a_tuple = b_tuple", lambda i, _: i.a_tuple == i.b_tuple),
    ("an exchange has a_level = 0", lambda i, _: not i.a_level),
    ("the mask of an exchange is not PAIR", lambda i, _: i.mask is not Mask.PAIR),
)
INDICES: tuple[Rule, ...] = (
    ("SETX and the flags of indices need an index file of `outer` entries", lambda i, c: i.outer <= c.index_depth),
    ("an index is for no special function", lambda i, _: not i.op.special),
    ("source is MEMORY where an index is set or used", lambda i, _: i.source is Source.MEMORY),
    ("the mask is NONE or SINGLE where an index is set or used", lambda i, _: i.mask is not Mask.PAIR),
    (
        "an operand with an index has no level and is not in tuple memory",
        lambda i, _: not (i.a_index and (i.a_level or i.a_tuple)) and not (i.dst_index and i.dst_level),
    ),
)
SETTERS: tuple[Rule, ...] = (
    ("inner of SETX is 1", lambda i, _: i.inner == 1),
    ("the bound of SETX, dst, is at least 1", lambda i, _: i.dst >= 1),
    ("(dst-1) * dst_outer of SETX is below scratch_depth", lambda i, config: i.index_reach < config.scratch_depth),
    (
        "SETX has no tails, levels, flags of indices",
        lambda i, _: not (i.tail_a or i.tail_b or i.a_level or i.dst_level or i.indexed),
    ),
)
UNSET = "an index is one that a SETX before it in the section sets: its `outer` is at least the instruction's"
EARLY = f"a row that uses an index issues {INDEX_LATENCY} cycles or more after the row that sets it"
OVERWRITTEN = f"a SETX issues {INDEX_LATENCY} cycles or more after the last row of the SETX before it in the section"
ENTRIES = (UNSET, EARLY, OVERWRITTEN)
"""Rules about an instruction and those before it."""


def check(bundle: Bundle) -> None:
    """Raise BundleError if hardware must not be loaded with the Bundle."""
    config = bundle.config
    for what, found, limit in (
        ("instructions of the engine", len(bundle.program), config.program_depth),
        ("instructions of the Striders", len(bundle.strider), config.strider_depth),
        ("constants of the Striders", len(bundle.constants), CONFIGURATION),
        ("column descriptors", len(bundle.columns), config.descriptor_depth),
        ("rows of the image", len(bundle.image), config.scratch_depth),
    ):
        if found > limit:
            raise BundleError(f"{what} must be at most {limit} for this machine, but the Bundle has {found}")
    group, rows = bundle.group, bundle.tuple_rows
    if group < 1 or group & (group - 1):
        raise BundleError(f"a thread's tuples of a round must be a power of two, not {group}")
    if 2 * group * rows > config.tuple_depth:
        raise BundleError(
            f"two rounds of {group} tuples of {rows} rows must fit {config.tuple_depth} rows of tuple memory"
        )
    if not 0 <= bundle.levels <= MOST_LEVELS:
        raise BundleError(f"a merge stack has from 0 to {MOST_LEVELS} levels, not {bundle.levels}")
    for k, column in enumerate(bundle.columns):
        last = column.row + (0 if column.scalar else (column.lane + column.count - 1) // config.lanes)
        if last >= rows:
            raise BundleError(
                f"column descriptor {k} must stay within the {rows} rows of a tuple, but reaches row {last}"
            )
    if Section.TUPLE not in bundle.sections:
        raise BundleError("a program must have a section 'tuple' (docs/machine.md, section 3); this Bundle has none")
    for name, start in bundle.sections.items():
        if not 0 <= start < len(bundle.program):
            raise BundleError(f"section {name} must start in 0 … {len(bundle.program) - 1}, not at {start}")
        bundle.section(name)
    lacking = config.lacking(bundle.program)
    if lacking:
        raise BundleError(f"the machine must have {lacking[0]}, which the Bundle's program uses; it has not")
    for k, instruction in enumerate(bundle.program):
        for rule, kept in _rules(instruction):
            if not kept(instruction, config):
                raise _broken(k, instruction, rule)
    for name, start in bundle.sections.items():
        section = bundle.section(name)
        for k, rule in _entries(section, config):
            raise _broken(start + k, section[k], rule)


def _broken(number: int, instruction: Instruction, rule: str) -> BundleError:
    return BundleError(
        f"instruction {number} ({instruction.op.name}) must keep the rule of docs/machine.md, section 2, "
        f"but breaks it: {rule}. Compile the rule again"
    )


def _entries(section: Sequence[Instruction], config: MachineConfig) -> Iterator[tuple[int, str]]:
    """Numbers of a section's instructions that break a rule of `ENTRIES`, and which."""
    now = 0
    setter: Instruction | None = None
    set_at = 0
    """The cycle in which `setter`'s first row issues; a row later, the next one's."""
    for k, instruction in enumerate(section):
        issue = now + instruction.wait
        if instruction.indexed:
            if setter is None or setter.outer < instruction.outer:
                yield k, UNSET
            elif issue < set_at + INDEX_LATENCY:
                # later rounds of the outer loop, of a row or more each, come no closer to those of SETX
                yield k, EARLY
        if instruction.op is Opcode.SETX:
            if setter is not None and issue < set_at + setter.rows - 1 + INDEX_LATENCY:
                yield k, OVERWRITTEN
            setter, set_at = instruction, issue
        lanes = LANES_PER_CLUSTER if instruction.op.special and not instruction.scalar else 1
        now = issue + instruction.rows * lanes * element_interval(instruction.op, config.divide_interval)


def _rules(instruction: Instruction) -> tuple[Rule, ...]:
    """The rules that are about an instruction."""
    if instruction.op is Opcode.END:
        return ()
    rules = LOOPS
    if instruction.op.chooses:
        rules += CHOICES
    if instruction.source is not Source.MEMORY:
        rules += EXCHANGES
    if instruction.op is Opcode.SETX or instruction.indexed:
        rules += INDICES
    if instruction.op is Opcode.SETX:
        rules += SETTERS
    return rules
