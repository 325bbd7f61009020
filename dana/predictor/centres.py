"""Centres of columns: what is subtracted from a value in binary64, before it becomes a binary32.

They are a member of a model's metadata. ``pg_extension/src/values/values.c`` subtracts them from the rows of a training
and of ``dana_predict``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

EXACT = 2.0**24
"""Largest number up to which all integers are exact in binary32."""

ROUNDED = 1e-4
"""Rounding error relative to the deviation of a column from which it is centred: it moves a coefficient by less than a
ten-thousandth of its standard error."""


NARROW_EXACT, NARROW_ROUNDED = 2.0**8, 0.02
"""The same for bfloat16: an error in a feature that makes its coefficient smaller by less than a thousandth."""


def is_coarse(mean: NDArray[np.float64], deviation: NDArray[np.float64], *, narrow: bool = False) -> NDArray[np.bool_]:
    """Return whether binary32, or bfloat16 with `narrow`, rounds columns by more than `ROUNDED` of their deviation."""
    exact, rounded = (NARROW_EXACT, NARROW_ROUNDED) if narrow else (EXACT, ROUNDED)
    return np.asarray(np.abs(mean) / exact > rounded * deviation)


@dataclass(frozen=True, slots=True, kw_only=True)
class Centres:
    """The centres of a training.

    Attributes
    ----------
    features
        Of each number of the features, in the order of the prediction's inputs; empty: all are 0.
    label
        Of the label: a prediction is what the model computes plus this.
    """

    features: tuple[float, ...] = ()
    label: float = 0.0

    @property
    def metadata(self) -> dict[str, Any]:
        """The member of a model's metadata, if there is anything to subtract."""
        return {"centres": asdict(self)} if self.label or self.features else {}

    def of_features(self, count: int) -> NDArray[np.float64]:
        """Return the centres of `count` features."""
        return np.array(self.features) if self.features else np.zeros(count)

    def predicted(self, values: NDArray[np.float32]) -> NDArray[np.float32] | NDArray[np.float64]:
        """Return predictions in the label's unit, in binary64 if it has a centre."""
        return values.astype(np.float64) + self.label if self.label else values


NO_CENTRES = Centres()


def centres_of(metadata: Mapping[str, Any]) -> Centres:
    """Read the centres of a model's metadata."""
    made = metadata.get("centres")
    return NO_CENTRES if made is None else Centres(features=tuple(map(float, made["features"])), label=made["label"])


def centred(values: NDArray[Any], centre: NDArray[np.float64] | float) -> NDArray[Any]:
    """Return values less their centre, rounded once to binary32; without a centre the values."""
    return (np.asarray(values).astype(np.float64) - centre).astype(np.float32) if np.any(centre) else values
