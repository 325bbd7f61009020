"""One case: DAnA and its peers train in turn, so that a busy moment of the machine falls on all.

In: a session, a `Case`. Out: a `Contest`: seconds of a pass of each, and the loss that it reached after the same
passes over the same rows. References get standardised arrays in memory, and one thread; what it takes to export the
rows to them is a line of its own. DAnA has two processes, the backend and its worker.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from benchmarks.peers.cases import Case
from benchmarks.peers.participants import DANA, LATER_PASS, makers
from benchmarks.peers.parts import Part, measure_parts
from benchmarks.peers.peer import NotHere, Peer
from benchmarks.peers.processors import Watch, watch_of
from benchmarks.peers.stage import staged
from dana.client.connection import Connection

NAMES = {"sklearn": "scikit-learn"}
"""Packages whose modules have another name."""
ENERGY = Path("/sys/class/powercap/intel-rapl:0/energy_uj")
"""Microjoules of the first processor package (RAPL), where they may be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """What one of them takes.

    Attributes
    ----------
    peer
        Its name.
    how
        Its version, and what it does.
    trains
        Whether it trains; else it is a bound or a part.
    seconds
        Of a pass, the median; None: it is not here, and `how` says why.
    loss
        On the first rows, after the passes of the contest.
    joules
        Of a pass, of the whole processor package; None where they cannot be read.
    processors
        Seconds of a pass that processors worked, all processes together; None where they cannot be seen.
    """

    peer: str
    how: str
    trains: bool
    seconds: float | None
    loss: float | None = None
    joules: float | None = None
    processors: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Contest:
    """A case, measured.

    Attributes
    ----------
    left_out
        Rows of the user's table that had no numbers in all columns.
    unused
        Further features that a training on the user's table would have.
    pages, page_size
        The table's, page_size in bytes.
    passes, repeats
        Over the rows in one training; how often each was measured.
    loss
        Its name.
    lines
        DAnA's first.
    parts
        The parts of a pass; empty unless requested.
    """

    case: str
    rule: str
    rows: int
    left_out: int
    columns: int
    pages: int
    page_size: int
    passes: int
    repeats: int
    loss: str
    lines: tuple[Line, ...] = ()
    parts: tuple[Part, ...] = ()
    unused: tuple[str, ...] = ()

    def seconds(self, peer: str) -> float | None:
        """Of a pass of one of them."""
        return next((line.seconds for line in self.lines if line.peer == peer), None)

    def ratio(self, line: Line) -> float | None:
        """Its time, DAnA's being 1."""
        ours = self.seconds(DANA)
        return None if line.seconds is None or not ours else line.seconds / ours


def measure(db: Connection, case: Case, *, passes: int = 5, repeats: int = 3, parts: bool = False) -> Contest:
    """Make the case's table, train all participants on its rows, drop it.

    Parameters
    ----------
    passes
        Over the rows, in each training.
    repeats
        How often each is measured, in turn with the others.
    parts
        Whether to measure where a pass goes, too.

    Raises
    ------
    UsageError
        A table is there that has the name of the comparison's.
    psycopg.Error
        You may not create a table, or register a rule.
    """
    with staged(db, case) as (pages, page_size), ExitStack() as made:
        present, absent = [], []
        for name, make in makers(db, case, passes=passes, pages=pages, page_size=page_size, made=made):
            try:
                present.append(make())
            except (ModuleNotFoundError, NotHere) as error:
                absent.append(Line(peer=name, how=_why(error), trains=True, seconds=None))
        losses = {peer.name: peer.loss() for peer in present if peer.loss is not None}
        taken = _interleaved(present, repeats, watch_of(db.session))
    lines = [
        Line(
            peer=peer.name, how=peer.how, trains=peer.trains, loss=losses.get(peer.name),
            seconds=statistics.median(one.seconds for one in taken[peer.name]),
            joules=_median([one.joules for one in taken[peer.name]]),
            processors=_median([one.processors for one in taken[peer.name]]),
        )
        for peer in present
    ]  # fmt: skip
    if passes > 1:
        lines.insert(2, _later_pass(lines[0], lines[1], passes))
    return Contest(
        case=case.name,
        rule=case.rule,
        rows=case.rows,
        left_out=case.left_out,
        unused=case.unused,
        columns=case.x.shape[1],
        pages=pages,
        page_size=page_size,
        passes=passes,
        repeats=repeats,
        loss=case.task.loss.name,
        lines=(*lines, *absent),
        parts=measure_parts(db, case, pages=pages, repeats=repeats) if parts else (),
    )


def _later_pass(of_all: Line, alone: Line, passes: int) -> Line:
    def less(all_: float | None, one: float | None) -> float | None:
        # below 0: noise, of a table of few pages
        taken = None if all_ is None or one is None else (passes * all_ - one) / (passes - 1)
        return taken if taken is None or taken > 0 else None

    return Line(
        peer=LATER_PASS,
        how=f"{passes} passes less one alone",
        trains=False,
        seconds=less(of_all.seconds, alone.seconds),
        processors=less(of_all.processors, alone.processors),
    )


def _why(error: ModuleNotFoundError | NotHere) -> str:
    if isinstance(error, NotHere):
        return f"not here: {error}"
    return f"not here; run: pip install {NAMES.get(error.name or '', error.name)}"


@dataclass(frozen=True, slots=True)
class _Taken:
    """By one training, of a pass."""

    seconds: float
    joules: float | None
    processors: float | None


def _median(known: list[float | None]) -> float | None:
    there = [one for one in known if one is not None]
    return statistics.median(there) if there else None


def _interleaved(peers: list[Peer], repeats: int, watch: Watch | None) -> Mapping[str, list[_Taken]]:
    """What a pass of each takes, in turn; `watch`: of the processors."""
    taken: dict[str, list[_Taken]] = {peer.name: [] for peer in peers}
    for _ in range(repeats):
        for peer in peers:
            worked, before, start = watch() if watch else None, _joules(), time.perf_counter()
            passes = peer.run()
            seconds, after = time.perf_counter() - start, _joules()
            # the counter begins again at 0 now and then
            used = None if before is None or after is None or after < before else (after - before) / passes
            work = None if worked is None else worked() / passes
            taken[peer.name].append(_Taken(seconds / passes, used, work))
    return taken


def _joules() -> float | None:
    try:
        return int(ENERGY.read_text()) / 1e6
    except OSError:
        return None
