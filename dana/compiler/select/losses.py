"""The loss of an epoch: the sum of the batches' losses, and beside it that of the errors, which `epoch` adds.

In: a batch's loss, or that of each tuple. Out: operations in the sections that have the time. The sum is a chain of one
addition for each loss, the errors' one behind it: no other step waits for one of its own. Where `tuple` does all the
work it would be the longest of all, so what is left of a batch is added by the section of the next, and by `epoch`.
"""

from dataclasses import replace

from dana.compiler.place.rows import Form
from dana.compiler.select.store import Store
from dana.compiler.select.values import Emitter, Value, View
from hwgen.spec.engine import Mask, Opcode, Section, Source

PENDING = 8
"""Losses of a batch of tuples side by side that the next one adds: as many as the shortest section has time for."""


class Losses:
    """The sum and its errors.

    Attributes
    ----------
    total
        The sum; behind `epoch`, the loss.
    """

    def __init__(self, store: Store, emitter: Emitter) -> None:
        self._store = store
        self._emitter = emitter
        self.total, self._errors = store.lasting("loss"), store.lasting("errors")
        self._begin(self.total, 0.0)
        self._begin(self._errors, 0.0)

    def pending(self, shape: tuple[int, ...], first: float) -> Value:
        """Room for what the next batch adds, and what the epoch's first one does."""
        value = self._store.lasting("pending", shape)
        self._begin(value, first)
        return value

    def _begin(self, state: Value, first: float) -> None:
        self._emitter.elementwise(Section.INIT, Opcode.MOV, state, self._store.literal(first))

    def end(self) -> None:
        """What `epoch` does when all is added."""
        self._emitter.elementwise(Section.EPOCH, Opcode.ADD, self.total, self.total, self._errors)

    def add_each(self, losses: Value) -> None:
        """Add the losses of tuples side by side, in their order.

        A tuple that the round lacks counts -0, which leaves sum and errors as they are. Behind a round of any length
        but the longest nothing is pending but such; of the longest, what the engine can add while records go and come
        is added then.
        """
        emitter = self._emitter
        least, tuples = self._store.literal(-0.0), emitter.together
        kept = min(PENDING, tuples // 2)
        pending = self.pending((kept,), -0.0)
        for section in (Section.TUPLE, Section.EPOCH):
            self._chain(section, pending, kept)
        if emitter.short:
            own = self._gathered(losses, emitter.group) if emitter.group > 1 else losses
            self._chain(Section.TUPLE, own, emitter.group)
            emitter.elementwise(Section.TUPLE, Opcode.MOV, pending, least)
            return
        own = self._gathered(losses, tuples)
        last = replace(own, base=tuples - kept, shape=(kept,), stride=0)
        emitter.elementwise(Section.TUPLE, Opcode.MOV, pending, last)
        self._chain(Section.BATCH if emitter.records else Section.TUPLE, own, tuples - kept)

    def _gathered(self, losses: Value, tuples: int) -> Value:
        """The losses of a round's tuples, one after the other, in thread 0."""
        emitter, rows = self._emitter, self._emitter.group
        room = emitter.temporary("losses", (max(rows, tuples),), Form.BROADCAST, per_tuple=False)
        own, here = emitter.view(losses, ()), View(room.buffer, 0, (1,))
        least = emitter.view(self._store.literal(-0.0), ())
        # the mask puts ADD's identity, -0, in the place of what is not there
        emitter.nest(Section.TUPLE, Opcode.ADD, (rows,), here, own, least, outer=0, mask=Mask.SINGLE)
        distance = 0
        while rows < tuples:
            # of threads in pairs, in pairs of pairs …: the first has the losses of all behind its own
            exchange = {"source": Source.THREAD_XOR, "distance": distance}
            emitter.nest(Section.TUPLE, Opcode.HIGH, (rows,), here.moved(0, rows), here, here, **exchange)
            rows, distance = 2 * rows, distance + 1
        return replace(room, shape=(), stride=1)

    def add(self, section: Section, loss: Value) -> None:
        """Add one loss."""
        self._chain(section, loss, 1)

    def _chain(self, section: Section, losses: Value, count: int) -> None:
        """Add some losses that lie one after the other."""
        before = self.total
        for k in range(count):
            after = self._emitter.temporary("after", (), Form.BROADCAST, per_tuple=False)
            if count > 1 and k == count - 1:
                after = self.total
            self._add(section, replace(losses, base=losses.base + k, shape=(), stride=0), before, after)
            before = after
        if count == 1:
            self._emitter.elementwise(section, Opcode.MOV, self.total, before)

    def _add(self, section: Section, loss: Value, before: Value, after: Value) -> None:
        """To the sum, and what rounding took from it (Dekker 1971) to the sum of these."""
        emitter, errors = self._emitter, self._errors
        added, error = (emitter.temporary(name, (), Form.BROADCAST, per_tuple=False) for name in ("added", "error"))
        emitter.elementwise(section, Opcode.ADD, after, before, loss)
        emitter.elementwise(section, Opcode.SUB, added, after, before)
        emitter.elementwise(section, Opcode.SUB, error, loss, added)
        emitter.elementwise(section, Opcode.ADD, errors, errors, error)
