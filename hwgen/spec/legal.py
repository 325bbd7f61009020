"""What a Bundle must be before any machine is loaded with it: `docs/machine.md`, the rules of a program.

In: a Bundle, or a program and its machine. Out: the rules that it breaks. Driver, simulator and compiler use this list;
it looks at instructions one by one, at sizes, and at the entries of the index file that a section sets and uses. That
other results are there when they are read, and addresses right, is checked by the compiler and by the simulator, each
in its own way. It trusts no Bundle: one may be damaged, or made by other software.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple
from weakref import WeakValueDictionary

from hwgen.spec.bundle import RECORD_BOUNDARY, WHOLE_EPOCH, Bundle, BundleError, Symbol
from hwgen.spec.columns import MAX_TABLES, ColumnType
from hwgen.spec.config import MachineConfig
from hwgen.spec.cycles import INDEX_LATENCY, ORDER_LATENCY
from hwgen.spec.engine import MAX_CHOSEN, ROUNDS, SHORT, Instruction, Mask, Opcode, Section, Source
from hwgen.spec.operations import Exchange
from hwgen.spec.strider import CONFIGURATION

MAX_LEVELS = 32
"""Levels that a round's number, of 32 bits, can name."""


class Place(NamedTuple):
    """Where an instruction stands."""

    section: Section
    config: MachineConfig


@dataclass(frozen=True, slots=True)
class Rule:
    """What must be of an instruction: a name, `docs/machine.md`'s words, and whether it is so."""

    name: str
    says: str
    kept: Callable[[Instruction, Place], bool]


def _partners(i: Instruction, at: Place) -> int:
    """How many lanes or threads an exchange may be among."""
    return at.config.lanes if i.source is Source.LANE_XOR else at.config.threads


def _is_bare(i: Instruction) -> bool:
    return not (i.tail_a or i.tail_b or i.a_level or i.dst_level or i.indexed or i.ordered)


EVERY = (
    Rule("operation", "the machine has the operation", lambda i, at: at.config.has(i.op)),
    Rule("loops", "loops run at least once", lambda i, _: i.inner >= 1 and i.outer >= 1),
    Rule("tail", "`tail` is at most the number of lanes", lambda i, at: i.tail <= at.config.lanes),
    Rule(
        "half",
        "tuple memory is read in section `tuple` alone, and in those for short rounds",
        lambda i, at: at.section in ROUNDS or not (i.a_tuple or (i.b_tuple and i.op.reads_b)),
    ),
    Rule(
        "level",
        "levels of the merge stack are for sections `merge` and `push`",
        lambda i, at: at.section in (Section.MERGE, Section.PUSH) or not (i.a_level or i.dst_level),
    ),
    Rule("choice", "LOW and HIGH need an exchange", lambda i, _: i.source is not Source.MEMORY or not i.op.chooses),
)
"""Of all but END."""
EXCHANGES = (
    Rule(
        "exchange",
        "an exchange has an operation of two operands that is no special function",
        lambda i, _: i.op.exchange is not Exchange.NEVER,
    ),
    Rule(
        "distance",
        "2**distance of an exchange is below the number of lanes (threads)",
        lambda i, at: 1 << i.distance < _partners(i, at),
    ),
    Rule("memory", "an exchange has a_tuple = b_tuple", lambda i, _: i.a_tuple == i.b_tuple),
    Rule("exchange_level", "an exchange has a_level = 0", lambda i, _: not i.a_level),
    Rule("exchange_mask", "the mask of an exchange is not PAIR", lambda i, _: i.mask is not Mask.PAIR),
    Rule("crossed", "the machine has crossed exchanges", lambda i, at: bool(at.config.crossed) or not i.crossed),
)
INDICES = (
    Rule(
        "index_file",
        "SETX and the flags of indices need an index file of as many entries as they name",
        lambda i, at: i.entries <= at.config.index_depth,
    ),
    Rule("index_function", "an index is for no special function", lambda i, _: not i.op.special),
    Rule("index_source", "source is MEMORY where an index is set or used", lambda i, _: i.source is Source.MEMORY),
    Rule(
        "index_mask",
        "the mask is NONE or SINGLE where an index is set or used",
        lambda i, _: i.mask is not Mask.PAIR,
    ),
    Rule(
        "index_operand",
        "an operand with an index has no level and is not in tuple memory",
        lambda i, _: not (i.a_index and (i.a_level or i.a_tuple)) and not (i.dst_index and i.dst_level),
    ),
)
SETTERS = (
    Rule("setx_inner", "inner of SETX is 1, but with `each`", lambda i, _: bool(i.each) or i.inner == 1),
    Rule(
        "setx_bound",
        "the bound of SETX, dst, is from 1 to scratch_depth",
        lambda i, at: 1 <= i.dst <= at.config.scratch_depth,
    ),
    Rule(
        "setx_reach",
        "(dst-1) * dst_outer of SETX is below scratch_depth",
        lambda i, at: i.index_reach < at.config.scratch_depth,
    ),
    Rule(
        "setx_fields",
        "SETX has no tails, levels, flags of indices",
        lambda i, _: _is_bare(i),
    ),
)
ORDERED = (
    Rule(
        "ordered_rows",
        "an ordered instruction has `each`, and reads as operand a the row that it writes",
        lambda i, _: (
            bool(i.each and i.a_index and i.dst_index)
            and (i.a, i.a_inner, i.a_outer) == (i.dst, i.dst_inner, i.dst_outer)
        ),
    ),
    Rule(
        "ordered_section",
        "an ordered instruction is in section `tuple`, with the mask SINGLE",
        lambda i, at: at.section is Section.TUPLE and i.mask is Mask.SINGLE,
    ),
)
PUTTERS = (
    Rule("put_section", "PUT is in sections of rounds alone", lambda i, at: at.section in ROUNDS),
    Rule(
        "put_fields",
        "PUT has the source MEMORY, a mask that is NONE or SINGLE, and no tails, levels, flags of indices",
        lambda i, _: i.source is Source.MEMORY and i.mask is not Mask.PAIR and _is_bare(i),
    ),
)
RULES = (*EVERY, *EXCHANGES, *INDICES, *SETTERS, *ORDERED, *PUTTERS)

