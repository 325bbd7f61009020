"""Models as ONNX: onnxruntime, which we did not write, predicts the same within a bound that is derived."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest

from dana import rules
from dana.errors import UsageError
from dana.interchange.onnx_graph import onnx_model
from tests.interchange.models import Case, library_case, rule_case


def run(made: bytes, rows: np.ndarray) -> np.ndarray:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(made, options, providers=["CPUExecutionProvider"])
    (found,) = session.run(["prediction"], {"features": rows})
    assert found.dtype == np.float32
    assert found.shape == (len(rows),)
    return np.asarray(found)


@pytest.mark.parametrize("name", rules.NAMES)
def test_rules_of_the_library(name: str) -> None:
    made = library_case(name)
    made.check(run(onnx_model(made.model), made.rows))


ONE = ("w = dana.model([7]); x = dana.input([7])", "w, x")
OPERATIONS = {
    "sqrt and abs": (*ONE, "dana.sigma(dana.sqrt(dana.abs(w * x)), 1)"),
    "exp and log": (*ONE, "dana.log(dana.sigma(dana.exp(w + x), 1))"),
    "gaussian": (*ONE, "dana.sigma(dana.gaussian(w - x), 1)"),
    "quotient": (*ONE, "dana.sigma(w / (2 + x * x), 1)"),
    "product": (*ONE, "dana.pi(1 + w * x / 4, 1)"),
    "comparisons": (*ONE, "dana.sigma((w < x) + 2 * (w <= x) + 4 * (w > x) + 8 * (w >= x) + 16 * (w == x), 1)"),
    "choice": (*ONE, "dana.where(dana.sigma(w * x, 1) > 0, dana.sigma(x, 1), -dana.sigma(w, 1))"),
    "a number as condition": (*ONE, "dana.sigma(dana.where(dana.max(x, 0), w, 2 * x), 1)"),
    "extremes": (*ONE, "dana.sigma(dana.max(w, x) - dana.min(w, x), 1)"),
    "norm": (*ONE, "dana.norm(w - x, 1)"),
    "matrix": (
        "W = dana.model([5, 7]); v = dana.model([5]); x = dana.input([7])",
        "W, v, x",
        "dana.sigma(v * dana.max(dana.sigma(W * x, 2), 0), 1)",
    ),
    "sum of columns": ("W = dana.model([5, 7]); x = dana.input([7])", "W, x", "dana.sigma(dana.sigma(W, 1) * x, 1)"),
    "rows": ("U = dana.model([12, 7]); x = dana.input([7]); i = dana.input()", "U, x, i", "dana.sigma(U[i] * x, 1)"),
    "scalars": ("w = dana.model(); x = dana.input()", "w, x", "dana.sigmoid(w * x)"),
    "a meta": ("w = dana.model(); x = dana.input(); t = dana.meta(0.25)", "w, x", "w * x + t"),
    "the model alone": (*ONE, "dana.sigma(w, 1) + 0 * dana.sigma(x, 1)"),
    "a feature itself": ("w = dana.model(); x = dana.input()", "w, x", "x"),
}


def operation_case(name: str) -> Case:
    declarations, names, prediction = OPERATIONS[name]
    shapes: dict[str, tuple[int, ...]] = {"x": () if "x = dana.input()" in declarations else (7,)}
    return rule_case(declarations, names, prediction, shapes | ({"i": ()} if "i = dana" in declarations else {}))


@pytest.mark.parametrize("name", OPERATIONS)
def test_operations(name: str) -> None:
    made = operation_case(name)
    made.check(run(onnx_model(made.model), made.rows))


@pytest.mark.parametrize("row", [-1.0, 0.5, 11.5, np.nan, np.inf, -np.inf, 12.0, 1e30])
def test_what_is_no_row_is_refused(row: float) -> None:
    """As by dana_predict(), not counted from the end, nor cut to a whole number."""
    made = operation_case("rows")
    model = onnx_model(made.model)
    rows = np.array(made.rows[:2])  # the row's number is the last feature
    for good in (0.0, -0.0, 11.0):
        rows[1, -1] = good
        run(model, rows)
    rows[1, -1] = row
    with pytest.raises(Exception, match=r"out of data bounds|indices element"):
        run(model, rows)


def test_any_number_of_rows_and_what_is_written_down() -> None:
    made = library_case("logistic")
    model = onnx_model(made.model)
    for count in (0, 1, 2, 33):
        assert len(run(model, made.rows[:count])) == count
    found = onnx.load_from_string(model)
    notes = {one.key: one.value for one in found.metadata_props}
    assert notes == {"rule": "logistic", "features": "x1\nx2\nx3\nx4\nx5", "labels": "y"}
    assert found.model_version == 3
    assert found.graph.name == "m"


def test_a_prediction_that_is_missing() -> None:
    from dataclasses import replace

    model = replace(library_case("linear").model, program=None)
    with pytest.raises(UsageError, match="cannot predict"):
        onnx_model(model)
