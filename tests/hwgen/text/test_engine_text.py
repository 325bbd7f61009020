"""Engine programs as text: every instruction survives the way out and back, and bad text is refused with its line."""

from __future__ import annotations

import random

import pytest

from hwgen.spec.engine import FIELDS, Instruction, Mask, Opcode, Section, Source
from hwgen.spec.engine_text import disassemble
from tests.assembly.engine import AssemblyError, assemble

PROGRAM = """\
tuple:
    mul s40+i+4o <- t0+i+5o, s8+i inner=4 outer=16
    add s40+4o <- s40+4o, lane^8 wait=6 outer=16 tail_a=1 tail_b=1 tail=6
    low s40 <- s41, s42, thread^2
    add s200+i+8o <- s40+i+8o, s44+i+8o inner=4 outer=8 mask=pair
    end wait=9
merge:
push:
    mul s300+i+level <- s200+i, s0 inner=4
    setx x500+2o <- t6+7o outer=16 mask=single
    mov s60+i+2o <- s100+i+x inner=2 outer=16
    mov s100+i+x <- s60+i+2o inner=2 outer=16 mask=single
    end wait=9
"""


def test_text_is_assembled_to_the_fields_it_names() -> None:
    program, sections = assemble(PROGRAM)
    assert sections == {Section.TUPLE: 0, Section.MERGE: 5, Section.PUSH: 5}
    assert program[0] == Instruction(
        op=Opcode.MUL, inner=4, outer=16, dst=40, dst_outer=4, a_tuple=1, a_outer=5, b=8
    )  # fmt: skip
    assert program[1] == Instruction(
        op=Opcode.ADD, wait=6, outer=16, dst=40, dst_inner=0, dst_outer=4, a=40, a_inner=0, a_outer=4,
        b=40, b_inner=0, b_outer=4, source=Source.LANE_XOR, distance=3, tail_a=1, tail_b=1, tail=6,
    )  # fmt: skip
    assert program[2] == Instruction(
        op=Opcode.LOW, dst=40, dst_inner=0, a=41, a_inner=0, b=42, b_inner=0, source=Source.THREAD_XOR, distance=1
    )
    assert [instruction.crossed for instruction in program[:4]] == [False, False, True, False]
    assert program[3].mask is Mask.PAIR
    assert program[5].dst_level == 1
    assert program[6] == Instruction(
        op=Opcode.SETX, outer=16, dst=500, dst_inner=0, dst_outer=2, a=6, a_tuple=1, a_inner=0, a_outer=7, b_inner=0,
        mask=Mask.SINGLE,
    )  # fmt: skip
    assert (program[7].a_index, program[7].dst_index) == (1, 0)
    assert (program[8].a_index, program[8].dst_index) == (0, 1)
    assert program[9] == Instruction(op=Opcode.END, wait=9, dst_inner=0, a_inner=0, b_inner=0)
    assert disassemble(program, sections) == PROGRAM


def test_every_field_survives() -> None:
    rng = random.Random(1)
    program = [Instruction(op=op) for op in Opcode]
    for _ in range(500):
        values = {f.name: rng.randrange(1 << f.width) if rng.random() < 0.4 else 0 for f in FIELDS}
        values |= {"op": rng.choice(list(Opcode)), "mask": rng.choice(list(Mask)), "source": rng.choice(list(Source))}
        program.append(Instruction(**values))
    sections = {Section.INIT: 0, Section.EPOCH: 7}
    assert assemble(disassemble(program, sections)) == (tuple(program), sections)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tuple:\n  frob s1 <- s2", "line 2: no operation 'frob'; there are end, mov, add"),
        ("add s1 <- s2, lane^3", "line 1: an exchange flips one bit, so 'lane\\^3' must name a power of two"),
        ("add s1 <- s2, s3+level", "line 1: operand b cannot be 's3\\+level'"),
        ("add x1 <- s2", "line 1: operand dst cannot be 'x1'"),
        ("setx s1 <- s2", "line 1: operand dst cannot be 's1'"),
        ("add s1 <- s2, s3+x", "line 1: operand b cannot be 's3\\+x'"),
        ("add t1 <- s2", "line 1: operand dst cannot be 't1'"),
        ("add s1 <- s2 inner=99999", "line 1: inner must be from 0 to 16383, not 99999"),
        ("add s1 <- s2 depth=1", "line 1: no field 'depth'; there are wait, inner"),
        ("add s1 <- s2 mask=all", "line 1: mask cannot be 'all'"),
        ("prologue:", "line 1: a section is one of init, tuple, .*, tuple32, not 'prologue'"),
        ("add s1 <-", "line 1, column 10: not an instruction or a label: 'add s1 <-'"),
    ],
)
def test_bad_text_is_refused_with_its_line(text: str, message: str) -> None:
    with pytest.raises(AssemblyError, match=f"^{message}"):
        assemble(text)
