"""Random numbers: what they are exactly, what they count, and that statistics finds nothing in them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

import numpy as np
import pytest
from numpy.typing import NDArray

from dsl import Rule, compile_rule
from dsl.hdfg.interpreter import Interpreter
from hwgen.spec import numerics
from tests.oracles.uniform import uniform

Floats = NDArray[np.float32]
RULE = """
import dana
w = dana.model({shape})
x = dana.input()
rule = dana.algo(w, x)
{calls}u = dana.random({shape}, seed={seed})
rule.setModel(w, w + 0 * rule.merge(x, {batch}, "+") + 0 * rule.merge(u, {batch}, "+"))
"""


def drawn(
    rows: int, shape: Sequence[int] = (), *, epoch: int = 0, seed: int = 0, call: int = 0, first: int = 0
) -> Floats:
    """The numbers of rows in a batch, of shape [rows, *shape]."""
    models = {"dana.row": first, "dana.epoch": epoch}
    return drawing(rows, tuple(shape), seed, call).step({"x": np.zeros(rows)}, models=models).values["u"]


@cache
def drawing(rows: int, shape: tuple[int, ...], seed: int, call: int) -> Interpreter:
    calls = "".join(f"v{k} = dana.random()\n" for k in range(call))
    text = RULE.format(shape=list(shape), seed=seed, batch=rows, calls=calls)
    return Interpreter(compile_rule(text).hdfg, numerics)


@pytest.mark.parametrize("shape", [(), (1,), (70,), (3, 5), (2, 3, 4)])
@pytest.mark.parametrize(("epoch", "seed", "call"), [(0, 0, 0), (1, 0, 0), (5000, 7, 2)])
@pytest.mark.parametrize("first", [0, 4080, (1 << 23) - 10])
def test_they_are_arithmetic_on_whole_numbers(
    shape: tuple[int, ...], epoch: int, seed: int, call: int, first: int
) -> None:
    found = drawn(20, shape, epoch=epoch, seed=seed, call=call, first=first).reshape(20, -1).astype(np.float64)
    for row in range(20):
        for element in range(found.shape[1]):
            exact = uniform(first + row, element, epoch=epoch, seed=seed, call=call)
            # rounded three times; nearly 0 may have come out nearly 1
            away = abs(float(exact) - found[row, element])
            assert min(away, 1 - away) < 2.0**-23
    assert ((found >= 0) & (found < 1)).all()


# Statistics


def unlikely(square: float, freedom: int) -> float:
    """By how many deviations a chi-square is off (Wilson, Hilferty 1931): normally distributed where all is well."""
    return float(((square / freedom) ** (1 / 3) - (1 - 2 / (9 * freedom))) / (2 / (9 * freedom)) ** 0.5)


def filled(*numbers: Floats, bins: int) -> float:
    """Of points of so many coordinates: by how many deviations the counts in boxes are off."""
    place = np.zeros(numbers[0].shape, np.int64)
    for one in numbers:
        place = place * bins + np.floor(one * bins).astype(np.int64)
    counts = np.bincount(place.ravel(), minlength=bins ** len(numbers))
    expected = place.size / counts.size
    return unlikely(float(((counts - expected) ** 2).sum() / expected), counts.size - 1)


def spread(numbers: Floats) -> float:
    """By how many deviations the sums of the columns spread more, or less, than those of independent numbers."""
    rows, columns = numbers.shape
    square = float(((numbers.astype(np.float64).sum(axis=0) - rows / 2) ** 2).sum() * 12 / rows)
    return unlikely(square, columns)


LAGS = (1, 2, 3, 7, 8, 64, 1000, 4091, 4093)
Draw = Callable[[int], Floats]


def findings(draw: Draw) -> dict[str, float]:
    """Deviations of each test; `draw` gives the numbers [rows, elements] of an epoch."""
    u = draw(0)
    found = {f"{bins} bins": filled(u, bins=bins) for bins in (2, 16, 256, 4096)}
    found |= {f"row lag {lag}": filled(u[lag:], u[:-lag], bins=16) for lag in LAGS}
    found |= {f"element lag {lag}": filled(u[:, lag:], u[:, :-lag], bins=16) for lag in (1, 2, 3, 8, 32)}
    found["three rows"] = filled(u[2:], u[1:-1], u[:-2], bins=8)
    found["three elements"] = filled(u[:, 2:], u[:, 1:-1], u[:, :-2], bins=8)
    found["a square"] = filled(u[1:, 1:], u[1:, :-1], u[:-1, 1:], u[:-1, :-1], bins=4)
    found |= {f"epochs 0 and {epoch}": filled(draw(epoch), u, bins=16) for epoch in (1, 2, 3, 10)}
    found["sums of rows"] = spread(u.T)
    found["sums of elements"] = spread(u[:4000])
    found["sums of units dropped"] = spread(0.5 + ((u[:4000] < 0.5) - 0.5) / 3**0.5)
    found["pairs of elements"] = max(
        (filled(u[:, i], u[:, j], bins=8) for i in range(0, 64, 5) for j in range(i + 1, 64, 7)), key=abs
    )
    found["pairs of rows"] = max(
        (filled(u[i], u[j], bins=2) for i in range(0, 400, 3) for j in range(i + 1, i + 20, 4)), key=abs
    )
    return found


MOST = 4.5
"""Deviations that chance does not bring about in a hundred tests; pairs are many tests more."""


def test_statistics_finds_nothing() -> None:
    found = findings(lambda epoch: drawn(6_000, (64,), epoch=epoch))
    assert {name: off for name, off in found.items() if abs(off) > MOST} == {}
    off = np.array(list(found.values()))
    assert abs(off.mean()) < 1, "nor are they all too even"


def test_calls_and_seeds_are_independent() -> None:
    u = drawn(6_000, (64,))
    for other in (drawn(6_000, (64,), call=1), drawn(6_000, (64,), seed=1), drawn(6_000, (8, 8), call=3)):
        assert abs(filled(u, other.reshape(u.shape), bins=16)) < MOST


def test_one_row_over_many_epochs() -> None:
    over = np.stack([drawn(8, (16,), epoch=epoch).ravel() for epoch in range(300)])
    assert abs(filled(over, bins=64)) < MOST
    assert abs(filled(over[1:], over[:-1], bins=8)) < MOST
    assert abs(spread(over)) < MOST


def lattice(epoch: int) -> Floats:
    """A linear congruence of row, element and epoch: each number alone is uniform."""
    row, element = np.arange(6_000)[:, None], np.arange(64)[None, :]
    return ((row * 16807.0 + element * 69621.0 + epoch * 39373.0) % 65537.0 / 65537.0).astype(np.float32)


def repeated(epoch: int) -> Floats:
    return np.random.default_rng(0).random((6_000, 64), np.float32)


def alike_in_a_row(epoch: int) -> Floats:
    """NumPy's, of which neighbours among the elements share a tenth of their variance."""
    u = np.random.default_rng(epoch).random((6_000, 65), np.float32)
    return np.where(np.random.default_rng([epoch, 1]).random((6_000, 64)) < 0.03, u[:, 1:], u[:, :-1])


