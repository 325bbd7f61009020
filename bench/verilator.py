"""The generated hardware under Verilator: cycles a second with 64 units, lock-step with the simulator at 256."""

from __future__ import annotations

import numpy as np

from bench.measure import Figure, main, median_seconds
from bench.workload import column_table, compiled, filled_pages
from dana.runtime.designs import Design
from hwgen.spec.strider import Fault

FEATURES = 54
PAGES = 40
SMALL = {"threads": 4, "clusters": 2}
LARGE = {"threads": 8, "clusters": 4}
LARGE_PAGES = 8


def run() -> list[Figure]:
    """Measure."""
    return [_rate(), _lockstep()]


def _rate() -> Figure:
    from hwgen.harness import RtlMachine

    design, pages = _workload(PAGES, SMALL)
    config = design.bundle.config
    machine = RtlMachine(config)
    machine.load(design.bundle)
    cycles = 0

    def epoch() -> None:
        nonlocal cycles
        counters = machine.run_epoch(pages)
        if counters.fault != Fault.NONE:
            raise RuntimeError(f"the machine stopped: {counters}")
        cycles = counters.cycles

    taken = median_seconds(epoch, repeats=5)
    return Figure(
        what=f"RTL under Verilator, {config.units} units, {cycles:,} cycles",
        measured=f"{cycles / taken:,.0f} cycles/s",
        reference="absolute",
        ratio=cycles / taken,
        target=100_000,
        at_most=False,
    )


def _lockstep() -> Figure:
    """Two epochs on both: counters, cycles among them, and every word of the scratchpad."""
    from dana.simulator import Simulator
    from hwgen.harness import RtlMachine

    design, pages = _workload(LARGE_PAGES, LARGE)
    config = design.bundle.config
    rtl, simulator = RtlMachine(config), Simulator(config)
    for machine in (rtl, simulator):
        machine.load(design.bundle)
    differing = cycles = 0

    def epoch() -> None:
        nonlocal differing, cycles
        found, expected = rtl.run_epoch(pages), simulator.run_epoch(pages)
        rows = (machine.read_rows(0, config.scratch_depth) for machine in (rtl, simulator))
        differing += (found != expected) + int(np.count_nonzero(np.not_equal(*rows)))
        cycles = found.cycles

    taken = median_seconds(epoch, repeats=1)
    simulator.close()
    return Figure(
        what=f"RTL beside the simulator, {config.units} units, {cycles:,} cycles an epoch",
        measured=f"{differing} differences in counters and words; {cycles / taken:,.0f} cycles/s",
        reference="the simulator's",
        ratio=float(differing),
        target=0.0,
        at_most=True,
    )


def _workload(pages: int, design: dict[str, int]) -> tuple[Design, memoryview]:
    schema = column_table(FEATURES)
    heap = filled_pages(schema, FEATURES, pages=pages)
    return compiled(schema, pages=pages, **design), memoryview(heap.tobytes())


if __name__ == "__main__":
    main(run)
