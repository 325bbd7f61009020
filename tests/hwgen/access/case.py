"""One epoch of the access engine as data: what goes in, and what is seen to come out."""

from __future__ import annotations

from dataclasses import dataclass, field

from hwgen.spec.columns import Column
from hwgen.spec.config import MachineConfig
from hwgen.spec.strider import Fault, Instruction


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """An epoch.

    Attributes
    ----------
    delays
        For each round in turn: cycles until the stand-in for the engine releases the half, and from then until it
        can begin another round.
    tables
        Records, and rows of each, of the tables in the record memory.
    """

    config: MachineConfig
    program: tuple[Instruction, ...]
    constants: tuple[int, ...] = ()
    columns: tuple[Column, ...] = ()
    pages: tuple[bytes, ...] = ()
    batch: int = 0xFFFFFFFF
    group_log2: int = 0
    tuple_rows: int = 1
    delays: tuple[tuple[int, int], ...] = ((20, 5),)
    tables: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Write:
    """Lanes of a row of tuple memory: lane to bit pattern."""

    cycle: int
    thread: int
    half: int
    row: int
    lanes: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Round:
    cycle: int
    count: int
    batch_last: bool
    epoch_last: bool


@dataclass(frozen=True, slots=True)
class Stop:
    """A fault; when it is seen is not part of the contract."""

    code: Fault
    page: int
    pointer: int


@dataclass(slots=True)
class Outcome:
    """What an access engine did; `requests` are cycles, page by page; `empty` the cycle of `epoch_empty`."""

    requests: list[int] = field(default_factory=list)
    writes: list[Write] = field(default_factory=list)
    rounds: list[Round] = field(default_factory=list)
    empty: int | None = None
    fault: Stop | None = None
    skipped: int = 0
    stored: int = 0
    """When the last round's records were."""
