"""Orders the work of a batch so that models can be overwritten where their new values are computed.

In: a plan, the values' forms and shards. Out: `Step`s in a valid order, and the nodes with a result that goes straight
into a model's rows. It makes no operations.

All updates read the models as they stood before the batch. A node may write into a model's rows once every other reader
of the old model has run; where that cannot be (a reader depends on the node itself), the new value gets rows of its own
and is moved at the end.
"""

import heapq
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from graphlib import TopologicalSorter
from typing import NamedTuple

from dana.compiler.place.forms import Forms
from dana.compiler.place.sections import Plan
from dana.compiler.place.shards import Shards
from dsl.hdfg.graph import ELEMENTWISE, Op
from hwgen.spec.engine import Section


class Kind(IntEnum):
    """Kinds of steps, in the order used where dependences leave it open."""

    NODE = 0
    """Compute node `id`."""
    COPY = 1
    """Save node `id`, a model or a part of one: the new value of another model."""
    LOSS = 2
    """Add the batch's loss to the epoch's."""
    TEST = 3
    """Leave the convergence test's value in its row."""
    MOVE = 4
    """Write the value of update number `id` into its model, or into a row that the rule says."""
    ROWS = 5
    """Write the rows of model node `id` that the tuples say."""

    __hash__ = int.__hash__  # steps are looked up by it: Enum's own hashes the name


class Step(NamedTuple):
    kind: Kind
    id: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """Work of the update section.

    Attributes
    ----------
    steps
        Everything that the update section does.
    target
        For a node, the model node that receives its result.
    """

    steps: tuple[Step, ...]
    target: Mapping[int, int]

    def text(self) -> str:
        """The steps in readable form, with the models that receive results."""
        lines = []
        for step in self.steps:
            of = "" if step.kind in (Kind.LOSS, Kind.TEST) else f" %{step.id}"
            into = f" into %{self.target[step.id]}" if step.kind is Kind.NODE and step.id in self.target else ""
            lines.append(f"{step.kind.name.lower()}{of}{into}\n")
        return "".join(lines)


def order_updates(plan: Plan, forms: Forms, shards: Shards) -> Order:
    """Order the section in which models are written."""
    graph, section = plan.graph, plan.update_section
    before: dict[Step, set[Step]] = {}
    reads: dict[Step, set[int]] = {}

    def add(step: Step, values: tuple[int, ...]) -> None:
        before[step] = {Step(Kind.NODE, v) for v in values if plan.section.get(v) is section}
        reads[step] = {root for root in map(plan.root, values) if graph.nodes[root].op is Op.MODEL}

    for k in plan.of(section):
        add(Step(Kind.NODE, k), plan.operands(k))
    if graph.loss is not None:
        add(Step(Kind.LOSS), (plan.resolve(graph.loss),))
    if graph.convergence is not None:
        root = plan.resolve(graph.convergence)
        if plan.section.get(root) is not Section.EPOCH:
            add(Step(Kind.TEST), (root,))
    target: dict[int, int] = {}
    moves: list[Step] = []
    rows: dict[int, list[int]] = {}
    for number, update in enumerate(graph.updates):
        if plan.serial and update.at_once:  # `tuple` does, before the section that is ordered here
            continue
        value = plan.resolve(update.value)
        # a model that keeps its value takes no work
        if value == update.model and update.index is None:
            continue
        # the value is another model's old one, which its own update may overwrite first
        if graph.nodes[plan.root(value)].op is Op.MODEL:
            add(Step(Kind.COPY, value), (value,))
        if graph.by_tuple(update):
            rows.setdefault(update.model, []).append(value)
        elif value not in target and update.index is None and _fits(plan, forms, shards, value, update.model):
            target[value] = update.model
        else:
            moves.append(Step(Kind.MOVE, number))
    # a copy: the loop deletes entries
    for node, model in list(target.items()):
        if not _precede(before, _readers(reads, model), Step(Kind.NODE, node)):
            del target[node]
            moves += [Step(Kind.MOVE, k) for k, u in enumerate(graph.updates) if u.model == model]
    for move in moves:
        update = graph.updates[move.id]
        value = plan.resolve(update.value)
        if graph.nodes[plan.root(value)].op is Op.MODEL:
            before[move] = {Step(Kind.COPY, value)}
        else:
            # a value of another section is there before this one begins
            before[move] = {Step(Kind.NODE, value)} & before.keys()
        before[move] |= _readers(reads, update.model)
    for model, values in rows.items():
        nodes = {Step(Kind.COPY if graph.nodes[plan.root(v)].op is Op.MODEL else Kind.NODE, v) for v in values}
        before[Step(Kind.ROWS, model)] = (nodes & before.keys()) | _readers(reads, model)
    return Order(steps=_sorted(before), target=target)


def _fits(plan: Plan, forms: Forms, shards: Shards, value: int, model: int) -> bool:
    """Whether the node's result, computed by operations that go element by element, is the model's new rows."""
    node = plan.graph.nodes[value]
    if node.op not in ELEMENTWISE | {Op.MIRROR} or plan.section.get(value) is not plan.update_section:
        return False
    if node.shape != plan.graph.nodes[model].shape or forms.of[value] is not forms.of[model]:
        return False
    if shards.of.get(value) != shards.of.get(model):
        return False
    # a part of the model may be read after it was overwritten; a selection writes its last operand and reads the others
    operands = plan.operands(value)
    parts = [operand for operand in operands if plan.root(operand) == model and operand != model]
    return not parts and (node.op is not Op.WHERE or model not in operands[:2])


def _readers(reads: Mapping[Step, set[int]], model: int) -> set[Step]:
    return {step for step, models in reads.items() if model in models}


def _precede(before: dict[Step, set[Step]], readers: set[Step], writer: Step) -> bool:
    """Put every reader before the writer, unless one of them depends on it."""
    # a reader that comes behind the writer would read the new value: then the writer gets rows of its own
    waiting, behind = [*readers - {writer}], set[Step]()
    while waiting:
        step = waiting.pop()
        if step == writer:
            return False
        if step not in behind:
            behind.add(step)
            waiting.extend(before[step])
    before[writer] |= readers - {writer}
    return True


def _sorted(before: Mapping[Step, set[Step]]) -> tuple[Step, ...]:
    """Topological order, the least step first where there is a choice."""
    # graphlib gives steps that are ready in no fixed order; the heap does
    sorter = TopologicalSorter(before)
    sorter.prepare()
    free, steps = list(sorter.get_ready()), list[Step]()
    heapq.heapify(free)
    while free:
        steps.append(heapq.heappop(free))
        sorter.done(steps[-1])
        for step in sorter.get_ready():
            heapq.heappush(free, step)
    return tuple(steps)
