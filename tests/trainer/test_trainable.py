"""Rules tried on arrays: `fit`, `predict` and `step` are the database's training, and say what does not fit."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dana
from dana import rules
from dana.errors import UsageError
from dana.language.trainable import TrainableRule
from dana.trainer.arrays import train
from dana.trainer.contract import Notice, TrainingError

RANDOM = np.random.default_rng(3)
X = RANDOM.standard_normal((50, 3)).astype(np.float32)
Y = (X @ [1.0, -2.0, 0.5] + 0.25).astype(np.float32)
STEPWISE = """\
import dana
n = dana.dim()
w = dana.model([n])
x = dana.input([n])
y = dana.output()
lr = dana.meta(0.5)
line = dana.algo(w, x, y)
error = dana.sigma(w * x, 1) - y
gradient = line.merge(error * x, 4, "+")
line.setModel(w - lr * gradient / 4)
line.setLoss(error * error)
line.setPrediction(dana.sigma(w * x, 1))
line.setConvergence(dana.norm(gradient, 1) < 0.001)
"""


def line() -> TrainableRule:
    return TrainableRule(STEPWISE, filename="line.py")


def test_what_is_loaded_can_be_tried(tmp_path: Path) -> None:
    file = tmp_path / "line.py"
    file.write_text(STEPWISE)

    @dana.rule
    def inside() -> None:
        w = dana.model([3])
        x = dana.input([3])
        y = dana.output()
        rule = dana.algo(w, x, y)
        rule.setModel(w - 0.1 * (dana.sigma(w * x, 1) - y) * x)
        rule.setPrediction(dana.sigma(w * x, 1))

    for rule in (dana.load(file), inside, dana.rules.linear):
        rule.fit(X, Y, epochs=2)
        assert rule.predict(X).shape == (50,)


@pytest.mark.parametrize("machine", ["sim", "interp"])
def test_fit_is_the_training_of_a_table(machine: str) -> None:
    rule = dana.rules.ridge
    trained = rule.fit(X, Y, epochs=5, hyper={"penalty": 0.1}, machine=machine)
    columns = {"a": X[:, 0], "b": X[:, 1], "c": X[:, 2], "y": Y}
    table = train(rule.text, columns, epochs=5, hyper={"penalty": 0.1}, machine="sim")
    assert list(trained.models) == list(table.models)
    for name, values in table.models.items():
        np.testing.assert_array_equal(trained.models[name].view(np.uint32), values.view(np.uint32))
    assert trained.losses == table.losses
    assert (trained.cycles is None) == (machine == "interp")
    np.testing.assert_array_equal(rule.predict(X), table.predict(columns))
    assert rule.trained is trained


@pytest.mark.parametrize("machine", ["sim", "interp"])
def test_some_models_to_start_from(machine: str) -> None:
    """The others begin as the rule says: of states 0, of columns their means and scales."""
    rule = dana.rules.ridge
    values = X * [1, 100, 0.01] + [5, 0, 7]
    cold = rule.fit(values, Y, epochs=2, machine=machine)
    warm = rule.fit(values, Y, epochs=2, models={"w": np.ones(3)}, machine=machine)
    for name in ("x.mean", "x.scale"):
        np.testing.assert_array_equal(warm.models[name], cold.models[name])
        assert not np.array_equal(cold.models[name], np.zeros(3))
    assert not np.array_equal(warm.models["w"], cold.models["w"])
    same = rule.fit(values, Y, epochs=2, models={"w": np.zeros(3)}, machine=machine)
    np.testing.assert_array_equal(same.models["w"], cold.models["w"])


def test_a_step_is_an_epoch_of_one_batch() -> None:
    start = {"w": np.array([0.1, 0.2, 0.3])}
    step = line().step(X[:4], Y[:4], models=start, hyper={"lr": 0.25})
    for machine in ("sim", "interp"):
        trained = line().fit(X[:4], Y[:4], models=start, hyper={"lr": 0.25}, epochs=1, machine=machine)
        np.testing.assert_array_equal(trained.models["w"].view(np.uint32), step.models["w"].view(np.uint32))
        assert trained.losses == (step.loss,)
        assert trained.converged == step.converged


def test_a_step_shows_what_has_a_name() -> None:
    w = np.array([0.5, -1.0, 2.0], np.float32)
    step = line().step(X[:3], Y[:3], models={"w": w})
    assert {*step.values} == {"error", "gradient"}
    error = X[:3] @ w - Y[:3]
    np.testing.assert_allclose(step.values["error"], error, rtol=1e-5)
    np.testing.assert_allclose(step.values["gradient"], error @ X[:3], rtol=1e-5)
    np.testing.assert_allclose(step.models["w"], w - 0.5 * error @ X[:3] / 4, rtol=1e-5)
    assert step.loss == pytest.approx(np.mean(error**2), rel=1e-5)
    assert step.converged is False


def test_predictions_of_given_models() -> None:
    w = np.array([0.5, -1.0, 2.0], np.float32)
    np.testing.assert_allclose(line().predict(X, models={"w": w}), X @ w, rtol=1e-4, atol=1e-5)
    assert line().predict(X[:0], models={"w": w}).shape == (0,)


def test_several_inputs_come_by_name() -> None:
    rule = dana.rules.lrmf
    x = {"i": [0, 1, 2, 0], "j": [0, 1, 0, 1]}
    rule.fit(x, [1.0, 2.0, 3.0, 4.0], epochs=3)
    assert rule.predict(x).shape == (4,)
    with pytest.raises(UsageError, match=r"X must be a mapping, because rule 'lrmf' has 2 inputs \(i, j\)"):
        rule.predict([[0, 0]])


MATRIX = """\
import dana
n = dana.dim()
w = dana.model([2, n])
x = dana.input([2, n])
y = dana.output([2])
weight = dana.weight()
rule = dana.algo(w, x, y, weight)
p = dana.sigma(w * x, 2)
rule.setModel(w - 0.001 * rule.merge(weight * dana.expand(p - y, 2) * x, 8, "+"))
rule.setLoss(weight * dana.sigma((p - y) * (p - y), 1))
"""


@pytest.mark.parametrize("width", [3, 1500, 9000])
def test_matrices_vectors_and_rows_of_any_length(width: int) -> None:
    x, y = RANDOM.standard_normal((5, 2, width)) / width, RANDOM.standard_normal((5, 2))
    rule = TrainableRule(MATRIX)
    weight = [1, 2, 0, 1, 0.5]
    found = [rule.fit(x, y, weight=weight, epochs=1, machine=each, shuffle=False) for each in ("sim", "interp")]
    step = rule.step(x, y, weight=weight)
    for one in found:
        np.testing.assert_array_equal(one.models["w"].view(np.uint32), step.models["w"].view(np.uint32))


RECURRENT = """\
import dana
steps = dana.dim(3)
d = dana.dim()
w, v = dana.model([d], init=dana.uniform(-1, 1)), dana.model([steps], init=dana.uniform(-1, 1, seed=2))
x, y = dana.input([steps, d]), dana.output()
recurrent = dana.algo(w, v, x, y)
h = 0
states = []
for t in range(steps):
    h = dana.tanh(dana.sigma(w * x[t], 1) + h / 2)
    states = states + [h]
