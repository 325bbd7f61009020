"""The best machine for a rule, a table and a device.

In: a bound rule, the table's schema and a device. Out: an `Exploration`: every machine that was tried, which of them
fit, and the best, with a bound that no machine of the device can exceed.

All ways of dividing units into threads and clusters are compiled and measured; there are at most 35. Memories follow
from the rule (`dana.codesign.default`), and are halved while they are too large for the device; the number of Striders
is the least that is as fast as the most; special functions are the rule's. So the search is exhaustive in these
dimensions, and `Exploration.gap` says how far its best is from what cannot be beaten.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from dana.codesign.area import WITHOUT_CHOICE, Area, area_of
from dana.codesign.chosen import (
    against_records,
    may_have_records,
    needed_for_records,
    overrides_text,
    record_depth,
    to_records,
)
from dana.codesign.cycles import Cycles, measure_cycles
from dana.codesign.default import check_overrides, default_bundle
from dana.codesign.fitting import (
    BLOCK,
    MEMORIES,
    NARROWEST_LINK,
    at_rate,
    holds_models,
    links,
    on_pages,
    smaller_memory,
    uses,
    with_ultra,
)
from dana.codesign.sample import Sample, sample_pages
from dana.compiler.binding.columns import Binding
from dana.compiler.compile import plan_for
from dana.compiler.place.sections import Plan
from dana.compiler.rounds import BLOCK_ROWS
from dana.compiler.target import DoesNotFit
from dana.errors import UsageError
from dana.storage.schema import TableSchema
from hwgen.devices import Device, device_names, load_device
from hwgen.spec.bundle import Bundle
from hwgen.spec.config import (
    LANES_PER_CLUSTER,
    LEAST_BEATS,
    RATE_CYCLES,
    WIDEST_LINK,
    functions_mask,
    most_link_bytes,
)
from hwgen.spec.timing import DIVIDE_INTERVALS

THREADS = (1, 2, 4, 8, 16, 32, 64)
CLUSTERS = (1, 2, 4, 8, 16)
OVERRIDES = (
    "threads",
    "clusters",
    "striders",
    "queue_depth",
    "tuple_depth",
    "scratch_depth",
    "ultra",
    "link_bytes",
    "link_rate",
    "clock_hz",
    "divide_interval",
    "functions",
    "crossed",
    "converters",
    "pause",
)
OF_AREA = (*(name for name in OVERRIDES if name not in ("link_bytes", "link_rate", "clock_hz")), "record_depth")
"""Overrides without which a machine may be smaller."""

NEAREST = ("threads", "clusters", "queue_depth")
"""Fields of the machine that comes nearest a device, with which smaller memories are tried."""

ALWAYS = (
    "page_size",
    "link_bytes",
    "link_rate",
    "clock_hz",
    "record_depth",
    "divide_interval",
    "striders",
    "converters",
    "pause",
)
"""Fields that do not change when a machine is shrunk."""

STRIDERS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
AS_FAST = 1.01
"""Machines within this ratio of cycles count as equally fast; the smaller one is better."""

SHORT_QUEUE = 16
"""Entries of a Strider's queue at the least; they are LUTs."""


@dataclass(frozen=True, slots=True)
class _Job:
    """Arguments common to all candidates."""

    binding: Binding
    schema: TableSchema
    device: Device
    max_tuples: int
    sample: Sample
    links: tuple[int, ...]
    """Bytes of the links that are tried, narrowest first."""

    def measure(self, bundle: Bundle) -> Cycles:
        return measure_cycles(bundle, self.sample)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Candidate:
    """A machine, measured and estimated."""

    bundle: Bundle
    cycles: Cycles
    area: Area
    device: Device

    @property
    def link_use(self) -> float:
        """Fraction of the bytes that come, of those that the device's memory sends, however wide the link is."""
        config = self.bundle.config
        return config.page_size * config.clock_hz / self.cycles.page / self.device.page_bandwidth

    @property
    def fits(self) -> bool:
        """Whether the device holds it."""
        return self.use <= 1

    @property
    def use(self) -> float:
        """The scarcest resource: fraction that it takes of what a design may take."""
        return max(self.uses.values())

    @property
    def uses(self) -> dict[str, float]:
        """Fraction of each resource that a design may take, by the name of `Area`'s fields."""
        return uses(self.area, self.device)


