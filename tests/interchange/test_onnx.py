"""Models as ONNX: onnxruntime, which we did not write, predicts the same within a bound that is derived."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import onnxruntime
import pytest

from dana import rules
from dana.errors import UsageError
from dana.interchange.onnx_graph import onnx_model
from dsl.hdfg import ops
from dsl.hdfg.arithmetic import function
from dsl.semantics.composed import COMPOSED
from hwgen.spec import numerics
from tests.hwgen import vectors
from tests.interchange.models import Case, library_case, rule_case
from tests.oracles import rounding
from tests.oracles.exact import EXACT
from tests.oracles.functions import BOUNDED


def run(made: bytes, rows: np.ndarray) -> np.ndarray:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(made, options, providers=["CPUExecutionProvider"])
    names = [one.name for one in session.get_outputs()]
    found = dict(zip(names, session.run(None, {"features": rows}), strict=True))
    vector = next((found[name] for name in ("probabilities", "scores") if name in found), None)
    prediction = np.asarray(found["prediction"])
    assert prediction.dtype == np.float32
    if vector is None:
        assert names == ["prediction"]
        return prediction
    assert prediction.shape == (len(rows),)
    assert names[-1] == "prediction"
    if "label" in names:
        assert names.index("label") == 0  # as skl2onnx has it, for who takes outputs by their place
    np.testing.assert_array_equal(prediction, np.argmax(vector, axis=1))
    if "label" in names:
        assert list(found["label"]) == [f"class {k:g}" for k in prediction]
    return np.asarray(vector)


@pytest.mark.parametrize("name", rules.NAMES)
def test_rules_of_the_library(name: str) -> None:
    made = library_case(name)
    made.check(run(onnx_model(made.model), made.rows))


@pytest.mark.parametrize("predicts", ["probability", "score"])
def test_classes(predicts: str) -> None:
    """A number for each class, the number of the largest, and what it is called."""
    made = library_case("softmax")
    model = replace(made.model, predicts=predicts, classes=("class 0", "class 1", "class 2"))
    data = onnx_model(model)
    made.check(run(data, made.rows))
    names = [one.name for one in onnx.load_from_string(data).graph.output]
    assert names == ["label", "probabilities" if predicts == "probability" else "scores", "prediction"]
    assert run(data, made.rows[:0]).shape == (0, 3)


@pytest.mark.parametrize(("rule", "predicts", "least"), [("logistic", "probability", 0.5), ("linear_svm", "score", 0)])
@pytest.mark.parametrize(
    ("kind", "classes", "labels"),
    [
        ("text", ("no", "yes"), ["no", "yes"]),
        ("integer", ("-1", "7"), [-1, 7]),
        ("double precision", ("0", "1"), [0, 1]),
        ("double precision", ("0", "1.5"), ["0", "1.5"]),
        ("text", ("0", "1"), ["0", "1"]),
        (None, ("0", "1"), ["0", "1"]),
    ],
)
def test_two_classes(
    rule: str, predicts: str, least: float, kind: str | None, classes: tuple[str, ...], labels: list[object]
) -> None:
    """A label, and probabilities of both, or the score."""
    made = library_case(rule)
    data = onnx_model(replace(made.model, predicts=predicts, classes=classes, class_type=kind))
    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    for rows in (made.rows, made.rows[:1], made.rows[:0]):
        chosen, vector, prediction = session.run(None, {"features": rows})
        assert chosen.tolist() == [labels[int(each >= least)] for each in prediction]
        assert chosen.dtype == (np.int64 if isinstance(labels[0], int) else object)
        expected = np.stack([1 - prediction, prediction], axis=1) if predicts == "probability" else prediction[:, None]
        np.testing.assert_array_equal(vector, expected)
    assert [one.name for one in session.get_outputs()][::2] == ["label", "prediction"]
    if predicts == "probability":
        assert len(set(session.run(["label"], {"features": made.rows})[0].tolist())) == 2


@pytest.mark.parametrize(("predicts", "prediction"), [("probability", "dana.sigmoid(w * x)"), ("score", "w * x")])
def test_the_bound_between_two_classes_is_the_second_s(predicts: str, prediction: str) -> None:
    made = rule_case("w = dana.model(); x = dana.input()", "w, x", prediction, {"x": ()})
    data = onnx_model(replace(made.model, predicts=predicts, classes=("no", "yes"), class_type="text"))
    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    sign = np.sign(made.model.weights[0])
    rows = np.float32([[-sign], [0], [sign]])
    assert session.run(["label"], {"features": rows})[0].tolist() == ["no", "yes", "yes"]


def test_no_class_has_a_text_that_no_class_has() -> None:
    """A class may be the text that stands for NULL elsewhere."""
    made = rule_case("w = dana.model(); x = dana.input()", "w, x", "w * x", {"x": ()})
    data = onnx_model(replace(made.model, predicts="score", classes=("no", "\\N"), class_type="text"))
    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    found = session.run(["label"], {"features": np.float32([[np.nan], [0]])})[0].tolist()
    assert found == ["None", "\\N"]


ONE = ("w = dana.model([7]); x = dana.input([7])", "w, x")
OPERATIONS = {
    "sqrt and abs": (*ONE, "dana.sigma(dana.sqrt(dana.abs(w * x)), 1)"),
    "exp and log": (*ONE, "dana.log(dana.sigma(dana.exp(w + x), 1))"),
    **{name: (*ONE, f"dana.sigma(dana.{name}(w - x), 1)") for name in BOUNDED},
    "quotient": (*ONE, "dana.sigma(w / (2 + x * x), 1)"),
    "product": (*ONE, "dana.pi(1 + w * x / 4, 1)"),
    "comparisons": (*ONE, "dana.sigma((w < x) + 2 * (w <= x) + 4 * (w > x) + 8 * (w >= x) + 16 * (w == x), 1)"),
    "ties": (*ONE, "dana.sigma((x < x) + 2 * (x <= x) + 4 * (x > x) + 8 * (x >= x) + 16 * (x == x), 1)"),
    "choice": (*ONE, "dana.where(dana.sigma(w * x, 1) > 0, dana.sigma(x, 1), -dana.sigma(w, 1))"),
    "a number as condition": (*ONE, "dana.sigma(dana.where(dana.max(x, 0), w, 2 * x), 1)"),
    "extremes": (*ONE, "dana.sigma(dana.max(w, x) - dana.min(w, x), 1)"),
    "norm": (*ONE, "dana.norm(w - x, 1)"),
    "matrix": (
        "W = dana.model([5, 7]); v = dana.model([5]); x = dana.input([7])",
        "W, v, x",
        "dana.sigma(v * dana.max(dana.sigma(W * x, 2), 0), 1)",
    ),
    "a computed row": (
        "W = dana.model([5, 7]); x = dana.input([7])",
        "W, x",
        "dana.sigma(W[dana.argmax(dana.sigma(W * x, 2), 1)] * x, 1)",
    ),
    "several numbers": ("W = dana.model([5, 7]); x = dana.input([7])", "W, x", "dana.sigmoid(dana.sigma(W * x, 2))"),
    "the model and a number": (*ONE, "w + 0 * dana.sigma(x, 1)"),
    "several features": (*ONE, "x"),
    "sum of columns": ("W = dana.model([5, 7]); x = dana.input([7])", "W, x", "dana.sigma(dana.sigma(W, 1) * x, 1)"),
    "rows": ("U = dana.model([12, 7]); x = dana.input([7]); i = dana.input()", "U, x, i", "dana.sigma(U[i] * x, 1)"),
    "tables": (
        "w = dana.model([7]); T = dana.table([12, 7]); B = dana.table([12]); x = dana.input([7]); i = dana.input()",
        "w, T, B, x, i",
        "dana.sigma(T[i] * x, 1) + B[i] + T[3] @ w",
    ),
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
    for rows in (made.rows[:0], made.rows[:1], made.rows):
        found = run(onnx_model(made.model), rows)
        assert found.shape == made.expected[: len(rows)].shape
    made.check(found)


@pytest.mark.parametrize("name", COMPOSED)
def test_what_is_made_of_others_is_numpy_s(name: str) -> None:
    """Of negative subnormals, too, where onnxruntime, which does not flush, has another floor than we: -1, not 0."""
    made = rule_case("w = dana.model(); x = dana.input()", "w, x", f"dana.{name}(x)", {"x": ()})
    values = rounding.numbers()
    found = run(onnx_model(made.model), values[:, None])
    with np.errstate(invalid="ignore"):  # signalling NaNs
        np.testing.assert_array_equal(found, rounding.MEANING[name](values))


@pytest.mark.parametrize("op", [ops.Op.BFLOAT16, *(op for op in ops.FUNCTIONS if op in EXACT)])
def test_functions_of_bits_are_the_machine_s(op: ops.Op) -> None:
    made = rule_case("w = dana.model(); x = dana.input()", "w, x", f"dana.{op}(x)", {"x": ()})
    values = numerics.flush(np.concatenate([vectors.floats(vectors.EDGES), rounding.numbers()]))
    np.testing.assert_array_equal(run(onnx_model(made.model), values[:, None]), function(numerics, op)(values))


@pytest.mark.parametrize("op", ops.FUNCTIONS_OF_TWO)
def test_functions_of_two_operands_are_the_machine_s(op: ops.Op) -> None:
    """Of every two edges but subnormals, which onnxruntime does not flush."""
    names = "x = dana.input(); z = dana.input()"
    made = rule_case(f"w = dana.model(); {names}", "w, x, z", f"dana.{op}(x, z)", {"x": (), "z": ()})
    left, right = (x.ravel() for x in np.meshgrid(*2 * [numerics.flush(vectors.floats(vectors.EDGES))]))
    found = run(onnx_model(made.model), np.stack([left, right], axis=1))
    np.testing.assert_array_equal(found, function(numerics, op)(left, right))


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
    for name in ("logistic", "softmax", "mlp"):  # runtimes warn of constants that nothing reads
        graph = onnx.load_from_string(onnx_model(library_case(name).model)).graph
        assert {one.name for one in graph.initializer} <= {each for node in graph.node for each in node.input}


def test_a_prediction_that_is_missing() -> None:
    model = replace(library_case("linear").model, program=None)
    with pytest.raises(UsageError, match="cannot predict"):
        onnx_model(model)


def test_of_equal_scores_the_first_is_chosen() -> None:
    made = library_case("softmax")
    equal = {name: np.zeros_like(values) for name, values in made.model.parameters.items()}
    model = replace(made.model, parameters=equal, predicts="probability", classes=("a", "b", "c"), class_type="text")
    session = onnxruntime.InferenceSession(onnx_model(model), providers=["CPUExecutionProvider"])
    assert set(session.run(["label"], {"features": made.rows})[0].tolist()) == {"a"}


def test_a_predictor_of_other_weights_is_refused() -> None:
    model = library_case("linear").model
    more = {**model.parameters, "another": np.zeros(3, np.float32)}
    with pytest.raises(UsageError, match=r"model 'm' has \d+ weights, but its predictor needs \d+"):
        onnx_model(replace(model, parameters=more))


def test_names_of_any_character_are_told_apart() -> None:
    model = replace(library_case("logistic").model, features=("a\nb", "a\\nb", "a\\", "\0", "x5"), labels=("y\nz",))
    notes = {one.key: one.value for one in onnx.load_from_string(onnx_model(model)).metadata_props}
    assert notes["features"] == "a\\nb\na\\\\nb\na\\\\\n\0\nx5"
    assert notes["labels"] == "y\\nz"
