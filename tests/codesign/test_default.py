"""The machine that a rule gets where nobody says which: none of 64 units is faster, and few are compiled to know it."""

from __future__ import annotations

import re
from typing import Any

import pytest

from benchmarks.speed import side_by_side
from dana import rules
from dana.codesign import default
from dana.compiler.binding.columns import bind
from dana.compiler.fit import fit
from dana.compiler.passes import Draft, plan_of
from dana.compiler.target import DoesNotFit
from dana.errors import UsageError
from dana.storage.declared import declared
from dana.storage.schema import TableSchema
from dsl import compile_rule
from hwgen.spec.config import MAX_DEPTHS, MachineConfig
from tests.storage.schemas import attribute

AGAIN = """
import dana
n = dana.dim()
w, x, y = dana.model([n]), dana.input([n]), dana.output()
rule = dana.algo(w, x, y)
error = w @ (x - rule.merge(x, {batch}, "mean")) - y
rule.setLoss(error * error)
rule.minimize(dana.optimizers.sgd, batch={batch})
"""
"""Uses a value of the batch in its rows."""

WAYS = [(default.CLUSTERS >> k, 1 << k) for k in range(default.CLUSTERS.bit_length())]
ENOUGH = 1.03
"""A slower division unit, and threads that share little, may cost so much."""
NEARLY = 0.73
"""Of a machine's cycles a tuple what a sketch knows: the rows that operations issue, merges among them."""


