"""Trains an exported package's own pages on a board, and compares what must come of it, as its testbench does.

In: a package's folder, and the two sides of a board, or none for its own Verilog under Verilator. Out: the training's
figures, and waveforms where they are wanted.
"""

import json
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import numpy.typing as npt

from hwgen.driver import Board, BoardError, BoardRun, PageMemory, RecordMemory, Registers
from hwgen.driver.records import sparse_image
from hwgen.export import FORMAT, MANIFEST, RECORDS, STARTS
from hwgen.export.waves import view
from hwgen.folders import write_file
from hwgen.harness import RtlBoard
from hwgen.rtl.verilate import BuildError
from hwgen.spec import board
from hwgen.spec.aperture import byte_address
from hwgen.spec.board import BoardRegion, BoardRegister
from hwgen.spec.bundle import Bundle
from hwgen.spec.config import MachineConfig
from hwgen.spec.strider import Fault

Pairs = npt.NDArray[np.uint64]
"""Byte addresses and words, shape [k, 2]."""

PAIRS = ("writes", "expected", "counters")
SHOWN = 3


class CheckError(Exception):
    """There is no package, no board, or the board trained something else; the message says which, and what to do."""


Sides = tuple[Registers, PageMemory, RecordMemory | None]
"""Of a board, as `hwgen.driver.Board` takes them."""


VIEW = ".gtkw"
"""Suffix of the saved view that comes with waveforms, in place of theirs."""


def check(
    folder: Path, sides: Sides | None = None, *, seconds: float | None = None, trace: Path | None = None
) -> BoardRun:
    """Load the package's Bundle, train on its pages, compare every word of ``sim/expected.hex`` and every record.

    Of simulated Verilog the counters are compared, too; a board's memory is as late as it is. CheckError says what is
    not as it should be.

    Parameters
    ----------
    sides
        Of the board; None: the package's Verilog is simulated.
    seconds
        That the training may take.
    trace
        Where waveforms of the simulated training go, in VCD, with a saved view.
    """
    bundle, pages, epochs, expected, counted = _package(folder)
    try:
        registers, memory, records = sides or simulated(folder, bundle.config, traced=trace is not None)
        driver = Board(registers, memory, records)
        driver.load(bundle, sparse_image(bundle, _rows(folder / STARTS)))
        if trace is not None:
            write_file(trace.with_suffix(VIEW), view(_verilog(folder), board.TOP, f"TOP.{board.TOP}").encode())
        with registers.waveforms(trace) if isinstance(registers, RtlBoard) and trace else nullcontext():
            run = driver.train(pages, epochs=epochs, seconds=seconds)
        counters = run.counters
        if counters.fault != Fault.NONE:
            raise CheckError(
                f"the board stopped with fault {counters.fault.name} at page {counters.fault_page}, pointer "
                f"{counters.fault_pointer:#x}; the package's pages have none: are they where the board reads them?"
            )
        if sides is None:
            expected = np.concatenate([expected, counted])
        found = [int(registers.read(int(address) // 4, 1)[0]) for address, _ in expected]
        after = _rows(folder / RECORDS) if bundle.tables else {}
        for t, table in enumerate(bundle.tables, 1):
            rows = driver.read_rows(0, table.records * table.rows, table=t).reshape(table.records, table.rows, -1)
            _compare(after, bundle, t, rows)
    except (BoardError, BuildError) as error:
        raise CheckError(str(error)) from None
    wrong = [
        f"{int(address):#x} must hold {int(word):#010x}, but {value:#010x} was read"
        for (address, word), value in zip(expected, found, strict=True)
        if int(word) != value and not _said_otherwise(int(address))
    ]
    if wrong:
        shown = "\n".join(wrong[:SHOWN]) + ("\n…" if len(wrong) > SHOWN else "")
        raise CheckError(f"the board trained something else: {len(wrong)} of {len(expected)} words differ\n{shown}")
    return run


def bundle_of(folder: Path) -> Bundle:
    """The package's Bundle; CheckError if there is none."""
    return _package(folder)[0]


def _compare(after: Mapping[int, bytes], bundle: Bundle, number: int, found: npt.NDArray[np.uint32]) -> None:
    """Records of a table with the rows that must be there; all others must be 0."""
    lanes, table, offset = bundle.config.lanes, bundle.tables[number - 1], bundle.table_offsets[number - 1]
    wanted = np.zeros_like(found)
    each = (1 << table.shift(lanes)) // (4 * lanes)
    for row, words in after.items():
        n, k = divmod(row - offset // (4 * lanes), each)
        if 0 <= n < table.records:
            wanted[n, k] = np.frombuffer(words, dtype="<u4")
    wrong = np.unique(np.nonzero((found != wanted) & bundle.record_held(number))[0])
    if wrong.size:
        raise CheckError(
            f"the board trained something else: {wrong.size} of {table.records} records of table {number} differ, "
            f"the first is {wrong[0]}"
        )


def _rows(path: Path) -> dict[int, bytes]:
    """Rows of records by their numbers."""
    lines = (line.split() for line in path.read_text().splitlines()) if path.exists() else ()
    return {int(number[1:], 16): bytes.fromhex(words)[::-1] for number, words in lines}


def _package(folder: Path) -> tuple[Bundle, bytes, int, Pairs, Pairs]:
    """What is to be loaded, trained on, for how many epochs, what must then be read, and be counted."""
    try:
        if not (folder / MANIFEST).is_file():
            raise ValueError(f"it has no {MANIFEST}")
        found = json.loads((folder / MANIFEST).read_bytes()).get("format")
        if found != FORMAT:
            raise ValueError(f"its format is {found}, not {FORMAT}")
        bundle = Bundle.from_bytes((folder / "bundle.bin").read_bytes())
        pages = b"".join(bytes.fromhex(line)[::-1] for line in (folder / "sim" / "pages.hex").read_text().split())
        writes, expected, counted = (_pairs(folder / "sim" / f"{name}.hex") for name in PAIRS)
        at = byte_address(BoardRegion.BOARD, BoardRegister.EPOCHS)
        epochs = [int(word) for address, word in writes if address == at]
        if len(epochs) != 1:
            raise ValueError(f"sim/writes.hex writes EPOCHS {len(epochs)} times")
    except (OSError, ValueError) as error:
        raise CheckError(
            f"{folder} must be a folder that dana hdl of this version wrote, but {error}: export it again"
        ) from None
    return bundle, pages, epochs[0], expected, counted


def _pairs(path: Path) -> Pairs:
    lines = path.read_text().split()
    return np.array([[int(line[:8], 16), int(line[8:], 16)] for line in lines], dtype=np.uint64).reshape(-1, 2)


def simulated(folder: Path, config: MachineConfig, *, traced: bool = False) -> Sides:
    """The package's Verilog under Verilator, compiled once for equal hardware with any prefix of its modules."""
    rtl = RtlBoard(_verilog(folder), config, traced=traced)
    return rtl, rtl.pages, rtl.records


def _verilog(folder: Path) -> str:
    """The package's, of one file or of many, without the prefix of its modules."""
    text = "".join(path.read_text() for path in sorted((folder / "rtl").glob("*.v")))
    return text.replace(json.loads((folder / MANIFEST).read_bytes())["prefix"], "")


def _said_otherwise(address: int) -> bool:
    """Whether a board of the same hardware may say something else there: how fast it runs, what more it can."""
    first = byte_address(BoardRegion.BOARD, BoardRegister.THREADS)
    return first <= address < first + 4 * len(board.CONFIGURATION)
