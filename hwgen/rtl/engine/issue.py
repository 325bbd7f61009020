"""Instructions to rows: program memory, prefetch, and the two loops of an instruction.

In: the start of a section. Out: one row after the other, in the cycles that `docs/machine.md` gives. Nothing
interlocks here, but for rows of ordered instructions with an entry of the index file that repeats; what a row does to a
lane is decoded in `sequencer.py`.
"""

from amaranth.hdl import Array, Const, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from hwgen.rtl.engine.control import INSTRUCTION, LANE_BITS, entry_bits, repeat_layout
from hwgen.rtl.engine.sections import ADDRESS_BITS
from hwgen.rtl.interfaces import UNSHARED
from hwgen.spec import cycles
from hwgen.spec.config import LANES_PER_CLUSTER, MachineConfig
from hwgen.spec.engine import ROW_BITS, WORD_BITS, WORD_U32, Opcode
from hwgen.spec.timing import DIVIDE_INTERVALS

WAIT_BITS = INSTRUCTION["wait"].width
INNER_BITS = INSTRUCTION["inner"].width
OUTER_BITS = INSTRUCTION["outer"].width
INTERVAL_BITS = max(DIVIDE_INTERVALS).bit_length()
PROGRAM_ADDRESS_BITS = 20
"""A word address in the host's program region; see `hwgen.spec.registers.Region`."""

PROGRAM_WRITE = wiring.Signature({"valid": Out(1), "address": Out(PROGRAM_ADDRESS_BITS), "data": Out(32)})
"""The host writes a 32-bit word of an instruction: `address` is 8 × instruction + word."""


