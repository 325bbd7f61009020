"""The survey of rows in several parts, from the surveys of the parts.

Counts and sums are added in the order of the parts, in binary64; means and sums of squares as Chan, Golub and LeVeque
join them (Updating formulae, 1979). What depends on the order of the rows is of each part by itself.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dana.trainer.data.surveyed import TALLY_SLOTS, Surveyed, Tally

Array = np.ndarray

NUMBERS = ("tuples", "weights", "negative")
SUMS = ("bad", "classes", "seen", "together")
BITS = ("first", "differ")
MOMENTS = ("mean", "squares", "between", "early", "earlier")
TALLIED = "tally"
"""Name of the values of the label: their weights and sums."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What one part found.

    Attributes
    ----------
    survey
        Of its rows.
    rows, skipped
        Rows used, and rows with a NULL.
    tally
        Weights and sums of the values of the label, shape [values, 2].
    dropped
        Low bits of the values that the tally ignores.
    """

    survey: Mapping[str, Array]
    rows: int
    skipped: int
    tally: NDArray[np.float64]
    dropped: int

    @classmethod
    def of(cls, survey: Surveyed, rows: int, skipped: int) -> Found:
        """Return what a part found."""
        arrays = {name: getattr(survey, name) for name in (*NUMBERS, *SUMS, *BITS, *MOMENTS)}
        tally, dropped = np.zeros((0, 2)), 0
        if survey.tally is not None:
            counts, sums = np.array(survey.tally.counts), np.array(survey.tally.sums)
            tally, dropped = np.column_stack([counts, sums])[counts != 0], int(survey.tally.dropped)
        return cls(survey=arrays, rows=rows, skipped=skipped, tally=tally, dropped=dropped)

    @property
    def arrays(self) -> dict[str, Array]:
        """All of it, as `read` takes it."""
        counts = np.array([self.rows, self.skipped, self.dropped], np.int64)
        return {**self.survey, "counts": counts, TALLIED: self.tally}

    @classmethod
    def read(cls, arrays: Mapping[str, Array]) -> Found:
        """Return what `arrays` has."""
        rows, skipped, dropped = arrays["counts"].tolist()
        survey = {name: value for name, value in arrays.items() if name not in ("counts", TALLIED)}
        return cls(survey=survey, rows=rows, skipped=skipped, tally=arrays[TALLIED], dropped=dropped)


def combined(empty: Surveyed, parts: Sequence[Found]) -> Surveyed:
    """Return the survey of all parts, in the memory of `empty`, that of no rows."""
    total = {name: np.zeros_like(getattr(empty, name)) for name in (*NUMBERS, *SUMS, *BITS, *MOMENTS)}
    for part in parts:
        one = part.survey
        for name in SUMS:
            total[name] = total[name] + one[name]
        total["negative"] = total["negative"] + one["negative"]
        if not one["tuples"]:
            continue
        if total["tuples"]:
            total["differ"] = total["differ"] | one["differ"] | (total["first"] ^ one["first"])
            weights = total["weights"] + one["weights"]
            away = one["mean"] - total["mean"]
            total["squares"] = (
                total["squares"] + one["squares"] + away * away * (total["weights"] * one["weights"] / weights)
            )
            total["mean"] = total["mean"] + away * (one["weights"] / weights)
            total["between"] = total["between"] + one["between"]
        else:
            total |= {name: one[name] for name in (*BITS, *MOMENTS)}
        total["tuples"] = total["tuples"] + one["tuples"]
        total["weights"] = total["weights"] + one["weights"]
    if empty.tally is not None:
        _fill(empty.tally, parts)
    for name, value in total.items():
        getattr(empty, name)[...] = value
    return empty


def _fill(tally: Tally, parts: Sequence[Found]) -> None:
    """Set a tally to the values of all parts; values that differ in bits that are dropped are one."""
    dropped = max(part.dropped for part in parts)
    entries = np.concatenate([part.tally for part in parts])
    while True:
        bits = (entries[:, 1] / entries[:, 0]).astype(np.float32).view(np.uint32) >> np.uint32(dropped)
        keys, places = np.unique(bits, return_inverse=True)
        if len(keys) <= TALLY_SLOTS // 2:
            break
        dropped += 1
    counts, sums = (np.bincount(places, weights=entries[:, k], minlength=len(keys)) for k in (0, 1))
    ctypes.memset(ctypes.addressof(tally), 0, ctypes.sizeof(tally))
    tally.keys[: len(keys)] = (keys << np.uint32(dropped)).tolist()
    tally.counts[: len(keys)], tally.sums[: len(keys)] = counts.tolist(), sums.tolist()
    tally.used, tally.dropped = len(keys), dropped
