"""A Strider's registers: two are read in a cycle, one is written at the end of it.

In: numbers of registers, a result, the host's constants. Out: their values. The temporaries lie in two memories, which
are cleared at the same time, a word each in a cycle, while the Strider has no page: they are 0 when one comes.
"""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from hwgen.spec.strider import CONFIGURATION, TEMPORARIES

NUMBER_BITS = (TEMPORARIES + CONFIGURATION - 1).bit_length()
HALF = TEMPORARIES // 2
PORTS = 2


class Registers(wiring.Component):
    """See the module.

    Members
    -------
    number, value
        Of each of two registers, in the same cycle.
    write, target, result
        `result` goes into temporary `target`; reads have it in the same cycle already.
    clear, cleared
        While `clear` is high the temporaries are cleared; `cleared` if they all are 0 at the end of this cycle.
    host_write, host_number, host_data
        The host writes a configuration register.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "number": In(data.ArrayLayout(NUMBER_BITS, PORTS)),
                "value": Out(data.ArrayLayout(32, PORTS)),
                "write": In(1),
                "target": In(range(TEMPORARIES)),
                "result": In(32),
                "clear": In(1),
                "cleared": Out(1),
                "host_write": In(1),
                "host_number": In(range(CONFIGURATION)),
                "host_data": In(32),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.low = low = Memory(shape=32, depth=HALF, init=[])
        m.submodules.high = high = Memory(shape=32, depth=HALF, init=[])
        m.submodules.constants = constants = Memory(shape=32, depth=CONFIGURATION, init=[])

        count = Signal(range(HALF))
        finished = Signal()
        m.d.comb += self.cleared.eq(finished | count.all())
        with m.If(self.clear):
            m.d.sync += [count.eq(count + 1), finished.eq(self.cleared)]
        with m.Else():
            m.d.sync += [count.eq(0), finished.eq(0)]
        for k, half in enumerate((low, high)):
            writer = half.write_port()
            m.d.comb += [
                writer.en.eq(self.clear | (self.write & (self.target[-1] == k))),
                writer.addr.eq(Mux(self.clear, count, self.target[:-1])),
                writer.data.eq(Mux(self.clear, 0, self.result)),
            ]
        writer = constants.write_port()
        m.d.comb += [
            writer.en.eq(self.host_write),
            writer.addr.eq(self.host_number),
            writer.data.eq(self.host_data),
        ]
        for k in range(PORTS):
            number = self.number[k]
            readers = [memory.read_port(domain="comb") for memory in (low, high, constants)]
            m.d.comb += [reader.addr.eq(number) for reader in readers]
            stored = [reader.data for reader in readers]
            with m.If(self.write & (number == self.target)):
                m.d.comb += self.value[k].eq(self.result)
            with m.Elif(number[-1]):
                m.d.comb += self.value[k].eq(stored[2])
            with m.Else():
                m.d.comb += self.value[k].eq(Mux(number[-2], stored[1], stored[0]))
        return m