class Program(wiring.Component):
    """Program memory with two registers behind it, which deliver an instruction every second cycle."""

    def __init__(self, config: MachineConfig) -> None:
        self._depth = config.program_depth
        super().__init__(
            {
                "write": In(PROGRAM_WRITE),
                "begin": In(1),  # pulse: fetch from `entry`; the first instruction is there three cycles later
                "entry": In(ADDRESS_BITS),
                "take": In(1),  # the consumer takes `instruction`; not in two cycles that follow each other
                "instruction": Out(INSTRUCTION),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        # written only while nothing runs
        m.submodules.words = words = Memory(shape=WORD_BITS, depth=self._depth, init=[], attrs=UNSHARED)
        write = words.write_port(granularity=32)
        read = words.read_port()
        words_written = Signal(WORD_BITS)
        m.d.comb += [
            words_written.eq(self.write.data.replicate(WORD_U32)),
            write.addr.eq(self.write.address[3:]),
            write.data.eq(words_written),
        ]
        with m.If(self.write.valid):
            m.d.comb += write.en.eq(Const(1) << self.write.address[:3])

        address = Signal(range(self._depth))
        held = Signal(INSTRUCTION, reset_less=True)
        # two cycles after `begin` the first instruction leaves the memory, and moves on without being asked
        filling = Signal(2)
        m.d.comb += [read.addr.eq(address), self.instruction.eq(held)]
        m.d.sync += filling.eq(filling << 1)
        with m.If(self.take | filling[1]):
            m.d.sync += held.eq(read.data[: INSTRUCTION.size])
        with m.If(self.take | filling[0]):
            m.d.sync += address.eq(address + 1)
        # behind the others: what was fetched for the section before is forgotten
        with m.If(self.begin):
            m.d.sync += [address.eq(self.entry), filling.eq(1)]
        return m


ROW = data.StructLayout(
    {
        "valid": 1,  # the rest counts
        "instruction": INSTRUCTION,
        "a": ROW_BITS,  # addresses hold the level's offset, not the half's
        "b": ROW_BITS,
        "dst": ROW_BITS,
        "number": OUTER_BITS,  # of the outer loop's round
        "entry": OUTER_BITS,  # of the index file, that the row sets or uses
        "last_inner": 1,  # the row is the last of the inner loop
        "lane": LANE_BITS,  # of a special function that takes the lanes in turn
    }
)
"""A row in the cycle in which it issues."""


def intervals(op: Value, divide_interval: int) -> Value:
    """Cycles between two elements of an operation, less one."""
    known = set(Opcode)
    table = [cycles.element_interval(Opcode(k), divide_interval) - 1 if k in known else 0 for k in range(1 << len(op))]
    return Array(Const(entry, INTERVAL_BITS) for entry in table)[op]


class Issue(wiring.Component):
    """The two loops."""

    def __init__(self, config: MachineConfig) -> None:
        self._config = config
        super().__init__(
            {
                "write": In(PROGRAM_WRITE),  # the host writes the program
                "begin": In(1),  # high in the cycle before a section starts
                "entry": In(ADDRESS_BITS),  # with it: the address of its first instruction
                "stop": In(1),  # pulse: abandon the section
                # added to the addresses that ask for it; stable from the third cycle of the section on
                "level_offset": In(ROW_BITS),
                # an entry of the index file that was set
                **({"repeat": In(repeat_layout(config))} if config.index_depth else {}),
                "row": Out(ROW),
                "section_end": Out(1),  # high in the last cycle of the section
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.program = program = Program(self._config)
        wiring.connect(m, wiring.flipped(self.write), program.write)
        m.d.comb += [program.begin.eq(self.begin), program.entry.eq(self.entry)]

        # `active`: an instruction has its turn; `load`: the next one's begins in the next cycle
        active = Signal()
        turn_end = Signal()
        starting = Signal(cycles.SECTION_START)
        load = Signal()
        current = Signal(INSTRUCTION, reset_less=True)
        last = Signal(reset_less=True)  # the instruction is END
        following = program.instruction
        m.d.comb += [
            self.section_end.eq(turn_end & last),
            load.eq(starting[-1] | (turn_end & ~last)),
            program.take.eq(load),
        ]
        m.d.sync += starting.eq(starting << 1)
        with m.If(load):
            m.d.sync += [active.eq(1), current.eq(following), last.eq(following.op == Opcode.END)]
        with m.Elif(turn_end):
            m.d.sync += active.eq(0)
        with m.If(self.begin):
            m.d.sync += starting.eq(1)
        with m.If(self.stop):
            m.d.sync += [active.eq(0), starting.eq(0)]

        step, inner_last, outer_last = self._count(m, active, load, last, current, following)
        m.d.comb += turn_end.eq(step & inner_last & outer_last)
        self._addresses(m, load, step, inner_last, current, following)
        m.d.comb += [self.row.instruction.eq(current), self.row.last_inner.eq(inner_last)]
        return m

    def _count(
        self, m: Module, active: Signal, load: Signal, last: Signal, current: data.View, following: data.View
    ) -> tuple[Signal, Signal, Signal]:
        """Count waits, intervals, lanes and rows; flags that say "the last one" are registers, made one cycle ahead.

        Returns
        -------
        step, inner_last, outer_last
            The row's last cycle; the row is the last of the inner loop; the last round of the outer loop runs.
        """
        waits = Signal(WAIT_BITS, reset_less=True)
        waited = Signal(reset_less=True)
        interval = Signal(INTERVAL_BITS, reset_less=True)
        gap = Signal(INTERVAL_BITS, reset_less=True)
        gap_first = Signal(reset_less=True)
        gap_last = Signal(reset_less=True)
        in_turn = Signal(reset_less=True)
        lane = Signal(LANE_BITS, reset_less=True)
        lane_last = Signal(reset_less=True)
        inner = Signal(INNER_BITS, reset_less=True)
        inner_last = Signal(reset_less=True)
        outer = Signal(OUTER_BITS, reset_less=True)
        outer_last = Signal(reset_less=True)
        number = Signal(OUTER_BITS, reset_less=True)
        element = Signal()
        step = Signal()
        m.d.comb += [
            element.eq(active & waited & gap_last),
            step.eq(element & lane_last),
            self.row.valid.eq(active & waited & gap_first & ~last),
            self.row.number.eq(number),
            self.row.lane.eq(lane),
        ]
        with m.If(~waited):
            m.d.sync += [waits.eq(waits - 1), waited.eq(waits == 1)]
        with m.Elif(element):
            m.d.sync += [gap.eq(interval), gap_first.eq(1), gap_last.eq(interval == 0)]
            m.d.sync += [lane.eq(lane + in_turn), lane_last.eq(~in_turn | (lane == LANES_PER_CLUSTER - 2))]
        with m.Else():
            m.d.sync += [gap.eq(gap - 1), gap_first.eq(0), gap_last.eq(gap == 1)]
        with m.If(step):
            with m.If(inner_last):
                m.d.sync += [
                    inner.eq(current.inner),
                    inner_last.eq(current.inner == 1),
                    outer.eq(outer - 1),
                    outer_last.eq(outer == 2),
                    number.eq(number + 1),
                ]
            with m.Else():
                m.d.sync += [inner.eq(inner - 1), inner_last.eq(inner == 2)]
        entry = Signal(OUTER_BITS, reset_less=True)
        m.d.comb += self.row.entry.eq(Mux(current.each, entry, number))
        with m.If(step):
            m.d.sync += entry.eq(entry + 1)
        if self._config.index_depth:
            with m.If(step & current.ordered & self._repeats(m, load, step, entry)):
                m.d.sync += [waits.eq(cycles.ORDER_WINDOW), waited.eq(0)]
        # behind the counting, whose last step may be in this cycle: it wins
        with m.If(load):
            first_interval = intervals(following.op, self._config.divide_interval)
            m.d.sync += [
                waits.eq(following.wait),
                waited.eq(following.wait == 0),
                interval.eq(first_interval),
                gap.eq(first_interval),
                gap_first.eq(1),
                gap_last.eq(first_interval == 0),
                # a special function takes the cluster's lanes one after the other, and a scalar lane 0 alone
                in_turn.eq((following.op >= Opcode.SIGMOID) & ~following.scalar),
                lane.eq(0),
                lane_last.eq((following.op < Opcode.SIGMOID) | following.scalar),
                inner.eq(following.inner),
                inner_last.eq(following.inner == 1),
                outer.eq(following.outer),
                outer_last.eq(following.outer == 1),
                number.eq(0),
                entry.eq(0),
            ]
        return step, inner_last, outer_last

    def _repeats(self, m: Module, load: Value, step: Value, entry: Value) -> Value:
        """Whether the next row's entry is among those shortly before it."""
        m.submodules.repeats = repeats = Memory(shape=1, depth=self._config.index_depth, init=[], attrs=UNSHARED)
        write, read = repeats.write_port(), repeats.read_port()
        following = Mux(load, 1, entry + 1 + step)
        m.d.comb += [
            write.addr.eq(self.repeat.entry),
            write.data.eq(self.repeat.repeats),
            write.en.eq(self.repeat.set),
            read.addr.eq(following[: entry_bits(self._config)]),
        ]
        return read.data

    def _addresses(
        self, m: Module, load: Signal, step: Signal, inner_last: Signal, current: data.View, following: data.View
    ) -> None:
        for name, out in (("a", self.row.a), ("b", self.row.b), ("dst", self.row.dst)):
            here = Signal(ROW_BITS, name=f"{name}_here", reset_less=True)
            base = Signal(ROW_BITS, name=f"{name}_base", reset_less=True)
            first: Value = following[name]
            if name != "b":
                first = first + Mux(following[f"{name}_level"], self.level_offset, 0)
            next_base = base + current[f"{name}_outer"]
            m.d.comb += out.eq(here)
            with m.If(load):
                m.d.sync += [here.eq(first), base.eq(first)]
            with m.Elif(step & inner_last):
                m.d.sync += [here.eq(next_base), base.eq(next_base)]
            with m.Elif(step):
                m.d.sync += here.eq(here + current[f"{name}_inner"])