@dataclass(frozen=True, slots=True, kw_only=True)
class Exploration:
    """Result of the search.

    Attributes
    ----------
    candidates
        The fastest machine of each division into threads and clusters, fastest first, those that do not fit included.
    best
        The fastest that fits; of those as fast, the smallest.
    bound
        Cycles of a page below which no machine of the device gets: those of its link, of the operations on as many
        units as it can hold, or `steps`.
    steps
        Cycles of a page that a batch's steps take which wait for each other: the least of any machine that was tried,
        however large. A larger batch has fewer of them for a tuple.
    """

    candidates: tuple[Candidate, ...]
    best: Candidate
    bound: float
    steps: float

    @property
    def gap(self) -> float:
        """How much slower than the bound the best is; 0: nothing is faster."""
        return self.best.cycles.page / self.bound - 1

    @property
    def overrides(self) -> dict[str, int]:
        """The best machine as a training's ``design``: what does not follow from the rule."""
        config = self.best.bundle.config
        # also that there are none, where the rule may have some
        records = {"record_depth": config.record_depth} if config.watch_depth else {}
        return {**{name: getattr(config, name) for name in OVERRIDES}, **records}


def explore(
    binding: Binding,
    schema: TableSchema,
    device: Device,
    *,
    max_tuples: int,
    page_size: int = 8192,
    tuples: int | None = None,
    design: Mapping[str, int] | None = None,
) -> Exploration:
    """Compile and measure every division of units that may fit the device.

    Parameters
    ----------
    max_tuples
        Tuples that an epoch has at most.
    tuples
        Tuples on a page; None: as many as fit.
    design
        Fields of the machine that are as the user says.

    Raises
    ------
    UsageError
        No machine for this rule fits the device; says by how much, and what would. Or `design` wants other pages.
    """
    given = dict(design or {})
    check_overrides(given)
    sample = sample_pages(schema, page_size=page_size, tuples=tuples)
    fixed = at_rate(device, on_pages(given, page_size))
    widths = (given["link_bytes"],) if "link_bytes" in given else links(device)
    job = _Job(binding, schema, device, max_tuples, sample, widths)
    plan = plan_for(binding.graph, schema)
    tried: dict[Candidate, Candidate] = {}
    too_large: DoesNotFit | None = None
    for memory in _memories(plan, device, given):
        found, too_large = _tried(job, plan, {**given, **memory}, {**fixed, **memory})
        tried |= found
    if not tried:
        assert too_large is not None
        raise too_large
    shrunk = [*tried.values()]
    fitting = [candidate for candidate in shrunk if candidate.fits]
    if not fitting:
        raise _nothing_fits(job, plan, shrunk, given)
    fastest = min(candidate.cycles.page for candidate in fitting)
    best = min(
        (candidate for candidate in fitting if candidate.cycles.page <= AS_FAST * fastest),
        key=lambda candidate: (candidate.use, candidate.cycles.page),
    )
    shown = [smaller if smaller.fits else one for one, smaller in tried.items()]
    steps = min(candidate.cycles.engine for candidate in (*shrunk, *shown))
    return Exploration(
        candidates=tuple(sorted(shown, key=lambda candidate: candidate.cycles.page)),
        best=best,
        bound=max(steps, _bound(shrunk, device, given)),
        steps=steps,
    )


def _memories(plan: Plan, device: Device, given: Mapping[str, int]) -> list[dict[str, int]]:
    """Where the models of chosen rows may lie, as overrides: in scratchpads, in records, or as the user says."""
    if not may_have_records(plan, given):
        return [{}]
    scratchpads = any(holds_models(plan, device, count) for count in _choices(given, "clusters", CLUSTERS))
    return [*([{"record_depth": 0}] if scratchpads else []), {"record_depth": record_depth(plan)}]


def _tried(
    job: _Job, plan: Plan, given: Mapping[str, int], fixed: Mapping[str, int]
) -> tuple[dict[Candidate, Candidate], DoesNotFit | None]:
    """Return the fastest machine of each division of units, mapped to the same machine shrunk until the device holds
    it; and the error of the last division that cannot hold the rule."""
    found: dict[Candidate, Candidate] = {}
    too_large: DoesNotFit | None = None
    # where one thread does all the work, more of them would only repeat it
    useful = THREADS[:1] if plan.alone and not given.get("record_depth") else THREADS
    wide = [count for count in CLUSTERS if not given.get("record_depth") or to_records(count)]
    for threads in _choices(given, "threads", useful):
        for clusters in _choices(given, "clusters", wide):
            overrides = {**fixed, "threads": threads, "clusters": clusters}
            most = most_link_bytes(clusters * LANES_PER_CLUSTER, job.sample.page_size)
            if NARROWEST_LINK <= most < given.get("link_bytes", 0):
                too_large = _too_wide(given["link_bytes"], most, clusters, job.sample.page_size)
                continue
            overrides["link_bytes"] = min(job.links[-1], most)
            try:
                candidate = _fastest(job, overrides)
            except DoesNotFit as error:
                too_large = error
                continue
            # the larger one is kept, too: it is shown if the smaller one does not fit, and counts for `steps`
            found[candidate] = _shrunk_to_fit(job, plan, candidate, overrides, given)
    return found, too_large


