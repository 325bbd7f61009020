"""Chooses which values of a batch each thread computes a share of, in place of all of them.

In: a plan, the values' forms, a target. Out: `Shards`. It emits no operations.

What follows the merges is computed from values that all threads hold alike, and all of them have to hold the models
that come out. Work that goes element by element needs no thread to have all elements: each keeps a share of the merged
rows, computes its share of what follows, and in the end the threads put the new model together. What an optimizer
remembers stays in shares from batch to batch: `init` cuts it, `epoch` joins it again.

The rows of a value are an array (`rows.row_shape`). Its last axes, `grain` of them, stay together; the others count
*chunks*, which are shared out. With `grain` of 0 a chunk is a row; with 1 it is a vector, for factors that differ from
vector to vector. Or each thread has a part of every vector (`LAST_AXIS`): chunks are the last axis alone, and sums over
the others are a thread's own. Values of one chunk are whole in every thread and join in as they are.

Nodes that feed one another are chosen together, if that saves rows: of operations, of merges, and of the exchanges
where whole values and shards meet (`sharding.py`). The wait for a joined model is counted as rows, so that small ones
stay whole. Rules that run on one thread alone have nothing to share.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from math import prod

from dana.compiler.place.forms import Forms
from dana.compiler.place.rows import Form, row_shape
from dana.compiler.place.sections import Plan
from dana.compiler.target import Target
from dsl.hdfg.graph import BINARY, REDUCTIONS, UNARY, Op
from hwgen.spec import cycles
from hwgen.spec.config import LANES_PER_CLUSTER
from hwgen.spec.engine import Opcode, Section

BATCH = (Section.TUPLE, Section.BATCH)
"""Sections with work that threads may share."""

Grain = int | None
"""Last axes of rows that stay together, None for a whole value."""


LAST_AXIS = -1
"""In place of a number of axes that are grain: all but the last one."""


def parts_of(rows: tuple[int, ...], grain: int) -> tuple[int, int, int]:
    """(vectors that each thread has a part of, chunks, rows of each) of an array of rows."""
    if grain == LAST_AXIS:
        return prod(rows[:-1]), rows[-1] if rows else 1, 1
    cut = max(0, len(rows) - grain)
    return 1, prod(rows[:cut]), prod(rows[cut:])


def shard_of(rows: tuple[int, ...], grain: int, threads: int) -> tuple[int, ...]:
    """The array of rows that a thread has of them."""
    share = shares(parts_of(rows, grain)[1], threads)[-1]
    return (*rows[:-1], share) if grain == LAST_AXIS else (share, *rows[len(rows) - grain :])


def shares(chunks: int, threads: int) -> tuple[int, ...]:
    """Chunks that a thread holds of them all, after the exchange with one other thread, with three others, …"""
    # halves of an odd number share the chunk in the middle, so a thread holds the larger half
    counts = [chunks]
    for _ in range((threads - 1).bit_length()):
        counts.append((counts[-1] + 1) // 2)
    return tuple(counts)


@dataclass(frozen=True, slots=True)
class Shards:
    """Which values threads hold shards of.

    Attributes
    ----------
    of
        `grain` of each such node: merges, operations, and models, which then are shards from batch to batch.
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

    def wanted(self, k: int, position: int) -> Grain:
        """How node k reads its operand at `position`."""
        if k not in self.of or self.plan.graph.nodes[k].op is Op.MERGE:
            return None
        grain = self.of[k]
        return grain if parts_of(self._rows(k, position), grain)[1] > 1 else None

    def _rows(self, k: int, position: int) -> tuple[int, ...]:
        shape = self.plan.graph.concrete_shape(self.plan.operands(k)[position])
        return row_shape(shape, self.forms.wanted(k, position), self.lanes)

    def stored(self, number: int) -> Grain:
        """How update `number` reads its value."""
        return self.of.get(self.plan.graph.updates[number].model)

    def text(self) -> str:
        """The choices for people."""
        nodes = (
            f"%{k}" + {0: "", LAST_AXIS: "/across"}.get(grain, f"/{grain}") for k, grain in sorted(self.of.items())
        )
        joined = (f"%{k}" for k in sorted(self.joined))
        return f"shards: {' '.join(nodes) or '-'}\njoined: {' '.join(joined) or '-'}\n"


