"""The AXI4-Lite slave: one access after another, each answered before the next begins.

In: the bus. Out: accesses to 32-bit words of the host port's map, held until they are done. It knows regions and no
register; a write of less than a word is rejected here, since no register can be written in parts.
"""

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hwgen.rtl.board import axi
from hwgen.spec.aperture import aperture_bits, region_bits, region_words, starts
from hwgen.spec.config import MachineConfig
from hwgen.spec.registers import ADDRESS_BITS, NO_REGION, REGION_SHIFT

WORD_ACCESS = wiring.Signature(
    {
        "valid": Out(1),  # an access is wanted; it is stable until `done`
        "write": Out(1),
        "address": Out(ADDRESS_BITS),  # in the host port's map
        "wdata": Out(32),  # counts for writes only
        "done": In(1),  # pulse
        "refused": In(1),  # with `done`: the access had no effect
        "rdata": In(32),  # with `done`: what was read
    }
)
"""A read or a write of one word."""


def host_address(m: Module, address: Value, config: MachineConfig) -> Value:
    """Where a word of the control bus is in the host port's map; of one in no region, in `NO_REGION`."""
    found = Signal(ADDRESS_BITS)
    m.d.comb += found.eq(NO_REGION << REGION_SHIFT)
    sizes = region_words(config)
    for region, start in starts(sizes).items():
        bits = region_bits(sizes[region])
        with m.If(address[bits:] == start >> bits):
            m.d.comb += found.eq(region << REGION_SHIFT | address[:bits])
    return found


class LiteSlave(wiring.Component):
    """AXI4-Lite slave, `bus`, with one `access` under way at a time."""

    def __init__(self, config: MachineConfig) -> None:
        self._config = config
        super().__init__({"bus": Out(axi.lite_slave(aperture_bits(config))), "access": Out(WORD_ACCESS)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        bus, access = self.bus, self.access
        # an address or a word that has been taken and not been answered
        write_address = Signal(len(bus.awaddr) - 2)
        read_address = Signal(len(bus.araddr) - 2)
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
        writes = Signal()
        m.d.comb += writes.eq(free & write_at & write_word & ~bus.bvalid)
        address = host_address(m, Mux(writes, write_address, read_address), self._config)
        with m.If(access.valid & access.done):
            m.d.sync += access.valid.eq(0)
            with m.If(access.write):
                m.d.sync += [bus.bvalid.eq(1), bus.bresp.eq(response)]
            with m.Else():
                m.d.sync += [bus.rvalid.eq(1), bus.rresp.eq(response), bus.rdata.eq(access.rdata)]
        with m.Elif(writes):
            with m.If(whole):
                m.d.sync += [access.valid.eq(1), access.write.eq(1), access.address.eq(address)]
            with m.Else():
                m.d.sync += [bus.bvalid.eq(1), bus.bresp.eq(axi.REFUSED)]
        with m.Elif(free & read_at & ~bus.rvalid):
            m.d.sync += [access.valid.eq(1), access.write.eq(0), access.address.eq(address)]
        return m
