"""Rows that tuples gather repeat over the lanes if, and only if, everything that is written over them does.

Then `init` makes them so, the steps that would copy them are left out, and models stay the interpreter's.
"""

from __future__ import annotations

from dataclasses import replace
from functools import wraps
from typing import Any

import pytest

from dana.compiler import passes
from dana.compiler.place.forms import Forms, choose_forms
from dana.compiler.place.rows import Form
from dsl import compile_rule
from dsl.hdfg.graph import Op
from hwgen.spec.config import MachineConfig
from hwgen.spec.engine import Opcode, Section
from tests.compiler.rules import ROOMY, assert_same, random_columns, train, with_pass

RULE = """\
import dana
U = dana.model([7, 5], init=dana.normal(0, 1))
T = dana.model([4, 5], init=dana.normal(0, 1))
V = dana.model([5, 20], init=dana.normal(0, 1))
c = dana.model([5], init=dana.normal(0, 1))
number_7 = dana.input()
number_4 = dana.input()
x = dana.input([20])
z = dana.input([5])
r = dana.algo(U, T, V, c, number_7, number_4, x, z)
e = dana.sigma(dana.expand(U[number_7], 2) * V, 1) - x
s = dana.sigma(V * e, 2)
r.setModel(U[number_7], {update})
r.setModel(c, c - r.merge(U[number_7], {batch}, "+"))
r.setLoss(dana.sigma(e * e, 1))
"""

KEPT = {
    "a sum": "U[number_7] - 0.1 * s",
    "a choice": "dana.where(U[number_7] > s, U[number_7], dana.exp(-s * s))",
}
LOST = {
    "a column": "U[number_7] - 0.1 * z",
    "a model": "U[number_7] - c",
    "a range": "U[number_7] - 0.1 * s * dana.arange(5)",
    "a model's rows that do not": "U[number_7] - s * T[number_4]",
}


@pytest.mark.parametrize("clusters", [2, 8])
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("what", [*KEPT, *LOST])
def test_rows_that_repeat(what: str, batch: int, clusters: int) -> None:
    graph = compile_rule(RULE.format(update={**KEPT, **LOST}[what], batch=batch)).hdfg.bind({})
    columns = random_columns(graph, 11, 1)
    trained = train(graph, columns, MachineConfig(clusters=clusters, **ROOMY), epochs=2)
    assert_same(graph, columns, trained)
    copies = {
        section: [i for i in trained.bundle.section(section) if i.op is Opcode.LOW and i.distance >= 3]
        for section in (Section.INIT, Section.TUPLE)
    }
    assert bool(copies[Section.INIT]) == (what in KEPT)
    assert bool(copies[Section.TUPLE]) == (what in LOST)


def test_a_range_lies_in_the_image_in_either_form(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is broadcast, but wanted packed, is not packed by exchanges: it does not repeat."""

    asked: list[Forms] = []

    @wraps(choose_forms)
    def broadcast_ranges(*args: Any, **fields: Any) -> Forms:
        forms = choose_forms(*args, **fields)
        ranges = {node.id: Form.BROADCAST for node in forms.plan.graph.nodes if node.op is Op.ARANGE}
        assert ranges
        asked.append(forms)
        return replace(forms, of={**forms.of, **ranges})

    monkeypatch.setattr(passes, "PLACED", with_pass("forms", broadcast_ranges)[: len(passes.PLACED)])
    graph = compile_rule(RULE.format(update=LOST["a range"], batch=1)).hdfg.bind({})
    columns = random_columns(graph, 11, 1)
    assert_same(graph, columns, train(graph, columns, MachineConfig(clusters=2, **ROOMY), epochs=2))
    assert asked
