"""Instruction selection: nodes of the graph become vector operations over buffers.

In: a plan and the shape of the machine and of a round. Out: a `Selection`. Operations of a section stand in an order in
which they may run; nothing has an address, and no cycle is counted.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from dana.compiler.fold import fold
from dana.compiler.layout import TupleLayout
from dana.compiler.merge import merge_levels, merge_round
from dana.compiler.ops import Buffer, Home, VectorOp
from dana.compiler.sections import Plan
from dana.compiler.update import Kind, Order, Step, order_updates
from dana.compiler.values import Emitter, Value
from dana.errors import InternalError
from dsl.binary32 import bits_of
from dsl.hdfg.graph import BINARY, UNARY, Node, Op
from hwgen.spec.engine import Opcode, Section

OPCODES = {
    Op.ADD: Opcode.ADD,
    Op.SUB: Opcode.SUB,
    Op.MUL: Opcode.MUL,
    Op.DIV: Opcode.DIV,
    Op.NEG: Opcode.NEG,
    Op.LT: Opcode.LT,
    Op.GT: Opcode.GT,
    Op.LE: Opcode.LE,
    Op.GE: Opcode.GE,
    Op.EQ: Opcode.EQ,
    Op.SIGMOID: Opcode.SIGMOID,
    Op.GAUSSIAN: Opcode.GAUSSIAN,
    Op.SQRT: Opcode.SQRT,
    Op.EXP: Opcode.EXP,
    Op.LOG: Opcode.LOG,
    Op.ABS: Opcode.ABS,
    Op.MAX: Opcode.MAX,
    Op.MIN: Opcode.MIN,
    Op.SIGMA: Opcode.ADD,
    Op.PI: Opcode.MUL,
}
MERGES = {"add": Opcode.ADD, "mul": Opcode.MUL, "max": Opcode.MAX, "min": Opcode.MIN}


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Operations and the buffers that outlive a section.

    Attributes
    ----------
    ops
        Operations of each section that has some; `tuple` is always there.
    literals
        Bit pattern and buffer of each literal.
    ranges
        Length and buffer of each vector 0, 1, 2 …
    metas, models
        Node and buffer.
    state
        Buffers that live as long as the epoch, without the image's.
    loss, convergence
        Buffers of the two results, if the rule has them.
    block
        (operation, buffer) of the merge block's parts, parts of one operation side by side.
    whole_block, stack
        Buffers that stand for all of the block and for the merge stack; None without a stack.
    """

    ops: dict[Section, list[VectorOp]]
    literals: dict[int, Buffer]
    ranges: dict[int, Buffer]
    metas: dict[int, Buffer]
    models: dict[int, Buffer]
    state: tuple[Buffer, ...]
    loss: Buffer | None
    convergence: Buffer | None
    block: tuple[tuple[Opcode, Buffer], ...]
    whole_block: Buffer
    stack: Buffer | None

    def text(self) -> str:
        """The operations for people."""
        lines = []
        for section, ops in self.ops.items():
            lines += [f"{section}:", *(f"    {op}" for op in ops)]
        return "\n".join(lines) + "\n"


def select(plan: Plan, layout: TupleLayout, *, threads: int, group: int, levels: int) -> Selection:
    """Make the operations of a rule.

    Parameters
    ----------
    group
        Tuples of a thread in a round.
    levels
        Levels of the merge stack; 0 if every batch is one round.
    """
    return _Selector(plan, layout, threads, group).select(levels)


