"""Compiles a rule's graph to an engine program for one machine.

In: a bound graph, the tuple layout and the machine. Out: an `EngineProgram`, checked against docs/machine.md. Pages and
tables are none of its business: `dana.compiler.bundle` joins the Strider's part.

The road: simplify (`dana.compiler.simplify` lists its passes), plan_sections, select, schedule,
allocate, encode, check_program.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dana.compiler.allocate import MemoryMap, allocate
from dana.compiler.encode import encode, image, indices, symbols
from dana.compiler.layout import TupleLayout
from dana.compiler.nest import LoopLimit
from dana.compiler.schedule import Schedule, schedule
from dana.compiler.sections import Plan, plan_sections
from dana.compiler.select import Selection, select
from dana.compiler.simplify import simplify
from dana.compiler.verify import check_program
from dana.errors import InternalError, UsageError
from dsl.hdfg.graph import Graph, Node, Op
from hwgen.spec.bundle import WHOLE_EPOCH, Symbol, Words
from hwgen.spec.config import MachineConfig, functions_mask
from hwgen.spec.engine import FIELDS, Instruction, Section

MAX_FIELD = {field.name: (1 << field.width) - 1 for field in FIELDS}
MAX_GROUP = 1 << MAX_FIELD["outer"].bit_length() - 1
"""Tuples of a thread in a round: a power of two that the outer loop counts to."""


CLEARLY = 0.1
"""Fraction of a section's cycles that slices are to save, by rows, before nobody asks whether they do."""

WORTH = 0.02
"""Fraction of the cycles that slices have to save: they take instructions, and lanes that can cross."""


class DoesNotFit(UsageError):
    """A rule that the machine's memories cannot hold; says by how much, and what would make it fit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A rule compiled for a group size, on memories without end.

    Attributes
    ----------
    plan, selection, schedules, memory
        What the stages made.
    threads, group, levels, divide_interval
        What they were made for.
    """

    plan: Plan
    selection: Selection
    schedules: Mapping[Section, Schedule]
    memory: MemoryMap
    threads: int
    group: int
    levels: int
    divide_interval: int

    @property
    def instructions(self) -> int:
        """Length of the program."""
        return sum(len(scheduled.issue) + 1 for scheduled in self.schedules.values())

    @property
    def length(self) -> int:
        """Cycles of the sections that run for rounds and batches, each once."""
        seldom = (Section.INIT, Section.EPOCH)
        return sum(scheduled.length for section, scheduled in self.schedules.items() if section not in seldom)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineProgram:
    """The engine's part of a Bundle, field for field, and the draft that it comes from.

    Attributes
    ----------
    indices
        For the tag of each fault INDEX: the input that chooses a row, the model, its rows.
    """

    program: tuple[Instruction, ...]
    sections: Mapping[Section, int]
    batch: int
    group: int
    tuple_rows: int
    level_stride: int
    levels: int
    image: Words
    symbols: tuple[Symbol, ...]
    indices: list[tuple[str, str, int]]
    draft: Draft


def compile_engine(graph: Graph, layout: TupleLayout, config: MachineConfig, *, max_tuples: int) -> EngineProgram:
    """Compile a rule.

    Parameters
    ----------
    graph
        Bound. Its batch size is compiled in, a meta that gives it or not.
    layout
        `tuple_layout(graph, config.lanes)`.
    config
        The machine.
    max_tuples
        Tuples that an epoch has at most; counts for rules whose batch is the whole table.

    Raises
    ------
    DoesNotFit
        The machine is too small.
    """
    plan, size = prepare(graph)
    draft = fit(plan, layout, config, size=size, max_tuples=max_tuples)
    program, sections = encode(draft.schedules, draft.memory)
    _check_hardware(draft, program, config)
    compiled = EngineProgram(
        program=program,
        sections=sections,
        batch=size,
        group=draft.group,
        tuple_rows=layout.rows,
        level_stride=draft.memory.block,
        levels=draft.levels,
        image=image(plan.graph, draft.selection, draft.memory, config.lanes),
        symbols=symbols(plan.graph, draft.selection, draft.memory),
        indices=indices(plan.graph, draft.selection),
        draft=draft,
    )
    check_program(
        program,
        sections,
        config,
        group=compiled.group,
        tuple_rows=compiled.tuple_rows,
        level_stride=compiled.level_stride,
        levels=compiled.levels,
        image_rows=draft.memory.image,
    )
    return compiled


