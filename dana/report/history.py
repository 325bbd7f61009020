"""A run as recorded in the database.

In: a session and the run's number. Out: a `Run`. It only reads the extension's tables. It must not read the tables and
views that a run names: the reader may be a superuser, and a view may call any function of its owner.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import TypedDict, TypeVar

import psycopg
from psycopg.rows import DictRow, dict_row

from dana.errors import UsageError

MAX_EPOCHS = 400
"""Points of a curve, and rows of the table below it; longer trainings are thinned."""

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True, kw_only=True)
class Epoch:
    """A row of dana.epoch; ``validation_loss`` is the loss of the held-out rows, None without any."""

    epoch: int
    loss: float | None
    validation_loss: float | None = None
    tuples: int
    cycles: int | None
    seconds: float
    counters: dict[str, int]


class Design(TypedDict, total=False):
    """The members of dana.run's ``design`` that a report shows."""

    bundle: str
    config: dict[str, int]
    dims: dict[str, int]
    features: list[str]
    labels: list[str]
    metas: dict[str, float]
    rule: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A row of dana.run with its epochs and the text of its rule.

    Attributes
    ----------
    design
        The training's record of its machine and of the inputs to its design (`dana.trainer.provenance`).
    owner, rule
        Their names.
    text
        The rule as it was trained, or None.
    missing
        The reason for a missing text, as a sentence; else empty.
    metas
        Values of the rule's metas in this run.
    features, labels
        Columns that the training read.
    """

    id: int
    owner: str
    model: str
    model_version: int
    rule: str
    source: str
    machine: str
    started: datetime
    wall_seconds: float
    modelled_seconds: float | None
    epochs: int
    kept: int
    converged: bool
    loss: float | None
    tuples: int
    skipped: int
    pages: int
    cycles: int | None
    design: Design
    text: str | None
    missing: str
    metas: dict[str, float]
    features: tuple[str, ...]
    labels: tuple[str, ...]
    curve: tuple[Epoch, ...]

    @property
    def config(self) -> dict[str, int]:
        """Fields of the machine; empty for a run of the interpreter."""
        return self.design.get("config", {})

    @property
    def counted(self) -> dict[str, int]:
        """The machine's counters summed over all epochs, with ``cycles``; empty for the interpreter, which has none."""
        if not self.curve or any(epoch.cycles is None or not epoch.counters for epoch in self.curve):
            return {}
        names = self.curve[0].counters
        return {
            "cycles": sum(epoch.cycles or 0 for epoch in self.curve),
            **{name: sum(epoch.counters[name] for epoch in self.curve) for name in names},
        }

    @property
    def parts(self) -> list[tuple[str, int]]:
        """Cycles that parts of the machine were busy or waited, by its counters; empty without any."""
        from hwgen.spec.config import MachineConfig

        counted = self.counted
        if not counted or not self.config:
            return []
        return [
            ("unpacker waited for the engine", counted["waiting_for_engine"]),
            ("unpacker waited for pages", counted["waiting_for_pages"]),
            ("engine waited for tuples", counted["waiting_for_tuples"]),
            ("engine merged batches", counted["merging"]),
            ("engine ran, merging included", counted["engine_busy"]),
            # no counter: the link's time follows from the number of pages
            ("link brought pages", self.pages * MachineConfig(**self.config).page_cycles),
        ]

    @property
    def pages_of_epoch(self) -> int:
        """Pages that each epoch read."""
        return self.pages // max(1, self.epochs)


RUN = """
SELECT r.id, r.owner::text, r.model, r.model_version, r.rule, r.source, r.machine, r.started, r.wall_seconds,
       r.modelled_seconds, r.epochs, r.kept, r.converged, r.loss, r.tuples, r.skipped, r.pages, r.cycles, r.design,
       t.text
FROM dana.run r LEFT JOIN dana.rule t ON t.name = r.rule
WHERE r.id = %s
"""


def read_run(session: psycopg.Connection, number: int) -> Run:
    """Read a run.

    Raises
    ------
    UsageError
        There is no such run, or it belongs to another role.
    """
    from dana.trainer.provenance import digest_of  # loads the compiler, which other clients do not need

    with session.cursor(row_factory=dict_row) as cursor:
        found = cursor.execute(RUN, (number,)).fetchone()
        if found is None:
            last = session.execute("SELECT max(id) FROM dana.run").fetchone()
            hint = "No run of yours is on record." if last is None or last[0] is None else f"The last is {last[0]}."
            raise UsageError(f"run {number} does not exist, or belongs to another role", hint=hint)
        curve = cursor.execute("SELECT * FROM dana.epoch WHERE run = %s ORDER BY epoch", (number,)).fetchall()
    design, text = found["design"], found.pop("text")
    missing = ""
    if text is None:
        missing = "The rule has been dropped, or is not yours to read."
    # the recorded machine belongs to the text that was trained, not to the present one
    elif digest_of(text) != design.get("rule"):
        text, missing = None, "The rule has been replaced since this run."
    return Run(
        **found,
        text=text,
        missing=missing,
        metas=design.get("metas", {}),
        features=tuple(design.get("features", ())),
        labels=tuple(design.get("labels", ())),
        curve=tuple(_epoch(row) for row in curve),
    )


def _epoch(row: DictRow) -> Epoch:
    # by name, so that a column that the extension adds does no harm
    return Epoch(**{field.name: row[field.name] for field in fields(Epoch) if field.name in row})


def thinned(items: Sequence[Item], most: int = MAX_EPOCHS) -> list[Item]:
    """At most ``most`` items, evenly spaced, including the last."""
    step = max(1, -(-len(items) // most))
    # backwards, so that the last item is always among them
    return list(items[::-1][::step][::-1])
