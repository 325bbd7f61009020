"""Weights of rows and of classes, on the simulator and in the interpreter: what a rule makes of them."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import balanced_accuracy_score, recall_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from dana import rules
from dana.codesign.default import default_bundle
from dana.compiler import bind
from dana.errors import UsageError
from dana.storage.columns import column_schema
from dana.trainer.arrays import Trained, train
from dana.trainer.contract import TrainingError
from dsl import RuleError, compile_rule
from tests.rules.tables import EXTENTS, WITHOUT_LABEL, table

WEIGHTED = tuple(name for name in rules.NAMES if "dana.weight()" in rules.text(name))
UNWEIGHTED = ("kmeans", "pca", "lrmf_dense")

WHOLE = """
import dana
from dana.functions import standardized
n = dana.dim()
w = dana.model([n])
x = dana.input([n])
y = dana.output()
weight = dana.weight()
whole = dana.algo(w, x, y, weight)
z = standardized(x)
e = weight * (dana.sigma(w * z, 1) - y)
whole.setModel(w - 0.002 * whole.merge(e * z, dana.all, "+"))
whole.setLoss(e * e)
whole.setPrediction(dana.sigma(w * z, 1))
whole.setEpochs(30)
"""


def without_weight(text: str) -> str:
    """The rule with the weight taken out of its text."""
    text = re.sub(r"weight = dana\.weight\(\)\n", "", text).replace(", weight)", ")")
    text = text.replace("dana.max(weight, 1e-30) + ", "1 + ").replace("dana.max(weight, 1e-30) * ", "")
    text = re.sub(r" \* weight\b|\bweight \* ", "", text).replace("merge(weight, ", "merge(1, ")
    assert not re.search(r"\bweight\b", text), text
    return text


def test_supervised_rules_take_weights() -> None:
    assert set(WEIGHTED) | set(UNWEIGHTED) == set(rules.NAMES)


@pytest.mark.parametrize("name", WEIGHTED)
def test_without_weights_the_bundle_is_that_of_a_rule_without(name: str) -> None:
    """Program, image and cycles: what nobody asks for costs nothing."""
    schema = column_schema(table(name, count=50, features=3))
    made = [
        default_bundle(bind(compile_rule(text).hdfg, schema, extents=EXTENTS.get(name)), schema, max_tuples=1000)
        for text in (rules.text(name), without_weight(rules.text(name)))
    ]
    if "_gradients" in rules.text(name):  # which counts rows by the number 1: nodes have another order
        assert len(made[0].program) <= len(made[1].program)
        assert len(made[0].image) == len(made[1].image)
    else:
        assert made[0].to_bytes() == made[1].to_bytes()


def models(trained: Trained) -> dict[str, NDArray[Any]]:
    # a row of weight 2 counts as one; what steps leave behind at the optimum is rounding
    left = (
        ".classes",
        "dana.rows",
        ".direction",
        ".last",
        ".start",
        ".gained",
        ".gained_before",
        ".last_gradient",
        ".pace",
        ".seen",
    )
    return {name: values for name, values in trained.models.items() if not name.endswith(left)}


def assert_near(one: Trained, other: Trained) -> None:
    for name, values in models(other).items():
        np.testing.assert_allclose(one.models[name], values, rtol=2e-4, atol=2e-5, err_msg=name)


OPTIONS: dict[str, Any] = {"epochs": 20, "patience": 0}
ROW_BY_ROW = ("lrmf", "bpr", "word2vec", "fm", "dlrm", "autoint")
"""A row twice is a step twice there, not one of twice the length."""


def label(name: str) -> str | None:
    return None if name in WITHOUT_LABEL else "y"


@pytest.mark.parametrize("machine", ["sim", "interp"])
@pytest.mark.parametrize(
    "name", ["whole", *(one for one in WEIGHTED if one not in (*ROW_BY_ROW, "quantile", "huber", "mlp"))]
)
def test_a_weight_is_a_number_of_rows(name: str, machine: str) -> None:
    """Of one batch: 2 is the row twice, 0 the row left out; means, scales and rates included."""
    text = WHOLE if name == "whole" else rules.text(name)
    columns = table("linear" if name == "whole" else name, count=40, features=3)
    count = np.ones(40, np.intp)
    count[[3, 11, 12]], count[[5, 39]] = 2, 0
    repeated = {key: np.repeat(values, count) for key, values in columns.items()}
    options = {**OPTIONS, "label": "y", "hyper": EXTENTS.get(name), "machine": machine}
    assert_near(train(text, {**columns, "v": count}, weight="v", **options), train(text, repeated, **options))


@pytest.mark.parametrize("name", WEIGHTED)
def test_weights_of_1_change_nothing_but_the_label_may_be_last(name: str) -> None:
    columns = table(name)
    options = {**OPTIONS, "epochs": 3, "hyper": EXTENTS.get(name)}
    plain = train(rules.text(name), columns, label=label(name), **options)
    same = train(rules.text(name), {**columns, "v": np.ones(150)}, weight="v", **options)
    assert same.features == plain.features
    for key, values in plain.models.items():
        assert same.models[key].tobytes() == values.tobytes(), key
    assert same.losses == plain.losses


@pytest.mark.parametrize("name", WEIGHTED)
def test_batches_of_weight_0_do_no_harm(name: str) -> None:
    """The first batch, and one in the middle: nothing is divided by their curvature."""
    columns = table(name, count=320)
    weights = np.ones(320)
    weights[:64] = weights[128:192] = 0
    options = {"label": label(name), "weight": "v", "hyper": EXTENTS.get(name), "epochs": 3}
    found = train(rules.text(name), {**columns, "v": weights}, **options)
    assert all(np.isfinite(values).all() for values in found.models.values())


@pytest.mark.parametrize("name", [one for one in WEIGHTED if "classes=" in rules.text(one)])
@pytest.mark.parametrize("balanced", [True, False])
def test_class_weights_are_weights_by_label(name: str, balanced: bool) -> None:
    """Interpreter and simulator alike; with weights of rows they multiply, and balance counts those."""
    columns = table(name, count=90)
    own = np.random.default_rng(5).uniform(0.5, 2, 90).astype(np.float32)
    y = columns["y"].astype(int)
    sums = np.bincount(y, weights=own)
    wanted = own.astype(np.float64).sum() / (len(sums) * sums) if balanced else np.array([3.0, 0.25, 1.0])[: len(sums)]
    given = "balanced" if balanced else {"0": 3, "1.0": 0.25}
    options = {**OPTIONS, "label": "y", "hyper": EXTENTS.get(name), "epochs": 2}
    weighted = {**columns, "v": own}
    simulated, interpreted = (
        train(rules.text(name), weighted, weight="v", class_weight=given, machine=machine, **options)
        for machine in ("sim", "interp")
    )
    for key, values in interpreted.models.items():
        assert simulated.models[key].tobytes() == values.tobytes(), key
    np.testing.assert_allclose(simulated.models["weight.classes"], wanted, rtol=1e-6)
    alone = train(rules.text(name), columns, class_weight=given, **options)
    np.testing.assert_allclose(
        alone.models["weight.classes"],
        90 / (len(sums) * np.bincount(y)) if balanced else wanted,
        rtol=1e-6,
    )
    rows = simulated.models["weight.classes"][y]
    plain = train(rules.text(name), {**columns, "v": np.float32(own) * rows}, weight="v", standardize=False, **options)
    same = train(rules.text(name), weighted, weight="v", class_weight=given, standardize=False, **options)
    assert_near(same, plain)


@pytest.mark.parametrize("machine", ["sim", "interp"])
def test_balance_counts_the_classes_that_have_rows(machine: str) -> None:
    columns = table("softmax", count=90)
    options = {**OPTIONS, "label": "y", "hyper": {"k": 5}, "epochs": 1}
    found = train(rules.text("softmax"), columns, class_weight="balanced", machine=machine, **options)
    wanted = [*(90 / (3 * np.bincount(columns["y"].astype(int)))), 1, 1]
    np.testing.assert_allclose(found.models["weight.classes"], wanted, rtol=1e-6)


def test_balanced_classes_find_what_is_rare() -> None:
    """One in fifty: as scikit-learn's, on rows that neither has seen."""
    random = np.random.default_rng(2)
    y = (random.random(30000) < 1 / 51).astype(float)
    x = random.normal(size=(30000, 4)) * [1, 10, 100, 1] + y[:, None] * [1.0, 8, 0, 0.5]
    columns = {**{f"x{k}": x[:, k] for k in range(4)}, "y": y}
    first, rest = (
        {key: values[part] for key, values in columns.items()} for part in (slice(10000), slice(10000, None))
    )
    theirs = make_pipeline(StandardScaler(), LogisticRegression(class_weight="balanced")).fit(x[:10000], y[:10000])
    reference = balanced_accuracy_score(rest["y"], theirs.predict(x[10000:]))
    plain = train(rules.text("logistic"), first, label="y").predict(rest) > 0.5
    for name, least in (("logistic", 0.5), ("linear_svm", 0.0)):
        found = train(rules.text(name), first, label="y", class_weight="balanced").predict(rest) > least
        assert recall_score(rest["y"], found) > recall_score(rest["y"], plain) + 0.5
        assert balanced_accuracy_score(rest["y"], found) == pytest.approx(reference, abs=0.02)


