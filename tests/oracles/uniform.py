"""Random numbers of a rule by whole numbers of Python and one division: what the language's operations must give."""

from __future__ import annotations

from fractions import Fraction

from dsl.semantics.random import P, Q, _whole_numbers


def centred(number: int, p: int) -> int:
    """The number of the same class that is nearest to 0."""
    left = number % p
    return left - p if 2 * left > p else left


def uniform(row: int, element: int, *, epoch: int = 0, seed: int = 0, call: int = 0) -> Fraction:
    """The number exactly, before binary32 rounds it."""
    tuple_, counted, own = (
        [int(one) for one in _whole_numbers(*which)]
        for which in (("tuple", 0, 8), ("epoch", 0, 4), (f"call {call}", seed, 10))
    )
    row %= 1 << 23
    first, second = centred(row, P), centred(row, Q)
    a = centred((first + tuple_[0]) * (second + tuple_[1]), P)
    b = centred((first + tuple_[2]) * (a + tuple_[3]), P)
    c = centred((second + tuple_[4]) * (a + tuple_[5]), Q)
    d = centred((b + tuple_[6]) * (c + tuple_[7]), Q)
    s = centred((centred(epoch, P) + counted[0]) * (centred(epoch, Q) + counted[1]), P)
    t = centred((centred(epoch, Q) + counted[2]) * (s + counted[3]), Q)
    u = centred((centred(element, P) + s) * (centred(element, Q) + own[0]), P)
    v = centred((centred(element, Q) + t) * (u + own[1]), Q)
    one = centred((u + own[2]) * (v + own[3]), P)
    three = centred((v + own[4]) * (one + own[5]), Q)
    two = centred((one + own[6]) * (three + own[7]), P)
    four = centred((three + own[8]) * (two + own[9]), Q)
    x = centred((a + one) * (b + two), P)
    y = centred((c + three) * (d + four), Q)
    return (Fraction(x, P) + Fraction(y, Q)) % 1
