"""The board in a LiteX SoC: its registers on the SoC's bus, its memories read and written through it.

    soc.dana = DanaBoard(soc.platform, "FOLDER")
    soc.dana.add_to(soc, origin=0x90000000)

The SoC's processor drives it with `dana.h` of this folder; where the SoC has interrupts, irq is `soc.irq`'s "dana".
Bursts become single accesses of Wishbone, which LiteX adapts to any bus of a SoC. LiteX's own way from AXI to a
narrower bus keeps eight bits of a burst's length and loses the rest of 256 beats, and it answers OKAY where memory
answers an error.
"""

import json
from pathlib import Path

from litex.gen import ClockSignal, Instance, LiteXModule, ResetSignal
from litex.soc.integration.soc import SoCRegion
from litex.soc.interconnect.axi import RESP_OKAY, RESP_SLVERR, AXIInterface, AXILiteInterface
from litex.soc.interconnect.csr_eventmanager import EventManager, EventSourceLevel
from litex.soc.interconnect.wishbone import Interface
from migen import FSM, If, Mux, NextState, NextValue, Signal, log2_int

LANES = 8
"""Of a cluster."""
ADDRESS = ("id", "addr", "len", "size", "burst", "lock", "cache", "prot", "valid", "ready")


class DanaBoard(LiteXModule):
    """The package's top module; `bus`, those of `pages`, and `records` (None without a record memory) are its buses."""

    def __init__(self, platform, folder, address_width=32):
        folder = Path(folder)
        manifest = json.loads((folder / "manifest.json").read_text())
        config = manifest["config"]
        self.aperture = manifest["aperture"]
        self.bus = AXILiteInterface(data_width=32, address_width=address_width)
        width = 8 * config["link_bytes"] // manifest["buses"]
        self.pages = [
            AXIInterface(data_width=width, address_width=address_width, id_width=1) for _ in range(manifest["buses"])
        ]
        self.records = None
        self.ev = EventManager()
        self.ev.board = EventSourceLevel()
        self.ev.finalize()
        ports = {"i_clk": ClockSignal("sys"), "i_rst": ResetSignal("sys"), "o_irq": self.ev.board.trigger}
        for channel, inputs, outputs in (
            ("aw", ("valid",), ("ready",)),
            ("w", ("data", "strb", "valid"), ("ready",)),
            ("b", ("ready",), ("resp", "valid")),
            ("ar", ("valid",), ("ready",)),
            ("r", ("ready",), ("resp", "data", "valid")),
        ):
            side = getattr(self.bus, channel)
            ports |= {f"i_s_axil_{channel}{name}": getattr(side, name) for name in inputs}
            ports |= {f"o_s_axil_{channel}{name}": getattr(side, name) for name in outputs}
        for channel in ("aw", "ar"):
            address = getattr(self.bus, channel).addr[: log2_int(self.aperture)]
            ports |= {f"i_s_axil_{channel}addr": address, f"i_s_axil_{channel}prot": 0}
        for k, pages in enumerate(self.pages):
            ports |= _reads(f"m_axi_{k}" if k else "m_axi", pages)
        if config["record_depth"]:
            width = 32 * LANES * config["clusters"]
            self.records = AXIInterface(data_width=width, address_width=address_width, id_width=1)
            ports |= _reads("m_axi_records", self.records) | _writes("m_axi_records", self.records)
        self.specials += Instance(manifest["top"], **ports)
        for path in sorted((folder / "rtl").glob("*.v")):
            platform.add_source(str(path))

    def add_to(self, soc, name="dana", origin=0x90000000):
        """Connect it to the SoC: registers from `origin` on, memories as masters of the SoC's bus."""
        soc.bus.add_slave(name, self.bus, SoCRegion(origin=origin, size=self.aperture, cached=False))
        self.memories = [Reads(pages) for pages in self.pages]
        if self.records is not None:
            self.memories += [Reads(self.records), Writes(self.records)]
        for k, memory in enumerate(self.memories):
            self.add_module(f"memory{k}", memory)
            soc.bus.add_master(f"{name}_memory{k}", memory.bus)
        if soc.irq.enabled:
            soc.irq.add(name, use_loc_if_exists=True)


