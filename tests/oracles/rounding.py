"""Numbers that rounding may get wrong, and what the machine's operations made of others are of them, by NumPy.

Every exponent with both signs, halves and quarters, neighbours of whole numbers and of 2^22 to 2^25, subnormals (a
machine's operand is then a zero of the same sign, where NumPy's floor of a negative one is -1, its ceil of a positive
one 1), zeros, infinities, NaN.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from hwgen.spec import numerics

Floats = npt.NDArray[np.float32]

MEANING = {"floor": np.floor, "ceil": np.ceil, "round": np.rint}


def numbers() -> Floats:
    """A few thousand of them, both signs."""
    rng = np.random.default_rng(3)
    mantissas = np.stack([*(np.full(256, m) for m in (0, 1, 0x400000, 0x7FFFFF)), rng.integers(0, 1 << 23, 256)])
    every = (np.arange(256) << 23 | mantissas).astype(np.uint32).view(np.float32).reshape(-1)
    quarters = np.arange(200, dtype=np.float32) / 4
    large = np.concatenate([np.float32(2**k) + np.arange(-6, 7, dtype=np.float32) / 2 for k in range(22, 26)])
    near = np.concatenate([quarters, large])
    values = np.concatenate([every, near, np.nextafter(near, np.float32(0)), np.nextafter(near, np.float32(np.inf))])
    return np.concatenate([values, -values])


def expected(name: str, values: Floats) -> Floats:
    """What comes of them, a NaN in its one form."""
    return numerics.flush(MEANING[name](numerics.flush(values)))
