"""Interpreter = simulator, bit for bit, over random rules, tables and machines.

The cases of `test_compiled_code` are others, and the simulator is compared there, too.
"""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from dana.compiler.target import DoesNotFit
from dana.simulator import Simulator
from dana.storage.builder import build_pages
from dana.storage.parts import build_part_pages
from dana.storage.schema import TableSchema
from hwgen.spec.config import MachineConfig
from tests.lockstep.cases import (
    assert_same,
    axes_case,
    counting_case,
    elements_case,
    finished,
    interpret,
    network_case,
    parts_case,
    phases_case,
    random_case,
    row_states_case,
    run,
    scalars_case,
    shares_rows,
    side_by_side_case,
)
from tests.lockstep.machines import random_config, record_config
from tests.scale import SCALE, multiplied, scaled
from tests.storage.parts import part_attribute
from tests.storage.schemas import attribute


@pytest.mark.parametrize("seed", range(scaled(75)))
def test_models_are_bit_identical(seed: int) -> None:
    rng = random.Random(seed)
    case = random_case(rng, random_config(rng))
    assert_same(run(case, Simulator(case.bundle.config)), interpret(case), case.source)


def test_rough_tables_give_the_same_model_or_the_same_fault() -> None:
    faults = 0
    for seed in range(scaled(40)):
        rng = random.Random(f"rough {seed}")
        case = random_case(rng, random_config(rng), rough=True)
        found = run(case, Simulator(case.bundle.config))
        assert_same(found, interpret(case), case.source)
        faults += found.fault is not None
    assert scaled(3) < faults < scaled(20)


def test_rows_over_several_pages() -> None:
    faults = 0
    for seed in range(scaled(30)):
        rng = random.Random(f"parts {seed}")
        case = parts_case(rng, random_config(rng), rough=seed % 2 == 1)
        found = run(case, Simulator(case.bundle.config))
        assert_same(found, interpret(case), case.source)
        faults += found.fault is not None
    assert scaled(2) < faults <= scaled(15)


def test_rows_as_long_as_a_small_scratchpad_holds() -> None:
    """A generated case is one that fits, and no smaller than it must be."""
    config = MachineConfig(scratch_depth=512, tuple_depth=2048, strider_depth=8192, descriptor_depth=1024)
    longest = 0
    for seed in range(multiplied(12)):
        case = parts_case(random.Random(f"small {seed}"), config)
        assert_same(run(case, Simulator(config)), interpret(case), case.source)
        longest = max(longest, case.schema.attributes[0].array_length or 0)
    assert longest > 300


@pytest.mark.parametrize("seed", range(scaled(12)))
def test_functions_along_an_axis(seed: int) -> None:
    rng = random.Random(f"axes {seed}")
    case = axes_case(rng, random_config(rng))
    assert_same(run(case, Simulator(case.bundle.config)), interpret(case), case.source)


@pytest.mark.parametrize("seed", range(scaled(16)))
def test_elements_and_products(seed: int) -> None:
    rng = random.Random(f"elements {seed}")
    case = elements_case(rng, random_config(rng))
    assert_same(run(case, Simulator(case.bundle.config)), interpret(case), case.source)


def test_scalars_over_lanes() -> None:
    shared = 0
    for seed in range(scaled(24)):
        rng = random.Random(f"scalars {seed}")
        case = scalars_case(rng, random_config(rng))
        assert_same(run(case, Simulator(case.bundle.config)), interpret(case), case.source)
        shared += shares_rows(case)
    assert shared >= scaled(3)


@pytest.mark.parametrize("seed", range(scaled(16)))
def test_random_numbers_and_counts(seed: int) -> None:
    rng = random.Random(f"counting {seed}")
    case = counting_case(
        rng, replace(random_config(rng), program_depth=1024, scratch_depth=4096, index_depth=rng.choice([0, 4, 16]))
    )
    assert_same(run(case, Simulator(case.bundle.config)), interpret(case), case.source)


NUMBERED = """
import dana
m = dana.model()
x = dana.input([3])
y = dana.output()
rule = dana.algo(m, x, y)
rule.setModel(m, 0.5 * m + rule.merge(y * dana.random(), {batch}, "+"))
rule.setLoss(dana.random(x) @ x)
rule.setEpochs(2)
"""


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_random_numbers_in_batches_of_several_rounds(threads: int) -> None:
    """Each batch begins with its tuple 0."""
    config = MachineConfig(threads=threads, clusters=1, tuple_depth=16, program_depth=512)
    schema = TableSchema(relation="t", attributes=(attribute("x", "real[]", array_length=3), attribute("y", "real")))
    pages = build_pages(schema, [[[1.0 * k, 0.5, -k], 1.0 + k] for k in range(100)])
    case = finished(config, NUMBERED.format(batch=40), schema, pages)
    assert case.bundle.round_tuples < 40
    assert_same(run(case, Simulator(config)), interpret(case), case.source)


