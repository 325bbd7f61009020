"""LLVM's IR for the nests of a plan.

In: a `Plan`, where a tuple's inputs lie. Out: a module of functions for the beginning of an epoch, for what precedes a
batch, for a block of tuples and for one, and for a batch's end.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from math import prod

from llvmlite import ir

from dana.jit.ahead import Ahead
from dana.jit.arithmetic import FLOAT, I32, I64, combine, operation, trees
from dana.jit.folds import TOGETHER
from dana.jit.loops import BLOCK, ZERO, Found, Index, Indices, Var
from dana.jit.memory import Merged
from dana.jit.plan import BATCH, EARLY, EPOCH, FUNCTIONS, LATE, SERIAL, TUPLE, Nest, Unsupported, of_tuples
from dana.simulator.layout import LANES, lanes_of, padded
from dsl.hdfg.graph import REDUCTIONS, EachEpoch, Op, Update
from dsl.hdfg.ops import ROW_NUMBERS

BYTES = 92
"""Approximate size of an instruction's text."""
IN_STEP = 8
"""Tuples that are merged in step, vector by vector: more that are pages apart would be in each other's places in the
first-level cache."""
MAX_OF_ONE = 256 << 10
"""Bytes of a pass over one tuple, to which there is one over a block, of four times as many: its seconds in LLVM would
be longer than what it saves."""
USUAL_CACHE = 512 << 10
"""Bytes of a second-level cache, where the system does not say."""


@cache
def block_bytes() -> int:
    """Most bytes of a block's rows: three quarters of the second-level cache, which also holds the merged values."""
    size = os.sysconf("SC_LEVEL2_CACHE_SIZE") if "SC_LEVEL2_CACHE_SIZE" in os.sysconf_names else 0
    return (size if size > 0 else USUAL_CACHE) // 4 * 3


