"""Tables: rows that a tuple writes are there for the next one, or added up behind a batch."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hwgen.spec.numerics as numerics
from dsl import compile_rule
from dsl.hdfg.interpreter import Interpreter
from dsl.hdfg.text import graph_text, parse_graph
from tests.dsl.scale import randomised
from tests.oracles.tables import table_rule


@randomised(50)
@given(st.integers(0, 1 << 30))
def test_interpreter_and_oracle_agree(seed: int) -> None:
    rng = random.Random(seed)
    rule = table_rule(rng)
    graph = compile_rule(rule.source).hdfg
    assert parse_graph(graph_text(graph)) == graph
    columns, models = rule.columns(rng, rng.choice([1, 2, 5, 8, 15])), rule.start(rng)
    found = Interpreter(graph, numerics).train(columns, models)
    wanted, losses = rule.train(columns, models)
    for name, values in wanted.items():
        np.testing.assert_array_equal(found.models[name].view(np.uint32), values.view(np.uint32), err_msg=rule.source)
    np.testing.assert_array_equal(found.losses, losses, err_msg=rule.source)
