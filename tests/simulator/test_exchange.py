"""What exchanges are for (docs/machine.md, "Exchanges"): sums side by side, rows spread, blocks shared by threads."""

from __future__ import annotations

import dataclasses
from functools import reduce

import numpy as np
import pytest

from dana.simulator import Simulator
from hwgen.spec import numerics
from hwgen.spec.bundle import Bundle, BundleError
from hwgen.spec.config import MachineConfig
from hwgen.spec.engine import Mask, Source
from tests.assembly.engine import assemble
from tests.hwgen.engine.programs import random_bundle
from tests.oracles.machine import Floats, Machine, MachineFault
from tests.simulator.bundles import bits, fed, row_pages

CONFIG = MachineConfig(threads=4, scratch_depth=128, tuple_depth=32, program_depth=64)


def program(lines: str, config: MachineConfig = CONFIG, *, image: Floats | None = None) -> Bundle:
    """A Bundle that runs these lines for each round, every one when the one before is done; tuples have four rows."""
    waits = "\n".join(f" {line} wait=10" for line in lines.splitlines() if line)
    instructions, sections = assemble(f"tuple:\n{waits}\n end wait=10\n")
    base = random_bundle(np.random.default_rng(1), config, batch=config.threads)
    if image is None:
        image = np.zeros((8, config.lanes), dtype=np.float32)
    return dataclasses.replace(
        base, program=instructions, sections=sections, image=image.view(np.uint32), group=1, tuple_rows=4, levels=0
    )


def run(bundle: Bundle, tuples: Floats, row: int, rows: int) -> Floats:
    """Rows of thread 0 after a round; the simulator and the NumPy executor agree on all of them."""
    simulator = Simulator(bundle.config)
    simulator.load(fed(bundle))
    simulator.run_epoch(row_pages(tuples, bundle.config))
    machine = Machine(bundle)
    machine.epoch(tuples)
    found = simulator.read_rows(0, bundle.config.scratch_depth)
    np.testing.assert_array_equal(found, bits(machine.scratch[0]))
    return found[row : row + rows].view(np.float32)


def random_rows(*shape: int) -> Floats:
    return np.random.default_rng(2).normal(size=shape).astype(np.float32)


def fold(values: Floats) -> Floats:
    """The language's sum of eight elements, along the last axis."""
    while values.shape[-1] > 1:
        half = values.shape[-1] // 2
        values = numerics.add(values[..., :half], values[..., half:])
    return values[..., 0]


SUMS = """
add s10+i <- s0+i, s4+i, lane^4 inner=4
add s14+i <- s10+i, s12+i, lane^2 inner=2
add s16 <- s14, s15, lane^1
"""


def test_eight_sums_come_to_lie_side_by_side() -> None:
    image = random_rows(8, 8)
    sums = run(program(SUMS, image=image), random_rows(4, 4, 8), 16, 1)[0]
    np.testing.assert_array_equal(bits(sums), bits(fold(image)))


def test_a_sum_without_a_partner_is_crossed_with_itself() -> None:
    """Five vectors of five elements: those that are not there neither have a row nor do their lanes count."""
    image = random_rows(8, 8)
    lines = """
add s10 <- s0, s4, lane^4 tail_a=1 tail_b=1 tail=5
add s11+1o <- s1+1o, lane^4 outer=3 tail_a=1 tail_b=1 tail=5
add s14+i <- s10+i, s12+i, lane^2 inner=2
add s16 <- s14, s15, lane^1
"""
    sums = run(program(lines, image=image), random_rows(4, 4, 8), 16, 1)[0]
    rest = np.full((8, 3), -0.0, dtype=np.float32)
    np.testing.assert_array_equal(bits(sums[:5]), bits(fold(np.hstack([image[:, :5], rest])[:5])))


SPREAD = """
low s10 <- s0, lane^1
high s11 <- s0, lane^1
low s20+i <- s10+i, lane^2 inner=2
high s22+i <- s10+i, lane^2 inner=2
low s30+i <- s20+i, lane^4 inner=4
high s34+i <- s20+i, lane^4 inner=4
"""


