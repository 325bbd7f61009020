"""The worker with a trainer for tests: it really reads the pages, and does on demand what a trainer should not.

In: a socket path and the compiled ``tally.c``. A "rule" is a JSON object (see `Rule`). What it finds on the pages
(rows, the sum of a column) is the model's metadata, so that tests can compare it with what SQL says.

It stands in where the real trainer cannot be brought to do a thing at will: to crash, hang, leak, start a process or
ask for a terabyte at a chosen point (`MISHAPS`); to fail at a chosen page (``fail_at``); to have weights and a
predictor that a test chose (``weights``, ``predictor``); to tell which rows were on the pages (``column``, the
request in the metadata). What the real one does when others fail is tested with it: test_faults.py.
"""

from __future__ import annotations

import ctypes
import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dana.storage.reader import PageFault, read_page
from dana.storage.schema import Use
from dana.trainer.contract import (
    EpochReport,
    HeldOut,
    Json,
    Level,
    Notice,
    Notify,
    Parameter,
    Sink,
    SqlState,
    Stream,
    TrainingError,
    TrainRequest,
    TrainResult,
)
from dana.worker import process as worker
from dana.worker import sessions

CONSUME = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """What a test's rule asks for.

    Attributes
    ----------
    epochs
        Passes over the table.
    column
        Integer column to add up by the reference reader; None: count line pointers natively.
    delay_us
        Pause for each page, native only.
    fail_at
        Page at which the sink fails, native only.
    converge_at
        Epoch in which it converges.
    on_open, on_page, on_epoch, on_check
        What happens there: "" or one of `MISHAPS`.
    rows
        Frames of all columns, which are numbers, instead of pages.
    allocate_mb
        Memory that it takes and gives back when it is opened.
    weights
        Values of the model's parameter.
    random_weights
        How many values the parameter has instead, which compress badly.
    predictor
        Hexadecimal predictor.
    notice
        Text of a notice.
    metas
        Names of its hyperparameters.
    """

    epochs: int = 1
    column: str | None = None
    delay_us: int = 0
    fail_at: int = 0
    converge_at: int = 0
    on_open: str = ""
    on_page: str = ""
    on_epoch: str = ""
    on_check: str = ""
    rows: bool = False
    allocate_mb: int = 0
    weights: tuple[float, ...] = (1.5, -2.25, 1e-30)
    random_weights: int = 0
    predictor: str | None = None
    notice: str = ""
    metas: tuple[str, ...] = ()


def _refuse() -> None:
    raise TrainingError(
        'column "q" does not exist', sqlstate=SqlState.UNDEFINED_COLUMN, detail="It has a, b.", hint='Use "a".'
    )


def _fail() -> None:
    raise ZeroDivisionError("one over nothing")


def _allocate() -> None:
    np.ones(2**40, dtype=np.uint8)


def _hoard() -> None:
    held = np.ones(400 << 20, dtype=np.uint8)
    time.sleep(3600)
    del held


HANGS = "hangs"
"""Name of a process that does, by which tests see that it has begun."""


def _hoard_for_good() -> None:
    # as native code that looks at nothing; blocked in this thread, a signal would come by way of another one
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_IGN)
    _hoard()


def _hang() -> None:
    Path("/proc/self/comm").write_text(HANGS)
    time.sleep(3600)


LEAKED: list[object] = []


def _leak() -> None:
    while True:
        LEAKED.append(bytearray(1 << 20))


MISHAPS: dict[str, Callable[[], object]] = {
    "": lambda: None,
    "refuse": _refuse,
    "fail": _fail,
    "allocate": _allocate,
    "leak": _leak,
    "spawn": lambda: subprocess.Popen(["sleep", "3600"]),
    "hoard": _hoard,
    "hoard for good": _hoard_for_good,
    "hang": _hang,
    "abort": os.abort,
    "stop": lambda: os.kill(os.getpid(), signal.SIGSTOP),
}


class Tally(ctypes.Structure):
    """``struct tally`` of tally.c."""

    _fields_ = [(name, ctypes.c_uint64) for name in ("pages", "tuples", "checksum", "delay_ns", "fail_at")]


