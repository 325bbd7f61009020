"""The contents of a graph's picture: boxes in rows, and arrows between them.

In: a graph. Out: a `Picture` without coordinates. The parts of the rule follow one another downwards: what
is computed for each tuple, what joins the tuples, what is computed once per batch. Leaves stand above whoever reads
them, so one may appear several times; numbers and metas are written into the operation; equal operations
are drawn once.
Must not: know sizes, colours or file formats.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum, StrEnum

from dsl.hdfg.dims import shape_text
from dsl.hdfg.drawing.words import MERGE_SIGNS, SIGNS, Words, line_of
from dsl.hdfg.graph import Graph, Node
from dsl.hdfg.ops import COMMUTATIVE, FROM_ROW, LEAVES, Op, Region


class Part(IntEnum):
    """Where a box belongs, from top to bottom."""

    TUPLE = 0
    MERGE = 1
    BATCH = 2


class Kind(StrEnum):
    """Kinds of boxes."""

    DATA = "data"  # an input or an output
    MODEL = "model"
    NUMBER = "number"  # constants and metas
    OPERATION = "operation"
    MERGE = "merge"
    RESULT = "result"  # a new model value, the loss, the prediction, the convergence test


@dataclass(slots=True, kw_only=True)
class Box:
    """One box: `name` is the rule's, `text` says what it does; `shape` is that of its value, empty for a scalar.

    If it is `symmetric`, arrows into it may come in any order.
    """

    kind: Kind
    part: Part
    row: int
    name: str = ""
    text: str = ""
    shape: str = ""
    axes: int = 0
    line: int | None = None
    symmetric: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrow:
    """From box to box, by index, into port `port` of `ports` on the upper side, counted from the left."""

    source: int
    target: int
    port: int
    ports: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """Boxes and arrows; every arrow leads to a lower row."""

    boxes: tuple[Box, ...]
    arrows: tuple[Arrow, ...]


@dataclass(slots=True)
class _Item:
    """An operation or a result before leaves are added: which values lead to it."""

    box: Box
    operands: tuple[int, ...]


def picture(graph: Graph) -> Picture:
    """Return what is to be drawn."""
    return _Composer(graph).compose()


class _Composer:
    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._words = Words(graph)
        self._same = _equal_values(graph)
        # what any of the equal values is called
        # reversed: of equal values with several names, the first name stays
        self._names = {self._same[node.id]: node.name for node in reversed(graph.nodes) if node.name is not None}
        self._items: dict[int, _Item] = {}  # operations by node id, results by numbers behind them

    def compose(self) -> Picture:
        for node in self._drawn():
            self._items[node.id] = self._operation(node)
        for item in self._results():
            # results have no node id; numbers behind all ids keep an operand from being taken for one
            self._items[len(self._graph.nodes) + len(self._items)] = item
        self._assign_rows()
        boxes, arrows = [item.box for item in self._items.values()], []
        index = {key: number for number, key in enumerate(self._items)}
        leaves: dict[tuple[str, Part], int] = {}  # the last box of each leaf
        # from the top, so that the last box made of a leaf is the one nearest to the next reader
        for key, item in sorted(self._items.items(), key=lambda entry: entry[1].box.row):
            for port, operand in enumerate(item.operands):
                source = index.get(operand)
                if source is None:
                    leaf = self._leaf(operand, item.box)
                    source = leaves.get((leaf.text, leaf.part), -1)
                    # a leaf more than two rows up gets another box: its arrow would cross everything between
                    if source < 0 or item.box.row - boxes[source].row > 2:
                        source = leaves[leaf.text, leaf.part] = len(boxes)
                        boxes.append(leaf)
                arrows.append(Arrow(source=source, target=index[key], port=port, ports=len(item.operands)))
        # rows of leaves leave gaps where another part already filled the row
        rows = {row: number for number, row in enumerate(sorted({box.row for box in boxes}))}
        for box in boxes:
            box.row = rows[box.row]
        return Picture(boxes=tuple(boxes), arrows=tuple(arrows))

    def _drawn(self) -> Iterator[Node]:
        graph = self._graph
        wanted = graph.reachable([*graph.training_roots, *([] if graph.prediction is None else [graph.prediction])])
        for node in graph.nodes:
            if node.id in wanted and self._same[node.id] == node.id and self._is_box(node):
                yield node

    def _is_box(self, node: Node) -> bool:
        return node.op not in LEAVES and node.region is not Region.CONST and not self._words.is_inline(node.id)

    def _operation(self, node: Node) -> _Item:
        inline = [self._graph.nodes[i].region is Region.CONST for i in node.inputs]
        operands = [self._same[i] for i, written in zip(node.inputs, inline, strict=True) if not written]
        texts = [self._words.name(i) if w else "·" for i, w in zip(node.inputs, inline, strict=True)]
        # one arrow: both operands are the same box
        if node.op is Op.MUL and len(operands) == 2 and operands[0] == operands[1]:
            text, operands = "square", operands[:1]
        elif node.op in SIGNS:
            text = f"{texts[0]} {SIGNS[node.op]} {texts[1]}".removeprefix("· ").removesuffix(" ·")
        elif node.op is Op.MERGE:
            text = f'merge "{MERGE_SIGNS[node.merge_op or ""]}"'
        elif node.axis is not None and node.op is not Op.ELEMENT:
            # axes are counted from 1, as in rule text; a value of one axis needs no number
            axes = len(node.shape) + (node.op is not Op.EXPAND)
            text = node.op.value if axes == 1 else f"{node.op.value} axis {node.axis + 1}"
        elif any(inline):
            text = self._words.operation(node, texts)
        else:
            text = "negate" if node.op is Op.NEG else node.op.value
        # constants are no boxes (`_is_box`), so that two regions suffice
        part = {Region.TUPLE: Part.TUPLE, Region.BATCH: Part.BATCH}[node.region]
        return _Item(
            Box(
                kind=Kind.MERGE if node.op is Op.MERGE else Kind.OPERATION,
                part=Part.MERGE if node.op is Op.MERGE else part,
                row=0,
                name=self._names.get(node.id, ""),
                text=text,
                shape=shape_text(node.shape) if node.shape else "",
                axes=len(node.shape),
                line=line_of(node),
                symmetric=node.op in COMMUTATIVE,
            ),
            tuple(operands),
        )

    def _results(self) -> Iterator[_Item]:
        graph = self._graph
        for title, value in (("loss", graph.loss), ("prediction", graph.prediction), ("converged", graph.convergence)):
            if value is not None:
                yield self._result(title, (value,), "")
        for update in graph.updates:
            model = str(graph.nodes[update.model].name)
            row = "" if update.index is None else f"[{self._words.name(update.index)}]"
            values = (update.value,) if update.index is None else (update.value, update.index)
            yield self._result(f"{model}{row}", values, "added to " if update.adds else "new ")

    def _result(self, title: str, values: tuple[int, ...], prefix: str) -> _Item:
        regions = {self._graph.nodes[i].region for i in values}
        part = Part.TUPLE if Region.TUPLE in regions else Part.BATCH
        box = Box(
            kind=Kind.RESULT, part=part, row=0, text=f"{prefix}{title}", line=line_of(self._graph.nodes[values[0]])
        )
        # a row's number stands in the title, and has no arrow of its own
        return _Item(box, (self._same[values[0]],))

    def _leaf(self, value: int, reader: Box) -> Box:
        node = self._graph.nodes[value]
        source = self._graph.nodes[node.inputs[0]] if node.op is Op.GATHER else node
        kinds = {Op.MODEL: Kind.MODEL, **dict.fromkeys(FROM_ROW, Kind.DATA)}
        part = Part.TUPLE if reader.part is Part.MERGE else reader.part
        return Box(
            kind=kinds.get(source.op, Kind.NUMBER),
            part=part,
            row=reader.row - 1,
            text=self._words.name(value),
            shape=shape_text(node.shape) if node.shape else "",
            axes=len(node.shape),
            line=line_of(node),
        )

    def _assign_rows(self) -> None:
        """Give every item a row below its operands, the parts one below the other."""
        first = 1
        for part in Part:
            items = [item for item in self._items.values() if item.box.part is part]
            for item in items:  # in topological order
                above = [self._items[i].box.row + 1 for i in item.operands if i in self._items]
                item.box.row = max([first, *above])
            last = max((item.box.row for item in items), default=first - 1)
            self._sink(part, items, last)
            if items:
                # leaves stand one row above their first reader: a part needs a free row for them, but a merge's stand
                # with the tuples
                first = last + (1 if part is Part.TUPLE else 2)
                first += 1 if part is Part.TUPLE and not self._graph.has_merge else 0

    def _sink(self, part: Part, items: list[_Item], last: int) -> None:
        """Move items down to their readers where that lengthens no other arrow."""
        readers: dict[int, list[Box]] = {}
        for item in items:
            for i in item.operands:
                readers.setdefault(i, []).append(item.box)
        # readers before operands, so that each item sees the final rows of what reads it
        for key, item in reversed(list(self._items.items())):
            if item.box.part is part and item.box.kind is Kind.OPERATION:
                inner = sum(i in self._items for i in item.operands)
                below = [box.row for box in readers.get(key, [])]
                # a row down lengthens the arrow of each operand and shortens the one to each reader
                if inner == 0 or inner < len(below):
                    item.box.row = min(below, default=last + 1) - 1


def _equal_values(graph: Graph) -> list[int]:
    """For each node the first node with the same value."""
    first: dict[object, int] = {}
    same: list[int] = []
    for node in graph.nodes:
        inputs = tuple(same[i] for i in node.inputs)
        name = node.name if node.op in LEAVES else None
        key = (node.op, inputs, node.shape, node.region, name, node.value, node.extent, node.axis, node.merge_op)
        same.append(first.setdefault(key, node.id))
    return same
