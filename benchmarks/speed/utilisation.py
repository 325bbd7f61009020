"""Linear models on the paper's data sets: is the best machine for its device limited by physics?

For each data set of `dana bench paper` the design search picks a machine; the figure is the larger of two fractions:
of the bytes that the device's memory sends, those that the machine takes, and of a pass's time, that in which the units
compute. Where the steps of a batch, which wait for each other, leave no machine of any size so much of the link, it is
of what they leave. The tables are the paper's: id, label and one array of floats, on 32 KB pages.
"""

from __future__ import annotations

from benchmarks.measure import Figure, main
from benchmarks.paper.evidence import DataSet, evidence
from benchmarks.paper.model import PAGE_SIZE, bound
from dana.codesign.search import explore
from hwgen.devices import load_device

DEVICE = "xcvu9p"
DATASETS = tuple(one for one in evidence().datasets if one.rule != "lrmf_dense")


def run() -> list[Figure]:
    """Search and measure on the simulator."""
    return [_measured(dataset) for dataset in DATASETS]


def _measured(dataset: DataSet) -> Figure:
    table = bound(dataset, PAGE_SIZE)
    rows = int(dataset.rows.value)
    device = load_device(DEVICE)
    found = explore(table.binding, table.schema, device, max_tuples=rows, page_size=table.sample.page_size)
    best = found.best
    config, cycles = best.bundle.config, best.cycles
    link = "the link"
    if found.steps == found.bound:
        link += f"'s {best.link_use * cycles.page / found.steps:.0%} that the steps of {best.bundle.batch} tuples leave"
    seconds = cycles.seconds(table.sample.pages_of(rows))
    return Figure(
        what=f"{dataset.name}, {dataset.rule}, {dataset.columns.value:,.0f}: "
        f"{config.threads}×{config.clusters}×8 units, {config.striders} Striders",
        measured=f"link {best.link_use:.0%}, units {cycles.unit_use:.0%}; waits for {cycles.bottleneck}",
        reference=f"{1e3 * seconds:,.1f} ms an epoch; 90 % of {link}, or 80 % of the units",
        ratio=max(found.bound / cycles.page / 0.9, cycles.unit_use / 0.8),
        target=1.0,
        at_most=False,
    )


if __name__ == "__main__":
    main(run)
