"""What a package's testbench does to its board after the training: what must be rejected, fail, stop, and go on.

In: a Bundle, what its training writes. Out: steps for `testbench.v`, and pages of their own. They train a small program
of this module's, on columns of every type, so that they check what the rule's table does not use.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from enum import IntEnum
from itertools import product
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from hwgen.export import BASE, PART
from hwgen.spec import board, numerics, registers
from hwgen.spec.aperture import aperture_bytes, byte_address, region_words
from hwgen.spec.board import BoardRegion, BoardRegister, BoardStatus, Command
from hwgen.spec.bundle import Bundle
from hwgen.spec.columns import Column, ColumnType
from hwgen.spec.config import MachineConfig
from hwgen.spec.cycles import RESULT_LATENCY, SPECIAL_LATENCY
from hwgen.spec.engine import Instruction, Opcode, Section
from hwgen.spec.load import RESET, Block, Held, bundle_blocks, training_blocks
from hwgen.spec.operations import Unit
from hwgen.spec.registers import Region, Register
from hwgen.spec.strider import CONFIGURATION, Control, Fault
from hwgen.spec.strider import Instruction as StriderInstruction
from hwgen.spec.strider import Opcode as StriderOpcode


class Act(IntEnum):
    """What a step does; `address` is a byte address."""

    WRITE = 0  # `word`, which must be answered with OKAY
    REJECTED_WRITE = 1  # with SLVERR
    PARTIAL_WRITE = 2  # of its lower half, with SLVERR
    READ = 3  # `word`
    REJECTED_READ = 4  # with SLVERR
    CLEARED = 5  # read until the bits of `word` are 0
    INTERRUPT = 6  # wait for the interrupt's line
    LINE = 7  # it must be `word`
    CYCLES = 8  # that pass
    SILENT = 9  # the memory of pages accepts and answers nothing on bus k where bit k of `word` is set
    BAD_BEATS = 10  # beats from `address` on, counted in bytes from the first page, come with the response in bits 1:0
    # of `word` on the bus in the others from bit 8 on
    BAD_RECORDS = 11  # bits 1:0 of `word` are the response to reads of records, 3:2 to writes
    RESET = 12  # the board and its memories
    REACHED = 13  # read until it is at least `word`, which it must then be
    FILL = 14  # the page at `word` is copied to `address`, both counted in bytes from the first page
    PLACE = 15  # the memory of pages begins at `address` * 2**32 + `word` on the first bus
    HOLDS = 16  # it has `word` pages; they repeat those from `address` on, counted in bytes from the first page
    LONG = 17  # what follows is left out with +QUICK
    PARTS = 18  # on each further bus it begins `address` * 2**32 + `word` bytes above that


class Step(NamedTuple):
    """A line of `sim/scenarios.hex`."""

    act: Act
    address: int = 0
    word: int = 0


Scenario = tuple[str, list[Step]]
"""What it shows, and its steps."""

SLVERR, DECERR = 2, 3
MANY_EPOCHS = 1 << 30
SOME_CYCLES = 1500
"""In which a training is under way."""
EVERY_CYCLE_ELSE = 200
"""More cycles than the testbench's memory needs for an answer, above its latency and a page's cycles."""
PLACES = 64
"""Bytes from one column of the page to the next: eight elements of any type."""

VALUES: dict[ColumnType, Sequence[float | int]] = {
    ColumnType.FLOAT4: (0.0, -0.0, 1.5, -3.25e30, float("inf"), float("nan"), 1e-40, 7.0),
    ColumnType.FLOAT8: (0.0, -1.5, 1e300, -1e-300, float("nan"), -float("inf"), 1 / 3, 16777217.0),
    ColumnType.INT2: (0, 1, -1, 32767, -32768, 255, 256, -2),
    ColumnType.INT4: (0, 1, -1, 2**31 - 1, -(2**31), 16777217, 16777219, -33554435),
    ColumnType.BOOL: (0, 1, 2, 128, 255, 0, 1, 16),
    ColumnType.INT8: (0, -1, 2**63 - 1, -(2**63), 2**53 + 1, 2**24 + 1, -(2**40) - 3, 77),
}
"""Elements of each column; the last column ends with the page."""

STREAMED = (3.0, 5.0, 17.0)
"""A number of each page of the streamed table; its first and last burst carry it."""
STALE = 1000.0
"""What the pages in the ring's slots have before they are filled."""
RING = 2
"""Slots of the ring."""
STREAMED_EPOCHS = 2
TWICE = Instruction(op=Opcode.ADD, inner=2)
"""Doubles two sums."""
PLUS = Instruction(op=Opcode.ADD, inner=2, b_tuple=1, wait=RESULT_LATENCY)
"""Adds a page's numbers to them."""

