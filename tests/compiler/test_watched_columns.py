"""Which rules have tuples that may run side by side, and what of such a Bundle no machine takes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from benchmarks.speed.side_by_side import ITEMS, LOSS, RULE, SCHEMA, USERS
from dana.codesign.default import default_bundle
from dana.compiler import bind
from dana.compiler.passes import plan_of
from dsl import compile_rule
from hwgen.spec import legal
from hwgen.spec.bundle import Bundle, BundleError


def watched(source: str) -> list[tuple[str, int, bool]]:
    graph = bind(compile_rule(source).hdfg, SCHEMA).graph
    return [(one.input, one.table, one.writes) for one in plan_of(graph).watched]


def test_columns_that_choose_rows_are_watched() -> None:
    assert watched(RULE + LOSS) == [("i", 1, True), ("j", 2, True)]
    assert watched(RULE.replace("factors.setModel(V[j]", "factors.setModel(V[i]")) == [
        ("i", 1, True),
        ("i", 2, True),
        ("j", 2, False),
    ]


def test_models_whose_rows_are_chosen_together_are_watched_once() -> None:
    second = RULE.replace("V[j]", "V[i]")
    assert watched(second) == [("i", 1, True), ("i", 2, True)]  # of as many rows they would be one
    second = second.replace(f"[{ITEMS}, 10]", f"[{USERS}, 10]")
    assert watched(second) == [("i", 1, True)]
    read_elsewhere = second.replace("* V[i], 1)", "* V[j], 1)")
    assert watched(read_elsewhere) == [("i", 1, True), ("i", 2, True), ("j", 2, False)]


def test_of_what_updates_nothing_columns_are_watched_whose_models_are_read_by_rows() -> None:
    def judging(source: str) -> list[tuple[str, int, bool]]:
        graph = bind(compile_rule(source).hdfg, SCHEMA).graph.judging
        return [(one.input, one.table, one.writes) for one in plan_of(graph).watched]

    assert judging(RULE + LOSS) == [("i", 1, False), ("j", 2, False)]
    whole = "dana.sigma(U[i] * V[j], 1) - y + dana.sigma(V[0], 1)"
    assert judging(RULE.replace("dana.sigma(U[i] * V[j], 1) - y", whole) + LOSS) == [("i", 1, False)]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("factors.setModel(V[j], V[j]", "factors.setModel(V, V"),
        ("factors.setModel(V[j]", "factors.setModel(V[dana.min(j, 5)]"),
        ("factors.setModel(V[j]", "factors.setModel(V[3]"),
        ("dana.sigma(U[i] * V[j], 1) - y", "dana.sigma(U[i] * V[j], 1) - y + dana.sigma(V[0], 1)"),
        ("error = ", "factors.setConvergence(dana.sigma(dana.sigma(U, 1), 1) < 1)\nerror = "),
    ],
)
def test_what_all_tuples_share_keeps_them_apart(old: str, new: str) -> None:
    assert old in RULE
    assert watched(RULE.replace(old, new)) == []


def _refused() -> list[tuple[dict[str, Any], str]]:
    return [
        ({"batch": 32}, "must be one round of 16, not 32"),
        ({"watch_depth": 8}, "must be at most 8 for this machine, but may be 32"),
        ({"watch_depth": 0}, "need a machine with watch_depth"),
        ({"first": 1}, "must have one element and be no part of a tuple"),
    ]


@pytest.mark.parametrize(("change", "message"), _refused())
def test_a_bundle_that_no_machine_cuts_is_refused(change: dict[str, Any], message: str) -> None:
    bundle: Bundle = default_bundle(
        bind(compile_rule(RULE + LOSS).hdfg, SCHEMA), SCHEMA, max_tuples=100, design={"record_depth": 0}
    )
    legal.check(bundle)
    if "batch" in change:
        bundle = replace(bundle, **change)
    elif "first" in change:
        columns = tuple(replace(column, **change) if column.table else column for column in bundle.columns)
        bundle = replace(bundle, columns=columns)
    else:
        bundle = replace(bundle, config=replace(bundle.config, **change))
    with pytest.raises(BundleError, match=message):
        legal.check(bundle)
