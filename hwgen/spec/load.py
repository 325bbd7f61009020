"""What a driver writes before a machine trains: a Bundle as words at addresses of the register map.

In: a Bundle, and for a board what it is to train on. Out: blocks of words, in the order in which they are written. The
driver, testbenches and exported packages all load machines by this list; it knows no bus.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from hwgen.spec import board, legal, registers
from hwgen.spec.aperture import address
from hwgen.spec.board import BoardRegion, BoardRegister, Command
from hwgen.spec.bundle import RECORD_BOUNDARY, Bundle, BundleError, Symbol, Words
from hwgen.spec.columns import MAX_TABLES
from hwgen.spec.engine import WORD_U32, Instruction, Opcode, Section
from hwgen.spec.registers import INSTRUCTION_STRIDE, Region, Register, TableWord
from hwgen.spec.strider import CONFIGURATION

Block = tuple[int, Words]
"""A word address on the control bus and the words that are written from there on."""

RESET = 2


class Held(NamedTuple):
    """How far from its beginning each memory may hold something that is not zero."""

    strider: int = 0
    """Words of the Striders' program."""
    columns: int = 0
    """Words of the descriptor table."""
    rows: int = 0
    """Of the scratchpads."""

    def joined(self, other: Held) -> Held:
        """Of memories that hold both."""
        return Held(*map(max, self, other))


def held(bundle: Bundle) -> Held:
    """Of a machine that had only zeros, was loaded with the Bundle and has run."""
    depth = bundle.config.scratch_depth
    written = max((_rows_written(bundle, instruction) for instruction in bundle.program), default=0)
    return Held(
        strider=len(bundle.strider),
        columns=bundle.column_words().size,
        # an address beyond the end is one from the beginning
        rows=depth if written > depth else max(len(bundle.image), written),
    )


def _rows_written(bundle: Bundle, instruction: Instruction) -> int:
    """Rows from 0 on among which are all that an instruction writes."""
    if instruction.op in (Opcode.END, Opcode.SETX, Opcode.PUT):
        return 0
    last = instruction.dst + (instruction.outer - 1) * instruction.dst_outer
    last += (instruction.inner - 1) * instruction.dst_inner
    if instruction.dst_level:
        last += max(0, bundle.levels - 1) * bundle.level_stride
    if instruction.dst_index:
        last += max((setter.index_reach for setter in bundle.program if setter.op is Opcode.SETX), default=0)
    return last + 1


def bundle_blocks(bundle: Bundle, *, before: Held | None = None, records: int = 0) -> Iterator[Block]:
    """A reset, all memories, all settings of the machine but PAGES. BundleError where it breaks a rule: write nothing.

    Parameters
    ----------
    before
        What the memories hold, of which nothing stays. None: anything. The scratchpad is not cleared then behind the
        Bundle's own rows: no program of the compiler reads a row that was never written.
    records
        Address at which the Bundle's tables begin in the record memory (`Bundle.table_offsets`).
    """
    legal.check(bundle)
    config = bundle.config
    if before is None:
        before = Held(strider=config.strider_depth, columns=2 * config.descriptor_depth)
    if records % RECORD_BOUNDARY:
        raise BundleError(f"tables must begin at a multiple of {RECORD_BOUNDARY}, not at {records:#x}")
    return _blocks(bundle, before, records)


def _blocks(bundle: Bundle, before: Held, records: int) -> Iterator[Block]:
    config = bundle.config
    yield _register(Register.CONTROL, RESET)  # memories are written while nothing runs
    program = bundle.program_words().reshape(-1, WORD_U32)
    yield address(Region.PROGRAM, 0, config), np.pad(program, ((0, 0), (0, INSTRUCTION_STRIDE - WORD_U32))).ravel()
    # zeros are no instruction and no descriptor: what a damaged page leads to is a fault, not an old program
    yield address(Region.STRIDER, 0, config), _filled(bundle.strider_words(), before.strider)
    yield address(Region.CONSTANT), _filled(np.array(bundle.constants, dtype=np.uint32), CONFIGURATION)
    yield address(Region.COLUMN, 0, config), _filled(bundle.column_words(), before.columns)
    yield address(Region.SCRATCH, 0, config), _filled(bundle.image.ravel(), before.rows * config.lanes)
    yield _register(Register.BATCH, bundle.batch)
    yield _register(Register.GROUP_LOG2, bundle.group.bit_length() - 1)
    yield _register(Register.TUPLE_ROWS, bundle.tuple_rows)
    yield _register(Register.LEVEL_STRIDE, bundle.level_stride)
    yield _register(Register.LEVELS, bundle.levels)
    for k, section in enumerate(Section):
        yield _register(Register.INIT + k, bundle.sections.get(section, registers.NO_SECTION))
    if config.pause:
        yield _register(Register.PAUSE, 0)  # until a host joins what batches merge
    if config.record_depth:
        yield _register(Register.TABLES, *_table_words(bundle, records))


def _table_words(bundle: Bundle, records: int) -> list[int]:
    """Of all tables that a machine may have; those that the Bundle has not are zeros."""
    words = np.zeros((MAX_TABLES, registers.TABLE_WORDS), dtype=np.uint32)
    for own, table, offset in zip(words, bundle.tables, bundle.table_offsets, strict=False):
        base = records + offset
        own[TableWord.RECORDS], own[TableWord.ROWS] = table.records, table.rows
        own[TableWord.SHIFT] = table.shift(bundle.config.lanes)
        own[TableWord.BASE : TableWord.BASE + 2] = base & 0xFFFFFFFF, base >> 32
    return [int(word) for word in words.ravel()]


def training_blocks(
    bundle: Bundle,
    *,
    pages: int,
    epochs: int,
    base: int,
    part: int = 0,
    slots: int | None = None,
    ready: int = board.ENDLESS,
) -> Iterator[Block]:
    """What a host writes to a board before it trains; COMMAND is the last.

    Parameters
    ----------
    pages
        Of an epoch.
    base, slots
        Where they lie; all of them by default.
    part
        Bytes from where the stripes of one bus lie to where those of the next do (`hwgen.spec.board.part_bytes`).
    ready
        Pages that are there already.
    """
    yield _register(Register.PAGES, pages)
    yield _board(BoardRegister.EPOCHS, epochs)
    yield _board(BoardRegister.SLOTS, pages if slots is None else slots)
    for bus in range(bundle.config.buses):
        first = base + bus * part
        yield _board(board.PAGE_BASES[bus], first & 0xFFFFFFFF, first >> 32)
    yield _board(BoardRegister.PAGES_READY, ready)
    yield _board(BoardRegister.LOSS_AT, _place(bundle, bundle.symbol("loss")))
    yield _board(BoardRegister.CONVERGENCE_AT, _place(bundle, bundle.symbol("convergence")))
    yield _board(BoardRegister.INTERRUPT, 1)
    yield _board(BoardRegister.INTERRUPT_ENABLE, 1)
    yield _board(BoardRegister.COMMAND, Command.TRAIN)


def _place(bundle: Bundle, symbol: Symbol | None) -> int:
    return board.NOWHERE if symbol is None else symbol.row * bundle.config.lanes


def _register(register: int, *words: int) -> Block:
    return address(Region.CONTROL, register), np.array(words, dtype=np.uint32)


def _board(register: BoardRegister, *words: int) -> Block:
    return address(BoardRegion.BOARD, register), np.array(words, dtype=np.uint32)


def _filled(words: Words, size: int) -> Words:
    """With zeros up to a size, if it is shorter."""
    return np.pad(words, (0, max(0, size - words.size)))
