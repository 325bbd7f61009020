"""How a benchmark measures and what it reports.

In: functions to time. Out: medians, and `Figure`s in a table. It judges nothing but a figure against its own target.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

WIDTH = 160


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One measured figure and its reference.

    Attributes
    ----------
    what
        What was measured.
    measured, reference
        Values with their units, for people.
    ratio
        Measured over reference, or the value itself where the target is absolute.
    target
        The bound on ``ratio``.
    at_most
        Whether the target is an upper bound.
    """

    what: str
    measured: str
    reference: str
    ratio: float
    target: float
    at_most: bool = True

    @property
    def met(self) -> bool:
        """Whether the target is met."""
        return self.ratio <= self.target if self.at_most else self.ratio >= self.target


Clock = Callable[[], float]
"""A count of seconds; two readings of it are what a call took."""


def processor_clock(process: int) -> Clock:
    """Seconds that another process has run on a processor (proc(5), schedstat): others' work does not count."""
    return lambda: int(Path(f"/proc/{process}/schedstat").read_text().split()[0]) / 1e9


def seconds(function: Callable[[], object], *, clock: Clock = time.perf_counter) -> float:
    """What one call takes."""
    start = clock()
    function()
    return clock() - start


def median_seconds(
    function: Callable[[], object], *, repeats: int = 7, warm_up: int = 1, clock: Clock = time.perf_counter
) -> float:
    """Median time of a call, after ``warm_up`` calls that do not count."""
    for _ in range(warm_up):
        function()
    return statistics.median(seconds(function, clock=clock) for _ in range(repeats))


def paired_medians(
    measured: Callable[[], object],
    reference: Callable[[], object],
    *,
    repeats: int = 11,
    warm_up: int = 2,
    clock: Clock = time.perf_counter,
) -> tuple[float, float]:
    """Median times of two functions, called in turn: a busy moment of the machine then falls on both."""
    ours, theirs = interleaved_medians((measured, reference), repeats=repeats, warm_up=warm_up, clock=clock)
    return ours, theirs


def interleaved_medians(
    functions: Sequence[Callable[[], object]],
    *,
    repeats: int = 11,
    warm_up: int = 2,
    clock: Clock = time.perf_counter,
) -> list[float]:
    """Median times of functions that are called in turn."""
    for function in functions * warm_up:
        function()
    times = [[seconds(function, clock=clock) for function in functions] for _ in range(repeats)]
    return [statistics.median(column) for column in zip(*times, strict=True)]


def show(figures: Sequence[Figure], json_file: Path | None = None) -> None:
    """Print the figures as a table; write them to ``json_file`` too where one is given."""
    from rich.console import Console
    from rich.table import Table

    table = Table("what", "measured", "reference", "ratio", "target", "")
    for figure in figures:
        bound = f"{'≤' if figure.at_most else '≥'} {figure.target:g}"
        mark = "[green]met[/green]" if figure.met else "[red]missed[/red]"
        table.add_row(figure.what, figure.measured, figure.reference, f"{figure.ratio:.3g}", bound, mark)
    console = Console()
    # a file or a pipe has no width; 80 columns would break every cell
    Console(width=console.width if console.is_terminal else WIDTH).print(table)
    if json_file is not None:
        json_file.write_text(json.dumps([asdict(figure) | {"met": figure.met} for figure in figures], indent=1))


def main(run: Callable[[], list[Figure]]) -> None:
    """Body of a benchmark's own ``__main__``."""
    show(run())
