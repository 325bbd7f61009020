"""The comparison as one HTML page: for each case a drawing and a table; it needs nothing else.

In: a run, as `dana.peers.history.document` or `read` has it, with its contests. Out: HTML.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dana.peers.contest import Contest
from dana.peers.history import fastest
from dana.peers.participants import DANA
from dana.report import figure
from dana.report.markup import inline, page_template, stylesheet


def render(run: Mapping[str, Any], contests: Sequence[Contest]) -> str:
    """The page."""
    return page_template("dana.peers", {}).render(
        style=stylesheet(),
        run=run,
        contests=[(contest, fastest(contest), inline(chart(contest))) for contest in contests],
        overview=inline(overview(contests)),
        energy=any(line.joules is not None for contest in contests for line in contest.lines),
    )


def chart(contest: Contest) -> str:
    """Milliseconds of a pass, a bar for each."""
    lines = [line for line in contest.lines if line.seconds is not None]
    out: list[str] = []
    with figure.drawn(0.5 + 0.26 * len(lines), f"{contest.case}: milliseconds of a pass", out) as axes:
        for row, line in enumerate(lines):
            assert line.seconds is not None
            colour = figure.OTHER if line.peer == DANA else figure.LINE if line.trains else figure.EDGE
            axes.barh(row, 1e3 * line.seconds, color=colour, height=0.7)
            axes.text(1e3 * line.seconds, row, f"  {1e3 * line.seconds:,.1f}", va="center")
        axes.set_yticks(range(len(lines)), [line.peer for line in lines])
        axes.invert_yaxis()
        axes.set_xscale("log")
        axes.margins(x=0.15)
        axes.tick_params(axis="y", length=0)
        axes.spines["left"].set_visible(False)
        axes.set_xlabel("milliseconds, logarithmic")
    return out[0]


def overview(contests: Sequence[Contest]) -> str:
    """Each peer's time of a pass by case, DAnA's being 1."""
    out: list[str] = []
    marks = dict(zip(_peers(contests), ("o", "s", "^", "D", "v", "P"), strict=False))
    with figure.drawn(0.9 + 0.35 * len(contests), "a peer's pass, DAnA's being 1", out) as axes:
        axes.axvline(1, color=figure.OTHER)
        for peer, mark in marks.items():
            points = [
                (contest.ratio(line) or 0.0, row)
                for row, contest in enumerate(contests)
                for line in contest.lines
                if line.peer == peer and line.seconds is not None
            ]
            axes.plot([x for x, _ in points], [y for _, y in points], mark, label=peer, alpha=0.8)
        axes.set_yticks(range(len(contests)), [contest.case for contest in contests])
        axes.invert_yaxis()
        axes.set_xscale("log")
        axes.grid(axis="both")
        axes.legend(loc="upper left", bbox_to_anchor=(1, 1))
        axes.set_xlabel("to the right of the line: slower than DAnA")
    return out[0]


def _peers(contests: Sequence[Contest]) -> list[str]:
    return sorted({line.peer for one in contests for line in one.lines if line.trains and line.peer != DANA})