UNSET = "an index is one that a SETX before it in the section sets: it sets as many as the instruction uses"
EARLY = (
    f"a row that uses an index issues {INDEX_LATENCY} cycles or more after the row that sets it, of an ordered "
    f"instruction {ORDER_LATENCY}"
)
SETTER = (
    "the SETX before an ordered instruction has `each` and the mask SINGLE, reads tuple memory row by row, has a step "
    "of at least 1, and runs the same loops"
)
OVERWRITTEN = f"a SETX issues {INDEX_LATENCY} cycles or more after the last row of the SETX before it in the section"
ENTRIES = (UNSET, EARLY, SETTER, OVERWRITTEN)
"""Rules about an instruction and those before it."""


def broken(
    section: Sequence[Instruction], name: Section, config: MachineConfig, start: int = 0
) -> Iterator[tuple[int, str]]:
    """Instructions of a section, counted from `start`, and rules that they break."""
    at = Place(name, config)
    body = [instruction for instruction in section if instruction.op is not Opcode.END]
    for k, instruction in enumerate(body, start):
        for rule in _rules(instruction):
            if not rule.kept(instruction, at):
                yield k, rule.says
    for k, says in _entries(body, config):
        yield start + k, says


def settings(config: MachineConfig, *, group: int, tuple_rows: int, levels: int) -> Iterator[str]:
    """What is wrong with the settings of a Bundle that the compiler chooses with its program."""
    if group < 1 or group & (group - 1):
        yield f"a thread's tuples of a round must be a power of two, not {group}"
    if 2 * group * tuple_rows > config.tuple_depth:
        yield f"two rounds of {group} tuples of {tuple_rows} rows must fit {config.tuple_depth} rows of tuple memory"
    if not 0 <= levels <= MAX_LEVELS:
        yield f"a merge stack has from 0 to {MAX_LEVELS} levels, not {levels}"


def check(bundle: Bundle) -> None:
    """Raise BundleError if no machine must be loaded with the Bundle."""
    if _kept.get(id(bundle)) is not bundle:
        for problem in _problems(bundle):
            raise BundleError(problem)
        _kept[id(bundle)] = bundle


_kept: WeakValueDictionary[int, Bundle] = WeakValueDictionary()
"""Bundles that keep the rules, by their ids: each is looked at once, however many machines are loaded with it."""