def _too_wide(width: int, most: int, clusters: int, page_size: int) -> DoesNotFit:
    """The error of a link that is wider than a machine takes."""
    return DoesNotFit(
        f"link_bytes must be a power of two from {NARROWEST_LINK} to {most} on a machine with clusters={clusters} and "
        f"pages of {page_size} bytes, not {width}",
        hint=f"A link takes {8 * LANES_PER_CLUSTER} bytes for each cluster at the most, and a page {LEAST_BEATS} beats "
        f"at least; no link takes more than {WIDEST_LINK} bytes.",
    )


def _choices(given: Mapping[str, int], name: str, all_of_them: Sequence[int]) -> Sequence[int]:
    return (given[name],) if name in given else all_of_them


def _fastest(job: _Job, overrides: Mapping[str, int], at_most: Mapping[str, int] | None = None) -> Candidate:
    """The narrowest link, the least Striders and converters that are as fast as the widest and the most, for one
    division."""
    choices = _choices(overrides, "striders", STRIDERS)
    most = default_bundle(
        job.binding,
        job.schema,
        max_tuples=job.max_tuples,
        design={**overrides, "striders": choices[-1]},
        at_most=at_most,
    )
    # hardware for the rule's operations and no others, unless the user wants it for other rules, too
    own = {
        "functions": functions_mask(instruction.op for instruction in most.program),
        "crossed": int(any(instruction.crossed for instruction in most.program)),
    }
    lanes = most.config.lanes
    converts = any(column.beats(lanes, lanes) < column.beats(lanes, 1) for column in most.columns)
    own["converters"] = lanes if converts else 1
    chosen = {name: overrides.get(name, value) for name, value in own.items()}
    most = replace(most, config=replace(most.config, **chosen))
    goal = AS_FAST * job.measure(most).page
    # from the narrowest; with the last one `narrow` is the machine that set the goal
    for link in job.links:
        narrow = replace(most, config=replace(most.config, link_bytes=min(link, most.config.link_bytes)))
        if narrow.config.link_bytes == most.config.link_bytes or job.measure(narrow).page <= goal:
            break
    best = _least(job, narrow, "striders", choices, goal)
    if "converters" not in overrides:
        best = _least(job, best, "converters", [1 << k for k in range(own["converters"].bit_length())], goal)
    return _candidate(job, with_ultra(best, job.device, overrides))


def _least(job: _Job, bundle: Bundle, name: str, choices: Sequence[int], goal: float) -> Bundle:
    """The Bundle with the least of the choices for a field that reaches so few cycles; if none does, the last."""
    bundles = [replace(bundle, config=replace(bundle.config, **{name: choice})) for choice in choices]
    # cycles never grow with Striders or converters
    return bundles[bisect_left(range(len(bundles) - 1), True, key=lambda k: job.measure(bundles[k]).page <= goal)]


def _candidate(job: _Job, bundle: Bundle) -> Candidate:
    return Candidate(
        bundle=bundle,
        cycles=job.measure(bundle),
        area=area_of(bundle.config, job.device.family),
        device=job.device,
    )