p = dana.sigma(v * states, 1)
recurrent.setLoss((p - y) * (p - y))
recurrent.minimize(dana.optimizers.sgd, rate=0.1, batch=8)
recurrent.setPrediction(p)
"""


@pytest.mark.parametrize("steps", [1, 3, 5])
def test_loops_that_count_a_dim_are_unrolled_for_the_arrays(steps: int) -> None:
    """As in a rule that has the number in the dim's place: bit for bit, on every machine."""
    x, y = RANDOM.standard_normal((20, steps, 4)), RANDOM.standard_normal(20)
    rule, fixed = (
        TrainableRule(text) for text in (RECURRENT, RECURRENT.replace("steps = dana.dim(3)", f"steps = {steps}"))
    )
    wanted = fixed.fit(x, y, epochs=3)
    for machine in ("sim", "interp"):
        found = rule.fit(x, y, epochs=3, machine=machine)
        assert (found.extents, found.losses) == ({"steps": steps}, wanted.losses)
        for name, values in wanted.models.items():
            np.testing.assert_array_equal(found.models[name].view(np.uint32), values.view(np.uint32))
        np.testing.assert_array_equal(rule.predict(x), fixed.predict(x))
    np.testing.assert_array_equal(rule.step(x[:8], y[:8]).models["v"], fixed.step(x[:8], y[:8]).models["v"])
    with pytest.raises(UsageError, match=f"steps is {steps} by the shapes of the arrays, not 9"):
        rule.fit(x, y, hyper={"steps": 9})