def _problems(bundle: Bundle) -> Iterator[str]:
    config, program = bundle.config, bundle.program
    for what, found, limit in (
        ("instructions of the engine", len(program), config.program_depth),
        ("instructions of the Striders", len(bundle.strider), config.strider_depth),
        ("constants of the Striders", len(bundle.constants), CONFIGURATION),
        ("column descriptors", len(bundle.columns), config.descriptor_depth),
        ("rows of the image", len(bundle.image), config.scratch_depth),
        *((f"rows up to {s.name!r}", *_reach(bundle, s)) for s in bundle.symbols if s.table <= len(bundle.tables)),
    ):
        if found > limit:
            yield f"{what} must be at most {limit} for this machine, but the Bundle has {found}"
    yield from settings(config, group=bundle.group, tuple_rows=bundle.tuple_rows, levels=bundle.levels)
    if not 1 <= bundle.batch <= WHOLE_EPOCH:
        yield f"a batch must have at least 1 tuple, not {bundle.batch}"
    for k, column in enumerate(bundle.columns):
        if not isinstance(column.type, ColumnType):
            known = ", ".join(f"{int(kind)} ({kind.name})" for kind in ColumnType)
            yield f"the type of column descriptor {k} must be one of {known}, not {column.type!r}"
        last = column.row + column.rows(config.lanes) - 1
        if last >= bundle.tuple_rows:
            yield (
                f"column descriptor {k} must stay within the {bundle.tuple_rows} rows of a tuple, "
                f"but reaches row {last}"
            )
    if Section.TUPLE not in bundle.sections:
        yield "a program must have a section 'tuple' (docs/machine.md, section 3); this Bundle has none"
    if bundle.merges and not (config.pause and Section.BATCH in bundle.sections):
        yield "a Bundle with merges for its host needs a machine with `pause`, and a section 'batch'"
    if Section.MERGE in bundle.sections and Section.PUSH not in bundle.sections:
        yield "a program with a section 'merge' must have one 'push' (docs/machine.md, section 3)"
    round_tuples = config.threads * bundle.group
    yield from _watched(bundle, round_tuples)
    yield from _records(bundle)
    if Section.MERGE not in bundle.sections and bundle.batch > round_tuples:
        yield f"a batch of {bundle.batch} tuples takes several rounds of {round_tuples}, which need a section 'merge'"
    for name, start in bundle.sections.items():
        if not 0 <= start < len(program):
            yield f"section {name} must start in 0 … {len(program) - 1}, not at {start}"
        for k, rule in broken(bundle.section(name), name, config, start):
            yield (
                f"instruction {k} ({program[k].op.name} in section {name}) must keep the rule of docs/machine.md, "
                f"section 2, but breaks it: {rule}. Compile the rule again"
            )
    yield from _ordered(bundle)


MAX_ORDERS = 8
"""Columns that ordered instructions may follow: as many does the simulator's clock look at."""


def _ordered(bundle: Bundle) -> Iterator[str]:
    """What is wrong with ordered instructions: their cycles follow from a column's numbers."""
    setter: Instruction | None = None
    columns: set[int] = set()
    for instruction in bundle.section(Section.TUPLE) if Section.TUPLE in bundle.sections else ():
        setter = instruction if instruction.op is Opcode.SETX else setter
        if not instruction.ordered or setter is None:
            continue
        columns.add(setter.a)
        found = [one for one in bundle.columns if one.row == setter.a and not one.table]
        fits = len(found) == 1 and found[0].scalar and found[0].count == setter.inner
        steps = setter.a_outer == bundle.tuple_rows or setter.outer == 1
        if not fits or not steps or setter.outer != bundle.group:
            yield (
                f"the numbers of an ordered instruction must be a column of {setter.inner} elements, each in a row of "
                f"its own, of all tuples of a round, but row {setter.a} is not the first of one"
            )
        if bundle.batch > bundle.group:
            yield f"a batch with ordered instructions must be tuples of one thread, {bundle.group}, not {bundle.batch}"
    if len(columns) > MAX_ORDERS:
        yield f"ordered instructions must follow at most {MAX_ORDERS} columns, not {len(columns)}"


def _watched(bundle: Bundle, round_tuples: int) -> Iterator[str]:
    """What is wrong with batches that end where a row is chosen again."""
    depth = bundle.config.watch_depth
    short = [str(name) for name in SHORT if name in bundle.sections]
    if short and not depth:
        yield f"sections for short rounds ({', '.join(short)}) need a machine with watch_depth, and this one has none"
    watched = [k for k, column in enumerate(bundle.columns) if column.table]
    if not watched:
        return
    if bundle.merges:
        yield "a Bundle with watched columns must have no merges for its host"
    if not depth:
        yield f"column descriptor {watched[0]} is watched, which needs a machine with watch_depth"
        return
    for k in watched:
        column = bundle.columns[k]
        if column.count != 1 or column.first or column.last or column.follows:
            yield f"column descriptor {k} is watched: it must have one element and be no part of a tuple"
    if bundle.batch > round_tuples:
        yield f"a batch that ends where a row is chosen again must be one round of {round_tuples}, not {bundle.batch}"
    rows = bundle.batch * sum(bundle.columns[k].writes for k in watched)
    if rows > depth:
        yield f"rows that a batch writes must be at most {depth} for this machine, but may be {rows}"