def test_a_row_is_spread_to_eight() -> None:
    image = random_rows(1, 8)
    spread = run(program(SPREAD, image=image), random_rows(4, 4, 8), 30, 8)
    np.testing.assert_array_equal(bits(spread), bits(np.repeat(image.T, 8, axis=1)))


SHARED = """
add s10+i <- t0+i, t2+i, thread^1 inner=2 mask=single
add s20 <- s10, s11, thread^2
"""
GATHERED = """
low s30 <- s20, thread^2
high s31 <- s20, thread^2
low s40+i <- s30+i, thread^1 inner=2
high s42+i <- s30+i, thread^1 inner=2
"""


@pytest.mark.parametrize("present", [1, 3, 4])
def test_threads_share_a_merge_and_gather_it(present: int) -> None:
    """Two exchanges of three rows in all merge a block of four, of which each thread then has one."""
    tuples = random_rows(present, 4, 8)
    merged = run(program(SHARED + GATHERED), tuples, 40, 4)
    pairs = [reduce(numerics.add, tuples[k : k + 2]) for k in range(0, present, 2)]
    np.testing.assert_array_equal(bits(merged), bits(reduce(numerics.add, pairs)))


def test_threads_take_their_part_of_what_all_have() -> None:
    """A crossed MAX of equal blocks is a move; LOW says which part thread 0 took."""
    image = random_rows(4, 8)
    lines = "max s10+i <- s0+i, s2+i, thread^2 inner=2\nhigh s20+i <- s10+i, thread^2 inner=2"
    bundle = program(lines, image=image)
    np.testing.assert_array_equal(bits(run(bundle, random_rows(4, 4, 8), 10, 2)), bits(image[:2]))
    np.testing.assert_array_equal(bits(run(bundle, random_rows(4, 4, 8), 20, 2)), bits(image[2:]))


def test_random_programs_cross() -> None:
    """The random programs of the other tests have every kind of exchange, crossed and plain."""
    rng = np.random.default_rng(3)
    config = dataclasses.replace(CONFIG, clusters=2)
    exchanges = [i for _ in range(30) for i in random_bundle(rng, config, batch=4).program if i.source]
    kinds = {(i.source, i.distance, i.op.chooses, i.crossed) for i in exchanges}
    assert {kind[:3] for kind in kinds} == {
        (source, distance, chooses)
        for source, distances in ((Source.LANE_XOR, 4), (Source.THREAD_XOR, 2))
        for distance in range(distances)
        for chooses in (False, True)
    }
    assert sum(i.crossed for i in exchanges) > sum(not i.crossed for i in exchanges) > 10
    assert {i.mask for i in exchanges if i.crossed} == {Mask.NONE, Mask.SINGLE}
    assert any(i.tail_a != i.tail_b for i in exchanges)
    assert any(i.a_tuple for i in exchanges)


def test_a_partners_row_lies_in_the_scratchpad() -> None:
    with pytest.raises(BundleError, match="reads operand b from row 128 of 128"):
        Simulator(CONFIG).load(program("add s10 <- s0, s128, lane^1"))


@pytest.mark.parametrize("line", ["low s10 <- s0, lane^1", "add s10 <- s0, s1, lane^1", "add s10 <- s0+1o, s0, lane^1"])
def test_a_machine_that_cannot_cross_refuses_it(line: str) -> None:
    plain = dataclasses.replace(CONFIG, crossed=0)
    Simulator(plain).load(program("add s10 <- s0, lane^1", plain))
    with pytest.raises(BundleError, match=r"the machine has (the operation|crossed exchanges)"):
        Simulator(plain).load(program(line, plain))
    tuples = np.zeros((4, 4, plain.lanes), dtype=np.float32)
    Machine(program("add s10 <- s0, lane^1", plain)).epoch(tuples)
    with pytest.raises(MachineFault, match="has no crossed exchanges"):
        Machine(program(line, plain)).epoch(tuples)
