"""Threads share the work of a batch where that saves rows, and nobody can tell from the models."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from dana.compiler.compile import compile_engine
from dana.compiler.fit import draft_for
from dana.compiler.passes import Draft, Placed, place, plan_of
from dana.compiler.place import shards
from dana.compiler.place.forms import choose_forms
from dana.compiler.place.shards import LAST_AXIS, Shards, choose_shards, parts_of, shares
from dana.compiler.select.nest import LoopLimit
from dana.compiler.select.sharding import halves
from dana.compiler.target import Target
from dsl import compile_rule
from dsl.hdfg.graph import Graph
from dsl.hdfg.text import parse_graph
from hwgen.spec.config import MachineConfig
from tests.compiler.rules import ROOMY, RandomRule, assert_same, random_columns, tells_elements_apart, train
from tests.scale import scaled

VECTORS = """\
hdfg r
epochs 3
batch 4
inputs %0
models %1 %2
%0 = input x : tuple [600]
%1 = model v init=uniform,-1.0,1.0,1 : batch [600]
%2 = model w init=uniform,-1.0,1.0,2 : batch [600]
%3 = merge %0 op=add : batch [600]
"""
"""75 rows of 8 lanes; four threads hold 38, then 19 of them."""

CASES = {
    # what was merged, what follows, and the models that take it; nobody reads a model whole
    "independent": (
        "%4 = mul %1 %3 : batch [600]\n%5 = sub %2 %4 : batch [600]\nupdate %1 <- %4\nupdate %2 <- %5\n",
        "shards: %1 %2 %3 %4 %5\njoined: -\n",
    ),
    # the tuples of the next batch read w
    "model of the tuples": (
        "%4 = mul %2 %0 : tuple [600]\n%5 = merge %4 op=max : batch [600]\n%6 = mul %5 %3 : batch [600]\n"
        "%7 = sub %2 %6 : batch [600]\nupdate %2 <- %7\n",
        "shards: %2 %3 %5 %6 %7\njoined: %2\n",
    ),
    # a sum over all elements wants the merge whole; what it gives is one row, which joins in
    "norm": (
        "%4 = mul %3 %3 : batch [600]\n%5 = sigma %4 axis=0 : batch []\n%6 = div %3 %5 : batch [600]\n"
        "%7 = sub %2 %6 : batch [600]\nupdate %2 <- %7\n",
        "shards: %2 %3 %4 %6 %7\njoined: -\n",
    ),
    # the test is computed once an epoch, from the last batch's shards
    "convergence": (
        "%4 = sub %2 %3 : batch [600]\n%5 = mul %3 %3 : batch [600]\n%6 = sigma %5 axis=0 : batch []\n"
        "%7 = const 1.0 : const []\n%8 = lt %6 %7 : batch []\nupdate %2 <- %4\nconvergence %8\n",
        "shards: %2 %3 %4\njoined: -\n",
    ),
    # v never changes: it is cut once an epoch
    "constant": ("%4 = sub %1 %3 : batch [600]\nupdate %2 <- %4\n", "shards: %2 %3 %4\njoined: -\n"),
    # a new value that threads do not compute: v is read whole and cut in each batch
    "exchanged": (
        "%4 = sub %1 %3 : batch [600]\n%5 = mul %4 %3 : batch [600]\nupdate %1 <- %2\nupdate %2 <- %5\n",
        "shards: %2 %3 %4 %5\njoined: %2\n",
    ),
    "merged": ("update %1 <- %3\n", "shards: %1 %3\njoined: -\n"),
    "selected": ("%4 = where %3 %1 %2 : batch [600]\nupdate %1 <- %4\n", "shards: %1 %3 %4\njoined: -\n"),
    # one value for two models
    "shared": ("%4 = add %1 %3 : batch [600]\nupdate %1 <- %4\nupdate %2 <- %4\n", "shards: %1 %2 %3 %4\njoined: -\n"),
}

MATRICES = """\
hdfg r
epochs 3
batch 4
inputs %0 %1
models %2 %3
%0 = input x : tuple [11,50]
%1 = input y : tuple [11]
%2 = model W init=uniform,-1.0,1.0,1 : batch [11,50]
%3 = model r init=uniform,-1.0,1.0,2 : batch [11]
%4 = merge %0 op=add : batch [11,50]
%5 = merge %1 op=add : batch [11]
%6 = expand %5 axis=1 : batch [11,1]
"""

PARTS = {
    # a factor for each vector: all threads have all factors, and a part of each vector
    "factors": (
        "%7 = mul %4 %6 : batch [11,50]\n%8 = add %2 %7 : batch [11,50]\nupdate %2 <- %8\n",
        "shards: %2/across %4/across %7/across %8/across\njoined: -\n",
    ),
    # a sum over the vectors, of parts of them; and a model with a new axis, which moves nothing
    "sums of vectors": (
        "%7 = expand %2 axis=0 : batch [1,11,50]\n%8 = expand %4 axis=1 : batch [11,1,50]\n"
        "%9 = mul %7 %8 : batch [11,11,50]\n%10 = sigma %9 axis=1 : batch [11,50]\n"
        "%11 = sub %2 %10 : batch [11,50]\nupdate %2 <- %11\n",
        "shards: %2/across %4/across %5/across %6/across %7/across %8/across %9/across\njoined: -\n",
    ),
    "a sum for a model": (
        "%7 = mul %2 %4 : batch [11,50]\n%8 = expand %7 axis=0 : batch [1,11,50]\n"
        "%9 = sigma %8 axis=0 : batch [11,50]\nupdate %2 <- %9\n",
        "shards: %2/across %4/across %5/across %6/across %7/across\njoined: -\n",
    ),
    # a vector for all: it is no chunk, but all threads have it
    "one vector": (
        "%7 = const 3.0 : const []\n%8 = gather %2 %7 : batch [50]\n%9 = mul %4 %8 : batch [11,50]\n"
        "%10 = mul %9 %9 : batch [11,50]\n%11 = add %2 %10 : batch [11,50]\nupdate %2 <- %11\n",
        "shards: %2/1 %4/1 %7/1 %8/1 %9/1\njoined: %2\n",
    ),
    # a row of the model is written, not all: it is no shard
    "one row": (
        "%7 = const 3.0 : const []\n%8 = sigma %4 axis=0 : batch [50]\nupdate %2[%7] <- %8\n",
        "shards: %4/across %6/across\njoined: -\n",
    ),
    "few rows": ("%7 = add %3 %5 : batch [11]\nupdate %3 <- %7\n", "shards: -\njoined: -\n"),
}


TARGET = Target(threads=4, lanes=8, group=4, divide_interval=9, crossed=True)


def chosen(graph: Graph, *, threads: int) -> Shards:
    plan = plan_of(graph)
    target = replace(TARGET, threads=threads)
    return choose_shards(plan, choose_forms(plan, target), target, sharded=True)


@pytest.mark.parametrize(("head", "name"), [*((VECTORS, n) for n in CASES), *((MATRICES, n) for n in PARTS)])
def test_choice(head: str, name: str) -> None:
    body, expected = (CASES | PARTS)[name]
    graph = parse_graph(head + body)
    assert chosen(graph, threads=4).text() == expected
    assert not chosen(graph, threads=1).of


@pytest.mark.parametrize(("head", "name"), [*((VECTORS, n) for n in CASES), *((MATRICES, n) for n in PARTS)])
def test_models_are_the_interpreters(head: str, name: str) -> None:
    graph = parse_graph(head + (CASES | PARTS)[name][0])
    columns = random_columns(graph, 10, seed=1)
    for threads, clusters in ((4, 2), (16, 1)):
        assert_same(graph, columns, train(graph, columns, MachineConfig(threads=threads, clusters=clusters, **ROOMY)))


SHARED = """\
hdfg r
epochs 1
batch 4
inputs %0
models %1 %2 %3 %4
%0 = input x : tuple [600]
%1 = model v init=uniform,-1.0,1.0,1 : batch [600]
%2 = model w init=uniform,-1.0,1.0,2 : batch [600]
%3 = model z init=uniform,-1.0,1.0,2 : batch [600]
%4 = model u init=uniform,-1.0,1.0,4 : batch [600]
%5 = merge %0 op=add : batch [600]
%6 = merge %0 op=max : batch [600]
%7 = mul %1 %5 : batch [600]
%8 = mul %1 %6 : batch [600]
update %1 <- %4
update %4 <- %1
update %2 <- %7
update %3 <- %8
"""
"""Two groups that both cut v, which is whole."""


def test_groups_that_share_values_save_together_what_is_said() -> None:
    plan = plan_of(parse_graph(SHARED))
    chooser = shards._Chooser(plan, choose_forms(plan, TARGET), TARGET)
    saved = chooser.choose().saved
    after = chooser._cost(chooser.rows)
    chooser.chosen = {}
    assert saved == chooser._cost(chooser.rows) - after


NETWORK = """\
import dana
from dana.optimizers import adam, clip_norm, momentum
W = dana.model([9, 30], init=dana.normal(0, 0.3))
V = dana.model([5, 9], init=dana.normal(0, 0.3))
b = dana.model([9])
x = dana.input([30])
y = dana.output()
network = dana.algo(W, V, b, x, y)
h = dana.max(dana.sigma(W * x, 2) + b, 0)
e = dana.sigma(V * h, 2) - y
back = (h > 0) * dana.sigma(V * dana.expand(e, 2), 1)
gradient = network.merge(dana.expand(back, 2) * x, {batch}, "+")
network.setModel(W, adam(W, gradient / 16, 0.01))
network.setModel(V, momentum(V, network.merge(dana.expand(e, 2) * h, {batch}, "+") / 16, 0.001))
network.setModel(b, b - 0.1 * clip_norm(network.merge(back, {batch}, "+"), 1))
network.setLoss(dana.sigma(e * e, 1))
network.setEpochs(3)
network.setConvergence(dana.sigma(dana.norm(gradient, 2), 1) < 0.01)
"""


@pytest.mark.parametrize("threads", [2, 8])
@pytest.mark.parametrize("batch", [16, 50, "dana.all"])
def test_optimizers_keep_their_shards(batch: int | str, threads: int) -> None:
    graph = compile_rule(NETWORK.format(batch=batch)).hdfg
    config = MachineConfig(threads=threads, **{**ROOMY, "tuple_depth": 64})
    compiled = compile_engine(graph, config, max_tuples=70)
    found = compiled.draft.shards
    names = {graph.nodes[k].name: k for k in compiled.draft.plan.graph.models}
    held = {name for name, k in names.items() if k in found.of}
    assert {"W", "W.mean", "W.square"} <= held
    assert names["W.mean"] not in found.joined
    assert compiled.draft.target.levels > 0 or batch == 16
    columns = random_columns(graph, 70, seed=2)
    assert_same(graph, columns, train(graph, columns, config))


@pytest.mark.parametrize("seed", range(scaled(25)))
def test_whatever_can_be_sharded(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Random rules, whose values are too small for shards to pay; of each seed the first that has some."""
    rng = random.Random(f"shards {seed}")
    monkeypatch.setattr(shards._Chooser, "_saved", lambda *_: (1 << 30) + rng.randrange(8))
    monkeypatch.setattr(shards._Chooser, "_prune", lambda *_: None)
    config = MachineConfig(threads=rng.choice([2, 4, 8]), **{**ROOMY, "tuple_depth": rng.choice([1024, 65536])})
    for attempt in range(100):
        graph = RandomRule(seed + 1000 * attempt, special=rng.random() < 0.5, matrices=seed % 4 > 0).graph(
            batch=rng.choice([2, 7, 16, 33, None]), size=rng.choice([10, 25])
        )
        columns = random_columns(graph, rng.choice([2, 16, 37]), seed)
        if not chosen(graph, threads=config.threads).of or not tells_elements_apart(graph, columns):
            continue
        compiled = compile_engine(graph, config, max_tuples=len(columns["y"]))
        if compiled.draft.shards.of:
            break
    else:
        pytest.fail("none of 100 rules has shards")
    assert_same(graph, columns, train(graph, columns, config))


