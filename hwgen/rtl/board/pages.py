"""The page reader: the machine's page link, on an AXI4 bus, or over several as wide as AXI has them.

In: the machine's requests, where the pages lie, beats of the bus. Out: bursts, and the beats as the machine wants them.
The machine asks for a page when a buffer is free, so all data is taken at once, and as many pages are under way
as there are buffers. Bursts are all alike and start at multiples of their size, so none crosses a 4 KB boundary.

Data comes in the order of the addresses, since all bursts carry one identifier. A requested burst is always
received; `drop` says that its data is no longer needed. Beats without a request are received and dropped: they answer
requests made before the board alone was reset.

Of several buses each brings a stripe of every beat: addresses go out on each as it accepts them, and a beat is taken
when all have theirs. So a bus that is ahead waits, and nothing has to be stored.
"""

from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hwgen.rtl.board import axi
from hwgen.rtl.delay import delayed
from hwgen.rtl.interfaces import PAGE_NUMBER_BITS, page_port
from hwgen.spec import board
from hwgen.spec.config import MachineConfig


class PageReader(wiring.Component):
    """AXI4 read master with as many pages under way as the machine has buffers."""

    def __init__(self, config: MachineConfig) -> None:
        self._config = config
        super().__init__(
            {
                "begin": In(1),  # pulse: a training begins, at slot 0
                "drop": In(1),  # pulse: forget the machine's requests, receive what is under way and drop it
                # registers PAGE_BASE, PAGE_BASE_1 …
                **{board.of_bus("base", k): In(board.PAGE_ADDRESS_BITS) for k in range(config.buses)},
                "slots": In(32),  # register SLOTS
                "ready": In(32),  # register PAGES_READY
                "page": In(page_port(config)),
                **{board.of_bus("bus", k): Out(axi.read_master(config.bus_bytes)) for k in range(config.buses)},
                "idle": Out(1),  # nothing is asked for, nothing under way, nothing left to give
                "owed": Out(1),  # a memory owes the acceptance of an address, or beats
                "moves": Out(1),  # it accepts or answers
                "failed": Out(1),  # a beat of page `failed_page` of the epoch came with an error; until `begin`
                "failed_page": Out(PAGE_NUMBER_BITS),
                "arrived": Out(32),  # register PAGES_READ
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        dropping = Signal()
        buses = [getattr(self, board.of_bus("bus", k)) for k in range(self._config.buses)]
        under_way = [self._ask(m, bus, getattr(self, board.of_bus("base", k)), dropping) for k, bus in enumerate(buses)]
        # beats that were asked for, bus by bus
        offers = [bus.rvalid & bursts.any() for bus, bursts in zip(buses, under_way, strict=True)]
        comes = Cat(offers).all()
        for k, (bus, bursts) in enumerate(zip(buses, under_way, strict=True)):
            others = [*offers[:k], *offers[k + 1 :]]
            # what is dropped waits for no other bus, which may have been asked for less of it
            m.d.comb += bus.rready.eq(Cat(others).all() | dropping | ~bursts.any() if others else 1)
        self._receive(m, buses, dropping, comes)
        owed = [bus.arvalid | bursts.any() for bus, bursts in zip(buses, under_way, strict=True)]
        moves = [bus.arvalid & bus.arready | offer & bus.rready for bus, offer in zip(buses, offers, strict=True)]
        m.d.comb += [self.owed.eq(Cat(owed).any()), self.moves.eq(Cat(moves).any())]
        m.d.comb += self.idle.eq(~self.owed & ~self.page.valid)
        with m.If(self.drop):
            m.d.sync += dropping.eq(1)
        with m.Elif(self.idle):
            m.d.sync += dropping.eq(0)
        return m

    def _ask(self, m: Module, bus: Any, base: Value, dropping: Signal) -> Signal:
        """Addresses of a bus; returns the number of its bursts that are under way."""
        config = self._config
        beats = board.burst_beats(config)
        bursts = config.page_beats // beats
        page_bits = (board.slot_bytes(config) - 1).bit_length()
        burst_bits = (bursts - 1).bit_length()
        # pages that the machine waits for and that are not asked for to their last burst
        wanted = Signal(range(config.striders + 1))
        number = Signal(board.PAGE_ADDRESS_BITS - page_bits)  # address of the page, in pages
        slot = Signal(32)
        taken = Signal(32)
        burst = Signal(max(1, burst_bits))
        under_way = Signal(range(config.striders * bursts + 1))
        whole = Signal()
        last_slot = delayed(m, (self.slots - 1)[:32], 1, name="last_slot", reset_less=False)
        held_back = (self.ready != board.ENDLESS) & (self.ready == taken)
        waiting = delayed(m, held_back, 1, name="waiting", reset_less=False)
        accepted = bus.arvalid & bus.arready
        m.d.comb += [
            bus.araddr.eq(
                Cat(Const(0, page_bits - burst_bits), burst[:burst_bits] if burst_bits else Const(0, 0), number)
            ),
            bus.arlen.eq(beats - 1),
            bus.arsize.eq((config.bus_bytes - 1).bit_length()),
            bus.arburst.eq(axi.INCREMENT),
            bus.arcache.eq(axi.CACHEABLE),
            whole.eq(accepted & (burst == bursts - 1)),
        ]
        # an address stands until it is taken; the cycle after that lets `waiting` see the new count
        settled = delayed(m, ~bus.arvalid, 1, name="settled", reset_less=False)
        with m.If(accepted):
            m.d.sync += [bus.arvalid.eq(0), burst.eq(burst + 1)]
        with m.Elif(settled & ~bus.arvalid & wanted.any() & ~waiting & ~dropping & ~self.drop):
            m.d.sync += bus.arvalid.eq(1)
        with m.If(whole):
            m.d.sync += [burst.eq(0), taken.eq(taken + 1), number.eq(number + 1), slot.eq(slot + 1)]
            with m.If(slot == last_slot):
                m.d.sync += [number.eq(base[page_bits:]), slot.eq(0)]
        m.d.sync += [
            wanted.eq(wanted + self.page.req_valid - whole),  # both may be in one cycle
            under_way.eq(under_way + accepted - (bus.rvalid & bus.rready & bus.rlast & under_way.any())),
        ]
        with m.If(self.drop | dropping):
            m.d.sync += wanted.eq(0)
        with m.If(self.begin):
            m.d.sync += [number.eq(base[page_bits:]), slot.eq(0), taken.eq(0), burst.eq(0)]
        return under_way

    def _receive(self, m: Module, buses: list[Any], dropping: Signal, comes: Value) -> None:
        """Beats that were asked for; a register between the buses and the machine."""
        beat = Signal(range(self._config.page_beats))
        number = Signal(PAGE_NUMBER_BITS)
        whole = Signal()
        m.d.comb += whole.eq(comes & (beat == self._config.page_beats - 1))
        m.d.sync += [
            self.page.valid.eq(comes & ~dropping & ~self.drop),
            self.page.data.eq(Cat(bus.rdata for bus in buses)),
        ]
        with m.If(comes):
            m.d.sync += beat.eq(Mux(whole, 0, beat + 1))
        with m.If(whole):
            m.d.sync += [self.arrived.eq(self.arrived + 1), number.eq(number + 1)]
        # the first request of an epoch is for page 0; known a cycle later, long before its beats come
        first = delayed(m, self.page.req_valid & (self.page.req_page == 0), 1, name="first", reset_less=False)
        with m.If(first):
            m.d.sync += number.eq(0)
        bad = Cat(bus.rresp != axi.OKAY for bus in buses).any()
        with m.If(comes & bad & ~self.failed & ~dropping):
            m.d.sync += [self.failed.eq(1), self.failed_page.eq(number)]
        with m.If(self.begin):
            m.d.sync += [self.arrived.eq(0), self.failed.eq(0), beat.eq(0)]
