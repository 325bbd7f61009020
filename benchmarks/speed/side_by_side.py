"""Ratings side by side: cycles of a rating of matrix factorisation, random or sorted, compared with one at a time.

Factors of rank 10 in the scratchpads of one thread of 16 units, with room for so many ratings at a time; 30,000 ratings
of 6,000 users and 1,000 items, so many that rows come again among the next ratings as often as in MovieLens-1M. Cycles
are the simulator's, which are the hardware's; the engine's alone are what is left if pages never were late. The same
with the factors in external record memory, of one thread and of several, behind a slow memory and a fast one.
"""

from __future__ import annotations

import numpy as np

from benchmarks.measure import Figure, main
from dana.codesign.default import default_bundle
from dana.compiler import bind
from dana.simulator import Simulator
from dana.storage.builder import build_pages
from dana.storage.schema import Attribute, TableSchema
from dsl import compile_rule
from hwgen.spec.bundle import Bundle
from hwgen.spec.counters import EpochCounters

USERS, ITEMS, RATINGS = 6_000, 1_000, 30_000
TOGETHER = (8, 16, 32, 64)
RECORDS = {
    **{f"1 thread × {k}": {"together": k} for k in (2, *TOGETHER)},
    **{
        f"{threads} threads × {tuples}{near}": {"together": threads * tuples, "threads": threads, **latency}
        for near, latency in (("", {}), (", 8 cycles away", {"record_latency": 8}))
        for threads, tuples in ((2, 16), (4, 4), (4, 8), (4, 16), (8, 4))
    },
}
"""Machines with factors in records; of two clusters to a thread, but for eight, which have one."""
RULE = f"""\
import dana
U = dana.model([{USERS}, 10], init=dana.normal(0, 0.1))
V = dana.model([{ITEMS}, 10], init=dana.normal(0, 0.1))
i = dana.input()
j = dana.input()
y = dana.output()
lr = dana.meta(0.02)
penalty = dana.meta(0.02)
factors = dana.algo(U, V, i, j, y)
error = dana.sigma(U[i] * V[j], 1) - y
factors.setModel(U[i], U[i] - lr * (error * V[j] + penalty * U[i]))
factors.setModel(V[j], V[j] - lr * (error * U[i] + penalty * V[j]))
"""
LOSS = "factors.setLoss(error * error)\n"
SCHEMA = TableSchema(
    relation="ratings",
    attributes=tuple(
        Attribute(name=name, type_oid=oid, type_name=kind, length=4, align="i")
        for name, oid, kind in (("i", 23, "integer"), ("j", 23, "integer"), ("y", 700, "real"))
    ),
)


def run() -> list[Figure]:
    """Both orders, with the loss and without."""
    rng = np.random.default_rng(1)
    users, items = rng.integers(0, USERS, RATINGS), rng.integers(0, ITEMS, RATINGS)
    orders = {"random order": np.arange(RATINGS), "sorted by user": np.argsort(users, kind="stable")}
    pages = {
        name: build_pages(SCHEMA, [(int(users[k]), int(items[k]), 1.0) for k in order])
        for name, order in orders.items()
    }
    figures = []
    for loss, text in (("with the loss", RULE + LOSS), ("without a loss", RULE)):
        for name, data in pages.items():
            alone = _trained(_bundle(text, 1), data)
            for what, design in (
                *((f"{k} together", {"together": k}) for k in TOGETHER),
                *((f"{what}, in records", {**design, "records": 1}) for what, design in RECORDS.items()),
            ):
                counted = _trained(_bundle(text, **design), data)
                records = "records" in design
                figures.append(
                    Figure(
                        what=f"{what}, {name}, {loss}",
                        measured=f"{counted.cycles / counted.tuples:.1f} cycles, the engine "
                        f"{counted.engine_busy / counted.tuples:.1f}, {counted.tuples / counted.batches:.1f} a batch",
                        reference=f"{alone.cycles / alone.tuples:.1f} one at a time",
                        ratio=counted.cycles / alone.cycles,
                        target=(0.2 if design.get("threads", 1) > 1 else 0.9 if design["together"] < 8 else 0.6)
                        if name == "random order"
                        else 1.35
                        if records
                        else 1.01,
                    )
                )
    return figures


def _bundle(text: str, together: int, *, records: int = 0, **design: int) -> Bundle:
    binding = bind(compile_rule(text, filename="factors.py").hdfg, SCHEMA)
    room = {"index_depth": max(2, together), "watch_depth": 2 * together if together > 1 else 0, "record_depth": 0}
    if records:
        threads = design.get("threads", 1)
        room |= {"record_depth": 2 * together, "threads": threads, "clusters": 1 if threads == 8 else 2}
    return default_bundle(binding, SCHEMA, max_tuples=RATINGS, design={**room, **design})


def _trained(bundle: Bundle, pages: bytes) -> EpochCounters:
    simulator = Simulator(bundle.config)
    try:
        simulator.load(bundle)
        return simulator.run_epoch(pages)
    finally:
        simulator.close()


if __name__ == "__main__":
    main(run)
