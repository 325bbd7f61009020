"""Where things are on a PostgreSQL heap page (layout version 4, PostgreSQL 8.3 and later).

    0        8   10  12    14    16      18  20       24
    +--------+---+---+-----+-----+-------+---+--------+----------------+------------+---------+
    | lsn    |sum|flg|lower|upper|special|ver| prune  | line pointers →| ... free ..|← tuples | special
    +--------+---+---+-----+-----+-------+---+--------+----------------+------------+---------+

Names are those of the PostgreSQL headers given in comments.
"""

from __future__ import annotations

# storage/bufpage.h
PD_LSN = 0
PD_CHECKSUM = 8
PD_FLAGS = 10
PD_LOWER = 12
PD_UPPER = 14
PD_SPECIAL = 16
PD_PAGESIZE_VERSION = 18
PD_PRUNE_XID = 20
PAGE_HEADER_SIZE = 24
PAGE_LAYOUT_VERSION = 4
PD_ALL_VISIBLE = 0x0004

# storage/itemid.h: bits 0-14 offset, 15-16 state, 17-31 length
ITEM_ID_SIZE = 4
LP_OFFSET_BITS = 15
LP_FLAGS_SHIFT = 15
LP_FLAGS_BITS = 2
LP_LENGTH_SHIFT = 17
LP_LENGTH_BITS = 15
LP_UNUSED = 0
LP_NORMAL = 1
LP_REDIRECT = 2
LP_DEAD = 3

# access/htup_details.h
T_CTID = 12
T_INFOMASK2 = 18
T_INFOMASK = 20
T_HOFF = 22
T_BITS = 23
TUPLE_HEADER_SIZE = 23
HEAP_HASNULL = 0x0001
HEAP_HASVARWIDTH = 0x0002
HEAP_XMIN_COMMITTED = 0x0100
HEAP_XMIN_FROZEN = 0x0300
HEAP_XMAX_INVALID = 0x0800
HEAP_NATTS_BITS = 11

# c.h: MAXIMUM_ALIGNOF of every 64-bit build
MAXALIGN = 8

# utils/array.h: after the varlena header ndim, dataoffset, elemtype, then dims and lower bounds
ARRAY_NDIM = 0
ARRAY_DATAOFFSET = 4
ARRAY_ELEMTYPE = 8
ARRAY_DIM = 12
ARRAY_DATA = 20
"""Offsets from the end of the varlena header, for one dimension."""

# varatt.h, little-endian
VARLENA_SHORT_BIT = 0x01
VARLENA_EXTERNAL = 0x01
VARTAG_ONDISK = 18
VARSIZE_EXTERNAL_ONDISK = 18
VARLENA_COMPRESSED = 0x02
VARLENA_KIND_MASK = 0x03

SMALLEST_TUPLE = 28
"""SizeofHeapTupleHeader aligned, and a line pointer: a page of n bytes holds at most n // 28 tuples."""

ALIGNMENTS = {"c": 1, "s": 2, "i": 4, "d": 8}
"""pg_attribute.attalign."""


def align_up(offset: int, alignment: int) -> int:
    """`offset` rounded up to a multiple of a power of two."""
    # two's complement: -alignment has the low bits cleared
    return (offset + alignment - 1) & -alignment
