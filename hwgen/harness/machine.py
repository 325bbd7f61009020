"""The RTL of a machine as an object that runs epochs: a board under Verilator, and the driver of every board.

In: a configuration, Bundles, pages. Out: scratchpad rows and counters, as the simulator gives them. It reads and writes
no register itself.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np

from hwgen.driver import Board
from hwgen.driver.board import Join
from hwgen.driver.records import sparse_image
from hwgen.harness.board import RtlBoard
from hwgen.harness.build import verilog_of
from hwgen.spec.bundle import Bundle
from hwgen.spec.config import MachineConfig
from hwgen.spec.counters import EpochCounters

STALLS = (8, 64, 128, 230)
"""Cycles of 256 in which a stalling link pauses."""


class RtlMachine(Board):
    """A machine on a simulated board with blank memories.

    Parameters
    ----------
    config
        The machine. Equal hardware is compiled once.
    stall_seed
        None: the link of the cycle contract. A number: a link that stalls at random, differently for each number and
        each epoch.
    patience
        See `hwgen.driver.Board.train`.
    pause
        Cycles from the interrupt of a pause to the host's last access, if it is done by then; 0: as soon as it is.

    Raises
    ------
    hwgen.rtl.verilate.BuildError
        Verilator, g++ or make is missing, or rejected the design.
    """

    def __init__(
        self, config: MachineConfig, *, stall_seed: int | None = None, patience: int | None = None, pause: int = 0
    ) -> None:
        self._patience = patience
        self._pause = pause
        self._stalls = None if stall_seed is None else np.random.default_rng(stall_seed)
        self.rtl = RtlBoard(verilog_of(config), config)
        super().__init__(self.rtl, self.rtl.pages, self.rtl.records, blank=True)

    def load(self, bundle: Bundle, records: Iterable[bytes] | None = None) -> None:
        """As any board is loaded; without `records` all are zero, as the simulator has them.

        Raises
        ------
        hwgen.driver.BoardError
            The Bundle is for another machine.
        hwgen.spec.bundle.BundleError
            It breaks a rule of the machine.
        """
        super().load(bundle, sparse_image(bundle) if records is None else records)

    def run_epoch(self, pages: Any, join: Join | None = None) -> EpochCounters:
        """Run one epoch over pages that follow one another in a buffer of bytes, from the model that is there.

        Parameters
        ----------
        join
            See `hwgen.driver.Board.train`.

        Raises
        ------
        hwgen.driver.MachineHang
            The machine did not come to an end.
        """
        if self._stalls is not None:
            self.rtl.stall(int(self._stalls.choice(STALLS)), int(self._stalls.integers(1 << 63)))
        return self.train(pages, epochs=1, patience=self._patience, join=join).counters

    def _resume(self) -> None:
        self.rtl.hold(self._pause)
        super()._resume()
