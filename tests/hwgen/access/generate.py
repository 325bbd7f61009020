"""Random epochs: programs that hand over tuples from anywhere on random pages, and programs of any words at all."""

from __future__ import annotations

import random
import struct
from dataclasses import replace

from hwgen.spec.columns import Column, ColumnType
from hwgen.spec.config import MachineConfig
from hwgen.spec.strider import Condition, Control, Fault, Instruction, Opcode
from tests.hwgen.access.case import Case

I = Instruction  # noqa: E741
SINGLES = [
    0x00000000, 0x80000000, 0x00000001, 0x007FFFFF, 0x00800000, 0x80800000, 0x3F800000, 0x7F7FFFFF, 0x7F800000,
    0xFF800000, 0x7F800001, 0x7FC00000, 0xFFFFFFFF, 0x7FBFFFFF,
]  # fmt: skip
INTEGERS = [0, 1, -1, (1 << 24) + 1, (1 << 24) + 3, (1 << 25) + 2, (1 << 31) - 1, -(1 << 31), (1 << 63) - 1, -(1 << 63)]
COUNTER, ADDRESS, TOTAL, PLACE = 1, 2, 3, 4
"""Registers of the walking programs; from %t8 on they compute what nobody needs."""


def _double(rnd: random.Random) -> bytes:
    """A float8 near what matters for its rounding: ties, the largest and the least binary32, NaN."""
    sign = rnd.getrandbits(1) << 63
    exponent = rnd.choice(
        [0, 1, 895, 896, 897, 872, 1023, 1023, 1050, 1149, 1150, 1151, 2046, 2047, rnd.randrange(2048)]
    )
    high = rnd.choice([0, (1 << 23) - 1, rnd.getrandbits(23)])
    low = rnd.choice([0, 1, 1 << 28, (1 << 28) - 1, (1 << 28) + 1, (1 << 29) - 1, rnd.getrandbits(29)])
    return struct.pack("<Q", sign | exponent << 52 | high << 29 | low)


def page(rnd: random.Random, size: int) -> bytes:
    """Random bytes with values in them, at any byte, that conversions could get wrong."""
    data = bytearray(rnd.randbytes(size))
    at = 0
    while at < size - 64:
        kind = rnd.randrange(5)
        if kind == 0:
            piece = struct.pack("<I", rnd.choice(SINGLES))
        elif kind == 1:
            piece = _double(rnd)
        elif kind == 2:
            width = rnd.choice([2, 4, 8])
            piece = (rnd.choice(INTEGERS) & (1 << 8 * width) - 1).to_bytes(width, "little")
        elif kind == 3:
            # integers with a rounding tie at every magnitude
            shift = rnd.randrange(40)
            value = ((1 << 24) + rnd.getrandbits(23) * 2 + rnd.getrandbits(1)) << shift >> 1
            piece = (value * rnd.choice([1, -1]) & (1 << 64) - 1).to_bytes(8, "little")
        else:
            piece = bytes(rnd.randrange(1, 9))
        data[at : at + len(piece)] = piece
        at += len(piece) + rnd.choice([0, 0, 0, rnd.randrange(8)])
    return bytes(data)


