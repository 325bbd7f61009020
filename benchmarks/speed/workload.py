"""What the benchmarks without a server run on: the logistic rule, compiled, and pages as PostgreSQL would hold them.

In: a number of features and overrides for the machine. Out: a `Design` and page bytes. It needs no server.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from dana.compiler.passes import simplify
from dana.jit import Code, compile_graph
from dana.language.rulefile import read_rule
from dana.server.places import CHECKOUT, PAPER
from dana.simulator import Simulator
from dana.storage.builder import build_pages
from dana.storage.schema import Attribute, TableSchema
from dana.trainer.contract import Relation, TrainRequest
from dana.trainer.designs import Design, bound_graph, compile_design

PAGE_SIZE = 8192
SHIPPED = CHECKOUT / "dana" / "rules"
DISTINCT_PAGES = 64


def column_table(features: int) -> TableSchema:
    """Features as float4 columns, as Covertype has them."""
    columns = (float_column(f"x{index + 1}") for index in range(features))
    return TableSchema(relation="bench", attributes=(*columns, float_column("y")))


def array_table(features: int) -> TableSchema:
    """Features as one float4 array, as wide tables have them."""
    array = Attribute(name="x", type_oid=1021, type_name="real[]", length=-1, align="i", array_length=features)
    return TableSchema(relation="bench", attributes=(array, float_column("y")))


def float_column(name: str) -> Attribute:
    """A column of floats."""
    return Attribute(name=name, type_oid=700, type_name="real", length=4, align="i")


def compiled(schema: TableSchema, *, pages: int, **design: int) -> Design:
    """The paper's logistic rule for a table of so many pages; ``design`` are overrides for the machine."""
    return compiled_rule("logistic", schema, pages=pages, folder=PAPER, design=design)[1]


def compiled_rule(
    rule: str,
    schema: TableSchema,
    *,
    pages: int,
    label: str | None = "y",
    folder: Path = SHIPPED,
    design: Mapping[str, int] = MappingProxyType({}),
    hyper: Mapping[str, int] = MappingProxyType({}),
    page_size: int = PAGE_SIZE,
) -> tuple[TrainRequest, Design]:
    """A rule for a table of so many pages, and what was asked for."""
    request = TrainRequest(
        rule=rule,
        text=read_rule(folder / f"{rule}.py"),
        relation=Relation(name=schema.relation, pages=pages, page_size=page_size, attributes=schema.attributes),
        features=None,
        label=label,
        epochs=None,
        hyper=dict(hyper),
        machine="sim",
        design=dict(design),
    )
    return request, compile_design(request, extents=hyper)


def with_code(request: TrainRequest, design: Design) -> Simulator:
    """A simulator with the rule's own code, as trainings that last have it."""
    machine = Simulator(design.bundle.config)
    machine.load(design.bundle)
    machine.attach(code_of(request, design))
    return machine


def code_of(request: TrainRequest, design: Design) -> Code:
    """The rule's own code."""
    return compile_graph(simplify(bound_graph(request, design)), design.bundle)


def filled_pages(schema: TableSchema, features: int, *, pages: int, page_size: int = PAGE_SIZE) -> NDArray[np.uint8]:
    """``pages`` full pages of random rows, shape (pages, page_size); a few distinct ones over and over."""
    random = np.random.default_rng(features)
    per_page = page_size // (4 * features)
    rows = []
    for _ in range(DISTINCT_PAGES * per_page):
        values = random.standard_normal(features).astype(np.float32)
        label = float(random.random() < 0.5)
        wide = len(schema.attributes) == 2
        rows.append((values, label) if wide else (*values, label))
    built = np.frombuffer(build_pages(schema, rows, page_size=page_size), dtype=np.uint8).reshape(-1, page_size)
    return np.ascontiguousarray(built[np.arange(pages) % (len(built) - 1)])  # the last one is not full
