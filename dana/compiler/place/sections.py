"""Decides in which section of the program each node is computed.

In: a simplified graph, then a target. Out: a `Plan`. No instructions are made here.

`init` takes what depends on metas and on the number of the epoch alone, once an epoch. `tuple` takes what is per tuple;
a value there that no tuple enters is computed once for all tuples of the round (`once`). `batch` takes what follows the
merges. `epoch` takes what only the convergence test needs and what does not read a model, for by then the models are
those after the batch.
A batch of one tuple (`single`) has nothing to merge: its merges are the values themselves, and `tuple` takes all the
work of `batch`, which could not read the tuple. A rule that writes rows chosen by the tuple (`by_row`)
does all its work in `tuple`, too, and a batch is one round; if the next tuple is to see them (`serial`), a round is one
tuple, and `tuple` writes them. So does every rule on a machine that takes a batch in one
round (`joined`): the work after the merges overlaps with the work before them as far as it is independent. A rule that
uses a value of the batch in the batch's tuples again must be joined: its tuples are then still in tuple memory. A
machine that pauses behind the merges joins no other.
"""

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass

from dana.compiler.place.watch import Watched, element_in, watched_columns
from dana.compiler.simplify.elements import expand_elements
from dana.compiler.simplify.lists import join_rows
from dana.compiler.target import Target
from dsl.hdfg.graph import LEAVES, PER_TUPLE, REDUCTIONS, EachEpoch, Graph, Node, Op, Region
from hwgen.spec.bundle import WHOLE_EPOCH
from hwgen.spec.engine import Section


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The section of each node, and properties that follow from it.

    Attributes
    ----------
    graph
        The simplified graph.
    single
        Whether batches hold one tuple.
    by_row
        Whether a tuple chooses the row of a model that is updated at the end of its batch.
    serial
        Whether the tuples of a batch see rows that the ones before wrote: each is a round of its own.
    joined
        Whether every batch is one round, with all its work in `tuple`.
    section
        Section of every computed node that training needs; leaves, and merges of a `single` plan, have none.
        A merge is in `tuple`.
    per_tuple
        Nodes that have a value for each tuple.
    alias
        Node that has the value of a merge, in a `single` plan.
    passing
        Nodes of `init` that nothing reads behind it.
    watched
        Columns that choose rows, if tuples that share no row may run side by side.
    reads
        Operands of each node, resolved.
    elements
        Input and position of each node that computes one element of an input.
    """

    graph: Graph
    single: bool
    by_row: bool
    serial: bool
    joined: bool
    section: Mapping[int, Section]
    per_tuple: frozenset[int]
    alias: Mapping[int, int]
    passing: frozenset[int]
    watched: tuple[Watched, ...]
    reads: Sequence[tuple[int, ...]]
    elements: Mapping[int, tuple[int, int]]

    def element(self, node: int) -> tuple[int, int] | None:
        """Input and position of a value that is one element of an input; a scalar input has position 0."""
        return element_in(self.graph, self.elements, node)

    def resolve(self, node: int) -> int:
        """The node that computes a value."""
        return self.alias.get(node, node)

    def operands(self, node: int) -> tuple[int, ...]:
        """Operands of a node, resolved."""
        return self.reads[node]

    def root(self, node: int) -> int:
        """The node that owns the rows of a value: an axis of one, new or reduced, and a fixed model row are views."""
        node = self.resolve(node)
        while self._view(node):
            node = self.operands(node)[0]
        return node

    def _view(self, node: int) -> bool:
        found = self.graph.nodes[node]
        if found.op in REDUCTIONS and found.axis is not None:
            return self.graph.nodes[found.inputs[0]].shape[found.axis] == 1
        return found.op is Op.EXPAND or self.fixed_row(node)

    def fixed_row(self, node: int) -> bool:
        """Whether a node is a row of a model at a constant index."""
        found = self.graph.nodes[node]
        return found.op is Op.GATHER and self.graph.nodes[found.inputs[1]].op is Op.CONST

    @property
    def batch(self) -> int:
        """Tuples of a batch; WHOLE_EPOCH if that is the whole table."""
        return WHOLE_EPOCH if self.graph.batch is None else self.graph.batch

    def batch_tuples(self, max_tuples: int) -> int:
        """Tuples that a batch has at most, for a table of up to so many."""
        return max_tuples if self.batch == WHOLE_EPOCH else self.batch

    @property
    def update_section(self) -> Section:
        """Where models are written."""
        return Section.TUPLE if self.together else Section.BATCH

    @property
    def together(self) -> bool:
        """Whether `tuple` does the work of `batch`."""
        return self.single or self.by_row or self.joined

    def pauses(self, target: Target) -> bool:
        """Whether the host joins what a batch merged with the merges of other machines."""
        return target.pauses and self.graph.has_merge and not self.together and not self.serial

    @property
    def in_one_round(self) -> bool:
        """Whether every batch has to be one round: its tuples write rows in their order, or are needed again."""
        return self.by_row or (self.graph.returns_to_rows and not self.single)

    @property
    def alone(self) -> bool:
        """Whether one thread does all the work."""
        return self.single or self.by_row or self.serial

    @property
    def indexed(self) -> bool:
        """Whether a tuple chooses rows."""
        gathers = (k for k in self.section if self.graph.nodes[k].op is Op.GATHER)
        return self.by_row or self.serial or any(not self.fixed_row(k) for k in gathers)

    @property
    def chosen(self) -> frozenset[int]:
        """Models with rows that are read or written alone."""
        graph = self.graph
        read = (graph.nodes[k].inputs[0] for k in self.section if graph.nodes[k].op is Op.GATHER)
        return frozenset((*read, *(update.model for update in graph.updates if update.index is not None)))

    @property
    def mirrors(self) -> bool:
        """Whether symmetric matrices are merged by half (`triangles.py`)."""
        return any(self.graph.nodes[k].op is Op.MIRROR for k in self.section)

    @property
    def lists(self) -> frozenset[int]:
        """Inputs with elements that all choose rows of one table."""
        numbers = [self.graph.nodes[k].inputs[1] for k in self.section if self.graph.nodes[k].op is Op.GATHER]
        numbers += [update.index for update in self.graph.updates if update.index is not None]
        return frozenset(k for k in numbers if self.graph.nodes[k].shape)

    @property
    def entries(self) -> int:
        """Entries of the index file that a tuple takes."""
        return max((self.graph.concrete_shape(k)[0] for k in self.lists), default=1)

    @property
    def spread(self) -> frozenset[int]:
        """Inputs with each element in every lane of a row of its own: numbers of rows, and what goes along."""
        shapes = {self.graph.nodes[k].shape for k in self.lists}
        return frozenset(k for k in self.graph.inputs if self.graph.nodes[k].shape in shapes)

    def of(self, section: Section) -> tuple[int, ...]:
        """Nodes of a section, in topological order."""
        return tuple(node.id for node in self.graph.nodes if self.section.get(node.id) is section)

    def text(self) -> str:
        """The plan for people: a node a line under its section."""
        lines = []
        for section in Section:
            nodes = self.of(section)
            lines += [f"{section}:"] if nodes else []
            for k in nodes:
                node = self.graph.nodes[k]
                once = " once" if section is Section.TUPLE and not self.single and k not in self.per_tuple else ""
                lines.append(f"    %{k} = {node.op.value} {' '.join(f'%{o}' for o in self.operands(k))}{once}")
        return "\n".join(lines) + "\n"


def join_rounds(plan: Plan, target: Target) -> Plan:
    """The plan with the work of `batch` in `tuple`, if every batch is one round of the target, without a pause."""
    joins = not target.levels and not plan.alone and not target.pauses
    return planned(plan.graph, plan.elements, joined=True) if joins else plan


def plan_sections(graph: Graph) -> Plan:
    """Place every node that training needs, independently of the machine."""
    # before anything has a section: an element becomes three operations, and rows chosen by a vector's one
    graph, elements = expand_elements(join_rows(graph))
    return planned(graph, elements, joined=graph.returns_to_rows and graph.batch != 1)


def planned(graph: Graph, elements: Mapping[int, tuple[int, int]], *, joined: bool) -> Plan:
    """Place every node of a graph with elements expanded, with all work in `tuple` if `joined`."""
    single = graph.batch == 1
    needed = graph.reachable(graph.training_roots)
    alias: dict[int, int] = {}
    section: dict[int, Section] = {}
    serial = graph.tuple_by_tuple and not single
    by_row = any(graph.by_tuple(update) for update in graph.updates) and not serial
    per_tuple: set[int] = set()
    counted = _counted(graph)
    reads: list[tuple[int, ...]] = []
    for node in graph.nodes:
        # reads hold the nodes that compute, so that nothing else need know of aliases
        operands = tuple([alias.get(operand, operand) for operand in node.inputs])
        reads.append(operands)
        if node.op in PER_TUPLE:
            per_tuple.add(node.id)
        if node.op in LEAVES or node.id not in needed:
            continue
        # nothing to merge: the merge is its operand
        if node.op is Op.MERGE and single:
            alias[node.id] = operands[0]
            continue
        # a merge of per-tuple values has one value for the batch
        if node.op is not Op.MERGE and any(operand in per_tuple for operand in operands):
            per_tuple.add(node.id)
        section[node.id] = Section.INIT if node.id in counted else _section(node, together=single or by_row or joined)
    plan = Plan(
        graph=graph,
        single=single,
        by_row=by_row,
        serial=serial,
        joined=joined,
        section=section,
        per_tuple=frozenset(per_tuple),
        alias=alias,
        passing=_passing(graph, counted, section),
        watched=watched_columns(graph, elements),
        reads=reads,
        elements=elements,
    )
    # into the plan's own dict, as it takes a plan to find them
    section.update(dict.fromkeys(_epoch_nodes(plan), Section.EPOCH))
    return plan


def _counted(graph: Graph) -> frozenset[int]:
    """Nodes that follow from the number of the epoch, and from nothing else that changes."""
    found = {node.id for node in graph.nodes if node.each_epoch is EachEpoch.COUNT}
    leaves = frozenset(found)
    for node in graph.nodes:
        # constants do not change; what depends on nothing but them is no function of the epoch
        lasting = [k in found or graph.nodes[k].region is Region.CONST for k in node.inputs]
        if node.op is not Op.MERGE and all(lasting) and not found.isdisjoint(node.inputs):
            found.add(node.id)
    return frozenset(found) - leaves


def _passing(graph: Graph, counted: frozenset[int], section: Mapping[int, Section]) -> frozenset[int]:
    """Nodes of `init` on the way to what the number of the epoch decides, and read by nothing else."""
    if not counted:
        return frozenset()
    init = {k for k in section if section[k] is Section.INIT}
    chosen = _with_readers(
        section, lambda k: graph.nodes[k].inputs, init.difference(graph.training_roots), counted & init
    )
    return frozenset(chosen)


def _with_readers(
    nodes: Iterable[int], reads: Callable[[int], Iterable[int]], fit: Container[int], others: Container[int] = ()
) -> set[int]:
    """The nodes in `fit` with only readers that are also selected or in `others`."""
    readers: dict[int, list[int]] = {}
    for k in nodes:
        for operand in reads(k):
            readers.setdefault(operand, []).append(k)
    chosen: set[int] = set()
    for k in sorted(nodes, reverse=True):  # readers before what they read
        if k in fit and all(reader in chosen or reader in others for reader in readers.get(k, ())):
            chosen.add(k)
    return chosen


def _section(node: Node, *, together: bool) -> Section:
    if node.region is Region.CONST:
        return Section.INIT
    return Section.BATCH if node.region is Region.BATCH and node.op is not Op.MERGE and not together else Section.TUPLE


def _epoch_nodes(plan: Plan) -> set[int]:
    """Nodes of the convergence test alone that can be computed from what is left at the end of the epoch."""
    graph = plan.graph
    if graph.convergence is None:
        return set()
    others = [node for update in graph.updates for node in (update.value, update.index) if node is not None]
    others += [] if graph.loss is None else [graph.loss]
    alone = graph.reachable([graph.convergence]) - graph.reachable(others)
    movable = {k for k in plan.of(plan.update_section) if graph.nodes[k].op is not Op.MERGE}
    # metas and literals keep their rows; models are new by then and the tuple's rows belong to the unpacker
    passing = {node.id for node in graph.nodes if node.op in PER_TUPLE or node.op is Op.MODEL}
    lasting = {k for k in movable if passing.isdisjoint(map(plan.root, plan.operands(k)))}
    return _with_readers(alone, plan.operands, lasting)
