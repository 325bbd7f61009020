"""Estimates of a division of units, before anything is scheduled.

In: a plan and a target. Out: a `Sketch` with lower bounds for every schedule.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from dana.compiler.fit import batch_rows
from dana.compiler.passes import Placed, place
from dana.compiler.place.rows import row_shape
from dana.compiler.place.sections import Plan
from dana.compiler.rounds import in_rounds
from dana.compiler.target import Target


@dataclass(frozen=True, slots=True)
class Sketch:
    """A target, before anything is scheduled.

    Attributes
    ----------
    placed
        What `place` made for it.
    cycles
        Cycles of a tuple at the least, about.
    rows
        Rows of scratchpad that it takes at the least.
    """

    target: Target
    placed: Placed
    cycles: float
    rows: int


def sketched(plan: Plan, target: Target, max_tuples: int) -> Sketch:
    """Sketch a target; its group is of as many tuples as a round may have."""
    tuples = max(plan.batch_tuples(max_tuples), target.together)
    target = in_rounds(plan, target, target.group, max_tuples=max_tuples)
    placed = place(plan, target)
    plan, forms = placed.plan, placed.forms
    cycles = batch_rows(placed, -(-tuples // target.round_tuples)) - placed.shards.saved
    # the largest value that each tuple has, which lies somewhere for all of them
    # a view shares the rows of its root
    own = [k for k in forms.plan.section if k in forms.plan.per_tuple and forms.plan.root(k) == k]
    shapes = (row_shape(plan.graph.concrete_shape(k), forms.of[k], target.lanes) for k in own)
    rows = target.group * max(map(prod, shapes), default=0) if target.group > 1 else 0
    return Sketch(target, placed, cycles / tuples, rows)
