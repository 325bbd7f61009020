"""Instructions, image and symbols from placed and scheduled operations.

In: a selection, its schedules and memory map. Out: what a Bundle holds of them. It decides nothing any more.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dana.compiler.place.forms import Forms
from dana.compiler.place.rows import Form, InputPlaces
from dana.compiler.place.sections import Plan
from dana.compiler.schedule.allocate import MemoryMap
from dana.compiler.schedule.list_scheduling import Schedule
from dana.compiler.select.ops import Access, Home, VectorOp
from dana.compiler.select.selection import Selection
from dana.compiler.target import Target
from dsl.hdfg.choice import computed_from
from dsl.hdfg.evaluate import Evaluator
from dsl.hdfg.start import start_values
from hwgen.spec import numerics
from hwgen.spec.bundle import Category, RowChoice, Start, Symbol, Table, Words, place
from hwgen.spec.engine import Instruction, Opcode, Section
from hwgen.spec.engine_text import disassemble


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """The engine's instructions, and the number of each section's first one."""

    instructions: tuple[Instruction, ...]
    sections: Mapping[Section, int]

    def text(self) -> str:
        """The program in assembly language."""
        return disassemble(self.instructions, self.sections)


@dataclass(frozen=True, slots=True)
class ShortRound:
    """A section that short rounds run in the place of `tuple`."""

    section: Section
    schedule: Schedule
    memory: MemoryMap


def encode(schedules: Mapping[Section, Schedule], memory: MemoryMap, short: Sequence[ShortRound] = ()) -> Program:
    """Write the sections one after the other, each with its END."""
    program: list[Instruction] = []
    sections: dict[Section, int] = {}
    parts = [(section, scheduled, memory) for section, scheduled in schedules.items()]
    for section, scheduled, memory in (*parts, *((one.section, one.schedule, one.memory) for one in short)):
        sections[section] = len(program)
        program += [_instruction(op, wait, memory) for op, wait in scheduled.issue]
        # END has no operands, so no steps; the fields' defaults are those of an operation on one row
        program.append(Instruction(op=Opcode.END, wait=scheduled.end_wait, dst_inner=0, a_inner=0, b_inner=0))
    return Program(instructions=tuple(program), sections=sections)


def _instruction(op: VectorOp, wait: int, memory: MemoryMap) -> Instruction:
    b = op.b
    if op.op is Opcode.SETX:
        return _set_index(op, wait, memory)
    return Instruction(
        op=op.op,
        wait=wait,
        inner=op.inner,
        outer=op.outer,
        dst=_address(op.dst, memory),
        dst_inner=op.dst.inner,
        dst_outer=op.dst.outer,
        dst_level=int(op.dst.level),
        a=_address(op.a, memory),
        a_tuple=int(op.a.buffer.home is Home.TUPLE),
        a_inner=op.a.inner,
        a_outer=op.a.outer,
        a_level=int(op.a.level),
        b=0 if b is None else _address(b, memory),
        b_tuple=0 if b is None else int(b.buffer.home is Home.TUPLE),
        b_inner=0 if b is None else b.inner,
        b_outer=0 if b is None else b.outer,
        source=op.source,
        distance=op.distance,
        mask=op.mask,
        tail_a=int(op.tail_a),
        tail_b=int(op.tail_b),
        tail=op.tail,
        scalar=int(op.scalar),
        a_index=int(op.a.indexed),
        dst_index=int(op.dst.indexed),
        each=int(op.each),
        ordered=int(op.ordered),
    )


def _set_index(op: VectorOp, wait: int, memory: MemoryMap) -> Instruction:
    # SETX writes no row: its fields of the result say bound and step, that of b the tag
    index = op.dst.index
    assert index is not None
    return Instruction(
        op=op.op,
        wait=wait,
        inner=op.inner,
        outer=op.outer,
        dst=index.bound,
        dst_inner=0,
        dst_outer=index.stride,
        a=_address(op.a, memory),
        a_tuple=int(op.a.buffer.home is Home.TUPLE),
        a_inner=op.a.inner,
        a_outer=op.a.outer,
        b=index.tag,
        b_inner=0,
        mask=op.mask,
        each=int(op.each),
    )


def _address(access: Access, memory: MemoryMap) -> int:
    # the program addresses tuple memory and the outbox from the start of the half
    return (
        access.base if access.buffer.home in (Home.TUPLE, Home.OUTBOX) else memory.address[access.buffer] + access.base
    )


def image(plan: Plan, selection: Selection, memory: MemoryMap, target: Target) -> Words:
    """Literals, metas and models as they start, shape [rows, lanes]."""
    graph, lanes = plan.graph, target.lanes
    words = np.zeros((memory.loaded, lanes), dtype=np.uint32)
    for bits, buffer in selection.literals.items():
        words[memory.address[buffer]] = bits
    for (length, form), buffer in selection.ranges.items():
        # the machine has no counter that an operation could read
        numbers = np.arange(length, dtype=np.float32)
        rows = place(numbers, lanes, broadcast=form is Form.BROADCAST)
        words[memory.address[buffer] :][: buffer.rows] = rows.view(np.uint32)
    for k, buffer in selection.metas.items():
        words[memory.address[buffer]] = place(graph.nodes[k].value or 0.0, lanes).view(np.uint32)
    for k, model in selection.models.items():
        node = graph.nodes[k]
        start = start_values(node.init, node.name or "", model.shape)
        if start.view(np.uint32).any():  # the image is zero already: writing zeros would touch its untouched pages
            rows = place(start, lanes, broadcast=model.form is Form.BROADCAST)
            words[memory.address[model.buffer] :][: len(rows)] = rows.view(np.uint32)
    return words


def symbols(
    plan: Plan, inputs: InputPlaces, forms: Forms, selection: Selection, memory: MemoryMap, target: Target
) -> tuple[Symbol, ...]:
    """Models, in the rule's order, by which predictors know them; metas and results; merges for the host."""
    graph = plan.graph
    found = []
    for k in graph.models:
        table, row = inputs.recorded.get(k) or (0, memory.address[selection.models[k].buffer])
        name, shape = graph.nodes[k].name or f"node {k}", graph.concrete_shape(k)
        broadcast = forms.of[k] is Form.BROADCAST
        init = graph.nodes[k].init
        # records are written from their description, since the image does not hold them
        start = None
        if table:
            start = Start(kind=init.kind, first=init.first, second=init.second, seed=init.seed, narrow=init.narrow)
        found.append(
            Symbol(name=name, kind="model", shape=shape, row=row, broadcast=broadcast, table=table, start=start)
        )
    for k, buffer in selection.metas.items():
        name = graph.nodes[k].name or f"node {k}"
        found.append(Symbol(name=name, kind="meta", shape=(), row=memory.address[buffer]))
    for kind, result in (("loss", selection.loss), ("convergence", selection.convergence)):
        if result is not None:
            found.append(Symbol(name=kind, kind=kind, shape=(), row=memory.address[result]))
    for op, value in selection.merges if plan.pauses(target) else ():
        row, broadcast = memory.address[value.buffer] + value.base, value.form is Form.BROADCAST
        found.append(Symbol(name=op.name.lower(), kind="merge", shape=value.shape, row=row, broadcast=broadcast))
    return tuple(found)


