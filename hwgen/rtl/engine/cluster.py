"""Eight analytic units with their shared special function unit.

In: the thread's control bus, which is registered once more here. Out: the lanes' operands, for exchanges with other
clusters. What a row means is known; what a tuple or a section is, is not.
"""

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hwgen.rtl.delay import delayed
from hwgen.rtl.engine.control import CLUSTER_NUMBER_BITS, LANE_BITS, Side, cluster_layout, slots
from hwgen.rtl.engine.lane import Lane
from hwgen.rtl.engine.special import SpecialFunctions
from hwgen.rtl.interfaces import tuple_address_bits, wires
from hwgen.rtl.library import Library
from hwgen.spec.config import LANES_PER_CLUSTER, MachineConfig
from hwgen.spec.engine import Opcode

TO_LANES = ("a_address", "b_address", "a_tuple", "b_tuple", "identity", "adjacent_choice", "distant_choice", "subtract")
"""Fields of the control bus that each lane takes as they are."""
WORDS = data.ArrayLayout(32, LANES_PER_CLUSTER)


class Cluster(wiring.Component):
    """Eight lanes."""

    def __init__(self, config: MachineConfig, library: Library) -> None:
        self._config = config
        self._library = library
        row = {"enable": Out(LANES_PER_CLUSTER), "address": Out(tuple_address_bits(config)), "data": Out(WORDS)}
        super().__init__(
            {
                # of the cluster in its thread; a constant, an input only so that all clusters are one module
                "number": In(CLUSTER_NUMBER_BITS),
                "control": In(cluster_layout(config)),  # from the thread's register
                "a_absent": In(1),  # the operand's tuple is not there; in the cycle before stage 1
                "b_absent": In(1),
                "tuples": In(wiring.Signature(row)),  # a row of a tuple, each lane with its own enable
                "operands": Out(WORDS),  # stage 3: operand b of every lane
                # stage 3: operand b of the lanes of other clusters and threads
                "distant": In(data.ArrayLayout(WORDS, slots(config))),
                "first": Out(32),  # stage 3: operand a of lane 0
                # stage 3: operand a of every lane; of machines with a record memory
                **({"kept": Out(WORDS)} if config.record_depth else {}),
                "selected": Out(32),  # stage 4: operand a of the lane `special_lane`
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        control = delayed(m, self.control, 1, name="control")
        # masks and `mine` are computed in front of the register, from its input: a cycle later is too late
        absent = {name: self._absent(m, name) for name in ("a", "b")}

        # a write of the host is for one cluster alone
        mine = Signal(LANES_PER_CLUSTER)
        m.d.sync += mine.eq(
            Mux(self.control.one_cluster & (self.control.cluster != self.number), 0, self.control.write.lanes)
        )
        lanes = [
            self._library.place("lane", lambda: Lane(self._config, self._library)) for _ in range(LANES_PER_CLUSTER)
        ]
        side = self._side(m, control, lanes)
        if self._config.crossed:
            self._cross(m, control, lanes)
        for k, lane in enumerate(lanes):
            m.submodules[f"lane_{k}"] = lane
            m.d.comb += [
                *wires(lane, control, *TO_LANES),
                lane.a_absent.eq(absent["a"][k]),
                lane.b_absent.eq(absent["b"][k]),
                *(lane.distant[slot].eq(self.distant[slot][k]) for slot in range(slots(self._config))),
                *([] if self._config.crossed else [lane.select.eq(control.select)]),
                lane.side.eq(control.side != Side.NONE),
                lane.side_word.eq(side),
                lane.write_enable.eq(mine[k]),
                lane.write_address.eq(control.write.address),
                *wires(lane, control.write, "unit", "conditional"),
                lane.tuples.enable.eq(self.tuples.enable[k]),
                lane.tuples.address.eq(self.tuples.address),
                lane.tuples.data.eq(self.tuples.data[k]),
                self.operands[k].eq(lane.b),
            ]
            m.d.comb += [lane.adjacent[d].eq(lanes[k ^ 1 << d].b) for d in range(LANE_BITS)]
        m.d.comb += self.first.eq(lanes[0].a)
        if self._config.record_depth:
            m.d.comb += [self.kept[k].eq(lane.a) for k, lane in enumerate(lanes)]
        return m

    def _cross(self, m: Module, control: Signal, lanes: list[wiring.Component]) -> None:
        """Stage 0: which lanes swap their addresses. Stage 4: which of them take the other operand."""
        arriving = self.control
        together = arriving.swap_all | (arriving.swap_clusters & self.number).any()
        own = Cat((arriving.swap_lanes & k).any() | together for k in range(LANES_PER_CLUSTER))
        swap = delayed(m, own, 1, name="swap")
        late = delayed(m, swap, 4, name="late_swap")
        for k, lane in enumerate(lanes):
            m.d.comb += [lane.swap.eq(swap[k]), lane.select.eq(control.select ^ (control.choose & late[k]))]

    def _absent(self, m: Module, name: str) -> Signal:
        """Stage 2: which lanes of an operand are masked, by their tuple or by the end of the vector."""
        tail = self.control.tail
        own = tail[LANE_BITS:]
        beyond = Cat((own < self.number) | ((own == self.number) & (tail[:LANE_BITS] <= k)) for k in range(8))
        by_tail = Mux(self.control[f"tail_{name}"], beyond, 0)
        masked = by_tail | getattr(self, f"{name}_absent").replicate(LANES_PER_CLUSTER)
        return delayed(m, masked, 2, name=f"{name}_masked")

    def _side(self, m: Module, control: Signal, lanes: list[wiring.Component]) -> Value:
        """The special function unit, and the word that it or the host has for the lanes, in the last stage."""
        m.submodules.special = special = self._library.place(
            "special", lambda: SpecialFunctions(self._config, self._library)
        )
        chosen: dict[str, Value] = {"b": Const(0, 32)}
        for name in ("a", "b") if self._config.has(Opcode.DIV) else ("a",):
            words = Array(getattr(lane, name) for lane in lanes)
            chosen[name] = delayed(m, words[control.special_lane], 1, name=f"{name}_chosen")
        m.d.comb += [
            special.a.eq(chosen["a"]),
            special.b.eq(chosen["b"]),
            special.start.eq(control.special),
            *wires(special, control, "function", "side"),
            self.selected.eq(chosen["a"]),
        ]
        word = Signal(32, name="side_word", reset_less=True)
        m.d.sync += word.eq(Mux(control.side == Side.HOST, control.host_data, special.result))
        with m.If(control.side == Side.NONE):  # lanes join the word to their own result by or: lane.py
            m.d.sync += word.eq(0)
        return word
