"""Rows chosen by data: what a gather and a scatter do, which numbers stop the machine, which programs it refuses."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from dana.simulator import Simulator
from hwgen.spec.bundle import Bundle, BundleError
from hwgen.spec.config import MachineConfig, functions_mask
from hwgen.spec.counters import UNKNOWN_PAGE
from hwgen.spec.engine import Opcode
from hwgen.spec.strider import Fault
from tests.assembly.engine import assemble
from tests.hwgen.engine.programs import BOUND, random_bundle
from tests.oracles.machine import Machine, MachineFault
from tests.simulator.bundles import bits, fed, row_pages

CONFIG = MachineConfig(threads=2, index_depth=8, scratch_depth=128, tuple_depth=128, program_depth=128)
GROUP, TABLE, ROWS = 4, 40, 5
SCATTER = f"""
tuple:
    setx x{ROWS}+3o <- t0+1o, s77 outer={GROUP} mask=single
    mov s{TABLE}+i+x <- s0+i+2o, s0 wait=10 outer={GROUP} inner=2 mask=single
    end wait=12
"""
"""Tuple o's number says which 3 rows of the table take rows 2o and 2o + 1."""


def program(text: str, config: MachineConfig = CONFIG) -> Bundle:
    instructions, sections = assemble(text)
    base = random_bundle(np.random.default_rng(1), config, batch=config.threads * GROUP)
    image = np.arange(128 * config.lanes, dtype=np.float32).reshape(128, config.lanes).view(np.uint32)
    return dataclasses.replace(
        base, program=instructions, sections=sections, image=image, group=GROUP, tuple_rows=1, levels=0
    )


def tuples_of(*numbers: float, config: MachineConfig = CONFIG) -> np.ndarray:
    tuples = np.full((len(numbers), 1, config.lanes), np.nan, dtype=np.float32)
    tuples[:, 0, 0] = numbers
    return tuples


def run(bundle: Bundle, tuples: np.ndarray) -> Simulator:
    simulator = Simulator(bundle.config)
    simulator.load(fed(bundle))
    assert simulator.run_epoch(row_pages(tuples, bundle.config)).fault is Fault.NONE
    oracle = Machine(bundle)
    oracle.halves[:] = 0.0
    oracle.epoch(tuples)
    np.testing.assert_array_equal(simulator.read_rows(0, 128), bits(oracle.scratch[0]))
    return simulator


def test_the_last_of_equal_numbers_wins() -> None:
    simulator = run(program(SCATTER), tuples_of(4, 1, 4, -0.0))
    table = simulator.read_rows(TABLE, 3 * ROWS).view(np.float32)
    before = np.arange(128 * 8, dtype=np.float32).reshape(128, 8)
    np.testing.assert_array_equal(table[12:14], before[4:6])
    np.testing.assert_array_equal(table[3:5], before[2:4])
    np.testing.assert_array_equal(table[0:2], before[6:8])
    np.testing.assert_array_equal(table[5:12], before[TABLE + 5 : TABLE + 12])


def test_absent_tuples_write_no_row() -> None:
    """Row 0 of the table would be theirs."""
    simulator = run(program(SCATTER), tuples_of(2, 3))
    table = simulator.read_rows(TABLE, 3).view(np.float32)
    np.testing.assert_array_equal(table, np.arange(128 * 8, dtype=np.float32).reshape(128, 8)[TABLE : TABLE + 3])


@pytest.mark.parametrize("number", [float(ROWS), -1.0, 0.5, np.nan, np.inf, -np.inf, 3e9, -1e-30, 65536.0])
@pytest.mark.parametrize("thread", [0, 1])
def test_a_number_without_a_row_stops_the_machine(number: float, thread: int) -> None:
    numbers = [1.0] * (2 * GROUP)
    numbers[thread * GROUP + 2] = number
    bundle = program(SCATTER)
    simulator = Simulator(CONFIG)
    simulator.load(fed(bundle))
    found = simulator.run_epoch(row_pages(tuples_of(*numbers), CONFIG))
    assert (found.fault, found.fault_page, found.fault_pointer) == (Fault.INDEX, UNKNOWN_PAGE, 77)
    with pytest.raises(MachineFault, match=r"INDEX.* tag 77"):
        Machine(bundle).epoch(tuples_of(*numbers))
    assert simulator.run_epoch(row_pages(tuples_of(1, 2), CONFIG)).fault is Fault.NONE


def test_a_fault_in_any_section_ends_the_epoch() -> None:
    for section in ("init", "batch", "epoch"):
        text = f"{section}:\n setx x3 <- s1, s5 wait=1\n end wait=12\n"
        bundle = program(text if section == "init" else "tuple:\n end wait=1\n" + text)
        if section == "init":
            bundle = program(text + "tuple:\n end wait=1\n")
        simulator = Simulator(CONFIG)
        simulator.load(fed(bundle))
        assert simulator.run_epoch(row_pages(tuples_of(1), CONFIG)).fault is Fault.INDEX


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("setx x4+40o <- t0 wait=1\n mov s8+x <- s0 wait=10", "writes row 128 of a scratchpad of 128"),
        ("setx x4+40o <- t0 wait=1\n mov s0 <- s8+x wait=10", "reads operand a from row 128 of 128"),
        ("setx x4+2o <- t0 wait=1\n mov s5 <- s1 wait=10\n mov s9 <- s1+x wait=9", "reads a row before it is visible"),
        ("setx x4+2o <- t0 wait=1\n mov s1+x <- s0 wait=10\n mov s9 <- s5 wait=9", "reads a row before it is visible"),
        ("setx x4+2o <- t0 wait=1\n mov s1+i+x <- s0+i+x wait=10 inner=3", "reads a row before it is visible"),
    ],
)
def test_programs_that_break_the_rules_are_refused(line: str, message: str) -> None:
    with pytest.raises(BundleError, match=message):
        Simulator(CONFIG).load(program(f"tuple:\n {line}\n end wait=60\n"))


def test_a_machine_without_index_file_refuses_them() -> None:
    plain = dataclasses.replace(CONFIG, index_depth=0)
    with pytest.raises(BundleError, match="need an index file of as many entries as they name"):
        Simulator(plain).load(program(SCATTER, plain))


def test_a_machine_without_a_function_refuses_it() -> None:
    plain = dataclasses.replace(CONFIG, functions=functions_mask([Opcode.EXP, Opcode.DIV]))
    Simulator(plain).load(program("tuple:\n exp s0 <- t0 scalar=1 wait=1\n end wait=40\n", plain))
    with pytest.raises(BundleError, match=r"SIGMOID in section tuple\) .*: the machine has the operation"):
        Simulator(plain).load(program("tuple:\n sigmoid s0 <- t0 scalar=1\n end wait=40\n", plain))


def test_random_programs_use_their_index_files() -> None:
    """The random programs of the other tests name different rows, and meet some of them twice."""
    rng = np.random.default_rng(3)
    bundles = [random_bundle(rng, CONFIG, batch=4, size=20) for _ in range(20)]
    used = [i for b in bundles for i in b.program if i.indexed]
    assert sum(i.a_index for i in used) > 20
    assert sum(i.dst_index for i in used) > 20
    assert max(i.outer for i in used) > BOUND