def tables(plan: Plan, inputs: InputPlaces) -> tuple[Table, ...]:
    """Contents of the record memory, table 1 first."""
    found = {one.column.table: (plan.graph.concrete_shape(one.column.models[0])[0], one.rows) for one in inputs.records}
    return tuple(Table(records=records, rows=rows) for _, (records, rows) in sorted(found.items()))


def named(plan: Plan, inputs: InputPlaces, row: int) -> RowChoice:
    """The choice made by a watched column, given the row of a tuple where its record begins."""
    column = next(one.column for one in inputs.records if one.row == row)
    nodes = [plan.graph.nodes[k] for k in column.models]
    return RowChoice(
        inputs=(column.input,),
        element=column.element,
        model=nodes[0].name or "",
        rows=plan.graph.concrete_shape(nodes[0].id)[0],
    )


def choices(plan: Plan, selection: Selection) -> tuple[RowChoice, ...]:
    """By tag of the fault INDEX, what chooses the row; tags of SETX come behind those of watched columns."""
    graph, found = plan.graph, list[RowChoice]()
    for number, model in selection.indices:
        element = (number, 0) if number in plan.lists else plan.element(number)
        from_ = sorted(graph.reachable([number]).intersection(graph.inputs)) if element is None else [element[0]]
        found.append(
            RowChoice(
                inputs=tuple(graph.nodes[k].name or "" for k in from_),
                element=None if element is None else element[1],
                model=graph.nodes[model].name or "",
                rows=graph.concrete_shape(model)[0],
                count=plan.entries if number in plan.lists else 1,
                category=_category(plan, number, graph.concrete_shape(model)[0]) if element is None else None,
            )
        )
    return tuple(found)


def _category(plan: Plan, number: int, rows: int) -> Category | None:
    """The category that the number of a row is computed from."""
    graph, of = plan.graph, computed_from(plan.graph, number, plan.element)
    if of is None or not isinstance(count := graph.nodes[of[0]].classes, int):
        return None
    name = str(graph.nodes[of[0]].name)
    below = np.full((1, *graph.concrete_shape(of[0])), -2 * rows, np.float32)  # no offset makes a row of it
    row = Evaluator(graph, numerics, [number]).run(1, {name: below}, {}, {})[number]
    return Category(input=name, element=of[1], count=count, unknown=bool(0 <= row.item() < rows))
