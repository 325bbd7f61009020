"""How many cycles a machine takes for a table, and what it waits for.

In: a Bundle and a sample of the table's pages. Out: `Cycles`. The estimate is the simulator itself, which counts
as the hardware does, on a few hundred pages; what one more page costs in the long run is the difference of two such
runs. So it is exact where pages are alike, for tables of any length, in about a millisecond. Where batches end at rows
that are chosen again, it takes every tuple for one that shares no row, and adds what records take to be stored.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from dana.codesign.cost import record_cycles, repeat_cycles
from dana.codesign.sample import Sample
from dana.errors import InternalError
from dana.simulator import Simulator
from hwgen.spec import cycles
from hwgen.spec.bundle import WHOLE_EPOCH, Bundle
from hwgen.spec.config import MachineConfig
from hwgen.spec.counters import EpochCounters
from hwgen.spec.engine import Instruction, Section
from hwgen.spec.strider import Fault

BATCHES = 8
"""Batches, or rounds of a batch without end, that a run has at least."""

MAX_TUPLES = 200_000
"""Tuples of a run beyond which a long batch is cut."""

MAX_BYTES = 1 << 24
"""The same limit in bytes of pages, for long rows. The end of a longer batch is counted a few per cent wrong."""

NEAR = 0.95
"""A part is what the machine waits for if it is busy for so much of the time."""

NEAR_IN_TURN = 0.8
"""The same of parts that take turns, engine and record memory, with a round handed over in between."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cycles:
    """Cycles of an epoch in the long run.

    Attributes
    ----------
    tuples
        Tuples on a page; below 1 where each lies over several.
    page
        Cycles that each page adds.
    fixed
        Cycles of an epoch beyond those: the first page's way through the machine, and the last round.
    link, unpacker, engine
        Cycles in which each is busy with a page: the least that a page can take. The link is, too, while its memory has
        nothing to send yet.
    rows
        Cycles of a page in which the units work, all of them at once.
    records
        Cycles of a page in which the engine and records wait for one another: each batch's are fetched before it and
        stored behind it.
    repeats
        Cycles that a tuple may take beyond those: `repeat_cycles`.
    """

    config: MachineConfig
    tuples: float
    page: float
    fixed: float
    link: float
    unpacker: float
    engine: float
    rows: float
    records: float = 0.0
    repeats: int = 0

    @property
    def density(self) -> str:
        """How tuples lie on pages, in words."""
        return (
            f"{self.tuples:.0f} tuples on a page" if self.tuples >= 1 else f"tuples on {1 / self.tuples:.0f} pages each"
        )

    @property
    def per_tuple(self) -> float:
        """Cycles that a tuple takes."""
        return self.page / self.tuples

    @property
    def link_use(self) -> float:
        """Fraction of its time in which the page link brings a page, at the rate of the memory behind it."""
        return self.link / self.page

    @property
    def unit_use(self) -> float:
        """Fraction of the units' time in which they compute."""
        return self.rows / self.page

    @property
    def bottleneck(self) -> str:
        """The bottleneck: `link`, `engine`, `unpacker`, `records`, or else `striders`."""
        parts = {"link": self.link, "engine": self.engine, "unpacker": self.unpacker}
        if self.records:
            parts["records"] = self.records + self.engine
        name, busy = max(parts.items(), key=lambda part: part[1])
        # no part is busy all the time, so each waits for pages that are still being parsed
        near = NEAR_IN_TURN if name == "records" else NEAR
        return name if busy >= near * self.page else "striders"

    def epoch(self, pages: float) -> float:
        """Cycles of an epoch over so many pages."""
        return self.fixed + pages * self.page if pages else 0.0

    def seconds(self, pages: int) -> float:
        """Modelled time of such an epoch, at the machine's clock."""
        return self.epoch(pages) / self.config.clock_hz


