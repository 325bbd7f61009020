"""The formats of the table-and-polynomial functions, in integers: one place for NumPy, C and RTL.

A function's argument is cut into a segment (a row of the table) and a position t in it, in [-1/2, 1/2). The row's
quadratic is evaluated as ``y = c0 + (((c2 * t >> INNER_SHIFT) + c1) * t >> OUTER_SHIFT)``, all of it in integers with
arithmetic shifts:

    t     18 bits signed, in 2**-18 of a segment
    c0    29 bits unsigned, in 2**-28
    c1    18 bits signed, in 2**-23
    c2    13 bits signed, in 2**-25

so both products fit an 18 x 18 multiplier, and one table of rows of 60 bits serves all functions; none but sinpi needs
more than 512:

    rows   0 … 127  sigmoid on [0, 4), 32 segments per unit
    rows 128 … 191  sigmoid on [4, 8), 16 segments per unit
    rows 192 … 223  sigmoid on [8, 16), 4 segments per unit
    rows 224 … 255  sigmoid on [16, 32), 2 segments per unit
    rows 256 … 383  exp on [-1/2, 1/2), 128 segments per unit, of which no argument reaches the first and last 18
    rows 384 … 511  log(1 + m) / m on [-1/2, 1/2), 128 segments per unit, not the first 26 and last 11
    TANH_ROWS       16 at a time among those: tanh(x) / x on [0, 3/4), 64 segments per unit
    rows 512 … 575  sin(pi x) / 4x on [0, 1/2), 128 segments per unit
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import partial
from typing import Final

Real = Callable[[Decimal], Decimal]

SHARED_ROWS: Final = 512  # all that the five functions have together
SINPI_BASE: Final = SHARED_ROWS
ROWS: Final = SINPI_BASE + 64
SIGMOID_ROWS: Final = 256
EXP_BASE: Final = 256
LOG_BASE: Final = 384
TANH_ROWS: Final = (256, 368, 384)

T_BITS: Final = 18
C0_BITS: Final = 29
C1_BITS: Final = 18
C2_BITS: Final = 13
PACKED_BITS: Final = 14  # of a word, below c1, that C has c2 in
C0_FRACTION: Final = 28
C1_FRACTION: Final = 23
C2_FRACTION: Final = 25

INNER_SHIFT: Final = C2_FRACTION + T_BITS - C1_FRACTION
OUTER_SHIFT: Final = C1_FRACTION + T_BITS - C0_FRACTION

# exp and gaussian: the argument's magnitude in 2**-31; n = round(|x| * log2(e)) from its top bits; r = |x| - n * ln 2
ARGUMENT_FRACTION: Final = 31
COARSE_FRACTION: Final = 8  # of 16 bits; with LOG2E's 16 the product stays within 32
LOG2E_FRACTION: Final = 15
LOG2E: Final = 47274  # log2(e) * 2**15
LN2: Final = 1488522236  # ln 2 * 2**31; the rounding error is 0.13 of a unit
# log: 1.f at or above 181/128 (just below sqrt 2) is halved, so that m stays in [-0.293, 0.4141)
LOG_SPLIT: Final = 181
RATIO_FRACTION: Final = 25  # of log(1 + m) / m where it is multiplied by m
LOG_FRACTION: Final = 48  # of the sum e * ln 2 + log(1 + m)


def _sigmoid(x: Decimal) -> Decimal:
    return 1 / (1 + (-x).exp())


def _log_ratio(m: Decimal) -> Decimal:
    if abs(m) < Decimal("1e-9"):
        return 1 - m / 2 + m * m / 3
    return (1 + m).ln() / m


def _tanh_ratio(x: Decimal) -> Decimal:
    if x < Decimal("1e-9"):
        return 1 - x * x / 3
    return (1 - (-2 * x).exp()) / (1 + (-2 * x).exp()) / x


def _sinpi_ratio(x: Decimal) -> Decimal:
    pi = Decimal("3.14159265358979323846264338327950288419717")
    term, total, square = pi / 4, Decimal(0), (pi * x) ** 2
    for k in range(1, 40):
        total += term
        term *= -square / (2 * k * (2 * k + 1))
    return total


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """One row's part of a function.

    ``within`` says which argument a t stands for when bits below its last one were cut off: 0 the least (also when
    none were), 1/2 the middle, 1 the bound above. ``pinned`` is the sample (first or last) whose value has to come out
    exactly. Of the value the lowest ``round_at`` bits will be cut off: half of what they are worth is put in.
    """

    row: int
    function: Real
    start: Fraction
    width: Fraction
    within: Fraction = Fraction(0)
    pinned: int | None = None
    round_at: int = 0

    def value(self, t: Fraction) -> Fraction:
        """The function at position t of the segment, t in [-1/2, 1/2), in units of c0."""
        x = self.start + self.width * (t + Fraction(1, 2))
        y = self.function(Decimal(x.numerator) / Decimal(x.denominator))
        return Fraction(y) * (1 << C0_FRACTION)


def segments() -> Iterator[Segment]:
    """Every row that an argument can reach."""
    for low, base, count, per_unit in ((0, 0, 128, 32), (4, 128, 64, 16), (8, 192, 32, 4), (16, 224, 32, 2)):
        for k in range(count):
            yield Segment(
                row=base + k,
                function=_sigmoid,
                start=low + Fraction(k, per_unit),
                width=Fraction(1, per_unit),
                # only arguments below 1 have bits that t does not hold; at 0 the value must be 1/2
                within=Fraction(1, 2) if 0 < base + k < 32 else Fraction(0),
                pinned=0 if base + k == 0 else None,
            )
    # half of ln 2 is 44.4 segments; n is off by one only within 0.008 of a tie, which adds 0.7
    for k in range(-46, 46):
        yield Segment(
            row=EXP_BASE + 64 + k,
            function=Decimal.exp,
            start=Fraction(k, 128),
            width=Fraction(1, 128),
            # exp(0) and exp(-0), the very end of row -1, must be 1
            within={0: Fraction(0), -1: Fraction(1)}.get(k, Fraction(1, 2)),
            pinned={0: 0, -1: -1}.get(k),
        )
    ratio = partial(Segment, round_at=C0_FRACTION - RATIO_FRACTION)
    for base, function, reached in ((LOG_BASE + 64, _log_ratio, range(-38, 53)), (SINPI_BASE, _sinpi_ratio, range(64))):
        for k in reached:
            yield ratio(row=base + k, function=function, start=Fraction(k, 128), width=Fraction(1, 128))
    for k in range(16 * len(TANH_ROWS)):
        yield ratio(
            row=TANH_ROWS[k // 16] + k % 16,
            function=_tanh_ratio,
            start=Fraction(k, 64),
            width=Fraction(1, 64),
            # of a small x the ratio must be 1
            within=Fraction(1, 2) if k > 0 else Fraction(0),
            pinned=0 if k == 0 else None,
        )
