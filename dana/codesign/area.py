"""How much of a device a machine takes, from what its parts took when they were synthesised.

In: a `MachineConfig` and a device family. Out: an `Area` of the exported board, with a line for each kind of part.
Lanes, clusters, Striders are the same module wherever they stand, so an area is a count of modules, each with what
yosys gave it; what grows with a width (the rotation of a row, the exchange between threads) is a formula that was
fitted to several machines. Memories are counted in block RAMs by their geometry. Nothing is synthesised here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from operator import mul

from hwgen.spec import cycles
from hwgen.spec.config import FUNCTIONS, LANES_PER_CLUSTER, MachineConfig, Ultra
from hwgen.spec.engine import WORD_BITS, Opcode
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
    ultra_rams: int
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
    # rows have no names: the order is that of the fields of `Area`
    totals = [sum(row[k] for row in parts.values()) for k in range(4)]
    # rounded once, after the sum: parts are fitted values with fractions
    luts, flipflops, dsps, block_rams = (math.ceil(total) for total in totals)
    return Area(
        luts=luts, flipflops=flipflops, dsps=dsps, block_rams=block_rams, ultra_rams=_ultra_rams(config), parts=parts
    )


INDEX_FILE = {"xcup": (294.0, 296.0, 1.0), "ecp5": (319.0, 264.0, 1.0)}
"""LUTs, flip-flops and DSPs of a thread's index file and its additions to addresses."""

SHORT = 64
"""Words of a memory that yosys makes of LUTs; of a lane's in `SHORT_LANES` only."""

WITHOUT_CHOICE = 1024
"""Words of a lane's memory that no LUT has to choose from several block RAMs."""

SHORT_LANES = frozenset({"xcup", "xc7", "versal", "agilex"})

INDEX_LINE = 450.0
"""Flip-flops of the sequencer in which a row's entry, stride and bound wait."""


RECORD_PATHS = (0, 560, 0, 0)
"""Extra area of sequencer and unpacker in machines with records, for any number of lanes."""

CROSSED = {"xcup": (17.0, 32.0), "ecp5": (24.0, 32.0), "nexus": (22.0, 41.0)}
"""LUTs of a lane that chooses its operands in exchanges; flip-flops of its cluster, which knows which lanes do."""

DIVIDE_STAGE = {"ecp5": (106.0, 92.0), "xcup": (99.0, 92.0)}
"""LUTs and flip-flops of a stage more in a division unit, as synthesised for intervals of 27, 9 and 3."""

CONVERTERS = {"ecp5": ((815.0, 323.0), (376.0, 189.0)), "xcup": ((500.0, 312.0), (222.0, 189.0))}
"""LUTs and flip-flops of a converter beyond the first, with what chooses its values for lanes: of 64 bits, of 32."""

TABLE, EXPONENTIAL, PRODUCT = "table", "exponential", "product"
FUNCTION_PARTS: dict[Opcode, tuple[Opcode | str, ...]] = {
    Opcode.SIGMOID: (Opcode.SIGMOID, TABLE),
    Opcode.GAUSSIAN: (Opcode.GAUSSIAN, EXPONENTIAL, TABLE),
    Opcode.EXP: (Opcode.EXP, EXPONENTIAL, TABLE),
    Opcode.LOG: (Opcode.LOG, PRODUCT, TABLE),
    Opcode.TANH: (Opcode.TANH, Opcode.SIGMOID, PRODUCT, TABLE),
    Opcode.SINPI: (Opcode.SINPI, PRODUCT, TABLE),
    Opcode.SQRT: (Opcode.SQRT, Opcode.DIV),
    Opcode.DIV: (Opcode.DIV,),
}
"""Parts of the unit that each function needs; shared parts exist once."""

