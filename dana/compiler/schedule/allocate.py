"""Memory map: an address for every buffer.

In: a selection and its schedules. Out: the scratchpad's rows, from the image at row 0 up. Buffers that live at the same
time never overlap, with one exception: an operation may overwrite an operand that nothing reads after it, if each row
is read no later than it is written.

    image | state | block | stack, level by level | temporaries | models of bfloat16

These come last, where a machine may have narrow rows (`MachineConfig.wide_depth`).
"""

from bisect import insort
from collections.abc import Mapping
from dataclasses import dataclass
from operator import attrgetter

from dana.compiler.place.sections import Plan
from dana.compiler.schedule.list_scheduling import Schedule
from dana.compiler.select.ops import Access, Buffer, Home, VectorOp
from dana.compiler.select.selection import Selection
from hwgen.spec.engine import Section

LINE = (Section.TUPLE, Section.BATCH, Section.EPOCH)
"""Sections with temporaries in shared rows: a value may live from one to the next."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryMap:
    """Rows of the scratchpad.

    Attributes
    ----------
    address
        First row of each buffer.
    image, state, block, stack, temporaries, narrow
        Rows of each part, in this order from row 0.
    """

    address: Mapping[Buffer, int]
    image: int
    state: int
    block: int
    stack: int
    temporaries: int
    narrow: int

    @property
    def wide(self) -> int:
        """Rows that hold numbers of binary32."""
        return self.image + self.state + self.block + self.stack + self.temporaries

    @property
    def rows(self) -> int:
        """Rows of the scratchpad in use."""
        return self.wide + self.narrow

    @property
    def loaded(self) -> int:
        """Rows that the host loads: to the last one with a start value."""
        return self.rows if self.narrow else self.image

    @property
    def lasting(self) -> list[tuple[int, str, int]]:
        """Row, name and size of each buffer that outlives a section."""
        lasting = (Home.IMAGE, Home.STATE)
        return sorted((row, b.name, b.rows) for b, row in self.address.items() if b.home in lasting)

    def text(self) -> str:
        """The map for people."""
        parts = ("image", "state", "block", "stack", "temporaries", *(["narrow"] if self.narrow else []))
        lines = [f"{part} {getattr(self, part)}" for part in parts]
        places = sorted(self.address.items(), key=lambda item: (item[1], item[0].name))
        lines += [f"    {row}..{row + b.rows - 1} {b.name} ({b.home.value})" for b, row in places]
        return "\n".join(lines) + "\n"


@dataclass(slots=True)
class _Extent:
    start: int
    rows: int
    last: int
    """Position of the last operation that reads or writes it."""

    @property
    def stop(self) -> int:
        return self.start + self.rows


def allocate(plan: Plan, selection: Selection, schedules: Mapping[Section, Schedule], above: int) -> MemoryMap:
    """Place every buffer; models of bfloat16 from row `above` on, or behind it if all else takes more."""
    address: dict[Buffer, int] = {}
    row = 0
    sizes = []
    block = [buffer for _, buffer in selection.block]
    image = [*selection.literals.values(), *selection.ranges.values()]
    models = {k: model.buffer for k, model in selection.models.items()}
    narrow = [buffer for k, buffer in models.items() if plan.graph.nodes[k].init.narrow]
    image += [*selection.metas.values(), *(buffer for buffer in models.values() if buffer not in narrow)]
    stack = [selection.stack] if selection.stack is not None else []
    # in the order of the memory map; `sizes` is read by these places below
    for part in (image, list(selection.state), block, stack):
        start = row
        for buffer in part:
            address[buffer] = row
            row += buffer.rows
        sizes.append(row - start)
    # an operation on all of the block has its own buffer, over those of the parts
    address[selection.whole_block] = row - sizes[3] - sizes[2]
    ops = [op for section in LINE if section in schedules for op, _ in schedules[section].issue]
    # operations of `tuple` come first in `ops`
    first_batch = len(schedules[Section.TUPLE].issue)
    top = _place_temporaries(ops, block, first_batch, address, row)
    if Section.INIT in schedules:  # its temporaries are dead before the first tuple
        first = [op for op, _ in schedules[Section.INIT].issue]
        top = max(top, _place_temporaries(first, [], 0, address, row))
    end = top = max(top, above) if narrow else top
    for buffer in narrow:
        address[buffer] = end
        end += buffer.rows
    return MemoryMap(
        address=address,
        image=sizes[0],
        state=sizes[1],
        block=sizes[2],
        stack=sizes[3],
        temporaries=top - row,
        narrow=end - top,
    )


def _place_temporaries(
    ops: list[VectorOp], block: list[Buffer], first_batch: int, address: dict[Buffer, int], base: int
) -> int:
    """Give the temporaries addresses from `base` on, or in parts of the block that have been read; returns the top."""
    last: dict[Buffer, int] = {}
    for position, op in enumerate(ops):
        for access in (op.dst, *op.reads()):
            last[access.buffer] = position
    # until the batch begins, rounds to come may still be joined with the block
    extents = [_Extent(address[b], b.rows, max(last.get(b, 0), first_batch - 1)) for b in block]  # by their first rows
    of_buffer = dict(zip(block, extents, strict=True))
    top = base
    for position, op in enumerate(ops):
        target = op.dst.buffer
        if target.home is not Home.TEMP or target in address:
            continue
        # an operand that dies here is still in the way, unless the result may lie over it
        extents = [extent for extent in extents if extent.last >= position]
        extent = _over_operand(op, position, of_buffer, last[target])
        if extent is None:
            extent = _Extent(_first_fit(extents, target.rows, base), target.rows, last[target])
            insort(extents, extent, key=attrgetter("start"))
        address[target] = extent.start
        of_buffer[target] = extent
        top = max(top, extent.stop)
    return top


def _over_operand(op: VectorOp, position: int, of_buffer: Mapping[Buffer, _Extent], last: int) -> _Extent | None:
    """The rows of an operand that dies here, if the result may take them."""
    target = op.dst.buffer
    for access in op.reads():
        extent = of_buffer.get(access.buffer)
        # the image and the state outlive every operation and have no extent
        if extent is None or extent.last != position or extent.rows < target.rows:
            continue
        same = [read for read in op.reads() if of_buffer.get(read.buffer) is extent]
        if all(_read_before_written(op, read) for read in same):
            # the extent keeps its first row, so that the list stays sorted
            extent.rows, extent.last = target.rows, last
            return extent
    return None


def _read_before_written(op: VectorOp, read: Access) -> bool:
    """Whether the result, laid over the operand from its first row, overwrites no row that is still to be read."""
    reads, writes = [*op.spans(read, last=True)], [*op.spans(op.dst)]
    # an operation may read and write a row in one iteration: it reads first
    if reads == writes:
        return True
    last_read = {row: turn for rows, turns in reads for row, turn in zip(rows, turns, strict=True)}
    written = ((row, turn) for rows, turns in writes for row, turn in zip(rows, turns, strict=True))
    return all(last_read.get(row, -1) <= turn for row, turn in written)


def _first_fit(extents: list[_Extent], rows: int, base: int) -> int:
    """Lowest row above `base` from which `rows` rows are free."""
    start = base
    for extent in extents:
        if extent.start - start >= rows:
            break
        start = max(start, extent.stop)
    return start
