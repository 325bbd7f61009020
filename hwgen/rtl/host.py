"""The host port: the register map of `hwgen.spec.registers` in front of the machine's memories and registers.

In: one read or write a cycle, status and counters. Out: settings, writes to the memories, start and stop. Everything
that reaches the machine comes from a register. It holds no state of an epoch but its status.
"""

from collections.abc import Mapping
from functools import reduce
from operator import or_

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from hwgen.rtl import interfaces
from hwgen.rtl.delay import delayed
from hwgen.rtl.engine.engine import SCRATCH_READ_LATENCY
from hwgen.rtl.engine.issue import PROGRAM_WRITE
from hwgen.rtl.engine.sections import PAUSE_COMMANDS, PAUSE_RESULTS, SECTION_SETTINGS, SECTIONS
from hwgen.rtl.engine.sequencer import SCRATCH_ACCESS
from hwgen.spec import registers
from hwgen.spec.columns import TABLE_BITS
from hwgen.spec.config import MachineConfig
from hwgen.spec.counters import COUNTERS, UNKNOWN_PAGE
from hwgen.spec.registers import Region, Register
from hwgen.spec.strider import Fault

HOST_PORT = wiring.Signature(
    {
        "addr": Out(registers.ADDRESS_BITS),
        "write": Out(1),
        "wdata": Out(32),
        "read": Out(1),
        "rdata": In(32),
    }
)
"""The port that a bus adapter or a simulation drives; see `hwgen.spec.registers`."""


PAUSED = ("paused_now", "paused_last")
"""Of machines that can pause: that it is, and with the epoch's last batch, as STATUS says."""


def region_of(address: Value) -> Value:
    """Number of the region that a word address lies in: the upper half of the map is one."""
    upper = address[-1]
    return Cat(
        address[registers.REGION_SHIFT : -1] & ~upper.replicate(len(address) - registers.REGION_SHIFT - 1), upper
    )


def read_register(m: Module, number: Value, values: Mapping[int, Value]) -> Signal:
    """The value of a register, two cycles after its number; 0 where there is none.

    Which one it is, is known a cycle before its value is taken: values come from all corners of a machine.
    """
    chosen = Signal(32)
    terms: list[Value] = []
    for k, value in values.items():
        wanted = Signal(name=f"wanted_{k}", reset_less=True)
        m.d.sync += wanted.eq(number == k)
        terms.append(value & wanted.replicate(len(value)))
    m.d.sync += chosen.eq(reduce(or_, terms))
    return chosen


