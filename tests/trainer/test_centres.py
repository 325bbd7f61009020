"""Which inputs and outputs of a rule may be centred, and the centres that a survey finds."""

from __future__ import annotations

import numpy as np
import pytest

from dana import rules
from dana.trainer.arrays import train
from dana.trainer.data.centres import is_relative
from dsl import compile_rule

BOTH = {"linear", "ridge", "lasso", "elastic_net", "huber", "quantile"}


@pytest.mark.parametrize("name", rules.NAMES)
def test_shipped_rules(name: str) -> None:
    graph = compile_rule(rules.text(name)).hdfg
    found = {str(graph.nodes[k].name) for k in graph.inputs if is_relative(graph, str(graph.nodes[k].name))}
    features = (
        {"x"}
        if name in BOTH | {"dlrm", "kmeans", "linear_svm", "logistic", "mlp", "pca", "poisson", "softmax"}
        else set()
    )
    assert found == features | ({"y"} if name in BOTH | {"fm", "lrmf"} else set())


RULE = """
import dana
from dana.functions import standardized
n = dana.dim()
w = dana.model([n])
x = dana.input([n])
y = dana.output()
b = dana.model(init=dana.column_mean(y))
tried = dana.algo(w, b, x, y)
z = standardized(x)
p = dana.sigma(w * z, 1) + b
error = p - y
{}
"""

UPDATES = """
tried.setModel(w, w - 0.1 * tried.merge(error * z, 8, "mean"))
tried.setModel(b, b - 0.1 * tried.merge(error, 8, "mean"))
tried.setLoss(error * error)
tried.setPrediction(p)
"""


@pytest.mark.parametrize(
    ("before", "after", "relative"),
    [
        ("", "", "xy"),
        ("p - y", "(p - y) / dana.max(y, 1)", "x"),  # a relative error
        ("b - 0.1 * tried.merge(error,", "b - 0.1 * tried.merge(error + b,", "x"),  # a penalty
        ("setPrediction(p)", "setPrediction(2 * p)", "x"),
        ("setLoss(error * error)", "setLoss(error * error + b)", "x"),
        ("+ b\n", "\n", "x"),  # no intercept
        ("= standardized(x)", "= x", "y"),
        ("w * z, 1)", "w * z * (x > 0), 1)", "y"),
        ("(error * error)", "(error * error + x[1])", "y"),
        ("(error * error)", "(error * error + standardized(x)[1])", "xy"),
        ("init=dana.column_mean(y)", "", "x"),
    ],
)
def test_what_a_rule_reads(before: str, after: str, relative: str) -> None:
    graph = compile_rule(RULE.format(UPDATES).replace(before, after, 1) if before else RULE.format(UPDATES)).hdfg
    assert "".join(name for name in "xy" if is_relative(graph, name)) == relative


@pytest.mark.parametrize("kind", [np.float64, np.int64, np.float32])
def test_arrays(kind: type) -> None:
    """The centre is short; of features that binary32 holds exactly there is none."""
    random = np.random.default_rng(3)
    x = (3e7 + np.round(20 * random.standard_normal(200))).astype(kind)
    y = 5e7 + np.round(x.astype(float) - 3e7) + random.standard_normal(200)
    trained = train(rules.text("linear"), {"x": x, "y": y})
    assert trained.centres.label == pytest.approx(5e7, abs=20)
    assert len(str(int(trained.centres.label)).rstrip("0")) <= 7
    assert trained.centres.features == (() if kind is np.float32 else (pytest.approx(3e7, abs=20),))
    slope = np.polyfit(x.astype(float) - 3e7, y - 5e7, 1)[0]
    assert trained.coefficients is not None
    assert trained.coefficients["values"][0][0] == pytest.approx(slope, rel=1e-4)
    assert trained.predict({"x": x}).dtype == np.float64
    assert ((trained.predict({"x": x}) - y) ** 2).mean() == pytest.approx(1, rel=0.3)
