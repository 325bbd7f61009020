"""Faults for what is known of PostgreSQL's pages: the readers, the builder, frames and rows in parts."""

from __future__ import annotations

from benchmarks.faults.fault import faults

STORAGE = (
    *faults(
        "dana/storage",
        "tests/storage/test_reader.py",
        (
            "reader.py",
            "bool(self._u16(self.start + layout.T_INFOMASK) & layout.HEAP_HASNULL)",
            "True",
            "bitmaps always",
        ),
        ("reader.py", "bitmap = (natts + 7) // 8 if has_nulls else 0", "bitmap = 0", "a bitmap without room"),
        ("reader.py", "if size < 4:", "if size < 0:", "a varlena shorter than its length"),
        ("reader.py", "return self._within(at + size), at + 4", "return at + size, at + 4", "text beyond the tuple"),
        ("reader.py", "self.page[at] == 0:  # a pad", "False:  # a pad", "long headers are not aligned"),
        (
            "reader.py",
            "if used and first & layout.VARLENA_KIND_MASK",
            "if first & layout.VARLENA_KIND_MASK",
            "unused, compressed",
        ),
        (
            "reader.py",
            "stop = self._within(data + use.count * array.length, end)",
            "stop = data + use.count * array.length",
            "elements beyond their array",
        ),
        ("reader.py", "!= use.count:", "< use.count:", "arrays that are longer"),
        ("reader.py", "if self._u32(payload + layout.ARRAY_DATAOFFSET) != 0:", "if False:", "arrays with NULLs"),
        ("reader.py", "offset % layout.MAXALIGN", "False", "tuples that are not aligned"),
        ("reader.py", "upper <= special <= len(page)", "upper <= len(page)", "tuples in the special space"),
        ("reader.py", "k < natts and (not", "(not", "columns that came later"),
        ("parts.py", "if infomask & layout.HEAP_HASNULL or page", "if page", "parts with NULLs"),
        ("parts.py", "if number != len(self._open):", "if False:", "parts in any order"),
        ("parts.py", "if number >= len(self._parts):", "if number > len(self._parts):", "a part behind the last"),
        ("parts.py", "if data + VALUE_BYTES * count > end:", "if False:", "parts beyond their tuple"),
    ),
    *faults(
        "dana/storage",
        "tests/storage/test_parts.py tests/storage/test_frames.py tests/storage/test_column_pages.py",
        ("parts.py", "- HEADER - NUMBER_BYTES) // VALUE_BYTES", "- HEADER) // VALUE_BYTES", "parts longer than a page"),
        (
            "parts.py",
            "self._behind = address + layout.ITEM_ID_SIZE",
            "self._behind = address",
            "a fault a pointer early",
        ),
        ("frames.py", "if values > largest:", "if values >= largest:", "the longest row is too long"),
        (
            "frames.py",
            "size = max(size for size in PAGE_SIZES if",
            "size = min(size for size in PAGE_SIZES if",
            "small frames",
        ),
        ("columns.py", "tuples[:, ::-1]", "tuples[:, :]", "tuples in page order"),
        (
            "columns.py",
            "pages = np.zeros((-(-rows // per_page)",
            "pages = np.zeros((1 + rows // per_page",
            "an empty last page",
        ),
    ),
)
