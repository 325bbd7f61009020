"""A sensible machine for a rule on a table, where the user does not say which.

In: a bound graph, the table's columns in use and what the user fixes. Out: a `MachineConfig`. It weighs the ways of
dividing 64 units into threads and clusters by the cycles that they take, and makes memories as deep as the
rule wants, in whole block RAMs; it does not search, and knows no device.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from functools import partial
from math import ceil, inf
from typing import Any

from dana.codesign.chosen import (
    check_records,
    may_have_records,
    moving_cycles,
    needs_records,
    record_depth,
    rows_of_tuple,
    to_records,
    together,
)
from dana.codesign.size import MAX_CONFIG, MAX_WORDS, check_size, model_words
from dana.codesign.sketch import Sketch, sketched
from dana.compiler import Binding, compile_bundle, compile_engine
from dana.compiler.compile import plan_for
from dana.compiler.fit import CLEARLY, draft_for
from dana.compiler.passes import ACCESS, RULE, Draft, Results, place, plan_of, run
from dana.compiler.place.records import needs_index
from dana.compiler.place.rows import place_inputs
from dana.compiler.place.sections import Plan
from dana.compiler.place.watch import rows_written
from dana.compiler.rounds import (
    MAX_GROUP,
    group_for,
    group_of,
    least_group,
    power_of_two,
    whole_blocks,
)
from dana.compiler.select.nest import LoopLimit
from dana.compiler.strider.program import compile_strider
from dana.compiler.target import DoesNotFit, Target
from dana.errors import UsageError
from dana.storage import layout as pages
from dana.storage import parts
from dana.storage.schema import Attribute, TableSchema, Use
from dana.storage.types import ARRAYS
from dsl.hdfg.graph import Graph
from hwgen.spec import cycles as timing
from hwgen.spec import strider
from hwgen.spec.bundle import Bundle
from hwgen.spec.config import LANES_PER_CLUSTER, ConfigError, MachineConfig, Ultra, most_link_bytes
from hwgen.spec.engine import Opcode, Section
from hwgen.spec.timing import DIVIDE_INTERVALS

CLUSTERS = 8
"""Clusters of the whole machine: 64 analytic units."""

LARGER = ((1, 2 * CLUSTERS), (2, CLUSTERS))
"""Threads and clusters for a rule with too many values for 64 units."""

ROUND_ROWS = 16384
"""Most rows of scratchpad or of tuple memory that are spent to give a thread several tuples per round."""

ROUND_GROUP = 64
"""Tuples of a thread in a round beyond which joining rounds costs next to nothing."""

SURELY = 1.05
"""A division is dropped if its lower bound exceeds this multiple of the best cycles found."""

AS_FAST = 0.05
"""Fraction of a tuple's cycles that a smaller division unit may cost."""

MAX_STRIDERS = 32
MAX_QUEUE = 1024


def default_bundle(
    binding: Binding,
    schema: TableSchema,
    *,
    max_tuples: int,
    design: Mapping[str, int] | None = None,
    widest_link: int | None = None,
    at_most: Mapping[str, int] | None = None,
) -> Bundle:
    """`compile_bundle` for the machine of `default_config`.

    Parameters
    ----------
    widest_link
        Bytes of the link where `design` does not say, or as many as the machine stores in a cycle; None: some.
    at_most
        Upper bounds of memory depths, for fields that `design` does not set.
    """
    config, draft, plan = _default(binding, schema, max_tuples, design, widest_link, at_most)
    return compile_bundle(binding, schema, config, max_tuples=max_tuples, known=draft, plan=plan)


def default_results(
    binding: Binding, schema: TableSchema, *, max_tuples: int, design: Mapping[str, int] | None = None
) -> Results:
    """Results of the passes on the way to `default_bundle`, by name."""
    config, draft, plan = _default(binding, schema, max_tuples, design)
    engine = compile_engine(binding.graph, config, max_tuples=max_tuples, known=draft, plan=plan)
    given = {"schema": schema, "uses": binding.uses, "watched": engine.draft.watched}
    rule = run(RULE, {"graph": binding.graph})
    return run(ACCESS, {**engine.results, **rule, "plan": plan, **given})


