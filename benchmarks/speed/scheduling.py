"""How far list scheduling is from the best schedule: the sections `tuple` and `batch` of shipped rules, and CP-SAT's.

In: programs for the machine that a rule gets by itself, 54 features, as in `cost`. Out: the cycles of the compiler's
schedules over a bound that OR-tools' CP-SAT proves, and over those of the best that it finds, from the compiler's on.
The model encodes the hazards of docs/machine.md independently of the compiler, and the compiler's clock checks the
schedules that CP-SAT finds.
OR-tools is no dependency of this project: `pip install ortools`.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from benchmarks.measure import Figure, main
from benchmarks.speed.cost import ROWS, table_for
from dana import rules
from dana.codesign.default import default_results
from dana.compiler import bind
from dana.compiler.schedule.list_scheduling import Clock, Schedule
from dana.compiler.select.ops import Buffer, VectorOp
from dsl import compile_rule
from hwgen.spec import cycles
from hwgen.spec.engine import Opcode, Section

RULES = ("linear", "logistic", "huber", "linear_svm", "softmax", "mlp", "kmeans", "pca", "lrmf", "lrmf_dense")
SECONDS = float(os.environ.get("DANA_SECONDS", "120"))
"""Of CP-SAT for a section, at most."""

TARGET = 1.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheduled:
    """A section: its operations in an order that may run, and the compiler's schedule of them."""

    ops: tuple[VectorOp, ...]
    found: Schedule


@dataclass(frozen=True, slots=True, kw_only=True)
class Best:
    """Cycles of the best schedule that CP-SAT finds for a section, and a bound of any schedule."""

    length: int
    bound: int


def run() -> list[Figure]:
    """Schedule and solve."""
    return [_measured(name) for name in RULES]


def _measured(name: str) -> Figure:
    sections = sections_of(name)
    best = [solve(section, seconds=SECONDS) for section in sections]
    taken, least = sum(section.found.length for section in sections), sum(one.bound for one in best)
    found = sum(min(one.length, section.found.length) for one, section in zip(best, sections, strict=True))
    return Figure(
        what=f"{name}: {' + '.join(str(len(section.ops)) for section in sections)} operations",
        measured=f"{taken} cycles, {100 * (taken / found - 1):.1f} % more than the best found",
        reference=f"at least {least}, found {found}",
        ratio=taken / least,
        target=TARGET,
    )


def sections_of(name: str) -> list[Scheduled]:
    """The sections of a shipped rule's program that run for rounds and batches."""
    text = rules.text(name)
    schema = table_for(text)
    results = default_results(bind(compile_rule(text, filename=name).hdfg, schema), schema, max_tuples=ROWS)
    ops, schedules = results["selection"].ops, results["schedules"]
    return [Scheduled(ops=tuple(ops[k]), found=schedules[k]) for k in (Section.TUPLE, Section.BATCH) if k in schedules]


def solve(section: Scheduled, *, seconds: float) -> Best:
    """The best schedule that CP-SAT finds, from the compiler's on, and the least cycles that it leaves possible."""
    from ortools.sat.python import cp_model

    # more than the compiler takes: it may divide an operation, which is one here
    ops, horizon = section.ops, 2 * section.found.length
    model = cp_model.CpModel()
    first = [model.new_int_var(0, horizon, f"first{k}") for k in range(len(ops))]
    length = model.new_int_var(0, horizon, "length")
    turns, results = [], []
    for begin, op in zip(first, ops, strict=True):
        end = begin + op.busy
        # a turn takes MIN_INSTRUCTION cycles at least: the wait comes before the rows
        turn = max(op.busy, cycles.MIN_INSTRUCTION)
        model.add(end >= turn)
        turns.append(model.new_fixed_size_interval_var(end - turn, turn, "turn"))
        # one write port
        results += [
            model.new_fixed_size_interval_var(begin + at, size, "results") for at, size in results_of(op.writes)
        ]
        # END waits for the last result, and takes a turn of its own
        model.add(length >= begin + op.writes.bit_length())
        model.add(length >= end + cycles.MIN_INSTRUCTION)
    model.add_no_overlap(turns)
    model.add_no_overlap(results)
    for (before, after), apart in distances_of(ops).items():
        model.add(first[after] >= first[before] + apart)
    model.minimize(length)
    for k, begin in begins_of(section).items():
        model.add_hint(first[k], begin)
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = seconds
    solver.parameters.num_workers = 8  # its strategies differ, also on fewer cores
    status = solver.solve(model)
    bound = round(solver.best_objective_bound)
    if status == cp_model.UNKNOWN:
        return Best(length=horizon, bound=bound)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        raise RuntimeError(f"CP-SAT on the model of a schedule: {solver.status_name(status)}")
    return Best(length=issued([(op, solver.value(begin)) for op, begin in zip(ops, first, strict=True)]), bound=bound)


