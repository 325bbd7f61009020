"""Machine code for trainings that are long enough to be worth it.

In: a request, its design, the simulator that trains. Out: the simulator with code attached, or as it was: where LLVM
is not installed, this process may not execute what it writes, or the rule is none that code is made for, it trains as
before, with the same results, and the log says so once. It is made in a thread of its own, while the training begins.
"""

from __future__ import annotations

import ctypes
import logging
import math
import os
import platform
import time
from functools import cache
from threading import Thread
from typing import TYPE_CHECKING

from dana.compiler.passes import simplify
from dana.simulator import Simulator
from dana.training.contract import Level, Notice, Notify, TrainRequest
from dana.training.designs import Design, bound_graph
from dana.training.memory import machine_bytes, room_bytes
from hwgen.spec.bundle import WHOLE_EPOCH, Bundle
from hwgen.spec.engine import Opcode, Section

if TYPE_CHECKING:  # LLVM is loaded where it is used
    from dana.jit import Code

log = logging.getLogger("dana.worker")

KEPT = 1 << 22
"""Bytes of code's memory, up to which it is kept with the code for the design's next training."""
VARIABLE = "DANA_COMPILED"
"""Environment variable of the worker: ``always`` or ``never`` in the place of judging by the time."""
WORTH_SECONDS = 0.15
"""Without code, from this time on, trainings of a design are worth what LLVM takes: about as long, the first time."""
WAIT_SECONDS = 0.3
"""Without code, from this time on, an epoch takes longer than waiting for the code and running that."""
SHORT = 300
"""Instructions of a machine's program, from which on both times grow with it: an unrolled rule takes LLVM seconds."""
PER_BYTE, PER_INSTRUCTION, PER_OPERATION = 0.3e-9, 25e-9, 0.16e-9
"""Seconds of the simulator without code, for a byte of a page, an instruction and an operation on a number; roughly."""
PROCESSORS = ("x86_64", "AMD64")
ROOM = 400 << 20
"""Bytes that a process must still be allowed: LLVM ends the process where it gets no memory, and does not say so."""
PR_GET_MDWE = 66
"""prctl(2): whether memory that was writable is refused to become executable."""


