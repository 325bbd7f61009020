"""The Strider: a small processor that walks a page and passes the columns' positions to the unpacker.

In: its program (translated, `hwgen.rtl.access.translate`), its page, room in its queue. Out: entries for the queue,
rows skipped. The instruction set is `hwgen.spec.strider`, the cycles `hwgen.spec.cycles.STRIDER_CYCLES`. It reads
nothing but its own page, within it, and ends after at most STRIDER_BOUND × page_size instructions with an END or a
FAULT in the queue.

An instruction takes two cycles or more:

    decode   operands are read; the word after it arrives; the word that it may branch to is fetched
    execute  result or branch; that word arrives; the words after both are fetched
    memory   readB: the page's words arrive
    product  mul: a bit of one factor in each of sixteen cycles; it is rare, and a multiplier is dear
    finish   readB, mul, ctl: the late result; an END waits for room in the queue

A result is written in the cycle behind the last one, in which the next instruction can have it already. All words that
can follow are there when a branch is decided, so that a taken one costs no more than another.
"""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from hwgen.rtl.access import layouts
from hwgen.rtl.access.buffers import PageWords
from hwgen.rtl.access.layouts import Kind
from hwgen.rtl.access.registers import Registers
from hwgen.rtl.access.translate import INSTRUCTION, MAX_ALIGNMENT, Action
from hwgen.rtl.delay import delayed
from hwgen.rtl.interfaces import UNSHARED, wires
from hwgen.spec.config import MachineConfig
from hwgen.spec.cycles import FACTOR_BITS, STRIDER_CYCLES, STRIDER_START
from hwgen.spec.strider import CONFIGURATION, STRIDER_BOUND, TEMPORARIES, Fault, Opcode


def image_write(config: MachineConfig) -> wiring.Signature:
    """The host writes an instruction (`program`) or %cr `address` (`constant`); only while no page is there."""
    return wiring.Signature(
        {
            "program": Out(1),
            "constant": Out(1),
            "address": Out(max(layouts.bits_for(config.strider_depth), layouts.bits_for(CONFIGURATION))),
            "instruction": Out(INSTRUCTION),
            "data": Out(32),
        }
    )


def control_layout(config: MachineConfig) -> data.StructLayout:
    """An instruction in its cycles after decode: bits of its action, and what `translate.INSTRUCTION` says.

    `target`: where it goes if it branches. `clean`: the low bits of b are cleared from the sum. `writes`: a result
    after two cycles; `late`: after more. `quick`: takes two cycles; `finish`: three. `number`: of the descriptor, or
    the fault.
    """
    bits = (
        "wrong", "equal", "less", "otherwise", "subtract", "writes", "late", "extract", "clean", "read", "multiply",
        "count", "quick", "finish", "push", "end", "skip", "head",
    )  # fmt: skip
    return data.StructLayout(
        dict.fromkeys(bits, 1)
        | {
            "target": layouts.bits_for(config.strider_depth),
            "shift": 5,
            "extra": 2,
            "result": (TEMPORARIES - 1).bit_length(),
            "number": layouts.number_bits(config),
        }
    )


