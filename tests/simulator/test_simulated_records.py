"""Tables in the record memory: the simulator against the engine's oracle (bits) and the access engine's (cycles)."""

from __future__ import annotations

import dataclasses
import random
import struct
from dataclasses import dataclass

import numpy as np
import pytest

from dana.simulator import Simulator
from hwgen.spec import legal
from hwgen.spec.bundle import Bundle, BundleError, Symbol, Table
from hwgen.spec.columns import Column, ColumnType
from hwgen.spec.config import MachineConfig
from hwgen.spec.counters import UNKNOWN_PAGE
from hwgen.spec.engine import Instruction, Mask, Opcode, Section
from hwgen.spec.strider import Condition, Control, Fault
from hwgen.spec.strider import Instruction as Step
from hwgen.spec.strider import Opcode as StepOp
from tests.hwgen.access.case import Case
from tests.oracles.machine import Machine
from tests.scale import multiplied
from tests.simulator.bundles import END, bits
from tests.simulator.test_access import NOT_EXPECTED, expected_counters

SMALL = {"scratch_depth": 256, "tuple_depth": 512, "program_depth": 64, "watch_depth": 64, "record_depth": 64}
MACHINES = {
    "one cluster": MachineConfig(**SMALL),
    "two": MachineConfig(clusters=2, striders=2, record_latency=7, **SMALL),
    "threads": MachineConfig(threads=4, striders=2, record_latency=9, **SMALL),
    "slow": MachineConfig(clusters=4, record_latency=300, link_latency=200, link_bytes=8, **SMALL),
}


@dataclass(frozen=True)
class Watch:
    """A watched column: its table, whether its record is written."""

    table: int
    writes: bool


@dataclass(frozen=True)
class Made:
    """A Bundle, and numbers and values of its tuples."""

    bundle: Bundle
    numbers: np.ndarray
    tuples: np.ndarray
    pages: tuple[bytes, ...]

    @property
    def case(self) -> Case:
        bundle = self.bundle
        return Case(
            config=bundle.config, program=bundle.strider, constants=bundle.constants, columns=bundle.columns,
            pages=self.pages, batch=bundle.batch, group_log2=bundle.group.bit_length() - 1,
            tuple_rows=bundle.tuple_rows, tables=tuple((table.records, table.rows) for table in bundle.tables),
        )  # fmt: skip