class _Selector:
    def __init__(self, plan: Plan, layout: TupleLayout, threads: int, group: int) -> None:
        self.plan = plan
        self.graph = plan.graph
        self.emitter = Emitter(lanes=layout.lanes, threads=threads, group=group)
        self.literals: dict[int, Buffer] = {}
        self.ranges: dict[int, Buffer] = {}
        self.metas = {k: self._row(Home.IMAGE, self.graph.nodes[k].name or "meta") for k in self.graph.metas}
        self.models = {k: self._model(self.graph.nodes[k]) for k in self.graph.models}
        self.state: list[Buffer] = []
        self.loss: Buffer | None = None
        self.convergence: Buffer | None = None
        self.block: list[tuple[Opcode, Buffer]] = []
        self.values: dict[int, Value] = {}
        self.copies: dict[int, Value] = {}
        self.batch_loss: Value | None = None
        self.uses = self._count_uses()
        self._place_leaves(layout)

    def select(self, levels: int) -> Selection:
        order = order_updates(self.plan)
        for k in self.plan.of(Section.INIT):
            self._lasting(k)
        if not self.plan.single:
            for k in self.plan.of(Section.TUPLE):
                self._node(k, Section.TUPLE)
            if self.graph.loss is not None:
                self._loss_of_round(self.graph.loss)
        for step in order.steps:
            self._step(step, order)
        self._epoch()
        self.emitter.node = -1
        # parts of one operation side by side, so that a level is joined by one instruction for each operation
        block = sorted(self.block, key=lambda part: part[0])
        whole = Buffer(name="block", rows=sum(buffer.rows for _, buffer in block), home=Home.BLOCK)
        stack = Buffer(name="stack", rows=levels * whole.rows, home=Home.STACK) if levels else None
        # the sequencer runs these whenever a batch has several rounds
        always = {Section.TUPLE}
        if stack is not None:
            merge_levels(self.emitter, whole, stack, _parts(block))
            always |= {Section.MERGE, Section.PUSH}
        ops = {section: found for section, found in self.emitter.ops.items() if found or section in always}
        return Selection(
            ops=ops,
            literals=self.literals,
            ranges=self.ranges,
            metas=self.metas,
            models=self.models,
            state=tuple(self.state),
            loss=self.loss,
            convergence=self.convergence,
            block=tuple(block),
            whole_block=whole,
            stack=stack,
        )

    # --- places ---------------------------------------------------------------------------------------------------

    def _row(self, home: Home, name: str) -> Buffer:
        return Buffer(name=name, rows=1, home=home)

    def _state(self, name: str, shape: tuple[int, ...] = ()) -> Value:
        self.state.append(Buffer(name=name, rows=self.emitter.rows(shape), home=Home.STATE))
        return Value(buffer=self.state[-1], shape=shape)

    def _model(self, node: Node) -> Buffer:
        rows = self.emitter.rows(self.graph.concrete_shape(node.id))
        return Buffer(name=node.name or "model", rows=rows, home=Home.IMAGE)

    def _literal(self, value: float) -> Value:
        bits = bits_of(value)
        if bits not in self.literals:
            self.literals[bits] = self._row(Home.IMAGE, f"{value:g}")
        return Value(buffer=self.literals[bits])

    def _range(self, k: int) -> Value:
        shape = self.graph.concrete_shape(k)
        if shape[0] not in self.ranges:
            rows = self.emitter.rows(shape)
            self.ranges[shape[0]] = Buffer(name=f"0..{shape[0] - 1}", rows=rows, home=Home.IMAGE)
        return Value(buffer=self.ranges[shape[0]], shape=shape)

    def _place_leaves(self, layout: TupleLayout) -> None:
        tuples = Buffer(name="tuple", rows=self.emitter.group * layout.rows, home=Home.TUPLE)
        stride = layout.rows if self.emitter.group > 1 else 0
        for k in self.graph.inputs:
            place = layout.place(self.graph.nodes[k].name or f"node {k}")
            self.values[k] = Value(buffer=tuples, base=place.row, shape=place.shape, stride=stride)
        for k, buffer in self.models.items():
            self.values[k] = Value(buffer=buffer, shape=self.graph.concrete_shape(k))
        for k, buffer in self.metas.items():
            self.values[k] = Value(buffer=buffer)

    def _count_uses(self) -> Counter[int]:
        uses: Counter[int] = Counter()
        for k in self.plan.section:
            uses.update(self.plan.operands(k))
        uses.update(self.plan.resolve(root) for root in self.graph.training_roots)
        return uses

    def _value(self, k: int) -> Value:
        k = self.plan.resolve(k)
        if k in self.values:
            return self.values[k]
        node = self.graph.nodes[k]
        if node.op is Op.ARANGE:
            return self._range(k)
        if node.op is not Op.CONST or node.value is None:
            raise InternalError(f"node {k} ({node.op.value}) of rule {self.graph.name!r} is used before it is computed")
        return self._literal(node.value)

    def _last_use(self, k: int) -> bool:
        """Whether the only reader of a node may overwrite its value."""
        k = self.plan.resolve(k)
        return self.uses[k] == 1 and k in self.values and self.values[k].owned

    # --- nodes ----------------------------------------------------------------------------------------------------

    def _lasting(self, k: int) -> None:
        """Compute a node in `init`, for all of the epoch."""
        state = self._state(self._name(k), self.graph.concrete_shape(k))
        self._node(k, Section.INIT, state)
        if self.values[k].buffer is not state.buffer:
            self.emitter.elementwise(Section.INIT, Opcode.MOV, state, self.values[k])
            self.values[k] = state

    def _node(self, k: int, section: Section, target: Value | None = None) -> None:
        """Compute a node, into `target` if given and if it is no reduction."""
        node = self.graph.nodes[k]
        self.emitter.node = k
        if node.op is Op.MERGE:
            self._merge(k, node)
        elif node.op in (Op.SIGMA, Op.PI):
            (operand,) = self.plan.operands(k)
            self.values[k] = fold(
                self.emitter,
                section,
                OPCODES[node.op],
                self._value(operand),
                in_place=self._last_use(operand),
                name=self._name(k),
            )
        elif node.op is Op.WHERE:
            self.values[k] = self._where(k, section, target)
        elif node.op in UNARY or node.op in BINARY:
            result = target or self._room(k)
            self.emitter.elementwise(section, OPCODES[node.op], result, *map(self._value, self.plan.operands(k)))
            self.values[k] = result
        else:
            raise InternalError(f"no operation for node {k} ({node.op.value}) of rule {self.graph.name!r}")

    def _name(self, k: int) -> str:
        return self.graph.nodes[k].name or f"%{k}"

    def _room(self, k: int) -> Value:
        shape = self.graph.concrete_shape(k)
        return self.emitter.temporary(self._name(k), shape, per_tuple=k in self.plan.per_tuple)

    def _where(self, k: int, section: Section, target: Value | None) -> Value:
        """otherwise first, then the lanes in which the condition holds."""
        condition, then, otherwise = self.plan.operands(k)
        base = self._value(otherwise)
        result = target or self._room(k)
        if target is None and self._last_use(otherwise) and (base.shape, base.stride) == (result.shape, result.stride):
            result = base
        elif (base.buffer, base.base) != (result.buffer, result.base):
            self.emitter.elementwise(section, Opcode.MOV, result, base)
        self.emitter.elementwise(section, Opcode.MOVC, result, self._value(then), self._value(condition))
        return result

    def _merge(self, k: int, node: Node) -> None:
        (operand,) = self.plan.operands(k)
        op = MERGES[node.merge_op or "add"]
        self.values[k] = self._merged(op, operand, self._name(k), in_place=self._last_use(operand))

    def _merged(self, op: Opcode, operand: int, name: str, *, in_place: bool) -> Value:
        value = self._value(operand)
        buffer = Buffer(name=name, rows=self.emitter.rows(value.shape), home=Home.BLOCK)
        self.block.append((op, buffer))
        block = Value(buffer=buffer, shape=value.shape, owned=True)
        merge_round(self.emitter, op, value, block, in_place=in_place, name=name)
        return block

    # --- loss, convergence, updates -------------------------------------------------------------------------------

    def _loss_of_round(self, root: int) -> None:
        self.emitter.node = self.plan.resolve(root)
        in_place = self._last_use(root)
        self.batch_loss = self._merged(Opcode.ADD, root, "batch_loss", in_place=in_place)

    def _step(self, step: Step, order: Order) -> None:
        section = self.plan.update_section
        if step.kind is Kind.NODE:
            model = order.target.get(step.id)
            test = self.graph.convergence is not None and self.plan.resolve(self.graph.convergence) == step.id
            if model is not None:
                target = self.values[model]
                self._node(step.id, section, Value(buffer=target.buffer, shape=target.shape))
            elif test and self.uses[step.id] == 1 and self.graph.nodes[step.id].op not in (Op.SIGMA, Op.PI):
                self._node(step.id, section, self._test())
            else:
                self._node(step.id, section)
        elif step.kind is Kind.COPY:
            self.emitter.node = step.id
            copy = self.copies.setdefault(step.id, self._room(step.id))
            self.emitter.elementwise(section, Opcode.MOV, copy, self._value(step.id))
        elif step.kind is Kind.LOSS:
            self._kahan(section)
        elif step.kind is Kind.TEST:
            self._leave_test(section)
        else:
            update = self.graph.updates[step.id]
            value = self.plan.resolve(update.value)
            self.emitter.node = value
            new = self.copies[value] if value in self.copies else self._value(value)
            self.emitter.elementwise(section, Opcode.MOV, self.values[update.model], new)

    def _kahan(self, section: Section) -> None:
        """The epoch's loss, each batch's added with the error of the sums before."""
        emitter = self.emitter
        assert self.graph.loss is not None
        emitter.node = self.plan.resolve(self.graph.loss)
        batch = self.batch_loss or self._value(self.graph.loss)
        total, carry = self._state("loss"), self._state("carry")
        self.loss = total.buffer
        for value in (total, carry):
            emitter.elementwise(Section.INIT, Opcode.MOV, value, self._literal(0.0))
        y, t, d = (emitter.temporary(name, (), per_tuple=False) for name in ("y", "t", "d"))
        emitter.elementwise(section, Opcode.SUB, y, batch, carry)
        emitter.elementwise(section, Opcode.ADD, t, total, y)
        emitter.elementwise(section, Opcode.SUB, d, t, total)
        emitter.elementwise(section, Opcode.SUB, carry, d, y)
        emitter.elementwise(section, Opcode.MOV, total, t)

    def _test(self) -> Value:
        """The row of the convergence test's value."""
        if self.convergence is None:
            self.convergence = self._state("convergence").buffer
        return Value(buffer=self.convergence)

    def _leave_test(self, section: Section) -> None:
        assert self.graph.convergence is not None
        root = self.plan.resolve(self.graph.convergence)
        self.emitter.node = root
        value, test = self._value(root), self._test()
        if value.buffer is not test.buffer:
            self.emitter.elementwise(section, Opcode.MOV, test, value)

    def _epoch(self) -> None:
        nodes = self.plan.of(Section.EPOCH)
        for k in nodes:
            root = self.graph.convergence is not None and self.plan.resolve(self.graph.convergence) == k
            plain = self.uses[k] == 1 and self.graph.nodes[k].op not in (Op.SIGMA, Op.PI)
            self._node(k, Section.EPOCH, self._test() if root and plain else None)
        if nodes:
            self._leave_test(Section.EPOCH)


def _parts(block: list[tuple[Opcode, Buffer]]) -> list[tuple[Opcode, int, int]]:
    """(operation, first row, rows) of each run of parts with one operation."""
    parts: list[tuple[Opcode, int, int]] = []
    row = 0
    for op, buffer in block:
        if parts and parts[-1][0] is op:
            op, first, rows = parts.pop()
            parts.append((op, first, rows + buffer.rows))
        else:
            parts.append((op, row, buffer.rows))
        row += buffer.rows
    return parts
