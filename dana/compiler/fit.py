"""Looks for the target of a rule: the largest rounds that its batch can use and a machine can hold.

In: a plan and a machine. Out: a `Draft`, what the passes made for the target. Programs of each size are compiled whole,
for nothing less says how many rows and instructions they take.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from dana.compiler.passes import Draft, Placed, place
from dana.compiler.place.records import needs_index, tuple_rows
from dana.compiler.place.rows import place_inputs
from dana.compiler.place.sections import Plan
from dana.compiler.place.watch import rows_written
from dana.compiler.select.nest import LoopLimit
from dana.compiler.target import DoesNotFit, Target
from dana.errors import InternalError
from hwgen.spec.bundle import WHOLE_EPOCH
from hwgen.spec.config import MachineConfig
from hwgen.spec.engine import WIDTHS, Section

MAX_GROUP = 1 << WIDTHS["outer"] - 1
"""Tuples of a thread in a round: a power of two that the outer loop counts to."""

BLOCK_ROWS = 512
"""Words of 32 bits that half a block RAM holds, on every family."""

MAX_TOGETHER = 64
"""Tuples of a batch that ends where a row is chosen again: in longer ones some row nearly always is."""

CLEARLY = 0.1
"""Fraction of a section's cycles, estimated from rows, from which on shards are used without compiling both ways."""

WORTH = 0.02
"""Fraction of the cycles that shards have to save: they take instructions, and lanes that can cross."""


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
    rows = placed.forms.rows
    return rounds * rows[Section.TUPLE] + rows[Section.BATCH]


def in_rounds(plan: Plan, target: Target, group: int, *, max_tuples: int) -> Target:
    """The target with `group` tuples of a thread in a round, and the levels that their merges need."""
    target = replace(target, group=group)
    return replace(target, levels=levels_for(plan, plan.batch, max_tuples=max_tuples, round_tuples=target.round_tuples))