class Emitter(Ahead):
    """Writes one module."""

    # --- functions --------------------------------------------------------------------------------------------------

    def emit(self) -> ir.Module:
        """Write every function."""
        with self._function("begin"):
            self._nests(EPOCH)
        if self.graph.has_merge:
            self._batches()
        else:
            self._tuple_by_tuple()
        self._drop_unread()
        return self.module

    def _batches(self) -> None:
        with self._function("before"):
            self._nests(BATCH)
            if self.plan.by_row:
                self._builder.store(I64(0), self._address(self._state, self._waiting, []).value, align=4)
            self._begin_pass()
        self._pass("block", "one", TUPLE)
        for number, phase in enumerate(self.plan.passes[1:]):
            with self._function(f"between_{number}", slots=True):
                self._nests(phase - 1)
                self._begin_pass()
            self._pass(f"block_{number}", f"one_{number}", phase)
        for name, is_last in self._ends("after", "last"):
            with self._function(name, slots=True):
                self._nests(self.plan.last, wanted=None if is_last else self._wanted())
                self._end(is_last)

    def _pass(self, block: str, one: str, phase: int) -> None:
        """A pass over the batch's tuples: for one, and for a block of them unless that takes LLVM too long."""
        plan, loss = self.plan, self.graph.loss
        written = self._written
        # the function for one first: its length decides whether LLVM is given sixteen times as much
        for name, count in ((one, 1), (block, BLOCK)):
            if count > 1 and (self._written - written > MAX_OF_ONE or self._beyond_cache):
                return
            if count > 1 and plan.at_once:
                self._serial_block(block)
                return
            self._run = count
            with self._function(name, slots=phase > TUPLE):
                # later passes find the rows near: the first one read them
                if phase == TUPLE and count > 1:
                    self._ask_first(I64(BLOCK))
                self._nests(phase)
                # before the updates: what is merged was computed from rows as the tuple found them
                for merges in self._alike([k for k in plan.merges if plan.phase[k] == phase + 1]):
                    self._merge(merges)
                if loss is not None and plan.merged_in(plan.phase[loss]) == phase:
                    self._merge({-1: loss})
                if plan.by_row and phase == plan.passes[-1]:
                    self._keep_rows()
                self._updates(plan.at_once)
                if self._counts:
                    self._count_rows()

    @property
    def _beyond_cache(self) -> bool:
        """Whether a block's merges would find its rows in no near cache, while no matrix is shared by its tuples."""
        row = max((prod(self.plan.shape(i)) for i in self.graph.inputs), default=0)
        return 4 * BLOCK * row > block_bytes() and all(len(self.plan.shape(k)) < 2 for k in self.plan.live)

    def _serial_block(self, name: str) -> None:
        """A pass over a block of tuples that see one another's rows: tuple by tuple, and then the block's trees."""
        plan, loss = self.plan, self.graph.loss
        if self._counts:
            return  # a tuple's number in its batch is the block's, and its own in it
        merged = [(k, plan.nodes[k].inputs[0]) for k in plan.merges] + ([] if loss is None else [(-1, loss)])
        with self._function(name):
            self._run = 1
            self._ask_first(I64(BLOCK))
            with self._loop(BLOCK) as t:
                self._outermost = t.level
                self._tuple = t
                self._nests(TUPLE)
                # before the updates, which write rows that the operands read
                for k, operand in merged:
                    self._keep_joined(k, operand, t)
                self._updates(plan.at_once)
            self._outermost, self._tuple, self._run = 0, ZERO, BLOCK
            for k, operand in merged:
                self._merge({k: operand}, self._joined.get(k))

    def _keep_joined(self, k: int, operand: int, t: Index) -> None:
        """Save a merge's operand until the end of the block: the next tuple overwrites it."""
        if k not in self._joined:
            return
        shape = self.plan.shape(operand)
        vector = lanes_of(shape)
        with self._axes(shape, vector=vector) as idx:
            value = self._value(operand, idx, ZERO, vector=vector).value
            self._store(value, self._element(self._joined[k], shape, idx, (t, prod(padded(shape)))))

    @property
    def _counts(self) -> bool:
        """Whether a tuple's number in its batch is asked for, or where what lasts of it lies."""
        return self.plan.numbered or bool(self.plan.lasting)

    def _begin_pass(self) -> None:
        if self._counts:
            self._builder.store(I64(0), self._address(self._state, self._numbered, []).value, align=4)

    def _tuple_by_tuple(self) -> None:
        """Batches of one: each function takes the tuples that come, at least one."""
        for name, is_last in self._ends("rows", "last_row"):
            with self._function(name):
                # sums of losses and of errors, as far as the epoch has come; other functions have slots there
                places = [self._builder.gep(self._third, [I64(i)], source_etype=FLOAT) for i in range(2)]
                sums = [self._builder.load(place, typ=FLOAT) for place in places]
                if self.plan.by_block:
                    sums = self._by_block(sums, is_last)
                else:
                    self._ask_first(self._count)
                    with self._summed(sums, self._count) as (t, before, after):
                        # `_at` hoists nothing out of this loop
                        self._outermost = t.level  # what is read of models changes from turn to turn
                        self._tuple = t
                        self._ask_later(t, self._count)
                        after += self._in_turn(TUPLE, before, is_last)
                    sums = after
                for place, value in zip(places, sums, strict=True):
                    self._builder.store(value, place)

    def _by_block(self, sums: list[ir.Value], is_last: bool) -> list[ir.Value]:
        """A block's tuples before their turn, each in its turn, and all of them after; there may be fewer."""
        builder, late = self._builder, bool(self.plan.parts.late)
        self._ask_first(self._count)
        with self._summed(sums, self._count, BLOCK) as (first, before, after):
            self._outermost, self._tuple, self._run = first.level, first, BLOCK
            assert first.var is not None
            left = builder.sub(self._count, first.var.value)
            count = builder.select(builder.icmp_signed("<", left, I64(BLOCK)), left, I64(BLOCK))
            for k in sorted(self.plan.parts.counters):
                self._number_tuples(k, count)
            self._nests(EARLY)
            self._run = 1
            with self._summed(before, count) as (turn, before_each, after_each):
                self._outermost, self._turn = turn.level, turn
                assert turn.var is not None
                self._ask_later(Index(Var(builder.add(first.var.value, turn.var.value), turn.level)), self._count)
                after_each += self._in_turn(SERIAL, before_each, is_last)
            self._outermost, self._turn, self._run = first.level, ZERO, BLOCK
            if late:
                self._nests(LATE)
                self._run = 1
                with self._summed(before, count) as (turn, before_each, after_each):
                    self._outermost, self._turn = turn.level, turn
                    after_each += self._with_loss(before_each)
                self._turn = ZERO
            after += after_each
        return after

    def _number_tuples(self, k: int, count: ir.Value) -> None:
        """A model that counts tuples, of each of a block: sums of whole numbers, which are exact."""
        builder, typ, most = self._builder, ir.VectorType(FLOAT, BLOCK), FLOAT(float(ROW_NUMBERS))
        place = self._own(k, (), ZERO).value
        first = builder.load(place, typ=FLOAT, align=4)
        steps = ir.Constant(typ, [FLOAT(float(t)) for t in range(BLOCK)])
        wrap = ir.Constant(typ, [most] * BLOCK)
        numbers = builder.fadd(self._splat(Found(first, len(self._preheaders)), BLOCK).value, steps)
        # once is enough: first + 15 is below twice ROW_NUMBERS, and sums of whole numbers below 2**24 are exact
        wrapped = builder.select(builder.fcmp_ordered(">=", numbers, wrap), builder.fsub(numbers, wrap), numbers)
        builder.store(wrapped, self._address(self._state, self._counted_by[k], []).value, align=4)
        after = builder.fadd(first, builder.sitofp(count, FLOAT))
        builder.store(builder.select(builder.fcmp_ordered(">=", after, most), builder.fsub(after, most), after), place)

    def _in_turn(self, phase: int, sums: Sequence[ir.Value], is_last: bool) -> Sequence[ir.Value]:
        """A tuple, and a batch's end; the epoch's losses with its own, where that is known by then."""
        # in each turn: the models are those that the tuple before has left
        self._nests(BATCH)
        self._nests(phase, wanted=None if is_last else self._wanted())
        # before `_end`, which writes models that the loss reads; a late loss has what it needs of each tuple
        after = sums if self.plan.parts.late else self._with_loss(sums)
        self._end(is_last)
        return after

    @contextmanager
    def _summed(
        self, sums: Sequence[ir.Value], stop: ir.Value, step: int = 1
    ) -> Iterator[tuple[Index, list[ir.Value], list[ir.Value]]]:
        """A loop that hands two sums, of losses and of errors, from turn to turn; the turn's own go into the last."""
        entry, after = self._builder.block, list[ir.Value]()
        # `stop` is no int, so that `_loop` makes a block, in which phis can stand
        with self._loop(stop, step) as turn:
            before = [self._builder.phi(FLOAT) for _ in sums]
            yield turn, before, after
            for phi, first, following in zip(before, sums, after, strict=True):
                phi.add_incoming(first, entry)
                phi.add_incoming(following, self._builder.block)

    def _with_loss(self, sums: Sequence[ir.Value]) -> Sequence[ir.Value]:
        """The epoch's sum of losses and that of its errors (Dekker 1971) with a tuple's."""
        if self.graph.loss is None:
            return sums
        builder, (total, errors) = self._builder, sums
        loss = self._value(self.graph.loss, (), self._turn, vector=0).value
        after = operation(builder, Op.ADD, [total, loss])
        # the interpreter's operations in its order (`Interpreter._added`), so that the bits are the same
        error = operation(builder, Op.SUB, [loss, operation(builder, Op.SUB, [after, total])])
        return after, operation(builder, Op.ADD, [errors, error])

    def _ends(self, name: str, last: str) -> list[tuple[str, bool]]:
        """The functions that end batches: the epoch's last has one of its own, where convergence is asked."""
        if self.graph.convergence is not None or self._counting:
            return [(name, False), (last, True)]
        self.functions[last] = name
        return [(name, False)]

    @property
    def _counting(self) -> list[int]:
        """Models that the end of an epoch changes."""
        return [k for k in self.graph.models if self.plan.nodes[k].each_epoch is not None]

    def _wanted(self) -> frozenset[int]:
        """Nodes needed when convergence is not tested."""
        loss = () if self.graph.loss is None else (self.graph.loss,)
        return self.graph.reachable([*(update.value for update in self.graph.updates), *loss])

    def _end(self, is_last: bool) -> None:
        # before the updates: the test reads models from before the batch
        if is_last and self.graph.convergence is not None:
            value = self._value(self.graph.convergence, (), self._turn, vector=0).value
            self._store(value, self._address(self._state, self.convergence, []))
        self._updates(self.plan.copied)
        if self.plan.by_row:
            self._write_rows()
        # last: the batch's own updates of a counting model are overwritten or counted on
        for k in self._counting if is_last else ():
            self._end_epoch(k)

    def _end_epoch(self, k: int) -> None:
        """Change a model at the end of an epoch."""
        node, place, builder = self.plan.nodes[k], self._own(k, (), ZERO).value, self._builder
        value = FLOAT(node.init.first)
        if node.each_epoch is EachEpoch.COUNT:
            value = builder.fadd(builder.load(place, typ=FLOAT, align=4), FLOAT(1.0))
        builder.store(value, place, align=4)

    def _count_rows(self) -> None:
        place, builder = self._address(self._state, self._numbered, []).value, self._builder
        builder.store(builder.add(I64(self._run), builder.load(place, typ=I64, align=4)), place, align=4)

    # --- nests ------------------------------------------------------------------------------------------------------

    def _nests(self, phase: int, *, wanted: frozenset[int] | None = None) -> None:
        fused = self.plan.fused if self._run == BLOCK else {}
        made = {k for folds in fused.values() for k in folds}
        for number, nest in enumerate(self.plan.nests):
            k = nest.nodes[0]
            if nest.phase != phase or k in made or (wanted is not None and not wanted.intersection(nest.nodes)):
                continue
            op = self.plan.nodes[k].op
            if op in REDUCTIONS:
                self._reduction(k)
            elif fused.get(number):
                self._with_folds(nest, fused[number])
            elif op in FUNCTIONS:
                self._special(k)
            elif op is Op.GATHER:
                self._gathered(k)
            else:
                self._elementwise(nest)
            self._bound()

    def _bound(self) -> None:
        """Give up before all is written where it gets longer than LLVM is given."""
        # the last block is not closed yet, and is counted when it is
        closed = self._builder.function.blocks[self._counted : -1]
        self._written += BYTES * sum(len(block.instructions) for block in closed)
        self._counted += len(closed)
        if self._written > self._most:
            raise Unsupported(f"its code would be longer than the {self._most >> 20} MB that LLVM is given")

    def _with_folds(self, nest: Nest, folds: Sequence[int]) -> None:
        """Vectors of a block's tuples, and folds of what is in registers by then."""

        def vectors(place: Index, t: Index, lanes: int) -> None:
            self._compute(nest, (place,), t, vector=lanes)

        self._block_folds(folds, vectors)

    def _elementwise(self, nest: Nest) -> None:
        if not nest.shape and of_tuples(nest.phase) and self._run > 1:
            for k in nest.nodes:
                value = self._computed_across(k)
                self._caches[-1]["across", k] = Found(value, len(self._preheaders))
                if k in self.plan.stores:
                    self._store_own(value, k, (), ZERO)
            return
        vector = lanes_of(nest.shape)
        tuples = self._run if of_tuples(nest.phase) else 1
        together = TOGETHER if tuples % TOGETHER == 0 and vector else 1
        with self._loop(tuples, together) as group, self._axes(nest.shape, vector=vector) as idx:
            group = group if tuples > 1 or not of_tuples(nest.phase) else self._turn
            for t in map(group.plus, range(together)):  # what they share is loaded once
                self._compute(nest, idx, t, vector=vector)

    def _compute(self, nest: Nest, idx: Indices, t: Index, *, vector: int) -> None:
        """A nest's values in a turn of its loops."""
        done = []
        # all values before the first store: an update in place writes what they read
        for k in nest.nodes:
            found = self._computed(k, idx, t, vector=vector)
            self._caches[found.level][self._key(k, idx, t, vector=vector)] = found
            done.append(found.value)
        for k, value in zip(nest.nodes, done, strict=True):
            if k in self.plan.stores:
                self._store_own(value, k, idx, t)
        for update in nest.updates:
            value = done[nest.nodes.index(update.value)]
            self._store(value, self._own(update.model, idx, ZERO))

    def _special(self, k: int) -> None:
        """A function over an array: its operands first, side by side."""
        plan, shape, phase = self.plan, self.plan.shape(k), self.plan.phase[k]
        operand, builder = plan.nodes[k].inputs[0], self._builder
        count = self._run if of_tuples(phase) else 1
        size = self._spacing(k)
        if not shape and count > 1:
            self._store(self._across(operand), self._address(self._state, self._operands, []))
        else:
            vector = lanes_of(shape)
            with self._over_tuples(phase) as t, self._axes(shape, vector=vector) as idx:
                value = self._operand(operand, shape, idx, t, vector=vector)
                self._store(value.value, self._element(self._operands, shape, idx, (t if count > 1 else ZERO, size)))
        to = self._own(k, (ZERO,) * len(shape), self._turn if count == 1 else ZERO)
        from_ = self._address(self._state, self._operands, [])
        code = I32(FUNCTIONS[plan.nodes[k].op])
        # twice: the function has a second operand in its signature, which those of the language lack
        builder.call(self._special_function, [code, I64(size * count), to.value, from_.value, from_.value])

    def _gathered(self, k: int) -> None:
        """Rows that the elements of a column choose, one by one."""
        model, numbers = self.plan.nodes[k].inputs
        with self._over_tuples(self.plan.phase[k]) as t, self._loop(self.plan.shape(k)[0]) as e:
            number = self._value(numbers, (e,), t, vector=0)
            row = Index(Var(self._builder.fptosi(number.value, I64), len(self._preheaders)))
            self._store_own(self._load(self._own(model, (row,), ZERO), vector=0).value, k, (e,), t)

    # --- merges and updates -----------------------------------------------------------------------------------------

    def _alike(self, merges: Sequence[int]) -> list[dict[int, int]]:
        """Merges with their operands, those together that share what they read of the rows.

        Two have 16 factors, more than some processors have registers: long rows gain all the same.
        """
        found: list[dict[int, int]] = []
        alone: dict[tuple[int, ...], dict[int, int]] = {}
        for k in merges:
            operand = self.plan.nodes[k].inputs[0]
            shape = self.plan.shape(operand)
            if other := alone.pop(shape, None):
                other[k] = operand
                continue
            found.append({k: operand})
            if self._run == BLOCK and lanes_of(shape) == LANES:
                alone[shape] = found[-1]
        return found

    def _merge(self, merges: dict[int, int], kept: int | None = None) -> None:
        """The block's trees, each joined with the trees that wait, and left on the stack.

        Parameters
        ----------
        merges
            Operands, of one shape if there are several.
        kept
            Where the values of the only one are.
        """
        merged = [self.memory.merged[self.merges[k]] for k in merges]
        shape = self.plan.shape(next(iter(merges.values())))
        level = self._run.bit_length() - 1
        if not shape:
            for one, operand in zip(merged, merges.values(), strict=True):
                self._merge_number(one, operand, kept)
            return
        vector = lanes_of(shape)
        together = min(self._run, IN_STEP)
        # trees of `together` tuples are at this level of the stack
        low = together.bit_length() - 1
        read = {i for operand in merges.values() for i in self.plan.reads(operand)}
        elsewhere = [i for i in self.graph.inputs if self.plan.shape(i) == shape and i not in read]
        for group in range(self._run // together):
            with self._axes(shape, vector=vector, last_first=True) as idx:

                def leaves(t: int, idx: Indices = idx) -> list[ir.Value]:
                    for i in elsewhere:
                        self._ask_ahead(i, self._input_at(i, idx, Index(const=t)), vector=vector)
                    if kept is None:
                        return [self._value(k, idx, Index(const=t), vector=vector).value for k in merges.values()]
                    at = self._element(kept, shape, idx, (Index(const=t), prod(padded(shape))))
                    return [self._load(at, vector=vector).value]

                ops = [one.op for one in merged]
                made = trees(self._builder, ops, group * together, together, leaves)
                for one, value in zip(merged, made, strict=True):
                    at = low

                    def waiting(level: int, one: Merged = one, idx: Indices = idx) -> Found:
                        return self._element(one.first + level * one.size, shape, idx)

                    # a binary counter: each bit of `group` that is set is a tree that waits for one of its size
                    while group >> (at - low) & 1:
                        before = self._load(waiting(at), vector=vector).value
                        value, at = combine(self._builder, one.op, before, value), at + 1
                    if at == level:
                        self._push(value, one, waiting(level))
                    else:
                        self._store(value, waiting(at))

    def _merge_number(self, merged: Merged, operand: int, kept: int | None) -> None:
        """`_merge` of one number a tuple."""
        count = self._run
        if count == 1:
            value = self._value(operand, (), ZERO, vector=0).value
        else:
            typ = ir.VectorType(FLOAT, count)
            if kept is None:
                value = self._across(operand)
            else:
                place = self._address(self._state, kept, [])
                value = self._builder.load(place.value, typ=typ, align=4)
            # neighbours are joined: even lanes with odd ones, as in the language's tree
            while count > 1:
                left = self._shuffled(value, range(0, count, 2))
                value = combine(self._builder, merged.op, left, self._shuffled(value, range(1, count, 2)))
                count //= 2
            value = self._builder.extract_element(value, I32(0))
        self._push(value, merged, self._element(merged.first + (self._run.bit_length() - 1) * merged.size, (), ()))

    def _push(self, value: ir.Value, merged: Merged, place: Found) -> None:
        """Leave what is merged on the stack, from a level on, joined with what waits there."""
        builder = self._builder
        before = builder.block
        head, body, end = (builder.append_basic_block() for _ in range(3))
        builder.branch(head)
        builder.position_at_end(head)
        number, sum_ = builder.phi(I64), builder.phi(value.type)
        number.add_incoming(I64(0), before)
        sum_.add_incoming(value, before)
        address = builder.gep(place.value, [builder.mul(number, I64(merged.size))], source_etype=FLOAT)
        builder.cbranch(builder.icmp_signed("<", number, self._count), body, end)
        builder.position_at_end(body)
        # what waits is of earlier tuples, hence on the left
        joined = combine(builder, merged.op, builder.load(address, typ=value.type, align=4), sum_)
        number.add_incoming(builder.add(number, I64(1)), body)
        sum_.add_incoming(joined, body)
        builder.branch(head)
        builder.position_at_end(end)
        builder.store(sum_, address, align=4)

    def _keep_rows(self) -> None:
        """The rows that the block's tuples choose, behind those of the batch's earlier ones."""
        place = self._address(self._state, self._waiting, []).value
        count = self._builder.load(place, typ=I64, align=4)
        waiting = Index(Var(count, 0))
        for update in self.plan.by_row:
            assert update.index is not None
            numbers, values = self._chosen[id(update)]
            of_index = self.plan.shape(update.index)
            shape = (*of_index, *self.plan.shape(update.model)[1:])
            vector = lanes_of(shape)
            size, each, by = prod(padded(shape)), prod(padded(of_index)), lanes_of(of_index)
            with self._loop(self._run) as t:
                with self._axes(of_index, vector=by) as idx:
                    number = self._value(update.index, idx, t, vector=by).value
                    self._store(number, self._element(numbers, of_index, idx, (waiting, each), (t, each)))
                with self._axes(shape, vector=vector) as idx:
                    value = self._operand(update.value, shape, idx, t, vector=vector).value
                    self._store(value, self._element(values, shape, idx, (waiting, size), (t, size)))
        self._builder.store(self._builder.add(count, I64(self._run)), place, align=4)

    def _write_rows(self) -> None:
        """In the order of the tuples; a tuple's in the order of the text."""
        waiting = self._builder.load(self._address(self._state, self._waiting, []).value, typ=I64, align=4)
        # a batch has a tuple, so that the loop's one turn at least is right
        with self._loop(waiting) as t:
            for update in self.plan.by_row:
                assert update.index is not None
                numbers, values = self._chosen[id(update)]
                of_index, inner = self.plan.shape(update.index), self.plan.shape(update.model)[1:]
                shape, vector = (*of_index, *inner), lanes_of(inner)
                with self._axes(of_index, vector=0) as which:
                    number = self._load(self._element(numbers, of_index, which, (t, prod(padded(of_index)))), vector=0)
                    row = Index(Var(self._builder.fptosi(number.value, I64), len(self._preheaders)))
                    with self._axes(inner, vector=vector) as idx:
                        at = self._element(values, shape, (*which, *idx), (t, prod(padded(shape))))
                        value = self._load(at, vector=vector).value
                        self._put(update, value, (row, *idx), vector=vector)

    def _put(self, update: Update, value: ir.Value, idx: Indices, *, vector: int) -> None:
        """Store in a model, or add to what is there by now."""
        place = self._own(update.model, idx, ZERO)
        if update.adds:
            value = operation(self._builder, Op.ADD, [self._load(place, vector=vector).value, value])
        self._store(value, place)

    def _updates(self, updates: list[Update]) -> None:
        """New models that could not be stored where they were computed: all are known before the first is."""
        # in two steps, because a new value may read a model that another update writes
        for update in updates:
            if update.value in self.plan.kept:
                continue
            shape = self.plan.shape(update.value)
            vector = lanes_of(shape)
            with self._axes(shape, vector=vector) as idx:
                value = self._value(update.value, idx, self._turn, vector=vector)
                self._store(value.value, self._element(self._new[id(update)], shape, idx))
        rows = [None if u.index is None else self._row(u.index, u.model, self._turn) for u in updates]
        for update, row in zip(updates, rows, strict=True):
            self._copy(update, row)

    def _copy(self, update: Update, row: Index | None) -> None:
        plan = self.plan
        target = plan.shape(update.model) if row is None else plan.shape(update.model)[1:]
        source = plan.shape(update.value)
        vector = lanes_of(target)
        wide = lanes_of(source)
        with self._axes(target, vector=vector) as idx:
            # an axis of one element is repeated
            places = tuple(ZERO if n == 1 else i for n, i in zip(source, idx[len(idx) - len(source) :], strict=True))
            if update.value in plan.kept:
                found = self._value(update.value, places, self._turn, vector=vector and wide)
            else:
                found = self._load(self._element(self._new[id(update)], source, places), vector=vector and wide)
            if vector and not wide:
                found = self._splat(found, vector)
            self._put(update, found.value, idx if row is None else (row, *idx), vector=vector)
