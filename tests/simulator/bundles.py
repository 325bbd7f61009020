"""Bundles for one part of the simulator at a time: access engines with an engine that keeps what it is given, and
engines fed with whole rows."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from hwgen.spec import cycles
from hwgen.spec.bundle import Bundle
from hwgen.spec.columns import Column, ColumnType
from hwgen.spec.config import MachineConfig
from hwgen.spec.engine import ROUNDS, SHORT, Instruction, Opcode, Section
from hwgen.spec.strider import Condition, Control
from hwgen.spec.strider import Instruction as Step
from hwgen.spec.strider import Opcode as StepOp
from tests.hwgen.access.case import Case

LEVELS = 16
END = Instruction(op=Opcode.END, wait=cycles.RESULT_LATENCY)


def keeping(case: Case, *, work: Mapping[Section, int]) -> Bundle:
    """A Bundle of an access engine's case: its `tuple` section adds the half to one block of rows and copies it.

    Parameters
    ----------
    work
        Rows that each section besides `tuple` moves, so that it takes some time.
    """
    rows = case.tuple_rows << case.group_log2
    add = Instruction(op=Opcode.ADD, inner=rows, dst=0, a=0, b_tuple=1, wait=1)
    program: list[Instruction] = []
    sections: dict[Section, int] = {}
    for section in Section:
        if section in SHORT and not (case.config.watch_depth and work[section] > 1):
            continue
        sections[section] = len(program)
        if section in ROUNDS:
            copy = Instruction(op=Opcode.MOV, inner=rows, dst=rows, a_tuple=1, wait=1 + work[section])
            program += [copy, add, END]
        else:
            spare = 2 * rows
            program += [Instruction(op=Opcode.MOV, inner=work[section], dst=spare, a=spare, wait=2), END]
    return Bundle(
        config=case.config,
        program=tuple(program),
        sections=sections,
        strider=case.program,
        constants=case.constants,
        columns=case.columns,
        batch=case.batch,
        group=1 << case.group_log2,
        tuple_rows=case.tuple_rows,
        level_stride=0,
        levels=LEVELS,
        image=np.zeros((0, case.config.lanes), dtype=np.uint32),
        symbols=(),
    )


def fed(bundle: Bundle) -> Bundle:
    """The Bundle with a Strider that takes tuples from pages as `row_pages` lays them out."""
    config = bundle.config
    words = bundle.tuple_rows * config.lanes
    count, at, size, one, start = 0, 1, 32, 33, 34
    program = (
        Step(StepOp.READB, 2, 4, count),
        Step(StepOp.AD, start, 2, at),
        Step(StepOp.BNE, count, 2, 2),
        Step(StepOp.CTL, Control.END),
        Step(StepOp.BENTR),
        Step(StepOp.WRITEB, at, 0, 0),
        Step(StepOp.AD, at, size, at),
        Step(StepOp.SUB, count, one, count),
        Step(StepOp.BEXIT, Condition.EQ, count, 2),
        Step(StepOp.CTL, Control.END),
    )
    return Bundle(
        **{name: getattr(bundle, name) for name in Bundle.__dataclass_fields__}
        | {
            "strider": program,
            "constants": (4 * words, 1, 4),
            "columns": (Column(count=words, row=0, type=ColumnType.FLOAT4, first=1, last=1),),
        }
    )


def row_pages(tuples: npt.NDArray[np.float32], config: MachineConfig) -> bytes:
    """Tuples of shape [tuples, tuple_rows, lanes] on pages: their number, then one after the other."""
    size = tuples[0].nbytes if len(tuples) else 1
    each = (config.page_size - 4) // size
    pages = b""
    for first in range(0, len(tuples), each):
        some = tuples[first : first + each]
        pages += (struct.pack("<I", len(some)) + some.astype("<f4").tobytes()).ljust(config.page_size, b"\xff")
    return pages


def bits(rows: Sequence[npt.NDArray[np.float32]] | npt.NDArray[np.float32]) -> npt.NDArray[np.uint32]:
    """Bit patterns, every NaN the canonical one."""
    words = np.ascontiguousarray(rows, dtype=np.float32).view(np.uint32).copy()
    words[(words & 0x7FFFFFFF) > 0x7F800000] = 0x7FC00000
    return words
