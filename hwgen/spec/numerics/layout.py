"""The formats of the table-and-polynomial functions, in integers: one place for NumPy, C and RTL.

A function's argument is cut into a segment (a row of the table) and a position t in it, in [-1/2, 1/2). The row's
quadratic is evaluated as ``y = c0 + (((c2 * t >> INNER_SHIFT) + c1) * t >> OUTER_SHIFT)``, all of it in integers with
arithmetic shifts:

    t     18 bits signed, in 2**-18 of a segment
    c0    29 bits unsigned, in 2**-28
    c1    18 bits signed, in 2**-23
    c2    13 bits signed, in 2**-25

so both products fit an 18 x 18 multiplier, and one table of 512 rows of 60 bits serves all functions:

    rows   0 … 127  sigmoid on [0, 4), 32 segments per unit
    rows 128 … 191  sigmoid on [4, 8), 16 segments per unit
    rows 192 … 223  sigmoid on [8, 16), 4 segments per unit
    rows 224 … 255  sigmoid on [16, 32), 2 segments per unit
    rows 256 … 383  exp on [-1/2, 1/2), 128 segments per unit, of which no argument reaches the first and last 18
    rows 384 … 511  log(1 + m) / m on [-1/2, 1/2), 128 segments per unit; likewise the first 26 and last 11
    TANH_ROWS       16 at a time among those: tanh(x) / x on [0, 3/4), 64 segments per unit
"""

from typing import Final

ROWS: Final = 512
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
