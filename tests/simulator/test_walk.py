"""Pages whose rows are taken all at once give what the interpreter gives, on any program and any page."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

import numpy as np
import pytest

from dana.compiler.strider.program import compile_strider
from dana.simulator import KERNELS, Simulator
from dana.storage.builder import build_pages
from dana.storage.types import ARRAYS, SCALARS
from hwgen.spec.columns import Column, ColumnType
from hwgen.spec.config import MachineConfig
from hwgen.spec.counters import EpochCounters
from hwgen.spec.engine import Section
from hwgen.spec.strider import Condition, Control, Fault, Instruction, Opcode
from tests.guarded import guarded
from tests.hwgen.access.case import Case
from tests.scale import scaled
from tests.simulator.bundles import keeping
from tests.simulator.test_access import available
from tests.storage.schemas import damage, random_page, random_schema, random_uses, random_value

I = Instruction  # noqa: E741
CURSOR, LIMIT, DOWN = 0, 1, 2
WORK = dict.fromkeys(Section, 2)


def seen(counters: EpochCounters) -> object:
    """What counts of an epoch: all counters, or the fault alone."""
    if counters.fault is Fault.NONE:
        return counters
    return counters.fault, counters.fault_page, counters.fault_pointer


def both(
    case: Case, kernels: str | None = None, work: Mapping[Section, int] = MappingProxyType(WORK)
) -> tuple[EpochCounters, int]:
    """Run walked and interpreted; they agree in counters, fault and tuples. The counters, and rows that were walked."""
    bundle = keeping(case, work=work)
    results = []
    walked = 0
    for plain in (False, True):
        simulator = Simulator(case.config, kernels=kernels, plain=plain)
        simulator.load(bundle)
        pages = guarded(b"".join(case.pages))
        # the second epoch knows all ways from the first page on
        counters = [simulator.run_epoch(pages), simulator.run_epoch(pages)]
        rows = simulator.read_rows(0, 2 * case.tuple_rows << case.group_log2)
        results.append((counters, rows))
        walked += simulator.walked_rows
        assert not plain or simulator.walked_rows == 0
    (found, rows), (interpreted, expected) = results
    assert [seen(c) for c in found] == [seen(c) for c in interpreted]
    if interpreted[0].fault is Fault.NONE:
        np.testing.assert_array_equal(rows, expected)
    return interpreted[0], walked


def table_case(rng: random.Random, *, nulls: float, damaged: bool) -> Case:
    """A random table's program and pages."""
    config = MachineConfig(
        threads=rng.choice([1, 2, 4]), clusters=rng.choice([1, 2]), striders=rng.choice([1, 3]),
        queue_depth=rng.choice([2, 16]), tuple_depth=1024, scratch_depth=1024, strider_depth=4096, descriptor_depth=256,
    )  # fmt: skip
    length = rng.choice([1, 5, 9])
    schema = random_schema(rng, rng.choice([1, 2, 5, 12]))
    while not any(a.type_oid in SCALARS or a.type_oid in ARRAYS for a in schema.attributes):
        schema = random_schema(rng, 3)
    uses, layout = random_uses(rng, schema, config.lanes, length)
    access = compile_strider(schema, uses, layout, config)
    pages = []
    for _ in range(rng.choice([1, 3, 6])):
        if rng.random() < 0.5:
            page = random_page(rng, schema, length, nulls=nulls)
        else:
            row = [random_value(rng, a, length) for a in schema.attributes]
            page = build_pages(schema, [row] * rng.randint(1, 80), page_size=8192)[:8192]
        pages.append(damage(rng, page) if damaged and rng.random() < 0.5 else page)
    return Case(
        config=config,
        program=access.instructions,
        constants=access.constants,
        columns=access.columns,
        pages=tuple(pages),
        batch=rng.choice([1, 3, 16, 0xFFFFFFFF]),
        group_log2=rng.choice([0, 2]),
        tuple_rows=layout.rows,
    )


@pytest.mark.parametrize("kernels", [k for k in KERNELS if available(k)])
def test_tables(kernels: str) -> None:
    rng = random.Random(f"tables {kernels}")
    tuples = walked = 0
    for _ in range(scaled(60)):
        counters, some = both(table_case(rng, nulls=rng.choice([0.0, 0.0, 0.1, 0.5]), damaged=False), kernels)
        tuples += counters.tuples
        walked += some
    assert walked > tuples, "most rows should be walked"


def test_damaged_tables() -> None:
    rng = random.Random("damage")
    faults: set[Fault] = set()
    for _ in range(scaled(300)):
        counters, _ = both(table_case(rng, nulls=0.1, damaged=True))
        faults.add(counters.fault)
    assert len(faults) > 3, faults


