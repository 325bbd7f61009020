"""The interpreter stays within the derived error of binary32, and a wrong interpreter does not."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, reject
from hypothesis import strategies as st

import hwgen.spec.numerics as numerics
from dsl import compile_rule
from dsl.hdfg.graph import Graph, Op
from dsl.hdfg.interpreter import Interpreter
from tests.dsl.data import random_columns
from tests.dsl.programs import rules
from tests.dsl.rules import DIMS, HEAD, RULES
from tests.oracles import running_error as real
from tests.oracles.functions import FUNCTIONS
from tests.oracles.running_error import Bounded, RealTraining, Undecided
from tests.scale import randomised

COUNT = 19
EPOCHS = 2


def misses(graph: Graph, count: int, arithmetic: Any = numerics, seed: int = 1) -> tuple[float, float]:
    """How often the distance to real arithmetic goes beyond its bound, at most; and the largest finite relative bound.

    A value of 1 is just within the bound. Elements without a bound (they may overflow …) say nothing.
    """
    columns = random_columns(graph, count, seed)
    interpreter = Interpreter(graph, arithmetic)
    found = interpreter.train(columns, epochs=EPOCHS)
    models, losses = RealTraining(graph).train(columns, interpreter.start(), EPOCHS)
    assert len(losses) == len(found.losses)
    pairs = [(found.models[name], models[name]) for name in models]
    pairs += [(np.float64(mine), loss) for mine, loss in zip(found.losses, losses, strict=True)]
    worst, widest = 0.0, 0.0
    for mine, (value, error) in pairs:
        said = np.isfinite(error)
        distance = np.abs(np.asarray(mine, dtype=np.float64)[said] - value[said])
        assert not np.isnan(distance).any()
        ratio = distance / np.maximum(error[said], 1e-300)
        worst = max(worst, float(np.max(ratio, initial=0.0)))
        scale = np.max(np.abs(value[said]), initial=1.0)
        widest = max(widest, float(np.max(error[said], initial=0.0) / scale), 0.0 if said.all() else np.inf)
    return worst, widest


def bound(name: str) -> Graph:
    graph = compile_rule(RULES[name]).hdfg
    return graph.bind(DIMS.get(name, dict.fromkeys(graph.dims, 7)))


DIVIDED = ("centres", "softmax")
"""Rules in which a divisor may be so near to zero that nothing bounds the quotient."""


@pytest.mark.parametrize("name", sorted(RULES))
def test_shared_rules_stay_within_their_bound(name: str) -> None:
    worst, widest = misses(bound(name), COUNT)
    assert worst <= 1
    assert widest < 1e-3 or name in DIVIDED  # the bound says something


@randomised(80)
@given(rules(), st.integers(1, 9), st.integers(1, 9))
def test_generated_rules_stay_within_their_bound(text: str, n: int, count: int) -> None:
    graph = compile_rule(text).hdfg
    try:
        worst, widest = misses(graph.bind(dict.fromkeys(graph.dims, n)), count, seed=n)
    except Undecided:
        reject()  # and draw another in its place
    assume(widest < np.inf)  # a rule whose numbers may all overflow says nothing
    assert worst <= 1, text


ALONE = {
    "add": "w + x",
    "sub": "w - x",
    "mul": "w * x",
    "div": "w / x",
    "sqrt": "dana.sqrt(dana.abs(x))",
    **{name: f"dana.{name}(x)" for name in FUNCTIONS},
    "log": "dana.log(dana.abs(x))",
    "fold": "dana.sigma(x, 1)",
    "tree": 'rule.merge(dana.abs(x), dana.all, "+")',
}


@pytest.mark.parametrize("operation", ALONE)
def test_an_operation_that_is_a_little_off_is_found(operation: str) -> None:
    """The bound is narrow: 32 units in the last place too much are beyond it."""
    text = HEAD + f"w = dana.model([n], init=0.3)\nrule = dana.algo(w, x, y)\nrule.setModel({ALONE[operation]})\n"
    graph = compile_rule(text).hdfg.bind({"n": 7})
    broken = SimpleNamespace(**vars(numerics))

    def off(*arguments: Any) -> Any:
        return np.float32(getattr(numerics, operation)(*arguments) * np.float32(1 + 2.0**-18))

    setattr(broken, operation, off)
    assert misses(graph, COUNT)[0] <= 1
    assert misses(graph, COUNT, broken)[0] > 1


def test_a_bound_holds_what_it_should() -> None:
    a = Bounded(np.float64(1.0), np.float64(0.25))
    b = Bounded(np.float64(2.0), np.float64(0.0))
    for op, low, high in ((real.add, 2.75, 3.25), (real.mul, 1.5, 2.5), (real.div, 0.375, 0.625)):
        value, error = op(a, b)
        assert value - error <= low < high <= value + error
        assert error < (high - low) / 2 * 1.001
    assert real.OPERATIONS[Op.LT](a, b) == (1.0, 0.0)
    assert real.OPERATIONS[Op.LT](a, Bounded(np.float64(1.1), np.float64(0.0))).error == 1.0
    assert real.OPERATIONS[Op.LOG](Bounded(np.float64(0.1), np.float64(0.2))).error == np.inf
