"""A Strider's registers: two are read in a cycle, one is written at the end of it.

In: numbers of registers, a result, the host's constants. Out: their values. All lie in one memory. The temporaries are
cleared, one in a cycle, while the Strider has no page: they are 0 when one comes.
"""

from amaranth.hdl import C, Cat, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from hwgen.spec.strider import CONFIGURATION, TEMPORARIES

NUMBER_BITS = (TEMPORARIES + CONFIGURATION - 1).bit_length()
PORTS = 2


class Registers(wiring.Component):
    """Register file with two read ports and a write port, whose result is forwarded to the reads."""

    def __init__(self) -> None:
        super().__init__(
            {
                "number": In(data.ArrayLayout(NUMBER_BITS, PORTS)),  # of two registers
                "value": Out(data.ArrayLayout(32, PORTS)),  # theirs, in the same cycle
                "write": In(1),  # `result` goes into temporary `target`; reads have it in the same cycle already
                "target": In(range(TEMPORARIES)),
                "result": In(32),
                "clear": In(1),  # while it is high the temporaries are cleared
                "cleared": Out(1),  # they all are 0 at the end of this cycle
                "host_write": In(1),  # the host writes a configuration register; clearing waits for it
                "host_number": In(range(CONFIGURATION)),
                "host_data": In(32),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.words = words = Memory(shape=32, depth=TEMPORARIES + CONFIGURATION, init=[])

        count = Signal(range(TEMPORARIES))
        finished = Signal()
        m.d.comb += self.cleared.eq(finished | (count.all() & ~self.host_write))
        with m.If(~self.clear):
            m.d.sync += [count.eq(0), finished.eq(0)]
        with m.Elif(~self.host_write):
            m.d.sync += [count.eq(count + 1), finished.eq(self.cleared)]
        writer = words.write_port()
        temporary = Mux(self.clear, count, self.target)
        m.d.comb += [
            writer.en.eq(self.clear | self.host_write | self.write),
            writer.addr.eq(Mux(self.host_write, Cat(self.host_number, C(1, 1)), Cat(temporary, C(0, 1)))),
            writer.data.eq(Mux(self.host_write, self.host_data, Mux(self.clear, 0, self.result))),
        ]
        for k in range(PORTS):
            reader = words.read_port(domain="comb")
            m.d.comb += [
                reader.addr.eq(self.number[k]),
                self.value[k].eq(Mux(self.write & (self.number[k] == self.target), self.result, reader.data)),
            ]
        return m
