"""Rows of an axis that lie in several places, for steps that leave some of them where they are.

In: the places. Out: the runs of rows in which a row and the one a distance away keep their places. It emits nothing.
"""

from itertools import pairwise

from dana.compiler.select.values import View

Piece = tuple[int, int, View]
"""First row, the one after the last, and the view in which row k of the axis is iteration k."""


def split(pieces: list[Piece], count: int, distance: int, loop: int) -> list[tuple[int, int, View, View]]:
    """Cut rows 0 … count - 1, of loop `loop`, where the row itself or the one at `distance` changes its place."""
    cuts = {0, count}
    for start, stop, _ in pieces:
        # where the row's own piece ends, and where that of its partner does
        cuts |= {cut for cut in (start, stop, start - distance, stop - distance) if 0 < cut < count}
    edges = sorted(cuts)
    return [
        (low, high, _at(pieces, low).moved(loop, low), _at(pieces, low + distance).moved(loop, low + distance))
        for low, high in pairwise(edges)
    ]


def _at(pieces: list[Piece], row: int) -> View:
    return next(view for start, stop, view in pieces if start <= row < stop)


def rest(pieces: list[Piece], start: int, stop: int) -> list[Piece]:
    """The pieces from row `start` to row `stop`."""
    cut = [(max(low, start), min(high, stop), view) for low, high, view in pieces]
    return [piece for piece in cut if piece[0] < piece[1]]
