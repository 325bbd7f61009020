"""Comparison and choice have NumPy's bits."""

from collections.abc import Callable

import numpy as np

from hwgen.rtl.arith.select import FloatSelect, Operation
from hwgen.spec import numerics, timing
from hwgen.spec.operations import Unit as OpUnit
from tests.hwgen import vectors
from tests.hwgen.arith.harness import Unit
from tests.oracles.operations import OPERATIONS
from tests.scale import scaled

MEANING: dict[Operation, Callable[[vectors.Floats, vectors.Floats], vectors.Floats]] = {
    Operation.MOV: lambda a, b: numerics.flush(a),
    Operation.SECOND: lambda a, b: numerics.flush(b),
    **{
        Operation[op.name]: meaning if op.operands == 2 else lambda a, b, of_one=meaning: of_one(a)
        for op, meaning in OPERATIONS.items()
        if op.unit is OpUnit.SELECT
    },
}


def test_every_operation() -> None:
    assert set(MEANING) == set(Operation)
    unit = Unit(FloatSelect(), latency=timing.SELECT_LATENCY)
    a, b = vectors.pairs(scaled(200_000), seed=3)
    # equal operands are rare otherwise
    b = np.where(np.arange(b.size) % 16 == 0, a, b)
    operations = np.random.default_rng(1).choice(list(Operation), a.shape)
    got = unit(a=a, b=b, operation=operations)
    want = np.empty_like(a)
    for operation, meaning in MEANING.items():
        chosen = operations == operation
        want[chosen] = meaning(a[chosen], b[chosen])
    vectors.same_bits(got["result"].view(np.float32), want, a, b, operations.astype(np.uint32))
    # a move that is written where b holds is the language's where
    written = np.where(got["holds"] == 1, numerics.flush(a), numerics.flush(b))
    vectors.same_bits(written, numerics.where(b, a, b), a, b)


def test_every_edge_with_every_edge() -> None:
    unit = Unit(FloatSelect(), latency=timing.SELECT_LATENCY)
    edges = vectors.floats(vectors.EDGES)
    a, b = (x.ravel() for x in np.meshgrid(edges, edges))
    for operation, meaning in MEANING.items():
        result = unit(a=a, b=b, operation=operation)["result"].view(np.float32)
        vectors.same_bits(result, meaning(a, b), a, b)
