"""Compiles a rule bound to a table into a Bundle.

In: a `Binding`, the table's schema and a machine, or what the user fixes of one. Out: the Bundle, everything that a
machine needs to train. It reads no rule text and no page.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dana.compiler.binding import Binding
from dana.compiler.design import default_config
from dana.compiler.engine import compile_engine
from dana.compiler.layout import tuple_layout
from dana.compiler.strider import compile_strider
from dana.errors import UsageError
from dana.storage.schema import TableSchema
from hwgen.spec.bundle import Bundle
from hwgen.spec.config import MachineConfig


def compile_bundle(
    binding: Binding,
    schema: TableSchema,
    *,
    max_tuples: int,
    config: MachineConfig | None = None,
    design: Mapping[str, int] | None = None,
    notes: Mapping[str, Any] | None = None,
) -> Bundle:
    """Compile.

    Parameters
    ----------
    binding
        What `bind` made of the rule and the table. The batch size of its graph is compiled in.
    max_tuples
        Tuples that an epoch has at most; counts for rules whose batch is the whole table.
    config
        The machine; None: one that suits the rule (`default_config`).
    design
        Fields of that machine which are as the user says; not together with `config`.
    notes
        Added to the Bundle's notes, which say for the tag of each fault INDEX which column chooses a row of which
        model, and how many it has.

    Raises
    ------
    UsageError
        The rule, the table and the machine do not go together; says by how much and what would.
    """
    graph = binding.graph
    if config is not None and design:
        raise UsageError("a machine and fields of another one were given", hint="Give one of config and design.")
    if config is None:
        config = default_config(graph, schema, binding.uses, max_tuples=max_tuples, design=design)
    layout = tuple_layout(graph, config.lanes)
    engine = compile_engine(graph, layout, config, max_tuples=max_tuples)
    access = compile_strider(schema, binding.uses, layout, config)
    column = {use.input: schema.attributes[use.attribute].name for use in binding.uses}
    indices = [[column[name], model, rows] for name, model, rows in engine.indices]
    return Bundle(
        config=config,
        program=engine.program,
        sections=engine.sections,
        strider=access.instructions,
        constants=access.constants,
        columns=access.columns,
        batch=engine.batch,
        group=engine.group,
        tuple_rows=engine.tuple_rows,
        level_stride=engine.level_stride,
        levels=engine.levels,
        image=engine.image,
        symbols=engine.symbols,
        notes={"rule": graph.name, "table": schema.relation, "indices": indices, **(notes or {})},
    )
