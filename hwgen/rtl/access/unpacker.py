"""The unpacker: columns in, rows of tuple memory out, and rounds handed over.

In: the queues' entries, rows of bytes from the page store, halves that the engine released. Out: writes of tuple
memory, rounds, pages that are done, the fault that ends an epoch. It works on one job at a time, a beat a cycle:

    cycle 0         the beat's address is at the page store
    cycle 5         its bytes are there, the first in front (`buffers.WINDOW_LATENCY`)
    cycles 5 … 10   a row is made canonical and waits; elements are converted, then go to their lanes
    cycle 11        the write is on the bus: with the round at the latest, which was decided a cycle after its last
                    beat and is handed over UNPACK_LATENCY later
"""

from amaranth.hdl import C, Cat, Module, Mux, Signal, Value, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hwgen.rtl.access import layouts
from hwgen.rtl.access.buffers import WINDOW_LATENCY
from hwgen.rtl.access.convert import CANONICAL_LATENCY, CONVERT_LATENCY, Converter, canonical
from hwgen.rtl.access.descriptors import watched
from hwgen.rtl.access.intake import job_layout
from hwgen.rtl.access.places import Places
from hwgen.rtl.access.records import VERDICT_LATENCY, record_link
from hwgen.rtl.access.watch import WATCH_STAGES, Watch
from hwgen.rtl.delay import delayed
from hwgen.rtl.interfaces import tuple_address_bits, unpacked, wires
from hwgen.rtl.library import Library
from hwgen.spec.columns import ColumnType
from hwgen.spec.config import MachineConfig
from hwgen.spec.counters import UNKNOWN_PAGE
from hwgen.spec.cycles import PAGE_RELEASE, UNPACK_LATENCY, WATCH_AHEAD, WATCH_LATENCY
from hwgen.spec.strider import Fault

DOUBLE = 8
"""Bytes of the largest elements."""
VALUE_LATENCY = WINDOW_LATENCY + CONVERT_LATENCY + 1
"""Cycles from the beat of an element to its value."""