def _check_hardware(draft: Draft, program: Sequence[Instruction], config: MachineConfig) -> None:
    """Raise DoesNotFit if the machine lacks a special function or the crossed exchanges that the rule needs."""
    graph = draft.plan.graph
    used = {instruction.op for instruction in program}
    lacking = [op.name.lower() for op in sorted(used) if op.special and not config.has(op)]
    if lacking:
        raise DoesNotFit(
            f"rule {graph.name!r} computes {', '.join(lacking)}; the machine has no unit for that",
            hint=f"Set functions to {config.functions | functions_mask(used)}.",
        )
    if config.lacking(program):
        moved = [_described(graph.nodes[k]) for k in draft.selection.forms.converted()]
        named = ", ".join(moved[:3]) + (f" and {len(moved) - 3} other values" if len(moved) > 3 else "")
        raise DoesNotFit(
            f"rule {graph.name!r} needs elements of {named} in other lanes than they lie in; the machine's exchanges "
            "do not cross, so it cannot move them",
            hint="Set crossed to 1.",
        )


def _described(node: Node) -> str:
    """A value for people."""
    if node.name is not None:
        return node.name
    return f"the {node.op.value}" + (f" in line {node.span.line}" if node.span is not None else "")


def prepare(graph: Graph) -> tuple[Plan, int]:
    """The part of the road that knows no machine: the plan, and the tuples of a batch."""
    size = WHOLE_EPOCH if graph.batch is None else graph.batch
    return plan_sections(simplify(graph), single=size == 1), size


def draft_for(
    plan: Plan,
    layout: TupleLayout,
    *,
    threads: int,
    group: int,
    levels: int,
    divide_interval: int,
    crossed: bool,
    sliced: bool = True,
    reorder: bool = True,
) -> Draft:
    """Compile for a group size; only the fields of instructions bound it.

    Parameters
    ----------
    crossed
        Whether exchanges may cross.
    sliced
        Whether threads may share the work of a batch. If few cycles can come of it, both ways are compiled, and it has
        to save some.
    reorder
        Whether operations may leave the rule's order.
    """

    def draft(sliced: bool) -> Draft:
        selection = select(
            plan,
            layout,
            threads=threads,
            group=group,
            levels=levels,
            divide_interval=divide_interval,
            crossed=crossed,
            sliced=sliced,
        )
        return _scheduled(
            plan,
            selection,
            threads=threads,
            group=group,
            levels=levels,
            divide_interval=divide_interval,
            reorder=reorder,
        )

    if not sliced:
        return draft(False)
    try:
        found = draft(True)
    except LoopLimit:
        return draft(False)
    if not found.selection.slices.of or found.selection.slices.saved > CLEARLY * found.length:
        return found
    try:
        whole = draft(False)
    except LoopLimit:
        return found
    return found if found.length < (1 - WORTH) * whole.length else whole


def _scheduled(
    plan: Plan, selection: Selection, *, threads: int, group: int, levels: int, divide_interval: int, reorder: bool
) -> Draft:
    schedules = {section: schedule(ops, reorder=reorder) for section, ops in selection.ops.items()}
    memory = allocate(selection, schedules)
    return Draft(
        plan=plan,
        selection=selection,
        schedules=schedules,
        memory=memory,
        threads=threads,
        group=group,
        levels=levels,
        divide_interval=divide_interval,
    )