class Reads(LiteXModule):
    """The bursts of an AXI bus that read, a beat at a time on `bus`."""

    def __init__(self, axi):
        self.bus = bus = Interface(data_width=axi.data_width, address_width=axi.address_width, addressing="word")
        address, left = Signal.like(bus.adr), Signal.like(axi.ar.len)
        self.fsm = fsm = FSM(reset_state="REQUEST")
        fsm.act(
            "REQUEST",
            axi.ar.ready.eq(1),
            NextValue(address, axi.ar.addr[log2_int(axi.data_width // 8) :]),
            NextValue(left, axi.ar.len),
            If(axi.ar.valid, NextState("READ")),
        )
        fsm.act(
            "READ",
            *(line.eq(1) for line in (bus.cyc, bus.stb)),
            NextValue(axi.r.data, bus.dat_r),
            NextValue(axi.r.resp, Mux(bus.err, RESP_SLVERR, RESP_OKAY)),
            If(bus.ack | bus.err, NextState("ANSWER")),
        )
        fsm.act(
            "ANSWER",
            axi.r.valid.eq(1),
            If(
                axi.r.ready,
                NextValue(address, address + 1),
                NextValue(left, left - 1),
                If(left == 0, NextState("REQUEST")).Else(NextState("READ")),
            ),
        )
        self.comb += [
            bus.adr.eq(address),
            bus.sel.eq(2 ** len(bus.sel) - 1),
            axi.r.last.eq(left == 0),
        ]


class Writes(LiteXModule):
    """The bursts of an AXI bus that write, a beat at a time on `bus`."""

    def __init__(self, axi):
        self.bus = bus = Interface(data_width=axi.data_width, address_width=axi.address_width, addressing="word")
        address, failed = Signal.like(bus.adr), Signal()
        self.fsm = fsm = FSM(reset_state="REQUEST")
        fsm.act(
            "REQUEST",
            axi.aw.ready.eq(1),
            NextValue(address, axi.aw.addr[log2_int(axi.data_width // 8) :]),
            NextValue(failed, 0),
            If(axi.aw.valid, NextState("WRITE")),
        )
        fsm.act(
            "WRITE",
            *(line.eq(axi.w.valid) for line in (bus.cyc, bus.stb)),
            axi.w.ready.eq(bus.ack | bus.err),
            If(
                axi.w.valid & axi.w.ready,
                NextValue(address, address + 1),
                NextValue(failed, failed | bus.err),
                If(axi.w.last, NextState("ANSWER")),
            ),
        )
        fsm.act("ANSWER", axi.b.valid.eq(1), If(axi.b.ready, NextState("REQUEST")))
        self.comb += [
            bus.adr.eq(address),
            bus.we.eq(1),
            bus.sel.eq(axi.w.strb),
            bus.dat_w.eq(axi.w.data),
            axi.b.resp.eq(Mux(failed, RESP_SLVERR, RESP_OKAY)),
        ]


def _reads(bus, axi):
    return _channel(bus, "ar", axi.ar) | {
        **{f"i_{bus}_r{name}": getattr(axi.r, name) for name in ("data", "resp", "last", "valid")},
        f"i_{bus}_rid": axi.r.id,
        f"o_{bus}_rready": axi.r.ready,
    }


def _writes(bus, axi):
    return _channel(bus, "aw", axi.aw) | {
        **{f"o_{bus}_w{name}": getattr(axi.w, name) for name in ("data", "strb", "last", "valid")},
        f"i_{bus}_wready": axi.w.ready,
        **{f"i_{bus}_b{name}": getattr(axi.b, name) for name in ("id", "resp", "valid")},
        f"o_{bus}_bready": axi.b.ready,
    }


def _channel(bus, prefix, side):
    return {f"{'i' if name == 'ready' else 'o'}_{bus}_{prefix}{name}": getattr(side, name) for name in ADDRESS}
