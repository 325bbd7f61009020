"""Chooses which values of a batch each thread computes a share of, in place of all of them.

In: a plan, the values' forms, the lanes and threads of the machine. Out: `Slices`. It emits no operations.

What follows the merges is computed from values that all threads hold alike, and all of them have to hold the models
that come out. Work that goes element by element needs no thread to have all elements: each keeps a share of the merged
rows, computes its share of what follows, and in the end the threads put the new model together. What an optimizer
remembers stays in shares from batch to batch: `init` cuts it, `epoch` joins it again.

The rows of a value are an array (`layout.row_shape`). Its last axes, `kept` of them, stay together; the others count
*units*, which are shared out. With `kept` of 0 a unit is a row; with 1 it is a vector, for factors that differ from
vector to vector. Or each thread has a part of every vector (`ACROSS`): units are the last axis alone, and sums over the
others are a thread's own. Values of one unit are whole in every thread and join in as they are.

Nodes that feed one another are chosen together, if that saves rows: of operations, of merges, and of the exchanges
where whole values and slices meet (`slicing.py`). The wait for a joined model is counted as rows, so that small ones
stay whole. Rules whose work one thread does alone have nothing to share.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from math import prod

from dana.compiler.forms import Forms
from dana.compiler.layout import Form, row_shape
from dana.compiler.sections import Plan
from dsl.hdfg.graph import BINARY, REDUCTIONS, UNARY, Op
from hwgen.spec import cycles
from hwgen.spec.config import LANES_PER_CLUSTER
from hwgen.spec.engine import Opcode, Section

BATCH = (Section.TUPLE, Section.BATCH)
"""Sections whose work may be shared."""

Kept = int | None
"""Last axes of rows that stay together, None for a whole value."""


ACROSS = -1
"""In place of a number of axes that are kept: all but the last one."""


def parts_of(rows: tuple[int, ...], kept: int) -> tuple[int, int, int]:
    """(vectors that each thread has a part of, units, rows of each) of an array of rows."""
    if kept == ACROSS:
        return prod(rows[:-1]), rows[-1] if rows else 1, 1
    cut = max(0, len(rows) - kept)
    return 1, prod(rows[:cut]), prod(rows[cut:])


def slice_of(rows: tuple[int, ...], kept: int, threads: int) -> tuple[int, ...]:
    """The array of rows that a thread has of them."""
    share = shares(parts_of(rows, kept)[1], threads)[-1]
    return (*rows[:-1], share) if kept == ACROSS else (share, *rows[len(rows) - kept :])


def shares(units: int, threads: int) -> tuple[int, ...]:
    """Units that a thread holds of them all, after the exchange with one other thread, with three others, …"""
    counts = [units]
    for _ in range((threads - 1).bit_length()):
        counts.append((counts[-1] + 1) // 2)
    return tuple(counts)


@dataclass(frozen=True, slots=True)
class Slices:
    """Which values threads hold slices of.

    Attributes
    ----------
    of
        `kept` of each such node: merges, operations, and models, which then are slices from batch to batch.
    joined
        Of these models the ones that each batch has to put together, since something reads them in another way.
    saved
        Rows of a batch that they save, about.
    """

    plan: Plan
    forms: Forms
    lanes: int
    of: Mapping[int, int]
    joined: frozenset[int]
    saved: int

    def wanted(self, k: int, position: int) -> Kept:
        """How node k reads its operand at `position`."""
        if k not in self.of or self.plan.graph.nodes[k].op is Op.MERGE:
            return None
        kept = self.of[k]
        return kept if parts_of(self._rows(k, position), kept)[1] > 1 else None

    def _rows(self, k: int, position: int) -> tuple[int, ...]:
        shape = self.plan.graph.concrete_shape(self.plan.operands(k)[position])
        return row_shape(shape, self.forms.wanted(k, position), self.lanes)

    def stored(self, number: int) -> Kept:
        """How update `number` reads its value."""
        return self.of.get(self.plan.graph.updates[number].model)

    def text(self) -> str:
        """The choices for people."""
        nodes = (f"%{k}" + {0: "", ACROSS: "/across"}.get(kept, f"/{kept}") for k, kept in sorted(self.of.items()))
        joined = (f"%{k}" for k in sorted(self.joined))
        return f"slices: {' '.join(nodes) or '-'}\njoined: {' '.join(joined) or '-'}\n"


def choose_slices(plan: Plan, forms: Forms, *, lanes: int, threads: int, group: int, divide_interval: int) -> Slices:
    """Choose.

    Parameters
    ----------
    lanes
        Lanes of a thread.
    threads
        That may share work.
    group
        Tuples of a thread in a round.
    divide_interval
        Of the machine.
    """
    if threads == 1 or plan.alone:
        return Slices(plan, forms, lanes, {}, frozenset(), 0)
    return _Chooser(plan, forms, lanes, threads, group, divide_interval).choose()


class _Chooser:
    def __init__(self, plan: Plan, forms: Forms, lanes: int, threads: int, group: int, divide_interval: int) -> None:
        self.plan = plan
        self.graph = graph = plan.graph
        self.forms = forms
        self.lanes = lanes
        self.threads = threads
        self.group = group
        self.divide_interval = divide_interval
        self.nodes = [k for k in plan.section if self._candidate(k)]
        self.operands = {k: plan.operands(k) for k in plan.section}
        self.rows = {k: self._row_shape(k, forms.of[k]) for k in forms.of}
        self.chosen: dict[int, int] = {}
        self.readers: dict[int, list[tuple[int, tuple[int, ...]]]] = {k: [] for k in self.rows}
        """Nodes that read a value, and its rows in the form in which they do."""
        for k, operands in self.operands.items():
            if plan.section[k] in BATCH:
                for position, operand in enumerate(operands):
                    self.readers[operand].append((k, self._row_shape(operand, forms.wanted(k, position))))
        self.source: dict[int, int] = {}
        """The node whose value a model takes, where it may be slices from batch to batch."""
        self.models: dict[int, list[int]] = {}
        """Models that take a node's value."""
        self.whole: set[int] = set()
        """Nodes whose value an update reads whole."""
        for update in graph.updates:
            value = plan.resolve(update.value)
            fits = value in self.nodes and update.index is None and forms.of[value] is forms.of[update.model]
            fits = fits and graph.nodes[plan.root(value)].op is not Op.MODEL  # an old value is saved whole
            if fits and self.rows[value] == self.rows[update.model]:
                self.source[update.model] = value
                self.models.setdefault(value, []).append(update.model)
            else:
                self.whole.add(value)
        changing = {update.model for update in graph.updates}
        self.lasting = {k for k in self.rows if plan.section.get(k, Section.INIT) is Section.INIT} - changing
        """Values that are the same in all of an epoch."""

    def _candidate(self, k: int) -> bool:
        op = self.graph.nodes[k].op
        # what the tuples bring is a thread's own until it is merged
        shared = self.plan.section[k] in BATCH and k not in self.plan.per_tuple
        return shared and (op in (Op.MERGE, Op.WHERE, Op.EXPAND) or op in UNARY or op in BINARY or op in REDUCTIONS)

    def _row_shape(self, k: int, form: Form) -> tuple[int, ...]:
        return row_shape(self.graph.concrete_shape(k), form, self.lanes)

    def choose(self) -> Slices:
        found: list[tuple[int, list[int], int]] = []
        for kept in (*range(max((len(self.rows[k]) for k in self.nodes), default=0)), ACROSS):
            self.chosen = {k: kept for k in self.nodes if self._eligible(k, kept)}
            self._prune()
            for group in self._groups():
                found.append((self._saved(group, kept, {}), group, kept))
        self.chosen = {}
        total = 0
        # of the wait for a model that is joined, other work fills about half
        least = (self.threads - 1).bit_length() * cycles.RESULT_LATENCY // 2
        for _, group, kept in sorted(found, key=lambda option: (-option[0], option[1])):
            if any(k in self.chosen for k in group):
                continue
            # groups share values that they cut or join
            saved = self._saved(group, kept, self.chosen)
            if saved > least:
                self.chosen = self.chosen | dict.fromkeys(group, kept)
                total += saved
        held = {model: self.chosen[value] for model, value in self.source.items() if value in self.chosen}
        joined = frozenset(model for model, kept in held.items() if self._wanted(model) - {kept})
        return Slices(self.plan, self.forms, self.lanes, self.chosen | held, joined, total)

    def _eligible(self, k: int, kept: int) -> bool:
        """Whether a share of a node's units can be computed from shares of the operands', and from values of one."""
        if len(self.rows[k]) <= kept or parts_of(self.rows[k], kept)[1] < 2:
            return False
        node = self.graph.nodes[k]
        if node.op is Op.MERGE:
            return True
        if node.op is Op.EXPAND or node.op in REDUCTIONS:
            # a sum over the last axis has none left, and a new one is not shared
            operand = self.operands[k][0]
            alike = self.forms.of[operand] is self.forms.of[k] and self.rows[operand][-1:] == self.rows[k][-1:]
            return kept == ACROSS and alike and node.axis != max(len(self.rows[operand]), len(self.rows[k])) - 1
        own = _shared(self.rows[k], kept)
        for position, operand in enumerate(self.operands[k]):
            form = self.forms.wanted(k, position)
            shared = _shared(self._row_shape(operand, form), kept)
            # slices are not converted
            if shared and (shared != own or form is not self.forms.of[operand]):
                return False
        return True

    def _prune(self) -> None:
        """Leave single nodes whole where that saves rows."""
        for k in sorted(self.chosen, reverse=True):
            near = self._near([k])
            before = self._cost(near)
            kept = self.chosen.pop(k)
            if self._cost(near) >= before:
                self.chosen[k] = kept

    def _groups(self) -> list[list[int]]:
        """The chosen nodes, those together that feed one another, in this batch or by a model in the next."""
        parent = {k: k for k in self.chosen}

        def find(k: int) -> int:
            while parent[k] != k:
                parent[k] = parent[parent[k]]
                k = parent[k]
            return k

        for k in self.chosen:
            if self.graph.nodes[k].op is Op.MERGE:
                continue
            for operand in self.operands[k]:
                fed = self.source.get(operand, operand)
                if fed in parent:
                    parent[find(k)] = find(fed)
        groups: dict[int, list[int]] = {}
        for k in sorted(self.chosen):
            groups.setdefault(find(k), []).append(k)
        return list(groups.values())

    def _saved(self, group: list[int], kept: int, beside: dict[int, int]) -> int:
        """Rows that slices of a group save beside others, everything else being whole."""
        near, others = self._near(group), self.chosen
        self.chosen = beside
        whole = self._cost(near)
        self.chosen = beside | dict.fromkeys(group, kept)
        saved = whole - self._cost(near)
        self.chosen = others
        return saved

    # --- rows -----------------------------------------------------------------------------------------------------

    def _near(self, group: Iterable[int]) -> set[int]:
        """Nodes whose cost the choice for some nodes changes."""
        near: set[int] = set()
        for k in group:
            near |= {k, *self.operands[k], *self.models.get(k, ())}
        return near

    def _cost(self, nodes: Iterable[int]) -> int:
        return sum(self._own(k) + self._exchanges(k) for k in nodes)

    def _own(self, k: int) -> int:
        """Rows that a node takes to compute."""
        if k not in self.plan.section or k in self.plan.per_tuple or self.plan.section[k] not in BATCH:
            return 0
        node = self.graph.nodes[k]
        whole = prod(self.rows[k])
        if node.op is Op.EXPAND or self.plan.root(k) != k:
            return 0
        if node.op is Op.MERGE:
            return self._merging(k, self.chosen[k]) if k in self.chosen else whole * (self.threads - 1).bit_length()
        rows = prod(slice_of(self.rows[k], self.chosen[k], self.threads)) if k in self.chosen else whole
        if node.op is Op.WHERE:
            rows *= 2
        elif node.op in REDUCTIONS:
            rows *= prod(self.rows[self.operands[k][0]]) // whole - 1
        elif (opcode := Opcode.__members__.get(node.op.name)) is not None and opcode.special:
            interval = cycles.element_interval(opcode, self.divide_interval)
            rows *= interval * (1 if self.forms.of[k] is Form.SPREAD else LANES_PER_CLUSTER)
        return max(rows, cycles.MIN_INSTRUCTION)

    def _wanted(self, k: int) -> set[Kept]:
        """How the readers of a value want it."""
        wanted: set[Kept] = {None} if k in self.whole else set()
        for reader, rows in self.readers[k]:
            kept = self.chosen.get(reader)
            merges = self.graph.nodes[reader].op is Op.MERGE
            wanted.add(None if kept is None or merges or parts_of(rows, kept)[1] == 1 else kept)
        if k in self.models:
            wanted.add(self.chosen.get(k))
        return wanted

    def _exchanges(self, k: int) -> int:
        """Rows that it takes to have a value as its readers want it."""
        if k in self.plan.per_tuple or k in self.lasting:  # what lasts is cut once
            return 0
        kept = self.chosen.get(self.source.get(k, k))
        others = self._wanted(k) - {kept}
        if kept is not None and k in self.source and self.graph.batch is None:
            others |= {None}  # a batch is an epoch, which cuts models and joins them
        rows = 0
        if kept is not None and others:
            vectors, units, unit = parts_of(self.rows[k], kept)
            rows += vectors * sum(many for many, _ in pairwise(shares(units, self.threads)) if many > 1) * unit
        return rows + sum(self._cutting(k, other) for other in others if other is not None)

    def _merging(self, k: int, kept: int) -> int:
        """Rows that it takes to merge a value into slices; parts of vectors may take a step more (`merge.py`)."""
        more = self.group == 1 and parts_of(self.rows[k], kept)[0] > 1
        return self._cutting(k, kept) + (prod(self.rows[k]) if more else 0)

    def _cutting(self, k: int, kept: int) -> int:
        """Rows that it takes to cut a value."""
        vectors, units, unit = parts_of(self.rows[k], kept)
        return vectors * sum(shares(units, self.threads)[1:]) * unit


def _shared(rows: tuple[int, ...], kept: int) -> tuple[int, ...]:
    """The axes that count units, without those of one in front."""
    if kept == ACROSS:
        return rows[-1:] if rows[-1:] > (1,) else ()
    shared = rows[: max(0, len(rows) - kept)]
    first = next((at for at, extent in enumerate(shared) if extent > 1), len(shared))
    return shared[first:]
