"""Models in the record memory: how the rows of a table's models lie in a record, and where a tuple finds its records.

In: a plan, its forms, the places of inputs. Out: the places with a record behind them for each watched column. What a
record holds follows from forms as the scratchpad's rows do; docs/machine.md, "Records".
"""

from collections.abc import Callable
from dataclasses import replace
from itertools import accumulate
from math import prod

from dana.compiler.place.forms import Forms
from dana.compiler.place.rows import Form, InputPlaces, Record, place_inputs, row_shape
from dana.compiler.place.sections import Plan
from dana.compiler.target import DoesNotFit, Target
from dsl.hdfg.graph import Op
from hwgen.spec.bundle import RECORD_BOUNDARY


def place_records(plan: Plan, inputs: InputPlaces, forms: Forms, target: Target) -> InputPlaces:
    """The places of inputs and records; without `target.records` there are none.

    DoesNotFit where a record is longer than the machine takes them.
    """
    if not target.records:
        return inputs
    placed = _placed(plan, inputs, lambda model: forms.of[model])
    for record in placed.records:
        # 4 bytes a lane; a burst of the board's bus must not cross this boundary (AXI4, A3.4.1)
        if 4 * target.lanes * record.rows > RECORD_BOUNDARY:
            names = ", ".join(plan.graph.nodes[k].name or "" for k in record.column.models)
            raise DoesNotFit(
                f"a row of {names} takes {4 * target.lanes * record.rows} bytes in a record, which has at most "
                f"{RECORD_BOUNDARY}",
                hint="Use shorter rows.",
            )
    return placed


def _placed(plan: Plan, inputs: InputPlaces, form: Callable[[int], Form]) -> InputPlaces:
    row, records = inputs.rows, []
    for column in plan.watched:
        sizes = [prod(row_shape(plan.graph.concrete_shape(k)[1:], form(k), inputs.lanes)) for k in column.models]
        # the last sum is the record's length
        *offsets, rows = accumulate(sizes, initial=0)
        records.append(Record(column=column, offsets=tuple(offsets), row=row, rows=rows))
        row += rows
    return replace(inputs, records=tuple(records))


def tuple_rows(plan: Plan, lanes: int, *, records: bool) -> int:
    """Rows of a tuple, about: forms are not known yet, but records are packed nearly always."""
    inputs = place_inputs(plan.graph, lanes, plan.spread)
    return (_placed(plan, inputs, lambda _: Form.PACKED) if records else inputs).rows


def recorded(plan: Plan) -> frozenset[int]:
    """Models that may lie in records."""
    return frozenset(model for column in plan.watched for model in column.models)


def needs_index(plan: Plan, *, records: bool) -> bool:
    """Whether rows are chosen through the index file: those of models that do not lie in records."""
    if not records:
        return plan.indexed
    elsewhere = recorded(plan)
    gathers = (plan.graph.nodes[k] for k in plan.section if plan.graph.nodes[k].op is Op.GATHER)
    return any(not plan.fixed_row(node.id) and node.inputs[0] not in elsewhere for node in gathers)