def measure_cycles(bundle: Bundle, sample: Sample, *, pause: int = 0) -> Cycles:
    """Measure on the simulator.

    Parameters
    ----------
    sample
        Of `sample_pages`, for the Bundle's table and page size.
    pause
        Cycles of each pause, of a Bundle with `merges`.
    """
    # before the writes are removed, as records that are written are stored
    fetched, stored = record_cycles(bundle)
    bundle = _without_writes(bundle)
    config = bundle.config
    batch = bundle.round_tuples if bundle.batch == WHOLE_EPOCH else bundle.batch
    most = min(MAX_TUPLES, max(1, MAX_BYTES * sample.rows // len(sample.data)))
    wanted = min(BATCHES * max(batch, bundle.round_tuples), most)
    # whole batches, so that both runs end alike
    step = batch // int(np.gcd(batch, sample.rows))
    # at least eight pages for each Strider: before that the machine is still filling
    times = max(-(-wanted // sample.rows), -(-8 * config.striders // sample.pages))
    times = -(-times // step) * step if step * sample.rows <= most else times
    long = 2 * times
    if bundle.batch == WHOLE_EPOCH:
        # an epoch is one batch, and the merge stack must be able to count its rounds
        long = min(long, max(1, (bundle.round_tuples << bundle.levels) // sample.rows))
        times = long // 2
    pages = (long - times) * sample.pages
    simulator = Simulator(config, pause=pause)
    try:
        simulator.load(bundle)
        first, second = _run(simulator, sample, times), _run(simulator, sample, long)
    finally:
        simulator.close()
    # below 1 where a row lies over several pages
    tuples = sample.rows / sample.pages
    batches = tuples / batch
    # both runs begin and end alike, so their difference is pages in the long run
    slope, engine = (second.cycles - first.cycles) / pages, (second.engine_busy - first.engine_busy) / pages
    # records are stored and fetched during section `batch`; their columns arrive before the tuple and are looked up
    between = max(0, fetched + stored + 1 - _length(bundle, Section.BATCH)) if bundle.tables else 0
    # where the unpacker is what others wait for, a half of tuple memory is free, and tuples go ahead
    waits = (
        tuples * ((cycles.WATCH_AHEAD if bundle.round_tuples > 1 else cycles.WATCH_LATENCY) - 1) if bundle.cut else 0
    )
    return Cycles(
        config=config,
        tuples=tuples,
        page=max(slope, engine + batches * (between + cycles.ROUND_START)) if bundle.tables else slope,
        fixed=second.cycles - slope * long * sample.pages,
        link=config.page_cycles,
        unpacker=tuples * sum(column.beats(config.lanes, config.converters) for column in bundle.columns) + waits + 1,
        engine=engine,
        rows=batches * _rows_of_batch(bundle),
        records=batches * between,
        repeats=repeat_cycles(bundle),
    )


def count_cycles(bundle: Bundle, pages: bytes) -> int:
    """Cycles of an epoch over these pages, in which no row of a model is chosen again."""
    simulator = Simulator(bundle.config)
    try:
        simulator.load(_without_writes(bundle))
        return _run(simulator, Sample(data=pages, page_size=bundle.config.page_size, rows=0), 1).cycles
    finally:
        simulator.close()


def _without_writes(bundle: Bundle) -> Bundle:
    """Rows of a sample are all alike: each would end a batch."""
    return replace(bundle, columns=tuple(replace(column, writes=0) for column in bundle.columns))


def _run(simulator: Simulator, sample: Sample, times: int) -> EpochCounters:
    # a chunk of 64 pages is fed again and again: the run may have 200,000 tuples
    each = max(1, 64 // sample.pages)
    run = memoryview(sample.data * min(times, each))
    # cycles do not depend on values, so nothing is computed
    simulator.begin_epoch(times * sample.pages, trains=False, counts=True)
    for start in range(0, times, each):
        simulator.consume(run[: len(sample.data) * min(each, times - start)])
    counters = simulator.end_epoch()
    if counters.fault is not Fault.NONE:
        raise InternalError(f"the simulator stopped on a sample page: {counters}")
    return counters


def _rows_of_batch(bundle: Bundle) -> float:
    """Rows that lanes work on in a batch; of a batch without end, in a round."""
    if bundle.batch == WHOLE_EPOCH:
        # in the long run every round but one is joined with another
        return sum(_rows(bundle, section) for section in (Section.TUPLE, Section.MERGE, Section.PUSH))
    rounds = -(-bundle.batch // bundle.round_tuples)
    # as a binary counter: a round carries into each level that is taken, and at the end all levels are joined
    merges = (rounds - 1).bit_count() + sum(_trailing_ones(q) for q in range(rounds - 1))
    return (
        rounds * _rows(bundle, Section.TUPLE)
        + merges * _rows(bundle, Section.MERGE)
        + (rounds - 1) * _rows(bundle, Section.PUSH)
        + _rows(bundle, Section.BATCH)
    )


def _trailing_ones(number: int) -> int:
    return (~number & (number + 1)).bit_length() - 1


def _length(bundle: Bundle, section: Section) -> int:
    if section not in bundle.sections:
        return 0
    return cycles.SECTION_START + bundle.config.section_length(bundle.section(section))


def _rows(bundle: Bundle, section: Section) -> int:
    if section not in bundle.sections:
        return 0
    return sum(_work(instruction) for instruction in bundle.section(section))


def _work(instruction: Instruction) -> int:
    """Rows that keep the units busy; functions keep their own unit busy, END none."""
    return 0 if instruction.op.special or instruction.op == 0 else instruction.rows
