"""The checker of programs finds every kind of breach of docs/machine.md."""

from __future__ import annotations

import random
import re
from dataclasses import replace

import pytest

from dana.compiler.check.verify import check, find_problems
from dana.compiler.compile import compile_engine
from dana.errors import InternalError
from hwgen.spec import cycles
from hwgen.spec.config import ALL_FUNCTIONS, FUNCTIONS, MachineConfig, functions_mask
from hwgen.spec.engine import Instruction, Opcode, Section
from hwgen.spec.timing import DIVIDE_INTERVALS
from tests.assembly.engine import assemble
from tests.compiler.rules import ROOMY, RandomRule
from tests.oracles import machine as oracle

CONFIG = MachineConfig(
    threads=2, clusters=1, scratch_depth=64, tuple_depth=32, program_depth=16, index_depth=4, crossed=0
)
WAIT = cycles.RESULT_LATENCY


def problems(text: str, *, levels: int = 0, level_stride: int = 0, config: MachineConfig = CONFIG) -> list[str]:
    program, sections = assemble(text)
    return list(
        find_problems(
            program, sections, config, group=2, tuple_rows=4, level_stride=level_stride, levels=levels, image_rows=4
        )
    )


LEGAL = f"""\
tuple:
    mul s8+i+4o <- t0+i+4o, s0+i inner=4 outer=2
    add s8+i+4o <- s8+i+4o, s8+i+4o wait={WAIT - 8} inner=4 outer=2
    sigmoid s16 <- s8 wait={WAIT - 8} scalar=1
    add s17 <- s16, s16 wait={cycles.SPECIAL_LATENCY[Opcode.SIGMOID] - 1}
    add s18 <- s17, lane^4 wait={WAIT - 1}
    end wait={WAIT - 2}
"""


def test_a_legal_program_has_no_problems() -> None:
    assert problems(LEGAL) == []


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        (f"wait={WAIT - 8} inner", f"wait={WAIT - 9} inner", "reads row 8 before its result is there"),
        (f"s16 <- s8 wait={WAIT - 8}", f"s16 <- s8 wait={WAIT - 9}", "reads row 8 before its result is there"),
        (f"lane^4 wait={WAIT - 1}", f"lane^4 wait={WAIT - 2}", "reads row 17 before its result is there"),
        (f"end wait={WAIT - 2}", f"end wait={WAIT - 3}", "ends in cycle"),
        ("add s18 <- s17", "add s18 <- s19", "reads row 19, which nothing has written"),
        ("t0+i+4o", "t1+i+4o", "reads row 8 of 8"),
        ("s8+i+4o <- t0", "s60+i+4o <- t0", "writes row 67 of 64"),
        ("lane^4", "lane^8", "2**distance of an exchange"),
        ("lane^4", "thread^2", "2**distance of an exchange"),
        ("sigmoid s16 <- s8 ", "sigmoid s16 <- s8, lane^4 ", "an exchange has an operation of two operands"),
        ("add s18 <- s17, lane^4", "mov s18 <- s17, lane^4", "an exchange has an operation of two operands"),
        ("add s18 <- s17, lane^4", "low s18 <- s17, s16", "LOW and HIGH need an exchange"),
        ("s17, lane^4", "s17, s16, lane^4", "the machine has crossed exchanges"),
        ("add s18 <- s17, lane^4", "high s18 <- s17, lane^4", "the machine has the operation"),
        ("s17, lane^4", "s17, s19, lane^4", "reads row 19, which nothing has written (b)"),
        ("s17, lane^4", "s17, t0, lane^4", "an exchange has a_tuple = b_tuple"),
        ("lane^4", "lane^4 mask=pair", "the mask of an exchange is not PAIR"),
        ("lane^4", "lane^4 scalar=1", "scalar is for special functions"),
        ("lane^4", "lane^4 tail_a=1 tail=9", "`tail` is at most the number of lanes"),
        (f"end wait={WAIT - 2}\n", "", "has no END"),
        ("tuple:", "epoch:", "tuple memory is read in section `tuple` alone"),
        ("tuple:", "epoch:", "there is no section tuple"),
        (
            "tuple:",
            "tuple:\n    end wait=20\nepoch:\n    mov s20 <- s0 mask=single\n",
            "epoch, instruction 1: masks tuples",
        ),
        ("s17 <- s16, s16", "s17+level <- s16, s16", "levels of the merge stack are for"),
        ("inner=4 outer=2\n", "inner=4 outer=0\n", "loops run at least once"),
    ],
)
def test_a_breach_is_found(old: str, new: str, problem: str) -> None:
    assert old in LEGAL
    assert any(problem in found for found in problems(LEGAL.replace(old, new)))


