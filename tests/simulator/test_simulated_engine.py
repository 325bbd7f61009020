"""Engine programs on the simulator against the NumPy executor of docs/machine.md, word for word, with all kernels."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from dana.simulator import KERNELS, Simulator
from hwgen.spec import cycles, numerics
from hwgen.spec.bundle import WHOLE_EPOCH, Bundle
from hwgen.spec.config import MachineConfig
from hwgen.spec.engine import Instruction, Mask, Opcode, Section, Source
from hwgen.spec.strider import Fault
from tests.assembly.engine import assemble
from tests.hwgen.engine.programs import CHOOSING, PLAIN, SPECIAL, Scheduler, random_bundle, random_tuples
from tests.oracles.machine import EXCHANGED, Machine, MachineFault, garbage
from tests.scale import multiplied, scaled
from tests.simulator.bundles import bits, fed, row_pages
from tests.simulator.test_access import available

SMALL = {"scratch_depth": 128, "tuple_depth": 128, "program_depth": 128}
MACHINES = {
    "one cluster": MachineConfig(threads=1, clusters=1, crossed=0, **SMALL),
    "two threads": MachineConfig(threads=2, clusters=1, **SMALL),
    "four by two": MachineConfig(threads=4, clusters=2, divide_interval=3, **SMALL),
    "wide thread": MachineConfig(threads=1, clusters=8, divide_interval=1, **SMALL),
    "sixteen threads": MachineConfig(threads=16, clusters=1, divide_interval=9, **SMALL),
    "index files": MachineConfig(threads=4, clusters=2, index_depth=8, **SMALL),
    "an index file": MachineConfig(threads=1, clusters=1, index_depth=8, **SMALL),
    "narrow rows": MachineConfig(threads=2, clusters=2, wide_depth=48, index_depth=8, **SMALL),
}
BATCHES = (1, 2, 3, 5, 8, 16, 64, 100, WHOLE_EPOCH)


def run_both(bundle: Bundle, tuples: np.ndarray, kernels: str | None) -> None:
    """Two epochs, the second on what the first left; every scratchpad word of every thread agrees."""
    oracle = Machine(bundle)
    oracle.halves[:] = 0.0
    simulator = Simulator(bundle.config, kernels=kernels)
    simulator.load(fed(bundle))
    pages = row_pages(tuples, bundle.config)
    for _ in range(2):
        try:
            epoch = oracle.epoch(tuples)
        except MachineFault:  # the batch has more rounds than the stack has levels
            assert simulator.run_epoch(pages).fault is Fault.STACK
            return
        counters = simulator.run_epoch(pages)
        assert counters.fault is Fault.NONE
        assert counters.tuples == len(tuples)
        assert counters.engine_busy == epoch.busy
        found = simulator.read_rows(0, bundle.config.scratch_depth)
        np.testing.assert_array_equal(found, bits(oracle.scratch[0]))


@pytest.mark.parametrize("kernels", [k for k in KERNELS if available(k)])
@pytest.mark.parametrize("machine", MACHINES)
def test_random_programs(machine: str, kernels: str) -> None:
    rng = np.random.default_rng([len(machine), len(kernels)])
    config = MACHINES[machine]
    for _ in range(scaled(3)):
        bundle = random_bundle(rng, config, batch=int(rng.choice(BATCHES)), size=20)
        count = int(rng.choice([0, 1, 2, bundle.round_tuples, 3 * bundle.round_tuples + 1, 40]))
        tuples = random_tuples(rng, bundle, count)
        run_both(bundle, tuples, kernels)


def instruction_bundle(
    config: MachineConfig, instruction: Instruction, *, group: int, tuple_rows: int
) -> Bundle | None:
    """A program of one instruction in `tuple`; None where it depends on itself."""
    scheduler = Scheduler(shift=0, divide_interval=config.divide_interval)
    placed = scheduler.place(instruction, 0)
    if placed is None:
        return None
    image = numerics.flush(garbage((120, config.lanes), instruction.dst)).view(np.uint32)
    return dataclasses.replace(
        random_bundle(np.random.default_rng(0), config, batch=config.threads * group),
        program=(placed, scheduler.end()),
        sections={Section.TUPLE: 0},
        group=group,
        tuple_rows=tuple_rows,
        image=image,
    )


@pytest.mark.parametrize("kernels", [k for k in KERNELS if available(k)])
def test_every_operation_in_every_loop(kernels: str) -> None:
    """One instruction at a time: all operations, steps, masks and exchanges, whole rounds and short ones."""
    rng = np.random.default_rng(7)
    ran = 0
    for op in (*PLAIN, *SPECIAL, *CHOOSING, *EXCHANGED):
        for _ in range(multiplied(5)):
            config = list(MACHINES.values())[int(rng.integers(op.chooses, len(MACHINES)))]
            group, tuple_rows = int(rng.choice([1, 4, 8])), 5
            outer = int(rng.choice([1, 2, group]))
            inner = int(rng.choice([1, 1, 2, 4]))
            a_tuple, b_tuple = (int(rng.random() < 0.4) for _ in range(2))
            source, distance, mask = Source.MEMORY, 0, Mask(int(rng.choice([0, 0, 1, 2])))
            if op.chooses or (op in EXCHANGED and rng.random() < 0.6):
                b_tuple = a_tuple
                source, distance = Source.LANE_XOR, int(rng.integers((config.lanes - 1).bit_length()))
                if config.threads > 1 and rng.random() < 0.4:
                    source, distance = Source.THREAD_XOR, int(rng.integers((config.threads - 1).bit_length()))
                mask = Mask.SINGLE if mask is Mask.PAIR else mask
            instruction = Instruction(
                op=op, inner=inner, outer=outer, dst=int(rng.choice([60, 80])), dst_inner=int(rng.random() < 0.9),
                dst_outer=int(rng.choice([1, inner, 4])), a=0 if a_tuple else int(rng.choice([0, 60])),
                a_tuple=a_tuple, a_inner=int(rng.random() < 0.8), a_outer=int(rng.choice([0, 1, inner, 5])),
                b=0 if b_tuple else int(rng.choice([20, 61])), b_tuple=b_tuple, b_inner=int(rng.random() < 0.8),
                b_outer=int(rng.choice([0, 1, inner, 5])), source=source, distance=distance,
                mask=mask, tail_a=int(rng.random() < 0.3),
                tail_b=int(rng.random() < 0.3), tail=int(rng.integers(config.lanes)), scalar=int(rng.random() < 0.5),
            )  # fmt: skip
            if source is not Source.MEMORY:
                instruction = dataclasses.replace(
                    instruction, tail_b=instruction.tail_a if rng.random() < 0.7 else instruction.tail_b
                )
                if not config.crossed or rng.random() < 0.3:
                    instruction = plain(instruction)
            reach = max(
                (instruction.a_outer * (outer - 1) + inner) * a_tuple,
                (instruction.b_outer * (outer - 1) + inner) * b_tuple,
            )
            if reach > group * tuple_rows:
                continue
            bundle = instruction_bundle(config, instruction, group=group, tuple_rows=tuple_rows)
            if bundle is None:
                continue
            count = int(rng.choice([bundle.round_tuples, bundle.round_tuples, 1, bundle.round_tuples // 2 + 1]))
            tuples = numerics.flush(garbage((count, tuple_rows, config.lanes), ran))
            run_both(bundle, tuples, kernels)
            ran += 1
    assert ran > 40


def plain(instruction: Instruction) -> Instruction:
    """An exchange whose operands are the same."""
    same = {f"b{part}": getattr(instruction, f"a{part}") for part in ("", "_tuple", "_inner", "_outer")}
    return dataclasses.replace(instruction, **same)


SPARE = 100
"""A scratchpad row that the overlapping programs do not use."""


def literal(bundle: Bundle, half: np.ndarray, m: int) -> np.ndarray:
    """The `tuple` section row by row in the order of its cycles, each result visible only from its cycle on.

    Returns the scratchpad of all threads. Written from docs/machine.md, "Timing of instructions".
    """
    machine = Machine(bundle)
    machine.halves[0] = half
    pending: dict[int, tuple[int, np.ndarray, np.ndarray]] = {}  # by cycle; results come out one a cycle
    turn = 0

    def settle(cycle: int) -> None:
        for due in sorted(due for due in pending if due <= cycle):
            row, lanes, words = pending.pop(due)
            machine.scratch[:, row][lanes] = words[lanes]

    for instruction in bundle.section(Section.TUPLE)[:-1]:
        op = instruction.op
        apart = cycles.element_interval(op, bundle.config.divide_interval)
        step = apart * (8 if op.special and not instruction.scalar else 1)
        latency = cycles.SPECIAL_LATENCY.get(op, cycles.RESULT_LATENCY)
        turn += instruction.wait
        for o in range(instruction.outer):
            for i in range(instruction.inner):
                settle(turn)
                row = instruction.dst + o * instruction.dst_outer + i * instruction.dst_inner
                where = np.array([o]), np.array([i]), np.array([SPARE])
                a = np.array([instruction.a + o * instruction.a_outer + i * instruction.a_inner])
                b = np.array([instruction.b + o * instruction.b_outer + i * instruction.b_inner])
                # a conditional move shows its lanes by what it leaves of two different rows
                left = []
                for filler in (1.5, -2.5):
                    machine.scratch[:, SPARE] = np.float32(filler)
                    machine._rows(instruction, *where, a, b, 0, m)
                    left.append(machine.scratch[:, SPARE].copy())
                first = left[0]
                written = bits(left[0]) == bits(left[1])
                for k in range(8 if step != apart else 1):
                    lane = np.arange(first.shape[1]) % 8 == k if step != apart else np.ones(first.shape[1], dtype=bool)
                    pending[turn + latency + k * apart] = row, written & lane, first
                turn += step
    settle(1 << 60)
    return machine.scratch


def overlapping_bundle(rng: np.random.Generator, config: MachineConfig) -> Bundle:
    """A program whose instructions do not wait for one another; results still come out one a cycle."""
    program: list[Instruction] = []
    taken: set[int] = set()
    turn = last = 0
    for _ in range(int(rng.integers(2, 9))):
        op = Opcode(int(rng.choice([*PLAIN, *SPECIAL, *(CHOOSING if config.crossed else ())])))
        scalar = int(rng.random() < 0.7)
        inner, outer = (1, 1) if op.special else (int(rng.integers(1, 5)), int(rng.integers(1, 4)))
        apart = cycles.element_interval(op, config.divide_interval)
        latency = cycles.SPECIAL_LATENCY.get(op, cycles.RESULT_LATENCY)
        each = 8 if op.special and not scalar else 1
        rows = inner * outer
        wait = max(int(rng.integers(0, 4)), cycles.MIN_INSTRUCTION - rows * apart * each)
        while True:
            writes = {
                turn + wait + r * apart * each + k * apart + latency - 1 for r in range(rows) for k in range(each)
            }
            if not writes & taken:
                break
            wait += 1
        taken |= writes
        last = max(last, *writes)
        exchange = op.chooses or (op in EXCHANGED and rng.random() < 0.3)
        program.append(
            Instruction(
                op=op, wait=wait, inner=inner, outer=outer, scalar=scalar,
                dst=int(rng.integers(0, 10)), dst_inner=int(rng.integers(0, 2)), dst_outer=int(rng.integers(0, 4)),
                a=int(rng.integers(0, 10)), a_inner=int(rng.integers(0, 2)), a_outer=int(rng.integers(0, 4)),
                b=int(rng.integers(0, 10)), b_inner=int(rng.integers(0, 2)), b_outer=int(rng.integers(0, 4)),
                source=Source.LANE_XOR if exchange else Source.MEMORY,
                mask=Mask(int(rng.choice([0, 0, 0, 2]))),
            )
        )  # fmt: skip
        if exchange and not config.crossed:
            program[-1] = plain(program[-1])
        turn += wait + rows * apart * each
    program.append(Instruction(op=Opcode.END, wait=max(0, last - turn + 1)))
    base = random_bundle(rng, config, batch=config.threads)
    image = numerics.flush(garbage((30, config.lanes), int(rng.integers(1 << 31)))).view(np.uint32)
    return dataclasses.replace(
        base, program=tuple(program), sections={Section.TUPLE: 0}, image=image, group=1, tuple_rows=1
    )


@pytest.mark.parametrize("machine", ["one cluster", "four by two"])
def test_results_under_way_are_not_seen(machine: str) -> None:
    rng = np.random.default_rng(len(machine))
    config = MACHINES[machine]
    differs = 0
    for _ in range(scaled(60)):
        bundle = overlapping_bundle(rng, config)
        m = int(rng.integers(1, config.threads + 1))
        tuples = numerics.flush(garbage((m, 1, config.lanes), int(rng.integers(1 << 31))))
        half = np.zeros((config.threads, 1, config.lanes), dtype=np.float32)
        half[:m, 0] = tuples[:, 0]
        expected = literal(bundle, half, m)
        simulator = Simulator(config)
        simulator.load(fed(bundle))
        assert simulator.run_epoch(row_pages(tuples, config)).fault is Fault.NONE
        np.testing.assert_array_equal(simulator.read_rows(0, 30), bits(expected[0][:30]))
        in_order = Machine(bundle)
        in_order.halves[:] = 0.0
        in_order.epoch(tuples)
        differs += bool((bits(in_order.scratch[0]) != bits(expected[0])).any())
    assert differs > 10, "the programs must overlap for the test to mean anything"


@pytest.mark.parametrize("before", [2, 1, 0])
@pytest.mark.parametrize("op", [Opcode.MOV, Opcode.NEG, Opcode.SIGMOID, Opcode.EXP])
def test_a_result_is_seen_from_its_cycle_on(op: Opcode, before: int) -> None:
    """And by no row that issues a cycle before, where nothing else in the program overlaps."""
    config = MACHINES["one cluster"]
    latency = cycles.SPECIAL_LATENCY.get(op, cycles.RESULT_LATENCY)
    taken = cycles.element_interval(op, config.divide_interval)
    program = (
        Instruction(op=op, wait=1, scalar=1, dst=1, a=0),
        Instruction(op=Opcode.MOV, wait=latency - taken - before, dst=2, a=1),
        Instruction(op=Opcode.END, wait=cycles.RESULT_LATENCY),
    )
    image = np.outer(np.array([0.25, -3.0]), np.ones(config.lanes)).astype(np.float32).view(np.uint32)
    bundle = dataclasses.replace(
        random_bundle(np.random.default_rng(1), config, batch=1),
        program=program, sections={Section.TUPLE: 0}, image=image, group=1, tuple_rows=1, levels=0,
    )  # fmt: skip
    simulator = Simulator(config)
    simulator.load(fed(bundle))
    assert simulator.run_epoch(row_pages(np.zeros((1, 1, config.lanes), dtype=np.float32), config)).fault is Fault.NONE
    _, result, seen = simulator.read_rows(0, 3)
    assert (result != image[1]).all()
    np.testing.assert_array_equal(seen, image[1] if before else result)


@pytest.mark.parametrize("kernels", [k for k in KERNELS if available(k)])
@pytest.mark.parametrize("line", ["exp s8+i <- s4+i inner=16", "exp s28+i <- s4+i inner=40 scalar=1"])
def test_an_instruction_reads_what_it_has_written(line: str, kernels: str) -> None:
    """Late enough to see it: its rows run one after the other, though they be of a special function."""
    program, sections = assemble(f"tuple:\n    {line} wait=1\n    end wait=40\n")
    config = MACHINES["wide thread" if "scalar" not in line else "one cluster"]
    image = np.full((8, config.lanes), -0.25, dtype=np.float32).view(np.uint32)
    base = random_bundle(np.random.default_rng(1), config, batch=1)
    bundle = dataclasses.replace(base, program=program, sections=sections, image=image, group=1, tuple_rows=1, levels=0)
    run_both(bundle, np.zeros((2, 1, config.lanes), dtype=np.float32), kernels)
