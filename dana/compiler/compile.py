"""From a rule bound to a table to a Bundle: runs the passes (`dana.compiler.passes`).

In: a `Binding`, the table's schema and a machine. Out: the Bundle, everything that the machine needs to train. It reads
no rule text and no page, and chooses no machine: `dana.codesign` does.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from dana.compiler.binding.columns import Binding
from dana.compiler.fit import fit
from dana.compiler.passes import ACCESS, PROGRAM, RULE, Draft, Results, run
from dana.compiler.schedule.encode import Choice, Program, named
from dana.storage.schema import TableSchema, Use
from dsl.hdfg.graph import Graph
from hwgen.spec.bundle import Bundle
from hwgen.spec.config import MachineConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineProgram:
    """The engine's part of a Bundle; `results` is what every pass made, by name."""

    draft: Draft
    program: Program
    results: Results

    def fields(self) -> dict[str, Any]:
        """Fields of the Bundle that follow from the draft."""
        draft = self.draft
        return {
            "program": self.program.instructions,
            "sections": self.program.sections,
            "batch": draft.target.together if draft.target.together > 1 else draft.plan.batch,
            "group": draft.target.group,
            "tuple_rows": draft.inputs.rows,
            "level_stride": draft.memory.block,
            "levels": draft.target.levels,
            **{name: self.results[name] for name in ("image", "symbols", "tables")},
        }


def compile_engine(
    graph: Graph,
    config: MachineConfig,
    *,
    max_tuples: int,
    known: Draft | None = None,
    rule: Results | None = None,
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
    rule
        What the passes of `RULE` made, if they have run.

    Raises
    ------
    DoesNotFit
        The machine is too small.
    """
    rule = rule or run(RULE, {"graph": graph})
    draft = fit(rule["plan"], config, max_tuples=max_tuples, known=known)
    made = run(PROGRAM, {**draft.results, "config": config})
    return EngineProgram(draft=draft, program=made["program"], results={**made, **rule})


def rule_for(graph: Graph, schema: TableSchema) -> Results:
    """Results of the passes of `RULE` on a graph for a table."""
    rule = run(RULE, {"graph": graph})
    if schema.part:
        # the numbers of rows would have to come before the first part of their row
        rule["plan"] = replace(rule["plan"], watched=())
    return rule


def compile_bundle(
    binding: Binding,
    schema: TableSchema,
    config: MachineConfig,
    *,
    max_tuples: int,
    notes: Mapping[str, Any] | None = None,
    known: Draft | None = None,
    rule: Results | None = None,
) -> Bundle:
    """Compile a rule for a table and a machine.

    Parameters
    ----------
    binding
        What `bind` made of the rule and the table. The batch size of its graph is compiled in.
    max_tuples
        Largest number of tuples of an epoch; used if the batch is the whole table.
    notes
        Added to the Bundle's notes. These map the tag of each fault INDEX to the columns, the model and its number of
        rows (elements of an array counted from 1); they also give the inputs' places in a tuple's rows, the columns
        that fill them, and the start values of models in the record memory, which no image holds.
    known, rule
        As `compile_engine` takes them.

    Raises
    ------
    UsageError
        The rule, the table and the machine do not go together; says by how much and what would.
    """
    graph = binding.graph
    rule = rule or rule_for(graph, schema)
    engine = compile_engine(graph, config, max_tuples=max_tuples, known=known, rule=rule)
    inputs = engine.draft.inputs
    given = {"schema": schema, "uses": binding.uses, "watched": engine.draft.watched}
    access = run(ACCESS, {**given, "inputs": inputs, "config": config})["strider"]
    choices = [
        named(engine.draft.plan, inputs, column.row) for column in access.columns if column.table and inputs.records
    ]
    places = [{"name": one.name, "shape": list(one.shape), "row": one.row} for one in inputs.places]
    fills = [[schema.attributes[u.attribute].name, u.input, u.element, u.count] for u in binding.uses]
    return Bundle(
        config=config,
        **engine.fields(),
        strider=access.instructions,
        constants=access.constants,
        columns=access.columns,
        notes={
            "rule": graph.name,
            "indices": [_choice(choice, schema, binding.uses) for choice in (*choices, *engine.results["indices"])],
            "inputs": places,
            "fills": fills,
            "starts": {s.name: _start(graph, s.name) for s in engine.results["symbols"] if s.table},
            **(notes or {}),
        },
    )


def _start(graph: Graph, name: str) -> dict[str, Any]:
    """How a model starts, for JSON."""
    return asdict(next(graph.nodes[k].init for k in graph.models if graph.nodes[k].name == name))


def _choice(choice: Choice, schema: TableSchema, uses: Sequence[Use]) -> dict[str, Any]:
    """The row choices of a model, with the columns of the table."""
    of = choice.category
    columns, element, inputs = [], choice.element, choice.inputs
    if of is not None:
        element, inputs = of.element, (of.input,)
    for use in uses:
        if use.input not in inputs:
            continue
        if element is None or use.element <= element < use.element + use.count:
            number = None if element is None or use.count == 1 else element - use.element + 1
            columns.append((schema.attributes[use.attribute].name, number))
    return {"columns": columns, **asdict(choice)}
