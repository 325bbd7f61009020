"""A board through its register map: identify it, load a Bundle, train on pages, read the model.

In: registers and a memory for pages, of any kind; Bundles; pages. Out: losses, counters, scratchpad rows. The order of
accesses is that of `docs/registers.md`. It is independent of bus, file and simulator.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import prod
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from hwgen.driver.errors import BoardError, BusHang
from hwgen.driver.records import RecordMemory, Tables
from hwgen.driver.watch import Watch
from hwgen.driver.watch import patience as longest
from hwgen.spec import board, load, registers
from hwgen.spec.aperture import address
from hwgen.spec.board import BoardRegion, BoardRegister, BoardStatus, Command
from hwgen.spec.bundle import Bundle, Floats, Symbol, Words
from hwgen.spec.config import NOT_HARDWARE, ConfigError, MachineConfig
from hwgen.spec.counters import EpochCounters, read_counters
from hwgen.spec.load import Held
from hwgen.spec.registers import Region, Register
from hwgen.spec.strider import Fault

AT_LEAST = ("functions", "crossed")
"""Fields in which a machine may exceed the needs of a program."""
SLOTS_LEAST = 2
KNOWN_STATUS = sum(BoardStatus) | 0xFF00
"""Defined bits of STATUS; a device that is gone reads as all ones."""
STOPPING = 10.0
"""Seconds that a board may take to become idle after a stop."""
RESET_BOTH = "reset the board together with the interconnect to its memories"


Join = Callable[[Floats, bool], Floats]
"""Takes the merges of a batch, a vector of all their elements in the order of `Bundle.merges`, and whether the batch is
the epoch's last; returns a vector of the same length: them joined with those of other boards."""


class Registers(Protocol):
    """The AXI4-Lite slave of a board, by word addresses; accesses of 32 bits, each once, in order.

    A driver makes no access that the board rejects. If one is rejected nevertheless, BoardError is raised if the bus
    reports it.
    """

    def read(self, address: int, count: int) -> Words:
        """`count` words from there on."""

    def write(self, address: int, words: Words) -> None:
        """Words from there on."""

    def wait(self) -> None:
        """Wait before the next read of a status."""


class PageMemory(Protocol):
    """Memory that the board's AXI4 master reads; of several masters, each reads its part of it, in their order."""

    base: int
    """Address of its first byte on the board's bus, a multiple of the page size."""
    size: int
    """Bytes."""

    def write(self, offset: int, data: memoryview) -> None:
        """Put bytes there; the board sees them when this returns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardRun:
    """The result of a training."""

    epochs: int
    """Completed epochs."""
    losses: npt.NDArray[np.float32]
    """Sums of the rule's loss of the last 1,024 of them, binary32, the oldest first; none where the rule has none."""
    converged: bool
    """Whether the convergence test ended the training."""
    cycles: int
    """From the command to the end, on the board's clock."""
    counters: EpochCounters
    """Of the last epoch, with the fault that stopped it if there was one; of the fault BUS the page is
    `counters.fault_page`, too."""


