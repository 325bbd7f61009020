"""How much of a device a machine takes, from what its parts took when they were synthesised.

In: a `MachineConfig` and a device family. Out: an `Area`, with a line for each kind of part. Lanes, clusters, Striders
are the same module wherever they stand, so an area is a count of modules, each with what yosys gave it; what grows with
a width (the rotation of a row, the exchange between threads) is a formula that was fitted to several machines. Memories
are counted in block RAMs by their geometry. Nothing is synthesised here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from hwgen.spec.config import MachineConfig
from hwgen.spec.engine import WORD_BITS
from hwgen.spec.timing import DIVIDE_INTERVALS


@dataclass(frozen=True, slots=True, kw_only=True)
class Area:
    """Resources, in the units of `hwgen.devices.Device`.

    Attributes
    ----------
    parts
        The same for each kind of part, all of its instances together: name to LUTs, flip-flops, DSPs, block RAMs.
    """

    luts: int
    flipflops: int
    dsps: int
    block_rams: int
    parts: dict[str, tuple[float, float, float, float]]


Row = tuple[float, float, float, float]


def area_of(config: MachineConfig, family: str) -> Area:
    """Estimate.

    Raises
    ------
    KeyError
        The family's parts were not measured; `hwgen.devices.FAMILIES` names those that were.
    """
    parts = FAMILY_PARTS[family](config)
    totals = [sum(row[k] for row in parts.values()) for k in range(4)]
    luts, flipflops, dsps, block_rams = (math.ceil(total) for total in totals)
    return Area(luts=luts, flipflops=flipflops, dsps=dsps, block_rams=block_rams, parts=parts)


INDEX_FILE = (230.0, 440.0, 1.0)
"""LUTs, flip-flops and DSPs of a thread's index file and its additions to addresses."""


DIVIDE_STAGE = {"ecp5": (220.0, 104.0), "xcup": (160.0, 104.0)}
"""LUTs and flip-flops of a stage more in a division unit; of ECP5 as synthesised for an interval of 9, of UltraScale+
in the proportion of the two families' units of one stage."""


def _functions(config: MachineConfig, family: str, row: Row) -> Row:
    """The special functions of a cluster, `row` with a division unit of one stage."""
    more = DIVIDE_INTERVALS[0] // config.divide_interval - 1
    luts, flipflops = DIVIDE_STAGE[family]
    return (row[0] + more * luts, row[1] + more * flipflops, row[2], row[3])


def _index_memory(config: MachineConfig) -> float:
    return 0 if config.index_depth <= 64 else _block_rams(config.index_depth, 16)


def _times(count: float, row: Row) -> Row:
    return (count * row[0], count * row[1], count * row[2], count * row[3])


def _ultrascale_plus(config: MachineConfig) -> dict[str, Row]:
    """yosys 0.5x, ``synth_xilinx -family xcup``; LUTs include those used as memory and shift registers."""
    lanes, threads, clusters, units = config.lanes, config.threads, config.threads * config.clusters, config.units
    beats = config.page_beats
    shared_words = beats <= 64  # yosys then prefers LUTs to block RAM
    distances = threads.bit_length() - 1
    store_rows = config.striders * config.page_size // (8 * lanes)
    store_in_luts = store_rows <= 64
    lane_memory = 2 * (_block_rams(config.scratch_depth, 32) + _block_rams(config.tuple_depth, 32))
    return {
        "lanes": _times(units, (857 if units == 8 else 889, 860, 4, lane_memory)),
        "functions": _times(clusters, _functions(config, "xcup", (1543, 1198, 11, 1))),
        "clusters": _times(clusters, (255, 183, 0, 0)),
        "index files": _times(threads if config.index_depth else 0, (*INDEX_FILE, _index_memory(config))),
        "threads": _times(threads, (265 * config.clusters + 68, 264 * config.clusters + 166, 0, 0)),
        "exchange": (32 * units * math.ceil(distances / 3), 264 * config.clusters + 44, 0, 0),
        "sequencer": (890, 1850, 1, _block_rams(config.program_depth, WORD_BITS)),
        "striders": _times(
            config.striders,
            (
                485 + 16 * config.link_bytes,
                140 + 10.7 * config.link_bytes,
                1,
                _block_rams(config.strider_depth, 36) * 2
                + (0 if shared_words else _block_rams(beats, 8 * config.link_bytes)),
            ),
        ),
        "queues": _times(config.striders, (16 + 0.92 * config.queue_depth, 12 + config.queue_depth / 20, 0, 0)),
        "page store": (
            32 * lanes * (2 + math.ceil(math.log2(4 * lanes) / 2))
            + (config.striders * config.page_size * 8 / 41 if store_in_luts else 0),
            (192 if store_in_luts else 128) * lanes,
            0,
            0 if store_in_luts else 2 * _block_rams(store_rows, 32 * lanes),
        ),
        "unpacker": (75 * lanes + 1050, 82 * lanes + 720, 0, 0),
        "access": (370 + 17 * config.striders, 8 * config.link_bytes + 700, 0, 0),
        "host": (347, 405, 0, 0),
    }


def _ecp5(config: MachineConfig) -> dict[str, Row]:
    """yosys 0.5x, ``synth_ecp5``, as nextpnr packs it: LUTs are TRELLIS_COMB, which carries take, too."""
    lanes, threads, clusters, units = config.lanes, config.threads, config.threads * config.clusters, config.units
    store_rows = config.striders * config.page_size // (8 * lanes)
    lane_memory = 2 * (2 * _block_rams(config.scratch_depth, 32) + 2 * _block_rams(config.tuple_depth, 32))
    exchange = 34 * units if threads > 1 else 0
    return {
        "lanes": _times(units, (1118 if units == 8 else 1145, 1000, 4, lane_memory)),
        "functions": _times(clusters, _functions(config, "ecp5", (2245, 1785, 9, 2))),
        "clusters": _times(clusters, (275, 168, 0, 0)),
        "index files": _times(threads if config.index_depth else 0, (*INDEX_FILE, _index_memory(config))),
        "threads": _times(threads, (120 * config.clusters, 180 * config.clusters + 60, 0, 0)),
        "exchange": (exchange, 154 * clusters, 0, 0),
        "sequencer": (1340, 1700, 1, 2 * _block_rams(config.program_depth, WORD_BITS)),
        "striders": _times(
            config.striders,
            (
                1200 + 16 * config.link_bytes,
                400 + 10.7 * config.link_bytes,
                1,
                4 * config.page_size / 8192 + 4 * _block_rams(config.strider_depth, 36),
            ),
        ),
        "queues": _times(config.striders, (60 + 2.5 * config.queue_depth, 20, 0, 0)),
        "page store": (
            32 * lanes * (2 + math.ceil(math.log2(4 * lanes) / 2)) + 300,
            164 * lanes,
            0,
            4 * _block_rams(store_rows, 32 * lanes),
        ),
        "unpacker": (80 * lanes + 1120, 82 * lanes + 1550, 0, 0),
        "access": (450 + 17 * config.striders, 8 * config.link_bytes + 650, 0, 2),
        "host": (430, 210, 0, 0),
    }


def _block_rams(depth: int, width: int) -> float:
    """RAMB36 for a memory with one read and one write port; half of one is a RAMB18 or DP16KD, 512 words of 36 bits."""
    return max(1, math.ceil(width * max(depth, 512) / 512 / 36)) / 2


FAMILY_PARTS: dict[str, Callable[[MachineConfig], dict[str, Row]]] = {"xcup": _ultrascale_plus, "ecp5": _ecp5}
