"""The interpreter against a second, element-by-element reading of the design, bit for bit, and its own promises."""

from __future__ import annotations

import numpy as np
import pytest

import hwgen.spec.numerics as numerics
from dsl import compile_rule
from dsl.hdfg.evaluate import DataError
from dsl.hdfg.graph import BindError
from dsl.hdfg.interpreter import PREDICTED_AT_ONCE, Interpreter
from tests.dsl.data import random_columns
from tests.dsl.reference import Reference
from tests.dsl.rules import DIMS, RULES


def interpreter(name: str, **dims: int) -> Interpreter:
    graph = compile_rule(RULES[name]).hdfg
    return Interpreter(graph.bind(dims or DIMS.get(name, dict.fromkeys(graph.dims, 5))), numerics)


@pytest.mark.parametrize("count", [1, 4, 11])
@pytest.mark.parametrize("name", RULES)
def test_trains_as_the_reference_does(name: str, count: int) -> None:
    machine = interpreter(name)
    columns = random_columns(machine.graph, count, seed=count)
    result = machine.train(columns, epochs=2)
    models, losses = Reference(machine.graph).train(columns, machine.start(), epochs=2)
    for model, values in models.items():
        assert result.models[model].dtype == np.float32
        np.testing.assert_array_equal(result.models[model].view(np.uint32), values.view(np.uint32), err_msg=model)
    if machine.graph.loss is not None:
        np.testing.assert_array_equal(result.losses, losses)


def test_edge_values_are_flushed_and_canonical() -> None:
    machine = interpreter("plain_sgd", n=3)
    columns = {
        "x": np.float32([[1e-40, -1e-45, 1], [np.inf, 0, 1], [0, np.nan, 1e38]]),
        "y": np.array([0x7FC12345, 0x00000001, 0x3F800000], dtype=np.uint32).view(np.float32),
    }
    result = machine.train(columns, epochs=1)
    models, _ = Reference(machine.graph).train(columns, machine.start(), epochs=1)
    np.testing.assert_array_equal(result.models["w"].view(np.uint32), models["w"].view(np.uint32))
    nans = np.isnan(result.models["w"])
    assert nans.any()
    assert (result.models["w"].view(np.uint32)[nans] == 0x7FC00000).all()


def test_learns_a_separable_problem() -> None:
    machine = interpreter("logistic", n=4)
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2000, 4)).astype(np.float32)
    y = (x @ np.float32([1, -2, 0.5, 0]) > 0).astype(np.float32)
    result = machine.train({"x": x, "y": y})
    assert result.epochs == 10
    assert all(later < earlier for earlier, later in zip(result.losses, result.losses[1:], strict=False))
    prediction = machine.predict({"x": x}, result.models)
    assert np.mean((prediction > 0.5) == y) > 0.98


def test_convergence_ends_the_run() -> None:
    machine = interpreter("logistic", n=2)
    result = machine.train({"x": np.zeros((10, 2), np.float32), "y": np.full(10, 0.5, np.float32)})
    assert (result.epochs, result.converged) == (1, True)


def test_metas_replace_defaults() -> None:
    machine = interpreter("functions", n=2)
    columns = random_columns(machine.graph, 9, seed=1)
    default = machine.train(columns, epochs=1)
    assert np.array_equal(machine.train(columns, metas={"lr": 0.1}, epochs=1).models["w"], default.models["w"])
    assert not np.array_equal(machine.train(columns, metas={"lr": 0.2}, epochs=1).models["w"], default.models["w"])
    assert not np.array_equal(machine.train(columns, metas={"size": 3}, epochs=1).models["w"], default.models["w"])
    for size in (2.5, 0, 1e39, float("nan")):
        with pytest.raises(DataError, match="whole number, at least 1, not"):
            machine.train(columns, metas={"size": size})
    with pytest.raises(DataError, match="no meta 'rate'; it has lr, size"):
        machine.train(columns, metas={"rate": 2.5})


def test_starts_from_given_models() -> None:
    machine = interpreter("plain_sgd", n=2)
    columns = random_columns(machine.graph, 6, seed=2)
    whole = machine.train(columns, epochs=2)
    half = machine.train(columns, epochs=1)
    again = machine.train(columns, models=half.models, epochs=1)
    assert np.array_equal(again.models["w"], whole.models["w"])
    with pytest.raises(DataError, match=r"model w must have shape \[2\], not \[3\]"):
        machine.train(columns, models={"w": [1, 2, 3]})
    with pytest.raises(DataError, match="no model 'v'"):
        machine.train(columns, models={"v": [1, 2]})


