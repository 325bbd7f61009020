"""Checks an engine program against docs/machine.md, instruction by instruction and cycle by cycle.

In: a program and the machine it is for. Out: everything in which it breaks the contract. It follows the document and
`hwgen.spec`; of the compiler, whose bugs it is there to find, it takes what is loaded and no reckoning.

Checked besides the rules of `hwgen.spec.legal`, for every section: it ends; fields are in range; addresses lie in their
memories; a row is read only when it has been written and its result can be read; results come out one a cycle; a row's
later result comes out later; turns take MIN_INSTRUCTION cycles; END waits for all results; whatever row an index may
choose obeys all of this.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dana.compiler.place.rows import InputPlaces
from dana.compiler.schedule.allocate import MemoryMap
from dana.compiler.schedule.encode import Program
from dana.compiler.target import Target
from dana.errors import InternalError
from hwgen.spec import cycles, legal
from hwgen.spec.config import LANES_PER_CLUSTER, MachineConfig
from hwgen.spec.engine import Instruction, Mask, Opcode, Section

Integers = npt.NDArray[np.int64]

DATAFLOW = (Section.INIT, Section.TUPLE, Section.PUSH, Section.MERGE, Section.BATCH, Section.EPOCH)
"""Sections in an order in which each runs after those whose results it reads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What the checks need to know of the machine and the Bundle."""

    config: MachineConfig
    half_rows: int
    level_stride: int
    levels: int


def check(program: Program, memory: MemoryMap, inputs: InputPlaces, target: Target, config: MachineConfig) -> None:
    """Raise InternalError, listing what is wrong, if the program breaks the machine's contract."""
    problems = list(
        find_problems(
            program.instructions,
            program.sections,
            config,
            group=target.group,
            tuple_rows=inputs.rows,
            level_stride=memory.block,
            levels=target.levels,
            image_rows=memory.image,
        )
    )
    if problems:
        more = f"\nand {len(problems) - 10} more" if len(problems) > 10 else ""
        raise InternalError("the compiler made an illegal program:\n" + "\n".join(problems[:10]) + more)


def find_problems(
    program: Sequence[Instruction],
    sections: Mapping[Section, int],
    config: MachineConfig,
    *,
    group: int,
    tuple_rows: int,
    level_stride: int,
    levels: int,
    image_rows: int,
) -> Iterator[str]:
    """Everything in which a program breaks the machine's contract, a line for each."""
    machine = Machine(
        config=config,
        half_rows=group * tuple_rows,
        level_stride=level_stride,
        levels=levels,
    )
    if len(program) > config.program_depth:
        yield f"{len(program)} instructions exceed the program memory of {config.program_depth}"
    yield from legal.settings(config, group=group, tuple_rows=tuple_rows, levels=levels)
    if Section.TUPLE not in sections:
        yield "there is no section tuple"
    if (Section.MERGE in sections) != (Section.PUSH in sections) or (Section.MERGE in sections) != (levels > 0):
        yield f"sections merge and push must be there if and only if there are levels, of which there are {levels}"
    defined = np.zeros(config.scratch_depth, dtype=np.bool_)
    defined[:image_rows] = True
    for section in (section for section in DATAFLOW if section in sections):
        start = sections[section]
        stop = next((k for k in range(start, len(program)) if program[k].op is Opcode.END), None)
        if stop is None:
            yield f"{section} has no END"
            continue
        for k in range(start, stop):
            yield from (f"{section}, instruction {k}: {text}" for text in _fields(program[k], section, machine))
        yield from (
            f"{section}, instruction {k}: {rule}"
            for k, rule in legal.broken(program[start : stop + 1], section, config, start)
        )
        if any(program[k].rows < 1 for k in range(start, stop)):
            continue
        checker = _Timing(machine, section, defined)
        for k in range(start, stop):
            yield from (f"{section}, instruction {k}: {text}" for text in checker.run(program[k]))
        yield from (f"{section}, instruction {stop}: {text}" for text in checker.end(program[stop]))


def _fields(instruction: Instruction, section: Section, machine: Machine) -> Iterator[str]:
    """What an instruction must not be, wherever it stands in its section."""
    try:
        instruction.encode()
    except ValueError as error:
        yield str(error)
    if instruction.scalar and not instruction.op.special:
        yield "scalar is for special functions"
    # without levels every batch is one round, whose tuples are still the thread's when it ends
    masking = (Section.TUPLE, Section.BATCH) if not machine.levels else (Section.TUPLE,)
    if instruction.mask is not Mask.NONE and section not in masking:
        yield "masks tuples"


