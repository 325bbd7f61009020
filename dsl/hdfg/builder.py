"""Puts a graph together node by node.

In: operations in topological order. Out: a verified `Graph`. Must not: optimise or reorder.
"""

from __future__ import annotations

from dsl.binary32 import round32
from dsl.hdfg.dims import Dim, DimExpr, Shape, names_of
from dsl.hdfg.graph import EachEpoch, Graph, Node, Op, Region, Unrolled, Update
from dsl.hdfg.init import ZEROS, Init
from dsl.hdfg.shapes import result_shape
from dsl.hdfg.verify import verify
from dsl.source import Span


class GraphBuilder:
    """Collects nodes and numbers them."""

    def __init__(self) -> None:
        self._nodes: list[Node] = []

    def leaf(
        self,
        op: Op,
        *,
        region: Region,
        shape: Shape = (),
        name: str | None = None,
        value: float | None = None,
        extent: DimExpr | None = None,
        init: Init = ZEROS,
        each_epoch: EachEpoch | None = None,
        table: bool = False,
        classes: Dim | None = None,
        span: Span | None = None,
    ) -> int:
        """Add an input, output, model, meta or const; a value is rounded to binary32. Returns its id."""
        return self._append(
            Node(
                id=len(self._nodes),
                op=op,
                shape=shape,
                region=region,
                name=name,
                # rounded here, once: every executor starts from the same bits
                value=None if value is None else round32(value),
                extent=extent,
                init=init,
                each_epoch=each_epoch,
                table=table,
                classes=classes,
                span=span,
            )
        )

    def add(
        self,
        op: Op,
        inputs: tuple[int, ...],
        *,
        region: Region,
        axis: int | None = None,
        merge_op: str | None = None,
        name: str | None = None,
        span: Span | None = None,
    ) -> int:
        """Add an operation on earlier nodes; its shape follows. Returns its id."""
        shape = result_shape(op, [self._nodes[i].shape for i in inputs], axis)
        return self._append(
            Node(
                id=len(self._nodes),
                op=op,
                inputs=inputs,
                shape=shape,
                region=region,
                name=name,
                axis=axis,
                merge_op=merge_op,
                span=span,
            )
        )

    def finish(
        self,
        name: str,
        *,
        dims: tuple[str, ...] = (),
        extents: tuple[tuple[str, int], ...] = (),
        unrolled: Unrolled | None = None,
        needs: tuple[DimExpr, ...] = (),
        inputs: tuple[int, ...],
        models: tuple[int, ...],
        metas: tuple[int, ...] = (),
        updates: tuple[Update, ...],
        loss: int | None = None,
        test_loss: int | None = None,
        prediction: int | None = None,
        convergence: int | None = None,
        epochs: int = 1,
        batch: int | None = 1,
        batch_meta: int | None = None,
    ) -> Graph:
        """Return the verified graph; of `dims` those stay that some node or loop depends on."""
        used = {part for node in self._nodes for dim in node.extents for part in names_of(dim)}
        used |= set() if unrolled is None else {name for name, _ in unrolled.extents}
        graph = Graph(
            name=name,
            nodes=tuple(self._nodes),
            dims=tuple(dim for dim in dims if dim in used),
            extents=tuple((dim, extent) for dim, extent in extents if dim in used),
            unrolled=unrolled,
            # a dim that nothing has left gets no extent from `Graph.bind`, so that its conditions could not be
            # evaluated
            needs=tuple(need for need in needs if used >= set(need.names)),
            inputs=inputs,
            models=models,
            metas=metas,
            updates=updates,
            loss=loss,
            test_loss=test_loss,
            prediction=prediction,
            convergence=convergence,
            epochs=epochs,
            batch=batch,
            batch_meta=batch_meta,
        )
        verify(graph)
        return graph

    def _append(self, node: Node) -> int:
        self._nodes.append(node)
        return node.id
