"""What a training would run on, for every rule and for tables of any number of rows."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest

from dana import rules
from dana.codesign.sample import sample_pages
from dana.runtime.designs import DesignStore
from dana.runtime.explain import explain, lines
from dana.runtime.trainer import ExplainRequest, Relation, TrainRequest
from dana.storage.columns import column_schema
from dsl import compile_rule
from tests.dsl.rules import RULES

WHOLE = """\
import dana
n = dana.dim()
w = dana.model([n])
x = dana.input([n])
y = dana.output()
whole = dana.algo(w, x, y)
error = dana.sigma(w * x, 1) - y
whole.setModel(w - 0.001 * whole.merge(error * x, dana.all, "+"))
whole.setLoss(error * error)
"""
ALL = {**{name: rules.text(name) for name in rules.NAMES}, **RULES, "whole": WHOLE}
del ALL["extents"]  # no table says both extents of its matrix
DIM = 3
"""Of dims that the table would decide."""


def asked(source: str, rows: int) -> ExplainRequest:
    """For a table with the columns that a rule wants, arrays by its inputs' names."""
    graph = compile_rule(source).hdfg
    graph = graph.bind({**dict.fromkeys(graph.dims, DIM), **dict(graph.extents)})
    table = {}
    for k in graph.inputs:
        shape = graph.concrete_shape(k)
        if graph.nodes[k] is not graph.weight:
            table[str(graph.nodes[k].name)] = np.zeros((1, prod(shape)) if shape else 1)
    schema = column_schema(table)
    pages = -(-rows // sample_pages(schema, page_size=8192).rows)
    training = TrainRequest(
        rule="rule",
        source=source,
        relation=Relation(name="t", pages=pages, page_size=8192, attributes=schema.attributes),
        features=None,
        label=None,
        epochs=None,
        hyper={},
        backend="sim",
        design={},
    )
    return ExplainRequest(training=training, device="xcvu9p", search=False, rows=rows, last=None)


@pytest.mark.parametrize("rows", [0, 1, 40, 455])
@pytest.mark.parametrize("name", ALL)
def test_every_rule_is_explained(name: str, rows: int) -> None:
    explained = explain(asked(ALL[name], rows), DesignStore())
    assert explained["cycles"]["tuple"] > 0
    assert (explained["epoch"]["cycles"] > 0) == (rows > 0)
    assert all(lines(explained))
