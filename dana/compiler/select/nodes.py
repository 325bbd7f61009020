"""Instruction selection: nodes of the graph become vector operations over buffers.

In: a plan, a target, and what was decided about each value. Out: a `Selection`. Operations of a section stand in an
order in which they may run; nothing has an address, and no cycle is counted.
"""

from dataclasses import replace
from itertools import accumulate, groupby
from math import prod

from dana.compiler.place.forms import Forms
from dana.compiler.place.order import Kind, Order, Step
from dana.compiler.place.rows import Form, InputPlaces
from dana.compiler.place.sections import Plan
from dana.compiler.place.shards import Grain, Shards
from dana.compiler.select.convert import convert
from dana.compiler.select.index import IndexFile
from dana.compiler.select.losses import Losses
from dana.compiler.select.merge import Present, merge_levels, merge_round
from dana.compiler.select.ops import Buffer, Home
from dana.compiler.select.records import Records
from dana.compiler.select.reduce import reduce_axis
from dana.compiler.select.rows import number_tuples
from dana.compiler.select.selection import Selection
from dana.compiler.select.store import Store
from dana.compiler.select.triangles import in_triangle, mirror
from dana.compiler.select.values import Emitter, Value
from dana.compiler.target import Target
from dana.errors import InternalError
from dsl.hdfg.graph import BINARY, ELEMENTWISE, REDUCTIONS, UNARY, EachEpoch, Node, Op
from hwgen.spec.engine import Opcode, Section

OPCODES = {op: Opcode[op.name] for op in ELEMENTWISE - {Op.WHERE}}
COMMUTE = {Opcode.ADD, Opcode.MUL}
"""Either operand of these may come first."""
OPCODES |= {op: OPCODES[join] for op, join in REDUCTIONS.items()}


def select(
    plan: Plan,
    inputs: InputPlaces,
    forms: Forms,
    shards: Shards,
    repeats: frozenset[int],
    order: Order,
    target: Target,
) -> Selection:
    """Make the operations of a rule; LoopLimit where a loop over the tuples of a round steps too far."""
    emitter = Emitter(target)
    store = Store(plan, inputs, forms, shards, repeats, emitter)
    return _Selector(plan, forms, shards, order, store, emitter).select(target.levels)


