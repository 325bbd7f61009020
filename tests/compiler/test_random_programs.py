"""Compiled rules train to the interpreter's bits, whatever the rule, the shapes, the batch and the machine.

Proven on `tests.oracles.machine`, which executes docs/machine.md. Tuple memory, lanes past a vector's end and tuples
that a round does not have hold garbage, NaN and infinity among it. `compile_engine` checks every program's legality.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from dana.compiler.fit import draft_for
from dana.compiler.passes import place, plan_of
from dana.compiler.place.rows import place_inputs
from dana.compiler.target import Target
from dsl.hdfg.graph import Graph
from dsl.hdfg.text import graph_text
from hwgen.spec.config import MachineConfig
from hwgen.spec.engine import Section
from tests.compiler.rules import ROOMY, Floats, RandomRule, assert_same, random_columns, tells_elements_apart, train
from tests.scale import scaled

BATCHES = (1, 2, 3, 4, 7, 8, 16, 33, None)


Case = tuple[Graph, dict[str, Floats], MachineConfig]


def vectors(rng: random.Random, seed: int) -> Case:
    rule = RandomRule(seed, merges=rng.random() < 0.8, special=rng.random() < 0.5)
    graph = rule.graph(batch=rng.choice(BATCHES), size=rng.choice([4, 10, 25]))
    depth = rng.choice([128, 256, 1024, 65536])  # a small tuple memory makes rounds of few tuples, so levels of merges
    return graph, random_columns(graph, rng.choice([1, 2, 5, 16, 37, 64]), seed), machine(rng, depth)


def matrices(rng: random.Random, seed: int) -> Case:
    rule = RandomRule(seed, merges=rng.random() < 0.8, special=rng.random() < 0.5, matrices=True)
    graph = rule.graph(batch=rng.choice(BATCHES), size=rng.choice([4, 10, 25]))
    rows = place_inputs(graph, 8).rows
    depth = max(rng.choice([256, 1024, 65536]), 1 << (2 * rows - 1).bit_length())
    return graph, random_columns(graph, rng.choice([1, 2, 5, 16, 37]), seed), machine(rng, depth)


def rows(rng: random.Random, seed: int) -> Case:
    """Of models, chosen by tuples."""
    rule = RandomRule(
        seed, merges=rng.random() < 0.6, special=rng.random() < 0.3, matrices=rng.random() < 0.8, rows=True
    )
    graph = rule.graph(batch=rng.choice(BATCHES), size=rng.choice([4, 10, 25]))
    return graph, random_columns(graph, rng.choice([1, 2, 5, 16, 37]), seed), machine(rng, 65536)


def machine(rng: random.Random, depth: int) -> MachineConfig:
    return MachineConfig(
        threads=rng.choice([1, 2, 4, 8]), clusters=rng.choice([1, 1, 2, 4]), **{**ROOMY, "tuple_depth": depth}
    )


def telling(made: Callable[[random.Random, int], Case], seed: int) -> Case:
    """The first of the seed's rules that shows in which order elements lie: of most, all elements come to be alike."""
    for attempt in range(50):
        case = made(random.Random(f"{made.__name__} {seed} {attempt}"), seed + 1000 * attempt)
        if tells_elements_apart(*case[:2]):
            return case
    raise AssertionError("no rule of 50 tells elements apart")


@pytest.mark.parametrize("made", [vectors, matrices, rows])
@pytest.mark.parametrize("block", range(15))
def test_models_losses_and_convergence_are_the_interpreters(
    made: Callable[[random.Random, int], Case], block: int
) -> None:
    """Three quarters of the rules show a permutation of elements; the others are any."""
    for seed in range(scaled(10) * block, scaled(10) * (block + 1)):
        case = telling(made, seed) if seed % 4 else made(random.Random(f"{made.__name__} {seed}"), seed)
        graph, columns, config = case
        try:
            assert_same(graph, columns, train(graph, columns, config))
        except Exception as error:
            error.add_note(f"{made.__name__}, seed {seed}:\n{graph_text(graph)}")
            raise


@pytest.mark.parametrize("batch", [5, 16, None])
@pytest.mark.parametrize("threads", [1, 4])
def test_batches_of_many_rounds_use_the_merge_stack(batch: int | None, threads: int) -> None:
    graph = RandomRule(3).graph(batch=batch)
    depth = max(16, 1 << (2 * place_inputs(graph, 8).rows - 1).bit_length())  # one tuple to a thread, two at most
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


def test_the_rules_order_keeps_fewer_rows_than_the_scheduled_order() -> None:
    """On the whole, which is what the retreat to it is for: of one rule it may keep more, and then it is not taken."""
    target = Target(threads=1, lanes=8, group=16, divide_interval=9, crossed=True)
    plans = [plan_of(RandomRule(seed).graph(batch=16, size=25)) for seed in range(20)]
    scheduled, in_order = (
        sum(draft_for(place(plan, target), reorder=reorder).memory.rows for plan in plans) for reorder in (True, False)
    )
    assert in_order <= 0.95 * scheduled
