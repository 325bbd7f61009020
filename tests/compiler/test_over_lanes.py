"""Scalars of tuples that lie over lanes: the interpreter's bits, as many rows as reckoned, and only where it pays."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from dana.compiler import fit
from dana.compiler.compile import compile_engine
from dana.compiler.fit import draft_for
from dana.compiler.passes import Draft, place, plan_of
from dana.compiler.place import forms
from dana.compiler.place.forms import Forms
from dana.compiler.place.lanes import rows_to_merge
from dana.compiler.place.rows import Form
from dana.compiler.target import Target
from dsl import compile_rule
from dsl.hdfg.graph import Op
from hwgen.spec.config import MachineConfig
from hwgen.spec.engine import Mask, Opcode, Section
from tests.compiler.rules import ROOMY, RandomRule, assert_same, random_columns, tells_elements_apart, train
from tests.compiler.test_compiler_stages import MOMENTUM
from tests.scale import scaled

SCALARS = """
import dana
w, b = dana.model([10]), dana.model()
low, high, product = dana.model(), dana.model(), dana.model(init=1)
x, y = dana.input([10]), dana.output()
rule = dana.algo(w, b, low, high, product, x, y)
s = dana.sigma(w * x, 1) + b
p = dana.sigmoid(s)
e = dana.where(s * y < 3, p - y, -y)
rule.setModel(w, w - 0.1 * rule.merge(e * x, dana.all, "+") / dana.rows)
rule.setModel(b, b - 0.1 * rule.merge(e, dana.all, "+") / dana.rows)
rule.setModel(low, dana.min(low, rule.merge(s * p, dana.all, "min")))
rule.setModel(high, dana.max(high, rule.merge(s * p, dana.all, "max")))
rule.setModel(product, product * rule.merge(1 + (p - p * p) / 64, dana.all, "*"))
rule.setLoss(-(y * dana.log(p) + (1 - y) * dana.log(1 - p)) + dana.abs(s))
rule.setEpochs(2)
"""


def packed_scalars(draft: Draft) -> list[int]:
    """Nodes with scalars of tuples that lie over lanes."""
    found = draft.results["forms"]
    assert isinstance(found, Forms)
    return [k for k, form in found.of.items() if form is Form.PACKED and not draft.plan.graph.nodes[k].shape]


def target_of(lanes: int, group: int, *, threads: int = 1, crossed: bool = True) -> Target:
    return Target(threads=threads, lanes=lanes, group=group, levels=1, divide_interval=9, crossed=crossed)


@pytest.mark.parametrize(
    ("threads", "clusters", "group"),
    [(1, 1, 8), (2, 1, 16), (1, 1, 64), (2, 1, 512), (1, 2, 64), (2, 4, 32), (4, 1, 4), (1, 4, 16)],
)
def test_a_round_may_lack_any_of_its_tuples(threads: int, clusters: int, group: int) -> None:
    """The number of tuples in a thread: none, of some rows, or all; garbage lies in the place of others."""
    graph = compile_rule(SCALARS).hdfg
    tuple_rows = 2 if clusters > 1 else 3
    depth = 1 << (2 * group * tuple_rows - 1).bit_length()
    config = MachineConfig(threads=threads, clusters=clusters, **{**ROOMY, "tuple_depth": depth})
    rng = random.Random(f"{threads} {clusters} {group}")
    counts = {1, threads * group, *(rng.randrange(2, 2 * threads * group) for _ in range(2))}
    for count in sorted(counts):
        columns = random_columns(graph, count, seed=count)
        trained = train(graph, columns, config)
        assert_same(graph, columns, trained)
    compiled = compile_engine(graph, config, max_tuples=threads * group)
    assert compiled.draft.target.group == group
    assert bool(packed_scalars(compiled.draft)) == (group >= config.lanes)


@pytest.mark.parametrize("seed", range(scaled(12)))
def test_whatever_can_lie_over_lanes(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Random rules, each scalar of tuples over lanes wherever it could be; of each seed the first that has three."""
    rng = random.Random(f"over lanes {seed}")

    def fewest(self: forms._Chooser) -> float:
        return -float(sum(self.packed[k] for k in self.over_lanes))

    monkeypatch.setattr(forms._Chooser, "_total", fewest)
    monkeypatch.setattr(forms._Chooser, "_settle", lambda *_: None)
    monkeypatch.setattr(fit, "place", lambda plan, target, over_lanes=True: place(plan, target))
    config = MachineConfig(threads=rng.choice([1, 2, 4]), clusters=rng.choice([1, 1, 2]), **ROOMY)
    for attempt in range(200):
        rule = RandomRule(seed + 1000 * attempt, special=rng.random() < 0.5, matrices=seed % 4 == 0)
        graph = rule.graph(batch=rng.choice([33, 64, 100, None]), size=rng.choice([10, 25]))
        columns = random_columns(graph, rng.choice([70, 150]), seed)
        compiled = compile_engine(graph, config, max_tuples=len(columns["y"]))
        if len(packed_scalars(compiled.draft)) >= 3 and tells_elements_apart(graph, columns):
            break
    else:
        pytest.fail("none of 200 rules has scalars over lanes")
    assert_same(graph, columns, train(graph, columns, config))


