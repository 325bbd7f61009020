"""Numbers that come as JSON with a training: true is none, nor is what binary64 does not hold."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import numpy as np
import pytest

from dana import rules
from dana.errors import UsageError
from dana.language.trainable import TrainableRule
from dana.storage.declared import declared
from dana.trainer.contract import Level, Notice, SqlState, TrainingError
from dana.trainer.data.weights import given_class_weights
from dana.trainer.designs import check_hyper, chosen_extents
from dana.trainer.metas import meta_values
from dana.trainer.streams import declared_request
from dsl import Rule, compile_rule

DEFAULTS = {"lr": 0.1, "penalty": 0.0}


def test_the_caller_s_numbers_replace_the_rule_s() -> None:
    assert meta_values(DEFAULTS, {"lr": 2}) == {"lr": 2.0, "penalty": 0.0}
    assert meta_values(DEFAULTS, {"k": 3, "lr": -0.5}, {"k": 2}) == {"lr": -0.5, "penalty": 0.0}


@pytest.mark.parametrize("value", [True, False, "1", None, [1], {}, math.inf, -math.inf, math.nan, 10**400])
def test_what_is_no_number_is_refused(value: object) -> None:
    with pytest.raises(TrainingError, match="hyperparameter 'lr' must be a finite number, not ") as raised:
        meta_values(DEFAULTS, {"lr": value})
    assert len(str(raised.value)) < 200


@pytest.mark.parametrize("value", [1e39, -3.5e38])
def test_a_number_beyond_binary32(value: float) -> None:
    with pytest.raises(TrainingError, match=r"hyperparameter 'lr' is .*e\+3., which is infinite in binary32"):
        meta_values(DEFAULTS, {"lr": value})


def test_a_name_that_the_rule_has_not() -> None:
    with pytest.raises(TrainingError, match="has no hyperparameter 'rate'; it has: k, lr, penalty"):
        meta_values(DEFAULTS, {"rate": 1}, {"k": 2})


def test_extents_that_a_caller_chooses() -> None:
    assert chosen_extents({"k": 2, "h": 3}, {"k": 5.0, "lr": 0.5}) == {"k": 5}


@pytest.mark.parametrize("value", [True, 0, 1.5, -1, "3", None, 1 << 40, math.nan, math.inf])
def test_an_extent_is_a_whole_number(value: object) -> None:
    with pytest.raises(UsageError, match="'k' is an extent of the rule and must be a whole number from 1 to "):
        chosen_extents({"k": 2}, {"k": value})


RULE = compile_rule(rules.text("logistic"), filename="logistic")
REQUEST = replace(declared_request(RULE, declared("a float4, y int4"), label="y"), classes=("no", "yes"))


def test_weights_of_classes() -> None:
    assert given_class_weights(replace(REQUEST, class_weight={"yes": 5}), 2).tolist() == [1, 5]
    assert given_class_weights(replace(REQUEST, class_weight={"no": 0}), 2).tolist() == [0, 1]


@pytest.mark.parametrize("weight", [True, "1", None, -1, math.nan, math.inf, 1e31])
def test_a_weight_is_a_number_from_0(weight: object) -> None:
    with pytest.raises(TrainingError, match=r'"class_weight" must give numbers from 0 to 1e\+30, not .* to "yes"'):
        given_class_weights(replace(REQUEST, class_weight={"yes": weight}), 2)


REQUIRED = {
    "dropout(x, {})": (1, -0.1, 1.5, 0.99),
    "batch_norm(rule, x, 8, keep={})": (1, -0.1, 0),
    "batch_norm(rule, x, 8, epsilon={})": (-1e-5, 0),
    "momentum(w, 2 * w, keep={})": (1, -0.1, 0),
    "nesterov(w, 2 * w, keep={})": (1, 2, 0.9),
    "adagrad(w, 2 * w, epsilon={})": (-1, 0),
    "rmsprop(w, 2 * w, keep={})": (1, 0.5),
    "rmsprop(w, 2 * w, epsilon={})": (-1, 1),
    "adam(w, 2 * w, keep={})": (1, -0.1, 0),
    "adam(w, 2 * w, keep_squares={})": (1, -1, 0),
    "adam(w, 2 * w, epsilon={})": (-1e-8, 0),
    "inverse_decay(0.1, {}) * w": (-1, 0),
    "exponential_decay(0.1, {}) * w": (0, 1.01, 1),
    "steady_rate({}, w * w)": (0, -1, 0.5),
    "running_mean(w, {})": (1, -1, 0),
    "clip(x, {})": (-1, 0),
    "clip_norm(x, {})": (-1, 0, 0.5),
    "l2(w, x, {})": (-1, 0),
    "l1(w, x, {})": (-1, 0),
    "soft_threshold(w, {})": (-1, 0),
}
"""Calls, and numbers for them, of which the last one is right."""


@pytest.mark.parametrize("call", REQUIRED)
def test_numbers_that_make_no_sense(call: str) -> None:
    """Literals are refused with the text, metas by their defaults and where a training chooses them."""
    text = (
        "import dana\nfrom dana.functions import *\nfrom dana.optimizers import *\nn = dana.dim()\n"
        "w = dana.model([n])\nx = dana.input([n])\nm = dana.meta({default})\nrule = dana.algo(w, x)\nv = {call}\n"
        'rule.setModel(w + rule.merge(v + x, 8, "+"))\n'
    )
    *wrong, right = REQUIRED[call]
    rule = Rule(text.format(default=right, call=call.format("m")))
    assert not rule.diagnostics
    for number in wrong:
        literal, default = (
            text.format(default=right, call=call.format(number)),
            text.format(default=number, call=call.format("m")),
        )
        for one in (literal, default):
            assert [(error.code, error.span and error.span.line) for error in Rule(one).diagnostics] == [("E318", 9)]
        (broken,) = rule.unmet({"m": number})
        assert broken.title.startswith(f"{call.split('(')[0]} needs ")
        assert f"= {number:g}, the meta m" in broken.found
    assert not rule.unmet({"m": right})


def test_batches_of_one_row_that_a_training_chooses() -> None:
    """Values of a batch in its rows are the rows themselves; a rule that only sums has batches of any size."""
    text = (
        "import dana\nw = dana.model([3])\nx = dana.input([3])\nsize = dana.meta(8)\nrule = dana.algo(w, x)\n"
        'v = {}\nrule.setModel(w + rule.merge(v * v, size, "mean"))\n'
    )
    columns = declared("x float4[3]")
    for value, warned in (('x - rule.merge(x, size, "mean")', True), ("x", False)):
        asked = declared_request(Rule(text.format(value)), columns)
        told: list[Notice] = []
        for size in (1, 2):
            check_hyper(replace(asked, hyper={"size": size}), told.append)
        assert [one.level for one in told] == [Level.WARNING] * warned
        assert all("and size = 1 makes each row a batch" in one.message for one in told)


DROPPED = """\
import dana
w = dana.model([3])
x = dana.input([3])
y = dana.output()
rate = dana.meta(0.5)
size = dana.meta(8)
rule = dana.algo(w, x, y)
e = w @ dana.functions.dropout(x, 2 * rate - 0.5) - y
rule.setLoss(e * e)
rule.minimize(dana.optimizers.sgd, batch=size)
dana.require(size > 1)
"""


@pytest.mark.parametrize("machine", ["sim", "interp"])
@pytest.mark.parametrize(
    ("hyper", "message"),
    [
        ({"rate": 0.75}, "dropout needs rate < 1, but hyper makes it rate = 1$"),
        ({"rate": 0.2}, "dropout needs rate >= 0, but hyper makes it rate = -0.1$"),
        ({"size": 1}, "the rule needs size > 1, but hyper makes it size = 1$"),
    ],
)
def test_metas_that_a_training_cannot_have(machine: str, hyper: dict[str, float], message: str) -> None:
    rule = TrainableRule(DROPPED)
    x, y = np.random.default_rng(1).normal(size=(9, 3)), np.arange(9.0)
    for call in (lambda: rule.fit(x, y, hyper=hyper, machine=machine), lambda: rule.step(x[:8], y[:8], hyper=hyper)):
        with pytest.raises(TrainingError) as raised:
            call()
        assert re.search(message, raised.value.message)
        assert DROPPED.splitlines()[10 if "size" in hyper else 7] in raised.value.detail
    assert rule.fit(x, y, epochs=1, hyper={"rate": 0.7, "size": 2}, machine=machine).losses


@pytest.mark.parametrize("machine", ["sim", "interp"])
@pytest.mark.parametrize(
    ("name", "hyper"),
    [("quantile", {"q": 0}), ("quantile", {"q": 1}), ("huber", {"epsilon": 0}), ("elastic_net", {"l1_ratio": 2})],
)
def test_the_library_s_metas_have_a_range(machine: str, name: str, hyper: dict[str, float]) -> None:
    ((meta, number),) = hyper.items()
    with pytest.raises(TrainingError, match=f"the rule needs {meta} .* but hyper makes it {meta} = {number}"):
        getattr(rules, name).fit(np.eye(3), np.arange(3.0), hyper=hyper, machine=machine)


@pytest.mark.parametrize("standardize", [None, False])
@pytest.mark.parametrize("machine", ["sim", "interp"])
def test_labels_that_a_rule_cannot_have(machine: str, standardize: bool | None) -> None:
    """The least label and the largest one are known of any table; a row of weight 0 is as if it were not there."""
    x, y = np.random.default_rng(1).normal(size=(40, 3)), np.arange(40.0) - 1
    asked = {"machine": machine, "standardize": standardize, "epochs": 2}
    with pytest.raises(TrainingError, match="the rule needs y >= 0, but array y makes it y = -1") as raised:
        rules.poisson.fit(x, y, **asked)
    assert raised.value.sqlstate == SqlState.DATA_EXCEPTION
    assert rules.poisson.fit(x, y, weight=(y >= 0).astype(float), **asked).losses
    below = TrainableRule(rules.text("lasso") + "dana.require(2 * y <= 38 + penalty)\n")
    with pytest.raises(TrainingError, match=r"needs 2 \* y <= 38 \+ penalty, but array y makes it y = 38; penal"):
        below.fit(x, y, **asked)
    assert below.fit(x[:-19], y[:-19], **asked).losses
