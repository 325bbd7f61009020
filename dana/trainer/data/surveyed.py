"""The arrays that a survey fills while the simulator reads pages, and the structures of `native/survey.c`.

`SurveyObserver` connects them to the simulator; `header` generates the C header. `dana.trainer.data.survey` evaluates
the numbers.
"""

from __future__ import annotations

import ctypes
from collections.abc import Container
from dataclasses import dataclass
from functools import cache
from hashlib import sha256

import numpy as np
from numpy.typing import NDArray

from dana.simulator import headers
from dana.simulator.native import load
from dana.simulator.structures import ObserverData, members, pointers

Doubles = NDArray[np.float64]
Words = NDArray[np.uint32]

SURVEY_BLOCK = 64
"""Tuples in a block; the mean is updated at the end of a block."""
TALLY_SLOTS = 8192


class Tally(ctypes.Structure):
    """A hash table of values: their weights (0: the slot is free) and sums. Low bits of the values are dropped as
    needed to use at most half of the slots."""

    _fields_ = (
        ("keys", ctypes.c_uint32 * TALLY_SLOTS),
        ("counts", ctypes.c_double * TALLY_SLOTS),
        ("sums", ctypes.c_double * TALLY_SLOTS),
        *members(ctypes.c_int32, "used dropped"),
    )


class SurveyData(ctypes.Structure):
    """The state of a survey; arrays are [rows][lanes] in memory of the caller. tuples: number of finite tuples.
    weights, weights_before: sum of the weights, and without the current block; negative: number of negative weights.
    mean, squares: weighted mean and sum of squared distances; between: the part of squares between consecutive blocks
    of DANA_SURVEY_BLOCK tuples. bad: number of NaN and infinite values. early, earlier: mean of the first tuples, as
    many as the largest power of two, and of half as many. sums, sums_of_squares: distances from the mean in the current
    block; before: a copy of both. classes: sum of the weights by class. seen, together, [kinds]: tuples of each class,
    and sum over blocks of the squared number divided by the size of the block; in_block: tuples of each class in the
    current block, with their labels in labels. first: bits of the first tuple; differ: bits that differ in another
    tuple. room: a block of tuples and one more. summed, [rows]: whether sums are computed. tally: values of the label,
    or NULL. count: number of classes to weigh. weight, label: their rows in a tuple, or -1."""

    _fields_ = (
        # the order is that of the addresses in `SurveyObserver`; C and ctypes cannot check it
        *pointers("double", "tuples mean squares between bad early earlier sums sums_of_squares before"),
        *pointers("double", "weights weights_before negative classes seen together in_block"),
        *pointers("uint32_t", "first differ"),
        *pointers("float", "room labels"),
        *pointers("const uint8_t", "summed"),
        *pointers("struct dana_tally", "tally"),
        *members(ctypes.c_int64, "rows lanes count kinds weight label"),
    )


STRUCTURES = "\n".join((headers.struct("dana_tally", Tally), headers.struct("dana_survey", SurveyData)))


@cache
def digest() -> int:
    """Return a hash of these structures and those of the simulator."""
    return int.from_bytes(sha256(f"{headers.digest()} {STRUCTURES}".encode()).digest()[:8], "little")


@cache
def _functions() -> tuple[int | None, ...]:
    """Return the addresses of the functions of the observer."""
    library = load("dana.trainer.data._survey", "dana_survey_contract", digest())
    functions = (library.dana_survey_tuples, library.dana_survey_column, library.dana_survey_end)
    return tuple(ctypes.cast(function, ctypes.c_void_p).value for function in functions)


