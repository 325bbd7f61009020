"""The board's own part of the address map, which extends the machine's (`hwgen.spec.registers`), and its AXI side.

A *board* is a machine between two buses: pages come through an AXI4 read master, all else goes through an AXI4-Lite
slave (`hwgen.spec.aperture`). The board trains alone: epoch after epoch, until the last one or until the rule's
convergence test holds; then it raises its interrupt.
"""

from dataclasses import fields
from enum import IntFlag

from hwgen.spec.config import MachineConfig
from hwgen.spec.described import Described

TOP = "dana_board"
"""Name of the top module."""

PAGE_ADDRESS_BITS = 64
IDENTITY = 0xDA7AB004
"""Value of `BoardRegister.ID`: product and version of this map."""

NOWHERE = 0xFFFFFFFF
"""Value of LOSS_AT and CONVERGENCE_AT where the rule has none."""

ENDLESS = 0xFFFFFFFF
"""Value of PAGES_READY: all pages are in memory before the start."""

BUS_TIMEOUT = 1 << 20
"""Value of `BoardRegister.BUS_TIMEOUT` after a reset: 7 ms at 150 MHz."""

LOSSES = 1024
"""Epochs whose losses are kept: epoch e at e mod LOSSES."""

BOUNDARY = 4096
"""Bytes that a burst must not cross (AXI4, section A3.4.1)."""

LONGEST_BURST = 256
"""Beats of a burst at most (AXI4, section A3.4.1)."""


class BoardRegion(Described):
    """Address bits from `REGION_SHIFT` on."""

    BOARD = 6, "`BoardRegister`"
    LOSSES = 7, "Sum of the rule's loss over each epoch, binary32, word address = epoch mod 1024. Read only."


class BoardRegister(Described):
    """Words of the board's region; (r) read only, (w) write only: reads as 0, 64-bit values are two words, low
    first."""

    ID = 0x00, "(r) product and version of the board's map"
    COMMAND = 0x01, "(w) Write 1: train. Write 2: stop, wait for what is still on the bus, and be idle; 3 is the same."
    STATUS = (
        0x02,
        "(r) bit 0 busy, bit 1 trained, bit 2 the convergence test held, bit 3 stopped by command, bit 4 unanswered: a "
        "memory has not answered for BUS_TIMEOUT cycles, bit 5 the machine is paused, bit 6 with the epoch's last "
        "batch (bits 2 and 3 of its STATUS), bits 15:8 fault",
    )
    INTERRUPT = (
        0x03,
        "Bit 0: training has ended, well or not, the machine has paused, or a memory does not answer (STATUS). Write 1 "
        "to bit 0: clear.",
    )
    INTERRUPT_ENABLE = 0x04, "Bit 0: the interrupt's line follows INTERRUPT"
    EPOCHS = 0x05, "Epochs to train at most; 0 counts as 1"
    EPOCHS_RUN = 0x06, "(r) epochs that came to their end"
    SLOTS = (
        0x07,
        "Pages that the memory at PAGE_BASE has room for: page k of the training lies in slot k mod SLOTS. Slots "
        "follow one another. A table that is in memory as a whole has SLOTS = PAGES. While it is 0, as after a reset, "
        "a write of 1 to COMMAND is an error.",
    )
    PAGE_BASE = 0x08, "(64 bits) Address of slot 0; a multiple of a slot's bytes, lower bits are ignored"
    PAGES_READY = (
        0x0A,
        "Pages that the host has put in their slots since the training began, modulo 2**32; may be written while the "
        "board is busy. All ones: all pages of all epochs are there already.",
    )
    PAGES_READ = 0x0B, "(r) pages that were read since the training began, modulo 2**32: their slots may be used again"
    LOSS_AT = 0x0C, "Word address in the scratchpad region of the epoch's loss; all ones: there is none"
    CONVERGENCE_AT = (
        0x0D,
        "Word address in the scratchpad region of the convergence test, which holds if it is not zero; all ones: none",
    )
    CYCLES = 0x0E, "(r, 64 bits) cycles of the training, from the write of COMMAND to its end"
    FAILED_PAGE = (
        0x10,
        "(r) page of the epoch that the bus failed to read, all ones if it was a record; counts with fault BUS",
    )
    BUS_TIMEOUT = (
        0x11,
        "Cycles that a memory may leave the board without an answer before STATUS says unanswered, 2**20 after a "
        "reset; 0: any number",
    )
    PAGE_BASE_1 = (
        0x12,
        "(64 bits) As PAGE_BASE, for the stripes of bus m_axi_1. It is there, as the two that follow, where link_bytes "
        "of the configuration is more than 128 for each of the buses before: of each link_bytes of a page the first "
        "128 lie in the slot behind m_axi, the next in that behind m_axi_1, and a slot is as much smaller.",
    )
    PAGE_BASE_2 = 0x14, "(64 bits) The same for m_axi_2"
    PAGE_BASE_3 = 0x16, "(64 bits) The same for m_axi_3"
    THREADS = 0x20, "(r) The machine's configuration follows, a word for each field of `MachineConfig`"


CONFIGURATION = tuple(field.name for field in fields(MachineConfig))
"""Fields that can be read from THREADS on, in this order; behind the last that is not 0 there are no registers."""


class BoardStatus(IntFlag):
    """Low bits of BoardRegister.STATUS."""

    BUSY = 1
    TRAINED = 2
    CONVERGED = 4
    STOPPED = 8
    UNANSWERED = 16
    """While it trains: no answer for BUS_TIMEOUT cycles. Idle: answers are still owed, and no training can begin."""
    PAUSED = 32
    """The host may read and write the scratchpad now; the machine goes on when it writes RESUME to CONTROL."""
    LAST = 64
    """The batch that is paused is the epoch's last."""


class Command(IntFlag):
    """Bits of BoardRegister.COMMAND."""

    TRAIN = 1
    STOP = 2


PAGE_BASES = (
    BoardRegister.PAGE_BASE,
    BoardRegister.PAGE_BASE_1,
    BoardRegister.PAGE_BASE_2,
    BoardRegister.PAGE_BASE_3,
)
"""Where the pages lie, for each bus of a link."""


PAGE_BUS = "m_axi"
"""Name of the first bus of pages."""


def of_bus(name: str, bus: int) -> str:
    """The name of what each bus of a link has, such as ``m_axi``, ``m_axi_1`` …"""
    return f"{name}_{bus}" if bus else name


def slot_bytes(config: MachineConfig) -> int:
    """Bytes of a slot: of a page, or of its stripes for one bus."""
    return config.page_size // config.buses


def part_bytes(config: MachineConfig, size: int) -> int:
    """Bytes that each bus has of a memory, whose equal parts lie one after another and begin with slot 0."""
    return size // config.page_size * slot_bytes(config)


def burst_beats(config: MachineConfig) -> int:
    """Beats of the bursts in which a page is read from each bus: all alike, none across a 4 KB boundary."""
    return min(LONGEST_BURST, BOUNDARY // config.bus_bytes, config.page_beats)
