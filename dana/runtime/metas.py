"""Hyperparameters of a run: the rule's metas, changed as the caller asks."""

from __future__ import annotations

import math
from collections.abc import Mapping

from dana.runtime.trainer import Json, TrainingError


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
            known = ", ".join(sorted({*defaults, *(extents or {})})) or "none"
            raise TrainingError(f"the rule has no hyperparameter {name!r}; it has: {known}")
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise TrainingError(f"hyperparameter {name!r} must be a finite number, not {value!r}")
        values[name] = float(value)
    return values
