"""Pages as tables have them after a while: pointers without rows, rows short of attributes, damage."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from dana.storage import layout
from dana.storage.builder import PageBuilder, PageFull, build_tuple
from dana.storage.schema import TableSchema
from tests.storage.schemas import damage

GONE = (layout.LP_UNUSED, layout.LP_DEAD, layout.LP_REDIRECT)


def rough_pages(rng: random.Random, schema: TableSchema, rows: Sequence[Sequence[Any]], *, page_size: int) -> bytes:
    """Whole pages with all the rows, and what else there is between them; now and then an empty page."""
    pages: list[bytes] = []
    builder = PageBuilder(page_size)
    for row in rows:
        natts = rng.randint(1, len(row)) if rng.random() < 0.03 else None
        stored = build_tuple(schema.attributes, row, natts=natts, short=rng.random() < 0.7)
        state = layout.LP_DEAD if rng.random() < 0.05 else layout.LP_NORMAL
        if rng.random() < 0.01:
            # a page that was extended and never filled, maybe
            pages += [builder.finish()] + [PageBuilder(page_size).finish()] * (rng.random() < 0.3)
            builder = PageBuilder(page_size)
        try:
            while rng.random() < 0.2:
                builder.add_pointer(rng.choice(GONE), rng.randrange(page_size))
            builder.add(stored, state)
        except PageFull:
            pages.append(builder.finish())
            builder = PageBuilder(page_size)
            builder.add(stored, state)
    return b"".join([*pages, builder.finish()])


def damaged(rng: random.Random, pages: bytes, *, page_size: int) -> bytes:
    """The pages with one of them damaged."""
    whole = [pages[k : k + page_size] for k in range(0, len(pages), page_size)]
    at = rng.randrange(len(whole))
    whole[at] = damage(rng, whole[at])
    return b"".join(whole)
