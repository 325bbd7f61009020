"""The peer in C: `native/passes.c`, compiled for this processor by the user's compiler, over the table's pages.

In: a case. Out: a `Learner`. The pages are those that PostgreSQL has, made here of the same rows, in this process's
memory; columns are standardised as they are read, by means and deviations that were computed before.
"""

from __future__ import annotations

import ctypes
import math
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.peers.cases import CENTRES, Case
from benchmarks.peers.factors import standardised
from benchmarks.peers.learners import Floats, Learner, first_factors, first_layers, nearest
from benchmarks.peers.peer import NotHere
from dana.errors import UsageError
from dana.storage.columns import column_pages
from dana.storage.frames import ARRAY_HEADER

SOURCE = Path(__file__).parent / "native" / "passes.c"
COMPILERS = ("cc", "gcc", "clang")
FLAGS = ("-O3", "-march=native", "-ffast-math")
KINDS = {"linear": 0, "logistic": 1, "linear_svm": 2}
CLASSES = 10
REAL = 4


class _Table(ctypes.Structure):
    _fields_ = [
        ("pages", ctypes.c_void_p),
        ("n_pages", ctypes.c_uint64),
        ("page_size", ctypes.c_uint64),
        ("x", ctypes.c_uint64),
        ("y", ctypes.c_uint64),
        ("n", ctypes.c_uint64),
        ("mean", ctypes.c_void_p),
        ("inverse", ctypes.c_void_p),
    ]


@cache
def compiler() -> str:
    """The user's C compiler, $CC first.

    Raises
    ------
    NotHere
        There is none.
    """
    for name in (os.environ.get("CC", ""), *COMPILERS):
        found = shutil.which(name) if name else None
        if found is not None:
            return found
    raise NotHere("there is no C compiler: cc, gcc, clang, or what $CC names")


@cache
def _library(command: str) -> ctypes.CDLL:
    with tempfile.TemporaryDirectory(prefix="dana-peers-") as folder:
        unlinked, made = str(Path(folder) / "passes.o"), str(Path(folder) / "passes.so")
        # linked with -ffast-math, a library would flush subnormals in the whole process as soon as it is loaded
        for asked in ([*FLAGS, "-fPIC", "-c", "-o", unlinked, str(SOURCE)], ["-shared", "-o", made, unlinked, "-lm"]):
            done = subprocess.run([command, *asked], capture_output=True, text=True, check=False)
            if done.returncode:
                raise NotHere(f"{command} {' '.join(FLAGS)} failed: {(done.stderr.strip().splitlines() or ['?'])[0]}")
        return ctypes.CDLL(made)


def how_compiled() -> str:
    """The compiler with its version, what it is asked for, and what is done.

    Raises
    ------
    NotHere
        There is none.
    """
    said = subprocess.run([compiler(), "--version"], capture_output=True, text=True, check=False).stdout
    return f"{(said.splitlines() or [compiler()])[0]} {' '.join(FLAGS)}: the pages in place, batches of 64"


def compiled(case: Case, x: Floats, *, page_size: int) -> Learner:
    """The case's rule in C, on its pages.

    Parameters
    ----------
    x
        The standardised features, which it does not learn from: its centres begin with the first of them.

    Raises
    ------
    NotHere
        There is no compiler, it does not compile, or a row is longer than a page.
    """
    library = _library(compiler())
    try:
        pages = column_pages(case.columns, page_size=page_size)
    except UsageError as error:
        raise NotHere(f"the rows do not lie in their pages: {error}") from None
    raw, n = case.x, x.shape[1]
    mean, inverse = np.zeros(n, np.float32), np.ones(n, np.float32)
    if case.task.standardised:
        deviation = raw.std(axis=0, dtype=np.float64)
        mean[:] = raw.mean(axis=0, dtype=np.float64)
        inverse[:] = 1 / np.where(deviation > 0, deviation, 1)
    header = ARRAY_HEADER if case.columns[case.features[0]].ndim == 2 else 0
    table = _Table(
        pages=pages.ctypes.data,
        n_pages=len(pages),
        page_size=page_size,
        x=header,
        y=header + REAL * n if "y" in case.columns else 0,
        n=n,
        mean=mean.ctypes.data,
        inverse=inverse.ctypes.data,
    )
    made = _learner(library, case, x, table)
    held = (pages, mean, inverse)  # the table points to them

    def train() -> None:
        assert held
        made.train()

    return Learner(train, made.score)


def _learner(library: ctypes.CDLL, case: Case, x: Floats, table: _Table) -> Learner:
    n, rule = x.shape[1], case.rule
    of = ctypes.byref(table)
    if rule in KINDS or rule == "softmax":
        m = 1 if rule in KINDS else CLASSES
        model, velocity = (np.zeros(m * (n + 1), np.float32) for _ in range(2))
        w, b = _views(model, ((m, n), (m,)))
        if rule == "softmax":
            return Learner(lambda: library.softmax_pass(of, m, _at(model), _at(velocity)), lambda rows: rows @ w.T + b)
        return Learner(
            lambda: library.linear_pass(of, KINDS[rule], _at(model), _at(velocity)), lambda rows: rows @ w[0] + b[0]
        )
    if rule == "mlp":
        first = first_layers(n)
        model = np.concatenate([part.ravel() for part in first])
        moments = [np.zeros_like(model) for _ in range(2)]
        w, b, v, c = _views(model, [part.shape for part in first])
        return Learner(
            lambda: library.network_pass(of, len(b), CLASSES, _at(model), *map(_at, moments)),
            lambda rows: np.asarray(np.maximum(rows @ w.T + b, 0) @ v.T + c),
        )
    if rule == "kmeans":
        centres = x[:CENTRES].copy()
        return Learner(lambda: library.means_pass(of, len(centres), _at(centres)), lambda rows: nearest(rows, centres))
    u, v = first_factors(x.max(axis=0).astype(int) + 1)
    a, b = (np.zeros(len(one), np.float32) for one in (u, v))
    _, mean, deviation = standardised(case.y)

    def ratings(rows: NDArray[Any]) -> NDArray[Any]:
        i, j = rows.astype(int).T
        return np.asarray(mean + deviation * (a[i] + b[j] + (u[i] * v[j]).sum(axis=1)))

    units = ctypes.c_float(float(mean)), ctypes.c_float(1 / (float(deviation) or 1))
    return Learner(lambda: library.factors_pass(of, *map(_at, (u, v, a, b)), *units), ratings)


def _views(model: Floats, shapes: Sequence[tuple[int, ...]]) -> list[Floats]:
    """Parts of a model, one behind the other."""
    ends = list(accumulate(map(math.prod, shapes)))
    return [part.reshape(shape) for part, shape in zip(np.split(model, ends[:-1]), shapes, strict=True)]


def _at(array: Floats) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)
