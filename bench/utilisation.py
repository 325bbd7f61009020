"""Linear models on the shapes of the paper's evaluation: is the best machine for its device limited by physics?

For each shape the design search picks a machine for the paper's FPGA; the figure is the larger of two fractions of an
epoch's time: in which the page link carries data, and in which the units compute. The tables are the paper's: id, label
and one array of floats, on 32 KB pages.
"""

from __future__ import annotations

from dataclasses import dataclass

from bench.measure import Figure, main
from dana.codesign.search import explore
from dana.compiler import bind
from dana.rulefile import load
from dana.server.places import PAPER
from dana.storage.schema import Attribute, TableSchema
from hwgen.devices import load_device

PAGE_SIZE = 32768
DEVICE = "xcvu9p"


@dataclass(frozen=True, slots=True)
class Shape:
    """A workload of the paper: name, rule, features, pages."""

    name: str
    rule: str
    features: int
    pages: int


SHAPES = (
    Shape("Remote Sensing", "logistic", 54, 4_925),
    Shape("Remote Sensing", "svm", 54, 4_925),
    Shape("WLAN", "logistic", 520, 1_330),
    Shape("Patient", "linear", 384, 2_675),
    Shape("Blog Feedback", "linear", 280, 1_941),
    Shape("S/N Logistic", "logistic", 2_000, 96_986),
    Shape("S/N SVM", "svm", 1_740, 169_598),
    Shape("S/N Linear", "linear", 8_000, 130_503),
    Shape("S/E Logistic", "logistic", 6_033, 1_044_024),
    Shape("S/E SVM", "svm", 7_129, 1_356_784),
)


def run() -> list[Figure]:
    """Search and measure on the simulator."""
    return [_measured(shape) for shape in SHAPES]


def paper_table(features: int) -> TableSchema:
    """id, label and features, as the paper's tables have them."""
    number = Attribute(name="id", type_oid=23, type_name="integer", length=4, align="i")
    label = Attribute(name="y", type_oid=700, type_name="real", length=4, align="i")
    array = Attribute(name="x", type_oid=1021, type_name="real[]", length=-1, align="i", array_length=features)
    return TableSchema(relation="t", attributes=(number, label, array))


def _measured(shape: Shape) -> Figure:
    schema = paper_table(shape.features)
    binding = bind(load(PAPER / f"{shape.rule}.py").hdfg, schema, ["x"], "y")
    best = explore(binding, schema, load_device(DEVICE), max_tuples=1 << 24, page_size=PAGE_SIZE).best
    config, cycles = best.bundle.config, best.cycles
    seconds = cycles.seconds(shape.pages)
    return Figure(
        what=f"{shape.name}, {shape.rule}, {shape.features:,}: {config.threads}×{config.clusters}×8 units, "
        f"{config.striders} Striders",
        measured=f"link {cycles.link_use:.0%}, units {cycles.unit_use:.0%}; waits for {cycles.bottleneck}",
        reference=f"{1e3 * seconds:,.1f} ms an epoch; 90 % of the link, or 80 % of the units",
        ratio=max(cycles.link_use / 0.9, cycles.unit_use / 0.8),
        target=1.0,
        at_most=False,
    )


if __name__ == "__main__":
    main(run)