LONG_RING = 257
"""Slots of a ring whose slots and pages need nine bits."""
CARRY = 1 << 63
"""An address; the page below it has ones in all other bits."""
HIGH = 1 << 31
"""A count that is 0 in all narrower registers."""
MANY_LOSSES = 514
"""Epochs that need ten bits."""
HIGHEST_FAULT = 1 << 7
"""A fault that is 0 in fewer than eight bits."""

NAMES = {Opcode.MOV: "flush", Opcode.MAX: "maximum", Opcode.MIN: "minimum", Opcode.ABS: "absolute"}
"""Functions of `numerics` that do not have the operation's name."""
OPERATIONS: dict[Opcode, Callable[..., npt.NDArray[np.float32]]] = {
    op: getattr(numerics, NAMES.get(op, op.name.lower()))
    for op in Opcode
    if op.unit is not Unit.SEQUENCER and not op.chooses and op is not Opcode.MOVC
}
"""Operations that the testbench tries on `OPERANDS`: all that compute a result from their operands alone."""

OPERANDS = np.array(
    [
        # sums: ties to even, down and up; above a tie; below 1; carries; cancellation
        (0x3F800000, 0x33800000), (0x3F800001, 0x33800000), (0x3F800000, 0x33800001), (0x3F800000, 0xB3000000),
        (0x3FFFFFFF, 0x34000000), (0xCB800001, 0xBF800000), (0x3F800001, 0xBF800000), (0x3F800000, 0x3F800000),
        # products: ties to even, down and up; quotients
        (0x3F800800, 0x3F800800), (0x3F801800, 0x3F800800), (0x3F800000, 0x40400000), (0x3F800001, 0xBFFFFFFF),
        # overflow: by a tie, just not, by far
        (0x7F7FFFFF, 0x73000000), (0x7F7FFFFF, 0x72FFFFFF), (0xFF7FFFFF, 0xFF7FFFFF), (0x7F7FFFFF, 0x3F800001),
        # infinities, NaNs, zeros
        (0x7F800000, 0xFF800000), (0x7F800000, 0x7F800000), (0xFF800000, 0x00000000), (0x00000000, 0x7F800000),
        (0x7FC00000, 0x3F800000), (0x3F800000, 0xFFC12345), (0x7F800001, 0x80000000), (0x80000000, 0x00000000),
        (0x80000000, 0x80000000), (0xBF800000, 0x00000000), (0x00000000, 0x00000000), (0x3F800000, 0x80000000),
        # subnormal operands; results next to the smallest normal number
        (0x00000001, 0x3F800000), (0x807FFFFF, 0x4B000000), (0x3F800000, 0x007FFFFF), (0x00800000, 0x3F7FFFFF),
        (0x00800001, 0x3F7FFFFF), (0x00800001, 0x00800000), (0x80FFFFFF, 0x3F000000), (0x5F7FFFFF, 0x5F800001),
        # functions: where exp over- and underflows, sigmoid's last rows, others in the middle
        (0x42B17218, 0x3E9E3779), (0xC2AEAC50, 0x42F6E979), (0x41F80001, 0xC1200000), (0x3F3504F3, 0xBF12D687),
    ],
    dtype=np.uint32,
).T  # fmt: skip
"""Bit patterns of A and B. Five rows of eight lanes, so that they and a result fit the smallest scratchpad."""
SETTLED = max(RESULT_LATENCY, *SPECIAL_LATENCY.values())
"""Cycles between instructions, so that no result of one is written with those of another."""


