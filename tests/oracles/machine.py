"""The engine of docs/machine.md, executed with NumPy: sections, rounds, masks, exchanges and the merge stack.

In: a Bundle and the rows of its tuples. Out: the scratchpads after an epoch and what the sequencer did. The rows of an
instruction are computed at once unless one reads what an earlier one wrote. Results count as visible as soon as their
instruction is over, so a program must keep the waits of docs/machine.md to mean the same here and there:
`dana.compiler.check.verify` says whether it does. It must not read the compiler, the simulator or the RTL.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from hwgen.spec import cycles, numerics
from hwgen.spec.bundle import WHOLE_EPOCH, Bundle, Symbol
from hwgen.spec.config import LANES_PER_CLUSTER
from hwgen.spec.engine import SHORT, Instruction, Mask, Opcode, Section, Source
from hwgen.spec.operations import Exchange
from tests.oracles.operations import BINARY, UNARY

Floats = npt.NDArray[np.float32]

EXCHANGED = frozenset(op for op in Opcode if op.exchange is not Exchange.NEVER)
"""Operations that an exchange may have."""


class MachineFault(Exception):
    """The machine would stop, or the program is not one that docs/machine.md allows."""


@dataclass(kw_only=True)
class Epoch:
    """What the sequencer did in one epoch.

    Attributes
    ----------
    ran
        (section, level) in order; level is 0 but for merge and push.
    waits
        Cycles that rows of ordered instructions waited, of each of them.
    busy
        ENGINE_BUSY: SECTION_START + length over all sections run.
    rounds
        Tuples of each round.
    """

    ran: list[tuple[Section, int]] = field(default_factory=list)
    waits: list[int] = field(default_factory=list)
    busy: int = 0
    rounds: list[int] = field(default_factory=list)


def garbage(shape: tuple[int, ...], seed: int) -> Floats:
    """Words that a memory may hold before it is written: ordinary, huge, infinite, NaN."""
    rng = np.random.default_rng(seed)
    words = rng.normal(size=shape).astype(np.float32)
    odd = np.array([np.nan, np.inf, -np.inf, 3e38, -0.0, 1e-38], dtype=np.float32)
    return np.where(rng.random(shape) < 0.25, rng.choice(odd, size=shape), words).astype(np.float32)


def tuple_rows(places: list[tuple[int, npt.ArrayLike]], rows: int, lanes: int, seed: int = 0) -> Floats:
    """Lay tuples out as the unpacker does; lanes that no element fills hold garbage.

    Parameters
    ----------
    places
        (first row, values of shape [tuples, …]) of each input.
    rows
        Rows of a tuple.

    Returns
    -------
    array of float32, shape [tuples, rows, lanes]
    """
    values = [(row, np.asarray(value, dtype=np.float32)) for row, value in places]
    count = values[0][1].shape[0]
    out = garbage((count, rows, lanes), seed)
    for row, value in values:
        flushed = numerics.flush(value)
        if value.ndim == 1:
            out[:, row, :] = flushed[:, None]
        else:
            n = value.shape[-1]
            index = np.arange(n)
            vectors = flushed.reshape(count, -1, n)
            for k in range(vectors.shape[1]):
                out[:, row + k * -(-n // lanes) + index // lanes, index % lanes] = vectors[:, k]
    return out


class Machine:
    """An engine with its memories.

    Parameters
    ----------
    bundle
        Program, image and shape of the machine.
    seed
        Of the garbage in tuple memory before the first tuple.
    """

    def __init__(self, bundle: Bundle, *, seed: int = 0) -> None:
        self.bundle = bundle
        config = bundle.config
        self.threads, self.lanes, self.group = config.threads, config.lanes, bundle.group
        if 2 * self.group * bundle.tuple_rows > config.tuple_depth:
            raise MachineFault(f"two halves of {self.group} x {bundle.tuple_rows} rows exceed {config.tuple_depth}")
        self.scratch = np.zeros((self.threads, config.scratch_depth, self.lanes), dtype=np.float32)
        self.halves = garbage((2, self.threads, self.group * bundle.tuple_rows, self.lanes), seed)
        self.index = np.zeros((self.threads, config.index_depth), dtype=np.int64)
        self.outbox = garbage((self.threads, self.group * bundle.tuple_rows, self.lanes), seed + 1)
        self.records = [np.zeros((table.records, table.rows, self.lanes), dtype=np.float32) for table in bundle.tables]
        self.watched = [column for column in bundle.columns if column.table]
        self.write_image()

    def write_image(self) -> None:
        """What the host does before training: the image to every thread, zero elsewhere."""
        image = self.bundle.image.view(np.float32)
        self.scratch[:] = 0.0
        self.scratch[:, : image.shape[0], :] = image
        self._drop_halves()
        for records in self.records:
            records[:] = 0.0

    def write(self, symbol: Symbol, value: npt.ArrayLike) -> None:
        """The host writes a value to every thread."""
        rows = symbol.place(value, self.lanes)
        if symbol.table:
            self._of(symbol)[:] = rows.reshape(symbol.shape[0], -1, self.lanes)
            return
        self.scratch[:, symbol.row : symbol.row + rows.shape[0], :] = rows
        self._drop_halves()

    def read(self, symbol: Symbol) -> Floats:
        """The host reads a value from thread 0."""
        if symbol.table:
            return symbol.collect(self._of(symbol).reshape(-1, self.lanes))
        rows = self.scratch[0, symbol.row : symbol.row + symbol.rows(self.lanes)]
        return symbol.collect(rows)

    def _of(self, symbol: Symbol) -> Floats:
        """A model's part of its table, shape [records, rows, lanes]."""
        rows = symbol.rows(self.lanes) // symbol.shape[0]
        return self.records[symbol.table - 1][:, symbol.row : symbol.row + rows]

    def epoch(self, tuples: Floats, numbers: Floats | None = None) -> Epoch:
        """Run one epoch.

        Parameters
        ----------
        tuples
            Shape [tuples, tuple_rows, lanes].
        numbers
            What watched columns say, shape [tuples, watched columns]; None: batches end where they are full.
        """
        bundle, done = self.bundle, Epoch()
        self._run(Section.INIT, 0, 0, 0, done)
        half = 0
        for start, stop in self._batches(len(tuples), numbers):
            rounds = range(start, stop, bundle.round_tuples)
            for q, first in enumerate(rounds):
                last = min(first + bundle.round_tuples, stop)
                self._load(half, tuples[first:last])
                if numbers is not None and self.records:
                    self._fetch(half, numbers[first:last])
                self._round(half, last - first, q, last == stop, done)
                if numbers is not None and self.records:
                    self._store(numbers[first:last])
                half ^= 1
        if len(tuples):
            self._run(Section.EPOCH, 0, 0, 0, done)
        return done

    def _batches(self, tuples: int, numbers: Floats | None) -> list[tuple[int, int]]:
        """First tuple of each batch and the one behind its last."""
        most = tuples if self.bundle.batch == WHOLE_EPOCH else self.bundle.batch
        starts: list[int] = []
        written: set[tuple[int, float]] = set()
        for t in range(tuples):
            named = [] if numbers is None else list(zip(self.watched, numbers[t].tolist(), strict=True))
            # -0.0 and 0.0 are one row, as are other numbers that differ in their sign alone
            if not starts or t - starts[-1] == most or any((c.table, abs(n)) in written for c, n in named):
                starts.append(t)
                written = set()
            written |= {(c.table, abs(n)) for c, n in named if c.writes}
        return list(zip(starts, [*starts[1:], tuples], strict=False))

    def _fetch(self, half: int, numbers: Floats) -> None:
        """The records that a round names, to its half of tuple memory."""
        for j, named in enumerate(numbers):
            for k, (column, n) in enumerate(zip(self.watched, numerics.flush(named), strict=True)):
                table = self.records[column.table - 1]
                if not (n == np.trunc(n) and 0 <= n < len(table)):
                    raise MachineFault(f"INDEX: {n} of {len(table)}, watched column {k}")
                at = j % self.group * self.bundle.tuple_rows + column.row
                self.halves[half, j // self.group, at : at + table.shape[1]] = table[int(n)]

    def _store(self, numbers: Floats) -> None:
        """The outbox to the records that the round's tuples write."""
        for j, named in enumerate(numbers):
            for column, n in zip(self.watched, numerics.flush(named), strict=True):
                if column.writes:
                    table, at = self.records[column.table - 1], j % self.group * self.bundle.tuple_rows + column.row
                    table[int(n)] = self.outbox[j // self.group, at : at + table.shape[1]]

    def tuple_section(self, m: int) -> Section:
        """What a round of m tuples runs."""
        short = [section for section, most in SHORT.items() if m <= most and section in self.bundle.sections]
        return short[0] if short else Section.TUPLE

    def _load(self, half: int, tuples: Floats) -> None:
        rows = self.bundle.tuple_rows
        for j, words in enumerate(tuples):
            slot = j % self.group * rows
            self.halves[half, j // self.group, slot : slot + rows] = words

    def _round(self, half: int, m: int, q: int, batch_last: bool, done: Epoch) -> None:
        done.rounds.append(m)
        if Section.MERGE not in self.bundle.sections and not (q == 0 and batch_last):
            raise MachineFault("a batch of several rounds needs a merge section")
        self._run(self.tuple_section(m), half, m, 0, done)
        level = 0
        while q >> level & 1:
            self._run(Section.MERGE, half, m, level, done)
            level += 1
        if batch_last:
            for higher in range(level + 1, q.bit_length()):
                if q >> higher & 1:
                    self._run(Section.MERGE, half, m, higher, done)
            if self.tuple_section(m) is Section.TUPLE:
                self._run(Section.BATCH, half, m, 0, done)
        elif level >= self.bundle.levels:
            raise MachineFault(f"STACK: level {level} of {self.bundle.levels}")
        else:
            self._run(Section.PUSH, half, m, level, done)

    def _run(self, section: Section, half: int, m: int, level: int, done: Epoch) -> None:
        if section not in self.bundle.sections:
            return
        instructions = self.bundle.section(section)
        done.ran.append((section, level))
        done.busy += cycles.SECTION_START + section_length(instructions, self.bundle.config.divide_interval)
        done.waits.append(0)
        for instruction in instructions[:-1]:
            if section in (Section.BATCH, Section.EPOCH, Section.INIT) and (instruction.a_tuple or instruction.b_tuple):
                raise MachineFault(f"{section} reads tuple memory")
            self.execute(instruction, half=half, m=m, level=level)
            if instruction.ordered:
                done.waits[-1] += cycles.ORDER_WINDOW * self._repeats(instruction, m)
        done.busy += done.waits[-1]

    def _repeats(self, instruction: Instruction, m: int) -> int:
        """Rows of an ordered instruction with an entry of thread 0 that is among those shortly before it."""
        entries = self.index[0, : min(m, instruction.outer) * instruction.inner].tolist()
        return sum(x in entries[max(0, r - cycles.ORDER_WINDOW) : r] for r, x in enumerate(entries))

    def execute(self, instruction: Instruction, *, half: int = 0, m: int = 0, level: int = 0) -> None:
        """Run one instruction on a half of tuple memory, with m tuples in the round, at a level of the merge stack."""
        shift = level * self.bundle.level_stride
        o = np.repeat(np.arange(instruction.outer), instruction.inner)
        i = np.tile(np.arange(instruction.inner), instruction.outer)
        dst = instruction.dst + o * instruction.dst_outer + i * instruction.dst_inner + instruction.dst_level * shift
        a = instruction.a + o * instruction.a_outer + i * instruction.a_inner + instruction.a_level * shift
        _check_exchange(instruction, crossed=bool(self.bundle.config.crossed))
        if instruction.op is Opcode.SETX:
            self._set_index(instruction, _entries(instruction, o, i), o, a, half, m)
            return
        if instruction.op is Opcode.PUT:
            words = self._read(a, instruction.a_tuple, half)
            if instruction.mask is Mask.SINGLE:
                words = np.where(self._absent(o, m), np.float32(0.0), words)
            if dst.max() >= self.outbox.shape[1]:
                raise MachineFault(f"PUT writes row {dst.max()} of {self.outbox.shape[1]}")
            self.outbox[:, dst] = words
            return
        b = instruction.b + o * instruction.b_outer + i * instruction.b_inner
        if instruction.indexed:
            for r in range(len(dst)):
                row = slice(r, r + 1)
                self._rows(instruction, o[row], i[row], dst[row], a[row], b[row], half, m)
            return
        if dst.max() >= self.scratch.shape[1]:
            raise MachineFault(f"{instruction.op.name} writes row {dst.max()} of {self.scratch.shape[1]}")
        at_once = True
        first_write = np.full(self.scratch.shape[1], len(dst))
        np.minimum.at(first_write, dst, np.arange(len(dst)))
        read = [address for address, in_tuples in ((a, instruction.a_tuple), (b, instruction.b_tuple)) if not in_tuples]
        if instruction.op is Opcode.MOVC:
            read.append(dst)
        for address in read:
            if address.max() < len(first_write):
                at_once &= bool((first_write[address] >= np.arange(len(dst))).all())
        if at_once:
            self._rows(instruction, o, i, dst, a, b, half, m)
        else:
            for r in range(len(dst)):
                row = slice(r, r + 1)
                self._rows(instruction, o[row], i[row], dst[row], a[row], b[row], half, m)

    def _set_index(
        self,
        instruction: Instruction,
        entry: npt.NDArray[np.int64],
        o: npt.NDArray[np.int64],
        a: npt.NDArray[np.int64],
        half: int,
        m: int,
    ) -> None:
        """SETX: entries of every thread from lane 0."""
        words = numerics.flush(self._read(a, instruction.a_tuple, half)[:, :, 0])
        if instruction.mask is Mask.SINGLE:
            words = np.where(self._absent(o, m)[:, :, 0], np.float32(0.0), words)
        good = (words == np.trunc(words)) & (words >= 0) & (words < instruction.dst)
        if not good.all():
            raise MachineFault(f"INDEX: {words[~good][0]} of {instruction.dst}, tag {instruction.b}")
        self.index[:, entry] = words.astype(np.int64) * instruction.dst_outer

    def _rows(
        self,
        instruction: Instruction,
        o: npt.NDArray[np.int64],
        i: npt.NDArray[np.int64],
        dst: npt.NDArray[np.int64],
        a: npt.NDArray[np.int64],
        b: npt.NDArray[np.int64],
        half: int,
        m: int,
    ) -> None:
        op = instruction.op
        identity = np.array(op.identity or 0, dtype=np.uint32).view(np.float32)
        lane = np.arange(self.lanes)
        thread = np.arange(self.threads)
        last = (i == instruction.inner - 1)[:, None] & (lane >= instruction.tail)
        target = np.broadcast_to(dst, (self.threads, len(dst)))
        if instruction.dst_index:
            target = target + self.index[:, _entries(instruction, o, i)]
        if instruction.a_index:
            left = self.scratch[thread[:, None], a + self.index[:, _entries(instruction, o, i)]]
        else:
            left = self._read(a, instruction.a_tuple, half)
        right = self._read(b, instruction.b_tuple, half)
        exchange = instruction.source is not Source.MEMORY
        across = thread[:, None, None] if instruction.source is Source.THREAD_XOR else lane
        set_ = (across >> instruction.distance & 1).astype(bool)
        if exchange:
            left, right = np.where(set_, right, left), np.where(set_, left, right)
        if instruction.tail_a:
            left = np.where(last, identity, left)
        if instruction.tail_b:
            right = np.where(last, identity, right)
        if instruction.mask is Mask.PAIR:
            left = np.where(self._absent(2 * o, m), identity, left)
            right = np.where(self._absent(2 * o + 1, m), identity, right)
        elif instruction.mask is Mask.SINGLE:
            left = np.where(self._absent(o, m), identity, left)
            right = np.where(self._absent(o, m), identity, right) if exchange else right
        reach = {Source.LANE_XOR: self.lanes, Source.THREAD_XOR: self.threads}.get(instruction.source)
        if reach is not None and 1 << instruction.distance >= reach:
            raise MachineFault(f"{instruction.source.name} {instruction.distance} leaves the {reach} there are")
        if instruction.source is Source.LANE_XOR:
            right = right[:, :, lane ^ 1 << instruction.distance]
        elif instruction.source is Source.THREAD_XOR:
            right = right[thread ^ 1 << instruction.distance]
        if op.special and instruction.scalar:
            first = lane // LANES_PER_CLUSTER * LANES_PER_CLUSTER
            left, right = left[:, :, first], right[:, :, first]
        if op is Opcode.MOV:
            result = left
        elif op.chooses:
            result = numerics.flush(np.where(set_ == (op is Opcode.HIGH), left, right))
        elif op is Opcode.MOVC:
            result = np.where(right != 0.0, left, self.scratch[thread[:, None], target])
        elif op in BINARY:
            result = BINARY[op](left, right)
        elif op in UNARY:
            result = UNARY[op](left)
        else:
            raise MachineFault(f"{op.name} is not an operation on rows")
        writes = np.ones((self.threads, len(dst)), dtype=np.bool_)
        if instruction.dst_index and instruction.mask is Mask.SINGLE:
            writes = ~self._absent(o, m)[:, :, 0]
        self.scratch[np.broadcast_to(thread[:, None], target.shape)[writes], target[writes]] = result[writes]
        self._drop_halves()

    def _drop_halves(self) -> None:
        """Rows of bfloat16 keep the upper half of each word."""
        if self.bundle.config.wide_depth:
            self.scratch.view(np.uint32)[:, self.bundle.config.wide_depth :] &= np.uint32(0xFFFF0000)

    def _read(self, address: npt.NDArray[np.int64], in_tuples: int, half: int) -> Floats:
        """Rows of all threads, shape [threads, rows, lanes]."""
        memory = self.halves[half] if in_tuples else self.scratch
        if address.max() >= memory.shape[1]:
            raise MachineFault(f"row {address.max()} of a memory of {memory.shape[1]} is read")
        return memory[:, address, :]

    def _absent(self, t: npt.NDArray[np.int64], m: int) -> npt.NDArray[np.bool_]:
        """Whether a thread's tuple t is missing, shape [threads, rows, 1]."""
        number = np.arange(self.threads)[:, None] * self.group + t
        return np.asarray(number >= m)[:, :, None]


def _entries(instruction: Instruction, o: npt.NDArray[np.int64], i: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Entries of the index file that rows set or use."""
    return o * instruction.inner + i if instruction.each else o


def _check_exchange(instruction: Instruction, *, crossed: bool) -> None:
    """Refuse what docs/machine.md, section "Exchanges", refuses, on a machine with or without crossed ones."""
    op = instruction.op
    if instruction.source is Source.MEMORY:
        if op.chooses:
            raise MachineFault(f"{op.name} without an exchange")
        return
    if op not in EXCHANGED:
        raise MachineFault(f"{op.name} has no exchange source")
    if instruction.a_tuple != instruction.b_tuple or instruction.a_level or instruction.mask is Mask.PAIR:
        raise MachineFault("an exchange of operands from two memories, with a level or with tuples in pairs")
    plain = all(
        getattr(instruction, f"a{part}") == getattr(instruction, f"b{part}") for part in ("", "_inner", "_outer")
    )
    if not crossed and (op.chooses or not plain):
        raise MachineFault(f"{op.name} crosses operands, and the machine has no crossed exchanges")


def interval(instruction: Instruction, divide_interval: int) -> int:
    """Cycles between two rows of an instruction."""
    if not instruction.op.special:
        return 1
    return cycles.element_interval(instruction.op, divide_interval) * (1 if instruction.scalar else LANES_PER_CLUSTER)


def section_length(instructions: tuple[Instruction, ...], divide_interval: int) -> int:
    """Cycles of a section, END included and SECTION_START not."""
    body = sum(i.wait + i.rows * interval(i, divide_interval) for i in instructions[:-1])
    return body + instructions[-1].wait + 1