class Host(wiring.Component):
    """Registers, and the way to the memories."""

    def __init__(self, config: MachineConfig) -> None:
        self._config = config
        paused: dict[str, wiring.Member] = {}
        if config.pause:
            paused |= {name: Out(bits) for name, bits in PAUSE_COMMANDS.items()}
            paused |= {name: In(bits) for name, bits in PAUSE_RESULTS.items()}
            paused |= {name: Out(1) for name in PAUSED}
        super().__init__(
            {
                "port": In(HOST_PORT),  # one read or write a cycle; a read's data is there READ_LATENCY cycles later
                "start": Out(1),  # pulse: cycle 0 of an epoch
                "stop": Out(1),  # pulse: forget everything but the memories (the host's reset, or a fault)
                "engine": Out(SECTION_SETTINGS),
                "access": Out(interfaces.SETTINGS),
                "program": Out(PROGRAM_WRITE),
                "image": Out(interfaces.image_write(config)),
                "scratch": Out(SCRATCH_ACCESS),
                "scratch_word": In(32),
                "fault": In(interfaces.FAULT),
                "overflow": In(1),
                "index_fault": In(1),
                "tag": In(interfaces.POINTER_BITS),
                "finished": In(1),
                **{name: In(64) for name in COUNTERS if name not in PAUSE_RESULTS},
                **paused,
            }
        )

    def elaborate(self, platform: object) -> Module:
        # one cycle into the registers below, one out of `rdata`
        if SCRATCH_READ_LATENCY + 2 != registers.READ_LATENCY:
            raise ValueError(f"READ_LATENCY must be {SCRATCH_READ_LATENCY + 2}, not {registers.READ_LATENCY}")
        m = Module()
        address = Signal(registers.ADDRESS_BITS)
        word = Signal(32)
        writing = Signal()
        reading = Signal()
        m.d.sync += [writing.eq(self.port.write), reading.eq(self.port.read)]
        with m.If(self.port.write | self.port.read):
            m.d.sync += [address.eq(self.port.addr), word.eq(self.port.wdata)]
        region = region_of(address)
        offset = address[: registers.REGION_SHIFT]
        register = Signal(8)
        m.d.comb += register.eq(offset[:8])
        to_register = writing & (region == Region.CONTROL) & ~offset[8:].any()

        m.d.comb += [
            self.scratch.write.eq(writing & (region == Region.SCRATCH)),
            self.scratch.read.eq(reading & (region == Region.SCRATCH)),
            self.scratch.address.eq(address[: registers.SCRATCH_BITS]),
            self.scratch.data.eq(word),
        ]
        status = self._status(m, to_register & (register == Register.CONTROL), word)
        # what is written goes to all corners of the machine: which register it is, is known a cycle before
        self._memories(m, region, offset, delayed(m, word, 1, name="memory_word"), writing)
        setting = delayed(m, to_register, 1, name="setting", reset_less=False)
        number = delayed(m, register, 1, name="setting_number")
        self._settings(m, setting, number, delayed(m, word, 2, name="setting_word"))
        self._read(m, region, register, status)
        return m

    def _memories(self, m: Module, region: Value, offset: Value, written: Value, writing: Value) -> None:
        address = delayed(m, offset, 1, name="written_address", reset_less=False)
        for valid, number in (
            (self.program.valid, Region.PROGRAM),
            (self.image.strider, Region.STRIDER),
            (self.image.constant, Region.CONSTANT),
            (self.image.column, Region.COLUMN),
        ):
            m.d.sync += valid.eq(writing & (region == number))
        if self._config.record_depth:
            size = exact_log2(registers.TABLE_WORDS) + TABLE_BITS
            in_tables = offset[size:] == Register.TABLES >> size
            m.d.sync += self.image.table.eq(writing & (region == Region.CONTROL) & in_tables)
        m.d.comb += [
            self.program.address.eq(address),
            self.program.data.eq(written),
            self.image.address.eq(address),
            self.image.data.eq(written),
        ]

    def _status(self, m: Module, commanded: Value, word: Value) -> dict[Register, Value]:
        """Start, stop and what came of it. The first fault stops the machine, and stays until the next start."""
        busy = Signal()
        done = Signal()
        code = Signal(interfaces.FAULT_BITS)
        page = Signal(interfaces.PAGE_NUMBER_BITS)
        pointer = Signal(interfaces.POINTER_BITS)
        # registers, since much hangs on the two: no cycle of an epoch passes before `start`, and settings that were
        # written just before it are there
        begin, reset = Signal(), Signal()
        coming = Signal(3)
        m.d.sync += [Cat(coming, begin).eq(Cat(commanded & word[0], coming)), reset.eq(commanded & word[1])]
        with m.If(commanded & word[1]):
            m.d.sync += [coming.eq(0), begin.eq(0)]
        failed = busy & (self.fault.valid | self.overflow | self.index_fault)
        m.d.comb += self.start.eq(begin & ~busy)
        m.d.sync += self.stop.eq(reset | failed)
        with m.If(self.finished):
            m.d.sync += [busy.eq(0), done.eq(1)]
        with m.If(failed):
            m.d.sync += [
                busy.eq(0),
                done.eq(0),
                code.eq(Mux(self.fault.valid, self.fault.code, Mux(self.index_fault, Fault.INDEX, Fault.STACK))),
                page.eq(Mux(self.fault.valid, self.fault.page, UNKNOWN_PAGE)),
                pointer.eq(Mux(self.fault.valid, self.fault.pointer, Mux(self.index_fault, self.tag, 0))),
            ]
        with m.If(self.start | reset):
            m.d.sync += [busy.eq(self.start), done.eq(0), code.eq(0), page.eq(0), pointer.eq(0)]
        flags: Value = Cat(busy, done, Const(0, 6))
        if self._config.pause:
            # what the host wrote just before is in the scratchpads before the section's first row
            resuming = Signal(len(coming))
            m.d.sync += Cat(resuming, self.resume).eq(Cat(commanded & word[2], resuming))
            # until it goes on: a host that looks again, having written that, sees no pause
            m.d.comb += self.paused_now.eq(busy & self.pausing & ~resuming.any() & ~self.resume)
            m.d.comb += self.paused_last.eq(self.paused_now & self.last)
            flags = Cat(busy, done, self.paused_now, self.paused_last, Const(0, 4))
        return {
            Register.STATUS: Cat(flags, code),
            Register.FAULT_PAGE: page,
            Register.FAULT_POINTER: pointer,
        }

    def _settings(self, m: Module, writing: Value, register: Value, written: Value) -> None:
        settings: dict[Register, Value] = {
            Register.PAGES: self.access.pages,
            Register.BATCH: self.access.batch,
            Register.GROUP_LOG2: self.access.group_log2,
            Register.TUPLE_ROWS: self.access.tuple_rows,
            Register.LEVEL_STRIDE: self.engine.level_stride,
            Register.LEVELS: self.engine.levels,
        }
        for k, _ in enumerate(SECTIONS):
            settings[Register(Register.INIT + k)] = self.engine.entry[k]
        if self._config.pause:
            settings[Register.PAUSE] = self.pause
        for number, setting in settings.items():
            chosen = Signal(name=f"writes_{number.name.lower()}")
            m.d.sync += chosen.eq(writing & (register == number))
            with m.If(chosen):
                m.d.sync += setting.eq(written[: len(setting)])
        m.d.sync += self.engine.exists.eq(
            Cat(self.engine.entry[k] != registers.NO_SECTION for k, _ in enumerate(SECTIONS))
        )
        m.d.comb += interfaces.wires(self.engine, self.access, "group_log2", "tuple_rows")

    def _read(self, m: Module, region: Value, register: Value, status: dict[Register, Value]) -> None:
        values: dict[int, Value] = {Register.ID: Const(registers.IDENTITY, 32)}
        values |= {int(number): value for number, value in status.items()}
        for name, first in COUNTERS.items():
            counter = getattr(self, name, None)
            if counter is None:  # reads as 0
                continue
            values[first] = counter[:32]
            values[first + 1] = counter[32:]
        # a register's value waits as long as a word of the scratchpads takes
        scratch = delayed(m, region == Region.SCRATCH, SCRATCH_READ_LATENCY, name="scratch_read")
        chosen = read_register(m, delayed(m, register, SCRATCH_READ_LATENCY - 2, name="register_read"), values)
        m.d.sync += self.port.rdata.eq(Mux(scratch, self.scratch_word, chosen))
