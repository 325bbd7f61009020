"""The buses of a board, as signatures seen from the board; names are those of AXI (ARM IHI 0022).

In: widths. Out: signatures. No logic. Write channels of the page bus do not exist: a board reads pages and writes none.
"""

from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hwgen.spec.board import BYTE_ADDRESS_BITS, PAGE_ADDRESS_BITS

INCREMENT = 0b01
"""ARBURST of a burst over following addresses."""

OKAY = 0b00
REFUSED = 0b10
"""Responses; the second is AXI's SLVERR."""

ALL_BYTES = 0b1111

CACHEABLE = 0b0011
"""ARCACHE, AWCACHE: normal memory, bufferable, not cached; what interconnects of FPGAs expect of a DMA."""


def read_master(data_bytes: int) -> wiring.Signature:
    """AXI4, read channels only; one identifier, so data comes in the order of the addresses."""
    return wiring.Signature(
        {
            "arid": Out(1),
            "araddr": Out(PAGE_ADDRESS_BITS),
            "arlen": Out(8),
            "arsize": Out(3),
            "arburst": Out(2),
            "arlock": Out(1),
            "arcache": Out(4),
            "arprot": Out(3),
            "arvalid": Out(1),
            "arready": In(1),
            "rid": In(1),
            "rdata": In(8 * data_bytes),
            "rresp": In(2),
            "rlast": In(1),
            "rvalid": In(1),
            "rready": Out(1),
        }
    )


def master(data_bytes: int) -> wiring.Signature:
    """AXI4, all channels; one identifier."""
    return wiring.Signature(
        {
            **read_master(data_bytes).members,
            "awid": Out(1),
            "awaddr": Out(PAGE_ADDRESS_BITS),
            "awlen": Out(8),
            "awsize": Out(3),
            "awburst": Out(2),
            "awlock": Out(1),
            "awcache": Out(4),
            "awprot": Out(3),
            "awvalid": Out(1),
            "awready": In(1),
            "wdata": Out(8 * data_bytes),
            "wstrb": Out(data_bytes),
            "wlast": Out(1),
            "wvalid": Out(1),
            "wready": In(1),
            "bid": In(1),
            "bresp": In(2),
            "bvalid": In(1),
            "bready": Out(1),
        }
    )


def lite_slave() -> wiring.Signature:
    """AXI4-Lite with 32-bit data."""
    return wiring.Signature(
        {
            "awaddr": In(BYTE_ADDRESS_BITS),
            "awprot": In(3),
            "awvalid": In(1),
            "awready": Out(1),
            "wdata": In(32),
            "wstrb": In(4),
            "wvalid": In(1),
            "wready": Out(1),
            "bresp": Out(2),
            "bvalid": Out(1),
            "bready": In(1),
            "araddr": In(BYTE_ADDRESS_BITS),
            "arprot": In(3),
            "arvalid": In(1),
            "arready": Out(1),
            "rdata": Out(32),
            "rresp": Out(2),
            "rvalid": Out(1),
            "rready": In(1),
        }
    )
