"""What a survey fills while the simulator reads an epoch's pages, and the structures of `native/survey.c`.

In: a shape of tuples, and what is wanted of them. Out: arrays, an observer for `dana.simulator` that fills them, and
the header of the C. What is made of the numbers is `survey`'s.
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
"""Tuples whose distances a survey adds up before it moves the mean."""
TALLY_SLOTS = 8192


class Tally(ctypes.Structure):
    """How often values are there (0: the slot is free), and their sum. So many bits of them are dropped that half of
    the slots are enough."""

    _fields_ = (
        ("keys", ctypes.c_uint32 * TALLY_SLOTS),
        ("counts", ctypes.c_double * TALLY_SLOTS),
        ("sums", ctypes.c_double * TALLY_SLOTS),
        *members(ctypes.c_int32, "used dropped"),
    )


class SurveyData(ctypes.Structure):
    """What a survey finds of a tuple's elements, arrays of [rows][lanes]; the caller's memory. One number each: tuples
    without NaN or infinity, sum of the weights and of those before the block, how many are below 0. between: the part
    of the squares that lies between blocks of DANA_SURVEY_BLOCK tuples, one after the other. early, earlier: the mean
    of as many tuples as the largest power of two says, and of half of them. sums, sums_of_squares: of the block that
    has begun, distances from the mean. before: room for both. classes: sums of the weights by the label's class. seen,
    together: of each of kinds classes how many tuples have it, and of the squares of that number in each block the
    sum, each over the block's tuples; in_block: of the block that has begun, whose labels are in labels. first: the
    first tuple's bits; differ: those in which another one's differ. room: for a block of tuples and one more. summed,
    by row: whether sums are wanted; else only the bits. tally: of the label, or NULL. rows, lanes: of a tuple. count:
    of classes to be weighed, kinds: of classes to be counted. weight, label: rows of a tuple that they lie in, or
    -1."""

    _fields_ = (
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
    """A number that is another one where the structures are, or those of the simulator."""
    return int.from_bytes(sha256(f"{headers.digest()} {STRUCTURES}".encode()).digest()[:8], "little")


@cache
def _functions() -> tuple[int | None, ...]:
    """Addresses of what an observer has."""
    library = load("dana.training.data._survey", "dana_survey_contract", digest())
    functions = (library.dana_survey_tuples, library.dana_survey_column, library.dana_survey_end)
    return tuple(ctypes.cast(function, ctypes.c_void_p).value for function in functions)


def header() -> str:
    """The text of `native/survey.h`."""
    return f"""\
/* What dana/training/data/surveyed.py says, in C. Written by python -m dana.generated. */
#ifndef DANA_RUNTIME_SURVEY_H
#define DANA_RUNTIME_SURVEY_H

#include <stdint.h>

/* Of all below, and of the simulator's contract: what was built from another text is not used */
#define DANA_SURVEY_CONTRACT UINT64_C({digest():#x})
#define DANA_SURVEY_BLOCK {SURVEY_BLOCK}
#define DANA_TALLY_SLOTS {TALLY_SLOTS}

{STRUCTURES}
#endif
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surveyed:
    """What a survey finds of a tuple's elements; shapes [rows, lanes], of `tuples`, `weights`, `negative` [].

    Attributes
    ----------
    tuples
        Those without NaN or infinity and of a weight above 0, of which the others tell.
    mean, squares
        Mean, and sum of squared distances from it; a tuple counts as often as its weight says.
    between
        The part of `squares` that lies between blocks of `SURVEY_BLOCK` tuples, one after the other: between their
        means, not within them.
    bad
        How often an element is NaN or infinite.
    early, earlier
        The mean of the first tuples, as many as the largest power of two says, and of half of those.
    weights, negative
        Sum of the weights, and how many are below 0.
    classes
        Sums of the weights by the label's class.
    seen, together
        By the label's class how many tuples have it, and the sum over blocks of the square of how many, divided by the
        block's tuples; empty: nobody wants them.
    first, differ
        The first tuple's bits, and those in which another one's differ from them.
    summed
        Of each row, whether means and squares are wanted; shape [rows].
    weight, label
        Rows of a tuple that they lie in; -1: none, and each weight is 1.
    tally
        How often each value of the label is there, roughly where there are thousands; None: there is no label.
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
        """Of no tuples yet; `summed`: rows (None: all)."""
        numbers = {name: np.zeros(()) for name in ("tuples", "weights", "negative")}
        arrays = {name: np.zeros(shape) for name in ("mean", "squares", "between", "bad", "early", "earlier")}
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
        """Whether an element differs from tuple to tuple, as a number: subnormals are zeros, which have two signs."""
        exponents = np.uint32(0x7F800000)
        zero = self.first & exponents == 0
        return np.where(zero, self.differ & exponents, self.differ) != 0  # type: ignore[no-any-return]

    @property
    def values(self) -> tuple[Doubles, Doubles]:
        """Values of the tally, means of those that are taken together, and how often they are there."""
        assert self.tally is not None
        counts, sums = np.array(self.tally.counts), np.array(self.tally.sums)
        return sums[counts > 0] / counts[counts > 0], counts[counts > 0]


class SurveyObserver:
    """An observer of `dana.simulator`, which adds what it sees to `found`."""

    def __init__(self, found: Surveyed) -> None:
        shape = found.mean.shape
        means = (found.tuples, found.mean, found.squares, found.between, found.bad, found.early, found.earlier)
        sums = np.zeros((4, *shape))  # of a block, and as they were before
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
        """What is filled lasts as long as the observer."""
        self._data = ObserverData(*_functions(), ctypes.addressof(survey))

    @property
    def data(self) -> ObserverData:
        """What the simulator calls."""
        return self._data
