"""Prefetching of rows of large models.

In: a plan's gathers with rows chosen by columns. Out: prefetch instructions for the cache lines of a row. The rows of
later tuples of a batch are known as soon as it has arrived; they are in no cache, and in no order that a hardware
prefetcher could predict.
"""

from __future__ import annotations

from functools import cached_property
from math import prod

from llvmlite import ir

from dana.jit.arithmetic import FLOAT, I32, I64
from dana.jit.folds import Folds
from dana.jit.loops import ZERO, Index, Var
from dana.simulator.layout import padded, strides
from dsl.hdfg.choice import element_of
from dsl.hdfg.graph import Op

AHEAD = 16
"""Distance of the prefetch, in tuples."""
FAR = 1 << 20
"""Bytes of a model from which on its rows are prefetched: most of them are in no near cache."""
LINE = 16
"""Floats that are brought together; rows of them begin where lines do."""


class Ahead(Folds):
    """Asks for rows."""

    @cached_property
    def _far(self) -> list[tuple[int, int]]:
        """Large models with rows chosen by an input: the model, and its element that is the number."""
        found: dict[tuple[int, int], None] = {}
        for node in (self.plan.nodes[k] for k in sorted(self.plan.live)):
            if node.op is not Op.GATHER or 4 * prod(padded(self.plan.shape(node.inputs[0]))) < FAR:
                continue
            # a number that is computed would be computed twice: ahead of its tuple, and in its turn
            if element_of(self.graph, node.inputs[1]) is not None or self.plan.shape(node.inputs[1]):
                found[node.inputs[0], node.inputs[1]] = None
        return list(found)

    def _ask_first(self, count: ir.Value) -> None:
        """Before the first of so many tuples: for the rows of those that no turn of another asks for."""
        if self._far:
            builder, most = self._builder, I64(AHEAD)
            few = builder.icmp_signed("<", count, most)
            with self._loop(builder.select(few, count, most)) as t:
                self._ask(t)

    def _ask_later(self, t: Index, count: ir.Value) -> None:
        """In a tuple's turn: for the rows of one that comes later; past the last of so many, once more for its."""
        if self._far:
            builder = self._builder
            assert t.var is not None
            later, last = builder.add(t.var.value, I64(t.const + AHEAD)), builder.sub(count, I64(1))
            later = builder.select(builder.icmp_signed("<", later, last), later, last)
            self._ask(Index(Var(later, t.level)))

    def _ask(self, tuple_: Index) -> None:
        """Prefetch the rows that a tuple chooses, with a cache of its own: its addresses are not reused."""
        turn, self._tuple = self._tuple, tuple_
        cache, self._caches[-1] = self._caches[-1], {}
        for model, chosen in self._far:
            with self._axes(self.plan.shape(chosen), vector=0) as idx:
                number = self._value(chosen, idx, ZERO, vector=0)
                # not checked yet, and need not be a row: prefetching a wrong address faults nowhere
                row = Index(Var(self._builder.fptosi(number.value, I64), len(self._preheaders)))
                shape = self.plan.shape(model)
                first = self._own(model, (row, *(ZERO for _ in shape[1:])), ZERO)
                for line in range(0, strides(shape)[0], LINE):
                    place = self._builder.gep(first.value, [I64(line)], source_etype=FLOAT)
                    self._builder.call(self._bring, [place, I32(1), I32(3), I32(1)])  # to write, near, data
        self._caches[-1], self._tuple = cache, turn
