"""Where the values of a rule lie: leaves, results, either form of each, whole and in slices.

In: a plan, its forms, slices and tuple layout; results as selection makes them. Out: `Value`s for operands, as they are
wanted, and the buffers that outlive a section. Conversions and exchanges between threads are emitted where a value is
first asked for in another way, of what lasts for an epoch in `init`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from dana.compiler.convert import convert, repeat
from dana.compiler.forms import Forms
from dana.compiler.layout import Form, TupleLayout, rows_of
from dana.compiler.ops import Buffer, Home
from dana.compiler.repeat import repeating
from dana.compiler.sections import Plan
from dana.compiler.slices import Kept, Slices
from dana.compiler.slicing import cut, join
from dana.compiler.values import Emitter, Value
from dana.errors import InternalError
from dsl.binary32 import bits_of
from dsl.hdfg.graph import Op
from hwgen.spec.engine import Section


class Store:
    """Values by node, form, and the last axes that a slice keeps.

    Attributes
    ----------
    literals
        Bit pattern and buffer of each literal.
    ranges
        Buffer of each vector 0, 1, 2 …, by length and form.
    metas, models
        Node and buffer of the image.
    state
        Buffers that live as long as the epoch, without the image's.
    """

    def __init__(self, plan: Plan, layout: TupleLayout, forms: Forms, slices: Slices, emitter: Emitter) -> None:
        self.plan = plan
        self.graph = plan.graph
        self.forms = forms
        self.slices = slices
        self.emitter = emitter
        self.literals: dict[int, Buffer] = {}
        self.ranges: dict[tuple[int, Form], Buffer] = {}
        self.metas = {k: self._image(self.graph.nodes[k].name or "meta", 1) for k in self.graph.metas}
        self.models = {
            k: self._image(self.graph.nodes[k].name or "model", rows_of(self.graph.concrete_shape(k), layout.lanes))
            for k in self.graph.models
        }
        self.state: list[Buffer] = []
        self._values: dict[_Key, Value] = {}
        self._uses = self._count_uses()
        self._repeating = repeating(plan, forms, emitter.lanes)
        self._place_inputs(layout)
        for k, buffer in self.metas.items():
            self.put(k, Value(buffer=buffer))

    # --- buffers that last ----------------------------------------------------------------------------------------

    def _image(self, name: str, rows: int) -> Buffer:
        return Buffer(name=name, rows=rows, home=Home.IMAGE)

    def lasting(self, name: str, shape: tuple[int, ...] = (), form: Form = Form.SPREAD, kept: Kept = None) -> Value:
        """Room for a value that lives as long as the epoch."""
        value = Value(buffer=Buffer(name=name, rows=0, home=Home.STATE), shape=shape, form=form, kept=kept)
        self.state.append(Buffer(name=name, rows=self.emitter.rows(value), home=Home.STATE))
        return replace(value, buffer=self.state[-1])

    def literal(self, value: float) -> Value:
        """A scalar of the image."""
        bits = bits_of(value)
        if bits not in self.literals:
            self.literals[bits] = self._image(f"{value:g}", 1)
        return Value(buffer=self.literals[bits])

    def _range(self, k: int, form: Form) -> Value:
        shape = self.graph.concrete_shape(k)
        value = Value(buffer=Buffer(name="", rows=0, home=Home.IMAGE), shape=shape, form=form)
        if (shape[0], form) not in self.ranges:
            self.ranges[shape[0], form] = self._image(f"0..{shape[0] - 1}", self.emitter.rows(value))
        return replace(value, buffer=self.ranges[shape[0], form])

    def _place_inputs(self, layout: TupleLayout) -> None:
        tuples = Buffer(name="tuple", rows=self.emitter.group * layout.rows, home=Home.TUPLE)
        stride = layout.rows if self.emitter.group > 1 else 0
        for k in self.graph.inputs:
            place = layout.place(self.graph.nodes[k].name or f"node {k}")
            form = self.forms.of[k]
            self.put(k, Value(buffer=tuples, base=place.row, shape=place.shape, form=form, stride=stride))

    def load_models(self) -> None:
        """Bring spread models, and slices of models, into rows of their own, in `init`."""
        for k, buffer in self.models.items():
            self.emitter.node = k
            whole = image = self._in_image(k, buffer)
            if image.shape and self.forms.of[k] is Form.SPREAD:
                whole = self.lasting(buffer.name, image.shape)
                convert(self.emitter, Section.INIT, image, whole)
            elif k in self._repeating:
                repeat(self.emitter, Section.INIT, image)
            self.put(k, whole)
            if k in self.slices.of:
                self.put(k, self.lasting(f"{buffer.name}.slice", whole.shape, whole.form, self.slices.of[k]))
                cut(self.emitter, Section.INIT, whole, self.own(k))

    def join_model(self, k: int, section: Section) -> None:
        """Put a model together whose slices are new, if something reads it whole."""
        if k in self.slices.joined:
            join(self.emitter, section, self.own(k), self.value(k, section))

    def leave_models(self) -> None:
        """Put models together that no batch did, and pack spread ones into the image, in `epoch`."""
        for k, buffer in self.models.items():
            self.emitter.node = k
            image, whole = self._in_image(k, buffer), self.value(k, Section.EPOCH)
            if k in self.slices.of and k not in self.slices.joined:
                join(self.emitter, Section.EPOCH, self.own(k), whole)
            if image.shape and self.forms.of[k] is Form.SPREAD:
                convert(self.emitter, Section.EPOCH, whole, image)

    def _in_image(self, k: int, buffer: Buffer) -> Value:
        shape = self.graph.concrete_shape(k)
        return Value(buffer=buffer, shape=shape, form=Form.PACKED if shape else Form.SPREAD)

    # --- values ---------------------------------------------------------------------------------------------------

    def put(self, k: int, value: Value) -> None:
        """Remember where a node's value lies."""
        repeats = value.form is Form.PACKED and k in self._repeating
        self._values[k, value.form, value.kept] = replace(value, repeats=repeats)

    def __contains__(self, k: int) -> bool:
        """Whether a node's value was computed."""
        return (k, self.forms.of[k], self.slices.of.get(k)) in self._values

    def own(self, k: int) -> Value:
        """A node's value as it was computed."""
        return self._values[k, self.forms.of[k], self.slices.of.get(k)]

    def value(self, k: int, section: Section, form: Form | None = None, kept: Kept = None) -> Value:
        """A node's value for an operation of `section`, converted, cut or joined if it does not lie so."""
        k = self.plan.resolve(k)
        form = form or self.forms.of[k]
        if (k, form, kept) in self._values:
            return self._values[k, form, kept]
        node = self.graph.nodes[k]
        if node.op is Op.ARANGE and kept is None:
            return self._range(k, form)
        if node.op is Op.CONST and node.value is not None:
            return self.literal(node.value)
        steps = self._way(k, form, kept)
        if len(steps) < 2:
            raise InternalError(f"node {k} ({node.op.value}) of rule {self.graph.name!r} is used before it is computed")
        _, there, slices = steps[-2]
        self._values[k, form, kept] = self._changed(k, self.value(k, section, there, slices), section, form, kept)
        return self._values[k, form, kept]

    def _way(self, k: int, form: Form, kept: Kept) -> list[_Key]:
        """From a value as it is computed to how it is wanted, by single changes: joined, converted, cut."""
        own, slices = self.forms.of[k], self.slices.of.get(k)
        keys: list[_Key] = [(k, own, slices)]
        if (form, kept) != (own, slices):
            keys += [(k, own, None), (k, form, None), (k, form, kept)]
        return list(dict.fromkeys(keys))

    def operand(self, k: int, position: int, section: Section) -> Value:
        """The value that a node reads at `position`."""
        wanted = self.forms.wanted(k, position), self.slices.wanted(k, position)
        return self.value(self.plan.operands(k)[position], section, *wanted)

    def _changed(self, k: int, value: Value, section: Section, form: Form, kept: Kept) -> Value:
        name = f"{self.name(k)}.{form.value if form is not value.form else 'slice' if kept is not None else 'whole'}"
        if self._lasts(k):
            section, room = Section.INIT, self.lasting(name, value.shape, form, kept)
        else:
            room = self.emitter.temporary(name, value.shape, form, per_tuple=value.stride > 0, kept=kept)
        if kept is not None:
            cut(self.emitter, section, value, room)
        elif value.kept is not None:
            join(self.emitter, section, value, room)
        else:
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
                uses[o, self.forms.wanted(k, position), self.slices.wanted(k, position)] += 1
        for number, update in enumerate(self.graph.updates):
            uses[plan.resolve(update.value), self.forms.stored(number), self.slices.stored(number)] += 1
        for root in (self.graph.loss, self.graph.convergence):
            if root is not None:
                uses[plan.resolve(root), Form.SPREAD, None] += 1
        # each change on the way to what is wanted is one use
        uses.update({before for key in list(uses) for before in self._way(*key)[:-1]})
        return uses

    def used_once(self, k: int, form: Form, kept: Kept = None) -> bool:
        """Whether a value has one reader that wants it so."""
        return self._uses[self.plan.resolve(k), form, kept] == 1

    def last_use(self, k: int, form: Form, kept: Kept = None) -> bool:
        """Whether the only reader of a value that wants it so may overwrite it."""
        key = self.plan.resolve(k), form, kept
        return self.used_once(*key) and key in self._values and self._values[key].owned


_Key = tuple[int, Form, Kept]
"""A node, the form of its value, and the last axes that a slice keeps."""