NAN = np.where(np.arange(150).reshape(50, 3) == 10, np.nan, X)


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (X[:, 0], Y, r"x must have shape \(rows, n\), because it is of shape \[n\] in the rule, not \(50,\)"),
        (X, Y[:, None], r"y must have shape \(rows,\), because it is a scalar in the rule, not \(50, 1\)"),
        (X, Y[:49], "all arrays must have the same number of rows: x has 50, y has 49"),
        (X[:0], Y[:0], "at least one row is needed, not 0"),
        (NAN, Y, r"x must hold finite numbers of binary32, but x\[3, 1\] is nan"),
        (X, np.float64(1e300) * Y, r"y must hold finite numbers of binary32, but y\[0\] is"),
        ([["a"] * 3] * 50, Y, "x must be an array of numbers, not of <U1"),
        ([[1.0], [1.0, 2.0]], Y, r"x must be an array of shape \(rows, n\); its rows have different lengths"),
        (X, None, "y is missing: rule 'line' has the output y"),
        ({}, Y, r"X must have an array for each input of rule 'line' \(x\); 'x' is missing"),
        ({"x": X, "z": X}, Y, r"X must have an array for each input of rule 'line' \(x\); 'z' is none of them"),
    ],
)
def test_arrays_that_do_not_fit(x: Any, y: Any, message: str) -> None:
    for method in (line().fit, line().step):
        with pytest.raises(UsageError, match=f"^{message}"):
            method(x, y)


def test_other_requests_that_do_not_fit() -> None:
    with pytest.raises(UsageError, match="rule 'line' has not been trained"):
        line().predict(X)
    with pytest.raises(UsageError, match="axis 1 of w must have n = 3 elements, not 2"):
        line().predict(X, models={"w": [1.0, 2.0]})
    with pytest.raises(UsageError, match=r"models are those of rule 'line' by name \(w\); 'v' is none of them"):
        line().step(X[:4], Y[:4], models={"v": [1.0]})
    with pytest.raises(UsageError, match=r"by name \(w\); 'w' is missing"):
        line().predict(X, models={})
    with pytest.raises(UsageError, match="a batch of rule 'line' has at most 4 as the rule says, not 50"):
        line().step(X, Y)
    with pytest.raises(UsageError, match="rule 'line' takes no weights"):
        line().fit(X, Y, weight=Y)
    with pytest.raises(UsageError, match="weights must be at least 0, not -1"):
        dana.rules.linear.fit(X, Y, weight=-np.ones(50))
    with pytest.raises(UsageError, match="the rule has no hyperparameter 'rate'; it has: lr"):
        line().step(X[:4], Y[:4], hyper={"rate": 1})
    with pytest.raises(UsageError, match="argument \"machine\" must be one of sim, rtl, interp, not 'simulator'"):
        line().fit(X, Y, machine="simulator")
    with pytest.raises(UsageError, match="y must number classes, from 0 to 1, not -1"):
        dana.rules.logistic.step(X[:4], [0, 1, -1, 1])


def test_the_example_of_the_documents_is_a_test_that_passes(tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "docs" / "language.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text.partition("## From Python")[2], re.S)
    (test,) = [block for block in blocks if "def test_" in block]
    (tmp_path / "logistic.py").write_text(re.findall(r"```python\n(.*?)```", text, re.S)[0])
    (tmp_path / "test_logistic.py").write_text(test)
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "test_logistic.py"], cwd=tmp_path, capture_output=True, text=True
    )
    assert re.search(r"^\d passed", ran.stdout, re.M), ran.stdout


SEPARATE = X @ [1.0, -2.0, 0.5]


@pytest.mark.filterwarnings("ignore:.*separates? rows by their label")
@pytest.mark.parametrize(
    ("rule", "labels"),
    [
        ("logistic", np.where(SEPARATE > 0, "yes", "no")),
        ("logistic", np.where(SEPARATE > 0, "yes", "no").astype(object)),
        ("linear_svm", np.where(SEPARATE > 0, 1, -1)),
        ("softmax", np.array(["äh", "ok", "zu"])[np.argmax(X, axis=1)]),
        ("softmax", np.array([2.5, 7.0, -1.0])[np.argmax(X, axis=1)]),
    ],
)
def test_labels_of_any_kind_are_numbered_as_a_table_s(rule: str, labels: Any) -> None:
    names, numbers = np.unique(labels, return_inverse=True)
    tried, plain = getattr(dana.rules, rule), getattr(dana.rules, rule)
    trained = tried.fit(X, labels, epochs=30)
    assert trained.classes == tuple(str(one) if isinstance(one, str) else f"{one:g}" for one in names.tolist())
    assert trained.losses == plain.fit(X, numbers, epochs=30).losses
    assert (tried.classify(X).dtype.kind == "U") == (names.dtype.kind in "UO")
    assert (tried.classify(X) == labels).mean() > 0.9
    assert (plain.classify(X) == numbers).mean() == (tried.classify(X) == labels).mean()


def test_predictions_have_the_classes_that_were_fitted() -> None:
    rule = dana.rules.softmax
    for count in (3, 2):
        rule.fit(X, np.argmax(X[:, :count], axis=1), epochs=2)
        assert rule.predict(X).shape == (50, count)
        assert rule.trained is not None
        assert rule.trained.predict({"x": X}).shape == (50, count)
    rule.fit(X, np.argmax(X, axis=1), epochs=2, hyper={"k": 5})
    assert rule.predict(X).shape == (50, 5)


