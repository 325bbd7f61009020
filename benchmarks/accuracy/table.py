"""The comparison itself: every rule on all data that it is meant for and that is there.

In: names of rules, perhaps a folder with data. Out: one `Comparison` after the other. Rules train on the simulator with
their default metas; it must not choose any for a data set.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.accuracy.data import Split, available, split
from benchmarks.accuracy.metrics import Metric
from benchmarks.accuracy.raw import RAW_TASKS, raw_split
from benchmarks.accuracy.tasks import TASKS, Task
from dana import rules
from dana.errors import UsageError
from dana.trainer.arrays import train

ENOUGH = 0.99
"""Ratio from which a rule is as accurate as its counterpart: within 1 %."""

NEAR = 0.02
"""Difference of AUC, accuracy or R² up to which a rule on a raw table is as good as a scaled pipeline."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A rule and its counterpart on one data set.

    Attributes
    ----------
    rule, data, rows, columns
        Names, and the training rows' shape.
    counterpart
        Name of the reference.
    metric
        How both are judged, on rows that neither has seen.
    ours, theirs
        What came out.
    seconds, their_seconds
        Time of the fits.
    raw
        The table came as it is.
    """

    rule: str
    data: str
    rows: int
    columns: int
    counterpart: str
    metric: Metric
    ours: float
    theirs: float
    seconds: float
    their_seconds: float
    raw: bool = False

    @property
    def ratio(self) -> float:
        """Ours over theirs, turned so that more is better."""
        return self.metric.ratio(self.ours, self.theirs)

    @property
    def enough(self) -> bool:
        """Whether the rule is better than its counterpart or near: within 1 %, on raw tables within 0.02."""
        return self.ours >= self.theirs - NEAR if self.raw else self.ratio >= ENOUGH


def compare(names: Sequence[str] = (), folder: Path | None = None) -> Iterator[Comparison]:
    """Compare rules, all by default, on what data there is, standardised, and on raw tables.

    Raises
    ------
    UsageError
        There is no rule of such a name.
    SetupError
        Scikit-learn is missing.
    """
    for name in names:
        if name not in TASKS:
            raise UsageError(f"there is nothing to compare {name!r} with", hint=f"Known are {', '.join(TASKS)}.")
    loaders = available(folder)
    loaded: dict[str, Split] = {}
    for name in names or TASKS:
        for data in (data for data in TASKS[name].data if data in loaders):
            if data not in loaded:
                loaded[data] = split(data, loaders[data]())
            yield compared(name, TASKS[name], loaded[data])
        for data in RAW_TASKS[name].data if name in RAW_TASKS else ():
            yield compared(name, RAW_TASKS[name].task(), raw_split(name, data))


def compared(name: str, task: Task, data: Split) -> Comparison:
    """Fit both, judge both."""
    columns = task.columns(data)
    features = [column for column in columns if column != "y"]
    start = time.perf_counter()
    trained = train(rules.text(name), columns, features=features, label=None, hyper=task.extents(data))
    seconds = time.perf_counter() - start
    known = {**trained.metas, **trained.extents}
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that a reference has not converged is its own matter
        theirs = task.reference(data, known)
    their_seconds = time.perf_counter() - start
    return Comparison(
        rule=name,
        data=data.name,
        rows=data.features.shape[0],
        columns=data.features.shape[1],
        counterpart=task.counterpart,
        metric=task.metric,
        ours=task.metric.measure(task.truth(data), task.found(trained, data), known),
        theirs=task.metric.measure(task.truth(data), theirs, known),
        seconds=seconds,
        their_seconds=their_seconds,
        raw=data.raw,
    )
