"""Hyperparameters of a run: the metas of the rule, overridden by the caller."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping

from dana.trainer.contract import Json, SqlState, TrainingError
from dsl import Rule
from dsl.binary32 import round32
from dsl.diagnostics import did_you_mean
from dsl.render import render

SHOWN = 60
"""Maximum length of a value in a message, characters."""


def meta_values(
    defaults: Mapping[str, float], hyper: Json, extents: Mapping[str, int] | None = None
) -> dict[str, float]:
    """Return the value of every meta; names in `extents` are dims, which `hyper` may also set.

    Raises
    ------
    TrainingError
        `hyper` contains an unknown name or a value that is not a finite number.
    """
    values = dict(defaults)
    for name, value in hyper.items():
        if name in (extents or {}):
            continue
        if name not in defaults:
            known = sorted({*defaults, *(extents or {})})
            raise TrainingError(
                f"the rule has no hyperparameter {name!r}; it has: {', '.join(known) or 'none'}",
                # diagnostics continue a sentence; a hint of PostgreSQL is one
                hint=did_you_mean(name, known).replace("did", "Did", 1),
            )
        if not _is_finite(value):
            raise TrainingError(f"hyperparameter {name!r} must be a finite number, not {_shortened(value)}")
        if math.isinf(round32(value)):
            raise TrainingError(
                f"hyperparameter {name!r} is {float(value):g}, which is infinite in binary32",
                hint="A hyperparameter is a number from -3.40e+38 to 3.40e+38.",
            )
        values[name] = float(value)
    return values


def check_requirements(rule: Rule, named: Mapping[str, float], given_by: str = "hyper") -> None:
    """Raise TrainingError if metas or a label violate a `dana.require` of the rule.

    `given_by` names the origin of the values in the message; the detail shows the place in the text of the rule.
    """
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
    except OverflowError:  # JSON integers can exceed the range of binary64
        return False


def _shortened(value: object) -> str:
    """Return a value in JSON, as the caller gave it, truncated for a message."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"