def issued(begins: Sequence[tuple[VectorOp, int]]) -> int:
    """Cycles of a section by the compiler's count, of operations that begin in these cycles.

    RuntimeError where the machine could not begin one then.
    """
    clock = Clock()
    for op, begin in sorted(begins, key=lambda one: one[1]):
        clock.issue(op, max(begin, clock.operands_ready(op)))
        if clock.now - op.busy != begin:
            raise RuntimeError(
                f"{op} begins in cycle {begin} of the model, and on the machine in {clock.now - op.busy}"
            )
    return max(clock.last_write + 1, clock.now + cycles.MIN_INSTRUCTION)


def results_of(writes: int) -> Iterator[tuple[int, int]]:
    """First cycle and number of adjacent results, of a mask of cycles."""
    at = 0
    while writes:
        empty = (writes & -writes).bit_length() - 1
        writes >>= empty
        size = (~writes & writes + 1).bit_length() - 1
        yield at + empty, size
        writes >>= size
        at += empty + size


def begins_of(section: Scheduled) -> dict[int, int]:
    """Cycles in which operations begin in the compiler's schedule, but for those that it divided."""
    places = {id(op): k for k, op in enumerate(section.ops)}
    begins, now = {}, 0
    for op, wait in section.found.issue:
        if id(op) in places:
            begins[places[id(op)]] = now + wait
        now += wait + op.busy
    return begins


def distances_of(ops: Sequence[VectorOp]) -> dict[tuple[int, int], int]:
    """For operations in an order that may run: cycles between the first rows of two, at the least."""
    apart: dict[tuple[int, int], int] = defaultdict(lambda: -1)
    written: dict[Buffer, dict[int, tuple[int, int]]] = defaultdict(dict)
    writers: dict[Buffer, int] = {}
    readers: dict[Buffer, list[int]] = defaultdict(list)

    def keep(before: int, after: int, distance: int) -> None:
        # issue is in order: an operation begins behind all rows of the one before
        apart[before, after] = max(apart[before, after], distance, ops[before].busy)

    for k, op in enumerate(ops):
        for access in op.reads():
            if access.buffer in writers:
                keep(writers[access.buffer], k, 0)
            readers[access.buffer].append(k)
            for rows, issues in op.spans(access):
                for place, row in enumerate(rows):
                    if row in written[access.buffer]:
                        before, ready = written[access.buffer][row]
                        keep(before, k, ready - issues[place if len(issues) > 1 else 0])
        target = op.dst.buffer
        for before in [writers.get(target), *readers.pop(target, ())]:
            if before is not None and before != k:
                keep(before, k, 0)
        if op.op is Opcode.SETX:  # entries are set again when all that were set can be used
            for before, ready in written[target].values():
                keep(before, k, ready)
        for rows, issues in op.spans(op.dst):
            for place, row in enumerate(rows):
                if row in written[target]:  # a later result comes out later
                    before, ready = written[target][row]
                    keep(before, k, ready - issues[place if len(issues) > 1 else 0] - op.first_latency + 1)
        for rows, issues in op.spans(op.dst, last=True):
            for place, row in enumerate(rows):
                written[target][row] = k, issues[place if len(issues) > 1 else 0] + op.latency
        writers[target] = k
    return dict(apart)


if __name__ == "__main__":
    main(run)
