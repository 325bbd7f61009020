"""Scheduling: the order of a section's operations and the cycles that each waits.

In: the operations of one section, in an order in which they may run. Out: the same operations in the order in which
they issue, each with its wait, and the wait of the section's end. It moves no operation to another section and knows no
addresses: an operation waits for the buffers' rows that it reads.

Issue is in order and nothing interlocks (docs/machine.md, section 2), so every hazard is resolved here:

* a row is read when the result that it holds can be read;
* results come out one a cycle, whichever unit they come from;
* a row's later result comes out later than its earlier one;
* an ordered operation waits until no result before it comes out later than its own;
* entries of the index file are used when they are set, and set again when all of the last ones are (a row that an entry
  chooses counts as all that it may choose);
* an operation's turn takes at least MIN_INSTRUCTION cycles.

List scheduling: among the ready operations, the one with the longest chain of operations after it goes first; if none
is ready, the one with the earliest operands. If its results would collide with others at the write port, it waits, and
shorter ones that end before that go in between.

A section of few rows and long chains mostly waits. Then nothing may delay the longest chain: an operation goes only if
it ends before any with a longer chain can begin, or the rows of it that do; the rest of its rows go later.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import repeat
from operator import sub

from dana.compiler.select.ops import Access, Buffer, Home, VectorOp
from dana.compiler.select.selection import Selection
from dana.errors import InternalError
from hwgen.spec import cycles
from hwgen.spec.engine import Mask, Opcode, Section

LONG_AGO = -(1 << 40)
CANDIDATES = 8
"""Operations that are looked at for a gap."""

WAITING = 0.5
"""Fraction of its busy cycles that a section may wait before another order is tried."""

MAX_OPERATIONS = 500
"""Operations of a section that is ordered twice. A step of the second order may look at all pairs of operations that
could go, so a section takes the cube of its operations at worst."""

LEAST_PART = 3
"""Rows for which an operation is worth dividing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """A section: its operations in order, each with its wait, and END's.

    `length`: cycles of the section, END included, SECTION_START not.
    """

    issue: tuple[tuple[VectorOp, int], ...]
    end_wait: int
    length: int

    @property
    def busy(self) -> int:
        """Cycles in which rows issue."""
        return sum(op.busy for op, _ in self.issue)


def schedule_sections(selection: Selection, *, reorder: bool) -> Mapping[Section, Schedule]:
    """Schedule every section; `reorder` as for `schedule`."""
    return {section: schedule(ops, reorder=reorder) for section, ops in selection.ops.items()}


def schedules_text(schedules: Mapping[Section, Schedule]) -> str:
    """The operations for people, in order, each behind the cycles that it waits."""
    lines = []
    for section, found in schedules.items():
        lines += [f"{section}: {found.length} cycles", *(f"    +{wait} {op}" for op, wait in found.issue)]
        lines.append(f"    +{found.end_wait} end")
    return "\n".join(lines) + "\n"


def schedule(ops: Sequence[VectorOp], *, reorder: bool = True) -> Schedule:
    """Order a section and count its waits; without `reorder` the given order stays, which needs fewer rows."""
    if not reorder:
        clock = Clock()
        return _ended([(op, clock.issue(op, clock.operands_ready(op))) for op in ops], clock)
    found = _in_turn(ops)
    if found.length <= (1 + WAITING) * found.busy or len(ops) > MAX_OPERATIONS:
        return found
    return min(found, _in_gaps(ops), key=lambda option: option.length)


def _in_turn(ops: Sequence[VectorOp]) -> Schedule:
    """The order in which of the operations that could go the one with the longest chain behind it does."""
    after = _dependences(ops)
    priority = _priorities(ops, after)
    clock = Clock()
    missing = Counter(other for followers in after for other in followers)
    start: dict[int, int] = {}
    future: list[tuple[int, int]] = []
    available: list[tuple[int, int]] = []

    def release(k: int) -> None:
        start[k] = clock.operands_ready(ops[k])
        # a short operation's turn has to begin before its row issues: turns take MIN_INSTRUCTION cycles
        heapq.heappush(future, (start[k] - _least_wait(ops[k]), k))

    for k in range(len(ops)):
        if not missing[k]:
            release(k)
    issue = []
    while future or available:
        while future and future[0][0] <= clock.now:
            _, k = heapq.heappop(future)
            heapq.heappush(available, (-priority[k], k))
        k = _chosen(ops, available, start, clock) if available else heapq.heappop(future)[1]
        issue.append((ops[k], clock.issue(ops[k], start[k])))
        for other in after[k]:
            missing[other] -= 1
            if not missing[other]:
                release(other)
    return _ended(issue, clock)


