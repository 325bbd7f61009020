"""The plan of a rule's code: phases of values, values kept in memory, and loops.

In: a bound graph, simplified. Out: a `Plan`: nests of loops in the order in which they run, each with the values that
it stores. No order of the arithmetic is chosen here; it is the language's (docs/arithmetic.md).
"""

from collections import defaultdict
from dataclasses import dataclass, field
from functools import cached_property

from dana.jit.parts import Parts, find_parts
from dana.simulator.layout import LANES
from dsl.hdfg.graph import ELEMENTWISE, LEAVES, PER_TUPLE, REDUCTIONS, Graph, Op, Update
from hwgen.spec.operations import Opcode, Unit

FUNCTIONS = {Op[opcode.name]: opcode for opcode in Opcode if opcode.unit is Unit.FUNCTION}
"""Functions that the core evaluates over arrays, with their numbers; other operations take few instructions."""
VIEWS = frozenset({Op.EXPAND, Op.ELEMENT, Op.GATHER})
CHEAP = 3
"""Most operations recomputed, instead of stored, for each pair of a row and an element."""


class Unsupported(Exception):
    """The rule is one that the simulator's engine runs alone; the text says why."""


EPOCH = 0
"""The phase of values computed from metas and constants."""
BATCH = 1
"""The phase of values computed from models as they are before a batch."""
TUPLE = 2
"""The phase of values of each tuple. Those that depend on merged values are computed in a second pass over the batch,
two phases later, and so on."""
EARLY, SERIAL, LATE = 2, 4, 6
"""Phases of a rule without merges: for a block before its tuples, for each tuple in order, for the block afterwards."""
AFTER = 3
"""The phase of values computed from merges of the first pass; two phases later, of the second …"""


def of_tuples(phase: int) -> bool:
    """Whether a phase is a pass over tuples."""
    return phase >= TUPLE and phase % 2 == 0


@dataclass(slots=True, kw_only=True)
class Nest:
    """Loops over a shape, and what they store.

    Attributes
    ----------
    nodes
        One reduction, merge or function; or elementwise values of the shape, in order.
    updates
        Models that the loops update in place.
    """

    phase: int
    shape: tuple[int, ...]
    nodes: list[int] = field(default_factory=list)
    updates: list[Update] = field(default_factory=list)
    elementwise: bool = False


