"""Places the boxes of a picture: layered drawing after Sugiyama, Tagawa and Toda (1981).

In: rows of sized things and links between rows. Out: an order in each row with few crossings, then x
coordinates that keep arrows straight. Must not: know what the things are, or choose their rows.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from math import fsum

ORDERINGS = 16
"""Sweeps that look for fewer crossings; the best order seen is kept."""
PLACINGS = 12
"""Sweeps that straighten arrows."""


@dataclass(slots=True, kw_only=True)
class Link:
    """From a thing to one of the next row, which it meets `at_lower` from its middle."""

    upper: int
    lower: int
    at_lower: float = 0.0


@dataclass(slots=True, kw_only=True)
class Thing:
    """A box, or the place where a long arrow passes a row.

    Parameters
    ----------
    row, width
        Where it stands and how wide it is.
    weight
        How strongly it resists being moved off a straight line.
    up, down
        Links to the row above and below; made here.
    x
        Its middle; made here.
    """

    row: int
    width: float
    weight: float = 1.0
    up: list[Link] = field(default_factory=list)
    down: list[Link] = field(default_factory=list)
    x: float = 0.0


def order(things: list[Thing], links: list[Link]) -> list[list[int]]:
    """Return the things of each row from left to right, by index; links are made known to their things."""
    for link in links:
        things[link.upper].down.append(link)
        things[link.lower].up.append(link)
    return _ordered(things, links)


def place(things: list[Thing], rows: list[list[int]], gap: float) -> None:
    """Set every thing's `x`; the leftmost edge is 0."""
    for row in rows:
        at = 0.0
        for i in row:
            things[i].x = at + things[i].width / 2
            at += things[i].width + gap
    for _ in range(PLACINGS):
        for pulls in ("down", "up", "both", "both"):
            for row in reversed(rows) if pulls == "down" else rows:
                _straighten(things, row, gap, pulls)
    for row in rows:  # the mean of both ends slants long arrows; at last what comes from above decides
        _straighten(things, row, gap, "up")
    left = min((thing.x - thing.width / 2 for thing in things), default=0.0)
    for thing in things:
        thing.x -= left


def _ordered(things: list[Thing], links: list[Link]) -> list[list[int]]:
    rows: list[list[int]] = [[] for _ in range(1 + max((thing.row for thing in things), default=-1))]
    seen: set[int] = set()

    def visit(start: int) -> None:  # depth first from the bottom, so that trees lie side by side
        waiting = [start]
        while waiting:
            i = waiting.pop()
            if i not in seen:
                seen.add(i)
                rows[things[i].row].append(i)
                waiting += [link.upper for link in sorted(things[i].up, key=lambda link: -link.at_lower)]

    for i in sorted(range(len(things)), key=lambda i: -things[i].row):
        visit(i)
    best, fewest = [list(row) for row in rows], _crossings(things, rows, links)
    for sweep in range(ORDERINGS):
        if fewest == 0:
            break
        position = {i: number for row in rows for number, i in enumerate(row)}
        upwards = sweep % 2 == 0

        # defaults bind this sweep's values; a closure would read the next sweep's
        def pull(i: int, position: dict[int, int] = position, upwards: bool = upwards) -> float:
            # a link to the left port of a thing pulls a little further left than one to its right port
            linked = (
                [position[link.lower] + link.at_lower / 1000 for link in things[i].down]
                if upwards
                else [float(position[link.upper]) for link in things[i].up]
            )
            # sum() rounds otherwise from Python 3.12 on; a picture is the same everywhere
            return fsum(linked) / len(linked) if linked else float(position[i])

        for row in reversed(rows) if upwards else rows:
            row.sort(key=pull)
            # at once: the next row is pulled by the new places, which needs fewer sweeps
            position.update({i: number for number, i in enumerate(row)})
        crossings = _crossings(things, rows, links)
        if crossings < fewest:
            best, fewest = [list(row) for row in rows], crossings
    return best


def _crossings(things: list[Thing], rows: list[list[int]], links: list[Link]) -> int:
    position = {i: number for row in rows for number, i in enumerate(row)}
    between: dict[int, list[tuple[int, float]]] = {}
    for link in links:
        # a port, at most half a box off the middle, must count for less than one place in the row
        place = (position[link.upper], position[link.lower] + link.at_lower / 1000)
        between.setdefault(things[link.upper].row, []).append(place)
    total = 0
    for placed in between.values():
        ends = [lower for _, lower in sorted(placed)]
        total += sum(left > right for i, left in enumerate(ends) for right in ends[i + 1 :])
    return total


def _straighten(things: list[Thing], row: list[int], gap: float, pulls: str) -> None:
    """Move a row's things towards what they are linked to "up" or "down" or "both" ways; order and gaps stay."""
    wanted, weights = [], []
    for i in row:
        thing = things[i]
        above = [things[link.upper].x - link.at_lower for link in thing.up]
        below = [things[link.lower].x + link.at_lower for link in thing.down]
        # a thing without links on one side follows those of the other, else it would not move at all
        linked = {"up": above, "down": below, "both": above + below}[pulls] or above + below
        wanted.append(fsum(linked) / len(linked) if linked else thing.x)
        weights.append(thing.weight * max(1, len(linked)))
    apart = [(things[left].width + things[right].width) / 2 + gap for left, right in itertools.pairwise(row)]
    for i, x in zip(row, spread(wanted, weights, apart), strict=True):
        things[i].x = x


def spread(wanted: list[float], weights: list[float], apart: list[float]) -> list[float]:
    """Return the places nearest to `wanted`, by weighted squares, with neighbours at least `apart`.

    With the distances taken off it is isotonic regression: adjacent violators are pooled into their mean.
    """
    shifts = [0.0]
    for distance in apart:
        shifts.append(shifts[-1] + distance)
    pools: list[tuple[float, float, int]] = []  # mean, weight, members
    for place, weight, shift in zip(wanted, weights, shifts, strict=False):
        mean, total, members = place - shift, weight, 1
        # linear in total: each thing is pooled once and popped once
        while pools and pools[-1][0] > mean:
            other, heavy, more = pools.pop()
            mean = (mean * total + other * heavy) / (total + heavy)
            total, members = total + heavy, members + more
        pools.append((mean, total, members))
    means = [mean for mean, _, members in pools for _ in range(members)]
    return [mean + shift for mean, shift in zip(means, shifts, strict=False)]