class Unpacker(wiring.Component):
    """Pipeline of one job at a time, a beat a cycle."""

    def __init__(self, config: MachineConfig, library: Library) -> None:
        self._config = config
        self._library = library
        super().__init__(
            {
                "start": In(1),  # pulse: begin an epoch
                "stop": In(1),  # pulse: forget it
                **unpacked(config),
                "job": In(job_layout(config)),
                "valid": In(1),
                "ready": Out(1),
                # what `ready` is, from registers of its own, for the way through intake and queues: `ready` moves a
                # hundred flip-flops, and comes too late for what follows from it
                "takes": Out(1),
                "window": Out(layouts.window_layout(config)),
                "row": In(unsigned(8 * layouts.row_bytes(config))),
                "release": Out(1),  # pulse: the page that was unpacked is not needed any more
                "halt": Out(1),  # pulse: a fault was found; `stop` is to follow in the same cycle
                # of machines with a record memory: see `records.record_link`. While a round's records are fetched it
                # has the write bus, and no tuple begins
                **({"link": Out(record_link(config))} if config.record_depth else {}),
            }
        )

    def elaborate(self, platform: object) -> Module:
        if WINDOW_LATENCY + CONVERT_LATENCY + 1 != UNPACK_LATENCY or PAGE_RELEASE != 1:
            raise ValueError("unpacker.py is built for another UNPACK_LATENCY or PAGE_RELEASE")
        if VALUE_LATENCY + WATCH_STAGES + 1 != WATCH_LATENCY:  # a cycle more until `places` has it
            raise ValueError("unpacker.py is built for another WATCH_LATENCY")
        config = self._config
        m = Module()
        m.submodules.places = places = Places(config)
        wiring.connect(m, wiring.flipped(self.settings), places.settings)
        m.d.comb += wires(places, self, "start", "half_release")

        self._epoch_end = Signal()
        job = Signal(job_layout(config), reset_less=True)
        # what the job is; none is high while there is no job
        column, page_end, refused = (Signal(name=name) for name in ("column", "page_end", "refused"))
        begins = Signal()  # the job is the first column of a tuple, and its first beat is still to be done
        first_beat = Signal()
        told = Signal()  # the round that the job found full has been handed over
        opened = Signal()  # a tuple has begun and not ended
        single = Signal(reset_less=True)  # this beat is the last
        ready_now = Signal(init=1)  # ready for the next job, in any case
        ready_early = Signal()  # the same, if the tuple that the job begins has a place
        # the opposites of the two, for `takes`: registers that are equal would be made one
        stalled, not_early = Signal(), Signal(init=1)

        # what happens in this cycle; a fault, which all forget in the next one, is not waited for
        beat = Signal()
        ends = job.last & single
        watches = job.table.any() if config.watch_depth else C(0)  # the column is a watched one
        # a watched column came so shortly before that the place of the next tuple is not known yet; the tuple begins
        # anyway, because it has a place in either case
        watching, ahead = Signal(), Signal()
        # the last tuple went ahead, and it is not over where it is; it begins a round, the one before it is to be
        # handed over; that waits for its records
        unsettled, again, handing = Signal(), Signal(), Signal()
        unknown = (watching & ~ahead) | unsettled
        following = begins & places.full & ~unknown & ~handing
        free = places.free
        if config.record_depth:
            fetched = Signal()  # the records of the round that is full are there
            with m.If(self.link.fetched):
                m.d.sync += fetched.eq(~handing)
            with m.Elif((beat & begins) | self.start):
                m.d.sync += fetched.eq(0)
            free = free & (fetched | ~self.link.enabled)
        hold = unsettled | handing
        blocked = hold | (~page_end & ((places.full & ~free) | unknown))
        page_ends = page_end & ~hold
        wrong = refused | (self._epoch_end & opened) | (column & first_beat & ((job.first | watches) == opened))
        m.d.comb += [
            beat.eq(column & ~(begins & blocked)),
            # single & beat, or no column: what comes before intake and queues in a cycle must be short
            self.ready.eq(ready_now | (ready_early & ~blocked)),
            self.takes.eq(~(stalled & (not_early | blocked))),
            places.following.eq(following),
            places.begin.eq(beat & begins),
            places.end.eq((beat & ends) | again),
        ]
        is_column = self.valid & ~self.job.fault & ~self.job.end
        may_wait = is_column & self.job.single & self.job.first
        will_be_ready = ~is_column | (self.job.single & ~self.job.first)
        if config.watch_depth:
            page_waits = self.valid & self.job.end
            will_be_ready, may_wait = will_be_ready & ~page_waits, may_wait | page_waits
        with m.If(self.ready):
            m.d.sync += [
                column.eq(is_column),
                page_end.eq(self.valid & self.job.end),
                refused.eq(self.valid & self.job.fault),
                begins.eq(is_column & self.job.first),
                job.eq(self.job),
                single.eq(self.job.single),
                ready_now.eq(will_be_ready),
                stalled.eq(~will_be_ready),
                ready_early.eq(may_wait),
                not_early.eq(~may_wait),
                first_beat.eq(1),
                told.eq(0),
            ]
        with m.Else():
            m.d.sync += told.eq(told | following)  # once, though the tuple may wait long for a half
            with m.If(beat):
                m.d.sync += [
                    begins.eq(0),
                    first_beat.eq(0),
                    job.beats.eq(job.beats - 1),
                    single.eq(job.beats == 2),
                    ready_now.eq(job.beats == 2),
                    stalled.eq(job.beats != 2),
                ]
        with m.If(beat & (begins | ends)):  # a tuple of one beat does both, and is over
            m.d.sync += opened.eq(~ends)
        self._count(m, has_job=column | page_end | refused, waits=column & ~beat & ~unknown, wrong=wrong)
        self._window(m, job, beat)
        self._pages(m, job, wrong, page_ends, (following & ~told) | again, places)
        moved = Signal()  # rows of the tuple that went ahead are those of the next round's first
        target = self._target(m, job, beat & ~watches, first_beat, single, places, (watching & begins) | unsettled)
        element = self._write(m, target, moved)
        if config.watch_depth:
            ports = {"watching": watching, "ahead": ahead, "unsettled": unsettled, "again": again, "moved": moved}
            self._watch(m, job, beat, watches, begins, opened, element, places, **ports)
        if config.record_depth:
            with m.If(again & self.link.enabled):
                m.d.sync += handing.eq(1)
            with m.If(self.link.fetched | self.start | self.stop):
                m.d.sync += handing.eq(0)

        m.d.sync += self.halt.eq(wrong & ~self.stop)
        with m.If(self.start | self.stop | wrong):
            m.d.sync += [signal.eq(0) for signal in (column, page_end, refused, begins, opened, ready_early)]
            m.d.sync += [ready_now.eq(1), stalled.eq(0), not_early.eq(1)]
        if config.record_depth:
            # what was wrong waits for the numbers that came before it, and nothing is taken meanwhile
            with m.If(wrong & ~self.start & ~self.stop):
                m.d.sync += [ready_now.eq(0), stalled.eq(1)]
            waiting = Signal(VALUE_LATENCY + VERDICT_LATENCY, name="wrong_after")
            m.d.sync += waiting.eq(Mux(self.start | self.stop, 0, Cat(wrong, waiting)))
            told = (waiting[-1] | self.link.wrong) & ~self.stop
            m.d.sync += [self.halt.eq(told), self.fault.valid.eq(told)]
            with m.If(self.link.wrong):
                m.d.sync += [
                    self.fault.code.eq(Fault.INDEX),
                    self.fault.page.eq(UNKNOWN_PAGE),
                    self.fault.pointer.eq(self.link.pointer),
                ]
        return m

    def _watch(
        self,
        m: Module,
        job: data.View,
        beat: Value,
        watches: Value,
        begins: Signal,
        opened: Signal,
        element: Value,
        places: Places,
        *,
        watching: Signal,
        ahead: Signal,
        unsettled: Signal,
        again: Signal,
        moved: Signal,
    ) -> None:
        """What becomes of a watched column: its value is compared, and may end the batch.

        A tuple that went ahead is there when that is known: then it is taken out of its round.
        """
        forget = self.start | self.stop
        m.submodules.watch = watch = Watch(self._config)
        rows = {"row": tuple_address_bits(self._config)} if self._config.record_depth else {}
        seen = Signal(data.StructLayout({**watched(self._config), **rows}))
        m.d.comb += [*wires(seen, job, "table", "writes", *rows)]
        late = delayed(m, seen, VALUE_LATENCY, name="seen")
        valid = Signal(VALUE_LATENCY, name="seen_after")
        left, until = Signal(range(WATCH_LATENCY)), Signal(range(WATCH_LATENCY))
        m.d.sync += valid.eq(Mux(forget, 0, Cat(beat & watches, valid)))
        with m.If(beat & watches & ~forget):
            m.d.sync += [left.eq(WATCH_LATENCY - 1), watching.eq(1)]
        with m.Elif(watching):
            m.d.sync += [left.eq(left - 1), watching.eq((left != 1) & ~forget)]

        # a tuple goes ahead; whether it ends a batch is not known yet; it does
        goes, pending, cut = beat & begins & watching, Signal(), Signal()
        settles = pending & (until == 0)
        repeats = watch.repeated & (goes | unsettled)
        over = unsettled & cut & ~opened & (settles | ~pending) & ~again
        m.d.comb += [
            ahead.eq(~unsettled & places.free & ~places.full & ~places.final & (left <= WATCH_LATENCY - WATCH_AHEAD)),
            places.cut.eq((watch.repeated & ~repeats) | over),
            places.late.eq(over),
        ]
        m.d.sync += [
            until.eq(Mux(goes, left, until) - (goes | (until != 0))),
            pending.eq((goes | (pending & ~settles)) & ~forget),
            unsettled.eq((goes | (unsettled & ~(settles & ~cut) & ~again)) & ~forget),
            cut.eq((repeats | (cut & ~again)) & ~forget),
            again.eq(over & ~forget),
            # until its last row is on the bus
            moved.eq((repeats | (moved & ~delayed(m, again, UNPACK_LATENCY - 2, name="moved"))) & ~forget),
        ]
        m.d.comb += [watch.clear.eq(forget), watch.number.eq(element[: len(watch.number)])]
        if rows:
            m.d.comb += [self.link.word.eq(element), self.link.row.eq(late.row)]
        for port in (watch, self.link) if rows else (watch,):
            m.d.comb += [
                port.valid.eq(valid[-1]),
                *wires(port, late, "table", "writes"),
                port.begin.eq((beat & begins & ~watching) | settles),
                port.following.eq(Mux(settles, cut, places.following)),
            ]

    def _count(self, m: Module, *, has_job: Value, waits: Value, wrong: Value) -> None:
        """Cycles without a beat, from the one after the start to the last page's end."""
        active = Signal()
        with m.If(self.start):
            m.d.sync += [
                active.eq(self.settings.pages.any()),
                self.waiting_for_engine.eq(0),
                self.waiting_for_pages.eq(0),
            ]
        with m.Elif(self.stop | wrong | self._epoch_end):
            m.d.sync += active.eq(0)
        # counted a cycle later: what says that the unpacker waits comes late in a cycle
        for_engine = delayed(m, active & waits, 1, name="for_engine", reset_less=False)
        for_pages = delayed(m, active & ~has_job, 1, name="for_pages", reset_less=False)
        with m.If(for_engine & ~self.start):
            m.d.sync += self.waiting_for_engine.eq(self.waiting_for_engine + 1)
        with m.If(for_pages & ~self.start):
            m.d.sync += self.waiting_for_pages.eq(self.waiting_for_pages + 1)

    def _window(self, m: Module, job: data.View, beat: Value) -> None:
        """The bytes that this beat needs, and the next one's address."""
        config = self._config
        window = self.window
        at, ahead = (Signal(layouts.page_bits(config), name=name, reset_less=True) for name in ("at", "ahead"))
        strider = Signal(layouts.strider_bits(config), reset_less=True)
        m.d.comb += [window.at.eq(at), window.ahead.eq(ahead), window.strider.eq(strider)]
        with m.If(self.ready):
            m.d.sync += [at.eq(self.job.at), ahead.eq(self.job.ahead), strider.eq(self.job.strider)]
        with m.Elif(beat):
            # an address may pass the page's end here; no beat follows then
            m.d.sync += [at.eq(at + job.step), ahead.eq(ahead + job.step)]

    def _pages(self, m: Module, job: data.View, wrong: Value, page_end: Value, done: Value, places: Places) -> None:
        """Rounds, the end of pages and of the epoch, the fault that ends it."""
        rounds = self.rounds
        page, left = Signal(32), Signal(32)
        final = Signal()  # the page is the epoch's last
        some = Signal()  # the epoch has a tuple
        m.d.sync += self.release.eq(page_end)
        epoch_end = page_end & final
        m.d.comb += self._epoch_end.eq(epoch_end)
        with m.If(page_end):
            m.d.sync += [page.eq(page + 1), left.eq(left - 1), final.eq(left == 2)]
        with m.If(places.end):
            m.d.sync += some.eq(1)

        decided = data.StructLayout({"count": len(rounds.count), "batch_last": 1, "epoch_last": 1})
        decision = Signal(decided)
        m.d.comb += [
            decision.count.eq(places.count),
            decision.batch_last.eq(places.batch_done | epoch_end),
            decision.epoch_last.eq(epoch_end),
        ]
        late = delayed(m, decision, UNPACK_LATENCY, name="decision")
        forget = self.start | self.stop | wrong
        valid, empty = (Signal(UNPACK_LATENCY, name=name) for name in ("valid_after", "empty_after"))
        decides: Value = valid[-1]
        if self._config.record_depth:
            link, held = self.link, Signal(decided)
            m.d.comb += [link.decided.eq(decides & link.enabled), rounds.storing.eq(link.storing)]
            with m.If(decides):
                m.d.sync += held.eq(late)
            late = data.View(decided, Mux(link.enabled, held.as_value(), late.as_value()))
            handed = Signal()
            m.d.sync += handed.eq(link.fetched & ~forget)
            decides = Mux(link.enabled, handed, decides)
        m.d.comb += [getattr(rounds, name).eq(late[name]) for name in ("count", "batch_last", "epoch_last")]
        m.d.sync += [
            valid.eq(Mux(forget, 0, Cat(done | (epoch_end & some), valid))),
            empty.eq(Mux(forget, 0, Cat(epoch_end & ~some, empty))),
        ]
        no_pages = delayed(m, self.start & ~self.settings.pages.any(), 1, name="no_pages", reset_less=False)
        m.d.comb += [rounds.round_valid.eq(decides), rounds.epoch_empty.eq(empty[-1] | no_pages)]

        m.d.sync += self.fault.valid.eq(wrong & ~self.stop)
        with m.If(wrong):
            m.d.sync += [
                self.fault.code.eq(Mux(job.outside, Fault.OUT_OF_PAGE, Mux(job.fault, job.code, Fault.TUPLE_PARTS))),
                self.fault.page.eq(page),
                self.fault.pointer.eq(job.pointer),
            ]
        with m.If(self.start):
            m.d.sync += [
                page.eq(0),
                left.eq(self.settings.pages),
                final.eq(self.settings.pages == 1),
                some.eq(0),
            ]

    def _target(
        self, m: Module, job: data.View, beat: Value, first: Value, single: Signal, places: Places, ahead: Value
    ) -> data.View:
        """Where the beat goes, in the cycle after it."""
        config = self._config
        row = Signal(tuple_address_bits(config), reset_less=True)
        low = Signal(layouts.lane_bits(config), reset_less=True)
        after = Signal(len(low) + 1)
        m.d.comb += after.eq(low + job.group)
        with m.If(self.ready):
            m.d.sync += [row.eq(self.job.row), low.eq(self.job.low)]
        with m.Elif(beat):
            # the place within the group stays; only the first beat's counts
            m.d.sync += [low.eq(after), row.eq(row + after[-1])]
        target = Signal(layouts.target_layout(config), reset_less=True)
        m.d.sync += [
            target.valid.eq(beat),
            *wires(target, places, "half", "thread"),
            target.row.eq(places.base + row),
            *wires(target, job, "element", "spread", "type"),
            target.first.eq(first),
            target.last.eq(single),
            target.low.eq(low),
            target.high.eq(job.high),
        ]
        if config.watch_depth:
            m.d.sync += [target.ahead.eq(ahead), target.own.eq(row)]
        return target

    def _write(self, m: Module, target: data.View, moved: Signal) -> Signal:
        """From the store's bytes to the write bus; an element, VALUE_LATENCY cycles after its beat."""
        config = self._config
        lanes = config.lanes
        found = delayed(m, target, WINDOW_LATENCY - 1, name="target")
        values = [self._converted(m, k, found.type) for k in range(config.converters)]
        words = data.ArrayLayout(32, lanes)
        clean = Signal(words)
        m.d.comb += [clean[k].eq(canonical(m, self.row.word_select(k, 32), f"lane_{k}")) for k in range(lanes)]
        # a row waits as long as elements are converted: writes keep the order of their beats, two never meet
        clean = delayed(m, clean, CONVERT_LATENCY - CANONICAL_LATENCY, name="clean")
        late = delayed(m, found, CONVERT_LATENCY, name="found")

        # an element goes to many lanes, which takes a cycle of its own
        values[0] = Mux(late.type == ColumnType.FLOAT4, clean[0], values[0])
        elements = [delayed(m, value, 1, name=f"element_{k}") for k, value in enumerate(values)]
        wide = delayed(m, Cat(late.type == kind for kind in ColumnType if kind.bytes == DOUBLE).any(), 1, name="wide")
        clean = delayed(m, clean, 1, name="waiting")
        late = delayed(m, late, 1, name="late")
        bus = self.tuples
        out = Signal(words, reset_less=True)
        enable = Signal(lanes, reset_less=True)
        sizes = [layouts.group_bits(config, size) for size in (DOUBLE // 2, DOUBLE)]
        for k in range(lanes):
            narrow, double = (elements[k % (1 << size)] for size in sizes)
            value = Mux(late.spread, elements[0], Mux(wide, double, narrow))
            m.d.sync += out[k].eq(Mux(late.element, value, clean[k]))
            behind = ~late.first | ~layouts.exceeds(late.low, k)
            before = ~late.last | layouts.exceeds(late.high, k) | ~late.high.any()
            inside = Mux(wide, *(late.low[size:] == k >> size for size in reversed(sizes)))
            m.d.sync += enable[k].eq(late.spread | (behind & before & (inside | ~late.element)))
        where = ("valid", "half", "thread", "row")
        placed = Signal(data.StructLayout({name: len(getattr(bus, name)) for name in where}))
        m.d.sync += [placed[name].eq(late[name]) for name in where]
        if config.watch_depth:
            with m.If(late.ahead & moved):
                m.d.sync += [placed.half.eq(~late.half), placed.thread.eq(0), placed.row.eq(late.own)]
        if config.record_depth:
            with m.If(self.link.row_valid):
                m.d.sync += [
                    out.eq(self.link.data),
                    enable.eq(-1),
                    placed.valid.eq(1),
                    placed.half.eq(self.link.half),
                    placed.thread.eq(self.link.target_thread),
                    placed.row.eq(self.link.target),
                ]
        m.d.comb += [
            *(getattr(bus, name).eq(placed[name]) for name in where),
            bus.data.eq(out),
            bus.lane_enable.eq(enable),
        ]
        return elements[0]

    def _converted(self, m: Module, k: int, kind: Value) -> Value:
        """Element k of the store's bytes, CONVERT_LATENCY cycles later."""
        bits = 8 * (DOUBLE if DOUBLE * (k + 1) <= layouts.row_bytes(self._config) else DOUBLE // 2)
        name = f"converter_{bits}"
        converter = self._library.place(name, lambda: Converter(bits))
        m.submodules[f"converter_{k}"] = converter
        m.d.comb += converter.type.eq(kind)
        for size, part in converter.data.shape():
            m.d.comb += converter.data[size].eq(self.row.word_select(k, part.width))
        return converter.value