def scenarios(made: Bundle, writes: Iterable[Block], at: int) -> tuple[list[Scenario], bytes]:
    """Scenarios in their order, and their pages, which begin `at` bytes behind the first page.

    Parameters
    ----------
    made
        What the board is loaded with, and has trained.
    writes
        What had it train.
    """
    small = _every_type(made.config)
    streamed, pages = _streamed(made.config, at + made.config.page_size)
    numbers, end = (at + (1 + count) * made.config.page_size for count in (RING, len(pages)))
    first, *others = _on(small, at)
    every_type = _page(small, [_stored(column.type) for column in small.columns])
    arithmetic, wide = _arithmetic(made.config, at), _wide(made.config, numbers, end)
    return [*_records(made, writes), first, streamed, arithmetic, *others, *wide], b"".join([every_type, *pages])


def text(scenarios: Sequence[Scenario]) -> str:
    """The steps as the testbench reads them, a line each: act, address, word; comments say what they show."""
    lines, count = [], 0
    for what, steps in scenarios:
        lines.append(f"// {what}: steps {count} to {count + len(steps) - 1}")
        lines += [f"{step.act:02x}{step.address:08x}{step.word:08x}" for step in steps]
        count += len(steps)
    return "\n".join(lines) + "\n"


def _types(config: MachineConfig) -> list[ColumnType]:
    return list(VALUES)[-config.descriptor_depth :]


def _every_type(config: MachineConfig) -> Bundle:
    """A tuple of a column of each type; a program that copies its rows into the scratchpad."""
    types = _types(config)
    copy = Instruction(op=Opcode.MOV, inner=len(types), a_tuple=1)
    return _one_tuple(config, [(kind, len(VALUES[kind])) for kind in types], [copy])


def _one_tuple(
    config: MachineConfig, columns: Sequence[tuple[ColumnType, int]], program: Sequence[Instruction]
) -> Bundle:
    """A page that is one tuple of columns, types and numbers of elements, a row each; a program for it."""
    last = len(columns) - 1
    end = config.page_size - columns[last][0].bytes * columns[last][1]
    take = [StriderInstruction(StriderOpcode.WRITEB, CONFIGURATION + k, 0, k) for k in range(len(columns))]
    return Bundle(
        config=config,
        program=(*program, Instruction(op=Opcode.END, wait=64)),
        sections={Section.TUPLE: 0},
        strider=(*take, StriderInstruction(StriderOpcode.CTL, Control.END)),
        constants=(*(PLACES * k for k in range(last)), end),
        columns=tuple(
            Column(count=count, row=k, type=kind, first=int(k == 0), last=int(k == last))
            for k, (kind, count) in enumerate(columns)
        ),
        batch=1,
        group=1,
        tuple_rows=len(columns),
        level_stride=0,
        levels=0,
        image=np.zeros((len(columns), config.lanes), dtype=np.uint32),
        symbols=(),
    )


