"""Numbers that a name and a seed stand for, by whole numbers of Python alone: a rule is compiled without NumPy.

In: names, seeds. Out: whole numbers of 64 bits, the same everywhere. Must not: keep state.
"""

from __future__ import annotations

MASK = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15


def draw(name: str, seed: int, number: int) -> int:
    """Return one of the 64-bit numbers that a name and a seed stand for."""
    # the inner mix keeps seeds that differ by a multiple of GOLDEN from drawing the same numbers, shifted
    return mix((mix((seed ^ hash_name(name)) & MASK) + (number + 1) * GOLDEN) & MASK)


def hash_name(name: str) -> int:
    """FNV-1a of the name's UTF-8 bytes, 64 bits."""
    value = 0xCBF29CE484222325
    for byte in name.encode():
        value = ((value ^ byte) * 0x100000001B3) & MASK
    return value


def mix(value: int) -> int:
    """The finaliser of splitmix64 (Steele, Lea, Flood 2014)."""
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & MASK
    return value ^ (value >> 31)
