"""Chooses for every value whether it lies packed over the lanes or broadcast, a row for each element.

In: a plan and a target. Out: a `Forms`. It emits no operations.

A sum over a packed last axis comes in either form: packed for about a row for each result, broadcast for the logarithm
of the lanes. A factor of shape [k, 1] that meets vectors has to be broadcast, for each of its elements goes to all
lanes. All else is better packed, a row for `lanes` elements, but for what would be packed and broadcast again. Where
the two meet, a value is converted. Forms are chosen so that operations and conversions take the fewest rows: from a few
starting points, value by value, as long as it helps.

Fixed are scalars and values whose last axis is 1 (broadcast), what the tuple brings (packed), models of scalars of
which rows are selected (broadcast, so that an element has an address), and on a machine whose exchanges do not cross
sums over a last axis (broadcast). A broadcast model lies in rows of its own: `init` broadcasts the image's, `epoch`
packs it again."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from dana.compiler.place.lanes import rows_to_broadcast, rows_to_pack, rows_to_reduce
from dana.compiler.place.rows import Form, row_shape
from dana.compiler.place.sections import Plan
from dana.compiler.target import Target
from dsl.hdfg.graph import ELEMENTWISE, FROM_ROW, LEAVES, REDUCTIONS, Node, Op
from hwgen.spec import cycles
from hwgen.spec.config import LANES_PER_CLUSTER
from hwgen.spec.engine import Opcode, Section

ONCE_AN_EPOCH = 1e-3
"""Weight of rows that issue once an epoch against those of a batch."""

IMPOSSIBLE = 1e9
"""Rows that a conversion counts where exchanges do not cross: even once an epoch, more than any rule computes."""

SWEEPS = 8


@dataclass(frozen=True, slots=True)
class Forms:
    """The form of every node's value.

    Attributes
    ----------
    rows
        By section what its operations and conversions issue, about; so many cycles it takes at the least.
    """

    plan: Plan
    of: Mapping[int, Form]
    rows: Mapping[Section, float]

    def wanted(self, k: int, position: int) -> Form:
        """The form in which a node reads its operand at `position`."""
        return _found(_wanted(self.plan, k, position), self.of)

    def stored(self, number: int) -> Form:
        """The form in which update `number` reads its value."""
        return _found(_stored(self.plan, number), self.of)

    def converted(self) -> list[int]:
        """Nodes whose values are needed in both forms."""
        plan, graph = self.plan, self.plan.graph
        wanted = [(o, self.wanted(k, at)) for k in plan.section for at, o in enumerate(plan.operands(k))]
        wanted += [(plan.resolve(update.value), self.stored(k)) for k, update in enumerate(graph.updates)]
        wanted += [(k, Form.PACKED) for k in graph.models if graph.nodes[k].shape]
        return sorted({k for k, form in wanted if form is not self.of[k] and graph.nodes[k].op is not Op.ARANGE})

    def text(self) -> str:
        """The choices for people: packed and broadcast nodes that have a shape."""
        graph = self.plan.graph
        lines = []
        for form in Form:
            nodes = [k for k, chosen in self.of.items() if chosen is form and graph.nodes[k].shape]
            lines.append(f"{form.value}: {' '.join(f'%{k}' for k in nodes) or '-'}")
        return "\n".join(lines) + "\n"


def choose_forms(plan: Plan, target: Target) -> Forms:
    """The forms of the fewest rows that the search finds; not always the fewest that there are."""
    return _Chooser(plan, target).choose()


def narrow(shape: tuple[int, ...]) -> bool:
    """Whether there is nothing to pack."""
    return not shape or shape[-1] == 1


Demand = Form | int
"""A form in which a value is wanted, or the node whose form that is."""


def _found(demand: Demand, of: Mapping[int, Form]) -> Form:
    return demand if isinstance(demand, Form) else of[demand]


def _wanted(plan: Plan, k: int, position: int) -> Demand:
    graph = plan.graph
    node, operand = graph.nodes[k], plan.operands(k)[position]
    shape = graph.concrete_shape(operand)
    if narrow(shape):
        return Form.BROADCAST
    if node.op in REDUCTIONS and node.axis == len(shape) - 1:
        return operand
    # a new last axis makes every element a vector of its own; an element of a model is selected by its row
    return Form.BROADCAST if narrow(graph.concrete_shape(k)) else k


def _stored(plan: Plan, number: int) -> Demand:
    update = plan.graph.updates[number]
    return Form.BROADCAST if narrow(plan.graph.concrete_shape(plan.resolve(update.value))) else update.model


class _Chooser:
    def __init__(self, plan: Plan, target: Target) -> None:
        self.plan = plan
        self.graph = graph = plan.graph
        self.target = target
        self.nodes = [node for node in graph.nodes if node.id in plan.section or self._leaf(node)]
        self.by_row = {graph.nodes[k].inputs[0] for k in plan.section if graph.nodes[k].op is Op.GATHER}
        self.by_row |= {update.model for update in graph.updates if update.index is not None}
        self.shape = {node.id: graph.concrete_shape(node.id) for node in self.nodes}
        self.operands = {k: plan.operands(k) for k in plan.section}
        self.readers: dict[int, list[int]] = {node.id: [] for node in self.nodes}
        self.demands: dict[int, list[Demand]] = {node.id: [] for node in self.nodes}
        for k, operands in self.operands.items():
            for position, operand in enumerate(operands):
                self.readers[operand].append(k)
                self.demands[operand].append(_wanted(plan, k, position))
        self.written: dict[int, list[int]] = {}
        for number, update in enumerate(graph.updates):
            self.demands[plan.resolve(update.value)].append(_stored(plan, number))
            self.written.setdefault(update.model, []).append(plan.resolve(update.value))
        fixed = {node.id: self._fixed(node) for node in self.nodes}
        self.fixed = {k: form for k, form in fixed.items() if form is not None}
        self.free = [node.id for node in self.nodes if node.id not in self.fixed]
        self.of: dict[int, Form] = {}
        # a sweep asks for the same rows again and again: they follow from a node's form, and its operand's if it folds
        self.near = {k: tuple(self._near(k)) for k in self.free}
        self.costs: dict[int, float] = {}
        self.folded = {node.id: self.operands[node.id][0] for node in self.nodes if self._folds(node)}
        self.own: dict[int, float] = {}
        self.other: dict[int, float] = {}
        """By node and forms in one number: they are looked up most often of all."""

    def choose(self) -> Forms:
        found: list[tuple[float, int, dict[int, Form]]] = []
        # single changes get stuck where two values would have to change together: hence several starting points
        for start in (self._all(Form.PACKED), self._forward(), self._all(Form.BROADCAST)):
            self.of = start
            self.costs = {k: self._cost(k) for k in self.of}
            for _ in range(SWEEPS):
                if not self._sweep():
                    break
            found.append((sum(self.costs.values()), len(found), self.of))
            if not self.free:
                break
        *_, self.of = min(found, key=lambda option: option[:2])
        rows = dict.fromkeys(Section, 0.0)
        for k in self.plan.section:
            rows[Section.TUPLE if self.graph.nodes[k].op is Op.MERGE else self.plan.section[k]] += self._cost(k)
        return Forms(self.plan, self.of, rows)

    # --- starting points ------------------------------------------------------------------------------------------

    def _leaf(self, node: Node) -> bool:
        return node.op in LEAVES

    def _fixed(self, node: Node) -> Form | None:
        shape = self.shape[node.id]
        # the unpacker writes them: elements to lanes, a scalar to all
        if node.op in FROM_ROW:
            return Form.PACKED if shape else Form.BROADCAST
        if narrow(shape) or (node.id in self.by_row and len(shape) == 1):
            return Form.BROADCAST
        # without crossed exchanges a row can only be reduced with itself, which leaves the sum in every lane
        last = node.op in REDUCTIONS and node.axis == len(self.graph.nodes[node.inputs[0]].shape) - 1
        return Form.BROADCAST if last and not self.target.crossed else None

    def _all(self, form: Form) -> dict[int, Form]:
        return {node.id: self.fixed.get(node.id, form) for node in self.nodes}

    def _forward(self) -> dict[int, Form]:
        """What is computed from a broadcast vector is broadcast."""
        of = self._all(Form.PACKED)
        for node in self.nodes:
            operands = self.operands.get(node.id, ())
            if node.id not in self.fixed and any(
                of[o] is Form.BROADCAST and not narrow(self.shape[o]) and self.shape[o] == self.shape[node.id]
                for o in operands
            ):
                of[node.id] = Form.BROADCAST
        return of

    def _sweep(self) -> bool:
        """Change the form of single values where that saves rows; returns whether any was changed."""
        changed, costs = False, self.costs
        for k in self.free:
            near = self.near[k]
            chosen = self.of[k]
            self.of[k] = Form.BROADCAST if chosen is Form.PACKED else Form.PACKED
            after = [self._cost(other) for other in near]
            if sum(after) < sum([costs[other] for other in near]):
                costs.update(zip(near, after, strict=True))
                changed = True
            else:
                self.of[k] = chosen
        return changed

    def _near(self, k: int) -> set[int]:
        """Nodes whose cost the form of a node changes."""
        return {k, *self.readers[k], *self.written.get(k, ()), *self.operands.get(k, ())}

    # --- rows -----------------------------------------------------------------------------------------------------

    def _cost(self, k: int) -> float:
        return self._own(k) + self._conversion(k)

    def _weight(self, k: int) -> float:
        if k in self.plan.per_tuple:
            return self.target.group
        if self._leaf(self.graph.nodes[k]) or self.plan.section[k] in (Section.INIT, Section.EPOCH):
            return ONCE_AN_EPOCH
        return 1

    def _rows(self, k: int, form: Form) -> int:
        return prod(row_shape(self.shape[k], form, self.target.lanes))

    def _folds(self, node: Node) -> bool:
        """Whether a node reduces vectors, each to an element."""
        if node.op not in REDUCTIONS or node.id not in self.operands:
            return False
        shape = self.shape[self.operands[node.id][0]]
        return node.axis == len(shape) - 1 and not narrow(shape)

    def _own(self, k: int) -> float:
        """Rows that a node takes to compute."""
        key = 4 * k + 2 * (self.of[k] is Form.PACKED) + (k in self.folded and self.of[self.folded[k]] is Form.PACKED)
        if key not in self.own:
            self.own[key] = self._computing(k)
        return self.own[key]

    def _computing(self, k: int) -> float:
        node, form = self.graph.nodes[k], self.of[k]
        rows: float = self._rows(k, form)
        if node.op is Op.MODEL:
            return ONCE_AN_EPOCH * self._converting(k, Form.PACKED) if form is Form.BROADCAST and node.shape else 0
        if k not in self.plan.section or node.op is Op.EXPAND:
            return 0
        if node.op is Op.GATHER and self.graph.nodes[node.inputs[1]].op is Op.CONST:
            return 0
        if node.op is Op.MERGE:
            return rows * self.target.group
        if node.op in REDUCTIONS:
            rows = self._reducing(node, form)
        elif node.op is Op.WHERE:
            rows *= 2
        elif node.op in ELEMENTWISE and (opcode := Opcode[node.op.name]).special:
            # a cluster has one special function unit: it takes a packed row lane by lane
            interval = cycles.element_interval(opcode, self.target.divide_interval)
            rows *= interval * (1 if form is Form.BROADCAST else LANES_PER_CLUSTER)
        return rows * self._weight(k)

    def _reducing(self, node: Node, form: Form) -> float:
        assert node.axis is not None, "a reduction has an axis"
        operand = self.operands[node.id][0]
        shape = self.shape[operand]
        if node.axis < len(shape) - 1 or narrow(shape):
            rows = self._rows(operand, form)
            return rows - rows // shape[node.axis]
        # rows of a vector are added to one row; what is left in it takes exchanges
        rows, vectors = self._rows(operand, self.of[operand]), prod(shape[:-1])
        if self.of[operand] is Form.BROADCAST:
            return rows - vectors + (self._converting(node.id, Form.BROADCAST) if form is Form.PACKED else 0)
        return rows - vectors + rows_to_reduce(vectors, shape[-2] if len(shape) > 1 else 1, form, self.target.lanes)

    def _conversion(self, k: int) -> float:
        """Rows that it takes to have a value in both forms, if anyone wants it in the other."""
        of = self.of
        form = of[k]
        for demand in self.demands[k]:
            if (of[demand] if type(demand) is int else demand) is not form:
                break
        else:
            return 0
        key = 2 * k + (form is Form.PACKED)
        if key not in self.other:
            node = self.graph.nodes[k]
            weight = 1.0 if node.op is Op.MODEL else self._weight(k)
            self.other[key] = 0 if node.op is Op.ARANGE else weight * self._converting(k, form)
        return self.other[key]

    def _converting(self, k: int, form: Form) -> float:
        """Rows of a conversion from a form to the other."""
        *leading, n = self.shape[k]
        if not self.target.crossed and (n > 1 or form is Form.PACKED):
            return IMPOSSIBLE
        return prod(leading) * (rows_to_pack if form is Form.BROADCAST else rows_to_broadcast)(n, self.target.lanes)
