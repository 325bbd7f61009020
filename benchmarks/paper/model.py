"""A data set of the paper on this project's machine: the best one of a device, and what changes with its parts.

In: a data set and a device. Out: `Modelled`: seconds of a pass, by the simulator, which counts as the hardware does
(`dana.codesign.cycles`). What no machine can do is kept as the reason.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from math import ceil
from multiprocessing import get_context

from benchmarks.paper.evidence import DataSet, evidence
from benchmarks.peers.cases import SHAPES
from benchmarks.peers.own import RANK
from dana.codesign.cycles import Cycles, measure_cycles
from dana.codesign.default import default_bundle
from dana.codesign.sample import Sample, sample_pages
from dana.codesign.search import Candidate, Exploration, explore
from dana.compiler import Binding, bind
from dana.compiler.passes import plan_of
from dana.compiler.rounds import power_of_two
from dana.errors import SetupError, UsageError
from dana.language.rulefile import load
from dana.rules import FOLDER
from dana.server.places import PAPER
from dana.storage.declared import declared
from dana.storage.schema import TableSchema
from dana.trainer.streams import declared_request
from hwgen.devices import Device
from hwgen.spec.bundle import Bundle
from hwgen.spec.config import PAGE_SIZES, WIDEST_LINK, most_link_bytes

PAGE_SIZE = 32768
"""Of the tables, but where it is what changes."""
THREADS = (1, 2, 4, 8, 16, 32, 64)
LINKS = (0.25, 0.5, 1.0, 2.0, 4.0)
"""Times the rate at which the device's memory sends pages."""
MAX_STRIDERS = 64
QUICK_CLUSTERS = 8
"""Of all machines of a quick search."""

ELEMENTS = ("float4", "float8")
"""Types of the arrays' elements that the machine's cycles are compared for."""

MADLIB_PAGE_SIZE = 8192
"""Of the tables that MADlib was measured on."""
TRIPLES = ""
"""The type of the elements of an array in a table that has ratings, a row each, and no array."""

Seconds = float | str
"""Of a pass; or why there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """One that fits.

    Attributes
    ----------
    uses
        Fractions of what a design may take of the device.
    seconds
        Of a pass over all rows, modelled.
    engine
        Of those, in which the engine works: what a pass takes where tuples are always there.
    bandwidth
        Bytes of pages that its link takes in a second at the most, of what the device's memory sends.
    """

    threads: int
    clusters: int
    striders: int
    uses: Mapping[str, float]
    per_tuple: float
    waits_for: str
    link_use: float
    unit_use: float
    seconds: float
    engine: float
    bandwidth: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Modelled:
    """What the model says of a data set.

    Attributes
    ----------
    pages, page_size
        The table's; page_size is that of frames where no page of 32 KB holds a row.
    density
        How rows lie on pages, in words.
    best
        The fastest machine; or why there is none.
    single
        The fastest of one thread.
    threads, links, page_sizes
        Seconds of a pass, by number of threads, by times the link, by bytes of a page.
    elements
        By the type of the array's elements, cycles of a row, and those in which the link brings it.
    as_madlib
        The fastest machine for each table that MADlib was measured on, by the type of its array's elements.
    """

    name: str
    pages: int
    page_size: int
    density: str
    best: Machine | str
    single: Machine | str
    threads: Mapping[int, Seconds]
    links: Mapping[float, Seconds]
    page_sizes: Mapping[int, Seconds]
    elements: Mapping[str, tuple[float, float] | str]
    as_madlib: Mapping[str, Machine | str]


def model_all(
    datasets: Iterable[DataSet], device: Device, *, quick: bool, done: Callable[[str], None] = lambda _: None
) -> dict[str, Modelled]:
    """All data sets, each on a core of its own where there are some.

    Parameters
    ----------
    quick
        Of machines of 8 clusters to a thread alone, but for rules of one thread, which have few.
    done
        Called with the name of each data set that is finished.
    """
    found = {}
    # not forked: the caller may have threads
    with ProcessPoolExecutor(max_workers=len(os.sched_getaffinity(0)), mp_context=get_context("spawn")) as pool:
        for made in pool.map(partial(model, device=device, quick=quick), datasets):
            found[made.name] = made
            done(made.name)
    return found


def columns_of(dataset: DataSet, element: str = "float4") -> str:
    """The table's, as `dana design --schema` takes them: the paper's tables; of a factorisation, dense rows."""
    width = int(dataset.columns.value)
    if element == TRIPLES:
        return "i int4, j int4, y float4"
    return (
        f"i int4, x {element}[{width}]" if dataset.rule == "lrmf_dense" else f"id int4, y float4, x {element}[{width}]"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """A data set's rule on its table, as a machine sees it: on pages of the table, or of frames for long rows."""

    binding: Binding
    schema: TableSchema
    sample: Sample


