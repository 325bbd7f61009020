"""The record unit: what watched columns name goes from the record memory to tuple memory, and back from the outbox.

In: numbers as they are unpacked, where tuples and rounds begin, rows of the record memory, rows that the engine puts.
Out: requests to the record memory, rows for tuple memory, when a round's records are there. Each number is looked at
once and waits in a queue, whole and within its table; what becomes of its tuple is known when the round is fetched:

    go            the round is decided, and the one before it is stored
    go + 1        the oldest number of the queue
    go + 2        ... leaves it: its table is looked up, its tuple's place worked out
    go + 4        the table is there: times the record's size
    go + 5        plus the table's address
    go + 6        the request; from here records come as fast as the memory takes and gives them

A request that has been made stands until it is taken, and a store that has begun is always finished.
"""

from amaranth.hdl import Array, C, Cat, Module, Mux, ResetInserter, Signal, Value
from amaranth.lib import data, fifo, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from hwgen.rtl.access.convert import CANONICAL_LATENCY, canonical
from hwgen.rtl.access.layouts import POINTER_BITS
from hwgen.rtl.access.watch import SEEN
from hwgen.rtl.delay import delayed
from hwgen.rtl.engine.index import WHOLE_LATENCY, whole_number
from hwgen.rtl.interfaces import (
    RECORD_ADDRESS_BITS,
    RECORD_ROW_BITS,
    SETTINGS,
    UNSHARED,
    image_write,
    outbox_write,
    record_port,
    thread_bits,
    tuple_address_bits,
)
from hwgen.spec import cycles
from hwgen.spec.bundle import RECORD_BOUNDARY
from hwgen.spec.columns import TABLE_BITS
from hwgen.spec.config import MachineConfig
from hwgen.spec.engine import MAX_CHOSEN
from hwgen.spec.registers import TABLE_WORDS, TableWord

VERDICT_LATENCY = WHOLE_LATENCY + 1
"""Cycles from a number to `wrong`."""
NUMBER_BITS = (MAX_CHOSEN - 1).bit_length()
BOUNDARY_BITS = (RECORD_BOUNDARY - 1).bit_length()
SHIFT_BITS = BOUNDARY_BITS.bit_length()


def record_link(config: MachineConfig) -> wiring.Signature:
    """Unpacker to record unit."""
    row = tuple_address_bits(config)
    return wiring.Signature(
        {
            **{name: Out(bits) for name, bits in SEEN.items()},
            "word": Out(32),  # the value
            "row": Out(row),
            # pulse: what would be the hand-over of a round without records. No tuple begins until it is fetched
            "decided": Out(1),
            "enabled": In(1),  # the Bundle has tables
            "fetched": In(1),  # pulse in the cycle before the hand-over, and after the round's last row
            "storing": In(1),  # see `hwgen.rtl.interfaces.hand_over`
            "wrong": In(1),  # pulse VERDICT_LATENCY cycles after `valid`: the number names no record
            "pointer": In(POINTER_BITS),  # which of its tuple's numbers it is
            "row_valid": In(1),  # a row of lanes for a thread's tuple memory
            "half": In(1),
            "target_thread": In(thread_bits(config)),
            "target": In(row),
            "data": In(data.ArrayLayout(32, config.lanes)),
        }
    )