def _shrunk_to_fit(
    job: _Job, plan: Plan, candidate: Candidate, overrides: Mapping[str, int], given: Mapping[str, int]
) -> Candidate:
    """Where logic is what the device lacks: smaller division units, exchanges that do not cross, if the rule can do
    without, shorter queues, and fewer converters; where it is block RAM: smaller memories; then fewer Striders, until
    it is enough. Nothing is tried with more units than the device holds, or with models that it does not."""
    if not (candidate.bundle.tables or holds_models(plan, job.device, candidate.bundle.config.clusters)):
        return candidate
    if candidate.bundle.config.units > LANES_PER_CLUSTER:
        fields = {"striders": 1, "divide_interval": DIVIDE_INTERVALS[0], "crossed": given.get("crossed", 0)}
        # no logic depends on it, and it must be below the scratchpad's depth
        fields["wide_depth"] = 0
        fields["queue_depth"] = given.get("queue_depth", SHORT_QUEUE)
        fields["converters"] = given.get("converters", 1)
        depths = {
            name: min(getattr(candidate.bundle.config, name), WITHOUT_CHOICE)
            for name in ("scratch_depth", "tuple_depth")
        }
        config = replace(candidate.bundle.config, **fields, **depths)
        # the division in its smallest form: if its logic alone is too much, nothing below helps
        least = replace(candidate, area=area_of(config, job.device.family)).uses
        if max(use for name, use in least.items() if name not in MEMORIES) > 1:
            return candidate
    for interval in reversed(DIVIDE_INTERVALS):
        if candidate.uses["luts"] <= 1 or "divide_interval" in given:
            break
        if interval > candidate.bundle.config.divide_interval:
            overrides = {**overrides, "divide_interval": interval}
            # compiled again, because the schedule depends on the interval
            candidate = _fastest(job, overrides)
    candidate = _with_less_memory(job, candidate, overrides, given)
    # after the memories: in smaller ones, rounds are shorter, and threads share more of a batch's work
    if candidate.uses["luts"] > 1 and candidate.bundle.config.crossed and "crossed" not in given:
        with contextlib.suppress(DoesNotFit):
            # with memories of its own: without crossed exchanges, a rule may need deeper ones
            plain = {**overrides, "crossed": 0}
            candidate = _with_less_memory(job, _fastest(job, plain), plain, given)
    queue = candidate.bundle.config.queue_depth
    while "queue_depth" not in given and candidate.uses["luts"] > 1 and queue > SHORT_QUEUE:
        queue //= 2
        shorter = replace(candidate.bundle, config=replace(candidate.bundle.config, queue_depth=queue))
        candidate = _candidate(job, with_ultra(shorter, job.device, given))
    while "converters" not in given and candidate.uses["luts"] > 1 and candidate.bundle.config.converters > 1:
        fewer = candidate.bundle.config.converters // 2
        config = replace(candidate.bundle.config, converters=fewer)
        candidate = _candidate(job, replace(candidate.bundle, config=config))
    while "striders" not in given and not candidate.fits and candidate.bundle.config.striders > 1:
        bundle = candidate.bundle
        fewer = max(count for count in STRIDERS if count < bundle.config.striders)
        # the same program: Striders and queues are not in the schedule
        less = replace(bundle, config=replace(bundle.config, striders=fewer))
        candidate = _candidate(job, with_ultra(less, job.device, given))
    return candidate


def _with_less_memory(
    job: _Job, candidate: Candidate, overrides: Mapping[str, int], given: Mapping[str, int]
) -> Candidate:
    """With memories halved until the device has enough block RAM and LUTs, or the rule lets them no further."""
    at_most: dict[str, int] = {}
    for name in ("scratch_depth", "tuple_depth"):
        while name not in given:
            depth = getattr(candidate.bundle.config, name)
            if not _lacks_memory(candidate) and not (candidate.uses["luts"] > 1 and depth > WITHOUT_CHOICE):
                break
            smaller = {**at_most, name: smaller_memory(depth, job.device)}
            if smaller[name] == depth:
                break
            try:
                candidate = _fastest(job, overrides, smaller)
            except DoesNotFit:
                break
            at_most = smaller
    return candidate


def _lacks_memory(candidate: Candidate) -> bool:
    return any(candidate.uses[name] > 1 for name in MEMORIES)


def _bound(found: list[Candidate], device: Device, given: Mapping[str, int]) -> float:
    """Cycles of a page that neither the device's memory nor its units can pass.

    The number of units is the largest of all divisions with logic that fits the device, memory aside.
    """
    # memory aside, because memories can be halved and logic cannot
    logic = [c for c in found if max(use for name, use in c.uses.items() if name not in MEMORIES) <= 1]
    # the operations of a page on the machine that needs the fewest: exchanges and idle lanes add to them
    work = min(candidate.cycles.rows * candidate.bundle.config.units for candidate in found)
    config = found[0].bundle.config
    # the user's rate, where there is one; else the device's, to the last byte
    sends = given["link_rate"] / RATE_CYCLES if given.get("link_rate") else device.page_bandwidth / config.clock_hz
    return max(config.page_size / sends, work / max(candidate.bundle.config.units for candidate in logic))


