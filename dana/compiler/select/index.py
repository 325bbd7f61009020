"""Rows of models that a tuple chooses: gathers and row updates through the index file.

In: a model, a value or room for one, and the number of a row for each tuple. Out: operations. The index file holds one
set of entries at a time, so they are set anew where another model or another number is asked for.
"""

from dataclasses import replace
from math import prod
from typing import Any

from dana.compiler.select.nest import MAX_INNER, MAX_STEP, LoopLimit
from dana.compiler.select.ops import Access, Buffer, Home, Index
from dana.compiler.select.values import Emitter, Value, View
from hwgen.spec.engine import MAX_CHOSEN, Mask, Opcode, Section


class IndexFile:
    """The index file and what it holds.

    Attributes
    ----------
    tags
        (number's node, model's node) of each pair that was asked for; a fault reports the place in this list, counted
        from `first_tag` on.
    """

    def __init__(self, emitter: Emitter, first_tag: int = 0, entries: int = 1) -> None:
        self.emitter = emitter
        self.first_tag = first_tag
        self.tags: list[tuple[int, int]] = []
        # entries for each of a thread's tuples in a round
        self._file = Buffer(name="index", rows=emitter.group * entries, home=Home.INDEX)
        self._number = -1
        self._index: Index | None = None

    def gather(self, number: tuple[int, Value], model: tuple[int, Value], room: Value) -> None:
        """Copy each tuple's row of a model; numbers and models come with their node."""
        index = self._set(number, model)
        rows = self.emitter.row_shape(room)
        # the entry of the index file takes the tuple to its row, so the model itself does not step with tuples
        steps = self.emitter.view(replace(room, stride=0), rows).steps
        source = View(model[1].buffer, model[1].base, steps, index=index)
        self._each(Opcode.MOV, Mask.NONE, rows, self.emitter.view(room, rows), source)

    def scatter(self, number: tuple[int, Value], model: tuple[int, Value], value: Value, *, adds: bool = False) -> None:
        """Write each tuple's row of a model, in the order of the tuples; of one tuple it may be added to."""
        index = self._set(number, model)
        rows, target = self._row(model[1], index)
        new = self.emitter.view(value, rows)
        if adds:
            self._each(Opcode.ADD, Mask.SINGLE, rows, target, target, new)
        else:  # SINGLE sends the rows one after the other: of tuples that choose one row the last wins
            self._each(Opcode.MOV, Mask.SINGLE, rows, target, new)

    def gather_each(
        self,
        op: Opcode,
        numbers: tuple[int, Value],
        model: tuple[int, Value],
        room: Value,
        other: Value | None = None,
    ) -> None:
        """Take rows of a model, each tuple's as many as it has numbers, with another value of as many if given."""
        index = self._set_each(numbers, model)
        source = Access(buffer=model[1].buffer, base=model[1].base, index=index)
        b = None if other is None else self._numbered(other)
        self._of_each(op, numbers[1], self._numbered(room), source, b)

    def add_each(self, numbers: tuple[int, Value], model: tuple[int, Value], value: Value) -> None:
        """Add a number to each of these rows, in order: tuple by tuple, of each in the order of its numbers."""
        index = self._set_each(numbers, model)
        row = Access(buffer=model[1].buffer, base=model[1].base, index=index)
        self._of_each(Opcode.ADD, numbers[1], row, row, self._numbered(value), mask=Mask.SINGLE, ordered=True)

    def _set_each(self, numbers: tuple[int, Value], model: tuple[int, Value]) -> Index:
        held = self.holds(numbers[0], model[1])
        if held is not None:
            return held
        self._number, self._index = numbers[0], self._entry(numbers[0], model)
        count = numbers[1].shape[0]
        entries = Access(buffer=self._file, inner=1, outer=count, index=self._index)
        self._of_each(Opcode.SETX, numbers[1], entries, self._numbered(numbers[1]), mask=Mask.SINGLE)
        return self._index

    def _numbered(self, value: Value) -> Access:
        """A value's rows: an element's in the inner loop, a tuple's in the outer one."""
        step = int(bool(value.shape) and value.shape[0] > 1)
        return Access(buffer=value.buffer, base=value.base, inner=step, outer=value.stride)

    def _of_each(
        self, op: Opcode, numbers: Value, dst: Access, a: Access, b: Access | None = None, **fields: Any
    ) -> None:
        count = numbers.shape[0]
        if count > MAX_INNER or max(one.outer for one in (dst, a, b or a)) > MAX_STEP:
            raise LoopLimit(f"{count} rows of a model for each tuple")
        self.emitter.add(Section.TUPLE, op, dst, a, b, inner=count, outer=self.emitter.group, each=True, **fields)

    def present(self, value: Value, shape: tuple[int, ...], *, least: Value | None = None) -> Value:
        """A copy of a value for each tuple: of those that the round lacks 0, or -0 if that is `least`."""
        emitter = self.emitter
        room = emitter.temporary(value.buffer.name, shape, value.form, per_tuple=True)
        rows = emitter.row_shape(room)
        dst, own = emitter.view(room, rows), emitter.view(value, rows)
        if least is None:
            self._each(Opcode.MOV, Mask.SINGLE, rows, dst, own)
        else:  # the mask puts ADD's identity, -0, in the place of what is not there, and -0 and -0 are -0
            self._each(Opcode.ADD, Mask.SINGLE, rows, dst, own, emitter.view(least, rows))
        return room

    def add(self, t: int, number: tuple[int, Value], model: tuple[int, Value], value: Value) -> None:
        """Add tuple t's value to its row of a model; number and value are there for each tuple."""
        # a row that two tuples choose has to be written before it is read again, which the waits of one loop do not see
        index = self._entry(number[0], model)
        at = View(number[1].buffer, number[1].base + t * number[1].stride, (0,))
        self.emitter.nest(Section.TUPLE, Opcode.SETX, (1,), View(self._file, 0, (1,), index=index), at, outer=0)
        rows, target = self._row(model[1], index)
        new = self.emitter.view(value, rows).moved(0, t)
        self.emitter.nest(Section.TUPLE, Opcode.ADD, (1, *rows), target, target, new, outer=0)
        # the file holds one tuple's entry now
        self._index = None

    def _row(self, model: Value, index: Index) -> tuple[tuple[int, ...], View]:
        """Rows of a model's row, and where they lie."""
        row = replace(model, shape=model.shape[1:])
        rows = self.emitter.row_shape(row)
        return rows, replace(self.emitter.view(row, rows), index=index)

    def holds(self, number: int, model: Value) -> Index | None:
        """Contents of the index file, if they are the entries for a number's node and a model."""
        found = self._index
        if found is None or self._number != number or (found.bound, found.stride) != self._entries(model):
            return None
        return found

    def _entries(self, model: Value) -> tuple[int, int]:
        """How many there are, and rows of each."""
        return model.shape[0], prod(self.emitter.row_shape(model)[1:])

    def _each(self, op: Opcode, mask: Mask, rows: tuple[int, ...], dst: View, *operands: View) -> None:
        """An operation on rows of each tuple."""
        self.emitter.nest(Section.TUPLE, op, (self.emitter.group, *rows), dst, *operands, outer=0, mask=mask)

    def _set(self, number: tuple[int, Value], model: tuple[int, Value]) -> Index:
        """Bring the entries into the file, unless it holds them."""
        held = self.holds(number[0], model[1])
        if held is not None:
            return held
        index = self._entry(number[0], model)
        self._number, self._index = number[0], index
        entries = View(self._file, 0, (1,), index=index)
        self._each(Opcode.SETX, Mask.SINGLE, (), entries, self.emitter.view(number[1], ()))
        return index

    def _entry(self, number: int, model: tuple[int, Value]) -> Index:
        """The index file entry for a number's node and a model."""
        bound, stride = self._entries(model[1])
        if bound > MAX_CHOSEN or stride > MAX_STEP:
            raise LoopLimit(f"a model of {bound} rows, each of them {stride} rows of lanes")
        pair = (number, model[0])
        # the machine reports the tag: one for each pair, so that an error can name column and model
        if pair not in self.tags:
            self.tags.append(pair)
        return Index(buffer=self._file, bound=bound, stride=stride, tag=self.first_tag + self.tags.index(pair))
