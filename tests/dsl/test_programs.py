"""Generated rules: no errors, printed forms that read back, and the interpreter's bits those of the reference."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import hwgen.spec.numerics as numerics
from dsl import compile_rule
from dsl.hdfg.interpreter import Interpreter
from dsl.hdfg.text import graph_text, parse_graph
from dsl.syntax.printer import rule_text
from tests.dsl.data import random_columns
from tests.dsl.programs import rules
from tests.dsl.reference import Reference
from tests.scale import randomised


@randomised(60)
@given(rules())
def test_printed_forms_read_back(text: str) -> None:
    rule = compile_rule(text)
    assert parse_graph(graph_text(rule.hdfg)) == rule.hdfg
    printed = rule_text(rule.ast)
    again = compile_rule(printed)
    assert rule_text(again.ast) == printed
    assert graph_text(again.hdfg, spans=False) == graph_text(rule.hdfg, spans=False)


@randomised(60)
@given(rules(), st.integers(1, 9), st.integers(1, 9))
def test_interpreter_and_reference_agree(text: str, n: int, count: int) -> None:
    graph = compile_rule(text).hdfg
    machine = Interpreter(graph.bind(dict.fromkeys(graph.dims, n)), numerics)
    columns = random_columns(machine.graph, count, seed=n)
    result = machine.train(columns, epochs=2)
    models, losses = Reference(machine.graph).train(columns, machine.start(), epochs=2)
    for name, values in models.items():
        np.testing.assert_array_equal(result.models[name].view(np.uint32), values.view(np.uint32), err_msg=text)
    np.testing.assert_array_equal(result.losses, losses)
