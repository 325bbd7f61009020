"""What a rule would take on several boards, each with a part of every batch. Modelled: no board exchanges sums yet.

In: a bound rule, a table, a device, the link between boards. Out: for each number of boards the best machine, and
the time of an epoch. Boards join sums in pairs, then pairs of pairs, as the threads of a machine do, so that all have
the bits of one machine that takes the boards' rows in turn.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from dana.codesign.search import Candidate, explore
from dana.compiler.binding.columns import Binding
from dana.errors import UsageError
from dana.storage import layout
from dana.storage.schema import TableSchema
from dsl.hdfg.graph import Graph, Op
from hwgen.devices import Device
from hwgen.spec import cycles

MOST = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A link between two boards. The defaults are assumed: an Ethernet of 100 Gb/s and its switch."""

    rate: float = 12.5e9
    """Bytes a second, in each direction."""
    latency: float = 2e-6
    """Seconds from the last byte's departure on one board to its arrival on the other."""


LINK = Link()


@dataclass(frozen=True, slots=True, kw_only=True)
class Boards:
    """A number of boards, each with the best machine for its part."""

    count: int
    each: Candidate
    working: float
    """Seconds of an epoch in which boards train."""
    exchanging: float
    """Seconds in which they exchange sums."""

    @property
    def seconds(self) -> float:
        """Of an epoch."""
        return self.working + self.exchanging


def over_boards(
    binding: Binding, schema: TableSchema, device: Device, *, most: int, pages: int, page_size: int, link: Link = LINK
) -> list[Boards]:
    """One board, two, four, up to `most`, each with as many pages and tuples of a batch as the others.

    Raises
    ------
    UsageError
        The rule has no sums to exchange, a batch cannot be divided so, or no machine fits.
    """
    graph = binding.graph
    merged = merged_numbers(graph)
    if not merged or any(graph.by_tuple(update) for update in graph.updates):
        raise UsageError(
            "a rule on several boards must merge all that a batch changes; this one changes models tuple by tuple",
            hint="Leave out --boards.",
        )
    if most not in (count := [1 << k for k in range(MOST.bit_length())]) or (graph.batch or most) % most:
        batch = "" if graph.batch is None else f" that divides the batch of {graph.batch:,} tuples"
        raise UsageError(f"--boards must be a power of two up to {MOST}{batch}, not {most}")
    made = []
    for boards in count[: most.bit_length()]:
        part = None if graph.batch is None else graph.batch // boards
        own = replace(binding, graph=replace(graph, batch=part))
        share = pages / boards
        tuples = max(1, round(share * page_size / layout.SMALLEST_TUPLE))
        best = explore(own, schema, device, max_tuples=tuples, page_size=page_size).best
        config = best.bundle.config
        batches = 1 if part is None else share * best.cycles.tuples / part
        # a sum that arrived is added to a board's own, a row of lanes in a cycle
        adding = (-(-merged // config.lanes) + cycles.RESULT_LATENCY) / config.clock_hz
        step = link.latency + 4 * merged / link.rate + adding
        made.append(
            Boards(
                count=boards,
                each=best,
                working=best.cycles.epoch(share) / config.clock_hz,
                exchanging=batches * (boards.bit_length() - 1) * step,
            )
        )
    return made


def merged_numbers(graph: Graph) -> int:
    """Numbers of a batch's sums, its loss included, where that is not one of them."""
    sums = [prod(graph.concrete_shape(node.id)) for node in graph.nodes if node.op is Op.MERGE]
    return sum(sums) + (bool(sums) and graph.loss is not None)
