"""Strider programs as text: every word survives the way out and back, and bad text is refused where it is wrong."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwgen.spec.strider import WORD_BITS, Condition, Control, Fault, Instruction, Opcode
from hwgen.spec.strider_text import disassemble, instruction_text, is_valid
from tests.assembly.strider import AssemblyError, assemble

PROGRAM = """\
    ins %t0, 24
    bentr
at_2:
    readB %t0, 4, %t4
    extrBi %t4, 0, 15
    beq %t4, %cr0, at_6
    writeB %t4, 65
at_6:
    ctl skip
    ctl pop, %cr31, %t31
    bexit ge, %t0, %t1
    jmp at_2
    blt %t1, %t2, -20
    ctl fail, LINE_POINTER
    ctl fail, 200
    ctl end
"""


def test_text_is_assembled_to_the_fields_it_names() -> None:
    program = assemble(PROGRAM)
    assert program == (
        Instruction(Opcode.INS, 0, 0, 24),
        Instruction(Opcode.BENTR),
        Instruction(Opcode.READB, 0, 4, 4),
        Instruction(Opcode.EXTRBI, 4, 0, 15),
        Instruction(Opcode.BEQ, 4, 32, 2),
        Instruction(Opcode.WRITEB, 4, 1, 1),
        Instruction(Opcode.CTL, Control.SKIP),
        Instruction(Opcode.CTL, Control.POP, 63, 31),
        Instruction(Opcode.BEXIT, Condition.GE, 0, 1),
        Instruction(Opcode.JMP, 0, 0, 2),
        Instruction(Opcode.BLT, 1, 2, 64 - 20),
        Instruction(Opcode.CTL, Control.FAIL, 0, Fault.LINE_POINTER),
        Instruction(Opcode.CTL, Control.FAIL, 3, 8),
        Instruction(Opcode.CTL, Control.END),
    )
    assert disassemble(program) == PROGRAM


def test_comments_labels_case_and_number_bases() -> None:
    text = "# a comment\n\nfirst: second:  INS %t3, 0x1f ; another\n\tbeq %t0,%t0,first\n jmp second\nlast:"
    assert assemble(text) == (
        Instruction(Opcode.INS, 3, 0, 31),
        Instruction(Opcode.BEQ, 0, 0, 63),
        Instruction(Opcode.JMP),
    )
    assert assemble("") == ()
    assert assemble("beq %t0, %t1, end\nend:") == (Instruction(Opcode.BEQ, 0, 1, 1),)


@given(st.lists(st.integers(0, (1 << WORD_BITS) - 1), max_size=40))
def test_any_words_round_trip(words: list[int]) -> None:
    program = tuple(Instruction.decode(word) for word in words)
    assert assemble(disassemble(program)) == program


def test_every_opcode_round_trips_with_small_fields() -> None:
    rnd = random.Random(1)
    program = tuple(Instruction(op, *(rnd.randrange(5) for _ in range(3))) for op in Opcode for _ in range(60))
    assert sum(map(is_valid, program)) > 400
    assert assemble(disassemble(program)) == program


@pytest.mark.parametrize("field", ["a", "b", "c"])
@pytest.mark.parametrize("value", [64, -1])
def test_a_field_has_six_bits(field: str, value: int) -> None:
    with pytest.raises(ValueError, match=f"field {field} of AD must be from 0 to 63, not {value}"):
        Instruction(Opcode.AD, **{field: value}).encode()


def test_words_that_the_machine_refuses_are_words() -> None:
    assert instruction_text(Instruction(Opcode.READB, 0, 5, 0)) == ".word 0x000140"
    assert instruction_text(Instruction(Opcode.AD, 0, 0, 32)) == ".word 0x180020"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("  frob %t0", "line 1: no operation 'frob'; there are readB, extrB, writeB"),
        ("readB %t0, 5, %t1", "expected a number from 1 to 4, found '5'"),
        ("bentr\nreadB %t0, %t1, %t1", "line 2: expected a number of bytes from 1 to 4, found '%t1'"),
        ("ad %t0, %t1, %cr1", "%cr1 cannot be written; expected a register that can be written"),
        ("ad %t0, %t32, %t1", "registers are %t0 … %t31 and %cr0 … %cr31"),
        ("ad %t0, 3, %t1", "expected a register (%t…, %cr…), found '3'"),
        ("ins %t0, 4096", "expected a number from 0 to 4095, found '4096'"),
        ("ad %t0, %t1", "ad needs a register that can be written (%t0 … %t31) next"),
        ("bentr 3", "bentr takes no operand here, found '3'"),
        ("jmp nowhere", "no label 'nowhere' in this program"),
        ("a: bentr\na: bentr", "line 2: label 'a' is already at instruction 0"),
        ("beq %t0, %t1, +32", "a branch reaches from -32 to +31, this is +32; use jmp"),
        ("beq %t0, %t1, 3", "expected a label or an offset such as +2, found '3'"),
        ("a: bentr\n" + "bentr\n" * 40 + "beq %t0, %t1, a", "line 42: a branch reaches from -32 to +31, this is -41"),
        ("bexit gt, %t0, %t1", "expected a condition, one of eq, ne, lt, ge, found 'gt'"),
        ("ctl fail, NONE", "expected a fault, one of out_of_page, page_header"),
        ("ctl fail, 0", "expected a number from 1 to 255, found '0'"),
        (".word 0x400000", "expected a number from 0 to 4194303, found '0x400000'"),
        ("readB %t0 4, %t1", "line 1: expected `operation operand, operand …`, `label:` or a comment"),
        ("readB %t0, 4, $", "line 1: expected `operation operand, operand …`, `label:` or a comment"),
    ],
)
def test_bad_text_is_refused_with_the_reason(text: str, message: str) -> None:
    with pytest.raises(AssemblyError) as caught:
        assemble(text)
    assert message in str(caught.value)


def test_the_caret_stands_under_what_is_wrong() -> None:
    with pytest.raises(AssemblyError) as caught:
        assemble("bentr\n\tad %t0, %t40, %t1  # too far\n")
    assert str(caught.value).splitlines()[1:] == ["    \tad %t0, %t40, %t1  # too far", "    \t        ^"]
