"""Machines for rules whose tuples choose rows: how many tuples side by side, and whether models lie beside the machine.

In: a plan and what the user fixes of the machine. Out: numbers. It compiles nothing.
"""

from collections.abc import Mapping, Sequence

from dana.codesign.size import MAX_CONFIG, MAX_LANES, MAX_WORDS, model_words
from dana.compiler.fit import power_of_two, together_for
from dana.compiler.place.records import tuple_rows
from dana.compiler.place.sections import Plan
from dana.compiler.place.watch import rows_written
from hwgen.spec.config import LANES_PER_CLUSTER, WIDEST_LINK

TOGETHER = 16
"""Tuples of a batch that ends where a row is chosen again, on a machine that nobody describes."""


def together(plan: Plan, given: Mapping[str, int]) -> int:
    """Tuples of a batch that ends where a row is chosen again, as the user's memories allow."""
    rows = rows_written(plan.watched)
    return together_for(
        plan,
        index_depth=given.get("index_depth", TOGETHER),
        watch_depth=given.get("watch_depth", rows * TOGETHER),
        record_depth=given.get("record_depth", 0),
        tuple_rows=1,
        tuple_depth=given.get("tuple_depth", MAX_CONFIG.tuple_depth) // rows_of_tuple(plan, MAX_LANES, given),
    )


def rows_of_tuple(plan: Plan, lanes: int, given: Mapping[str, int]) -> int:
    """Rows of a tuple in tuple memory, about."""
    return tuple_rows(plan, lanes, records=bool(plan.watched and given.get("record_depth")))


def record_depth(plan: Plan) -> int:
    """Records of a batch, of a machine whose models of chosen rows lie beside it."""
    return power_of_two(len(plan.watched) * TOGETHER)


def needs_records(plan: Plan, given: Mapping[str, int], ways: Sequence[tuple[int, int]]) -> bool:
    """Whether models of chosen rows, which no machine's own memory holds that is built, may lie beside it.

    Parameters
    ----------
    ways
        Threads and clusters that the machine may have.
    """
    if not plan.watched or given.keys() & {"record_depth", "scratch_depth"}:
        return False
    if min(model_words(plan, clusters) for _, clusters in ways) <= MAX_WORDS:
        return False
    return any(threads == 1 and to_records(clusters) for threads, clusters in ways)


def to_records(clusters: int) -> bool:
    """Whether a record memory takes a thread's row of lanes."""
    return clusters * LANES_PER_CLUSTER * 4 <= WIDEST_LINK
