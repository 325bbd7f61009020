"""A Strider reads no byte outside its page, in every run, whatever its program, its registers and its page hold."""

from __future__ import annotations

from pathlib import Path

import pytest
from amaranth.hdl import Assert, Assume, Cover, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In

from hwgen.rtl.access.strider import Strider, control_layout
from hwgen.rtl.access.translate import INSTRUCTION, Action, Translator
from hwgen.spec.config import MachineConfig
from hwgen.spec.cycles import FACTOR_BITS
from hwgen.spec.strider import WORD_BITS
from tests.hwgen.formal.proof import check

CONFIG = MachineConfig(strider_depth=64)
BYTES = 4
"""That readB reads at most."""


class Translated(wiring.Component):
    """What any word becomes: one of the actions, and for READ as many bits kept as bytes are read."""

    def __init__(self) -> None:
        super().__init__({"word": In(WORD_BITS)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.translator = translator = Translator(CONFIG)
        there = Signal()
        m.d.sync += there.eq(1)
        m.d.comb += [
            translator.word.eq(self.word),
            Assert(~there | sound(translator.instruction)),
            Cover(there & (translator.instruction.action == Action.READ) & ~translator.instruction.wrong),
        ]
        return m


class Walking(wiring.Component):
    """A Strider with any program that was translated, any registers and any page.

    A word of the page is used in the cycle `finish` of a readB; it is the word at the address of two cycles earlier.
    """

    def __init__(self, *, size: int = CONFIG.page_size) -> None:
        self._size = size
        states = dict.fromkeys(PROBES, In(1))
        super().__init__(
            {
                **states,
                "multiplying": In(FACTOR_BITS),
                "instruction": In(INSTRUCTION),
                "control": In(control_layout(CONFIG)),
                "address": In(32),
                "mask": In(32),
                "loaded": In(1),
                "stop": In(1),
                "room": In(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.strider = strider = Strider(CONFIG)
        m.d.comb += [strider.loaded.eq(self.loaded), strider.stop.eq(self.stop), strider.room.eq(self.room)]
        addresses = [Signal(32, name=f"address_{k}") for k in range(2)]
        m.d.sync += [addresses[0].eq(self.address), addresses[1].eq(addresses[0])]
        states = [self.idle, self.decode, self.execute, self.memory, *self.multiplying, self.finish]
        used = self.finish & self.control.read
        m.d.comb += [
            Assume(sound(self.instruction)),
            Assert(sum(states, 0) == 1),
            Assert(~(self.memory | self.multiplying.any() | self.finish) | ~self.control.wrong),
            Assert(~self.memory | self.control.read),
            Assert(~self.multiplying.any() | self.control.multiply),
            Cover(used & (addresses[1] == CONFIG.page_size - BYTES) & self.mask.all()),
        ]
        with m.If(used):
            for k in range(BYTES):
                with m.If(self.mask.word_select(k, 8).any()):
                    m.d.comb += Assert(addresses[1] + k < self._size)
        return m


PROBES = {name: f"strider.{name}" for name in ("idle", "decode", "execute", "memory", "finish")}
WATCHED = PROBES | {
    "multiplying": "strider.multiplying",
    "instruction": "strider.instruction",
    "control": "strider.control",
    "address": "strider.operand_a_1",
    "mask": "strider.mask",
}
CUT = ("strider.page", "strider.registers", "strider.program")


def sound(instruction: object) -> object:
    """What the first proof says of a translated word, and the second takes from it."""
    word = instruction
    bits = (word.second[:2] + 1) << 3
    return (word.action <= max(Action)) & ((word.action != Action.READ) | word.wrong | (word.third == bits))


def test_words_are_translated_to_actions_and_reads_of_so_many_bytes(tmp_path: Path) -> None:
    check(Translated(), cycles=2, folder=tmp_path)


def test_no_byte_outside_the_page_is_used(tmp_path: Path) -> None:
    check(Walking(), cycles=8, folder=tmp_path, cut=CUT, probes=WATCHED, induction=6)


def test_a_byte_outside_would_be_noticed(tmp_path: Path) -> None:
    """The proof can fail: of a page that is a byte shorter it does."""
    with pytest.raises(AssertionError, match=r"Assert failed"):
        check(Walking(size=CONFIG.page_size - 1), cycles=8, folder=tmp_path, cut=CUT, probes=WATCHED)