def bound(dataset: DataSet, page_size: int, element: str = "float4") -> Bound:
    """The rule on the table, whose pages have so many bytes."""
    triples = element == TRIPLES
    dense = dataset.rule == "lrmf_dense" and not triples
    folder = FOLDER if dense or triples else PAPER
    if not folder.is_dir():
        raise SetupError(f"the paper's rules are in a checkout's folder examples/paper; there is no {folder}")
    rule = load(folder / f"{'lrmf' if triples else dataset.rule}.py")
    schema = declared(columns_of(dataset, element))
    request = declared_request(rule, schema, label=None if dense else "y", page_size=page_size)
    relation = request.relation
    features = request.features or (["i", "j"] if triples else ["i", "x"] if dense else ["x"])
    extents = {"m": int(dataset.rows.value)} if dense else None
    if triples:
        extents = {"m": int(dataset.rows.value), "n": int(dataset.columns.value), "k": RANK}
    return Bound(
        binding=bind(rule.hdfg, relation.schema, features, request.label, extents),
        schema=relation.schema,
        sample=sample_pages(relation.schema, page_size=relation.page_size),
    )


def model(dataset: DataSet, *, device: Device, quick: bool) -> Modelled:
    """One data set."""
    table = bound(dataset, PAGE_SIZE)
    binding, sample, rows = table.binding, table.sample, int(dataset.rows.value)
    pages = sample.pages_of(rows)
    alone = plan_of(binding.graph).alone
    found: Exploration | None = None
    why = ""
    try:
        found = explore(
            binding, table.schema, device, max_tuples=rows, page_size=sample.page_size,
            design={"clusters": QUICK_CLUSTERS} if quick and not alone else {},
        )  # fmt: skip
    except UsageError as error:
        why = error.message
    best = found.best if found else None
    threads = {count: _of_threads(found, count, pages, alone=alone) if found else why for count in THREADS}
    single = _fastest(found, 1)
    return Modelled(
        name=dataset.name,
        pages=pages,
        page_size=sample.page_size,
        density=f"{sample.rows / sample.pages:.0f} on a page" if sample.pages == 1 else f"{sample.pages} pages each",
        best=_machine(best, pages) if best else why,
        single=_machine(single, pages) if single else why or "no machine of one thread fits",
        threads=threads,
        links={times: _on_link(best.bundle, sample, pages, device, times) if best else why for times in LINKS},
        page_sizes={size: _on_pages(dataset, best.bundle, size) if best else why for size in PAGE_SIZES},
        elements={one: _of_elements(dataset, best.bundle, one) if best else why for one in ELEMENTS},
        as_madlib={one: _as_madlib(dataset, one, device, quick=quick) for one in madlib_types(dataset)},
    )


def madlib_types(dataset: DataSet) -> list[str]:
    """Of the tables that MADlib was measured on, the types of their arrays' elements."""
    return sorted({one.type for one in evidence().madlib if one.dataset == dataset.name})


def madlib_rows(dataset: DataSet, element: str) -> int:
    """Rows of such a table."""
    return SHAPES[dataset.name][0] if element == TRIPLES else int(dataset.rows.value)


