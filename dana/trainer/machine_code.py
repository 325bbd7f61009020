"""Machine code for trainings that run long enough to benefit from it.

The code is compiled in a thread while the training starts and is attached to the simulator between two epochs; what
another process compiled is read from the folder of designs before the first one. If LLVM is not installed, the process
may not execute memory that it wrote, or the rule is not supported, the simulator trains without code; the results are
the same, and the log has the reason once.
"""

from __future__ import annotations

import ctypes
import logging
import math
import os
import time
from contextlib import suppress
from functools import cache
from threading import Thread
from typing import TYPE_CHECKING

from dana.compiler.passes import simplify
from dana.simulator import Simulator
from dana.storage import layout
from dana.trainer import processors
from dana.trainer.contract import Level, Notice, Notify, TrainRequest
from dana.trainer.designs import Design, bound_graph
from dana.trainer.memory import machine_bytes, room_bytes
from hwgen.spec.bundle import WHOLE_EPOCH, Bundle
from hwgen.spec.engine import Opcode, Section

if TYPE_CHECKING:  # LLVM is loaded where it is used
    from dana.jit import Code

log = logging.getLogger("dana.worker")

KEPT = 1 << 22
"""Maximum size of the working memory that is kept with the code for the next training of the design, bytes."""
VARIABLE = "DANA_COMPILED"
"""Environment variable of the worker: ``always`` or ``never`` overrides the decision by time."""
WORTH_SECONDS = 0.15
"""Time of the trainings of a design without code from which compilation pays; LLVM takes about as long."""
READ_SECONDS = 0.01
"""The same for code that is read from a file."""
WAIT_SECONDS = 0.3
"""Time of an epoch without code from which waiting for the code is faster."""
SHARED_SECONDS = 0.001
"""Time of an epoch from which threads share it; starting one takes 30 microseconds."""
SHORT = 300
"""Instructions of a program above which both times grow with its length: an unrolled rule takes LLVM seconds."""
PER_BYTE, PER_INSTRUCTION, PER_OPERATION = 0.3e-9, 25e-9, 0.16e-9
"""Approximate simulation time without code, seconds: per byte of a page, per instruction, per scalar operation."""
ROOM = 400 << 20
"""Headroom required for compilation, bytes: LLVM aborts the process without a message if an allocation fails."""
OLDEST = (0, 46)
"""Release of llvmlite."""
PR_GET_MDWE = 66
"""prctl(2): whether making writable memory executable is denied."""


