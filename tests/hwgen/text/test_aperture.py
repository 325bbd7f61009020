"""Where regions lie on the control bus: none over another, each known by its upper bits, in as little room as can be"""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from hwgen.spec.aperture import FIXED, address, aperture_bytes, byte_address, region_bits, region_words, starts
from hwgen.spec.config import MachineConfig
from hwgen.spec.registers import Region

powers = st.integers(4, 16).map(lambda bits: 1 << bits)
machines = st.builds(
    MachineConfig,
    clusters=st.sampled_from((1, 2, 4, 8, 16)),
    scratch_depth=st.integers(1, 4096).map(lambda rows: 16 * rows),
    program_depth=powers,
    strider_depth=powers,
    descriptor_depth=st.integers(1, 12).map(lambda bits: 1 << bits),
)


@given(machines)
def test_regions_lie_apart_in_as_little_room_as_there_can_be(config: MachineConfig) -> None:
    sizes = region_words(config)
    rounded = {region: 1 << region_bits(words) for region, words in sizes.items()}
    begins = starts(sizes)
    assert set(sizes) > set(FIXED)
    assert list(begins.values()) == sorted(begins.values())
    for before, after in pairwise(begins):
        assert begins[before] + rounded[before] <= begins[after]
    for region, begin in begins.items():
        assert sizes[region] <= rounded[region] < 2 * sizes[region]
        assert begin % rounded[region] == 0
    # the regions that are always there, and what follows them
    least = 2048 + sum(rounded[region] for region in set(sizes) - set(FIXED))
    assert aperture_bytes(config) == 4 * (1 << (least - 1).bit_length())


@given(machines)
def test_what_identifies_a_machine_is_at_the_same_place_in_all(config: MachineConfig) -> None:
    for region, words in FIXED.items():
        assert address(region, words - 1) == address(region, words - 1, config)
        assert byte_address(region) + 4 * words <= 8192


def test_the_address_of_a_memory_depends_on_the_machine() -> None:
    small, large = (MachineConfig(scratch_depth=depth) for depth in (64, 1024))
    assert [byte_address(Region.SCRATCH, 3, config) for config in (small, large)] == [0x300C, 0x800C]
    assert [aperture_bytes(config) for config in (small, large)] == [1 << 15, 1 << 16]
    # 2**23 words, the largest scratchpad of hardware, and all else
    assert aperture_bytes(MachineConfig(clusters=16, scratch_depth=65536, program_depth=65536)) == 1 << 26
