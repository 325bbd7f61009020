"""The rule as a list of typed operations: what elaboration records and lowering reads.

In: operations in the order in which elaboration meets them. Out: `Operation`s with shapes and dependences,
and `Checked`, the whole rule without errors. Must not: know regions or ids of the hDFG.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dsl.binary32 import bits_of, round32
from dsl.hdfg.dims import Dim, DimExpr, Shape
from dsl.hdfg.graph import FROM_ROW, LEAVES, PER_TUPLE, EachEpoch, Op
from dsl.hdfg.init import ZEROS, Init
from dsl.limits import MAX_VALUES
from dsl.source import Span


# eq=False: compared and hashed by identity, for two operations of equal contents are two values
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Operation:
    """One value of the dataflow program.

    Parameters
    ----------
    id
        Its index in the program; operands have smaller ids.
    op, operands, shape, axis, merge_op, value, extent, init, each_epoch, table, classes, name, span
        As in `dsl.hdfg.graph.Node`.
    per_tuple
        Depends on the tuple other than through a merge.
    merged
        Depends on a merge; if it is per tuple, too, the batch's tuples are needed once more.
    on_model
        Depends on a model.
    on_output
        Depends on an output of the tuple, or on its weight.
    on_training
        Depends on whether the rule trains (`dsl.semantics.phases`).
    """

    id: int
    op: Op
    operands: tuple[Operation, ...] = ()
    shape: Shape = ()
    axis: int | None = None
    merge_op: str | None = None
    value: float | None = None
    extent: DimExpr | None = None
    init: Init = ZEROS
    each_epoch: EachEpoch | None = None
    table: bool = False
    classes: Dim | None = None
    name: str | None = None
    span: Span
    per_tuple: bool = False
    merged: bool = False
    on_model: bool = False
    on_output: bool = False
    on_training: bool = False

    @property
    def of_batch(self) -> bool:
        """Whether there is one for each batch, which a merge gives."""
        return self.merged and not self.per_tuple

    @property
    def row_per_tuple(self) -> bool:
        """Whether it is the row of a model that an input of the tuple chooses, or a row of a table."""
        return self.op is Op.GATHER and (self.operands[1].per_tuple or self.operands[0].table)


def reachable(operations: list[Operation]) -> set[Operation]:
    """Return `operations` and everything they are computed from."""
    # a loop, not recursion: chains of an unrolled rule are longer than Python's limit
    seen: set[Operation] = set()
    waiting = list(operations)
    while waiting:
        operation = waiting.pop()
        if operation not in seen:
            seen.add(operation)
            waiting.extend(operation.operands)
    return seen


class TooManyValues(Exception):
    """The unrolled rule has more operations than `MAX_VALUES`."""

    def __init__(self, span: Span) -> None:
        super().__init__(f"more than {MAX_VALUES} operations")
        self.span = span


Terms = tuple[tuple[tuple[Operation, ...], float], ...]
"""A sum of products of operations, each times a number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """A gradient that was taken: of `value`, by each of `wanted`; `results` compute it."""

    value: Operation
    wanted: tuple[Operation, ...]
    results: tuple[Operation, ...]
    span: Span


