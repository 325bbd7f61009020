"""The one sequencer of the machine: rounds in, control of every lane out.

It joins the choice of sections and the issue of rows, decodes each row once for all threads, and sends each of its
fields in the cycle in which it must leave (`control.py`). While no epoch runs, and in a pause, the host's accesses to
the scratchpads take the same way. It holds no data of tuples or models.
"""

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hwgen.rtl.arith.function import FUNCTION_BITS
from hwgen.rtl.arith.select import OPERATION_BITS, Operation
from hwgen.rtl.delay import delayed
from hwgen.rtl.engine import control
from hwgen.rtl.engine.issue import PROGRAM_WRITE, Issue
from hwgen.rtl.engine.sections import ADDRESS_BITS, PAUSE_COMMANDS, SectionControl, epoch_ports, results
from hwgen.rtl.interfaces import count_bits, tuple_address_bits, wires
from hwgen.spec import cycles
from hwgen.spec.config import LANES_PER_CLUSTER, MachineConfig
from hwgen.spec.engine import Mask, Opcode, Source
from hwgen.spec.operations import Unit
from hwgen.spec.registers import SCRATCH_BITS

PUT_STAGE = 6
"""Cycles from a row's issue to its operands in stage 3."""

SCRATCH_ACCESS = wiring.Signature({"read": Out(1), "write": Out(1), "address": Out(SCRATCH_BITS), "data": Out(32)})
"""The host reads or writes a word of the scratchpads, at row × lanes + lane; only while no epoch runs, or in a pause.

`read` and `write` are pulses. What is written goes to every thread.
"""


