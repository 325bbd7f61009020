"""Sizes of rounds and batches, and of the memories that hold them.

In: a plan, and depths of a machine's memories. Out: numbers, or the error that no machine has rounds of such a size. It
compiles nothing: `dana.compiler.fit` searches among these sizes.
"""

from dataclasses import replace

from dana.compiler.place.records import needs_index
from dana.compiler.place.sections import Plan
from dana.compiler.place.watch import rows_written
from dana.compiler.target import DoesNotFit, Target
from dana.errors import InternalError
from hwgen.spec.bundle import WHOLE_EPOCH
from hwgen.spec.engine import WIDTHS

# `-` binds more strongly than `<<`: half of what the field can count
MAX_GROUP = 1 << WIDTHS["outer"] - 1
"""Tuples of a thread in a round: a power of two that the outer loop counts to."""

BLOCK_ROWS = 512
"""Words of 32 bits that half a block RAM holds, on every family."""

MAX_TOGETHER = 64
"""Tuples of a batch that ends where a row is chosen again: in longer ones some row nearly always is."""


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
    rows, records = rows_written(plan.watched), record_depth > 0
    if not rows:
        return 1
    # half of tuple memory: the other half is being filled
    most = min(MAX_TOGETHER, watch_depth // rows, _sharing(threads, records) * (tuple_depth // 2 // tuple_rows))
    if records:
        most = min(most, record_depth // len(plan.watched))
    if needs_index(plan, records=records):
        most = min(most, _sharing(threads, records) * index_depth)
    return 1 << most.bit_length() - 1 if most > 1 else 1


def group_of(together: int, threads: int, *, records: bool) -> int:
    """Tuples of a thread of a batch that ends where a row is chosen again."""
    return max(1, together // _sharing(threads, records))


def _sharing(threads: int, records: bool) -> int:
    """Threads that have tuples of such a batch."""
    # rows that one thread wrote into its scratchpad, all others would have to write, too
    return threads if records else 1


def least_group(plan: Plan, tuples: int, *, threads: int) -> int:
    """Tuples of a thread that a round has to have: its share of a batch that has to be one round.

    DoesNotFit where no round can have so many.
    """
    name = f"rule {plan.graph.name!r}"
    if plan.serial and threads > 1:
        raise DoesNotFit(
            f"the tuples of {name} see rows that the ones before wrote, in batches of {tuples}, so that they go "
            f"through a machine one by one; one of {threads} threads takes as many at a time",
            hint="Set threads to 1.",
        )
    if not plan.in_one_round:
        return 1
    # rows are written in the order of the tuples, which one thread alone keeps
    group = power_of_two(tuples if plan.by_row else -(-tuples // threads))
    if group > MAX_GROUP and not plan.by_row:
        raise DoesNotFit(
            f"{name} uses values of a batch in its rows again, so that a batch has to be one round; a machine of "
            f"{threads} {'threads' if threads > 1 else 'thread'} has rounds of up to {threads * MAX_GROUP} tuples, and "
            f"the batch has {tuples}",
            hint="Merge smaller batches.",
        )
    if group > MAX_GROUP:
        raise DoesNotFit(
            f"{name} updates rows that the tuples choose, in batches of {tuples}; a machine does so in batches of up "
            f"to {MAX_GROUP}",
            hint="Merge smaller batches.",
        )
    models = [u.model for u in plan.graph.updates if plan.graph.by_tuple(u) and not plan.graph.nodes[u.model].table]
    if tuples > 1 and (twice := [k for k in models if models.count(k) > 1]):
        raise DoesNotFit(
            f"{name} updates several rows of {plan.graph.nodes[twice[0]].name} for each tuple, in batches of {tuples}; "
            "a machine does so in batches of one",
            hint="Let the batch be 1, or give each row chosen a model of its own.",
        )
    return group


def group_for(tuple_rows: int, tuples: int, *, threads: int, tuple_depth: int) -> int:
    """Tuples of a thread in a round: what a batch needs, or what tuple memory holds."""
    # a power of two, for the adjacent-pair tree; two halves of tuple memory, one filled while the other is worked on
    group = min(power_of_two(max(1, -(-tuples // threads))), MAX_GROUP)
    while group > 1 and 2 * group * tuple_rows > tuple_depth:
        group //= 2
    return group


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
