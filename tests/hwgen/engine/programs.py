"""Random engine programs that keep the timing rules of docs/machine.md, section 2.

In: a random generator and a machine. Out: Bundles. The scheduler here is deliberately naive: each instruction waits
until what it reads was written and the write port is free; it shares nothing with the compiler.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from hwgen.spec import cycles, numerics
from hwgen.spec.bundle import Bundle
from hwgen.spec.config import LANES_PER_CLUSTER, MachineConfig
from hwgen.spec.engine import FIELDS, ROUNDS, SHORT, Instruction, Mask, Opcode, Section, Source
from hwgen.spec.operations import Unit
from tests.oracles.machine import EXCHANGED, Floats, garbage, interval

PLAIN = tuple(op for op in Opcode if not (op.special or op.chooses or op is Opcode.END or op.unit is Unit.SEQUENCER))
CHOOSING = tuple(op for op in Opcode if op.chooses)
SPECIAL = tuple(op for op in Opcode if op.special)
LONGEST_WAIT = (1 << next(field.width for field in FIELDS if field.name == "wait")) - 1

BOUND = 4
"""Random programs' entries of the index file are chosen by numbers below this."""
INTEGER_ROWS = 8
"""Rows of such numbers behind everything else in the scratchpad, which no program writes."""


def latency(op: Opcode) -> int:
    return cycles.SPECIAL_LATENCY.get(op, cycles.RESULT_LATENCY)


@dataclass(frozen=True)
class Row:
    """A row of an instruction: cycles are counted from the first row's issue."""

    issue: int
    reads: tuple[int, ...]
    dst: tuple[int, ...]
    writes: tuple[int, ...]

    @property
    def written(self) -> int:
        return self.writes[-1]


def rows(
    instruction: Instruction, shift: int, divide_interval: int, setter: Instruction | None = None
) -> Iterator[Row]:
    """The rows of an instruction at an offset of the merge stack, with all addresses that an index may give.

    `reads` and `dst` are scratchpad addresses; an instruction with an index uses the entries of `setter`.
    """
    added = [0] if setter is None else [k * setter.dst_outer for k in range(setter.dst)]
    lanes = 1
    if instruction.op.special and not instruction.scalar:
        lanes = LANES_PER_CLUSTER
    apart = cycles.element_interval(instruction.op, divide_interval)
    for o in range(instruction.outer):
        for i in range(instruction.inner):
            issue = (o * instruction.inner + i) * interval(instruction, divide_interval)
            a = instruction.a + o * instruction.a_outer + i * instruction.a_inner + instruction.a_level * shift
            b = instruction.b + o * instruction.b_outer + i * instruction.b_inner
            dst = instruction.dst + o * instruction.dst_outer + i * instruction.dst_inner
            reads = [a + x for x in (added if instruction.a_index else [0])] if not instruction.a_tuple else []
            if not instruction.b_tuple:
                reads.append(b)
            dst += instruction.dst_level * shift
            targets = (
                [] if instruction.op is Opcode.SETX else [dst + x for x in (added if instruction.dst_index else [0])]
            )
            writes = tuple(issue + k * apart + latency(instruction.op) - 1 for k in range(lanes))
            yield Row(issue, tuple(reads), tuple(targets), writes)


@dataclass
class Scheduler:
    """Places the instructions of one section: when each row was written last, and when the write port is taken."""

    shift: int
    divide_interval: int
    now: int = 0
    written: dict[int, int] = field(default_factory=dict)
    taken: set[int] = field(default_factory=set)
    setter: Instruction | None = None
    set_at: int = 0

    def place(self, instruction: Instruction, extra: int) -> Instruction | None:
        """The instruction with a wait, at least `extra` longer than needed; None if it depends on itself."""
        if instruction.indexed and (self.setter is None or self.setter.outer < instruction.outer):
            return None
        parts = list(rows(instruction, self.shift, self.divide_interval, self.setter if instruction.indexed else None))
        own: dict[int, int] = {}
        for part in parts:
            if any(own.get(address, -1) >= part.issue for address in part.reads):
                return None
            if any(own.get(dst, -1) >= part.writes[0] for dst in part.dst):
                return None
            own |= dict.fromkeys(part.dst, part.written)
        length = instruction.rows * interval(instruction, self.divide_interval)
        wait = max(extra, cycles.MIN_INSTRUCTION - length)
        if self.setter is not None and (instruction.indexed or instruction.op is Opcode.SETX):
            last = self.set_at + (self.setter.outer - 1 if instruction.op is Opcode.SETX else 0)
            wait = max(wait, last + cycles.INDEX_LATENCY - self.now)
        while wait <= LONGEST_WAIT and not self._fits(parts, self.now + wait):
            wait += 1
        if wait > LONGEST_WAIT:
            return None
        start = self.now + wait
        for part in parts:
            self.written |= dict.fromkeys(part.dst, start + part.written)
            self.taken.update(start + cycle for cycle in part.writes)
        self.now = start + length
        if instruction.op is Opcode.SETX:
            self.setter, self.set_at = instruction, start
        return replace(instruction, wait=wait)

    def end(self) -> Instruction:
        """END, after the last result."""
        last = max(self.taken, default=-1)
        return Instruction(op=Opcode.END, wait=max(0, last - self.now + 1))

    def _fits(self, parts: list[Row], start: int) -> bool:
        for part in parts:
            if any(self.written.get(address, -1) >= start + part.issue for address in part.reads):
                return False
            if any(self.written.get(dst, -1) >= start + part.writes[0] for dst in part.dst):
                return False
            if any(start + cycle in self.taken for cycle in part.writes):
                return False
        return True