def column(rnd: random.Random, config: MachineConfig, *, longest: int, rows: int) -> Column:
    """A column of at most `longest` bytes and within `rows` rows."""
    kind = rnd.choice([ColumnType.FLOAT4, ColumnType.FLOAT4, *ColumnType])
    lanes = config.lanes
    if rnd.random() < 0.3:
        return Column(count=1, row=rnd.randrange(rows), type=kind, scalar=1)
    lane = rnd.choice([0, 0, rnd.randrange(lanes)])
    row = rnd.randrange(rows)
    most = max(1, min(longest // kind.bytes, (rows - row) * lanes - lane))
    count = rnd.choice([1, most, rnd.randint(1, most), rnd.randint(1, min(most, 2 * lanes))])
    return Column(count=count, row=row, lane=lane, type=kind)


def _noise(rnd: random.Random, config: MachineConfig) -> Instruction:
    """An instruction that changes nothing that matters, %t8 to %t31 at most."""
    source, other, target = (rnd.choice([*range(8, 32), *range(32, 64)]) for _ in range(3))
    target = rnd.randrange(8, 32)
    return rnd.choice(
        [
            I(Opcode.READB, PLACE, rnd.randint(1, 4), target),
            I(Opcode.EXTRB, target, rnd.randrange(4), rnd.randint(1, 4)),
            I(Opcode.EXTRBI, target, rnd.randrange(32), rnd.randint(1, 32)),
            I(Opcode.CLN, source, rnd.randrange(8), target),
            I(Opcode.INS, target, rnd.randrange(64), rnd.randrange(64)),
            I(Opcode.AD, source, other, target),
            I(Opcode.SUB, source, other, target),
            I(Opcode.MUL, source, other, target),
            I(Opcode.CTL, Control.POP, source, target),
            I(Opcode.CTL, Control.SKIP),
        ]
    )


def _noises(rnd: random.Random, config: MachineConfig, most: int) -> list[Instruction]:
    """Some of them, with branches forward among them."""
    body = [_noise(rnd, config) for _ in range(rnd.randint(0, most))]
    for k in range(len(body)):
        if rnd.random() < 0.3 and len(body) - k > 1:
            op = rnd.choice([Opcode.BEQ, Opcode.BNE, Opcode.BLT])
            a, b = rnd.randrange(8, 64), rnd.choice([rnd.randrange(8, 64)] * 3 + [8])
            body[k] = I(op, a, b if rnd.random() < 0.8 else a, rnd.randint(1, min(31, len(body) - k)))
    return body


def walking(rnd: random.Random, config: MachineConfig, *, pages: int, noise: int = 8, watched: int = 0) -> Case:
    """A program whose tuples lie anywhere; how many depends on the page. What it computes become addresses.

    Parameters
    ----------
    watched
        Columns that choose rows; each of a few addresses, so that numbers come again.
    """
    rows = rnd.choice([1, 2, 3, 5])
    group_log2 = rnd.randrange(3)
    while (rows << group_log2) * 2 > config.tuple_depth:
        rows, group_log2 = max(1, rows // 2), max(0, group_log2 - 1)
    bits = (config.page_size - 1).bit_length() - 1
    columns: list[Column] = []
    picks = [
        column(rnd, config, longest=min(config.page_size // 2, 4 * config.lanes * rows), rows=rows)
        for _ in range(rnd.choice([1, 1, 2, 2, 3, 6]))
    ]
    for _ in range(watched):
        columns.append(
            Column(
                count=1, row=0, type=rnd.choice([*ColumnType]), scalar=rnd.randrange(2), table=rnd.choice([1, 1, 2, 7]),
                writes=int(rnd.random() < 0.7),
            )
        )  # fmt: skip
    for k, c in enumerate(picks):
        columns.append(
            Column(
                count=c.count, row=c.row, lane=c.lane, type=c.type, scalar=c.scalar,
                first=int(k == 0), last=int(k == len(picks) - 1),
            )
        )  # fmt: skip
    constants = [rnd.getrandbits(32) for _ in range(32)]
    constants[0] = 1
    step = 32
    program = [
        I(Opcode.INS, PLACE, rnd.randrange(64), rnd.randrange(64)),
        I(Opcode.READB, PLACE, 4, TOTAL),
        I(Opcode.EXTRBI, TOTAL, rnd.randrange(20), rnd.choice([1, 3, 5])),
        I(Opcode.READB, PLACE, 4, ADDRESS),
        I(Opcode.BEQ, TOTAL, 0, 2) if rnd.random() < 0.5 else I(Opcode.AD, TOTAL, step, TOTAL),
        I(Opcode.BENTR),
    ]
    head = len(program)
    if program[4].op is Opcode.BEQ:
        program[4] = I(Opcode.BNE, TOTAL, 0, 2)
        program.insert(5, I(Opcode.CTL, Control.END))
        head += 1
    for k in range(len(columns)):
        program += _noises(rnd, config, noise)
        mixed = rnd.choice(
            [
                [I(Opcode.MUL, ADDRESS, rnd.randrange(33, 64), ADDRESS), I(Opcode.AD, ADDRESS, 40, ADDRESS)],
                [I(Opcode.SUB, ADDRESS, rnd.randrange(33, 64), ADDRESS)],
                [I(Opcode.READB, PLACE, 4, ADDRESS)],
                [I(Opcode.CLN, ADDRESS, rnd.randrange(8), ADDRESS)],
            ]
        )
        reach = rnd.choice([2, 4, 7]) if k < watched else bits
        program += [*mixed, I(Opcode.AD, ADDRESS, 63, PLACE), I(Opcode.EXTRBI, PLACE, rnd.randrange(4), reach)]
        program.append(I(Opcode.WRITEB, PLACE, 0, k))
    program += _noises(rnd, config, noise)
    program += [I(Opcode.AD, COUNTER, step, COUNTER)]
    if rnd.random() < 0.5:
        program.append(I(Opcode.BEXIT, rnd.choice([Condition.EQ, Condition.GE]), COUNTER, TOTAL))
    else:
        program += [I(Opcode.BEQ, COUNTER, TOTAL, 2), I(Opcode.JMP, 0, head >> 6, head & 63)]
    program.append(I(Opcode.CTL, Control.END))
    slow = rnd.random() < 0.3
    return Case(
        config=config,
        program=tuple(program),
        constants=tuple(constants),
        columns=tuple(columns),
        pages=tuple(page(rnd, config.page_size) for _ in range(pages)),
        batch=rnd.choice([0xFFFFFFFF, 1, 2, 3, 7, 64, config.threads << group_log2]),
        group_log2=group_log2,
        tuple_rows=rows,
        delays=tuple((rnd.randint(1, 200 if slow else 20), rnd.randint(0, 30)) for _ in range(4)),
    )


def wild(rnd: random.Random, config: MachineConfig, *, pages: int, loops: bool, length: int = 40) -> Case:
    """Any words: most of them valid, jumps forward, or anywhere within the program."""
    program = []
    for k in range(length):
        op = rnd.choice([*Opcode, Opcode.READB, Opcode.WRITEB])
        if op is Opcode.BEXIT and not loops:
            op = Opcode.BLT
        a, b, c = (rnd.choice([rnd.randrange(64), rnd.randrange(8)]) for _ in range(3))
        if op is Opcode.READB:
            b, c = rnd.randint(1, 4), c % 32
        elif op is Opcode.EXTRB:
            a, b, c = a % 32, b % 4, rnd.randint(1, 4)
        elif op is Opcode.EXTRBI:
            a, b, c = a % 32, b % 32, rnd.randint(1, 32)
        elif op is Opcode.CLN:
            b, c = b % 8, c % 32
        elif op in (Opcode.AD, Opcode.SUB, Opcode.MUL):
            c %= 32
        elif op is Opcode.INS:
            a %= 32
        elif op is Opcode.WRITEB:
            b, c = 0, rnd.randrange(4)
        elif op in (Opcode.BEQ, Opcode.BNE, Opcode.BLT):
            c = rnd.randint(-6 if loops else 1, 10) % 64
        elif op is Opcode.BEXIT:
            a %= 4
        elif op is Opcode.JMP:
            a, b, c = 0, 0, rnd.randrange(0 if loops else k + 1, length + 1)
        elif op is Opcode.CTL:
            a, c = rnd.choice([0, 1, 3, 3]), c % 32
        if rnd.random() < 0.01:
            a, b, c = (rnd.randrange(64) for _ in range(3))
        program.append(I(op, a, b, c))
    constants = [rnd.choice([rnd.getrandbits(12), rnd.randrange(8), rnd.getrandbits(32)]) for _ in range(32)]
    columns = []
    for _ in range(4):
        some = column(rnd, config, longest=64, rows=2)
        first, last = rnd.choice([(1, 1), (1, 1), (1, 0), (0, 1), (0, 0)])
        follows = rnd.choice([0, 0, 0, 1])
        table = rnd.choice([0, 0, 0, 0, 0, 3]) if config.watch_depth else 0
        columns.append(
            Column(
                count=some.count,
                row=some.row,
                lane=some.lane,
                type=some.type,
                scalar=some.scalar,
                first=first,
                last=last,
                follows=follows,
                table=table,
            )
        )
    return Case(
        config=config,
        program=tuple(program),
        constants=tuple(constants),
        columns=tuple(columns),
        pages=tuple(page(rnd, config.page_size) for _ in range(pages)),
        batch=rnd.choice([0xFFFFFFFF, 1, 5]),
        group_log2=rnd.randrange(2),
        tuple_rows=2,
    )


def parted(rnd: random.Random, config: MachineConfig, *, rows: int, damaged: bool = False) -> Case:
    """Tuples of which each lies on several pages, a part on each; between them pages without any.

    Parameters
    ----------
    damaged
        Pages are left out, doubled, exchanged, or numbered as no part.
    """
    parts = rnd.choice([2, 3, 5])
    tuple_rows = rnd.choice([2, 4])
    picks = [
        column(rnd, config, longest=min(config.page_size // 2, 2 * config.lanes * tuple_rows), rows=tuple_rows)
        for _ in range(parts * rnd.choice([1, 2]))
    ]
    columns = tuple(
        replace(c, first=int(k == 0), last=int(k == len(picks) - 1), follows=int(k > 0)) for k, c in enumerate(picks)
    )
    each = len(picks) // parts
    other = parts
    constants = [*range(8), *(rnd.randrange(config.page_size // 2) for _ in range(24))]
    program = [I(Opcode.READB, 32, 1, COUNTER)]
    for part in range(parts):
        writes = [I(Opcode.WRITEB, rnd.randrange(40, 64), 0, k) for k in range(part * each, (part + 1) * each)]
        program += [
            I(Opcode.BNE, COUNTER, 32 + part, len(writes) + 2),
            *writes,
            I(Opcode.CTL, Control.END),
        ]
    program += [
        I(Opcode.BNE, COUNTER, 32 + other, 3),
        I(Opcode.CTL, Control.SKIP),
        I(Opcode.CTL, Control.END),
        I(Opcode.CTL, Control.FAIL, 0, Fault.TUPLE_PARTS),
    ]
    numbers: list[int] = []
    for _ in range(rows):
        numbers += [other] * (rnd.random() < 0.2)
        numbers += range(parts)
    for _ in range(rnd.randint(1, 2) if damaged else 0):
        at = rnd.randrange(len(numbers))
        numbers[at : at + 1] = rnd.choice([[], numbers[at : at + 1] * 2, [rnd.randrange(parts)], [parts + 1]])
    group_log2 = 1 if 2 * tuple_rows * 2 <= config.tuple_depth and rnd.random() < 0.5 else 0
    return Case(
        config=config,
        program=tuple(program),
        constants=tuple(constants),
        columns=columns,
        pages=tuple(bytes([number]) + page(rnd, config.page_size)[1:] for number in numbers),
        batch=rnd.choice([0xFFFFFFFF, 1, 2, 5]),
        group_log2=group_log2,
        tuple_rows=tuple_rows,
        delays=tuple((rnd.randint(1, 400), rnd.randint(0, 30)) for _ in range(3)),
    )
