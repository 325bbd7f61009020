"""The training loop: epoch after epoch through the machine's host port, as a driver would, without one.

In: a command, the settings of a training. Out: accesses to the machine's registers and scratchpad, losses, how the
training ended. It reads the rule's convergence test where the compiler put it; it computes nothing.
"""

from amaranth.hdl import Module, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hwgen.rtl.delay import delayed
from hwgen.rtl.host import HOST_PORT
from hwgen.rtl.interfaces import FAULT_BITS
from hwgen.spec import board, registers
from hwgen.spec.registers import Region, Register
from hwgen.spec.strider import Fault

START = 1
RESET = 2
EPOCH_BITS = (board.LOSSES - 1).bit_length()
ASKED = ("read", "write", "addr", "wdata")
"""Members of the host port that go from the loop to the machine, through registers."""

SIGN = 31
"""The sign bit of a binary32, which a comparison with zero ignores."""

SHOWN = {
    "busy": 1,
    "trained": 1,
    "converged": 1,
    "stopped": 1,
    "unanswered": 1,
    "fault": FAULT_BITS,
    "epochs_run": 32,
    "cycles": 64,
    "owed": 1,
    "ended": 1,
}
"""What the loop says of a training, and its bits; `ended` is a pulse, also where a bus is found silent; with `owed` no
training may begin; the others are what registers show."""

LOSS_WRITE = wiring.Signature({"valid": Out(1), "epoch": Out(EPOCH_BITS), "word": Out(32)})
"""The loss of an epoch that has ended."""

SETTINGS = wiring.Signature(
    {
        **{name: Out(32) for name in ("epochs", "loss_at", "convergence_at")},
        "bus_timeout": Out(32, init=board.BUS_TIMEOUT),
    }
)
"""Registers of the same names; stable while a training runs."""