FUNCTION_AREAS: dict[str, dict[Opcode | str, Row]] = {
    "xcup": {
        TABLE: (200, 335, 2, 1),
        EXPONENTIAL: (215, 160, 1, 0),
        Opcode.SIGMOID: (123, 72, 0, 0),
        Opcode.GAUSSIAN: (80, 133, 3, 0),
        Opcode.EXP: (50, 3, 0, 0),
        PRODUCT: (94, 150, 2, 0),
        Opcode.LOG: (301, 383, 0, 0),
        Opcode.TANH: (78, 105, 0, 0),
        Opcode.SINPI: (211, 115, 0, 1),
        Opcode.SQRT: (91, 3, 0, 0),
        Opcode.DIV: (150, 200, 0, 0),
    },
    "ecp5": {
        TABLE: (236, 520, 2, 2),
        EXPONENTIAL: (365, 274, 1, 0),
        Opcode.SIGMOID: (278, 16, 0, 0),
        Opcode.GAUSSIAN: (175, 90, 2, 0),
        Opcode.EXP: (62, 0, 0, 0),
        PRODUCT: (197, 320, 3, 0),
        Opcode.LOG: (560, 343, 0, 0),
        Opcode.TANH: (105, 116, 0, 0),
        Opcode.SINPI: (326, 130, 0, 2),
        Opcode.SQRT: (155, 3, 0, 0),
        Opcode.DIV: (247, 200, 0, 0),
    },
}
"""Area of the parts, from synthesis of each alone and of several combinations."""


def _functions(config: MachineConfig, family: str) -> Row:
    """The special functions of a cluster."""
    parts = {part for op in FUNCTIONS if config.has(op) for part in FUNCTION_PARTS[op]}
    areas = [FUNCTION_AREAS[family][part] for part in parts]
    if Opcode.DIV in parts:
        # stages beyond those of the slowest unit, which is in the table
        more = DIVIDE_INTERVALS[0] // config.divide_interval - 1
        luts, flipflops = DIVIDE_STAGE[family]
        areas.append((more * luts, more * flipflops, 0, 0))
    return (
        sum(row[0] for row in areas),
        sum(row[1] for row in areas),
        sum(row[2] for row in areas),
        sum(row[3] for row in areas),
    )


