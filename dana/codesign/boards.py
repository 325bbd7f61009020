"""What a rule takes on several boards, each with a part of every batch, which their hosts join.

In: a bound rule, a table, a device, the network between hosts. Out: for each number of boards the best machine, and the
time of an epoch. A machine pauses behind the merges of a batch (docs/machine.md, "Pauses") while its host reads them,
sends them to the others and writes what all are joined to: with the bits of one machine that takes the boards' rows in
turn. The model of a pause is the host's accesses, as the board's bus answers them, and the network; the simulator
counts an epoch with such pauses.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from dana.codesign.cycles import measure_cycles
from dana.codesign.sample import sample_pages
from dana.codesign.search import Candidate, explore
from dana.compiler.binding.columns import Binding
from dana.errors import UsageError
from dana.storage import layout
from dana.storage.schema import TableSchema
from hwgen.devices import Device
from hwgen.spec.bundle import Bundle

MOST = 16

READ_CYCLES, WRITE_CYCLES, PAUSE_CYCLES = 17, 7, 60
"""Cycles of an access to a word of the scratchpad over the board's control bus, and of all others in a pause: those of
the RTL, for a host that asks for the next word in the cycle after an answer (`tests/codesign/test_boards.py`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """What hosts reach each other by. The defaults are assumed: an Ethernet of 100 Gb/s and its switch."""

    rate: float = 12.5e9
    """Bytes a second, in each direction."""
    latency: float = 2e-6
    """Seconds from the last byte's departure at one host to its arrival at the other."""


LINK = Link()


@dataclass(frozen=True, slots=True, kw_only=True)
class Boards:
    """A number of boards, each with the best machine for its part."""

    count: int
    each: Candidate
    pause: int
    """Cycles of each pause."""
    working: float
    """Seconds of an epoch without pauses."""
    seconds: float
    """Seconds of an epoch."""

    @property
    def exchanging(self) -> float:
        """Seconds that pauses add."""
        return self.seconds - self.working


def over_boards(
    binding: Binding, schema: TableSchema, device: Device, *, most: int, pages: int, page_size: int, link: Link = LINK
) -> list[Boards]:
    """One board, two, four, up to `most`, each with as many pages and tuples of a batch as the others.

    Raises
    ------
    UsageError
        The rule has no sums to join, a batch cannot be divided so, or no machine fits.
    """
    graph = binding.graph
    if not graph.has_merge or any(graph.by_tuple(update) for update in graph.updates):
        raise UsageError(
            "a rule on several boards must merge all that a batch changes; this one changes models tuple by tuple",
            hint="Leave out --boards.",
        )
    if most not in (count := [1 << k for k in range(MOST.bit_length())]) or (graph.batch or most) % most:
        batch = "" if graph.batch is None else f" that divides the batch of {graph.batch:,} tuples"
        raise UsageError(f"--boards must be a power of two up to {MOST}{batch}, not {most}")
    sample = sample_pages(schema, page_size=page_size)
    made = []
    for boards in count[: most.bit_length()]:
        part = None if graph.batch is None else graph.batch // boards
        own = replace(binding, graph=replace(graph, batch=part))
        share = pages / boards
        tuples = max(1, round(share * page_size / layout.SMALLEST_TUPLE))
        design = {"pause": int(boards > 1)}
        best = explore(own, schema, device, max_tuples=tuples, page_size=page_size, design=design).best
        if boards > 1 and not best.bundle.merges:
            raise UsageError(
                "a rule on several boards must merge a batch once, and then change its models; this one uses values of "
                f"a batch in its tuples again, or has batches of one tuple on {boards} boards",
                hint="Leave out --boards, or give fewer, or a larger batch.",
            )
        pause = pause_cycles(best.bundle, boards, link) if boards > 1 else 0
        cycles = measure_cycles(best.bundle, sample, pause=pause) if boards > 1 else best.cycles
        clock_hz = best.bundle.config.clock_hz
        made.append(
            Boards(
                count=boards,
                each=best,
                pause=pause,
                working=best.cycles.epoch(share) / clock_hz,
                seconds=cycles.epoch(share) / clock_hz,
            )
        )
    return made


def pause_cycles(bundle: Bundle, boards: int, link: Link) -> int:
    """Cycles of a pause: a host reads the merges, has those of all others, and writes what they are joined to."""
    config = bundle.config
    words = sum(symbol.rows(config.lanes) for symbol in bundle.merges) * config.lanes
    seconds = link.latency + (boards - 1) * 4 * words / link.rate
    return PAUSE_CYCLES + words * (READ_CYCLES + WRITE_CYCLES) + round(seconds * config.clock_hz)
