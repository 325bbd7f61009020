"""What is claimed of the functions that a table and a polynomial give: a row for each, for all tests.

Not from the code under test: the meaning is an expression that is C and Python, evaluated in binary64.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import autograd.numpy as anp

NAN, INF = float("nan"), float("inf")
NAMES = {name: getattr(anp, name) for name in ("exp", "log", "tanh", "sin", "cos", "rint", "fmod")} | {"M_PI": anp.pi}


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """One function.

    Attributes
    ----------
    meaning
        Of x, in the words that C and `NAMES` have in common.
    error
        The largest, of a normal result: units in the last place, or ``absolute``. docs/arithmetic.md states it.
    at
        Of NaN, infinity, -infinity, 0, -0.
    steepest
        The largest slope; infinite where it has none.
    slope_error
        Relative, of a slope with a constant that binary32 rounds.
    others
        How much more other software may be off, absolute; None: two units in the last place.
    """

    meaning: str
    error: float
    absolute: bool = False
    at: tuple[float, float, float, float, float]
    steepest: float = INF
    slope_error: float = 0.0
    others: float | None = None

    def exact(self, x: Any) -> Any:
        """In binary64; autograd can derive it."""
        return eval(self.meaning, {"x": x, **NAMES})


FUNCTIONS = {
    "sigmoid": Function(
        meaning="1 / (1 + exp(-x))",
        error=2.0**-23,
        absolute=True,
        at=(NAN, 1, 0, 0.5, 0.5),
        steepest=1 / 4,
        others=2.0**-21,
    ),
    "tanh": Function(meaning="tanh(x)", error=3.3, at=(NAN, 1, -1, 0.0, -0.0), steepest=1.0),
    "sinpi": Function(
        meaning="sin(M_PI * (x - rint(x))) * cos(M_PI * fmod(rint(x), 2))",
        error=3.0,
        at=(NAN, NAN, NAN, 0.0, -0.0),
        steepest=3.1416,
        slope_error=2.0**-25,
        others=2.0**-20,  # of an argument that was rounded
    ),
    # at sqrt(1 / 2)
    "gaussian": Function(meaning="exp(-x * x)", error=2.0, at=(NAN, 0, 0, 1, 1), steepest=0.8578),
    "exp": Function(meaning="exp(x)", error=2.0, at=(NAN, INF, 0, 1, 1)),
    "log": Function(meaning="log(x)", error=2.0, at=(NAN, INF, NAN, -INF, -INF)),
}
BOUNDED = [name for name, function in FUNCTIONS.items() if function.steepest < INF]
"""Those that random rules may use of anything."""
