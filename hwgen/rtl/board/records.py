"""The record master: the machine's record memory, on an AXI4 bus.

In: the machine's requests and rows, what the bus gives. Out: bursts, rows and answers as the machine wants them. A
record is a burst; it begins at a multiple of its size, so none crosses a 4 KB boundary. All bursts carry one
identifier, so rows and answers come in the order of their requests. What comes that was not asked for is received and
forgotten: it answers a board that has been reset alone since.
"""

from amaranth.hdl import C, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from hwgen.rtl.access.layouts import row_bytes
from hwgen.rtl.board import axi
from hwgen.rtl.interfaces import record_port
from hwgen.spec.config import MachineConfig


class RecordMaster(wiring.Component):
    """AXI4 master with as many records under way as a batch names."""

    def __init__(self, config: MachineConfig) -> None:
        self._config = config
        super().__init__(
            {
                "begin": In(1),  # pulse: a training begins
                "records": In(record_port(config)),
                "bus": Out(axi.master(row_bytes(config))),
                "idle": Out(1),  # nothing is asked for, nothing under way, nothing left to write
                "owed": Out(1),  # the memory owes an acceptance, rows or answers
                "moves": Out(1),  # it accepts or answers
                "failed": Out(1),  # the bus answered a record with an error; until `begin`
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        bus, records = self.bus, self.records
        # those that a fault leaves under way are not asked for again: the next training waits for them
        reads, writes = (Signal(range(self._config.record_depth + 1), name=name) for name in ("reads", "writes"))
        comes, stored = Signal(), Signal()
        m.d.comb += [
            *(size.eq(exact_log2(row_bytes(self._config))) for size in (bus.arsize, bus.awsize)),
            *(burst.eq(axi.INCREMENT) for burst in (bus.arburst, bus.awburst)),
            *(cache.eq(axi.CACHEABLE) for cache in (bus.arcache, bus.awcache)),
            bus.araddr.eq(records.ask.address),
            bus.arlen.eq(records.ask.rows),
            bus.arvalid.eq(records.ask.valid),
            records.ask.ready.eq(bus.arready),
            bus.awaddr.eq(records.store.address),
            bus.awlen.eq(records.store.rows),
            bus.awvalid.eq(records.store.valid),
            records.store.ready.eq(bus.awready),
            bus.wdata.eq(records.word.row),
            bus.wlast.eq(records.word.last),
            bus.wstrb.eq(C(-1, len(bus.wstrb))),
            bus.wvalid.eq(records.word.valid),
            records.word.ready.eq(bus.wready),
            bus.rready.eq(1),
            bus.bready.eq(1),
            comes.eq(bus.rvalid & reads.any()),
            stored.eq(bus.bvalid & writes.any()),
            self.owed.eq(bus.arvalid | bus.awvalid | bus.wvalid | reads.any() | writes.any()),
            self.moves.eq(
                (bus.arvalid & bus.arready) | (bus.awvalid & bus.awready) | (bus.wvalid & bus.wready) | comes | stored
            ),
            self.idle.eq(~records.busy & ~bus.arvalid & ~reads.any() & ~records.row_valid),
        ]
        m.d.sync += [
            reads.eq(reads + (bus.arvalid & bus.arready) - (comes & bus.rlast)),
            writes.eq(writes + (bus.awvalid & bus.awready) - stored),
            records.row_valid.eq(comes),
            records.row.eq(bus.rdata),
            records.stored.eq(stored),
        ]
        with m.If((comes & (bus.rresp != axi.OKAY)) | (stored & (bus.bresp != axi.OKAY))):
            m.d.sync += self.failed.eq(1)
        with m.If(self.begin):
            m.d.sync += self.failed.eq(0)
        return m
