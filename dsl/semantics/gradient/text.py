"""Gradients for people: the operations that lead to a value, and those that its derivative takes.

In: what `Taken` remembers. Out: text. Must not: compute anything.
"""

from __future__ import annotations

from collections.abc import Sequence

from dsl.hdfg.dims import shape_text
from dsl.hdfg.ops import LEAVES
from dsl.semantics.program import Checked, Operation, Taken, reachable


def gradients_text(checked: Checked) -> str:
    """Each gradient of a rule, before and after; ids are those of the recorded operations."""
    return "\n".join(_text(checked, taken) for taken in checked.gradients) or "no gradient is taken\n"


def _text(checked: Checked, taken: Taken) -> str:
    wanted = ", ".join(_name(checked, one) for one in taken.wanted)
    before = reachable([taken.value])
    after = reachable(list(taken.results)) - before
    results = "".join(
        f"  by {_name(checked, one)}: %{result.id}\n" for one, result in zip(taken.wanted, taken.results, strict=True)
    )
    return (
        f"gradient of {_name(checked, taken.value)} by {wanted} @ {taken.span}\n"
        f"before\n{_lines(checked, sorted(before, key=_id))}"
        f"after\n{_lines(checked, sorted(after, key=_id))}{results}"
    )


def _lines(checked: Checked, operations: Sequence[Operation]) -> str:
    return "".join(f"  {_line(checked, operation)}\n" for operation in operations)


def _line(checked: Checked, operation: Operation) -> str:
    words = [f"%{operation.id} = {operation.op}", *(f"%{operand.id}" for operand in operation.operands)]
    if operation.value is not None:
        words.append(f"{operation.value:g}")
    if operation.axis is not None:
        words.append(f"axis={operation.axis}")
    words.append(f": {shape_text(operation.shape)}")
    name = checked.names.get(operation.id)
    return " ".join(words) + (f" {'is' if operation.op in LEAVES else 'as'} {name}" if name else "")


def _name(checked: Checked, operation: Operation) -> str:
    return checked.names.get(operation.id, f"%{operation.id}")


def _id(operation: Operation) -> int:
    return operation.id
