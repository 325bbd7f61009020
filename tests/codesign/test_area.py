"""Estimated areas against syntheses of the whole machine, taken down here: a synthesis takes minutes.

The figures are those of the exported board with its scripts, of machines with the fields given: of yosys for
UltraScale+, of nextpnr-ecp5's packer for ECP5, of yosys with two LUTs to a carry cell for Nexus.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.speed.areas import AT_LEAST, AT_MOST, PAIRS, Pair
from dana.codesign.area import area_of
from hwgen.devices import FAMILIES, UNMEASURED
from hwgen.spec.config import MachineConfig, Ultra

Case = tuple[dict[str, int], tuple[int, int, int, float]]

WIDE = {"threads": 8, "striders": 8, "queue_depth": 128, "link_bytes": 64}
TINY = {"scratch_depth": 64, "tuple_depth": 64, "queue_depth": 4}
ULTRASCALE_PLUS: list[Case] = [
    ({}, (12_764, 20_022, 24, 54.5)),
    ({**WIDE, "functions": 32}, (56_925, 85_040, 128, 346.5)),
    ({**WIDE, "functions": 1}, (57_545, 86_026, 144, 354.5)),
    ({**WIDE, "functions": 41}, (62_798, 92_562, 160, 354.5)),
    ({"clusters": 2, "index_depth": 128, "functions": 33}, (19_940, 31_519, 37, 95.5)),
    ({"threads": 2, "clusters": 2, "functions": 1}, (30_274, 47_992, 72, 161.5)),
    ({"threads": 2, "page_size": 32768, "striders": 4, "functions": 1}, (19_286, 28_706, 36, 134.5)),
    ({"striders": 1, "link_bytes": 64, "functions": 41, **TINY}, (12_568, 20_371, 20, 21.5)),
]


RATINGS = {"functions": 0, "program_depth": 512, "queue_depth": 1024, "link_bytes": 16, "watch_depth": 32}
"""Of machines for ratings."""

BESIDE = {**RATINGS, "record_depth": 32}
SHORT = {"striders": 1, "watch_depth": 4, "record_depth": 4}
"""And with queues of 16 entries."""

ULTRASCALE_PLUS += [
    (BESIDE, (15_217, 21_745, 16, 54)),
    ({**BESIDE, "clusters": 4}, (38_318, 60_583, 64, 152.5)),
]

SMALL = {"striders": 2, "scratch_depth": 512, "tuple_depth": 512, "link_bytes": 16}
ECP5: list[Case] = [
    ({}, (23_890, 22_401, 32, 111)),
    ({"threads": 4, "functions": 1, **SMALL}, (53_814, 52_780, 104, 173)),
    ({"clusters": 2, "index_depth": 128, "functions": 33, **SMALL}, (35_955, 34_968, 53, 122)),
    ({"threads": 2, "clusters": 2, "page_size": 16384, "functions": 9, **SMALL}, (59_461, 57_641, 116, 197)),
    (BESIDE, (36_980, 24_340, 24, 111)),
    ({**SHORT, "link_bytes": 16, "functions": 0}, (21_123, 22_674, 24, 105)),
    ({**BESIDE, "clusters": 2, "scratch_depth": 512}, (49_896, 38_573, 48, 166)),
    ({**BESIDE, "clusters": 4, "scratch_depth": 512}, (76_875, 67_544, 96, 308)),
]

NEXUS: list[Case] = [
    ({}, (23_650, 21_436, 32, 111)),
    ({"threads": 4, "functions": 1, **SMALL}, (52_885, 49_628, 104, 173)),
    ({"clusters": 2, "index_depth": 128, "functions": 33, **SMALL}, (35_455, 33_329, 53, 122)),
    ({"threads": 2, "clusters": 2, "page_size": 16384, "functions": 9, **SMALL}, (58_502, 54_153, 116, 197)),
    ({"threads": 2}, (35_802, 32_670, 64, 177)),
    (BESIDE, (37_072, 23_552, 24, 113)),
]

AS_MEASURED = tuple(family for family in FAMILIES if family not in UNMEASURED)
SERIES_7: list[Case] = [
    ({}, (13_074, 20_343, 24, 55)),
]

MEASURED = {"xcup": ULTRASCALE_PLUS, "xc7": SERIES_7, "ecp5": ECP5, "nexus": NEXUS}
CROSSED = {"xcup": (275, 85), "ecp5": (379, 84), "nexus": (353, 102)}
"""LUTs and flip-flops."""


@pytest.mark.parametrize(
    ("family", "fields", "measured"), [(family, *case) for family in AS_MEASURED for case in MEASURED[family]]
)
def test_as_large_as_the_synthesis(family: str, fields: dict[str, int], measured: tuple[int, int, int, float]) -> None:
    area = area_of(MachineConfig(**{"crossed": 0, "functions": 127, **fields}), family)
    estimated = (area.luts, area.flipflops, area.dsps, area.block_rams)
    ratios = [guess / found for guess, found in zip(estimated, measured, strict=True)]
    assert AT_LEAST <= min(ratios) <= max(ratios) <= AT_MOST


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair.name)
def test_as_large_as_the_synthesis_of_a_rule_on_a_device(pair: Pair) -> None:
    """Of pairs that calibrated the estimate, and of those that did not."""
    assert AT_LEAST <= min(pair.ratios) <= max(pair.ratios) <= AT_MOST


def test_half_of_the_pairs_are_held_out() -> None:
    held_out = [pair for pair in PAIRS if pair.held_out]
    assert len(PAIRS) >= 12
    assert len(held_out) >= len(PAIRS) // 2
    assert {pair.family for pair in held_out} == set(AS_MEASURED)


@pytest.mark.parametrize("family", CROSSED)
def test_what_crossed_exchanges_add(family: str) -> None:
    """Sixteen units as two threads, synthesised with and without them."""
    without, with_them = (area_of(MachineConfig(threads=2, crossed=crossed), family) for crossed in (0, 1))
    added = (with_them.luts - without.luts, with_them.flipflops - without.flipflops)
    assert added == pytest.approx(CROSSED[family], rel=0.05)


CONVERTERS = {"xcup": {2: (515, 312), 4: (1493, 936), 8: (2382, 1691)}, "ecp5": {2: (822, 323), 8: (3945, 1724)}}
"""LUTs and flip-flops that several converters add to the unpacker of eight lanes, synthesised alone."""


@pytest.mark.parametrize("family", CONVERTERS)
def test_what_converters_add(family: str) -> None:
    for count, added in CONVERTERS[family].items():
        row = area_of(MachineConfig(converters=count), family).parts["converters"]
        assert row[:2] == pytest.approx(added, rel=0.05)
    assert not any(area_of(MachineConfig(), family).parts["converters"])


def test_what_areas_are_chosen_of_devices_that_are_not_synthesised() -> None:
    """As `hwgen.devices.UNMEASURED` says; on Gowin one board was, by hand."""
    config = MachineConfig(threads=2, clusters=2)
    made = {family: replace(area_of(config, family), parts={}) for family in FAMILIES}
    assert made["versal"] == made["xcup"]
    assert made["agilex"] == replace(made["xcup"], block_rams=2 * made["xcup"].block_rams)
    assert replace(made["gowin"], luts=0) == replace(made["ecp5"], luts=0)
    board = MachineConfig(**{**SMALL, "striders": 1, "functions": 32, "crossed": 0})
    estimated = area_of(board, "gowin")
    ratios = [
        estimated.luts / 22_600,
        estimated.flipflops / 20_000,
        estimated.dsps / 24,
        estimated.block_rams / 65,
    ]
    assert AT_LEAST <= min(ratios) <= max(ratios) <= AT_MOST


def test_a_block_of_ultraram_holds_two_rows_in_a_word() -> None:
    """Of each of two copies in eight units: 8,192 rows."""
    blocks = [
        area_of(MachineConfig(**{memory: depth}, ultra=int(kind)), "xcup").ultra_rams
        for memory, kind in (("scratch_depth", Ultra.SCRATCH), ("tuple_depth", Ultra.TUPLES))
        for depth in (8192, 8208, 16384)
    ]
    assert blocks == [16, 32, 32] * 2


@pytest.mark.parametrize("family", FAMILIES)
def test_the_parts_are_the_whole(family: str) -> None:
    area = area_of(MachineConfig(threads=4, clusters=2), family)
    assert area.luts == pytest.approx(sum(row[0] for row in area.parts.values()), abs=1)
    assert all(min(row) >= 0 for row in area.parts.values())


RECORDS = {"xcup": (1129, 3268, 7.5), "ecp5": (1423, 3414, 20)}
"""LUTs, flip-flops, block RAMs of the record unit and its master, synthesised alone for the machine below."""


@pytest.mark.parametrize(
    ("depth", "luts"), [(4, 71), (16, 80), (64, 392), (128, 761), (256, 1536), (512, 3076), (1024, 6128)]
)
def test_a_queue_of_an_ecp5(depth: int, luts: int) -> None:
    """Of each of two Striders, synthesised alone: it is of LUTs, however long."""
    queues = area_of(MachineConfig(striders=2, queue_depth=depth), "ecp5").parts["queues"]
    assert queues[0] / 2 == pytest.approx(luts, rel=0.05, abs=10)


@pytest.mark.parametrize(("depth", "block_rams"), [(16, 0), (128, 2), (1024, 3)])
def test_an_only_striders_queue_is_of_block_ram_if_it_is_long(depth: int, block_rams: int) -> None:
    """As yosys made it for an ECP5."""
    assert area_of(MachineConfig(striders=1, queue_depth=depth), "ecp5").parts["queues"][3] == block_rams


@pytest.mark.parametrize("family", RECORDS)
def test_what_records_add(family: str) -> None:
    config = MachineConfig(clusters=2, scratch_depth=1024, tuple_depth=1024, watch_depth=64, record_depth=64)
    row = area_of(config, family).parts["records"]
    assert (row[0], row[1], row[3]) == pytest.approx(RECORDS[family], rel=0.05)
    assert not any(area_of(replace(config, record_depth=0), family).parts["records"])
