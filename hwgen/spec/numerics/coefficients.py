"""The coefficient table of layout.py's formats, a row for each segment: the numbers stand once, in C's header.

In: ``native/coefficients.h``. Out: the columns c0, c1, c2. `fit` writes the header and says how it packs them.
"""

from importlib.resources import files
from typing import Final

from hwgen.spec.numerics.layout import PACKED_BITS

_TEXT = files(__package__).joinpath("native", "coefficients.h").read_text(encoding="utf-8")


def _numbers(name: str) -> list[int]:
    listed = _TEXT.partition(f" {name}[")[2].partition("{")[2].partition("}")[0]
    return [int(number) for number in listed.split(",")[:-1]]


_PACKED = _numbers("dn_c1_c2")
_SIGN = 1 << PACKED_BITS - 1

C0: Final = _numbers("dn_c0")
C1: Final = [word >> PACKED_BITS for word in _PACKED]
C2: Final = [(word & 2 * _SIGN - 1 ^ _SIGN) - _SIGN for word in _PACKED]