def choose_shards(plan: Plan, forms: Forms, target: Target, *, sharded: bool) -> Shards:
    """The values to shard because that saves rows; none unless `sharded`, and none if one thread works alone."""
    # merges into shards cross halves of rows between threads, and a host reads those of one
    whole = plan.alone or plan.pauses(target)
    if not sharded or not target.crossed or target.threads == 1 or whole:
        return Shards(plan, forms, target.lanes, {}, frozenset(), 0)
    return _Chooser(plan, forms, target).choose()


class _Chooser:
    def __init__(self, plan: Plan, forms: Forms, target: Target) -> None:
        self.plan = plan
        self.graph = graph = plan.graph
        self.forms = forms
        self.target = target
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
        """The node that a model's new value comes from, for models that may stay sharded from batch to batch."""
        self.models: dict[int, list[int]] = {}
        """Models that take a node's value."""
        self.whole: set[int] = set()
        """Nodes with a value that an update reads whole."""
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
        return row_shape(self.graph.concrete_shape(k), form, self.target.lanes)

    def choose(self) -> Shards:
        # greedily: the group that saves most alone comes first, the others given the choices before them
        found: list[tuple[int, list[int], int]] = []
        for grain in (*range(max((len(self.rows[k]) for k in self.nodes), default=0)), LAST_AXIS):
            self.chosen = {k: grain for k in self.nodes if self._eligible(k, grain)}
            self._prune()
            for group in self._groups():
                found.append((self._saved(group, grain, {}), group, grain))
        self.chosen = {}
        total = 0
        # of the wait for a model that is joined, other work fills about half
        least = (self.target.threads - 1).bit_length() * cycles.RESULT_LATENCY // 2
        for _, group, grain in sorted(found, key=lambda option: (-option[0], option[1])):
            if any(k in self.chosen for k in group):
                continue
            # groups share values that they cut or join
            saved = self._saved(group, grain, self.chosen)
            if saved > least:
                self.chosen = self.chosen | dict.fromkeys(group, grain)
                total += saved
        held = {model: self.chosen[value] for model, value in self.source.items() if value in self.chosen}
        joined = frozenset(model for model, grain in held.items() if self._wanted(model) - {grain})
        return Shards(self.plan, self.forms, self.target.lanes, self.chosen | held, joined, total)

    def _eligible(self, k: int, grain: int) -> bool:
        """Whether a share of a node's chunks can be computed from shares of the operands', and from values of one."""
        if len(self.rows[k]) <= grain or parts_of(self.rows[k], grain)[1] < 2:
            return False
        node = self.graph.nodes[k]
        if node.op is Op.MERGE:
            return True
        if node.op is Op.EXPAND or node.op in REDUCTIONS:
            # a sum over the last axis has none left, and a new one is not shared
            operand = self.operands[k][0]
            alike = self.forms.of[operand] is self.forms.of[k] and self.rows[operand][-1:] == self.rows[k][-1:]
            return grain == LAST_AXIS and alike and node.axis != max(len(self.rows[operand]), len(self.rows[k])) - 1
        own = _shared(self.rows[k], grain)
        for position, operand in enumerate(self.operands[k]):
            form = self.forms.wanted(k, position)
            shared = _shared(self._row_shape(operand, form), grain)
            # shards are not converted
            if shared and (shared != own or form is not self.forms.of[operand]):
                return False
        return True

    def _prune(self) -> None:
        """Leave single nodes whole where that saves rows."""
        # readers before what they read: a value that its readers want whole is no longer worth a shard
        for k in sorted(self.chosen, reverse=True):
            near = self._near([k])
            before = self._cost(near)
            grain = self.chosen.pop(k)
            if self._cost(near) >= before:
                self.chosen[k] = grain

    def _groups(self) -> list[list[int]]:
        """The chosen nodes, those together that feed one another, in this batch or by a model in the next."""
        groups: list[set[int]] = []
        for k in self.chosen:
            # what a merge takes is of single tuples, and no thread's share of anything
            fed = () if self.graph.nodes[k].op is Op.MERGE else self.operands[k]
            together = {k, *self.chosen.keys() & {self.source.get(operand, operand) for operand in fed}}
            together.update(*(group for group in groups if not group.isdisjoint(together)))
            groups = [*(group for group in groups if group.isdisjoint(together)), together]
        return sorted(sorted(group) for group in groups)

    def _saved(self, group: list[int], grain: int, given: dict[int, int]) -> int:
        """Rows saved by sharding a group in addition to the given shards, everything else being whole."""
        near, others = self._near(group), self.chosen
        # `_cost` reads the choice from here; both choices are tried and the old one is put back
        self.chosen = given
        whole = self._cost(near)
        self.chosen = given | dict.fromkeys(group, grain)
        saved = whole - self._cost(near)
        self.chosen = others
        return saved

    # --- rows -----------------------------------------------------------------------------------------------------

    def _near(self, group: Iterable[int]) -> set[int]:
        """Nodes with a cost that depends on the choice for some nodes."""
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
        rows = prod(shard_of(self.rows[k], self.chosen[k], self.target.threads)) if k in self.chosen else whole
        if node.op is Op.MERGE:
            # of several rounds, each is pushed to the merge stack and joined with another
            stacked = 2 * rows if self.target.levels else 0
            # threads join in pairs, pairs of pairs …: each step takes all rows
            steps = (self.target.threads - 1).bit_length()
            return stacked + (self._merging(k, self.chosen[k]) if k in self.chosen else whole * steps)
        if node.op is Op.WHERE:
            rows *= 2
        elif node.op in REDUCTIONS:
            rows *= prod(self.rows[self.operands[k][0]]) // whole - 1
        elif (opcode := Opcode.__members__.get(node.op.name)) is not None and opcode.special:
            interval = cycles.element_interval(opcode, self.target.divide_interval)
            rows *= interval * (1 if self.forms.of[k] is Form.BROADCAST else LANES_PER_CLUSTER)
        # a turn takes that long, however few its rows
        return max(rows, cycles.MIN_INSTRUCTION)

    def _wanted(self, k: int) -> set[Grain]:
        """How the readers of a value want it."""
        wanted: set[Grain] = {None} if k in self.whole else set()
        for reader, rows in self.readers[k]:
            grain = self.chosen.get(reader)
            merges = self.graph.nodes[reader].op is Op.MERGE
            wanted.add(None if grain is None or merges or parts_of(rows, grain)[1] == 1 else grain)
        if k in self.models:
            wanted.add(self.chosen.get(k))
        return wanted

    def _exchanges(self, k: int) -> int:
        """Rows that it takes to have a value as its readers want it."""
        if k in self.plan.per_tuple or k in self.lasting:  # what lasts is cut once
            return 0
        grain = self.chosen.get(self.source.get(k, k))
        others = self._wanted(k) - {grain}
        if grain is not None and k in self.source and self.graph.batch is None:
            others |= {None}  # a batch is an epoch, which cuts models and joins them
        rows = 0
        if grain is not None and others:
            vectors, chunks, chunk = parts_of(self.rows[k], grain)
            rows += vectors * sum(many for many, _ in pairwise(shares(chunks, self.target.threads)) if many > 1) * chunk
        return rows + sum(self._cutting(k, other) for other in others if other is not None)

    def _merging(self, k: int, grain: int) -> int:
        """Rows that it takes to merge a value into shards; parts of vectors may take a step more (`merge.py`)."""
        more = self.target.group == 1 and parts_of(self.rows[k], grain)[0] > 1
        return self._cutting(k, grain) + (prod(self.rows[k]) if more else 0)

    def _cutting(self, k: int, grain: int) -> int:
        """Rows that it takes to cut a value."""
        vectors, chunks, chunk = parts_of(self.rows[k], grain)
        return vectors * sum(shares(chunks, self.target.threads)[1:]) * chunk


def _shared(rows: tuple[int, ...], grain: int) -> tuple[int, ...]:
    """The axes that count chunks, without those of one in front."""
    if grain == LAST_AXIS:
        return rows[-1:] if rows[-1:] > (1,) else ()
    shared = rows[: max(0, len(rows) - grain)]
    first = next((at for at, extent in enumerate(shared) if extent > 1), len(shared))
    return shared[first:]
