"""What varies from one generated machine to the next.

Everything that RTL, simulator, estimates and export know of a machine they read from a `MachineConfig`,
and from nothing else of each other. The words used here are explained in `docs/machine.md`.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import IntFlag
from typing import Any

from hwgen.spec.cycles import MASTER_LATENCY, READER_LATENCY, element_interval
from hwgen.spec.engine import ROW_BITS, Instruction, Opcode
from hwgen.spec.registers import SCRATCH_BITS
from hwgen.spec.timing import DIVIDE_INTERVALS

LANES_PER_CLUSTER = 8
"""Analytic units in a cluster (paper, section on the execution engine)."""

PAGE_SIZES = (8192, 16384, 32768)

FUNCTIONS = tuple(op for op in Opcode if op.special)
"""Special functions that a cluster may have, in the order of the bits of `MachineConfig.functions`."""

ALL_FUNCTIONS = (1 << len(FUNCTIONS)) - 1


def functions_mask(ops: Iterable[Opcode]) -> int:
    """`MachineConfig.functions` of a machine that has the special functions among `ops`, and no others."""
    return sum(1 << FUNCTIONS.index(op) for op in set(ops) if op.special)


NOT_HARDWARE = ("link_latency", "link_rate", "record_latency", "clock_hz")
"""Fields that say how fast a machine runs, not which it is."""

WIDEST_BUS = 128
"""Bytes of the widest data bus that AXI has (ARM IHI 0022)."""

WIDEST_LINK = 4 * WIDEST_BUS
"""Bytes of a beat of pages at the most: a stripe from each of several buses."""

LEAST_BEATS = 32
"""Beats of a page at least: so a Strider has cleared its registers, one in a cycle, before the next page is there."""


def most_link_bytes(lanes: int, page_size: int) -> int:
    """Bytes of a beat at the most, for threads of so many lanes: no more than what is stored in a cycle."""
    return min(WIDEST_LINK, 8 * lanes, page_size // LEAST_BEATS)


RATE_CYCLES = 1000
"""Cycles in which `MachineConfig.link_rate` counts."""

MAX_DEPTHS = {"scratch_depth": 1 << ROW_BITS, "tuple_depth": 1 << 16}
"""Words of a memory of a unit at the most."""

MAX_WATCHED = 256
"""Rows that a batch can write: each takes a register and a comparator."""

MAX_RECORDS = 1024
"""Records that a batch can name."""

MAX_LINK_RATE = RATE_CYCLES * WIDEST_LINK

MAX_INDEX_DEPTH = 4096

MAY_BE_NONE = ("index_depth", "watch_depth", "record_depth")
"""Memories that a machine may be without."""


class Ultra(IntFlag):
    """Memories that may be UltraRAM instead of block RAM. A block has 4,096 words of 72 bits, each two of a lane."""

    PAGES = 1  # the unpacker's copy of the pages
    SCRATCH = 2  # scratchpads
    TUPLES = 4  # tuple memories


class ConfigError(ValueError):
    """A machine configuration that cannot be built."""


def _shown(value: int) -> str:
    """Return a number for a message; a long one, which JSON may have, without its middle."""
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:20]}…{text[-10:]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineConfig:
    """One machine."""

    threads: int = 1
    """Identical threads, each training on its own tuples of a batch. Power of two, 1 to 64."""
    clusters: int = 1
    """Analytic clusters of eight units in each thread. Power of two, 1 to 16."""
    striders: int = 2
    """Striders, each with a page buffer of its own. 1 to 64."""
    page_size: int = 8192
    """Bytes of a page, PostgreSQL's BLCKSZ."""
    scratch_depth: int = 1024
    """binary32 words of scratchpad per unit. A multiple of 16; more than `require_hardware` allows are simulated
    only."""
    tuple_depth: int = 1024
    """binary32 words of tuple memory per unit, both halves together. A multiple of 16."""
    program_depth: int = 256
    """Instructions the engine holds. Power of two."""
    strider_depth: int = 512
    """Instructions each Strider holds (one shared image). Power of two."""
    descriptor_depth: int = 64
    """Entries of the column descriptor table. Power of two, at most 4096."""
    index_depth: int = 0
    """Entries of each thread's index file, which programs with data-dependent addresses need: at least as many as a
    thread has tuples in a round. Power of two, or 0: there is none, and no hardware for it."""
    watch_depth: int = 0
    """Rows of tables that a batch can write, for batches that end where a row is chosen again: tuples of such a batch
    times the rows that each writes. Power of two, or 0: there is no hardware that compares them."""
    record_depth: int = 0
    """Records of tables in the record memory that a batch can name: its tuples times their watched columns. Power of
    two, or 0: there is no record memory."""
    record_latency: int = 64
    """Cycles from a record's request to its first row, and from a record's last row to the answer, in the modelled
    memory."""
    queue_depth: int = 16
    """Column requests that a Strider can have waiting at the unpacker. Power of two."""
    link_bytes: int = 32
    """Bytes of a page that arrive in one cycle. Power of two, 8 to 8 × lanes, at most 512 and a 32nd of a page;
    beyond 128 they come over several buses."""
    link_latency: int = 64
    """Cycles from a page's request to its first bytes, in the modelled link; at least one more than the page reader
    takes of them."""
    link_rate: int = 0
    """Bytes of pages that the memory behind the modelled link sends in 1,000 cycles, where that is less than the link
    is wide. 0: as many as the link takes."""
    clock_hz: int = 150_000_000
    """The clock at which modelled times are stated."""
    ultra: int = 0
    """Memories that are UltraRAM, a sum of `Ultra`: for devices that have some. It changes no cycle."""
    divide_interval: int = DIVIDE_INTERVALS[0]
    """Cycles between two quotients or roots of a cluster: 27, 9, 3 or 1. A unit of 27 is the smallest, one of 1 has 27
    times its state."""
    functions: int = ALL_FUNCTIONS
    """Special functions that each cluster has: a bit for each, the lowest for the first of docs/isa.md (`FUNCTIONS`).
    There is no hardware for the others, and programs that need them are rejected."""
    crossed: int = 1
    """1: lanes can choose in an exchange which operand they keep and which they send. 0: both are the same, there is no
    hardware to choose, and programs that need it are rejected."""
    converters: int = 1
    """Adjacent elements of a type other than float4 that the unpacker converts in one cycle; of eight bytes at most
    half as many as a thread has units. Power of two, 1 to 8 × clusters."""
    pause: int = 0
    """1: the machine can pause behind the merges of a batch, for a host that joins the batch's sums with those of other
    machines. 0: there is no hardware for it."""
    wide_depth: int = 0
    """Rows of scratchpad that hold binary32. The rows behind them hold bfloat16, the upper half of a binary32;
    its lower half reads as zero. A multiple of 16; with scratchpads in block RAM only. 0: all rows hold binary32."""

    def __post_init__(self) -> None:
        for problem in self._problems():
            raise ConfigError(problem)

    @property
    def lanes(self) -> int:
        """Units of one thread."""
        return LANES_PER_CLUSTER * self.clusters

    @property
    def units(self) -> int:
        """Units of the whole machine."""
        return self.threads * self.lanes

    def require_hardware(self) -> None:
        """Raise ConfigError where only the simulator has so much memory: no host port addresses it."""
        if not self.is_hardware:
            raise ConfigError(
                f"hardware has a scratch_depth of at most {(1 << SCRATCH_BITS) // self.lanes} with {self.lanes} lanes, "
                f"not {self.scratch_depth!r}: its host's address map has no more room; machine 'sim' has"
            )

    @property
    def is_hardware(self) -> bool:
        """Whether a host could address the memories."""
        return self.scratch_depth * self.lanes <= 1 << SCRATCH_BITS

    def has(self, op: Opcode) -> bool:
        """Whether the machine runs an operation."""
        if op.chooses:
            return bool(self.crossed)
        if op is Opcode.PUT:
            return bool(self.record_depth)
        return not op.special or bool(self.functions >> FUNCTIONS.index(op) & 1)

    def lacking(self, program: Iterable[Instruction]) -> list[str]:
        """What a program needs and the machine does not have: names of operations, and "crossed exchanges"."""
        program = list(program)
        lacking = [op.name for op in sorted({instruction.op for instruction in program}) if not self.has(op)]
        crossed = not self.crossed and any(instruction.crossed for instruction in program)
        return lacking + ["crossed exchanges"] * crossed

    def row_interval(self, instruction: Instruction) -> int:
        """Cycles from one row of an instruction to the next."""
        # one unit serves the lanes of its cluster, one after the other; a scalar function takes the first alone
        lanes = LANES_PER_CLUSTER if instruction.op.special and not instruction.scalar else 1
        return lanes * element_interval(instruction.op, self.divide_interval)

    def section_length(self, section: Iterable[Instruction]) -> int:
        """Cycles of a section, END included, SECTION_START not."""
        return sum(instruction.wait + instruction.rows * self.row_interval(instruction) for instruction in section)

    @property
    def buses(self) -> int:
        """AXI buses over which pages come: of each beat a stripe over each."""
        return max(1, self.link_bytes // WIDEST_BUS)

    @property
    def bus_bytes(self) -> int:
        """Bytes of a beat on each of these buses."""
        return self.link_bytes // self.buses

    @property
    def page_beats(self) -> int:
        """Beats in which one page comes over the link."""
        return self.page_size // self.link_bytes

    @property
    def page_cycles(self) -> int:
        """Cycles from a page's first to its last on the link, both included."""
        slowed = -(-self.page_size * RATE_CYCLES // self.link_rate) if self.link_rate else 0
        return max(self.page_beats, slowed)

    @property
    def page_rate(self) -> float:
        """Bytes of pages that the link brings in a cycle, in the long run."""
        return self.page_size / self.page_cycles

    def to_json(self) -> dict[str, int]:
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> MachineConfig:
        known = {field.name for field in dataclasses.fields(cls)}
        unknown = sorted(set(values) - known)
        if unknown:
            raise ConfigError(f"machine configuration has no field {unknown[0]!r}; it has {', '.join(sorted(known))}")
        for name, value in values.items():
            if not isinstance(value, int) or isinstance(value, bool):
                raise ConfigError(f"{name} must be an integer, not {value!r}")
        return cls(**values)

    def fingerprint(self) -> str:
        """Text that is equal for two machines exactly if their hardware is."""
        return json.dumps(self.to_json(), sort_keys=True, separators=(",", ":"))

    def _problems(self) -> Iterator[str]:
        powers = {
            "threads": (1, 64),
            "clusters": (1, 16),
            "program_depth": (16, 65536),
            "strider_depth": (16, 65536),
            "descriptor_depth": (2, 4096),
            "queue_depth": (2, 1024),
            "link_bytes": (8, 8 * self.lanes),
            "index_depth": (2, MAX_INDEX_DEPTH),
            "watch_depth": (2, MAX_WATCHED),
            "record_depth": (2, MAX_RECORDS),
            "converters": (1, self.lanes),
        }
        ranges = {
            "striders": (1, 64),
            "link_rate": (0, MAX_LINK_RATE),
            "ultra": (0, sum(Ultra)),
            "functions": (0, ALL_FUNCTIONS),
            "crossed": (0, 1),
            "pause": (0, 1),
        }
        for name, (low, high) in powers.items():
            value = getattr(self, name)
            none = "0 or " if name in MAY_BE_NONE else ""
            if not (low <= value <= high and value & (value - 1) == 0) and not (none and value == 0):
                yield f"{name} must be {none}a power of two from {low} to {high}, not {_shown(value)}"
        for name, (low, high) in ranges.items():
            value = getattr(self, name)
            if not low <= value <= high:
                yield f"{name} must be from {low} to {high}, not {_shown(value)}"
        for name, most in MAX_DEPTHS.items():
            value = getattr(self, name)
            if not (16 <= value <= most and value % 16 == 0):
                yield f"{name} must be a multiple of 16 from 16 to {most}, not {_shown(value)}"
        if not (0 <= self.wide_depth < self.scratch_depth and self.wide_depth % 16 == 0):
            yield (
                f"wide_depth must be a multiple of 16 from 0 to {self.scratch_depth - 16}, the rows before the last of "
                f"scratch_depth, not {_shown(self.wide_depth)}"
            )
        if self.wide_depth and self.ultra & Ultra.SCRATCH:
            yield f"wide_depth must be 0, not {self.wide_depth}, where ultra has {int(Ultra.SCRATCH)}, scratchpads"
        if self.link_bytes > WIDEST_LINK:
            yield (
                f"link_bytes must be at most {WIDEST_LINK}, not {self.link_bytes!r}: pages come over "
                f"{WIDEST_LINK // WIDEST_BUS} of AXI's widest buses at the most"
            )
        if self.page_size in PAGE_SIZES and self.page_beats < LEAST_BEATS:
            yield (
                f"link_bytes must be at most {self.page_size // LEAST_BEATS} with pages of {self.page_size} bytes, not "
                f"{self.link_bytes!r}: a page has {LEAST_BEATS} beats at least"
            )
        if self.page_size not in PAGE_SIZES:
            yield f"page_size must be one of {PAGE_SIZES}, not {self.page_size!r}"
        for name, part, taken in (
            ("link_latency", "page reader", READER_LATENCY),
            ("record_latency", "record master", MASTER_LATENCY),
        ):
            value = getattr(self, name)
            if not taken < value <= 65535:
                yield (
                    f"{name} must be from {taken + 1} to 65535 cycles, not {value!r}: the {part} takes {taken} of them"
                )
        if self.record_depth and (4 * self.lanes > WIDEST_BUS or not self.watch_depth):
            yield (
                f"a machine with record_depth must have threads of at most {WIDEST_BUS // 4} lanes, and watch_depth; "
                f"this has {self.lanes} lanes, and a watch_depth of {self.watch_depth}"
            )
        if self.divide_interval not in DIVIDE_INTERVALS:
            yield f"divide_interval must be one of {DIVIDE_INTERVALS}, not {self.divide_interval!r}"
        if self.clock_hz <= 0:
            yield f"clock_hz must be positive, not {self.clock_hz!r}"