class Strider(wiring.Component):
    """Two-cycle processor of one page at a time."""

    def __init__(self, config: MachineConfig) -> None:
        self._config = config
        super().__init__(
            {
                "image": In(image_write(config)),
                "write": In(1),
                "line": In(layouts.line_bits(config)),
                "data": In(unsigned(8 * config.link_bytes)),
                "loaded": In(1),  # pulse, with the page's last beat: begin
                "stop": In(1),  # pulse: forget the page
                "entry": Out(layouts.entry_layout(config)),  # goes into the queue in a cycle with `push`
                "push": Out(1),  # only while there is `room`
                "room": In(1),
                "skip": Out(1),  # pulse: a row was skipped
            }
        )

    def elaborate(self, platform: object) -> Module:
        late = {Opcode.READB: 4, Opcode.MUL: 3 + FACTOR_BITS, Opcode.CTL: 3}
        if {op: late.get(op, 2) for op in Opcode} != STRIDER_CYCLES or STRIDER_START != 2:
            raise ValueError("strider.py is built for other STRIDER_CYCLES or STRIDER_START")
        config = self._config
        m = Module()
        idle = Signal(init=1)
        decode, execute, memory, finish = (Signal(name=name) for name in ("decode", "execute", "memory", "finish"))
        multiplying = Signal(FACTOR_BITS)  # which of the product's cycles it is, one bit for each
        instruction = Signal(INSTRUCTION)
        control = Signal(control_layout(config), reset_less=True)
        mask = Signal(32, reset_less=True)
        pointer = Signal(layouts.POINTER_BITS)
        executed = Signal(range(STRIDER_BOUND * config.page_size + 1))

        m.submodules.registers = registers = Registers()
        m.submodules.page = page = PageWords(config)
        m.d.comb += [
            *wires(page, self, "write", "line", "data"),
            registers.clear.eq(idle),
            registers.host_write.eq(self.image.constant),
            registers.host_number.eq(self.image.address),
            registers.host_data.eq(self.image.data),
            registers.number[0].eq(instruction.first),
            registers.number[1].eq(instruction.second),
        ]

        # a page that comes while the registers are being cleared (after a stop) waits for that
        waiting, begin = Signal(), Signal()
        m.d.comb += begin.eq(idle & registers.cleared & (self.loaded | waiting))
        m.d.sync += waiting.eq((self.loaded | waiting) & ~begin & ~self.stop)
        taken = Signal()
        done = Signal()  # the last cycle of an instruction that another one follows
        target = self._fetch(
            m, instruction, idle=idle, begin=begin, decode=decode, taken=taken, done=done, control=control
        )
        self._decode(m, instruction, control, mask, target=target, runaway=executed[-1])
        number = Cat(instruction.third, instruction.second)
        second = registers.value[1] ^ instruction.subtract.replicate(32)
        a = delayed(m, Mux(instruction.zero, 0, registers.value[0]), 1, name="operand_a")
        b = delayed(m, Mux(instruction.immediate, number, second), 1, name="operand_b")
        m.d.comb += page.address.eq(a)

        # --- results
        wrong = control.wrong
        branches, sum_or_bits = self._execute(m, control, a, b, mask)
        early = delayed(m, sum_or_bits, 1, name="early")
        late_result = delayed(m, self._finish(m, control, page.word, a, b, mask, begins=execute), 1, name="late")
        came_late = delayed(m, finish, 1, name="came_late")
        m.d.comb += [taken.eq(branches), registers.result.eq(Mux(came_late, late_result, early))]
        m.d.sync += [
            registers.write.eq((execute & control.writes & ~wrong) | (finish & control.late)),
            registers.target.eq(control.result),
        ]
        with m.If(registers.write & (registers.target == 0)):
            m.d.sync += pointer.eq(registers.result)

        # --- the queue
        size = layouts.page_bits(config)
        beyond = Signal()  # operand a is no address in the page
        at_end = a[2:size].all() & layouts.exceeds(a[:2] + control.extra, 3)
        outside = delayed(m, beyond | at_end, 1, name="outside")  # the bytes to be read are not all in the page
        pushes = Signal()
        m.d.comb += [
            beyond.eq(a[size:].any()),
            pushes.eq((execute & (wrong | control.push)) | (memory & outside) | (finish & control.end)),
            self.push.eq(pushes & self.room),
            self.entry.kind.eq(Mux(finish, Kind.END, Mux(memory | wrong, Kind.FAULT, Kind.COLUMN))),
            self.entry.number.eq(Mux(memory, Fault.OUT_OF_PAGE, control.number)),
            self.entry.address.eq(a),
            self.entry.beyond.eq(beyond),
            self.entry.pointer.eq(pointer),
            self.skip.eq(finish & control.skip),
        ]

        # --- what comes next
        waits = pushes & ~self.room
        ends = self.push & ~(execute & ~wrong)
        m.d.comb += done.eq((execute & ~wrong & (control.quick | (control.push & self.room))) | (finish & ~control.end))
        m.d.sync += [
            idle.eq((idle & ~begin) | ends),
            decode.eq(begin | done),
            execute.eq(decode | (execute & waits)),
            memory.eq((execute & control.read & ~wrong) | (memory & waits)),
            multiplying.eq(Cat(execute & control.multiply & ~wrong, multiplying[:-1])),
            finish.eq((execute & control.finish & ~wrong) | (memory & ~outside) | multiplying[-1] | (finish & waits)),
        ]
        with m.If(done):
            m.d.sync += executed.eq(executed + 1)
        with m.If(idle):
            m.d.sync += [executed.eq(0), pointer.eq(0)]
        with m.If(self.stop):
            m.d.sync += [idle.eq(1), decode.eq(0), execute.eq(0), memory.eq(0), multiplying.eq(0), finish.eq(0)]
        return m

    def _fetch(
        self,
        m: Module,
        instruction: data.View,
        *,
        idle: Value,
        begin: Value,
        decode: Value,
        taken: Value,
        done: Value,
        control: data.View,
    ) -> Value:
        """Program memory, instruction register, loop head; where the instruction may branch to."""
        depth = self._config.strider_depth
        m.submodules.program = program = Memory(shape=INSTRUCTION, depth=depth, init=[], attrs=UNSHARED)
        writer, straight, branching = program.write_port(), program.read_port(), program.read_port()
        m.d.comb += [
            writer.en.eq(self.image.program),
            writer.addr.eq(self.image.address),
            writer.data.eq(self.image.instruction),
        ]
        bits = layouts.bits_for(depth)
        # of the instruction, of the one behind it, of the loop's first
        address, after, head = (Signal(bits, name=name) for name in ("address", "after", "head"))
        absolute = Cat(instruction.third, instruction.second, instruction.first)[:bits]
        relative = (address + instruction.third.as_signed())[:bits]
        target = Signal(bits)
        m.d.comb += target.eq(Mux(instruction.loop, head, Mux(instruction.relative, relative, absolute)))

        # both words behind the next instruction are read, for which of the two it was may be known late
        following = Signal(INSTRUCTION)
        branched = Signal()
        past_target, past_after = (control.target + 1)[:bits], (after + 1)[:bits]
        m.d.comb += [straight.addr.eq(past_after), branching.addr.eq(Mux(decode, target, past_target))]
        m.d.sync += branched.eq(taken & done)
        with m.If(decode):
            m.d.sync += following.eq(Mux(branched, branching.data, straight.data))
        with m.If(done):
            m.d.sync += [
                instruction.eq(Mux(taken, branching.data, following)),
                address.eq(Mux(taken, control.target, after)),
                after.eq(Mux(taken, past_target, past_after)),
            ]
            with m.If(control.head):
                m.d.sync += head.eq(after)
        with m.If(idle):
            # the first instruction waits in the register, the second is read as the page arrives
            m.d.comb += branching.addr.eq(0)
            m.d.sync += [instruction.eq(branching.data), address.eq(0), after.eq(begin), head.eq(0)]
        return target

    @staticmethod
    def _decode(
        m: Module, instruction: data.View, control: data.View, mask: Signal, *, target: Value, runaway: Value
    ) -> None:
        action, third = instruction.action, instruction.third
        is_ = {kind: action == kind for kind in Action}
        bits = third & (is_[Action.READ] | is_[Action.EXTRACT]).replicate(len(third))
        m.d.sync += [
            control.wrong.eq(instruction.wrong | runaway),
            control.number.eq(Mux(runaway, Fault.RUNAWAY, Cat(third, instruction.second))),
            control.target.eq(target),
            control.shift.eq(instruction.second),
            control.extra.eq(instruction.second),
            control.result.eq(instruction.result),
            control.clean.eq(instruction.immediate & ~instruction.zero),
            control.writes.eq(is_[Action.SUM] | is_[Action.EXTRACT]),
            control.late.eq(is_[Action.READ] | is_[Action.MULTIPLY] | is_[Action.COUNT]),
            control.finish.eq(is_[Action.COUNT] | is_[Action.END] | is_[Action.SKIP]),
            control.quick.eq(is_[Action.NOTHING] | is_[Action.SUM] | is_[Action.EXTRACT] | is_[Action.HEAD]),
            mask.eq(~(Const(-1, len(mask)) << bits)[: len(mask)]),
        ]
        for name in ("equal", "less", "otherwise", "subtract"):
            m.d.sync += control[name].eq(instruction[name])
        for kind in ("extract", "read", "multiply", "count", "push", "end", "skip", "head"):
            m.d.sync += control[kind].eq(is_[Action[kind.upper()]])

    @staticmethod
    def _execute(m: Module, control: data.View, a: Value, b: Value, mask: Value) -> tuple[Value, Value]:
        """Whether it branches, and the result: bits of a, or a sum, of which `cln` clears the low bits.

        A branch's operand b comes inverted, so a + b + 1 is the difference, whose carry says a >= b, and equal operands
        differ in every bit.
        """
        total = Signal(33)
        m.d.comb += total.eq((Cat(control.subtract, a) + Cat(control.subtract, b))[1:])
        holds = (control.equal & (a ^ b).all()) | (control.less & ~total[32])
        kept = ~(control.extract.replicate(MAX_ALIGNMENT) | (control.clean.replicate(MAX_ALIGNMENT) & b))
        keep = Cat(kept[:MAX_ALIGNMENT], (~control.extract).replicate(32 - MAX_ALIGNMENT))
        return holds ^ control.otherwise, ((a >> control.shift) & mask) | (total[:32] & keep)

    @staticmethod
    def _finish(m: Module, control: data.View, word: Value, a: Value, b: Value, mask: Value, *, begins: Value) -> Value:
        """The result at the end of finish: of `readB`, `mul` or `ctl pop`; two of the three are zero."""
        # the upper half is the sum so far; the lower one is, from the top, what is done of the product, then what is
        # left of the factor b
        product = Signal(2 * FACTOR_BITS, reset_less=True)
        counts = [Signal(4, name=f"ones_{k}", reset_less=True) for k in range(4)]
        total = product[FACTOR_BITS:] + (a[:FACTOR_BITS] & product[0].replicate(FACTOR_BITS))
        m.d.sync += product.eq(Cat(product[1:FACTOR_BITS], total))
        with m.If(begins):
            m.d.sync += product.eq(b[:FACTOR_BITS])
        for k, count in enumerate(counts):
            m.d.sync += count.eq(sum(b[8 * k : 8 * k + 8][j] for j in range(8)))
        with m.If(~control.multiply):
            m.d.sync += product.eq(0)
        with m.If(~control.count):
            m.d.sync += [count.eq(0) for count in counts]
        return (word & mask) | product | sum(counts[1:], counts[0])[:6]
