"""What the program memories of the Striders hold: instructions as the host writes them, translated once on the way in.

In: a word of `hwgen.spec.strider`. Out: the same instruction with its operands in fixed places, its checks made and its
choices as single bits. Doing this before the memory, once for all Striders, takes it out of each Strider's area and
shortest cycle. A translated word has 36 bits, as many as a row of block RAM, so it takes no more memory either.
"""

from enum import IntEnum

from amaranth.hdl import C, Cat, Module, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hwgen.rtl.access.layouts import exceeds
from hwgen.rtl.delay import delayed
from hwgen.spec.config import MachineConfig
from hwgen.spec.strider import TEMPORARIES, WORD_BITS, Condition, Control, Fault, Opcode

FIELD_BITS = 6
MAX_ALIGNMENT = 7
"""Of `cln`: 2**7."""


class Action(IntEnum):
    """What an instruction does with its operands."""

    NOTHING = 0  # but, perhaps, branch
    SUM = 1
    EXTRACT = 2
    READ = 3
    MULTIPLY = 4
    COUNT = 5
    PUSH = 6
    END = 7
    SKIP = 8
    HEAD = 9


INSTRUCTION = data.StructLayout(
    {
        "third": FIELD_BITS,  # or bits that READ and EXTRACT keep
        "second": FIELD_BITS,  # register of operand b; of EXTRACT the lowest bit kept; of READ bytes behind the first
        "first": FIELD_BITS,  # register of operand a
        "result": (TEMPORARIES - 1).bit_length(),
        "action": 4,
        "wrong": 1,  # refused, `second` and `third` being the fault
        "subtract": 1,  # b comes inverted
        "immediate": 1,  # b is the number that `second` and `third` make
        "zero": 1,  # a is 0
        "relative": 1,  # a branch goes by `third`
        "loop": 1,  # a branch goes to the loop's head; else to the address that the three fields make
        "equal": 1,  # branches if the operands are equal
        "less": 1,  # branches if a is less
        "otherwise": 1,  # branches if neither condition that it names holds
    }
)
"""A translated instruction."""


class Translator(wiring.Component):
    """The instruction is there a cycle after the word."""

    def __init__(self, config: MachineConfig) -> None:
        self._config = config
        super().__init__({"word": In(WORD_BITS), "instruction": Out(INSTRUCTION)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        c, b, a, op = (self.word[low : low + size] for low, size in ((0, 6), (6, 6), (12, 6), (18, 4)))
        out = Signal(INSTRUCTION)
        number = Cat(c, b)
        bad = Signal()
        m.d.comb += [out.first.eq(a), out.second.eq(b), out.third.eq(c), out.result.eq(c)]

        def acts(operation: Opcode | Control, action: Action, *problems: Value, **fields: object) -> None:
            with m.Case(operation):
                m.d.comb += out.action.eq(action)
                m.d.comb += [out[name].eq(value) for name, value in fields.items()]
                if problems:
                    m.d.comb += bad.eq(Cat(*problems).any())

        def bits_of(octets: Value) -> Value:
            return Cat(C(0, 3), octets)

        no_bits = [b[5], ~c.any(), c[5] & c[:5].any()]
        no_descriptor = number[self._config.descriptor_depth.bit_length() - 1 :].any()
        low = Cat(exceeds(b[:3], k) for k in range(MAX_ALIGNMENT))
        cleared = {"third": low[:FIELD_BITS], "second": low[FIELD_BITS:]}
        # it goes back to the head unless the condition holds
        equal = (a[:2] == Condition.EQ) | (a[:2] == Condition.NE)
        otherwise = (a[:2] == Condition.EQ) | (a[:2] == Condition.LT)
        back = {"subtract": 1, "equal": equal, "less": ~equal, "otherwise": otherwise}
        with m.Switch(op):
            acts(Opcode.READB, Action.READ, _constant(c), _no_word(b), second=(b - 1)[:2], third=bits_of(b[:3]))
            shifts = {"second": bits_of(b[:2]), "third": bits_of(c[:3]), "result": a}
            acts(Opcode.EXTRB, Action.EXTRACT, _constant(a), b[2:].any(), _no_word(c), **shifts)
            acts(Opcode.EXTRBI, Action.EXTRACT, _constant(a), *no_bits, result=a)
            acts(Opcode.WRITEB, Action.PUSH, no_descriptor)
            acts(Opcode.CLN, Action.SUM, _constant(c), b[3:].any(), immediate=1, **cleared)
            acts(Opcode.INS, Action.SUM, _constant(a), immediate=1, zero=1, result=a)
            acts(Opcode.AD, Action.SUM, _constant(c))
            acts(Opcode.SUB, Action.SUM, _constant(c), subtract=1)
            acts(Opcode.MUL, Action.MULTIPLY, _constant(c))
            acts(Opcode.BENTR, Action.HEAD)
            acts(Opcode.BEXIT, Action.NOTHING, a[2:].any(), loop=1, first=b, second=c, **back)
            acts(Opcode.BEQ, Action.NOTHING, subtract=1, relative=1, equal=1)
            acts(Opcode.BNE, Action.NOTHING, subtract=1, relative=1, equal=1, otherwise=1)
            acts(Opcode.BLT, Action.NOTHING, subtract=1, relative=1, less=1)
            acts(Opcode.JMP, Action.NOTHING, otherwise=1)
            with m.Case(Opcode.CTL), m.Switch(a):
                acts(Control.END, Action.END)
                acts(Control.SKIP, Action.SKIP)
                acts(Control.FAIL, Action.NOTHING, b[2:].any() | ~number.any(), wrong=1)
                acts(Control.POP, Action.COUNT, _constant(c))
                with m.Default():
                    m.d.comb += bad.eq(1)
        # whether it is refused is known last
        m.d.comb += self.instruction.eq(delayed(m, out, 1, name="plain"))
        with m.If(delayed(m, bad, 1, name="refused")):
            m.d.comb += [
                self.instruction.wrong.eq(1),
                Cat(self.instruction.third, self.instruction.second).eq(Fault.BAD_INSTRUCTION),
            ]
        return m


def _constant(field: Value) -> Value:
    """Whether a field names a %cr register, which programs do not write."""
    return field[(TEMPORARIES - 1).bit_length()]


def _no_word(field: Value) -> Value:
    """Whether a number of bytes is not from 1 to 4."""
    return ~field.any() | field[3:].any() | (field[2] & field[:2].any())
