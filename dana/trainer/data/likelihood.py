"""One pass over the rows of a training for the likelihood of its model, in binary64 (`native/likelihood.c`).

A machine's models are binary32, and its sums are, too: enough for predictions, not for standard errors of columns that
nearly depend on each other. So the gradient and the curvature at the optimum are summed on the host, while a simulator
reads the pages without training.
"""

from __future__ import annotations

import ctypes
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cache
from hashlib import sha256

import numpy as np
from numpy.typing import NDArray

from dana.simulator import headers
from dana.simulator.native import load
from dana.simulator.structures import ObserverData, members, pointers
from dana.trainer.contract import TupleLayout
from hwgen.spec.bundle import Fill

Doubles = NDArray[np.float64]
Floats = NDArray[np.float32]

BLOCK = 64
"""Rows that are added to the curvature together."""


class Family(IntEnum):
    """What a pass computes: the likelihood of a distribution, misplaced labels of classes, movements of scores, a
    sample of the rows, or the bounds of columns for each label."""

    NORMAL = 0
    BINOMIAL = 1
    POISSON = 2
    CLASSES = 3
    MOVES = 4
    SAMPLE = 5
    MULTINOMIAL = 6
    BOUNDS = 7


class Sum(IntEnum):
    """Sums over the rows. loss: squared errors, or minus the log likelihood. labels, squares: of the label's distances
    from `middle`. misplaced: rows with a score on the wrong side. logarithms: of y log(y). gammas: of log(y!)."""

    ROWS = 0
    WEIGHT = 1
    LABELS = 2
    SQUARES = 3
    LOSS = 4
    MISPLACED = 5
    LOGARITHMS = 6
    GAMMAS = 7


class LikelihoodData(ctypes.Structure):
    """The state of a pass; size is features + 1, for the intercept. matrix: [size][size], lower triangle of the
    curvature; of a sample [directions][size], its rows; of bounds [directions][2][size]. gradient: [size]. Of classes,
    size in both is that times directions - 1. curvature: [DANA_LIKELIHOOD_BLOCK], or [directions]. weights:
    [directions][size]. moved: largest magnitude of an element, [size], or of a direction's score, [directions].
    squares: [directions]. block: [DANA_LIKELIHOOD_BLOCK][size]. room: a tuple of `elements` numbers. places:
    [features], elements of a tuple; consecutive: each
    is the next of the one before. weight, label: elements, or -1."""

    _fields_ = (
        *pointers("double", "matrix gradient moved squares sums block curvature"),
        *pointers("const double", "weights centre scale"),
        *pointers("const int64_t", "places"),
        *pointers("float", "room"),
        *pointers("int64_t", "filled"),
        *members(ctypes.c_double, "middle"),
        *members(ctypes.c_int64, "features directions elements lanes weight label family seed consecutive"),
    )


NAMED = "\n".join(f"#define DANA_{one.name} {one.value}" for kind in (Family, Sum) for one in kind)
STRUCTURE = headers.struct("dana_likelihood", LikelihoodData)


@cache
def digest() -> int:
    """Return a hash of this structure and those of the simulator."""
    return int.from_bytes(sha256(f"{headers.digest()} {NAMED} {STRUCTURE}".encode()).digest()[:8], "little")


def header() -> str:
    """Return the text of `native/likelihood.h`."""
    return f"""\
/* Declarations of dana/trainer/data/likelihood.py. Written by python -m dana.generated. */
#ifndef DANA_TRAINING_LIKELIHOOD_H
#define DANA_TRAINING_LIKELIHOOD_H

#include <stdint.h>

/* Hash of this text and of the contract of the simulator; a library with another value is rejected */
#define DANA_LIKELIHOOD_CONTRACT UINT64_C({digest():#x})
#define DANA_LIKELIHOOD_BLOCK {BLOCK}
{NAMED}

{STRUCTURE}
#endif
"""


@cache
def _library() -> ctypes.CDLL:
    library = load("dana.trainer.data._likelihood", "dana_likelihood_contract", digest())
    library.dana_likelihood_rows.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
    library.dana_likelihood_rows.restype = None
    library.dana_likelihood_end.argtypes = (ctypes.c_void_p,)
    library.dana_likelihood_end.restype = None
    return library


