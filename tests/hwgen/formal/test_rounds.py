"""Places for tuples, for every run of so many cycles: tuples lie in order, where they belong, and no half of tuple
memory is written that the engine reads."""

from __future__ import annotations

from pathlib import Path

import pytest
from amaranth.hdl import Assert, Assume, C, Cover, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In

from hwgen.rtl.access.places import HALVES, Places
from hwgen.spec.bundle import WHOLE_EPOCH
from hwgen.spec.config import MachineConfig
from tests.hwgen.formal.proof import check

CONFIG = MachineConfig(threads=2, tuple_depth=16)
HALF = CONFIG.tuple_depth // HALVES
SETTINGS = {
    "rounds that a batch ends": (7, 1, 3),
    "a batch in a round": (3, 1, 4),
    "no batch": (WHOLE_EPOCH, 0, 5),
}
"""Tuples of a batch, log2 of a thread's tuples of a round, rows of a tuple: so few that several rounds are done within
the cycles of a proof, and not free, or z3 would take minutes."""
CYCLES = 12


class Filling(wiring.Component):
    """An unpacker that begins and ends tuples when it likes, and an engine that runs rounds when it likes.

    The unpacker hands a full round over when it has the next one's first tuple, which it begins as soon as a half is
    free; the engine releases rounds that it was given. After its last tuple an epoch needs no places. A batch may
    be cut between two tuples, also before the last one, if that had a place in the next half when it began.

    Parameters
    ----------
    hasty
        The engine releases what it was not given: a fault.
    anyhow
        The last tuple is taken out of its round wherever there was a place for it: a fault.
    """

    def __init__(self, batch: int, group_log2: int, rows: int, *, hasty: bool = False, anyhow: bool = False) -> None:
        self._batch, self._group_log2, self._rows = batch, group_log2, rows
        self._hasty, self._anyhow = hasty, anyhow
        names = ("start", "begin", "end", "cut", "late", "release")
        super().__init__({name: In(1) for name in names})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.places = places = Places(CONFIG)
        batch, group, rows = self._batch, 1 << self._group_log2, self._rows
        # the unpacker
        settled, started, opened, told = Signal(), Signal(), Signal(), Signal()
        begins, ends, follows, cuts = Signal(), Signal(), Signal(), Signal()
        ahead, lates, again = Signal(), Signal(), Signal()
        """The last tuple had a place in the next round, too; it is taken there; it is told again."""
        m.d.comb += [
            # the first column of a tuple waits until it is known whether there is a cut
            cuts.eq(self.cut & started & ~opened & ~self.begin & ~self.start & ~again),
            lates.eq(self.late & ahead & ~opened & ~self.begin & ~self.start & ~self.cut & ~again),
            places.cut.eq(cuts | lates),
            places.late.eq(lates),
            Assume(~(again & self.begin)),
            begins.eq(self.begin & started & ~opened & ~self.start & ~(places.full & ~places.free)),
            ends.eq(self.end & (opened | begins) & ~self.start),
            follows.eq(begins & places.full),
            # settings are there before an epoch begins
            Assume(~self.start | settled),
            places.start.eq(self.start),
            places.settings.batch.eq(batch),
            places.settings.group_log2.eq(self._group_log2),
            places.settings.tuple_rows.eq(rows),
            places.begin.eq(begins),
            places.end.eq(ends | again),
            places.following.eq(follows),
        ]
        hands = Signal()
        m.d.comb += [
            hands.eq(((self.begin & places.full & ~told) | again) & started & ~self.start),
            Assume(~told | self.begin | self.start),
        ]
        m.d.sync += [settled.eq(1), told.eq((told | hands) & ~begins & ~again), again.eq(lates)]
        with m.If(begins | ends):
            m.d.sync += opened.eq(~ends)

        # the engine
        held, released = Signal(3), Signal()
        releases = Signal()
        m.d.comb += [
            releases.eq(self.release & started & ~self.start & (1 if self._hasty else held.any())),
            places.half_release.eq(releases),
        ]
        m.d.sync += [held.eq(held + hands - releases), released.eq(released ^ releases)]

        # where the tuple is, that is begun or open: tuple `number` of its round, and of how many rounds before it
        number, batched, odd = Signal(3), Signal(3), Signal()
        mine, parity = Signal(3), Signal()
        after, last = Signal(3), Signal()
        complete = C(0) if batch == WHOLE_EPOCH else batched + 1 == batch
        m.d.comb += [
            mine.eq(Mux(follows, 0, number)),
            parity.eq(odd ^ follows),
            after.eq(mine + 1),
            last.eq(complete | (after == CONFIG.threads * group)),
        ]
        slot = mine & (group - 1)
        with m.If(begins | opened):
            m.d.comb += [
                Assert(places.thread == mine >> self._group_log2),
                Assert(places.base == slot * rows),
                Assert(slot * rows + rows <= HALF),
                Assert(places.half == parity),
                # the engine has at most one round, in the other half
                Assert(held + hands <= 1),
                Assert(~(held.any() | hands) | (places.half != released)),
            ]
        with m.If(begins):
            free = C(1) if self._anyhow else places.free
            m.d.sync += [number.eq(mine), odd.eq(parity), ahead.eq(free & ~places.full & ~places.final & mine.any())]
        with m.Elif(cuts | lates):
            m.d.sync += ahead.eq(0)
        full, count, batch_done = Signal(), Signal(3), Signal()
        with m.If(ends):
            m.d.sync += [
                number.eq(after),
                batched.eq(Mux(complete, 0, batched + 1)),
                full.eq(last),
                count.eq(after),
                batch_done.eq(complete),
            ]
        with m.Elif(begins):
            m.d.sync += full.eq(0)
        with m.Elif(cuts & ~full & number.any()):
            m.d.sync += [full.eq(1), count.eq(number), batch_done.eq(1), batched.eq(0)]
        with m.If(lates):
            m.d.sync += [full.eq(1), count.eq(number - 1), batch_done.eq(1)]
        with m.If(again):
            m.d.sync += [full.eq(0), number.eq(1), batched.eq(1), odd.eq(~odd)]
        with m.If(started & ~self.start):
            m.d.comb += [
                Assert(places.full == full),
                Assert(places.free == (held + ~(full & told) + again < HALVES)),
            ]
        with m.If(full):
            m.d.comb += [Assert(places.count == count), Assert(places.batch_done == batch_done)]
        with m.If(self.start):
            m.d.sync += [
                started.eq(1),
                *(signal.eq(0) for signal in (opened, told, held, released, number, batched, odd, full, ahead, again)),
            ]
        m.d.comb += Cover(places.full & ~places.free)
        if CONFIG.threads * group > 2:  # of two tuples the second fills a round
            m.d.comb += Cover(again)
        return m


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_tuples_lie_where_they_belong_and_no_half_is_written_over(
    tmp_path: Path, settings: tuple[int, int, int]
) -> None:
    check(Filling(*settings), cycles=CYCLES, folder=tmp_path)


def test_a_half_that_is_released_too_soon_is_noticed(tmp_path: Path) -> None:
    """The proof can fail: with an engine that releases what it was not given it does."""
    with pytest.raises(AssertionError, match=r"Assert failed"):
        check(Filling(*SETTINGS["no batch"], hasty=True), cycles=CYCLES, folder=tmp_path)


def test_a_tuple_that_had_no_place_in_the_next_half_is_noticed(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=r"Assert failed"):
        check(Filling(*SETTINGS["a batch in a round"], anyhow=True), cycles=CYCLES, folder=tmp_path)
