"""What a driver writes before a machine trains: a Bundle as words at addresses of the register map.

In: a Bundle, and for a board what it is to train on. Out: blocks of words, in the order in which they are written. The
RTL harness, testbenches and exported packages all load machines by this list; it knows no bus.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from hwgen.spec import board, legal, registers
from hwgen.spec.board import BoardRegion, BoardRegister, Command
from hwgen.spec.bundle import Bundle, Symbol
from hwgen.spec.engine import WORD_U32, Section
from hwgen.spec.registers import Region, Register
from hwgen.spec.strider import CONFIGURATION

Words = npt.NDArray[np.uint32]
Block = tuple[int, Words]
"""A word address and the words that are written from there on."""

RESET = 2
INSTRUCTION_STRIDE = 8
"""Words from one instruction of the engine to the next in the address map."""


def address(region: IntEnum, offset: int = 0) -> int:
    """Word address in the whole map."""
    return int(region) << registers.REGION_SHIFT | int(offset)


def bundle_blocks(bundle: Bundle, *, whole_scratchpad: bool = False) -> Iterator[Block]:
    """A reset, all memories, all settings of the machine but PAGES.

    Parameters
    ----------
    whole_scratchpad
        Fill the scratchpad to its end with zeros; else only the Bundle's own rows are written.

    Raises
    ------
    BundleError
        The Bundle breaks a rule of `docs/machine.md`; nothing is to be written then.
    """
    legal.check(bundle)
    return _blocks(bundle, whole_scratchpad=whole_scratchpad)


def _blocks(bundle: Bundle, *, whole_scratchpad: bool) -> Iterator[Block]:
    config = bundle.config
    yield _register(Register.CONTROL, RESET)
    program = bundle.program_words().reshape(-1, WORD_U32)
    yield address(Region.PROGRAM), np.pad(program, ((0, 0), (0, INSTRUCTION_STRIDE - WORD_U32))).ravel()
    # zeros are no instruction and no descriptor: what a damaged page leads to is a fault, not an old program
    yield address(Region.STRIDER), _filled(bundle.strider_words(), config.strider_depth)
    yield address(Region.CONSTANT), _filled(np.array(bundle.constants, dtype=np.uint32), CONFIGURATION)
    yield address(Region.COLUMN), _filled(bundle.column_words(), 2 * config.descriptor_depth)
    scratch = config.scratch_depth * config.lanes if whole_scratchpad else bundle.image.size
    yield address(Region.SCRATCH), _filled(bundle.image.ravel(), scratch)
    yield _register(Register.BATCH, bundle.batch)
    yield _register(Register.GROUP_LOG2, bundle.group.bit_length() - 1)
    yield _register(Register.TUPLE_ROWS, bundle.tuple_rows)
    yield _register(Register.LEVEL_STRIDE, bundle.level_stride)
    yield _register(Register.LEVELS, bundle.levels)
    for k, section in enumerate(Section):
        yield _register(Register.INIT + k, bundle.sections.get(section, registers.NO_SECTION))


def training_blocks(
    bundle: Bundle, *, pages: int, epochs: int, base: int, slots: int | None = None, ready: int = board.ENDLESS
) -> Iterator[Block]:
    """What a board is told before it trains, COMMAND being the last.

    Parameters
    ----------
    pages
        Of an epoch.
    base, slots
        Where they lie; all of them by default.
    ready
        Pages that are there already.
    """
    yield _register(Register.PAGES, pages)
    yield _board(BoardRegister.EPOCHS, epochs)
    yield _board(BoardRegister.SLOTS, pages if slots is None else slots)
    yield _board(BoardRegister.PAGE_BASE, base & 0xFFFFFFFF, base >> 32)
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
    return np.pad(words, (0, size - words.size))