def made(
    rng: random.Random,
    config: MachineConfig,
    tables: tuple[Table, ...],
    watches: tuple[Watch, ...],
    *,
    count: int,
    group: int,
    short: bool = True,
) -> Made:
    """Each tuple adds its vector to each record that it names, and multiplies those that it writes by a half."""
    lanes, width, batch = (
        config.lanes,
        config.lanes + 3,
        min(config.threads * group, config.record_depth // len(watches)),
    )
    kind = rng.choice([ColumnType.INT4, ColumnType.FLOAT4])
    columns, row, places = [], 2, []
    for watch in watches:
        places.append(row)
        columns.append(Column(count=1, row=row, type=kind, table=watch.table, writes=int(watch.writes)))
        row += tables[watch.table - 1].rows
    columns.append(Column(count=width, row=0, type=ColumnType.FLOAT4, first=1, last=1))
    rows = row + rng.choice([0, 1])
    program: list[Instruction] = []
    sections = {}
    for section, most in ((Section.TUPLE, group), (Section.TUPLE_1, 1), (Section.TUPLE_4, 4)):
        if section is not Section.TUPLE and (not short or most >= group):
            continue
        sections[section] = len(program)
        steps = {"a_outer": rows, "b_outer": rows, "dst_outer": rows, "outer": most}
        for watch, at in zip(watches, places, strict=True):
            n = tables[watch.table - 1].rows
            program.append(
                Instruction(op=Opcode.ADD, inner=n, dst=at, a=at, a_tuple=1, b=0, b_tuple=1, b_inner=0, wait=9, **steps)
            )
            if watch.writes:
                put = {k: v for k, v in steps.items() if k != "b_outer"}
                program.append(
                    Instruction(op=Opcode.PUT, inner=n, dst=at, a=at, wait=13, mask=rng.choice([*Mask][::2]), **put)
                )
        program.append(END)
    size = 4 * (len(watches) + width)
    numbers = np.array([[rng.randrange(tables[w.table - 1].records) for w in watches] for _ in range(count)])
    values = np.array([[rng.choice([rng.gauss(0, 1), 1e-39, 3e38]) for _ in range(width)] for _ in range(count)])
    values = values.astype(np.float32)
    at, left, step, one, four, start = 1, 0, 32, 33, 34, 35
    strider = [
        Step(StepOp.READB, start, 4, left),
        Step(StepOp.AD, four, start, at),
        Step(StepOp.BENTR),
    ]
    for k in range(len(columns)):
        strider += [Step(StepOp.WRITEB, at, 0, k), Step(StepOp.AD, at, four, at)]
    strider += [
        Step(StepOp.AD, at, step, at),
        Step(StepOp.SUB, left, one, left),
        Step(StepOp.BEXIT, Condition.EQ, left, start),
        Step(StepOp.CTL, Control.END),
    ]
    packed = [
        struct.pack(f"<{len(watches)}{'i' if kind is ColumnType.INT4 else 'f'}", *(own.tolist()))
        + mine.astype("<f4").tobytes()
        for own, mine in zip(numbers, values, strict=True)
    ]
    each = (config.page_size - 4) // size
    pages = []
    for first in range(0, count, each):
        some = packed[first : first + each]
        pages.append((struct.pack("<I", len(some)) + b"".join(some)).ljust(config.page_size, b"\xff"))
    bundle = Bundle(
        config=config, program=tuple(program), sections=sections, strider=tuple(strider),
        constants=(4 * (width - 1), 1, 4, 0), columns=tuple(columns), batch=batch, group=group, tuple_rows=rows,
        level_stride=0, levels=0, image=np.zeros((0, lanes), dtype=np.uint32), tables=tables,
        symbols=tuple(
            Symbol(name=f"m{t}", kind="model", shape=(table.records, table.rows * lanes), row=0, table=t)
            for t, table in enumerate(tables, 1)
        ),
    )  # fmt: skip
    tuples = np.zeros((count, rows, lanes), dtype=np.float32)
    flushed = np.where(np.abs(values) < np.float32(2**-126), np.float32(0), values)
    tuples[:, 0] = flushed[:, :lanes]
    tuples[:, 1, : width - lanes] = flushed[:, lanes:]
    return Made(bundle, numbers.astype(np.float32), tuples, tuple(pages))


def random_case(rng: random.Random, config: MachineConfig) -> Made:
    records = rng.choice([20, 400])  # of many, rounds reach the last thread
    tables = tuple(Table(records=rng.randint(1, records), rows=rng.randint(1, 4)) for _ in range(rng.randint(1, 3)))
    watches = [Watch(t, rng.random() < 0.8) for t in range(1, len(tables) + 1)]
    watches += [Watch(rng.randint(1, len(tables)), rng.random() < 0.5)] * rng.randint(0, 1)
    rng.shuffle(watches)
    return made(
        rng, config, tables, tuple(watches), count=rng.choice([1, 5, 100, 400]), group=rng.choice([1, 4, 8]),
        short=rng.random() < 0.5,
    )  # fmt: skip


@pytest.mark.parametrize("plain", [False, True], ids=["walked", "interpreted"])
@pytest.mark.parametrize("machine", MACHINES)
def test_records_and_cycles(machine: str, plain: bool) -> None:
    rng = random.Random(f"records {machine}")
    ended = 0
    for _ in range(multiplied(12)):
        one = random_case(rng, MACHINES[machine])
        bundle = one.bundle
        simulator, oracle = Simulator(bundle.config, plain=plain), Machine(bundle)
        simulator.load(bundle)
        words = np.random.default_rng(rng.randrange(99))
        for symbol in bundle.symbols:
            value = words.normal(size=symbol.shape).astype(np.float32)
            oracle.write(symbol, value)
            rows = symbol.place(value, bundle.config.lanes).view(np.uint32)
            simulator.write_rows(symbol.row, rows, table=symbol.table)
        expected, _ = expected_counters(bundle, one.case)
        for _ in range(2):
            found = simulator.run_epoch(b"".join(one.pages))
            assert dataclasses.replace(found, **NOT_EXPECTED) == expected
            done = oracle.epoch(one.tuples, one.numbers)
            assert found.batches == len(done.rounds)
            ended += found.tuples > found.batches > -(-found.tuples // bundle.batch)
            for symbol in bundle.symbols:
                rows = simulator.read_rows(symbol.row, symbol.rows(bundle.config.lanes), table=symbol.table)
                np.testing.assert_array_equal(rows, bits(symbol.place(oracle.read(symbol), bundle.config.lanes)))
    assert ended > 3


@pytest.mark.parametrize("number", [400.0, -1.0, 0.5, float("nan"), float("inf"), 2.0**31])
def test_a_number_that_names_no_record_is_a_fault(number: float) -> None:
    rng = random.Random(5)
    config = MACHINES["one cluster"]
    for plain in (False, True):
        while True:
            one = random_case(rng, config)
            if one.bundle.columns[0].type is ColumnType.FLOAT4 and len(one.numbers) > 4:
                break
        watched = sum(column.table > 0 for column in one.bundle.columns)
        k, page = watched - 1, bytearray(one.pages[0])
        size = 4 * (watched + config.lanes + 3)
        struct.pack_into("<f", page, 4 + 3 * size + 4 * k, number)
        simulator = Simulator(config, plain=plain)
        simulator.load(one.bundle)
        case = dataclasses.replace(one.case, pages=(bytes(page), *one.pages[1:]))
        expected, _ = expected_counters(one.bundle, case)
        found = simulator.run_epoch(b"".join(case.pages))
        assert (found.fault, found.fault_page, found.fault_pointer) == (Fault.INDEX, UNKNOWN_PAGE, k)
        assert (expected.fault, expected.fault_page, expected.fault_pointer) == (Fault.INDEX, UNKNOWN_PAGE, k)


def test_minus_zero_and_subnormals_name_record_0() -> None:
    rng = random.Random(7)
    config = MACHINES["two"]
    one = made(rng, config, (Table(records=3, rows=2),), (Watch(1, True),), count=3, group=1)
    while one.bundle.columns[0].type is not ColumnType.FLOAT4:
        one = made(rng, config, (Table(records=3, rows=2),), (Watch(1, True),), count=3, group=1)
    page = bytearray(one.pages[0])
    size = 4 * (1 + config.lanes + 3)
    for t, number in enumerate((-0.0, 1e-40, -1e-40)):
        struct.pack_into("<f", page, 4 + t * size, number)
    simulator = Simulator(config)
    simulator.load(one.bundle)
    assert simulator.run_epoch(bytes(page)).fault is Fault.NONE
    rows = simulator.read_rows(0, 6, table=1)
    assert rows[:2].any()
    assert not rows[2:].any()


@pytest.mark.parametrize(
    ("row", "count", "table"), [(0, 5, 1), (3, 3, 1), (-1, 3, 1), (0, 3, 2), (0, 3, 8), (0, 3, -1)]
)
def test_rows_outside_of_records_are_refused(row: int, count: int, table: int) -> None:
    one = made(
        random.Random(1), MACHINES["two"], (Table(records=3, rows=3),), (Watch(1, True),), count=1, group=1
    )  # fmt: skip
    simulator = Simulator(one.bundle.config)
    simulator.load(one.bundle)
    with pytest.raises(IndexError, match="must be rows of all records"):
        simulator.read_rows(row, count, table=table)


def test_what_a_bundle_with_tables_must_be() -> None:
    one = made(
        random.Random(1), MACHINES["two"], (Table(records=3, rows=3),), (Watch(1, True), Watch(1, False)), count=1,
        group=4,
    )  # fmt: skip
    bundle = one.bundle
    watched, other, vector = bundle.columns
    for changes, said in (
        ({"config": dataclasses.replace(bundle.config, record_depth=0)}, "need a machine with record_depth"),
        ({"config": dataclasses.replace(bundle.config, record_depth=4)}, "must be at most 4 for this machine, .* 8"),
        ({"tables": (Table(records=0, rows=3),)}, "table 1 has 0 of 3 rows"),
        ({"tables": (Table(records=3, rows=65),)}, "table 1 has 3 of 65 rows"),
        ({"tables": (*bundle.tables, Table(records=1, rows=1))}, r"must name the tables 1 … 2"),
        ({"tables": ()}, "'m1' lies in table 1 of the record memory, and there are 0"),
        ({"tables": (Table(records=4, rows=3),)}, r"'m1' has the shape \(3, 48\), and its table 4 records"),
        ({"tables": (Table(records=3, rows=2),)}, "rows up to 'm1' must be at most 2"),
        ({"columns": (watched, dataclasses.replace(other, row=4), vector)}, "lies in row 4 of a tuple, as does"),
        ({"columns": (dataclasses.replace(watched, row=1), other, vector)}, "a column lies in row 1 of a tuple"),
        ({"columns": (watched, dataclasses.replace(other, row=7), vector)}, "must stay within the"),
        ({"sections": {**bundle.sections, Section.MERGE: 0, Section.PUSH: 0}}, "must have no section 'merge'"),
    ):
        with pytest.raises(BundleError, match=said):
            legal.check(dataclasses.replace(bundle, **changes))  # type: ignore[arg-type]