def test_many_pages_alike() -> None:
    """Times that are remembered are those that the recurrences give, whatever a batch is and whoever waits for whom."""
    rng = random.Random("alike")
    for number in range(scaled(40)):
        schema = random_schema(rng, rng.choice([1, 3]))
        while not any(a.type_oid in SCALARS for a in schema.attributes):
            schema = random_schema(rng, 3)
        config = MachineConfig(
            threads=rng.choice([1, 2, 8]), striders=rng.choice([1, 3, 16]), queue_depth=rng.choice([2, 16]),
            link_latency=rng.choice([20, 300]), link_bytes=rng.choice([8, 64]), tuple_depth=1024, strider_depth=4096,
        )  # fmt: skip
        uses, layout = random_uses(rng, schema, config.lanes, 3)
        access = compile_strider(schema, uses, layout, config)
        kinds = []
        for _ in range(rng.choice([1, 2, 4])):
            rows = [[random_value(rng, a, 3) for a in schema.attributes]] * rng.randint(1, 60)
            kinds.append(build_pages(schema, rows, page_size=8192)[:8192])
        order = [rng.randrange(len(kinds)) for _ in range(7)]
        case = Case(
            config=config,
            program=access.instructions,
            constants=access.constants,
            columns=access.columns,
            pages=tuple(kinds[order[k % 7]] for k in range(300)),
            batch=rng.choice([1, 3, 64, 100, 0xFFFFFFFF]),
            group_log2=rng.choice([0, 3]),
            tuple_rows=layout.rows,
        )
        work = {section: rng.choice([1, 3, 20, 200]) for section in Section}
        counters, some = both(case, work=work)
        if counters.fault is Fault.NONE:
            assert some > 2 * 0.9 * (counters.tuples + counters.skipped), number


