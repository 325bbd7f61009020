"""What each shipped rule costs the engine: cycles of a tuple, and the minimum for any program.

The machine is the one that a rule gets by itself, 64 units; tables have 54 float4 features. A rule's cycles are
scheduled and counted, not measured: nothing runs here. The least is the largest of three: operations over units
(`dana.codesign.cost`), the longest chain from one batch's models to the next one's, and the page link.
"""

from __future__ import annotations

import re
from dataclasses import replace

from benchmarks.measure import Figure, main
from benchmarks.speed.workload import array_table, float_column
from dana import rules
from dana.codesign.cost import count_cost
from dana.codesign.default import default_bundle
from dana.codesign.sample import sample_pages
from dana.compiler import bind
from dana.compiler.passes import plan_of
from dana.storage.schema import Attribute, TableSchema
from dsl import compile_rule
from dsl.hdfg.graph import Graph
from hwgen.spec.bundle import Bundle

FEATURES, CATEGORIES = 54, 2
ROWS = 581_012
TARGET = 1.5


def run() -> list[Figure]:
    """Compile and count."""
    return [_counted(name) for name in rules.NAMES]


def table_for(text: str) -> TableSchema:
    """Columns for the text of a shipped rule: numbers of rows, categories, features, label."""

    def declares(name: str) -> bool:
        return re.search(rf"^(\w+, )*{name}\b[^=\n]* = .*dana\.(input|output)\(", text, re.MULTILINE) is not None

    columns = [replace(float_column(name), type_oid=23, type_name="integer") for name in ("i", "j") if declares(name)]
    if declares("c"):
        columns.append(_array("c", CATEGORIES))
    if declares("x"):  # of two vectors each is an array
        columns += [_array("x", FEATURES)] if columns else [float_column(f"x{k + 1}") for k in range(FEATURES)]
    if declares("y"):
        columns.append(float_column("y"))
    return TableSchema(relation="t", attributes=tuple(columns))


def _array(name: str, elements: int) -> Attribute:
    return replace(array_table(elements).attributes[0], name=name)


def bundle_of(name: str) -> tuple[Bundle, Graph, TableSchema]:
    """A shipped rule, compiled: from its text, as at the first training."""
    text = rules.text(name)
    schema = table_for(text)
    binding = bind(compile_rule(text, filename=name).hdfg, schema)
    return default_bundle(binding, schema, max_tuples=ROWS), binding.graph, schema


def _counted(name: str) -> Figure:
    bundle, graph, schema = bundle_of(name)
    cost = count_cost(plan_of(graph), bundle)
    config = bundle.config
    link = config.page_cycles / sample_pages(schema, page_size=config.page_size).rows
    least = {"units": cost.bound, "chain": cost.chain, "link": link}
    bounds = ", ".join(f"{bound} {cycles:.2f}" for bound, cycles in least.items())
    machine = f"{config.threads}×{config.clusters}×8 units, a quotient every {config.divide_interval}"
    return Figure(
        what=f"{name}: {machine}",
        measured=f"{len(bundle.program)} instructions, {cost.per_tuple:.2f} cycles",
        reference=f"{bounds} cycles",
        ratio=cost.per_tuple / max(least.values()),
        target=TARGET,
    )


if __name__ == "__main__":
    main(run)
