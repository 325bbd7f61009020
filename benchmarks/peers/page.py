"""The comparison as one HTML page: for each case drawings and tables; it needs nothing else.

In: a run, as `benchmarks.peers.history.document` or `read` has it, with its contests. Out: HTML.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import Any

from benchmarks.peers.contest import Contest
from benchmarks.peers.history import fastest
from benchmarks.peers.participants import DANA
from benchmarks.peers.parts import BACKEND, BOTH, WORKER, Part
from benchmarks.peers.summary import by_case, sizes
from dana.report import colours, figure
from dana.report.markup import inline
from dana.report.templates import environment, stylesheet

MARKS = ("o", "s", "^", "D", "v", "P", "X", "<", ">")


def render(run: Mapping[str, Any], contests: Sequence[Contest], summary: Sequence[str]) -> str:
    """The page; `summary`: its sentences."""
    cases = {name: sizes(found) for name, found in by_case(contests).items()}
    return (
        environment("benchmarks.peers", {})
        .get_template("page.html")
        .render(
            style=stylesheet(),
            run=run,
            summary=summary,
            first=contests[0],
            cases=[
                {
                    "contests": found,
                    "chart": inline(chart(found[-1])),
                    "sizes": inline(size_chart(found)) if len(found) > 1 else "",
                    "parts": inline(parts_chart(found[-1])) if found[-1].parts else "",
                    "statement": next((one.seconds for one in found[-1].parts if one.process == BOTH), None),
                }
                for found in cases.values()
            ],
            fastest=fastest,
            overview=inline(overview([found[-1] for found in cases.values()])),
            seen=any(line.processors is not None for contest in contests for line in contest.lines),
            energy=any(line.joules is not None for contest in contests for line in contest.lines),
        )
    )


def chart(contest: Contest) -> str:
    """Milliseconds of a pass, a bar for each."""
    lines = [line for line in contest.lines if line.seconds is not None]
    out: list[str] = []
    with figure.drawn(0.5 + 0.26 * len(lines), f"{contest.case}: milliseconds of a pass", out) as axes:
        for row, line in enumerate(lines):
            assert line.seconds is not None
            colour = colours.LINE if line.peer == DANA else colours.OTHER if line.trains else colours.EDGE
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


def size_chart(contests: Sequence[Contest]) -> str:
    """Of one case: milliseconds of a pass by its rows, a line for each that trains."""
    out: list[str] = []
    with figure.drawn(3.2, f"{contests[0].case}: milliseconds of a pass, by rows", out) as axes:
        for k, (peer, mark) in enumerate(zip([DANA, *_peers(contests)], cycle(MARKS), strict=False)):
            points = [(one.rows, 1e3 * seconds) for one in contests if (seconds := one.seconds(peer)) is not None]
            colour, width = (colours.LINE, 2.5) if peer == DANA else (f"C{k}", 1.0)
            xs, ys = [x for x, _ in points], [y for _, y in points]
            axes.plot(xs, ys, marker=mark, label=peer, color=colour, linewidth=width)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.xaxis.set_major_formatter("{x:,g}")
        axes.grid()
        axes.legend(loc="upper left", bbox_to_anchor=(1, 1))
        axes.set_xlabel("rows")
        axes.set_ylabel("milliseconds of a pass")
    return out[0]


def parts_chart(contest: Contest) -> str:
    """What the backend and the worker do for a page, a bar for each of the two."""
    out: list[str] = []
    with figure.drawn(1.5, f"{contest.case}: where a pass goes, nanoseconds of a page", out) as axes:
        rows = [name for name in (BACKEND, WORKER) if any(one.process == name for one in contest.parts)]
        for row, process in enumerate(rows):
            left = 0.0
            for part, colour in zip(_of(contest.parts, process), figure.COLOURS.values(), strict=False):
                width = 1e9 * part.seconds
                alpha = 0.45 if process == BACKEND else 0.9
                axes.barh(
                    row,
                    width,
                    left=left,
                    color=colour,
                    height=0.6,
                    label=f"{process}: {part.name} {width:,.0f}",
                    alpha=alpha,
                )
                left += width
        axes.set_yticks(range(len(rows)), rows)
        axes.invert_yaxis()
        axes.tick_params(axis="y", length=0)
        axes.spines["left"].set_visible(False)
        axes.legend(loc="upper left", bbox_to_anchor=(1, 1.1))
        axes.set_xlabel("nanoseconds of a page; both work at the same time")
    return out[0]


def _of(parts: Sequence[Part], process: str) -> list[Part]:
    return [one for one in parts if one.process == process]


def overview(contests: Sequence[Contest]) -> str:
    """Each peer's time of a pass by case, DAnA's being 1."""
    out: list[str] = []
    marks = dict(zip(_peers(contests), cycle(MARKS), strict=False))
    with figure.drawn(0.9 + 0.35 * len(contests), "a peer's pass, DAnA's being 1", out) as axes:
        axes.axvline(1, color=colours.LINE)
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
    """Those that train and were measured somewhere."""
    lines = [line for one in contests for line in one.lines]
    return sorted({line.peer for line in lines if line.trains and line.peer != DANA and line.seconds is not None})