def _ended(issue: Sequence[tuple[VectorOp, int]], clock: Clock) -> Schedule:
    # END waits for the last result: the next section reads rows without checking for pending writes
    end_wait = max(0, clock.last_write - clock.now, cycles.MIN_INSTRUCTION - 1)
    return Schedule(issue=tuple(issue), end_wait=end_wait, length=clock.now + end_wait + 1)


def _in_gaps(ops: Sequence[VectorOp]) -> Schedule:
    """The order in which the longest chain is never delayed."""
    ops = list(ops)
    after = _dependences(ops)
    priority = _priorities(ops, after)
    clock = Clock()
    missing = Counter(other for followers in after for other in followers)
    start = {k: clock.operands_ready(op) for k, op in enumerate(ops) if not missing[k]}
    issue = []
    while start:
        k, rows = _fitting(ops, start, priority, clock)
        if rows < ops[k].rows:
            # the rest begins at another row, and its operands may be ready later
            op, ops[k] = _cut(ops[k], rows)
            issue.append((op, clock.issue(op, start[k])))
            start[k] = clock.operands_ready(ops[k])
            continue
        issue.append((ops[k], clock.issue(ops[k], start.pop(k))))
        for other in after[k]:
            missing[other] -= 1
            if not missing[other]:
                start[other] = clock.operands_ready(ops[other])
    return _ended(issue, clock)


def _fitting(
    ops: Sequence[VectorOp], start: Mapping[int, int], priority: Sequence[int], clock: Clock
) -> tuple[int, int]:
    """The operation that can go first without delaying another, and how many of its rows."""
    turn = {k: max(clock.now, begin - _least_wait(ops[k])) for k, begin in start.items()}
    order = sorted(turn, key=lambda k: (turn[k], -priority[k]))
    for at, k in enumerate(order):
        op, begin = ops[k], clock.first(ops[k], start[k])
        # the first of those behind it that matters more: one before it would have gone, or does not fit either
        until = next((turn[other] for other in order[at + 1 :] if priority[other] > priority[k]), None)
        if until is None or begin + op.busy <= until:
            return k, op.rows
        if until - begin >= LEAST_PART and _divisible(op):
            return k, until - begin
    raise InternalError("no operation has the longest chain")


def _divisible(op: VectorOp) -> bool:
    """Whether the inner loop may be two: a row a cycle, and nothing that depends on its place in a loop."""
    # masks, tails and entries count the loops' rounds, which a part would count anew
    counts = op.mask is not Mask.NONE or op.tail_a or op.tail_b or op.a.indexed or op.dst.indexed
    apart = all(read == op.dst or read.buffer is not op.dst.buffer for read in op.reads())
    return op.outer == 1 and op.interval == 1 and op.op is not Opcode.SETX and apart and not counts


def _cut(op: VectorOp, rows: int) -> tuple[VectorOp, VectorOp]:
    """The first rows of the inner loop, and the others."""

    def behind(access: Access) -> Access:
        return replace(access, base=access.base + rows * access.inner)

    rest = replace(
        op,
        inner=op.inner - rows,
        dst=behind(op.dst),
        a=behind(op.a),
        b=None if op.b is None else behind(op.b),
    )
    return replace(op, inner=rows), rest


def _chosen(ops: Sequence[VectorOp], available: list[tuple[int, int]], start: Mapping[int, int], clock: Clock) -> int:
    """The operation that goes first."""
    # the one of the longest chain, unless its results would meet others: then a shorter one that ends before
    best = heapq.heappop(available)
    begin = clock.first(ops[best[1]], start[best[1]])
    if not available or begin <= clock.now + _least_wait(ops[best[1]]):
        return best[1]
    for other in heapq.nsmallest(CANDIDATES, available):
        op = ops[other[1]]
        if clock.first(op, start[other[1]]) + op.busy <= begin:
            # exchanged in place; the operation that waits stays available
            available.remove(other)
            available.append(best)
            heapq.heapify(available)
            return other[1]
    return best[1]


def _least_wait(op: VectorOp) -> int:
    return max(0, cycles.MIN_INSTRUCTION - op.busy)


