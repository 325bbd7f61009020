"""A thread: clusters that train on the same tuples.

In: the sequencer's control bus, which is registered here, and rows of tuples. Out: operands, for exchanges with other
threads. It knows which tuples of the round are its own.
"""

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hwgen.rtl.delay import delayed
from hwgen.rtl.engine import control
from hwgen.rtl.engine.cluster import Cluster
from hwgen.rtl.engine.index import IndexFile
from hwgen.rtl.interfaces import count_bits, thread_bits, tuple_address_bits, wires
from hwgen.rtl.library import Library
from hwgen.spec.config import LANES_PER_CLUSTER, MachineConfig


def words(config: MachineConfig) -> data.ArrayLayout:
    """A word of every lane of a thread."""
    return data.ArrayLayout(32, config.lanes)


class Thread(wiring.Component):
    """The lanes of one thread."""

    def __init__(self, config: MachineConfig, library: Library) -> None:
        self._config = config
        self._library = library
        row = {
            "valid": Out(1),
            "thread": Out(thread_bits(config)),
            "address": Out(tuple_address_bits(config)),  # in the whole memory
            "data": Out(words(config)),
            "lane_enable": Out(config.lanes),
        }
        super().__init__(
            {
                # of the thread; a constant, an input only so that all threads are one module
                "number": In(thread_bits(config)),
                "control": In(control.thread_layout(config)),  # from the sequencer's register
                "count": In(count_bits(config)),  # tuples of the round
                "group_log2": In(4),  # of a thread's share of them
                "tuples": In(wiring.Signature(row)),  # rows of all threads' tuples
                "operands": Out(words(config)),  # stage 3: operand b of every lane
                # stage 3: which of the threads that share a slot gives its own
                "distant": Out(control.distant_bits(config)),
                # stage 3: operands b of other threads, as `control.thread_slots` says
                "other": In(data.ArrayLayout(words(config), max(1, len(control.thread_slots(config))))),
                "host_cluster": In(control.CLUSTER_NUMBER_BITS),  # cluster that the host reads
                "selected": Out(32),  # the word, in stage 4
                "wrong": Out(1),  # pulse: a SETX's number names no row
                **({"repeat": Out(control.repeat_layout(config))} if config.index_depth else {}),
                **({"kept": Out(words(config))} if config.record_depth else {}),  # stage 3: operand a of every lane
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        held = delayed(m, self.control, 1, name="control")
        m.d.comb += self.distant.eq(held.distant)
        last = self._last(m)
        a_absent, b_absent = self._absent(m, held, last)

        address, row = (delayed(m, getattr(self.tuples, name), 1, name=name) for name in ("address", "data"))
        enable = Signal(config.lanes)
        m.d.sync += enable.eq(0)
        with m.If(self.tuples.valid & (self.tuples.thread == self.number)):
            m.d.sync += enable.eq(self.tuples.lane_enable)

        clusters = [
            self._library.place("cluster", lambda: Cluster(config, self._library)) for _ in range(config.clusters)
        ]
        towards = held.cluster
        if config.index_depth:
            towards = self._index(m, held, last, clusters[0].first)
        if config.crossed:
            straight, towards = towards, Signal(control.cluster_layout(config))
            m.d.comb += [towards.eq(straight), towards.swap_all.eq((held.swap_threads & self.number).any())]
        for k, cluster in enumerate(clusters):
            m.submodules[f"cluster_{k}"] = cluster
            lanes = range(k * LANES_PER_CLUSTER, (k + 1) * LANES_PER_CLUSTER)
            m.d.comb += [
                cluster.number.eq(k),
                cluster.control.eq(towards),
                cluster.a_absent.eq(a_absent),
                cluster.b_absent.eq(b_absent),
                cluster.tuples.enable.eq(Cat(enable[lane] for lane in lanes)),
                cluster.tuples.address.eq(address),
                cluster.tuples.data.eq(Cat(row[lane] for lane in lanes)),
                Cat(self.operands[lane] for lane in lanes).eq(cluster.operands.as_value()),
            ]
            if config.record_depth:
                m.d.comb += Cat(self.kept[lane] for lane in lanes).eq(cluster.kept.as_value())
            for slot, bits in enumerate(control.cluster_slots(config)):
                partners: list[Value] = [clusters[k ^ 1 << bit].operands.as_value() for bit in bits]
                m.d.comb += cluster.distant[slot].eq(control.choose(partners, held.distant))
            for slot in range(len(control.thread_slots(config))):
                word = Cat(self.other[slot][lane] for lane in lanes)
                m.d.comb += cluster.distant[len(control.cluster_slots(config)) + slot].eq(word)
        words_read = Array(cluster.selected for cluster in clusters)
        m.d.comb += self.selected.eq(words_read[self.host_cluster] if config.clusters > 1 else words_read[0])
        return m

    def _last(self, m: Module) -> Signal:
        """The last tuple that is there: of thread k, the greatest t for which k × G + t < m."""
        first = Signal(count_bits(self._config), reset_less=True)
        last = Signal(signed(count_bits(self._config) + 1), reset_less=True)
        m.d.sync += [
            first.eq((self.number << self.group_log2)[: len(first)]),
            # m - 1 - first
            last.eq(self.count + Cat(~first, Const(1, 1)).as_signed()),
        ]
        return last

    def _absent(self, m: Module, held: data.View, last: Signal) -> tuple[Signal, Signal]:
        """True a cycle before stage 1."""
        number = held.tuple_number
        # b's tuple is the next one
        before = delayed(m, last, 1, name="before")
        a_absent = held.masked & (number > last)
        b_absent = held.masked & ((held.pair & (number >= before)) | (held.both & (number > last)))
        return delayed(m, a_absent, 1, name="a_absent"), delayed(m, b_absent, 1, name="b_absent")

    def _index(self, m: Module, held: data.View, last: Signal, word: Value) -> data.View:
        """The clusters' control with entries of the index file added to addresses."""
        m.submodules.index = index = IndexFile(self._config)
        # these come with the register that `held` is
        arriving = self.control
        absent = delayed(m, arriving.index.present & (arriving.index.tuple > last), 1, name="absent")
        m.d.comb += [
            index.word.eq(word),
            *wires(index, held, "bound", "stride"),
            *wires(index, arriving.index, "set", "entry"),
            index.a_entry.eq(arriving.a_entry),
            index.absent.eq(arriving.index.present & (arriving.index.tuple > last)),
            self.wrong.eq(index.wrong),
            self.repeat.eq(index.repeat),
        ]
        towards = Signal(control.cluster_layout(self._config))
        m.d.comb += [
            towards.eq(held.cluster),
            towards.a_address.eq(held.cluster.a_address + Mux(held.a_index, index.a, 0)),
            towards.write.address.eq(held.cluster.write.address + Mux(held.index.add, index.dst, 0)),
            towards.write.lanes.eq(Mux(absent, 0, held.cluster.write.lanes)),
        ]
        return towards