def tuple_layout(
    places: Mapping[str, NDArray[np.int64]],
    fills: Sequence[Fill],
    *,
    features: Collection[str],
    labels: Sequence[str],
    weight: str | None,
    lanes: int,
    elements: int,
) -> TupleLayout:
    """Return the layout of a training's tuples.

    Parameters
    ----------
    places
        Elements of each input, in its shape.
    """

    def elements_of(one: Fill) -> NDArray[np.int64]:
        return places[one.input].reshape(-1)[one.element : one.element + one.count]

    found = {one.column: elements_of(one) for one in fills}
    single = len(labels) == 1 and found[labels[0]].size == 1
    used = [elements_of(one) for one in fills if one.column in features]
    return TupleLayout(
        lanes=lanes,
        elements=elements,
        features=np.concatenate(used or [np.zeros(0, np.int64)]),
        inputs=places,
        label=int(found[labels[0]][0]) if single else -1,
        weight=-1 if weight is None else int(found[weight][0]),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Basis:
    """Columns as the model sees them: (x - centre) * scale, shape [features]."""

    centre: Doubles
    scale: Doubles


@dataclass(slots=True, kw_only=True)
class LikelihoodObserver:
    """An observer of `dana.simulator` that computes sums over a pass.

    Attributes
    ----------
    weights
        Intercept and weights of the basis, shape [directions, features + 1].
    middle
        A number near the labels, from which their distances are summed.
    rows, seed
        Maximum number of rows of a sample, and what chooses them.
    matrix, gradient
        Curvature (lower triangle) and gradient of the loss; of squared errors, half of them. Of a sample, the rows. Of
        classes, those of the weights of all but the first. Of bounds, for each label (the last one for all above) the
        largest values and minus the smallest ones.
    moved, squares
        Largest magnitude of each element, or of each direction's score, and the sum of its squares.
    sums
        By `Sum`.
    """

    family: Family
    layout: TupleLayout
    basis: Basis
    weights: Doubles
    middle: float = 0.0
    rows: int = 0
    seed: int = 0
    matrix: Doubles = field(init=False)
    gradient: Doubles = field(init=False)
    moved: Doubles = field(init=False)
    squares: Doubles = field(init=False)
    sums: Doubles = field(init=False)
    _kept: object = field(init=False)
    _state: LikelihoodData = field(init=False)

    def __post_init__(self) -> None:
        layout, size = self.layout, len(self.layout.features) + 1
        self.weights = np.ascontiguousarray(self.weights, np.float64).reshape(-1, size)
        directions = self.rows or len(self.weights)
        whole = size * (directions - 1) if self.family is Family.MULTINOMIAL else size
        curved = self.family in (Family.NORMAL, Family.BINOMIAL, Family.POISSON, Family.MULTINOMIAL)
        self.matrix = np.zeros((whole, whole) if curved else (self.rows, size))
        if self.family is Family.BOUNDS:
            self.matrix = np.full((2 * directions, size), -np.inf)
        self.gradient = np.zeros(whole)
        self.moved, self.squares = np.zeros(max(size, directions)), np.zeros(directions)
        self.sums = np.zeros(len(Sum))
        block, curvature = np.zeros((BLOCK, size)), np.zeros(max(BLOCK, directions))
        room, filled = np.zeros(layout.elements, np.float32), np.zeros((), np.int64)
        places = np.ascontiguousarray(layout.features, np.int64)
        centre, scale = (np.ascontiguousarray(one, np.float64) for one in (self.basis.centre, self.basis.scale))
        results = (self.matrix, self.gradient, self.moved, self.squares, self.sums)
        arrays = (*results, block, curvature, self.weights, centre, scale, places, room, filled)
        tuples = (layout.elements, layout.lanes, layout.weight, layout.label)
        consecutive = size > 1 and bool((np.diff(places) == 1).all())
        numbers = (size - 1, directions, *tuples, self.family, self.seed, consecutive)
        self._state = LikelihoodData(*(one.ctypes.data for one in arrays), self.middle, *numbers)
        self._kept = arrays

    @property
    def data(self) -> ObserverData:
        """Functions and context for the simulator."""
        library = _library()
        functions = (library.dana_likelihood_tuples, library.dana_likelihood_column, library.dana_likelihood_end)
        addresses = (ctypes.cast(function, ctypes.c_void_p).value for function in functions)
        return ObserverData(*addresses, ctypes.addressof(self._state))

    def add(self, tuples: Floats) -> None:
        """Add rows, shape [rows, elements], and end the pass."""
        rows = np.ascontiguousarray(tuples, np.float32)
        _library().dana_likelihood_rows(ctypes.addressof(self._state), rows.ctypes.data, len(rows))
        _library().dana_likelihood_end(ctypes.addressof(self._state))
