"""Short packed vectors that repeat over the lanes of their rows.

In: a plan, its forms, a target. Out: the nodes with packed values that repeat. It emits nothing.

A vector of n elements, n at most half the lanes, repeats if element e lies in every lane that has e in the low ⌈log₂ n⌉
bits of its number. Broadcasting such a row takes fewer consecutive steps than one with its elements in the first lanes.
So rows that a tuple gathers and broadcasts are made to repeat at the start of an epoch, if everything that is written
over them repeats by itself: results of crossed folds and of packing do, and so do values computed from them lane by
lane."""

from dana.compiler.place.forms import Forms, narrow
from dana.compiler.place.rows import Form
from dana.compiler.place.sections import Plan
from dana.compiler.target import Target
from dsl.hdfg.graph import ELEMENTWISE, REDUCTIONS, Op


def find_repeats(plan: Plan, forms: Forms, target: Target) -> frozenset[int]:
    """The nodes with packed values that repeat."""
    if target.records:  # `init` cannot make records repeat
        return frozenset()
    graph, lanes = plan.graph, target.lanes
    models = {
        graph.nodes[k].inputs[0]
        for k in plan.section
        if graph.nodes[k].op is Op.GATHER and not plan.fixed_row(k) and _broadcast_later(plan, forms, k)
    }
    models = {model for model in models if _short(plan, forms, model, lanes)}
    # whether values repeat depends on which models do: remove models until every new value repeats
    while models:
        found = set(models)
        for node in graph.nodes:
            if (
                node.id in plan.section
                and _short(plan, forms, node.id, lanes)
                and _repeats(plan, forms, node.id, found)
            ):
                found.add(node.id)
        lost = {
            update.model
            for number, update in enumerate(graph.updates)
            if update.model in models and not _packed_so(forms, plan.resolve(update.value), forms.stored(number), found)
        }
        if not lost:
            return frozenset(found)
        models -= lost
    return frozenset()


def _broadcast_later(plan: Plan, forms: Forms, gathered: int) -> bool:
    """Whether what was gathered packed is read broadcast."""
    readers = [(k, position) for k in plan.section for position, o in enumerate(plan.operands(k)) if o == gathered]
    return forms.of[gathered] is Form.PACKED and any(forms.wanted(*reader) is Form.BROADCAST for reader in readers)


def _short(plan: Plan, forms: Forms, k: int, lanes: int) -> bool:
    shape = plan.graph.concrete_shape(k)
    return not narrow(shape) and forms.of[k] is Form.PACKED and 2 * (1 << (shape[-1] - 1).bit_length()) <= lanes


def _packed_so(forms: Forms, k: int, wanted: Form, found: set[int]) -> bool:
    """Whether an operand is the same in lanes that agree in their low bits: broadcast, packed from that, or found."""
    if forms.plan.graph.nodes[k].op is Op.ARANGE:  # a packed one is a row of the image
        return wanted is Form.BROADCAST
    return Form.BROADCAST in (wanted, forms.of[k]) or k in found


def _repeats(plan: Plan, forms: Forms, k: int, found: set[int]) -> bool:
    """Whether a node's packed value does, if those found so far do."""
    node, operands = plan.graph.nodes[k], plan.operands(k)
    if node.op is Op.GATHER:
        return operands[0] in found
    if node.op in REDUCTIONS and node.axis == len(plan.graph.concrete_shape(operands[0])) - 1:
        # a fold leaves its result in every lane that the exchanges reach
        return True
    if node.op in (*ELEMENTWISE, *REDUCTIONS, Op.MERGE, Op.EXPAND):
        return all(_packed_so(forms, o, forms.wanted(k, position), found) for position, o in enumerate(operands))
    return False
