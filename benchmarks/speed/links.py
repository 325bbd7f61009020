"""Several page links: what N machines on one chip would take of a card with HBM, by the model of one of them.

An N-th of an Alveo U55C, with a link of 128 bytes, is a device for the design search; N of these machines work on
batches of N times as many tuples, or on an N-th of the paper's each, and their merges go log2(N) levels further
(hwgen/README.md, "Several page links"). Nothing of that is built: machines have one link.
"""

from __future__ import annotations

from dataclasses import replace

from benchmarks.measure import Figure, main
from benchmarks.paper.evidence import evidence
from benchmarks.paper.model import PAGE_SIZE, bound
from dana.codesign.search import explore
from hwgen.devices import load_device
from hwgen.spec.config import WIDEST_LINK
from hwgen.spec.cycles import RESULT_LATENCY

U55C = replace(
    load_device("xcvu9p"),
    name="xcu55c",
    luts=1_303_680,
    flipflops=2_607_360,
    dsps=9_024,
    block_rams=2_016,
    ultra_rams=960,
    page_bandwidth=460_000_000_000,
)
"""Alveo U55C (DS978), at the clock of the VU9P's file."""

DATASETS = ("Remote Sensing LR", "Blog Feedback", "S/N Logistic")
LINKS = (1, 2, 4)
HOP = 8
"""Cycles between machines on a chip, chosen: four registers there and back across regions with columns of I/O."""


def run() -> list[Figure]:
    """Search for the machine of each part."""
    return [
        _measured(name, links, divided)
        for name in DATASETS
        for links in LINKS
        for divided in ((False, True) if links > 1 else (False,))
    ]


def _measured(name: str, links: int, divided: bool) -> Figure:
    dataset = next(one for one in evidence().datasets if one.name == name)
    table = bound(dataset, PAGE_SIZE)
    graph = table.binding.graph
    assert graph.batch is not None, "the paper's rules merge batches of some tuples"
    if divided:
        graph = replace(graph, batch=graph.batch // links)
    each = {name: getattr(U55C, name) // links for name in ("luts", "flipflops", "dsps", "block_rams", "ultra_rams")}
    bandwidth = min(WIDEST_LINK * U55C.clock_hz, U55C.page_bandwidth // links)
    best = explore(
        replace(table.binding, graph=graph),
        table.schema,
        replace(U55C, **each, page_bandwidth=bandwidth),
        max_tuples=int(dataset.rows.value) // links,
        page_size=PAGE_SIZE,
    ).best
    config, cycles = best.bundle.config, best.cycles
    # the gradient's rows and two scalars, exchanged with one machine after the other
    rows = -(-int(dataset.columns.value) // config.lanes) + 2
    merges = (links.bit_length() - 1) * (rows + RESULT_LATENCY + HOP) * cycles.tuples / best.bundle.batch
    page = max(config.page_cycles, cycles.page + merges)
    rate = links * PAGE_SIZE * config.clock_hz / page
    share, units = rate / U55C.page_bandwidth, cycles.unit_use * cycles.page / page
    return Figure(
        what=f"{name}, {dataset.columns.value:.0f}, {links} × {config.threads}×{config.clusters}×8 units, "
        f"batches of {links} × {best.bundle.batch}",
        measured=f"{rate / 1e9:.0f} GB/s, {share:.0%}; units {units:.0%}",
        reference="60 % of the card's 460 GB/s, or 80 % of the units",
        ratio=max(share / 0.6, units / 0.8),
        target=1.0,
        at_most=False,
    )


if __name__ == "__main__":
    main(run)
