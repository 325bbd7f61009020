"""Folds as code: the language's order, by rows of lanes first and within the lanes at last.

In: reductions of a plan. Out: loops that store their results; scalars of a block of tuples as vectors. No
other order: see `dana.jit.arithmetic.folded`.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from llvmlite import ir

from dana.jit.arithmetic import FLOAT, I32, Vectors, combine, folded, mask, operation
from dana.jit.loops import BLOCK, ZERO, Found, Index, Indices, Var
from dana.jit.plan import of_tuples
from dana.jit.values import Values
from dana.simulator.layout import LANES, lanes_of
from dsl.hdfg.graph import ELEMENTWISE
from dsl.hdfg.ops import FROM_ROW, REDUCTIONS
from hwgen.spec.numerics import IDENTITIES

UNROLLED = 16
"""Rows that are folded without a loop."""
APART = 8
"""Rows of a loop's turn, where there are more; their sums and those of some tuples stay in registers."""
NEAR = 8
"""Tuples that are near to the processor while rows of weights pass."""
TOGETHER, WEIGHT_ROWS = 4, 2
"""Tuples, and rows of weights, folded in parallel: each is loaded once for all of the other."""
SHORT, SIDE = 4 * LANES, 4
"""Floats of a short row; the number of short rows that are reduced in each other's lanes."""


