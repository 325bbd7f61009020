"""Cost of a rule on the engine: instructions, cycles, and the least that the units would need.

In: the plan of a rule and the Bundle made of it. Out: a `Cost`. It compiles nothing and knows no link and no page.

The bound counts arithmetic operations: an element of an elementwise operation, an addition of a sum, an addition of a
merge are one each, of a symmetric matrix that is merged those of one half; work done once for a batch is divided by its
tuples. The bound assumes that all units are always busy, and the special function units at the same time. Moving,
broadcasting, and waiting for results are not counted: the distance of a program from the bound is the room for
improvement.

The chain is a second bound: a batch begins when the models of the one before are there, so it takes as long as the
operations that lead from a model to its next value, one after the other.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod

from dana.compiler.place.sections import Plan
from dana.compiler.place.triangles import symmetric_values
from dsl.hdfg.graph import ELEMENTWISE, REDUCTIONS, Node, Op
from dsl.source import Span
from hwgen.spec import cycles
from hwgen.spec.bundle import WHOLE_EPOCH, Bundle
from hwgen.spec.engine import Instruction, Opcode, Section, Source

RECORDS = "records"
KINDS = ("rows", "sums over lanes", "lanes to new places", "exchanges of threads", "special functions")


@dataclass(frozen=True, slots=True, kw_only=True)
class SectionCost:
    """A section of the program.

    Attributes
    ----------
    instructions
        Without END.
    busy
        Cycles in which rows issue.
    length
        Cycles that it takes.
    """

    instructions: int
    busy: int
    length: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Cost of a rule on a machine.

    Attributes
    ----------
    sections
        Of the program.
    rounds
        Rounds of a batch; of a batch without end, one of those before the last.
    per_tuple
        Cycles of the engine for a tuple, and of its records to be fetched and stored.
    operations, special
        Arithmetic operations for a tuple, and of them cycles of special function units.
    bound
        The least cycles for a tuple that the units allow.
    chain
        The least cycles for a tuple that the latencies between a model and its next value allow; of a batch without
        end none.
    kinds
        Cycles of a tuple by what issues in them; the rest are waits, the sequencer's among them.
    chain_lines
        Cycles of the chain by the rule's line, of a whole batch.
    work_lines
        Operations of a tuple by the rule's line, those of special function units in their cycles.
    repeats
        `repeat_cycles`, no part of the others.
    """

    sections: Mapping[Section, SectionCost]
    rounds: int
    per_tuple: float
    operations: float
    special: float
    bound: float
    chain: float
    kinds: Mapping[str, float]
    chain_lines: Mapping[int, float]
    work_lines: Mapping[int, float]
    repeats: int

    @property
    def ratio(self) -> float:
        """Cycles above the bound, 1 if there are none."""
        return self.per_tuple / self.bound

    def text(self) -> str:
        """For people."""
        lines = [f"{'section':8} {'instructions':>12} {'busy':>8} {'cycles':>8}"]
        for name, section in self.sections.items():
            lines.append(f"{name:8} {section.instructions:12} {section.busy:8} {section.length:8}")
        lines += [
            f"rounds of a batch      {self.rounds}",
            f"cycles of a tuple      {self.per_tuple:.2f}",
            f"operations of a tuple  {self.operations:.1f}, and {self.special:.1f} cycles of a special function unit",
            f"bound of the units     {self.bound:.2f} cycles; {self.ratio:.2f} times as many are taken",
            f"bound of the chain     {self.chain:.2f} cycles from models to their next values",
            *(f"{kind:22} {cycles:.2f} cycles" for kind, cycles in self.kinds.items()),
            *([repeats_text(self.repeats)] if self.repeats else []),
        ]
        return "\n".join(lines) + "\n"


