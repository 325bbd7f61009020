"""The loader: asks the link for pages as buffers come free, and writes what arrives.

In: pages of the epoch, buffers that were released, beats of the link. Out: requests, and each beat with its place:
which Strider's buffer, which line. Pages go round-robin to the Striders, so the buffers come free in the order in which
they were filled: a count of the free ones is all that is kept of them. It does not look at what the pages hold.
"""

from amaranth.hdl import Module, Mux, Signal, unsigned
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hwgen.rtl.access.layouts import line_bits, strider_bits
from hwgen.rtl.interfaces import page_port
from hwgen.spec.config import MachineConfig


def beat_write(config: MachineConfig) -> wiring.Signature:
    """A beat on its way into a page buffer: link_bytes bytes, line `line` of Strider `strider`'s page."""
    return wiring.Signature(
        {
            "valid": Out(1),
            "strider": Out(strider_bits(config)),
            "line": Out(line_bits(config)),
            "data": Out(unsigned(8 * config.link_bytes)),
        }
    )


class Loader(wiring.Component):
    """Master of the page link; beats are written as they arrive."""

    def __init__(self, config: MachineConfig) -> None:
        self._config = config
        super().__init__(
            {
                "start": In(1),  # pulse: begin an epoch of `pages` pages, all buffers free
                "stop": In(1),  # pulse: forget it
                "pages": In(32),
                "release": In(1),  # pulse: the page that was requested first and not released yet is done with
                "page": Out(page_port(config)),
                "write": Out(beat_write(config)),  # the beat of the cycle before
                "loaded": Out(config.striders),  # bit s, a pulse: `write` holds the last beat of a page of Strider s
            }
        )

    def elaborate(self, platform: object) -> Module:
        config = self._config
        m = Module()
        running = Signal()
        free = Signal(range(config.striders + 1))
        left = Signal(32)
        # a register, made one cycle ahead: much hangs on it
        request = Signal()
        some, several = Signal(), Signal()  # `left` is at least 1, at least 2

        m.d.comb += self.page.req_valid.eq(request)
        # after this cycle: the page requested in it takes a buffer, one that is released gives one back
        still_free = (free > 1) | (free.any() & ~request) | self.release
        m.d.sync += request.eq(running & still_free & Mux(request, several, some))
        with m.If(request):
            m.d.sync += [
                left.eq(left - 1),
                some.eq(several),
                several.eq(left > 2),
                self.page.req_page.eq(self.page.req_page + 1),
            ]
        with m.If(request & ~self.release):
            m.d.sync += free.eq(free - 1)
        with m.Elif(~request & self.release):
            m.d.sync += free.eq(free + 1)

        line = Signal(line_bits(config))
        strider = Signal(strider_bits(config))
        last = Signal()
        m.d.comb += last.eq(line == config.page_beats - 1)
        m.d.sync += [
            self.write.valid.eq(self.page.valid & running),  # beats of an epoch that was stopped still come
            self.write.data.eq(self.page.data),
            self.write.line.eq(line),
            self.write.strider.eq(strider),
            self.loaded.eq(0),
        ]
        with m.If(self.page.valid & running):
            m.d.sync += line.eq(line + 1)
            with m.If(last):
                m.d.sync += line.eq(0)
                for s in range(config.striders):
                    with m.If(strider == s):
                        m.d.sync += [self.loaded[s].eq(1), strider.eq((s + 1) % config.striders)]

        with m.If(self.start):
            m.d.sync += [
                running.eq(1),
                free.eq(config.striders),
                left.eq(self.pages),
                some.eq(self.pages.any()),
                several.eq(self.pages > 1),
                request.eq(self.pages.any()),
                self.page.req_page.eq(0),
                line.eq(0),
                strider.eq(0),
            ]
        with m.If(self.stop):
            m.d.sync += [running.eq(0), request.eq(0), self.write.valid.eq(0), self.loaded.eq(0)]
        return m
