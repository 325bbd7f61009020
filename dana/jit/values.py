"""Values of a rule as code: in which loop they are computed, and where they are loaded from.

In: a `Plan`, where a tuple's inputs lie. Out: LLVM's values, each emitted before the loops that it does not depend on,
and no more than once in each.
"""

from __future__ import annotations

from math import prod

from llvmlite import ir

from dana.jit.arithmetic import FLOAT, I32, I64, POINTER, by_mode, flushed, operation
from dana.jit.loops import BLOCK, ZERO, ZERO_FLOAT, Found, Index, Indices, Loops, Var
from dana.jit.plan import of_tuples
from dsl.hdfg.choice import element_of
from dsl.hdfg.graph import FROM_ROW, Op
from dsl.hdfg.ops import ROW_NUMBERS


class Values(Loops):
    """Writes values, wherever a function wants them."""

    def _key(self, k: int, idx: Indices, t: Index, *, vector: int) -> object:
        return k, idx, t if of_tuples(self.plan.phase[k]) else None, vector

    def _keep(self, value: ir.Value, k: int, idx: Indices, t: Index, *, vector: int) -> None:
        """Store a kept value; where no loop ends meanwhile it is read from its register."""
        self._store_own(value, k, idx, t)
        level = len(self._preheaders)
        self._caches[level][self._key(k, idx, t, vector=vector)] = Found(value, level)

    def _value(self, k: int, idx: Indices, t: Index, *, vector: int) -> Found:
        """An element, or those of a vector from the last index on."""
        key = self._key(k, idx, t, vector=vector)
        # the innermost first; what an outer loop computed is valid in the inner ones
        for cache in reversed(self._caches):
            if key in cache:
                return cache[key]
        found = self._fresh(k, idx, t, vector=vector)
        self._caches[found.level][key] = found
        return found

    def _fresh(self, k: int, idx: Indices, t: Index, *, vector: int) -> Found:
        node = self.plan.nodes[k]
        if node.op is Op.CONST:
            return Found(FLOAT(node.value), 0)
        if node.op is Op.ARANGE:
            return self._range(idx[0], vector=vector)
        if node.op is Op.ROW:
            return self._number(t)
        if node.op in FROM_ROW:
            return self._input(k, idx, t, vector=vector)
        if node.op is Op.EXPAND:
            assert node.axis is not None
            last = node.axis == len(idx) - 1
            return self._value(node.inputs[0], idx[: node.axis] + idx[node.axis + 1 :], t, vector=0 if last else vector)
        if node.op is Op.ELEMENT:
            # `dana.compiler.passes.simplify` leaves single elements of vectors alone; of others it makes sums
            position = Index(const=int(self.plan.nodes[node.inputs[1]].value or 0))
            return self._value(node.inputs[0], (position,), t, vector=0)
        if node.op is Op.GATHER and k not in self.plan.kept:
            row = self._row(node.inputs[1], node.inputs[0], t)
            return self._load(self._own(node.inputs[0], (row, *idx), t), vector=vector)
        if k in self._counted_by:
            return self._load(self._address(self._state, self._counted_by[k], [(t, 1)]), vector=0)
        if node.op in (Op.MODEL, Op.META) or k in self.plan.kept:
            # else the store is dropped (`Loops._drop_unread`)
            self._read.add(k)
            return self._load(self._own(k, idx, t), vector=vector)
        return self._computed(k, idx, t, vector=vector)

    def _input(self, k: int, idx: Indices, t: Index, *, vector: int) -> Found:
        """Load an input from its place; on a page it may be subnormal."""
        at = self._input_at(k, idx, t)
        self._ask_ahead(k, at, vector=vector)
        found = self._load(at, vector=vector)
        if self.places[k].spacing or (by_mode() and k in self.plan.flushed):
            return found
        if not by_mode():
            return self._at(found.level, lambda builder: flushed(builder, found.value))
        ones = self._load(self._address(self._state, self.ones, []), vector=vector)
        return self._at(found.level, lambda builder: builder.fmul(found.value, ones.value))

    def _input_at(self, k: int, idx: Indices, t: Index) -> Found:
        place = self.places[k]
        base = self._place(k, t)
        extents = (*self.plan.shape(k)[:-1], place.stride)  # a row for each vector, as a tuple's rows are
        steps = [prod(extents[axis + 1 :]) for axis in range(len(idx))]
        terms = list(zip(idx, steps, strict=True))
        if place.spacing:  # all of them, one after the other
            terms += [(self._tuple, place.spacing), (t, place.spacing)]
        return self._address(base, 0, terms)

    def _ask_ahead(self, k: int, at: Found, *, vector: int) -> None:
        """For what lies as far behind a place of a block's tuple: rows lie on all pages alike.

        Merges ask once more where they read what was computed of it: processors drop what they are asked for when they
        wait for much already.
        """
        if vector and self._run == BLOCK and not self.places[k].spacing:
            self.asks = True
            later = self._address(at, self.ahead // 4, [])
            self._at(at.level, lambda builder: builder.call(self._bring, [later.value, I32(0), I32(2), I32(1)]))

    def _number(self, t: Index) -> Found:
        """The number of a tuple in its batch, as a float."""
        if not self.graph.has_merge:
            # a batch of one tuple: its number is 0
            return Found(ZERO_FLOAT, 0)
        first = self._first()

        def emit(builder: ir.IRBuilder) -> ir.Value:
            number = builder.add(first.value, I64(t.const))
            if t.var is not None:
                number = builder.add(number, t.var.value)
            # modulo ROW_NUMBERS, which is a power of two
            return builder.sitofp(builder.and_(number, I64(ROW_NUMBERS - 1)), FLOAT)

        return self._at(t.level, emit)

    def _place(self, k: int, t: Index) -> Found:
        """Where an input of a tuple begins; of the first one, if it is packed."""
        place = self.places[k]
        tuples = [] if place.spacing else [(self._tuple, self.tuple_floats), (t, self.tuple_floats)]
        where = self._address(self._tuples, 2 * place.number, tuples)
        key = ("input", k, None if place.spacing else t)
        return self._cached(key, where.level, lambda builder: builder.load(where.value, typ=POINTER))

    def _range(self, index: Index, *, vector: int) -> Found:
        numbers = [FLOAT(float(i + index.const)) for i in range(vector or 1)]
        lanes = ir.Constant(ir.VectorType(FLOAT, len(numbers)), numbers)
        if index.var is None:
            return Found(lanes if vector else FLOAT(float(index.const)), 0)
        var = index.var
        first = self._at(var.level, lambda builder: builder.sitofp(var.value, FLOAT))
        if not vector:
            return self._at(var.level, lambda builder: builder.fadd(first.value, FLOAT(float(index.const))))
        wide = self._splat(first, vector)
        return self._at(var.level, lambda builder: builder.fadd(wide.value, lanes))

    def _row(self, k: int, model: int, t: Index) -> Index:
        """The row of a model that a number chooses; where numbers are not looked at before, row 0 for what is none."""
        node = self.plan.nodes[k]
        if node.op is Op.CONST:
            return Index(const=int(node.value or 0))
        number = self._value(k, (), t, vector=0)
        # without `wrong` the simulator has checked all numbers before code runs
        rows = self.plan.shape(model)[0] if self.wrong >= 0 else 0

        def emit(builder: ir.IRBuilder) -> ir.Value:
            return self._looked_at(builder, k, model, number.value) if rows else builder.fptosi(number.value, I64)

        found = self._cached(("row", k, rows, t), number.level, emit)
        key = ("var", k, rows, t)
        cache = self._caches[found.level]
        if key not in cache:
            # one Var for a number: addresses are cached by its identity
            cache[key] = Var(found.value, found.level)  # type: ignore[assignment]
        return Index(cache[key])  # type: ignore[arg-type]

    def _looked_at(self, builder: ir.IRBuilder, k: int, model: int, number: ir.Value) -> ir.Value:
        """A number as a row index; records the first number that is out of range."""
        count = FLOAT(float(self.plan.shape(model)[0]))
        # ordered: a NaN is not inside
        inside = builder.and_(builder.fcmp_ordered(">=", number, FLOAT(0.0)), builder.fcmp_ordered("<", number, count))
        # chosen before it is converted: fptosi of a number out of range is poison in LLVM
        row = builder.fptosi(builder.select(inside, number, FLOAT(0.0)), I64)
        right = builder.and_(inside, builder.fcmp_ordered("==", builder.sitofp(row, FLOAT), number))
        place = builder.gep(self._state, [I64(self.wrong)], source_etype=FLOAT)
        before = builder.load(place, typ=I64, align=4)
        turn: ir.Value = I64(0)
        for one in (self._tuple, self._turn):
            turn = turn if one.var is None else builder.add(turn, one.var.value)
        this = builder.add(builder.mul(turn, I64(len(self.choices))), I64(self._tag(k, model)))
        # of all wrong numbers the first in the order of tuples and choices is reported
        least = builder.select(builder.icmp_signed("<", this, before), this, before)
        builder.store(builder.select(right, before, least), place, align=4)
        return row

    def _tag(self, k: int, model: int) -> int:
        """The tag of the fault for a row number out of range."""
        element = element_of(self.graph, k)
        from_ = self.graph.reachable([k]).intersection(self.graph.inputs) if element is None else [element[0]]
        inputs = sorted(str(self.plan.nodes[i].name) for i in from_)
        said = [
            (tag, one)
            for tag, one in enumerate(self.choices)
            if (sorted(one.inputs), one.element) == (inputs, None if element is None else element[1])
        ]
        named = [tag for tag, one in said if one.model == self.plan.nodes[model].name]
        # entries that serve another model with as many rows are not set anew
        return (named or [tag for tag, one in said if one.rows == self.plan.shape(model)[0]])[0]

    def _splat(self, found: Found, lanes: int) -> Found:
        typ = ir.VectorType(FLOAT, lanes)
        if isinstance(found.value, ir.Constant):
            return Found(ir.Constant(typ, [found.value] * lanes), 0)

        def emit(builder: ir.IRBuilder) -> ir.Value:
            one = builder.insert_element(ir.Constant(typ, None), found.value, I32(0))
            return builder.shuffle_vector(one, one, ir.Constant(ir.VectorType(I32, lanes), None))

        return self._cached(("splat", id(found.value), lanes), found.level, emit)

    def _operand(self, k: int, shape: tuple[int, ...], idx: Indices, t: Index, *, vector: int) -> Found:
        """An operand of elementwise work over a shape: its axes aligned at the last, those of 1 repeated."""
        own = self.plan.shape(k)
        places = tuple(ZERO if extent == 1 else i for extent, i in zip(own, idx[len(idx) - len(own) :], strict=True))
        if vector and (not own or own[-1] == 1):
            return self._splat(self._value(k, places, t, vector=0), vector)
        return self._value(k, places, t, vector=vector)

    def _computed(self, k: int, idx: Indices, t: Index, *, vector: int) -> Found:
        """An elementwise operation."""
        node, shape = self.plan.nodes[k], self.plan.shape(k)
        operands = [self._operand(i, shape, idx, t, vector=vector) for i in node.inputs]
        level = max(operand.level for operand in operands)
        return self._at(level, lambda builder: operation(builder, node.op, [o.value for o in operands]))
