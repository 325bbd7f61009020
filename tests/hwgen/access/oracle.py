"""The access engine as `docs/machine.md` has it, sections 4 and 5, in plain Python: meaning and cycles.

Written from the document and from `hwgen.spec`, not from the RTL.
"""

from __future__ import annotations

from collections import deque

import numpy as np

from hwgen.spec import cycles
from hwgen.spec.bundle import WHOLE_EPOCH
from hwgen.spec.columns import Column, ColumnType
from hwgen.spec.config import MachineConfig
from hwgen.spec.counters import UNKNOWN_PAGE
from hwgen.spec.strider import Fault
from tests.hwgen.access.case import Case, Outcome, Round, Stop, Write
from tests.oracles.strider import Push, StriderModel


def column_fault(column: Column, address: int, config: MachineConfig) -> Fault:
    if column.count == 0 or column.lane >= config.lanes:
        return Fault.BAD_INSTRUCTION
    watchable = config.watch_depth and column.count == 1 and not (column.first or column.last or column.follows)
    if column.table and not watchable:
        return Fault.BAD_INSTRUCTION
    if address + column.count * column.type.bytes > config.page_size:
        return Fault.OUT_OF_PAGE
    return Fault.NONE


def column_writes(column: Column, page: bytes, address: int, config: MachineConfig) -> list[tuple[int, dict[int, int]]]:
    """What each beat of a column writes: row within the tuple, lanes with their bit patterns."""
    stored = np.frombuffer(page, dtype=column.type.dtype, count=column.count, offset=address)
    values = column.type.convert(stored).view(np.uint32).tolist()
    lanes = config.lanes
    # a beat writes adjacent lanes, from a multiple of their number on: as many elements as a row of bytes has
    width = lanes if column.type is ColumnType.FLOAT4 else min(config.converters, 4 * lanes // stored.itemsize)
    beats: list[tuple[int, dict[int, int]]] = []
    groups: dict[tuple[int, int], dict[int, int]] = {}
    for e, value in enumerate(values):
        row, lane = column.row + (column.lane + e) // lanes, (column.lane + e) % lanes
        if column.scalar:
            beats.append((column.row + e, dict.fromkeys(range(lanes), value)))
        else:
            group = row, lane // width
            if group not in groups:
                groups[group] = {}
                beats.append((row, groups[group]))
            groups[group][lane] = value
    assert len(beats) == column.beats(lanes, config.converters)
    return beats


class _Machine:
    """The recurrences."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.out = Outcome()
        config = case.config
        self.capacity = config.threads << case.group_log2
        self.take = self.done = 0
        self.ats: list[int] = []
        self.count = self.total = self.in_batch = 0
        self.open = False
        self.before: int | None = None
        """Descriptor of the epoch's last column."""
        self.written: deque[tuple[int, int, bool]] = deque(maxlen=config.watch_depth)
        """Table and row that tuples of the round write, and whether the tuple has begun; of the one to come, not."""
        self.cut = False
        self.watched: int | None = None
        self.cut_known: int | None = None
        """When it is known that the tuple to come ends the batch."""
        self.ahead: int | None = None
        """Of a tuple that went ahead: when it is known where it goes."""
        self.moves = False
        """It begins a round."""
        self.settled = self.handed = 0
        """When the tuple before is where it stays; when what was handed over for it was."""
        self.hands: list[int] = []
        self.released: list[int] = []
        self.idle = 0
        self.named = 0
        """Records by the tuple to come."""

    def run(self) -> Outcome:
        case, config, out = self.case, self.case.config, self.out
        model = StriderModel(config, case.program, case.constants)
        sent = min(config.link_rate or 1000 * config.link_bytes, 1000 * config.link_bytes)
        taken = -(-1000 * config.page_size // sent)
        release: list[int] = []
        request = last = 0
        if not case.pages:
            out.empty = 1
        for p, page in enumerate(case.pages):
            free = release[p - config.striders] if p >= config.striders else 0
            request = max(request + 1, free + 1)
            out.requests.append(request)
            first = max(request + config.link_latency, last + 1 if p else 0)
            last = first + taken - 1
            turn = last + cycles.STRIDER_START
            takes: list[int] = []
            for k, entry in enumerate(model.run(page)):
                push = turn + entry.work - 1
                if k >= config.queue_depth:
                    push = max(push, takes[k - config.queue_depth] + 1)
                turn = push + 1
                at = self._arrive(push)
                takes.append(self.take)
                fault = self._work(entry, page, at, last_page=p == len(case.pages) - 1)
                if fault:
                    index = fault is Fault.INDEX
                    out.fault = Stop(fault, UNKNOWN_PAGE if index else p, self.named if index else entry.pointer)
                    return out
                if entry.end:
                    release.append(self.done - 1 + cycles.PAGE_RELEASE)
        out.skipped = model.skipped
        return out

    def _arrive(self, push: int) -> int:
        stages = cycles.UNPACK_STAGES
        self.take = max(push + 1, self.take + 1)
        if len(self.ats) >= stages:
            self.take = max(self.take, self.ats[-stages] - 1)
        at = max(self.take + stages + 1, self.done)
        self.ats.append(at)
        return at

    def _work(self, entry: Push, page: bytes, at: int, *, last_page: bool) -> Fault:
        config, out = self.case.config, self.out
        if entry.fault:
            return entry.fault
        if entry.end:
            if self.open and last_page:
                return Fault.TUPLE_PARTS
            at = max(at, self.settled, self.handed)
            self.done = at + 1
            if last_page:
                if self.count:
                    self._hand_over(at, epoch_last=True)
                else:
                    out.empty = at + cycles.UNPACK_LATENCY
            return Fault.NONE
        assert entry.column is not None
        table = self.case.columns
        column = table[entry.column] if entry.column < len(table) else Column(count=0, row=0, type=ColumnType.FLOAT4)
        fault = column_fault(column, entry.address, config)
        if fault:
            return fault
        behind = self.before is not None and entry.column == self.before + 1
        if bool(column.first or column.table) == self.open or (column.follows and not column.first and not behind):
            return Fault.TUPLE_PARTS
        self.before = entry.column
        if column.table:
            number = self._watch(column, page, entry.address, at)
            self.watched, self.done = at, at + 1
            if self.case.tables:
                if not (number == np.trunc(number) and 0 <= number < self.case.tables[column.table - 1][0]):
                    return Fault.INDEX
                self.named += 1
            return Fault.NONE
        if column.first:
            at = self._begins(at)
        go = max(at, self.handed)
        if column.first and self._full():
            self._hand_over(at, epoch_last=False)
            q = len(self.hands)  # the round that begins
            go = max(at, self.released[q - 2] + 1 if q >= 2 else 0, self.hands[-1] if self.case.tables else 0)
            self.count = 0
            if self._batch_complete():
                self.in_batch = 0
            self.cut = False
        if column.first and (self.moves or self.count == 0):
            self.written = deque((one for one in self.written if not one[2]), maxlen=config.watch_depth)
        if column.first:
            self.open = True
            self.named = 0
            self.written = deque(((table, row, True) for table, row, _ in self.written), maxlen=config.watch_depth)
        j, half = (0, (len(self.hands) + 1) % 2) if self.moves else (self.count, len(self.hands) % 2)
        thread, slot = j >> self.case.group_log2, j & (1 << self.case.group_log2) - 1
        base = slot * self.case.tuple_rows
        writes = column_writes(column, page, entry.address, config)
        for beat, (row, lanes) in enumerate(writes):
            out.writes.append(Write(go + beat, thread, half, base + row, tuple(sorted(lanes.items()))))
        self.done = go + len(writes)
        if column.last:
            self.open = False
            if self.moves:
                decided = max(self.ahead or 0, self.done)
                self.cut = True
                self._hand_over(decided + 1, epoch_last=False)
                self.cut = self.moves = False
                self.count = self.in_batch = 0
                self.settled, self.handed = decided + 2, self.hands[-1] if self.case.tables else 0
            elif self.ahead is not None:
                self.settled = self.ahead + 1
            self.count += 1
            self.in_batch += 1
        return Fault.NONE

    def _begins(self, at: int) -> int:
        """When a tuple has a place, if the round is not full; and whether it went there before that was known."""
        cut_known, self.cut_known, self.ahead = self.cut_known, None, None
        at = max(at, self.settled)
        if self.watched is None:
            return at
        known, q = self.watched + cycles.WATCH_LATENCY, len(self.hands)
        free = self.released[q - 1] + 1 if q else 0
        early = max(at, self.watched + cycles.WATCH_AHEAD, free)
        room = min(self.capacity - self.count, self.case.batch - self.in_batch)
        if not self._full() and room > 1 and early < known and (cut_known is None or early < cut_known):
            self.ahead, self.moves = known, cut_known is not None
            return early
        self.cut = self.cut or cut_known is not None
        return max(at, known)

    def _watch(self, column: Column, page: bytes, address: int, at: int) -> np.float32:
        """Whether the row is one that an earlier tuple of the batch writes: then the batch ends. Returns its number."""
        stored = np.frombuffer(page, dtype=column.type.dtype, count=1, offset=address)
        number = column.type.convert(stored)
        row = int(number.view(np.uint32)[0]) & 0x7FFFFFFF
        if self.count and not self._full() and (column.table, row, True) in self.written:
            self.cut_known = self.cut_known or at + cycles.WATCH_LATENCY
        if column.writes:
            self.written.append((column.table, row, False))
        return np.float32(number[0])

    def _batch_complete(self) -> bool:
        return self.cut or (self.case.batch != WHOLE_EPOCH and self.in_batch == self.case.batch)

    def _full(self) -> bool:
        return self.count == self.capacity or (self.count > 0 and self._batch_complete())

    def _hand_over(self, at: int, *, epoch_last: bool) -> None:
        hand = at + cycles.UNPACK_LATENCY
        latency, tables = self.case.config.record_latency, self.case.tables
        named = [c for c in self.case.columns if c.table] if tables else []
        if tables:
            hand = max(hand, self.out.stored + 1) + cycles.RECORD_START + latency
            hand += self.count * sum(tables[c.table - 1][1] for c in named)
        batch_last = epoch_last or self._batch_complete()
        self.out.rounds.append(Round(hand, self.count, batch_last, epoch_last))
        until_release, until_idle = self.case.delays[len(self.hands) % len(self.case.delays)]
        start = max(hand, self.idle)
        self.hands.append(hand)
        self.released.append(start + until_release)
        self.out.stored = start + until_release
        if any(c.writes for c in named):
            self.out.stored += cycles.RECORD_STORE + latency
            self.out.stored += self.count * sum(tables[c.table - 1][1] for c in named if c.writes)
        self.idle = start + until_release + until_idle


def expect(case: Case) -> Outcome:
    """What the machine does with a case under the modelled link; `Write.cycle` is the beat's, not the bus's."""
    return _Machine(case).run()
