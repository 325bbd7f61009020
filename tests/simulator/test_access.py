"""Striders, unpacker and all cycles of an epoch against the access oracle, which knows docs/machine.md."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from dana.errors import UsageError
from dana.simulator import KERNELS, Simulator, native, structures
from dana.simulator.native import machine_data
from hwgen.spec import cycles, numerics
from hwgen.spec.bundle import Bundle
from hwgen.spec.columns import Column, ColumnType
from hwgen.spec.config import MachineConfig
from hwgen.spec.counters import EpochCounters
from hwgen.spec.engine import SHORT, Section
from hwgen.spec.strider import Condition, Control, Fault, Instruction, Opcode
from tests.hwgen.access.case import Case, Outcome
from tests.hwgen.access.generate import parted, walking, wild
from tests.hwgen.access.oracle import expect
from tests.oracles.machine import section_length
from tests.scale import multiplied, scaled
from tests.simulator.bundles import bits, keeping

SMALL = {"scratch_depth": 256, "tuple_depth": 64, "program_depth": 64}
MACHINES = {
    "one lane group": MachineConfig(**SMALL),
    "four threads": MachineConfig(threads=4, clusters=2, striders=3, queue_depth=4, **SMALL),
    "one Strider": MachineConfig(threads=2, striders=1, queue_depth=2, link_latency=300, link_bytes=8, **SMALL),
    "wide": MachineConfig(clusters=4, striders=5, page_size=16384, queue_depth=64, **SMALL),
}


def available(kernels: str) -> bool:
    try:
        Simulator(MachineConfig(), kernels=kernels).close()
    except UsageError:
        return False
    return True


def cost(bundle: Bundle, section: Section) -> int:
    if section not in bundle.sections:
        return 0
    return cycles.SECTION_START + section_length(bundle.section(section), bundle.config.divide_interval)


def engine_delays(bundle: Bundle, outcome: Outcome) -> tuple[tuple[int, int], ...]:
    """Cycles of each round until its half is released, and from then until it is idle (docs/machine.md, section 3)."""
    delays = []
    q = 0
    for r in outcome.rounds:
        after = 0
        level = 0
        short = [section for section, most in SHORT.items() if r.count <= most and section in bundle.sections]
        while q >> level & 1:
            after += cost(bundle, Section.MERGE)
            level += 1
        if r.batch_last:
            after += sum(cost(bundle, Section.MERGE) for higher in range(level + 1, 32) if q >> higher & 1)
            after += 0 if short else cost(bundle, Section.BATCH)
            q = 0
        else:
            after += cost(bundle, Section.PUSH)
            q += 1
        if r.epoch_last:
            after += cost(bundle, Section.EPOCH)
        delays.append((cycles.ROUND_START + cost(bundle, (*short, Section.TUPLE)[0]), after))
    return tuple(delays) or ((1, 1),)


NOT_EXPECTED = dict.fromkeys(("merging", "waiting_for_engine", "waiting_for_pages"), 0)
"""Counters that are compared with the RTL's, in tests/lockstep and tests/hwgen/harness, and not here."""


def expected_counters(bundle: Bundle, case: Case) -> tuple[EpochCounters, Outcome]:
    first = expect(case)
    if first.fault:
        stop = first.fault
        return (
            EpochCounters(
                cycles=0, tuples=0, batches=0, skipped=0, engine_busy=0, **NOT_EXPECTED,
                fault=stop.code, fault_page=stop.page, fault_pointer=stop.pointer,
            ),
            first,
        )  # fmt: skip
    delays = engine_delays(bundle, first)
    outcome = expect(dataclasses.replace(case, delays=delays))
    init = cost(bundle, Section.INIT)
    idle = 1 + init
    for r, (release, after) in zip(outcome.rounds, delays, strict=False):
        idle = max(r.cycle, idle) + release + after
    if case.tables and outcome.rounds:
        idle = max(idle, outcome.stored + 1)
    if not outcome.rounds:
        idle = max(idle, outcome.empty if case.pages else 0)
    busy = init + sum(release - cycles.ROUND_START + after for release, after in delays) * bool(outcome.rounds)
    tuples = sum(r.count for r in outcome.rounds)
    batches = sum(r.batch_last for r in outcome.rounds)
    counted = {"tuples": tuples, "batches": batches, "skipped": outcome.skipped}
    return EpochCounters(cycles=idle, engine_busy=busy, **counted, **NOT_EXPECTED), outcome


