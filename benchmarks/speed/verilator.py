"""The generated hardware under Verilator: cycles a second with 64 units, lock-step with the simulator at 256.

The seconds are the processor's, which a busy computer lengthens least.
"""

from __future__ import annotations

import time

import numpy as np

from benchmarks.measure import Figure, main, median_seconds
from benchmarks.speed.workload import column_table, compiled, filled_pages
from dana.trainer.designs import Design
from hwgen.spec.strider import Fault

FEATURES = 54
PAGES = 40
EPOCHS = 6
SMALL = {"threads": 4, "clusters": 2}
LARGE = {"threads": 8, "clusters": 4}


def run() -> list[Figure]:
    """Measure."""
    return [_rate(), _lockstep()]


def _rate() -> Figure:
    from hwgen.harness import RtlMachine

    design, pages = _workload(PAGES, SMALL)
    config = design.bundle.config
    machine = RtlMachine(config)
    machine.load(design.bundle)
    counters = machine.run_epoch(pages)
    if counters.fault != Fault.NONE:
        raise RuntimeError(f"the machine stopped: {counters}")
    taken = median_seconds(lambda: machine.run_epoch(pages), repeats=EPOCHS, warm_up=0, clock=time.process_time)
    rate = counters.cycles / taken
    return Figure(
        what=f"RTL under Verilator, {config.units} units, {counters.cycles:,} cycles",
        measured=f"{rate:,.0f} cycles/s",
        reference="absolute",
        ratio=rate,
        target=100_000,
        at_most=False,
    )


def _lockstep() -> Figure:
    """An epoch on both: counters, cycles among them, and every word of the models."""
    from dana.simulator import Simulator
    from hwgen.harness import RtlMachine

    design, pages = _workload(PAGES, LARGE)
    bundle = design.bundle
    rtl, simulator = RtlMachine(bundle.config), Simulator(bundle.config)
    for machine in (rtl, simulator):
        machine.load(bundle)
    start = time.process_time()
    found = rtl.run_epoch(pages)
    taken = time.process_time() - start
    differing = int(found != simulator.run_epoch(pages))
    for symbol in bundle.of_kind("model"):
        rows = (machine.read_rows(symbol.row, symbol.rows(bundle.config.lanes)) for machine in (rtl, simulator))
        differing += int(np.count_nonzero(np.not_equal(*rows)))
    simulator.close()
    return Figure(
        what=f"RTL and simulator, {bundle.config.units} units, {found.cycles:,} cycles",
        measured=f"{differing} differences in counters and models; {found.cycles / taken:,.0f} cycles/s",
        reference="the simulator's",
        ratio=float(differing),
        target=0.0,
    )


def _workload(pages: int, design: dict[str, int]) -> tuple[Design, memoryview]:
    schema = column_table(FEATURES)
    heap = filled_pages(schema, FEATURES, pages=pages)
    return compiled(schema, pages=pages, **design), memoryview(heap.tobytes())


if __name__ == "__main__":
    main(run)