def test_functions_that_a_machine_lacks_are_found() -> None:
    for function in FUNCTIONS:
        text = LEGAL.replace(
            "sigmoid s16 <- s8", f"{function.name.lower()} s16 <- s8" + ", s8" * (function is Opcode.DIV)
        )
        missing = "the machine has the operation"
        with_it = replace(CONFIG, functions=functions_mask([function]))
        without = replace(CONFIG, functions=ALL_FUNCTIONS - functions_mask([function]))
        assert not any(missing in found for found in problems(text, config=with_it))
        assert any(missing in found for found in problems(text, config=without))


def test_two_results_in_a_cycle_are_found() -> None:
    gap = cycles.SPECIAL_LATENCY[Opcode.SIGMOID] - WAIT - 1
    text = "tuple:\n    sigmoid s8 <- s0 wait=1 scalar=1\n    add s9 <- s0, s0 wait={}\n    end wait=30\n"
    assert problems(text.format(gap - 1)) == []
    assert problems(text.format(gap)) == [
        f"tuple, instruction 2: two results are written in cycle {1 + gap + WAIT} of the section"
    ]


def test_an_overtaken_result_is_found() -> None:
    text = "tuple:\n    sigmoid s8 <- s0 wait=1 scalar=1\n    add s8 <- s0, s0 wait=1\n    end wait=30\n"
    assert problems(text) == ["tuple, instruction 1: overtakes the result of an earlier instruction in row 8"]


def test_an_instruction_that_reads_what_it_has_just_written_is_found() -> None:
    text = "tuple:\n    mov s8+i <- s0+i inner=4\n    add s9+i <- s8+i, s8+i wait=9 inner=3\n    end wait=20\n"
    assert any("reads a row that it has just written" in found for found in problems(text))


INDEXED = f"""\
tuple:
    setx x2+1o <- t3+4o outer=2 mask=single
    mov s8+i+2o <- s0+x wait={WAIT - 2} inner=2 outer=2
    mov s2+x <- s9+2o wait={WAIT - 2} outer=2 mask=single
    setx x2+1o <- t3+4o outer=2 mask=single
    end wait={WAIT - 2}
"""


def test_a_legal_program_with_indices_has_no_problems() -> None:
    assert problems(INDEXED) == []


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        (f"s0+x wait={WAIT - 2}", f"s0+x wait={WAIT - 3}", "a row that uses an index issues"),
        (f"s9+2o wait={WAIT - 2}", f"s9+2o wait={WAIT - 3}", "reads row 11 before its result is there"),
        (
            "x2+1o <- t3+4o outer=2 mask=single\n    mov",
            "x2+1o <- t3 wait=1\n    mov",
            "an index is one that a SETX before it",
        ),
        ("x2+1o", "x2+63o", "writes row 65 of 64"),
        ("x2+1o", "x5+1o", "reads row 4, which nothing has written"),
        ("x2+1o", "x3+1o", "changes a part of row 4, which nothing has written"),
        ("s2+x <- s9+2o", "s2+x <- s2+x", "may read a row that it writes"),
        ("s2+x <- s9+2o", "s2+level+x <- s9+2o", "an operand with an index has no level"),
        ("s0+x", "t0+x", "an operand with an index has no level"),
        ("outer=2 mask=single", "outer=5 mask=single", "need an index file of as many entries as they name"),
        ("mask=single", "mask=pair", "the mask is NONE or SINGLE where"),
        ("x2", "x0", "the bound of SETX, dst, is from 1 to scratch_depth"),
        (f"end wait={WAIT - 2}", f"end wait={WAIT - 3}", "ends in cycle"),
    ],
)
def test_a_breach_with_indices_is_found(old: str, new: str, problem: str) -> None:
    assert old in INDEXED
    found = problems(INDEXED.replace(old, new))
    assert any(re.search(problem, line) for line in found), found


