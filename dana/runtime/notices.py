"""What a user should know of a training that did not fail."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dana.runtime.trainer import Level, Notice, Notify, Parameter


def warn_of_non_finite(parameters: Sequence[Parameter], notify: Notify) -> None:
    """Warn if a model holds NaN or infinity: it will predict nothing of use."""
    for parameter in parameters:
        bad = int(np.count_nonzero(~np.isfinite(parameter.values)))
        if bad:
            notify(
                Notice(
                    level=Level.WARNING,
                    message=f"{bad} of {parameter.values.size} elements of model {parameter.name} are NaN or infinite",
                    hint="The data hold NaN, infinity or very large values, or the learning rate is too high.",
                )
            )
