"""From a rule bound to a table to a Bundle: runs the passes (`dana.compiler.passes`).

In: a `Binding`, the table's schema and a machine. Out: the Bundle, everything that the machine needs to train. It reads
no rule text and no page, and chooses no machine: `dana.codesign` does.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dana.compiler.binding.columns import Binding
from dana.compiler.fit import fit
from dana.compiler.passes import ACCESS, PROGRAM, RULE, Draft, Results, run
from dana.compiler.schedule.encode import Program
from dana.storage.schema import TableSchema
from dsl.hdfg.graph import Graph
from hwgen.spec.bundle import Bundle, Symbol, Words
from hwgen.spec.config import MachineConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineProgram:
    """The engine's part of a Bundle.

    Attributes
    ----------
    indices
        For the tag of each fault INDEX: the input that chooses a row, the model, its rows.
    results
        What every pass made, by name.
    """

    draft: Draft
    program: Program
    image: Words
    symbols: tuple[Symbol, ...]
    indices: list[tuple[str, str, int]]
    results: Results

    def fields(self) -> dict[str, Any]:
        """What it says of a Bundle's fields."""
        draft = self.draft
        return {
            "program": self.program.instructions,
            "sections": self.program.sections,
            "batch": draft.plan.batch,
            "group": draft.target.group,
            "tuple_rows": draft.inputs.rows,
            "level_stride": draft.memory.block,
            "levels": draft.target.levels,
            "image": self.image,
            "symbols": self.symbols,
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
        Tuples that an epoch has at most; counts for rules whose batch is the whole table.
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
    return EngineProgram(
        draft=draft,
        program=made["program"],
        image=made["image"],
        symbols=made["symbols"],
        indices=made["indices"],
        results={**made, **rule},
    )


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
        Tuples that an epoch has at most; counts for rules whose batch is the whole table.
    notes
        Added to the Bundle's notes, which say for the tag of each fault INDEX which column chooses a row of which
        model, and how many it has; where the inputs lie in a tuple's rows; and which columns fill them.
    known, rule
        As `compile_engine` takes them.

    Raises
    ------
    UsageError
        The rule, the table and the machine do not go together; says by how much and what would.
    """
    graph = binding.graph
    engine = compile_engine(graph, config, max_tuples=max_tuples, known=known, rule=rule)
    inputs = engine.draft.inputs
    access = run(ACCESS, {"schema": schema, "uses": binding.uses, "inputs": inputs, "config": config})["strider"]
    column = {use.input: schema.attributes[use.attribute].name for use in binding.uses}
    places = [{"name": one.name, "shape": list(one.shape), "row": one.row} for one in inputs.places]
    fills = [[schema.attributes[u.attribute].name, u.input, u.element, u.count] for u in binding.uses]
    indices = [[column[name], model, rows] for name, model, rows in engine.indices]
    return Bundle(
        config=config,
        **engine.fields(),
        strider=access.instructions,
        constants=access.constants,
        columns=access.columns,
        notes={
            "rule": graph.name,
            "table": schema.relation,
            "indices": indices,
            "inputs": places,
            "fills": fills,
            **(notes or {}),
        },
    )
