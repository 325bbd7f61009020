"""Compiled rules train to the interpreter's bits, whatever the rule, the shapes, the batch and the machine.

Proven on `tests.oracles.machine`, which executes docs/machine.md. Tuple memory, lanes past a vector's end and tuples
that a round does not have hold garbage, NaN and infinity among it. `compile_engine` checks every program's legality.
"""

from __future__ import annotations

import os
import random

import pytest

from dana.compiler.engine import draft_for, prepare
from dana.compiler.layout import tuple_layout
from hwgen.spec.config import MachineConfig
from hwgen.spec.engine import Section
from tests.compiler.rules import ROOMY, RandomRule, assert_same, random_columns, train

SCALE = int(os.environ.get("DANA_TEST_SCALE", "1"))
BATCHES = (1, 2, 3, 4, 7, 8, 16, 33, None)


@pytest.mark.parametrize("seed", range(150 * SCALE))
def test_models_losses_and_convergence_are_the_interpreters(seed: int) -> None:
    rng = random.Random(seed)
    rule = RandomRule(seed, merges=rng.random() < 0.8, special=rng.random() < 0.5)
    graph = rule.graph(batch=rng.choice(BATCHES), size=rng.choice([4, 10, 25]))
    depth = rng.choice([128, 256, 1024, 65536])  # a small tuple memory makes rounds of few tuples, so levels of merges
    config = MachineConfig(
        threads=rng.choice([1, 2, 4, 8]), clusters=rng.choice([1, 1, 2, 4]), **{**ROOMY, "tuple_depth": depth}
    )
    columns = random_columns(graph, rng.choice([1, 2, 5, 16, 37, 64]), seed)
    assert_same(graph, columns, train(graph, columns, config))


@pytest.mark.parametrize("seed", range(150 * SCALE))
def test_matrices(seed: int) -> None:
    rng = random.Random(f"matrices {seed}")
    rule = RandomRule(seed, merges=rng.random() < 0.8, special=rng.random() < 0.5, matrices=True)
    graph = rule.graph(batch=rng.choice(BATCHES), size=rng.choice([4, 10, 25]))
    rows = tuple_layout(graph, 8).rows
    depth = max(rng.choice([256, 1024, 65536]), 1 << (2 * rows - 1).bit_length())
    config = MachineConfig(
        threads=rng.choice([1, 2, 4, 8]), clusters=rng.choice([1, 1, 2, 4]), **{**ROOMY, "tuple_depth": depth}
    )
    columns = random_columns(graph, rng.choice([1, 2, 5, 16, 37]), seed)
    assert_same(graph, columns, train(graph, columns, config))


@pytest.mark.parametrize("seed", range(150 * SCALE))
def test_rows_that_tuples_choose(seed: int) -> None:
    rng = random.Random(f"rows {seed}")
    rule = RandomRule(
        seed, merges=rng.random() < 0.6, special=rng.random() < 0.3, matrices=rng.random() < 0.8, rows=True
    )
    graph = rule.graph(batch=rng.choice(BATCHES), size=rng.choice([4, 10, 25]))
    config = MachineConfig(threads=rng.choice([1, 2, 4]), clusters=rng.choice([1, 2, 4]), **ROOMY)
    columns = random_columns(graph, rng.choice([1, 2, 5, 16, 37]), seed)
    assert_same(graph, columns, train(graph, columns, config))


@pytest.mark.parametrize("batch", [5, 16, None])
@pytest.mark.parametrize("threads", [1, 4])
def test_batches_of_many_rounds_use_the_merge_stack(batch: int | None, threads: int) -> None:
    graph = RandomRule(3).graph(batch=batch)
    layout = tuple_layout(graph, 8)
    depth = max(16, 1 << (2 * layout.rows - 1).bit_length())  # one tuple to a thread, two at most
    config = MachineConfig(threads=threads, **{**ROOMY, "tuple_depth": depth})
    columns = random_columns(graph, 43, 5)
    trained = train(graph, columns, config)
    assert trained.bundle.group <= 2
    assert trained.bundle.levels >= 1
    assert {Section.MERGE, Section.PUSH} <= trained.bundle.sections.keys()
    assert_same(graph, columns, trained)


def test_metas_are_patched_without_compiling() -> None:
    patched = 0
    for seed in range(60):
        graph = RandomRule(seed).graph(batch=4)
        if graph.metas:
            patched += 1
            metas = {str(graph.nodes[k].name): 0.375 for k in graph.metas}
            columns = random_columns(graph, 11, seed)
            assert_same(graph, columns, train(graph, columns, MachineConfig(threads=2, **ROOMY), metas=metas), metas)
    assert patched > 20


@pytest.mark.parametrize("seed", range(20))
def test_the_rules_order_keeps_no_more_rows_than_the_scheduled_order(seed: int) -> None:
    """Not a theorem, but what the retreat to the rule's order is for: it must not need more on the whole."""
    graph = RandomRule(seed).graph(batch=16, size=25)
    layout = tuple_layout(graph, 8)
    plan, _ = prepare(graph)
    rows = [
        draft_for(
            plan, layout, threads=1, group=16, levels=0, divide_interval=9, crossed=True, reorder=reorder
        ).memory.rows
        for reorder in (True, False)
    ]
    assert rows[1] <= 1.25 * rows[0]
