"""The search for the target of a rule: the largest rounds that its batch can use and a machine can hold.

In: a plan and a machine. Out: a `Draft`, what the passes made for the target. The search goes from the largest rounds
to the smallest and ends at the first draft that the machine holds. Each candidate is compiled as a whole, because
nothing less says how many rows and instructions it takes.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

from dana.compiler.passes import Draft, Placed, place
from dana.compiler.place.records import tuple_rows
from dana.compiler.place.rows import place_inputs
from dana.compiler.place.sections import Plan
from dana.compiler.rounds import (
    group_for,
    group_of,
    in_rounds,
    least_group,
    power_of_two,
    together_for,
    whole_blocks,
)
from dana.compiler.select.nest import LoopLimit
from dana.compiler.target import DoesNotFit, Target
from hwgen.spec.config import MachineConfig
from hwgen.spec.engine import Section

CLEARLY = 0.1
"""Fraction of a section's cycles, estimated from rows, from which on shards are used without compiling both ways."""

WORTH = 0.02
"""Fraction of the cycles that shards must save, because they take instructions, and lanes that can cross. Scalars over
lanes must save half this fraction of the rows of a round."""


def fit(plan: Plan, config: MachineConfig, *, max_tuples: int, known: Draft | None = None) -> Draft:
    """Compile for the largest rounds that the batch can use and the machine can hold.

    Parameters
    ----------
    known
        What `draft_for` gave for a target that the machine was made for, which is taken if it is the machine's.

    Raises
    ------
    DoesNotFit
        Not even the smallest does.
    """
    error: DoesNotFit | None = None
    for targets in _candidates(plan, config, max_tuples):
        # the draft that the machine was made for needs no second compilation
        if known is not None and known.target in targets and not _lacks(config, known):
            return known
        for target in targets:
            found = _tried(plan, config, target)
            if isinstance(found, Draft):
                return found
            error = found
    assert error is not None, "there is a target for each machine"
    raise error


def _candidates(plan: Plan, config: MachineConfig, max_tuples: int) -> Iterator[list[Target]]:
    """Targets, the best first; of those in one list a known draft is as good as any.

    First batches that end where a row is chosen again, which are worth more the longer they are; then the rule's.
    """
    records = config.record_depth > 0
    together = together_for(
        plan,
        threads=config.threads,
        index_depth=config.index_depth,
        watch_depth=config.watch_depth,
        record_depth=config.record_depth,
        tuple_rows=tuple_rows(plan, config.lanes, records=records),
        tuple_depth=config.tuple_depth,
    )
    target = partial(
        Target,
        threads=config.threads,
        lanes=config.lanes,
        divide_interval=config.divide_interval,
        crossed=bool(config.crossed),
        pauses=bool(config.pause),
    )
    # down to 2: batches of one tuple are the rule's own
    for size in _halves(together, 2):
        yield [target(group=group_of(size, config.threads, records=records), together=size, records=records)]
    least, most = _groups(plan, config, max_tuples)
    yield [in_rounds(plan, target(group=group), group, max_tuples=max_tuples) for group in _halves(most, least)]


def _halves(most: int, least: int) -> list[int]:
    """Powers of two, descending."""
    return [most >> k for k in range(most.bit_length()) if most >> k >= least]


