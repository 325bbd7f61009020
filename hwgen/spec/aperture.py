"""Where the address map lies on the control bus: each region as large as the machine needs, so a small machine takes a
small part of a host's address space.

A region's words are rounded up to a power of two, and it begins at a multiple of that. Those with a size of their own
come first, so a driver finds them before it knows the machine; the machine's memories follow, the smaller ones first.
No order takes less room, and a region is known by the upper bits of an address alone.
"""

from hwgen.spec import columns
from hwgen.spec.board import LOSSES, BoardRegion
from hwgen.spec.config import MachineConfig
from hwgen.spec.registers import INSTRUCTION_STRIDE, REGISTERS, Region
from hwgen.spec.strider import CONFIGURATION

Sizes = dict[Region | BoardRegion, int]
"""Regions and their words."""

FIXED: Sizes = {
    BoardRegion.BOARD: REGISTERS,
    Region.CONTROL: REGISTERS,
    Region.CONSTANT: CONFIGURATION,
    BoardRegion.LOSSES: LOSSES,
}
"""Regions of every machine."""


def region_words(config: MachineConfig) -> Sizes:
    """Of all regions, in the order of their addresses."""
    memories: Sizes = {
        Region.STRIDER: config.strider_depth,
        Region.COLUMN: columns.WORD_U32 * config.descriptor_depth,
        Region.PROGRAM: INSTRUCTION_STRIDE * config.program_depth,
        Region.SCRATCH: config.scratch_depth * config.lanes,
    }
    return FIXED | dict(sorted(memories.items(), key=lambda item: item[1]))


def region_bits(words: int) -> int:
    """Bits of a word's address within a region."""
    return (words - 1).bit_length()


def starts(sizes: Sizes) -> Sizes:
    """Word addresses at which regions begin that follow one another."""
    found: Sizes = {}
    end = 0
    for region, words in sizes.items():
        size = 1 << region_bits(words)
        found[region] = -(-end // size) * size
        end = found[region] + size
    return found


def aperture_bits(config: MachineConfig) -> int:
    """Width of the control bus' byte addresses."""
    sizes = region_words(config)
    last = list(sizes)[-1]
    return region_bits(starts(sizes)[last] + sizes[last]) + 2


def aperture_bytes(config: MachineConfig) -> int:
    """Bytes of the map, a power of two."""
    return 1 << aperture_bits(config)


def address(region: Region | BoardRegion, word: int = 0, config: MachineConfig | None = None) -> int:
    """Word address on the control bus; of one of the machine's memories, with its configuration."""
    return starts(FIXED if config is None else region_words(config))[region] + int(word)


def byte_address(region: Region | BoardRegion, word: int = 0, config: MachineConfig | None = None) -> int:
    """Byte address of the same."""
    return 4 * address(region, word, config)