def count_cost(plan: Plan, bundle: Bundle) -> Cost:
    """Return the cost of the Bundle's program, and the bounds of its rule on its machine.

    Parameters
    ----------
    plan
        Of the bound graph that the Bundle was compiled from.
    """
    config = bundle.config
    # a batch without end is rated by its rounds, which are all alike: each is joined with another, and none is the last
    endless = bundle.batch == WHOLE_EPOCH
    batch = bundle.round_tuples if endless else bundle.batch
    sections = {name: _section(bundle, name) for name in bundle.sections}
    rounds = -(-batch // bundle.round_tuples)

    def length(name: Section) -> int:
        return cycles.SECTION_START + sections[name].length if name in sections else 0

    # every round but the last is pushed, and merged once with another
    joins, ends = (1, 0) if endless else (rounds - 1, 1)
    times = {Section.TUPLE: rounds, Section.PUSH: joins, Section.MERGE: joins, Section.BATCH: ends}
    taken = rounds * cycles.ROUND_START + sum(count * length(name) for name, count in times.items())
    kinds = {kind: sum(times.get(name, 0) * _busy(bundle, name, kind) for name in sections) / batch for kind in KINDS}
    if bundle.tables:
        fetched, stored = record_cycles(bundle)
        # the next batch's are fetched when this one's are stored, while the engine may still work on its section batch
        waited = max(0, fetched + stored + 1 - length(Section.BATCH))
        kinds[RECORDS], taken = waited / batch, taken + waited
    kinds["waits"] = taken / batch - sum(kinds.values())
    operations = special = 0.0
    work: list[tuple[Span | None, float]] = []
    halves = symmetric_values(plan)
    for k in plan.section:
        count, busy = _work(plan, plan.graph.nodes[k], config.divide_interval)
        # of a symmetric [n, n] the n (n + 1) / 2 elements on the diagonal and above it
        part = (1 + 1 / halves[k]) / 2 if k in halves else 1.0
        share = 1 / batch
        if k in plan.per_tuple:
            share = 1
        elif plan.graph.nodes[k].op is Op.MERGE:
            share = (batch - ends) / batch  # n values are merged by n - 1 operations
        elif plan.section[k] in (Section.INIT, Section.EPOCH) or (endless and plan.section[k] is Section.BATCH):
            # once in an epoch, which has any number of tuples
            share = 0
        operations += share * part * count
        special += share * part * busy
        work.append((plan.graph.nodes[k].span, share * part * (count + busy)))
    chain = _chain(plan, batch)
    # the lanes and the special function units work in parallel: the slower of the two is the bound
    units = max(operations / config.units, special / (config.threads * config.clusters))
    return Cost(
        sections=sections,
        rounds=rounds,
        per_tuple=taken / batch,
        operations=operations,
        special=special,
        # not 0, which `ratio` divides by: a rule may have no operation at all
        bound=max(units, 1 / config.units),
        chain=0 if endless else sum(latency for _, latency in chain) / batch,
        kinds=kinds,
        chain_lines=_by_line(chain),
        work_lines=_by_line(work),
        repeats=repeat_cycles(bundle),
    )


def record_cycles(bundle: Bundle) -> tuple[int, int]:
    """Cycles in which the records of a batch are fetched, and stored."""
    if not bundle.tables:
        return 0, 0
    # tables are numbered from 1; 0 means that a column chooses no record
    fetched = sum(bundle.tables[column.table - 1].rows for column in bundle.columns if column.table)
    stored = sum(bundle.tables[column.table - 1].rows for column in bundle.columns if column.writes)
    latency = bundle.config.record_latency
    waits = cycles.RECORD_STORE + latency if stored else 0
    return cycles.RECORD_START + latency + bundle.batch * fetched, waits + bundle.batch * stored


def repeat_cycles(bundle: Bundle) -> int:
    """Cycles that a tuple waits, which no estimate counts, if all rows that it adds to were added to just before."""
    adds = (one for one in bundle.section(Section.TUPLE) if one.ordered) if Section.TUPLE in bundle.sections else ()
    return cycles.ORDER_WINDOW * sum(one.inner for one in adds)


def repeats_text(waits: int) -> str:
    """What an estimate does not count, given the result of `repeat_cycles`."""
    return (
        f"not counted: an addition to a row of a table waits {cycles.ORDER_WINDOW} cycles if one of the "
        f"{cycles.ORDER_WINDOW} additions before it was to the same row; up to {waits} cycles of a tuple"
    )


def _by_line(parts: Iterable[tuple[Span | None, float]]) -> dict[int, float]:
    """Sums by lines of the rule."""
    lines: dict[int, float] = {}
    for span, amount in parts:
        if span is not None and amount:
            lines[span.line] = lines.get(span.line, 0.0) + amount
    return lines


def _chain(plan: Plan, batch: int) -> list[tuple[Span | None, int]]:
    """The way from a model to its own next value, of the model that takes longest: places in the text, and cycles."""
    graph = plan.graph
    longest: list[tuple[Span | None, int]] = []
    for model in {update.model for update in graph.updates}:
        # nodes are in topological order, so one pass finds the longest way
        after, path = {model: 0}, dict[int, int]()
        for node in graph.nodes:
            before = [operand for operand in plan.operands(node.id) if operand in after]
            if before and node.id in plan.section:
                path[node.id] = max(before, key=lambda operand: after[operand])
                after[node.id] = after[path[node.id]] + _latency(plan, node, batch)
        for update in graph.updates:
            value = plan.resolve(update.value)
            if update.model == model and value in after:
                found = [(update.span, cycles.RESULT_LATENCY if update.index is not None else 0)]
                while value != model:
                    found.append((graph.nodes[value].span, _latency(plan, graph.nodes[value], batch)))
                    value = path[value]
                # each tuple of a batch goes this way where the next one is to see its rows
                times = batch if plan.serial and update.at_once else 1
                found = [(span, times * latency) for span, latency in found]
                longest = max(longest, found, key=lambda way: sum(latency for _, latency in way))
    return longest


def _latency(plan: Plan, node: Node, batch: int) -> int:
    """Cycles from a node's operands to its result."""
    if plan.root(node.id) != node.id:  # a view
        return 0
    if node.op in REDUCTIONS:
        assert node.axis is not None, "a reduction has an axis"
        # halving: log2 of the extent, rounded up, additions one after the other
        shape = plan.graph.concrete_shape(plan.operands(node.id)[0])
        return cycles.RESULT_LATENCY * (shape[node.axis] - 1).bit_length()
    if node.op is Op.MERGE:
        return cycles.RESULT_LATENCY * (batch - 1).bit_length()
    if node.op in ELEMENTWISE and (opcode := Opcode.__members__.get(node.op.name)) is not None and opcode.special:
        return cycles.SPECIAL_LATENCY[opcode]
    return cycles.RESULT_LATENCY


def _section(bundle: Bundle, name: Section) -> SectionCost:
    return SectionCost(
        instructions=len(bundle.section(name)) - 1,
        busy=sum(_busy(bundle, name, kind) for kind in KINDS),
        length=bundle.config.section_length(bundle.section(name)),
    )


def _busy(bundle: Bundle, name: Section, kind: str) -> int:
    """Cycles in which rows of a kind issue in a section."""
    *body, _end = bundle.section(name)
    return sum(i.rows * bundle.config.row_interval(i) for i in body if _kind(i) == kind)


def _kind(instruction: Instruction) -> str:
    if instruction.source is Source.THREAD_XOR:
        return "exchanges of threads"
    if instruction.source is Source.LANE_XOR:
        return "lanes to new places" if instruction.op.chooses else "sums over lanes"
    return "special functions" if instruction.op.special else "rows"


def _work(plan: Plan, node: Node, divide_interval: int) -> tuple[int, int]:
    """Operations of a node, and the cycles that they take in one special function unit."""
    graph = plan.graph
    elements = prod(graph.concrete_shape(node.id))
    if node.op in REDUCTIONS:
        # a sum of n elements takes n - 1 additions
        return prod(graph.concrete_shape(plan.operands(node.id)[0])) - elements, 0
    if node.op is Op.MERGE or node.op is Op.WHERE:
        return elements, 0
    if node.op in ELEMENTWISE:
        opcode = Opcode[node.op.name]
        return (0, elements * cycles.element_interval(opcode, divide_interval)) if opcode.special else (elements, 0)
    return 0, 0