def expected_rows(case: Case, outcome: Outcome) -> np.ndarray:
    """What the `tuple` section of `keeping` makes of the tuple memory, in thread 0."""
    rows = case.tuple_rows << case.group_log2
    halves = np.zeros((2, rows, case.config.lanes), dtype=np.float32)
    total = np.zeros_like(halves[0])
    writes = iter(outcome.writes)
    pending = next(writes, None)
    for number, _ in enumerate(outcome.rounds):
        half = number % 2
        while pending is not None and pending.half == half:
            if pending.thread == 0:
                for lane, word in pending.lanes:
                    halves[half, pending.row].view(np.uint32)[lane] = word
            pending = next(writes, None)
        total = numerics.add(total, halves[half])
    if not outcome.rounds:
        return np.zeros((2, rows, case.config.lanes), dtype=np.float32)
    return np.stack([total, halves[(len(outcome.rounds) - 1) % 2]])


def check(case: Case, rng: random.Random, *, kernels: str | None = None, plain: bool = False) -> EpochCounters:
    work = {section: rng.choice([1, 3, 20]) for section in Section}
    bundle = keeping(case, work=work)
    expected, outcome = expected_counters(bundle, case)
    simulator = Simulator(case.config, kernels=kernels, plain=plain)
    simulator.load(bundle)
    simulator.begin_epoch()
    for page in case.pages:
        simulator.consume(page)
    found = simulator.end_epoch()
    if expected.fault:
        assert (found.fault, found.fault_page, found.fault_pointer) == (
            expected.fault,
            expected.fault_page,
            expected.fault_pointer,
        )
        return found
    assert dataclasses.replace(found, **NOT_EXPECTED) == expected
    rows = case.tuple_rows << case.group_log2
    np.testing.assert_array_equal(
        simulator.read_rows(0, 2 * rows), bits(expected_rows(case, outcome).reshape(2 * rows, -1))
    )
    # once more: nothing of the epoch before it shows in times
    again = simulator.run_epoch(b"".join(case.pages))
    assert again == found
    return found


@pytest.mark.parametrize("plain", [False, True], ids=["walked", "interpreted"])
@pytest.mark.parametrize("machine", MACHINES)
def test_walking_programs(machine: str, plain: bool) -> None:
    rng = random.Random(f"walk {machine}")
    tuples = 0
    for _ in range(multiplied(12)):
        case = walking(rng, MACHINES[machine], pages=rng.choice([0, 1, 2, 7]))
        tuples += check(case, rng, plain=plain).tuples
    assert tuples > 50


@pytest.mark.parametrize("plain", [False, True], ids=["walked", "interpreted"])
def test_batches_end_where_a_row_comes_again(plain: bool) -> None:
    rng = random.Random("watched")
    ended = tuples = 0
    for config in MACHINES.values():
        config = dataclasses.replace(config, watch_depth=256, tuple_depth=512)
        for _ in range(scaled(20)):
            case = walking(rng, config, pages=rng.choice([1, 2, 7]), watched=rng.choice([1, 2, 3]), noise=2)
            full = rng.randint(1, config.threads << case.group_log2)
            case = dataclasses.replace(case, batch=full)
            found = check(case, rng, plain=plain)
            outcome = expect(case)
            ended += sum(r.batch_last and not r.epoch_last and r.count < full for r in outcome.rounds)
            tuples += found.tuples
    assert ended > 100
    assert tuples > 500


