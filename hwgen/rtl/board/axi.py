"""The buses of a board, as signatures seen from the board; names are those of AXI (ARM IHI 0022).

In: widths. Out: signatures. No logic. Write channels of the page bus do not exist: a board reads pages and writes none.
"""

from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hwgen.spec.board import PAGE_ADDRESS_BITS

INCREMENT = 0b01
"""ARBURST of a burst over following addresses."""

OKAY = 0b00
REFUSED = 0b10
"""Responses; the second is AXI's SLVERR."""

ALL_BYTES = 0b1111

CACHEABLE = 0b0011
"""ARCACHE, AWCACHE: normal memory, bufferable, not cached; what interconnects of FPGAs expect of a DMA."""


def _address_channel(prefix: str) -> dict[str, wiring.Member]:
    """Where bursts go, `ar` for reads and `aw` for writes."""
    return {
        f"{prefix}id": Out(1),
        f"{prefix}addr": Out(PAGE_ADDRESS_BITS),
        f"{prefix}len": Out(8),
        f"{prefix}size": Out(3),
        f"{prefix}burst": Out(2),
        f"{prefix}lock": Out(1),
        f"{prefix}cache": Out(4),
        f"{prefix}prot": Out(3),
        f"{prefix}valid": Out(1),
        f"{prefix}ready": In(1),
    }


def read_master(data_bytes: int) -> wiring.Signature:
    """AXI4, read channels only; one identifier, so data comes in the order of the addresses."""
    return wiring.Signature(
        {
            **_address_channel("ar"),
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
            **_address_channel("aw"),
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


def lite_slave(address_bits: int) -> wiring.Signature:
    """AXI4-Lite with 32-bit data."""
    return wiring.Signature(
        {
            "awaddr": In(address_bits),
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
            "araddr": In(address_bits),
            "arprot": In(3),
            "arvalid": In(1),
            "arready": Out(1),
            "rdata": Out(32),
            "rresp": Out(2),
            "rvalid": Out(1),
            "rready": In(1),
        }
    )
