"""Checked program to hDFG: unused operations dropped, every operation put into its region.

In: `Checked`. Out: a verified `Graph`. A value of models alone that is used per tuple and per batch
becomes two nodes, one in each region, so that of a batch's values a tuple reads only those that follow merges. Must
not: report errors; a checked rule has none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from dsl.hdfg.builder import GraphBuilder
from dsl.hdfg.graph import LEAVES, Graph, Op, Region, Unrolled, Update
from dsl.semantics.finish import roots
from dsl.semantics.program import Checked, CheckedUpdate, Operation, reachable

LEAF_REGIONS = {
    Op.INPUT: Region.TUPLE,
    Op.OUTPUT: Region.TUPLE,
    Op.WEIGHT: Region.TUPLE,
    Op.MODEL: Region.BATCH,
    Op.META: Region.CONST,
    Op.CONST: Region.CONST,
    Op.ARANGE: Region.CONST,
    Op.ROW: Region.TUPLE,
}


def lower(checked: Checked, trace: Callable[[Mapping[str, int]], Graph] | None = None) -> Graph:
    """Return the hDFG of a checked rule; `trace` gives that of its text for other extents (`Graph.traced`)."""
    return _Lowering(checked, trace).run()


class _Lowering:
    def __init__(self, checked: Checked, trace: Callable[[Mapping[str, int]], Graph] | None) -> None:
        self._checked = checked
        self._unrolled = None
        if checked.counted:
            self._unrolled = Unrolled(extents=checked.counted, symbolic=checked.symbolic, trace=trace)
        self._builder = GraphBuilder()
        self._ids: dict[tuple[Operation, Region], int] = {}
        self._sides: dict[Operation, set[Region]] = {}

    def run(self) -> Graph:
        checked = self._checked
        # leaves that nothing reads stay: columns are assigned to them by the order of `dana.algo`
        leaves = (*checked.models, *checked.inputs, *checked.metas)
        # an operation is numbered after its operands, so that this is a topological order
        live = sorted(reachable([*roots(checked), *leaves]), key=lambda operation: operation.id)
        self._choose_regions(live)
        for operation in live:
            # sorted: a set's order differs from process to process, and ids must not
            for region in sorted(self._sides[operation]):
                self._emit(operation, region)
        batch = checked.batch
        return self._builder.finish(
            checked.name,
            dims=checked.dims,
            extents=checked.extents,
            unrolled=self._unrolled,
            needs=checked.needs,
            inputs=self._leaf_ids(checked.inputs),
            models=self._leaf_ids(checked.models),
            metas=self._leaf_ids(checked.metas),
            updates=tuple(
                Update(
                    model=self._id(update.model, Region.BATCH),
                    value=self._id(update.value, _update_region(update)),
                    index=None if update.index is None else self._id(update.index, Region.TUPLE),
                    adds=update.adds,
                    at_once=update.at_once,
                    span=update.span,
                )
                for update in checked.updates
            ),
            loss=None if checked.loss is None else self._id(checked.loss, Region.TUPLE),
            test_loss=None if checked.test_loss is None else self._id(checked.test_loss, Region.TUPLE),
            prediction=None if checked.prediction is None else self._id(checked.prediction, Region.TUPLE),
            convergence=None if checked.convergence is None else self._id(checked.convergence, Region.BATCH),
            epochs=checked.epochs,
            batch=1 if batch is None else batch.size,
            batch_meta=None if batch is None or batch.meta is None else self._id(batch.meta, Region.CONST),
        )

    def _choose_regions(self, live: list[Operation]) -> None:
        """Give each operation the regions in which its users need it, users first."""
        checked = self._checked
        self._sides = {operation: set() for operation in live}
        for update in checked.updates:
            self._need(update.value, _update_region(update))
        for root, region in (
            (checked.loss, Region.TUPLE),
            (checked.test_loss, Region.TUPLE),
            (checked.prediction, Region.TUPLE),
            (checked.convergence, Region.BATCH),
        ):
            if root is not None:
                self._need(root, region)
        for operation in reversed(live):
            # what an operation depends on settles its region where it can; users settle the rest, models' values and
            # constants
            own = _own_region(operation)
            if own is not None:
                self._sides[operation] = {own}
            for operand in operation.operands:
                for region in self._sides[operation]:
                    # a merge stands in region BATCH, but what it joins is computed for each tuple
                    self._need(operand, Region.TUPLE if operation.op is Op.MERGE else region)

    def _need(self, operation: Operation, region: Region) -> None:
        self._sides[operation].add(_own_region(operation) or region)

    def _emit(self, operation: Operation, region: Region) -> None:
        name = self._checked.names.get(operation.id)
        if operation.op in LEAVES:
            self._ids[operation, region] = self._builder.leaf(
                operation.op,
                region=region,
                shape=operation.shape,
                name=name,
                value=operation.value,
                extent=operation.extent,
                init=operation.init,
                each_epoch=operation.each_epoch,
                table=operation.table,
                classes=operation.classes,
                span=operation.span,
            )
            return
        inside = Region.TUPLE if operation.op is Op.MERGE else region
        self._ids[operation, region] = self._builder.add(
            operation.op,
            tuple(self._id(operand, inside) for operand in operation.operands),
            region=region,
            axis=operation.axis,
            merge_op=operation.merge_op,
            name=name,
            span=operation.span,
        )

    def _id(self, operation: Operation, region: Region) -> int:
        return self._ids[operation, _own_region(operation) or region]

    def _leaf_ids(self, operations: Iterable[Operation]) -> tuple[int, ...]:
        # the region given does not count: a leaf has one of its own
        return tuple(self._id(operation, Region.CONST) for operation in operations)


def _update_region(update: CheckedUpdate) -> Region:
    """Return where the new value is computed, if models alone settle it: per tuple for a row chosen per tuple."""
    by_tuple = update.index is not None and (update.index.per_tuple or update.model.table)
    return Region.TUPLE if by_tuple else Region.BATCH


def _own_region(operation: Operation) -> Region | None:
    """Return the region that an operation's operands settle, or None if its users settle it."""
    if operation.op in LEAVES:
        return LEAF_REGIONS[operation.op]
    if operation.per_tuple:
        return Region.TUPLE
    if operation.merged:
        return Region.BATCH
    return None if operation.on_model else Region.CONST