class Compiled:
    """Has code made beside a training for which it pays, and attaches it to the simulator between two epochs.

    Short trainings of one design, one after the other, pay together; and the code of one is there for the next.

    Parameters
    ----------
    judges
        The design computes the loss alone.
    """

    def __init__(self, request: TrainRequest, design: Design, simulator: Simulator, *, judges: bool) -> None:
        self._request = request
        self._design = design
        self._simulator = simulator
        self._judges = judges
        self._epochs = request.epochs or design.epochs
        self._scale = max(1.0, len(design.bundle.program) / SHORT)
        self._mode = os.environ.get(VARIABLE)
        self._compilation: Thread | None = None
        self._past = design.past
        self._code: Code | None = None
        if self._mode != "never":  # code works on memory of its own, for one training at a time
            self._code, self._past.code = self._past.code, None
        self._epoch_seconds = (request.relation.pages or 0) * page_seconds(design.bundle)
        self._begun: float | None = None
        self._told = False
        self.attached = False
        """Whether there is code."""
        self._start()

    def before_epoch(self) -> None:
        """Attach code that is there, or that it is shorter to wait for than to do without for an epoch."""
        if self._begun is not None:
            self._epoch_seconds = time.perf_counter() - self._begun
            self._epochs -= 1
        self._begun = time.perf_counter()
        self._start()
        if self.attached or self._epochs <= 0:
            return
        waits = self._mode == "always" or self._epoch_seconds > self._scale * WAIT_SECONDS
        if waits and self._compilation is not None:
            self._compilation.join()
        if self._code is not None:
            try:
                self._simulator.attach(self._code)
            except MemoryError:  # of a large model there would be three for a moment
                log.info("rule %r trains without code of its own: no memory is left for it", self._request.rule)
                self._code, self._mode = None, "never"
            else:
                self.attached = True

    def close(self) -> None:
        """Wait for what is being made: the next request may have less memory, and LLVM ends a process without."""
        if self._compilation is not None:
            self._compilation.join()
        if self._code is not None and not self._simulator.differs:
            if self._code.size > KEPT:
                self._code.release()
            self._past.code = self._code

    def after_epoch(self, notify: Notify) -> None:
        """Say so where the code was found to compute something else than the machine's program: that is our mistake."""
        if self._begun is not None and not self.attached:
            self._past.seconds += time.perf_counter() - self._begun
        if self._simulator.differs and not self._told:
            self._told = True
            notify(
                Notice(
                    level=Level.WARNING,
                    message=f"the code made for rule {self._request.rule!r} differs from its machine's program; "
                    "the program trained",
                    hint="Please report this with the rule: one of the two computes something else than the rule says.",
                )
            )

    def _start(self) -> None:
        """Begin to compile, if the epochs that come take long enough without: as the table's size says, or the last."""
        if self._compilation is not None or self._code is not None or self._mode == "never":
            return
        without = self._past.seconds + self._epochs * self._epoch_seconds
        if self._mode != "always" and without <= self._scale * WORTH_SECONDS:
            return
        compilation = Thread(target=self._compile, name="compile")
        try:
            compilation.start()
        except RuntimeError:  # no memory for a thread
            self._mode = "never"
        else:
            self._compilation = compilation

    def _compile(self) -> None:
        try:
            if room_bytes() >= ROOM and unavailable() is None:
                self._code = self._made()
        except Exception:  # the program trains as well: a mistake of ours must not end a training
            log.exception("no code for rule %r, which trains without", self._request.rule)

    def _made(self) -> Code | None:
        from dana.jit import Unsupported, compile_graph

        started = time.perf_counter()
        graph = simplify(bound_graph(self._request, self._design, judges=self._judges))
        try:
            code = compile_graph(graph, self._design.bundle, most_memory=min(room_bytes() - ROOM, machine_bytes() // 2))
        except Unsupported as why:
            log.info("rule %r trains without code of its own: %s", self._request.rule, why)
            self._past.seconds = -math.inf
            return None
        log.info("compiled rule %r in %.0f ms", self._request.rule, 1000 * (time.perf_counter() - started))
        return code


def page_seconds(bundle: Bundle) -> float:
    """What a page takes without code, about: its bytes, and the instructions for its tuples."""
    config = bundle.config
    often = (Section.TUPLE, Section.MERGE, Section.PUSH, Section.BATCH)
    seconds = sum(
        PER_INSTRUCTION + one.inner * one.outer * config.threads * config.lanes * PER_OPERATION
        for section in often
        if section in bundle.sections
        for one in bundle.section(section)
        if one.op is not Opcode.END
    )
    taken = bundle.round_tuples if bundle.batch == WHOLE_EPOCH else min(bundle.round_tuples, bundle.batch)
    width = sum(column.count for column in bundle.columns) * 4 + 32
    tuples = max(1, config.page_size // width)
    return config.page_size * PER_BYTE + tuples * seconds / taken


@cache
def unavailable() -> str | None:
    """Why there is no code in this process, said to the log once; None: there may be."""
    reason = None
    try:
        import llvmlite.binding  # noqa: F401
    except ImportError as error:
        reason = f"llvmlite is not installed ({error})"
    if reason is None and platform.machine() not in PROCESSORS:
        reason = f"subnormal numbers are flushed as the machine does on {', '.join(PROCESSORS)} alone"
    if reason is None and _writes_or_executes():
        reason = "this process may not execute memory that it wrote (PR_SET_MDWE)"
    if reason is not None:
        log.warning("rules train without code of their own, more slowly: %s", reason)
    return reason


def _writes_or_executes() -> bool:
    try:
        prctl = ctypes.CDLL(None).prctl
    except AttributeError:  # not Linux
        return False
    return bool(prctl(PR_GET_MDWE, 0, 0, 0, 0) > 0)
