"""The loss of an epoch: the sum of the batches' losses and the sum of its rounding errors, added in `epoch`.

In: a batch's loss, or that of each tuple. Out: operations in the sections that have the time. The sum is a chain of one
addition for each loss, followed by one for the errors: no other step waits for one of its own. If `tuple` does all the
work, this chain would be the longest, so a batch's loss is added during the next batch, and the last one in `epoch`.
"""

from dataclasses import replace

from dana.compiler.place.rows import Form
from dana.compiler.select.store import Store
from dana.compiler.select.values import Emitter, Value, View
from hwgen.spec.engine import Mask, Opcode, Section


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
        self._begin(self.total)
        self._begin(self._errors)

    def pending(self) -> Value:
        """Room for what the next batch adds; the epoch's first adds 0."""
        value = self._store.lasting("pending")
        self._begin(value)
        return value

    def _begin(self, state: Value) -> None:
        self._emitter.elementwise(Section.INIT, Opcode.MOV, state, self._store.literal(0.0))

    def end(self) -> None:
        """Emit the final work of `epoch`, after all additions."""
        self._emitter.elementwise(Section.EPOCH, Opcode.ADD, self.total, self.total, self._errors)

    def add_each(self, losses: Value) -> None:
        """Add the losses of tuples side by side, in their order.

        A tuple that the round lacks counts -0, which leaves sum and errors as they are. Of the longest rounds the
        engine adds them while records go and come: short ones have no section `batch`.
        """
        emitter = self._emitter
        tuples = emitter.group if emitter.short else emitter.together
        later = emitter.records and not emitter.short
        self._store.literal(-0.0)  # of the image for rounds of every size, so that sums lie where they do
        own = self._gathered(losses, tuples) if tuples > 1 else losses
        self._chain(Section.BATCH if later else Section.TUPLE, own, tuples)

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
            emitter.nest(Section.TUPLE, Opcode.HIGH, (rows,), here.moved(0, rows), here, here, thread=distance)
            rows, distance = 2 * rows, distance + 1
        return replace(room, shape=(), stride=1)

    def add(self, section: Section, loss: Value) -> None:
        """Add one loss."""
        self._chain(section, loss, 1)

    def _chain(self, section: Section, losses: Value, count: int) -> None:
        """Add some losses that lie one after the other."""
        emitter, before = self._emitter, self.total
        waiting: tuple[Value, Value, Value] | None = None
        for k in range(count):
            loss = replace(losses, base=losses.base + k, shape=(), stride=0)
            last = k == count - 1
            after = self.total if last and k else emitter.temporary("after", (), Form.BROADCAST, per_tuple=False)
            if last and waiting is not None:  # it may read the total, which is written now
                self._add_error(section, *waiting)
            emitter.elementwise(section, Opcode.ADD, after, before, loss)
            if not last and waiting is not None:  # both chains are as long: the sum's goes first, or each waits in turn
                self._add_error(section, *waiting)
            waiting, before = (loss, before, after), after
        assert waiting is not None, "a batch has a loss"
        self._add_error(section, *waiting)
        if count == 1:
            emitter.elementwise(section, Opcode.MOV, self.total, before)

    def _add_error(self, section: Section, loss: Value, before: Value, after: Value) -> None:
        """Add to the sum of the errors what rounding took from a sum (Dekker 1971)."""
        emitter, errors = self._emitter, self._errors
        added, error = (emitter.temporary(name, (), Form.BROADCAST, per_tuple=False) for name in ("added", "error"))
        emitter.elementwise(section, Opcode.SUB, added, after, before)
        emitter.elementwise(section, Opcode.SUB, error, loss, added)
        emitter.elementwise(section, Opcode.ADD, errors, errors, error)
