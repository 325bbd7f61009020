"""Whether a machine has the hardware that a program uses.

In: a program and the machine. Out: nothing, or the error that names the values behind it. Memories are `fit.py`'s.
"""

from dana.compiler.place.forms import Forms
from dana.compiler.place.sections import Plan
from dana.compiler.schedule.encode import Program
from dana.compiler.target import DoesNotFit
from dsl.hdfg.graph import Node, Op
from hwgen.spec.config import MachineConfig, functions_mask


def require_hardware(plan: Plan, forms: Forms, program: Program, config: MachineConfig) -> None:
    """Raise DoesNotFit if the machine lacks a special function or the crossed exchanges that the rule needs."""
    graph = plan.graph
    used = {instruction.op for instruction in program.instructions}
    lacking = [op.name.lower() for op in sorted(used) if op.special and not config.has(op)]
    if lacking:
        raise DoesNotFit(
            f"rule {graph.name!r} computes {', '.join(lacking)}; the machine has no unit for that",
            hint=f"Set functions to {config.functions | functions_mask(used)}.",
        )
    if config.lacking(program.instructions):
        moved = [_described(graph.nodes[k]) for k in forms.converted()]
        if not moved:
            why = "draws random numbers in several threads"
            if not any(node.op is Op.ROW for node in graph.nodes):
                why = "adds the losses of tuples in several threads"
            raise DoesNotFit(
                f"rule {graph.name!r} {why}, which takes exchanges that cross; the machine has none",
                hint="Set crossed to 1, or threads to 1.",
            )
        named = ", ".join(moved[:3]) + (f" and {len(moved) - 3} other values" if len(moved) > 3 else "")
        raise DoesNotFit(
            f"rule {graph.name!r} needs elements of {named} in other lanes than they lie in; the machine's exchanges "
            "do not cross, so it cannot move them",
            hint="Set crossed to 1.",
        )


def _described(node: Node) -> str:
    """A readable name for a value."""
    if node.name is not None:
        return node.name
    return f"the {node.op.value}" + (f" in line {node.span.line}" if node.span is not None else "")
