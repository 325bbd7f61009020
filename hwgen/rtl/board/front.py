"""What the control bus sees: the board's registers, and the way to the machine's.

In: accesses to words of the address map. Out: settings and commands, accesses to the machine's host port in cycles in
which the training loop leaves it free. An access that would disturb a running training is rejected.
"""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from hwgen.rtl.board.lite import WORD_ACCESS
from hwgen.rtl.board.training import EPOCH_BITS, LOSS_WRITE, SETTINGS, SHOWN, START
from hwgen.rtl.delay import delayed
from hwgen.rtl.host import HOST_PORT, PAUSED, read_register, region_of
from hwgen.rtl.interfaces import PAGE_NUMBER_BITS
from hwgen.spec import board, registers
from hwgen.spec.board import BoardRegion, BoardRegister, Command
from hwgen.spec.config import MachineConfig
from hwgen.spec.registers import Region, Register

DURING_TRAINING = (
    BoardRegister.COMMAND,
    BoardRegister.INTERRUPT,
    BoardRegister.INTERRUPT_ENABLE,
    BoardRegister.PAGES_READY,
)
"""Registers that may be written while a training runs."""


class Front(wiring.Component):
    """The board's registers; an access to the machine's waits until the training loop leaves the host port free."""

    def __init__(self, config: MachineConfig) -> None:
        self._config = config
        super().__init__(
            {
                "access": In(WORD_ACCESS),
                "taken": In(1),  # the training loop uses the host port in this cycle
                "port": Out(HOST_PORT),  # the machine's host port; counts while `taken` is low
                "train": Out(1),  # pulse
                "stop": Out(1),  # pulse
                "settings": Out(SETTINGS),
                **{board.of_bus("base", k): Out(board.PAGE_ADDRESS_BITS) for k in range(config.buses)},
                "slots": Out(32),
                "ready": Out(32),
                "loss": In(LOSS_WRITE),
                **{name: In(bits) for name, bits in SHOWN.items()},
                "arrived": In(32),
                "failed_page": In(PAGE_NUMBER_BITS),
                **({name: In(1) for name in PAUSED} if config.pause else {}),
                "irq": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        access = self.access
        region = region_of(access.address)
        offset = access.address[: registers.REGION_SHIFT]
        register = Signal(8)
        # `register` is there; which one it is; `ours`, `refused` and what memories answer
        decoded, known, looked = (Signal(name=name) for name in ("decoded", "known", "looked"))
        ours = Signal()
        m.d.sync += [
            register.eq(Mux(offset[8:].any(), 0xFF, offset[:8])),
            decoded.eq(access.valid & ~access.done),
            known.eq(decoded & ~access.done),
            looked.eq(known & ~access.done),
            ours.eq((region == BoardRegion.BOARD) | (region == BoardRegion.LOSSES)),
        ]
        refused = self._refused(m, region, offset, register)
        written = Signal()
        m.d.comb += written.eq(looked & ours & ~refused & access.write)
        self._write(m, written, register)
        value = self._read(m, region, register, offset)

        count = Signal(range(registers.READ_LATENCY + 1))
        asked = Signal()
        # held back, not refused, while the loop has the port; asked once, however long the word takes
        going = looked & ~ours & ~refused & ~self.taken & ~asked
        m.d.comb += [
            self.port.addr.eq(access.address),
            self.port.wdata.eq(access.wdata),
            self.port.write.eq(going & access.write),
            self.port.read.eq(going & ~access.write),
            access.refused.eq(refused),
            access.rdata.eq(Mux(ours, value, self.port.rdata)),
            access.done.eq(
                looked & (ours | refused | self.port.write | (asked & (count == registers.READ_LATENCY - 1)))
            ),
        ]
        with m.If(access.done):
            m.d.sync += asked.eq(0)
        with m.Elif(self.port.read):
            m.d.sync += [asked.eq(1), count.eq(0)]
        with m.Elif(asked):
            m.d.sync += count.eq(count + 1)
        return m

    def _refused(self, m: Module, region: Value, offset: Value, register: Value) -> Value:
        def one_of(value: Value, *numbers: int) -> Value:
            return Cat(value == number for number in numbers).any()

        starts = (region == Region.CONTROL) & (register == Register.CONTROL) & self.access.wdata[0]
        assert START == 1
        # a row that is not there would be another one
        beyond = (region == Region.SCRATCH) & (
            self.access.address[: registers.SCRATCH_BITS] >= self._config.scratch_depth * self._config.lanes
        )
        no_slots = delayed(m, self.slots == 0, 1, name="no_slots", reset_less=False)
        not_ready = no_slots | self.owed
        too_soon = (region == BoardRegion.BOARD) & (register == BoardRegister.COMMAND) & self._trains & not_ready
        no_write = ~one_of(region, *Region, BoardRegion.BOARD) | starts | beyond | too_soon
        while_busy = (region != BoardRegion.BOARD) | ~one_of(register, *DURING_TRAINING)
        no_read = ~one_of(region, Region.CONTROL, Region.SCRATCH, *BoardRegion) | beyond
        in_scratch = region == Region.SCRATCH
        disturbs = Mux(self.access.write, while_busy, in_scratch)
        if self._config.pause:
            resumes = (region == Region.CONTROL) & (register == Register.CONTROL) & self.access.write
            resumes = resumes & (self.access.wdata == registers.RESUME)
            disturbs = disturbs & ~(self.paused_now & (in_scratch | resumes))
        always, if_busy, refused = Signal(), Signal(), Signal()
        m.d.sync += [
            always.eq(Mux(self.access.write, no_write, no_read)),
            if_busy.eq(disturbs),
            refused.eq(always | (if_busy & self.busy)),
        ]
        return refused

    @property
    def _trains(self) -> Value:
        """What is written to COMMAND starts a training: a stop wins."""
        train, stop = (self.access.wdata[command.bit_length() - 1] for command in (Command.TRAIN, Command.STOP))
        return train & ~stop

    def _write(self, m: Module, written: Value, register: Value) -> None:
        word = self.access.wdata
        self._enabled = Signal()
        self._pending = Signal()
        m.d.comb += self.irq.eq(self._enabled & self._pending)
        stored: dict[int, Value] = {
            BoardRegister.EPOCHS: self.settings.epochs,
            BoardRegister.SLOTS: self.slots,
            BoardRegister.PAGES_READY: self.ready,
            BoardRegister.LOSS_AT: self.settings.loss_at,
            BoardRegister.CONVERGENCE_AT: self.settings.convergence_at,
            BoardRegister.INTERRUPT_ENABLE: self._enabled,
            BoardRegister.BUS_TIMEOUT: self.settings.bus_timeout,
        }
        for k, low in enumerate(board.PAGE_BASES[: self._config.buses]):
            base = getattr(self, board.of_bus("base", k))
            stored |= {low: base[:32], low + 1: base[32:]}
        for number, value in stored.items():
            with m.If(written & (register == number)):
                m.d.sync += value.eq(word)
        commanded = written & (register == BoardRegister.COMMAND)
        # pulses a cycle later: much hangs on them, and what decides them comes late in a cycle
        m.d.sync += [
            self.train.eq(commanded & self._trains & ~self.busy),
            self.stop.eq(commanded & word[Command.STOP.bit_length() - 1]),
        ]
        with m.If(written & (register == BoardRegister.INTERRUPT) & word[0]):
            m.d.sync += self._pending.eq(0)
        with m.If(self.ended):
            m.d.sync += self._pending.eq(1)
        if self._config.pause:
            before = Signal()
            m.d.sync += before.eq(self.paused_now)
            with m.If(self.paused_now & ~before):
                m.d.sync += self._pending.eq(1)
        self._stored = stored

    def _read(self, m: Module, region: Value, register: Value, offset: Value) -> Value:
        """The word that is there when `looked` is high."""
        m.submodules.losses = losses = Memory(shape=32, depth=board.LOSSES, init=[])
        writer, reader = losses.write_port(), losses.read_port()
        m.d.comb += [
            writer.en.eq(self.loss.valid),
            writer.addr.eq(self.loss.epoch),
            writer.data.eq(self.loss.word),
            reader.addr.eq(offset[:EPOCH_BITS]),
        ]
        paused: tuple[Value, ...] = (Const(0, 3),)
        if self._config.pause:
            paused = (*(getattr(self, name) for name in PAUSED), Const(0, 1))
        values: dict[int, Value] = {
            BoardRegister.ID: Const(board.IDENTITY, 32),
            BoardRegister.STATUS: Cat(
                *(getattr(self, name) for name in ("busy", "trained", "converged", "stopped", "unanswered")),
                *paused,
                self.fault,
            ),
            BoardRegister.INTERRUPT: self._pending,
            BoardRegister.EPOCHS_RUN: self.epochs_run,
            BoardRegister.PAGES_READ: self.arrived,
            BoardRegister.CYCLES: self.cycles[:32],
            BoardRegister.CYCLES + 1: self.cycles[32:],
            BoardRegister.FAILED_PAGE: self.failed_page,
            **self._stored,
        }
        words = [getattr(self._config, name) for name in board.CONFIGURATION]
        while words[-1] == 0:  # a register that is not there reads as 0
            words.pop()
        values |= {BoardRegister.THREADS + k: Const(word, 32) for k, word in enumerate(words)}
        return Mux(region == BoardRegion.LOSSES, reader.data, read_register(m, register, values))