def _nothing_fits(job: _Job, plan: Plan, found: list[Candidate], given: Mapping[str, int]) -> UsageError:
    """The error when nothing fits: resources that the nearest machine lacks, with hints for what would fit."""
    fewest = {"striders": 1, "queue_depth": SHORT_QUEUE, "converters": 1}
    least = {name: few for name, few in fewest.items() if name not in given}
    smallest = min((_resized(candidate, least) for candidate in found), key=lambda candidate: candidate.use)
    if smallest.bundle.tables or holds_models(plan, job.device, smallest.bundle.config.clusters):
        # the search did not try this for a machine with too much logic
        asked = {name: getattr(smallest.bundle.config, name) for name in (*NEAREST, *given, *ALWAYS)}
        smallest = min(smallest, _with_less_memory(job, smallest, asked, given), key=lambda one: one.use)
    device, area, config = smallest.device, smallest.area, smallest.bundle.config
    over = [
        _lack(name, getattr(area, name), getattr(device, name), device)
        for name, use in smallest.uses.items()
        if use > 1
    ]
    striders = f"{config.striders} Strider{'s' if config.striders > 1 else ''}"
    hints = [_device_that_fits(found)]
    against = against_records(plan, given) if plan.watched and not smallest.bundle.tables else []
    if against:
        hints.append(
            "Models with rows chosen by tuples may lie in external memory; the machine must have "
            f"{needed_for_records(plan)}; not {overrides_text(given, against)}."
        )
    dropped = against or [name for name in given if name in OF_AREA]
    if dropped:
        hints.append(_without(job, given, dropped))
    if _lacks_memory(smallest):
        hints.append(_memory_that_fits(smallest))
    return UsageError(
        f"no machine for this rule fits {device.name}: what comes nearest, {config.units} units and {striders}, "
        f"takes {', '.join(over)}",
        hint=" ".join(hints),
    )


def _resized(candidate: Candidate, fields: Mapping[str, int]) -> Candidate:
    """The same program on a machine of other Striders or queues; its cycles are the other's."""
    config = replace(candidate.bundle.config, **fields)
    area = area_of(config, candidate.device.family)
    return replace(candidate, bundle=replace(candidate.bundle, config=config), area=area)


def _lack(name: str, takes: int, has: int, device: Device) -> str:
    """How much of a resource is too much, in words."""
    said, usable = f"{takes:,} {name.replace('_', ' ')}", int(has * device.usable)
    return (
        f"{said} of {usable:,} ({takes / (has * device.usable):.2f} times as many)"
        if has
        else f"{said}, but {device.name} has none"
    )


def _without(job: _Job, given: Mapping[str, int], dropped: Sequence[str]) -> str:
    """Result of a search without some overrides, in words."""
    said = overrides_text(given, dropped)
    try:
        config = explore(
            job.binding,
            job.schema,
            job.device,
            max_tuples=job.max_tuples,
            page_size=job.sample.page_size,
            tuples=job.sample.rows,
            design={name: value for name, value in given.items() if name not in dropped},
        ).best.bundle.config
    except UsageError:
        return f"Without {said}, nothing fits either."
    models = f", with models in external memory (record_depth={config.record_depth})" if config.record_depth else ""
    return f"Without {said}, a machine of {config.units} units fits {job.device.name}{models}."


def _device_that_fits(found: list[Candidate]) -> str:
    """The smallest of the known devices that holds one of the machines."""
    for other in sorted(map(load_device, device_names()), key=lambda device: device.luts):
        held = [
            candidate.bundle.config.units
            for candidate in found
            if replace(candidate, device=other, area=area_of(candidate.bundle.config, other.family)).fits
        ]
        if held:
            return f"{other.name} holds a machine for it, of up to {max(held)} units."
    return f"None of {', '.join(device_names())} holds one either."


def _memory_that_fits(candidate: Candidate) -> str:
    """The largest memories with which the machine would fit; a block RAM less in turns, of the larger one."""
    config, family = candidate.bundle.config, candidate.device.family
    scratch, tuples = config.scratch_depth, config.tuple_depth
    while max(scratch, tuples) > BLOCK:
        scratch, tuples = (scratch - BLOCK_ROWS, tuples) if scratch > tuples else (scratch, tuples - BLOCK_ROWS)
        wide = config.wide_depth if config.wide_depth < scratch else 0
        smaller = replace(config, scratch_depth=scratch, tuple_depth=tuples, wide_depth=wide)
        if not _lacks_memory(replace(candidate, area=area_of(smaller, family))):
            less = ["fewer features or smaller models"] if scratch < config.scratch_depth else []
            less += ["a smaller batch"] if tuples < config.tuple_depth else []
            return (
                f"Its block RAMs would do for {scratch:,} words of scratchpad and {tuples:,} of tuple memory in each "
                f"unit, instead of {config.scratch_depth:,} and {config.tuple_depth:,}: "
                f"{', '.join(less)}."
            )
    return "Smaller memories alone would not do."