def _dependences(ops: Sequence[VectorOp]) -> list[dict[int, bool]]:
    """For each operation those that must come after it, with whether they read its result."""
    after: list[dict[int, bool]] = [{} for _ in ops]
    writer: dict[Buffer, int] = {}
    readers: dict[Buffer, list[int]] = {}

    def follow(first: int, then: int, *, reads: bool) -> None:
        if first != then:
            after[first][then] = after[first].get(then, False) or reads

    for k, op in enumerate(ops):
        for access in op.reads():
            # read after write: the result has to come out first
            if access.buffer in writer:
                follow(writer[access.buffer], k, reads=True)
            readers.setdefault(access.buffer, []).append(k)
        # write after read, and write after write: a later turn; `operands_ready` keeps the order of two results
        target = op.dst.buffer
        if target in writer:
            follow(writer[target], k, reads=False)
        for reader in readers.pop(target, ()):
            follow(reader, k, reads=False)
        writer[target] = k
    return after


def _priorities(ops: Sequence[VectorOp], after: list[dict[int, bool]]) -> list[int]:
    """Cycles from an operation's first row to the end of the longest chain behind it, about."""
    # a reader waits for the latency; other successors only for the rows to have issued
    length = [0] * len(ops)
    for k in reversed(range(len(ops))):
        op = ops[k]
        rows = op.busy
        length[k] = max(
            [
                rows + op.latency,
                *(length[o] + (max(rows, op.latency) if reads else rows) for o, reads in after[k].items()),
            ]
        )
    return length


class Clock:
    """Cycles since the start of a section, and what they hold."""

    def __init__(self) -> None:
        self.now = 0
        self.last_write = -1
        self._ready: dict[Buffer, list[int]] = {}
        self._port = 0
        """The cycles in which results come out: bit c stands for c cycles from now."""

    def operands_ready(self, op: VectorOp) -> int:
        """First cycle in which the operation's first row may issue."""
        earliest = max([self._rows_ready(op, access) for access in op.reads()])
        if op.ordered:
            # the sequencer has to know which entries repeat
            entries = next(access for access in op.reads() if access.buffer.home is Home.INDEX)
            earliest = max(earliest, self._rows_ready(op, entries) + cycles.ORDER_LATENCY - cycles.INDEX_LATENCY)
        # entries that operations under way still use must not change; a row's later result has to come out later
        if op.op is Opcode.SETX:
            return max(earliest, *self._ready.get(op.dst.buffer, (0,)))
        return max(earliest, self._rows_ready(op, op.dst) - op.first_latency + 1)

    def _rows_ready(self, op: VectorOp, access: Access) -> int:
        """First cycle in which the operation's first row may issue for rows of an operand to be ready."""
        ready = self._ready.get(access.buffer)
        if ready is None:
            return 0
        earliest = 0
        # a row that issues later may be ready that much later
        for rows, issues in op.spans(access):
            behind = issues if len(issues) > 1 else repeat(issues.start)
            earliest = max(earliest, *map(sub, ready[rows.start : rows.stop : rows.step], behind))
        return earliest

    def first(self, op: VectorOp, start: int) -> int:
        """Cycle in which the operation's first row issues, if it goes next and its operands are there at `start`."""
        first = max(start, self.now + _least_wait(op))
        # one write port: no two results may come out in one cycle, whichever units they come from
        while taken := self._port >> first - self.now & op.writes:
            # of adjacent cycles the last that is taken must lie before the first
            first += 1 if op.op.special else taken.bit_length() - op.first_latency + 1
        # rows that wait must not meet a result of those before
        if op.ordered:
            first = max(first, self.now + self._port.bit_length() - op.first_latency + 1)
        return first

    def issue(self, op: VectorOp, start: int) -> int:
        """Let the operation's turn begin; returns its wait."""
        first = self.first(op, start)
        self.last_write = max(self.last_write, first + op.writes.bit_length() - 1)
        wait = first - self.now
        self._port = (self._port | op.writes << wait) >> wait + op.busy
        self.now += wait + op.busy
        ready = self._ready.get(op.dst.buffer)
        if ready is None:
            ready = self._ready[op.dst.buffer] = [LONG_AGO] * op.dst.buffer.rows
        # of several results for a row the last one counts, which comes out later than all before
        for rows, issues in op.spans(op.dst, last=True):
            results = [first + issue + op.latency for issue in issues]
            ready[rows.start : rows.stop : rows.step] = results if len(results) > 1 else results * len(rows)
        return wait