def flipped(rng: random.Random, page: bytes) -> bytes:
    """A bit differs, of a line pointer or near a tuple's beginning; a tuple lies elsewhere; two change places."""
    found = bytearray(page)
    rows, upper = (int.from_bytes(page[12:14], "little") - 24) // 4, int.from_bytes(page[14:16], "little")
    row = rng.randrange(rows)
    line = 24 + 4 * row
    tuple_ = int.from_bytes(page[line : line + 4], "little") & 0x7FFF
    length = int.from_bytes(page[line + 2 : line + 4], "little") >> 1
    match rng.randrange(5):
        case 0:
            found[line + rng.randrange(4)] ^= 1 << rng.randrange(8)
        case 1:  # the tuple aligned or not, at the header's bound or below it, at the page's end or behind it
            moved = rng.choice([upper - 8, upper - 4, 8192 - length, 8192 - length // 8 * 8])
            found[moved : moved + length] = page[tuple_ : tuple_ + length]
            found[line : line + 2] = (moved | 1 << 15).to_bytes(2, "little")
            found[14:16] = rng.choice([upper, upper - 8]).to_bytes(2, "little")
            del found[8192:]
        case 2:
            other = 24 + 4 * rng.randrange(rows)
            found[line : line + 4], found[other : other + 4] = page[other : other + 4], page[line : line + 4]
        case _:
            found[min(tuple_ + rng.randrange(64), 8191)] ^= 1 << rng.randrange(8)
    return bytes(found)


def with_holes(rng: random.Random, page: bytes, share: float) -> bytes:
    """Some line pointers are unused, as PostgreSQL writes that, or dead, or redirected to any other."""
    lower = int.from_bytes(page[12:14], "little")
    gone = {
        line: rng.choice([0, 0, 3 << 15, 2 << 15 | rng.randrange(1, (lower - 20) // 4)])
        for line in range(24, lower, 4)
        if rng.random() < share
    }
    return b"".join(
        [page[:24], *(gone[k].to_bytes(4, "little") if k in gone else page[k : k + 4] for k in range(24, lower, 4)),
         page[lower:]]
    )  # fmt: skip


def test_rows_alike() -> None:
    """Pages of rows with the same header and lengths, and then one with a row that differs in a bit."""
    rng = random.Random("rows alike")
    tuples = walked = 0
    faults: set[Fault] = set()
    for _ in range(scaled(600)):
        case = table_case(rng, nulls=0.0, damaged=False)
        page = rng.choice(case.pages)
        if page[12:14] == b"\x18\x00":
            continue  # no rows
        pages = (page,) * 3 + (flipped(rng, page), page)
        counters, some = both(replace(case, pages=pages))
        faults.add(counters.fault)
        tuples += counters.tuples
        walked += some
    assert walked > tuples
    assert len(faults) > 3, faults


def test_rows_alike_between_holes() -> None:
    """Pages of rows alike of which some are gone, others on each page; then one with a row that differs in a bit."""
    rng = random.Random("holes")
    tuples = walked = holes = 0
    for _ in range(scaled(300)):
        case = table_case(rng, nulls=0.0, damaged=False)
        page = rng.choice(case.pages)
        if page[12:14] == b"\x18\x00":
            continue  # no rows
        share = rng.choice([0.1, 0.5, 1.0])
        pages = [with_holes(rng, page, share) for _ in range(5)]
        holes += sum(one != page for one in pages)
        counters, some = both(replace(case, pages=(page, *pages, flipped(rng, pages[0]), *pages)))
        tuples += counters.tuples
        walked += some
    assert holes > scaled(300)
    assert walked > tuples


def body(rng: random.Random, columns: int) -> list[Instruction]:
    """Instructions of an iteration: fresh values, values carried along, branches ahead, whole tuples between them."""

    fresh: list[int] = []
    carries = rng.random() < 0.3

    def target() -> int:
        fresh.append(rng.randrange(3, 20))
        return fresh[-1]

    def own() -> int:
        return rng.choice(fresh) if fresh and rng.random() < 0.9 else target()

    def source() -> int:
        value = rng.choice(fresh) if fresh and not carries else rng.randrange(3, 20) if carries else CURSOR
        return rng.choice([CURSOR, CURSOR, LIMIT, DOWN, value, value, rng.randrange(32, 64)])

    def one() -> Instruction:
        return rng.choice(
            [
                lambda: I(Opcode.READB, rng.choice([CURSOR, DOWN, CURSOR, source()]), rng.randint(1, 4), target()),
                lambda: I(Opcode.EXTRB, own(), rng.randrange(4), rng.randint(1, 4)),
                lambda: I(Opcode.EXTRBI, own(), rng.choice([0, rng.randrange(32)]), rng.randint(1, 12)),
                lambda: I(Opcode.CLN, source(), rng.randrange(8), target()),
                lambda: I(Opcode.INS, target(), rng.randrange(2), rng.randrange(64)),
                lambda: I(Opcode.AD, source(), source(), target()),
                lambda: I(Opcode.SUB, source(), source(), target()),
                lambda: I(Opcode.MUL, source(), source(), target()),
                lambda: I(Opcode.CTL, Control.POP, source(), target()),
                lambda: I(Opcode.CTL, Control.SKIP),
            ]
        )()

    def piece() -> list[Instruction]:
        if rng.random() < 0.25:
            return [I(Opcode.WRITEB, rng.choice([CURSOR, DOWN, 4]), 0, k) for k in range(columns)]
        return [one() for _ in range(rng.randint(1, 5))]

    instructions = [I(Opcode.READB, CURSOR, 4, 4), I(Opcode.EXTRBI, 4, 0, 12)] if rng.random() < 0.9 else []
    fresh.append(4)
    for _ in range(rng.randint(1, 6)):
        part = piece()
        if rng.random() < 0.4:
            op = rng.choice([Opcode.BEQ, Opcode.BNE, Opcode.BLT])
            instructions.append(I(op, source(), source(), len(part) + 1))
        instructions += part
    return instructions


def loop_case(rng: random.Random) -> Case:
    """A loop whose cursor goes up or down by a constant, over random words most of which are small."""
    config = MachineConfig(
        threads=rng.choice([1, 2]), striders=rng.choice([1, 2]), queue_depth=rng.choice([2, 8, 64]),
        tuple_depth=64, scratch_depth=256, program_depth=64,
    )  # fmt: skip
    columns = rng.choice([1, 2, 3])
    step, down = rng.choice([1, 2, 4, 8, 12]), rng.choice([0, 0, 4, 0xFFFFFFFC])
    constants = [step, down, rng.choice([0, 7, 64]), 4096] + [rng.choice([0, 1, 2, 3, 255]) for _ in range(28)]
    program = [I(Opcode.INS, LIMIT, rng.randrange(64), rng.randrange(64)), I(Opcode.INS, DOWN, 20, 0), I(Opcode.BENTR)]
    program += body(rng, columns)
    program += [I(Opcode.AD, CURSOR, 32, CURSOR), I(Opcode.AD, DOWN, 33, DOWN)]
    if rng.random() < 0.1:
        program.append(I(Opcode.BEQ, CURSOR, 34, 2))
    program.append(I(Opcode.BEXIT, rng.choice([Condition.GE] * 5 + [Condition.EQ]), CURSOR, LIMIT))
    if rng.random() < 0.3:  # what a loop leaves behind matters
        program += [I(Opcode.AD, k, 32, k) for k in rng.sample(range(3, 20), 3)]
        program.append(I(Opcode.WRITEB, rng.randrange(3, 20), 0, 63))
    program.append(I(Opcode.CTL, Control.END))
    table = [
        Column(
            count=rng.choice([1, 3, 8, 11, 40]),
            row=0,
            # of what is converted an element takes a cycle: then Striders wait for the unpacker
            type=rng.choice([ColumnType.FLOAT4, ColumnType.FLOAT4, ColumnType.INT4]),
            first=k == 0,
            last=k == columns - 1,
        )
        for k in range(columns)
    ]
    values = np.array([0, 0, 1, 2, 3, 7, 255, 256, 4096, 0x80000000, 0xFFFFFFFF], dtype="<u4")
    pages = []
    for _ in range(rng.choice([1, 2])):
        weights = np.array([rng.choice([1, 1, 20]) for _ in values], dtype=float)
        chosen = np.random.default_rng(rng.getrandbits(32)).choice(values, size=2048, p=weights / weights.sum())
        pages.append(chosen.tobytes())
    return Case(
        config=config, program=tuple(program), constants=tuple(constants), columns=tuple(table), pages=tuple(pages),
        batch=rng.choice([1, 7, 0xFFFFFFFF]), group_log2=rng.choice([0, 1]), tuple_rows=5,
    )  # fmt: skip


def test_random_loops() -> None:
    rng = random.Random("loops")
    tuples = used = 0
    faults: set[Fault] = set()
    for _ in range(scaled(1500)):
        counters, some = both(loop_case(rng))
        faults.add(counters.fault)
        tuples += counters.tuples
        used += some > 0
    assert used > scaled(200), "too few of the loops were walked for the test to mean anything"
    assert tuples > scaled(1000)
    assert {Fault.NONE, Fault.OUT_OF_PAGE} <= faults


def test_rows_of_other_columns_are_interpreted() -> None:
    """A row's number says which of two columns it is a tuple of: no list of columns is that of all rows."""
    program = (
        I(Opcode.INS, LIMIT, 0, 32), I(Opcode.BENTR), I(Opcode.READB, CURSOR, 4, 4), I(Opcode.EXTRBI, 4, 0, 1),
        I(Opcode.BEQ, 4, 33, 3), I(Opcode.WRITEB, CURSOR, 0, 0), I(Opcode.BEQ, 33, 33, 2),
        I(Opcode.WRITEB, CURSOR, 0, 1), I(Opcode.AD, CURSOR, 32, CURSOR), I(Opcode.BEXIT, Condition.GE, CURSOR, LIMIT),
        I(Opcode.CTL, Control.END),
    )  # fmt: skip
    numbers = np.random.default_rng(1).integers(0, 1000, 2048).astype("<u4").tobytes()
    case = Case(
        config=MachineConfig(tuple_depth=64, scratch_depth=256, program_depth=64),
        program=program,
        constants=(4, 0),
        columns=tuple(
            Column(count=1, row=0, type=kind, first=1, last=1) for kind in (ColumnType.INT4, ColumnType.FLOAT4)
        ),
        pages=(numbers,) * 9,
        batch=0xFFFFFFFF,
        tuple_rows=1,
    )
    counters, _ = both(case)
    assert counters.tuples == 9 * 32 / 4


def alike_case(rng: random.Random) -> Case:
    """Rows whose words tell where their bytes lie, which are the same; what is done with them is random."""
    config = MachineConfig(tuple_depth=64, scratch_depth=256, program_depth=64)
    line, place, flags, next_ = 4, 5, 6, 7
    step, zero, header, *numbers = range(32, 50)
    first = rng.choice([512, 2048, 7040])  # of rows, 32 bytes apart
    bounds = [first + 32 * k + near for k in (-2, -1, 0, 31, 32, 33) for near in (-1, 0, 1)]
    constants = [4, 0, 160] + [rng.choice([0, 1, 4, 16, 300, 0xFFFFFFF8, *bounds]) for _ in range(15)]
    program = [I(Opcode.INS, LIMIT, 2, 0), I(Opcode.READB, header, 2, 20), I(Opcode.BENTR)]
    program += [I(Opcode.READB, CURSOR, 4, line), I(Opcode.AD, line, zero, place), I(Opcode.EXTRBI, place, 0, 13)]
    program += [I(Opcode.AD, line, zero, flags), I(Opcode.EXTRBI, flags, 13, 3)]
    places, values = [place], [flags, 20, 20]
    for target in range(next_, next_ + rng.randint(2, 9)):
        own, any_ = rng.choice(places), rng.choice(places + values + numbers)
        match rng.randrange(5):
            case 0:
                program.append(I(Opcode.READB, own, rng.randint(1, 4), target))
                if rng.random() < 0.5:
                    program.append(I(Opcode.EXTRBI, target, rng.randrange(16), rng.randint(1, 9)))
                values.append(target)
            case 1:
                program.append(I(Opcode.CLN, own, rng.choice([2, 3]), target))
                places.append(target)
            case 2:
                program.append(
                    I(rng.choice([Opcode.AD, Opcode.SUB]), own, rng.choice([20, *values, *numbers[:4]]), target)
                )
                places.append(target)
            case _:
                op, two = rng.choice([Opcode.BEQ, Opcode.BLT, Opcode.BLT]), [rng.choice([own, *values]), any_]
                rng.shuffle(two)
                program += [I(op, *two, 2), I(Opcode.CTL, Control.SKIP)]
    program += [I(Opcode.WRITEB, rng.choice(places), 0, 0), I(Opcode.AD, CURSOR, step, CURSOR)]
    program += [I(Opcode.BEXIT, Condition.GE, CURSOR, LIMIT), I(Opcode.CTL, Control.END)]
    page = np.zeros(config.page_size, dtype=np.uint8)
    lines = [first + 32 * k + (3 << 13) + (9 << 20) for k in range(32)]
    page[:128].view("<u4")[:] = lines
    page[160:162] = [first >> 5, 0]
    page[256:] = np.tile(rng.choices([0, 0, 1, 8, 255], k=32), (config.page_size - 256) // 32)
    page[259::32] = np.arange(len(page[259::32]))  # what is handed over tells where it lay
    pages = [page.copy() for _ in range(7)]
    for other in pages[3:6]:
        row = rng.randrange(32)
        if rng.random() < 0.6:
            other[:128].view("<u4")[row] = lines[row] + 32 * (rng.choice([-2, -1, 32, 33]) - row)
        else:
            other[rng.choice([rng.randrange(128), 160, rng.randrange(first, first + 64)])] ^= 1 << rng.randrange(8)
        other[161] = rng.choice([0, 0, 1, 255])
    return Case(
        config=config,
        program=tuple(program),
        constants=tuple(constants),
        columns=(Column(count=1, row=0, type=ColumnType.FLOAT4, first=True, last=True),),
        pages=tuple(one.tobytes() for one in pages),
        tuple_rows=5,
    )


def test_random_loops_over_rows_alike() -> None:
    rng = random.Random("loops over rows alike")
    walked = 0
    for _ in range(scaled(1500)):
        walked += both(alike_case(rng))[1]
    assert walked > scaled(200_000)


@pytest.mark.parametrize("size", [1, 2, 3, 4])
@pytest.mark.parametrize("beyond", [0, 1])
def test_a_row_that_points_behind_the_page_among_rows_that_are_walked(size: int, beyond: int) -> None:
    """Its last byte is the page's last, or the one behind it; the rows before it are taken all at once."""
    config = MachineConfig(tuple_depth=64, scratch_depth=256, program_depth=64)
    words = np.full(config.page_size // 4, 16, dtype="<u4")
    odd = 400
    words[odd] = config.page_size - size + beyond
    program = (
        I(Opcode.INS, LIMIT, 32, 0),
        I(Opcode.BENTR),
        I(Opcode.READB, CURSOR, 4, 4),
        I(Opcode.READB, 4, size, 5),
        I(Opcode.WRITEB, CURSOR, 0, 0),
        I(Opcode.AD, CURSOR, 32, CURSOR),
        I(Opcode.BEXIT, Condition.GE, CURSOR, LIMIT),
        I(Opcode.CTL, Control.END),
    )
    case = Case(
        config=config,
        program=program,
        constants=(4,),
        columns=(Column(count=1, row=0, type=ColumnType.FLOAT4, first=True, last=True),),
        pages=(np.full_like(words, 16).tobytes(), words.tobytes()),
        batch=0xFFFFFFFF,
        group_log2=0,
        tuple_rows=5,
    )
    counters, walked = both(case)
    if beyond:
        assert (counters.fault, counters.fault_page) == (Fault.OUT_OF_PAGE, 1)
    else:
        assert (counters.fault, counters.tuples) == (Fault.NONE, 1024)
        assert walked > 1024, "the rows before it must be walked for the test to mean anything"
