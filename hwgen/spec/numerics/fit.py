"""Fits the coefficient table: run ``python -m dana.generated`` after a change of layout.py.

In: the segments of layout.py. Out: the text of ``native/coefficients.h``. Works in decimal and in exact integers, so
that every machine writes the same table. Nothing imports this module at run time.

Each row starts from the quadratic through the Chebyshev points of its segment. Its two upper coefficients are then
rounded, the neighbours of the roundings are tried, and the best is kept under the very integer evaluation that the
hardware does, shifts included; c0 centres what error is left.
"""

from decimal import getcontext
from fractions import Fraction
from importlib.resources import files
from itertools import product
from math import lcm
from textwrap import fill
from typing import Final

from hwgen.spec.numerics import layout
from hwgen.spec.numerics.layout import Segment

Row = tuple[int, int, int]

_HALF: Final = 1 << (layout.T_BITS - 1)
_SAMPLES: Final = (*range(-_HALF, _HALF, _HALF // 48), _HALF - 1)
_CHEBYSHEV: Final = (Fraction(-433, 1000), Fraction(0), Fraction(433, 1000))  # cos(pi/6) / 2


def without_c0(c1: int, c2: int, t: int) -> int:
    """The quadratic without its constant, as hardware evaluates it, in units of c0."""
    return (((c2 * t) >> layout.INNER_SHIFT) + c1) * t >> layout.OUTER_SHIFT


def fit_segment(segment: Segment) -> Row:
    """The coefficients (c0, c1, c2) of one row."""
    low, mid, high = (segment.value(t) for t in _CHEBYSHEV)
    node = _CHEBYSHEV[2]
    slope = (high - low) / (2 * node)
    curve = (high + low - 2 * mid) / (2 * node * node)
    c1_near = round(slope / (1 << (layout.C0_FRACTION - layout.C1_FRACTION)))
    c2_near = round(curve / (1 << (layout.C0_FRACTION - layout.C2_FRACTION)))
    values = [segment.value((t + segment.within) / (1 << layout.T_BITS)) for t in _SAMPLES]
    unit = lcm(*(value.denominator for value in values))  # as integers: fractions take ten times as long to compare
    wanted = [int(value * unit) for value in values]
    best: tuple[int, Row] | None = None
    for c1, c2 in product(range(c1_near - 1, c1_near + 3), range(c2_near - 2, c2_near + 3)):
        errors = [want - unit * without_c0(c1, c2, t) for want, t in zip(wanted, _SAMPLES, strict=True)]
        spread = max(errors) - min(errors)
        c0 = Fraction((max(errors) + min(errors)) if segment.pinned is None else 2 * errors[segment.pinned], 2 * unit)
        if best is None or spread < best[0]:
            best = spread, (round(c0) + (1 << segment.round_at >> 1), c1, c2)
    assert best is not None
    return best[1]


def fit() -> tuple[Row, ...]:
    """The whole table; rows that no argument reaches are zero.

    ValueError where a coefficient does not fit its field: layout.py asks for the impossible.
    """
    getcontext().prec = 40
    rows = [(0, 0, 0)] * layout.ROWS
    for segment in layout.segments():
        c0, c1, c2 = fit_segment(segment)
        fits = 0 <= c0 < 1 << layout.C0_BITS
        fits &= all(-(1 << bits - 1) <= c < 1 << bits - 1 for c, bits in ((c1, layout.C1_BITS), (c2, layout.C2_BITS)))
        if not fits:
            raise ValueError(f"coefficients must fit layout.py's fields, but row {segment.row} is {(c0, c1, c2)}")
        rows[segment.row] = (c0, c1, c2)
    return tuple(rows)


def c_source(rows: tuple[Row, ...]) -> str:
    """``native/coefficients.h``: c1 and c2 share a word, c1 in its upper bits, so that two gathers fetch a row.

    Of the formats it has those that ``native/numerics.h`` reads.
    """
    packed = [(c1 << layout.PACKED_BITS) + (c2 % (1 << layout.PACKED_BITS)) for _, c1, c2 in rows]
    parts = [
        "/* The coefficient table of layout.py's formats. Written by python -m dana.generated. */",
        "#ifndef DANA_COEFFICIENTS_H",
        "#define DANA_COEFFICIENTS_H",
        "#include <stdint.h>",
        "",
    ]
    for name, values in (("dn_c0", [row[0] for row in rows]), ("dn_c1_c2", packed)):
        numbers = fill(", ".join(map(str, values)) + ",", 120, initial_indent="    ", subsequent_indent="    ")
        parts += [f"static const int32_t {name}[{layout.ROWS}] = {{", numbers, "};", ""]
    formats = {name: value for name, value in vars(layout).items() if isinstance(value, int)}
    formats |= {f"TANH_ROWS_{k}": row for k, row in enumerate(layout.TANH_ROWS)}
    uses = files(__package__).joinpath("native", "numerics.h").read_text(encoding="utf-8")
    parts += [f"#define DN_{name} {value}" for name, value in formats.items() if f"DN_{name}" in uses]
    return "\n".join([*parts, "#endif", ""])
