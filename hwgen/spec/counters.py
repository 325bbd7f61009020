"""What a machine reports about an epoch: the same counts from the simulator and from the RTL."""

from collections.abc import Callable
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from hwgen.spec.aperture import address
from hwgen.spec.registers import Region, Register
from hwgen.spec.strider import Fault

UNKNOWN_PAGE = 0xFFFFFFFF
"""FAULT_PAGE of a fault that the engine found: its tuples' pages are long gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochCounters:
    """Counters of one epoch."""

    cycles: int
    """From the start of the epoch to its end."""
    tuples: int
    """Rows trained on."""
    skipped: int
    """Rows left out because of a NULL."""
    engine_busy: int
    """Cycles in which the engine ran a section; in all others it waited for tuples."""
    merging: int
    """Cycles of these in sections `merge` and `push`."""
    waiting_for_engine: int
    """Cycles in which the unpacker waited for the engine to release a half of tuple memory."""
    waiting_for_pages: int
    """Cycles until the end of the last page in which the unpacker had nothing to unpack."""
    batches: int
    """Of tuples; those count that ended where a row was chosen again."""
    paused: int = 0
    """Cycles in which the machine waited for its host behind the merges of a batch; `cycles` has them, too."""
    fault: Fault = Fault.NONE
    """`Fault.NONE`, or why the machine stopped; then the other counters mean nothing."""
    fault_page: int = 0
    """Within the epoch; of a fault of the engine (STACK, INDEX), which has none, `UNKNOWN_PAGE`."""
    fault_pointer: int = 0
    """Page address of the line pointer being followed (0: the page header); of a fault of the engine 0, or the tag of
    the SETX that failed."""


COUNTERS = {
    field.name: Register[field.name.upper()] for field in fields(EpochCounters) if not field.name.startswith("fault")
}
"""Numbers of 64 bits, and the registers that begin with their lower halves."""


def read_counters(read: Callable[[int, int], npt.NDArray[np.uint32]], fault: Fault) -> EpochCounters:
    """The last epoch's counters, with the fault that STATUS has.

    ``read`` takes a word address of the control bus and a number of words, and returns these.
    """

    def register(number: Register, words: int = 1) -> int:
        read_words = read(address(Region.CONTROL, number), words)
        return sum(int(word) << 32 * k for k, word in enumerate(read_words))

    return EpochCounters(
        **{name: register(first, 2) for name, first in COUNTERS.items()},
        fault=fault,
        fault_page=register(Register.FAULT_PAGE),
        fault_pointer=register(Register.FAULT_POINTER),
    )
