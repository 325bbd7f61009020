"""Detects a busy board that makes no progress.

In: a Bundle; the board's counts, read repeatedly by the caller. Out: an error once they have not changed for longer
than its work can take.
"""

from hwgen.driver.errors import MachineHang
from hwgen.spec import board, cycles
from hwgen.spec.bundle import Bundle
from hwgen.spec.strider import STRIDER_BOUND

TUPLE_BYTES_LEAST = 28
"""A line pointer and a tuple header (PostgreSQL, `storage/itemid.h` and `access/htup_details.h`)."""
CYCLE_BITS = 32
"""Of the count of cycles that is looked at."""


def patience(bundle: Bundle) -> int:
    """Cycles that a machine may take from one page to the next: Striders at their bound, each tuple a batch, after the
    longest silence of a memory that its board does not report."""
    config = bundle.config
    slowest = max(cycles.STRIDER_CYCLES[instruction.op] for instruction in bundle.strider)
    strider = STRIDER_BOUND * config.page_size * slowest
    sections = sum(cycles.SECTION_START + config.section_length(bundle.section(name)) for name in bundle.sections)
    tuples = config.page_size // TUPLE_BYTES_LEAST + 1
    return board.BUS_TIMEOUT + (config.striders + 1) * (strider + tuples * (bundle.levels + 1) * sections)


class Watch:
    """Watches a busy board; ``patience``: its cycles that may pass without progress."""

    def __init__(self, patience: int) -> None:
        self._patience = patience
        self._state: tuple[int, ...] = ()
        self._last: int | None = None
        self._waited = 0

    def look(self, now: int, state: tuple[int, ...]) -> None:
        """Note what the board says; MachineHang where that has been the same for too long.

        Parameters
        ----------
        now
            Cycles of the training, modulo 2**32, read before `state` was.
        state
            Pages read, epochs ended, and other counts that change with progress.
        """
        if state != self._state:
            self._state, self._last, self._waited = state, None, 0
            return
        # the first count that is certainly read after the state that still holds is where waiting begins
        if self._last is not None:
            self._waited += (now - self._last) % (1 << CYCLE_BITS)
        self._last = now
        if self._waited > self._patience:
            read, ended, *_ = state
            raise MachineHang(
                f"the machine must read a page or end an epoch within {self._patience} cycles, but it has not: "
                f"{read} pages were read and {ended} epochs ended. Please report the Bundle as a bug"
            )
