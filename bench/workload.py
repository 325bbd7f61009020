"""What the benchmarks without a server run on: the logistic rule, compiled, and pages as PostgreSQL would hold them.

In: a number of features and wishes for the machine. Out: a `Design` and page bytes. It needs no server.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dana.rulefile import read_rule
from dana.runtime.designs import Design, compile_design
from dana.runtime.trainer import Relation, TrainRequest
from dana.server.places import PAPER
from dana.storage.builder import build_pages
from dana.storage.schema import Attribute, TableSchema

PAGE_SIZE = 8192
DISTINCT_PAGES = 64


def column_table(features: int) -> TableSchema:
    """Features as float4 columns, as Covertype has them."""
    columns = (_float4(f"x{index + 1}") for index in range(features))
    return TableSchema(relation="bench", attributes=(*columns, _float4("y")))


def array_table(features: int) -> TableSchema:
    """Features as one float4 array, as wide tables have them."""
    array = Attribute(name="x", type_oid=1021, type_name="real[]", length=-1, align="i", array_length=features)
    return TableSchema(relation="bench", attributes=(array, _float4("y")))


def _float4(name: str) -> Attribute:
    return Attribute(name=name, type_oid=700, type_name="real", length=4, align="i")


def compiled(schema: TableSchema, *, pages: int, **design: int) -> Design:
    """The logistic rule for a table of so many pages; ``design`` are wishes for the machine."""
    request = TrainRequest(
        rule="logistic",
        source=read_rule(PAPER / "logistic.py"),
        relation=Relation(name=schema.relation, pages=pages, page_size=PAGE_SIZE, attributes=schema.attributes),
        features=None,
        label="y",
        epochs=None,
        hyper={},
        backend="sim",
        design=design,
    )
    return compile_design(request)


def filled_pages(schema: TableSchema, features: int, *, pages: int) -> NDArray[np.uint8]:
    """``pages`` full pages of random rows, shape (pages, PAGE_SIZE); a few distinct ones over and over."""
    random = np.random.default_rng(features)
    per_page = PAGE_SIZE // (4 * features)
    rows = []
    for _ in range(DISTINCT_PAGES * per_page):
        values = random.standard_normal(features).astype(np.float32)
        label = float(random.random() < 0.5)
        wide = len(schema.attributes) == 2
        rows.append((values, label) if wide else (*values, label))
    built = np.frombuffer(build_pages(schema, rows, page_size=PAGE_SIZE), dtype=np.uint8).reshape(-1, PAGE_SIZE)
    return np.ascontiguousarray(built[np.arange(pages) % (len(built) - 1)])  # the last one is not full