@pytest.mark.parametrize(
    ("name", "extents", "most"),
    [
        ("logistic", {"n": 54}, 5),
        ("linear", {"n": 700}, 9),
        ("softmax", {"n": 100, "k": 10}, 5),
        ("mlp", {"n": 64, "h": 32, "k": 10}, 5),
        ("kmeans", {"n": 20, "k": 8}, 5),
        ("lrmf", {"m": 50, "n": 40, "k": 10}, 5),
    ],
)
def test_no_division_is_faster(name: str, extents: dict[str, int], most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """`most` drafts are made to find the one; of `linear` all divisions are within a twentieth of each other."""
    graph = compile_rule(rules.text(name)).hdfg
    plan = plan_of(graph.bind(extents))
    tuples = default._tuples(plan, 10_000, {})
    each = {
        (threads, clusters): default._divide(plan, 10_000, {"threads": threads, "clusters": clusters})
        for threads, clusters in (WAYS if not plan.alone else [(1, clusters) for _, clusters in WAYS])
    }
    least = min(default._cycles_per_tuple(draft, tuples) for draft in each.values())
    made, compiled = [], Draft.compile

    def counted(*arguments: Any, **options: Any) -> Draft:
        made.append(options)
        return compiled(*arguments, **options)

    monkeypatch.setattr(Draft, "compile", counted)
    chosen = default._divide(plan, 10_000, {})
    assert default._cycles_per_tuple(chosen, tuples) <= (1 + default.AS_FAST) * ENOUGH * least
    assert len(made) <= most
    for (threads, clusters), draft in each.items() if not plan.alone else ():
        (sketch,) = default._sketches(plan, [(threads, clusters)], 10_000, {})
        assert NEARLY <= sketch.cycles / default._cycles_per_tuple(draft, tuples) <= 1


@pytest.mark.parametrize("batch", [1, 2, 64, 100, 2048, 16_384])
def test_a_batch_that_is_gone_through_again_is_one_round(batch: int) -> None:
    draft = default._divide(plan_of(compile_rule(AGAIN.format(batch=batch)).hdfg.bind({"n": 20})), 20_000, {})
    assert draft.target.round_tuples >= batch
    assert draft.target.levels == 0


@pytest.mark.parametrize("batch", [40_000, 1_000_000])
def test_a_batch_that_no_machine_holds_is_an_error_with_one_that_fits(batch: int) -> None:
    """And that one does fit."""
    columns = (attribute("x", "real[]", array_length=200), attribute("y", "real"))
    schema = TableSchema(relation="t", attributes=columns)

    def made(batch: int) -> None:
        graph = compile_rule(AGAIN.format(batch=batch)).hdfg
        default.default_config(bind(graph, schema, ["x"], "y"), schema, max_tuples=2_000_000)

    with pytest.raises(DoesNotFit, match=f"^a batch of {batch:,} rows is too large for rule") as error:
        made(batch)
    fits = int(re.findall("batches of up to ([0-9,]+)", error.value.hint)[0].replace(",", ""))
    assert 256 <= fits < batch
    made(fits)


def test_a_machine_too_small_for_a_batch_says_so() -> None:
    plan = plan_of(compile_rule(AGAIN.format(batch=100)).hdfg.bind({"n": 20}))
    with pytest.raises(DoesNotFit, match=r"^128 tuples of rule .* and tuple memory has 64"):
        fit(plan, MachineConfig(tuple_depth=64), max_tuples=1000)
    with pytest.raises(DoesNotFit, match="a batch has to be one round; a machine of 1 thread has rounds of up to 2048"):
        fit(plan_of(compile_rule(AGAIN.format(batch=5000)).hdfg.bind({"n": 2})), MachineConfig(), max_tuples=9000)


@pytest.mark.parametrize(
    ("users", "design", "records"),
    [
        (6_000, {}, 64),
        (6_000, {"record_depth": 8}, 8),
        (6_000, {"record_depth": 0}, 0),
        (6_000, {"clusters": 8}, 0),
        (1_000_000, {}, 64),
        (1_000_000, {"threads": 1, "clusters": 1}, 64),
        (1_000_000, {"threads": 2}, 64),
        (1_000_000, {"record_depth": 0}, 0),
        (20_000_000, {}, None),
    ],
)
def test_models_of_chosen_rows_lie_in_records_unless_the_machine_cannot(
    users: int, design: dict[str, int], records: int | None
) -> None:
    graph = compile_rule(side_by_side.RULE.replace(str(side_by_side.USERS), str(users))).hdfg
    binding = bind(graph, side_by_side.SCHEMA)
    if records is None:
        with pytest.raises(DoesNotFit, match="has 20,000,000 rows, a number can choose one of 16,777,216"):
            default.default_config(binding, side_by_side.SCHEMA, max_tuples=1000, design=design)
        return
    bundle = default.default_bundle(binding, side_by_side.SCHEMA, max_tuples=1000, design=design)
    assert bundle.config.record_depth == records
    assert bool(bundle.tables) == bool(records)
    assert bundle.config.is_hardware == (users < 100_000 or bool(records))


def test_a_wide_tuple_gets_lanes_enough_to_hold_two() -> None:
    """However fast fewer lanes would be: no tuple memory is so deep."""
    plan = plan_of(compile_rule(rules.text("linear")).hdfg.bind({"n": 400_000}))
    draft = default._divide(plan, 10_000, {})
    assert 2 * draft.inputs.rows <= MAX_DEPTHS["tuple_depth"] < 2 * 400_000 // 8
    with pytest.raises(DoesNotFit, match="a tuple of rule 'linear' is more than half the largest tuple memory of 8 l"):
        default._divide(plan, 10_000, {"threads": 1, "clusters": 1})


@pytest.mark.parametrize(
    ("rule", "design", "message"),
    [
        ("linear", {}, r"record_depth must be 0 for rule 'linear': .*; this rule chooses no rows$"),
        ("softmax", {"clusters": 2}, "this rule chooses no rows$"),
        ("bpr", {}, "this rule updates rows otherwise$"),
        ("lrmf", {"clusters": 8}, r"must have clusters=1, 2 or 4, .* at least 4; not clusters=8$"),
        ("lrmf", {"threads": 2, "watch_depth": 2}, r"; not watch_depth=2$"),
        ("lrmf", {"record_depth": 2}, r"; not record_depth=2$"),
    ],
)
def test_records_that_cannot_be_say_why(rule: str, design: dict[str, int], message: str) -> None:
    """Of the rule first, then of the machine; not of its lanes where the rule chooses no rows."""
    graph = compile_rule(rules.text(rule)).hdfg
    columns = {
        "linear": "x float4[8], y float4",
        "softmax": "x float4[8], y float4",
        "lrmf": "i int4, j int4, y float4",
    }
    schema = declared(columns.get(rule, "i int4, j int4"))
    graph = graph.bind({**dict.fromkeys(graph.dims, 8), **dict(graph.extents)})
    with pytest.raises(UsageError) as caught:
        default.default_config(bind(graph, schema), schema, max_tuples=1000, design={"record_depth": 32, **design})
    assert re.search(message, str(caught.value).split("\n")[0])