class _Timing:
    """Follows the cycles of one section."""

    def __init__(self, machine: Machine, section: Section, defined: npt.NDArray[np.bool_]) -> None:
        self.machine = machine
        self.now = 0
        self.defined = defined
        self.ready = np.full(machine.config.scratch_depth, -1, dtype=np.int64)
        self.writes: list[Integers] = []
        self.levels = max(1, machine.levels) if section in (Section.MERGE, Section.PUSH) else 1
        self.setter: Instruction | None = None

    def run(self, instruction: Instruction) -> Iterator[str]:
        """One instruction's turn."""
        rows, special = instruction.rows, instruction.op.special
        interval = self.machine.config.row_interval(instruction)
        lanes = LANES_PER_CLUSTER if special and not instruction.scalar else 1
        step = interval // lanes
        # from a row's issue until its result in the first and in the last lane can be read
        first = cycles.SPECIAL_LATENCY[instruction.op] if special else cycles.RESULT_LATENCY
        last = first + (lanes - 1) * step
        if instruction.wait + rows * interval < cycles.MIN_INSTRUCTION:
            yield f"takes {instruction.wait + rows * interval} cycles"
        issue = self.now + instruction.wait + np.arange(rows) * interval
        self.now += instruction.wait + rows * interval
        self.writes.append((issue[:, None] + first - 1 + np.arange(lanes) * step).ravel())
        if instruction.op is Opcode.SETX:
            self.setter = instruction
            yield from self._reads(instruction, issue, np.empty((1, 0), dtype=np.int64), last)
            return
        dst = self._addresses(instruction, "dst")
        if dst.max() >= self.machine.config.scratch_depth:
            yield f"writes row {dst.max()} of {self.machine.config.scratch_depth}"
            return
        yield from self._reads(instruction, issue, dst, last)
        # nothing interlocks: of two results for a row the one that comes out last would stay
        if (self.ready[dst] >= issue + first).any():
            yield f"overtakes the result of an earlier instruction in row {dst[self.ready[dst] >= issue + first][0]}"
        # lanes without the condition, rows that no entry chooses, keep what they hold
        partly = instruction.op is Opcode.MOVC or instruction.dst_index
        if partly and not self.defined[dst].all():
            yield f"changes a part of row {dst[~self.defined[dst]][0]}, which nothing has written"
        np.maximum.at(self.ready, dst, np.broadcast_to(issue, dst.shape) + last)
        self.defined[dst] = True

    def end(self, instruction: Instruction) -> Iterator[str]:
        """The end of the section."""
        if instruction.wait + 1 < cycles.MIN_INSTRUCTION:
            yield f"takes {instruction.wait + 1} cycles"
        if not self.writes:
            return
        written = np.concatenate(self.writes)
        cycle, count = np.unique(written, return_counts=True)
        # one write port serves all units, whatever their latencies
        if (count > 1).any():
            yield f"two results are written in cycle {cycle[count > 1][0]} of the section"
        if written.max() > self.now + instruction.wait:
            yield f"ends in cycle {self.now + instruction.wait}, before the result of cycle {written.max()}"

    def _reads(self, instruction: Instruction, issue: Integers, dst: Integers, latency: int) -> Iterator[str]:
        operands = ["a"]
        if instruction.op.reads_b:
            operands.append("b")
        for name in operands:
            address = self._addresses(instruction, name)
            in_tuples = getattr(instruction, f"{name}_tuple")
            depth = self.machine.half_rows if in_tuples else self.machine.config.scratch_depth
            if address.max() >= depth:
                yield f"reads row {address.max()} of {depth} ({name})"
                continue
            if in_tuples:  # the half is complete before its section begins
                continue
            early = self.ready[address] > issue
            if early.any():
                yield f"reads row {address[early][0]} before its result is there ({name})"
            if instruction.indexed:
                # stricter than the machine: which row comes when is not looked at
                if np.isin(address, dst).any():
                    yield f"may read a row that it writes ({name})"
            elif dst.size and _just_written(dst[0], address[0], issue, latency):
                yield f"reads a row that it has just written ({name})"
            undefined = ~self.defined[address]
            if undefined.any():
                yield f"reads row {address[undefined][0]}, which nothing has written ({name})"

    def _addresses(self, instruction: Instruction, name: str) -> Integers:
        """Rows that an operand may name, shape [levels or entries of an index, rows]."""
        o = np.arange(instruction.outer)[:, None] * getattr(instruction, f"{name}_outer")
        i = np.arange(instruction.inner)[None, :] * getattr(instruction, f"{name}_inner")
        rows = (getattr(instruction, name) + o + i).reshape(1, -1)
        if getattr(instruction, f"{name}_index", 0) and self.setter is not None:
            return np.asarray(rows + np.arange(max(1, self.setter.dst))[:, None] * self.setter.dst_outer)
        if not getattr(instruction, f"{name}_level", 0):
            return np.asarray(rows)
        return np.asarray(rows + np.arange(self.levels)[:, None] * self.machine.level_stride)


def _just_written(dst: Integers, address: Integers, issue: Integers, latency: int) -> bool:
    """Whether an instruction reads one of its own results before it is there."""
    low, high = dst.min(), dst.max()
    inside = (address >= low) & (address <= high)
    if not inside.any():
        return False
    written = np.full(high - low + 1, np.iinfo(np.int64).max // 2)
    np.minimum.at(written, dst - low, issue)
    first = written[address[inside] - low]
    return bool(((first < issue[inside]) & (first + latency > issue[inside])).any())
