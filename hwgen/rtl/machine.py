"""The machine: host port, execution engine and access engine.

In: the host's accesses and pages. Out: page requests and what the host reads. One clock, one synchronous reset.
"""

from amaranth.hdl import Module, ResetSignal, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hwgen.rtl.access.engine import AccessEngine
from hwgen.rtl.engine.engine import Engine
from hwgen.rtl.engine.sections import PAUSE_COMMANDS, PAUSE_RESULTS
from hwgen.rtl.host import HOST_PORT, PAUSED, Host
from hwgen.rtl.interfaces import page_port, record_port, wires
from hwgen.rtl.library import Library
from hwgen.spec.config import MachineConfig

TOP = "machine"
"""Name of its module."""


class Machine(wiring.Component):
    """A whole accelerator; its ports are a `HOST_PORT`, a `page_port`, a `record_port` where it has records, and
    `PAUSED` where it can pause."""

    def __init__(self, config: MachineConfig, library: Library) -> None:
        config.require_hardware()
        self._config = config
        self._library = library
        records = {"records": Out(record_port(config))} if config.record_depth else {}
        paused = {name: Out(1) for name in PAUSED} if config.pause else {}
        super().__init__({"host": In(HOST_PORT), "page": Out(page_port(config)), **paused, **records})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        m.submodules.host = host = self._library.place("host", lambda: Host(config))
        m.submodules.engine = engine = self._library.place("engine", lambda: Engine(config, self._library))
        m.submodules.access = access = self._library.place("access", lambda: AccessEngine(config, self._library))
        # from a register: a wire from a pin to every flip-flop would be the longest of all, and Verilator would take
        # registered values for functions of an input, to be computed anew when one changes
        reset = Signal(init=1, reset_less=True)
        m.d.sync += reset.eq(ResetSignal())
        host.reset = engine.reset = access.reset = reset
        wiring.connect(m, wiring.flipped(self.host), host.port)
        wiring.connect(m, access.page, wiring.flipped(self.page))
        wiring.connect(m, access.tuples, engine.rows)
        wiring.connect(m, access.rounds, engine.rounds)
        wiring.connect(m, access.fault, host.fault)
        wiring.connect(m, host.access, access.settings)
        wiring.connect(m, host.image, access.image)
        for name, port in (("engine", engine.settings), ("program", engine.program), ("scratch", engine.scratch)):
            wiring.connect(m, getattr(host, name), port)
        if config.record_depth:
            wiring.connect(m, access.records, wiring.flipped(self.records))
            wiring.connect(m, engine.outbox, access.outbox)
        m.d.comb += [
            *wires(engine, host, "start", "stop"),
            *wires(access, host, "start", "stop"),
            access.half_release.eq(engine.half_release),
            host.engine_busy.eq(engine.busy),
            *wires(host, engine, "scratch_word", "overflow", "index_fault", "tag", "finished"),
            *wires(host, engine, "cycles", "tuples", "batches", "merging"),
            *wires(host, access, "skipped", "waiting_for_engine", "waiting_for_pages"),
        ]
        if config.pause:
            m.d.comb += [*wires(engine, host, *PAUSE_COMMANDS), *wires(host, engine, *PAUSE_RESULTS)]
            m.d.comb += wires(self, host, *PAUSED)
        return m
