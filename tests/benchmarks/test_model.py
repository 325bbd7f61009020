"""What is computed of a data set is what the search and the simulator say; what no machine can do has its reason."""

from __future__ import annotations

import pytest

from benchmarks.paper.evidence import DataSet, evidence
from benchmarks.paper.measured import _extended
from benchmarks.paper.model import LINKS, PAGE_SIZE, THREADS, Machine, bound, model
from dana.codesign.search import explore
from dana.server.places import CHECKOUT
from hwgen.devices import load_device
from hwgen.spec.config import PAGE_SIZES

DEVICE = load_device("xcvu9p")


def dataset(name: str) -> DataSet:
    return next(one for one in evidence().datasets if one.name == name)


def test_a_data_set_is_what_the_search_finds() -> None:
    blog = dataset("Blog Feedback")
    made, table = model(blog, device=DEVICE, quick=True), bound(blog, PAGE_SIZE)
    best = explore(
        table.binding, table.schema, DEVICE, max_tuples=52_397, page_size=PAGE_SIZE, design={"clusters": 8}
    ).best
    assert isinstance(made.best, Machine)
    assert (made.pages, made.page_size) == (1_941, PAGE_SIZE)
    assert made.best.seconds == best.cycles.seconds(1_941)
    assert made.best.uses == best.uses
    assert made.threads[best.bundle.config.threads] == made.best.seconds
    # a machine that waits for its link is as fast as the memory behind it
    quarter, half, one = (made.links[times] for times in (0.25, 0.5, 1.0))
    assert quarter == pytest.approx(4 * one, rel=0.01)
    assert half == pytest.approx(2 * one, rel=0.01)
    assert made.links[4.0] == "no link of 512 bytes: AXI has none beyond 128"
    assert made.page_sizes[PAGE_SIZE] == pytest.approx(made.best.seconds, rel=0.01)
    # 8 KB hold 7 of these rows where a quarter of 32 KB would hold 6.75, but waste more
    small = made.page_sizes[8192]
    assert isinstance(small, float)
    assert small > made.best.seconds
    assert "block RAM" in str(made.threads[64])


@pytest.mark.parametrize(("name", "units"), [("S/N LRMF", 64), ("S/E LRMF", 32)])
def test_the_largest_factorisations_run(name: str, units: int) -> None:
    made = model(dataset(name), device=DEVICE, quick=True)
    assert isinstance(made.best, Machine)
    assert 8 * made.best.clusters == units
    assert max(made.best.uses.values()) <= 1
    assert made.single == made.best
    assert made.threads[1] == made.best.seconds


def test_what_no_machine_holds_has_its_reason_everywhere() -> None:
    made = model(dataset("S/E LRMF"), device=load_device("xczu7ev"), quick=True)
    cells = [made.best, made.single, *made.threads.values(), *made.links.values(), *made.page_sizes.values()]
    assert len(cells) == 2 + len(THREADS) + len(LINKS) + len(PAGE_SIZES)
    assert {str(cell).split(" ")[0] for cell in cells} == {"no"}
    assert made.pages > 0


def test_rows_one_after_the_other_gain_nothing_from_threads() -> None:
    made = model(dataset("Netflix"), device=DEVICE, quick=True)
    assert isinstance(made.threads[1], float)
    assert {made.threads[count] for count in THREADS[1:]} == {"no gain"}


def test_what_is_measured_on_a_part_is_extended_by_what_grows_with_the_rows() -> None:
    fixed, each = 0.5, 0.01
    small, large = (fixed + each * rows for rows in (100, 400))
    assert _extended(large, small, rows=10_000, some=400, few=100) == pytest.approx(fixed + each * 10_000)
    lost = _extended(0.6, 0.5, rows=10_000, some=400, few=100)
    assert lost == "measured on 400 rows, which take no longer than 100: too few to extrapolate to 10,000"
    assert _extended("broken", 0.5, rows=10_000, some=400, few=100) == "broken"


@pytest.mark.parametrize("name", ["S/E Logistic", "S/E SVM"])
def test_the_table_of_the_documents_is_what_the_search_finds(name: str) -> None:
    """Of docs/design.md, which `python -m benchmarks utilisation` prints as a whole."""
    text = (CHECKOUT / "docs/design.md").read_text(encoding="utf-8")
    row = next(line for line in text.splitlines() if line.startswith(f"| {name} |"))
    data = dataset(name)
    table = bound(data, PAGE_SIZE)
    best = explore(
        table.binding, table.schema, DEVICE, max_tuples=int(data.rows.value), page_size=table.sample.page_size
    ).best
    config, cycles = best.bundle.config, best.cycles
    machine = f"{config.threads}×{config.clusters}×8 | {config.striders}"
    used = f"{100 * best.link_use:.0f} % | {100 * cycles.unit_use:.0f} %"
    assert f" | {machine} | {used} | {cycles.bottleneck} | " in row