class Program:
    """Records operations; equal constants are one operation.

    Attributes
    ----------
    operations
        In the order in which they were recorded; each stands at its id.
    names
        The rule's names of operations, by id.
    derivatives
        By id: what a value is a function of, and its derivative by each, where they are not its operands'; nothing
        for a value that is flat, or counts as such.
    gradients
        Those that were taken, in order.
    parts
        Ids of gradients of values per tuple that are equally distributed over the tuples of a batch.
    merges
        Ids of merges that the rule's text asks for.
    elements
        By value, axis, position: the same number is the same operation, so that rows which it chooses are, too.
    lists
        By the value that a list of several values was taken as: these values.
    phases
        By id: what stands for a value where the rule does not train, and where it does.
    """

    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self.names: dict[int, str] = {}
        self.derivatives: dict[int, tuple[tuple[Operation, Terms], ...]] = {}
        self.gradients: list[Taken] = []
        self.phases: tuple[dict[int, Operation], dict[int, Operation]] = ({}, {})
        self.parts: set[int] = set()
        self.merges: set[int] = set()
        self.divisors: dict[int, str] = {}
        self.transposes: dict[Operation, Operation] = {}
        self.elements: dict[tuple[Operation, int, Dim], Operation] = {}
        self.lists: dict[Operation, tuple[Operation, ...]] = {}
        self.needs: list[DimExpr] = []
        self._constants: dict[int | DimExpr, Operation] = {}
        self._given: dict[Op, Operation] = {}

    def add(
        self,
        op: Op,
        operands: Sequence[Operation],
        shape: Shape,
        span: Span,
        *,
        axis: int | None = None,
        merge_op: str | None = None,
    ) -> Operation:
        """Record an operation on others.

        Raises
        ------
        TooManyValues
            Beyond `MAX_VALUES`.
        """
        # a merge is where the dependence on a tuple ends and that on a batch begins
        is_merge = op is Op.MERGE
        return self._record(
            Operation(
                id=self._next_id(span),
                op=op,
                operands=tuple(operands),
                shape=shape,
                axis=axis,
                merge_op=merge_op,
                span=span,
                # a row of a table is what the tuples before left there
                per_tuple=not is_merge and any(operand.per_tuple or operand.table for operand in operands),
                merged=is_merge or any(operand.merged for operand in operands),
                on_model=any(operand.on_model for operand in operands),
                on_output=any(operand.on_output for operand in operands),
                on_training=any(operand.on_training for operand in operands),
            )
        )

    def stopped(self, operation: Operation, span: Span) -> Operation:
        """Record a value again, as one that counts as constant when gradients are taken."""
        # a leaf cannot be recorded twice; the larger of it and itself is the same bits
        is_leaf = operation.op in LEAVES
        op, operands = (Op.MAX, (operation, operation)) if is_leaf else (operation.op, operation.operands)
        again = self.add(op, operands, operation.shape, span, axis=operation.axis, merge_op=operation.merge_op)
        self.derivatives[again.id] = ()
        return again

    def expand(self, operand: Operation, axis: int, span: Span) -> Operation:
        """Record a new axis of extent 1, its place counted from 0."""
        shape = (*operand.shape[:axis], 1, *operand.shape[axis:])
        return self.add(Op.EXPAND, (operand,), shape, span, axis=axis)

    def leaf(
        self,
        op: Op,
        name: str,
        shape: Shape,
        span: Span,
        *,
        value: float | None = None,
        init: Init = ZEROS,
        each_epoch: EachEpoch | None = None,
        table: bool = False,
        classes: Dim | None = None,
    ) -> Operation:
        """Record an input, output, weight, model or meta."""
        operation = Operation(
            id=self._next_id(span),
            op=op,
            shape=shape,
            value=value,
            init=init,
            each_epoch=each_epoch,
            table=table,
            classes=classes,
            name=name,
            span=span,
            per_tuple=op in FROM_ROW,
            on_model=op is Op.MODEL,
            on_output=op in (Op.OUTPUT, Op.WEIGHT),
        )
        self.names[operation.id] = name
        return self._record(operation)

    def constant(self, number: int | float | DimExpr, span: Span) -> Operation:
        """Record a number, rounded to binary32, or the extent of an axis."""
        value = None if isinstance(number, DimExpr) else round32(float(number))
        # bits, since 0.0 and -0.0 would be one key
        key = number if isinstance(number, DimExpr) else bits_of(round32(float(number)))
        known = self._constants.get(key)
        if known is None:
            extent = number if isinstance(number, DimExpr) else None
            known = self._record(Operation(id=self._next_id(span), op=Op.CONST, value=value, extent=extent, span=span))
            self._constants[key] = known
        return known

    def given(self, op: Op, span: Span) -> Operation:
        """Record a leaf that nothing declares: TRAINING or ROW."""
        # one operation for all uses, so that phases replace it once
        if op not in self._given:
            self._given[op] = self._record(
                Operation(
                    id=self._next_id(span),
                    op=op,
                    span=span,
                    per_tuple=op in PER_TUPLE,
                    on_training=op is Op.TRAINING,
                )
            )
        return self._given[op]

    def while_training(self, operation: Operation, span: Span) -> Operation:
        """Record a value that is known while the rule trains only: elsewhere a TRAINING is left in its place."""
        # without on_training, so that no phase replaces it and `finish` finds it
        elsewhere = self._record(Operation(id=self._next_id(span), op=Op.TRAINING, shape=operation.shape, span=span))
        return self.add(Op.WHERE, (self.given(Op.TRAINING, span), operation, elsewhere), operation.shape, span)

    def arange(self, count: Dim, span: Span) -> Operation:
        """Record the vector 0, 1, 2 … of `count` elements."""
        return self._record(Operation(id=self._next_id(span), op=Op.ARANGE, shape=(count,), span=span))

    def name(self, operation: Operation, name: str) -> None:
        """Remember what the rule calls an operation; the first name stays. Constants stay nameless."""
        # one constant serves all uses of a number, which may have several names
        if operation.op is not Op.CONST:
            self.names.setdefault(operation.id, name)

    def _next_id(self, span: Span) -> int:
        # before the operation is made; what unrolls a loop meets the bound here, whichever way it records
        if len(self.operations) >= MAX_VALUES:
            raise TooManyValues(span)
        return len(self.operations)

    def _record(self, operation: Operation) -> Operation:
        self.operations.append(operation)
        return operation


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedUpdate:
    """One `setModel` or `addRows`: a model, the value and, for one row, the row's index.

    `adds` and `at_once` are as in `dsl.hdfg.graph.Update`.
    """

    model: Operation
    value: Operation
    index: Operation | None
    adds: bool = False
    at_once: bool = False
    span: Span


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """How many tuples a merge joins.

    Parameters
    ----------
    size
        Tuples, the default if `meta` is given; None: the whole table.
    meta
        The meta that holds the size.
    name
        What the rule calls the number.
    span
        Where the rule says so first.
    """

    size: int | None
    meta: Operation | None = None
    name: str | None = None
    span: Span


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """A condition of numbers and metas that must hold.

    Parameters
    ----------
    condition
        Other than zero where it holds.
    text
        How it is written.
    owner
        The function that asks for it.
    terms
        What it speaks of, by name.
    span
        The call, in the rule's own text.
    """

    condition: Operation
    text: str
    owner: str
    terms: tuple[tuple[str, Operation], ...]
    span: Span


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """A rule without errors.

    Parameters
    ----------
    name
        Name of the algo variable.
    operations
        Everything elaborated, used or not.
    names
        The rule's names of operations, by id.
    divisors
        The rule's names of the numbers that divisions divide by, by the division's id.
    needs
        What must be at least 1 for elements to exist that are selected.
    dims
        Declared dims, in order.
    extents
        Default extents of some of them.
    counted
        Dims that loops count, and what they are here.
    symbolic
        Symbolic shapes of declarations, by name, and their number of classes.
    inputs, models
        In the order of `dana.algo`.
    metas
        In the order of declaration.
    updates, loss, prediction, convergence, epochs
        What the set… methods said; `epochs` 1 if nothing.
    test_loss
        The loss where the rule does not train, if it differs.
    batch
        None without a merge.
    gradients
        Those that were taken.
    merges
        Ids of merges that the text asks for.
    requirements
        Conditions that metas may break.
    optimizers
        Functions of `dana.optimizers` that the rule calls.
    """

    name: str
    operations: tuple[Operation, ...]
    names: dict[int, str]
    divisors: dict[int, str]
    needs: tuple[DimExpr, ...]
    dims: tuple[str, ...]
    extents: tuple[tuple[str, int], ...]
    counted: tuple[tuple[str, int], ...]
    symbolic: dict[str, tuple[Shape, Dim | None]]
    inputs: tuple[Operation, ...]
    models: tuple[Operation, ...]
    metas: tuple[Operation, ...]
    updates: tuple[CheckedUpdate, ...]
    loss: Operation | None
    prediction: Operation | None
    convergence: Operation | None
    test_loss: Operation | None
    epochs: int
    batch: Batch | None
    gradients: tuple[Taken, ...] = ()
    merges: frozenset[int] = frozenset()
    requirements: tuple[Requirement, ...] = ()
    optimizers: tuple[str, ...] = ()
