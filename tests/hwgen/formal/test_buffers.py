"""Page buffers: a beat goes to its page and its place, no page is written over that is still wanted, bytes come back.

The bytes are proved for one address that is any. The loader's rules hold in every run, however long; those of the
memories in every run of so many cycles.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from amaranth.hdl import Assert, Assume, Cover, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In

from hwgen.rtl.access.buffers import WINDOW_LATENCY, PageStore, PageWords
from hwgen.rtl.access.layouts import line_bits, page_bits, row_bytes, strider_bits, window_layout
from hwgen.rtl.access.loader import Loader
from hwgen.spec.config import MachineConfig
from tests.hwgen.formal.proof import check

CONFIG = MachineConfig(striders=2, link_bytes=32)
WORD_LATENCY = 2
WORD_BYTES = 4


class Remembered(wiring.Component):
    """Beats go into a memory; what was last written to byte `byte` of Strider `owner`'s page is remembered beside it.

    The two are any, but stay.
    """

    def __init__(self, **more: object) -> None:
        super().__init__(
            {
                "write": In(1),
                "strider": In(strider_bits(CONFIG)),
                "line": In(line_bits(CONFIG)),
                "data": In(8 * CONFIG.link_bytes),
                "owner": In(strider_bits(CONFIG)),
                "byte": In(page_bits(CONFIG)),
                **more,
            }
        )

    def remember(self, m: Module) -> tuple[Signal, Signal, Signal]:
        """Whether the byte was written, its value, and whether it is being written."""
        m.domains  # noqa: B018
        started, owner, byte = Signal(), Signal.like(self.owner), Signal.like(self.byte)
        known, value, now = Signal(), Signal(8), Signal()
        m.d.sync += [started.eq(1), owner.eq(self.owner), byte.eq(self.byte)]
        with m.If(started):
            m.d.comb += Assume((owner == self.owner) & (byte == self.byte))
        within = (CONFIG.link_bytes - 1).bit_length()
        m.d.comb += now.eq(self.write & (self.strider == self.owner) & (self.line == self.byte[within:]))
        with m.If(now):
            m.d.sync += [known.eq(1), value.eq(self.data.word_select(self.byte[:within], 8))]
        return known, value, now
