"""One case: DAnA and everybody beside it, in turn, so that a busy moment of the machine falls on all.

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

from dana.client.connection import Connection
from dana.peers.cases import Case
from dana.peers.participants import DANA, LATER_PASS, ONE_PASS, makers
from dana.peers.peer import NotHere, Peer
from dana.peers.stage import staged

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
    """

    peer: str
    how: str
    trains: bool
    seconds: float | None
    loss: float | None = None
    joules: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Contest:
    """A case, measured.

    Attributes
    ----------
    left_out
        Rows of the user's table that had no numbers in all columns.
    pages, page_size
        The table's, page_size in bytes.
    passes, repeats
        Over the rows in one training; how often each was measured.
    loss
        Its name.
    lines
        DAnA's first.
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

    def seconds(self, peer: str) -> float | None:
        """Of a pass of one of them."""
        return next((line.seconds for line in self.lines if line.peer == peer), None)

    def ratio(self, line: Line) -> float | None:
        """Its time, DAnA's being 1."""
        ours = self.seconds(DANA)
        return None if line.seconds is None or not ours else line.seconds / ours


def measure(db: Connection, case: Case, *, passes: int = 5, repeats: int = 3) -> Contest:
    """Make the case's table, let everybody train on its rows, drop it.

    Parameters
    ----------
    passes
        Over the rows, in each training.
    repeats
        How often each is measured, in turn with the others.

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
        taken = _interleaved(present, repeats)
    lines = [
        Line(
            peer=peer.name, how=peer.how, trains=peer.trains, loss=losses.get(peer.name),
            seconds=statistics.median(one for one, _ in taken[peer.name]),
            joules=_median_joules([joules for _, joules in taken[peer.name]]),
        )
        for peer in present
    ]  # fmt: skip
    if passes > 1:
        all_, one = (statistics.median(seconds for seconds, _ in taken[peer]) for peer in (DANA, ONE_PASS))
        later = max(0.0, (passes * all_ - one) / (passes - 1))
        lines.insert(2, Line(peer=LATER_PASS, how=f"{passes} passes less one alone", trains=False, seconds=later))
    return Contest(
        case=case.name,
        rule=case.rule,
        rows=case.rows,
        left_out=case.left_out,
        columns=case.x.shape[1],
        pages=pages,
        page_size=page_size,
        passes=passes,
        repeats=repeats,
        loss=case.task.loss.name,
        lines=(*lines, *absent),
    )


def _why(error: ModuleNotFoundError | NotHere) -> str:
    if isinstance(error, NotHere):
        return f"not here: {error}"
    return f"not here; run: pip install {NAMES.get(error.name or '', error.name)}"


def _median_joules(joules: list[float | None]) -> float | None:
    known = [one for one in joules if one is not None]
    return statistics.median(known) if known else None


def _interleaved(peers: list[Peer], repeats: int) -> Mapping[str, list[tuple[float, float | None]]]:
    """Seconds and joules of a pass of each, in turn."""
    taken: dict[str, list[tuple[float, float | None]]] = {peer.name: [] for peer in peers}
    for _ in range(repeats):
        for peer in peers:
            before, start = _joules(), time.perf_counter()
            passes = peer.run()
            seconds, after = time.perf_counter() - start, _joules()
            # the counter begins again at 0 now and then
            used = None if before is None or after is None or after < before else (after - before) / passes
            taken[peer.name].append((seconds / passes, used))
    return taken


def _joules() -> float | None:
    try:
        return int(ENERGY.read_text()) / 1e6
    except OSError:
        return None
