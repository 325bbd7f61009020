"""Every rule and optimiser of the library on generated hardware: one machine runs all, cycle for cycle as simulated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from dana import rules
from dana.compiler import compile_bundle
from dana.compiler.binding.columns import bind
from dana.server.places import CHECKOUT
from dana.simulator import Simulator
from dana.storage.columns import column_pages, column_schema
from dsl import compile_rule
from hwgen.harness import RtlMachine
from tests.lockstep.cases import Case, assert_same, interpret, run
from tests.lockstep.test_rtl import MACHINES
from tests.rules.tables import EXTENTS, table
from tests.rules.test_optimizers import CASES, RULE, gradients

NETWORK = (CHECKOUT / "examples" / "network.py").read_text(encoding="utf-8")
CONFIG = MACHINES["two clusters"]
"""A machine that another test builds anyway; builds are kept."""


@pytest.fixture
def machines() -> tuple[RtlMachine, Simulator]:
    """New ones: to clear what another rule has written takes longer."""
    return RtlMachine(CONFIG), Simulator(CONFIG)


@pytest.mark.parametrize("name", rules.NAMES)
def test_rules(name: str, machines: tuple[RtlMachine, Simulator]) -> None:
    check(rules.text(name), table(name, count=70, features=3), machines, EXTENTS.get(name))


@pytest.mark.parametrize("name", ["linear", "huber", "poisson", "logistic", "mlp", "lrmf"])
def test_weighted_rules(name: str, machines: tuple[RtlMachine, Simulator]) -> None:
    columns = table(name, count=70, features=3)
    weights = np.random.default_rng(1).uniform(0, 3, 70) * (np.arange(70) % 5 > 0)
    check(rules.text(name), {**columns, "importance": weights}, machines, EXTENTS.get(name), weight="importance")


@pytest.mark.parametrize("name", CASES)
def test_optimisers(name: str, machines: tuple[RtlMachine, Simulator]) -> None:
    check(RULE.format(value=CASES[name][0]), {f"x{k + 1}": x for k, x in enumerate(gradients().T)}, machines)


@pytest.mark.parametrize("start", ["", "init=-5"], ids=["straight on", "with steps that are shortened"])
def test_conjugate_gradients(start: str, machines: tuple[RtlMachine, Simulator]) -> None:
    source = f"""
import dana
w, b = dana.model([3]), dana.model({start})
x, y = dana.input([3]), dana.output()
rule = dana.algo(w, b, x, y)
s = dana.sigma(w * x) + b
rule.setLoss(dana.exp(dana.min(s, 20)) * (1 + dana.max(s - 20, 0)) - y * s)
gain = rule.minimize(dana.optimizers.conjugate_gradients)
rule.setConvergence(dana.rows * gain < 1e-4)
"""
    check(source, table("poisson", count=70, features=3), machines, epochs=12)


def test_a_network_with_batch_norm_and_dropout(machines: tuple[RtlMachine, Simulator]) -> None:
    """Four of its batches, the last one short; of sixteen tuples, so that the machine's tuple memory holds them."""
    x = np.random.default_rng(0).standard_normal((55, 3))
    columns = {f"x{k}": column for k, column in enumerate(x.T)} | {"y": (x[:, 0] > x[:, 1] * x[:, 2]) * 1.0}
    check(NETWORK.replace("64", "16"), columns, machines, {"h": 3, "k": 2})


def check(
    source: str,
    columns: Mapping[str, NDArray[np.floating]],
    machines: tuple[RtlMachine, Simulator],
    extents: Mapping[str, int] | None = None,
    weight: str | None = None,
    epochs: int = 2,
) -> None:
    """Train for some epochs: hardware as simulator, cycles included, and both as the interpreter."""
    columns = {name: np.asarray(values, dtype=np.float32) for name, values in columns.items()}
    schema = column_schema(columns)
    graph = compile_rule(source).hdfg
    classes = weight is not None and graph.classes is not None
    binding = bind(graph, schema, extents=extents, weight=weight, class_weight=classes)
    # after binding, which reads a rule again whose loops count a dim
    binding = replace(binding, graph=replace(binding.graph, epochs=epochs))
    bundle = compile_bundle(binding, schema, config=CONFIG, max_tuples=1 << 16)
    pages = column_pages(columns, page_size=CONFIG.page_size).tobytes()
    case = Case(source=source, schema=schema, binding=binding, pages=pages, bundle=bundle, epochs=epochs)
    rtl, simulator = machines
    simulated = run(case, simulator)
    assert_same(run(case, rtl), simulated, source)
    assert_same(simulated, interpret(case), source)