def levels_for(plan: Plan, size: int, *, max_tuples: int, round_tuples: int) -> int:
    """Levels of the merge stack that batches of a size need; 0 if each is one round.

    A batch without end has at least one, so that the machine notices tuples beyond `max_tuples`.
    """
    if plan.single or plan.by_row:
        return 0
    tuples = max_tuples if size == WHOLE_EPOCH else size
    # a binary counter of rounds: level k holds the merge of 2 ** k rounds
    rounds = max(1, -(-tuples // round_tuples))
    return max((rounds - 1).bit_length(), int(size == WHOLE_EPOCH))


def together_for(
    plan: Plan,
    *,
    threads: int,
    index_depth: int,
    watch_depth: int,
    record_depth: int,
    tuple_rows: int,
    tuple_depth: int,
) -> int:
    """Tuples that a batch has at most which ends where a row is chosen again; 1 where there are no such batches."""
    rows = rows_written(plan.watched)
    if not rows:
        return 1
    sharing = sharing_threads(threads, records=record_depth > 0)
    most = min(MAX_TOGETHER, watch_depth // rows, sharing * (tuple_depth // 2 // tuple_rows))
    if record_depth:
        most = min(most, record_depth // len(plan.watched))
    if needs_index(plan, records=record_depth > 0):
        most = min(most, sharing * index_depth)
    return 1 << most.bit_length() - 1 if most > 1 else 1


def group_of(together: int, threads: int, *, records: bool) -> int:
    """Tuples of a thread of such a batch."""
    return max(1, together // sharing_threads(threads, records=records))


def sharing_threads(threads: int, *, records: bool) -> int:
    """Threads that have tuples of a batch that ends where a row is chosen again."""
    # rows that one thread wrote into its scratchpad, all others would have to write, too
    return threads if records else 1


def least_group(plan: Plan, tuples: int, *, threads: int) -> int:
    """Tuples of a thread that a round has to have: its share of a batch that has to be one round.

    DoesNotFit where no round can have so many.
    """
    if plan.serial and threads > 1:
        raise DoesNotFit(
            f"the tuples of rule {plan.graph.name!r} see rows that the ones before wrote, in batches of {tuples}, so "
            f"that they go through a machine one by one; one of {threads} threads takes as many at a time",
            hint="Set threads to 1.",
        )
    if not plan.in_one_round:
        return 1
    name = plan.graph.name
    group = power_of_two(tuples if plan.by_row else -(-tuples // threads))
    if group > MAX_GROUP and not plan.by_row:
        raise DoesNotFit(
            f"rule {name!r} uses values of a batch in its rows again, so that a batch has to be one round; a machine "
            f"of {threads} {'threads' if threads > 1 else 'thread'} has rounds of up to {threads * MAX_GROUP} tuples, "
            f"and the batch has {tuples}",
            hint="Merge smaller batches.",
        )
    if group > MAX_GROUP:
        raise DoesNotFit(
            f"rule {name!r} updates rows that the tuples choose, in batches of {tuples}; a machine does so in batches "
            f"of up to {MAX_GROUP}",
            hint="Merge smaller batches.",
        )
    models = [u.model for u in plan.graph.updates if plan.graph.by_tuple(u) and not plan.graph.nodes[u.model].table]
    if tuples > 1 and (twice := [k for k in models if models.count(k) > 1]):
        raise DoesNotFit(
            f"rule {name!r} updates several rows of {plan.graph.nodes[twice[0]].name} for each tuple, in "
            f"batches of {tuples}; a machine does so in batches of one",
            hint="Let the batch be 1, or give each row chosen a model of its own.",
        )
    return group


def _indexed_group(plan: Plan, config: MachineConfig, group: int, least: int) -> int:
    """The largest group that the index file has entries for."""
    if config.index_depth < least or not config.index_depth:
        raise DoesNotFit(
            f"rule {plan.graph.name!r} chooses rows of models by the data, for {least} tuples of a thread in a round; "
            f"the machine's index file has {config.index_depth} entries",
            hint=f"Set index_depth to {max(2, least)}.",
        )
    return min(group, config.index_depth)


def group_for(tuple_rows: int, tuples: int, *, threads: int, tuple_depth: int) -> int:
    """Tuples of a thread in a round: what a batch needs, or what tuple memory holds."""
    # a power of two, for the adjacent-pair tree; two halves of tuple memory, one filled while the other is worked on
    per_thread = max(1, -(-tuples // threads))
    group = min(1 << (per_thread - 1).bit_length(), MAX_GROUP)
    while group > 1 and 2 * group * tuple_rows > tuple_depth:
        group //= 2
    return group


def fit(plan: Plan, config: MachineConfig, *, max_tuples: int, known: Draft | None = None) -> Draft:
    """The largest group that the batch can use and the machine can hold.

    Parameters
    ----------
    known
        What `draft_for` gave for a target that the machine was made for, which is taken if it is the machine's.

    Raises
    ------
    DoesNotFit
        Not even the smallest does.
    """
    rows = place_inputs(plan.graph, config.lanes).rows
    names = ("threads", "index_depth", "watch_depth", "record_depth", "tuple_depth")
    depths = {name: getattr(config, name) for name in names}
    together = together_for(plan, tuple_rows=tuple_rows(plan, config.lanes, records=config.record_depth > 0), **depths)
    while together > 1:
        side_by_side = _side_by_side(plan, config, together, known)
        if side_by_side is not None:
            return side_by_side
        together //= 2
    tuples = plan.batch_tuples(max_tuples)
    least = least_group(plan, tuples, threads=config.threads)
    group = max(least, group_for(rows, tuples, threads=config.threads, tuple_depth=config.tuple_depth))
    if plan.serial:
        group = 1
    if plan.indexed:
        group = _indexed_group(plan, config, group, least)
    if 2 * least * rows > config.tuple_depth:
        what = f"{least} tuples" if least > 1 else "a tuple"
        raise DoesNotFit(
            f"{what} of rule {plan.graph.name!r} take{'' if least > 1 else 's'} {least * rows} rows of {config.lanes} "
            f"lanes; two of them, one being filled while the other is worked on, need {2 * least * rows} rows, and "
            f"tuple memory has {config.tuple_depth}",
            hint=f"Set tuple_depth to {whole_blocks(2 * least * rows)}, or more clusters.",
        )
    target = _target(config, group)
    if known is not None and _holds(config, known):
        like = in_rounds(plan, target, known.target.group, max_tuples=max_tuples)
        if known.target == like and least <= known.target.group <= group:
            return known
    while True:
        target = in_rounds(plan, target, group, max_tuples=max_tuples)
        placed = place(plan, target)
        limit: LoopLimit | None = None
        draft: Draft | None = None
        # shards take instructions; operations in the rule's order keep fewer values at a time
        for sharded, reorder in ((True, True), (False, True), (True, False), (False, False)):
            if not sharded and (draft is None or not draft.shards.of):
                continue  # the one before had no shards, or was too large without them too
            try:
                draft = draft_for(placed, sharded=sharded, reorder=reorder)
            except LoopLimit as error:
                limit = error
                continue
            if _holds(config, draft):
                return draft
        if group == least:
            if draft is not None:
                raise _too_small(draft, config)
            raise DoesNotFit(
                f"rule {plan.graph.name!r} is too large for {config.lanes} lanes: {limit}",
                hint="Use more clusters.",
            ) from limit
        group //= 2


def _target(config: MachineConfig, group: int, together: int = 1) -> Target:
    return Target(
        threads=config.threads,
        lanes=config.lanes,
        group=group,
        together=together,
        records=together > 1 and config.record_depth > 0,
        divide_interval=config.divide_interval,
        crossed=bool(config.crossed),
    )


def _side_by_side(plan: Plan, config: MachineConfig, together: int, known: Draft | None) -> Draft | None:
    """The rule in batches of so many tuples, that end where a row is chosen again; None: the machine is too small."""
    target = _target(config, group_of(together, config.threads, records=config.record_depth > 0), together)
    if known is not None and known.target == target and _holds(config, known):
        return known
    for reorder in (True, False):
        try:
            draft = draft_for(place(plan, target), reorder=reorder)
        except LoopLimit:
            continue
        if _holds(config, draft):
            return draft
    return None


def _holds(config: MachineConfig, draft: Draft) -> bool:
    if draft.target.records and 2 * draft.target.group * draft.inputs.rows > config.tuple_depth:
        return False
    return draft.memory.rows <= config.scratch_depth and draft.instructions <= config.program_depth


def _too_small(draft: Draft, config: MachineConfig) -> DoesNotFit:
    name = draft.plan.graph.name
    if draft.instructions > config.program_depth:
        return DoesNotFit(
            f"rule {name!r} takes {draft.instructions} engine instructions, the machine holds {config.program_depth}",
            hint=f"Set program_depth to {power_of_two(draft.instructions)}.",
        )
    memory = draft.memory
    return DoesNotFit(
        f"rule {name!r} takes {memory.rows} rows of {config.lanes} lanes of scratchpad (models and literals "
        f"{memory.image}, sums {memory.state + memory.block}, merge stack {memory.stack}, temporaries "
        f"{memory.temporaries}), the machine has {config.scratch_depth}",
        hint=f"Set scratch_depth to {whole_blocks(memory.rows)}, or more clusters.",
    )


def whole_blocks(rows: int) -> int:
    """The least depth of a unit's memory that holds so many rows and leaves no part of a block RAM unused; of less than
    one, a power of two."""
    if rows < BLOCK_ROWS:
        return max(16, power_of_two(rows))
    return -(-rows // BLOCK_ROWS) * BLOCK_ROWS


def power_of_two(least: int) -> int:
    """The least power of two that is not below."""
    if least < 1:
        raise InternalError(f"no memory of {least} rows")
    return 1 << (least - 1).bit_length()