class PageTraining:
    """Reads every page of every epoch."""

    def __init__(self, rule: Rule, request: TrainRequest, library: ctypes.CDLL) -> None:
        self._rule = rule
        self._request = request
        self._tally = Tally(delay_ns=rule.delay_us * 1000, fail_at=rule.fail_at)
        self._native = ctypes.cast(library.tally, ctypes.c_void_p).value or 0
        self._consume = CONSUME(self._read)
        self._epoch = 0
        self._sum = 0
        self._pages = 0
        if rule.column is not None:
            self._schema = request.relation.schema
            position = self._schema.index(rule.column)
            self._uses = [Use(attribute=position, input="x", element=0, count=1)]

    @property
    def design(self) -> Json:
        return {"reader": "python" if self._rule.column else "native"}

    @property
    def stream(self) -> Stream | None:
        count = len(self._request.relation.attributes)
        frames = Stream(numbers=tuple(range(1, count + 1)), lengths=(0,) * count, page_size=8192)
        return frames if self._rule.rows else None

    @property
    def epochs(self) -> int:
        return self._request.epochs or self._rule.epochs

    order = None
    survey = None

    def end_survey(self) -> None:
        raise AssertionError("nobody looked at the pages")

    @property
    def sink(self) -> Sink:
        if self._rule.column is None and not self._rule.on_page:
            return Sink(function=self._native, context=ctypes.addressof(self._tally))
        return Sink(function=ctypes.cast(self._consume, ctypes.c_void_p).value or 0, context=0)

    def _read(self, _context: int | None, address: int, count: int) -> int:
        MISHAPS[self._rule.on_page]()
        for i in range(count):
            self._tally.pages += 1
            if self._rule.column is not None:
                page = ctypes.string_at(address + i * 8192, 8192)
                try:
                    rows = read_page(page, self._schema, self._uses).rows
                except PageFault:
                    return 9
                self._tally.tuples += len(rows)
                self._sum += sum(int(row[0][0]) for row in rows)
        return 0

    def failure(self, status: int) -> Exception:
        return TrainingError(
            f"the sink failed with {status} at page {self._tally.pages}", sqlstate=SqlState.DATA_CORRUPTED
        )

    def end_epoch(self) -> EpochReport:
        MISHAPS[self._rule.on_epoch]()
        self._epoch += 1
        report = EpochReport(
            loss=1.0 / self._epoch,
            converged=self._epoch == self._rule.converge_at,
            tuples=self._tally.tuples,
            skipped=0,
            cycles=self._tally.pages * 100,
            counters={"checksum": self._tally.checksum % 1000},
        )
        self._found = {"count": self._tally.tuples, "sum": self._sum, "pages": self._tally.pages}
        self._sum = self._tally.tuples = self._tally.pages = 0
        return report

    not_finite = ""
    whole_table = tests_convergence = False
    clustered = ()

    def constant(self, parameters: Sequence[Parameter]) -> None:
        return None

    def judge(self, parameters: Sequence[Parameter]) -> Sink | None:
        return None

    def end_judging(self) -> float | None:
        raise AssertionError("there is no judge")

    def adopt(self, parameters: Sequence[Parameter]) -> None:
        raise AssertionError("only a training of the whole table as one batch continues from other values")

    def parameters(self, over: Sequence[Parameter] = ()) -> list[Parameter]:
        weights = np.array(self._rule.weights, dtype=np.float32)
        if self._rule.random_weights:
            weights = np.random.default_rng(1).random(self._rule.random_weights, dtype=np.float32)
        return [
            Parameter(name="w", values=weights),
            Parameter(name="b", values=np.array(float("nan"), dtype=np.float32)),
        ]

    def finish(self, parameters: Sequence[Parameter]) -> TrainResult:
        predictor = self._rule.predictor
        return TrainResult(
            parameters=parameters,
            predictor=None if predictor is None else bytes.fromhex(predictor),
            modelled_seconds=None,
            metadata={
                **self._found,
                "optimizers": [],
                "hyper": {},
                "coefficients": None,
                "request": asdict(self._request),
            },
        )

    def close(self) -> None:
        pass


class PageTrainer:
    """Opens `PageTraining`."""

    def __init__(self, library: Path) -> None:
        self._library = ctypes.CDLL(str(library))

    def check(self, text: str, notify: Notify) -> Json:
        rule = self._rule(text)
        if rule.notice:
            notify(Notice(level=Level.NOTICE, message=rule.notice, hint="This is a hint."))
        MISHAPS[rule.on_check]()
        return {"epochs": rule.epochs, "metas": dict.fromkeys(rule.metas, 1)}

    def prepare(self, machine: str) -> None:
        pass

    def open(self, request: TrainRequest, notify: Notify, link: object = None) -> PageTraining:
        rule = self._rule(request.text)
        MISHAPS[rule.on_open]()
        np.empty(rule.allocate_mb << 20, dtype=np.uint8)  # bounded where it is asked for, not where it is touched
        return PageTraining(rule, request, self._library)

    def held_out(self, request: TrainRequest) -> HeldOut | None:
        return None

    def _rule(self, source: str) -> Rule:
        try:
            fields: dict[str, Any] = json.loads(source)
        except ValueError as error:
            raise TrainingError(
                "the rule has 1 error", sqlstate=SqlState.SYNTAX_ERROR, detail=f"line 1: {error}", hint="Write JSON."
            ) from None
        return Rule(**fields)


def main() -> None:
    """Arguments: socket, library, and worker options as JSON; names of constants are capitals."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(process)d %(message)s")
    socket_path, library, options = sys.argv[1:]
    chosen = json.loads(options)
    for name in [name for name in chosen if name.isupper()]:
        setattr(sessions if hasattr(sessions, name) else worker, name, chosen.pop(name))
    if folder := chosen.get("model_directory"):
        chosen["model_directory"] = Path(folder)
    worker.serve(
        PageTrainer(Path(library)),
        worker.WorkerOptions(socket_path=Path(socket_path), **chosen),
    )


if __name__ == "__main__":
    main()