@pytest.mark.parametrize(("lanes", "group"), [(8, 8), (8, 16), (8, 64), (8, 512), (16, 32), (64, 64), (64, 512)])
def test_merges_take_the_rows_that_are_reckoned_with(lanes: int, group: int) -> None:
    draft = draft_for(place(plan_of(compile_rule(SCALARS).hdfg), target_of(lanes, group)))
    ops = draft.selection.ops[Section.TUPLE]
    merges = [node for node in draft.plan.graph.nodes if node.op is Op.MERGE and node.merge_op in ("min", "max", "mul")]
    assert len(merges) == 3
    for node in merges:
        own = [op for op in ops if op.node == node.id and op.op in (Opcode[str(node.merge_op).upper()], Opcode.MOVC)]
        assert sum(op.rows for op in own) == rows_to_merge(group, lanes)


def test_the_number_of_tuples_is_counted_once() -> None:
    """By the rule's own merge where it has one: a row for each two tuples, one for each two of these …"""
    graph = plan_of(compile_rule(SCALARS.replace("dana.rows", 'rule.merge(1, dana.all, "+")')).hdfg)
    draft = draft_for(place(graph, target_of(8, 64)))
    masked = [op for op in draft.selection.ops[Section.TUPLE] if op.mask is not Mask.NONE]
    assert len(masked) == 2
    assert {op.inner for op in masked} == {1, 2}  # the number, and the merge of a vector of ten elements


def test_chains_that_would_become_longer_stay_as_they_are() -> None:
    """A batch of a tuple for each lane has no rows to put into the waits."""
    plan = plan_of(compile_rule(MOMENTUM.replace("dana.dim()", "54").replace("dana.all", "64")).hdfg)
    placed = place(plan, replace(target_of(8, 8, threads=8), levels=0))
    ways = (placed, place(plan, placed.target, over_lanes=False))
    packed, apart = (Draft.compile(one, sharded=True, reorder=True) for one in ways)
    assert placed.forms.saved > 0
    assert packed.length > apart.length
    assert not packed_scalars(draft_for(placed))


def test_no_scalar_lies_over_lanes_where_exchanges_do_not_cross() -> None:
    plan = plan_of(compile_rule(SCALARS).hdfg)
    assert place(plan, target_of(8, 64)).forms.saved
    assert not place(plan, target_of(8, 64, crossed=False)).forms.saved


def test_a_program_memory_too_small_for_scalars_over_lanes_gets_the_program_without() -> None:
    graph = compile_rule(SCALARS).hdfg
    roomy, small = (
        compile_engine(graph, MachineConfig(**{**ROOMY, "program_depth": depth}), max_tuples=64) for depth in (256, 128)
    )
    assert packed_scalars(roomy.draft)
    assert len(roomy.program.instructions) > 128
    assert roomy.draft.target.group == small.draft.target.group == 64
    assert not packed_scalars(small.draft)
