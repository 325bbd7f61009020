"""Watched columns, for every run of so many cycles: a row is told as chosen again exactly if a tuple of the round that
has begun writes it."""

from __future__ import annotations

from pathlib import Path

import pytest
from amaranth.hdl import Assert, Assume, Cat, Cover, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In

from hwgen.rtl.access.watch import NUMBER_BITS, Watch
from hwgen.spec.columns import TABLE_BITS
from hwgen.spec.config import MachineConfig
from tests.hwgen.formal.proof import check

CONFIG = MachineConfig(watch_depth=4)
CYCLES = 14


class Choosing(wiring.Component):
    """An unpacker that comes to columns, tuples and rounds when it likes; and one row, that is any.

    A round writes no more rows than are kept, with those of the tuple to come, as in every legal Bundle.

    Parameters
    ----------
    forgetful
        A round may write more: a fault.
    """

    def __init__(self, *, forgetful: bool = False) -> None:
        self._forgetful = forgetful
        names = ("valid", "writes", "begin", "following", "clear")
        super().__init__(
            {
                **{name: In(1) for name in names},
                "number": In(NUMBER_BITS),
                "table": In(TABLE_BITS),
                "row": In(NUMBER_BITS + TABLE_BITS),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.watch = watch = Watch(CONFIG)
        settled, row = Signal(), Signal(len(self.row))
        m.d.sync += [settled.eq(1), row.eq(Mux(settled, row, self.row))]
        names = ("valid", "number", "table", "writes", "begin", "following", "clear")
        m.d.comb += [getattr(watch, name).eq(getattr(self, name)) for name in names]
        # a tuple begins when nothing of its numbers is under way
        m.d.comb += [
            Assume(~(self.valid & self.begin)),
            Assume(settled | ~(self.valid | self.begin)),
            Assume(settled | self.clear),
        ]
        is_row = Cat(self.number, self.table) == row
        written, kept = Signal(5), Signal(5)
        """Rows that the round writes; those of the tuple to come."""
        earlier, own = Signal(), Signal()
        pushed = self.valid & self.writes
        with m.If(self.clear):
            m.d.sync += [written.eq(0), kept.eq(0), earlier.eq(0), own.eq(0)]
        with m.Elif(self.begin):
            m.d.sync += [
                written.eq(Mux(self.following, kept, written + kept)),
                kept.eq(0),
                earlier.eq(own | (earlier & ~self.following)),
                own.eq(0),
            ]
        with m.Elif(pushed):
            m.d.sync += [kept.eq(kept + 1), own.eq(own | is_row)]
        if not self._forgetful:
            m.d.comb += Assume(~pushed | (written + kept < CONFIG.watch_depth))
        asked, expected = Signal(2), Signal(2)
        m.d.sync += [
            asked.eq(Mux(self.clear, 0, Cat(self.valid & is_row, asked))),
            expected.eq(Cat(earlier, expected)),
        ]
        with m.If(asked[1]):
            m.d.comb += Assert(watch.repeated == expected[1])
        m.d.comb += Cover(asked[1] & watch.repeated)
        return m


def test_a_row_is_told_exactly_if_an_earlier_tuple_of_the_round_writes_it(tmp_path: Path) -> None:
    check(Choosing(), cycles=CYCLES, folder=tmp_path)


def test_more_rows_than_are_kept_are_noticed(tmp_path: Path) -> None:
    """The proof can fail: where a round may write more than the machine keeps it does."""
    with pytest.raises(AssertionError, match=r"Assert failed"):
        check(Choosing(forgetful=True), cycles=CYCLES, folder=tmp_path)
