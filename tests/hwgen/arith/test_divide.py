"""Division and square root have NumPy's bits, at the shortest interval, with noise on the inputs in between."""

import numpy as np
import pytest

from hwgen.rtl.arith.divide import FloatDivide
from hwgen.spec import numerics, timing
from tests.hwgen import vectors
from tests.hwgen.arith.harness import Unit
from tests.scale import scaled


def unit(*, divide: bool, root: bool, interval: int = 27) -> Unit:
    component = FloatDivide(divide=divide, root=root, interval=interval)
    return Unit(component, latency=timing.DIVIDE_LATENCY, interval=interval)


@pytest.mark.parametrize("root", [False, True])
def test_quotient(root: bool) -> None:
    a, b = vectors.pairs(scaled(50_000))
    got = unit(divide=True, root=root)(a=a, b=b, square_root=0)["result"].view(np.float32)
    vectors.same_bits(got, numerics.div(a, b), a, b)


@pytest.mark.parametrize("divide", [False, True])
def test_root(divide: bool) -> None:
    x = vectors.single(scaled(50_000))
    got = unit(divide=divide, root=True)(a=x, b=1.0, square_root=1)["result"].view(np.float32)
    vectors.same_bits(got, numerics.sqrt(x), x)


@pytest.mark.parametrize("interval", timing.DIVIDE_INTERVALS)
def test_both_in_turn(interval: int) -> None:
    a, b = vectors.pairs(scaled(20_000), seed=2)
    root = np.random.default_rng(2).integers(0, 2, a.shape).astype(bool)
    got = unit(divide=True, root=True, interval=interval)(a=a, b=b, square_root=root)["result"].view(np.float32)
    vectors.same_bits(got, np.where(root, numerics.sqrt(a), numerics.div(a, b)), a, b)
