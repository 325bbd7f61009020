"""The AXI4-Lite slave: one access after another, each answered before the next begins.

In: the bus. Out: accesses to 32-bit words, held until they are done. It knows no register; a write of less than a word
is rejected here, since no register can be written in parts.
"""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hwgen.rtl.board import axi
from hwgen.spec.registers import ADDRESS_BITS

WORD_ACCESS = wiring.Signature(
    {
        "valid": Out(1),  # an access is wanted; it is stable until `done`
        "write": Out(1),
        "address": Out(ADDRESS_BITS),
        "wdata": Out(32),  # counts for writes only
        "done": In(1),  # pulse
        "refused": In(1),  # with `done`: the access had no effect
        "rdata": In(32),  # with `done`: what was read
    }
)
"""A read or a write of one word."""


class LiteSlave(wiring.Component):
    """AXI4-Lite slave, `bus`, with one `access` under way at a time."""

    def __init__(self) -> None:
        super().__init__({"bus": Out(axi.LITE_SLAVE), "access": Out(WORD_ACCESS)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        bus, access = self.bus, self.access
        # an address or a word that has been taken and not been answered
        write_address = Signal(ADDRESS_BITS)
        read_address = Signal(ADDRESS_BITS)
        write_at = Signal()
        write_word = Signal()
        read_at = Signal()
        whole = Signal()
        m.d.comb += [bus.awready.eq(~write_at), bus.wready.eq(~write_word), bus.arready.eq(~read_at)]
        with m.If(bus.awvalid & bus.awready):
            m.d.sync += [write_at.eq(1), write_address.eq(bus.awaddr[2:])]
        with m.If(bus.wvalid & bus.wready):
            m.d.sync += [write_word.eq(1), access.wdata.eq(bus.wdata), whole.eq(bus.wstrb == axi.ALL_BYTES)]
        with m.If(bus.arvalid & bus.arready):
            m.d.sync += [read_at.eq(1), read_address.eq(bus.araddr[2:])]
        with m.If(bus.bvalid & bus.bready):
            m.d.sync += [bus.bvalid.eq(0), write_at.eq(0), write_word.eq(0)]
        with m.If(bus.rvalid & bus.rready):
            m.d.sync += [bus.rvalid.eq(0), read_at.eq(0)]

        response = Mux(access.refused, axi.REFUSED, axi.OKAY)
        free = ~access.valid
        with m.If(access.valid & access.done):
            m.d.sync += access.valid.eq(0)
            with m.If(access.write):
                m.d.sync += [bus.bvalid.eq(1), bus.bresp.eq(response)]
            with m.Else():
                m.d.sync += [bus.rvalid.eq(1), bus.rresp.eq(response), bus.rdata.eq(access.rdata)]
        with m.Elif(free & write_at & write_word & ~bus.bvalid):
            with m.If(whole):
                m.d.sync += [access.valid.eq(1), access.write.eq(1), access.address.eq(write_address)]
            with m.Else():
                m.d.sync += [bus.bvalid.eq(1), bus.bresp.eq(axi.REFUSED)]
        with m.Elif(free & read_at & ~bus.rvalid):
            m.d.sync += [access.valid.eq(1), access.write.eq(0), access.address.eq(read_address)]
        return m