@pytest.mark.parametrize("draw", [lattice, repeated, alike_in_a_row])
def test_the_tests_find_what_is_not_random(draw: Draw) -> None:
    assert max(map(abs, findings(draw).values())) > 2 * MOST


def test_the_tests_find_nothing_in_numpy_s() -> None:
    found = findings(lambda epoch: np.random.default_rng(epoch).random((6_000, 64), np.float32))
    assert {name: off for name, off in found.items() if abs(off) > MOST} == {}


# What is counted

COUNTING = """
import dana
w = dana.model()
last = dana.model([3])
x = dana.input()
lr = dana.meta(0.5)
size = dana.meta({size})
rule = dana.algo(w, last, x)
u = dana.random()
rule.setModel(w, rule.merge(u, {batch}, "+"))
rule.setModel(last, [dana.epoch, dana.batch, dana.rows])
rule.setLoss(u + 0 * x)
"""


@pytest.mark.parametrize(("batch", "size"), [("1", 4), ("4", 4), ("size", 3), ("size", 4), ("dana.all", 4), ("64", 4)])
def test_a_row_has_its_numbers_whatever_the_batch(batch: str, size: int) -> None:
    """Ten rows, two epochs: the loss is the mean over the rows' own numbers."""
    graph = compile_rule(COUNTING.format(batch=batch, size=size)).hdfg
    found = Interpreter(graph, numerics).train({"x": np.zeros(10)}, epochs=2)
    for epoch, loss in enumerate(found.losses):
        exact = [float(uniform(row, 0, epoch=epoch)) for row in range(10)]
        assert loss == pytest.approx(np.mean(exact), rel=1e-6)
    whole = {"1": 1, "4": 4, "size": size, "dana.all": 10, "64": 64}[batch]
    np.testing.assert_array_equal(found.models["last"], [1, -(-10 // whole) - 1, 10])


def test_counts_of_a_training_that_goes_on() -> None:
    graph = compile_rule(COUNTING.format(batch="4", size=4)).hdfg
    interpreter = Interpreter(graph, numerics)
    whole = interpreter.train({"x": np.zeros(10)}, epochs=3)
    half = interpreter.train({"x": np.zeros(10)}, epochs=1)
    rest = interpreter.train({"x": np.zeros(10)}, models=half.models, epochs=2)
    assert (*half.losses, *rest.losses) == whole.losses
    assert {name: value.tolist() for name, value in rest.models.items()} == {
        name: value.tolist() for name, value in whole.models.items()
    }
    assert float(whole.models["dana.epoch"]) == 3
    assert float(whole.models["dana.batch"]) == float(whole.models["dana.row"]) == 0


COUNTLESS = COUNTING.replace("[dana.epoch, dana.batch, dana.rows]", "[1, 2, 3]").replace("dana.random()", "x")


def test_a_counter_costs_nothing_until_it_is_asked_for() -> None:
    graph = compile_rule(RULE.format(shape=[3], seed=0, batch=4, calls="")).hdfg
    assert [graph.nodes[k].name for k in graph.models] == ["w", "dana.row", "dana.epoch"]
    counts_nothing = compile_rule(COUNTLESS.format(batch=1, size=1)).hdfg
    assert [counts_nothing.nodes[k].name for k in (0, 1)] == ["w", "last"]


@pytest.mark.parametrize("text", [RULE.format(shape=[3], seed=0, batch=4, calls=""), COUNTLESS.format(batch=4, size=1)])
def test_what_is_never_called_counts_nothing(text: str) -> None:
    never = "def f(a):\n    return dana.random() * dana.rows + dana.batch\n"
    assert compile_rule(text + never).hdfg == compile_rule(text).hdfg


def test_gradients_take_them_for_constants() -> None:
    text = """
import dana
n = dana.dim()
w = dana.model([n])
x = dana.input([n])
rule = dana.algo(w, x)
g = dana.gradient(dana.sigma(w * x * dana.random(x)) * (1 + dana.epoch), w)
rule.setModel(w, w - rule.merge(g, 4, "mean"))
rule.setLoss(dana.sigma(g))
"""
    graph = compile_rule(text).hdfg.bind({"n": 3})
    X = np.arange(6, dtype=np.float32).reshape(2, 3)
    found = Interpreter(graph, numerics).step({"x": X}, models={"dana.epoch": 2}).values["g"]
    exact = [[3 * X[r, e] * float(uniform(r, e, epoch=2)) for e in range(3)] for r in range(2)]
    np.testing.assert_allclose(found, exact, rtol=1e-6)
    for wrong in ("* x), dana.random(x))", "* x * dana.random(x)), dana.epoch)"):
        found_in = Rule(text.replace("* x * dana.random(x)) * (1 + dana.epoch), w)", wrong)).diagnostics
        assert "E521" in [one.code for one in found_in]
