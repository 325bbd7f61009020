"""What a driver writes: how far memories are cleared of what was there before."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hwgen.spec import aperture, load
from hwgen.spec.bundle import Bundle
from hwgen.spec.load import Held
from hwgen.spec.registers import Region
from tests.hwgen.text.test_legal import CONFIG, program

IMAGE = np.ones((3, CONFIG.lanes), dtype=np.uint32)


def made(line: str) -> Bundle:
    return replace(program(line), image=IMAGE, levels=3, level_stride=20)


@pytest.mark.parametrize(
    ("line", "rows"),
    [
        ("mov s1 <- s0 wait=1", 3),
        ("mov s3 <- s0 wait=1", 4),
        ("mov s10+i+8o <- s0 inner=4 outer=3", 10 + 3 + 16 + 1),
        ("mov s10+level <- s0 wait=1", 10 + 2 * 20 + 1),
        ("setx x9+4o <- t0, s0 wait=1\n mov s10+x <- s0 wait=11", 10 + 8 * 4 + 1),
        ("mov s127 <- s0 wait=1", 128),
        ("mov s130 <- s0 wait=1", 128),
    ],
)
def test_the_rows_that_a_program_may_write(line: str, rows: int) -> None:
    """The image at least; addresses beyond the end count from the beginning, so all of them."""
    assert load.held(made(line)).rows == rows


def test_nothing_stays_of_what_memories_held() -> None:
    bundle = made("mov s1 <- s0 wait=1")
    own = load.held(bundle)
    assert (own.strider, own.columns) == (len(bundle.strider), 2 * len(bundle.columns))

    def sizes(before: Held | None) -> list[int]:
        blocks = dict(load.bundle_blocks(bundle, before=before))
        regions = (Region.STRIDER, Region.COLUMN, Region.SCRATCH)
        return [blocks[aperture.address(region, 0, CONFIG)].size for region in regions]

    assert sizes(Held()) == sizes(own) == [own.strider, own.columns, IMAGE.size]
    assert sizes(None) == [CONFIG.strider_depth, 2 * CONFIG.descriptor_depth, IMAGE.size]
    more = Held(strider=200, columns=100, rows=50).joined(Held(strider=5, rows=60))
    assert sizes(more) == [200, 100, 60 * CONFIG.lanes]
