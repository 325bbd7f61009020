"""Models with rows in records (docs/machine.md, "Records"): a tuple reads them where it reads its columns.

In: gathers and row updates of such models. Out: values in tuple memory, and operations that put new rows into the
outbox. The machine fetches and stores records; nothing is read or written by an address that depends on a number.
"""

from collections.abc import Callable
from dataclasses import replace

from dana.compiler.place.rows import Form
from dana.compiler.place.sections import Plan
from dana.compiler.place.watch import Watched
from dana.compiler.select.convert import convert
from dana.compiler.select.store import Store
from dana.compiler.select.values import Emitter, Value
from dsl.hdfg.graph import Op
from hwgen.spec.engine import Opcode, Section


class Records:
    """Gathers and updates."""

    def __init__(self, plan: Plan, store: Store, emitter: Emitter) -> None:
        self.plan = plan
        self.graph = plan.graph
        self.store = store
        self.emitter = emitter

    def gathered(self, k: int) -> Value:
        """The row that a gather copies, where it lies."""
        model, number = self.plan.operands(k)
        value = self.store.record(model, self._column(model, number))
        form = self.store.forms.of[k]
        # read where it was fetched: updates go to the outbox and leave it as it is
        if value.form is form:
            return value
        room = self.emitter.temporary(self.store.name(k), value.shape, form, per_tuple=True)
        convert(self.emitter, Section.TUPLE, value, room)
        return room

    def put(self, model: int, new: Callable[[int], Value]) -> None:
        """Put the rows of a model that its updates make; `new`: the value of an update, by its number.

        Two columns may name one record: then each puts what the last update of both made, whichever is stored last.
        """
        columns = self.store.columns(model)
        rows = {column: self.store.record(model, column) for column in columns}
        # in the order of the text: an update reads what the ones before made of the row
        for number, update in enumerate(self.graph.updates):
            if update.model != model or update.index is None:
                continue
            self.emitter.node = self.plan.resolve(update.value)
            column, value = self._column(model, update.index), new(number)
            if update.adds:
                room = self._room(model, rows[column])
                self.emitter.elementwise(Section.TUPLE, Opcode.ADD, room, rows[column], value)
                value = room
            rows[column] = value
            # another column may name the same record, and is stored, too
            for other in columns:
                if other != column and other.writes:
                    rows[other] = self._where_same(model, column, other, value, rows[other])
        # behind all updates: a program puts each record once (docs/machine.md, "Records")
        for column, value in rows.items():
            if column.writes:
                outbox = self.store.outbox(model, column)
                shape = self.emitter.row_shape(outbox)
                views = (self.emitter.view(one, shape) for one in (outbox, value))
                self.emitter.nest(Section.TUPLE, Opcode.PUT, (self.emitter.group, *shape), *views)

    def _where_same(self, model: int, column: Watched, other: Watched, value: Value, row: Value) -> Value:
        """A row, or the value where both columns name one record."""
        emitter = self.emitter
        same = emitter.temporary("same", (), Form.BROADCAST, per_tuple=True)
        numbers = [self.store.value(self._number(model, one), Section.TUPLE, Form.BROADCAST) for one in (column, other)]
        emitter.elementwise(Section.TUPLE, Opcode.EQ, same, *numbers)
        room = self._room(model, row)
        # first: MOVC leaves the lanes in which the condition is 0 as they are
        emitter.elementwise(Section.TUPLE, Opcode.MOV, room, row)
        emitter.elementwise(Section.TUPLE, Opcode.MOVC, room, value, same)
        return room

    def _room(self, model: int, like: Value) -> Value:
        record = self.store.record(model, self.store.columns(model)[0])
        name = f"{self.store.name(model)}.row"
        # not owned: its last reader must not overwrite it, for the PUT reads it as well
        return replace(self.emitter.temporary(name, record.shape, record.form, per_tuple=True), owned=False)

    def _column(self, model: int, number: int) -> Watched:
        """The watched column that chooses a row of a model."""
        found = self.plan.element(number)
        assert found is not None, "a watched column is an element of an input"
        name = self.graph.nodes[found[0]].name or ""
        return next(one for one in self.store.columns(model) if (one.input, one.element) == (name, found[1]))

    def _number(self, model: int, column: Watched) -> int:
        """The node of a watched column's number."""
        asked = [update.index for update in self.graph.updates if update.model == model and update.index is not None]
        gathers = (self.graph.nodes[k] for k in self.plan.section if self.graph.nodes[k].op is Op.GATHER)
        asked += [node.inputs[1] for node in gathers if node.inputs[0] == model]
        return next(k for k in asked if self._column(model, k) == column)