def header() -> str:
    """Return the text of `native/survey.h`."""
    return f"""\
/* Declarations of dana/trainer/data/surveyed.py. Written by python -m dana.generated. */
#ifndef DANA_TRAINING_SURVEY_H
#define DANA_TRAINING_SURVEY_H

#include <stdint.h>

/* Hash of this text and of the contract of the simulator; a library with another value is rejected */
#define DANA_SURVEY_CONTRACT UINT64_C({digest():#x})
#define DANA_SURVEY_BLOCK {SURVEY_BLOCK}
#define DANA_TALLY_SLOTS {TALLY_SLOTS}

{STRUCTURES}
#endif
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surveyed:
    """Results of a survey; shapes [rows, lanes], and [] for `tuples`, `weights` and `negative`.

    Attributes
    ----------
    tuples
        Number of finite tuples with a weight above 0, which are the basis of the other results.
    mean, squares
        Weighted mean, and weighted sum of squared distances from it.
    between
        Part of `squares` between the means of consecutive blocks of `SURVEY_BLOCK` tuples.
    bad
        Number of NaN and infinite values of an element.
    early, earlier
        Mean of the first tuples, as many as the largest power of two, and of half as many.
    weights, negative
        Sum of the weights, and number of negative weights.
    classes
        Sum of the weights of each class.
    seen, together
        Number of tuples of each class, and the sum over blocks of its square divided by the size of the block; empty
        if not requested.
    first, differ
        Bits of the first tuple, and bits that differ in another tuple.
    summed
        Whether means and squares of a row are computed; shape [rows].
    weight, label
        Their rows in a tuple; -1: there is no label, or each weight is 1.
    tally
        Counts of the values of the label, approximate for thousands of values; None without a label.
    """

    tuples: Doubles
    mean: Doubles
    squares: Doubles
    between: Doubles
    bad: Doubles
    early: Doubles
    earlier: Doubles
    weights: Doubles
    negative: Doubles
    classes: Doubles
    seen: Doubles
    together: Doubles
    first: Words
    differ: Words
    summed: NDArray[np.uint8]
    weight: int
    label: int
    tally: Tally | None = None

    @classmethod
    def nothing(
        cls,
        shape: tuple[int, int],
        *,
        weight: int = -1,
        label: int = -1,
        classes: int = 0,
        kinds: int = 0,
        summed: Container[int] | None = None,
    ) -> Surveyed:
        """Return the results for no tuples; `summed` are rows, None: all."""
        numbers = {name: np.zeros(()) for name in ("tuples", "weights", "negative")}
        arrays = {name: np.zeros(shape) for name in ("mean", "squares", "between", "bad", "early", "earlier")}
        # 164 kB, which a training without a label does not need
        tally = Tally() if label >= 0 else None
        return cls(
            **numbers,
            **arrays,
            classes=np.zeros(classes),
            seen=np.zeros(kinds),
            together=np.zeros(kinds),
            first=np.zeros(shape, np.uint32),
            differ=np.zeros(shape, np.uint32),
            summed=np.array([summed is None or row in summed for row in range(shape[0])], np.uint8),
            weight=weight,
            label=label,
            tally=tally,
        )

    @property
    def varies(self) -> NDArray[np.bool_]:
        """Whether an element differs between tuples as a number: subnormals count as 0, and -0 equals 0."""
        exponents = np.uint32(0x7F800000)
        # the machine flushes subnormals to zero, so their bits do not make a difference
        zero = self.first & exponents == 0
        return np.where(zero, self.differ & exponents, self.differ) != 0  # type: ignore[no-any-return]

    @property
    def values(self) -> tuple[Doubles, Doubles]:
        """Values of the tally and the sums of their weights; values in one slot are averaged."""
        assert self.tally is not None
        counts, sums = np.array(self.tally.counts), np.array(self.tally.sums)
        return sums[counts > 0] / counts[counts > 0], counts[counts > 0]


class SurveyObserver:
    """An observer of `dana.simulator` that adds the tuples of an epoch to `found`."""

    def __init__(self, found: Surveyed) -> None:
        shape = found.mean.shape
        means = (found.tuples, found.mean, found.squares, found.between, found.bad, found.early, found.earlier)
        sums = np.zeros((4, *shape))  # of the current block, and a copy
        room = np.zeros((SURVEY_BLOCK + 1, *shape), np.float32)
        labels = np.zeros(SURVEY_BLOCK, np.float32)
        before, in_block = np.zeros(()), np.zeros(found.seen.size)
        doubles = (*means, sums[0], sums[1], sums[2:], found.weights, before, found.negative, found.classes)
        counts = (found.seen, found.together, in_block)
        arrays = (*doubles, *counts, found.first, found.differ, room, labels, found.summed)
        tally = None if found.tally is None else ctypes.addressof(found.tally)
        places = (tally, *shape, found.classes.size, found.seen.size, found.weight, found.label)
        survey = SurveyData(*(array.ctypes.data for array in arrays), *places)
        self._kept = found, sums, before, in_block, room, labels, survey
        """Keeps the memory that the native code writes to alive."""
        self._data = ObserverData(*_functions(), ctypes.addressof(survey))

    @property
    def data(self) -> ObserverData:
        """Functions and context for the simulator."""
        return self._data
