"""Which section runs when: rounds and batches in, one section after the other out.

It takes the rounds that the access engine hands over, numbers them within their batch, and begins the sections in the
order of `docs/machine.md`, section 3. What follows a section is worked out while it runs, in three cycles: no section
is shorter. It knows nothing of instructions.
"""

from enum import IntEnum

from amaranth.hdl import Cat, Const, Module, Mux, ResetInserter, Signal, Value
from amaranth.lib import data, fifo, wiring
from amaranth.lib.wiring import In, Out

from hwgen.rtl.interfaces import count_bits, hand_over
from hwgen.spec import cycles
from hwgen.spec.config import MachineConfig
from hwgen.spec.engine import ROW_BITS, SHORT, Section

LEVEL_BITS = 5
ROUND_BITS = 1 << LEVEL_BITS
ADDRESS_BITS = 16
OUTSTANDING = 2
"""Rounds that can be handed over and not yet begun."""

SECTIONS = tuple(Section)

SECTION_SETTINGS = wiring.Signature(
    {
        # first instruction of each section, in the order of `Section`
        "entry": Out(data.ArrayLayout(ADDRESS_BITS, len(SECTIONS))),
        "exists": Out(len(SECTIONS)),  # whether the program has it
        "level_stride": Out(ROW_BITS),  # rows of one level of the merge stack
        "levels": Out(LEVEL_BITS + 1),  # that there is room for
        "group_log2": Out(4),  # of a thread's tuples in a round
        "tuple_rows": Out(ADDRESS_BITS),  # of one tuple
    }
)
"""Registers that the sequencer reads, stable while an epoch runs."""

COUNTED = ("cycles", "tuples", "batches", "busy", "merging")
RESULTS = {"half_release": 1, "finished": 1, "overflow": 1, **dict.fromkeys(COUNTED, 64)}
"""What `SectionControl` says of an epoch, through the sequencer and the engine; their bits. Pulses: the tuple section
is over; the epoch is; fault STACK. The others are the counters of `hwgen.spec.registers`."""
PAUSE_COMMANDS = {"pause": 1, "resume": 1}
"""Of machines that can pause: whether batches do, stable while an epoch runs; a pulse to go on."""
PAUSE_RESULTS = {"pausing": 1, "last": 1, "paused": 64}
"""Of these: whether the machine is paused, whether with the epoch's last batch, and a counter."""


def results(config: MachineConfig) -> dict[str, int]:
    """What `SectionControl` of a machine says, and its bits."""
    return RESULTS | (PAUSE_RESULTS if config.pause else {})


def epoch_ports(config: MachineConfig) -> dict[str, wiring.Member]:
    """What `SectionControl`, the sequencer and the engine have alike."""
    commands = PAUSE_COMMANDS if config.pause else {}
    return {
        "start": In(1),  # pulse: begin an epoch (cycle 0)
        "stop": In(1),  # pulse: forget it
        "rounds": In(hand_over(config)),
        "settings": In(SECTION_SETTINGS),
        **{name: In(bits) for name, bits in commands.items()},
        **{name: Out(bits) for name, bits in results(config).items()},
    }


class Plan(IntEnum):
    """What comes after the section that runs."""

    WAIT = 0  # the next round
    MERGE = 1
    PUSH = 2
    BATCH = 3
    EPOCH = 4
    FINISH = 5
    OVERFLOW = 6  # the merge stack has no level for this round


PLANNED = {Plan.MERGE: Section.MERGE, Plan.PUSH: Section.PUSH, Plan.BATCH: Section.BATCH, Plan.EPOCH: Section.EPOCH}


class State(IntEnum):
    OFF = 0
    RUN = 1  # a section runs
    SETTLE = 2  # the first cycle without one
    READY = 3


def _lowest(value: Value) -> Value:
    """The lowest set bit of a value, alone."""
    return (value & (~value + 1))[: len(value)]


def _index(one_hot: Value) -> Value:
    """Number of the bit that is set."""
    count = len(one_hot)
    return Cat(Cat(one_hot[bit] for bit in range(count) if bit >> k & 1).any() for k in range((count - 1).bit_length()))


def round_layout(config: MachineConfig) -> data.StructLayout:
    """A round that waits; `short`, on machines that cut batches: which section it runs, a bit for each of `SHORT`."""
    fields = {"count": count_bits(config), "batch_last": 1, "epoch_last": 1}
    return data.StructLayout(fields | ({"short": len(SHORT)} if config.watch_depth else {}))


