"""The machine that a rule gets where nobody says which: none of 64 units is faster, and few are compiled to know it."""

from __future__ import annotations

from typing import Any

import pytest

from dana import rules
from dana.codesign import default
from dana.compiler.passes import Draft, plan_of
from dsl import compile_rule

WAYS = [(default.CLUSTERS >> k, 1 << k) for k in range(default.CLUSTERS.bit_length())]
ENOUGH = 1.03
"""A slower division unit, and threads that share little, may cost so much."""


@pytest.mark.parametrize(
    ("name", "extents", "most"),
    [
        ("logistic", {"n": 54}, 5),
        ("linear", {"n": 700}, 8),
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
    tuples = plan.batch_tuples(10_000)
    each = {
        (threads, clusters): default._divide(plan, 10_000, {"threads": threads, "clusters": clusters})
        for threads, clusters in (WAYS if not plan.alone else [(1, clusters) for _, clusters in WAYS])
    }
    least = min(default._cycles_per_tuple(draft, tuples) for draft in each.values())
    made, of = [], Draft.of

    def counted(*arguments: Any, **options: Any) -> Draft:
        made.append(options)
        return of(*arguments, **options)

    monkeypatch.setattr(Draft, "of", counted)
    chosen = default._divide(plan, 10_000, {})
    assert default._cycles_per_tuple(chosen, tuples) <= (1 + default.AS_FAST) * ENOUGH * least
    assert len(made) <= most