class Sequencer(wiring.Component):
    """One instruction stream for all threads."""

    def __init__(self, config: MachineConfig) -> None:
        self._config = config
        super().__init__(
            {
                **epoch_ports(config),
                "program": In(PROGRAM_WRITE),
                "scratch": In(SCRATCH_ACCESS),
                "control": Out(control.thread_layout(config)),  # to every thread, from a register
                "half_base": Out(ADDRESS_BITS),  # tuple memory address of the second half
                "count": Out(count_bits(config)),  # tuples of the round
                "tag": Out(ADDRESS_BITS),  # of the SETX that issued last
                "section_end": Out(1),
                # of thread 0, which has the tuples of all ordered instructions
                **({"repeat": In(control.repeat_layout(config))} if config.index_depth else {}),
                # the lanes' operands a in stage 3 go to row `put_row` of the outbox
                **({"put": Out(1), "put_row": Out(tuple_address_bits(config))} if config.record_depth else {}),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.sections = sections = SectionControl(self._config)
        m.submodules.issue = issue = Issue(self._config)
        for name in ("rounds", "settings"):
            wiring.connect(m, wiring.flipped(getattr(self, name)), getattr(sections, name))
        wiring.connect(m, wiring.flipped(self.program), issue.write)
        m.d.comb += [
            *wires(sections, self, "start", "stop", *(PAUSE_COMMANDS if self._config.pause else ())),
            *(end.eq(issue.section_end) for end in (sections.section_end, self.section_end)),
            issue.stop.eq(self.stop),
            *wires(issue, sections, "begin", "entry", "level_offset"),
            self.count.eq(sections.count),
            *wires(self, sections, *results(self._config)),
        ]

        m.d.sync += self.half_base.eq((self.settings.tuple_rows << self.settings.group_log2)[:ADDRESS_BITS])
        self._operands(m, issue.row, sections.half)
        self._masks(m, issue.row)
        self._exchange(m, issue.row)
        if self._config.crossed:
            self._cross(m, issue.row)
        self._operation(m, issue.row)
        self._writes(m, issue.row)
        if self._config.index_depth:
            m.d.sync += issue.repeat.eq(self.repeat)
            self._index(m, issue.row)
        return m

    def _operands(self, m: Module, row: data.View, half: Value) -> None:
        """Stage 0, which is one cycle after the row issued, less the tree."""
        out = self.control.cluster
        address_bits = control.row_address_bits(self._config)
        for operand, here in (("a", row.a), ("b", row.b)):
            second = half & row.instruction[f"{operand}_tuple"]
            m.d.sync += out[f"{operand}_address"].eq((here + Mux(second, self.half_base, 0))[:address_bits])
        with m.If(self.scratch.read):
            m.d.sync += out.a_address.eq(self._scratch_row())

    def _masks(self, m: Module, row: data.View) -> None:
        """Stages 1 and 2; the thread needs one more cycle to compare its tuples' numbers."""
        out = self.control
        instruction = row.instruction
        pair = instruction.mask == Mask.PAIR
        m.d.sync += [
            out.masked.eq(row.valid & (instruction.mask != Mask.NONE)),
            out.pair.eq(pair),
            out.both.eq(instruction.source != Source.MEMORY),
            out.tuple_number.eq(Mux(pair, row.number << 1, row.number)),
        ]
        identities = [0] * 16  # another number is an error below: operations with codes from 16 on have +0.0
        for opcode in Opcode:
            if opcode.identity is not None:
                identities[opcode] = opcode.identity >> 32 - control.IDENTITY_BITS
        low = Array(Const(bits, control.IDENTITY_BITS) for bits in identities)[instruction.op[:4]]
        identity = Mux(instruction.op[4:].any(), 0, low)
        chosen = {
            "a_tuple": row.valid & instruction.a_tuple,
            "b_tuple": row.valid & instruction.b_tuple,
            "identity": identity,
        }
        self._send(m, chosen, 2)
        stage = {
            "tail_a": row.valid & instruction.tail_a & row.last_inner,
            "tail_b": row.valid & instruction.tail_b & row.last_inner,
            "tail": instruction.tail,
        }
        self._send(m, stage, 1)

    def _index(self, m: Module, row: data.View) -> None:
        """SETX's operands except the word, and whether a's address has an entry added."""
        instruction = row.instruction
        m.d.sync += [
            self.control.a_index.eq(row.valid & instruction.a_index),
            self.control.a_entry.eq(row.entry[: control.entry_bits(self._config)]),
        ]
        # these stay until the next SETX, which comes when the last one's entries are set
        with m.If(row.valid & (instruction.op == Opcode.SETX)):
            m.d.sync += [
                self.control.bound.eq(instruction.dst),
                self.control.stride.eq(instruction.dst_outer),
                self.tag.eq(instruction.b),
            ]

    def _exchange(self, m: Module, row: data.View) -> None:
        """Stage 3: of whom operand b is, and which lane a special function or the host takes."""
        config = self._config
        instruction = row.instruction
        adjacent, slot_choice = Signal(control.ADJACENT_CHOICE_BITS), Signal(control.distant_choice_bits(config))
        distant = Signal(control.distant_bits(config))
        with m.If(row.valid & (instruction.source == Source.LANE_XOR)), m.Switch(instruction.distance):
            for bit in range(control.LANE_BITS):
                with m.Case(bit):
                    m.d.comb += adjacent.eq(bit + 1)
            for slot, bits in enumerate(control.cluster_slots(config)):
                for place, bit in enumerate(bits):
                    with m.Case(control.LANE_BITS + bit):
                        m.d.comb += [slot_choice.eq(slot + 1), distant.eq(place)]
        with m.If(row.valid & (instruction.source == Source.THREAD_XOR)), m.Switch(instruction.distance):
            for slot, bits in enumerate(control.thread_slots(config), start=len(control.cluster_slots(config))):
                for place, bit in enumerate(bits):
                    with m.Case(bit):
                        m.d.comb += [slot_choice.eq(slot + 1), distant.eq(place)]
        lane = Mux(self.scratch.read, self.scratch.address[: control.LANE_BITS], row.lane)
        self._send(m, {"adjacent_choice": adjacent, "distant_choice": slot_choice, "special_lane": lane}, 3)

        # the threads' own choice is not registered again in the clusters
        m.d.sync += self.control.distant.eq(delayed(m, distant, 4, name="distant"))

    def _cross(self, m: Module, row: data.View) -> None:
        """Stage 0: whose addresses are swapped. Stage 4: whether these lanes take the other operand."""
        instruction = row.instruction
        bit = Const(1) << instruction.distance
        lanes, threads = (
            Mux(row.valid & (instruction.source == source), bit, 0) for source in (Source.LANE_XOR, Source.THREAD_XOR)
        )
        out = self.control
        m.d.sync += [
            out.cluster.swap_lanes.eq(lanes[: control.LANE_BITS]),
            out.cluster.swap_clusters.eq(lanes[control.LANE_BITS :]),
            out.swap_threads.eq(threads),
        ]
        self._send(m, {"choose": (instruction.op == Opcode.LOW) | (instruction.op == Opcode.HIGH)}, 4)

    def _operation(self, m: Module, row: data.View) -> None:
        """Stage 4."""
        op = row.instruction.op
        select = Signal(OPERATION_BITS)
        with m.Switch(op):
            for operation in Operation:
                if operation is not Operation.SECOND:
                    with m.Case(Opcode[operation.name]):
                        m.d.comb += select.eq(operation)
            # a move that not every lane writes; one that lanes with the bit of an exchange do the other way round
            with m.Case(Opcode.MOVC, Opcode.LOW):
                m.d.comb += select.eq(Operation.MOV)
            with m.Case(Opcode.HIGH):
                m.d.comb += select.eq(Operation.SECOND)
        stage = {
            "subtract": op == Opcode.SUB,
            "select": select,
            "special": row.valid & op[-1],
            "function": op[:FUNCTION_BITS],
        }
        self._send(m, stage, 4)

    def _send(self, m: Module, fields: dict[str, Value], stage: int) -> None:
        """Put fields of a row on the clusters' bus so that they arrive in a stage."""
        for name, value in fields.items():
            signal = Signal.like(value, name=f"{name}_issued")
            m.d.comb += signal.eq(value)
            m.d.sync += self.control.cluster[name].eq(delayed(m, signal, stage, name=name))

    def _writes(self, m: Module, row: data.View) -> None:
        """Results wait in a line for the cycle in which they are written: nothing else can be in their place."""
        index = {"index": control.index_layout(self._config)} if self._config.index_depth else {}
        layout = data.StructLayout({"write": control.write_layout(self._config), "side": control.Side.BITS, **index})
        op = row.instruction.op
        every_lane = (1 << LANES_PER_CLUSTER) - 1
        entry = Signal(layout)
        m.d.comb += [
            entry.write.address.eq(row.dst),
            entry.write.lanes.eq(every_lane),
            entry.write.unit.eq(control.Result.OTHER),
            entry.write.conditional.eq(op == Opcode.MOVC),
        ]
        with m.Switch(op):
            for unit, field, result in (
                (Unit.ADD, entry.write.unit, control.Result.ADD),
                (Unit.MULTIPLY, entry.write.unit, control.Result.MULTIPLY),
                (Unit.FUNCTION, entry.side, control.Side.FUNCTION),
                (Unit.DIVIDE, entry.side, control.Side.DIVIDE),
            ):
                with m.Case(*(opcode for opcode in Opcode if opcode.unit is unit)):
                    m.d.comb += field.eq(result)
        with m.If(op[-1] & ~row.instruction.scalar):
            m.d.comb += entry.write.lanes.eq(Const(1) << row.lane)
        if self._config.index_depth:
            with m.If(op == Opcode.SETX):
                m.d.comb += entry.write.lanes.eq(0)
            m.d.comb += [
                entry.index.set.eq(op == Opcode.SETX),
                entry.index.add.eq(row.instruction.dst_index),
                entry.index.present.eq(
                    (row.instruction.dst_index | (op == Opcode.SETX)) & (row.instruction.mask == Mask.SINGLE)
                ),
                entry.index.tuple.eq(row.number[: control.entry_bits(self._config)]),
                entry.index.entry.eq(row.entry[: control.entry_bits(self._config)]),
            ]

        if self._config.record_depth:
            with m.If(op == Opcode.PUT):
                m.d.comb += entry.write.lanes.eq(0)
            put = Signal(PUT_STAGE)
            m.d.sync += put.eq(Mux(self.stop, 0, Cat(row.valid & (op == Opcode.PUT), put)))
            m.d.comb += [
                self.put.eq(put[-1]),
                self.put_row.eq(delayed(m, row.dst[: len(self.put_row)], PUT_STAGE, name="put_row")),
            ]
        wanted: dict[int, Value] = {cycles.RESULT_LATENCY: row.valid & ~op[-1]}
        for opcode, latency in cycles.SPECIAL_LATENCY.items():
            if not self._config.has(opcode):
                continue
            wanted[latency] = wanted.get(latency, Const(0, 1)) | (row.valid & (op == opcode))
        # what is decoded of a row enters the line from a register, a cycle later
        decoded = delayed(m, entry.as_value(), 1, name="write_decoded")
        entering: dict[int, Value] = {}
        for latency, value in wanted.items():
            entering[latency - 1] = Signal(name=f"write_enters_{latency - 1}")
            m.d.sync += entering[latency - 1].eq(value & ~self.stop)
        # a row that issues in cycle c is written here in c + latency, so that a row that issues then reads the result:
        # its addresses are here one cycle after that, and a memory's word is read before it is written
        line: Value = Const(0, layout.size)
        for latency in range(max(entering), 2, -1):
            stage = Signal(layout.size, name=f"write_{latency}")
            arriving = line
            if latency in entering:
                arriving = line | Mux(entering[latency], decoded, 0)
            m.d.sync += stage.eq(Mux(self.stop, 0, arriving))
            line = stage

        # the host's word goes in where nothing else is, while no section runs
        waiting = Signal(layout)
        m.d.comb += waiting.eq(line)
        with m.If(self.scratch.write):
            m.d.comb += [
                waiting.write.address.eq(self._scratch_row()),
                waiting.write.lanes.eq(Const(1) << self.scratch.address[: control.LANE_BITS]),
                waiting.write.unit.eq(control.Result.OTHER),
                waiting.side.eq(control.Side.HOST),
            ]
        cluster = self.scratch.address[control.LANE_BITS :] & (self._config.clusters - 1)
        # what a lane writes was chosen one cycle before
        out = self.control.cluster
        m.d.sync += [
            out.side.eq(waiting.side),
            out.host_data.eq(self.scratch.data),
            out.write.eq(delayed(m, waiting.write, 1, name="write", reset_less=False)),
            out.one_cluster.eq(delayed(m, self.scratch.write, 1, name="for_one", reset_less=False)),
            out.cluster.eq(delayed(m, cluster[: len(out.cluster)], 1, name="cluster", reset_less=False)),
        ]
        if self._config.index_depth:
            m.d.sync += self.control.index.eq(delayed(m, waiting.index, 1, name="index", reset_less=False))

    def _scratch_row(self) -> Value:
        lane_bits = (self._config.lanes - 1).bit_length()
        return self.scratch.address[lane_bits:][: control.scratch_address_bits(self._config)]
