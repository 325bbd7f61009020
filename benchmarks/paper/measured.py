"""The data sets of the paper on this machine's processor: `dana_train` warm and cold, and what feeding a machine costs.

In: a session, a data set. Out: `Measured`: seconds of a pass over all rows. Tables that are larger than `MOST` are
measured on a part, and the time is multiplied. Values are N(0, 1): no time depends on them.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import psycopg
from psycopg import sql

from benchmarks.paper.cold import NotCold, chill, disk_rate
from benchmarks.paper.evidence import DataSet
from benchmarks.paper.model import madlib_types
from benchmarks.peers.cases import SHAPES, Case, numbers, shaped
from benchmarks.peers.contest import Contest, measure
from benchmarks.peers.export import export
from benchmarks.peers.stage import TABLE, staged, train
from dana.client.connection import Connection

MOST = 128 << 20
"""Bytes of features of a table."""
LEAST_ROWS = 64
FEWER = 4
CLEARLY = 1.5
"""All rows must take at least this many times as long as a `FEWER`-th of them; otherwise nothing is extrapolated."""
PASSES = 3
RULES = {"svm": "linear_svm"}
"""Shipped rules that are called otherwise than the paper's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What was measured of a data set: seconds of a pass over all its rows, or why there are none.

    Attributes
    ----------
    how
        On what it was measured, in words.
    warm, cold
        `dana_train`: of several passes; of one that reads from the disk.
    float8
        As `warm`, on a table whose array is of float8, as MADlib's; "" where MADlib was measured on none.
    copied
        The server finds the arrays in its tuples, and their floats are copied once: the least that feeding takes.
    export
        The server sends them to a client, which makes arrays.
    disk
        Bytes a second.
    """

    how: str
    warm: float | str
    cold: float | str
    copied: float | str
    export: float | str
    disk: float | str
    float8: float | str = ""


def measure_all(
    db: Connection,
    datasets: tuple[DataSet, ...],
    *,
    scale: float,
    repeats: int,
    done: Callable[[str], None] = lambda _: None,
) -> dict[str, Measured]:
    """All data sets, with so many times the rows of each."""
    found = {}
    for dataset in datasets:
        found[dataset.name] = measure_one(db, dataset, scale=scale, repeats=repeats)
        done(dataset.name)
    return found


def contests(db: Connection, *, scale: float, passes: int, repeats: int) -> Iterator[Contest]:
    """`dana bench peers` on the paper's public data."""
    return (measure(db, shaped(name, scale), passes=passes, repeats=repeats) for name in PUBLIC)


PUBLIC = ("Remote Sensing LR", "Remote Sensing SVM", "WLAN", "Patient", "Blog Feedback", "Netflix")
assert set(PUBLIC) <= set(SHAPES)


def measure_one(db: Connection, dataset: DataSet, *, scale: float, repeats: int) -> Measured:
    """One data set."""
    rows, width = int(dataset.rows.value), int(dataset.columns.value)
    some = min(rows, max(LEAST_ROWS, round(min(rows, MOST / (4 * width)) * scale)))
    double = "float8" in madlib_types(dataset)
    large = _times(db, _case(dataset, some), width, repeats, cold=True, double=double)
    how = f"rule {RULES.get(dataset.rule, dataset.rule)} on "
    if some == rows:
        return Measured(how=f"{how}all rows", **large)
    # what does not grow with the rows must not be multiplied
    few = some // FEWER
    small = _times(db, _case(dataset, few), width, repeats, cold=False, double=double) | {"disk": ""}
    small["cold"] = small["warm"]
    found = {name: _extended(large[name], small[name], rows=rows, some=some, few=few) for name in large}
    return Measured(how=f"{how}{some:,} and {few:,} rows, extended", **found)


def _extended(seconds: float | str, less: float | str, *, rows: int, some: int, few: int) -> float | str:
    """Seconds on all rows, by those on some and on few of them."""
    if isinstance(seconds, str) or isinstance(less, str):
        return seconds
    if seconds < CLEARLY * less:
        return f"measured on {some:,} rows, which take no longer than {few:,}: too few to extrapolate to {rows:,}"
    return seconds + (seconds - less) / (some - few) * (rows - some)


def _times(db: Connection, case: Case, width: int, repeats: int, *, cold: bool, double: bool) -> dict[str, Any]:
    """Fields of `Measured`, of the case's rows."""
    float8: float | str = ""
    if double:
        doubles: dict[str, Any] = {**case.columns, "x": case.columns["x"].astype(np.float64)}
        with staged(db, replace(case, columns=doubles)):
            float8 = _warm(db, case, repeats)
    with staged(db, case):
        session = db.session
        values = sql.SQL("SELECT x FROM {}").format(sql.Identifier(TABLE))
        lengths = sql.SQL("SELECT sum(cardinality(x)) FROM {}").format(sql.Identifier(TABLE))
        warm = _warm(db, case, repeats)
        floats, copy = case.columns["x"], np.ones_like(case.columns["x"])
        copied = _seconds(lambda: session.execute(lengths).fetchone(), repeats)
        copied += _seconds(lambda: np.copyto(copy, floats), repeats)
        sent = _seconds(lambda: export(session, values, [width]), repeats)
        after, disk = _cold(db, case, warm) if cold else ("", "")
    return {"warm": warm, "cold": after, "copied": copied, "export": sent, "disk": disk, "float8": float8}


def _warm(db: Connection, case: Case, repeats: int) -> float | str:
    try:
        train(db, case, 1)  # compiles
        return _seconds(lambda: train(db, case, PASSES), repeats) / PASSES
    except psycopg.Error as error:
        return f"dana_train: {error.diag.message_primary or error}"


def _cold(db: Connection, case: Case, warm: float | str) -> tuple[float | str, float | str]:
    """A pass that reads from the disk, and the disk's bytes a second."""
    try:
        disk = disk_rate(chill(db.session, TABLE))
        if isinstance(warm, str):
            return warm, disk
        chill(db.session, TABLE)
        return _seconds(lambda: train(db, case, 1), 1), disk
    except NotCold as error:
        return str(error), str(error)


def _case(dataset: DataSet, rows: int) -> Case:
    width = int(dataset.columns.value)
    if dataset.rule != "lrmf_dense":
        return numbers(RULES.get(dataset.rule, dataset.rule), rows, width, array=True)
    random = np.random.default_rng(width)
    columns: Mapping[str, np.ndarray[tuple[int, ...], np.dtype[np.float32]]] = {
        "i": np.arange(rows, dtype=np.float32),
        "x": random.standard_normal((rows, width), dtype=np.float32),
    }
    return Case(name="", rule=dataset.rule, columns=columns, features=("i", "x"), hyper={"m": int(dataset.rows.value)})


def _seconds(run: Callable[[], object], repeats: int) -> float:
    """The median."""
    taken = []
    for _ in range(repeats):
        begun = time.perf_counter()
        run()
        taken.append(time.perf_counter() - begun)
    return statistics.median(taken)
