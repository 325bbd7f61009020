"""The RTL of a machine as an object that runs epochs: a board under Verilator, and the driver of every board.

In: a configuration, Bundles, pages. Out: scratchpad rows and counters, as the simulator gives them. It reads and writes
no register itself.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from hwgen.driver import Board
from hwgen.driver.board import Words
from hwgen.harness.board import RtlBoard
from hwgen.harness.build import verilog_of
from hwgen.spec.bundle import Bundle
from hwgen.spec.config import MachineConfig
from hwgen.spec.counters import EpochCounters

STALLS = (8, 64, 128, 230)
"""Cycles of 256 in which a stalling link pauses."""


class RtlMachine:
    """A machine on a simulated board.

    Parameters
    ----------
    config
        The machine. Machines whose hardware is equal are compiled once.
    stall_seed
        None: the link of the cycle contract. A number: a link that stalls at random, differently for each number and
        each epoch.
    patience
        See `hwgen.driver.Board.train`.

    Attributes
    ----------
    rtl
        What the driver drives.

    Raises
    ------
    hwgen.rtl.verilate.BuildError
        Verilator, g++ or make is missing, or refused the design.
    """

    def __init__(self, config: MachineConfig, *, stall_seed: int | None = None, patience: int | None = None) -> None:
        self.config = config
        self._patience = patience
        self._stalls = None if stall_seed is None else np.random.default_rng(stall_seed)
        self.rtl = RtlBoard(verilog_of(config), config)
        self._board = Board(self.rtl, self.rtl.pages, self.rtl.records, blank=True)

    def load(self, bundle: Bundle) -> None:
        """Fill the memories: program, tables and the initial scratchpad; what was there before is gone.

        Raises
        ------
        hwgen.driver.BoardError
            The Bundle is for another machine.
        hwgen.spec.bundle.BundleError
            It breaks a rule of the machine.
        """
        self._board.load(bundle)

    def write_rows(self, row: int, rows: npt.ArrayLike, *, table: int = 0) -> None:
        """Write rows of every thread's scratchpad, or of records; see `hwgen.driver.Board.write_rows`.

        Raises
        ------
        ValueError
            They are of another shape, or there are no such rows.
        """
        self._board.write_rows(row, rows, table=table)

    def read_rows(self, row: int, count: int, *, table: int = 0) -> Words:
        """Bit patterns of rows of thread 0's scratchpad, or of records; see `hwgen.driver.Board.read_rows`.

        Raises
        ------
        ValueError
            There are no such rows.
        """
        return self._board.read_rows(row, count, table=table)

    def run_epoch(self, pages: Any) -> EpochCounters:
        """Run one epoch over pages that follow one another in a buffer of bytes, from the model that is there.

        Raises
        ------
        hwgen.driver.MachineHang
            The machine did not come to an end.
        """
        if self._stalls is not None:
            self.rtl.stall(int(self._stalls.choice(STALLS)), int(self._stalls.integers(1 << 63)))
        return self._board.train(pages, epochs=1, patience=self._patience).counters