def default_config(
    binding: Binding, schema: TableSchema, *, max_tuples: int, design: Mapping[str, int] | None = None
) -> MachineConfig:
    """A machine for a rule on a table.

    Parameters
    ----------
    design
        Fields of `MachineConfig` that are as the user says.
    max_tuples
        Tuples that an epoch has at most.

    Raises
    ------
    UsageError
        `design` names no field, or a value that no machine can have; or the rule fits no machine.
    """
    return _default(binding, schema, max_tuples, design)[0]


def _default(
    binding: Binding,
    schema: TableSchema,
    max_tuples: int,
    design: Mapping[str, int] | None,
    widest_link: int | None = None,
    at_most: Mapping[str, int] | None = None,
) -> tuple[MachineConfig, Draft, Plan]:
    """The machine, the rule compiled for its target, and its plan."""
    given = dict(design or {})
    bounded = {**given, **(at_most or {})}
    graph = binding.graph
    check_overrides(bounded)
    plan = plan_for(graph, schema)
    # before anything is placed, which takes seconds for models that no machine holds
    check_size(graph, plan)
    check_records(plan, given)
    records = {**bounded, "record_depth": record_depth(plan)} if may_have_records(plan, given) else {}
    try:
        if records and needs_records(plan, given, _ways(plan, given)):
            draft = _divided(plan, max_tuples, records)
        else:
            draft = _divided(plan, max_tuples, bounded)
            if records:
                draft = _faster(plan, draft, max_tuples, records)
    except DoesNotFit as error:
        fitting = _most_of_a_round(plan, max_tuples, bounded)
        if not fitting:
            raise
        raise DoesNotFit(
            f"a batch of {plan.batch:,} rows is too large for rule {graph.name!r}: it uses values of the batch in the "
            "batch's rows again, so that a machine has to hold a whole batch, and none is large enough",
            hint=f"Use batches of up to {fitting:,} rows, or models of fewer elements.",
        ) from error
    target = draft.target
    defaults = MachineConfig()
    if widest_link is not None:
        most = most_link_bytes(target.lanes, given.get("page_size", defaults.page_size))
        given.setdefault("link_bytes", min(widest_link, most))
    chosen = {
        "threads": target.threads,
        "clusters": target.lanes // LANES_PER_CLUSTER,
        "divide_interval": target.divide_interval,
        "scratch_depth": max(defaults.scratch_depth, whole_blocks(draft.memory.rows)),
        # twice a round: one half is filled while the engine works on the other
        "tuple_depth": max(defaults.tuple_depth, whole_blocks(2 * target.group * draft.inputs.rows)),
        "program_depth": max(defaults.program_depth, power_of_two(draft.instructions)),
    }
    if needs_index(plan, records=target.records):
        chosen["index_depth"] = power_of_two(max(2, target.group * plan.entries))
    if target.records:
        chosen["record_depth"] = power_of_two(len(plan.watched) * target.together)
    if target.together > 1:
        chosen["watch_depth"] = power_of_two(rows_written(plan.watched) * target.together)
    chosen |= _access(draft, schema, binding.uses, given)
    chosen |= {name: min(chosen[name], most) for name, most in (at_most or {}).items()}
    # last, because the user's fields override the chosen ones
    chosen = {**chosen, **given}
    if draft.memory.narrow and "wide_depth" not in given and not chosen.get("ultra", 0) & Ultra.SCRATCH:
        wide = whole_blocks(draft.memory.wide)
        chosen["wide_depth"] = wide if wide < chosen["scratch_depth"] else 0
    return _config(chosen), draft, plan


def check_overrides(given: Mapping[str, Any]) -> None:
    """Raise UsageError where `given` names no fields of a machine, or gives one no whole number."""
    known = [field.name for field in fields(MachineConfig)]
    for name, value in given.items():
        if name not in known:
            raise UsageError(f"a machine has no {name!r}; it has {', '.join(known)}")
        if isinstance(value, bool) or not isinstance(value, int):
            raise UsageError(f"{name} of a machine is a whole number, not {value!r}")


