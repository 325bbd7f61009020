"""Estimated areas against syntheses of the whole machine, taken down here: a synthesis takes minutes.

The figures are those of yosys for UltraScale+ (``synth_xilinx -family xcup``, hierarchy kept) and of nextpnr-ecp5's
packer for ECP5 (``synth_ecp5``), of machines with the fields given.
"""

from __future__ import annotations

import pytest

from dana.codesign.area import area_of
from hwgen.devices import FAMILIES
from hwgen.spec.config import MachineConfig

ULTRASCALE_PLUS = [
    ({"threads": 1, "clusters": 1, "striders": 2}, (15_522, 15_556, 46, 53.5)),
    ({"threads": 1, "clusters": 8, "striders": 4}, (104_000, 93_999, 349, 286.5)),
    ({"threads": 8, "clusters": 1, "striders": 16, "queue_depth": 256}, (100_814, 83_645, 361, 375.5)),
    (
        {"threads": 2, "clusters": 4, "striders": 4, "scratch_depth": 4096, "tuple_depth": 4096, "link_bytes": 128},
        (97_141, 87_319, 349, 1067.5),
    ),
    ({"threads": 2, "clusters": 1, "striders": 2, "index_depth": 64}, (26_085, 25_175, 91, 86.5)),
    (
        {"page_size": 32768, "program_depth": 4096, "strider_depth": 1024, "descriptor_depth": 256},
        (15_487, 15_527, 46, 89.0),
    ),
]


SMALL = {"striders": 2, "scratch_depth": 512, "tuple_depth": 512, "link_bytes": 16}
ECP5 = [
    ({"threads": 1, "clusters": 1, **SMALL}, (20_548, 18_215, 44, 69)),
    ({"threads": 4, "clusters": 1, **SMALL}, (56_982, 48_554, 167, 171)),
]


@pytest.mark.parametrize(
    ("family", "fields", "measured"),
    [("xcup", *case) for case in ULTRASCALE_PLUS] + [("ecp5", *case) for case in ECP5],
)
def test_within_a_twentieth_of_the_synthesis(
    family: str, fields: dict[str, int], measured: tuple[int, int, int, float]
) -> None:
    area = area_of(MachineConfig(**fields), family)
    estimated = (area.luts, area.flipflops, area.dsps, area.block_rams)
    assert estimated == pytest.approx(measured, rel=0.05)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_parts_are_the_whole(family: str) -> None:
    area = area_of(MachineConfig(threads=4, clusters=2), family)
    assert area.luts == pytest.approx(sum(row[0] for row in area.parts.values()), abs=1)
    assert all(min(row) >= 0 for row in area.parts.values())