def test_machines_that_cannot_cross_do_all_the_work_in_every_thread() -> None:
    graph = parse_graph(VECTORS + CASES["independent"][0])
    columns = random_columns(graph, 40, seed=3)
    for crossed in (0, 1):
        config = MachineConfig(threads=4, crossed=crossed, **ROOMY)
        compiled = compile_engine(graph, config, max_tuples=40)
        assert bool(compiled.draft.shards.of) == bool(crossed)
        assert any(instruction.crossed for instruction in compiled.program.instructions) == bool(crossed)
        assert_same(graph, columns, train(graph, columns, config))


def test_a_program_memory_too_small_for_shards_gets_the_program_without() -> None:
    graph = parse_graph(VECTORS + CASES["independent"][0])
    sharded, whole = (
        compile_engine(graph, MachineConfig(threads=4, **{**ROOMY, "program_depth": depth}), max_tuples=40)
        for depth in (32, 16)
    )
    assert sharded.draft.shards.of
    assert len(sharded.program.instructions) > 16
    assert not whole.draft.shards.of
    assert whole.draft.target == sharded.draft.target


def test_a_loop_too_long_for_shards_leaves_the_program_without(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Draft.compile

    def limited(placed: Placed, *, sharded: bool, reorder: bool) -> Draft:
        if sharded:
            raise LoopLimit("an inner loop of many rows")
        return made(placed, sharded=sharded, reorder=reorder)

    graph = parse_graph(VECTORS + CASES["independent"][0])
    assert compile_engine(graph, MachineConfig(threads=4), max_tuples=40).draft.shards.of
    monkeypatch.setattr(Draft, "compile", limited)
    found = compile_engine(graph, MachineConfig(threads=4), max_tuples=40)
    assert not found.draft.shards.of


def test_shards_take_fewer_cycles() -> None:
    graph = compile_rule(NETWORK.format(batch=16)).hdfg
    target = replace(TARGET, divide_interval=1)
    whole, sharded = (draft_for(place(plan_of(graph), target), sharded=sharded).length for sharded in (False, True))
    assert sharded < 0.8 * whole


TALL = """\
import dana
W = dana.model([{vectors}, 50], init=1)
x = dana.input([50])
y = dana.input([{vectors}])
tall = dana.algo(W, x, y)
gradient = tall.merge(dana.expand(dana.sigma(W * x, 2) - y, 2) * x, 8, "+")
tall.setModel(W, W - 0.1 * dana.sigma(gradient * gradient, 1))
"""


def test_programs_grow_with_the_logarithm_of_the_vectors() -> None:
    """Rounds of one tuple of a thread, whose merge masks tuples and cuts vectors."""
    config = MachineConfig(threads=8, **{**ROOMY, "scratch_depth": 1 << 16})
    lengths = []
    for vectors in (25, 200, 800):
        graph = compile_rule(TALL.format(vectors=vectors)).hdfg
        compiled = compile_engine(graph, config, max_tuples=8)
        assert compiled.draft.target.group == 1
        assert LAST_AXIS in compiled.draft.shards.of.values()
        lengths.append(len(compiled.program.instructions))
    assert max(lengths) <= min(lengths) + 10, lengths


@pytest.mark.parametrize("merge", ["add", "mul", "max", "min"])
def test_tuples_that_are_absent_are_masked_before_vectors_are_cut(merge: str) -> None:
    text = (MATRICES + PARTS["factors"][0]).replace("merge %0 op=add", f"merge %0 op={merge}")
    graph = parse_graph(text)
    assert LAST_AXIS in chosen(graph, threads=4).of.values()
    columns = random_columns(graph, 7, seed=1)
    assert_same(graph, columns, train(graph, columns, MachineConfig(threads=4, **ROOMY)))


def test_shares() -> None:
    assert shares(75, 4) == (75, 38, 19)
    assert shares(3, 8) == (3, 2, 1, 1)
    assert halves(3, 8) == [(0, 3, 2), (1, 2, 1)]
    assert parts_of((11, 7), 0) == (1, 77, 1)
    assert parts_of((11, 7), 1) == (1, 11, 7)
    assert parts_of((7,), 2) == (1, 1, 7)
    assert parts_of((11, 7), LAST_AXIS) == (11, 7, 1)
