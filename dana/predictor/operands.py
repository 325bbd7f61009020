"""What an instruction of a predictor reads, as arrays of addresses.

In: a program. Out: for each operand the part of memory that it is in, and the addresses of its elements. Programs that
the compiler did not write are refused where they are stranger than its own: an operand is a whole value, in order.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from math import prod

from dana.errors import UsageError
from dana.predictor.program import Instruction, Operand, Program
from dsl.hdfg.ops import REDUCTIONS, Op, operand_count


class Part(Enum):
    """Of a program's memory."""

    FEATURES = "features"
    WEIGHTS = "weights"
    CONSTANTS = "constants"
    SCRATCH = "scratch"


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """One operand.

    Attributes
    ----------
    part, start
        Where its first element is: in which part of memory, and where in that.
    shape
        Elements along each axis; 1 where it is repeated.
    """

    part: Part
    start: int
    shape: tuple[int, int, int]

    @property
    def size(self) -> int:
        return prod(self.shape)


def reads(program: Program, instruction: Instruction) -> list[Read]:
    """The operands of an instruction, in order; of a GATHER the table with all its rows, and the index."""
    if instruction.code is Op.GATHER:
        table, index, rows = instruction.operands
        length = instruction.extents[2]
        return [
            _read(program, Operand(start=table.start, strides=(0, length, 1)), (1, rows.start, length)),
            _read(program, index, (1, 1, 1)),
        ]
    operands = instruction.operands[: operand_count(instruction.code)]
    return [_read(program, operand, instruction.extents) for operand in operands]


def result_size(instruction: Instruction) -> int:
    """Elements that an instruction writes."""
    size = prod(instruction.extents)
    return size // instruction.extents[1] if instruction.code in REDUCTIONS else size


def place(program: Program, address: int) -> tuple[Part, int]:
    """The part of memory that an address is in, and where in it."""
    for part, size in (
        (Part.FEATURES, program.inputs),
        (Part.WEIGHTS, program.weights),
        (Part.CONSTANTS, len(program.constants)),
    ):
        if address < size:
            return part, address
        address -= size
    return Part.SCRATCH, address


def scratch(program: Program) -> int:
    """Address of the first element of scratch."""
    return program.inputs + program.weights + len(program.constants)


def _read(program: Program, operand: Operand, extents: tuple[int, int, int]) -> Read:
    x, y, z = (1 if stride == 0 else extent for stride, extent in zip(operand.strides, extents, strict=True))
    for stride, extent, dense in zip(operand.strides, (x, y, z), (y * z, z, 1), strict=True):
        if extent > 1 and stride != dense:
            raise UsageError("the predictor reads a part of a value, which only dana_predict can do")
    part, start = place(program, operand.start)
    return Read(part=part, start=start, shape=(x, y, z))