def _groups(plan: Plan, config: MachineConfig, max_tuples: int) -> tuple[int, int]:
    """Tuples of a thread that a round has to have, and that the batch can use and the machine's memories can hold."""
    name, rows = plan.graph.name, place_inputs(plan.graph, config.lanes, plan.spread).rows
    tuples = plan.batch_tuples(max_tuples)
    least = least_group(plan, tuples, threads=config.threads)
    most = max(least, group_for(rows, tuples, threads=config.threads, tuple_depth=config.tuple_depth))
    # the next tuple sees what this one wrote, so that a round holds one
    if plan.serial:
        most = 1
    if plan.indexed and config.index_depth < max(1, least) * plan.entries:
        raise DoesNotFit(
            f"rule {name!r} chooses rows of models by the data, for {least} tuples of a thread in a round; the "
            f"machine's index file has {config.index_depth} entries",
            hint=f"Set index_depth to {power_of_two(max(2, least * plan.entries))}.",
        )
    if 2 * least * rows > config.tuple_depth:
        what = f"{least} tuples" if least > 1 else "a tuple"
        raise DoesNotFit(
            f"{what} of rule {name!r} take{'' if least > 1 else 's'} {least * rows} rows of {config.lanes} lanes; two "
            f"of them, one being filled while the other is worked on, need {2 * least * rows} rows, and tuple memory "
            f"has {config.tuple_depth}",
            hint=f"Set tuple_depth to {whole_blocks(2 * least * rows)}, or more clusters.",
        )
    # each tuple of a round has its own entries in the index file
    return least, min(most, config.index_depth // plan.entries) if plan.indexed else most


def _tried(plan: Plan, config: MachineConfig, target: Target) -> Draft | DoesNotFit:
    """The first draft for a target that the machine holds, or the error of the last one."""
    placed = place(plan, target)
    found = _first(placed, config)
    # scalars over lanes take more instructions
    if isinstance(found, DoesNotFit) and placed.forms.saved:
        found = _first(place(plan, target, over_lanes=False), config)
    # and so do triangles, which are made matrices in rows of their own
    if isinstance(found, DoesNotFit) and placed.plan.mirrors:
        return _tried(plan, config, replace(target, triangles=False))
    return found


def _first(placed: Placed, config: MachineConfig) -> Draft | DoesNotFit:
    """The first draft of a placed rule that the machine holds, or the error of the last one."""
    name, lanes = placed.plan.graph.name, placed.target.lanes
    draft: Draft | None = None
    error = None
    # shards take instructions; operations in the rule's order keep fewer values at a time
    for sharded, reorder in ((True, True), (False, True), (True, False), (False, False)):
        if not sharded and (draft is None or not draft.shards.of):
            continue  # the one before had no shards, or was too large without them too
        try:
            draft = draft_for(placed, sharded=sharded, reorder=reorder)
        except LoopLimit as limit:
            # the first error: later ways have no shards, and ask for less than is missing
            error = error or DoesNotFit(
                f"rule {name!r} is too large for {lanes} lanes: {limit}", hint="Use more clusters."
            )
        else:
            error = _lacks(config, draft)
            if error is None:
                return draft
    assert error is not None, "the first way was tried"
    return error


def _lacks(config: MachineConfig, draft: Draft) -> DoesNotFit | None:
    """What the machine lacks for a draft; None: it holds it."""
    name, lanes, memory = draft.plan.graph.name, config.lanes, draft.memory
    if draft.instructions > config.program_depth:
        return DoesNotFit(
            f"rule {name!r} takes {draft.instructions} engine instructions, the machine holds {config.program_depth}",
            hint=f"Set program_depth to {power_of_two(draft.instructions)}.",
        )
    if memory.rows > config.scratch_depth:
        return DoesNotFit(
            f"rule {name!r} takes {memory.rows} rows of {lanes} lanes of scratchpad (models and literals "
            f"{memory.image}, sums {memory.state + memory.block}, merge stack {memory.stack}, temporaries "
            f"{memory.temporaries}), the machine has {config.scratch_depth}",
            hint=f"Set scratch_depth to {whole_blocks(memory.rows)}, or more clusters.",
        )
    if 0 < config.wide_depth < memory.wide:
        return DoesNotFit(
            f"rule {name!r} takes {memory.wide} rows of binary32 in the scratchpad, and the machine has "
            f"{config.wide_depth}",
            hint=f"Set wide_depth to {whole_blocks(memory.wide)}, or to 0 for a scratchpad of binary32.",
        )
    rows = 2 * draft.target.group * draft.inputs.rows
    if rows > config.tuple_depth:  # records are packed nearly always, but not always: `tuple_rows` is an estimate
        return DoesNotFit(
            f"a round of rule {name!r} takes {rows} rows of {lanes} lanes, tuple memory has {config.tuple_depth}",
            hint=f"Set tuple_depth to {whole_blocks(rows)}, or more clusters.",
        )
    return None


def draft_for(
    placed: Placed,
    *,
    sharded: bool = True,
    reorder: bool = True,
    close: Callable[[Draft], bool] = lambda draft: True,
) -> Draft:
    """Compile for a target; only the fields of instructions bound it.

    Parameters
    ----------
    placed
        What `place` made for it.
    sharded
        Whether threads may share the work of a batch. If few cycles can come of it, both ways are compiled, and it has
        to save some.
    close
        Whether a draft is good enough for its other way to be compiled, too.
    reorder
        Whether operations may leave the rule's order.
    """
    compiled = partial(_sharded, sharded=sharded, reorder=reorder, close=close)
    saved = placed.forms.saved
    if 0 < saved < WORTH / 2 * batch_rows(placed):
        return compiled(place(placed.plan, placed.target, over_lanes=False))
    found = compiled(placed)
    waits = found.length - sum(scheduled.busy for scheduled in found.often)
    # more waits than scalars over lanes save in rows: the chains may be what counts
    if not 0 < saved < waits or not close(found):
        return found
    return min(found, compiled(place(placed.plan, placed.target, over_lanes=False)), key=lambda one: one.length)


def _sharded(placed: Placed, *, sharded: bool, reorder: bool, close: Callable[[Draft], bool]) -> Draft:
    """Compile what was placed, with shards where they save enough; parameters are those of `draft_for`."""
    draft = partial(Draft.compile, placed, reorder=reorder)
    saved = placed.shards.saved
    # half of what would be worth it is not off by as much again
    if not sharded or saved < WORTH / 2 * batch_rows(placed):
        return draft(sharded=False)
    try:
        found = draft(sharded=True)
    except LoopLimit:
        return draft(sharded=False)
    # compiling twice doubles the time: only where the estimate is too close to trust
    if saved > CLEARLY * found.length or not close(found):
        return found
    try:
        whole = draft(sharded=False)
    except LoopLimit:
        return found
    return found if found.length < (1 - WORTH) * whole.length else whole


def batch_rows(placed: Placed, rounds: int = 1) -> float:
    """Rows that operations of a batch issue, and so cycles that it takes at the least, about; without shards."""
    return rounds * placed.forms.rows[Section.TUPLE] + placed.forms.rows[Section.BATCH]
