"""Where the values of a rule lie: leaves, results, and either form of each.

In: a plan, its forms and tuple layout; results as selection makes them. Out: `Value`s for operands, in the form in
which they are wanted, and the buffers that outlive a section. Conversions are emitted where a form is first asked for,
of what lasts for an epoch in `init`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from dana.compiler.convert import convert
from dana.compiler.forms import Forms
from dana.compiler.layout import Form, TupleLayout, rows_of
from dana.compiler.ops import Buffer, Home
from dana.compiler.sections import Plan
from dana.compiler.values import Emitter, Value
from dana.errors import InternalError
from dsl.binary32 import bits_of
from dsl.hdfg.graph import Op
from hwgen.spec.engine import Section


class Store:
    """Values by node and form.

    Attributes
    ----------
    literals
        Bit pattern and buffer of each literal.
    ranges
        Buffer of each vector 0, 1, 2 …, by length and form.
    masks
        Row k is 1.0 in lane k alone; None if no conversion needs it.
    metas, models
        Node and buffer of the image.
    state
        Buffers that live as long as the epoch, without the image's.
    """

    def __init__(self, plan: Plan, layout: TupleLayout, forms: Forms, emitter: Emitter) -> None:
        self.plan = plan
        self.graph = plan.graph
        self.forms = forms
        self.emitter = emitter
        self.literals: dict[int, Buffer] = {}
        self.ranges: dict[tuple[int, Form], Buffer] = {}
        self.masks: Buffer | None = None
        self.metas = {k: self._image(self.graph.nodes[k].name or "meta", 1) for k in self.graph.metas}
        self.models = {
            k: self._image(self.graph.nodes[k].name or "model", rows_of(self.graph.concrete_shape(k), layout.lanes))
            for k in self.graph.models
        }
        self.state: list[Buffer] = []
        self._values: dict[tuple[int, Form], Value] = {}
        self._uses = self._count_uses()
        self._place_inputs(layout)
        for k, buffer in self.metas.items():
            self.put(k, Value(buffer=buffer))

    # --- buffers that last ----------------------------------------------------------------------------------------

    def _image(self, name: str, rows: int) -> Buffer:
        return Buffer(name=name, rows=rows, home=Home.IMAGE)

    def lasting(self, name: str, shape: tuple[int, ...] = (), form: Form = Form.SPREAD) -> Value:
        """Room for a value that lives as long as the epoch."""
        value = Value(buffer=Buffer(name=name, rows=0, home=Home.STATE), shape=shape, form=form)
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
        """Bring spread models into rows of their own, in `init`."""
        for k, buffer in self.models.items():
            image = self._in_image(k, buffer)
            if not image.shape or self.forms.of[k] is Form.PACKED:
                self.put(k, image)
                continue
            self.put(k, self.lasting(buffer.name, image.shape))
            self.emitter.node = k
            self.convert(Section.INIT, image, self.value(k, Section.INIT))

    def leave_models(self) -> None:
        """Pack spread models into the image, in `epoch`."""
        for k, buffer in self.models.items():
            image = self._in_image(k, buffer)
            if image.shape and self.forms.of[k] is Form.SPREAD:
                self.emitter.node = k
                self.convert(Section.EPOCH, self.value(k, Section.EPOCH), image)

    def _in_image(self, k: int, buffer: Buffer) -> Value:
        shape = self.graph.concrete_shape(k)
        return Value(buffer=buffer, shape=shape, form=Form.PACKED if shape else Form.SPREAD)

    # --- values ---------------------------------------------------------------------------------------------------

    def put(self, k: int, value: Value) -> None:
        """Remember where a node's value lies."""
        self._values[k, value.form] = value

    def __contains__(self, k: int) -> bool:
        """Whether a node's value was computed."""
        return (k, self.forms.of[k]) in self._values

    def value(self, k: int, section: Section, form: Form | None = None) -> Value:
        """A node's value for an operation of `section`, converted if it does not lie in that form."""
        k = self.plan.resolve(k)
        own = self.forms.of[k]
        form = form or own
        if (k, form) in self._values:
            return self._values[k, form]
        node = self.graph.nodes[k]
        if node.op is Op.ARANGE:
            return self._range(k, form)
        if node.op is Op.CONST and node.value is not None:
            return self.literal(node.value)
        if (k, own) not in self._values:
            raise InternalError(f"node {k} ({node.op.value}) of rule {self.graph.name!r} is used before it is computed")
        self._values[k, form] = self._converted(k, self._values[k, own], section, form)
        return self._values[k, form]

    def operand(self, k: int, position: int, section: Section) -> Value:
        """The value that a node reads at `position`."""
        return self.value(self.plan.operands(k)[position], section, self.forms.wanted(k, position))

    def _converted(self, k: int, value: Value, section: Section, form: Form) -> Value:
        name = f"{self.name(k)}.{form.value}"
        if self.plan.section.get(k) is Section.INIT:
            section, room = Section.INIT, self.lasting(name, value.shape, form)
        else:
            room = self.emitter.temporary(name, value.shape, form, per_tuple=value.stride > 0)
        self.convert(section, value, room)
        return room

    def convert(self, section: Section, value: Value, room: Value) -> None:
        """Write a value into room for it in another form."""
        if self.masks is None:
            self.masks = self._image("lane masks", self.emitter.lanes)
        convert(self.emitter, section, value, room, lane_masks=self.masks, nothing=self.literal(-0.0))

    def name(self, k: int) -> str:
        """A node's name for people."""
        return self.graph.nodes[k].name or f"%{k}"

    # --- uses -----------------------------------------------------------------------------------------------------

    def _count_uses(self) -> Counter[tuple[int, Form]]:
        plan, uses = self.plan, Counter[tuple[int, Form]]()
        for k in plan.section:
            uses.update((o, self.forms.wanted(k, position)) for position, o in enumerate(plan.operands(k)))
        for number, update in enumerate(self.graph.updates):
            uses[plan.resolve(update.value), self.forms.stored(number)] += 1
        for root in (self.graph.loss, self.graph.convergence):
            if root is not None:
                uses[plan.resolve(root), Form.SPREAD] += 1
        for k, form in list(uses):
            if form is not self.forms.of[k]:  # converting it is one use
                uses[k, self.forms.of[k]] += 1
        return uses

    def used_once(self, k: int, form: Form) -> bool:
        """Whether a value has one reader in a form."""
        return self._uses[self.plan.resolve(k), form] == 1

    def last_use(self, k: int, form: Form) -> bool:
        """Whether the only reader of a value in a form may overwrite it."""
        k = self.plan.resolve(k)
        return self.used_once(k, form) and (k, form) in self._values and self._values[k, form].owned
