"""The top of a board: a machine between AXI4 read masters for pages, mostly one, an AXI4-Lite slave for all else, and
an AXI4 master for records where the machine has them.

In: a `MachineConfig`. Out: one module with its buses, an interrupt, one clock and one synchronous reset, both named as
in the machine. What the buses mean is in `hwgen.spec.board`.
"""

from amaranth.hdl import Module, Mux
from amaranth.lib import wiring
from amaranth.lib.wiring import Out

from hwgen.rtl import machine
from hwgen.rtl.access.layouts import row_bytes
from hwgen.rtl.board import axi
from hwgen.rtl.board.front import Front
from hwgen.rtl.board.lite import LiteSlave
from hwgen.rtl.board.pages import PageReader
from hwgen.rtl.board.records import RecordMaster
from hwgen.rtl.board.training import SHOWN, TrainingLoop
from hwgen.rtl.host import PAUSED
from hwgen.rtl.interfaces import wires
from hwgen.rtl.library import Library
from hwgen.rtl.machine import Machine
from hwgen.spec import board
from hwgen.spec.aperture import aperture_bits
from hwgen.spec.config import MachineConfig
from hwgen.spec.counters import UNKNOWN_PAGE


def board_ports(config: MachineConfig) -> wiring.Signature:
    """The ports of a board."""
    return wiring.Signature(
        {
            "s_axil": Out(axi.lite_slave(aperture_bits(config))),  # the register map
            # pages, or a stripe of each
            **{board.of_bus(board.PAGE_BUS, k): Out(axi.read_master(config.bus_bytes)) for k in range(config.buses)},
            **({"m_axi_records": Out(axi.master(row_bytes(config)))} if config.record_depth else {}),
            "irq": Out(1),  # high while a training has ended, and the host has not cleared it, if it is enabled
        }
    )


class Board(wiring.Component):
    """A machine with its buses, see `board_ports`."""

    def __init__(self, config: MachineConfig, library: Library) -> None:
        self._config = config
        self._library = library
        super().__init__(board_ports(config))

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config, library = self._config, self._library
        whole = library.place(machine.TOP, lambda: Machine(config, library))
        slave = library.place("lite_slave", lambda: LiteSlave(config))
        front = library.place("front", lambda: Front(config))
        loop = library.place("training_loop", TrainingLoop)
        reader = library.place("page_reader", lambda: PageReader(config))
        m.submodules.machine, m.submodules.slave, m.submodules.front = whole, slave, front
        m.submodules.loop, m.submodules.reader = loop, reader
        wiring.connect(m, slave.bus, wiring.flipped(self.s_axil))
        wiring.connect(m, slave.access, front.access)
        wiring.connect(m, whole.page, reader.page)
        for k in range(config.buses):
            bus = getattr(reader, board.of_bus("bus", k))
            wiring.connect(m, bus, wiring.flipped(getattr(self, board.of_bus(board.PAGE_BUS, k))))
        wiring.connect(m, front.settings, loop.settings)
        wiring.connect(m, loop.loss, front.loss)

        taken = loop.port.read | loop.port.write
        m.d.comb += [
            whole.host.addr.eq(Mux(taken, loop.port.addr, front.port.addr)),
            whole.host.wdata.eq(Mux(taken, loop.port.wdata, front.port.wdata)),
            whole.host.read.eq(loop.port.read | front.port.read),
            whole.host.write.eq(loop.port.write | front.port.write),
            front.taken.eq(taken),
            *(port.rdata.eq(whole.host.rdata) for port in (front.port, loop.port)),
            *wires(loop, front, "train", "stop"),
            *wires(loop, reader, "idle", "failed"),
            loop.silent.eq(reader.owed & ~reader.moves),
            *wires(reader, loop, "begin", "drop"),
            *wires(reader, front, *(board.of_bus("base", k) for k in range(config.buses)), "slots", "ready"),
            *wires(front, reader, "arrived", "failed_page"),
            *wires(front, loop, *SHOWN),
            self.irq.eq(front.irq),
            *wires(front, whole, *(PAUSED if config.pause else ())),
        ]
        if config.record_depth:
            master = library.place("record_master", lambda: RecordMaster(config))
            m.submodules.records = master
            wiring.connect(m, whole.records, master.records)
            wiring.connect(m, master.bus, wiring.flipped(self.m_axi_records))
            m.d.comb += [
                master.begin.eq(loop.begin),
                loop.idle.eq(reader.idle & master.idle),
                loop.silent.eq((reader.owed | master.owed) & ~reader.moves & ~master.moves),
                loop.failed.eq(reader.failed | master.failed),
                front.failed_page.eq(Mux(master.failed, UNKNOWN_PAGE, reader.failed_page)),
            ]
        return m


def generate(config: MachineConfig, *, wide_multipliers: bool = False, prefix: str = "") -> str:
    """The board as Verilog, one module for each kind of part; the same text for the same configuration.

    With `wide_multipliers` products are built for 27 × 18 bits (DSP48E2) instead of 18 × 18. The names of all modules
    begin with `prefix`. ConfigError where no hardware is so large.
    """
    config.require_hardware()
    library = Library(wide_multipliers=wide_multipliers, prefix=prefix)
    library.add(board.TOP, lambda: Board(config, library))
    return library.verilog()
