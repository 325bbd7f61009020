"""Hyperparameters of a run: the rule's metas, changed as the caller asks."""

from __future__ import annotations

import math
from collections.abc import Mapping

from dana.training.contract import Json, SqlState, TrainingError
from dsl import Rule
from dsl.diagnostics import did_you_mean
from dsl.render import render

SHOWN = 60
"""Characters of a value that a message shows."""


def meta_values(
    defaults: Mapping[str, float], hyper: Json, extents: Mapping[str, int] | None = None
) -> dict[str, float]:
    """The value of every meta of a run; `extents` are dims, which `hyper` may name as well.

    Raises
    ------
    TrainingError
        The caller names a meta that the rule does not have, or gives no number.
    """
    values = dict(defaults)
    for name, value in hyper.items():
        if name in (extents or {}):
            continue
        if name not in defaults:
            known = sorted({*defaults, *(extents or {})})
            raise TrainingError(
                f"the rule has no hyperparameter {name!r}; it has: {', '.join(known) or 'none'}",
                hint=did_you_mean(name, known).replace("did", "Did", 1),
            )
        if not _is_finite(value):
            raise TrainingError(f"hyperparameter {name!r} must be a finite number, not {_shortened(value)}")
        values[name] = float(value)
    return values


def refuse_unmet(rule: Rule, named: Mapping[str, float], given_by: str = "hyper") -> None:
    """Raise TrainingError where metas, or a label, break what a rule asks for by `dana.require`, with the place in its
    text; `given_by` has them so."""
    for one in rule.unmet(named):
        by_hyper = given_by == "hyper"
        raise TrainingError(
            f"{one.title}, but {given_by} makes it {one.found}",
            sqlstate=SqlState.INVALID_PARAMETER if by_hyper else SqlState.DATA_EXCEPTION,
            detail=render((one,), rule.source),
            hint="Choose another value." if by_hyper else "Leave such rows out, as in a query, or change them.",
        )


def _is_finite(value: object) -> bool:
    try:
        return not isinstance(value, bool) and isinstance(value, int | float) and math.isfinite(value)
    except OverflowError:  # a whole number beyond binary64; JSON has those
        return False


def _shortened(value: object) -> str:
    """A value of the caller's as a message shows it, however long it is."""
    text = repr(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"
