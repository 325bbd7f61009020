"""Text form of a graph: one line for each node, read back to an equal graph.

In: a `Graph`, or text. Out: text, or a verified `Graph`. Used by `--emit hdfg`, golden tests and stored
designs. Must not: lose anything; `parse_graph(graph_text(g)) == g`.

::

    hdfg logistic
    dims n
    epochs 10
    batch 64
    %0 = model w : batch [n] @ 3:1-3:2
    %4 = mul %0 %1 : tuple [n] @ 9:30-9:35
    %5 = sigma %4 axis=0 : tuple [] as s @ 9:18-9:39
    update %0 <- %13 @ 14:1-14:38
    loss %16
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from dsl.binary32 import round32
from dsl.hdfg import dims
from dsl.hdfg.dims import Dim, DimExpr
from dsl.hdfg.graph import LEAVES, NAMELESS, EachEpoch, Graph, Node, Op, Region, Unrolled, Update
from dsl.hdfg.init import ZEROS, Init, InitKind
from dsl.hdfg.verify import verify
from dsl.source import Span


class GraphSyntaxError(ValueError):
    """Text that is no graph; the message names the line."""


def graph_text(graph: Graph, *, spans: bool = True) -> str:
    """Write a graph; without `spans` the places in the rule text are left out."""
    return "\n".join(_lines(graph, spans)) + "\n"


def parse_graph(text: str) -> Graph:
    """Read a graph.

    Raises
    ------
    GraphSyntaxError
        If a line does not fit the form.
    InvalidGraph
        If the lines make no valid graph.
    """
    reader = _Reader()
    for number, line in enumerate(text.splitlines(), start=1):
        if line.strip():
            try:
                reader.read(line.strip())
            # what enums, dicts and numbers raise for words that they do not have
            except (ValueError, KeyError, AttributeError) as error:
                raise GraphSyntaxError(f"line {number} is no line of a graph: {line.strip()[:80]!r}") from error
    try:
        graph = reader.graph()
    except (ValueError, IndexError) as error:
        raise GraphSyntaxError(f"the lines above the nodes must be numbers and node ids: {error}") from error
    # the text may come from anywhere: a node may read one that is not there
    verify(graph)
    return graph


# writing


def _lines(graph: Graph, spans: bool) -> Iterator[str]:
    yield f"hdfg {graph.name}"
    if graph.dims:
        extents = dict(graph.extents)
        yield f"dims {' '.join(f'{dim}={extents[dim]}' if dim in extents else dim for dim in graph.dims)}"
    if graph.unrolled is not None:
        yield f"unrolled {' '.join(f'{dim}={extent}' for dim, extent in graph.unrolled.extents)}"
    if graph.needs:
        yield f"needs {' '.join(map(str, graph.needs))}"
    yield f"epochs {graph.epochs}"
    size = "all" if graph.batch is None else str(graph.batch)
    yield f"batch {size}" + (f" from %{graph.batch_meta}" if graph.batch_meta is not None else "")
    for word, ids in (("inputs", graph.inputs), ("models", graph.models), ("metas", graph.metas)):
        if ids:
            yield f"{word} {' '.join(f'%{i}' for i in ids)}"
    for node in graph.nodes:
        yield _node_line(node) + _span_text(node.span, spans)
    for update in graph.updates:
        row = "" if update.index is None else f"[%{update.index}]"
        sign, when = "+=" if update.adds else "<-", " : tuple" if update.at_once else ""
        yield f"update %{update.model}{row} {sign} %{update.value}{when}" + _span_text(update.span, spans)
    for word, root in (
        ("loss", graph.loss),
        ("test_loss", graph.test_loss),
        ("prediction", graph.prediction),
        ("convergence", graph.convergence),
    ):
        if root is not None:
            yield f"{word} %{root}"


def _node_line(node: Node) -> str:
    words = [f"%{node.id} = {node.op}"]
    # the name of a leaf is part of the rule's interface; those of others are labels, behind `as`
    if node.op in LEAVES - NAMELESS and node.name:
        words.append(node.name)
    words += [f"%{i}" for i in node.inputs]
    if node.value is not None:
        # repr is the shortest text that reads back to the same bits
        words.append(repr(node.value))
    if node.extent is not None:
        words.append(f"extent={node.extent}")
    if node.classes is not None:
        words.append(f"classes={node.classes}")
    if node.axis is not None:
        words.append(f"axis={node.axis}")
    if node.merge_op is not None:
        words.append(f"op={node.merge_op}")
    if node.init != ZEROS:
        names = "".join(f",{name}" for name in (node.init.of, node.init.runs) if name)
        words.append(f"init={node.init.kind},{node.init.first!r},{node.init.second!r},{node.init.seed}{names}")
    if node.init.narrow:
        words.append("stored=bfloat16")
    if node.each_epoch is not None:
        words.append(f"epoch={node.each_epoch}")
    if node.table:
        words.append("rows=table")
    words.append(f": {node.region} [{','.join(str(dim) for dim in node.shape)}]")
    if node.op not in LEAVES - NAMELESS and node.name:
        words.append(f"as {node.name}")
    return " ".join(words)


def _span_text(span: Span | None, spans: bool) -> str:
    return f" @ {span}" if span is not None and spans else ""


# reading

NODE = re.compile(
    r"%(?P<id>\d+) = (?P<op>\w+)(?P<words>.*?) : (?P<region>\w+) \[(?P<shape>[^\]]*)\]"
    r"(?: as (?P<name>\w+))?(?: @ (?P<span>\S+))?"
)
UPDATE = re.compile(
    r"update %(?P<model>\d+)(?:\[%(?P<index>\d+)\])? (?P<sign><-|\+=) %(?P<value>\d+)"
    r"(?P<when> : tuple)?(?: @ (?P<span>\S+))?"
)
SPAN = re.compile(r"(\d+):(\d+)-(\d+):(\d+)")


class _Reader:
    def __init__(self) -> None:
        self._nodes: list[Node] = []
        self._updates: list[Update] = []
        self._words: dict[str, list[str]] = {}

    def read(self, line: str) -> None:
        if line.startswith("%"):
            self._nodes.append(_read_node(line))
        elif line.startswith("update "):
            match = _full(UPDATE, line)
            index = match["index"]
            self._updates.append(
                Update(
                    model=int(match["model"]),
                    value=int(match["value"]),
                    index=None if index is None else int(index),
                    adds=match["sign"] == "+=",
                    at_once=match["when"] is not None,
                    span=_read_span(match["span"]),
                )
            )
        else:
            word, *rest = line.split()
            if word not in WORDS:
                raise ValueError(word)
            self._words[word] = rest

    def graph(self) -> Graph:
        for word in ("hdfg", "epochs", "batch"):
            if not self._words.get(word):
                raise ValueError(f"there is no line {word!r}")
        size, *source = self._words["batch"]
        return Graph(
            name=self._words["hdfg"][0],
            nodes=tuple(self._nodes),
            dims=tuple(word.split("=")[0] for word in self._words.get("dims", ())),
            extents=self._extents("dims"),
            unrolled=Unrolled(extents=self._extents("unrolled")) if "unrolled" in self._words else None,
            needs=tuple(dim for dim in map(parse_dim, self._words.get("needs", ())) if isinstance(dim, DimExpr)),
            inputs=self._ids("inputs"),
            models=self._ids("models"),
            metas=self._ids("metas"),
            updates=tuple(self._updates),
            loss=self._id("loss"),
            test_loss=self._id("test_loss"),
            prediction=self._id("prediction"),
            convergence=self._id("convergence"),
            epochs=int(self._words["epochs"][0]),
            batch=None if size == "all" else int(size),
            batch_meta=int(source[1].removeprefix("%")) if source else None,
        )

    def _extents(self, word: str) -> tuple[tuple[str, int], ...]:
        parts = (part.partition("=") for part in self._words.get(word, ()))
        return tuple((name, int(extent)) for name, _, extent in parts if extent)

    def _ids(self, word: str) -> tuple[int, ...]:
        return tuple(int(part.removeprefix("%")) for part in self._words.get(word, ()))

    def _id(self, word: str) -> int | None:
        ids = self._ids(word)
        return ids[0] if ids else None


ROOTS = ("loss", "test_loss", "prediction", "convergence")
WORDS = ("hdfg", "dims", "unrolled", "needs", "epochs", "batch", "inputs", "models", "metas", *ROOTS)


def _full(pattern: re.Pattern[str], text: str) -> re.Match[str]:
    # the whole line: what a pattern leaves over would be lost
    match = pattern.fullmatch(text)
    if match is None:
        raise ValueError(text)
    return match


def _read_span(text: str | None) -> Span | None:
    return None if text is None else Span(*(int(part) for part in _full(SPAN, text).groups()))


def _read_node(line: str) -> Node:
    match = _full(NODE, line)
    op = Op(match["op"])
    words = match["words"].split()
    marked = dict(word.split("=", 1) for word in words if "=" in word)
    plain = [word for word in words if "=" not in word and not word.startswith("%")]
    name = match["name"]
    if op in LEAVES - NAMELESS:
        # before the value: a meta has both, the name first
        name = plain.pop(0)
    shape = match["shape"]
    return Node(
        id=int(match["id"]),
        op=op,
        inputs=tuple(int(word[1:]) for word in words if word.startswith("%")),
        shape=tuple(parse_dim(part) for part in shape.split(",")) if shape else (),
        region=Region(match["region"]),
        name=name,
        # hand-written text may have a decimal number that binary32 lacks, which `verify` would reject
        value=round32(float(plain[0])) if plain else None,
        extent=_read_extent(marked.get("extent")),
        classes=parse_dim(marked["classes"]) if "classes" in marked else None,
        axis=int(marked["axis"]) if "axis" in marked else None,
        merge_op=marked.get("op"),
        init=replace(_read_init(marked.get("init")), narrow=marked.get("stored") == "bfloat16"),
        each_epoch=EachEpoch(marked["epoch"]) if "epoch" in marked else None,
        table=marked.get("rows") == "table",
        span=_read_span(match["span"]),
    )


def _read_extent(text: str | None) -> DimExpr | None:
    if text is None:
        return None
    dim = parse_dim(text)
    if isinstance(dim, int):
        raise ValueError(text)
    return dim


def _read_init(text: str | None) -> Init:
    if text is None:
        return ZEROS
    # names are written where a start depends on them
    kind, first, second, seed, *names = text.split(",")
    of, runs = (*names, "", "")[:2]
    return Init(kind=InitKind(kind), first=float(first), second=float(second), seed=int(seed), of=of, runs=runs)


def parse_dim(text: str) -> Dim:
    """Read an extent as `str` writes it: `8`, `n`, `2*n*k+3`."""
    total: Dim = 0
    # the sign of a term is the sign before it; names and numbers hold none
    for sign, term in re.findall(r"([+-]?)([^+-]+)", text):
        product: Dim = 1
        for factor in term.split("*"):
            product = dims.multiply(product, int(factor) if factor.isdigit() else dims.symbol(factor))
        # added up term by term, so that the result is in canonical form
        total = dims.subtract(total, product) if sign == "-" else dims.add(total, product)
    return total