class Folds(Values):
    """Writes reductions."""

    @contextmanager
    def _over_tuples(self, phase: int) -> Iterator[Index]:
        if not of_tuples(phase):
            yield ZERO
            return
        if self._run == 1:
            yield self._turn
            return
        with self._loop(self._run) as t:
            yield t

    def _reduction(self, k: int) -> None:
        plan, node = self.plan, self.plan.nodes[k]
        operand, shape, axis = node.inputs[0], plan.shape(k), node.axis
        assert axis is not None
        extents = plan.shape(operand)
        op, last = REDUCTIONS[node.op], axis == len(extents) - 1
        # an axis of one element has nothing to fold in lanes
        if last and extents[-1] > 1:
            self._fold_last(k, operand, extents[-1], op)
            return
        vector = lanes_of(extents)
        with self._over_tuples(plan.phase[k]) as t, self._axes(shape, vector=vector) as idx:

            def leaf(place: Index) -> Vectors:
                return (self._value(operand, (*idx[:axis], place, *idx[axis:]), t, vector=vector).value,)

            (value,) = self._fold(extents[axis], leaf, op, vector=vector, masked=None)
            self._keep(value, k, idx, t, vector=vector)

    def _fold_last(self, k: int, operand: int, extent: int, op: str) -> None:
        """A fold over the last axis: of several results at once, so that what they share is loaded once."""
        plan, shape = self.plan, self.plan.shape(k)
        tuples = self._run if of_tuples(plan.phase[k]) else 1
        if not shape and tuples == BLOCK:
            # scalars of a block: rows of several tuples are reduced in each other's lanes
            self._block_folds([k])
            return
        if extent <= SHORT and shape:  # side by side along what lies side by side in memory
            with self._over_tuples(plan.phase[k]) as t, self._axes(shape[:-1], vector=0) as idx:
                whole = shape[-1] - shape[-1] % SIDE
                for first, stop in ((0, whole), (whole, shape[-1])):
                    if first == stop:
                        continue
                    with self._loop(stop, SIDE, first) as group:
                        each = [((*idx, group.plus(i)), t) for i in range(min(SIDE, stop - first))]
                        parts = [self._folded_rows([operand], [one], extent, op)[0] for one in each]
                        value = self._shuffled(self._in_lanes(op, parts, extent), range(len(parts)))
                        self._store_own(value, k, (*idx, group), t)
            return
        together = TOGETHER if tuples % TOGETHER == 0 else 1
        passed = NEAR if tuples % NEAR == 0 else tuples
        rows = WEIGHT_ROWS if shape and shape[-1] % WEIGHT_ROWS == 0 else 1
        with (
            self._loop(tuples, passed) as near,
            self._axes(shape[:-1], vector=0) as idx,
            self._loop(shape[-1] if shape else 1, rows) as last,
            self._loop(passed, together) as few,
        ):
            # loads are not hoisted from here: registers hold no more vectors
            self._many = True
            t = self._sum(near, few) if tuples > 1 else self._turn
            each = [((*idx, last.plus(j)) if shape else (), t.plus(i)) for i in range(together) for j in range(rows)]
            lanes = self._in_lanes(op, self._folded_rows([operand], each, extent, op), extent)
            for i, (place, t) in enumerate(each):
                self._keep(self._builder.extract_element(lanes, I32(i)), k, place, t, vector=0)
            self._many = False
            if shape and self._run == BLOCK:
                self._prefetch_tuples(operand, [t for place, t in each if place == each[0][0]], last, rows)

    def _prefetch_tuples(self, operand: int, tuples: Sequence[Index], last: Index, rows: int) -> None:
        """Prefetch a part of the following tuples in each iteration over the rows of weights."""
        *_, weights, extent = self.plan.shape(operand)
        part = -(-extent * rows // (weights * LANES)) * LANES
        for i in self.graph.inputs:
            if self.plan.shape(i) == (extent,) and not self.places[i].spacing and i not in self.plan.reads(operand):
                with self._loop(part, LANES) as line:
                    for t in tuples:
                        at = self._address(self._place(i, t), 0, [(last, part // rows), (line, 1)])
                        self._ask_ahead(i, at, vector=LANES)

    def _block_folds(self, folds: Sequence[int], vectors: Callable[[Index, Index, int], None] | None = None) -> None:
        """Folds of a block's tuples by one operation, with what makes a vector of their operands first.

        Some tuples' end in each other's lanes, and then those of all: each step there waits for the one before.
        """
        plan = self.plan
        operands = [plan.nodes[k].inputs[0] for k in folds]
        # folds of one nest have one extent and one operation (`Plan._fused_folds`)
        ((extent,),) = {plan.shape(operand) for operand in operands}
        (op,) = {REDUCTIONS[plan.nodes[k].op] for k in folds}
        lanes, width = self._lanes(extent), 0
        rest = LANES * len(folds)
        left = self._rows_of(rest, BLOCK // SIDE)
        with self._loop(BLOCK, SIDE) as group:
            some = [((), group.plus(i)) for i in range(SIDE)]
            self._many = extent > SHORT
            parts: list[list[ir.Value]] = [[] for _ in folds]
            # more share what is no tuple's
            for few in [some] if self._many or self.widest < LANES else [[one] for one in some]:
                values = self._folded_rows(operands, few, extent, op, vectors)
                for number, own in enumerate(parts):
                    own += values[number * len(few) : (number + 1) * len(few)]
            self._many = False
            for number, own in enumerate(parts):
                ((value,), width) = self._pairs(op, own, lanes, extent)
                self._store(value, self._address(self._state, left + number * LANES, [(group, rest // SIDE)]))
        for number, k in enumerate(folds):
            first = left + number * LANES
            places = [self._address(self._state, first + n * rest, []) for n in range(BLOCK // SIDE)]
            ends, _ = self._pairs(op, [self._load(at, vector=lanes).value for at in places], width, extent)
            size = BLOCK // len(ends)
            for n, value in enumerate(ends):
                self._store_own(self._shuffled(value, range(size)), k, (), Index(const=n * size))

    def _lanes(self, extent: int) -> int:
        """Floats of a fold's vectors: a block's are many at a time, and two registers for each are not there."""
        return min(lanes_of((extent,)), self.widest if self._run == BLOCK else LANES)

    def _folded_rows(
        self,
        operands: Sequence[int],
        wanted: Sequence[tuple[Indices, Index]],
        extent: int,
        op: str,
        vectors: Callable[[Index, Index, int], None] | None = None,
    ) -> Vectors:
        """Folds over the last axis, down to a vector each: of each operand, those that are wanted."""
        lanes = self._lanes(extent)
        rest = extent % lanes

        def leaf(row: Index) -> Vectors:
            place = Index(row.var, row.const * lanes)
            # before the operands: their values are then in the cache, and not loaded
            if vectors is not None:
                for _, t in wanted:
                    vectors(place, t, lanes)
            both = ((operand, idx, t) for operand in operands for idx, t in wanted)
            return tuple(self._value(operand, (*idx, place), t, vector=lanes).value for operand, idx, t in both)

        def masked(values: Vectors) -> Vectors:
            typ = ir.VectorType(FLOAT, lanes)
            # x op identity is x, bit for bit (docs/arithmetic.md), so that lanes behind the end change no result
            keep = ir.Constant(ir.VectorType(ir.IntType(1), lanes), [ir.IntType(1)(i < rest) for i in range(lanes)])
            none = ir.Constant(typ, [FLOAT(IDENTITIES[op])] * lanes)
            return tuple(self._builder.select(keep, value, none) for value in values)

        return self._fold(-(-extent // lanes), leaf, op, vector=lanes, masked=masked if rest else None, step=lanes)

    def _in_lanes(self, op: str, folds: Sequence[ir.Value], extent: int) -> ir.Value:
        """The rest of folds, which are a vector each: lane i of the result is fold i."""
        groups = 1 << (len(folds) - 1).bit_length()
        # copies of the last one fill up to a power of two; nothing reads their lanes
        parts, width = self._pairs(op, [*folds, *[folds[-1]] * (groups - len(folds))], self._lanes(extent), extent)
        assert len(parts) == 1
        while width > 1:
            low, high = self._halves_of(parts[0], width)
            left = self._shuffled(parts[0], low + low)
            # else the upper half lies behind the end: there is nothing to join
            if extent > width // 2:
                left = combine(self._builder, op, left, self._shuffled(parts[0], high + high))
            parts, width = [left], width // 2
        return parts[0]

    def _pairs(self, op: str, parts: Sequence[ir.Value], width: int, extent: int) -> tuple[Sequence[ir.Value], int]:
        """Vectors with the rest of folds, `width` lanes each, two in one, until one is left or each rest is a lane."""
        while width > 1 and len(parts) > 1:
            low, high = self._halves_of(parts[0], width)
            parts = [
                self._halves(op, a, b, low, high, folds=extent > width // 2)
                for a, b in zip(parts[::2], parts[1::2], strict=True)
            ]
            width //= 2
        return parts, width

    @staticmethod
    def _halves_of(value: ir.Value, width: int) -> tuple[list[int], list[int]]:
        """The lanes of the first halves of what is `width` lanes wide, and of the second."""
        low = [lane for first in range(0, value.type.count, width) for lane in range(first, first + width // 2)]
        return low, [lane + width // 2 for lane in low]

    def _halves(
        self, op: str, a: ir.Value, b: ir.Value, low: Sequence[int], high: Sequence[int], *, folds: bool
    ) -> ir.Value:
        def both(lanes: Sequence[int]) -> ir.Value:
            return self._builder.shuffle_vector(a, b, mask((*lanes, *(i + a.type.count for i in lanes))))

        return combine(self._builder, op, both(low), both(high)) if folds else both(low)

    def _shuffled(self, value: ir.Value, lanes: Sequence[int]) -> ir.Value:
        if list(lanes) == list(range(value.type.count)):
            return value
        return self._builder.shuffle_vector(value, value, mask(tuple(lanes)))

    def _fold(
        self,
        count: int,
        leaf: Callable[[Index], Vectors],
        op: str,
        *,
        vector: int,
        masked: Callable[[Vectors], Vectors] | None,
        step: int = 1,
    ) -> Vectors:
        """The language's fold of `count` values; `masked` is applied to the last of them. A row's index counts `step`.

        Of many, those that are a power of two apart are folded first, in a loop, and then what that leaves in memory.
        """
        if count <= UNROLLED:
            last = count - 1

            def few(i: int) -> Vectors:
                return leaf(Index(const=i)) if masked is None or i < last else masked(leaf(Index(const=i)))

            return folded(self._builder, op, count, few)
        # a power of two, so that the loop's folds are the first steps of the language's order
        apart = 1 << (-(-count // APART) - 1).bit_length()
        most = -(-count // apart)
        full = count - apart * (most - 1)
        width = vector or 1
        number, first = 0, 0
        whole = full if masked is None else full - 1
        # rows with a part more, the last of them masked, and rows without
        parts = ((0, whole, most, False), (whole, full, most, True), (full, apart, most - 1, False))
        for start, stop, times, is_last in parts:
            if start == stop:
                continue
            with self._loop(stop * step, step, start * step) as row:

                def one(q: int, row: Index = row, is_last: bool = is_last, times: int = times) -> Vectors:
                    const = row.const // step if row.var is None else 0
                    values = leaf(Index(row.var, const + apart * q))
                    return masked(values) if is_last and masked is not None and q == times - 1 else values

                values = folded(self._builder, op, times, one)
                number = len(values)
                first = self._rows_of(number * width, apart)
                for i, value in enumerate(values):
                    terms = [(row, number * width // step)]
                    self._store(value, self._address(self._state, first + i * width, terms))

        def kept(row: Index) -> Vectors:
            places = [self._address(self._state, first + i * width, [(row, number * width)]) for i in range(number)]
            # in the loop: it is what the loop before stored, and changes for each use of this memory
            return tuple(self._load(place, vector=vector, here=True).value for place in places)

        return self._fold(apart, kept, op, vector=vector, masked=None)

    def _rows_of(self, floats: int, count: int) -> int:
        """Memory for so many rows of what a loop leaves."""
        if (floats, count) not in self._left:
            self._left[floats, count] = self.memory.room(floats * count)
        return self._left[floats, count]

    def _sum(self, a: Index, b: Index) -> Index:
        if a.var is None or b.var is None:
            return Index(a.var or b.var, a.const + b.const)
        return Index(Var(self._builder.add(a.var.value, b.var.value), len(self._preheaders)), a.const + b.const)

    def _across(self, k: int) -> ir.Value:
        """A scalar of each tuple of the block, as a vector."""
        key = ("across", k)
        if key in self._caches[-1]:
            return self._caches[-1][key].value
        node, builder, count = self.plan.nodes[k], self._builder, self._run
        typ = ir.VectorType(FLOAT, count)
        if k in self._counted_by:
            value = builder.load(self._address(self._state, self._counted_by[k], []).value, typ=typ, align=4)
        elif not of_tuples(self.plan.phase[k]):
            value = self._splat(self._value(k, (), ZERO, vector=0), count).value
        elif k in self.plan.kept:
            self._read.add(k)
            value = builder.load(self._own(k, (), ZERO).value, typ=typ, align=4)
        elif node.op in ELEMENTWISE:
            value = self._computed_across(k)
        elif node.op in FROM_ROW and self.places[k].spacing == 1:
            place = self._address(self._place(k, ZERO), 0, [(self._tuple, 1)])
            value = builder.load(place.value, typ=typ, align=4)
        else:
            value = ir.Constant(typ, None)
            for t in range(count):
                one = self._value(k, (), Index(const=t), vector=0)
                value = builder.insert_element(value, one.value, I32(t))
        self._caches[-1][key] = Found(value, len(self._preheaders))
        return value

    def _computed_across(self, k: int) -> ir.Value:
        node = self.plan.nodes[k]
        return operation(self._builder, node.op, [self._across(i) for i in node.inputs])
