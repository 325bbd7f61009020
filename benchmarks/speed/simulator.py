"""The simulator with the rule's code, as trainings have it: heap bytes a second, and the core's read bandwidth.

Also an epoch of the shipped rule, which uses the whole table as one batch, on two processors, which must be free; that
is elapsed time.

The pages are as many as a table of the paper has, more than the caches hold, and in memory already. Epochs are a
training's later ones, whose cycles are known from the first.
"""

from __future__ import annotations

import ctypes
import time

import numpy as np
from numpy.typing import NDArray

from benchmarks.measure import Figure, main, paired_medians
from benchmarks.speed.workload import (
    PAGE_SIZE,
    array_table,
    code_of,
    column_table,
    compiled_rule,
    filled_pages,
    with_code,
)
from dana.server.places import PAPER
from dana.simulator import Simulator
from dana.storage.schema import TableSchema
from hwgen.spec.strider import Fault

SINK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
"""`dana.trainer.contract.Sink.function`; a CFUNCTYPE lets go of the GIL."""
PAGES_AT_ONCE = 64
"""As many as are handed over at a time while they come: dana/worker/native/ring.c."""


def run() -> list[Figure]:
    """Measure."""
    return [
        _measured("54 float4 columns (Covertype)", 54, column_table(54), pages=18_157, target=0.6),
        *(
            _measured(f"{features:,} floats in an array", features, array_table(features), pages=10_700, target=target)
            for features, target in ((384, 0.7), (520, 0.6), (1000, 0.6), (2000, 0.6))
        ),
        # out of line in a table: frames bring them (docs/sql-reference.md)
        _measured("8,000 floats in an array", 8000, array_table(8000), pages=2675, target=0.6, page_size=32768),
        _with_holes(pages=18_157),
        _on_two("54 float4 columns", 54, column_table(54), pages=18_157),
        _on_two("1,000 floats", 1000, array_table(1000), pages=10_700),
    ]


def _on_two(name: str, features: int, schema: TableSchema, *, pages: int) -> Figure:
    request, design = compiled_rule("logistic", schema, pages=pages)
    heap = filled_pages(schema, features, pages=pages)
    machine, code = with_code(request, design), code_of(request, design)
    machine.add_helpers([code, code.copy()])

    def epoch(threads: int) -> None:
        machine.threads = threads
        machine.begin_epoch()
        feed(machine.sink_again, heap, at_once=len(heap))
        machine.end_epoch()

    try:
        two, one = paired_medians(lambda: epoch(2), lambda: epoch(1), repeats=15)
    finally:
        machine.close()
    return Figure(
        what=f"a later epoch of logistic on two processors, {name}",
        measured=f"{two * 1e3:.1f} ms",
        reference=f"on one {one * 1e3:.1f} ms",
        ratio=one / two,
        target=1.6,
        at_most=False,
    )


def _with_holes(*, pages: int) -> Figure:
    """A fifth of the rows is deleted, or left out by a filter: as the backend hands such pages over."""
    request, design = compiled_rule("logistic", column_table(54), pages=pages, folder=PAPER)
    heap = filled_pages(column_table(54), 54, pages=pages)
    rows = (int.from_bytes(heap[0, 12:14].tobytes(), "little") - 24) // 4
    lines = heap[:, 24 : 24 + 4 * rows].copy().view("<u4")
    lines[np.random.default_rng(1).random(lines.shape) < 0.2] = 0
    thinned = heap.copy()
    thinned[:, 24 : 24 + 4 * rows] = lines.view(np.uint8)
    first, second = with_code(request, design), with_code(request, design)
    try:
        some, whole = paired_medians(
            lambda: _epoch(first, thinned), lambda: _epoch(second, heap), repeats=9, clock=time.thread_time
        )
    finally:
        first.close()
        second.close()
    return Figure(
        what="an epoch of 54 float4 columns, a fifth of the rows gone",
        measured=f"{some * 1e3:.1f} ms",
        reference=f"of the whole table {whole * 1e3:.1f} ms",
        ratio=some / whole,
        target=1.2,
    )


def _epoch(machine: Simulator, heap: NDArray[np.uint8]) -> None:
    machine.begin_epoch()
    feed(machine.sink_again, heap, at_once=len(heap))
    counters = machine.end_epoch()
    if counters.fault != Fault.NONE or machine.differs:
        raise RuntimeError(f"the simulator stopped, or its code is wrong: {counters}")


def _measured(
    name: str, features: int, schema: TableSchema, *, pages: int, target: float, page_size: int = PAGE_SIZE
) -> Figure:
    request, design = compiled_rule("logistic", schema, pages=pages, folder=PAPER, page_size=page_size)
    heap = filled_pages(schema, features, pages=pages, page_size=page_size)
    as_much = np.ones(heap.nbytes // 4, dtype=np.float32)
    machine = with_code(request, design)

    def read() -> None:
        np.dot(as_much, as_much)

    try:
        simulated, reading = paired_medians(lambda: _epoch(machine, heap), read, repeats=9, clock=time.thread_time)
    finally:
        machine.close()
    rate, bandwidth = heap.nbytes / simulated / 1e9, heap.nbytes / reading / 1e9
    return Figure(
        what=f"simulator, logistic, {name}, {heap.nbytes / 1e6:.0f} MB",
        measured=f"{rate:.1f} GB/s",
        reference=f"one core reads {bandwidth:.1f} GB/s",
        ratio=rate / bandwidth,
        target=target,
        at_most=False,
    )


def feed(sink: tuple[int, int], heap: NDArray[np.uint8], *, at_once: int = PAGES_AT_ONCE) -> None:
    """Hand pages over as the worker does: while they come some at a time; kept ones for 10 ms, about an epoch here."""
    function, context = sink
    consume = SINK(function)
    address = heap.ctypes.data
    for start in range(0, len(heap), at_once):
        count = min(at_once, len(heap) - start)
        if consume(context, address + start * heap.shape[1], count) != 0:
            return


if __name__ == "__main__":
    main(run)