def _reach(bundle: Bundle, symbol: Symbol) -> tuple[int, int]:
    """How far a symbol reaches in its record or in the scratchpad, and how far it may."""
    lanes = bundle.config.lanes
    if symbol.table:
        return symbol.row + symbol.record_rows(lanes), bundle.tables[symbol.table - 1].rows
    return symbol.row + symbol.rows(lanes), bundle.config.scratch_depth


def _records(bundle: Bundle) -> Iterator[str]:
    """What is wrong with tables in the record memory."""
    config, tables = bundle.config, bundle.tables
    for t, table in enumerate(tables, 1):
        if not (
            1 <= table.records <= MAX_CHOSEN and table.rows >= 1 and 4 * config.lanes * table.rows <= RECORD_BOUNDARY
        ):
            yield (
                f"a table has from 1 to {MAX_CHOSEN} records of up to {RECORD_BOUNDARY} bytes, but table {t} has "
                f"{table.records} of {table.rows} rows of {config.lanes} lanes"
            )
    for s in bundle.symbols:
        if s.table > len(tables):
            yield f"{s.name!r} lies in table {s.table} of the record memory, and there are {len(tables)}"
        elif s.table and s.shape[:1] != (tables[s.table - 1].records,):
            yield f"{s.name!r} has the shape {s.shape}, and its table {tables[s.table - 1].records} records"
    if not tables:
        return
    if not config.record_depth:
        yield "tables in the record memory need a machine with record_depth, and this one has none"
    if Section.MERGE in bundle.sections:
        yield "a Bundle with tables in the record memory must have no section 'merge'"
    watched = [column for column in bundle.columns if column.table]
    if len(tables) > MAX_TABLES or {column.table for column in watched} != set(range(1, len(tables) + 1)):
        yield f"watched columns must name the tables 1 … {len(tables)}, each of at most {MAX_TABLES}"
        return
    if bundle.batch * len(watched) > config.record_depth:
        yield (
            f"records that a batch names must be at most {config.record_depth} for this machine, but may be "
            f"{bundle.batch * len(watched)}"
        )
    taken: dict[int, str] = {}
    for k, column in enumerate(bundle.columns):
        if column.table:
            rows = range(column.row, column.row + tables[column.table - 1].rows)
            what = f"the record of column descriptor {k}"
        else:
            rows = range(column.row, column.row + column.rows(config.lanes))
            what = "a column"
        if rows.stop > bundle.tuple_rows:
            yield f"{what} must stay within the {bundle.tuple_rows} rows of a tuple, but reaches row {rows[-1]}"
        for row in rows:
            if taken.setdefault(row, what) != what:
                yield f"{what} lies in row {row} of a tuple, as does {taken[row]}"
                break


def _orders(setter: Instruction, instruction: Instruction) -> bool:
    """Whether entries come from a column, a tuple's in each round of the outer loop, as for an ordered instruction."""
    column = setter.each and setter.a_tuple and setter.a_inner and setter.dst_outer and setter.mask is Mask.SINGLE
    return bool(column) and (setter.inner, setter.outer) == (instruction.inner, instruction.outer)


def _rules(instruction: Instruction) -> tuple[Rule, ...]:
    """The rules that are about an instruction."""
    rules: tuple[Rule, ...] = EVERY
    if instruction.source is not Source.MEMORY:
        rules += EXCHANGES
    if instruction.op is Opcode.SETX or instruction.indexed:
        rules += INDICES
    if instruction.op is Opcode.SETX:
        rules += SETTERS
    if instruction.ordered:
        rules += ORDERED
    if instruction.op is Opcode.PUT:
        rules += PUTTERS
    return rules


def _entries(section: Sequence[Instruction], config: MachineConfig) -> Iterator[tuple[int, str]]:
    """Numbers of a section's instructions that break a rule of `ENTRIES`, and which."""
    now = 0
    setter: Instruction | None = None
    set_at = 0  # the cycle in which `setter`'s first row issues; a row later, the next one's
    for k, instruction in enumerate(section):
        issue = now + instruction.wait
        if instruction.indexed:
            if setter is None or setter.entries < instruction.entries:
                yield k, UNSET
            elif issue < set_at + (ORDER_LATENCY if instruction.ordered else INDEX_LATENCY):
                # later entries, of a row or more each, come no closer to those of SETX
                yield k, EARLY
            if instruction.ordered and setter is not None and not _orders(setter, instruction):
                yield k, SETTER
        if instruction.op is Opcode.SETX:
            if setter is not None and issue < set_at + setter.rows - 1 + INDEX_LATENCY:
                yield k, OVERWRITTEN
            setter, set_at = instruction, issue
        now = issue + instruction.rows * config.row_interval(instruction)