def test_turns_take_their_least_time() -> None:
    text = "tuple:\n    mov s8 <- s0\n    end wait=20\n"
    assert problems(text) == ["tuple, instruction 0: takes 1 cycles"]


def test_merge_and_push_come_with_levels() -> None:
    assert "sections merge and push must exist" in problems(LEGAL, levels=1)[0]
    text = LEGAL + "merge:\n    add s8+i <- s20+i+level, s8+i inner=2\n    end wait=20\n"
    text += "push:\n    mov s20+i+level <- s8+i inner=2\n    end wait=20\n"
    assert problems(text, levels=3, level_stride=2) == []
    assert any("writes row 65 of 64" in found for found in problems(text, levels=23, level_stride=2))


@pytest.mark.parametrize("section", ["push", "merge", "batch", "epoch"])
def test_tuples_are_masked_where_they_are_the_thread_s(section: str) -> None:
    """In a batch's own section only where each batch is one round."""
    masked = f"{section}:\n    mov s20 <- s0 mask=single wait=1\n    end wait=20\n"
    text = "tuple:\n    mov s8 <- s0 mask=single wait=1\n    end wait=20\n" + masked
    for levels in (0, 3):
        found = [line for line in problems(text, levels=levels, level_stride=2) if "masks tuples" in line]
        allowed = section == "batch" and levels == 0
        assert found == ([] if allowed else [f"{section}, instruction 2: masks tuples"])


@pytest.mark.parametrize(
    ("rows", "problem"), [(8, []), (9, ["two rounds of 2 tuples of 9 rows must fit 32 rows of tuple memory"])]
)
def test_tuple_memory_holds_two_halves(rows: int, problem: list[str]) -> None:
    """Of groups of two tuples: one half is filled while the engine reads the other."""
    program, sections = assemble(LEGAL)
    sizes = {"group": 2, "tuple_rows": rows, "level_stride": 0, "levels": 0, "image_rows": 4}
    assert list(find_problems(program, sections, CONFIG, **sizes)) == problem


@pytest.mark.parametrize("seed", range(30))
def test_a_wait_taken_away_from_a_compiled_program_is_found(seed: int) -> None:
    """The schedules are tight: no instruction's wait can be made shorter by a cycle."""
    rng = random.Random(seed)
    graph = RandomRule(seed).graph(batch=4)
    config = MachineConfig(threads=2, **ROOMY)
    compiled = compile_engine(graph, config, max_tuples=100)
    draft = compiled.draft
    waiting = [k for k, instruction in enumerate(compiled.program.instructions) if instruction.wait]
    for k in rng.sample(waiting, min(5, len(waiting))):
        program = list(compiled.program.instructions)
        program[k] = replace(program[k], wait=program[k].wait - 1)
        with pytest.raises(InternalError, match="the compiler made an illegal program"):
            check(
                replace(compiled.program, instructions=tuple(program)), draft.memory, draft.inputs, draft.target, config
            )


def test_section_lengths_agree_with_the_oracle() -> None:
    body = (
        Instruction(op=Opcode.ADD, wait=3, inner=5, outer=2),
        Instruction(op=Opcode.DIV, inner=2, scalar=1),
        Instruction(op=Opcode.EXP, inner=2),
        Instruction(op=Opcode.END, wait=4),
    )
    for interval in DIVIDE_INTERVALS:
        length = MachineConfig(divide_interval=interval).section_length(body)
        assert length == oracle.section_length(body, interval) == 13 + 2 * interval + 16 + 5
    assert Section.TUPLE in assemble(LEGAL)[1]