@pytest.mark.parametrize("machine", ["sim", "interp"])
def test_one_number_tells_no_three_classes_apart(machine: str) -> None:
    text = STEPWISE.replace("dana.output()", "dana.output(classes=k)").replace(
        "import dana\n", "import dana\nk = dana.dim()\n"
    )
    rule = TrainableRule(text, filename="line.py")
    rule.fit(X, SEPARATE > 0, epochs=2, machine=machine)
    with pytest.raises((UsageError, TrainingError), match=r"'line' predicts a scalar, .* expected for 3 classes"):
        rule.fit(X, np.argmax(X, axis=1), epochs=2, machine=machine)


def hint_of(call: Callable[[], object], message: str) -> str:
    with pytest.raises(UsageError, match=message) as raised:
        call()
    return raised.value.hint


def test_texts_that_are_no_labels() -> None:
    texts = ["a"] * 25 + ["b"] * 25
    assert "dana.output(classes=…)" in hint_of(
        lambda: line().fit(X, texts), "y must be an array of numbers, not of <U1"
    )
    assert "numpy.unique" in hint_of(lambda: dana.rules.logistic.step(X, texts), "from 0 to 1, not be texts")
    rule = line()
    rule.fit(X, Y, epochs=1)
    hint_of(lambda: rule.classify(X), "rule 'line' has no classes")


def test_errors_name_the_rule_and_what_was_meant() -> None:
    logistic = dana.rules.logistic
    for labels, found, listed in (
        (np.argmax(X, axis=1), "3 classes", "'0', '1', '2'"),
        (["a"] * len(X), "1 class", "'a'"),
    ):
        hint = hint_of(
            lambda labels=labels: logistic.fit(X, labels),
            f"^the labels have {found}, but rule 'logistic' has 2",
        )
        assert hint == f"The labels are {listed}."
    hint = hint_of(lambda: logistic.fit(X, SEPARATE > 0, hyper={"penaltee": 1}), "no hyperparameter 'penaltee'")
    assert hint == "Did you mean 'penalty'?"


def test_a_misspelt_hyperparameter_comes_before_the_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dana.trainer.designs.default_bundle", lambda *_, **__: pytest.fail("compiled"))
    for machine in ("sim", "interp"):
        hint_of(lambda machine=machine: line().fit(X, Y, hyper={"lrr": 1}, machine=machine), "no hyperparameter")


def test_what_a_server_would_tell_is_a_warning() -> None:
    rng = np.random.default_rng(3)
    with pytest.warns(UserWarning, match=r"no better than a constant prediction: .*\nHint: The features may") as told:
        dana.rules.lasso.fit(rng.normal(50, 9, (700, 2)), rng.normal(1e6, 1000, 700))
    assert told[0].filename == __file__


@pytest.mark.parametrize("machine", ["sim", "interp"])
def test_a_rule_without_statistics_is_compared_with_a_constant(machine: str) -> None:
    rule = TrainableRule(STEPWISE.replace("dana.output()", "dana.output(classes=2)"), filename="line.py")
    noise = np.random.default_rng(3).normal(size=(50, 1))
    with pytest.warns(UserWarning, match="no better than a constant prediction: .*, that of a constant 0.2"):
        rule.fit(noise, np.arange(50) % 2, epochs=2, machine=machine)


def test_many_constant_columns_are_counted() -> None:
    columns = {f"c{k}": np.ones(50) for k in range(12)} | {"y": np.arange(50.0)}
    notices: list[Notice] = []
    train(rules.text("linear"), columns, label="y", notify=notices.append)
    assert any("c8, c9 and 2 more have a single value in all rows" in one.message for one in notices)


def test_warnings_speak_of_arrays() -> None:
    with pytest.warns(UserWarning, match="^array y, the label, has a single value in all rows"):
        line().fit(X, np.ones(50))


@pytest.mark.parametrize("epochs", ["3", 1.5, 0])
def test_epochs_are_a_whole_number(epochs: Any) -> None:
    hint_of(lambda: line().fit(X, Y, epochs=epochs), f"epochs must be a whole number of at least 1, not {epochs!r}")


def test_a_column_that_chooses_rows_may_have_a_single_value(recwarn: pytest.WarningsRecorder) -> None:
    rows = np.zeros(20), np.arange(20) % 7
    dana.rules.lrmf.fit({"i": rows[0], "j": rows[1]}, np.arange(20) % 3, epochs=1)
    assert not [one for one in recwarn if "single value" in str(one.message)]
