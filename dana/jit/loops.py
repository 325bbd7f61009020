"""The frame of a rule's code: what lies where in memory, functions, loops and addresses.

In: a `Plan`, where a tuple's inputs lie. Out: LLVM's loops, and addresses, each before the loops that do not change it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from math import prod

from llvmlite import ir

from dana.jit.arithmetic import FLOAT, I32, I64, POINTER
from dana.jit.memory import Memory, Merged, Place
from dana.jit.plan import FUNCTIONS, Plan, of_tuples
from dana.simulator.layout import LANES, padded, strides
from dsl.hdfg.graph import Op
from hwgen.spec.bundle import WHOLE_EPOCH, RowChoice

BLOCK = 16
"""Tuples of a block: what is kept of tuples has room for so many."""
SPECIAL = "special"
"""The core's function over arrays, ``void (int op, size_t n, float *d, const float *a, const float *b)``."""


@dataclass(frozen=True, slots=True, eq=False)
class Var:
    """A number known when the code runs, and in which loop."""

    value: ir.Value
    level: int


@dataclass(frozen=True, slots=True)
class Index:
    """A place on an axis."""

    var: Var | None = None
    const: int = 0

    @property
    def level(self) -> int:
        return 0 if self.var is None else self.var.level

    def plus(self, const: int) -> Index:
        """So many behind it."""
        return Index(self.var, self.const + const)


ZERO = Index()
ZERO_FLOAT = FLOAT(0.0)
Indices = tuple[Index, ...]


@dataclass(frozen=True, slots=True)
class Found:
    """A value, and in which loop it was computed."""

    value: ir.Value
    level: int