class Plan:
    """The nests of a graph, which is bound and simplified."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.nodes = graph.nodes
        self.live = graph.reachable(graph.training_roots)
        self.by_row = [u for u in graph.updates if graph.has_merge and graph.by_tuple(u) and not u.at_once]
        """Updates of a row that each tuple of a batch chooses: made at its end, in the order of the tuples."""
        self.at_once = [u for u in graph.updates if graph.has_merge and u.at_once]
        """Those that are made before the next tuple of the batch."""
        self.uses = self._uses()
        self.phase = self._phases()
        self.parts = Parts(early=frozenset(), late=frozenset(), counters=frozenset())
        if not graph.has_merge:
            self._part()
        self.passes = [*range(TUPLE, self.last, 2)] if graph.has_merge else [TUPLE]
        self.kept = {k for k in sorted(self.live) if self._keeps(k)}
        self.nests: list[Nest] = []
        self.merges = [k for k in sorted(self.kept) if self.nodes[k].op is Op.MERGE]
        self.nest_of = dict.fromkeys(self.merges, -1)
        """By value, from 0; merges, which are joined before a batch's end begins, have none."""
        self._sources: dict[int, list[tuple[int, bool]]] = {}
        for k in sorted(self.kept.difference(self.merges)):
            self._enter(k)
        # in this order: what is copied decides what is stored, and what is stored decides what lasts
        later = [u for u in graph.updates if u not in self.by_row and u not in self.at_once]
        later = [u for u in later if u.model not in self.parts.counters]
        self.copied = [u for u in later if not self._stored_in_place(u)]
        self.stores = {k for k in self.kept if self._is_stored(k)}
        self.fused = self._fused_folds()
        """By the number of a nest: folds of a tuple's vectors, by one operation, that run inside its loops."""
        lasts = graph.has_merge
        self.lasting = {k for k in self.stores if lasts and of_tuples(self.phase[k]) and self._read_later(k)}
        """Values of tuples that a later pass reads: of the whole batch."""
        self.flushed = {k for k in graph.inputs if all(map(self._flushes, self._readers(k)))}
        """Inputs with subnormals flushed by every reader."""

        self.alone = {k for k in self.kept if self.phase[k] == SERIAL and not graph.has_merge and not self._is_late(k)}
        """Values of a tuple that nothing reads after its turn."""

    def _part(self) -> None:
        """Take what is computed of each tuple apart, where a block of tuples is worth it."""
        of_each = frozenset(k for k, phase in self.phase.items() if phase == TUPLE)
        epoch = frozenset(k for k, phase in self.phase.items() if phase == EPOCH)
        parts = find_parts(self.graph, of_each & self.live, epoch, FUNCTIONS)
        if not parts.late and not any(self.nodes[k].op not in LEAVES for k in parts.early):
            return
        self.parts, self.last = parts, SERIAL
        for k in of_each:
            self.phase[k] = EARLY if k in parts.early or self.nodes[k].op in PER_TUPLE else SERIAL
        for k in parts.late:
            self.phase[k] = LATE
        for k in parts.counters:
            self.phase[k] = EARLY

    @property
    def by_block(self) -> bool:
        """Whether a rule without merges has parts that are computed of a block of tuples."""
        return not self.graph.has_merge and self.last == SERIAL

    def _is_late(self, k: int) -> bool:
        return any(r in self.parts.late for r in self.uses[k])

    @cached_property
    def numbered(self) -> bool:
        """Whether anything asks for a tuple's number in its batch."""
        return any(self.nodes[k].op is Op.ROW for k in self.live)

    @cached_property
    def splits(self) -> bool:
        """Whether nothing but merges depends on a batch's earlier tuples, and one pass goes over them."""
        aside = self.by_row or self.at_once or self.numbered
        return self.graph.has_merge and len(self.passes) == 1 and not aside

    # --- phases and uses --------------------------------------------------------------------------------------------

    def _phases(self) -> dict[int, int]:
        updated = {update.model for update in self.graph.updates}
        at_once = {update.model for update in self.at_once}
        phase: dict[int, int] = {}
        # by id: operands have their phase before their readers
        for k in sorted(self.live | set(self.graph.models)):
            node = self.nodes[k]
            if node.op in PER_TUPLE:
                phase[k] = TUPLE
            elif node.op is Op.MODEL:
                phase[k] = TUPLE if k in at_once else BATCH if k in updated else EPOCH
            elif node.op is Op.MERGE:
                phase[k] = self.merged_in(phase[node.inputs[0]]) + 1
            else:
                phase[k] = max((phase[i] for i in node.inputs), default=EPOCH)
                if phase[k] >= AFTER and any(of_tuples(phase[i]) for i in node.inputs):
                    phase[k] += phase[k] % 2  # of tuples and of what is merged: the next pass
        read = [phase[k] for k in (self.graph.loss, *self._of_rows()) if k is not None]
        merged = [phase[k] for k in self.live if self.nodes[k].op is Op.MERGE]
        last = max([AFTER, *merged, *(self.merged_in(one) + 1 for one in read)]) if self.graph.has_merge else TUPLE
        self.last = last
        of_rows = {self.graph.loss, *self._of_rows()}
        of_rows.update(self.nodes[k].inputs[0] for k in self.live if self.nodes[k].op is Op.MERGE)
        for k in sorted(self.live, reverse=True):  # with their readers, where these are all at a batch's end
            computed = self.nodes[k].op not in LEAVES and self.nodes[k].op not in VIEWS and k not in of_rows
            if phase[k] == BATCH and computed and all(r < 0 or phase[r] == last for r in self.uses[k]):
                phase[k] = last
        return phase

    @staticmethod
    def merged_in(phase: int) -> int:
        """The pass that ends with merging a value of a phase, or the first that has it."""
        return max(TUPLE, phase + phase % 2)

    def _read_later(self, k: int) -> bool:
        """Whether a value of tuples is read in a pass after its own."""
        if self.phase[k] < self.passes[-1] and any(k in self.reads(value) for value in self._of_rows()):
            return True
        for other in self.kept:
            reads = self.phase[other] - (self.nodes[other].op is Op.MERGE)
            if reads > self.phase[k] and any(i == k for i, _ in self.sources(other)):
                return True
        return False

    def _of_rows(self) -> list[int]:
        """Values of tuples kept until their batch ends: row numbers and new values."""
        return [k for update in self.by_row for k in (update.value, update.index) if k is not None]

    def _uses(self) -> dict[int, list[int]]:
        """Readers of each value, through views; -1 is a root."""
        uses: dict[int, list[int]] = defaultdict(list)
        for k in self.live:
            for i in self.nodes[k].inputs:
                uses[i].append(k)
        for update in self.graph.updates:
            uses[update.value].append(-1)
            if update.index is not None:
                uses[update.index].append(-1)
        for root in (self.graph.loss, self.graph.convergence):
            if root is not None:
                uses[root].append(-1)
        return uses

    def shape(self, k: int) -> tuple[int, ...]:
        """The extents of a value."""
        return self.graph.concrete_shape(k)

    def lists(self, k: int) -> bool:
        """Whether a value is rows of a model that all elements of a column choose."""
        node = self.nodes[k]
        return node.op is Op.GATHER and bool(self.shape(node.inputs[1]))

    @cached_property
    def roots(self) -> frozenset[int]:
        """Values that are read by no loop."""
        return frozenset(k for k in (self.graph.loss, self.graph.convergence) if k is not None)

    def _keeps(self, k: int) -> bool:
        """Whether a value is a result of loops, rather than computed where it is read."""
        node = self.nodes[k]
        if self.lists(k):
            return True
        if node.op in LEAVES or node.op in VIEWS:
            return False
        if node.op in REDUCTIONS or node.op is Op.MERGE or node.op in FUNCTIONS or k in self.roots:
            return True
        readers = self._readers(k)
        if any(r < 0 for r in readers) or (self.phase[k] == SERIAL and self._is_late(k)):
            return True
        if self._outer(k) and self._cost(k) <= CHEAP:
            return False
        if len(readers) > 1:
            return True
        return any(self._space(r) != (self.phase[k], self.shape(k)) for r in readers)

    def _readers(self, k: int) -> list[int]:
        """The nodes that read a value, through views; -1 for each root."""
        found = []
        for reader in self.uses[k]:
            found += self._readers(reader) if reader >= 0 and self.nodes[reader].op is Op.EXPAND else [reader]
        return found

    def _flushes(self, reader: int) -> bool:
        """Whether a reader is an instruction that takes subnormals for zeros; LLVM makes none of x * 1."""
        if reader < 0 or self.nodes[reader].op not in (Op.ADD, Op.SUB, Op.MUL, Op.DIV):
            return False
        return not any(map(self._constant, self.nodes[reader].inputs))

    def _constant(self, k: int) -> bool:
        node = self.nodes[k]
        return node.op in (Op.CONST, Op.ARANGE) or (bool(node.inputs) and all(map(self._constant, node.inputs)))

    def _space(self, reader: int) -> tuple[int, tuple[int, ...]]:
        """Over what a reader's loops run: a reduction's and a merge's over their operand."""
        node = self.nodes[reader]
        if node.op in REDUCTIONS or node.op is Op.MERGE:
            return self.phase[node.inputs[0]], self.shape(node.inputs[0])
        return self.phase[reader], self.shape(reader)

    def _outer(self, k: int) -> bool:
        """Whether a value is larger than each of its operands."""
        return all(self._size(k) > self._size(i) for i in self.nodes[k].inputs)

    def _size(self, k: int) -> int:
        size = LANES if of_tuples(self.phase[k]) else 1
        for extent in self.shape(k):
            size *= extent
        return size

    def _cost(self, k: int) -> int:
        """Operations to compute a value from what is kept or a leaf, if it is not kept itself."""
        node = self.nodes[k]
        if node.op not in ELEMENTWISE or node.op in FUNCTIONS:
            return 0
        return 1 + sum(self._cost(i) for i in node.inputs if self._outer(i) or len(self._readers(i)) == 1)

    # --- nests ------------------------------------------------------------------------------------------------------

    def sources(self, k: int) -> list[tuple[int, bool]]:
        """The kept values and models that computing a value reads, and whether element by element."""
        if k not in self._sources:
            self._sources[k] = self._find_sources(k)
        return self._sources[k]

    def _find_sources(self, k: int) -> list[tuple[int, bool]]:
        found: list[tuple[int, bool]] = []

        def visit(i: int, pointwise: bool) -> None:
            node = self.nodes[i]
            pointwise = pointwise and self.shape(i) == shape and self.phase[i] <= space
            if i in self.kept or node.op is Op.MODEL:
                found.append((i, pointwise))
                return
            for operand in node.inputs:
                visit(operand, pointwise and node.op not in VIEWS)

        node = self.nodes[k]
        elementwise = node.op in ELEMENTWISE and node.op not in FUNCTIONS
        shape, space = self.shape(k), self.phase[k]
        for operand in node.inputs:
            visit(operand, elementwise)
        return found

    def _enter(self, k: int) -> None:
        node = self.nodes[k]
        elementwise = node.op in ELEMENTWISE and node.op not in FUNCTIONS
        phase, shape = self.phase[k], self.shape(k)
        earliest = 0
        for i, _ in self.sources(k):  # it may share a source's nest; a source that is read whole has another shape
            if i in self.nest_of and self.phase[i] == phase:
                earliest = max(earliest, self.nest_of[i])
        if elementwise:
            # the first nest behind its sources: in one loop values stay in registers
            for number in range(earliest, len(self.nests)):
                nest = self.nests[number]
                if nest.elementwise and (nest.phase, nest.shape) == (phase, shape):
                    nest.nodes.append(k)
                    self.nest_of[k] = number
                    return
        self.nests.append(Nest(phase=phase, shape=shape, nodes=[k], elementwise=elementwise))
        self.nest_of[k] = len(self.nests) - 1

    def _fused_folds(self) -> dict[int, list[int]]:
        found: dict[int, list[int]] = defaultdict(list)
        for k in sorted(self.nest_of):
            operand = self.shape(self.nodes[k].inputs[0]) if self.nodes[k].op in REDUCTIONS else ()
            if len(operand) != 1 or operand[0] == 1 or not of_tuples(self.phase[k]):
                continue
            own = [i for i, _ in self.sources(k) if i in self.nest_of and self.phase[i] == self.phase[k]]
            last = max((self.nest_of[i] for i in own), default=-1)
            alike = all(self.nodes[one].op is self.nodes[k].op for one in found[last])
            if last >= 0 and self.nests[last].elementwise and self.nests[last].shape == operand and alike:
                found[last].append(k)
        return found

    def _stored_in_place(self, update: Update) -> bool:
        """Have a nest store new values where the old ones lie, if nothing reads those afterwards."""
        value, model = update.value, update.model
        if update.index is not None or self.shape(value) != self.shape(model):
            return False
        if value not in self.nest_of or value in self.merges:
            return False
        number = self.nest_of[value]
        nest = self.nests[number]
        if not nest.elementwise or nest.phase != self.last:
            return False
        # an update that is made later would read the new model
        if any(model in self.reads(other.value) for other in self.graph.updates):
            return False
        for k in self.kept:
            for i, pointwise in self.sources(k):
                # earlier nests have read it by then; in the same one each element is read before it is written
                if i == model and not (self.nest_of[k] < number or (self.nest_of[k] == number and pointwise)):
                    return False
        nest.updates.append(update)
        return True

    def reads(self, k: int) -> set[int]:
        """The kept values, models and inputs that a value is computed from."""
        if k in self.kept or k in self.graph.inputs or self.nodes[k].op is Op.MODEL:
            return {k}
        return {found for i in self.nodes[k].inputs for found in self.reads(i)}

    def _is_stored(self, k: int) -> bool:
        """Whether anything outside of its nest reads a value."""
        if k in self.merges or not self.nests[self.nest_of[k]].elementwise or k in self.roots:
            return True
        if any(update.index == k for update in self.graph.updates):
            return True
        read = [*self._of_rows(), *(update.value for update in (*self.copied, *self.at_once))]
        if any(k in self.reads(value) for value in read):
            return True
        return any(
            i == k and not (pointwise and self.nest_of[other] == self.nest_of[k])
            for other in self.kept
            for i, pointwise in self.sources(other)
        )
