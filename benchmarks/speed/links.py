"""Links of several buses: the best machine for an Alveo U55C, whose HBM sends 460 GB/s, with one bus for pages, two and
four, for the paper's batches of 64 tuples and for larger ones. By the model that the design search uses.
"""

from __future__ import annotations

from dataclasses import replace

from benchmarks.measure import Figure, main
from benchmarks.paper.evidence import evidence
from benchmarks.paper.model import PAGE_SIZE, bound
from dana.codesign.search import explore
from hwgen.devices import load_device
from hwgen.spec.config import WIDEST_BUS

DATASETS = ("Remote Sensing LR", "Blog Feedback", "S/N Logistic")
BUSES = (1, 2, 4)
BATCHES = (64, 1024)


def run() -> list[Figure]:
    """Search for each machine."""
    return [_measured(name, buses, batch) for name in DATASETS for batch in BATCHES for buses in BUSES]


def _measured(name: str, buses: int, batch: int) -> Figure:
    dataset = next(one for one in evidence().datasets if one.name == name)
    table = bound(dataset, PAGE_SIZE)
    device = load_device("xcu55c")
    link = buses * WIDEST_BUS * device.clock_hz
    best = explore(
        replace(table.binding, graph=replace(table.binding.graph, batch=batch)),
        table.schema,
        replace(device, page_bandwidth=link),
        max_tuples=int(dataset.rows.value),
        page_size=PAGE_SIZE,
    ).best
    config, cycles = best.bundle.config, best.cycles
    rate = PAGE_SIZE * config.clock_hz / cycles.page
    return Figure(
        what=f"{name}, {dataset.columns.value:.0f}, batches of {batch}, {buses} × 128 bytes at most: "
        f"{config.threads}×{config.clusters}×8 units, a link of {config.link_bytes}",
        measured=f"{rate / 1e9:.0f} GB/s, {rate / link:.0%}; units {cycles.unit_use:.0%}",
        reference="60 % of the link, or 80 % of the units",
        ratio=max(rate / link / 0.6, cycles.unit_use / 0.8),
        target=1.0,
        at_most=False,
    )


if __name__ == "__main__":
    main(run)
