"""The cycle contract: constants of the machine's timing, read by the RTL and by the simulator.

The recurrences that use them are in `docs/machine.md`, section "Cycles". A constant is changed here, in the RTL
and in nothing else: the simulator takes them from the Bundle's machine.
"""

from hwgen.spec import operations
from hwgen.spec.operations import Unit
from hwgen.spec.strider import Opcode

# --- engine ---------------------------------------------------------------------------------------------------
ALU_LATENCY = max(op.stages for op in operations.Opcode if not op.special)
"""Register stages of a lane's arithmetic; shorter units wait for the longest."""

RESULT_LATENCY = 5 + ALU_LATENCY
"""Cycles from a row's issue until an instruction that reads its result may issue; the same for every operation
that is not a special function. It has the arithmetic, the memories' addresses, their words, mask, exchange, write."""

INDEX_LATENCY = RESULT_LATENCY
"""Cycles from the issue of a row of SETX until a row that uses the entry may issue. The RTL is built for it to be the
same as for other results."""

ORDER_WINDOW = RESULT_LATENCY - 1
"""SETX compares a new entry of the index file with this many entries before it. If one of them is equal, the row of an
ordered instruction that uses the new entry issues this many cycles later, when all earlier results can be read."""

ORDER_LATENCY = INDEX_LATENCY + 6
"""Cycles from the issue of a row of SETX until the row of an ordered instruction that uses the entry may issue."""

SECTION_START = 3
"""Cycles from the start of a section until its first instruction's wait begins."""

MIN_INSTRUCTION = 2
"""Least cycles of an instruction, wait + rows * interval: the program memory delivers one in two cycles."""

ROUND_START = 2
"""Cycles from the later of (a round is handed over, the engine is idle) to the start of its first section."""

# --- access engine --------------------------------------------------------------------------------------------
STRIDER_START = 2
"""Cycles from the last beat of a page to the Strider's first instruction."""

FACTOR_BITS = 16
"""Bits of a Strider's factors; its product takes a cycle for each."""

STRIDER_CYCLES = dict.fromkeys(Opcode, 2) | {
    Opcode.READB: 4,
    Opcode.MUL: 3 + FACTOR_BITS,
    Opcode.CTL: 3,
}
"""Cycles of each Strider instruction, for any operands, branches taken or not; writeB and `ctl end` take longer
while the queue is full."""

UNPACK_STAGES = 3
"""Entries that the unpacker holds, taken from the queues, before the one it works on."""

UNPACK_LATENCY = 10
"""Cycles from the unpacker's decision to hand a round over until the engine sees it; covers its write pipeline."""

WATCH_LATENCY = 13
"""Cycles from the beat of a watched column until it is known whether its tuple begins a batch."""

WATCH_AHEAD = 3
"""Cycles from there until the tuple may go ahead of that, where both places that it may get are free: its rows are
written when it is known which it gets."""

PAGE_RELEASE = 1
"""Cycles from the unpacker coming to a page's end to its buffer being free."""

READER_LATENCY = 3
"""Cycles that a board's page reader adds to those of the memory behind it: two from the machine's request to the
burst's address, one from a beat of the bus to the machine. What is left of `link_latency` is the memory's."""

RECORD_START = 6
"""Cycles from the later of (a round is complete, the one before is stored) to a fetch's first request, and from its
last row on the bus to the round's hand-over."""

RECORD_STORE = 2
"""Cycles from the end of a round's section to a store's first row on the bus, and from the memory's answer to the time
from which the next fetch counts."""

MASTER_LATENCY = 2
"""Cycles of `record_latency` that a board's record master takes; what is left is the memory's."""

# --- special functions ------------------------------------------------------------------------------------------


def element_interval(op: operations.Opcode, divide_interval: int) -> int:
    """Cycles between two elements of an operation: of a special function in a cluster; 1 for all others."""
    return divide_interval if op.unit is Unit.DIVIDE else 1


SPECIAL_LATENCY = {op: 6 + op.stages for op in operations.Opcode if op.special}
"""Cycles from an element's issue until an instruction that reads its result may issue: as `RESULT_LATENCY`, and one on
the way back to the lanes."""
