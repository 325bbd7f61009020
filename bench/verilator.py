"""The generated hardware under Verilator: cycles a second of a machine with 64 analytic units."""

from __future__ import annotations

from bench.measure import Figure, main, median_seconds
from bench.workload import column_table, compiled, filled_pages
from hwgen.spec.strider import Fault

THREADS, CLUSTERS = 4, 2
PAGES = 40


def run() -> list[Figure]:
    """Measure."""
    from hwgen.harness import RtlMachine

    schema = column_table(54)
    design = compiled(schema, pages=PAGES, threads=THREADS, clusters=CLUSTERS)
    config = design.bundle.config
    pages = memoryview(filled_pages(schema, 54, pages=PAGES).tobytes())
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
    return [
        Figure(
            what=f"RTL under Verilator, {config.units} units, {cycles:,} cycles",
            measured=f"{cycles / taken:,.0f} cycles/s",
            reference="absolute",
            ratio=cycles / taken,
            target=100_000,
            at_most=False,
        ),
    ]


if __name__ == "__main__":
    main(run)