def _converters(config: MachineConfig, family: str) -> Row:
    """Area of all converters but the first, which counts as the unpacker's."""
    wide = min(config.converters, config.lanes // 2)
    counts = wide - 1, config.converters - wide
    luts, flipflops = (sum(map(mul, counts, each)) for each in zip(*CONVERTERS[family], strict=True))
    return luts, flipflops, 0, 0


def _crossed(config: MachineConfig, family: str) -> Row:
    """Area that crossed exchanges add to all lanes and clusters."""
    if not config.crossed:
        return 0, 0, 0, 0
    luts, flipflops = CROSSED[family]
    # a thread passes six bits on to its clusters, the sequencer to the threads
    return config.units * luts, config.threads * (config.clusters * flipflops + 6) + 8, 0, 0


def _line(config: MachineConfig) -> int:
    """Stages in which the sequencer keeps a result's address at most."""
    return max([cycles.RESULT_LATENCY, *(cycles.SPECIAL_LATENCY[op] for op in FUNCTIONS if config.has(op))])


def _addresses(config: MachineConfig) -> float:
    """Flip-flops of the sequencer for the index file, and for addresses of scratchpads of more than 1,024 rows."""
    # 1,024 rows need 10 bits of address
    return 80 * max(0, (config.scratch_depth - 1).bit_length() - 10) + (INDEX_LINE if config.index_depth else 0)


def _shared_slots(config: MachineConfig) -> int:
    """How many of a lane's three words from other lanes serve several distances; each takes another choice."""
    clusters, threads = ((count - 1).bit_length() for count in (config.clusters, config.threads))
    if clusters + threads <= 3:
        return 0
    return 2 if clusters >= 3 and threads >= 2 else 1


def _index_memory(config: MachineConfig) -> float:
    return 0 if config.index_depth <= SHORT else _block_rams(config.index_depth, 16)


def _times(count: float, row: Row) -> Row:
    return (count * row[0], count * row[1], count * row[2], count * row[3])


def _ultrascale_plus(config: MachineConfig) -> dict[str, Row]:
    """yosys 0.5x, as `hwgen.export.scripts` calls it, parts flattened; LUTs include inverters and memory."""
    lanes, threads, clusters, units = config.lanes, config.threads, config.threads * config.clusters, config.units
    beats, chosen = config.page_beats, 96 if config.has(Opcode.DIV) else 0
    # yosys makes a memory this short of LUTs
    shared_words = beats <= SHORT
    store_rows = config.striders * config.page_size // (8 * lanes)
    store_in_luts = store_rows <= SHORT and not config.ultra & Ultra.PAGES
    depths = (config.scratch_depth, config.tuple_depth)
    kinds = (Ultra.SCRATCH, Ultra.TUPLES)
    # twice: two operands are read in a cycle, and a block RAM has one read port (hwgen/rtl/engine/lane.py)
    rams = (_scratch_rams(config), _block_rams(config.tuple_depth, 32))
    lane_memory = 2 * sum(
        count
        for count, depth, kind in zip(rams, depths, kinds, strict=True)
        if depth > SHORT and not config.ultra & kind
    )
    lane_luts = 636 if units > LANES_PER_CLUSTER else 602
    ultra = sum(bool(config.ultra & kind) for kind in kinds)
    chosen_words = _choices(
        (depth for depth, kind in zip(depths, kinds, strict=True) if depth > SHORT and not config.ultra & kind), 3
    )
    short = sum(depth <= SHORT and not config.ultra & kind for depth, kind in zip(depths, kinds, strict=True))
    return {
        # a memory of LUTs has no registers for the words that are read, a block RAM has; a word of UltraRAM has two
        "lanes": _times(
            units, (lane_luts + chosen_words + 80 * short + 36 * ultra, 1008 + 64 * short + 68 * ultra, 2, lane_memory)
        ),
        "functions": _times(clusters, _functions(config, "xcup")),
        "clusters": _times(clusters, (171 + chosen, 362 + chosen / 3, 0, 0)),
        "index files": _times(threads if config.index_depth else 0, (*INDEX_FILE["xcup"], _index_memory(config))),
        "threads": _times(threads, (40, 287, 0, 0)),
        "exchange": (32 * units * _shared_slots(config), 0, 0, 0),
        "crossed exchange": _crossed(config, "xcup"),
        "sequencer": (
            910,
            960 + 24 * _line(config) + _addresses(config),
            0,
            _block_rams(config.program_depth, WORD_BITS),
        ),
        "striders": _times(
            config.striders,
            (
                682 + 12 * config.link_bytes if shared_words else 798 + 1.1 * config.link_bytes,
                430 + 8 * config.link_bytes if shared_words else 476,
                0,
                _block_rams(config.strider_depth, 36) * 2
                + (0 if shared_words else 2 * _block_rams(beats, 4 * config.link_bytes)),
            ),
        ),
        "queues": _times(config.striders, (18 + 0.92 * config.queue_depth, 12 + config.queue_depth / 20, 0, 0)),
        "page store": (
            32 * lanes * (1 + math.ceil((math.log2(4 * lanes) - 1) / 2))
            + (config.striders * config.page_size * 8 / 41 if store_in_luts else 0),
            (64 if store_in_luts else 0) * lanes + _window(config),
            0,
            0 if store_in_luts or config.ultra & Ultra.PAGES else 2 * _block_rams(store_rows, 32 * lanes),
        ),
        "unpacker": (42 * lanes + 1135, 219 * lanes + 1660, 0, 0),
        "converters": _converters(config, "xcup"),
        "watched rows": _times(config.watch_depth, (30, 38, 0, 0)),
        "records": _times(bool(config.record_depth), (860 + 20 * lanes, 708 + 160 * lanes, 0, _outbox(config))),
        "records' paths": _times(bool(config.record_depth), RECORD_PATHS),
        "more outboxes": _more_outboxes(config, 20, 1),
        "access": (415 + 17 * config.striders, 8 * config.link_bytes + 700, 0, 0),
        "host": (347, 405, 0, 0),
        "board": (795, 860 + 8 * config.link_bytes, 0, 1),
    }


def _lattice(config: MachineConfig, family: str, lane_luts: float, lane_flipflops: float) -> dict[str, Row]:
    """Area on ECP5: yosys 0.5x, ``synth_ecp5``, packed by nextpnr; LUTs are TRELLIS_COMB, which carries use as well.

    Nexus has the same LUTs, carries, multipliers and block RAMs. yosys 0.70, ``synth_nexus``, made as many of them, two
    LUTs to a carry cell, and fewer flip-flops: its rows of functions and index files are ECP5's.

    It is the board between registers, which stand for an interconnect, that is packed: pins of the second master, too.
    """
    lanes, threads, clusters, units = config.lanes, config.threads, config.threads * config.clusters, config.units
    store_rows = config.striders * config.page_size // (8 * lanes)
    lane_memory = 2 * (2 * _scratch_rams(config) + 2 * _block_rams(config.tuple_depth, 32))
    distances = min(3, (config.clusters - 1).bit_length() + (threads - 1).bit_length())
    chosen = 150 if config.has(Opcode.DIV) else 0
    return {
        "lanes": _times(
            units,
            (
                lane_luts + 31 * distances + _choices((config.scratch_depth, config.tuple_depth), 1),
                lane_flipflops,
                3,
                lane_memory,
            ),
        ),
        "functions": _times(clusters, _functions(config, "ecp5")),
        "clusters": _times(clusters, (255 + chosen, 362 + chosen / 5, 0, 0)),
        "index files": _times(threads if config.index_depth else 0, (*INDEX_FILE["ecp5"], _index_memory(config))),
        "threads": _times(threads, (56, 280, 0, 0)),
        "exchange": (64 * units * _shared_slots(config), 0, 0, 0),
        "crossed exchange": _crossed(config, family),
        "sequencer": (
            1418 + 4.5 * _line(config),
            990 + 24 * _line(config) + _addresses(config),
            0,
            2 * _block_rams(config.program_depth, WORD_BITS),
        ),
        "striders": _times(
            config.striders,
            (
                1610,
                470,
                0,
                4 * _block_rams(config.page_beats, 4 * config.link_bytes) + 4 * _block_rams(config.strider_depth, 36),
            ),
        ),
        "queues": _times(config.striders, _lattice_queue(config)),
        "page store": (
            32 * lanes * (2 + math.ceil(math.log2(4 * lanes) - 1)),
            _window(config),
            0,
            4 * _block_rams(store_rows, 32 * lanes),
        ),
        "unpacker": (87 * lanes + 1450, 232 * lanes + 1460, 0, 0),
        "converters": _converters(config, "ecp5"),
        "watched rows": _times(config.watch_depth, (49, 38, 0, 0)),
        "records": _times(
            bool(config.record_depth),
            (560 + 54 * lanes, 854 + 160 * lanes, 0, 2 * _outbox(config) + 1 + _waiting_records(config, family)),
        ),
        "records' paths": _times(bool(config.record_depth), RECORD_PATHS),
        "more outboxes": _more_outboxes(config, 40, 2),
        "access": (450 + 17 * config.striders, 8 * config.link_bytes + 750, 0, 2),
        "host": (430, 210, 0, 0),
        "board": (2250, 1000 + 38 * config.link_bytes, 0, 2),
        "records' pins": _times(bool(config.record_depth), (700 + 20 * lanes, 190 + 68 * lanes, 0, 0)),
    }


LONG_QUEUE = 128
"""Entries from which on yosys makes the queue of a machine's only Strider of a Lattice's block RAM: what it gives goes
into a register, which a block RAM has. Of several Striders, one of their queues is chosen first: they are of LUTs."""


def _lattice_queue(config: MachineConfig) -> Row:
    """Area of pieces of 16 entries by 4 bits and the choice between them; fitted to syntheses of 4 to 1,024 entries."""
    # how many bits an entry has: the address and the pointer, a descriptor's number, a kind, and whether it is beyond
    width = (config.page_size - 1).bit_length() + 16 + max(8, (config.descriptor_depth - 1).bit_length()) + 3
    if config.striders == 1 and config.queue_depth >= LONG_QUEUE:
        return 60, 1 + 3 * math.log2(config.queue_depth), 0, 2 * _block_rams(config.queue_depth, width)
    pieces = math.ceil(config.queue_depth / 16)
    choice = 0.055 * width * config.queue_depth if pieces > 1 else 0
    return 6 * pieces * math.ceil(width / 4) + choice + 20, 1 + 3 * math.log2(config.queue_depth), 0, 0


def _window(config: MachineConfig) -> int:
    """Flip-flops behind the page store: a row of each bank if rows are short, a chosen row, and two or three turns."""
    return 32 * config.lanes * (5 if config.lanes <= 8 else 4)


def _outbox(config: MachineConfig) -> float:
    """Block RAMs of the outbox. The record unit and its master were synthesised alone, for two clusters; the width of
    rows held in registers separates the part that grows with the lanes from the constant part."""
    return _block_rams(config.tuple_depth // 2, 32 * config.lanes)


def _waiting_records(config: MachineConfig, family: str) -> int:
    """Block RAMs of Lattice's for records that wait to be fetched and stored; yosys makes a few of LUTs."""
    if config.record_depth >= 64:
        return 5
    return 2 if family == "nexus" else 0


def _more_outboxes(config: MachineConfig, lane_luts: int, half_blocks: int) -> Row:
    """Area of the outboxes of threads beyond the first, and of the choice between them."""
    more = config.threads - 1 if config.record_depth else 0
    choice = 32 * config.lanes * math.ceil(more / 3)
    return lane_luts * config.lanes * more + choice, 66 * config.lanes * more, 0, half_blocks * _outbox(config) * more


def _block_rams(depth: int, width: int) -> float:
    """RAMB36 for a memory with one read and one write port; half of one is a RAMB18 or DP16KD, of one of `SHAPES`."""
    return min(math.ceil(width / bits) * math.ceil(depth / words) for words, bits in SHAPES) / 2


def _scratch_rams(config: MachineConfig) -> float:
    """RAMB36 for a copy of a lane's scratchpad: of two halves, if one of them is shorter."""
    if not config.wide_depth:
        return _block_rams(config.scratch_depth, 32)
    return sum(_block_rams(depth, 16) for depth in (config.wide_depth, config.scratch_depth))


def _choices(depths: Iterable[int], inputs: int) -> int:
    """LUTs of a lane for what it reads, twice, of memories of up to three block RAMs in depth.

    `inputs` is the number of LUT inputs left next to a two-way choice: 3 of 6, 1 of 4. Memories of 2,048 words need no
    choice, but count as those of 1,536 do: a machine with smaller memories is never estimated as larger.
    """
    return 2 * 32 * math.ceil(2 / inputs) * sum(depth > WITHOUT_CHOICE for depth in depths)


def _ultra_rams(config: MachineConfig) -> int:
    """UltraRAMs of a machine's memories, each of 4,096 words of 72 bits."""
    piece = min(config.link_bytes, 4 * config.lanes)
    pages = (
        2 * (4 * config.lanes // piece) * _ultra(config.striders * config.page_size // (8 * config.lanes), 8 * piece)
    )
    of = {
        Ultra.PAGES: pages,
        # a word holds two of a lane's
        Ultra.SCRATCH: 2 * config.units * _ultra(config.scratch_depth // 2, 64),
        Ultra.TUPLES: 2 * config.units * _ultra(config.tuple_depth // 2, 64),
    }
    return sum(count for kind, count in of.items() if config.ultra & kind)


def _ultra(depth: int, width: int) -> int:
    return math.ceil(depth / 4096) * math.ceil(width / 72)


SHAPES = ((512, 36), (1024, 18), (2048, 9), (4096, 4), (8192, 2), (16384, 1))
"""Words and bits of half a block RAM."""


def _agilex(config: MachineConfig) -> dict[str, Row]:
    """As `hwgen.devices.UNMEASURED` says."""
    return {name: (*row[:3], 2 * row[3]) for name, row in _ultrascale_plus(config).items()}


def _gowin(config: MachineConfig) -> dict[str, Row]:
    """As `hwgen.devices.UNMEASURED` says: yosys does not absorb inverters and carries into LUTs, as it does on ECP5."""
    return {name: (10 / 9 * row[0], *row[1:]) for name, row in FAMILY_PARTS["ecp5"](config).items()}


FAMILY_PARTS: dict[str, Callable[[MachineConfig], dict[str, Row]]] = {
    "xcup": _ultrascale_plus,
    "xc7": _ultrascale_plus,
    "versal": _ultrascale_plus,
    "agilex": _agilex,
    "ecp5": partial(_lattice, family="ecp5", lane_luts=1193, lane_flipflops=1208),
    "gowin": _gowin,
    "nexus": partial(_lattice, family="nexus", lane_luts=1153, lane_flipflops=1110),
}
