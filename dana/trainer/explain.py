"""The answer to ``dana_explain``: the machine of a training and its estimated cycles and area.

The answer is JSON; `lines` formats it with the terms of ``dana design``. Nothing is trained and no page is read: cycles
are estimated by `dana.codesign.cycles` from the row and page counts of the backend, areas by `dana.codesign.area`.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, cast

from dana.codesign.area import area_of
from dana.codesign.chosen import records_text
from dana.codesign.cost import repeats_text
from dana.codesign.cycles import Cycles, count_cycles, measure_cycles
from dana.codesign.sample import Sample, sample_pages, sample_table
from dana.codesign.search import Exploration, explore
from dana.storage.schema import TableSchema
from dana.trainer.bottleneck import why
from dana.trainer.contract import ExplainRequest, Json, LastRun, PageCounts, Relation, TrainRequest
from dana.trainer.data.order import row_order
from dana.trainer.data.weights import bind_request
from dana.trainer.designs import Design, DesignStore, chosen_extents, named_device, rule_graph, tuple_bound
from dana.trainer.metas import meta_values
from dana.trainer.provenance import digest_of
from dana.trainer.shard_costs import costs_over, sync_errors
from dana.trainer.streams import plan_stream
from dsl.hdfg.graph import Op
from hwgen.devices import UNMEASURED, Device
from hwgen.spec.bundle import WHOLE_EPOCH, Bundle
from hwgen.spec.config import FUNCTIONS, LANES_PER_CLUSTER, RATE_CYCLES, MachineConfig
from hwgen.spec.engine import Opcode

if TYPE_CHECKING:
    from dana.records import Plan

RESOURCES = {
    "luts": "LUTs",
    "flipflops": "flip-flops",
    "dsps": "DSPs",
    "block_rams": "block RAMs",
    "ultra_rams": "UltraRAMs",
}

SHOWN = (
    *("id", "started", "machine", "epochs", "tuples", "skipped", "pages", "cycles"),
    *("wall_seconds", "modelled_seconds"),
)
"""Members of the last run that an explanation repeats."""

MAX_PAGES = 1000
"""Number of pages up to which frames are counted individually."""
NEAR = 0.02
"""A run whose pages differ by a smaller share was over the explained pages."""
AREAS_OF = "xcvu9p"
"""Device for the area of a machine that is not designed for a device: the one in the paper."""


def explain(request: ExplainRequest, designs: DesignStore) -> Json:
    """Return the explanation of a training as JSON.

    Raises
    ------
    RuleError, UsageError
        As for the training itself; or the device is unknown, or a search finds no machine that fits it.
    """
    asked = request.training
    device = named_device(asked.device or AREAS_OF, "dana.device")
    if request.device is not None:
        device = named_device(request.device, "device")
        asked = replace(asked, device=device.name)
    training, stream = plan_stream(asked)
    design = designs.get(training, write=False)  # explaining must not change the cache on disk
    # the counts are those of heap pages; frames are filled evenly
    # rows in another order are laid out on full pages
    whole_table = design.bundle.batch == WHOLE_EPOCH
    permuted = row_order(training, rule_graph(training), design.features, whole_table=whole_table) is not None
    layout = None if stream is not None else request.layout
    per_page = _per_page(training.relation, layout, full=permuted)
    layout = None if permuted else layout
    found = _search(training, design, device, per_page) if request.search else None
    bundle = design.bundle if found is None else found.best.bundle
    # rows as on the table's own pages, which hold dead ones and free space as well
    sample = sample_pages(training.relation.schema, page_size=bundle.config.page_size, tuples=per_page)
    cycles = measure_cycles(bundle, sample)
    searched = training if found is None else replace(training, design=found.overrides)
    sizes = request.shards
    rows = request.rows if sizes is None else round(sizes.rows)
    known = training.relation.pages if sizes is None or training.relation.pages is None else round(sizes.pages)
    pages = None if permuted and rows is not None else known
    if pages is None and rows is not None:
        pages = sample.pages_of(rows)
    if layout is None and pages is not None and sample.pages == 1:
        layout = _full(pages, rows, sample)
    table = _Table(schema=training.relation.schema, bundle=bundle, sample=sample, cycles=cycles, layout=layout or ())
    epoch = None if pages is None else table.epoch(pages, rows)
    explained: Json = {
        "rule": training.rule,
        "source": training.relation.name,
        "features": list(design.features),
        "labels": list(design.labels),
        "batch": None if bundle.batch == WHOLE_EPOCH else bundle.rule_batch,
        "side_by_side": bundle.batch if bundle.cut else None,
        "record_bytes": bundle.table_offsets[-1] if bundle.tables else None,
        "epochs": training.epochs or design.epochs,
        **_message_bytes(training, design),
        "numbers": sum(fill.count for fill in bundle.fills),
        "sync_errors": sync_errors(training),
        "reads": {
            "frames": stream is not None,
            "page_bytes": bundle.config.page_size,
            "pages": pages,
            "empty": table.empty(pages or 0),
            "tuples": sample.rows,
            "counted": stream is not None or request.rows is not None,
            "pages_of_a_tuple": sample.pages,
        },
        "made_for": training.device if found is None else device.name,
        "machine": {**bundle.config.to_json(), "lanes": bundle.config.lanes, "units": bundle.config.units},
        "program": {
            "engine": len(bundle.program),
            "strider": len(bundle.strider),
            "descriptors": len(bundle.columns),
            "tuples_of_a_round": bundle.round_tuples,
        },
        "cycles": _cycles(cycles),
        "why": why(searched, replace(design, bundle=bundle), sample, cycles, designs),
        "epoch": None if pages is None or epoch is None else _epoch(bundle.config, epoch, pages),
        "area": _area(bundle.config, device),
        "search": None if found is None else _searched(found),
        "last_run": None
        if request.last is None
        else _last_run(request.last, _differences(request.last, training, design), table, pages, rows, epoch),
        "shards": None,
    }
    if sizes is None:
        return explained
    costs = [asdict(one) for one in costs_over(cast("Plan", explained), sizes)]
    return {**explained, "shards": {**asdict(sizes), "costs": costs}}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Table:
    """Estimates the cycles of an epoch over pages with different numbers of rows.

    Attributes
    ----------
    sample, cycles
        A page with the mean number of rows of non-empty pages, and its cycles.
    layout
        Counts of sampled pages, each representing the same number of pages; empty: all pages are like the sample.
    """

    schema: TableSchema
    bundle: Bundle
    sample: Sample
    cycles: Cycles
    layout: PageCounts

    def empty(self, pages: int) -> int:
        """Estimate the number of empty pages among `pages`."""
        return round(sum(not tuples for tuples, _ in self.layout) * pages / len(self.layout)) if self.layout else 0

    def epoch(self, pages: int, rows: int | None) -> float:
        """Estimate the cycles of an epoch; `rows` None: every page has as many rows as the sample."""
        if not self.layout or self.bundle.tables:  # the simulator counts no waits for records
            return self.cycles.epoch(pages) if rows is None else self.alike(pages, rows)
        counted = count_cycles(
            self.bundle, sample_table(self.schema, page_size=self.bundle.config.page_size, counts=self.layout)
        )
        # what an epoch takes once is in `counted` already; only the rest grows with the pages
        return counted + (counted - self.cycles.fixed) * (pages / len(self.layout) - 1)

    def alike(self, pages: int, rows: int) -> float:
        """Estimate the cycles if all rows are on pages like the sample and empty pages follow.

        The engine is still busy while the first empty pages arrive, so they add no cycles.
        """
        # not more than there are: counts of ANALYZE may be older than the pages
        filled = min(pages, rows * self.sample.pages / self.sample.rows)
        return self.cycles.epoch(filled) + max(0, pages - filled - self.bundle.config.striders) * self.cycles.link


def _message_bytes(training: TrainRequest, design: Design) -> Json:
    """Return what a part of a training on several servers sends: a number and the merges of a batch; its models.

    And the bytes of the models as they are stored.
    """
    extents = chosen_extents(design.extents, training.hyper)
    graph = bind_request(rule_graph(training), training, extents).graph
    merged = [math.prod(graph.concrete_shape(node.id)) for node in graph.nodes if node.op is Op.MERGE]
    losses = [] if graph.loss is None else [1]
    models = {k: math.prod(graph.concrete_shape(k)) for k in graph.models}
    narrow = sum(size for k, size in models.items() if graph.nodes[k].init.narrow)
    sent = 4 * sum(models.values())
    return {"merged_bytes": 4 * (1 + sum(merged + losses)), "model_bytes": sent, "stored_bytes": sent - 2 * narrow}


def _full(pages: int, rows: int | None, sample: Sample) -> PageCounts:
    """Return the counts of pages that are full except for the last one."""
    if pages > MAX_PAGES or rows is None:
        return []
    return [(count, count) for k in range(pages) if (count := min(sample.rows, rows - k * sample.rows)) > 0]


def _per_page(relation: Relation, layout: PageCounts | None, *, full: bool) -> int | None:
    """Return the rows of a page, on average or of full pages; None: as many as fit."""
    counts = [tuples for tuples, _ in layout or () if tuples]
    fixed = all(one.length >= 0 or one.array_length is not None for one in relation.attributes if not one.dropped)
    if full:
        # a dead tuple took room, too, and its line pointer stays; the last page may not be full
        counts = [] if fixed else [pointers for _, pointers in (layout or ())[:-1] or layout or () if pointers]
    return round(sum(counts) / len(counts)) if counts else None


def _search(training: TrainRequest, design: Design, device: Device, tuples: int | None) -> Exploration:
    schema = training.relation.schema
    graph = rule_graph(training)
    extents = chosen_extents(design.extents, training.hyper)
    binding = bind_request(graph, training, extents)
    batch = design.bundle.rule_batch
    if batch != binding.graph.batch and batch != WHOLE_EPOCH:  # set by the caller
        binding = replace(binding, graph=replace(binding.graph, batch=batch))
    return explore(
        binding,
        schema,
        device,
        max_tuples=tuple_bound(training),
        page_size=training.relation.page_size,
        tuples=tuples,
        design=training.design,
    )


def _cycles(cycles: Cycles) -> Json:
    return {
        "tuple": cycles.per_tuple,
        "page": cycles.page,
        "fixed": cycles.fixed,
        "busy": {
            "link": cycles.link_use,
            "unpacker": cycles.unpacker / cycles.page,
            "engine": cycles.engine / cycles.page,
            "units": cycles.unit_use,
        },
        "waits_for": cycles.bottleneck,
        "repeats": cycles.repeats,
    }


def _epoch(config: MachineConfig, cycles: float, pages: int) -> Json:
    return {
        "cycles": round(cycles),
        "seconds": cycles / config.clock_hz,
        "bytes_per_second": pages * config.page_size * config.clock_hz / cycles if cycles else 0.0,
    }


def _area(config: MachineConfig, device: Device) -> Json:
    area = area_of(config, device.family)
    parts = {
        name: {"used": getattr(area, name), "usable": int(getattr(device, name) * device.usable)}
        for name in RESOURCES
        # a resource that neither has is left out; one that only the machine takes does not fit
        if getattr(device, name) or getattr(area, name)
    }
    fits = all(part["used"] <= part["usable"] for part in parts.values())
    chosen = {"chosen": UNMEASURED[device.family]} if device.family in UNMEASURED else {}
    return {"device": device.name, "fits": fits, **chosen, **parts}


def _searched(found: Exploration) -> Json:
    return {
        "machines": len(found.candidates),
        "fitting": sum(candidate.fits for candidate in found.candidates),
        "above_bound": found.gap,
        "design": found.overrides,
    }


def _differences(run: LastRun, training: TrainRequest, design: Design) -> list[str]:
    """Return how the run differs from the explained training; its cycles are then not comparable."""
    chosen = meta_values(design.metas, training.hyper, design.extents) | design.extents
    changed = {name: value for name, value in run.hyper.items() if chosen.get(name) != value}
    made = ["another text of the rule"] if run.rule != digest_of(training.text) else []
    if run.features != design.features:
        made.append(f"features {', '.join(run.features)}")
    if run.labels != design.labels:
        made.append(f"label {', '.join(run.labels)}")
    if changed:
        made.append(f"hyper {json.dumps(changed)}")
    return made


def _last_run(
    run: LastRun, others: list[str], table: _Table, pages: int | None, rows: int | None, epoch: float | None
) -> Json:
    """Return the run, and the estimate for its pages and rows if it was the same training on the same machine."""
    machine, config = run.config, table.bundle.config
    # cycles do not depend on the clock
    same = machine is not None and {**machine, "clock_hz": config.clock_hz} == config.to_json()
    estimate = error = None
    if same and not others and run.cycles and run.epochs > 0:
        # dana.run counts pages over all epochs, rows of the kept epoch
        read, taken = run.pages // run.epochs, run.tuples + run.skipped
        if epoch is None or rows is None or pages is None or abs(read - pages) > NEAR * pages:
            epoch = table.alike(read, taken)
        else:
            # the number of rows changed a little since; of rows that are laid out anew, pages are an estimate
            epoch += (taken - rows) * table.cycles.per_tuple
        estimate = round(run.epochs * epoch)
        error = estimate / run.cycles - 1
    return {
        **{name: getattr(run, name) for name in SHOWN},
        "same_machine": same,
        "differences": others,
        "estimated_cycles": estimate,
        "error": error,
    }


def lines(explained: Json) -> list[str]:
    """Format an explanation as lines, in the layout of EXPLAIN."""
    machine, program, cycles, reads = (explained[name] for name in ("machine", "program", "cycles", "reads"))
    labels = "".join(f", label {name}" for name in explained["labels"])
    batch = "one batch an epoch" if explained["batch"] is None else f"batches of {explained['batch']}"
    busy = cycles["busy"]
    made = [
        f"Rule {explained['rule']} on {explained['source']}",
        f"  {counted(len(explained['features']), 'column')} as features{labels}; {batch}, "
        f"{counted(explained['epochs'], 'epoch')}",
        f"Machine: {counted(machine['threads'], 'thread')} × {counted(machine['clusters'], 'cluster')} × "
        f"{LANES_PER_CLUSTER} = {machine['units']} units, {counted(machine['striders'], 'Strider')}, "
        f"{machine['clock_hz'] / 1e6:.0f} MHz, made for {explained['made_for'] or 'no device'}",
        f"  page store {machine['striders']} × {machine['page_size']} bytes, page link of {machine['link_bytes']} "
        f"bytes{_supply(machine)}",
        f"  words of a unit: {machine['scratch_depth']} of scratchpad{_narrow(machine)}, {machine['tuple_depth']} of "
        f"tuple memory; {machine['queue_depth']} entries of a Strider's queue",
        f"  {_functions(machine['functions'], machine['divide_interval'])}",
        *([f"  {machine['converters']} converters of types other than real"] if machine["converters"] > 1 else []),
        f"Program: {program['engine']} instructions of {machine['program_depth']}, a Strider's {program['strider']} of "
        f"{machine['strider_depth']}, {program['descriptors']} columns of {machine['descriptor_depth']}",
        f"  {program['tuples_of_a_round']} tuples of a round",
        *([_stored(explained)] if explained["stored_bytes"] < explained["model_bytes"] else []),
        *([_together(explained["side_by_side"])] if explained["side_by_side"] else []),
        *([f"  {records_text(explained['record_bytes'])}"] if explained["record_bytes"] else []),
        f"Reads: {_reads(reads)}",
        f"Cycles: {cycles['tuple']:.2f} of a tuple, waits for {cycles['waits_for']}",
        f"  busy: link {busy['link']:.0%}, unpacker {busy['unpacker']:.0%}, engine {busy['engine']:.0%}, "
        f"units {busy['units']:.0%}",
    ]
    made += [f"  {repeats_text(cycles['repeats'])}"] if cycles["repeats"] else []
    made.append(f"  why: {explained['why']['text']}")
    epoch = explained["epoch"]
    if epoch is not None:
        made.append(
            f"  epoch: {epoch['cycles']:,} cycles, {1e3 * epoch['seconds']:.2f} ms, "
            f"{epoch['bytes_per_second'] / 1e9:.1f} GB/s"
        )
    area = explained["area"]
    other = "" if area["fits"] else f"; with dana.device = '{area['device']}' a machine is made that fits"
    chosen = f" (chosen, not measured: {area['chosen']})" if "chosen" in area else ""
    made.append(f"Area on {area['device']}{chosen}: {'fits' if area['fits'] else 'too big'}; of what a design may take")
    made.append(
        "  " + ", ".join(_part(area[name], written) for name, written in RESOURCES.items() if name in area) + other
    )
    if explained["search"] is not None:
        made += _search_lines(explained["search"])
    made += _last_lines(explained["last_run"])
    if explained["shards"] is not None:
        made += _shard_lines(explained["shards"])
    return made


def _narrow(machine: Json) -> str:
    """Format which rows are narrow."""
    return f" ({machine['wide_depth']} of 32 bits, the others of 16)" if machine["wide_depth"] else ""


def _stored(explained: Json) -> str:
    """Format the bytes of models of bfloat16."""
    return (
        f"  models and states of {explained['stored_bytes']:,} bytes with numbers of bfloat16, of "
        f"{explained['model_bytes']:,} without"
    )


def _together(tuples: int) -> str:
    return (
        f"  up to {tuples} tuples side by side: a batch ends where one chooses a row of a model again, which is not in "
        "the estimate"
    )


def counted(number: int, what: str) -> str:
    """Format a number with its noun, in the plural if it is not 1."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _supply(machine: Json) -> str:
    """Format the rate of the page link, which memory may limit."""
    sent = machine["link_rate"] / RATE_CYCLES
    return f", at which {sent:.4g} arrive in a cycle" if 0 < sent < machine["link_bytes"] else " a cycle"


