"""Numbers that come as JSON with a training: true is none, nor is what binary64 does not hold."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from dana import rules
from dana.errors import UsageError
from dana.runtime.designs import chosen_extents
from dana.runtime.metas import meta_values
from dana.runtime.streams import declared_request
from dana.runtime.trainer import TrainingError
from dana.runtime.weights import given_class_weights
from dana.storage.declared import declared
from dsl import compile_rule

DEFAULTS = {"lr": 0.1, "penalty": 0.0}


def test_the_caller_s_numbers_replace_the_rule_s() -> None:
    assert meta_values(DEFAULTS, {"lr": 2}) == {"lr": 2.0, "penalty": 0.0}
    assert meta_values(DEFAULTS, {"k": 3, "lr": -0.5}, {"k": 2}) == {"lr": -0.5, "penalty": 0.0}


@pytest.mark.parametrize("value", [True, False, "1", None, [1], {}, math.inf, -math.inf, math.nan, 10**400])
def test_what_is_no_number_is_refused(value: object) -> None:
    with pytest.raises(TrainingError, match="hyperparameter 'lr' must be a finite number, not ") as raised:
        meta_values(DEFAULTS, {"lr": value})
    assert len(str(raised.value)) < 200


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
