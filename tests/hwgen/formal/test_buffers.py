"""Page buffers: a beat goes to its place, no page is written over that is still wanted, and every byte comes back.

Bytes are proved for one address that is any, in every run of so many cycles; the loader's rules in every run.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from amaranth.hdl import Assert, Assume, C, Cover, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In

from hwgen.rtl.access.buffers import WINDOW_LATENCY, PageStore, PageWords
from hwgen.rtl.access.layouts import line_bits, page_bits, row_bytes, strider_bits
from hwgen.rtl.access.loader import Loader
from hwgen.rtl.delay import delayed
from hwgen.spec.config import MachineConfig
from tests.hwgen.formal.proof import check

PAGE = MachineConfig(link_bytes=16)
STORES = {
    "two rows a beat": MachineConfig(link_bytes=64),
    "half a row a beat": MachineConfig(link_bytes=16),
}
"""What a beat fills: a row in both banks, or a piece of one; at widths at which z3 takes seconds."""
WORD_LATENCY = 2
WORD_BYTES = 4


class Bytes(wiring.Component):
    """What was last written to byte `byte` of Strider `owner`'s page, two that are any but stay, is what is read there.

    Parameters
    ----------
    config
        The machine.
    store
        Of the page store; else of a Strider's own page.
    late
        Cycles too many, or too few, from the address to the bytes: a fault, for the proof to find.
    """

    def __init__(self, config: MachineConfig, *, store: bool, late: int = 0) -> None:
        self._store = store
        self._config = config
        self._late = late
        self._size, self._latency = (row_bytes(config), WINDOW_LATENCY) if store else (WORD_BYTES, WORD_LATENCY)
        super().__init__(
            {
                "write": In(1),
                "strider": In(strider_bits(config)),
                "line": In(line_bits(config)),
                "data": In(8 * config.link_bytes),
                "reader": In(strider_bits(config)),
                "offset": In((self._size - 1).bit_length()),
                "owner": In(strider_bits(config)),
                "byte": In(page_bits(config)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        config = self._config
        m = Module()
        address = Signal(page_bits(config))
        """Of what is read: the byte is its byte `offset`. Addresses count modulo the page."""
        # a row's other bytes would take z3 minutes: its last one is read, at every alignment
        offset = C(self._size - 1, (self._size - 1).bit_length()) if self._store else self.offset
        m.d.comb += address.eq(self.byte - offset)
        ours = self.strider == self.owner
        if self._store:
            m.submodules.store = store = PageStore(config)
            m.d.comb += [
                store.write.valid.eq(self.write),
                store.write.strider.eq(self.strider),
                store.write.line.eq(self.line),
                store.write.data.eq(self.data),
                store.window.strider.eq(self.reader),
                store.window.at.eq(address),
                store.window.ahead.eq(address + self._size),
            ]
            found, reads = store.row, self.reader == self.owner
        else:
            m.submodules.page = page = PageWords(config)
            m.d.comb += [
                page.write.eq(self.write & ours),
                page.line.eq(self.line),
                page.data.eq(self.data),
                page.address.eq(address),
            ]
            found, reads = page.word, C(1)

        within = (config.link_bytes - 1).bit_length()
        known, value, now = Signal(), Signal(8), Signal()
        m.d.comb += now.eq(self.write & ours & (self.line == self.byte[within:]))
        with m.If(now):
            m.d.sync += [known.eq(1), value.eq(self.data.word_select(self.byte[:within], 8))]
        owner, byte, started = Signal.like(self.owner), Signal.like(self.byte), Signal()
        m.d.sync += [started.eq(1), owner.eq(self.owner), byte.eq(self.byte)]
        m.d.comb += Assume(~started | ((owner == self.owner) & (byte == self.byte)))

        # a word that is being written is not read
        asked = Signal()
        m.d.comb += asked.eq(reads & known & ~now)
        cycles = self._latency + self._late
        then, expected = delayed(m, asked, cycles, name="asked"), delayed(m, value, cycles, name="expected")
        at = offset if self._store else delayed(m, offset, cycles, name="at")
        with m.If(then):
            m.d.comb += Assert(found.word_select(at, 8) == expected)
        m.d.comb += Cover(then & (at == self._size - 1) & (expected == 0x5A))
        return m


LOADERS = {"as it ships": MachineConfig(), "three Striders": MachineConfig(striders=3)}


class Loading(wiring.Component):
    """A loader with a link that delivers what was asked for, and an unpacker that releases what it was given.

    `due`: beats that are to come; `held`: pages in buffers, not released. A page's buffer is that of the page
    `striders` before, so a beat may come only while fewer pages than buffers are held.
    """

    def __init__(self, config: MachineConfig, *, hasty: bool = False) -> None:
        self._config = config
        self._hasty = hasty
        super().__init__(
            {
                "start": In(1), "stop": In(1), "release": In(1), "beat": In(1), "pages": In(32),
                "running": In(1), "free": In(range(config.striders + 1)),
                "line": In(line_bits(config)), "strider": In(strider_bits(config)),
            }
        )  # fmt: skip

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.loader = loader = Loader(self._config)
        beats, buffers = self._config.page_beats, self._config.striders
        due, held = Signal(range(2 * buffers * beats)), Signal(range(2 * buffers))
        request = loader.page.req_valid
        last = self.beat & (self.line == beats - 1)
        m.d.comb += [
            loader.start.eq(self.start),
            loader.stop.eq(self.stop),
            loader.release.eq(self.release),
            loader.page.valid.eq(self.beat),
            loader.pages.eq(self.pages),
            Assume(~self.beat | due.any()),
            Assume(~self.release | (held.any() & self.running)),
            # an epoch begins when nothing of the last one is under way
            Assume(~self.start | ~(due.any() | self.running | self.stop)),
        ]
        m.d.sync += [
            due.eq(due + Mux(request, beats, 0) - self.beat),
            held.eq(Mux(self.start, 0, held + last - (0 if self._hasty else self.release))),
        ]
        written = loader.write
        arrived = Signal()
        m.d.sync += arrived.eq(self.beat & self.running & ~self.stop)
        m.d.comb += [
            Assert(due <= buffers * beats),
            Assert(self.strider < buffers),
            Assert(~request | (self.running & self.free.any())),
            Assert(written.valid == arrived),
            # a page's end is cycles away that z3 does not reach: of one of 64 beats it takes more than 500 seconds
            Cover(written.valid & due.any()),
        ]
        with m.If(self.running):
            m.d.comb += [
                Assert(self.free + held <= buffers),
                Assert(due + self.line == (buffers - self.free - held) * beats),
                Assert(~self.beat | (held < buffers)),
            ]
        for s in range(buffers):
            with m.If(loader.loaded[s]):
                m.d.comb += Assert(written.valid & (written.strider == s) & (written.line == beats - 1))
        return m


PROBES = {name: f"loader.{name}" for name in ("running", "free", "line", "strider")}


CYCLES = {False: 5, True: 7}
"""A byte is written, others are, it is read: of a Strider's page, and of the store."""