def _functions(mask: int, interval: int) -> str:
    present = [op for bit, op in enumerate(FUNCTIONS) if mask >> bit & 1]
    divides = (
        f", {counted(interval, 'cycle')} between two quotients or roots"
        if {Opcode.DIV, Opcode.SQRT} & {*present}
        else ""
    )
    names = "all" if len(present) == len(FUNCTIONS) else " ".join(op.name.lower() for op in present) or "none"
    return f"functions of a cluster: {names}{divides}"


def _reads(reads: Json) -> str:
    pages = "pages" if reads["pages"] is None else counted(reads["pages"], "page")
    made = "rows, made into " if reads["frames"] else ""
    if reads["pages_of_a_tuple"] > 1:
        return f"{made}{pages} of {reads['page_bytes']} bytes, {reads['pages_of_a_tuple']} to a tuple"
    full = "" if reads["counted"] else ", as many as fit: no ANALYZE has counted them"
    empty = f", {reads['empty']:,} without a row" if reads["empty"] else ""
    return f"{made}{pages} of {reads['page_bytes']} bytes, {counted(reads['tuples'], 'tuple')} each{full}{empty}"


def _part(part: Json, written: str) -> str:
    return f"{written} {part['used'] / part['usable']:.0%}"


def _search_lines(search: Json) -> list[str]:
    return [
        f"Best of {counted(search['machines'], 'machine')} ({search['fitting']} fit); "
        f"{search['above_bound']:.1%} above the bound of link, units and a batch's steps",
        f"  design => '{json.dumps(search['design'])}'",
    ]