def _streamed(config: MachineConfig, at: int) -> tuple[Scenario, list[bytes]]:
    """A table that is larger than its memory: a ring of slots from `at` on, filled late and again. And the pages there.

    The program doubles its sums before it adds a page's numbers, so the result shows which pages came, in which order.
    """
    size, count = config.page_size, len(STREAMED) * STREAMED_EPOCHS
    bundle = _sums(config, TWICE, PLUS)
    start = _start(bundle, len(STREAMED), at, STREAMED_EPOCHS, slots=RING, ready=0)
    steps = [*_written(bundle_blocks(bundle, before=Held())), *_written(start)]
    read = 0
    for ready in (0, 1, *range(RING + 1, count, RING), count):
        # a page may be written to its slot only when the page before it there has been read
        slots = [(at + page % RING * size, page % len(STREAMED)) for page in range(read, ready)]
        steps += [Step(Act.FILL, slot, at + (RING + page) * size) for slot, page in slots]
        steps += [
            _write(BoardRegister.PAGES_READY, ready),
            _board(Act.REACHED, BoardRegister.PAGES_READ, ready),
            Step(Act.CYCLES, 0, config.link_latency + config.page_cycles + EVERY_CYCLE_ELSE),
            _read(BoardRegister.PAGES_READ, ready),
        ]
        read = ready
    total = sum(STREAMED[page % len(STREAMED)] * 2 ** (count - 1 - page) for page in range(count))
    steps += [*_ended(BoardStatus.TRAINED), _read(BoardRegister.EPOCHS_RUN, STREAMED_EPOCHS)]
    steps += _model(config, total)
    pages = [_page(bundle, [np.array([number], dtype="<f4")] * 2) for number in (*[STALE] * RING, *STREAMED)]
    return (
        "a table streams through slots that are filled late, and again when their pages have been read",
        steps,
    ), pages


def _sums(config: MachineConfig, *program: Instruction) -> Bundle:
    """Two sums, the first rows of the scratchpad, over pages of two numbers."""
    return _one_tuple(config, [(ColumnType.FLOAT4, 1)] * 2, program)


def _model(config: MachineConfig, number: float) -> list[Step]:
    """Both sums must be this number."""
    return [_word(Act.READ, Region.SCRATCH, row * config.lanes, _bits(number), config) for row in range(2)]


def _bits(number: float) -> int:
    return int(np.float32(number).view(np.uint32))


