"""A thread: clusters that train on the same tuples.

In: the sequencer's control bus, which is registered here, and rows of tuples. Out: operands, for exchanges with other
threads. It knows which tuples of the round are its own.
"""

from __future__ import annotations

from amaranth.hdl import Array, Cat, Module, Signal, Value, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hwgen.rtl.engine.cluster import Cluster
from hwgen.rtl.engine.control import (
    CLUSTER_NUMBER_BITS,
    TUPLE_NUMBER_BITS,
    cluster_distances,
    thread_layout,
)
from hwgen.rtl.interfaces import count_bits, thread_bits, tuple_address_bits
from hwgen.rtl.library import Library
from hwgen.spec.config import LANES_PER_CLUSTER, MachineConfig


def words(config: MachineConfig) -> data.ArrayLayout:
    """A word of every lane of a thread."""
    return data.ArrayLayout(32, config.lanes)


def addressed_row(config: MachineConfig) -> wiring.Signature:
    """A row for the tuple memories of one thread, at an address of the whole memory."""
    return wiring.Signature(
        {
            "valid": Out(1),
            "thread": Out(thread_bits(config)),
            "address": Out(tuple_address_bits(config)),
            "data": Out(words(config)),
            "lane_enable": Out(config.lanes),
        }
    )


class Thread(wiring.Component):
    """The lanes of one thread.

    Members
    -------
    number
        Of the thread; a constant, an input only so that all threads are one module.
    control
        From the sequencer's register.
    count, group_log2
        Tuples of the round; log2 of a thread's share.
    tuples
        Rows of all threads' tuples.
    operands, other
        Stage 2: operand a of every lane, and that of the thread that THREAD_XOR names.
    host_cluster, selected
        Cluster that the host reads; the word, in stage 3.
    """

    def __init__(self, config: MachineConfig, library: Library) -> None:
        self._config = config
        self._library = library
        super().__init__(
            {
                "number": In(thread_bits(config)),
                "control": In(thread_layout(config)),
                "count": In(count_bits(config)),
                "group_log2": In(4),
                "tuples": In(addressed_row(config)),
                "operands": Out(words(config)),
                "other": In(words(config)),
                "host_cluster": In(CLUSTER_NUMBER_BITS),
                "selected": Out(32),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        control = Signal(thread_layout(config), reset_less=True)
        m.d.sync += control.eq(self.control)
        a_absent, b_absent = self._absent(m, control)

        address = Signal(tuple_address_bits(config), reset_less=True)
        row = Signal(words(config), reset_less=True)
        enable = Signal(config.lanes)
        m.d.sync += [address.eq(self.tuples.address), row.eq(self.tuples.data), enable.eq(0)]
        with m.If(self.tuples.valid & (self.tuples.thread == self.number)):
            m.d.sync += enable.eq(self.tuples.lane_enable)

        clusters = [
            self._library.place("cluster", lambda: Cluster(config, self._library)) for _ in range(config.clusters)
        ]
        for k, cluster in enumerate(clusters):
            m.submodules[f"cluster_{k}"] = cluster
            lanes = range(k * LANES_PER_CLUSTER, (k + 1) * LANES_PER_CLUSTER)
            m.d.comb += [
                cluster.number.eq(k),
                cluster.control.eq(control.cluster),
                cluster.a_absent.eq(a_absent),
                cluster.b_absent.eq(b_absent),
                cluster.tuples.enable.eq(Cat(enable[lane] for lane in lanes)),
                cluster.tuples.address.eq(address),
                cluster.tuples.data.eq(Cat(row[lane] for lane in lanes)),
                Cat(self.operands[lane] for lane in lanes).eq(cluster.operands.as_value()),
            ]
            partners: list[Value] = [clusters[k ^ 1 << d].operands.as_value() for d in range(cluster_distances(config))]
            partners.append(Cat(self.other[lane] for lane in lanes))
            m.d.comb += cluster.distant.eq(Array(partners)[control.distant])
        m.d.comb += self.selected.eq(Array(cluster.selected for cluster in clusters)[self.host_cluster])
        return m

    def _absent(self, m: Module, control: data.View) -> tuple[Signal, Signal]:
        """Thread k's tuple t is there if k × G + t < m; true a cycle before stage 1."""
        first = Signal(count_bits(self._config), reset_less=True)
        present = Signal(signed(count_bits(self._config) + 1), reset_less=True)
        m.d.sync += [
            first.eq((self.number << self.group_log2)[: len(first)]),
            present.eq(self.count - first),
        ]
        number = Signal(TUPLE_NUMBER_BITS + 1)
        a_absent = Signal(reset_less=True)
        b_absent = Signal(reset_less=True)
        m.d.comb += number.eq(control.tuple_number)
        m.d.sync += [
            a_absent.eq(control.masked & (number >= present)),
            b_absent.eq(control.masked & control.pair & (number + 1 >= present)),
        ]
        return a_absent, b_absent
