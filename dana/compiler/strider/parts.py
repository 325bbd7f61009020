"""Writes the Strider program for rows that lie over several pages, a part on each.

In: a schema with rows cut into parts, the columns in use, where their elements go in tuple memory. Out: as
`pages`. A tuple is a part (`dana.storage.parts`): its number, then as many values as such a part has. Whether
the parts of a row follow one another only the unpacker sees: the descriptors say that they must.
"""

from collections.abc import Sequence

from dana.compiler.place.rows import InputPlaces
from dana.compiler.strider.pages import PageWriter, Run, T, append
from dana.storage import parts
from dana.storage.schema import TableSchema, Use
from hwgen.spec.columns import ColumnType
from hwgen.spec.strider import Fault, Opcode


class PartWriter(PageWriter):
    """Tuples that are parts of rows."""

    faults = (Fault.TUPLE_PARTS,)
    chained = True

    def __init__(self, schema: TableSchema, uses: Sequence[Use], inputs: InputPlaces, page_size: int) -> None:
        self.parts = parts.cut(schema)
        self.runs = [_runs(part, schema, uses) for part in self.parts]
        super().__init__(inputs, page_size, attributes=parts.ATTRIBUTES, total=sum(use.count for use in uses))

    def _row(self) -> None:
        asm = self.asm
        self.within(T.DATA, parts.NUMBER_BYTES)
        asm.emit(Opcode.READB, T.DATA, parts.NUMBER_BYTES, T.WORD)
        asm.branch(Opcode.BLT, T.WORD, asm.constant(len(self.parts)), "known")
        asm.jump(Fault.TUPLE_PARTS.name)
        asm.label("known")
        self._choose(0, len(self.parts))

    def _choose(self, first: int, end: int) -> None:
        """Branch to the part numbered %WORD, one of [first, end), by binary search."""
        if end - first > 1:
            middle = (first + end) // 2
            upper = self.asm.fresh("part")
            lower = self.asm.fresh("part")
            # the far way by a jump, which reaches all of the program
            self.asm.branch(Opcode.BLT, T.WORD, self.asm.constant(middle), lower)
            self.asm.jump(upper)
            self.asm.label(lower)
            self._choose(first, middle)
            self.asm.label(upper)
            self._choose(middle, end)
            return
        _, count = self.parts[first]
        self.within(T.DATA, parts.NUMBER_BYTES + 4 * count)
        for run in self.runs[first]:
            self.hand_over(T.DATA, run)
        self.asm.jump("next")

    def _nulls(self) -> None:
        """No part has a NULL."""
        self.asm.label("nulls")
        self.asm.fail(Fault.TUPLE_HEADER)


def _runs(part: tuple[int, int], schema: TableSchema, uses: Sequence[Use]) -> list[Run]:
    """The values of a part that are in use, as runs of adjacent ones."""
    first, count = part
    places = parts.places(schema)
    runs: list[Run] = []
    # in the order of the table: adjacent values of several uses make one run
    for use in sorted(uses, key=lambda use: use.attribute):
        start = max(places[use.attribute], first)
        end = min(places[use.attribute] + use.count, first + count)
        if start >= end:
            continue
        element = use.element + start - places[use.attribute]
        offset = parts.NUMBER_BYTES + 4 * (start - first)
        append(runs, Run(offset, ColumnType.FLOAT4, use.input, element, end - start))
    return runs