def levels_for(plan: Plan, size: int, *, max_tuples: int, round_tuples: int) -> int:
    """Levels of the merge stack that batches of a size need; 0 if each is one round.

    A batch without end has at least one, so that the machine notices tuples beyond `max_tuples`.
    """
    if plan.alone:
        return 0
    tuples = max_tuples if size == WHOLE_EPOCH else size
    rounds = max(1, -(-tuples // round_tuples))
    return max((rounds - 1).bit_length(), int(size == WHOLE_EPOCH))


def plan_for(plan: Plan, size: int, *, round_tuples: int) -> Plan:
    """The plan for rounds of that many tuples."""
    one_round = size != WHOLE_EPOCH and size <= round_tuples
    return plan.in_one_round() if one_round and not plan.alone else plan


def least_group(plan: Plan, tuples: int) -> int:
    """Tuples of a thread that a round has to have: all of a batch, where tuples write rows one after the other.

    Raises
    ------
    DoesNotFit
        No round can have so many.
    """
    if not plan.by_row:
        return 1
    if tuples > MAX_GROUP:
        raise DoesNotFit(
            f"rule {plan.graph.name!r} updates rows that the tuples choose, in batches of {tuples}; a machine does so "
            f"in batches of up to {MAX_GROUP}",
            hint="Merge smaller batches.",
        )
    models = [
        u.model for u in plan.graph.updates if u.index is not None and plan.graph.nodes[u.index].op is not Op.CONST
    ]
    if tuples > 1 and (twice := [k for k in models if models.count(k) > 1]):
        raise DoesNotFit(
            f"rule {plan.graph.name!r} updates several rows of {plan.graph.nodes[twice[0]].name} for each tuple, in "
            f"batches of {tuples}; a machine does so in batches of one",
            hint="Leave the merge out, or give each row chosen a model of its own.",
        )
    return power_of_two(tuples)


def _indexed_group(plan: Plan, config: MachineConfig, group: int, least: int) -> int:
    """The largest group whose rows the index file can choose."""
    if config.index_depth < least or not config.index_depth:
        raise DoesNotFit(
            f"rule {plan.graph.name!r} chooses rows of models by the data, for {least} tuples of a thread in a round; "
            f"the machine's index file has {config.index_depth} entries",
            hint=f"Set index_depth to {max(2, least)}.",
        )
    return min(group, config.index_depth)


def group_for(tuple_rows: int, tuples: int, *, threads: int, tuple_depth: int) -> int:
    """Tuples of a thread in a round: what a batch needs, or what tuple memory holds."""
    per_thread = max(1, -(-tuples // threads))
    group = min(1 << (per_thread - 1).bit_length(), MAX_GROUP)
    while group > 1 and 2 * group * tuple_rows > tuple_depth:
        group //= 2
    return group


def fit(plan: Plan, layout: TupleLayout, config: MachineConfig, *, size: int, max_tuples: int) -> Draft:
    """The largest group that the batch can use and the machine can hold."""
    tuples = max_tuples if size == WHOLE_EPOCH else size
    rows = layout.rows
    least = least_group(plan, tuples)
    group = max(least, group_for(rows, tuples, threads=config.threads, tuple_depth=config.tuple_depth))
    if plan.indexed:
        group = _indexed_group(plan, config, group, least)
    if 2 * least * rows > config.tuple_depth:
        what = f"{least} tuples" if least > 1 else "a tuple"
        raise DoesNotFit(
            f"{what} of rule {plan.graph.name!r} take{'' if least > 1 else 's'} {least * rows} rows of {config.lanes} "
            f"lanes; two of them, one being filled while the other is worked on, need {2 * least * rows} rows, and "
            f"tuple memory has {config.tuple_depth}",
            hint=f"Set tuple_depth to {power_of_two(2 * least * rows)}, or more clusters.",
        )
    while True:
        levels = levels_for(plan, size, max_tuples=max_tuples, round_tuples=config.threads * group)
        limit: LoopLimit | None = None
        draft: Draft | None = None
        # slices take instructions; operations in the rule's order keep fewer values at a time
        for sliced, reorder in ((True, True), (False, True), (True, False), (False, False)):
            if not sliced and (draft is None or not draft.selection.slices.of):
                continue  # the one before had no slices, or was too large without them too
            try:
                draft = draft_for(
                    plan_for(plan, size, round_tuples=config.threads * group),
                    layout,
                    threads=config.threads,
                    group=group,
                    levels=levels,
                    divide_interval=config.divide_interval,
                    crossed=bool(config.crossed),
                    sliced=sliced,
                    reorder=reorder,
                )
            except LoopLimit as error:
                limit = error
                continue
            if draft.memory.rows <= config.scratch_depth and draft.instructions <= config.program_depth:
                return draft
        if group == least:
            if draft is not None:
                raise _too_small(draft, config)
            raise DoesNotFit(
                f"rule {plan.graph.name!r} is too large for {config.lanes} lanes: {limit}",
                hint="Use more clusters.",
            ) from limit
        group //= 2


def _too_small(draft: Draft, config: MachineConfig) -> DoesNotFit:
    name = draft.plan.graph.name
    if draft.instructions > config.program_depth:
        return DoesNotFit(
            f"rule {name!r} takes {draft.instructions} engine instructions, the machine holds {config.program_depth}",
            hint=f"Set program_depth to {power_of_two(draft.instructions)}.",
        )
    memory = draft.memory
    return DoesNotFit(
        f"rule {name!r} takes {memory.rows} rows of {config.lanes} lanes of scratchpad (models and literals "
        f"{memory.image}, sums {memory.state + memory.block}, merge stack {memory.stack}, temporaries "
        f"{memory.temporaries}), the machine has {config.scratch_depth}",
        hint=f"Set scratch_depth to {power_of_two(memory.rows)}, or more clusters.",
    )


def power_of_two(least: int) -> int:
    """The least power of two that is not below."""
    if least < 1:
        raise InternalError(f"no memory of {least} rows")
    return 1 << (least - 1).bit_length()