@pytest.mark.parametrize("kernels", [k for k in KERNELS if available(k)])
def test_walking_programs_on_all_kernels(kernels: str) -> None:
    rng = random.Random(f"kernels {kernels}")
    for machine in MACHINES.values():
        for _ in range(scaled(3)):
            check(walking(rng, machine, pages=2), rng, kernels=kernels)


@pytest.mark.parametrize("plain", [False, True], ids=["walked", "interpreted"])
def test_tuples_over_several_pages(plain: bool) -> None:
    rng = random.Random(3)
    faults: list[Fault] = []
    tuples = 0
    for machine in MACHINES.values():
        for damaged in [False, True] * multiplied(3):
            case = parted(rng, machine, rows=rng.randint(1, 9), damaged=damaged)
            found = check(case, rng, plain=plain)
            faults.append(found.fault)
            tuples += found.tuples
    assert {*faults} == {Fault.NONE, Fault.TUPLE_PARTS}
    assert faults.count(Fault.TUPLE_PARTS) > 5
    assert tuples > 40


@pytest.fixture
def bound_striders() -> Iterator[Callable[[int], None]]:
    """Bounds runaways lower than usual, in the contract and in the oracle."""
    with pytest.MonkeyPatch.context() as patch:

        def bound(least: int) -> None:
            patch.setattr("tests.oracles.strider.STRIDER_BOUND", least)
            patch.setattr("hwgen.spec.strider.STRIDER_BOUND", least)
            machine_data.cache_clear()

        yield bound
    machine_data.cache_clear()


@pytest.mark.parametrize("loops", [False, True])
def test_wild_programs(loops: bool, bound_striders: Callable[[int], None]) -> None:
    """Any words; runaways are bounded lower than usual so that the oracle keeps up."""
    bound_striders(1)
    rng = random.Random(f"wild {loops}")
    faults: set[Fault] = set()
    for machine in MACHINES.values():
        for _ in range(scaled(30)):
            case = wild(rng, machine, pages=rng.choice([1, 3]), loops=loops)
            faults.add(check(case, rng).fault)
    assert {Fault.NONE, Fault.OUT_OF_PAGE, Fault.BAD_INSTRUCTION, Fault.TUPLE_PARTS} <= faults
    assert not loops or Fault.RUNAWAY in faults


def test_runaway_is_bounded_as_the_contract_says(bound_striders: Callable[[int], None]) -> None:
    bound_striders(2)
    program = (
        Instruction(Opcode.BENTR),
        Instruction(Opcode.AD, 0, 32, 0),
        Instruction(Opcode.BEXIT, Condition.NE, 0, 0),
        Instruction(Opcode.CTL, Control.END),
    )
    case = Case(config=MACHINES["wide"], program=program, constants=(1,), pages=(bytes(16384),))
    expected = expect(case).fault
    assert expected is not None
    assert expected.code is Fault.RUNAWAY
    for plain in (False, True):
        assert check(case, random.Random(0), plain=plain).fault is Fault.RUNAWAY


@pytest.mark.parametrize("plain", [False, True], ids=["walked", "interpreted"])
@pytest.mark.parametrize("kind", ColumnType)
def test_a_column_may_end_with_the_page(kind: ColumnType, plain: bool) -> None:
    column = Column(count=3, row=0, type=kind, first=1, last=1)
    config = MACHINES["one lane group"]
    program = (Instruction(Opcode.WRITEB, 32, 0, 0), Instruction(Opcode.CTL, Control.END))
    last = config.page_size - 3 * kind.bytes
    for address, fault in (
        (last, Fault.NONE),
        (last + 1, Fault.OUT_OF_PAGE),
        (config.page_size - 1, Fault.OUT_OF_PAGE),
    ):
        case = Case(config=config, program=program, columns=(column,), constants=(address,), pages=(bytes(8192),) * 9)
        assert check(case, random.Random(0), plain=plain).fault is fault