def _as_madlib(dataset: DataSet, element: str, device: Device, *, quick: bool) -> Machine | str:
    table, rows = bound(dataset, MADLIB_PAGE_SIZE, element), madlib_rows(dataset, element)
    narrow = quick and not plan_of(table.binding.graph).alone
    try:
        best = explore(
            table.binding, table.schema, device, max_tuples=rows, page_size=table.sample.page_size,
            design={"clusters": QUICK_CLUSTERS} if narrow else {},
        ).best  # fmt: skip
    except UsageError as error:
        return error.message
    return _machine(best, table.sample.pages_of(rows))


def _machine(candidate: Candidate, pages: int) -> Machine:
    config, cycles = candidate.bundle.config, candidate.cycles
    return Machine(
        threads=config.threads,
        clusters=config.clusters,
        striders=config.striders,
        uses=candidate.uses,
        per_tuple=cycles.per_tuple,
        waits_for=cycles.bottleneck,
        link_use=candidate.link_use,
        unit_use=cycles.unit_use,
        seconds=cycles.seconds(pages),
        engine=pages * cycles.engine / config.clock_hz,
        bandwidth=config.page_rate * config.clock_hz,
    )


def _fastest(found: Exploration | None, threads: int) -> Candidate | None:
    """The fastest of so many threads that fits."""
    fitting = [one for one in (found.candidates if found else ()) if one.fits and one.bundle.config.threads == threads]
    return min(fitting, key=lambda one: one.cycles.page, default=None)


def _of_threads(found: Exploration, threads: int, pages: int, *, alone: bool) -> Seconds:
    fastest = _fastest(found, threads)
    if fastest is not None:
        return fastest.cycles.seconds(pages)
    tried = [one for one in found.candidates if one.bundle.config.threads == threads]
    if not tried:
        # rows in turn are one thread's work, and the search tries no more
        return "no gain" if alone else "too large"
    least = min(tried, key=lambda one: one.use)
    lacking = max(least.uses, key=lambda name: least.uses[name])
    return f"{least.use:.1f} × {lacking.replace('_', ' ').replace('rams', 'RAM').removesuffix('s')}"


def _on_link(bundle: Bundle, sample: Sample, pages: int, device: Device, times: float) -> Seconds:
    """The same machine, with as many Striders as there can be, behind a faster or slower memory."""
    config = bundle.config
    faster = replace(device, page_bandwidth=int(times * device.page_bandwidth))
    width = max(config.link_bytes, power_of_two(ceil(faster.link_bytes))) if times > 1 else config.link_bytes
    if width > most_link_bytes(config.lanes, config.page_size):
        return f"no link of {width} bytes: " + (
            f"there is none beyond {WIDEST_LINK}" if width > WIDEST_LINK else "wider than what is stored in a cycle"
        )
    changed = replace(config, link_bytes=width, link_rate=faster.link_rate(config.clock_hz), striders=MAX_STRIDERS)
    return measure_cycles(replace(bundle, config=changed), sample).seconds(pages)


def _on_pages(dataset: DataSet, best: Bundle, page_size: int) -> Seconds:
    """The best machine's division and link, for pages of another size."""
    table = bound(dataset, page_size)
    cycles = _cycles(dataset, best, table)
    return cycles if isinstance(cycles, str) else cycles.seconds(table.sample.pages_of(int(dataset.rows.value)))


def _of_elements(dataset: DataSet, best: Bundle, element: str) -> tuple[float, float] | str:
    """The same for an array of another type."""
    cycles = _cycles(dataset, best, bound(dataset, PAGE_SIZE, element))
    return cycles if isinstance(cycles, str) else (cycles.per_tuple, cycles.link / cycles.tuples)


def _cycles(dataset: DataSet, best: Bundle, table: Bound) -> Cycles | str:
    """Of the best machine's division and link, for another table."""
    config = best.config
    design = {
        "threads": config.threads, "clusters": config.clusters, "link_bytes": config.link_bytes,
        "link_rate": config.link_rate, "clock_hz": config.clock_hz, "striders": MAX_STRIDERS,
        "page_size": table.sample.page_size,
    }  # fmt: skip
    try:
        bundle = default_bundle(table.binding, table.schema, max_tuples=int(dataset.rows.value), design=design)
    except UsageError as error:
        return error.message
    return measure_cycles(bundle, table.sample)
