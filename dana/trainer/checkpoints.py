"""Checkpoints: the state of a training on several servers after an epoch, from which a later one goes on.

In: the loop's state, the request, hashes of the rows. Out: bytes for a store, and the state read from them. A resumed
training has the bits of one that was never interrupted.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, fields
from hashlib import sha256
from importlib.metadata import version
from typing import Protocol

import numpy as np

from dana.trainer.contract import (
    EpochReport,
    Level,
    Notice,
    Notify,
    Parameter,
    SqlState,
    TrainingError,
    TrainRequest,
)
from dana.trainer.loop import State
from dana.trainer.parts import Arrays, Leading, packed, unpacked
from dana.trainer.stopping import Stopping

RESUME = ("unchanged", "anyway", "never")
"""Values of ``resume``: continue if the rows are unchanged; continue in any case; start again."""

INTERVAL = 1.0
"""Least number of seconds between two checkpoints."""

OTHERS = ("text", "part", "relation", "centres", "metadata", "resume", "caller")
"""Members of a request that are not compared as they are."""

LIMITS = ("max_epochs", "max_memory", "temp_file_limit")


class Store(Protocol):
    """Keeps the bytes of one training."""

    def load(self) -> bytes:
        """Return the bytes saved last; b"" if there are none."""

    def save(self, epoch: int, state: bytes) -> None:
        """Store the state after an epoch in their place."""


def check_resume(request: TrainRequest) -> None:
    """Raise TrainingError if a request has no such checkpoints."""
    if request.resume is None:
        return
    if request.resume not in RESUME:
        raise TrainingError(
            f'argument "resume" must be {", ".join(RESUME[:-1])} or {RESUME[-1]}, not {request.resume!r}'
        )
    if request.part is None:
        raise TrainingError("argument \"resume\" goes with sync => 'batch' or sync => 'epoch'")


class StoredCheckpoints:
    """The checkpoints of a training; implements `dana.trainer.loop.Checkpoints`."""

    def __init__(self, store: Store, request: TrainRequest, training: Leading, notify: Notify) -> None:
        self._store, self._request, self._training, self._notify = store, request, training, notify
        self._due = 0.0

    @property
    def _rows(self) -> list[object]:
        """What shows whether rows have changed: first the centres, which follow from all."""
        return [sha256(repr(self._request.centres).encode()).hexdigest(), *self._training.digests]

    def load(self) -> State | None:
        """See `Checkpoints.load`; TrainingError if the state is of another training, or of other rows."""
        stored = self._store.load()
        if not stored or self._request.resume == "never":
            return None
        text, arrays = unpacked(stored)
        head = json.loads(text)
        asked = _asked(self._request)
        differ = [name for name, value in asked.items() if head["asked"].get(name) != value]
        if differ:
            raise TrainingError(
                f"the checkpoint of this model belongs to a training with another {', another '.join(differ)}",
                hint="Give the same arguments, another model, or resume => 'never', which replaces the checkpoint.",
            )
        self._check_rows(len(head["reports"]), head["rows"])
        reports = [EpochReport(**one) for one in head["reports"]]
        self._training.count(reports)
        return State(
            models=_models(arrays, "models"),
            reports=reports,
            seconds=head["seconds"],
            stopping=Stopping(**head["stopping"]),
            best=head["best"] and (head["best"], _models(arrays, "best")),
            first=head["first"] and (head["first"], _models(arrays, "first")),
            stepped=head["stepped"],
        )

    def _check_rows(self, epoch: int, before: Sequence[object]) -> None:
        now = self._rows
        differ = [str(number) for number, (a, b) in enumerate(zip(before, now, strict=True)) if number and a != b]
        if before == now:
            said = f"the training continues after epoch {epoch}, from its checkpoint"
            self._notify(Notice(level=Level.NOTICE, message=said))
            return
        changed = (
            f"rows of shard {', '.join(differ)} of {len(now) - 1}, or their order, have changed since epoch {epoch}, "
            "when the checkpoint was written"
        )
        # with other centres the columns of the state have other values
        if self._request.resume == "unchanged" or before[0] != now[0]:
            anyway = (
                "" if before[0] != now[0] else " With resume => 'anyway' the training continues with the current rows."
            )
            raise TrainingError(
                changed,
                sqlstate=SqlState.ROWS_CHANGED,
                hint=f"With resume => 'never' it begins again.{anyway}",
            )
        self._notify(Notice(level=Level.WARNING, message=f"{changed}; the training continues with the current rows"))

    def save(self, epoch: int, state: Callable[[], State]) -> None:
        """See `Checkpoints.save`."""
        if time.monotonic() < self._due:
            return
        now = state()
        head = {
            "asked": _asked(self._request),
            "rows": self._rows,
            "reports": [asdict(one) for one in now.reports],
            "seconds": now.seconds,
            "stopping": asdict(now.stopping),
            "best": now.best and now.best[0],
            "first": now.first and now.first[0],
            "stepped": now.stepped,
        }
        kinds = {"models": now.models, "best": now.best and now.best[1], "first": now.first and now.first[1]}
        arrays = {f"{kind}.{one.name}": one.values for kind, models in kinds.items() for one in models or ()}
        self._store.save(epoch, packed(json.dumps(head), arrays))
        self._due = time.monotonic() + INTERVAL


def _models(arrays: Arrays, kind: str) -> list[Parameter]:
    before = f"{kind}."
    return [
        Parameter(name=name.removeprefix(before), values=values)
        for name, values in arrays.items()
        if name.startswith(before)
    ]


def _asked(request: TrainRequest) -> dict[str, str]:
    """What makes a training this one, by the names of its arguments: a digest of each."""
    assert request.part is not None
    given = {one.name: getattr(request, one.name) for one in fields(request) if one.name not in OTHERS + LIMITS}
    given |= {
        "rule": request.text,
        "sync": request.part.mode,
        "number of shards": request.part.count,
        "release": version("dana-db"),
    }
    return {name: _digest(value) for name, value in given.items()}


def _digest(value: object) -> str:
    text = json.dumps(value, sort_keys=True, default=lambda array: sha256(np.asarray(array).tobytes()).hexdigest())
    return sha256(text.encode()).hexdigest()[:16]
