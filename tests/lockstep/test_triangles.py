"""Merges of symmetric matrices, which are computed by half: interpreter = simulator = compiled code = RTL."""

from __future__ import annotations

import random

import pytest

from dana.compiler.passes import plan_of
from dana.compiler.place.triangles import fold_symmetric
from dana.compiler.target import Target
from dana.simulator import Simulator
from dana.storage.builder import build_pages
from dana.storage.schema import TableSchema
from hwgen.harness import RtlMachine
from hwgen.spec.config import MachineConfig
from tests.lockstep.cases import Case, assert_same, finished, interpret, run
from tests.lockstep.test_compiled_code import assert_compiled
from tests.scale import scaled
from tests.storage.schemas import attribute

RETURNING = """import dana
G, w = dana.model([{n}, {n}]), dana.model([{n}], init=dana.normal(0, 1))
x, y = dana.input([{n}]), dana.output()
r = dana.algo(G, w, x, y)
C = r.merge(dana.expand(x, 2) * x, 32, "+") / 32
z = dana.sigma(C * x, 2)
r.setModel(G, C)
r.setModel(w, w - 0.001 * r.merge((dana.sigma(w * z) - y) * z, 32, "+"))
r.setEpochs(2)
"""
RULE = """import dana
G = dana.model([{n}, {n}], init=dana.normal(0, 1))
m = dana.model([{n}])
x = dana.input([{n}])
y = dana.output()
r = dana.algo(G, m, x, y)
c = x - m
r.setModel(G, {new})
r.setModel(m, 0.5 * m + 0.01 * r.merge(x, {batch}, "+"))
r.setLoss(y * y)
r.setEpochs(2)
"""
SYMMETRIC = (
    "dana.expand(x, 2) * x",
    "x * dana.expand(x, 2)",
    "y * (dana.expand(c, 2) * dana.expand(c, 1))",
    "dana.abs(dana.expand(x, 2) - dana.expand(m, 2)) * dana.abs(x - m) / 3",
    "dana.max(dana.expand(x, 2), x) - y",
    "(dana.expand(x, 2) + x) * (dana.expand(c, 2) * c)",
    "(dana.arange({n}) == dana.expand(dana.arange({n}), 2)) * (dana.expand(x, 2) * x)",
)
OTHERS = (
    "(y * dana.expand(x, 2)) * x",
    "dana.expand(x, 2) - x",
    "dana.expand(x, 2) * c",
    "(dana.expand(x, 2) * x) * G",
    "dana.expand(x, 2) * x * dana.arange({n})",
)
UPDATES = ("{merged}", "0.5 * G + {merged}", "G - {merged} * dana.sigma(G, 1)", "{merged} + dana.expand({others}, 2)")


def case_of(rng: random.Random, config: MachineConfig, values: tuple[str, ...], n: int, batch: str) -> Case:
    """Tables of no row to several rounds; numbers whose products have no bits to spare, or are none."""
    op = rng.choice(['"+"', '"+"', '"max"'])
    merged = f"r.merge({rng.choice(values).format(n=n)}, {batch}, {op})"
    new = rng.choice(UPDATES).format(merged=merged, others=f'r.merge(c, {batch}, "+")')
    schema = TableSchema(relation="t", attributes=(attribute("x", "real[]", array_length=n), attribute("y", "real")))
    odd = [0.0, -0.0, 1e-30, 3e38, float("inf"), float("nan")]

    def number() -> float:
        return rng.choice(odd) if rng.random() < strange else rng.gauss(0, 1)

    strange = rng.choice([0, 0, 0.01])
    rows = [([number() for _ in range(n)], float(rng.randrange(3))) for _ in range(rng.choice([1, 6, 70, 200]))]
    return finished(config, RULE.format(n=n, new=new, batch=batch), schema, build_pages(schema, rows))


def config_of(rng: random.Random) -> MachineConfig:
    return MachineConfig(
        threads=rng.choice([1, 2, 4, 8]), clusters=rng.choice([1, 1, 2]), scratch_depth=8192, tuple_depth=2048,
        striders=2, queue_depth=32,
    )  # fmt: skip


def halved(case: Case) -> bool:
    """Whether the program merges a matrix by half."""
    config, bundle = case.bundle.config, case.bundle
    target = Target(
        threads=config.threads, lanes=config.lanes, group=bundle.group, levels=bundle.levels,
        divide_interval=config.divide_interval, crossed=True,
    )  # fmt: skip
    return fold_symmetric(plan_of(case.binding.graph), target).mirrors


@pytest.mark.parametrize("seed", range(scaled(40)))
def test_random_shapes(seed: int) -> None:
    """Whole blocks and others, batches of a round, of several and without end; and values that only look symmetric."""
    rng = random.Random(f"triangle {seed}")
    config = config_of(rng)
    values, n = rng.choice([SYMMETRIC, SYMMETRIC, OTHERS]), rng.choice([8, 9, 15, 16, 17, 24, 31, 40])
    batch = rng.choice(["2", "24", "128", "dana.all"])
    case = case_of(rng, config, values, n, batch)
    if values is OTHERS or n <= config.lanes:
        assert not halved(case)
    elif batch == "dana.all":
        assert halved(case)
    assert assert_compiled(case)
    plain = run(case, Simulator(config, plain=True))
    assert_same(plain, interpret(case), case.source)
    assert_same(plain, run(case, Simulator(config)), case.source)


def test_a_matrix_of_a_batch_that_its_rows_use_again() -> None:
    rng = random.Random(0)
    schema = TableSchema(relation="t", attributes=(attribute("x", "real[]", array_length=24), attribute("y", "real")))
    rows = [([rng.gauss(0, 1) for _ in range(24)], 1.0) for _ in range(70)]
    config = MachineConfig(threads=4, scratch_depth=8192, tuple_depth=2048)
    case = finished(config, RETURNING.format(n=24), schema, build_pages(schema, rows))
    assert halved(case)
    assert assert_compiled(case)
    plain = run(case, Simulator(config, plain=True))
    assert_same(plain, interpret(case), case.source)


def test_on_the_hardware() -> None:
    config = MachineConfig(threads=4, scratch_depth=4096, tuple_depth=1024, striders=2, queue_depth=32)
    rtl = RtlMachine(config)
    for seed in range(scaled(6)):
        rng = random.Random(f"hardware {seed}")
        case = case_of(rng, config, SYMMETRIC, rng.choice([12, 16, 20]), rng.choice(["128", "dana.all"]))
        assert halved(case)
        found = run(case, rtl)
        assert_same(found, interpret(case), case.source)
        assert_same(found, run(case, Simulator(config)), case.source)
