"""The multiplier has NumPy's bits; 10 million vectors with DANA_TEST_SCALE=20."""

import pytest

from hwgen.rtl.arith.mul import FloatMul
from hwgen.spec import numerics, timing
from tests.hwgen import vectors
from tests.hwgen.arith.harness import Unit


@pytest.mark.parametrize(
    ("latency", "narrow"), [(timing.MUL_LATENCY, True), (timing.MUL_LATENCY, False), (timing.MUL_LATENCY + 1, True)]
)
def test_product(latency: int, narrow: bool) -> None:
    unit = Unit(FloatMul(latency=latency, narrow=narrow), latency=latency)
    a, b = vectors.pairs(vectors.scaled(500_000), seed=latency + 10 * narrow)
    vectors.same_bits(unit(a=a, b=b)["result"].view("f4"), numerics.mul(a, b), a, b)
