"""The multiplier has NumPy's bits; 10 million vectors with DANA_TEST_SCALE=20."""

import pytest

from hwgen.rtl.arith.mul import FloatMul
from hwgen.spec import numerics, timing
from tests.hwgen import vectors
from tests.hwgen.arith.harness import Unit
from tests.scale import scaled


@pytest.mark.parametrize("narrow", [True, False])
def test_product(narrow: bool) -> None:
    unit = Unit(FloatMul(narrow=narrow), latency=timing.MUL_LATENCY)
    a, b = vectors.pairs(scaled(500_000), seed=6 + 10 * narrow)
    vectors.same_bits(unit(a=a, b=b)["result"].view("f4"), numerics.mul(a, b), a, b)