class TrainingLoop(wiring.Component):
    """Master of the machine's host port while a training runs."""

    def __init__(self) -> None:
        super().__init__(
            {
                "train": In(1),  # pulse
                "stop": In(1),  # pulse
                "settings": In(SETTINGS),
                "port": Out(HOST_PORT),  # the machine's host port. An access of this loop is always taken
                "begin": Out(1),
                "drop": Out(1),
                "idle": In(1),
                "silent": In(1),  # a memory owes something, and none moves
                "failed": In(1),
                "loss": Out(LOSS_WRITE),
                **{name: Out(bits) for name, bits in SHOWN.items()},
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        stopping = Signal()
        dropping = Signal()
        with m.If(self.stop & self.busy):
            m.d.sync += stopping.eq(1)
        with m.If(self.busy):
            m.d.sync += self.cycles.eq(self.cycles + 1)
        last = delayed(m, self.epochs_run + 1 >= self.settings.epochs, 1, name="last", reset_less=False)
        no_loss = delayed(m, self.settings.loss_at == board.NOWHERE, 1, name="no_loss", reset_less=False)
        no_test = delayed(m, self.settings.convergence_at == board.NOWHERE, 1, name="no_test", reset_less=False)
        self._access = HOST_PORT.create(path=("access",))
        m.d.sync += [getattr(self.port, name).eq(getattr(self._access, name)) for name in ASKED]
        word = self.port.rdata
        waited = self._wait(m)
        timed_out = self._time(m)
        ended, told = Signal(), Signal()
        m.d.sync += told.eq(timed_out)
        m.d.comb += [
            self.ended.eq(ended | (self.busy & timed_out & ~told)),
            self.unanswered.eq((self.busy & timed_out) | self.owed),
        ]
        with m.If(self.idle):
            m.d.sync += self.owed.eq(0)

        begin = Signal()
        m.d.sync += self.begin.eq(begin)
        with m.FSM():
            with m.State("idle"), m.If(self.train):
                m.d.comb += begin.eq(1)
                m.d.sync += [
                    *(flag.eq(0) for flag in (self.trained, self.converged, self.stopped, stopping)),
                    *(count.eq(0) for count in (self.fault, self.epochs_run, self.cycles)),
                    self.busy.eq(1),
                ]
                m.next = "start"
            with m.State("start"):
                self._write_control(m, START)
                m.next = "ask status"
            with m.State("ask status"):
                self._ask(m, Register.STATUS)
                m.next = "take status"
            with m.State("take status"), m.If(waited):
                with m.If(self.failed):  # first: of a page that came wrong the machine knows nothing
                    m.d.sync += self.fault.eq(Fault.BUS)
                    m.next = "reset"
                with m.Elif(stopping):
                    m.d.sync += self.stopped.eq(1)
                    m.next = "reset"
                with m.Elif(word[8 : 8 + FAULT_BITS] != 0):
                    # the machine has stopped itself; a reset would take where and why from its registers
                    m.d.sync += [self.fault.eq(word[8:]), dropping.eq(1)]
                    m.next = "drop"
                with m.Elif(word[0]):
                    m.next = "ask status"
                with m.Else():
                    m.next = "ask loss"
            with m.State("ask loss"):
                with m.If(no_loss):
                    m.next = "ask convergence"
                with m.Else():
                    self._ask(m, self._scratch(self.settings.loss_at))
                    m.next = "take loss"
            with m.State("take loss"), m.If(waited):
                m.d.comb += self.loss.valid.eq(1)
                m.next = "ask convergence"
            with m.State("ask convergence"):
                with m.If(no_test):
                    m.next = "next epoch"
                with m.Else():
                    self._ask(m, self._scratch(self.settings.convergence_at))
                    m.next = "take convergence"
            with m.State("take convergence"), m.If(waited):
                m.d.sync += self.converged.eq(word[:SIGN].any())
                m.next = "next epoch"
            with m.State("next epoch"):
                m.d.sync += self.epochs_run.eq(self.epochs_run + 1)
                with m.If(last | self.converged):
                    m.d.sync += self.trained.eq(1)
                    m.next = "drain"
                with m.Else():
                    m.next = "start"
            with m.State("reset"):
                self._write_control(m, RESET)
                m.d.sync += dropping.eq(1)
                m.next = "drop"
            # after a reset long enough for the machine to be still
            with m.State("drop"), m.If(waited):
                m.d.sync += dropping.eq(0)
                m.next = "drain"
            # a stop does not wait for a bus that does not answer; what it owes is received when it comes
            with m.State("drain"), m.If(self.idle | (stopping & timed_out)):
                m.d.comb += ended.eq(1)
                m.d.sync += [self.busy.eq(0), self.owed.eq(~self.idle)]
                m.next = "idle"

        m.d.comb += [
            self.drop.eq(dropping),
            self.loss.epoch.eq(self.epochs_run[:EPOCH_BITS]),
            self.loss.word.eq(word),
        ]
        return m

    def _time(self, m: Module) -> Signal:
        """True when a bus has been silent for so many cycles, until it moves."""
        quiet = Signal(32)
        timed_out = Signal()
        reached = quiet == self.settings.bus_timeout
        with m.If(~self.silent):
            m.d.sync += quiet.eq(0)
        with m.Elif(~reached):
            m.d.sync += quiet.eq(quiet + 1)
        m.d.sync += timed_out.eq(self.silent & reached & self.settings.bus_timeout.any())
        return timed_out

    def _wait(self, m: Module) -> Value:
        """True when the answer to the last access of this loop is there."""
        count = Signal(range(registers.READ_LATENCY + 1))
        with m.If(self._access.read | self._access.write):
            # one cycle to the port's register
            m.d.sync += count.eq(registers.READ_LATENCY)
        with m.Elif(count.any()):
            m.d.sync += count.eq(count - 1)
        return ~count.any()

    def _write_control(self, m: Module, word: int) -> None:
        access = self._access
        m.d.comb += [access.write.eq(1), access.addr.eq(Register.CONTROL), access.wdata.eq(word)]

    def _ask(self, m: Module, address: int | Value) -> None:
        m.d.comb += [self._access.read.eq(1), self._access.addr.eq(address)]

    @staticmethod
    def _scratch(offset: Value) -> Value:
        return offset[: registers.SCRATCH_BITS] | Region.SCRATCH << registers.REGION_SHIFT
