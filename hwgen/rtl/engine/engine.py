"""The execution engine: threads under one sequencer, and the exchange between threads.

In: rounds and rows of tuples from the access engine, the host's accesses. Out: counters, and nothing else: the model
stays in the scratchpads until the host reads it.
"""

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hwgen.rtl.delay import delayed
from hwgen.rtl.engine.control import LANE_BITS, choose, entry_bits, thread_slots
from hwgen.rtl.engine.issue import PROGRAM_WRITE
from hwgen.rtl.engine.sections import ADDRESS_BITS, COUNTED, PAUSE_COMMANDS, PAUSE_RESULTS, epoch_ports
from hwgen.rtl.engine.sequencer import SCRATCH_ACCESS, Sequencer
from hwgen.rtl.engine.thread import Thread
from hwgen.rtl.interfaces import outbox_write, thread_bits, tuple_write, wires
from hwgen.rtl.library import Library
from hwgen.spec.config import MachineConfig

SCRATCH_READ_LATENCY = 8
"""Cycles from `scratch.read` to the word at `scratch_word`."""


class Engine(wiring.Component):
    """All threads."""

    def __init__(self, config: MachineConfig, library: Library) -> None:
        self._config = config
        self._library = library
        super().__init__(
            {
                **epoch_ports(config),
                "rows": In(tuple_write(config)),  # see `hwgen.rtl.interfaces.tuple_write`
                "program": In(PROGRAM_WRITE),
                "scratch": In(SCRATCH_ACCESS),
                "scratch_word": Out(32),  # SCRATCH_READ_LATENCY cycles after `scratch.read`
                # pulse at the end of a section: a SETX's number names no row; never after `finished` or `overflow`
                "index_fault": Out(1),
                "tag": Out(ADDRESS_BITS),  # with it: of the first tuple's first such SETX
                # of machines with a record memory: see `hwgen.rtl.interfaces.outbox_write`; operands as the lanes have
                # them
                **({"outbox": Out(outbox_write(config))} if config.record_depth else {}),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        m.submodules.sequencer = sequencer = self._library.place("sequencer", lambda: Sequencer(config))
        for name in ("rounds", "settings", "program", "scratch"):
            wiring.connect(m, wiring.flipped(getattr(self, name)), getattr(sequencer, name))
        m.d.comb += wires(sequencer, self, "start", "stop")
        m.d.comb += wires(self, sequencer, "half_release", *COUNTED)
        if config.pause:
            m.d.comb += [*wires(sequencer, self, *PAUSE_COMMANDS), *wires(self, sequencer, *PAUSE_RESULTS)]

        threads = [self._library.place("thread", lambda: Thread(config, self._library)) for _ in range(config.threads)]
        # rows are numbered within their half on the bus, within the memory in the threads
        row = self.rows.row + Mux(self.rows.half, sequencer.half_base, 0)
        # registered once, for the bus comes from one corner and goes to all threads; each of them registers it again
        valid = delayed(m, self.rows.valid, 1, name="valid", reset_less=False)
        address = delayed(m, row[: len(self.rows.row)], 1, name="address")
        others = ("thread", "data", "lane_enable")
        written = {name: delayed(m, getattr(self.rows, name), 1, name=f"row_{name}") for name in others}
        host_cluster = self.scratch.address[LANE_BITS:] & (config.clusters - 1)
        selected_cluster = delayed(m, host_cluster, SCRATCH_READ_LATENCY - 1, name="host_cluster")
        for k, thread in enumerate(threads):
            m.submodules[f"thread_{k}"] = thread
            m.d.comb += [
                thread.number.eq(k),
                *wires(thread, sequencer, "control", "count"),
                thread.group_log2.eq(self.settings.group_log2),
                thread.tuples.valid.eq(valid),
                thread.tuples.address.eq(address),
                *(getattr(thread.tuples, name).eq(value) for name, value in written.items()),
                thread.host_cluster.eq(selected_cluster),
            ]
            if config.threads > 1:
                for slot, bits in enumerate(thread_slots(config)):
                    partners: list[Value] = [threads[k ^ 1 << bit].operands.as_value() for bit in bits]
                    m.d.comb += thread.other[slot].eq(choose(partners, thread.distant))
        m.d.sync += self.scratch_word.eq(threads[0].selected)
        self._ends(m, sequencer, threads)
        if config.record_depth:
            m.d.comb += [
                self.outbox.valid.eq(sequencer.put),
                self.outbox.row.eq(sequencer.put_row),
                *(self.outbox.data[k].eq(thread.kept) for k, thread in enumerate(threads)),
            ]
        return m

    def _ends(self, m: Module, sequencer: wiring.Component, threads: list[wiring.Component]) -> None:
        """What ends an epoch. Numbers are looked at until a section's last cycle, so its end waits for the answer."""
        ends = Cat(sequencer.finished, sequencer.overflow)
        if self._config.index_depth:
            for k in range(2):
                waiting = Signal(2, name=f"ends_{k}")
                m.d.sync += waiting.eq(Mux(self.stop, 0, ends))
                ends = waiting
            self._first_wrong(m, sequencer, threads)
            m.d.comb += sequencer.repeat.eq(threads[0].repeat)
        m.d.comb += Cat(self.finished, self.overflow).eq(ends)

    def _first_wrong(self, m: Module, sequencer: wiring.Component, threads: list[wiring.Component]) -> None:
        """Find the first tuple of a section, in heap order, with a number outside the model; its end reports it."""
        wrong = Cat(thread.wrong for thread in threads)
        number = Signal(thread_bits(self._config) + entry_bits(self._config))
        thread = Signal(thread_bits(self._config))
        for k in reversed(range(len(threads))):
            with m.If(wrong[k]):
                m.d.comb += thread.eq(k)
        m.d.comb += number.eq(Cat(delayed(m, sequencer.control.index.tuple, 1, name="wrong_tuple"), thread))
        found, first = Signal(), Signal.like(number, reset_less=True)
        tag = delayed(m, sequencer.tag, 1, name="tag")
        with m.If(wrong.any() & (~found | (number < first))):
            m.d.sync += [found.eq(1), first.eq(number), self.tag.eq(tag)]
        over = delayed(m, sequencer.section_end & ~self.stop, 2, name="section_over")
        m.d.sync += self.index_fault.eq(~self.stop & over & (found | wrong.any()))
        with m.If(self.start | self.stop):
            m.d.sync += found.eq(0)
