"""Places for the lanes of a machine that takes most block RAMs of an ECP5.

In: a machine, a device. Out: places for `pin.py`, or None if nextpnr does as well by itself.

A lane's four memories and its multipliers tie it to rows of block RAM and of multipliers that cross the chip every 12
rows. By itself nextpnr takes any free ones, and lanes that span the chip need more wires around its middle
than there are. Here each lane has nine columns and 24 rows of its own for every four block RAMs: those, four
multipliers and the LUTs between them. Eight lanes surround their cluster's special functions, those that exchange words
side by side. Clusters stand next to each other; pages and tuples come from the rows below.
"""

from collections.abc import Iterable
from math import ceil

from hwgen.devices import Device
from hwgen.devices.lattice import lattice_part
from hwgen.spec.config import LANES_PER_CLUSTER, MachineConfig

Plan = dict[str, dict[str, list[str]]]
"""Instances of the netlist; for each type of cell in them, places in the order of the cells' names."""

BLOCK_RAM_WORDS = 512
"""32-bit words in a block RAM with a port to read and one to write."""

SIZE = "85k"
"""The device of these places; other sizes have no room for two clusters."""

COLUMNS = (4, 13, 22, 31, 40, 49, 58, 69, 78, 87, 96, 105, 114)
BANDS = ((10, 22), (34, 46), (58, 70))
"""Where block RAMs and multipliers stand in groups of four (Project Trellis): the groups' first columns; rows of
multipliers and of block RAMs, one pair for each row of lanes."""

BLOCK_RAMS = ((0, 0), (2, 1), (4, 2), (6, 3))
MULTIPLIERS = ((0, 0), (1, 1), (4, 4), (5, 5))
"""Columns from the group's first one, and numbers, of the four in a group."""

RING = ((0, 0), (1, 0), (2, 0), (2, 1), (2, 2), (1, 2), (0, 2), (0, 1))
"""Column and band of the places around a cluster's middle, in turn."""


def floorplan(config: MachineConfig, device: Device, engine: str) -> Plan | None:
    """The plan of a machine with the instance `engine` as its engine; None if none is needed or known.

    Clusters on less than half of the device leave nextpnr room enough.
    """
    if config.wide_depth:  # lanes have other memories than it knows
        return None
    size, _, _ = lattice_part(device.part)
    clusters = config.threads * config.clusters
    block_rams = 2 * sum(ceil(depth / BLOCK_RAM_WORDS) for depth in (config.scratch_depth, config.tuple_depth))
    groups = ceil(block_rams / len(BLOCK_RAMS))
    width = 3 * groups
    if not size.endswith(SIZE) or not len(COLUMNS) // 2 < clusters * width <= len(COLUMNS):
        return None
    # the scratchpad's words travel most, so its block RAMs, the first by name, are inside
    inside_out = sorted(range(groups * len(BLOCK_RAMS)), key=lambda n: abs(2 * n + 1 - groups * len(BLOCK_RAMS)))
    places: Plan = {}
    for number in range(clusters):
        cluster = f"{engine}.thread_{number // config.clusters}.cluster_{number % config.clusters}"
        # what clusters leave is in the middle, for what they share
        first = number * width + (0 if 2 * number < clusters else len(COLUMNS) - clusters * width)
        for lane in range(LANES_PER_CLUSTER):
            # neighbours on the ring differ in one bit of their number, as those that exchange words do
            column, band = RING[_position(lane)]
            places[f"{cluster}.lane_{lane}"] = _places(first + column * groups, groups, band, inside_out)
        if config.functions:
            places[f"{cluster}.special"] = _places(first + groups, groups, 1, range(groups * len(BLOCK_RAMS)))
    return places


def _position(lane: int) -> int:
    """Of a number in the Gray code."""
    return next(position for position in range(LANES_PER_CLUSTER) if position ^ position >> 1 == lane)


def _places(first: int, groups: int, band: int, order: Iterable[int]) -> dict[str, list[str]]:
    """Those in `groups` groups from `first` on, the block RAMs in this order."""
    columns = COLUMNS[first : first + groups]
    inside_out = sorted(columns, key=lambda x: abs(2 * x - columns[0] - columns[-1]))
    multipliers, block_rams = BANDS[band]
    memories = [f"X{x + dx}/Y{block_rams}/EBR{n}" for x in columns for dx, n in BLOCK_RAMS]
    return {
        "DP16KD": [memories[place] for place in order],
        "MULT18X18D": [f"X{x + dx}/Y{multipliers}/MULT18_{n}" for x in inside_out for dx, n in MULTIPLIERS],
    }