class Loops:
    """Functions of a plan, and where in them something is computed.

    Parameters
    ----------
    plan
        The nests.
    places
        Where inputs lie, by node.
    batch
        Tuples of a batch, or `WHOLE_EPOCH`.
    most
        Bytes of text, about.
    ahead
        Bytes from what a block reads of a page to what it asks for meanwhile.
    choices
        What chooses rows.
    tables
        Models that do not lie in the functions' memory, but where their address there says.
    widest
        Floats of the widest vectors that folds are made of: as many as a register holds.
    """

    def __init__(
        self,
        plan: Plan,
        places: Mapping[int, Place],
        *,
        batch: int,
        most: int,
        ahead: int,
        choices: Sequence[RowChoice],
        tables: Collection[int],
        widest: int,
    ) -> None:
        self.plan = plan
        self.graph = plan.graph
        self.places = places
        self.tuple_floats = 2 * len(places)
        """From a tuple's places to the next one's."""
        self.block = BLOCK if self.graph.has_merge or plan.by_block else 1
        self.functions: dict[str, str] = {}
        """Names in the module, by that in `CompiledData`."""
        self.memory = Memory()
        self.tables = tables
        self.widest = widest
        # a vector of ones that LLVM cannot see as such: x * 1 flushes subnormals, and would be folded away
        self.ones = self.memory.room(LANES)
        self.choices = choices
        looks = any(one.element is None for one in choices)
        self.wrong = self.memory.room(LANES) if looks else -1
        """Where the first number that is no row's is noted; -1: all are known, and looked at, before code runs."""
        self.module = ir.Module(name="rule")  # no name that a user chose is in the text
        kind = ir.FunctionType(ir.VoidType(), [I32, I64, POINTER, POINTER, POINTER])
        self._special_function = ir.Function(self.module, kind, SPECIAL)
        kind = ir.FunctionType(ir.VoidType(), [POINTER, I32, I32, I32])
        self._bring = ir.Function(self.module, kind, "llvm.prefetch.p0")
        """Arguments: address, write or read, locality (3: nearest), data or instructions."""
        self.ahead, self.asks = ahead, False
        """Asks: a block reads something where it lies on a page."""
        self._place_values(batch)
        self._place_rows(batch)
        self._stored: list[tuple[int, ir.Block, ir.Instruction]] = []
        self._read: set[int] = set()
        """Kept values that are loaded somewhere."""
        self._run = 1
        self._most, self._written = most, 0

    # --- memory -----------------------------------------------------------------------------------------------------

    def _place_values(self, batch: int) -> None:
        plan, memory = self.plan, self.memory
        # a level for each bit of the number of tuples, which has 32
        levels = 33 if batch == WHOLE_EPOCH else batch.bit_length()
        for k in (*self.graph.models, *self.graph.metas):
            # of a table only its address
            memory.at[k] = memory.room(LANES if k in self.tables else prod(padded(plan.shape(k))))
        self.merges: dict[int, int] = {}
        for k in sorted(plan.kept):
            size = prod(padded(plan.shape(k)))
            if plan.nodes[k].op is Op.MERGE:
                self._place_merge(k, size, levels, plan.nodes[k].merge_op or "")
            elif k in plan.stores:
                tuples = self.block if of_tuples(plan.phase[k]) and k not in plan.alone else 1
                if k in plan.lasting:
                    tuples = batch
                memory.at[k] = memory.room(self._spacing(k) * tuples + LANES)
        if self.graph.loss is not None and self.graph.has_merge:
            self._place_merge(-1, 1, levels, "add")
        most = max((prod(padded(plan.shape(k))) for k in plan.kept), default=1)
        self._operands = memory.room(most * self.block)
        self._left: dict[tuple[int, int], int] = {}
        self._new = {
            id(u): memory.room(prod(padded(plan.shape(u.value))))
            for u in (*plan.copied, *plan.at_once)
            if u.value not in plan.kept
        }
        self.convergence = memory.room(LANES)
        self._counted_by = {k: memory.room(BLOCK) for k in sorted(plan.parts.counters)}
        """Where models that count tuples lie, of each tuple of a block."""

    def _spacing(self, k: int) -> int:
        """Floats from a tuple's value to the next one's: none are between vectors that a function goes through."""
        shape = self.plan.shape(k)
        tight = self.plan.nodes[k].op in FUNCTIONS and len(shape) == 1
        return prod(shape if tight else padded(shape))

    def _place_rows(self, batch: int) -> None:
        """Rows that a batch's tuples choose: how many there are yet (an I64), numbers, and new values.

        And how many tuples the batch has had, an I64 too.
        """
        plan, loss = self.plan, self.graph.loss
        joined = [(k, plan.nodes[k].inputs[0]) for k in plan.merges] + ([] if loss is None else [(-1, loss)])
        self._joined = {
            k: self.memory.room(prod(padded(plan.shape(operand))) * BLOCK)
            for k, operand in joined
            if plan.at_once and of_tuples(plan.phase[operand])
        }
        """Operands of merges in a block of tuples that are computed one by one."""
        self._waiting = self.memory.room(LANES)
        self._numbered = self.memory.room(LANES)
        self._chosen = {}
        for update in self.plan.by_row:
            assert update.index is not None, "rows are chosen"
            size = prod(padded((*self.plan.shape(update.index), *self.plan.shape(update.model)[1:])))
            numbers = prod(padded(self.plan.shape(update.index)))
            self._chosen[id(update)] = self.memory.room(numbers * batch), self.memory.room(size * batch)

    def _place_merge(self, k: int, size: int, levels: int, op: str) -> None:
        size = -(-size // LANES) * LANES
        self.merges[k] = len(self.memory.merged)
        self.memory.merged.append(Merged(first=self.memory.room(size * levels), size=size, levels=levels, op=op))

    @contextmanager
    def _function(self, name: str, *, slots: bool = False) -> Iterator[None]:
        kind = ir.FunctionType(ir.VoidType(), [POINTER, POINTER, POINTER, I64])
        function = ir.Function(self.module, kind, name)
        self.functions[name] = name
        function.attributes.add("nounwind")
        self._state, self._tuples, self._third, self._count = function.args
        self._tuple = self._turn = ZERO
        self._builder = ir.IRBuilder(function.append_basic_block())
        # blocks before each open loop, the outermost first, and what is computed there
        self._preheaders: list[ir.Block] = []
        self._caches: list[dict[object, Found]] = [{}]
        self._slots: list[Var] = []
        self._outermost = self._counted = 0
        self._many = False
        """More vectors are read than registers could hold from turn to turn."""
        if slots:
            for number in range(len(self.memory.merged)):
                place = self._builder.gep(self._third, [I64(number)], source_etype=I64)
                self._slots.append(Var(self._builder.load(place, typ=I64), 0))
        self._bases = {
            k: Found(self._builder.load(self._builder.gep(self._state, [I64(at)], source_etype=FLOAT), typ=POINTER), 0)
            for k in self.tables
            for at in [self.memory.at[k]]
        }
        yield
        self._builder.ret_void()

    # --- loops ------------------------------------------------------------------------------------------------------

    # tested at the end of a turn: callers ask for one turn at least
    @contextmanager
    def _loop(self, stop: int | ir.Value, step: int = 1, start: int = 0) -> Iterator[Index]:
        """At least one turn."""
        if isinstance(stop, int):
            if stop - start <= step:
                yield Index(const=start)
                return
            stop = I64(stop)
        builder = self._builder
        before = builder.block
        body = builder.append_basic_block()
        builder.branch(body)
        builder.position_at_end(body)
        phi = builder.phi(I64)
        phi.add_incoming(I64(start), before)
        self._preheaders.append(before)
        self._caches.append({})
        yield Index(Var(phi, len(self._preheaders)))
        following = builder.add(phi, I64(step))
        # not `body`: inner loops have moved the builder on
        phi.add_incoming(following, builder.block)
        end = builder.append_basic_block()
        builder.cbranch(builder.icmp_signed("<", following, stop), body, end)
        builder.position_at_end(end)
        self._preheaders.pop()
        self._caches.pop()

    @contextmanager
    def _axes(self, shape: Sequence[int], *, vector: int, last_first: bool = False) -> Iterator[Indices]:
        """Loops over a shape, the last axis by vectors; with `last_first` that loop is around the others."""
        order = range(len(shape))
        with ExitStack() as loops:
            found: dict[int, Index] = {}
            for axis in reversed(order) if last_first else order:
                step = vector if vector and axis == len(shape) - 1 else 1
                found[axis] = loops.enter_context(self._loop(shape[axis], step))
            yield tuple(found[axis] for axis in order)

    def _at(self, level: int, emit: Callable[[ir.IRBuilder], ir.Value]) -> Found:
        """Emit before the loops that a value does not depend on."""
        level = max(level, self._outermost)
        if level == len(self._preheaders):
            return Found(emit(self._builder), level)
        # before the block's branch, which is written already
        with self._builder.goto_block(self._preheaders[level]):
            return Found(emit(self._builder), level)

    def _cached(self, key: object, level: int, emit: Callable[[ir.IRBuilder], ir.Value]) -> Found:
        cache = self._caches[max(level, self._outermost)]
        if key not in cache:
            cache[key] = self._at(level, emit)
        return cache[key]

    # --- addresses --------------------------------------------------------------------------------------------------

    def _address(self, base: ir.Value | Found, first: int, terms: Sequence[tuple[Index, int]]) -> Found:
        """base + first + the sum of index times stride; what the innermost loops do not change stays before them."""
        const = first + sum(index.const * stride for index, stride in terms)
        # the outermost loop first: sums of what it changes then stay out of the inner ones
        moving = sorted(((i.var, s) for i, s in terms if i.var is not None), key=lambda term: term[0].level)
        found = base if isinstance(base, Found) else Found(base, 0)
        key: tuple[object, ...] = (id(found.value),)
        for var, stride in moving:
            # ids stay valid: the module keeps each value alive
            key = (*key, id(var.value), stride)
            before = found

            def step(builder: ir.IRBuilder, before: Found = before, var: Var = var, stride: int = stride) -> ir.Value:
                offset = var.value if stride == 1 else builder.mul(var.value, I64(stride))
                return builder.gep(before.value, [offset], source_etype=FLOAT)

            found = self._cached(key, max(before.level, var.level), step)
        return self._at(found.level, lambda builder: builder.gep(found.value, [I64(const)], source_etype=FLOAT))

    def _element(self, first: int, shape: tuple[int, ...], idx: Indices, *terms: tuple[Index, int]) -> Found:
        """Where an element lies of a value of the functions' memory, so much further on."""
        return self._address(self._state, first, [*zip(idx, strides(shape), strict=True), *terms])

    def _load(self, address: Found, *, vector: int, here: bool = False) -> Found:
        """Before the loops that do not change the address; `here`: in them, as they store there themselves."""
        typ = ir.VectorType(FLOAT, vector) if vector else FLOAT
        # from registers that spill nothing is gained by loading early
        level = len(self._preheaders) if here or (vector and self._many) else address.level
        # inputs lie on pages, where an array of float4 is aligned to 4 bytes (typalign i), not to a vector
        return self._at(level, lambda builder: builder.load(address.value, typ=typ, align=4))

    def _terms(self, k: int, idx: Indices, t: Index) -> list[tuple[Index, int]]:
        shape = self.plan.shape(k)
        terms = list(zip(idx, strides(shape), strict=True))
        if of_tuples(self.plan.phase[k]) and self.plan.nodes[k].op is not Op.MODEL and k not in self.plan.alone:
            terms.append((t, self._spacing(k)))
        if k in self.plan.lasting:
            terms.append((Index(Var(self._first().value, 0)), self._spacing(k)))
        return terms

    def _own(self, k: int, idx: Indices, t: Index) -> Found:
        """Where a model, a meta or a kept value lies."""
        if k in self.merges:
            number = self.merges[k]
            slot = Index(self._slots[number]), 1
            return self._element(self.memory.merged[number].first, self.plan.shape(k), idx, slot)
        base, first = (self._bases[k], 0) if k in self.tables else (self._state, self.memory.at[k])
        return self._address(base, first, self._terms(k, idx, t))

    def _store(self, value: ir.Value, address: Found) -> ir.Instruction:
        return self._builder.store(value, address.value, align=4)

    def _store_own(self, value: ir.Value, k: int, idx: Indices, t: Index) -> None:
        """Store a kept value."""
        stored = self._store(value, self._own(k, idx, t))
        self._stored.append((k, self._builder.block, stored))

    def _drop_unread(self) -> None:
        """Values read only from registers are not stored."""
        for k, block, stored in self._stored:
            if k not in self._read:
                block.instructions.remove(stored)

    def _first(self) -> Found:
        """The number in its batch of the block's first tuple."""
        place = self._address(self._state, self._numbered, [])
        return self._cached("numbered", 0, lambda builder: builder.load(place.value, typ=I64, align=4))