def test_rows_apply_in_tuple_order() -> None:
    machine = interpreter("rows_in_batches")
    columns = {"i": np.float32([2, 2, 2, 2]), "r": np.float32([0, 10, 20, 30])}
    result = machine.train(columns, epochs=1)
    # every tuple read the row as it stood before the batch; the last one wrote last
    np.testing.assert_array_equal(result.models["U"][2], np.full(2, np.float32(1) - np.float32(0.1) * np.float32(-28)))


TWO_ROWS = """
import dana
U = dana.model([3])
i = dana.input()
j = dana.input()
x = dana.input()
size = dana.meta(1)
rule = dana.algo(U, i, j, x)
rule.setModel(U[i], x)
rule.setModel(U[j], -x)
rule.setConvergence(rule.merge(x, size, "+") < -99)
"""


def test_rows_of_a_tuple_apply_in_the_order_of_the_text() -> None:
    """And all of a tuple's before any of the next one's."""
    machine = Interpreter(compile_rule(TWO_ROWS).hdfg, numerics)
    columns = {"i": np.float32([0, 1, 1]), "j": np.float32([1, 0, 1]), "x": np.float32([1, 2, 3])}
    # U[0] = 1, U[1] = -1; U[1] = 2, U[0] = -2; U[1] = 3, U[1] = -3
    np.testing.assert_array_equal(
        machine.train(columns, metas={"size": 3}, epochs=1).models["U"], np.float32([-2, -3, 0])
    )


def test_a_column_is_flushed_though_no_operation_reads_it() -> None:
    machine = Interpreter(compile_rule(TWO_ROWS.replace("-x)", "x)")).hdfg, numerics)
    columns = {"i": np.float32([0]), "j": np.float32([1]), "x": np.float32([-1e-40])}
    assert machine.train(columns, epochs=1).models["U"].view(np.uint32).tolist() == [1 << 31, 1 << 31, 0]


@pytest.mark.parametrize("row", [6, -1, 0.5, np.nan, np.inf])
def test_a_row_that_does_not_exist_is_refused(row: float) -> None:
    machine = interpreter("rows")
    columns = {"i": np.float32([0, row]), "j": np.float32([0, 0]), "r": np.float32([0, 0])}
    with pytest.raises(DataError, match="rows of U are numbered from 0 to 5; the table asks for row"):
        machine.train(columns)


def test_columns_must_fit() -> None:
    machine = interpreter("plain_sgd", n=2)
    x, y = np.zeros((3, 2), np.float32), np.zeros(3, np.float32)
    for columns, message in (
        ({"x": x}, "needs a column for y"),
        ({"x": x, "y": y, "z": y}, "no input or output 'z'"),
        ({"x": x, "y": y[:2]}, "same number of tuples"),
        ({"x": x[:, :1], "y": y}, r"column x must have shape \[tuples, \*\[2\]\], not \[3, 1\]"),
        ({"x": x[:0], "y": y[:0]}, "at least one tuple"),
    ):
        with pytest.raises(DataError, match=message):
            machine.train(columns)
    with pytest.raises(DataError, match="has no setPrediction"):
        machine.predict({"x": x}, {})


def test_an_unbound_graph_is_refused() -> None:
    with pytest.raises(BindError, match="unbound: n"):
        Interpreter(compile_rule(RULES["logistic"]).hdfg, numerics)


def test_predicts_tuple_by_tuple() -> None:
    machine = interpreter("rows")
    columns = random_columns(machine.graph, PREDICTED_AT_ONCE + 3, seed=0)
    models = machine.train(columns, epochs=1).models
    prediction = machine.predict({"i": columns["i"], "j": columns["j"]}, models)
    i, j = columns["i"].astype(int), columns["j"].astype(int)
    expected = numerics.fold(numerics.mul(models["U"][i], models["V"][j]), 1, "add")
    np.testing.assert_array_equal(prediction, expected)


def test_predicts_what_depends_on_no_tuple() -> None:
    text = RULES["plain_sgd"] + "sgd.setPrediction(dana.sigma(w, 1))\n"
    machine = Interpreter(compile_rule(text).hdfg.bind({"n": 2}), numerics)
    prediction = machine.predict({"x": np.zeros((3, 2), np.float32)}, {"w": [1, 2]})
    np.testing.assert_array_equal(prediction, [3, 3, 3])
