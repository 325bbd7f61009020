"""The reference page reader: the specification of a Strider in plain Python, simple rather than fast.

It returns the values of the rows that a machine trains on as binary32, and the number of rows skipped for a NULL. Pages
are not trusted: any violation of the layout raises `PageFault` with the fault that the machine reports.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from dana.storage import layout
from dana.storage.schema import Attribute, TableSchema, Use
from dana.storage.types import ARRAYS, SCALARS
from hwgen.spec.columns import ColumnType
from hwgen.spec.strider import Fault


class PageFault(Exception):
    """A fault at which a Strider stops.

    Attributes
    ----------
    fault
        The fault as reported by the machine.
    pointer
        Page address of the line pointer being followed; 0 for the page header.
    """

    def __init__(self, fault: Fault, pointer: int) -> None:
        super().__init__(f"{fault.name} at line pointer address {pointer}")
        self.fault = fault
        self.pointer = pointer


@dataclass(slots=True)
class PageRows:
    """The rows of a page: one list per row with one array per use, in the order of the uses."""

    rows: list[list[npt.NDArray[np.float32]]] = field(default_factory=list)
    skipped: int = 0


def convert(raw: bytes, kind: ColumnType) -> npt.NDArray[np.float32]:
    """Convert adjacent stored elements to binary32 with subnormals flushed and NaNs canonical."""
    return kind.convert(np.frombuffer(raw, dtype=kind.dtype))


def line_pointers(page: bytes) -> Iterator[tuple[int, int, int, int]]:
    """Check the page header, and yield (address, offset, state, length) of each line pointer."""
    lower, upper, special = struct.unpack_from("<HHH", page, layout.PD_LOWER)
    # a new page is all zeros, and lower is then 0 (PageIsNew)
    if lower <= layout.PAGE_HEADER_SIZE:
        return  # new or empty
    if not lower <= upper <= special <= len(page):
        raise PageFault(Fault.PAGE_HEADER, 0)
    # a rest of less than a line pointer, on a damaged page, is not read
    for address in range(layout.PAGE_HEADER_SIZE, lower - layout.ITEM_ID_SIZE + 1, layout.ITEM_ID_SIZE):
        (word,) = struct.unpack_from("<I", page, address)
        state = word >> layout.LP_FLAGS_SHIFT & (1 << layout.LP_FLAGS_BITS) - 1
        offset = word & (1 << layout.LP_OFFSET_BITS) - 1
        length = word >> layout.LP_LENGTH_SHIFT
        # only LP_NORMAL has a tuple: the offset of a redirect is a line pointer's number
        outside = not (upper <= offset and offset + length <= special) or offset % layout.MAXALIGN
        if state == layout.LP_NORMAL and outside:
            raise PageFault(Fault.LINE_POINTER, address)
        yield address, offset, state, length


def read_page(page: bytes, schema: TableSchema, uses: Sequence[Use]) -> PageRows:
    """Read the rows of a page in line-pointer order. Raises PageFault at the first error."""
    result = PageRows()
    for address, offset, state, length in line_pointers(page):
        if state != layout.LP_NORMAL:
            continue
        values = _Tuple(page, address, offset, offset + length).read(schema.attributes, uses)
        if values is None:
            result.skipped += 1
        else:
            result.rows.append(values)
    return result


class _Tuple:
    """One heap tuple at page bytes [start, end)."""

    def __init__(self, page: bytes, pointer: int, start: int, end: int) -> None:
        self.page = page
        self.pointer = pointer
        self.start = start
        self.end = end

    def read(self, attributes: Sequence[Attribute], uses: Sequence[Use]) -> list[npt.NDArray[np.float32]] | None:
        # checked before the header is read: lp_len comes from the page
        if self.end - self.start <= layout.TUPLE_HEADER_SIZE:
            raise self._fault(Fault.TUPLE_HEADER)
        # a tuple stored before ALTER TABLE ADD COLUMN has fewer attributes than the table
        natts = self._u16(self.start + layout.T_INFOMASK2) & (1 << layout.HEAP_NATTS_BITS) - 1
        has_nulls = bool(self._u16(self.start + layout.T_INFOMASK) & layout.HEAP_HASNULL)
        bitmap = (natts + 7) // 8 if has_nulls else 0
        # t_hoff follows from the bitmap; any other value comes from a damaged page
        header = layout.align_up(layout.TUPLE_HEADER_SIZE + bitmap, layout.MAXALIGN)
        if self.page[self.start + layout.T_HOFF] != header or self.start + header > self.end:
            raise self._fault(Fault.TUPLE_HEADER)
        present = [k < natts and (not has_nulls or self._bit(k)) for k in range(len(attributes))]
        # a row with a NULL in use is skipped before any of its values is read
        if not all(present[use.attribute] for use in uses):
            return None
        used = {use.attribute: use for use in uses}
        found: dict[int, npt.NDArray[np.float32]] = {}
        at = self.start + header
        # in order: a value of variable length moves all that follow it
        for k in range(max(used) + 1):
            if present[k]:
                at, value = self._attribute(attributes[k], at, used.get(k))
                if value is not None:
                    found[k] = value
        return [found[use.attribute] for use in uses]

    def _attribute(self, attribute: Attribute, at: int, use: Use | None) -> tuple[int, npt.NDArray[np.float32] | None]:
        """Pass one present attribute: the offset after it and, if it is used, its value."""
        if attribute.length >= 0:
            at = layout.align_up(at, attribute.alignment)
            end = self._within(at + attribute.length)
            if use is None:
                return end, None
            return end, convert(self.page[at:end], SCALARS[attribute.type_oid].column)
        self._within(at + 1)
        if self.page[at] == 0:  # a pad byte: the header that follows is aligned (att_align_pointer)
            at = layout.align_up(at, attribute.alignment)
            self._within(at + 1)
        end, payload = self._varlena(at, used=use is not None)
        if use is None:
            return end, None
        array = ARRAYS[attribute.type_oid]
        self._within(payload + layout.ARRAY_DATA, end)
        if self._u32(payload + layout.ARRAY_NDIM) != 1:
            raise self._fault(Fault.ARRAY_SHAPE)
        # dataoffset is 0 exactly if the array has no bitmap of NULLs
        if self._u32(payload + layout.ARRAY_DATAOFFSET) != 0:
            raise self._fault(Fault.ARRAY_NULLS)
        if self._u32(payload + layout.ARRAY_ELEMTYPE) != array.oid:
            raise self._fault(Fault.ARRAY_SHAPE)
        # compared, not used: a length from the page must not decide how much is read
        if self._u32(payload + layout.ARRAY_DIM) != use.count:
            raise self._fault(Fault.ARRAY_SHAPE)
        data = payload + layout.ARRAY_DATA
        stop = self._within(data + use.count * array.length, end)
        return end, convert(self.page[data:stop], array.column)

    def _varlena(self, at: int, *, used: bool) -> tuple[int, int]:
        """(offset after the value, offset of what follows its header)."""
        first = self.page[at]
        # VARATT_IS_1B_E: the same bit as a short header, with a length of 0
        if first == layout.VARLENA_EXTERNAL:
            if used:
                raise self._fault(Fault.TOASTED)
            return self._within(at + layout.VARSIZE_EXTERNAL_ONDISK), at + 2
        if first & layout.VARLENA_SHORT_BIT:
            return self._within(at + (first >> 1)), at + 1
        self._within(at + 4)
        if used and first & layout.VARLENA_KIND_MASK == layout.VARLENA_COMPRESSED:
            raise self._fault(Fault.COMPRESSED)
        size = self._u32(at) >> 2
        # a length below that of its own header would never advance
        if size < 4:
            raise self._fault(Fault.TUPLE_SHORT)
        return self._within(at + size), at + 4

    def _within(self, offset: int, end: int | None = None) -> int:
        if offset > (self.end if end is None else end):
            raise self._fault(Fault.TUPLE_SHORT)
        return offset

    def _bit(self, k: int) -> bool:
        return bool(self.page[self.start + layout.T_BITS + k // 8] >> k % 8 & 1)

    def _u16(self, at: int) -> int:
        return int(struct.unpack_from("<H", self.page, at)[0])

    def _u32(self, at: int) -> int:
        return int(struct.unpack_from("<I", self.page, at)[0])

    def _fault(self, fault: Fault) -> PageFault:
        return PageFault(fault, self.pointer)
