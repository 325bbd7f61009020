"""From a rule bound to a table to a Bundle: runs the passes (`dana.compiler.passes`).

In: a `Binding`, the table's schema and a machine. Out: the Bundle, everything that the machine needs to train. It reads
no rule text and no page, and chooses no machine: `dana.codesign` does.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from dana.compiler.binding.columns import Binding
from dana.compiler.fit import fit
from dana.compiler.passes import ACCESS, PROGRAM, Draft, Stage, plan_of, run
from dana.compiler.place.sections import Plan
from dana.compiler.schedule.encode import Program, named
from dana.compiler.strider.pages import StriderProgram
from dana.storage.schema import TableSchema, Use
from dsl.hdfg.graph import Graph
from hwgen.spec.bundle import Bundle, Fill, RowChoice, Symbol, Table, Words
from hwgen.spec.config import MachineConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineProgram(Stage):
    """The engine's part of a Bundle: a draft, and what the passes of `PROGRAM` made of it."""

    draft: Draft
    program: Program
    image: Words
    symbols: tuple[Symbol, ...]
    tables: tuple[Table, ...]
    choices: tuple[RowChoice, ...]

    def bundle(
        self,
        config: MachineConfig,
        access: StriderProgram,
        *,
        fills: tuple[Fill, ...] = (),
        choices: tuple[RowChoice, ...] = (),
    ) -> Bundle:
        """The Bundle with the access engine's part."""
        draft = self.draft
        return Bundle(
            config=config,
            program=self.program.instructions,
            sections=self.program.sections,
            strider=access.instructions,
            constants=access.constants,
            columns=access.columns,
            batch=draft.target.together if draft.target.together > 1 else draft.plan.batch,
            group=draft.target.group,
            tuple_rows=draft.inputs.rows,
            level_stride=draft.memory.block,
            levels=draft.target.levels,
            image=self.image,
            symbols=self.symbols,
            tables=self.tables,
            inputs=draft.inputs.places,
            fills=fills,
            choices=choices,
        )


def compile_engine(
    graph: Graph,
    config: MachineConfig,
    *,
    max_tuples: int,
    known: Draft | None = None,
    plan: Plan | None = None,
) -> EngineProgram:
    """Compile a rule.

    Parameters
    ----------
    graph
        Bound. Its batch size is compiled in, a meta that gives it or not.
    config
        The machine.
    max_tuples
        Largest number of tuples of an epoch; used if the batch is the whole table.
    known
        A draft of the graph that was made on the way to the config, if there is one.
    plan
        The graph's plan, if there is one.

    Raises
    ------
    DoesNotFit
        The machine is too small.
    """
    draft = fit(plan or plan_of(graph), config, max_tuples=max_tuples, known=known)
    return EngineProgram.of({**run(PROGRAM, {**draft.results, "short": draft.short, "config": config}), "draft": draft})


def plan_for(graph: Graph, schema: TableSchema) -> Plan:
    """The plan of a graph for a table."""
    plan = plan_of(graph)
    # the numbers of rows would have to come before the first part of their row
    return replace(plan, watched=()) if schema.part else plan


def compile_bundle(
    binding: Binding,
    schema: TableSchema,
    config: MachineConfig,
    *,
    max_tuples: int,
    known: Draft | None = None,
    plan: Plan | None = None,
) -> Bundle:
    """Compile a rule for a table and a machine.

    Parameters
    ----------
    binding
        What `bind` made of the rule and the table. The batch size of its graph is compiled in.
    max_tuples
        Largest number of tuples of an epoch; used if the batch is the whole table.
    known, plan
        As `compile_engine` takes them.

    Raises
    ------
    UsageError
        The rule, the table and the machine do not go together; says by how much and what would.
    """
    plan = plan or plan_for(binding.graph, schema)
    engine = compile_engine(binding.graph, config, max_tuples=max_tuples, known=known, plan=plan)
    inputs = engine.draft.inputs
    given = {"schema": schema, "uses": binding.uses, "watched": engine.draft.watched}
    access = run(ACCESS, {**given, "inputs": inputs, "config": config})["strider"]
    assert isinstance(access, StriderProgram)
    watched = [
        named(engine.draft.plan, inputs, column.row) for column in access.columns if column.table and inputs.records
    ]
    return engine.bundle(
        config,
        access,
        fills=binding.fills(schema),
        # by the tag of the fault INDEX: watched columns first, then the program's SETX
        # (`dana.compiler.schedule.encode`)
        choices=tuple(_columns(one, schema, binding.uses) for one in (*watched, *engine.choices)),
    )


def _columns(choice: RowChoice, schema: TableSchema, uses: Sequence[Use]) -> RowChoice:
    """The choice with the columns of the table that its number comes from."""
    element, inputs = choice.element, choice.inputs
    if choice.category is not None:
        element, inputs = choice.category.element, (choice.category.input,)
    columns = tuple(
        (
            schema.attributes[use.attribute].name,
            # SQL counts elements of arrays from 1
            None if element is None or use.count == 1 else element - use.element + 1,
        )
        for use in uses
        if use.input in inputs and (element is None or use.element <= element < use.element + use.count)
    )
    return replace(choice, columns=columns)
