"""What the boards of these tests train: a rule, a table, and the model that the simulator makes of them."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from functools import cache

import numpy as np
import numpy.typing as npt

from dana.compiler import bind, compile_bundle
from dana.simulator import Simulator
from dana.storage.builder import build_pages
from dana.storage.schema import TableSchema
from dsl import compile_rule
from hwgen.spec.bundle import Bundle
from hwgen.spec.config import MachineConfig
from tests.storage.schemas import attribute

CONFIG = MachineConfig(
    scratch_depth=48,
    tuple_depth=64,
    striders=2,
    strider_depth=256,
    program_depth=128,
    descriptor_depth=16,
    queue_depth=4,
    link_bytes=16,
)
FEATURES = 11
SCHEMA = TableSchema(
    relation="t", attributes=(*(attribute(f"x{k}", "real") for k in range(FEATURES)), attribute("y", "real"))
)
RULE = """\
import dana
n = dana.dim()
w = dana.model([n])
x = dana.input([n])
y = dana.output()
lr = dana.meta(0.1)
logistic = dana.algo(w, x, y)
p = dana.sigmoid(dana.sigma(w * x, 1))
grad = logistic.merge((p - y) * x, 8, "+")
logistic.setModel(w - lr * grad / 8)
logistic.setLoss((p - y) * (p - y))
logistic.setConvergence(dana.norm(grad, 1) < {bound})
"""
CONVERGES_BELOW = 5.0
"""A bound that the gradient is below after three epochs over `table(120)`."""

NEVER = 0.0
"""A bound that no gradient is below."""


@cache
def rule(bound: float = NEVER) -> Bundle:
    source = RULE.format(bound=f"{bound:f}")
    return compile_bundle(bind(compile_rule(source).hdfg, SCHEMA), SCHEMA, max_tuples=10_000, config=CONFIG)


@cache
def table(rows: int, seed: int = 0) -> bytes:
    rng = random.Random(seed)
    values = [[*(rng.gauss(0, 1) for _ in range(FEATURES)), float(rng.randint(0, 1))] for _ in range(rows)]
    return build_pages(SCHEMA, values, page_size=CONFIG.page_size, fill=0.3)


@dataclass(frozen=True, kw_only=True)
class Trained:
    """What the simulator makes of a table."""

    scratchpad: npt.NDArray[np.uint32]
    losses: list[int] = field(default_factory=list)
    converged: bool = False


def simulated(bundle: Bundle, pages: bytes, epochs: int) -> Trained:
    """The training loop as a driver of the simulator has it."""
    simulator = Simulator(bundle.config)
    simulator.load(bundle)
    loss, convergence = bundle.symbol("loss"), bundle.symbol("convergence")
    assert loss is not None
    assert convergence is not None
    losses: list[int] = []
    converged = False
    for _ in range(epochs):
        simulator.run_epoch(pages)
        losses.append(int(simulator.read_rows(loss.row, 1)[0, 0]))
        converged = bool(simulator.read_rows(convergence.row, 1).view(np.float32)[0, 0] != 0)
        if converged:
            break
    return Trained(scratchpad=simulator.read_rows(0, bundle.config.scratch_depth), losses=losses, converged=converged)
