"""The adder has NumPy's bits; 10 million vectors with DANA_TEST_SCALE=20."""

import numpy as np

from hwgen.rtl.arith.add import FloatAdd
from hwgen.spec import numerics, timing
from tests.hwgen import vectors
from tests.hwgen.arith.harness import Unit
from tests.scale import scaled


def test_sum_and_difference() -> None:
    unit = Unit(FloatAdd(), latency=timing.ADD_LATENCY)
    a, b = vectors.pairs(scaled(500_000), seed=6)
    subtract = np.random.default_rng(0).integers(0, 2, a.shape).astype(bool)
    want = np.where(subtract, numerics.sub(a, b).view(np.uint32), numerics.add(a, b).view(np.uint32))
    vectors.same_bits(unit(a=a, b=b, subtract=subtract)["result"], want, a, b)
