"""Result of instruction selection: operations of each section, and the buffers that they work on."""

from dataclasses import dataclass

from dana.compiler.place.rows import Form
from dana.compiler.select.ops import Buffer, VectorOp
from dana.compiler.select.values import Value
from hwgen.spec.engine import Opcode, Section


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Operations and the buffers that outlive a section.

    Attributes
    ----------
    ops
        Operations of each section that has some; `tuple` is always there.
    literals, ranges, metas, models, state
        See `Store`.
    loss, convergence
        Buffers of the two results, if the rule has them.
    merges
        (operation, value) of what a round is merged to, in the rule's order, the loss last.
    block
        (operation, buffer) of the merge block's parts, parts of one operation side by side.
    whole_block, stack
        Buffers that stand for all of the block and for the merge stack; None without a stack.
    indices
        (number's node, model's node) of the rows that tuples choose, by the tag of the fault INDEX.
    """

    ops: dict[Section, list[VectorOp]]
    literals: dict[int, Buffer]
    ranges: dict[tuple[int, Form], Buffer]
    metas: dict[int, Buffer]
    models: dict[int, Value]
    state: tuple[Buffer, ...]
    loss: Buffer | None
    convergence: Buffer | None
    merges: tuple[tuple[Opcode, Value], ...]
    block: tuple[tuple[Opcode, Buffer], ...]
    whole_block: Buffer
    stack: Buffer | None
    indices: tuple[tuple[int, int], ...]

    def text(self) -> str:
        """The operations for people."""
        lines = []
        for section, ops in self.ops.items():
            lines += [f"{section}:", *(f"    {op}" for op in ops)]
        return "\n".join(lines) + "\n"