def refusal(source: str, columns: Any, **options: Any) -> UsageError:
    with pytest.raises(TrainingError) as raised:
        train(source, columns, label="y", **options)
    return raised.value


def test_what_cannot_be_weighted_is_said() -> None:
    two = table("logistic", count=60)
    plain = refusal(without_weight(rules.text("logistic")), two, class_weight="balanced")
    assert plain.message == "rule 'logistic' takes no weights"
    assert "weight = dana.weight()" in plain.hint
    numbers = refusal(rules.text("linear"), table("linear"), class_weight="balanced")
    assert numbers.message == "rule 'linear' has no classes to give weights to"
    said = refusal(rules.text("logistic"), two, class_weight={"2": 1})
    assert said.message == 'argument "class_weight" names "2", which is none of the classes'
    for wrong in (-1, float("inf"), float("nan"), True, "1"):
        said = refusal(rules.text("logistic"), two, class_weight={"1": wrong})
        assert said.message.startswith('argument "class_weight" must give numbers from 0 to 1e+30')
    assert '"balanced", not' in refusal(rules.text("logistic"), two, class_weight="equal").message
    assert "does not exist" in refusal(rules.text("logistic"), two, weight="absent").message
    assert "used twice" in refusal(rules.text("logistic"), two, weight="y").message
    for values, message in ((-np.eye(60)[7], "negative"), (np.zeros(60), "has the weight 0")):
        assert message in refusal(rules.text("logistic"), {**two, "v": values}, weight="v").message


def test_a_rule_has_one_weight() -> None:
    text = WHOLE.replace("weight = dana.weight()", "weight = dana.weight()\nother = dana.weight()")
    with pytest.raises(RuleError, match="a rule has one weight"):
        compile_rule(text.replace("y, weight)", "y, weight, other)"))
    with pytest.raises(RuleError, match="a prediction cannot use the output or the weight"):
        compile_rule(WHOLE.replace("setPrediction(", "setPrediction(weight * "))
    with pytest.raises(RuleError, match="weight is used but not listed in the algo"):
        compile_rule(WHOLE.replace("y, weight)", "y)"))