class Compiled:
    """Compiles code during a training if that pays, and attaches it to the simulator between two epochs.

    The times of consecutive trainings of a design are added up, and the code is kept for the next training.

    Parameters
    ----------
    loss_only
        The design computes only the loss.
    """

    def __init__(self, request: TrainRequest, design: Design, simulator: Simulator, *, loss_only: bool) -> None:
        self._request = request
        self._design = design
        self._simulator = simulator
        self._loss_only = loss_only
        self._epochs = request.epochs or design.epochs
        self._scale = max(1.0, len(design.bundle.program) / SHORT)
        self._mode = os.environ.get(VARIABLE)
        if request.part is not None and request.part.mode == "batch" and self._mode != "never":
            self._mode = "always"  # the other parts wait for this one in each batch
        self._compilation: Thread | None = None
        self._looked = False
        self._stored: bytes | None = None
        """Code that another process compiled."""
        self._history = design.history
        self._code: Code | None = None
        if self._mode != "never":  # code has its own working memory, so only one training can use it at a time
            self._code, self._history.code = self._history.code, None
        # frames have no number of pages: their time is 0 until the first epoch is measured
        self._epoch_seconds = (request.relation.pages or 0) * page_seconds(design.bundle)
        self._begun: float | None = None
        self._reported = False
        self.attached = False
        """Whether code runs the epochs."""
        self._start()

    def before_epoch(self) -> None:
        """Attach the code if it is ready, or wait for it if that is faster than an epoch without code."""
        if self._begun is not None:
            self._epoch_seconds = time.perf_counter() - self._begun
            self._epochs -= 1
        self._begun = time.perf_counter()
        self._start()
        # MachineTraining begins an epoch after the last one, too; code would be attached for nothing
        if self._epochs <= 0:
            return
        if self.attached:
            self._share()
            return
        waits = self._mode == "always" or self._stored or self._epoch_seconds > self._scale * WAIT_SECONDS
        if waits and self._compilation is not None:
            self._compilation.join()
        if self._code is not None:
            try:
                self._simulator.attach(self._code)
            except MemoryError:  # attaching holds a third copy of the models for a moment
                log.info("rule %r trains without machine code: out of memory", self._request.rule)
                self._code, self._mode = None, "never"
            else:
                self.attached = True

    def _share(self) -> None:
        """Have the processors that are free run parts of the epoch, if it repeats pages and threads pay."""
        assert self._code is not None
        simulator, code = self._simulator, self._code
        pays = code.splits and self._epoch_seconds >= SHARED_SECONDS
        threads = processors.free() if pays else 1
        missing = threads - simulator.helpers
        if threads > 1 and missing > 0:
            config = self._design.bundle.config
            # twice the scratchpad: the simulator has one more until code is compared with the program
            each = code.size + 8 * config.scratch_depth * config.threads * config.lanes
            # a quarter: a training that fits without threads must not fail with them
            if missing * each <= room_bytes() / 4:
                with suppress(MemoryError):
                    simulator.add_helpers([code.copy() for _ in range(missing)])
        simulator.threads = threads

    def close(self) -> None:
        """Wait for the compilation: the next request may have a lower limit, and LLVM aborts if an allocation fails."""
        if self._compilation is not None:
            self._compilation.join()
        # code that differed from the program is dropped, so that the next training compiles and compares anew
        if self._code is not None and not self._simulator.differs:
            if self._code.size > KEPT:
                self._code.release()
            self._history.code, self._code = self._code, None

    def after_epoch(self, notify: Notify) -> None:
        """Warn if the code gave another result than the program of the machine, which is a bug in DAnA."""
        if self._begun is not None and not self.attached:
            self._history.seconds += time.perf_counter() - self._begun
        if self._simulator.differs and not self._reported:
            self._reported = True
            notify(
                Notice(
                    level=Level.WARNING,
                    message=f"the machine code of rule {self._request.rule!r} differs from its accelerator program; "
                    "the training used the program",
                    hint="This is a bug in DAnA. Please report it with the rule.",
                )
            )

    def _start(self) -> None:
        """Start the compilation if the remaining epochs are expected to take long enough without code."""
        if self._compilation is not None or self._code is not None or self._mode == "never":
            return
        without = self._history.seconds + self._epochs * self._epoch_seconds
        if self._mode != "always" and without <= READ_SECONDS:
            return
        if not self._looked:
            self._looked, self._stored = True, self._history.read_code()
        if self._mode != "always" and not self._stored and without <= self._scale * WORTH_SECONDS:
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
        except Exception:  # a bug in the compiler must not end a training that works without code
            log.exception("compiling rule %r failed; it trains without machine code", self._request.rule)

    def _made(self) -> Code | None:
        from dana.jit import Unsupported, assemble, load

        started, most = time.perf_counter(), min(room_bytes() - ROOM, machine_bytes() // 2)
        try:
            if self._stored is not None:
                with suppress(ValueError):  # damaged, or of another processor
                    return load(self._stored, most_memory=most)
            graph = simplify(bound_graph(self._request, self._design, loss_only=self._loss_only))
            made = assemble(graph, self._design.bundle, most_memory=most)
            code = load(made, most_memory=most)
        except Unsupported as why:
            log.info("rule %r trains without machine code: %s", self._request.rule, why)
            # no later training of the design tries again
            self._history.seconds = -math.inf
            return None
        self._history.write_code(made)
        log.info("compiled rule %r in %.0f ms", self._request.rule, 1000 * (time.perf_counter() - started))
        return code


def page_seconds(bundle: Bundle) -> float:
    """Estimate the simulation time of a page without code, seconds."""
    config = bundle.config
    # sections that run once per epoch do not count
    often = (Section.TUPLE, Section.MERGE, Section.PUSH, Section.BATCH)
    seconds = sum(
        PER_INSTRUCTION + one.inner * one.outer * config.threads * config.lanes * PER_OPERATION
        for section in often
        if section in bundle.sections
        for one in bundle.section(section)
        if one.op is not Opcode.END
    )
    taken = bundle.round_tuples if bundle.batch == WHOLE_EPOCH else min(bundle.round_tuples, bundle.batch)
    # 4: about what alignment adds
    width = sum(column.count for column in bundle.columns) * 4 + layout.SMALLEST_TUPLE + 4
    tuples = max(1, config.page_size // width)
    return config.page_size * PER_BYTE + tuples * seconds / taken


def load_ahead() -> None:
    """Load the compiler, which the sessions of a worker then need not do, each for itself."""
    try:
        if os.environ.get(VARIABLE) != "never" and unavailable() is None:
            import dana.jit  # noqa: F401
    except Exception:  # such as a library that cannot be loaded: the worker must not end for it
        log.exception("the compiler of machine code cannot be loaded")


@cache
def unavailable() -> str | None:
    """Return why this process cannot run machine code, and log it once; None if it can."""
    reason = None
    try:
        import llvmlite.binding

        # older ones write pointers in a form that LLVM no longer reads
        if tuple(map(int, llvmlite.__version__.split(".")[:2])) < OLDEST:
            reason = f"llvmlite {llvmlite.__version__} is older than {OLDEST[0]}.{OLDEST[1]}"
    except ImportError as error:
        reason = f"llvmlite is not installed ({error})"
    if reason is None and _writes_or_executes():
        reason = "this process may not execute memory that it wrote (PR_SET_MDWE)"
    if reason is not None:
        log.warning("rules train without machine code, which is slower: %s", reason)
    return reason


def _writes_or_executes() -> bool:
    try:
        prctl = ctypes.CDLL(None).prctl
    except AttributeError:  # not Linux
        return False
    # kernels before 6.3 do not know it and return -1
    return bool(prctl(PR_GET_MDWE, 0, 0, 0, 0) > 0)
