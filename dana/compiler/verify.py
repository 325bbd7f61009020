"""Checks an engine program against docs/machine.md, instruction by instruction and cycle by cycle.

In: a program and the machine it is for. Out: everything in which it breaks the contract. It reads the document and
`hwgen.spec` and nothing of the compiler, whose bugs it is there to find.

Checked for every section: it ends; fields are in range; addresses lie in their memories; a row is read only when it has
been written and its result can be read; results come out one a cycle; a row's later result comes out later; turns take
MIN_INSTRUCTION cycles; END waits for all results; tuple memory is read by `tuple` only, levels by `merge` and `push`;
entries of the index file are set when they are used, and whatever row one may choose obeys all of this.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dana.errors import InternalError
from hwgen.spec import cycles
from hwgen.spec.config import LANES_PER_CLUSTER, MachineConfig
from hwgen.spec.engine import Instruction, Mask, Opcode, Section, Source

Integers = npt.NDArray[np.int64]
ONE_OPERAND = frozenset(
    {
        Opcode.MOV,
        Opcode.SETX,
        Opcode.NEG,
        Opcode.ABS,
        Opcode.SIGMOID,
        Opcode.GAUSSIAN,
        Opcode.EXP,
        Opcode.LOG,
        Opcode.SQRT,
    }
)
WITHOUT_EXCHANGE = ONE_OPERAND | {Opcode.MOVC, Opcode.DIV}
FUNCTIONS = (Opcode.SIGMOID, Opcode.GAUSSIAN, Opcode.EXP, Opcode.LOG, Opcode.SQRT, Opcode.DIV)
"""Special functions in the order of the bits that say which ones a machine has."""

DATAFLOW = (Section.INIT, Section.TUPLE, Section.PUSH, Section.MERGE, Section.BATCH, Section.EPOCH)
"""Sections in an order in which each runs after those whose results it reads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What the checks need to know of the machine and the Bundle."""

    threads: int
    lanes: int
    scratch_depth: int
    half_rows: int
    level_stride: int
    levels: int
    index_depth: int
    divide_interval: int
    functions: int
    crossed: int


def check_program(
    program: Sequence[Instruction],
    sections: Mapping[Section, int],
    config: MachineConfig,
    *,
    group: int,
    tuple_rows: int,
    level_stride: int,
    levels: int,
    image_rows: int,
) -> None:
    """Raise InternalError, listing what is wrong, if a program breaks the machine's contract."""
    problems = list(
        find_problems(
            program,
            sections,
            config,
            group=group,
            tuple_rows=tuple_rows,
            level_stride=level_stride,
            levels=levels,
            image_rows=image_rows,
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
        threads=config.threads,
        lanes=config.lanes,
        scratch_depth=config.scratch_depth,
        half_rows=group * tuple_rows,
        level_stride=level_stride,
        levels=levels,
        index_depth=config.index_depth,
        divide_interval=config.divide_interval,
        functions=config.functions,
        crossed=config.crossed,
    )
    if len(program) > config.program_depth:
        yield f"{len(program)} instructions exceed the program memory of {config.program_depth}"
    if group < 1 or group & (group - 1):
        yield f"the group must be a power of two, not {group}"
    if 2 * machine.half_rows > config.tuple_depth:
        yield f"two halves of {machine.half_rows} rows exceed the tuple memory of {config.tuple_depth}"
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
    if instruction.inner < 1 or instruction.outer < 1:
        yield "loops run at least once"
    if (instruction.a_tuple or instruction.b_tuple) and section is not Section.TUPLE:
        yield "reads tuple memory"
    if (instruction.a_level or instruction.dst_level) and section not in (Section.MERGE, Section.PUSH):
        yield "uses a level of the merge stack"
    # without levels every batch is one round, whose tuples are still the thread's when it ends
    masking = (Section.TUPLE, Section.BATCH) if not machine.levels else (Section.TUPLE,)
    if instruction.mask is not Mask.NONE and section not in masking:
        yield "masks tuples"
    if instruction.scalar and not instruction.op.special:
        yield "scalar is for special functions"
    if instruction.op in FUNCTIONS and not machine.functions >> FUNCTIONS.index(instruction.op) & 1:
        yield f"the machine has no hardware for {instruction.op.name}"
    yield from _exchange_fields(instruction, machine)
    if instruction.tail > machine.lanes:
        yield f"tail {instruction.tail} is beyond the {machine.lanes} lanes"
    if instruction.op is Opcode.SETX or instruction.indexed:
        yield from _index_fields(instruction, machine)


def _exchange_fields(instruction: Instruction, machine: Machine) -> Iterator[str]:
    """What an exchange, and an operation that is for exchanges only, must not be."""
    if instruction.source is Source.MEMORY:
        if instruction.op.chooses:
            yield f"{instruction.op.name} without an exchange"
        return
    reach = machine.lanes if instruction.source is Source.LANE_XOR else machine.threads
    if 1 << instruction.distance >= reach:
        yield f"exchanges over {1 << instruction.distance} of {reach}"
    if instruction.op in WITHOUT_EXCHANGE:
        yield f"{instruction.op.name} exchanges"
    if instruction.a_tuple != instruction.b_tuple or instruction.a_level or instruction.mask is Mask.PAIR:
        yield "an exchange of operands from two memories, with a level or with tuples in pairs"
    if machine.crossed:
        return
    if instruction.op in (Opcode.LOW, Opcode.HIGH):
        yield f"the machine has no hardware for {instruction.op.name}"
    elif any(getattr(instruction, f"a{part}") != getattr(instruction, f"b{part}") for part in ("", "_inner", "_outer")):
        yield "the machine has no hardware for crossed exchanges"


def _index_fields(instruction: Instruction, machine: Machine) -> Iterator[str]:
    """What an instruction must not be that sets or uses entries of the index file."""
    if instruction.outer > machine.index_depth:
        yield f"needs {instruction.outer} entries of an index file of {machine.index_depth}"
    if instruction.op.special or instruction.source is not Source.MEMORY or instruction.mask is Mask.PAIR:
        yield "a special function, an exchange or tuples in pairs with an index"
    if instruction.a_index and (instruction.a_tuple or instruction.a_level):
        yield "an index for tuple memory or a level (a)"
    if instruction.dst_index and instruction.dst_level:
        yield "an index for a level (dst)"
    if instruction.op is not Opcode.SETX:
        return
    if instruction.inner != 1 or instruction.dst < 1 or instruction.index_reach >= machine.scratch_depth:
        yield f"sets entries from {instruction.inner} rows, below {instruction.dst}, {instruction.dst_outer} rows each"
    if instruction.tail_a or instruction.tail_b or instruction.a_level or instruction.dst_level or instruction.indexed:
        yield "SETX with tails, levels or an index"


class _Timing:
    """Follows the cycles of one section."""

    def __init__(self, machine: Machine, section: Section, defined: npt.NDArray[np.bool_]) -> None:
        self.machine = machine
        self.now = 0
        self.defined = defined
        self.ready = np.full(machine.scratch_depth, -1, dtype=np.int64)
        self.writes: list[Integers] = []
        self.levels = max(1, machine.levels) if section in (Section.MERGE, Section.PUSH) else 1
        self.setter: Instruction | None = None
        self.set_at = 0

    def run(self, instruction: Instruction) -> Iterator[str]:
        """One instruction's turn."""
        interval, first, last = timing(instruction, self.machine.divide_interval)
        rows = instruction.rows
        if instruction.wait + rows * interval < cycles.MIN_INSTRUCTION:
            yield f"takes {instruction.wait + rows * interval} cycles"
        issue = self.now + instruction.wait + np.arange(rows) * interval
        self.now += instruction.wait + rows * interval
        yield from self._index(instruction, int(issue[0]))
        lanes = 1 if not instruction.op.special or instruction.scalar else LANES_PER_CLUSTER
        step = interval // lanes
        self.writes.append((issue[:, None] + first - 1 + np.arange(lanes) * step).ravel())
        if instruction.op is Opcode.SETX:
            yield from self._reads(instruction, issue, np.empty((1, 0), dtype=np.int64), last)
            return
        dst = self._addresses(instruction, "dst")
        if dst.max() >= self.machine.scratch_depth:
            yield f"writes row {dst.max()} of {self.machine.scratch_depth}"
            return
        yield from self._reads(instruction, issue, dst, last)
        if (self.ready[dst] >= issue + first).any():
            yield f"overtakes the result of an earlier instruction in row {dst[self.ready[dst] >= issue + first][0]}"
        partly = instruction.op is Opcode.MOVC or instruction.dst_index
        if partly and not self.defined[dst].all():
            yield f"changes a part of row {dst[~self.defined[dst]][0]}, which nothing has written"
        np.maximum.at(self.ready, dst, np.broadcast_to(issue, dst.shape) + last)
        self.defined[dst] = True

    def _index(self, instruction: Instruction, cycle: int) -> Iterator[str]:
        """Whether entries are set when they are used, and used when they are set again."""
        setter = self.setter
        if instruction.indexed and (setter is None or setter.outer < instruction.outer):
            there = 0 if setter is None else setter.outer
            yield f"uses {instruction.outer} entries of the index file, of which {there} are set"
        if setter is not None and instruction.indexed and cycle < self.set_at + cycles.INDEX_LATENCY:
            yield f"uses an entry of the index file {self.set_at + cycles.INDEX_LATENCY - cycle} cycles too early"
        if instruction.op is Opcode.SETX:
            if setter is not None and cycle < self.set_at + setter.outer - 1 + cycles.INDEX_LATENCY:
                yield "sets entries of the index file before the last ones are there"
            self.setter, self.set_at = instruction, cycle

    def end(self, instruction: Instruction) -> Iterator[str]:
        """The end of the section."""
        if instruction.wait + 1 < cycles.MIN_INSTRUCTION:
            yield f"takes {instruction.wait + 1} cycles"
        if not self.writes:
            return
        written = np.concatenate(self.writes)
        cycle, count = np.unique(written, return_counts=True)
        if (count > 1).any():
            yield f"two results are written in cycle {cycle[count > 1][0]} of the section"
        if written.max() > self.now + instruction.wait:
            yield f"ends in cycle {self.now + instruction.wait}, before the result of cycle {written.max()}"

    def _reads(self, instruction: Instruction, issue: Integers, dst: Integers, latency: int) -> Iterator[str]:
        operands = ["a"]
        if instruction.op not in ONE_OPERAND:
            operands.append("b")
        for name in operands:
            address = self._addresses(instruction, name)
            in_tuples = getattr(instruction, f"{name}_tuple")
            depth = self.machine.half_rows if in_tuples else self.machine.scratch_depth
            if address.max() >= depth:
                yield f"reads row {address.max()} of {depth} ({name})"
                continue
            if in_tuples:
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


def timing(instruction: Instruction, divide_interval: int) -> tuple[int, int, int]:
    """Cycles between two rows, and from a row's issue until its result in the first and the last lane can be read."""
    if not instruction.op.special:
        return 1, cycles.RESULT_LATENCY, cycles.RESULT_LATENCY
    step, latency = cycles.element_interval(instruction.op, divide_interval), cycles.SPECIAL_LATENCY[instruction.op]
    if instruction.scalar:
        return step, latency, latency
    return step * LANES_PER_CLUSTER, latency, latency + (LANES_PER_CLUSTER - 1) * step


def section_length(instructions: Sequence[Instruction], divide_interval: int) -> int:
    """Cycles of a section, END included, SECTION_START not."""
    *body, end = instructions
    return sum(i.wait + i.rows * timing(i, divide_interval)[0] for i in body) + end.wait + 1