def _config(values: Mapping[str, int]) -> MachineConfig:
    try:
        return MachineConfig(**values)
    except ConfigError as error:
        raise UsageError(f"no such machine: {error}") from error


def least_cycles(graph: Graph, *, max_tuples: int, design: Mapping[str, int]) -> float:
    """Cycles of a tuple on the machine of `default_config` at the least, about: nothing is scheduled.

    Raises
    ------
    UsageError
        As `default_config`; or rounds of so many tuples are more than a machine takes.
    """
    plan = plan_of(graph)
    return min((sketch.cycles for sketch in _sketches(plan, _ways(plan, design), max_tuples, design)), default=inf)


def _ways(plan: Plan, given: Mapping[str, int]) -> list[tuple[int, int]]:
    """Threads and clusters: the divisions of 64 units."""
    # threads share the rows of a batch, clusters the elements of a row: 8 × 1, 4 × 2, 2 × 4, 1 × 8
    ways = [(CLUSTERS >> k, 1 << k) for k in range(CLUSTERS.bit_length())]
    if "threads" in given or "clusters" in given:
        threads = given.get("threads", max(1, CLUSTERS // max(1, given.get("clusters", 1))))
        clusters = given.get("clusters", max(1, CLUSTERS // max(1, threads)))
        ways = [(threads, clusters)]
    # an invalid number is reported before it divides anything
    _config({"threads": ways[0][0], "clusters": ways[0][1]})
    if given.get("record_depth") and plan.watched:  # a row of lanes goes to the memory in a beat
        return [(threads, clusters) for threads, clusters in ways if to_records(clusters)] or ways[:1]
    if plan.alone:  # one thread's work: more of them would only repeat it
        ways = [(1, clusters) for _, clusters in ways] if "threads" not in given else ways
    return ways


def _divided(plan: Plan, max_tuples: int, given: Mapping[str, int]) -> Draft:
    """The rule compiled, for tuples side by side where they may and that fits."""
    if plan.watched:
        try:
            return _divide(plan, max_tuples, given)
        except DoesNotFit:
            if given.get("record_depth"):
                # the user asked for records, so leaving them out is no way around
                raise
            # batches of one tuple instead, which take less memory
            plan = replace(plan, watched=())
    return _divide(plan, max_tuples, given)


def _faster(plan: Plan, draft: Draft, max_tuples: int, records: Mapping[str, int]) -> Draft:
    """The draft, or the rule compiled for a machine with records where that takes fewer cycles.

    Records are the only way to give several threads tuples of one batch, but they are fetched and stored.
    """
    try:
        other = _divided(plan, max_tuples, records)
    except DoesNotFit:  # the scratchpads hold the models anyhow
        return draft
    tuples = plan.batch_tuples(max_tuples)
    return min(draft, other, key=lambda one: _cycles_per_tuple(one, max(one.target.together, tuples)))


def _tuples(plan: Plan, max_tuples: int, given: Mapping[str, int]) -> int:
    """Tuples of a batch, at most."""
    return max(plan.batch_tuples(max_tuples), together(plan, given, given.get("threads", CLUSTERS)))


def _least(plan: Plan, tuples: int, target: Target) -> int:
    """The fewest tuples per thread in a round."""
    if target.together > 1:
        return group_of(target.together, target.threads, records=target.records)
    return least_group(plan, tuples, threads=target.threads)


def _divide(plan: Plan, max_tuples: int, given: Mapping[str, int]) -> Draft:
    """The rule compiled for threads and clusters: of the ways to divide units the one of the fewest cycles a tuple.

    Models of chosen rows that no machine holds which is built are simulated: in one copy, of the fewest words.
    """
    ways, tuples = _ways(plan, given), _tuples(plan, max_tuples, given)
    most = MAX_WORDS
    words = partial(model_words, plan, records=bool(plan.watched and given.get("record_depth")))
    if plan.indexed and min(words(clusters) for _, clusters in ways) > MAX_WORDS:
        alone = [(1, clusters) for _, clusters in ways] if "threads" not in given else ways
        # of equal sizes the one with more clusters, which are faster
        ways = [min(alone, key=lambda way: (words(way[1]), -way[1]))]
        most = MAX_CONFIG.scratch_depth * ways[0][1] * LANES_PER_CLUSTER
    interval = given.get("divide_interval", DIVIDE_INTERVALS[-1])
    found: list[tuple[float, float, int, Draft]] = []
    limit: LoopLimit | None = None
    more = () if given.keys() & {"threads", "clusters", "record_depth"} or most > MAX_WORDS else LARGER
    # operations in the rule's order keep fewer values at a time
    for tried, reorder in ((ways, True), (more, True), ((*ways, *more), False)):
        sketches = _sketches(plan, tried, max_tuples, given)
        # the most promising first: what it takes lets `_roomy` give up on others early
        for sketch in sorted(sketches, key=lambda one: one.cycles):
            fitting = min((cycles for over, cycles, _, _ in found if not over), default=inf)
            lanes = sketch.target.lanes
            smallest = sketch.target.group == _least(plan, tuples, sketch.target)
            if smallest and sketch.rows > most // lanes:
                continue  # no order of operations would help, and finding one takes seconds
            try:
                draft = _roomy(plan, sketch, max_tuples, given, reorder=reorder, best=fitting)
            except LoopLimit as error:
                # kept for the message: a loop that is too long for the instruction is no lack of memory
                limit = error
                continue
            if draft is None:
                continue
            over = max(0.0, draft.memory.rows * lanes / most - 1)
            found.append((over, _cycles_per_tuple(draft, tuples), lanes, draft))
        # larger machines and the rule's own order are tried only if nothing has fitted
        if any(not way[0] for way in found):
            break
    if not found and limit is None and not plan.in_one_round:
        raise DoesNotFit(
            f"a tuple of rule {plan.graph.name!r} is more than half the largest tuple memory of "
            f"{ways[0][1] * LANES_PER_CLUSTER} lanes",
            hint="Use more clusters, or fewer columns.",
        )
    if not found and limit is None:
        raise DoesNotFit(
            f"a round of {tuples:,} tuples is more than the memory of any machine holds, or {MAX_GROUP:,} to a thread",
            hint="Merge smaller batches.",
        )
    if not found:
        widest = max(clusters for _, clusters in (*ways, *more))
        raise DoesNotFit(
            f"rule {plan.graph.name!r} is too large for {widest} clusters: {limit}",
            hint="Use models of fewer elements.",
        )
    # what fits comes first, then the fewest cycles, then the fewest lanes
    oversized, _, _, draft = min(found, key=lambda option: option[:3])
    if oversized:
        raise DoesNotFit(
            f"rule {plan.graph.name!r} takes {draft.memory.rows} rows of {draft.target.lanes} lanes of scratchpad "
            f"(merge stack {draft.memory.stack}), a machine has at most {most // draft.target.lanes}",
            hint="Use smaller batches or models of fewer elements.",
        )
    least = _cycles_per_tuple(draft, tuples)
    # from the slowest, which is the smallest
    for slower in DIVIDE_INTERVALS if "divide_interval" not in given else ():
        if slower == interval or _divisions(draft, tuples) * (slower - interval) > AS_FAST * least:
            continue
        # as for a machine that is given this unit: a found design is compiled again from its fields
        other = draft_for(place(plan, replace(draft.target, divide_interval=slower)), reorder=reorder)
        # scheduled, because the estimate above knows nothing of the waits for a slower unit
        if _cycles_per_tuple(other, tuples) <= (1 + AS_FAST) * least:
            return other
    return draft


def _holds_round(plan: Plan, target: Target, tuples: int) -> bool:
    """Whether a machine can have the tuple memory for a tuple, or for a batch that has to be one round."""
    whole = plan.in_one_round and not plan.by_row
    group = power_of_two(-(-tuples // target.threads)) if whole else 1
    return group <= MAX_GROUP and 2 * group * place_inputs(plan.graph, target.lanes).rows <= MAX_CONFIG.tuple_depth


def _most_of_a_round(plan: Plan, max_tuples: int, given: Mapping[str, int]) -> int:
    """The largest power of two below a batch that has to be one round and that some machine holds; 0 if none."""
    size = 1 << (plan.batch_tuples(max_tuples) - 1).bit_length() >> 1
    while size > 1 and plan.in_one_round:
        try:
            _divide(plan_of(replace(plan.graph, batch=size)), max_tuples, given)
        except DoesNotFit:
            size //= 2
        else:
            return size
    return 0


def _sketches(plan: Plan, ways: Iterable[tuple[int, int]], max_tuples: int, given: Mapping[str, int]) -> list[Sketch]:
    """Sketches of the divisions that may hold a round."""
    tuples = _tuples(plan, max_tuples, given)
    targets = [
        Target(
            threads=threads,
            lanes=clusters * LANES_PER_CLUSTER,
            group=1,
            together=(tuples_together := together(plan, given, threads)),
            records=tuples_together > 1 and bool(given.get("record_depth")),
            divide_interval=given.get("divide_interval", DIVIDE_INTERVALS[-1]),
            crossed=bool(given.get("crossed", 1)),
            pauses=bool(given.get("pause", 0)),
        )
        for threads, clusters in ways
    ]
    held = [target for target in targets if _holds_round(plan, target, tuples)]
    return [sketched(plan, _largest_rounds(plan, target, max_tuples, given), max_tuples) for target in held]


def _largest_rounds(plan: Plan, target: Target, max_tuples: int, given: Mapping[str, int]) -> Target:
    """The target with rounds of as many tuples as tuple memory may hold."""
    tuples = _tuples(plan, max_tuples, given)
    rows = rows_of_tuple(plan, target.lanes, given)
    group = group_for(rows, tuples, threads=target.threads, tuple_depth=given.get("tuple_depth", _depth(rows)))
    # each tuple waits for the one before, so a round has one
    group = 1 if plan.serial else group
    if needs_index(plan, records=target.records):
        group = min(group, given.get("index_depth", group * plan.entries) // plan.entries)
    return replace(target, group=max(_least(plan, tuples, target), group))


def _roomy(
    plan: Plan, sketch: Sketch, max_tuples: int, given: Mapping[str, int], *, reorder: bool, best: float = inf
) -> Draft | None:
    """The rule in rounds as large as the memory that a machine is given by itself, or by the user, holds.

    Parameters
    ----------
    best
        Cycles of a tuple that another target takes; None comes out where this one surely takes more.
    """
    tuples = _tuples(plan, max_tuples, given)
    target = sketch.target
    least = _least(plan, tuples, target)
    most = given.get("scratch_depth", min(ROUND_ROWS, MAX_WORDS // target.lanes))

    def close(draft: Draft) -> bool:
        """A draft that takes too much memory with shards takes as much without."""
        fits = draft.target.group == least or draft.memory.rows <= most
        return fits and (1 - CLEARLY) * _cycles_per_tuple(draft, tuples) <= best

    # smaller rounds take more cycles
    while sketch.cycles <= SURELY * best:
        smallest = sketch.target.group == least
        if smallest or sketch.rows <= most:
            try:
                draft = draft_for(sketch.placed, reorder=reorder, close=close)
                if smallest or draft.memory.rows <= most or _cycles_per_tuple(draft, tuples) > best:
                    return draft
            except LoopLimit:
                if smallest:
                    raise
        sketch = sketched(plan, replace(target, group=sketch.target.group // 2), max_tuples)
    return None


def _cycles_per_tuple(draft: Draft, tuples: int) -> float:
    """Cycles of a batch, by tuple."""

    def length(section: Section) -> int:
        return timing.SECTION_START + draft.schedules[section].length if section in draft.schedules else 0

    rounds = -(-tuples // draft.target.round_tuples)
    joined = (rounds - 1) * (length(Section.PUSH) + length(Section.MERGE))
    batch = rounds * (timing.ROUND_START + length(Section.TUPLE)) + joined
    # records move while section `batch` runs, so the longer of the two counts
    return (batch + max(length(Section.BATCH), moving_cycles(draft.inputs.records, tuples))) / tuples


def _divisions(draft: Draft, tuples: int) -> float:
    """Quotients and roots that a cluster's unit takes one after the other, by tuple."""

    def count(section: Section) -> int:
        ops = [op for op, _ in draft.schedules[section].issue] if section in draft.schedules else []
        return (
            sum(op.rows * op.interval for op in ops if op.op in (Opcode.DIV, Opcode.SQRT))
            // draft.target.divide_interval
        )

    rounds = -(-tuples // draft.target.round_tuples)
    return (rounds * count(Section.TUPLE) + count(Section.BATCH)) / tuples


def _depth(rows: int) -> int:
    """Rows of tuple memory to reckon with, for tuples of so many."""
    return max(2 * rows, min(ROUND_ROWS, 2 * ROUND_GROUP * rows))


def _access(draft: Draft, schema: TableSchema, uses: Sequence[Use], given: Mapping[str, int]) -> dict[str, int]:
    """Striders and converters enough for the slower of link and engine, and memories for the Striders' program."""
    defaults = MachineConfig()
    page_size = given.get("page_size", defaults.page_size)
    # the largest memories: the depths follow from the program that is compiled here
    large = _config(
        {
            "page_size": page_size,
            "clusters": draft.target.lanes // LANES_PER_CLUSTER,
            "strider_depth": MAX_CONFIG.strider_depth,
            "descriptor_depth": MAX_CONFIG.descriptor_depth,
            **{name: given[name] for name in ("link_bytes", "link_rate", "converters") if name in given},
        }
    )
    program = compile_strider(schema, uses, draft.inputs, large, draft.watched)
    columns = len(program.columns)
    width = 0
    for attribute in schema.attributes:
        width = pages.align_up(width, attribute.alignment) + _stored_bytes(attribute)
    # 23 and 1: t_hoff is MAXALIGNed (htup_details.h), so a null bitmap of eight columns is in the 24 bytes
    tuple_bytes = pages.ITEM_ID_SIZE + pages.align_up(pages.TUPLE_HEADER_SIZE + 1 + width, pages.MAXALIGN)
    tuples = 1 / len(parts.cut(schema)) if schema.part else max(1, page_size // tuple_bytes)
    # about 26 instructions for a line pointer and a header, 3 for each run of columns, 50 to check an array
    step = timing.STRIDER_CYCLES[strider.Opcode.AD]
    arrays = sum(schema.attributes[use.attribute].length < 0 for use in uses)
    page_cycles = step * (26 * max(1, tuples) + tuples * (3 * columns + 50 * arrays))
    engine = tuples * draft.schedules[Section.TUPLE].length / draft.target.round_tuples
    if draft.target.records:
        engine = tuples * _cycles_per_tuple(draft, draft.target.together)
    beats = large.page_cycles
    # a page's buffer is taken from its request to its last column
    lanes = draft.target.lanes

    def unpacker(converters: int) -> float:
        return tuples * sum(column.beats(lanes, converters) for column in program.columns)

    least = max(engine, beats, unpacker(lanes))
    # the fewest that cost at most AS_FAST; all of them cost nothing
    fewest = (count for k in range(lanes.bit_length()) if unpacker(count := 1 << k) <= (1 + AS_FAST) * least)
    converters = given["converters"] if "converters" in given else next(fewest)
    taken = given.get("link_latency", defaults.link_latency) + beats + page_cycles + unpacker(converters)
    wanted = 1 + int(taken / max(engine, beats))
    # a Strider that runs ahead must be able to leave a whole page's columns behind, or it waits for its turn
    entries = 1 + ceil(tuples * columns)
    return {
        "converters": converters,
        "queue_depth": min(MAX_QUEUE, power_of_two(entries)),
        "striders": max(defaults.striders, min(MAX_STRIDERS, power_of_two(wanted))),
        "strider_depth": max(defaults.strider_depth, power_of_two(len(program.instructions))),
        "descriptor_depth": max(defaults.descriptor_depth, power_of_two(columns)),
    }


def _stored_bytes(attribute: Attribute) -> int:
    """Bytes that a value takes on a page, about."""
    if attribute.type_oid in ARRAYS:
        return 24 + (attribute.array_length or 0) * ARRAYS[attribute.type_oid].length
    return attribute.length if attribute.length > 0 else 4
