"""The hierarchical dataflow graph: a rule as operations on whole vectors and matrices.

In: nodes from `dsl.lower`, `dsl.hdfg.builder` or `dsl.hdfg.text`. Out: one immutable `Graph`, the only thing
that the compiler and the interpreter see of a rule. Must not: build, check, write or run itself (`builder`, `verify`,
`text`, `interpreter` do), draw itself (`drawing`), nor hold anything that belongs to a machine.

What a name stands for: a model node is the model as it stood before the batch, wherever it is used, in the convergence
test too. Elementwise operations broadcast by NumPy's rule without a node of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from dsl.binary32 import round32
from dsl.hdfg.dims import Dim, DimExpr, Shape, evaluate, names_of
from dsl.hdfg.init import ZEROS, Init
from dsl.hdfg.ops import (
    BINARY,
    COMPARISONS,
    ELEMENTWISE,
    FROM_ROW,
    LEAVES,
    MERGE_OPS,
    NAMELESS,
    PER_TUPLE,
    REDUCTIONS,
    UNARY,
    Op,
    Region,
    operand_count,
)
from dsl.source import Span

__all__ = [
    "BINARY",
    "COMPARISONS",
    "ELEMENTWISE",
    "FROM_ROW",
    "LEAVES",
    "MERGE_OPS",
    "NAMELESS",
    "PER_TUPLE",
    "REDUCTIONS",
    "UNARY",
    "BindError",
    "EachEpoch",
    "Graph",
    "Node",
    "Op",
    "Region",
    "Update",
    "operand_count",
]


class EachEpoch(StrEnum):
    """Change of a model at the end of an epoch, after the last batch's updates."""

    COUNT = "count"  # one more; no batch updates it
    RESET = "reset"  # what it started with


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One operation.

    Parameters
    ----------
    id
        Its index in `Graph.nodes`; inputs have smaller ids.
    op
        What it computes.
    inputs
        Ids of its operands.
    shape
        Extents of its axes, `()` for a scalar; in region TUPLE the shape of one tuple's value.
    region
        How often it is computed.
    name
        The rule's name for it: always for input, output, model and meta; elsewhere where one was assigned.
    value
        CONST: the number. META: the default. Both exactly binary32.
    extent
        CONST only: the number is this extent, known once dims are bound (`value` is None until then).
    axis
        SIGMA, PI, AMAX: the axis that is reduced; ELEMENT: the axis that the position is on; EXPAND: the axis of the
        result that is new. Counted from 0 (the language counts from 1).
    merge_op
        MERGE: one of `MERGE_OPS`.
    init
        MODEL: how it starts.
    each_epoch
        MODEL of one number: what the end of an epoch makes of it, if anything.
    table
        MODEL: it is read and written by rows only, each row as the tuples before left it.
    classes
        OUTPUT: the number of classes, numbered from 0; None: any number is a value. INPUT: the number of categories,
        numbered from 0; the rule decides the meaning of a negative number.
    span
        The text it came from.
    """

    id: int
    op: Op
    inputs: tuple[int, ...] = ()
    shape: Shape = ()
    region: Region
    name: str | None = None
    value: float | None = None
    extent: DimExpr | None = None
    axis: int | None = None
    merge_op: str | None = None
    init: Init = ZEROS
    each_epoch: EachEpoch | None = None
    table: bool = False
    classes: Dim | None = None
    span: Span | None = None

    @property
    def extents(self) -> tuple[Dim, ...]:
        """Every extent that it speaks of: its axes, its number, its classes."""
        return (*self.shape, *(one for one in (self.extent, self.classes) if one is not None))


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """One `setModel` or `addRows`.

    Parameters
    ----------
    model
        Id of the MODEL node.
    value
        Id of the new value. For a row chosen per tuple it is CONST, TUPLE or a model leaf; without any merge in the
        graph (batch of one) TUPLE or BATCH; else BATCH or CONST.
    index
        None: the whole model; `value` broadcasts to its shape. Otherwise the id of the row's index, as in GATHER:
        an INPUT (a row update per tuple, applied in tuple order) or a CONST (one fixed row per batch; of a table one
        per tuple).
    adds
        Of a table: `value` is added to what the row is by then, else it takes its place.
    at_once
        Of a table: it applies behind its tuple, so that the next one sees it; else at the batch's end.
    span
        The text it came from.
    """

    model: int
    value: int
    index: int | None = None
    adds: bool = False
    at_once: bool = False
    span: Span | None = None


class BindError(ValueError):
    """A dim was left out, is unknown, or makes an axis shorter than one element."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unrolled:
    """Loops that count dims: the graph has the numbers of one choice, and its text gives another for others.

    Parameters
    ----------
    extents
        The dims and what they are in this graph.
    symbolic
        By name, for inputs, outputs, models: the symbolic shape and number of classes.
    trace
        The graph of the same text for these extents of such dims, defaults for the others; None: its text is not known.
    """

    extents: tuple[tuple[str, int], ...]
    symbolic: Mapping[str, tuple[Shape, Dim | None]] = field(default_factory=dict, compare=False)
    trace: Callable[[Mapping[str, int]], Graph] | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Graph:
    """A rule, checked and lowered.

    Parameters
    ----------
    name
        The rule's name: that of its algo variable.
    nodes
        Topologically ordered, `nodes[i].id == i`.
    dims
        Names of the dims still to be bound, in order of declaration.
    extents
        Default extents of dims; `bind` can override them.
    unrolled
        Those of them that loops count; None: none.
    needs
        What must be at least 1 once dims are bound, for the elements that the rule selects to exist.
    inputs
        Ids of INPUT, OUTPUT and WEIGHT nodes, in the order of `dana.algo`.
    models, metas
        Ids of MODEL nodes in the order of `dana.algo`; of META nodes in order of declaration.
    updates
        In order of the text.
    loss, prediction
        Ids of scalars per tuple, or None; the loss may be one of the batch. A prediction depends on no OUTPUT and no
        MERGE, and may be a vector: of the classes, where there are some.
    test_loss
        Id of the loss where the rule does not train, by which rows are judged that are left out; None where it is
        `loss`.
    convergence
        Id of a scalar, read at the end of each epoch on the last batch's values (other than zero: stop), or None.
    epochs
        How many passes over the table.
    batch
        Tuples per batch; 1 without a merge; None: the whole table is one batch (`dana.all`).
    batch_meta
        Id of the META node that gives the batch size, `batch` being its default; None if the size is fixed.
    """

    name: str
    nodes: tuple[Node, ...]
    dims: tuple[str, ...] = ()
    extents: tuple[tuple[str, int], ...] = ()
    unrolled: Unrolled | None = None
    needs: tuple[DimExpr, ...] = ()
    inputs: tuple[int, ...] = ()
    models: tuple[int, ...] = ()
    metas: tuple[int, ...] = ()
    updates: tuple[Update, ...] = ()
    loss: int | None = None
    test_loss: int | None = None
    prediction: int | None = None
    convergence: int | None = None
    epochs: int = 1
    batch: int | None = 1
    batch_meta: int | None = None

    @property
    def is_bound(self) -> bool:
        """Whether every shape is concrete."""
        return not self.dims

    @property
    def has_merge(self) -> bool:
        """Whether a batch's tuples have anything to join; without, batches hold one tuple."""
        # rows that are added up wait for the end of a batch, so that its size matters without a merge, too
        later = any(update.adds and not update.at_once for update in self.updates)
        return later or any(node.op is Op.MERGE for node in self.nodes)

    @property
    def tuple_by_tuple(self) -> bool:
        """Whether the tuples of a batch see rows that earlier ones wrote, and so cannot be computed side by side."""
        return self.has_merge and any(update.at_once for update in self.updates)

    @property
    def stochastic(self) -> bool:
        """Whether the rule steps by batches, which need no order of the rows.

        Otherwise a tuple reads what earlier ones wrote: their order may be a rule's intent.
        """
        return self.has_merge and not self.tuple_by_tuple

    def by_tuple(self, update: Update) -> bool:
        """Whether each tuple of a batch has a row of its own to update."""
        chosen = update.index is not None and self.nodes[update.index].op is not Op.CONST
        # each tuple writes a table, even a row with a fixed number
        return chosen or self.nodes[update.model].table

    @property
    def after_merges(self) -> frozenset[int]:
        """The nodes of region BATCH that depend on a merge."""
        found: set[int] = set()
        for node in self.nodes:
            # one pass finds all, as operands have smaller ids
            if node.region is Region.BATCH and (node.op is Op.MERGE or not found.isdisjoint(node.inputs)):
                found.add(node.id)
        return frozenset(found)

    @property
    def returns_to_rows(self) -> bool:
        """Whether a value of a batch is used in the batch's own tuples, which are then gone through again."""
        after = self.after_merges
        # a merge of a batch's value reads it once for each tuple
        within = (node for node in self.nodes if node.region is Region.TUPLE or node.op is Op.MERGE)
        return self.loss in after or any(not after.isdisjoint(node.inputs) for node in within)

    @property
    def classes(self) -> Dim | None:
        """How many classes the rule's output numbers; None where any number is a label."""
        return next((one.classes for one in self.nodes if one.op is Op.OUTPUT and one.classes is not None), None)

    @property
    def weight(self) -> Node | None:
        """The weight of a tuple; None where the rule has none."""
        return next((self.nodes[k] for k in self.inputs if self.nodes[k].op is Op.WEIGHT), None)

    @property
    def judging(self) -> Graph:
        """The rule's loss alone, as rows are judged that are left out: no model changes but those that count."""
        loss = self.loss if self.test_loss is None else self.test_loss
        read = self.reachable([] if loss is None else [loss])
        # a RESET model counts rows by an update of each batch, which a loss may read
        counting = tuple(u for u in self.updates if u.model in read and self.nodes[u.model].each_epoch is not None)
        # no convergence: judging is one pass over the rows
        return replace(self, loss=loss, test_loss=None, updates=counting, convergence=None, prediction=None)

    @property
    def narrow_models(self) -> frozenset[str]:
        """Names of the models that hold numbers of bfloat16 alone; values must be rounded before they are written."""
        return frozenset(str(self.nodes[k].name) for k in self.models if self.nodes[k].init.narrow)

    def symbolic_shape(self, node: Node) -> Shape:
        """The shape of an input, output or model as declared, with symbolic dims."""
        symbolic = self.unrolled.symbolic if self.unrolled is not None else {}
        return symbolic.get(str(node.name), (node.shape, None))[0]

    @property
    def symbolic_classes(self) -> Dim | None:
        """How many classes the rule's output numbers, as it is declared."""
        output = next((one for one in self.nodes if one.op is Op.OUTPUT and one.classes is not None), None)
        return None if output is None else self.symbolic_count(output)

    def symbolic_count(self, node: Node) -> Dim | None:
        """How many classes or categories the values of an input or output number, as it is declared."""
        symbolic = self.unrolled.symbolic if self.unrolled is not None else {}
        return symbolic.get(str(node.name), ((), node.classes))[1]

    def traced(self, dims: Mapping[str, int]) -> Graph:
        """The graph with its loops unrolled for these dims; what other dims are says `bind`.

        Raises
        ------
        BindError
            The graph was read from its own text, which has loops no more.
        RuleError
            The rule's text is wrong with these.
        """
        if self.unrolled is None:
            return self
        # dims that the caller leaves out have their defaults, not this graph's numbers
        wanted = {**dict(self.extents), **dims}
        # the loops of this graph count these numbers: tracing again would give it once more
        if all(wanted[name] == extent for name, extent in self.unrolled.extents):
            return self
        if self.unrolled.trace is None:
            fixed = ", ".join(f"{name} = {extent}" for name, extent in self.unrolled.extents)
            raise BindError(f"loops of rule {self.name!r} are unrolled for {fixed}; other extents need its text")
        return self.unrolled.trace({name: wanted[name] for name, _ in self.extents})

    def concrete_shape(self, node: int) -> tuple[int, ...]:
        """Return the shape of a node as numbers.

        Raises
        ------
        BindError
            If the node's shape depends on a dim that is not bound.
        """
        shape = self.nodes[node].shape
        for dim in shape:
            if not isinstance(dim, int):
                missing = ", ".join(sorted({name for dim in shape for name in names_of(dim)}))
                raise BindError(f"node {node} of rule {self.name!r} has no concrete shape; bind {missing} first")
        return shape  # type: ignore[return-value]

    def bind(self, dims: Mapping[str, int]) -> Graph:
        """Return the graph with every dim replaced by its extent; dims that have one by default may be left out.

        Raises
        ------
        BindError
            If a dim is missing or unknown, an axis would have no element, a model not the row that a number selects, or
            the prediction is one number, and there are more classes than two.
        RuleError
            If loops count a dim, and the rule's text is wrong with its extent.
        """
        traced = self.traced(dims)
        # ends: the new graph is unrolled for these extents, so that `traced` returns it as it is
        if traced is not self:
            return traced.bind(dims)
        dims = {**dict(self.extents), **dims}
        missing = [name for name in self.dims if name not in dims]
        if missing:
            raise BindError(f"rule {self.name!r} needs a value for each of its dims; missing: {', '.join(missing)}")
        unknown = [name for name in dims if name not in self.dims]
        if unknown:
            known = ", ".join(self.dims) or "none"
            raise BindError(f"rule {self.name!r} has no dim {', '.join(unknown)}; its dims are: {known}")
        for need in self.needs:
            if need.evaluate(dims) < 1:
                given = ", ".join(f"{name} = {dims[name]}" for name in need.names)
                raise BindError(
                    f"rule {self.name!r} selects elements that do not exist with {given}; needs {need} >= 1"
                )
        _check_positions(self, dims)
        nodes = tuple(_bind_node(node, dims) for node in self.nodes)
        # `needs` hold from here on, and no later `bind` may trace the loops again
        bound = replace(self, nodes=nodes, dims=(), extents=(), unrolled=None, needs=())
        _check_fixed_rows(bound)
        _check_prediction(bound)
        return bound

    def infer_dims(self, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
        """Return the dims that the shapes of inputs, outputs or models determine.

        Parameters
        ----------
        shapes
            Concrete shapes by name of input, output or model; a name that the rule does not have is an error.

        Returns
        -------
        dict
            Every dim that some axis gives, alone or in a linear expression of one unknown (`2*n+1`). A dim that no
            given shape determines is absent.

        Raises
        ------
        BindError
            If a shape contradicts the rule or another shape.
        """
        leaves = {self.nodes[i].name: self.nodes[i] for i in (*self.inputs, *self.models)}
        found: dict[str, int] = {}
        axes: list[tuple[str, int, DimExpr, int]] = []
        for name, shape in shapes.items():
            if name not in leaves:
                raise BindError(f"rule {self.name!r} has no input, output or model {name!r}")
            declared = self.symbolic_shape(leaves[name])
            if len(declared) != len(shape):
                raise BindError(f"{name} must have {len(declared)} axes as the rule says, not {len(shape)}")
            for axis, (dim, extent) in enumerate(zip(declared, shape, strict=True), start=1):
                if isinstance(dim, DimExpr):
                    axes.append((name, axis, dim, extent))
                elif dim != extent:
                    raise BindError(f"axis {axis} of {name} must have {dim} elements as the rule says, not {extent}")
        for _ in axes:  # each round solves at least one dim or nothing more can be solved
            for name, axis, dim, extent in axes:
                solved = dim.solve(extent, found)
                if solved is not None and solved[1] is None:
                    raise BindError(f"axis {axis} of {name} has {extent} elements, which no {solved[0]} makes of {dim}")
                if solved is not None and solved[1] is not None:
                    found[solved[0]] = solved[1]
        # after the rounds: an axis must agree with dims that were found from other axes
        for name, axis, dim, extent in axes:
            if all(part in found for part in dim.names) and dim.evaluate(found) != extent:
                raise BindError(f"axis {axis} of {name} must have {dim} = {dim.evaluate(found)} elements, not {extent}")
        return found

    def reachable(self, roots: Iterable[int]) -> frozenset[int]:
        """Return the ids of `roots` and of everything they are computed from."""
        seen: set[int] = set()
        # a loop, not recursion: chains of unrolled rules are longer than Python's limit
        waiting = list(roots)
        while waiting:
            node = waiting.pop()
            if node not in seen:
                seen.add(node)
                waiting.extend(self.nodes[node].inputs)
        return frozenset(seen)

    @property
    def training_roots(self) -> tuple[int, ...]:
        """Nodes that training needs: updates and their indices, loss, convergence."""
        roots = [node for update in self.updates for node in (update.value, update.index) if node is not None]
        roots += [node for node in (self.loss, self.convergence) if node is not None]
        return tuple(roots)


def _bind_node(node: Node, dims: Mapping[str, int]) -> Node:
    if all(isinstance(dim, int) for dim in node.extents):
        return node
    if node.classes is not None:
        node = replace(node, classes=evaluate(node.classes, dims))
        # categories of an input may be a single one; a label of one class says nothing
        if node.op is Op.OUTPUT and evaluate(node.classes or 0, {}) < 2:
            raise BindError(f"{node.name} would have {node.classes} classes; needs >= 2")
    shape = tuple(evaluate(dim, dims) for dim in node.shape)
    if any(extent < 1 for extent in shape):
        given = ", ".join(f"{name}={dims[name]}" for dim in node.shape for name in names_of(dim))
        raise BindError(
            f"{node.name or f'node {node.id}'} would have shape {list(shape)} under {given}; needs >= 1 each"
        )
    if node.extent is None:
        return replace(node, shape=shape)
    # an extent above 2**24 is rounded as the same number in the rule's text would be
    return replace(node, shape=shape, value=round32(float(node.extent.evaluate(dims))), extent=None)


def _check_positions(graph: Graph, dims: Mapping[str, int]) -> None:
    for node in graph.nodes:
        position = graph.nodes[node.inputs[1]].extent if node.op is Op.ELEMENT else None
        at = 0 if position is None else position.evaluate(dims)
        # rounded, it would be the position of another element
        if round32(float(at)) != at:
            raise BindError(
                f"rule {graph.name!r} selects element {at:,}, but a position must be a number of binary32, which lacks "
                "some whole numbers above 16,777,216"
            )


def _check_fixed_rows(graph: Graph) -> None:
    selected = [node.inputs for node in graph.nodes if node.op is Op.GATHER]
    selected += [(update.model, update.index) for update in graph.updates if update.index is not None]
    for model, index in selected:
        rows = graph.concrete_shape(model)[0]
        # a row that a tuple chooses is checked where it is read
        row = graph.nodes[index].value if graph.nodes[index].op is Op.CONST else None
        # only here: how many rows a dim makes is known when it is bound
        if row is not None and row >= rows:
            raise BindError(f"{graph.nodes[model].name} would have {rows} rows, but the rule selects row {row:g}")


def _check_prediction(graph: Graph) -> None:
    classes = evaluate(graph.classes or 0, {})
    # here and not in the front end: a dim may count the classes
    if graph.prediction is not None and classes > 2 and not graph.nodes[graph.prediction].shape:
        raise BindError(
            f"rule {graph.name!r} predicts a scalar, which can only separate two classes; a vector [{classes}] with "
            f"one score per class, setPrediction(scores) without argmax, is expected for {classes} classes"
        )