class Records(wiring.Component):
    """One round at a time: fetched, then stored."""

    def __init__(self, config: MachineConfig) -> None:
        self._config = config
        self._most = config.record_depth
        super().__init__(
            {
                "start": In(1),  # pulse: an epoch begins
                "stop": In(1),  # pulse: forget it
                "release": In(1),  # pulse: the round's section `tuple` is over
                "settings": In(SETTINGS),
                "image": In(image_write(config)),  # the host writes a word of the tables
                "link": In(record_link(config)),
                "outbox": In(outbox_write(config)),
                "port": Out(record_port(config)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        if (cycles.RECORD_START, cycles.RECORD_STORE, cycles.MASTER_LATENCY) != (6, 2, 2):
            raise ValueError("records.py is built for another RECORD_START, RECORD_STORE or MASTER_LATENCY")
        m = Module()
        row, thread = tuple_address_bits(self._config), thread_bits(self._config)
        self._number = data.StructLayout(
            {"number": NUMBER_BITS, "table": TABLE_BITS, "writes": 1, "row": row, "opens": 1}
        )
        self._place = data.StructLayout({"thread": thread, "row": row, "rows": RECORD_ROW_BITS})
        self._record = data.StructLayout({"address": RECORD_ADDRESS_BITS, "place": self._place})
        self._forget = self.start | self.stop
        self._storing = Signal()
        # of the tuple to come and of a batch; of a batch, fetched; of a batch, to be stored
        self._numbers, self._places, self._stores = (
            fifo.SyncFIFOBuffered(width=layout.size, depth=depth + 1)  # one waits outside of the memory
            for layout, depth in (
                (self._number, 2 * self._most),
                (self._place, self._most),
                (self._record, self._most),
            )
        )
        for name, queue in (("numbers", self._numbers), ("places", self._places)):
            m.submodules[name] = ResetInserter(self._forget)(queue)
        # what is being stored already is
        m.submodules.stores = ResetInserter(self._forget & ~self._storing)(self._stores)
        self._tables(m)
        self._take(m)
        go, count = self._count(m)
        self._ask(m, go, count)
        self._fetch(m, go, count)
        self._store(m)
        return m

    def _tables(self, m: Module) -> None:
        """The tables as the host writes them, a small memory for each of their fields; `self._known` reads them."""
        image = self.image
        table = Signal(TABLE_BITS)
        m.d.comb += table.eq(image.address[exact_log2(TABLE_WORDS) :] + 1)
        self._known: dict[str, Memory] = {}
        for name, word, bits, written in (
            ("records", TableWord.RECORDS, NUMBER_BITS + 1, image.data),
            ("rows", TableWord.ROWS, RECORD_ROW_BITS, image.data - 1),
            ("shift", TableWord.SHIFT, SHIFT_BITS, image.data),
            ("low", TableWord.BASE, 32 - BOUNDARY_BITS, image.data[BOUNDARY_BITS:]),
            ("high", TableWord.BASE + 1, 32, image.data),
        ):
            words = Memory(shape=bits, depth=1 << TABLE_BITS, init=[], attrs=UNSHARED)
            m.submodules[f"table_{name}"] = words
            port = words.write_port()
            m.d.comb += [
                port.en.eq(image.table & (image.address[: exact_log2(TABLE_WORDS)] == word)),
                port.addr.eq(table),
                port.data.eq(written[:bits]),
            ]
            self._known[name] = words
            if word == TableWord.RECORDS:
                there = Signal(1 << TABLE_BITS)
                with m.If(port.en):
                    m.d.sync += there.bit_select(table, 1).eq(image.data.any())
                m.d.sync += self.link.enabled.eq(there.any())

    def _look_up(self, m: Module, name: str, table: Value, step: Value) -> Signal:
        """A field of a table, two steps after its number."""
        port = self._known[name].read_port()
        m.d.comb += [port.addr.eq(table), port.en.eq(step)]
        with m.If(step):
            found: Signal = delayed(m, port.data, 1, name=f"known_{name}")
        return found

    def _take(self, m: Module) -> None:
        """Numbers as they are unpacked: each is looked at, and waits."""
        link = self.link
        self._own = Signal(range(2 * self._most + 1), name="own")  # numbers of the tuple to come
        number, bad = whole_number(m, link.word, NUMBER_BITS)
        bound = self._look_up(m, "records", delayed(m, link.table, WHOLE_LATENCY - 2, name="table"), Value.cast(1))
        valid = Signal(VERDICT_LATENCY, name="taken_after")
        m.d.sync += valid.eq(Mux(self._forget, 0, Cat(link.valid & link.enabled, valid)))
        beyond = delayed(m, bad | (number >= bound), 1, name="beyond")
        # no queue of a legal Bundle is ever full
        entry = Signal(self._number)
        m.d.comb += [
            entry.number.eq(delayed(m, number, VERDICT_LATENCY - WHOLE_LATENCY, name="number")),
            *(
                entry[name].eq(delayed(m, getattr(link, name), VERDICT_LATENCY, name=f"taken_{name}"))
                for name in ("table", "writes", "row")
            ),
            entry.opens.eq(delayed(m, ~self._own.any(), VERDICT_LATENCY, name="opens")),
            self._numbers.w_en.eq(valid[-1]),
            self._numbers.w_data.eq(entry),
            link.wrong.eq(valid[-1] & beyond),
        ]

    def _count(self, m: Module) -> tuple[Signal, Signal]:
        """How many numbers a round has, and when the round is fetched."""
        link, own = self.link, self._own
        # of the round's tuples that have begun; of a round's that is still to be fetched when the next one begins
        count, before = (Signal(range(2 * self._most + 1), name=name) for name in ("count", "before"))
        # `gone`: the round is fetched, and the next has not begun; `late`: it has, and the one before it is to be
        pending, go, gone, late = Signal(), Signal(), Signal(), Signal()
        busy = Signal()  # a round has been fetched and is not stored
        self._busy = busy
        m.d.comb += [go.eq((link.decided | pending) & ~busy), link.storing.eq(busy)]
        with m.If(link.valid & link.enabled):
            m.d.sync += own.eq(own + 1)
        m.d.comb += link.pointer.eq(delayed(m, own, VERDICT_LATENCY, name="own"))
        with m.If(link.begin):
            m.d.sync += [count.eq(Mux(link.following, 0, count) + own), own.eq(0)]
        with m.If(link.begin & link.following):
            m.d.sync += [before.eq(count), late.eq(~gone), gone.eq(0)]
        with m.Elif(go):
            m.d.sync += [gone.eq(~late), late.eq(0)]
        m.d.sync += pending.eq((link.decided | pending) & ~go & ~self._forget)
        with m.If(self.start):
            m.d.sync += [own.eq(0), count.eq(0), gone.eq(0), late.eq(0)]
        return go, Mux(late, before, count)

    def _ask(self, m: Module, go: Signal, count: Value) -> None:
        """Numbers become addresses, one a cycle."""
        ask, numbers, places, stores = self.port.ask, self._numbers, self._places, self._stores
        step = Signal()
        left, some = Signal.like(count), Signal()
        base, slot, thread = (Signal(len(self.link.target)), Signal(16), Signal(thread_bits(self._config)))
        last_slot, first = Signal(16), Signal()  # where the tuple is that numbers are taken of; it is the round's first
        oldest = data.View(self._number, numbers.r_data)
        taken = Signal()
        m.d.comb += [
            step.eq(~ask.valid | ask.ready),
            taken.eq(some & step & numbers.r_rdy),
            numbers.r_en.eq(taken),
        ]
        m.d.sync += last_slot.eq((C(1, 16) << self.settings.group_log2) - 1)
        with m.If(taken):
            m.d.sync += first.eq(0)
        with m.If(taken & oldest.opens & ~first):
            m.d.sync += [slot.eq(slot + 1), base.eq(base + self.settings.tuple_rows)]
            with m.If(slot == last_slot):
                m.d.sync += [slot.eq(0), base.eq(0), thread.eq(thread + 1)]
        valid = Signal(4, name="asked_after")
        entry = Signal(self._number, reset_less=True)
        fresh = Signal()  # the request is in its first cycle
        fields = {name: self._look_up(m, name, entry.table, step) for name in ("rows", "shift", "low", "high")}
        # two steps to the table, one for the product
        with m.If(step):
            m.d.sync += [valid.eq(Cat(taken, valid)), entry.eq(oldest)]
            target = delayed(m, Cat(thread, (base + entry.row)[: len(base)]), 3, name="target")
            number = delayed(m, entry.number, 2, name="asked_number")
            shifted = delayed(m, (number << fields["shift"])[: NUMBER_BITS + BOUNDARY_BITS], 1, name="shifted")
            rows, low, high = (delayed(m, fields[name], 1, name=f"{name}_late") for name in ("rows", "low", "high"))
            writing = delayed(m, entry.writes, 4, name="writes")
            page = (Cat(low, high) + shifted[BOUNDARY_BITS:])[: RECORD_ADDRESS_BITS - BOUNDARY_BITS]
            place = Signal(self._place, reset_less=True)
            m.d.sync += [
                ask.valid.eq(valid[-1]),
                ask.address.eq(Cat(shifted[:BOUNDARY_BITS], page)),
                ask.rows.eq(rows),
                place.eq(Cat(target, rows)),
            ]
        m.d.sync += fresh.eq(valid[-1] & step & ~self._forget)
        m.d.comb += [
            # before the request is made, for its first row may come in the cycle after
            places.w_en.eq(valid[-1] & step),
            places.w_data.eq(Cat(target, rows)),
            stores.w_en.eq(fresh & writing),
            stores.w_data.eq(Cat(ask.address, place)),
        ]
        with m.If(taken):
            m.d.sync += [left.eq(left - 1), some.eq(left != 1)]
        with m.If(go):
            m.d.sync += [left.eq(count), some.eq(count.any())]
            m.d.sync += [first.eq(1), base.eq(0), slot.eq(0), thread.eq(0)]
        with m.If(self._forget):
            m.d.sync += [some.eq(0), valid.eq(0)]
            with m.If(step):  # one that stands does
                m.d.sync += ask.valid.eq(0)

    def _fetch(self, m: Module, go: Signal, count: Value) -> None:
        """Rows that come, to where their records go."""
        port, link, places = self.port, self.link, self._places
        fetching, half = Signal(), Signal()
        left = Signal.like(count)
        final = Signal()  # the record that comes is the last
        here = Signal(self._place, reset_less=True)
        last, there = Signal(reset_less=True), Signal()
        following = data.View(self._place, places.r_data)
        comes = Signal()
        over, load = comes & last, Signal()
        m.d.comb += [
            comes.eq(port.row_valid & fetching),
            load.eq(places.r_rdy & (~there | over)),
            places.r_en.eq(load),
            link.row_valid.eq(comes),
            link.half.eq(half),
            link.target_thread.eq(here.thread),
            link.target.eq(here.row),
            link.data.eq(port.row),
        ]
        with m.If(load):
            m.d.sync += [there.eq(1), here.eq(following), last.eq(following.rows == 0)]
        with m.Elif(over):
            m.d.sync += there.eq(0)
        with m.Elif(comes):
            m.d.sync += [here.row.eq(here.row + 1), here.rows.eq(here.rows - 1), last.eq(here.rows == 1)]
        done = Signal()
        m.d.comb += done.eq((over & final) | (go & ~count.any()))
        with m.If(over):
            m.d.sync += [left.eq(left - 1), final.eq(left == 2)]
        with m.If(go):
            m.d.sync += [left.eq(count), final.eq(count == 1), fetching.eq(1)]
        with m.If(done):
            m.d.sync += [fetching.eq(0), half.eq(~half), self._busy.eq(1)]
        m.d.sync += link.fetched.eq(done)
        with m.If(self._forget):
            m.d.sync += [fetching.eq(0), there.eq(0), link.fetched.eq(0)]
        with m.If(self._forget & ~self._storing):
            m.d.sync += self._busy.eq(0)
        with m.If(self.start):
            m.d.sync += half.eq(0)

    def _store(self, m: Module) -> None:
        """The outboxes, one for each thread, to the records that tuples write."""
        port, config, stores = self.port, self._config, self._stores
        put = delayed(m, self.outbox.valid, CANONICAL_LATENCY, name="put", reset_less=False)
        put_row = delayed(m, self.outbox.row, CANONICAL_LATENCY, name="put_row")
        reads = []
        for t in range(config.threads):
            words = self.outbox.data[t]
            m.submodules[f"outbox_{t}"] = outbox = Memory(
                shape=32 * config.lanes, depth=config.tuple_depth // 2, init=[], attrs=UNSHARED
            )
            write = outbox.write_port()
            m.d.comb += [
                write.en.eq(put),
                write.addr.eq(put_row[: len(write.addr)]),
                write.data.eq(Cat(canonical(m, words[k], f"put_{t}_{k}") for k in range(config.lanes))),
            ]
            reads.append(outbox.read_port())
        storing, left = self._storing, Signal(range(self._most + 1))
        with m.If(self.release & self._busy & ~self._forget):
            m.d.sync += [storing.eq(stores.level.any()), self._busy.eq(stores.level.any()), left.eq(stores.level)]
        with m.If(storing & port.stored):
            m.d.sync += left.eq(left - 1)
            with m.If(left == 1):
                m.d.sync += [storing.eq(0), self._busy.eq(0)]

        step, load, there, last = Signal(), Signal(), Signal(), Signal(reset_less=True)
        here = Signal(self._place, reset_less=True)
        following = data.View(self._record, stores.r_data)
        m.d.comb += [
            step.eq(~port.word.valid | port.word.ready),
            load.eq(storing & stores.r_rdy & (~there | (last & step)) & (~port.store.valid | port.store.ready)),
            stores.r_en.eq(load),
            *(read.addr.eq(here.row) for read in reads),
            *(read.en.eq(step) for read in reads),
            port.busy.eq(storing | port.store.valid | port.word.valid),
        ]
        with m.If(load):
            m.d.sync += [
                there.eq(1),
                here.eq(following.place),
                last.eq(following.place.rows == 0),
                port.store.valid.eq(1),
                port.store.address.eq(following.address),
                port.store.rows.eq(following.place.rows),
            ]
        with m.Else():
            with m.If(port.store.ready):
                m.d.sync += port.store.valid.eq(0)
            with m.If(step):
                m.d.sync += [
                    there.eq(there & ~last),
                    here.row.eq(here.row + 1),
                    here.rows.eq(here.rows - 1),
                    last.eq(here.rows == 1),
                ]
        with m.If(step):
            m.d.sync += [
                port.word.valid.eq(delayed(m, there, 1, name="valid", reset_less=False)),
                port.word.row.eq(Array(read.data for read in reads)[delayed(m, here.thread, 1, name="read_thread")]),
                port.word.last.eq(delayed(m, last, 1, name="read_last")),
            ]
