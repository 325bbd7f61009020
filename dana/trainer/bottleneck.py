"""Explains the cycles of a row: the bottleneck of the machine, the line of the rule that causes it, and a remedy.

The bottleneck is determined from the compiled program and the simulated cycles. The effect of a remedy is measured in
the same way, on a design that is compiled for it; the session caches that design.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace

from dana.codesign.cost import Cost, count_cost
from dana.codesign.cycles import Cycles, measure_cycles
from dana.codesign.default import default_bundle, least_cycles
from dana.codesign.fitting import on_pages
from dana.codesign.sample import Sample, sample_pages
from dana.compiler.passes import plan_of
from dana.errors import UsageError
from dana.storage.columns import column_attribute
from dana.trainer.contract import Json, TrainRequest
from dana.trainer.data.weights import bind_request
from dana.trainer.designs import Design, DesignStore, bound_graph, chosen_extents, rule_graph, tuple_bound
from dsl.hdfg.graph import Graph, Node, Op, Region
from hwgen.spec.bundle import WHOLE_EPOCH
from hwgen.spec.config import ConfigError

BATCH = 64
"""Batch size that is tried if that of the rule is smaller; the shipped rules use it."""

LARGER = 4
"""Factor by which the batch size is increased otherwise."""

CHAINED = 2.0
"""A machine waits for models if the dependency chain of an update takes at least 1/CHAINED of the cycles of a tuple."""

GAIN = 1.25
"""Minimum speed-up for which a remedy is reported."""

MINIMIZES = re.compile(r"^[^#\n]*\.minimize\(", re.MULTILINE)
"""Matches a rule that sets its batch size in ``minimize``."""

SHOWN = 50
"""Maximum length of a line in the answer, characters."""


def why(request: TrainRequest, design: Design, sample: Sample, cycles: Cycles, designs: DesignStore) -> Json:
    """Return the explanation: bottleneck, line, text, suggested change and its cycles of a tuple.

    Parameters
    ----------
    sample, cycles
        A page of the table, and the cycles of the Bundle measured on it.
    designs
        Compiles and caches the designs of remedies.
    """
    bundle = design.bundle
    plan = plan_of(bound_graph(request, design))
    cost = count_cost(plan, bundle)
    if cycles.bottleneck != "engine":
        return _reading(request, design, sample, cycles, designs)
    line = _most(cost.chain_lines)
    chained = CHAINED * cost.chain >= cost.per_tuple
    # the estimate knows no row that is chosen again, so no remedy could be measured
    if bundle.cut:
        said = (
            f"each row takes {cycles.per_tuple:.2f} cycles if {bundle.batch} rows run side by side; rows that choose "
            "the same row of a model, as in a sorted table, end a batch early, so fewer run side by side"
        )
        return _said("rows", line, said, None, None)
    # the rows of a serial rule follow one another, so the lines' cycles are those of the whole batch
    each, share = ("row", bundle.batch) if plan.serial else ("row" if bundle.batch == 1 else "batch", 1)
    waited = f"each {each} waits for the models of the one before"
    if line is not None:
        waited += f", {cost.chain_lines[line] / share:.0f} cycles of a {each} in {_shown(request, line)}"
    # a batch of the whole table cannot grow
    if bundle.batch != WHOLE_EPOCH and (chained or bundle.batch < BATCH):
        larger = max(BATCH, LARGER * bundle.batch)
        taken = _with_batch(request, design, sample, cycles, designs, larger)
        if taken is not None and GAIN * taken <= cycles.per_tuple:
            said = (
                f"each row takes {cycles.per_tuple:.2f} cycles, because the batch is {bundle.batch} and {waited}; "
                f"{_typed(request, larger)} takes {taken:.2f}, and is another training"
            )
            return _said("batch", line, said, {"batch": larger}, taken)
    if chained:
        said = f"each row takes {cycles.per_tuple:.2f} cycles, because {waited}; "
        return _helped(request, designs, sample, cycles, "chain", line, said, _twice_the_threads(design))
    return _computing(request, design, sample, cycles, cost, designs)


def _reading(request: TrainRequest, design: Design, sample: Sample, cycles: Cycles, designs: DesignStore) -> Json:
    """Explain a machine that waits for rows."""
    size = sample.page_size * sample.pages / sample.rows
    said = f"each row takes {cycles.per_tuple:.2f} cycles, in which the machine reads its {size:.0f} bytes of a page; "
    config, waits = design.bundle.config, cycles.bottleneck
    if waits == "link":
        said += f"the page link brings no more than {config.page_rate:.4g} in a cycle"
        return _said("link", None, said, None, None)
    if waits == "records":
        said = (
            f"each row takes {cycles.per_tuple:.2f} cycles; its rows of models are kept in external memory, and those "
            f"of {design.bundle.batch} table rows at a time are read before and written after the computation"
        )
        return _said("records", None, said, None, None)
    gathered = _as_arrays(request, design)
    if gathered is not None:
        pages = sample_pages(gathered.relation.schema, page_size=sample.page_size)
        taken = _taken(gathered, designs, pages)
        if taken is not None and GAIN * taken <= cycles.per_tuple:
            said += f"with an array (real[]) instead of single columns it takes {taken:.2f}"
            return _said(waits, None, said, {"columns": "real[]"}, taken)
    if waits == "unpacker":
        said += (
            f"each number takes one cycle, but adjacent ones of one type take one together: up to {config.lanes} of "
            f"type real, {config.converters} of any other"
        )
        return _said("unpacker", None, said, None, None)
    if "queue_depth" in request.design:  # by default it holds all entries of a page
        longer = _helped(request, designs, sample, cycles, waits, None, said, {"queue_depth": 2 * config.queue_depth})
        if longer["change"] is not None:
            return longer
    return _helped(request, designs, sample, cycles, waits, None, said, {"striders": 2 * config.striders})


def _as_arrays(request: TrainRequest, design: Design) -> TrainRequest | None:
    """Return the request with one array column per input; None if every input already has a single column."""
    relation = request.relation
    rule = rule_graph(request)
    binding = bind_request(rule, request, chosen_extents(design.extents, request.hyper))
    inputs = [use.input for use in binding.uses]
    if relation.part or len({*inputs}) == len(inputs):
        return None
    columns = {use.input: relation.attributes[use.attribute] for use in binding.uses}
    # in the order of the inputs, in which columns fill them
    features = [str(rule.nodes[k].name) for k in rule.inputs if rule.nodes[k].op is Op.INPUT]
    for name in features:
        if inputs.count(name) > 1:
            columns[name] = column_attribute(f"{name}[]", inputs.count(name))
    return replace(
        request,
        relation=replace(relation, attributes=tuple(columns.values())),
        features=tuple(columns[name].name for name in features),
        label=binding.labels[0] if len(binding.labels) == 1 else None,
    )


def _computing(
    request: TrainRequest, design: Design, sample: Sample, cycles: Cycles, cost: Cost, designs: DesignStore
) -> Json:
    """Explain a machine with busy units."""
    line = _most(cost.work_lines)
    share = cost.work_lines[line] / sum(cost.work_lines.values()) if line else 0.0
    work = f", {share:.0%} of the operations in {_shown(request, line)}" if line else ""
    said = f"each row takes {cycles.per_tuple:.2f} cycles of {design.bundle.config.units} units{work}; "
    return _helped(request, designs, sample, cycles, "units", line, said, _twice_the_threads(design))


def _twice_the_threads(design: Design) -> dict[str, int]:
    return {"threads": 2 * design.bundle.config.threads}


def _helped(
    request: TrainRequest,
    designs: DesignStore,
    sample: Sample,
    cycles: Cycles,
    cause: str,
    line: int | None,
    said: str,
    tried: Mapping[str, int],
) -> Json:
    """Measure a machine with twice the scarce resource, and suggest it if that pays."""
    ((name, count),) = tried.items()
    taken = _taken(replace(request, design={**request.design, **tried}), designs, sample)
    if taken is None:
        return _said(cause, line, f"{said}no machine has {count} {name} for this rule", None, None)
    if GAIN * taken > cycles.per_tuple:
        less = "hardly fewer" if taken < cycles.per_tuple else "no fewer"
        return _said(cause, line, f"{said}{count} {name} would take {less}", None, None)
    return _said(cause, line, f"{said}design => '{{\"{name}\": {count}}}' takes {taken:.2f}", dict(tried), taken)


def _said(cause: str, line: int | None, said: str, change: Json | None, taken: float | None) -> Json:
    return {"cause": cause, "line": line, "text": said, "change": change, "tuple": taken}


def _with_batch(
    request: TrainRequest, design: Design, sample: Sample, cycles: Cycles, designs: DesignStore, batch: int
) -> float | None:
    """Return the cycles of a tuple with a larger batch; None if it is impossible, does not fit or does not pay."""
    graph = bound_graph(request, design)
    if not graph.has_merge:
        merged = _merged(graph, batch)
        return None if merged is None else _measured(request, design, sample, merged)
    machine = on_pages(request.design, request.relation.page_size)
    with suppress(UsageError, ConfigError):  # the lower bound is cheap, compiling is not
        least = least_cycles(replace(graph, batch=batch), max_tuples=tuple_bound(request), design=machine)
        if GAIN * least <= cycles.per_tuple:
            return _taken(request, designs, sample, batch=batch)
    return None


def _taken(request: TrainRequest, designs: DesignStore, sample: Sample, batch: int | None = None) -> float | None:
    """Return the cycles of a tuple for a request; None if it cannot be compiled."""
    try:
        # an explanation must not fill the cache on disk with designs that no training asked for
        bundle = designs.get(request, batch=batch, write=False).bundle
    except (UsageError, ConfigError):
        return None
    return measure_cycles(bundle, sample).per_tuple


def _merged(graph: Graph, batch: int) -> Graph | None:
    """Return the rule with each model update averaged over a batch; None if no update can be averaged."""
    nodes = list(graph.nodes)
    updates = []
    for update in graph.updates:
        value = graph.nodes[update.value]
        # an update of a row that a tuple chooses has no mean over the batch
        if value.region is Region.TUPLE and not graph.by_tuple(update):
            # ids are positions, and operands come before their users: new nodes go to the end
            at = len(nodes)
            like = replace(value, name=None, region=Region.BATCH)
            nodes += [
                replace(like, id=at, op=Op.MERGE, inputs=(value.id,), axis=None, merge_op="add"),
                Node(id=at + 1, op=Op.CONST, region=Region.CONST, value=float(batch), span=value.span),
                replace(like, id=at + 2, op=Op.DIV, inputs=(at, at + 1), axis=None, merge_op=None),
            ]
            update = replace(update, value=at + 2)
        updates.append(update)
    if len(nodes) == len(graph.nodes):
        return None
    # the convergence test runs once per epoch and does not change the cycles of a tuple
    return replace(graph, nodes=tuple(nodes), updates=tuple(updates), convergence=None, batch=batch)


def _measured(request: TrainRequest, design: Design, sample: Sample, graph: Graph) -> float | None:
    """Return the cycles of a tuple of another graph; None if no machine fits it."""
    binding = bind_request(rule_graph(request), request, chosen_extents(design.extents, request.hyper))
    try:
        bundle = default_bundle(
            replace(binding, graph=graph),
            request.relation.schema,
            design=on_pages(request.design, request.relation.page_size),
            max_tuples=tuple_bound(request),
        )
    except (UsageError, ConfigError):
        return None
    return measure_cycles(bundle, sample).per_tuple


def _typed(request: TrainRequest, batch: int) -> str:
    """Return how to set the batch size: an argument of the call if the rule has a meta for it, else its text."""
    graph = rule_graph(request)
    if graph.batch_meta is not None:
        return f"hyper => '{{\"{graph.nodes[graph.batch_meta].name}\": {batch}}}'"
    return f"minimize(…, batch={batch})" if MINIMIZES.search(request.text) else f"merge(…, {batch})"


def _most(lines: Mapping[int, float]) -> int | None:
    return max(lines, key=lambda line: lines[line], default=None)


def _shown(request: TrainRequest, line: int) -> str:
    """Return the number of a line of the rule and its text, truncated."""
    text = " ".join(request.text.split("\n")[line - 1].partition("#")[0].split())
    return f"line {line} ({text if len(text) <= SHOWN else f'{text[:SHOWN]}…'})"
