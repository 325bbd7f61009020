"""Columns of every type at every byte, and every value that a conversion could get wrong."""

from __future__ import annotations

import random

import pytest

from hwgen.spec.columns import Column, ColumnType
from hwgen.spec.strider import Condition, Control, Instruction, Opcode
from tests.hwgen.access import generate
from tests.hwgen.access.bench import Bench
from tests.hwgen.access.case import Case
from tests.hwgen.access.compare import check
from tests.scale import scaled

AT, STEP, END = 1, 32, 33


def sweep(columns: int) -> tuple[Instruction, ...]:
    """Each column as a tuple of its own, from %cr2 on in steps of %cr0 below %cr1."""
    return (
        Instruction(Opcode.AD, AT, 34, AT),
        Instruction(Opcode.BENTR),
        *(Instruction(Opcode.WRITEB, AT, k >> 6, k & 63) for k in range(columns)),
        Instruction(Opcode.AD, AT, STEP, AT),
        Instruction(Opcode.BEXIT, Condition.GE, AT, END),
        Instruction(Opcode.CTL, Control.END),
    )


@pytest.mark.parametrize("kind", [ColumnType.FLOAT4, ColumnType.FLOAT8, ColumnType.INT2])
def test_every_alignment_lane_and_length(bench: Bench, kind: ColumnType) -> None:
    rnd = random.Random(4)
    lanes = bench.config.lanes
    picks = [(lane, count) for lane in range(lanes) for count in range(1, 3 * lanes + 2)]
    picks = picks if len(picks) <= 200 else rnd.sample(picks, 200)
    for start in range(0, len(picks), 16):
        columns = tuple(
            Column(count=count, row=1, lane=lane, type=kind, first=1, last=1)
            for lane, count in picks[start : start + 16]
        )
        base = rnd.randrange(bench.config.page_size - 28 * lanes - 64)
        check(
            Case(
                config=bench.config,
                program=sweep(len(columns)),
                constants=(rnd.choice([1, 3, 5]), base + 4 * lanes // min(lanes // 8, 4), base),
                columns=columns,
                pages=(generate.page(rnd, bench.config.page_size),),
                tuple_rows=5,
                delays=((1, 0),),
            ),
            bench,
        )


def test_conversions(plain: Bench) -> None:
    rnd = random.Random(5)
    config = plain.config
    checked = 0
    for _ in range(scaled(2)):
        for kind in ColumnType:
            count = 2000 // kind.bytes
            columns = tuple(Column(count=count, row=0, type=kind, scalar=scalar, first=1, last=1) for scalar in (0, 1))
            step = rnd.choice([1, 3, 4]) * count
            case = Case(
                config=config,
                program=sweep(2),
                constants=(step, config.page_size - 2000),
                columns=columns,
                pages=tuple(generate.page(rnd, config.page_size) for _ in range(2)),
                tuple_rows=2048,
                delays=((1, 0),),
            )
            expected = check(case, plain)
            checked += len(expected.writes)
    assert checked > scaled(10000)
