"""The analytic unit: two memories and the arithmetic of one lane.

In: what the cluster decoded for its lanes, words of tuples, words of other lanes. Out: its own operands. Each memory is
kept twice, since two operands are read in one cycle and block RAM has one port for that. Stages as in `control.py`.
"""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, memory, wiring
from amaranth.lib.wiring import In, Out

from hwgen.rtl.arith.add import FloatAdd
from hwgen.rtl.arith.mul import FloatMul
from hwgen.rtl.arith.select import HALF, OPERATION_BITS, FloatSelect
from hwgen.rtl.delay import delayed
from hwgen.rtl.engine import control
from hwgen.rtl.interfaces import UNSHARED, tuple_address_bits, ultra_style
from hwgen.rtl.library import Library
from hwgen.spec.config import LANES_PER_CLUSTER, MachineConfig, Ultra
from hwgen.spec.cycles import ALU_LATENCY


class Lane(wiring.Component):
    """One analytic unit."""

    def __init__(self, config: MachineConfig, library: Library) -> None:
        self._config = config
        self._library = library
        word = wiring.Signature({"enable": Out(1), "address": Out(tuple_address_bits(config)), "data": Out(32)})
        super().__init__(
            {
                "a_address": In(control.row_address_bits(config)),  # stage 0: row of each operand
                "b_address": In(control.row_address_bits(config)),
                # stage 0: the other way round; only with crossed exchanges
                **({"swap": In(1)} if config.crossed else {}),
                "a_tuple": In(1),  # stage 2: the operand is in tuple memory
                "b_tuple": In(1),
                "a_absent": In(1),  # stage 2: it is replaced by the word with `identity` on top
                "b_absent": In(1),
                "identity": In(control.IDENTITY_BITS),
                "a": Out(32),  # stage 3: operands from memory, after their masks
                "b": Out(32),
                "adjacent_choice": In(control.ADJACENT_CHOICE_BITS),  # stage 3: whose b it is, and the others' words
                "distant_choice": In(control.distant_choice_bits(config)),
                "adjacent": In(data.ArrayLayout(32, control.LANE_BITS)),
                "distant": In(data.ArrayLayout(32, control.slots(config))),
                "subtract": In(1),  # stage 4: what the adder does
                "select": In(OPERATION_BITS),  # stage 4: what the `FloatSelect` does
                "side": In(1),  # last stage but one: the cluster has a word for its lanes
                "side_word": In(32),  # last stage: the word, else 0
                "write_enable": In(1),  # last stage: a result for the scratchpad; see `control.write_layout`
                "write_address": In(control.scratch_address_bits(config)),
                "unit": In(control.Result.BITS),
                "conditional": In(1),
                "tuples": In(word),  # a word of a tuple
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        result = Signal(32)
        enable = Signal()
        # both operands are read in one cycle, and block RAM has one port for that: two copies, written alike
        a, b = self.a_address, self.b_address
        for name, own, other in (("a", a, b), ("b", b, a)):
            address = Mux(self.swap, other, own) if self._config.crossed else own
            write, arriving = (self.write_address, result, enable), self.tuples
            scratch = self._memory(m, f"scratch_{name}", Ultra.SCRATCH, address, write)
            write = (arriving.address, arriving.data, arriving.enable)
            tuples = self._memory(m, f"tuples_{name}", Ultra.TUPLES, address, write)
            self._operand(m, name, scratch, tuples)
        self._arithmetic(m, result, enable)
        return m

    def _memory(self, m: Module, name: str, kind: Ultra, address: Value, written: tuple[Value, Value, Value]) -> Value:
        """Its word, in stage 2. In stage 1 it comes late: nothing but a register follows."""
        depth = self._config.scratch_depth if kind is Ultra.SCRATCH else self._config.tuple_depth
        wide = self._config.wide_depth if kind is Ultra.SCRATCH else 0
        if wide:
            return self._two_widths(m, name, depth, wide, address, written)
        # the compiler keeps rows apart, the halves keep tuples apart: no word is read in the cycle in which it is
        # written. A word of UltraRAM holds two of a lane's, of an even and an odd row
        two = int(bool(self._config.ultra & kind))
        m.submodules[name] = one = memory.Memory(
            shape=32 << two, depth=depth >> two, init=[], attrs=UNSHARED | ultra_style(self._config, kind)
        )
        write, read = one.write_port(granularity=32), one.read_port()
        at, word, enable = written
        m.d.comb += [
            write.addr.eq(at[two:]),
            write.data.eq(Cat(word, word) if two else word),
            write.en.eq(Cat(enable & ~at[0], enable & at[0]) if two else enable),
            read.addr.eq(address[two:]),
        ]
        kept = delayed(m, read.data, 1, name=f"{name}_word")
        return Mux(delayed(m, address[0], 2, name=f"{name}_odd"), kept[32:], kept[:32]) if two else kept

    def _two_widths(
        self, m: Module, name: str, depth: int, wide: int, address: Value, written: tuple[Value, Value, Value]
    ) -> Value:
        """As `_memory`; rows from `wide` on have no lower half, which reads as zero."""
        at, word, enable = written
        halves = []
        for part, rows, bits in (("low", wide, word[:HALF]), ("high", depth, word[HALF:])):
            m.submodules[f"{name}_{part}"] = one = memory.Memory(shape=HALF, depth=rows, init=[], attrs=UNSHARED)
            write, read = one.write_port(), one.read_port()
            m.d.comb += [
                write.addr.eq(at),
                write.data.eq(bits),
                write.en.eq(enable & (at < wide) if part == "low" else enable),
                read.addr.eq(address),
            ]
            kept = Signal(HALF, name=f"{name}_{part}_word", reset_less=True)
            m.d.sync += kept.eq(read.data)
            halves.append(kept)
        # the register's own reset: what comes late from a memory meets no gate before it
        with m.If(delayed(m, address >= wide, 1, name=f"{name}_narrow")):
            m.d.sync += halves[0].eq(0)
        return Cat(*halves)

    def _operand(self, m: Module, name: str, scratch: Value, tuples: Value) -> None:
        """Stage 2: the memory, the mask."""
        word = Mux(getattr(self, f"{name}_tuple"), tuples, scratch)
        identity = Cat(Const(0, 32 - control.IDENTITY_BITS), self.identity)
        masked = Mux(getattr(self, f"{name}_absent"), identity, word)
        m.d.comb += getattr(self, name).eq(delayed(m, masked, 1, name=f"{name}_masked"))

    def _arithmetic(self, m: Module, result: Signal, enable: Signal) -> None:
        """Stages 3, 4 and the last."""
        arriving = control.choose([self.b, *(self.adjacent[d] for d in range(control.LANE_BITS))], self.adjacent_choice)
        if self._config.units > LANES_PER_CLUSTER:
            arriving = control.choose(
                [arriving, *(self.distant[slot] for slot in range(control.slots(self._config)))], self.distant_choice
            )
        a, b = delayed(m, self.a, 1, name="operand_a"), delayed(m, arriving, 1, name="operand_b")

        m.submodules.add = add = FloatAdd()
        m.submodules.multiply = multiply = FloatMul(narrow=not self._library.wide_multipliers)
        m.submodules.select = select = FloatSelect(second=bool(self._config.crossed))
        # what is there earlier waits, so that all results arrive together
        total = delayed(m, add.result, ALU_LATENCY - add.LATENCY, name="total")
        product = delayed(m, multiply.result, ALU_LATENCY - multiply.LATENCY, name="product")
        waits = ALU_LATENCY - 1 - select.LATENCY
        selected = delayed(m, select.result, waits, name="selected")
        # a register's reset, and one more input of the choice below, are cheaper than a choice of their own
        other = delayed(m, Mux(self.side, 0, selected), 1, name="other")
        holds = delayed(m, select.holds, waits + 1, name="holds")
        m.d.comb += [
            *(operand.eq(a) for operand in (add.a, multiply.a, select.a)),
            *(operand.eq(b) for operand in (add.b, multiply.b, select.b)),
            add.subtract.eq(self.subtract),
            select.operation.eq(self.select),
            enable.eq(self.write_enable & (~self.conditional | holds)),
        ]
        with m.Switch(self.unit):
            with m.Case(control.Result.ADD):
                m.d.comb += result.eq(total)
            with m.Case(control.Result.MULTIPLY):
                m.d.comb += result.eq(product)
            with m.Default():
                m.d.comb += result.eq(other | self.side_word)  # one of the two is 0