def test_descriptors_and_instructions_behind_the_bundle_are_zero() -> None:
    config = MACHINES["one lane group"]
    for program, fault in (
        ((Instruction(Opcode.WRITEB, 0, 0, 5),), Fault.BAD_INSTRUCTION),
        ((Instruction(Opcode.AD, 0, 0, 1),), Fault.BAD_INSTRUCTION),
        ((Instruction(Opcode.JMP, 0, 2, 0),), Fault.BAD_INSTRUCTION),
    ):
        case = Case(config=config, program=program, pages=(bytes(8192),))
        assert check(case, random.Random(0)).fault is fault


@pytest.mark.parametrize("plain", [False, True], ids=["walked", "interpreted"])
@pytest.mark.parametrize(
    ("instruction", "field", "value"),
    [
        (Instruction(Opcode.JMP, 0, 1, 0), "target", 1 << 30),
        (Instruction(Opcode.AD, 0, 1, 0), "next", -1),
        (Instruction(Opcode.AD, 0, 1, 0), "a", 1 << 20),
        (Instruction(Opcode.AD, 0, 1, 0), "c", -(1 << 20)),
        (Instruction(Opcode.EXTRBI, 0, 1, 1), "b", 32),
        (Instruction(Opcode.WRITEB, 0, 0, 0), "value", 1 << 28),
    ],
    ids=["target", "next", "operand", "result", "shift", "column"],
)
def test_the_core_keeps_its_bounds_itself(
    instruction: Instruction, field: str, value: int, plain: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mistake in how instructions are decoded is a fault, and reaches no other memory."""
    fields = [name for name, *_ in structures.StriderInstruction._fields_]

    def decoded(bundle: Bundle) -> Iterator[tuple[int, ...]]:
        first, *rest = rows(bundle)
        return iter((tuple(value if name == field else own for name, own in zip(fields, first, strict=True)), *rest))

    rows = native._strider_rows
    monkeypatch.setattr(native, "_strider_rows", decoded)
    config = MACHINES["one lane group"]
    program = (instruction, Instruction(Opcode.CTL, Control.END))
    simulator = Simulator(config, plain=plain)
    simulator.load(keeping(Case(config=config, program=program, pages=()), work=dict.fromkeys(Section, 1)))
    assert simulator.run_epoch(bytes(config.page_size)).fault is Fault.BAD_INSTRUCTION


def told(*instructions: Instruction) -> tuple[Instruction, ...]:
    """A program whose fault shows the lower half of the first register."""
    return (*instructions, Instruction(Opcode.CTL, Control.FAIL, 0, Fault.PAGE_HEADER))


CONSTANTS = (0x12345, 0x10003, 8188, 8189, 0xFFFFFFFF, 0x80FF01FE)
BOUNDS = {
    "factors of 16 bits": Instruction(Opcode.MUL, 32, 33, 0),
    "the last four bytes": Instruction(Opcode.READB, 34, 4, 0),
    "and one beyond": Instruction(Opcode.READB, 35, 4, 0),
    "three of them": Instruction(Opcode.READB, 35, 3, 0),
    "an address that wraps": Instruction(Opcode.READB, 36, 4, 0),
    "no byte": Instruction(Opcode.READB, 32, 0, 0),
    "five bytes": Instruction(Opcode.READB, 32, 5, 0),
    "up to 128": Instruction(Opcode.CLN, 32, 7, 0),
    "up to 256": Instruction(Opcode.CLN, 32, 8, 0),
    "the highest byte": Instruction(Opcode.EXTRB, 0, 3, 1),
    "a byte higher": Instruction(Opcode.EXTRB, 0, 4, 1),
    "all four": Instruction(Opcode.EXTRB, 0, 0, 4),
    "a byte more": Instruction(Opcode.EXTRB, 0, 0, 5),
    "all bits": Instruction(Opcode.EXTRBI, 0, 0, 32),
    "a bit more": Instruction(Opcode.EXTRBI, 0, 0, 33),
    "the highest bit": Instruction(Opcode.EXTRBI, 0, 31, 1),
    "no bit": Instruction(Opcode.EXTRBI, 0, 31, 0),
    "into a constant": Instruction(Opcode.AD, 32, 33, 32),
    "out of the program": Instruction(Opcode.JMP, 63, 63, 63),
}


@pytest.mark.parametrize("what", BOUNDS)
def test_instructions_at_their_bounds(what: str) -> None:
    config = MACHINES["one lane group"]
    start = Instruction(Opcode.AD, 37, 1, 0)
    page = bytes(range(256)) * 32
    for half in ((), (Instruction(Opcode.EXTRBI, 0, 16, 16),)):
        case = Case(config=config, program=told(start, BOUNDS[what], *half), constants=CONSTANTS, pages=(page,))
        assert expect(case).fault is not None
        check(case, random.Random(0))


@pytest.mark.parametrize("plain", [False, True], ids=["walked", "interpreted"])
@pytest.mark.parametrize(("nops", "fault"), [(0, Fault.NONE), (1, Fault.RUNAWAY)])
def test_the_last_instruction_of_the_bound_still_runs(
    nops: int, fault: Fault, plain: bool, bound_striders: Callable[[int], None]
) -> None:
    bound_striders(1)
    program = (
        Instruction(Opcode.AD, 32, 2, 1),
        *(Instruction(Opcode.INS, 3, 0, 0),) * (1 + nops),
        Instruction(Opcode.BENTR),
        Instruction(Opcode.SUB, 1, 33, 1),
        Instruction(Opcode.BEXIT, Condition.EQ, 1, 2),
        Instruction(Opcode.CTL, Control.END),
    )
    # three before the loop and one behind it
    case = Case(
        config=MACHINES["one lane group"], program=program, constants=((8192 - 4) // 2, 1), pages=(bytes(8192),)
    )
    assert check(case, random.Random(0), plain=plain).fault is fault


def test_an_epoch_does_not_end_in_a_tuple() -> None:
    """The fault is the last page's, and the pointer the one that its end was reached with."""
    columns = (
        Column(count=1, row=0, type=ColumnType.FLOAT4, first=1),
        Column(count=1, row=0, type=ColumnType.FLOAT4, last=1),
    )
    program = (
        Instruction(Opcode.INS, 0, 1, 7),
        Instruction(Opcode.READB, 2, 1, 1),
        Instruction(Opcode.WRITEB, 2, 0, 0),
        Instruction(Opcode.BEQ, 1, 3, 2),
        Instruction(Opcode.WRITEB, 2, 0, 1),
        Instruction(Opcode.CTL, Control.END),
    )
    whole, cut = b"\1" + bytes(8191), bytes(8192)
    for pages, fault in (((whole,) * 3, Fault.NONE), ((whole, cut), Fault.TUPLE_PARTS), ((cut,), Fault.TUPLE_PARTS)):
        case = Case(config=MACHINES["one lane group"], program=program, columns=columns, pages=pages)
        found = check(case, random.Random(0))
        assert found.fault is fault
        assert (found.fault_page, found.fault_pointer) == ((len(pages) - 1, 71) if fault else (0, 0))


@pytest.mark.parametrize(("tuples", "levels", "fault"), [
    (2, 1, Fault.NONE), (3, 1, Fault.STACK), (4, 2, Fault.NONE), (5, 2, Fault.STACK), (8, 3, Fault.NONE),
])  # fmt: skip
def test_a_batch_has_no_more_rounds_than_the_stack_has_levels_for(tuples: int, levels: int, fault: Fault) -> None:
    column = Column(count=1, row=0, type=ColumnType.FLOAT4, first=1, last=1)
    program = (*(Instruction(Opcode.WRITEB, 1, 0, 0),) * tuples, Instruction(Opcode.CTL, Control.END))
    case = Case(config=MACHINES["one lane group"], program=program, columns=(column,), pages=(bytes(8192),))
    simulator = Simulator(case.config)
    simulator.load(dataclasses.replace(keeping(case, work=dict.fromkeys(Section, 1)), levels=levels))
    assert simulator.run_epoch(case.pages[0]).fault is fault