@dataclass(frozen=True, kw_only=True)
class Shape:
    """What a random program may touch."""

    config: MachineConfig
    group: int
    tuple_rows: int
    rows: int
    level_stride: int
    levels: int

    @property
    def used(self) -> int:
        """Scratchpad rows, merge stack included and INTEGER_ROWS not."""
        return self.rows + self.levels * self.level_stride


def random_shape(rng: np.random.Generator, config: MachineConfig) -> Shape:
    group = 1 << int(rng.integers(0, 4))
    return Shape(
        config=config,
        group=group,
        tuple_rows=int(rng.integers(1, 5)),
        rows=40,
        level_stride=int(rng.integers(1, 6)),
        levels=6,
    )


def random_instruction(rng: np.random.Generator, shape: Shape, section: Section) -> Instruction:
    """Any instruction that stays inside its memories."""
    config = shape.config
    special = [op for op in SPECIAL if config.has(op)]
    plain = (*PLAIN, *CHOOSING) if config.crossed else PLAIN
    op = Opcode(int(rng.choice(special if special and rng.random() < 0.25 else plain)))
    exchange = op.chooses or (op in EXCHANGED and rng.random() < 0.4)
    inner = int(rng.integers(1, 5))
    outer = int(rng.choice([1, 1, 2, 3, shape.group]))
    if op.special:
        inner, outer = min(inner, 2), min(outer, 2)
    # addresses below are drawn so that the last row of each operand still lies inside
    reach = shape.rows - 4 - 12
    fields: dict[str, int] = {}
    for operand in ("dst", "a", "b"):
        fields[operand] = int(rng.integers(0, reach))
        fields[f"{operand}_inner"] = int(rng.integers(0, 2))
        fields[f"{operand}_outer"] = int(rng.integers(0, 12 // max(outer - 1, 1) + 1))
    if section in ROUNDS:
        size = shape.group * shape.tuple_rows
        from_tuples = [rng.random() < 0.5] * 2 if exchange else rng.random(2) < 0.5
        for operand, chosen in zip(("a", "b"), from_tuples, strict=True):
            if chosen:
                fields[f"{operand}_tuple"] = 1
                steps = fields[f"{operand}_inner"] * (inner - 1)
                if steps >= size:
                    fields[f"{operand}_inner"] = steps = 0
                fields[f"{operand}_outer"] = int(rng.integers(0, (size - 1 - steps) // max(outer - 1, 1) + 1))
                last = steps + fields[f"{operand}_outer"] * (outer - 1)
                fields[operand] = int(rng.integers(0, size - last))
    if section in (Section.MERGE, Section.PUSH):
        for operand in ("dst",) if exchange else ("dst", "a"):
            if rng.random() < 0.5:
                fields |= _in_stack(rng, shape, operand, inner, outer)
    source, distance = Source.MEMORY, 0
    mask = Mask(int(rng.integers(0, 3))) if rng.random() < 0.4 else Mask.NONE
    tail_a, tail_b = (int(rng.random() < 0.2) for _ in range(2))
    if exchange:
        source, distance = Source.LANE_XOR, int(rng.integers(0, (config.lanes - 1).bit_length()))
        if config.threads > 1 and rng.random() < 0.5:
            source, distance = Source.THREAD_XOR, int(rng.integers(0, (config.threads - 1).bit_length()))
        mask = Mask.SINGLE if mask is Mask.PAIR else mask
        if not config.crossed or rng.random() < 0.3:
            fields |= {f"b{part}": fields.get(f"a{part}", 0) for part in ("", "_tuple", "_inner", "_outer")}
        tail_b = tail_a if rng.random() < 0.7 else tail_b
    return Instruction(
        op=op,
        inner=inner,
        outer=outer,
        source=source,
        distance=distance,
        mask=mask,
        tail_a=tail_a,
        tail_b=tail_b,
        tail=int(rng.integers(0, config.lanes)),
        scalar=int(rng.integers(0, 2)) if op.special else 0,
        **fields,
    )


def random_setx(rng: np.random.Generator, shape: Shape, section: Section) -> Instruction:
    """Sets entries from the tuples' last row, or from the rows of small numbers."""
    outer = int(rng.integers(1, min(shape.group, shape.config.index_depth) + 1))
    fields = {"a": shape.used, "a_outer": int(rng.integers(0, 2))}
    mask = Mask.SINGLE if rng.random() < 0.5 else Mask.NONE
    if section in ROUNDS and rng.random() < 0.8:
        fields, mask = {"a": shape.tuple_rows - 1, "a_outer": shape.tuple_rows, "a_tuple": 1}, Mask.SINGLE
    return Instruction(
        op=Opcode.SETX, dst=int(rng.integers(BOUND, BOUND + 3)), dst_outer=int(rng.integers(0, 3)), outer=outer,
        b=int(rng.integers(0, 100)), mask=mask, **fields,
    )  # fmt: skip


def random_indexed(rng: np.random.Generator, shape: Shape, section: Section, outer: int) -> Instruction:
    """Any instruction that may use `outer` entries of the index file."""
    plain = random_instruction(rng, shape, section)
    if plain.a_level or plain.dst_level or plain.op.special:
        plain = random_instruction(rng, shape, Section.BATCH)
    a, dst = (int(rng.random() < 0.6) for _ in range(2))
    fields: dict[str, int] = {"a_tuple": 0, "a": int(rng.integers(0, 8))} if a else {}
    return replace(
        plain,
        op=Opcode.MOV if rng.random() < 0.4 else Opcode(int(rng.choice(PLAIN))),
        outer=min(plain.outer, outer),
        source=Source.MEMORY,
        distance=0,
        mask=Mask.SINGLE if rng.random() < 0.5 else Mask.NONE,
        scalar=0,
        a_index=a,
        dst_index=dst,
        dst=int(rng.integers(0, 8)),
        **fields,
    )


def _in_stack(rng: np.random.Generator, shape: Shape, operand: str, inner: int, outer: int) -> dict[str, int]:
    """Fields that put an operand into the current level of the merge stack, which is behind the other rows."""
    step = int(rng.integers(0, 2)) if inner <= shape.level_stride else 0
    offset = int(rng.integers(0, shape.level_stride - step * (inner - 1)))
    return {operand: shape.rows + offset, f"{operand}_inner": step, f"{operand}_outer": 0, f"{operand}_level": 1}


def random_section(rng: np.random.Generator, shape: Shape, section: Section, count: int) -> list[Instruction]:
    """About `count` instructions and END. A section must be legal at every level, so the stride is the worst case."""
    scheduler = Scheduler(shift=0, divide_interval=shape.config.divide_interval)
    placed: list[Instruction] = []
    for _ in range(count):
        extra = int(rng.integers(0, 4)) if rng.random() < 0.3 else 0
        wanted = [random_instruction(rng, shape, section)]
        if shape.config.index_depth and rng.random() < 0.3:
            setx = random_setx(rng, shape, section)
            wanted = [setx, *(random_indexed(rng, shape, section, setx.outer) for _ in range(int(rng.integers(0, 4))))]
        for instruction in wanted:
            candidate = scheduler.place(instruction, extra)
            if candidate is not None:
                placed.append(candidate)
    return [*placed, scheduler.end()]


def random_bundle(
    rng: np.random.Generator, config: MachineConfig, *, batch: int, absent: tuple[Section, ...] = (), size: int = 12
) -> Bundle:
    """A program that computes nothing sensible, in all its sections but those `absent`."""
    shape = random_shape(rng, config)
    program: list[Instruction] = []
    sections: dict[Section, int] = {}
    order = [name for name in Section if name not in absent and name not in SHORT]
    order += [name for name in SHORT if config.watch_depth and rng.random() < 0.5]
    for name in rng.permutation(np.array(order, dtype=object)):
        sections[name] = len(program)
        program += random_section(rng, shape, name, int(rng.integers(0, size)))
    image = numerics.flush(garbage((shape.used, config.lanes), int(rng.integers(1 << 31)))).view(np.uint32)
    if config.index_depth:
        integers = rng.integers(0, BOUND, (INTEGER_ROWS, config.lanes)).astype(np.float32)
        image = np.concatenate([image, integers.view(np.uint32)])
    return Bundle(
        config=config,
        program=tuple(program),
        sections=sections,
        strider=(),
        constants=(),
        columns=(),
        batch=batch,
        group=shape.group,
        tuple_rows=shape.tuple_rows,
        level_stride=shape.level_stride,
        levels=shape.levels,
        image=image,
        symbols=(),
    )


def random_tuples(rng: np.random.Generator, bundle: Bundle, count: int) -> Floats:
    """Tuples of anything, with a small number at the beginning of their last row; as an array [tuples, rows, lanes]."""
    lanes = bundle.config.lanes
    tuples = numerics.flush(garbage((count, bundle.tuple_rows, lanes), int(rng.integers(1 << 31))))
    if bundle.config.index_depth:
        tuples[:, -1, 0] = rng.integers(0, BOUND, count)
    return tuples