def _last_lines(run: Json | None) -> list[str]:
    if run is None:
        return ["Last run: none of this rule on this source that you may see"]
    made = [
        f"Last run: {run['id']} of {run['started']} on {run['machine']}, "
        f"{counted(run['epochs'], 'epoch')} of {counted(run['tuples'], 'tuple')}, {1e3 * run['wall_seconds']:,.1f} ms"
    ]
    if run["cycles"] is None:
        made.append("  without a machine, so without cycles")
    elif run["differences"]:
        made.append(f"  {run['cycles']:,} cycles, of another training: {'; '.join(run['differences'])}")
    elif not run["same_machine"]:
        made.append(f"  {run['cycles']:,} cycles, on another machine than this one")
    else:
        made.append(f"  {run['cycles']:,} cycles; estimated {run['estimated_cycles']:,} ({run['error']:+.1%})")
    return made


def _shard_lines(shards: Json) -> list[str]:
    made = [
        f"Shards: {shards['count']:,} on {counted(shards['hosts'], 'machine')}, "
        f"{counted(round(shards['rows']), 'row')} on {counted(round(shards['pages']), 'page')}; "
        "estimated for the whole training"
    ]
    for cost in shards["costs"]:
        if cost["error"] is not None:
            made.append(f"  {cost['sync']}: {cost['error']}")
            continue
        waiting = f", waiting {cost['waiting']:.0%} of an epoch" if cost["rounds"] else ""
        made.append(
            f"  {cost['sync']}: {cost['seconds']:,.2f} s, {cost['bytes'] / 1e6:,.1f} MB relayed, "
            f"{counted(cost['rounds'], 'round')}{waiting}; least time on {counted(cost['servers'], 'server')}"
        )
        if cost["warning"] is not None:
            made.append(f"    {cost['warning']}")
    return made