@pytest.mark.parametrize("seed", range(scaled(12)))
def test_states_for_each_row(seed: int) -> None:
    rng = random.Random(f"row states {seed}")
    case = row_states_case(rng, replace(random_config(rng), index_depth=rng.choice([2, 16])))
    assert_same(run(case, Simulator(case.bundle.config)), interpret(case), case.source)


def test_tuples_that_share_no_row_run_side_by_side() -> None:
    """Bit for bit as one after the other, also the losses' sum; the number that names no row is the first."""
    cut = faults = 0
    for seed in range(scaled(36)):
        rng = random.Random(f"side by side {seed}")
        config = replace(random_config(rng), index_depth=rng.choice([2, 8, 64]), watch_depth=rng.choice([0, 4, 16, 64]))
        case = side_by_side_case(rng, config, rough=seed % 3 == 2)
        found = run(case, Simulator(config))
        assert_same(found, interpret(case), case.source)
        cut += case.bundle.cut
        faults += found.fault is not None
    assert cut > scaled(12)
    assert faults > SCALE


def test_models_in_records() -> None:
    """The same rules where models lie in a memory beside the machine's."""
    there = faults = 0
    for seed in range(scaled(36)):
        rng = random.Random(f"records {seed}")
        config = record_config(rng)
        try:
            case = side_by_side_case(rng, config, rough=seed % 3 == 2)
        except DoesNotFit:  # some choose a row by what they compute
            continue
        found = run(case, Simulator(config))
        assert_same(found, interpret(case), case.source)
        there += bool(case.bundle.tables)
        faults += found.fault is not None
    assert there > scaled(24)
    assert faults > SCALE


def test_batches_in_phases() -> None:
    again = 0
    for seed in range(scaled(24)):
        rng = random.Random(f"phases {seed}")
        case = phases_case(rng, random_config(rng))
        assert_same(run(case, Simulator(case.bundle.config)), interpret(case), case.source)
        again += case.bundle.batch > 1
    assert again > scaled(12)


def test_machines_give_the_same_bits_for_batches_in_phases() -> None:
    """Of one rule and table, whatever threads and clusters; the last batch is short."""
    for seed in range(scaled(4)):
        cases = [
            phases_case(random.Random(f"machines {seed}"), MachineConfig(threads=threads, clusters=clusters, **DEEP))
            for threads, clusters in ((1, 1), (8, 1), (2, 4), (1, 8))
        ]
        assert len({(case.source, case.pages) for case in cases}) == 1
        first, *others = [run(case, Simulator(case.bundle.config)) for case in cases]
        for other in others:
            assert other.models.keys() == first.models.keys()
            assert all(np.array_equal(other.models[name], first.models[name]) for name in first.models)
            assert other.losses == first.losses


DEEP = {"scratch_depth": 16384, "tuple_depth": 2048, "strider_depth": 8192, "descriptor_depth": 1024}

MATRIX = """
import dana
w = dana.model([3, 17])
x = dana.input([3, 17])
y = dana.output()
rule = dana.algo(w, x, y)
e = dana.sigma(dana.sigma(w * x, 2), 1) - y
g = rule.merge(e * x, 4, "+")
rule.setModel(w - 0.05 * g)
rule.setEpochs(2)
"""


@pytest.mark.parametrize("part", [1, 16, 17, 20, 34, 51, 52])
def test_matrices_cut_anywhere(part: int) -> None:
    rng = random.Random(part)
    schema = TableSchema(relation="t", attributes=(part_attribute("x", 51), part_attribute("y", 0)), part=part)
    rows = [[[rng.gauss(0, 1) for _ in range(51)], rng.gauss(0, 1)] for _ in range(9)]
    pages = build_part_pages(schema, rows, page_size=8192)
    case = finished(MachineConfig(threads=2, descriptor_depth=128, strider_depth=2048), MATRIX, schema, pages)
    outcome = interpret(case)
    assert outcome.models["w"].any()
    assert_same(run(case, Simulator(case.bundle.config)), outcome, case.source)


def test_work_that_threads_share() -> None:
    shared = 0
    for seed in range(scaled(16)):
        rng = random.Random(f"network {seed}")
        config = replace(random_config(rng), threads=rng.choice([2, 4, 8]), clusters=1, tuple_depth=256)
        case = network_case(rng, config)
        assert_same(run(case, Simulator(config)), interpret(case), case.source)
        shared += any(instruction.op.chooses for instruction in case.bundle.program)
    assert shared > scaled(12)