def _wide(config: MachineConfig, at: int, end: int) -> Iterator[Scenario]:
    """Counts and addresses that narrow registers do not hold. `at`: where pages of `STREAMED` are; `end`: of all.

    The last two take twice the cycles of all other scenarios.
    """
    size, count = config.page_size, len(STREAMED)
    usual = [
        Step(Act.PLACE, BASE >> 32, BASE & 0xFFFFFFFF),
        Step(Act.PARTS, PART >> 32, PART & 0xFFFFFFFF),
        Step(Act.HOLDS, 0, end // size),
    ]

    def load(bundle: Bundle) -> Iterator[Step]:
        return _written(bundle_blocks(bundle, before=Held()))

    doubled = _sums(config, TWICE, PLUS)
    place = CARRY - board.slot_bytes(config)
    start = training_blocks(doubled, pages=count, epochs=1, base=place, slots=HIGH + 1, ready=HIGH)
    yield (
        "page addresses have 64 bits; slots and ready pages are compared in 32",
        [
            # the same address on each bus, so that each has the carry
            Step(Act.PLACE, place >> 32, place & 0xFFFFFFFF),
            Step(Act.PARTS),
            Step(Act.HOLDS, at, count),
            *load(doubled),
            *_written(start),
            *_ended(BoardStatus.TRAINED),
            *_model(config, sum(number * 2 ** (count - 1 - k) for k, number in enumerate(STREAMED))),
            *usual,
        ],
    )
    add = Instruction(op=Opcode.ADD, b=1, wait=RESULT_LATENCY)
    end_of_init = Instruction(op=Opcode.END, wait=RESULT_LATENCY)
    sums = _sums(config, PLUS)
    # epochs without a page are short
    counts = replace(
        sums,
        program=(add, end_of_init, *sums.program),
        sections={Section.INIT: 0, Section.TUPLE: 2},
        image=np.repeat(np.array([0, _bits(1)], dtype=np.uint32), config.lanes).reshape(2, config.lanes),
    )

    def count_epochs(epochs: int, register: BoardRegister, row: int) -> Iterator[Step]:
        blocks = _start(counts, 0, at, epochs, slots=1)
        return _written(blocks, {register: row * config.lanes})

    steps = [*load(counts)]
    for word in (0, _bits(-0.0), 1, 1 << 30):
        holds = word << 1 & 0xFFFFFFFF != 0
        steps += [
            _word(Act.WRITE, Region.SCRATCH, 2 * config.lanes, word, config),
            *count_epochs(2, BoardRegister.CONVERGENCE_AT, 2),
            *_ended(BoardStatus.TRAINED | (BoardStatus.CONVERGED if holds else 0)),
            _read(BoardRegister.EPOCHS_RUN, 1 if holds else 2),
        ]
    yield "a convergence test holds unless it is 0 or -0", steps
    fails = replace(sums, strider=(StriderInstruction(StriderOpcode.CTL, Control.FAIL, *divmod(HIGHEST_FAULT, 64)),))
    start = _start(fails, 1, at)
    yield "a fault has eight bits", [*load(fails), *_written(start), *_ended(HIGHEST_FAULT << 8)]
    epochs = {0, MANY_LOSSES - 1, *(1 << bit for bit in range((MANY_LOSSES - 1).bit_length()))}
    yield (
        f"the losses of {MANY_LOSSES} epochs are kept",
        [
            Step(Act.LONG),
            *load(counts),
            *count_epochs(MANY_LOSSES, BoardRegister.LOSS_AT, 0),
            _board(Act.REACHED, BoardRegister.EPOCHS_RUN, MANY_LOSSES),
            *_ended(BoardStatus.TRAINED),
            *(_word(Act.READ, BoardRegion.LOSSES, epoch, _bits(epoch + 1)) for epoch in sorted(epochs)),
        ],
    )
    page = LONG_RING + 1
    start = _start(sums, page + 2, 0, slots=LONG_RING, ready=page)
    yield (
        f"page {page} fails, in slot 1 of {LONG_RING}",
        [
            Step(Act.HOLDS, at, LONG_RING),
            *load(sums),
            *_written(start),
            _board(Act.REACHED, BoardRegister.PAGES_READ, page),
            # so late in its page that beats of the next one, where it is under way, fail too
            Step(Act.BAD_BEATS, 2 * size - config.link_bytes, config.buses - 1 << 8 | SLVERR),
            _write(BoardRegister.PAGES_READY, page + 2),
            *_ended(Fault.BUS << 8),
            _read(BoardRegister.FAILED_PAGE, page),
            Step(Act.BAD_BEATS),
        ],
    )


def _arithmetic(config: MachineConfig, at: int) -> Scenario:
    """Each operation on operands that are rounded, overflow, are infinite, NaN, zero or subnormal, to the bit.

    Operands lie in the scratchpad, where the host writes them as they are: the unpacker would flush them.
    """
    count = OPERANDS.shape[1]
    rows = -(-count // config.lanes)
    image = np.zeros((2, rows * config.lanes), dtype=np.uint32)
    image[:, :count] = OPERANDS
    a, b = (_held(config, k * rows, words).view(np.float32) for k, words in enumerate(OPERANDS))
    operations = [op for op in OPERATIONS if config.has(op)]
    at_once = min(config.program_depth - 1, config.scratch_depth // rows - 2)
    steps: list[Step] = []
    for first in range(0, len(operations), at_once):
        chosen = list(enumerate(operations[first : first + at_once], 2))
        program = [
            Instruction(op=op, inner=rows, dst=k * rows, a=0, b=rows if op.reads_b else 0, wait=SETTLED)
            for k, op in chosen
        ]
        bundle = _one_tuple(config, [(ColumnType.FLOAT4, 1)] * 2, program)
        bundle = replace(bundle, image=image.reshape(2 * rows, config.lanes))
        steps += _written(bundle_blocks(bundle, before=Held()))
        steps += [*_written(_start(bundle, 1, at)), *_ended(BoardStatus.TRAINED)]
        for k, op in chosen:
            results = OPERATIONS[op](a, b) if op.reads_b else OPERATIONS[op](a)
            first = k * rows * config.lanes
            steps += [
                _word(Act.READ, Region.SCRATCH, first + n, int(word), config)
                for n, word in enumerate(_held(config, k * rows, results.view(np.uint32)))
            ]
    return "operations round, overflow and flush to the bit, and give the NaN that they must", steps


def _held(config: MachineConfig, row: int, words: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    """What scratchpads hold of words that are written from a row on: in narrow rows the upper halves."""
    rows = row + np.arange(words.size) // config.lanes
    narrow = rows >= (config.wide_depth or config.scratch_depth)
    return np.where(narrow, words & np.uint32(0xFFFF0000), words)


def _page(bundle: Bundle, columns: Sequence[npt.NDArray[np.generic]]) -> bytes:
    page = bytearray(bundle.config.page_size)
    for column, place in zip(columns, bundle.constants, strict=True):
        data = column.tobytes()
        page[place : place + len(data)] = data
    return bytes(page)


def _stored(kind: ColumnType) -> npt.NDArray[np.generic]:
    return np.array(VALUES[kind], dtype=kind.dtype)


def _word(
    act: Act, region: Region | BoardRegion, offset: int, word: int = 0, config: MachineConfig | None = None
) -> Step:
    return Step(act, byte_address(region, offset, config), word)


def _board(act: Act, register: BoardRegister, word: int = 0) -> Step:
    return _word(act, BoardRegion.BOARD, register, word)


def _write(register: BoardRegister, word: int) -> Step:
    return _board(Act.WRITE, register, word)


def _read(register: BoardRegister, word: int) -> Step:
    return _board(Act.READ, register, word)


def _start(bundle: Bundle, pages: int, at: int, epochs: int = 1, **ring: int) -> Iterator[Block]:
    """What starts a training on pages that begin `at` bytes behind the first page."""
    base = BASE + at // bundle.config.buses
    return training_blocks(bundle, pages=pages, epochs=epochs, base=base, part=PART, **ring)


def _written(blocks: Iterable[Block], instead: dict[BoardRegister, int] | None = None) -> Iterator[Step]:
    """Writes of blocks, some registers of the board with other words."""
    other = {byte_address(BoardRegion.BOARD, register): word for register, word in (instead or {}).items()}
    for start, words in blocks:
        for k, word in enumerate(words.ravel()):
            at = 4 * (start + k)
            yield Step(Act.WRITE, at, other.get(at, int(word)))


def _ended(status: int) -> list[Step]:
    """The interrupt comes and goes, and STATUS says so."""
    line = [Step(Act.INTERRUPT), _read(BoardRegister.INTERRUPT, 1), _write(BoardRegister.INTERRUPT, 1)]
    return [*line, Step(Act.LINE, 0, 0), _read(BoardRegister.STATUS, status)]


def _records(made: Bundle, writes: Iterable[Block]) -> Iterator[Scenario]:
    """Errors on the bus of the record memory, in the rule's own training."""
    if not made.tables:
        return
    again = list(_written(writes))
    for what, response in (("read", SLVERR), ("written", SLVERR << 2)):
        failed = [_read(BoardRegister.FAILED_PAGE, 0xFFFFFFFF), Step(Act.BAD_RECORDS, 0, 0)]
        yield (
            f"an error of the bus ends a training as a record is {what}",
            [Step(Act.BAD_RECORDS, 0, response), *again, *_ended(Fault.BUS << 8), *failed],
        )


def _on(small: Bundle, at: int) -> Iterator[Scenario]:
    config = small.config
    load = list(_written(bundle_blocks(small, before=Held())))
    blocks = list(_start(small, 1, at))

    def train(**instead: int) -> list[Step]:
        return list(_written(blocks, {BoardRegister[name]: word for name, word in instead.items()}))

    model = [
        _word(Act.READ, Region.SCRATCH, row * config.lanes + lane, int(word), config)
        for row, column in enumerate(small.columns)
        for lane, word in enumerate(column.type.convert(_stored(column.type)).view(np.uint32))
    ]
    busy = [
        _word(Act.REJECTED_WRITE, Region.SCRATCH, 3, 7, config),
        _word(Act.REJECTED_WRITE, Region.PROGRAM, 0, 7, config),
        _word(Act.REJECTED_WRITE, Region.CONTROL, Register.PAGES, 7),
        _word(Act.REJECTED_WRITE, Region.CONTROL, Register.CONTROL, RESET),
        _board(Act.REJECTED_WRITE, BoardRegister.PAGE_BASE, 7),
        _board(Act.REJECTED_WRITE, BoardRegister.EPOCHS, 7),
        _word(Act.REJECTED_READ, Region.SCRATCH, 0, config=config),
        _write(BoardRegister.COMMAND, Command.TRAIN),
        _read(BoardRegister.STATUS, BoardStatus.BUSY),
        _word(Act.READ, Region.CONTROL, Register.ID, registers.IDENTITY),
    ]
    idle = _board(Act.CLEARED, BoardRegister.STATUS, BoardStatus.BUSY)
    yield (
        "registers say what they are",
        [
            _word(Act.READ, Region.CONTROL, Register.ID, registers.IDENTITY),
            _read(BoardRegister.ID, board.IDENTITY),
            _read(BoardRegister.COMMAND, 0),
        ],
    )
    yield (
        "a write of less than a word is rejected and has no effect",
        [
            _write(BoardRegister.EPOCHS, 0x01020304),
            _board(Act.PARTIAL_WRITE, BoardRegister.EPOCHS, 0xFFFFFFFF),
            _read(BoardRegister.EPOCHS, 0x01020304),
        ],
    )
    yield (
        "what has no effect is rejected",
        [
            _word(Act.REJECTED_READ, Region.PROGRAM, 0, config=config),
            _word(Act.REJECTED_WRITE, BoardRegion.LOSSES, 0),
            _word(Act.REJECTED_WRITE, Region.CONTROL, Register.CONTROL, 1),
            *_missing(config),
        ],
    )
    yield (
        "no write reaches a board that trains, and its interrupt is silent until it is enabled",
        [
            *load,
            Step(Act.SILENT, 0, 1 << config.buses - 1),
            *train(EPOCHS=3, INTERRUPT_ENABLE=0),
            *busy,
            Step(Act.SILENT, 0, 0),
            idle,
            _read(BoardRegister.STATUS, BoardStatus.TRAINED),
            _read(BoardRegister.EPOCHS, 3),
            _read(BoardRegister.EPOCHS_RUN, 3),
            _read(BoardRegister.PAGES_READ, 3),
            _word(Act.READ, Region.CONTROL, Register.TUPLES, 1),
            _read(BoardRegister.INTERRUPT, 1),
            Step(Act.LINE, 0, 0),
            _write(BoardRegister.INTERRUPT_ENABLE, 1),
            Step(Act.LINE, 0, 1),
            _write(BoardRegister.INTERRUPT, 1),
            Step(Act.LINE, 0, 0),
        ],
    )
    yield "elements of every type are converted, the last of them at the page's end", model
    yield (
        "a stop wins over a start",
        [
            _write(BoardRegister.COMMAND, Command.TRAIN | Command.STOP),
            Step(Act.CYCLES, 0, 20),
            _read(BoardRegister.STATUS, BoardStatus.TRAINED),
        ],
    )
    for bus, response in product(range(config.buses), (SLVERR, DECERR)):
        yield (
            "an error of the bus ends a training",
            [
                Step(Act.BAD_BEATS, at + config.page_size // 2, bus << 8 | response),
                *train(EPOCHS=3),
                *_ended(Fault.BUS << 8),
                _read(BoardRegister.FAILED_PAGE, 0),
                Step(Act.BAD_BEATS),
            ],
        )
    last = len(small.constants) - 1
    yield (
        "a column that ends a byte behind its page ends a training",
        [
            _word(Act.WRITE, Region.CONSTANT, last, small.constants[last] + 1),
            *train(),
            *_ended(Fault.OUT_OF_PAGE << 8),
            _word(Act.READ, Region.CONTROL, Register.FAULT_PAGE, 0),
        ],
    )
    yield (
        "a stop ends a training",
        [
            *load,
            *train(EPOCHS=MANY_EPOCHS),
            Step(Act.CYCLES, 0, SOME_CYCLES),
            _read(BoardRegister.STATUS, BoardStatus.BUSY),
            _write(BoardRegister.COMMAND, Command.STOP),
            idle,
            *_ended(BoardStatus.STOPPED),
        ],
    )
    yield (
        "a memory that does not answer is reported; a stop does not wait for it, but the next training does",
        [
            _read(BoardRegister.BUS_TIMEOUT, board.BUS_TIMEOUT),
            _write(BoardRegister.BUS_TIMEOUT, config.link_latency + config.page_cycles + EVERY_CYCLE_ELSE),
            Step(Act.SILENT, 0, 1 << config.buses - 1),
            *train(),
            *_ended(BoardStatus.BUSY | BoardStatus.UNANSWERED),
            _write(BoardRegister.COMMAND, Command.STOP),
            *_ended(BoardStatus.STOPPED | BoardStatus.UNANSWERED),
            _board(Act.REJECTED_WRITE, BoardRegister.COMMAND, Command.TRAIN),
            Step(Act.SILENT, 0, 0),
            _board(Act.CLEARED, BoardRegister.STATUS, BoardStatus.UNANSWERED),
            _read(BoardRegister.STATUS, BoardStatus.STOPPED),
            *(
                step
                for timeout in (0, HIGH + EVERY_CYCLE_ELSE)
                for step in (
                    _write(BoardRegister.BUS_TIMEOUT, timeout),
                    Step(Act.SILENT, 0, 1 << config.buses - 1),
                    *train(),
                    Step(Act.CYCLES, 0, SOME_CYCLES),
                    Step(Act.LINE, 0, 0),
                    _read(BoardRegister.STATUS, BoardStatus.BUSY),
                    _write(BoardRegister.COMMAND, Command.STOP),
                    Step(Act.SILENT, 0, 0),
                    *_ended(BoardStatus.STOPPED),
                )
            ),
            _write(BoardRegister.BUS_TIMEOUT, board.BUS_TIMEOUT),
        ],
    )
    yield (
        "a reset ends a training",
        [
            *train(EPOCHS=MANY_EPOCHS),
            Step(Act.CYCLES, 0, SOME_CYCLES),
            Step(Act.RESET),
            _read(BoardRegister.STATUS, 0),
            _read(BoardRegister.INTERRUPT, 0),
            Step(Act.LINE, 0, 0),
            # it does not know any more where pages are
            _board(Act.REJECTED_WRITE, BoardRegister.COMMAND, Command.TRAIN),
        ],
    )
    yield "after all that the board trains as ever", [*load, *train(), *_ended(BoardStatus.TRAINED), *model]


def _missing(config: MachineConfig) -> Iterator[Step]:
    """Accesses to the word behind each region, where the map has room for it and no other region begins there."""
    sizes = region_words(config)
    taken = {byte_address(region, 0, config) for region in sizes} | {aperture_bytes(config)}
    for region, words in sizes.items():
        behind = byte_address(region, words, config)
        if behind not in taken:
            yield Step(Act.REJECTED_WRITE, behind)
            yield Step(Act.REJECTED_READ, behind)
