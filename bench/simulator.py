"""The simulator alone: heap bytes a second on one core, beside what that core can read from memory.

The pages are as many as a table of the paper has, more than the caches hold, and in memory already.
"""

from __future__ import annotations

import ctypes

import numpy as np
from numpy.typing import NDArray

from bench.measure import Figure, main, paired_medians
from bench.workload import array_table, column_table, compiled, filled_pages
from dana.runtime.machines import MACHINES
from dana.storage.schema import TableSchema
from hwgen.spec.strider import Fault

SINK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
"""`dana.runtime.trainer.Sink.function`; a CFUNCTYPE lets go of the GIL."""
PAGES_AT_ONCE = 16
"""As many as the ring hands over in a run of the worker."""


def run() -> list[Figure]:
    """Measure."""
    return [
        _measured("54 float4 columns (Covertype)", 54, column_table(54), pages=18_157),
        _measured("384 floats in an array (Patient)", 384, array_table(384), pages=10_700),
    ]


def _measured(name: str, features: int, schema: TableSchema, *, pages: int) -> Figure:
    design = compiled(schema, pages=pages)
    heap = filled_pages(schema, features, pages=pages)
    as_much = np.ones(heap.nbytes // 4, dtype=np.float32)
    machine = MACHINES["sim"](design.bundle.config)

    def epoch() -> None:
        machine.begin_epoch(len(heap))
        feed(machine.sink, heap)
        counters = machine.end_epoch()
        if counters.fault != Fault.NONE:
            raise RuntimeError(f"the simulator stopped: {counters}")

    def read() -> None:
        np.dot(as_much, as_much)

    try:
        machine.load(design.bundle)
        simulated, reading = paired_medians(epoch, read, repeats=9)
    finally:
        machine.close()
    rate, bandwidth = heap.nbytes / simulated / 1e9, heap.nbytes / reading / 1e9
    return Figure(
        what=f"simulator, logistic, {name}, {heap.nbytes / 1e6:.0f} MB",
        measured=f"{rate:.1f} GB/s",
        reference=f"one core reads {bandwidth:.1f} GB/s; absolute, GB/s",
        ratio=rate,
        target=5.0,
        at_most=False,
    )


def feed(sink: tuple[int, int], heap: NDArray[np.uint8]) -> None:
    """Hand pages over as the worker does."""
    function, context = sink
    consume = SINK(function)
    address = heap.ctypes.data
    for start in range(0, len(heap), PAGES_AT_ONCE):
        count = min(PAGES_AT_ONCE, len(heap) - start)
        if consume(context, address + start * heap.shape[1], count) != 0:
            return


if __name__ == "__main__":
    main(run)