class SectionControl(wiring.Component):
    """The sequence of sections."""

    def __init__(self, config: MachineConfig) -> None:
        self._round = round_layout(config)
        self._records = config.record_depth > 0
        self._pauses = config.pause > 0
        super().__init__(
            {
                **epoch_ports(config),
                "section_end": In(1),  # high in the last cycle of the running section
                "begin": Out(1),  # high in the cycle before a section starts
                "entry": Out(ADDRESS_BITS),  # with it: the address of its first instruction
                "level_offset": Out(ROW_BITS),  # level × LEVEL_STRIDE of the section, from its second cycle on
                "half": Out(1),  # of tuple memory, in which the round is
                "count": Out(count_bits(config)),  # its tuples
            }
        )

    def elaborate(self, platform: object) -> Module:
        if cycles.ROUND_START != 2 or cycles.SECTION_START < 3:
            raise ValueError("sections.py is built for ROUND_START = 2 and SECTION_START of at least 3")
        m = Module()
        self._state = Signal(State)
        self._section = Signal(range(len(SECTIONS)))
        self._current = Signal(self._round)
        self._pop = Signal()
        self._plan = Signal(Plan)
        finish = Signal()
        idle = Signal()
        empty = Signal()
        empty_finish = Signal()

        self._take_rounds(m)
        self._plan_ahead(m)

        m.d.comb += [
            finish.eq(self.section_end & (self._plan == Plan.FINISH)),
            idle.eq((self._state == State.SETTLE) | (self._state == State.READY)),
            # an epoch without tuples ends when this is known and `init` is over
            empty_finish.eq(idle & (empty | self.rounds.epoch_empty)),
        ]
        with m.If(self.rounds.epoch_empty):
            m.d.sync += empty.eq(1)
        ends, goes_on = finish, self._state != State.OFF
        if self._pauses:
            goes_on = goes_on | self.pausing
        if self._records:
            # the last round's records are stored first
            over = Signal()
            m.d.sync += over.eq(~self.start & ~self.stop & (finish | (over & self.rounds.storing)))
            ends, goes_on = over & ~self.rounds.storing, goes_on | self.rounds.storing
        m.d.sync += [
            self.finished.eq(ends | empty_finish),
            self.overflow.eq(self.section_end & (self._plan == Plan.OVERFLOW)),
            self.half_release.eq(self.section_end & (self._section == SECTIONS.index(Section.TUPLE))),
        ]

        with m.If(self.section_end):
            m.d.sync += self._state.eq(State.SETTLE)
            with m.Switch(self._plan):
                for plan, section in PLANNED.items():
                    with m.Case(plan):
                        self._begin(m, section, pauses=self._pauses and section is Section.BATCH)
                with m.Case(Plan.FINISH, Plan.OVERFLOW):
                    m.d.sync += self._state.eq(State.OFF)
        with m.Elif(empty_finish):
            m.d.sync += self._state.eq(State.OFF)
        if self._pauses:
            with m.Elif(self.pausing & self.resume):
                m.d.sync += self.pausing.eq(0)
                self._begin(m, Section.BATCH)
        with m.Elif(self._state == State.SETTLE):
            m.d.sync += self._state.eq(State.READY)
        with m.Elif(self._pop):
            self._begin(m, Section.TUPLE)

        with m.If(goes_on & ~empty_finish):
            m.d.sync += self.cycles.eq(self.cycles + 1)
        with m.If(self._state == State.RUN):
            m.d.sync += self.busy.eq(self.busy + 1)
            with m.If(
                (self._section == SECTIONS.index(Section.MERGE)) | (self._section == SECTIONS.index(Section.PUSH))
            ):
                m.d.sync += self.merging.eq(self.merging + 1)

        # where the next section is does not depend on when it begins, which comes late in a cycle
        with m.If(self.start):
            m.d.comb += self.entry.eq(self._entry(Section.INIT))
        with m.Elif(self._state == State.READY):
            m.d.comb += self.entry.eq(self._tuple_entry)
        if self._pauses:
            with m.Elif(self.pausing):
                m.d.comb += self.entry.eq(self._entry(Section.BATCH))
        with m.Else(), m.Switch(self._plan):
            for plan, section in PLANNED.items():
                with m.Case(plan):
                    m.d.comb += self.entry.eq(self._entry(section))
        with m.If(self.start):
            m.d.sync += [
                empty.eq(0),
                self.cycles.eq(1),
                self.busy.eq(0),
                self.merging.eq(0),
                self._state.eq(State.SETTLE),
            ]
            with m.If(self._exists(Section.INIT)):
                self._begin(m, Section.INIT)
        with m.If(self.stop):
            m.d.sync += self._state.eq(State.OFF)
        if self._pauses:
            with m.If(self.pausing):
                m.d.sync += self.paused.eq(self.paused + 1)
            with m.If(self.start):
                m.d.sync += self.paused.eq(0)
            with m.If(self.start | self.stop):
                m.d.sync += self.pausing.eq(0)
            m.d.comb += self.last.eq(self._current.epoch_last)
        return m

    def _entry(self, section: Section) -> Value:
        return self.settings.entry[SECTIONS.index(section)]

    def _exists(self, section: Section) -> Value:
        return self.settings.exists[SECTIONS.index(section)]

    def _begin(self, m: Module, section: Section, *, pauses: bool = False) -> None:
        """Begin a section; with `pauses` only if its batch does not pause first."""
        if pauses:
            with m.If(self.pause):
                m.d.sync += [self._state.eq(State.OFF), self.pausing.eq(1)]
            with m.Else():
                self._begin(m, section)
            return
        m.d.comb += self.begin.eq(1)
        m.d.sync += [self._state.eq(State.RUN), self._section.eq(SECTIONS.index(section))]
        if section is Section.EPOCH:
            # no round runs any more: every tuple is absent
            m.d.sync += self._current.count.eq(0)

    def _take_rounds(self, m: Module) -> None:
        """The queue of rounds, and the registers of the one that runs."""
        queue = fifo.SyncFIFO(width=self._round.size, depth=OUTSTANDING)
        m.submodules.queue = ResetInserter(self.start | self.stop)(queue)
        oldest = data.View(self._round, queue.r_data)
        self._tuple_entry = self._entry(Section.TUPLE)
        short: list[Value] = []
        if "short" in self._round.members:
            # chosen before it waits: where a section begins comes late in a cycle
            taken: Value = Const(0)
            for section, tuples in SHORT.items():
                fits = self._exists(section) & (self.rounds.count <= tuples)
                short.append(fits & ~taken)
                taken = taken | fits
                here = oldest.short[len(short) - 1]
                self._tuple_entry = Mux(here, self._entry(section), self._tuple_entry)
        m.d.comb += [
            queue.w_en.eq(self.rounds.round_valid),
            queue.w_data.eq(Cat(self.rounds.count, self.rounds.batch_last, self.rounds.epoch_last, *short)),
            self._pop.eq((self._state == State.READY) & queue.r_rdy),
            queue.r_en.eq(self._pop),
            self.count.eq(self._current.count),
        ]
        with m.If(self._pop):
            m.d.sync += [
                self._current.eq(oldest),
                self.half.eq(~self.half),
                self.tuples.eq(self.tuples + oldest.count),
                self.batches.eq(self.batches + oldest.batch_last),
            ]
        with m.If(self.start):
            m.d.sync += [
                self._current.count.eq(0),
                # the first round then starts a batch, in half 0
                self._current.batch_last.eq(1),
                self.half.eq(1),
                self.tuples.eq(0),
                self.batches.eq(0),
            ]

    def _plan_ahead(self, m: Module) -> None:
        """Work out what follows the running section, and its level.

        With q the number of the round in its batch, the merges of a round are at the set bits of q, ascending: up to
        the first clear bit, which is then the level of the push, or all of them at the end of the batch.
        """
        q = Signal(ROUND_BITS)
        begun = Signal()
        remaining = Signal(ROUND_BITS)
        clear = Signal(ROUND_BITS)
        lowest = Signal(ROUND_BITS)
        level = Signal(LEVEL_BITS)
        planned_level = Signal(LEVEL_BITS)
        with m.If(self._pop):
            m.d.sync += q.eq(Mux(self._current.batch_last, 0, q + 1))
        m.d.sync += begun.eq(self._pop)
        with m.If(begun):
            m.d.sync += [
                remaining.eq(Mux(self._current.batch_last, q, q & ~(q + 1))),
                clear.eq(_lowest(~q)),
            ]
        # `remaining`, `lowest`, the plan: three cycles, which the shortest section takes
        m.d.sync += lowest.eq(_lowest(remaining))

        short = self._current.short.any() if "short" in self._round.members else Const(0)  # has done the batch's work
        merging = (self._section == SECTIONS.index(Section.TUPLE)) | (self._section == SECTIONS.index(Section.MERGE))
        in_batch = merging | (self._section == SECTIONS.index(Section.BATCH))
        m.d.sync += [planned_level.eq(0), self._plan.eq(Plan.WAIT)]
        with m.If(merging & self._exists(Section.MERGE) & lowest.any()):
            m.d.sync += [self._plan.eq(Plan.MERGE), planned_level.eq(_index(lowest))]
        with m.Elif(merging & ~self._current.batch_last):
            with m.If(_index(clear) >= self.settings.levels):  # asked before PUSH exists: a stack of no level faults
                m.d.sync += self._plan.eq(Plan.OVERFLOW)
            with m.Elif(self._exists(Section.PUSH)):
                m.d.sync += [self._plan.eq(Plan.PUSH), planned_level.eq(_index(clear))]
        with m.Elif(merging & self._exists(Section.BATCH) & ~short):
            m.d.sync += self._plan.eq(Plan.BATCH)
        with m.Elif(in_batch & self._current.epoch_last):
            m.d.sync += self._plan.eq(Mux(self._exists(Section.EPOCH), Plan.EPOCH, Plan.FINISH))
        with m.Elif(self._section == SECTIONS.index(Section.EPOCH)):
            m.d.sync += self._plan.eq(Plan.FINISH)

        with m.If(self.start | self._pop):
            m.d.sync += level.eq(0)
        with m.If(self.section_end):
            m.d.sync += level.eq(planned_level)
            with m.If(self._plan == Plan.MERGE):
                m.d.sync += remaining.eq(remaining & ~lowest)
        # five rows are no work for a multiplier
        stride = self.settings.level_stride
        rows = [Cat(Const(0, bit), stride & level[bit].replicate(len(stride))) for bit in range(LEVEL_BITS)]
        m.d.sync += self.level_offset.eq(((rows[0] + rows[1]) + (rows[2] + rows[3]) + rows[4])[:ROW_BITS])
