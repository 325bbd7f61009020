"""Watched columns: does a tuple choose a row that an earlier tuple of its batch writes?

In: numbers of rows as they are unpacked, a tuple's before the tuple, and where tuples and rounds begin. Out: a pulse
for a number that was there before. When a batch then ends is for `places.py` and the unpacker.
"""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hwgen.spec.columns import TABLE_BITS
from hwgen.spec.config import MachineConfig

WATCH_STAGES = 2
"""Cycles from a number to the pulse."""
NUMBER_BITS = 31
"""Of a binary32 without its sign: -0.0 and 0.0 choose the same row, and no other negative number chooses one."""
SEEN = {
    "valid": 1,  # pulse: a watched column's value is there, with what its descriptor says
    "table": TABLE_BITS,
    "writes": 1,
    "begin": 1,  # the tuple begins whose numbers were seen
    "following": 1,  # it is the first of its round
}
"""What the unpacker says of watched columns, and its bits."""


class Watch(wiring.Component):
    """The last `watch_depth` rows that tuples write, and a comparator for each."""

    def __init__(self, config: MachineConfig) -> None:
        self._depth = config.watch_depth
        super().__init__(
            {
                "clear": In(1),  # pulse: an epoch begins
                **{name: In(bits) for name, bits in SEEN.items()},
                "number": In(NUMBER_BITS),
                # pulse WATCH_STAGES cycles after `valid`: an earlier tuple of the round writes that row
                "repeated": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        key = Cat(self.number, self.table)
        turn = Signal(self._depth, init=1)  # the place of the next row, one bit for each
        pushed = self.valid & self.writes
        with m.If(pushed):
            m.d.sync += turn.eq(turn.rotate_left(1))
        matches = Signal(self._depth)
        for k in range(self._depth):
            stored = Signal(len(key), name=f"row_{k}", reset_less=True)
            # of a tuple that has begun; of the one that is to begin, which its own numbers are not compared with
            earlier, own = Signal(name=f"earlier_{k}"), Signal(name=f"own_{k}")
            m.d.sync += matches[k].eq(self.valid & earlier & (stored == key))
            with m.If(pushed & turn[k]):
                m.d.sync += [stored.eq(key), earlier.eq(0), own.eq(1)]
            with m.Elif(self.begin):
                m.d.sync += [earlier.eq(own | (earlier & ~self.following)), own.eq(0)]
            with m.If(self.clear):
                m.d.sync += [earlier.eq(0), own.eq(0)]
        m.d.sync += self.repeated.eq(Mux(self.clear, 0, matches.any()))
        return m
