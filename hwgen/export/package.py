"""The package that a hardware engineer gets: a board's Verilog and all that is needed to check it and to build it.

In: a Bundle, a device, pages, and what training on them must give. Out: a folder of files, equal for equal input, and a
manifest with their hashes. Nothing is trained or estimated here: expectations and figures come from the caller.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import numpy as np
import numpy.typing as npt

from hwgen.devices import Device
from hwgen.export import MANIFEST
from hwgen.export.lint import waivers
from hwgen.export.manual import manual
from hwgen.export.registers import header, register_map
from hwgen.export.report import report
from hwgen.export.scripts import scripts
from hwgen.rtl.board.board import generate
from hwgen.spec import board, bundle, registers
from hwgen.spec.board import BoardRegion, BoardRegister, BoardStatus
from hwgen.spec.bundle import Bundle
from hwgen.spec.load import Block, address, bundle_blocks, training_blocks
from hwgen.spec.registers import Region

FORMAT = 1
"""Version of the package's layout."""

TESTBENCH = Path(__file__).with_name("testbench.v")
BASE = 0x4000_0000
"""Address of the testbench's pages."""

PATIENCE = 100_000_000
"""Cycles that the testbench waits for the interrupt."""

RUN_VERILATOR = """\
#!/bin/sh
# The testbench under Verilator 5, with g++ and make. An argument makes the page bus stall:
# sh verilator.sh 64 pauses in 64 of 256 cycles.
set -e
cd "$(dirname "$0")"
${VERILATOR:-verilator} --binary --timing -O3 --top-module testbench -GSTALL=${1:-0} -Wno-fatal -Wno-lint \\
  -Wno-style --x-initial 0 --no-assert -Mdir verilated -o testbench testbench.v ../rtl/dana_board.v
./verilated/testbench | tee testbench.log
grep -q '^PASS' testbench.log
"""

RUN_ICARUS = """\
#!/bin/sh
# The testbench under Icarus Verilog. An argument makes the page bus stall: sh icarus.sh 64.
set -e
cd "$(dirname "$0")"
${IVERILOG:-iverilog} -g2001 -s testbench -P testbench.STALL=${1:-0} -o testbench.vvp testbench.v ../rtl/dana_board.v
${VVP:-vvp} -n testbench.vvp | tee testbench.log
grep -q '^PASS' testbench.log
"""


@dataclass(frozen=True, kw_only=True)
class Check:
    """What the testbench trains on, and what must come of it.

    Attributes
    ----------
    pages
        Whole pages.
    epochs
        To train at most.
    scratchpad
        First rows of the scratchpad afterwards, bit patterns, shape [rows, lanes].
    losses
        Of each epoch that was run, bit patterns; zeros where the rule has none.
    converged
        Whether the convergence test ended the training.
    """

    pages: bytes
    epochs: int
    scratchpad: npt.NDArray[np.uint32]
    losses: Sequence[int]
    converged: bool


def package(
    made: Bundle, device: Device, check: Check, *, title: str, notes: str, texts: Mapping[str, str]
) -> dict[str, bytes]:
    """All files by their paths in the package.

    Parameters
    ----------
    title, notes
        For the report: a line, and paragraphs of Markdown about design and estimates.
    texts
        More files: the rule, listings.
    """
    config = made.config
    text = generate(config, wide_multipliers=device.wide_multipliers)
    verilog = f"// {title}; generated, MachineConfig {config.fingerprint()}\n{text}"
    count = len(check.pages) // config.page_size
    writes = [*bundle_blocks(made), *training_blocks(made, pages=count, epochs=check.epochs, base=BASE)]
    files = {
        f"rtl/{board.TOP}.v": verilog,
        "rtl/lint.vlt": waivers(),
        **{f"images/{name}.hex": text for name, text in _images(made).items()},
        "isa.md": manual(),
        "registers.md": register_map(),
        "registers.h": header(),
        "sim/testbench.v": _testbench(made, check, writes),
        "sim/writes.hex": _pairs(writes),
        "sim/expected.hex": _pairs(_expected(made, check)),
        "sim/pages.hex": _beats(check.pages, config.link_bytes),
        "sim/verilator.sh": RUN_VERILATOR,
        "sim/icarus.sh": RUN_ICARUS,
        **{f"synth/{name}": text for name, text in scripts(config, device).items()},
        **texts,
    }
    files["REPORT.md"] = report(
        made, device, title=title, notes=notes, files=sorted(files), pages=count, epochs=len(check.losses)
    )
    done = {name: text.encode() for name, text in files.items()}
    done["bundle.bin"] = made.to_bytes()
    manifest = {
        "format": FORMAT,
        "title": title,
        "top": board.TOP,
        "config": config.to_json(),
        "device": dataclasses.asdict(device),
        "versions": {
            "dana-db": version("dana-db"),
            "amaranth": version("amaranth"),
            "bundle": bundle.VERSION,
            "machine registers": f"{registers.IDENTITY:#x}",
            "board registers": f"{board.IDENTITY:#x}",
        },
        "sha256": {name: hashlib.sha256(data).hexdigest() for name, data in sorted(done.items())},
    }
    done[MANIFEST] = (json.dumps(manifest, indent=2, sort_keys=True) + "\n").encode()
    return done


def write(folder: Path, files: Mapping[str, bytes]) -> None:
    """Put the files into a folder, which may exist; what is there under other names stays."""
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def _images(made: Bundle) -> dict[str, str]:
    """The machine's memories, a word a line, for `$readmemh`."""
    blocks = {
        "program": made.program_words(),
        "strider": made.strider_words(),
        "constants": np.array(made.constants, dtype=np.uint32),
        "columns": made.column_words(),
        "scratchpad": made.image.ravel(),
    }
    return {name: "".join(f"{int(word):08x}\n" for word in words) for name, words in blocks.items()}


def _pairs(blocks: Sequence[Block]) -> str:
    """A byte address and a word a line."""
    return "".join(
        f"{4 * (start + k):08x}{int(word):08x}\n" for start, words in blocks for k, word in enumerate(words.ravel())
    )


def _beats(pages: bytes, width: int) -> str:
    """A beat of the bus a line, byte 0 last."""
    return "".join(f"{pages[k : k + width][::-1].hex()}\n" for k in range(0, len(pages), width))


def _expected(made: Bundle, check: Check) -> list[Block]:
    config = made.config

    def block(region: BoardRegion | Region, offset: int, words: npt.ArrayLike) -> Block:
        return address(region, offset), np.asarray(words, dtype=np.uint32).ravel()

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
        rows = check.scratchpad[symbol.row : symbol.row + symbol.rows(config.lanes)]
        blocks.append(block(Region.SCRATCH, symbol.row * config.lanes, rows))
    return blocks


def _testbench(made: Bundle, check: Check, writes: Sequence[Block]) -> str:
    config = made.config
    values = {
        "DATA_BITS": 8 * config.link_bytes,
        "BEATS": len(check.pages) // config.link_bytes,
        "WRITES": sum(words.size for _, words in writes),
        "EXPECTED": sum(words.size for _, words in _expected(made, check)),
        "PATIENCE": PATIENCE,
        "LATENCY": config.link_latency,
        "BASE": f"{BASE:016x}",
        "INTERRUPT": f"{board.byte_address(BoardRegion.BOARD, BoardRegister.INTERRUPT):07x}",
    }
    text = TESTBENCH.read_text(encoding="utf-8")
    for name, value in values.items():
        text = text.replace(f"@{name}@", str(value))
    return text
