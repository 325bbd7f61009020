"""Machines for rules with tuples that choose rows: tuples in parallel, and whether models lie in external memory.

In: a plan and the user's overrides of the machine. Out: numbers. It compiles nothing.
"""

from collections.abc import Iterable, Mapping, Sequence

from dana.codesign.size import MAX_CONFIG, MAX_LANES, MAX_WORDS, model_words
from dana.compiler.place.records import tuple_rows
from dana.compiler.place.rows import Record
from dana.compiler.place.sections import Plan
from dana.compiler.place.watch import rows_written
from dana.compiler.rounds import power_of_two, together_for
from dana.errors import UsageError
from hwgen.spec.config import LANES_PER_CLUSTER, WIDEST_BUS, MachineConfig

TOGETHER = 16
"""Default limit of a batch that ends where a row is chosen again, in tuples."""

IN_RECORDS = 32
"""The same if models lie in records: more tuples share the memory's latency."""


def together(plan: Plan, given: Mapping[str, int], threads: int) -> int:
    """Tuples of a batch that ends where a row is chosen again, as the user's memories allow."""
    most = IN_RECORDS if given.get("record_depth") else TOGETHER
    return together_for(
        plan,
        threads=threads,
        index_depth=given.get("index_depth", most),
        watch_depth=given.get("watch_depth", rows_written(plan.watched) * most),
        record_depth=given.get("record_depth", 0),
        tuple_rows=1,
        tuple_depth=given.get("tuple_depth", MAX_CONFIG.tuple_depth) // rows_of_tuple(plan, MAX_LANES, given),
    )


def rows_of_tuple(plan: Plan, lanes: int, given: Mapping[str, int]) -> int:
    """Rows of a tuple in tuple memory, about."""
    return tuple_rows(plan, lanes, records=bool(plan.watched and given.get("record_depth")))


def record_depth(plan: Plan) -> int:
    """Records of a batch, for a machine with models of chosen rows in external memory."""
    return power_of_two(len(plan.watched) * IN_RECORDS)


def moving_cycles(records: Sequence[Record], tuples: int) -> int:
    """Cycles in which the records of a batch are fetched and stored, behind its section `tuple`: a row in each."""
    rows = tuples * sum(one.rows * (1 + one.column.writes) for one in records)
    return 2 * MachineConfig().record_latency + rows if records else 0


def may_have_records(plan: Plan, given: Mapping[str, int]) -> bool:
    """Whether models of chosen rows may lie in external memory, unless the user decides."""
    return bool(plan.watched) and "record_depth" not in given and not against_records(plan, given)


def against_records(plan: Plan, given: Mapping[str, int]) -> list[str]:
    """Overrides that keep a machine from having the models of this rule's chosen rows in external memory."""
    # for two tuples: with fewer, no batch would run side by side
    least = {"record_depth": 2 * len(plan.watched), "watch_depth": 2 * rows_written(plan.watched)}
    against = [name for name, value in least.items() if given.get(name, value) < value]
    return against + ([] if to_records(given.get("clusters", 1)) else ["clusters"])


def check_records(plan: Plan, given: Mapping[str, int]) -> None:
    """Raise UsageError where the user wants records that the rule or the rest of the machine does not go with."""
    if not given.get("record_depth") or (not plan.watched and given.get("watch_depth")):
        return
    if not plan.watched:
        why = "updates rows otherwise" if plan.indexed else "chooses no rows"
        raise UsageError(
            f"record_depth must be 0 for rule {plan.graph.name!r}: records hold rows of models that a table's columns "
            f"choose, where nothing is merged and nothing else is updated; this rule {why}",
            hint="Leave record_depth out of the design.",
        )
    against = against_records(plan, given)
    if against:
        raise UsageError(
            f"a machine with record_depth must have {needed_for_records(plan)}; not {overrides_text(given, against)}",
            hint=f"Leave {' and '.join(against)} out of the design: what is right follows from the rule.",
        )


def overrides_text(given: Mapping[str, int], names: Iterable[str]) -> str:
    """Some overrides, as they are typed."""
    return ", ".join(f"{name}={given[name]}" for name in names)


def needed_for_records(plan: Plan) -> str:
    """What a machine with record memory needs for this rule, in words."""
    return (
        f"clusters=1, 2 or {WIDEST_BUS // 4 // LANES_PER_CLUSTER}, and for this rule a record_depth of "
        f"at least {2 * len(plan.watched)} and a watch_depth of at least {2 * rows_written(plan.watched)}"
    )


def needs_records(plan: Plan, given: Mapping[str, int], ways: Sequence[tuple[int, int]]) -> bool:
    """Whether models of chosen rows exceed every machine's own memory and may lie in external memory.

    Parameters
    ----------
    ways
        Threads and clusters that the machine may have.
    """
    if not plan.watched or given.keys() & {"record_depth", "scratch_depth"}:
        return False
    if min(model_words(plan, clusters) for _, clusters in ways) <= MAX_WORDS:
        return False
    return any(to_records(clusters) for _, clusters in ways)


def to_records(clusters: int) -> bool:
    """Whether a record memory takes a thread's row of lanes."""
    # 4 bytes a lane, and the memory's widest beat
    return clusters * LANES_PER_CLUSTER * 4 <= WIDEST_BUS


def records_text(size: int) -> str:
    """Where the models of a machine with records lie, given their size in bytes."""
    return f"models of {size / 1e6:,.1f} MB in external memory, with rows fetched as tuples choose them"
