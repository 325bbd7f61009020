"""How large a rule may be: what any machine holds.

In: a rule and its plan. Out: nothing, or the error that says what there is too much of, before anything is placed.
"""

from math import prod

from dana.compiler.place.records import recorded
from dana.compiler.place.rows import Form, place_inputs, row_shape
from dana.compiler.place.sections import Plan
from dana.compiler.target import DoesNotFit
from dsl.hdfg.graph import Graph
from hwgen.spec.config import LANES_PER_CLUSTER, MAX_DEPTHS, MachineConfig
from hwgen.spec.engine import MAX_CHOSEN
from hwgen.spec.registers import SCRATCH_BITS

MAX_WORDS = 1 << SCRATCH_BITS
"""Words of a thread's scratchpad that a host can address, so of any that is built."""

MAX_LANES = 16 * LANES_PER_CLUSTER

MAX_CONFIG = MachineConfig(**MAX_DEPTHS, program_depth=65536, strider_depth=65536, descriptor_depth=4096)


def model_words(plan: Plan, clusters: int, *, records: bool = False) -> int:
    """Words of a thread's scratchpad that models take, about: each row that may be chosen is one of its own.

    Parameters
    ----------
    records
        Whether those lie in the record memory that may.
    """
    lanes, words = clusters * LANES_PER_CLUSTER, 0
    elsewhere = recorded(plan) if records else frozenset()
    for k in plan.graph.models:
        if k in elsewhere:
            continue
        form = Form.BROADCAST if k in plan.chosen and len(plan.graph.nodes[k].shape) == 1 else Form.PACKED
        words += lanes * prod(row_shape(plan.graph.concrete_shape(k), form, lanes))
    return words


def check_size(graph: Graph, plan: Plan) -> None:
    """Raise DoesNotFit at once where models alone, or a tuple, are larger than any machine's memory."""
    widest = place_inputs(graph, MAX_LANES)
    elsewhere = {plan.graph.nodes[k].name for k in recorded(plan)}  # of these a board's memory says how many fit
    shapes = [graph.concrete_shape(k) for k in graph.models if graph.nodes[k].name not in elsewhere]
    rows = sum(prod(shape[:-1]) for shape in shapes)
    numbers = sum(map(prod, shapes))
    have, most = f"{numbers:,} numbers", f"{MAX_WORDS:,}"
    largest = max((shape[0] for k in graph.models if (shape := graph.concrete_shape(k))), default=0)
    if largest > MAX_CHOSEN:
        raise DoesNotFit(
            f"a model of rule {graph.name!r} has {largest:,} rows, a number can choose one of {MAX_CHOSEN:,}",
            hint="Use several models, or leave out rows that hardly any row of the table chooses.",
        )
    if rows > MAX_CONFIG.scratch_depth:
        have, most = f"{rows:,} rows", f"{MAX_CONFIG.scratch_depth:,}"
    # models of chosen rows may be larger than any hardware's: the simulator holds them, with a notice
    if rows > MAX_CONFIG.scratch_depth or (numbers > MAX_WORDS and not plan.indexed):
        raise DoesNotFit(
            f"the models of rule {graph.name!r} have {have}, a machine holds at most {most}",
            hint="Use models of fewer elements.",
        )
    if 2 * widest.rows > MAX_CONFIG.tuple_depth:
        raise DoesNotFit(
            f"a tuple of rule {graph.name!r} takes {widest.rows:,} rows of {MAX_LANES} lanes, a machine's tuple memory "
            f"holds two of at most {MAX_CONFIG.tuple_depth // 2:,}",
            hint="Train on fewer columns, or on a part of the array.",
        )
