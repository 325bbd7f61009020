"""Tables: rows that a tuple writes are there for the next one, or added up behind a batch."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hwgen.spec.numerics as numerics
from dsl import compile_rule
from dsl.hdfg.evaluate import DataError
from dsl.hdfg.interpreter import Interpreter
from dsl.hdfg.text import graph_text, parse_graph
from tests.oracles.tables import table_rule
from tests.scale import randomised


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


def trained(lines: str, columns: dict[str, list[object]], **models: object) -> dict[str, np.ndarray]:
    """The models after one epoch."""
    graph = compile_rule(f"import dana\n{lines}").hdfg
    data = {name: np.array(values, np.float32) for name, values in columns.items()}
    machine = Interpreter(graph, numerics)
    return machine.train(data, machine.start() | {name: np.array(m, np.float32) for name, m in models.items()}).models


COUNT = """
T = dana.{kind}([4])
seen = dana.model()
i = dana.input()
rule = dana.algo(T, seen, i)
{write}
rule.setModel(seen, rule.merge(T[i], 5, "max"))
"""


@pytest.mark.parametrize(
    ("kind", "write", "counts", "seen"),
    [
        ("model", "rule.setModel(T[i], T[i] + 1)", [1, 0, 1, 0], 0),
        ("table", "rule.setModel(T[i], T[i] + 1)", [2, 0, 3, 0], 2),
        ("table", "rule.addRows(T[i], 1)", [2, 0, 3, 0], 2),
        ("table", 'rule.addRows(T[i], 1, 5, "+")', [2, 0, 3, 0], 0),
        ("table", 'rule.addRows(T[i], 1, 5, "mean")', [2 / 5, 0, 3 / 5, 0], 0),
        ("table", "rule.addRows(T[3], 1)", [0, 0, 0, 5], 0),
        ("table", "rule.addRows(T[i], 1); rule.setModel(T[i], 2 * T[i])", [0, 0, 0, 0], 0),
        ("table", "rule.setModel(T[i], 2 * T[i] + 1); rule.addRows(T[i], 10)", [33, 0, 77, 0], 33),
    ],
)
def test_what_a_tuple_sees_of_the_ones_before(kind: str, write: str, counts: list[float], seen: float) -> None:
    models = trained(COUNT.format(kind=kind, write=write), {"i": [2, 0, 2, 0, 2]})
    np.testing.assert_array_equal(models["T"], np.float32(counts))
    assert models["seen"] == seen


@pytest.mark.parametrize(
    "value", ["T[c] + T[d]", "T[c] + [T[d[0]], T[d[1]]]", "[T[c[0]], T[c[1]]] + T[d]", "T[[c[0], c[1]]] + T[d]"]
)
def test_rows_that_numbers_choose_are_added(value: str) -> None:
    """Not joined, as lists are that are written as such."""
    text = f"""
T = dana.model([4])
found = dana.model([2])
c, d = dana.input([2]), dana.input([2])
rule = dana.algo(T, found, c, d)
rule.setModel(found, {value})
"""
    models = trained(text, {"c": [[0, 1]], "d": [[3, 2]]}, T=[1, 2, 4, 8])
    np.testing.assert_array_equal(models["found"], np.float32([9, 6]))


PAIRS = """
E = dana.table([5, 3])
w = dana.model([3])
c = dana.input([2])
y = dana.output()
rule = dana.algo(E, w, c, y)
error = dana.sigma(dana.sigma(E[c], 1) * w, 1) - y
"""
BY_HAND = """
rule.addRows(E[c], [-0.5 * (2 * error * w), -0.5 * (2 * error * w)]{batch})
rule.setModel(w, w - 0.5 * {gradient})
"""


@pytest.mark.parametrize("batch", [1, 4])
def test_minimize_adds_a_step_for_each_number(batch: int) -> None:
    rng = np.random.default_rng(batch)
    columns = {"c": rng.integers(0, 5, (9, 2)).tolist(), "y": rng.normal(0, 1, 9).tolist()}
    columns["c"][3] = [2, 2]
    start = {"E": rng.normal(0, 1, (5, 3)), "w": rng.normal(0, 1, 3)}
    minimized = f"rule.setLoss(error * error)\nrule.minimize(dana.optimizers.sgd, rate=0.5, batch={batch})\n"
    gradient = "2 * error * dana.sigma(E[c], 1)"
    by_hand = BY_HAND.format(
        batch="" if batch == 1 else f', {batch}, "mean"',
        gradient=gradient if batch == 1 else f'rule.merge({gradient}, {batch}, "mean")',
    )
    found, wanted = (trained(PAIRS + text, columns, **start) for text in (minimized, by_hand))
    for name in ("E", "w"):
        np.testing.assert_allclose(found[name], wanted[name], rtol=1e-5)
    assert not np.allclose(found["E"][2], np.float32(start["E"][2]))


def test_a_row_has_one_state_whichever_number_chooses_it() -> None:
    text = f"import dana\n{PAIRS}rule.setLoss(error * error)\nrule.minimize(dana.optimizers.adagrad, batch=1)\n"
    graph = compile_rule(text).hdfg
    assert [graph.nodes[k].name for k in graph.models] == ["E", "w", "E.squares", "w.squares"]
    assert graph.nodes[graph.models[2]].table
    columns = {"c": np.float32([[1, 3], [3, 1]]), "y": np.float32([1, 2])}
    start = {"E": np.full((5, 3), 0.1, np.float32), "w": np.ones(3, np.float32)}
    models = Interpreter(graph, numerics).train(columns, start).models
    # the gradient by either row is that of w's side, 2 * error, in both tuples
    error = [np.float64(0.6 - 1)]
    row = 0.1 - 0.1 * 2 * error[0] / abs(2 * error[0])
    w = 1 - 0.1 * np.sign(error[0])
    error.append(6 * row * w - 2)
    np.testing.assert_allclose(models["E.squares"][1], (2 * error[0]) ** 2 + (2 * error[1] * w) ** 2, rtol=1e-5)
    np.testing.assert_array_equal(models["E.squares"][1], models["E.squares"][3])
    assert not models["E.squares"][[0, 2, 4]].any()


@pytest.mark.parametrize("write", ["rule.addRows(T[i], 1)", 'rule.addRows(T[i], 1, 5, "+")'])
@pytest.mark.parametrize("number", [4, -1, 0.5, np.nan])
def test_numbers_of_no_row(write: str, number: float) -> None:
    with pytest.raises(DataError, match=rf"^rows of T are numbered from 0 to 3; the table asks for row {number:g}$"):
        trained(COUNT.format(kind="table", write=write), {"i": [0, number, 1]})


def test_pictures_show_what_is_added() -> None:
    text = COUNT.format(kind="table", write='rule.addRows(T[i], 1, 5, "+")')
    rule = compile_rule(f"import dana\n{text}")
    assert "T[i]  += 1 behind the batch" in rule.listing
    assert "added to T[i]" in (rule._repr_svg_() or "")
