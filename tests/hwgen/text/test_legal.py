"""Bundles that no hardware is loaded with: each rule has a program that breaks it, and a word of why."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from hwgen.spec import columns, legal, load, strider
from hwgen.spec.bundle import Bundle, BundleError, Symbol
from hwgen.spec.config import MachineConfig
from hwgen.spec.cycles import INDEX_LATENCY
from hwgen.spec.engine import Instruction, Opcode, Section
from tests.assembly.engine import assemble
from tests.hwgen.engine.programs import random_bundle

CONFIG = MachineConfig(threads=4, scratch_depth=128, tuple_depth=64, program_depth=128, index_depth=8)
BASE = random_bundle(np.random.default_rng(1), CONFIG, batch=4)


def program(line: str, **config: int) -> Bundle:
    """A Bundle that runs the lines for each round."""
    instructions, sections = assemble(f"tuple:\n {line}\n end\n")
    return replace(BASE, program=instructions, sections=sections, levels=0, config=replace(CONFIG, **config))


BROKEN = {
    "loops": "mov s10 <- s0 inner=0",
    "operation": "log s10 <- s0",
    "tail": "add s10 <- s0, s1 tail_a=1 tail=9",
    "half": "mov s10 <- t0",
    "level": "mov s10+level <- s0",
    "choice": "high s10 <- s0, s1",
    "exchange": "movc s10 <- s0, s1, lane^1",
    "distance": "add s10 <- s0, s1, thread^4",
    "memory": "add s10 <- s0, t1, thread^2",
    "exchange_level": "add s10 <- s0+level, s0, thread^2",
    "exchange_mask": "add s10 <- s0, thread^2 mask=pair",
    "crossed": "add s10 <- s0, s1, lane^1",
    "index_file": "setx x4+2o <- t0+1o, s0 outer=9",
    "index_function": "exp s10 <- s0+x",
    "index_source": "add s10+x <- s0, lane^1",
    "index_mask": "add s10+x <- s0, s1 mask=pair",
    "index_operand": "mov s10 <- s0+level+x",
    "setx_inner": "setx x4+2o <- t0+i, s0 inner=2",
    "setx_bound": "setx x0+2o <- t0, s0",
    "setx_reach": "setx x65+2o <- t0, s0",
    "setx_fields": "setx x4+2o <- t0, s0 tail_a=1 tail=3",
    "ordered_rows": "add s10+x <- s11+x, s1 mask=single each=1 ordered=1",
    "ordered_section": "add s10+x <- s10+x, s1 each=1 ordered=1",
    "put_section": "put o4 <- s0",
    "put_fields": "put o4 <- s0 mask=pair",
}
MORE = [
    "low s10 <- s0, s1",
    *(f"{op} s10 <- s0, thread^1" for op in ("mov", "neg", "abs", "exp", "sqrt")),
    "div s10 <- s0, s1, lane^1",
    "add s10 <- s0, s1, lane^8",
    "add s10 <- t0, s1, lane^2",
    "mov s10 <- t0+x",
    "mov s10+level+x <- s0",
]


def test_every_rule_has_a_program_that_breaks_it() -> None:
    assert sorted(BROKEN) == sorted(rule.name for rule in legal.RULES)


@pytest.mark.parametrize("rule", legal.RULES, ids=lambda rule: rule.name)
def test_what_breaks_a_rule_breaks_it_alone_or_first(rule: legal.Rule) -> None:
    section = Section.BATCH if rule.name in ("half", "put_section") else Section.TUPLE
    config = replace(CONFIG, crossed=int(rule.name != "crossed"), functions=int(rule.name != "operation") * 63)
    instructions, _ = assemble(f"tuple:\n {BROKEN[rule.name]}\n end\n")
    assert rule.says in [says for _, says in legal.broken(instructions, section, config)]
    if section is Section.TUPLE:
        with pytest.raises(BundleError, match=r"^instruction 0 \(\w+ in section tuple\) must keep the rule"):
            load.bundle_blocks(program(BROKEN[rule.name], crossed=config.crossed, functions=config.functions))


@pytest.mark.parametrize("line", MORE)
def test_so_is_whatever_else_breaks_one(line: str) -> None:
    with pytest.raises(BundleError, match=r"^instruction 0 "):
        load.bundle_blocks(program(line))


@pytest.mark.parametrize(
    "line",
    [
        "low s10 <- s0, s1, lane^4",
        "high s10 <- t0, thread^2 mask=single",
        "eq s10+i <- s0+i, s2+i, lane^1 inner=2 tail_a=1 tail_b=1 tail=3",
        f"setx x64+2o <- t0+1o, s7 outer=8 mask=single\n mov s10+i+x <- s20+i inner=2 wait={INDEX_LATENCY - 8}",
        f"setx x4+2o <- t0, s0 outer=2\n exp s9 <- s8 scalar=1\n mov s10+1o <- s20+x wait={INDEX_LATENCY - 3} outer=2",
        "setx x4+2o <- t0, s0\n div s9 <- s8, s7\n mov s10 <- s20+x",
        f"setx x4+2o <- t0, s0 outer=8\n setx x9+2o <- t1, s0 wait={INDEX_LATENCY - 1} outer=8",
    ],
)
def test_what_keeps_them_is_written(line: str) -> None:
    assert len(list(load.bundle_blocks(program(line)))) > 10


@pytest.mark.parametrize(
    ("number", "rule", "lines"),
    [
        (0, legal.UNSET, "mov s10 <- s20+x"),
        (1, legal.UNSET, "setx x4+2o <- t0, s0 outer=2\n add s10+x <- s20, s21 wait=20 outer=3"),
        (1, legal.EARLY, f"setx x4+2o <- t0, s0 outer=8\n mov s10 <- s20+x wait={INDEX_LATENCY - 9}"),
        (2, legal.EARLY, f"setx x4+2o <- t0, s0\n exp s9 <- s8\n mov s10+x <- s20 wait={INDEX_LATENCY - 10}"),
        (1, legal.OVERWRITTEN, f"setx x4+2o <- t0, s0 outer=8\n setx x9+2o <- t1, s0 wait={INDEX_LATENCY - 2}"),
    ],
)
def test_an_index_is_set_before_it_is_used(number: int, rule: str, lines: str) -> None:
    with pytest.raises(
        BundleError,
        match=rf"^instruction {number} \(\w+ in section tuple\) must keep .* breaks it: {re.escape(rule)}\.",
    ):
        load.bundle_blocks(program(lines))


def test_indices_do_not_outlive_their_section() -> None:
    setx, use = "setx x4+2o <- t0, s0", "mov s10 <- s20+x wait=20"
    instructions, sections = assemble(f"tuple:\n {setx}\n end\nbatch:\n {use}\n end\n")
    with pytest.raises(BundleError, match=rf"^instruction 2 \(MOV in section batch\) .*{re.escape(legal.UNSET)}"):
        load.bundle_blocks(replace(BASE, program=instructions, sections=sections, levels=0))


def test_random_programs_keep_the_rules() -> None:
    """So that the rules refuse nothing that the hardware is tested with."""
    for seed in range(20):
        legal.check(random_bundle(np.random.default_rng(seed), CONFIG, batch=16))


@pytest.mark.parametrize(
    ("line", "lacks", "said"),
    [
        ("low s10 <- s0, lane^1", {"crossed": 0}, "the machine has the operation"),
        ("add s10 <- s0, s1, lane^1", {"crossed": 0}, "the machine has crossed exchanges"),
        ("add s10+i <- s0+i, s0, lane^1 inner=2", {"crossed": 0}, "the machine has crossed exchanges"),
        ("exp s10 <- s0", {"functions": 1}, "the machine has the operation"),
        ("setx x4+2o <- t0+1o, s0", {"index_depth": 0}, "need an index file"),
    ],
)
def test_what_the_machine_does_not_have(line: str, lacks: dict[str, int], said: str) -> None:
    legal.check(program(line))
    with pytest.raises(BundleError, match=said):
        load.bundle_blocks(program(line, **lacks))


MOV, END = Instruction(op=Opcode.MOV), Instruction(op=Opcode.END)
JUMP, COLUMN = strider.Instruction.decode(0), columns.Column.decode(0)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"program": (MOV,) * 128 + (END,)}, "instructions of the engine must be at most 128 .* has 129"),
        ({"strider": (JUMP,) * 513}, "instructions of the Striders must be at most 512 .* has 513"),
        ({"constants": (0,) * 33}, "constants of the Striders must be at most 32 .* has 33"),
        ({"columns": (COLUMN,) * 65}, "column descriptors must be at most 64 .* has 65"),
        ({"image": np.zeros((129, 8), dtype=np.uint32)}, "rows of the image must be at most 128 .* has 129"),
        ({"sections": {Section.INIT: 0}}, "must have a section 'tuple'"),
        ({"sections": {Section.TUPLE: 2}, "program": (MOV, END)}, r"tuple must start in 0 … 1, not at 2"),
        ({"sections": {Section.TUPLE: -1}, "program": (MOV, END)}, r"tuple must start in 0 … 1, not at -1"),
        ({"sections": {Section.TUPLE: 0}, "program": (MOV,)}, "section tuple has no END"),
        ({"sections": {Section.TUPLE: 0, Section.MERGE: 0}}, "'merge' must have one 'push'"),
        ({"sections": {Section.TUPLE: 0}, "batch": 10**6}, "takes several rounds of"),
        ({"batch": 0}, "a batch must have at least 1 tuple, not 0"),
        (
            {"symbols": (Symbol(name="w", kind="model", row=127, shape=(9,)),)},
            "rows up to 'w' must be at most 128 .* has 129",
        ),
    ],
)
def test_sizes_and_sections(changes: dict[str, object], said: str) -> None:
    with pytest.raises(BundleError, match=said):
        load.bundle_blocks(replace(BASE, **changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"group": 3}, "must be a power of two, not 3"),
        ({"group": 0}, "must be a power of two, not 0"),
        ({"tuple_rows": 40}, "must fit 64 rows of tuple memory"),
        ({"levels": 33}, "has from 0 to 32 levels, not 33"),
        (
            {"columns": (columns.Column(count=9, row=3, type=columns.ColumnType.FLOAT4, first=1, last=1),)},
            "column descriptor 0 must stay within the 4 rows of a tuple, but reaches row 4",
        ),
        (
            {"columns": (columns.Column(count=1, row=0, type=99),)},
            "the type of column descriptor 0 must be one of 0 (FLOAT4), 1 (FLOAT8), 2 (INT2)",
        ),
    ],
)
def test_settings_that_no_hardware_takes(changes: dict[str, object], message: str) -> None:
    with pytest.raises(BundleError, match=re.escape(message)):
        legal.check(replace(BASE, **{"group": 1, "tuple_rows": 4, **changes}))
