"""Where the values of a rule lie: leaves, results, either form of each, whole and in shards.

In: a plan, what was decided about its values, the places of inputs; results as selection makes them. Out: `Value`s for
operands, as they are wanted, and the buffers that outlive a section. Conversions and exchanges between threads are
emitted where a value is first asked for in another way, of what lasts for an epoch in `init`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from dana.compiler.place.forms import Forms
from dana.compiler.place.rows import Form, InputPlaces
from dana.compiler.place.sections import Plan
from dana.compiler.place.shards import Grain, Shards
from dana.compiler.place.watch import Watched
from dana.compiler.select.convert import convert, repeat
from dana.compiler.select.ops import Buffer, Home
from dana.compiler.select.sharding import cut, join
from dana.compiler.select.values import Emitter, Value
from dana.errors import InternalError
from dsl.binary32 import bits_of
from dsl.hdfg.graph import Op
from hwgen.spec.engine import Opcode, Section


class Store:
    """Values by node, form, and the last axes that a shard keeps.

    Attributes
    ----------
    literals
        Bit pattern and buffer of each literal.
    ranges
        Buffer of each vector 0, 1, 2 …, by length and form.
    metas, models
        Node and buffer of the image.
    inputs, recorded
        Where inputs and records lie; models that lie in the record memory.
    state
        Buffers that live as long as the epoch, without the image's.
    """

    def __init__(
        self,
        plan: Plan,
        inputs: InputPlaces,
        forms: Forms,
        shards: Shards,
        repeats: frozenset[int],
        emitter: Emitter,
    ) -> None:
        self.plan = plan
        self.graph = plan.graph
        self.forms = forms
        self.shards = shards
        self.emitter = emitter
        self.literals: dict[int, Buffer] = {}
        self.ranges: dict[tuple[int, Form], Buffer] = {}
        self.metas = {k: self._image(self.name(k)) for k in self.graph.metas}
        self.recorded = inputs.recorded
        self.models = {
            k: emitter.placed(self.name(k), Home.IMAGE, self.graph.concrete_shape(k), forms.of[k])
            for k in self.graph.models
            if k not in self.recorded
        }
        self.state: list[Buffer] = []
        self._values: dict[_Key, Value] = {}
        self._uses = self._count_uses()
        self._repeats = repeats
        self.inputs = inputs
        self._place_inputs(inputs)
        for k, buffer in self.metas.items():
            self.put(k, Value(buffer=buffer))

    # --- buffers that last ----------------------------------------------------------------------------------------

    def _image(self, name: str) -> Buffer:
        return Buffer(name=name, rows=1, home=Home.IMAGE)

    def lasting(
        self, name: str, shape: tuple[int, ...] = (), form: Form = Form.BROADCAST, grain: Grain = None
    ) -> Value:
        """Room for a value that lives as long as the epoch."""
        value = self.emitter.placed(name, Home.STATE, shape, form, grain=grain)
        self.state.append(value.buffer)
        return value

    def literal(self, value: float) -> Value:
        """A scalar of the image."""
        # by bits: 0.0 and -0.0 are equal and not the same
        return self._word(bits_of(value), f"{value:g}")

    def identity(self, op: Opcode) -> Value:
        """A scalar of the image that leaves the other operand of a merge as it is."""
        assert op.identity is not None, "a merge has one"
        return self._word(op.identity, f"{op.name.lower()} of none")

    def _word(self, bits: int, name: str) -> Value:
        if bits not in self.literals:
            self.literals[bits] = self._image(name)
        return Value(buffer=self.literals[bits])

    def counted(self, count: int) -> Value:
        """0, 1, 2 … of the image, one for each tuple of the group."""
        return replace(self.range(count, Form.BROADCAST), shape=(), stride=1)

    def range(self, count: int, form: Form) -> Value:
        """The vector 0, 1, 2 … of the image."""
        value = self.emitter.placed(f"0..{count - 1}", Home.IMAGE, (count,), form)
        # vectors of one length and form share a buffer
        return replace(value, buffer=self.ranges.setdefault((count, form), value.buffer))

    def _place_inputs(self, inputs: InputPlaces) -> None:
        self._tuples = tuples = Buffer(name="tuple", rows=self.emitter.group * inputs.rows, home=Home.TUPLE)
        # a tuple's rows follow one another, then come those of the thread's next tuple
        stride = inputs.rows if self.emitter.group > 1 else 0
        for k in self.graph.inputs:
            place = inputs.place(self.graph.nodes[k].name or f"node {k}")
            form = self.forms.of[k]
            self.put(k, Value(buffer=tuples, base=place.row, shape=place.shape, form=form, stride=stride))

    def record(self, model: int, column: Watched) -> Value:
        """The row of a model in the record that a watched column names."""
        return self._in_record(model, column, self._tuples)

    def outbox(self, model: int, column: Watched) -> Value:
        """Where a new row of the model is put."""
        # a buffer of its own: no two results go to one place
        return self._in_record(model, column, Buffer(name="outbox", rows=self._tuples.rows, home=Home.OUTBOX))

    def columns(self, model: int) -> list[Watched]:
        """The watched columns that name records of a model."""
        return [one.column for one in self.inputs.records if model in one.column.models]

    def _in_record(self, model: int, column: Watched, buffer: Buffer) -> Value:
        record = next(one for one in self.inputs.records if one.column == column)
        stride = self.inputs.rows if self.emitter.group > 1 else 0
        shape, row = self.graph.concrete_shape(model)[1:], record.row + self.recorded[model][1]
        return Value(buffer=buffer, base=row, shape=shape, form=self.forms.of[model], stride=stride)

    def load_models(self) -> None:
        """Bring shards of models into rows of their own, in `init`."""
        for k, whole in self.models.items():
            self.emitter.node = k
            if k in self._repeats:
                repeat(self.emitter, Section.INIT, whole)
            self.put(k, whole)
            if k in self.shards.of:
                self.put(k, self.lasting(f"{whole.buffer.name}.shard", whole.shape, whole.form, self.shards.of[k]))
                cut(self.emitter, Section.INIT, whole, self.own(k))

    def join_model(self, k: int, section: Section) -> None:
        """Join the new shards of a model, if something reads it whole."""
        if k in self.shards.joined:
            join(self.emitter, section, self.own(k), self.value(k, section))

    def leave_models(self) -> None:
        """Put models together that no batch did, in `epoch`."""
        for k, whole in self.models.items():
            self.emitter.node = k
            if k in self.shards.of and k not in self.shards.joined:
                join(self.emitter, Section.EPOCH, self.own(k), whole)

    # --- values ---------------------------------------------------------------------------------------------------

    def put(self, k: int, value: Value) -> None:
        """Remember where a node's value lies."""
        # only a packed value has lanes to repeat over
        repeats = value.form is Form.PACKED and k in self._repeats
        kept = value if value.repeats == repeats else replace(value, repeats=repeats)
        self._values[k, value.form, value.grain] = kept

    def __contains__(self, k: int) -> bool:
        """Whether a node's value was computed."""
        return (k, self.forms.of[k], self.shards.of.get(k)) in self._values

    def own(self, k: int) -> Value:
        """A node's value as it was computed."""
        return self._values[k, self.forms.of[k], self.shards.of.get(k)]

    def value(self, k: int, section: Section, form: Form | None = None, grain: Grain = None) -> Value:
        """A node's value for an operation of `section`, converted, cut or joined if it does not lie so."""
        k = self.plan.resolve(k)
        form = form or self.forms.of[k]
        found = self._values.get((k, form, grain))
        if found is not None:
            return found
        node = self.graph.nodes[k]
        if node.op is Op.ARANGE and grain is None:
            return self.range(self.graph.concrete_shape(k)[0], form)
        if node.op is Op.CONST and node.value is not None:
            return self.literal(node.value)
        steps = self._way(k, form, grain)
        if len(steps) < 2:
            raise InternalError(f"node {k} ({node.op.value}) of rule {self.graph.name!r} is used before it is computed")
        _, there, shards = steps[-2]
        self._values[k, form, grain] = self._changed(k, self.value(k, section, there, shards), section, form, grain)
        return self._values[k, form, grain]

    def _way(self, k: int, form: Form, grain: Grain) -> list[_Key]:
        """From a value as it is computed to how it is wanted, by single changes: joined, converted, cut."""
        own, shards = self.forms.of[k], self.shards.of.get(k)
        keys: list[_Key] = [(k, own, shards)]
        if (form, grain) != (own, shards):
            keys += [(k, own, None), (k, form, None), (k, form, grain)]
        return list(dict.fromkeys(keys))

    def operand(self, k: int, position: int, section: Section) -> Value:
        """The value that a node reads at `position`."""
        wanted = self.forms.wanted(k, position), self.shards.wanted(k, position)
        return self.value(self.plan.operands(k)[position], section, *wanted)

    def _changed(self, k: int, value: Value, section: Section, form: Form, grain: Grain) -> Value:
        name = f"{self.name(k)}.{form.value if form is not value.form else 'shard' if grain is not None else 'whole'}"
        # what no batch changes is converted once an epoch, not in each batch
        if self._lasts(k):
            section, room = Section.INIT, self.lasting(name, value.shape, form, grain)
        else:
            shape, per_tuple = self.graph.concrete_shape(k), k in self.plan.per_tuple
            room = self.emitter.temporary(name, shape, form, per_tuple=per_tuple, grain=grain)
        if grain is not None:
            cut(self.emitter, section, value, room)
        elif value.grain is not None:
            join(self.emitter, section, value, room)
        else:
            if value.buffer is self._tuples and value.form is Form.BROADCAST:
                # an odd row would meet one of the scratchpad in an exchange, which takes both of one memory
                read = value
                value = self.emitter.temporary(name, value.shape, value.form, per_tuple=value.stride > 0)
                self.emitter.elementwise(section, Opcode.MOV, value, read)
            convert(self.emitter, section, value, room)
        return room

    def _lasts(self, k: int) -> bool:
        """Whether a value is the same in all of an epoch."""
        if k in self.models:
            return all(update.model != k for update in self.graph.updates)
        return self.graph.nodes[k].op is Op.ARANGE or self.plan.section.get(k) is Section.INIT

    def name(self, k: int) -> str:
        """A node's name for people."""
        return self.graph.nodes[k].name or f"%{k}"

    # --- uses -----------------------------------------------------------------------------------------------------

    def _count_uses(self) -> Counter[_Key]:
        plan, uses = self.plan, Counter[_Key]()
        for k in plan.section:
            for position, o in enumerate(plan.operands(k)):
                uses[o, self.forms.wanted(k, position), self.shards.wanted(k, position)] += 1
        for number, update in enumerate(self.graph.updates):
            uses[plan.resolve(update.value), self.forms.stored(number), self.shards.stored(number)] += 1
        for root, form in ((self.graph.loss, self.forms.loss), (self.graph.convergence, Form.BROADCAST)):
            if root is not None:
                uses[plan.resolve(root), form, None] += 1
        # each change on the way to what is wanted is one use
        # a set: a change that several readers ask for is made once
        uses.update({before for key in list(uses) for before in self._way(*key)[:-1]})
        return uses

    def used_once(self, k: int, form: Form, grain: Grain = None) -> bool:
        """Whether a value has one reader that wants it so."""
        return self._uses[self.plan.resolve(k), form, grain] == 1

    def last_use(self, k: int, form: Form, grain: Grain = None) -> bool:
        """Whether the only reader of a value that wants it so may overwrite it."""
        key = self.plan.resolve(k), form, grain
        return self.used_once(*key) and key in self._values and self._values[key].owned


_Key = tuple[int, Form, Grain]
"""A node, the form of its value, and the last axes that a shard keeps."""