class Board:
    """A board.

    Parameters
    ----------
    registers, memory
        Its two sides. The memory is the driver's alone.
    records
        Memory of a machine with `record_depth`, for Bundles that have tables; None: the board has none.
    blank
        Its memories were not written since its bitstream was loaded: they hold zeros. Then a load clears all that this
        driver wrote before; otherwise scratchpad rows outside a Bundle keep their contents.

    Attributes
    ----------
    config
        The configuration that the board reports.

    Raises
    ------
    BoardError
        No board answers there, or one of another version.
    """

    def __init__(
        self,
        registers: Registers,
        memory: PageMemory,
        records: RecordMemory | None = None,
        *,
        blank: bool = False,
    ) -> None:
        self._registers = registers
        self._memory = memory
        self._records = records
        self._bundle: Bundle | None = None
        self._tables: Tables | None = None
        self._held = Held() if blank else None
        self.config = self._identified()

    def load(self, bundle: Bundle, records: Iterable[bytes] | None = None) -> None:
        """Reset the machine and fill its memories; what it did before is stopped.

        Parameters
        ----------
        records
            What the Bundle's tables hold before the first training, a piece after another, from the first one's
            beginning to the last one's end. The rule's start values are those of
            `dana.codesign.records.record_image(bundle)`, and the bytes of a package's `images/records.bin`.

        Raises
        ------
        ValueError
            The Bundle has tables and there is no such image, or one of another size.
        BoardError
            The Bundle is for another machine, or the record memory is too small for its tables.
        hwgen.spec.bundle.BundleError
            It breaks a rule of the machine; the board goes on with what it does.
        """
        self._fits(bundle)
        tables = Tables(self._records, bundle)
        if bundle.tables and records is None:
            raise ValueError(
                "a Bundle with tables must be loaded with what they hold before the first training, for factors of "
                "zeros may never move: load(bundle, record_image(bundle)) of dana.codesign.records puts the rule's "
                "start values"
            )
        blocks = load.bundle_blocks(bundle, before=self._held, records=tables.base)
        afterwards = load.held(bundle)
        self._bundle = None  # an access that fails half-way leaves no program to train with
        # in every case, even if the loading fails
        self._holds(afterwards)
        self.stop()
        for at, words in blocks:
            self._registers.write(at, words)
        tables.fill(() if records is None else records)
        self._bundle, self._tables = bundle, tables
        if self._held is not None:
            self._held = afterwards

    def write_rows(self, row: int, rows: npt.ArrayLike, *, table: int = 0) -> None:
        """Write scratchpad rows of every thread, or rows of records, between trainings.

        Parameters
        ----------
        rows
            Bit patterns, shape [k, lanes].
        table
            Number of a table in the record memory: the rows are those of all its records from `row` on, as many of
            each, record after record.

        Raises
        ------
        ValueError
            They are of another shape, or there are no such rows.
        """
        words = np.asarray(rows, dtype=np.uint32)
        if words.ndim != 2 or words.shape[1] != self.config.lanes:
            raise ValueError(f"rows must have shape [k, {self.config.lanes}], not {list(words.shape)}")
        if table:
            self._loaded_tables().write_rows(table, row, words)
            return
        self._check_rows(row, len(words))
        self._holds(Held(rows=row + len(words)))
        self._registers.write(address(Region.SCRATCH, row * self.config.lanes, self.config), words.ravel())

    def train(
        self,
        pages: Any,
        *,
        epochs: int,
        seconds: float | None = None,
        patience: int | None = None,
        join: Join | None = None,
    ) -> BoardRun:
        """Train on whole pages that follow one another in a buffer of bytes; go on from the model that is there.

        A table that the memory does not hold streams through it. A fault of the data is the run's
        (`BoardRun.counters`), and the Bundle is to be loaded again.

        Parameters
        ----------
        epochs
            To train at most, from 1.
        seconds
            Time that it may take; None: any.
        patience
            Cycles in which a page must be read or an epoch end; None: more than the Bundle's work can take.
        join
            What joins the merges of a batch with those of other boards, for a Bundle with `merges`; None: the machine
            does not pause. An error of its own ends the training, and the board is to be loaded again.

        Raises
        ------
        ValueError
            There is no such training: no Bundle, parts of pages, `join` for a Bundle without `merges`. Or `join`
            returned something else than real numbers, one for each of its own; then the board is to be loaded again.
        BusHang
            A memory did not answer for BUS_TIMEOUT cycles, or owes answers of an earlier training.
        MachineHang
            No page was read and no epoch ended within ``patience``; the board is idle then, and to be loaded again.
        BoardError
            The time is over, or the board was stopped or reset from outside; it is idle then, and to be loaded again.
        """
        bundle = self._bundle
        if bundle is None:
            raise ValueError("a board must be loaded with a Bundle before it trains; call load first")
        if join is not None and not bundle.merges:
            raise ValueError(self._never_pauses())
        data, size = memoryview(pages).cast("B"), self.config.page_size
        if self._status() & BoardStatus.UNANSWERED:
            raise BusHang(
                "the memories must have answered all that the board asked for before it trains, but they have not: "
                f"{RESET_BOTH}"
            )
        count, rest = divmod(len(data), size)
        if rest:
            raise ValueError(f"pages must be a multiple of {size} bytes, not {len(data)}")
        if not 1 <= epochs < 1 << 32:
            raise ValueError(f"epochs must be 1 to 2**32 - 1, not {epochs}")
        slots = self._slots(count)
        whole = slots >= count
        if whole:
            self._put_pages(0, data)
        end = None if seconds is None else time.monotonic() + seconds
        ready_pages = {} if whole else {"ready": 0}
        blocks = load.training_blocks(
            bundle, pages=count, epochs=epochs, base=self._memory.base, part=self._part, slots=slots, **ready_pages
        )
        watch = Watch(longest(bundle) if patience is None else patience)
        with self._stopped_on_error():
            if self.config.pause:
                self._set(Register.PAUSE, int(join is not None))
            for at, words in blocks:
                self._registers.write(at, words)
            ready = pauses = 0
            while (status := self._status()) & BoardStatus.BUSY:
                if status & BoardStatus.PAUSED and join is not None:
                    self._join(bundle, join, last=bool(status & BoardStatus.LAST))
                    pauses += 1
                    continue
                if status & BoardStatus.UNANSWERED:
                    raise BusHang(self._silence())
                if end is not None and time.monotonic() > end:
                    raise BoardError(f"the training must end within {seconds} s, but it has not; the board was stopped")
                # cycles first: what is read after them is no older, so no standstill is counted too long
                now, read = self._get(BoardRegister.CYCLES), self._get(BoardRegister.PAGES_READ)
                filled = ready if whole else self._fill(data, count, epochs, slots, ready, read)
                watch.look(now, (read, self._get(BoardRegister.EPOCHS_RUN), filled, pauses))
                if filled == ready:
                    self._registers.wait()
                ready = filled
        return self._ended(bundle)

    def stop(self) -> None:
        """Stop the board and wait until it is idle.

        Raises
        ------
        BoardError
            It does not become idle: a memory does not answer, and BUS_TIMEOUT is 0 or too long.
        """
        end = time.monotonic() + STOPPING
        if self._status() & BoardStatus.BUSY:
            self._put(BoardRegister.COMMAND, Command.STOP)
        while self._status() & BoardStatus.BUSY:
            if time.monotonic() > end:
                raise BoardError(
                    f"the board must be idle {STOPPING:g} s after a stop, but it is not: "
                    f"a memory does not answer and BUS_TIMEOUT has not passed; {RESET_BOTH}"
                )
            self._registers.wait()
        self._put(BoardRegister.INTERRUPT, 1)

    def read_rows(self, row: int, count: int, *, table: int = 0) -> Words:
        """Bit patterns of scratchpad rows of thread 0, or rows of records as `write_rows` takes them: [count, lanes].

        Raises
        ------
        ValueError
            There are no such rows.
        """
        if table:
            return self._loaded_tables().read_rows(table, row, count)
        self._check_rows(row, count)
        lanes = self.config.lanes
        words = self._registers.read(address(Region.SCRATCH, row * lanes, self.config), count * lanes)
        return words.reshape(count, lanes)

    def _loaded_tables(self) -> Tables:
        if self._bundle is None or self._tables is None:
            raise ValueError("a board must be loaded with a Bundle before its records are read or written")
        return self._tables

    def _check_rows(self, row: int, k: int) -> None:
        if row < 0 or k < 0 or row + k > self.config.scratch_depth:
            raise ValueError(f"rows must lie in 0 … {self.config.scratch_depth - 1}, not {row} … {row + k - 1}")

    def _holds(self, more: Held) -> None:
        """Something has been written, or will be."""
        if self._held is not None:
            self._held = self._held.joined(more)

    def _identified(self) -> MachineConfig:
        for what, register, wanted in (
            ("board", address(BoardRegion.BOARD, BoardRegister.ID), board.IDENTITY),
            ("machine", address(Region.CONTROL, Register.ID), registers.IDENTITY),
        ):
            found = int(self._registers.read(register, 1)[0])
            if found != wanted:
                raise BoardError(
                    f"ID of the {what} must be {wanted:#x}, but {found:#x} was read: is the bitstream loaded, "
                    "of a package of this version, and are these its registers?"
                )
        words = self._registers.read(address(BoardRegion.BOARD, BoardRegister.THREADS), len(board.CONFIGURATION))
        try:
            return MachineConfig(**dict(zip(board.CONFIGURATION, words.tolist(), strict=True)))
        except ConfigError as error:
            raise BoardError(f"the board's configuration cannot be: {error}; are these its registers?") from None

    def _fits(self, bundle: Bundle) -> None:
        lacking = self.config.lacking(bundle.program)
        if lacking:
            raise BoardError(
                f"the board lacks {lacking[0]}, which the Bundle's program uses: "
                "export a package for this rule and load its bitstream"
            )
        for name in board.CONFIGURATION:
            wanted, found = getattr(bundle.config, name), getattr(self.config, name)
            if wanted != found and name not in (*NOT_HARDWARE, *AT_LEAST):
                raise BoardError(
                    f"the Bundle must be for this board, with {name} = {found}, not {wanted}: "
                    f"compile it with --design {name}={found}"
                )

    def _slots(self, count: int) -> int:
        """Pages that the memory is used for: the whole table, or as many as there is room for."""
        size = self.config.page_size
        if self._memory.base % size:
            raise BoardError(
                f"the memory must begin at a multiple of {size:#x} on the board's bus, not at {self._memory.base:#x}"
            )
        fitting = self._memory.size // size
        if count > fitting and fitting < SLOTS_LEAST:
            raise BoardError(
                f"the memory must hold {SLOTS_LEAST} pages of {size} bytes to stream a table, "
                f"but it has {self._memory.size} bytes"
            )
        return max(count, 1) if count <= fitting else fitting

    @property
    def _part(self) -> int:
        """Bytes of the memory that each bus has."""
        return board.part_bytes(self.config, self._memory.size)

    def _put_pages(self, slot: int, pages: memoryview) -> None:
        """Write pages into slots from there on, to each bus's part the stripes that it brings."""
        config = self.config
        at = slot * board.slot_bytes(config)
        if config.buses == 1:
            self._memory.write(at, pages)
            return
        stripes = np.frombuffer(pages, np.uint8).reshape(-1, config.buses, config.bus_bytes)
        for bus in range(config.buses):
            self._memory.write(bus * self._part + at, np.ascontiguousarray(stripes[:, bus]).data.cast("B"))

    def _fill(self, data: memoryview, count: int, epochs: int, slots: int, ready: int, read: int) -> int:
        """Put pages where some have been read; how many there have been now."""
        size = self.config.page_size
        # the board's counts are modulo 2**32
        read = ready - (ready - read) % (1 << 32)
        until = announced(min(count * epochs, read + slots), count * epochs)
        for page in range(ready, until):
            at = page % count * size
            self._put_pages(page % slots, data[at : at + size])
        if until > ready:
            self._put(BoardRegister.PAGES_READY, until % (1 << 32))
        return until

    def _join(self, bundle: Bundle, join: Join, *, last: bool) -> None:
        """Join the merges of the batch that is paused, and let the machine go on."""
        self._put(BoardRegister.INTERRUPT, 1)
        lanes = self.config.lanes
        try:
            found = [self.read_rows(one.row, one.rows(lanes)).view(np.float32) for one in bundle.merges]
            if not self._status() & BoardStatus.PAUSED:
                return  # a fault of a later page stopped it
            own = [one.collect(rows).ravel() for one, rows in zip(bundle.merges, found, strict=True)]
            joined = checked(join(np.concatenate(own), last), bundle.merges)
            parts = np.split(joined, np.cumsum([len(each) for each in own])[:-1])
            for one, values in zip(bundle.merges, parts, strict=True):
                self.write_rows(one.row, one.place(values.reshape(one.shape), lanes).view(np.uint32))
            self._resume()
        except BoardError:
            # an access that is rejected where the machine has stopped in the meantime: the fault is in its status
            if self._status() & BoardStatus.PAUSED:
                raise

    def _never_pauses(self) -> str:
        """Why no merges of the Bundle can be joined."""
        if not self.config.pause:
            return (
                "a board must be able to pause to train with `join`, but its machine has pause = 0: export it with "
                "--design pause=1 and load its bitstream and its Bundle, or train without `join`"
            )
        return (
            "a Bundle must have merges to train with `join`, but this one has none: its rule has batches of one row, "
            "uses values of a batch in its rows again, or changes rows of models that its rows choose "
            "(docs/machine.md, Pauses). Train without `join`, or take another rule"
        )

    def _resume(self) -> None:
        self._set(Register.CONTROL, registers.RESUME)

    def _ended(self, bundle: Bundle) -> BoardRun:
        self._put(BoardRegister.INTERRUPT, 1)
        status = self._status()
        fault = Fault(status >> 8 & 0xFF)
        if fault != Fault.NONE:
            self._bundle = None
        elif not status & BoardStatus.TRAINED:
            self._bundle = None
            raise BoardError(
                "the board must have trained to the end, but was stopped or reset from outside; load again"
            )
        counters = read_counters(self._registers.read, fault)
        if fault == Fault.BUS:
            counters = replace(counters, fault_page=self._get(BoardRegister.FAILED_PAGE))
        epochs = self._get(BoardRegister.EPOCHS_RUN)
        kept = min(epochs, board.LOSSES) if bundle.symbol("loss") is not None else 0
        losses = self._registers.read(address(BoardRegion.LOSSES), kept)
        low, high = self._registers.read(address(BoardRegion.BOARD, BoardRegister.CYCLES), 2)
        return BoardRun(
            epochs=epochs,
            losses=np.roll(losses, -epochs if epochs > board.LOSSES else 0).view(np.float32),
            converged=bool(status & BoardStatus.CONVERGED),
            cycles=int(low) | int(high) << 32,
            counters=counters,
        )

    @contextmanager
    def _stopped_on_error(self) -> Iterator[None]:
        """Leave no board running, on an error or on Ctrl-C."""
        try:
            yield
        except BaseException as error:
            self._bundle = None
            try:
                self.stop()
            except BoardError as running:
                error.add_note(str(running))
            raise

    def _silence(self) -> str:
        """What is known of a memory that does not answer."""
        wide = address(BoardRegion.BOARD, BoardRegister.PAGE_BASE)
        low, high = (int(word) for word in self._registers.read(wide, 2))
        records = "" if self._records is None else f", of records from {self._records.base:#x} on"
        return (
            f"the memory of pages from {low | high << 32:#x} on{records} must answer the board within "
            f"{self._get(BoardRegister.BUS_TIMEOUT)} cycles, but it has not after "
            f"{self._get(BoardRegister.PAGES_READ)} pages; the board was stopped. Check the address and the "
            f"interconnect, and {RESET_BOTH}"
        )

    def _status(self) -> int:
        status = self._get(BoardRegister.STATUS)
        if status & ~KNOWN_STATUS:
            raise BoardError(
                f"STATUS must have no bits but {int(KNOWN_STATUS):#x}, but {status:#x} was read: is it gone?"
            )
        return status

    def _get(self, register: BoardRegister) -> int:
        return int(self._registers.read(address(BoardRegion.BOARD, register), 1)[0])

    def _set(self, register: Register, word: int) -> None:
        """Write a register of the machine."""
        self._registers.write(address(Region.CONTROL, register), np.array([word], dtype=np.uint32))

    def _put(self, register: BoardRegister, word: int) -> None:
        self._registers.write(address(BoardRegion.BOARD, register), np.array([word], dtype=np.uint32))


def announced(pages: int, total: int) -> int:
    """How many of the pages that could be announced are: one less where PAGES_READY would say that all are there."""
    return pages - (pages % (1 << 32) == board.ENDLESS and pages < total)


def checked(joined: Any, merges: Sequence[Symbol]) -> Floats:
    """What `join` returned; ValueError unless it is a real number for each that it got."""
    try:
        found = np.asarray(joined)
    except ValueError:  # lists of unequal lengths
        found = np.asarray(joined, dtype=object)
    counts = [prod(one.shape) for one in merges]
    if found.shape != (sum(counts),) or found.dtype.kind not in "iuf":
        each = ", ".join(f"{count} of {one.name!r}" for count, one in zip(counts, merges, strict=True))
        raise ValueError(
            f"`join` must return {sum(counts)} real numbers in a vector ({each}, in this order), but it returned "
            f"{'None' if joined is None else f'{found.dtype} of shape {list(found.shape)}'}; the board was stopped, "
            "load it again"
        )
    return found.astype(np.float32)
