"""Chooses for every value whether it lies packed over the lanes or broadcast, a row for each element.

In: a plan and a target. Out: a `Forms`. It emits no operations.

A sum over a packed last axis comes in either form: packed for about a row for each result, broadcast for the logarithm
of the lanes. A factor of shape [k, 1] that meets vectors has to be broadcast, for each of its elements goes to all
lanes. All else is better packed, a row for `lanes` elements, but for what would be packed and broadcast again. Where
the two meet, a value is converted. Forms are chosen so that operations and conversions take the fewest rows: from a few
starting points, value by value, as long as it helps.

A scalar that each tuple has takes a row of its own, or a lane of one that it shares with other tuples. Then folds share
exchanges, and operations take an eighth of the rows on eight lanes; columns that meet it are packed for it, and factors
of vectors broadcast again.

Fixed are other scalars and values with a last axis of 1 (broadcast), inputs (packed), models of scalars with selected
rows (broadcast, so that an element has an address), and sums over a last axis on a machine without crossed exchanges
(broadcast). The host writes and reads a model in the form that is chosen for it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from dana.compiler.place.lanes import rows_to_broadcast, rows_to_merge, rows_to_pack, rows_to_reduce
from dana.compiler.place.rows import Form, row_shape
from dana.compiler.place.sections import Plan
from dana.compiler.place.triangles import mirror_rows
from dana.compiler.target import Target
from dsl.hdfg.graph import ELEMENTWISE, FROM_ROW, LEAVES, REDUCTIONS, Graph, Node, Op, Update
from hwgen.spec import cycles
from hwgen.spec.config import LANES_PER_CLUSTER
from hwgen.spec.engine import Opcode, Section

ONCE_AN_EPOCH = 1e-3
"""Weight of rows that issue once an epoch against those of a batch."""

IMPOSSIBLE = 1e9
"""Rows that a conversion counts where exchanges do not cross: even once an epoch, more than any rule computes."""

SWEEPS = 8


Demand = Form | int
"""The required form of a value, or the node that determines it."""


@dataclass(frozen=True, slots=True)
class Forms:
    """The form of every node's value.

    Attributes
    ----------
    rows
        By section what its operations and conversions issue, about; so many cycles it takes at the least.
    demands
        For each computed node how it reads its operands.
    stores
        For each update how it reads its value.
    saved
        Rows of a round that are saved where scalars of tuples lie over lanes, about; 0 if none do.
    """

    plan: Plan
    of: Mapping[int, Form]
    rows: Mapping[Section, float]
    demands: Mapping[int, Sequence[Demand]]
    stores: Sequence[Demand]
    saved: float

    def wanted(self, k: int, position: int) -> Form:
        """The form in which a node reads its operand at `position`."""
        return self._found(self.demands[k][position])

    def stored(self, number: int) -> Form:
        """The form in which update `number` reads its value."""
        return self._found(self.stores[number])

    @property
    def loss(self) -> Form:
        """The form in which the loss is merged."""
        loss = self.plan.graph.loss
        return Form.BROADCAST if loss is None else self.of[self.plan.resolve(loss)]

    @property
    def merges_lanes(self) -> bool:
        """Whether tuples are merged that lie over lanes."""
        graph = self.plan.graph
        merges = [k for k in self.plan.section if graph.nodes[k].op is Op.MERGE and not graph.nodes[k].shape]
        return Form.PACKED in (self.loss, *(self.wanted(k, 0) for k in merges))

    def _found(self, demand: Demand) -> Form:
        return demand if isinstance(demand, Form) else self.of[demand]

    def converted(self) -> list[int]:
        """Nodes with values needed in both forms."""
        plan, graph = self.plan, self.plan.graph
        wanted = [(o, self.wanted(k, at)) for k in plan.section for at, o in enumerate(plan.operands(k))]
        wanted += [(plan.resolve(update.value), self.stored(k)) for k, update in enumerate(graph.updates)]
        return sorted({k for k, form in wanted if form is not self.of[k] and graph.nodes[k].op is not Op.ARANGE})

    def text(self) -> str:
        """The choices for people: packed and broadcast nodes that have a shape."""
        graph = self.plan.graph
        lines = []
        for form in Form:
            nodes = [k for k, chosen in self.of.items() if chosen is form and graph.nodes[k].shape]
            lines.append(f"{form.value}: {' '.join(f'%{k}' for k in nodes) or '-'}")
        return "\n".join(lines) + "\n"


def choose_forms(plan: Plan, target: Target, *, over_lanes: bool = True) -> Forms:
    """The forms of the fewest rows that the search finds; not always the fewest that there are.

    Parameters
    ----------
    over_lanes
        Whether scalars of tuples may lie over lanes, which saves rows and makes chains longer.
    """
    return _Chooser(plan, target, _over_lanes(plan, target) if over_lanes else frozenset()).choose()


def counts(graph: Graph, merge: Node) -> bool:
    """Whether a merge is the number of tuples."""
    operand = graph.nodes[merge.inputs[0]]
    return merge.merge_op in (None, "add") and operand.op is Op.CONST and operand.value == 1


def narrow(shape: tuple[int, ...]) -> bool:
    """Whether there is nothing to pack."""
    return not shape or shape[-1] == 1


def _over_lanes(plan: Plan, target: Target) -> frozenset[int]:
    """Nodes with a scalar for each tuple that may lie in a lane of a row that other tuples share."""
    # of fewer tuples no row would be full; tuples that are added one after the other are wanted one by one
    if not target.crossed or target.group % target.lanes or target.together > 1:
        return frozenset()
    graph = plan.graph

    def computed(node: Node) -> bool:
        if node.op in REDUCTIONS:  # of an axis of one it is a view
            return not narrow(graph.concrete_shape(plan.operands(node.id)[0]))
        return node.op in ELEMENTWISE

    scalars = (graph.nodes[k] for k in plan.section if k in plan.per_tuple and not graph.nodes[k].shape)
    return frozenset(node.id for node in scalars if computed(node))


def _wanted(plan: Plan, k: int, operand: int, over_lanes: frozenset[int]) -> Demand:
    graph = plan.graph
    node, shape = graph.nodes[k], graph.concrete_shape(operand)
    if k in over_lanes and not shape and operand in plan.per_tuple:
        return k
    if node.op is Op.MERGE and operand in over_lanes:
        return operand
    if narrow(shape) or (node.op is Op.GATHER and graph.nodes[node.inputs[1]].shape):
        return Form.BROADCAST
    if node.op in REDUCTIONS and node.axis == len(shape) - 1:
        return operand
    # a new last axis makes every element a vector of its own; an element of a model is selected by its row
    return Form.BROADCAST if narrow(graph.concrete_shape(k)) else k


def _stored(plan: Plan, update: Update) -> Demand:
    return Form.BROADCAST if narrow(plan.graph.concrete_shape(plan.resolve(update.value))) else update.model


class _Chooser:
    def __init__(self, plan: Plan, target: Target, over_lanes: frozenset[int]) -> None:
        self.plan = plan
        self.graph = graph = plan.graph
        self.target = target
        self.nodes = [node for node in graph.nodes if node.id in plan.section or node.op in LEAVES]
        self.by_row, self.spread = plan.chosen, plan.spread
        self.shape = {node.id: graph.concrete_shape(node.id) for node in self.nodes}
        self.operands = {k: plan.operands(k) for k in plan.section}
        self.loss = None if graph.loss is None else plan.resolve(graph.loss)
        self.over_lanes = over_lanes
        self.demands = {k: [_wanted(plan, k, o, over_lanes) for o in each] for k, each in self.operands.items()}
        self.stores = [_stored(plan, update) for update in graph.updates]
        fixed = {node.id: self._fixed(node) for node in self.nodes}
        self.fixed = {k: form for k, form in fixed.items() if form is not None}
        self.free = [node.id for node in self.nodes if node.id not in self.fixed]
        self.packed: list[bool] = []
        """By node whether its value is packed; behind them False and True, for demands of a form."""
        self.asked: dict[int, list[int]] = {node.id: [] for node in graph.nodes}
        """By node where `packed` has the forms in which readers and updates ask for its value."""
        self.near: dict[int, set[int]] = {k: {k, *self.operands.get(k, ())} for k in self.free}
        """Nodes with a cost that depends on the form of a node."""
        for k, operands in self.operands.items():
            for operand, demand in zip(operands, self.demands[k], strict=True):
                self._ask(operand, demand, k)
        for update, demand in zip(graph.updates, self.stores, strict=True):
            value = plan.resolve(update.value)
            self._ask(value, demand, value)
            self.near.get(update.model, set()).add(value)
        # a node's rows follow from its form, and its operand's if it folds or merges
        self.folded = {node.id: self.operands[node.id][0] for node in self.nodes if self._folds(node)}
        self.folded |= {k: self.operands[k][0] for k in plan.section if self.graph.nodes[k].op is Op.MERGE}
        self.own: dict[int, float] = {}
        self.other: dict[int, float] = {}

    def _ask(self, value: int, demand: Demand, reader: int) -> None:
        forms = len(self.graph.nodes)
        # behind the nodes' forms stand those that demands may name: False broadcast, True packed
        self.asked[value].append(demand if isinstance(demand, int) else forms + (demand is Form.PACKED))
        self.near.get(value, set()).add(reader)

    def choose(self) -> Forms:
        found: list[tuple[float, int, list[bool]]] = []
        # single changes get stuck where two values would have to change together: hence several starting points
        starts = [self._all(packed=True), self._all(packed=False)]
        if (forward := self._forward()) not in starts:
            starts.insert(1, forward)
        for start in starts if self.free else starts[:1]:
            # changed in place by `_settle`: `found` keeps the list that it ends with
            self.packed = start
            self._settle({node.id: self._cost(node.id) for node in self.nodes})
            # the number of the option keeps lists of equal cost from being compared; the first start wins
            found.append((self._total(), len(found), start))
        total, _, self.packed = min(found, key=lambda option: option[:2])
        saved = self._apart() - total
        rows = dict.fromkeys(Section, 0.0)
        for k in self.plan.section:
            # a merge's pushes are rows of the tuples' section
            rows[Section.TUPLE if self.graph.nodes[k].op is Op.MERGE else self.plan.section[k]] += self._cost(k)
        of = {node.id: self._form(node.id) for node in self.nodes}
        return Forms(self.plan, of, rows, self.demands, self.stores, saved)

    # --- starting points ------------------------------------------------------------------------------------------

    def _fixed(self, node: Node) -> Form | None:
        shape = self.shape[node.id]
        # the unpacker writes them: elements to lanes, a scalar to all
        if node.op in (Op.UPPER, Op.MIRROR) or any(self.graph.nodes[k].op is Op.UPPER for k in node.inputs):
            return Form.PACKED
        if node.op in FROM_ROW:
            return Form.PACKED if shape and node.id not in self.spread else Form.BROADCAST
        # a row for each of its numbers, which lie so
        if node.op is Op.GATHER and self.graph.nodes[node.inputs[1]].shape:
            return Form.BROADCAST
        if node.id in self.over_lanes:
            return None
        if narrow(shape) or (node.id in self.by_row and len(shape) == 1):
            return Form.BROADCAST
        # without crossed exchanges a row can only be reduced with itself, which leaves the sum in every lane
        last = node.op in REDUCTIONS and node.axis == len(self.graph.nodes[node.inputs[0]].shape) - 1
        return Form.BROADCAST if last and not self.target.crossed else None

    def _all(self, *, packed: bool) -> list[bool]:
        start = [packed] * len(self.graph.nodes) + [False, True]
        for k, form in self.fixed.items():
            start[k] = form is Form.PACKED
        return start

    def _forward(self) -> list[bool]:
        """Propagate: values computed from a broadcast vector are broadcast."""
        start = self._all(packed=True)
        for k in self.free:
            operands, shape = self.operands.get(k, ()), self.shape[k]
            start[k] = not any(not start[o] and self.shape[o] == shape and not narrow(shape) for o in operands)
        return start

    def _settle(self, costs: dict[int, float]) -> None:
        """Change the form of single values as long as that saves rows."""
        packed, near = self.packed, {k: tuple(others) for k, others in self.near.items()}
        for _ in range(SWEEPS):
            settled = True
            for k in self.free:
                # tried in place and taken back, since a copy for each node would make a sweep quadratic
                packed[k] = not packed[k]
                after = [self._cost(other) for other in near[k]]
                if sum(after) < sum([costs[other] for other in near[k]]):
                    costs.update(zip(near[k], after, strict=True))
                    settled = False
                else:
                    packed[k] = not packed[k]
            if settled:
                break

    def _apart(self) -> float:
        """What the total would be if no scalars of tuples lay over lanes."""
        chosen = self.packed
        self.packed = [packed and k not in self.over_lanes for k, packed in enumerate(chosen)]
        total = self._total()
        self.packed = chosen
        return total

    def _total(self) -> float:
        """Rows of all that is computed."""
        return sum(self._cost(node.id) for node in self.nodes) + self._finding_absent()

    def _form(self, k: int) -> Form:
        return Form.PACKED if self.packed[k] else Form.BROADCAST

    # --- rows -----------------------------------------------------------------------------------------------------

    def _cost(self, k: int) -> float:
        """Rows that a node takes to compute, and its value to be in both forms if anyone wants it in the other."""
        packed = self.packed[k]
        # form and, for a fold, its operand's form; -2 is the False behind the nodes
        key = 4 * k + 2 * packed + self.packed[self.folded.get(k, -2)]
        if (own := self.own.get(key)) is None:
            own = self.own[key] = self._computing(k)
            if k == self.loss and k in self.over_lanes:  # merged, and no node says so
                own = self.own[key] = own + self._merging(k)
        if all(self.packed[demand] == packed for demand in self.asked[k]):
            return own
        if (other := self.other.get(key)) is None:
            other = self.other[key] = self._conversion(k)
        return own + other

    def _weight(self, k: int) -> float:
        if k in self.plan.per_tuple:
            return self.target.group
        if self.graph.nodes[k].op in LEAVES or self.plan.section[k] in (Section.INIT, Section.EPOCH):
            return ONCE_AN_EPOCH
        return 1

    def _rows(self, k: int, form: Form) -> float:
        if k in self.over_lanes and form is Form.PACKED:
            return 1 / self.target.lanes
        return prod(row_shape(self.shape[k], form, self.target.lanes))

    def _folds(self, node: Node) -> bool:
        """Whether a node reduces vectors, each to an element."""
        if node.op not in REDUCTIONS or node.id not in self.operands:
            return False
        shape = self.shape[self.operands[node.id][0]]
        return node.axis == len(shape) - 1 and not narrow(shape)

    def _computing(self, k: int) -> float:
        """Rows that a node takes to compute."""
        node, form = self.graph.nodes[k], self._form(k)
        rows: float = self._rows(k, form)
        if node.op is Op.MODEL:  # the host writes and reads them
            return ONCE_AN_EPOCH * rows
        if k not in self.plan.section or node.op in (Op.EXPAND, Op.UPPER):
            return 0
        if node.op is Op.GATHER and self.graph.nodes[node.inputs[1]].op is Op.CONST:
            return 0
        if node.op is Op.MERGE:
            return rows * self._merging(self.operands[k][0])
        if node.op is Op.MIRROR:
            rows = mirror_rows(self.shape[k][0], self.target.lanes)
        elif node.op in REDUCTIONS:
            rows = self._reducing(node, form)
        elif node.op is Op.WHERE:
            # MOV and MOVC
            rows *= 2
        elif node.op in ELEMENTWISE and (opcode := Opcode[node.op.name]).special:
            # a cluster has one special function unit: it takes a packed row lane by lane
            interval = cycles.element_interval(opcode, self.target.divide_interval)
            rows *= interval * (1 if form is Form.BROADCAST else LANES_PER_CLUSTER)
        return rows * self._weight(k)

    def _merging(self, k: int) -> int:
        """Rows that it takes to merge a row of a node's value."""
        if k in self.over_lanes and self.packed[k]:
            return rows_to_merge(self.target.group, self.target.lanes)
        return self.target.group

    def _finding_absent(self) -> int:
        """Rows that it takes to find the lanes of tuples that a round does not have, if any are merged over lanes."""
        merges = [node for node in self.nodes if node.op is Op.MERGE]
        merged = {self.loss, *(self.operands[node.id][0] for node in merges)}
        if not any(self.packed[k] for k in self.over_lanes & merged):
            return 0
        compared = self.target.group // self.target.lanes
        return compared + (0 if any(counts(self.graph, node) for node in merges) else self.target.group)

    def _reducing(self, node: Node, form: Form) -> float:
        assert node.axis is not None, "a reduction has an axis"
        operand = self.operands[node.id][0]
        shape = self.shape[operand]
        if node.axis < len(shape) - 1 or narrow(shape):
            rows = self._rows(operand, form)
            # of n rows along the axis n - 1 are added
            return rows - rows // shape[node.axis]
        # rows of a vector are added to one row; what is left in it takes exchanges
        rows, vectors, lanes = self._rows(operand, self._form(operand)), prod(shape[:-1]), self.target.lanes
        if not self.packed[operand]:
            return rows - vectors + (self._converting(node.id, Form.BROADCAST) if form is Form.PACKED else 0)
        if node.id in self.over_lanes and form is Form.PACKED:
            return rows - 1 + rows_to_reduce(lanes, lanes, form, lanes) / lanes
        return rows - vectors + rows_to_reduce(vectors, shape[-2] if len(shape) > 1 else 1, form, lanes)

    def _conversion(self, k: int) -> float:
        """Rows that it takes to have a value in both forms."""
        node = self.graph.nodes[k]
        weight = 1.0 if node.op is Op.MODEL else self._weight(k)
        copied = self._rows(k, Form.BROADCAST) if k in self.spread else 0  # out of tuple memory first
        return 0 if node.op is Op.ARANGE else weight * (copied + self._converting(k, self._form(k)))

    def _converting(self, k: int, form: Form) -> float:
        """Rows of a conversion from a form to the other."""
        if not self.shape[k]:  # of tuples: as many as lanes share a row
            lanes = self.target.lanes
            return (rows_to_pack if form is Form.BROADCAST else rows_to_broadcast)(lanes, lanes) / lanes
        *leading, n = self.shape[k]
        if not self.target.crossed and (n > 1 or form is Form.PACKED):
            # a vector of one element is broadcast already, crossed exchanges or not
            return IMPOSSIBLE
        return prod(leading) * (rows_to_pack if form is Form.BROADCAST else rows_to_broadcast)(n, self.target.lanes)