class _Selector:
    def __init__(self, plan: Plan, forms: Forms, shards: Shards, order: Order, store: Store, emitter: Emitter) -> None:
        self.plan = plan
        self.graph = plan.graph
        self.forms = forms
        self.shards = shards
        self.order = order
        self.store = store
        self.emitter = emitter
        # tags of watched columns come first (`dana.compiler.compile`)
        self.index = IndexFile(self.emitter, first_tag=len(store.inputs.records), entries=plan.entries)
        self.loss: Buffer | None = None
        self.convergence: Buffer | None = None
        self.merges: list[tuple[Opcode, Value]] = []
        self.copies: dict[int, Value] = {}
        self.batch_loss: Value | None = None
        self.records = Records(plan, store, emitter)
        self.present = Present(emitter, store, needed=forms.merges_lanes)
        self.cut = emitter.together > 1

    def select(self, levels: int) -> Selection:
        self.store.load_models()
        rows = [node.id for node in self.graph.nodes if node.op is Op.ROW]
        if rows:
            self.emitter.node = rows[0]
            numbers = number_tuples(self.emitter, self.store, self.plan, several=levels > 0)
            for k in rows:
                self.store.put(k, numbers)
        for k in self.plan.of(Section.INIT):
            self._lasting(k)
        if not self.plan.together:
            for k in self.plan.of(Section.TUPLE):
                self._node(k, Section.TUPLE)
            if self.graph.loss is not None:
                self.emitter.node = self.plan.resolve(self.graph.loss)
                self.batch_loss = self._merged(Opcode.ADD, self.emitter.node, self.forms.loss, "batch_loss")
        # behind all that the tuple reads: a row that it writes may be one that it reads
        if self.plan.serial:
            self._write_tables()
        steps = list(self.order.steps)
        while steps:
            self._step(steps.pop(self._next(steps)))
        self._epoch()
        self.emitter.node = -1
        # parts of one operation side by side, so that a level is joined by one instruction for each operation
        block = sorted(((op, value.buffer) for op, value in self.merges), key=lambda part: part[0])
        whole = Buffer(name="block", rows=sum(buffer.rows for _, buffer in block), home=Home.BLOCK)
        stack = Buffer(name="stack", rows=levels * whole.rows, home=Home.STACK) if levels else None
        # the sequencer runs these whenever a batch has several rounds
        always = {Section.TUPLE}
        if stack is not None:
            merge_levels(self.emitter, whole, stack, _parts(block))
            always |= {Section.MERGE, Section.PUSH}
        ops = {section: found for section, found in self.emitter.ops.items() if found or section in always}
        return Selection(
            ops=ops,
            literals=self.store.literals,
            ranges=self.store.ranges,
            metas=self.store.metas,
            models=self.store.models,
            state=tuple(self.store.state),
            loss=self.loss,
            convergence=self.convergence,
            merges=tuple(self.merges),
            block=tuple(block),
            whole_block=whole,
            stack=stack,
            indices=tuple(self.index.tags),
        )

    # --- nodes ----------------------------------------------------------------------------------------------------

    def _lasting(self, k: int) -> None:
        """Compute a node in `init`, for all of the epoch."""
        if self.graph.nodes[k].op is Op.EXPAND or k in self.plan.passing:
            self._node(k, Section.INIT)
            return
        # temporaries of `init` are dead before the first tuple
        state = self.store.lasting(self.store.name(k), self.graph.concrete_shape(k), self.forms.of[k])
        self._node(k, Section.INIT, state)
        value = self.store.value(k, Section.INIT)
        if value.buffer is not state.buffer:
            self.emitter.elementwise(Section.INIT, Opcode.MOV, state, value)
            self.store.put(k, state)

    def _node(self, k: int, section: Section, target: Value | None = None) -> None:
        """Compute a node, into `target` if given and if it goes element by element."""
        node = self.graph.nodes[k]
        self.emitter.node = k
        if k in self.store:  # a gather that came with another
            return
        if node.op is Op.MERGE:
            op, operand = Opcode[(node.merge_op or "add").upper()], self.plan.operands(k)[0]
            value = self._merged(op, operand, self.forms.wanted(k, 0), self.store.name(k), self.shards.of.get(k))
        elif node.op in REDUCTIONS:
            value = self._reduced(k, node, section)
        elif node.op is Op.UPPER:
            return  # with its readers
        elif node.op is Op.MIRROR:
            value = target or self._room(k)
            mirror(self.emitter, section, self.store.operand(k, 0, section), value)
        elif any(self.graph.nodes[o].op is Op.UPPER for o in self.plan.operands(k)):
            value = self._in_triangle(k, node, section)
        elif node.op is Op.EXPAND:
            value = replace(self.store.operand(k, 0, section), shape=self.graph.concrete_shape(k))
            # a view on the operand's rows: to overwrite it is to overwrite the operand, which others may still read
            value = replace(value, owned=value.owned and self._last_use(k, 0))
        elif node.op is Op.GATHER and self.plan.fixed_row(k):
            index = self.plan.operands(k)[1]
            value = self._row(self.store.operand(k, 0, section), int(self.graph.nodes[index].value or 0))
        elif node.op is Op.GATHER and node.inputs[0] in self.store.recorded:
            value = self.records.gathered(k)
        elif node.op is Op.GATHER and self._fused(k):
            return  # with its reader
        elif node.op is Op.GATHER:
            value = self._gathered(k, section)
        elif node.op is Op.WHERE:
            value = self._where(k, section, target)
        elif node.op in BINARY and (at := self._reads_rows(k)) is not None:
            value = self._room(k)
            gathered, other = self.plan.operands(k)[at], self.store.operand(k, 1 - at, section)
            self._gather_each(OPCODES[node.op], gathered, section, value, other)
        elif node.op in UNARY or node.op in BINARY:
            value = target or self._room(k, self.shards.of.get(k))
            operands = [self.store.operand(k, position, section) for position in range(len(node.inputs))]
            self.emitter.elementwise(section, OPCODES[node.op], value, *operands)
        else:
            raise InternalError(f"no operation for node {k} ({node.op.value}) of rule {self.graph.name!r}")
        self.store.put(k, value)

    def _in_triangle(self, k: int, node: Node, section: Section) -> Value:
        """Compute a triangle from the rows at and above the diagonal of what it reads."""
        value, n, operands = self._room(k), 1, list[tuple[Value, bool]]()
        for position, operand in enumerate(self.plan.operands(k)):
            whole = self.graph.nodes[operand].op is Op.UPPER
            operands.append((self.store.operand(*((operand, 0) if whole else (k, position)), section), whole))
            n = max(n, *operands[-1][0].shape) if whole else n
        in_triangle(self.emitter, section, OPCODES[node.op], n, value, operands)
        return value

    def _gather_each(self, op: Opcode, k: int, section: Section, room: Value, other: Value | None = None) -> None:
        """Read the rows of a GATHER by a column's numbers, with another operand if given."""
        model, number = self.plan.operands(k)
        numbers, table = self.store.operand(k, 1, section), self.store.operand(k, 0, section)
        self.index.gather_each(op, (number, numbers), (model, table), room, other)

    def _reads_rows(self, k: int) -> int | None:
        """Which operand of a node is a GATHER that it reads as operand a, where it lies, and no other node reads."""
        operands = self.plan.operands(k)
        found = [at for at, o in enumerate(operands) if self.graph.nodes[o].op is Op.GATHER and self._fused(o)]
        return found[0] if found else None

    def _fused(self, k: int) -> bool:
        """Whether rows chosen by a column's numbers are read by one product, difference … of their number alone."""
        graph = self.graph
        if self.plan.operands(k)[1] not in self.plan.lists or not self.store.used_once(k, Form.BROADCAST):
            return False
        for reader in self.plan.section:
            operands = self.plan.operands(reader)
            if k in operands:
                node = graph.nodes[reader]
                other = operands[1 - operands.index(k)] if len(operands) == 2 else k
                alike = self.forms.of[reader] is Form.BROADCAST and node.shape == graph.nodes[k].shape
                # operand a is the row; another gather has its own
                first = operands.index(k) == 0 or OPCODES.get(node.op) in COMMUTE
                apart = graph.nodes[other].op is not Op.GATHER and graph.nodes[other].shape == node.shape
                return node.op in BINARY and not OPCODES[node.op].special and alike and first and apart
        return False

    def _last_use(self, k: int, position: int) -> bool:
        wanted = self.forms.wanted(k, position), self.shards.wanted(k, position)
        return self.store.last_use(self.plan.operands(k)[position], *wanted)

    def _room(self, k: int, grain: Grain = None) -> Value:
        shape, per_tuple = self.graph.concrete_shape(k), k in self.plan.per_tuple
        return self.emitter.temporary(self.store.name(k), shape, self.forms.of[k], per_tuple=per_tuple, grain=grain)

    def _row(self, model: Value, number: int) -> Value:
        """A fixed row of a model; a packed model has more than one axis."""
        shape = model.shape[1:]
        rows = prod(self.emitter.row_shape(model)[1:])
        return replace(model, shape=shape, base=model.base + number * rows, owned=False)

    def _gathered(self, k: int, section: Section) -> Value:
        """Gather a row for each tuple, and with it every other row that the entries of the index file choose."""
        model, number = self.plan.operands(k)
        value = self._room(k)
        if number in self.plan.lists:
            self._gather_each(Opcode.MOV, k, section, value)
            return value
        self.index.gather(
            (number, self.store.operand(k, 1, section)), (model, self.store.operand(k, 0, section)), value
        )
        self.store.put(k, value)
        # a SETX and its wait are dear: what the same entries choose is gathered while they are set
        for other in self.plan.of(section):
            if self.graph.nodes[other].op is not Op.GATHER or self.plan.fixed_row(other) or other in self.store:
                continue
            if self.graph.nodes[other].inputs[0] in self.store.recorded:
                continue
            if self.index.holds(self.plan.operands(other)[1], self.store.operand(other, 0, section)):
                self._node(other, section)
        return value

    def _reduced(self, k: int, node: Node, section: Section) -> Value:
        assert node.axis is not None, "a reduction has an axis"
        operand, form = self.store.operand(k, 0, section), self.forms.of[k]
        in_place, name, op = self._last_use(k, 0), self.store.name(k), OPCODES[node.op]
        value = reduce_axis(self.emitter, section, op, operand, node.axis, form=form, in_place=in_place, name=name)
        if value.form is form:
            return value
        # reduced along another axis than the last: it lies as its operand does
        room = self._room(k)
        convert(self.emitter, section, value, room)
        return room

    def _where(self, k: int, section: Section, target: Value | None) -> Value:
        """otherwise first, then the lanes in which the condition holds."""
        condition, then, base = (self.store.operand(k, position, section) for position in range(3))
        result = target or self._room(k, self.shards.of.get(k))
        # MOVC writes the lanes in which the condition holds; the others have to hold `otherwise` before
        alike = all(getattr(base, name) == getattr(result, name) for name in ("shape", "form", "stride", "grain"))
        if target is None and self._last_use(k, 2) and alike:
            result = base
        elif (base.buffer, base.base) != (result.buffer, result.base):
            self.emitter.elementwise(section, Opcode.MOV, result, base)
        self.emitter.elementwise(section, Opcode.MOVC, result, then, condition)
        return result

    def _merged(self, op: Opcode, source: int, form: Form, name: str, grain: Grain = None) -> Value:
        """Merge a node's value, in a form, over the tuples of the round."""
        shape = self.graph.concrete_shape(source)
        lies = form if shape else Form.BROADCAST  # tuples that lie over lanes leave one scalar
        block = self.emitter.placed(name, Home.BLOCK, shape, lies, owned=True, grain=grain)
        self.merges.append((op, block))
        self._merge_into(block, op, source, form)
        return block

    def _merge_into(self, room: Value, op: Opcode, source: int, form: Form) -> None:
        value = self.store.value(source, Section.TUPLE, form)
        # its rows are overwritten by partial merges only if no later operation reads them
        in_place = self.store.last_use(source, form)
        merge_round(self.emitter, op, value, room, in_place=in_place, present=self.present)

    # --- loss, convergence, updates -------------------------------------------------------------------------------

    def _step(self, step: Step) -> None:
        section = self.plan.update_section
        if step.kind is Kind.NODE:
            model = self.order.target.get(step.id)
            test = self.graph.convergence is not None and self.plan.resolve(self.graph.convergence) == step.id
            if model is not None:
                # not owned: the model's rows are no temporary that a later operation may overwrite
                self._node(step.id, section, replace(self.store.own(model), owned=False))
                self.store.join_model(model, section)
            # computed where the host reads it, if no one else does: a move less at the end of the section
            elif test and self._only_test(step.id):
                self._node(step.id, section, self._test())
            else:
                self._node(step.id, section)
        elif step.kind is Kind.COPY:
            self.emitter.node = step.id
            copy = self.copies.setdefault(step.id, self._room(step.id))
            self.emitter.elementwise(section, Opcode.MOV, copy, self.store.value(step.id, section))
        elif step.kind is Kind.LOSS:
            self._sum_losses(section)
        elif step.kind is Kind.TEST:
            self._leave_test(section)
        elif step.kind is Kind.MOVE:
            self._move(step.id, section)
        else:
            self._update_rows(step.id, section)

    def _next(self, steps: list[Step]) -> int:
        """The first of the next row updates that does not have to set the index file."""
        for at, step in enumerate(steps):
            if step.kind is not Kind.ROWS:
                break
            update = next(u for u in self.graph.updates if u.model == step.id)
            if self.graph.nodes[step.id].table or step.id in self.store.recorded:
                break
            if update.index is not None and self.index.holds(
                update.index, self.store.value(step.id, self.plan.update_section)
            ):
                return at
        return 0

    def _move(self, number: int, section: Section) -> None:
        """Write the value of an update into its model, or into a row of it."""
        update = self.graph.updates[number]
        value = self.plan.resolve(update.value)
        self.emitter.node = value
        model = self.store.own(update.model)
        if update.index is not None:
            model = self._row(model, int(self.graph.nodes[update.index].value or 0))
        self.emitter.elementwise(section, Opcode.MOV, model, self._new(number, section))
        self.store.join_model(update.model, section)

    def _new(self, number: int, section: Section) -> Value:
        """The value of an update, as it was before any model was written."""
        value, form = self.plan.resolve(self.graph.updates[number].value), self.forms.stored(number)
        if value not in self.copies:
            return self.store.value(value, section, form, self.shards.stored(number))
        copy = self.copies[value]
        if copy.form is form:
            return copy
        room = self.emitter.temporary(self.store.name(value), copy.shape, form, per_tuple=copy.stride > 0)
        convert(self.emitter, section, copy, room)
        return room

    def _update_rows(self, model: int, section: Section) -> None:
        """Write the rows of a model that the tuples choose."""
        if model in self.store.recorded:
            self.records.put(model, lambda number: self._new(number, section))
            return
        target = self.store.value(model, section)
        if self.graph.nodes[model].table:
            numbers = [number for number, update in enumerate(self.graph.updates) if update.model == model]
            if self.cut:  # of the image for rounds of every size, so that models lie where they do
                self.store.literal(-0.0)
            # of one tuple, or one that no other of the round shares a row with, the text's order is all that counts
            # runs, not groups: writing and adding must not change places
            for adds, group in groupby(numbers, key=lambda number: self.graph.updates[number].adds):
                found = [*group]
                if len(found) == 1 and self.graph.updates[found[0]].index in self.plan.lists:
                    self._add_each(found[0], target, section)
                    continue
                if adds and self.emitter.group > 1:
                    self._add_rows(found, target, section)
                    continue
                for number in found:
                    self._write_row(number, section)
            return
        for number, update in enumerate(self.graph.updates):
            if update.model == model and update.index is not None:
                self.emitter.node = self.plan.resolve(update.value)
                index = self.store.value(update.index, section, Form.BROADCAST)
                self.index.scatter((update.index, index), (model, target), self._new(number, section))

    def _write_tables(self) -> None:
        """Write the rows of tables that the round's one tuple chooses, after all that it reads."""
        section, numbers = Section.TUPLE, [number for number, u in enumerate(self.graph.updates) if u.at_once]
        for number in numbers:
            value = self.plan.resolve(self.graph.updates[number].value)
            if self.graph.nodes[self.plan.root(value)].op is Op.MODEL and value not in self.copies:
                self.emitter.node = value
                self.copies[value] = self._room(value)
                self.emitter.elementwise(section, Opcode.MOV, self.copies[value], self.store.value(value, section))
        for number in numbers:
            self._write_row(number, section)

    def _write_row(self, number: int, section: Section) -> None:
        """Write one update of a table, or add it, in a round of one tuple."""
        update = self.graph.updates[number]
        assert update.index is not None, "a table is written by rows"
        self.emitter.node = self.plan.resolve(update.value)
        table, new = self.store.value(update.model, section), self._new(number, section)
        index = self.graph.nodes[update.index]
        if index.op is not Op.CONST:
            rows = self.store.value(update.index, section, Form.BROADCAST)
            self.index.scatter((update.index, rows), (update.model, table), new, adds=update.adds)
            return
        row = self._row(table, int(index.value or 0))
        if update.adds:
            self.emitter.elementwise(section, Opcode.ADD, row, row, new)
        else:
            self.emitter.elementwise(section, Opcode.MOV, row, new)

    def _add_rows(self, numbers: list[int], table: Value, section: Section) -> None:
        """Add what the tuples of a round add to rows of a table: tuple by tuple, of each in the order of the text."""
        least = self.store.literal(-0.0)
        ready: list[tuple[int, Node, Value | None, Value]] = []
        for number in numbers:
            update = self.graph.updates[number]
            assert update.index is not None, "a table is written by rows"
            self.emitter.node = self.plan.resolve(update.value)
            new, index, row = self._new(number, section), None, self.graph.nodes[update.index]
            if row.op is not Op.CONST:
                index = self.index.present(self.store.value(row.id, section, Form.BROADCAST), ())
            ready.append((number, row, index, self.index.present(new, new.shape, least=least)))
        # as the interpreter adds (`Interpreter._updated`): tuple by tuple, of each in the order of the text
        for t in range(self.emitter.group):
            for number, row, index, new in ready:
                update = self.graph.updates[number]
                self.emitter.node = self.plan.resolve(update.value)
                if index is not None:
                    self.index.add(t, (row.id, index), (update.model, table), new)
                    continue
                fixed = self._row(table, int(row.value or 0))
                each = replace(new, base=new.base + t * new.stride, stride=0)
                self.emitter.elementwise(section, Opcode.ADD, fixed, fixed, each)

    def _add_each(self, number: int, table: Value, section: Section) -> None:
        """Add the elements of each tuple's value to the rows of a table that its numbers choose."""
        update = self.graph.updates[number]
        assert update.index is not None, "a table is written by rows"
        self.emitter.node = self.plan.resolve(update.value)
        numbers = self.store.value(update.index, section, Form.BROADCAST)
        self.index.add_each((update.index, numbers), (update.model, table), self._new(number, section))

    def _sum_losses(self, section: Section) -> None:
        """The epoch's loss: where `tuple` does all the work, it takes in the loss of the batch before (`losses.py`)."""
        emitter = self.emitter
        assert self.graph.loss is not None
        emitter.node = loss = self.plan.resolve(self.graph.loss)
        losses = Losses(self.store, emitter)
        self.loss = losses.total.buffer
        if self.cut:
            losses.add_each(self.store.value(loss, section))
        elif self.plan.together:
            pending = losses.pending()
            losses.add(section, pending)
            losses.add(Section.EPOCH, pending)
            if self.plan.single:
                emitter.elementwise(section, Opcode.MOV, pending, self.store.value(loss, section))
            else:
                self._merge_into(pending, Opcode.ADD, loss, self.forms.loss)
        else:
            assert self.batch_loss is not None, "merged before the batch"
            losses.add(section, self.batch_loss)
        losses.end()

    def _only_test(self, k: int) -> bool:
        """Whether a node is computed for the convergence test alone, by an operation that takes a place."""
        return self.store.used_once(k, Form.BROADCAST) and self.graph.nodes[k].op in (*UNARY, *BINARY, Op.WHERE)

    def _test(self) -> Value:
        """The row of the convergence test's value."""
        if self.convergence is None:
            self.convergence = self.store.lasting("convergence").buffer
        return Value(buffer=self.convergence)

    def _leave_test(self, section: Section) -> None:
        assert self.graph.convergence is not None
        root = self.plan.resolve(self.graph.convergence)
        self.emitter.node = root
        value, test = self.store.value(root, section), self._test()
        if value.buffer is not test.buffer:
            self.emitter.elementwise(section, Opcode.MOV, test, value)

    def _epoch(self) -> None:
        nodes = self.plan.of(Section.EPOCH)
        for k in nodes:
            root = self.graph.convergence is not None and self.plan.resolve(self.graph.convergence) == k
            self._node(k, Section.EPOCH, self._test() if root and self._only_test(k) else None)
        # `epoch` sees the models after the last batch, so only a test that reads no model is left for it
        if nodes:
            self._leave_test(Section.EPOCH)
        self.store.leave_models()
        for k in self.graph.models:
            self._end_epoch(k)

    def _end_epoch(self, k: int) -> None:
        """Emit the change of a model at the end of an epoch."""
        node = self.graph.nodes[k]
        if node.each_epoch is None:
            return
        self.emitter.node = k
        model = self.store.own(k)
        if node.each_epoch is EachEpoch.COUNT:
            self.emitter.elementwise(Section.EPOCH, Opcode.ADD, model, model, self.store.literal(1.0))
        else:
            self.emitter.elementwise(Section.EPOCH, Opcode.MOV, model, self.store.literal(node.init.first))


def _parts(block: list[tuple[Opcode, Buffer]]) -> list[tuple[Opcode, int, int]]:
    """(operation, first row, rows) of each run of parts with one operation."""
    runs = [(op, sum(buffer.rows for _, buffer in run)) for op, run in groupby(block, key=lambda part: part[0])]
    firsts = accumulate((rows for _, rows in runs), initial=0)
    return [(op, first, rows) for (op, rows), first in zip(runs, firsts, strict=False)]
