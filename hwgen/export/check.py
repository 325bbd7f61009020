"""Trains an exported package's own pages on a board, and compares: steps 4 to 6 of its report, done by a driver.

In: a package's folder, and the two sides of a board, or none for its own Verilog under Verilator. Out: the training's
figures. It writes nothing.
"""

from pathlib import Path

import numpy as np
import numpy.typing as npt

from hwgen.driver import Board, BoardError, BoardRun, PageMemory, RecordMemory, Registers
from hwgen.export import MANIFEST
from hwgen.rtl.verilate import BuildError
from hwgen.spec import board, load
from hwgen.spec.board import BoardRegion, BoardRegister
from hwgen.spec.bundle import Bundle
from hwgen.spec.config import MachineConfig
from hwgen.spec.strider import Fault

Pairs = npt.NDArray[np.uint64]
"""Byte addresses and words, shape [k, 2]."""

SHOWN = 3


class CheckError(Exception):
    """There is no package, no board, or the board trained something else; the message says which, and what to do."""


Sides = tuple[Registers, PageMemory, RecordMemory | None]
"""Of a board, as `hwgen.driver.Board` takes them."""


def check(folder: Path, sides: Sides | None = None, *, seconds: float | None = None) -> BoardRun:
    """Load the package's Bundle, train on its pages, compare every word of ``sim/expected.hex`` and every record.

    Parameters
    ----------
    sides
        Of the board; None: the package's Verilog is simulated.
    seconds
        That the training may take.

    Raises
    ------
    CheckError
        See there.
    """
    bundle, pages, epochs, expected = _package(folder)
    try:
        registers, memory, records = sides or _simulated(folder, bundle.config)
        driver = Board(registers, memory, records)
        driver.load(bundle)
        run = driver.train(pages, epochs=epochs, seconds=seconds)
        counters = run.counters
        if counters.fault != Fault.NONE:
            raise CheckError(
                f"the board stopped with fault {counters.fault.name} at page {counters.fault_page}, pointer "
                f"{counters.fault_pointer:#x}; the package's pages have none: are they where the board reads them?"
            )
        found = [int(registers.read(int(address) // 4, 1)[0]) for address, _ in expected]
        for t, table in enumerate(bundle.tables, 1):
            rows = driver.read_rows(0, table.records * table.rows, table=t).reshape(table.records, table.rows, -1)
            _compare(folder, bundle, t, rows)
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


def _compare(folder: Path, bundle: Bundle, number: int, found: npt.NDArray[np.uint32]) -> None:
    """Records of a table with ``sim/records.hex``, which has the rows that are not 0."""
    lanes, table, offset = bundle.config.lanes, bundle.tables[number - 1], bundle.table_offsets[number - 1]
    wanted = np.zeros_like(found)
    each = (1 << table.shift(lanes)) // (4 * lanes)
    for line in (folder / "sim" / "records.hex").read_text().splitlines():
        row, words = line.split()
        n, k = divmod(int(row[1:], 16) - offset // (4 * lanes), each)
        if 0 <= n < table.records:
            wanted[n, k] = np.frombuffer(bytes.fromhex(words)[::-1], dtype="<u4")
    wrong = np.unique(np.nonzero(found != wanted)[0])
    if wrong.size:
        raise CheckError(
            f"the board trained something else: {wrong.size} of {table.records} records of table {number} differ, "
            f"the first is {wrong[0]}"
        )


def _package(folder: Path) -> tuple[Bundle, bytes, int, Pairs]:
    """What is to be loaded, trained on, for how many epochs, and what must then be read."""
    try:
        if not (folder / MANIFEST).is_file():
            raise ValueError(f"it has no {MANIFEST}")
        bundle = Bundle.from_bytes((folder / "bundle.bin").read_bytes())
        pages = b"".join(bytes.fromhex(line)[::-1] for line in (folder / "sim" / "pages.hex").read_text().split())
        writes, expected = (_pairs(folder / "sim" / name) for name in ("writes.hex", "expected.hex"))
        at = 4 * load.address(BoardRegion.BOARD, BoardRegister.EPOCHS)
        epochs = [int(word) for address, word in writes if address == at]
        if len(epochs) != 1:
            raise ValueError(f"sim/writes.hex writes EPOCHS {len(epochs)} times")
    except (OSError, ValueError) as error:
        raise CheckError(
            f"{folder} must be a folder that dana hdl of this version wrote, but {error}: export it again"
        ) from None
    return bundle, pages, epochs[0], expected


def _pairs(path: Path) -> Pairs:
    lines = path.read_text().split()
    return np.array([[int(line[:8], 16), int(line[8:], 16)] for line in lines], dtype=np.uint64).reshape(-1, 2)


def _simulated(folder: Path, config: MachineConfig) -> Sides:
    from hwgen.harness import RtlBoard

    text = (folder / "rtl" / f"{board.TOP}.v").read_text()
    rtl = RtlBoard(text, config)
    return rtl, rtl.pages, rtl.records


def _said_otherwise(address: int) -> bool:
    """Whether a board of the same hardware may say something else there: how fast it runs, what more it can."""
    first = 4 * load.address(BoardRegion.BOARD, BoardRegister.THREADS)
    return first <= address < first + 4 * len(board.CONFIGURATION)
