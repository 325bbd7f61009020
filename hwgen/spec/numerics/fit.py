"""Fits the coefficient table: run ``python -m dana.generated`` after a change of layout.py.

Out: the text of ``native/coefficients.h``. Works in decimal and in exact integers, so that every machine writes the
same table. Nothing imports this module at run time.

Each row starts from the quadratic through the Chebyshev points of its segment. Its two upper coefficients are then
rounded, the neighbours of the roundings are tried, and the best is kept under the very integer evaluation that the
hardware does, shifts included; c0 centres what error is left.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal, getcontext
from fractions import Fraction
from itertools import product
from typing import Final

from hwgen.spec.numerics import layout

Row = tuple[int, int, int]
Real = Callable[[Decimal], Decimal]

_HALF: Final = 1 << (layout.T_BITS - 1)
_SAMPLES: Final = (*range(-_HALF, _HALF, _HALF // 48), _HALF - 1)
_CHEBYSHEV: Final = (Fraction(-433, 1000), Fraction(0), Fraction(433, 1000))  # cos(pi/6) / 2


def _sigmoid(x: Decimal) -> Decimal:
    return 1 / (1 + (-x).exp())


def _exp(x: Decimal) -> Decimal:
    return x.exp()


def _log_ratio(m: Decimal) -> Decimal:
    if abs(m) < Decimal("1e-9"):
        return 1 - m / 2 + m * m / 3
    return (1 + m).ln() / m


def _tanh_ratio(x: Decimal) -> Decimal:
    if x < Decimal("1e-9"):
        return 1 - x * x / 3
    return (1 - (-2 * x).exp()) / (1 + (-2 * x).exp()) / x


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
        return Fraction(y) * (1 << layout.C0_FRACTION)


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
            row=layout.EXP_BASE + 64 + k,
            function=_exp,
            start=Fraction(k, 128),
            width=Fraction(1, 128),
            # exp(0) and exp(-0), the very end of row -1, must be 1
            within={0: Fraction(0), -1: Fraction(1)}.get(k, Fraction(1, 2)),
            pinned={0: 0, -1: -1}.get(k),
        )
    for k in range(-38, 53):
        yield Segment(
            row=layout.LOG_BASE + 64 + k,
            function=_log_ratio,
            start=Fraction(k, 128),
            width=Fraction(1, 128),
            round_at=layout.C0_FRACTION - layout.RATIO_FRACTION,
        )
    for k in range(16 * len(layout.TANH_ROWS)):
        yield Segment(
            row=layout.TANH_ROWS[k // 16] + k % 16,
            function=_tanh_ratio,
            start=Fraction(k, 64),
            width=Fraction(1, 64),
            # of a small x the ratio must be 1
            within=Fraction(1, 2) if k > 0 else Fraction(0),
            pinned=0 if k == 0 else None,
            round_at=layout.C0_FRACTION - layout.RATIO_FRACTION,
        )


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
    wanted = [segment.value((t + segment.within) / (1 << layout.T_BITS)) for t in _SAMPLES]
    best: tuple[Fraction, Row] | None = None
    for c1, c2 in product(range(c1_near - 1, c1_near + 3), range(c2_near - 2, c2_near + 3)):
        errors = [want - without_c0(c1, c2, t) for want, t in zip(wanted, _SAMPLES, strict=True)]
        spread = max(errors) - min(errors)
        c0 = (max(errors) + min(errors)) / 2 if segment.pinned is None else errors[segment.pinned]
        if best is None or spread < best[0]:
            best = spread, (round(c0) + (1 << segment.round_at >> 1), c1, c2)
    assert best is not None
    return best[1]


def fit() -> tuple[Row, ...]:
    """The whole table; rows that no argument reaches are zero.

    Raises
    ------
    ValueError
        A coefficient does not fit its field: layout.py asks for the impossible.
    """
    getcontext().prec = 40
    rows = [(0, 0, 0)] * layout.ROWS
    for segment in segments():
        c0, c1, c2 = fit_segment(segment)
        fits = 0 <= c0 < 1 << layout.C0_BITS
        fits &= all(-(1 << bits - 1) <= c < 1 << bits - 1 for c, bits in ((c1, layout.C1_BITS), (c2, layout.C2_BITS)))
        if not fits:
            raise ValueError(f"coefficients must fit layout.py's fields, but row {segment.row} is {(c0, c1, c2)}")
        rows[segment.row] = (c0, c1, c2)
    return tuple(rows)


def c_source(rows: tuple[Row, ...]) -> str:
    """``native/coefficients.h``: c1 and c2 share a word, c1 in its upper bits, so that two gathers fetch a row."""
    packed = [(c1 << layout.PACKED_BITS) + (c2 % (1 << layout.PACKED_BITS)) for _, c1, c2 in rows]
    parts = [
        "/* The coefficient table of layout.py's formats. Written by python -m dana.generated. */",
        "#ifndef DANA_COEFFICIENTS_H",
        "#define DANA_COEFFICIENTS_H",
        "#include <stdint.h>",
        "",
    ]
    for name, values in (("dn_c0", [row[0] for row in rows]), ("dn_c1_c2", packed)):
        parts += [f"static const int32_t {name}[{layout.ROWS}] = {{"]
        lines = (values[k : k + 10] for k in range(0, len(values), 10))
        parts += [*("    " + ", ".join(map(str, line)) + "," for line in lines), "};", ""]
    for name in (
        "INNER_SHIFT",
        "OUTER_SHIFT",
        "C0_FRACTION",
        "EXP_BASE",
        "LOG_BASE",
        "LOG2E",
        "LN2",
        "LOG_SPLIT",
        "RATIO_FRACTION",
        "LOG_FRACTION",
    ):
        parts.append(f"#define DN_{name} {getattr(layout, name)}")
    parts += [f"#define DN_TANH_ROWS_{k} {first}" for k, first in enumerate(layout.TANH_ROWS)]
    return "\n".join([*parts, "#endif", ""])
