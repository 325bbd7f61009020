"""What a comparison comes to: how far from MADlib, and whether scikit-learn in memory is behind.

In: contests, and MADlib's seconds as they are quoted where the server has none. Out: sentences, and their figures.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.peers.cases import SHAPES
from benchmarks.peers.contest import Contest
from benchmarks.peers.participants import DANA, DOUBLES, MADLIB, SCIKIT

AHEAD = 1.0
FAR_BEHIND = 1.25
"""If DAnA's loss exceeds this multiple of the lowest, the times are not comparable."""
QUOTED = (
    " Quoted: measured for this project on another machine, in proportion to the rows; arrays of WLAN were out of line."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Against:
    """One of them on one case: its time of a pass, DAnA's being 1.

    Attributes
    ----------
    processors
        The same of the time that processors worked; None where it cannot be seen.
    quoted
        Whether it was measured elsewhere, on another machine and day.
    """

    case: str
    rule: str
    peer: str
    ratio: float
    processors: float | None
    quoted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Behind:
    """A case whose loss is far from the least that others reached."""

    case: str
    loss: str
    ours: float
    peer: str
    least: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The figures."""

    madlib: tuple[Against, ...]
    scikit: tuple[Against, ...]
    behind: tuple[Behind, ...] = ()

    def document(self) -> dict[str, Any]:
        """For a file."""
        return asdict(self) | {
            "times_madlib": geometric_mean([one.ratio for one in self.madlib]),
            "times_madlib_of_processors": geometric_mean(_worked(self.madlib)),
        }

    def lines(self) -> Iterator[str]:
        """Sentences."""
        if self.madlib:
            said = ", ".join(f"{one.case} {one.ratio:.1f}{' (quoted)' if one.quoted else ''}" for one in self.madlib)
            times, worked = geometric_mean([one.ratio for one in self.madlib]), geometric_mean(_worked(self.madlib))
            yield (
                f"MADlib's cheapest method takes {times:.1f} times DAnA's time of a pass, both on float8[], ratings as "
                "triples (geometric mean over "
                f"{len(self.madlib)} of the paper's shapes): {said}."
                + ("" if worked is None else f" Of processors' time: {worked:.1f} times.")
                + (QUOTED if any(one.quoted for one in self.madlib) else "")
            )
        if self.scikit:
            ahead = sum(one.ratio > AHEAD for one in self.scikit)
            worked_less = sum(one > AHEAD for one in _worked(self.scikit))
            said = ", ".join(f"{one.case} {one.ratio:.2f}" for one in self.scikit)
            yield (
                f"DAnA, from the table, is ahead of scikit-learn in memory on {ahead} of {len(self.scikit)} "
                f"(its time of a pass, DAnA's being 1: {said})"
                + (f"; by processors' time on {worked_less}." if _worked(self.scikit) else ".")
            )
        for one in self.behind:
            yield (
                f"Warning: {one.case}: DAnA's {one.loss} is {one.ours:.4g}, {one.peer}'s {one.least:.4g}. Times to "
                "models so different say little; try more --passes."
            )


def geometric_mean(ratios: Sequence[float]) -> float | None:
    """None where there are none."""
    return math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else None


def _worked(against: Sequence[Against]) -> list[float]:
    return [one.processors for one in against if one.processors]


def summary(contests: Sequence[Contest], quoted: Mapping[str, float]) -> Summary:
    """Of each case its largest size.

    Parameters
    ----------
    quoted
        Seconds of a pass of MADlib's cheapest method over all rows, by the name of a shape.
    """
    largest = [sizes(of_one)[-1] for of_one in by_case(contests).values()]
    return Summary(
        madlib=tuple(found for one in largest if (found := _madlib(one, quoted)) is not None),
        scikit=tuple(found for one in largest if (found := _cheapest(one, SCIKIT)) is not None),
        behind=tuple(behind for one in largest if (behind := _behind(one)) is not None),
    )


def _behind(contest: Contest) -> Behind | None:
    losses = {line.peer: line.loss for line in contest.lines if line.loss is not None}
    ours = losses.pop(DANA, None)
    if ours is None or not losses:
        return None
    peer, least = min(losses.items(), key=lambda one: one[1])
    if ours <= FAR_BEHIND * least:
        return None
    return Behind(case=contest.case, loss=contest.loss, ours=ours, peer=peer, least=least)


def by_case(contests: Sequence[Contest]) -> dict[str, list[Contest]]:
    """The contests of each case."""
    found: dict[str, list[Contest]] = {}
    for one in contests:
        found.setdefault(one.case, []).append(one)
    return found


def sizes(contests: Sequence[Contest]) -> list[Contest]:
    """Of one case, the smallest first."""
    return sorted(contests, key=lambda one: one.rows)


def _cheapest(contest: Contest, peer: str) -> Against | None:
    """The fastest of those whose name begins so."""
    there = [line for line in contest.lines if line.peer.startswith(peer) and line.seconds is not None]
    if not there:
        return None
    one = min(there, key=lambda line: line.seconds or 0.0)
    assert one.seconds is not None
    return _against(contest, peer, one.seconds, one.processors, quoted=False)


def _madlib(contest: Contest, quoted: Mapping[str, float]) -> Against | None:
    measured = _cheapest(contest, MADLIB)
    if measured is not None or contest.case not in quoted:
        return measured
    seconds = quoted[contest.case] * contest.rows / SHAPES[contest.case][0]
    return _against(contest, MADLIB, seconds, seconds, quoted=True)  # one process, which never waits


def _against(contest: Contest, peer: str, seconds: float, processors: float | None, *, quoted: bool) -> Against | None:
    lines = {line.peer: line for line in contest.lines}
    ours = lines.get(DOUBLES, lines[DANA]) if peer == MADLIB else lines[DANA]
    if not ours.seconds:
        return None
    return Against(
        case=contest.case,
        rule=contest.rule,
        peer=peer,
        ratio=seconds / ours.seconds,
        processors=processors / ours.processors if processors and ours.processors else None,
        quoted=quoted,
    )
