"""Rounds before the engine, for every run: each that is handed over is begun once, in order, as it was."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from amaranth.hdl import Assert, Assume, Cat, Cover, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In

from hwgen.rtl.engine.sections import OUTSTANDING, SECTIONS, SectionControl, State
from hwgen.rtl.interfaces import count_bits, hand_over
from hwgen.spec.config import MachineConfig
from hwgen.spec.engine import Section
from tests.hwgen.formal.proof import check

CONFIG = MachineConfig(threads=2, tuple_depth=64)
ROUND = data.StructLayout({"count": count_bits(CONFIG), "batch_last": 1, "epoch_last": 1})
CYCLES, LONGER = 12, 16
RUNNING, BATCH = (SECTIONS.index(section) for section in (Section.TUPLE, Section.BATCH))


class HandedOver(wiring.Component):
    """An access engine that hands rounds over when it likes, and sections that end when they like.

    The access engine keeps to `hwgen.rtl.interfaces.hand_over`: no more than two rounds that were not released, and
    none in an epoch without tuples. An epoch starts when none runs; it may be stopped at any time.

    Parameters
    ----------
    hasty
        The access engine does not wait for rounds to be released: a fault.
    config
        With `pause`, batches pause, or not, and hosts go on when they like.
    eager
        What follows a pause may begin without a host: a fault.
    """

    def __init__(self, *, hasty: bool = False, config: MachineConfig = CONFIG, eager: bool = False) -> None:
        self._hasty = hasty
        self._config = config
        self._eager = eager
        super().__init__(
            {
                "start": In(1),
                "stop": In(1),
                "section_end": In(1),
                "rounds": In(hand_over(CONFIG)),
                "exists": In(len(SECTIONS)),
                "state": In(State),
                "section": In(range(len(SECTIONS))),
                "pop": In(1),
                "current": In(ROUND),
                "empty": In(1),
                "level": In(range(OUTSTANDING + 1)),
                "produce": In(range(OUTSTANDING)),
                "consume": In(range(OUTSTANDING)),
                "word_0": In(ROUND),
                "word_1": In(ROUND),
                **({"pause": In(1), "resume": In(1)} if config.pause else {}),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.sections = sections = SectionControl(self._config)
        given, push = self.rounds, self.rounds.round_valid
        m.d.comb += [
            sections.start.eq(self.start),
            sections.stop.eq(self.stop),
            sections.section_end.eq(self.section_end),
            sections.settings.exists.eq(self.exists),
            *(sections.settings.entry[k].eq(k + 1) for k in range(len(SECTIONS))),
            *(getattr(sections.rounds, name).eq(getattr(given, name)) for name in hand_over(CONFIG).members),
        ]

        # rounds handed over and not begun, the first of them first; those not released; whether there was one at all
        waiting, first, second = Signal(2), Signal(ROUND), Signal(ROUND)
        held, some, none, dropped = Signal(2), Signal(), Signal(), Signal()
        off = self.state == State.OFF
        if self._config.pause:
            paused, resumes = sections.pausing, self.resume | self._eager
            m.d.comb += [sections.pause.eq(self.pause), sections.resume.eq(resumes)]
            begins, setting = sections.begin & (sections.entry == BATCH + 1), Signal()
            ends = Signal()
            m.d.sync += [setting.eq(self.pause), ends.eq(self.start | self.stop)]
            m.d.comb += [
                Assume(ends | (self.pause == setting)),  # stable while an epoch runs
                Assert(~paused | off),
                # it ends by its host, and what comes then is the batch; no batch begins otherwise
                Assert(~(paused & sections.begin & ~self.start) | (begins & self.resume)),
                Assert(~(begins & self.pause) | paused | self.start),
                Cover(paused & begins),
            ]
            off = off & ~paused

        left = waiting - self.pop
        entry = Cat(given.count, given.batch_last, given.epoch_last)
        released = sections.half_release & ~dropped
        forget = self.start | self.stop
        m.d.comb += [
            Assume(~self.start | off),
            Assume(~self.section_end | (self.state == State.RUN)),
            Assume(~given.epoch_empty | ~(some | push)),
            Assume(~push | ~none),
            *([] if self._hasty else [Assume(~push | (held - released < OUTSTANDING))]),
        ]
        m.d.sync += [
            waiting.eq(Mux(forget, 0, left + push)),
            held.eq(Mux(forget, 0, held + push - released)),
            some.eq(Mux(forget, 0, some | push)),
            none.eq(Mux(self.start, 0, none | given.epoch_empty)),
            dropped.eq(forget),
        ]
        with m.If(self.pop):
            m.d.sync += first.eq(second)
        with m.If(push):
            with m.If(left == 0):
                m.d.sync += first.as_value().eq(entry)
            with m.Else():
                m.d.sync += second.as_value().eq(entry)

        # what is begun
        begun, expected, half = Signal(), Signal(ROUND), Signal()
        m.d.sync += [begun.eq(self.pop & ~self.start), expected.eq(first)]
        m.d.sync += half.eq(Mux(self.start, 1, half ^ self.pop))
        with m.If(self.pop):
            m.d.comb += [Assert(waiting.any()), Assert(sections.begin & (sections.entry == RUNNING + 1))]
        with m.If(begun):
            m.d.comb += [
                Assert(self.current == expected),
                Assert(sections.count == expected.count),
            ]
        m.d.comb += [
            Assert(sections.half == half),
            # it is not kept waiting
            Assert(~waiting.any() | (self.state != State.READY) | self.pop),
        ]

        # the queue's own account is the same: what induction needs, and true of every run
        running = (self.state == State.RUN) & (self.section == RUNNING)
        m.d.comb += [
            Assert(self.level == waiting),
            Assert(waiting <= OUTSTANDING),
            Assert(held == waiting + running + released),
            Assert(~waiting.any() | some),
            Assert(~(some & none)),
            Assert(self.empty == none),
            Assert((self.produce ^ self.consume) == (waiting == 1)),
        ]
        oldest, newest = Signal(ROUND), Signal(ROUND)
        m.d.comb += [
            oldest.eq(Mux(self.consume, self.word_1, self.word_0)),
            newest.eq(Mux(self.consume, self.word_0, self.word_1)),
            Assert(~waiting.any() | (oldest == first)),
            Assert((waiting != OUTSTANDING) | (newest == second)),
        ]
        covered = Signal(4)
        with m.If(self.pop):
            m.d.sync += covered.eq(covered + 1)
        m.d.comb += Cover((covered == 2) & (waiting == OUTSTANDING))
        return m


PROBES = {
    **{name: f"sections._{name}" for name in ("state", "section", "pop", "current")},
    "empty": "sections.empty",
    **{name: f"sections.queue.{name}" for name in ("level", "produce", "consume")},
    **{f"word_{k}": f"sections.queue.storage[{k}]" for k in range(OUTSTANDING)},
}


def test_each_round_is_begun_once_in_order_as_it_was(tmp_path: Path) -> None:
    check(HandedOver(), cycles=CYCLES, folder=tmp_path, probes=PROBES, induction=3)


PAUSING = replace(CONFIG, pause=1)


def test_a_pause_lasts_until_its_host_goes_on(tmp_path: Path) -> None:
    """Of batches that pause, none begins what follows without; the rounds that wait stay as they are."""
    check(HandedOver(config=PAUSING), cycles=LONGER, folder=tmp_path, probes=PROBES, induction=3)


def test_a_pause_that_ends_by_itself_is_noticed(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=r"Assert failed"):
        check(HandedOver(config=PAUSING, eager=True), cycles=LONGER, folder=tmp_path, probes=PROBES)


def test_a_round_beyond_what_may_wait_is_noticed(tmp_path: Path) -> None:
    """The proof can fail: with an access engine that does not wait for halves it does."""
    with pytest.raises(AssertionError, match=r"Assert failed"):
        check(HandedOver(hasty=True), cycles=CYCLES, folder=tmp_path, probes=PROBES)
