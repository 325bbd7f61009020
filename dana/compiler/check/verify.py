"""Checks an engine program against docs/machine.md, instruction by instruction and cycle by cycle.

In: a program and the machine it is for. Out: every violation of the contract. It follows the document and `hwgen.spec`;
to find bugs of the compiler, it uses the compiler's output and none of its computations.

In addition to the rules of `hwgen.spec.legal`, it checks for every section: it ends; fields are in range; addresses lie
in their memories; a row is read only when it has been written and its result can be read; results come out one a cycle;
a row's later result comes out later; turns take MIN_INSTRUCTION cycles; END waits for all results; every row that an
index may choose obeys all of this.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from dana.compiler.place.rows import InputPlaces
from dana.compiler.schedule.allocate import MemoryMap
from dana.compiler.schedule.encode import Program
from dana.compiler.target import Target
from dana.errors import InternalError
from hwgen.spec import cycles, legal
from hwgen.spec.config import LANES_PER_CLUSTER, MachineConfig
from hwgen.spec.engine import ROUNDS, Instruction, Mask, Opcode, Section

Integers = npt.NDArray[np.int64]

NEVER = 1 << 62

MANY = 1 << 17
"""Rows of a scratchpad that is built, at most: as many entries of an index are looked at one by one."""

DATAFLOW = (Section.INIT, *ROUNDS, Section.PUSH, Section.MERGE, Section.BATCH, Section.EPOCH)
"""Sections in an order that follows the flow of results."""


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
            image_rows=memory.loaded,
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
    if len(program) > config.program_depth:
        yield f"{len(program)} instructions exceed the program memory of {config.program_depth}"
    yield from legal.settings(config, group=group, tuple_rows=tuple_rows, levels=levels)
    if Section.TUPLE not in sections:
        yield "there is no section tuple"
    if (Section.MERGE in sections) != (Section.PUSH in sections) or (Section.MERGE in sections) != (levels > 0):
        yield f"sections merge and push must exist if and only if there are levels; there are {levels}"
    # carried from section to section: what one has written the next may read
    defined = np.zeros(config.scratch_depth, dtype=np.bool_)
    defined[:image_rows] = True
    for section in (section for section in DATAFLOW if section in sections):
        start = sections[section]
        stop = next((k for k in range(start, len(program)) if program[k].op is Opcode.END), None)
        if stop is None:
            yield f"{section} has no END"
            continue
        for k in range(start, stop):
            yield from (f"{section}, instruction {k}: {text}" for text in _fields(program[k], section, levels))
        yield from (
            f"{section}, instruction {k}: {rule}"
            for k, rule in legal.broken(program[start : stop + 1], section, config, start)
        )
        # counts that are out of range would make the timing below meaningless
        if any(program[k].rows < 1 for k in range(start, stop)):
            continue
        stacked = max(1, levels) if section in (Section.MERGE, Section.PUSH) else 1
        checker = _Timing(config, defined, half_rows=group * tuple_rows, level_stride=level_stride, levels=stacked)
        for k in range(start, stop):
            yield from (f"{section}, instruction {k}: {text}" for text in checker.run(program[k]))
        yield from (f"{section}, instruction {stop}: {text}" for text in checker.end(program[stop]))


def _fields(instruction: Instruction, section: Section, levels: int) -> Iterator[str]:
    """Violations of an instruction that do not depend on its place in the section."""
    try:
        instruction.encode()
    except ValueError as error:
        yield str(error)
    if instruction.scalar and not instruction.op.special:
        yield "scalar is for special functions"
    # without levels every batch is one round, and the thread still has its tuples when it ends
    masking = (*ROUNDS, Section.BATCH) if not levels else ROUNDS
    if instruction.mask is not Mask.NONE and section not in masking:
        yield "masks tuples"


class _Timing:
    """Follows the cycles of one section."""

    def __init__(
        self, config: MachineConfig, defined: npt.NDArray[np.bool_], *, half_rows: int, level_stride: int, levels: int
    ) -> None:
        self.config = config
        self.half_rows, self.level_stride, self.levels = half_rows, level_stride, levels
        self.now = 0
        self.defined = defined
        # -1: nothing is on its way, so that a row can be read in cycle 0
        self.ready = np.full(config.scratch_depth, -1, dtype=np.int32)
        self.writes: list[Integers] = []
        self.setter: Instruction | None = None

    def run(self, instruction: Instruction) -> Iterator[str]:
        """One instruction's turn."""
        rows, special = instruction.rows, instruction.op.special
        interval = self.config.row_interval(instruction)
        lanes = LANES_PER_CLUSTER if special and not instruction.scalar else 1
        step = interval // lanes
        # from a row's issue until its result in the first and in the last lane can be read
        first = cycles.SPECIAL_LATENCY[instruction.op] if special else cycles.RESULT_LATENCY
        last = first + (lanes - 1) * step
        if instruction.wait + rows * interval < cycles.MIN_INSTRUCTION:
            yield f"takes {instruction.wait + rows * interval} cycles"
        issue = _rows(self.now + instruction.wait, 1, 0, rows, interval)
        self.now += instruction.wait + rows * interval
        results = issue + (first - 1)
        if instruction.ordered and max((old.max() for old in self.writes if len(old)), default=-1) >= results[0]:
            yield "waits while a result is to come that comes later than its own"
        self.writes.append(results if lanes == 1 else (results[:, None] + np.arange(lanes) * step).ravel())
        if instruction.op is Opcode.SETX:
            self.setter = instruction
            yield from self._reads(instruction, issue, None, last)
            return
        dst = self._operand(instruction, "dst")
        if instruction.op is Opcode.PUT:
            if dst.max() >= self.half_rows:
                yield f"puts row {dst.max()} of {self.half_rows}"
            yield from self._reads(instruction, issue, None, last)
            return
        if dst.max() >= self.config.scratch_depth:
            yield f"writes row {dst.max()} of {self.config.scratch_depth}"
            return
        yield from self._reads(instruction, issue, dst, last)
        # nothing interlocks: of two results for a row the one that comes out last would stay
        overtaken = self.ready[dst] >= issue + first
        if overtaken.any():
            yield f"overtakes the result of an earlier instruction in row {dst[overtaken][0]}"
        # lanes without the condition, rows that no entry chooses, keep what they hold
        partly = instruction.op is Opcode.MOVC or instruction.dst_index
        if partly and not self.defined[dst].all():
            yield f"changes a part of row {dst[~self.defined[dst]][0]}, which nothing has written"
        if dst.ndim == 1:  # later rows issue later: of two results for a row the last one stays
            self.ready[dst] = np.maximum(self.ready[dst], issue + last)
        else:
            np.maximum.at(self.ready, dst, np.broadcast_to(issue + last, dst.shape))
        self.defined[dst] = True

    def end(self, instruction: Instruction) -> Iterator[str]:
        """The end of the section."""
        if instruction.wait + 1 < cycles.MIN_INSTRUCTION:
            yield f"takes {instruction.wait + 1} cycles"
        if not self.writes:
            return
        written = np.concatenate(self.writes)
        cycle, count = np.unique(written, return_counts=True)
        # one write port serves units of all latencies
        if (count > 1).any():
            yield f"two results are written in cycle {cycle[count > 1][0]} of the section"
        if written.max() > self.now + instruction.wait:
            yield f"ends in cycle {self.now + instruction.wait}, before the result of cycle {written.max()}"

    def _reads(self, instruction: Instruction, issue: Integers, dst: Integers | None, latency: int) -> Iterator[str]:
        for name in ("a", "b") if instruction.op.reads_b else ("a",):
            address = self._operand(instruction, name)
            in_tuples = getattr(instruction, f"{name}_tuple")
            depth = self.half_rows if in_tuples else self.config.scratch_depth
            if address.max() >= depth:
                yield f"reads row {address.max()} of {depth} ({name})"
                continue
            if in_tuples:  # the half is complete before its section begins
                continue
            early = self.ready[address] > issue
            if instruction.ordered and name == "a":  # later rows wait for those before them
                early = early[..., :1]
            if early.any():
                yield f"reads row {address[..., : early.shape[-1]][early][0]} before its result is there ({name})"
            if dst is not None and address.min() <= dst.max() and dst.min() <= address.max():
                if instruction.dst_index or getattr(instruction, f"{name}_index", 0):
                    # stricter than the machine: which row comes when is not looked at, but of a row that it adds to
                    if not (instruction.ordered or self._adds(instruction)) and np.isin(address, dst).any():
                        yield f"may read a row that it writes ({name})"
                elif _just_written(np.atleast_2d(dst)[0], np.atleast_2d(address)[0], issue, latency):
                    yield f"reads a row that it has just written ({name})"
            defined = self.defined[address]
            if not defined.all():
                yield f"reads row {address[~defined][0]}, which nothing has written ({name})"

    def _adds(self, instruction: Instruction) -> bool:
        """Whether each row that an instruction writes is one that it has read itself, and reads no more."""
        read = instruction.a, instruction.a_inner, instruction.a_index
        same = read == (instruction.dst, instruction.dst_inner, instruction.dst_index)
        stride = self.setter.dst_outer if self.setter is not None else 0
        return same and instruction.outer == 1 and 0 < instruction.inner * max(1, instruction.a_inner) <= stride

    def _operand(self, instruction: Instruction, name: str) -> Integers:
        """Rows that an operand may name, in the order of their use; of several levels or entries [these, rows]."""
        inner, outer = (getattr(instruction, f"{name}_{loop}") for loop in ("inner", "outer"))
        rows = _rows(getattr(instruction, name), instruction.outer, outer, instruction.inner, inner)
        # the levels of the stack, or all that an entry of an index may say
        if getattr(instruction, f"{name}_index", 0) and self.setter is not None:
            return rows + _some(max(1, self.setter.dst))[:, None] * self.setter.dst_outer
        if getattr(instruction, f"{name}_level", 0):
            return rows + np.arange(self.levels)[:, None] * self.level_stride
        return rows


def _some(count: int) -> Integers:
    """Levels, or entries of an index: all that a machine has which is built; of more, which are alike, both ends."""
    return np.arange(count) if count <= MANY else np.r_[: MANY // 2, count - MANY // 2 : count]


def _rows(base: int, outer: int, far: int, inner: int, near: int) -> Integers:
    """`base + o * far + i * near` for o below outer and i below inner."""
    if outer == 1 or far == inner * near:
        return base + np.arange(outer * inner) * near
    return (base + np.arange(outer)[:, None] * far + np.arange(inner) * near).ravel()


def _just_written(dst: Integers, address: Integers, issue: Integers, latency: int) -> bool:
    """Whether an instruction reads one of its own results before it is there."""
    low, high = dst.min(), dst.max()
    inside = (address >= low) & (address <= high)
    if not inside.any():
        return False
    written = np.full(high - low + 1, NEVER)
    np.minimum.at(written, dst - low, issue)
    first = written[address[inside] - low]
    return bool(((first < issue[inside]) & (first + latency > issue[inside])).any())