@pytest.mark.parametrize("config", STORES.values(), ids=STORES)
def test_bytes_come_back_to_the_unpacker(tmp_path: Path, config: MachineConfig) -> None:
    check(Bytes(config, store=True), cycles=CYCLES[True], folder=tmp_path, arrays=True)


def test_bytes_come_back_to_a_strider(tmp_path: Path) -> None:
    check(Bytes(PAGE, store=False), cycles=CYCLES[False], folder=tmp_path, arrays=True)


@pytest.mark.parametrize(
    ("config", "store", "late"),
    [(PAGE, False, 1), *((config, True, -1) for config in STORES.values())],
    ids=["of a Strider", *STORES],
)
def test_bytes_of_another_cycle_are_noticed(tmp_path: Path, config: MachineConfig, store: bool, late: int) -> None:
    """The proofs can fail: of bytes that are a cycle late, or early, they do."""
    with pytest.raises(AssertionError, match=r"Assert failed"):
        check(Bytes(config, store=store, late=late), cycles=CYCLES[store] + late, folder=tmp_path, arrays=True)


@pytest.mark.parametrize("config", LOADERS.values(), ids=LOADERS)
def test_no_page_is_written_over_that_is_still_wanted(tmp_path: Path, config: MachineConfig) -> None:
    check(Loading(config), cycles=20, folder=tmp_path, probes=PROBES, induction=4)


def test_a_page_that_is_never_released_is_noticed(tmp_path: Path) -> None:
    """The proof can fail: with an unpacker of which nobody hears that it released a page it does."""
    with pytest.raises(AssertionError, match=r"Assert failed"):
        check(Loading(LOADERS["as it ships"], hasty=True), cycles=1, folder=tmp_path, probes=PROBES, induction=4)
