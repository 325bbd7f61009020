"""How values lie in rows, and which rows of tuple memory hold which input of the rule.

In: a bound graph and the number of lanes of a thread. Out: `InputPlaces`, the seam between the engine program, which
reads these rows, and the column descriptors, which fill them. It must not know of tables, pages or schedules.
"""

from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum
from functools import cached_property

from dana.compiler.place.sections import Plan
from dana.compiler.place.watch import Watched
from dana.compiler.target import Target
from dsl.hdfg.graph import Graph
from hwgen.spec.bundle import InputPlace


class Form(Enum):
    """How a value lies in rows."""

    PACKED = "packed"
    """The last axis over the lanes: `ceil(n / lanes)` rows for each vector of n elements. Scalars that each tuple has
    lie like a vector of a thread's tuples in a round."""
    BROADCAST = "broadcast"
    """A row for each element, the element in every lane, as scalars lie."""

    __hash__ = object.__hash__  # values are looked up by it: Enum's own hashes the name


def row_shape(shape: tuple[int, ...], form: Form, lanes: int) -> tuple[int, ...]:
    """The rows of a value as an array: packed, the last axis counts rows of lanes; broadcast, it counts elements."""
    # a scalar lies in all lanes of one row, in either form
    if form is Form.BROADCAST or not shape:
        return shape
    return (*shape[:-1], -(-shape[-1] // lanes))


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """Where the record that a watched column names lies within a tuple's rows.

    Attributes
    ----------
    offsets
        First row of each of the table's models within the record, in the order of `column.models`.
    """

    column: Watched
    offsets: tuple[int, ...]
    row: int
    rows: int


@dataclass(frozen=True, kw_only=True)
class InputPlaces:
    """Rows of one tuple in tuple memory.

    Attributes
    ----------
    lanes
        Lanes of a thread, the words of a row.
    places
        Every input and output of the rule, in the order of `dana.algo`, one after the other.
    records
        Behind them a record for each watched column, where there are tables in the record memory.
    """

    lanes: int
    places: tuple[InputPlace, ...]
    records: tuple[Record, ...] = ()

    @cached_property
    def rows(self) -> int:
        """Rows of one tuple, the Bundle's `tuple_rows`."""
        return sum(place.rows(self.lanes) for place in self.places) + sum(record.rows for record in self.records)

    @property
    def recorded(self) -> dict[int, tuple[int, int]]:
        """Table, and first row within its records, of each model that lies there, by its node."""
        return {
            model: (record.column.table, offset)
            for record in self.records
            for model, offset in zip(record.column.models, record.offsets, strict=True)
        }

    def text(self) -> str:
        """The places for people: first row, rows, name."""
        lines = (f"{place.row} {place.rows(self.lanes)} {place.name}" for place in self.places)
        records = (f"{one.row} {one.rows} record of table {one.column.table}" for one in self.records)
        return "".join(f"{line}\n" for line in (*lines, *records))

    def place(self, name: str) -> InputPlace:
        """Where the input of that name lies. Raises KeyError where the rule has no such input."""
        return {place.name: place for place in self.places}[name]


def place_inputs(graph: Graph, lanes: int, spread: Collection[int] = ()) -> InputPlaces:
    """Give the inputs of a bound graph rows, one after the other, on threads of so many lanes."""
    places = []
    row = 0
    for node in graph.inputs:
        name = graph.nodes[node].name
        shape = graph.concrete_shape(node)
        places.append(InputPlace(name=name or f"node {node}", shape=shape, row=row, broadcast=node in spread))
        row += places[-1].rows(lanes)
    return InputPlaces(lanes=lanes, places=tuple(places))


def place_inputs_for(plan: Plan, target: Target) -> InputPlaces:
    """The inputs of a plan's rule for a target's lanes."""
    return place_inputs(plan.graph, target.lanes, plan.spread)
