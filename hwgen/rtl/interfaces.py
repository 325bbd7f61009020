"""The seam between access engine, execution engine and the top of the machine: signatures, and when each signal counts.

In: a `MachineConfig`, for the widths. Out: Amaranth signatures, each written from the side that the access engine
(`hwgen/rtl/access`) sees. No logic.

All signals belong to the clock domain `sync`; a *pulse* is high for one cycle for each event.
"""

from typing import Any

from amaranth.hdl import unsigned
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hwgen.spec.bundle import RECORD_BOUNDARY
from hwgen.spec.config import LANES_PER_CLUSTER, MachineConfig, Ultra

PAGE_NUMBER_BITS = 32
POINTER_BITS = 32
RECORD_ADDRESS_BITS = 64
RECORD_ROW_BITS = (RECORD_BOUNDARY // (4 * LANES_PER_CLUSTER) - 1).bit_length()
"""Of the rows of a record, less one."""

FAULT_BITS = 8

UNSHARED: dict[str, int | str] = {"no_rw_check": 1}
"""Attribute of a memory of which no word is ever read in the cycle in which it is written. Block RAMs need logic to
define what that gives; yosys leaves it out then."""


def wires(to: Any, source: Any, *names: str) -> list[Any]:
    """What drives members of one interface by those of the same names of another."""
    return [getattr(to, name).eq(getattr(source, name)) for name in names]


def thread_bits(config: MachineConfig) -> int:
    """Width of a thread's number (at least 1, Verilog has no empty ports)."""
    return max(1, (config.threads - 1).bit_length())


def tuple_address_bits(config: MachineConfig) -> int:
    """Width of a tuple memory address."""
    return (config.tuple_depth - 1).bit_length()


def ultra_style(config: MachineConfig, kind: Ultra) -> dict[str, str]:
    """The attribute of a memory that is to be UltraRAM, as Vivado and yosys know it; none where it is not."""
    return {"ram_style": "ultra"} if config.ultra & kind else {}


def count_bits(config: MachineConfig) -> int:
    """Width of the number of tuples of a round, T × G at most."""
    return (config.threads * config.tuple_depth // 2).bit_length()


def tuple_write(config: MachineConfig) -> wiring.Signature:
    """Unpacker to tuple memory: one row of one thread a cycle; the engine always takes it."""
    return wiring.Signature(
        {
            "valid": Out(1),  # the other members count in this cycle
            "thread": Out(thread_bits(config)),  # whose tuple memory
            "half": Out(1),  # which of its halves
            "row": Out(tuple_address_bits(config)),  # address within the half: slot × TUPLE_ROWS + row of the tuple
            "data": Out(data.ArrayLayout(32, config.lanes)),  # binary32 of each lane, flushed, NaN canonical
            "lane_enable": Out(config.lanes),  # lanes that are written; the others keep what they hold
        }
    )


def hand_over(config: MachineConfig) -> wiring.Signature:
    """Unpacker to sequencer: rounds. At most two rounds are handed over and not yet released."""
    return wiring.Signature(
        {
            # pulse in the cycle that `docs/machine.md` calls hand_q. The last `tuple_write` of the round has its
            # `valid` in this cycle or before
            "round_valid": Out(1),
            "count": Out(count_bits(config)),  # tuples of the round, 1 … T × G; counts with `round_valid`
            "batch_last": Out(1),  # the round completes its batch; counts with `round_valid`
            "epoch_last": Out(1),  # the same for the epoch
            # pulse: the epoch has no tuple. Once for each such epoch, in cycle at + UNPACK_LATENCY of the last page's
            # end, or in cycle 1 if PAGES is 0
            "epoch_empty": Out(1),
            # records of the last round that was handed over are still to be stored, and the epoch is not over; up to
            # the cycle that `docs/machine.md` calls stored_q
            **({"storing": Out(1)} if config.record_depth else {}),
        }
    )


FAULT = wiring.Signature(
    {
        # pulse, once in an epoch: the first fault in heap order. Nothing is requested or handed over after it
        "valid": Out(1),
        "code": Out(FAULT_BITS),  # `hwgen.spec.strider.Fault`
        "page": Out(PAGE_NUMBER_BITS),  # its number
        "pointer": Out(POINTER_BITS),  # the low 16 bits of %t0 of the Strider when it pushed what was wrong
    }
)
"""Access engine to top: why it stopped."""

SETTINGS = wiring.Signature(
    {
        "pages": Out(32),  # PAGES of the epoch
        "batch": Out(32),  # tuples of a batch; `WHOLE_EPOCH` (all ones) never completes one
        "group_log2": Out(4),  # log2 of G
        "tuple_rows": Out(16),  # rows of one tuple
    }
)
"""Top to access engine: registers, stable while an epoch runs."""


def image_write(config: MachineConfig) -> wiring.Signature:
    """Top to access engine: the host writes one of its memories. Only while the machine is idle."""
    return wiring.Signature(
        {
            "strider": Out(1),  # pulse: the write goes to the Strider program
            "constant": Out(1),  # to the %cr registers
            "column": Out(1),  # to the column descriptors
            **({"table": Out(1)} if config.record_depth else {}),  # to the tables, `Register.TABLES`
            "address": Out(20),  # word address within the region (`hwgen.spec.registers.Region`)
            "data": Out(32),  # the word
        }
    )


def page_port(config: MachineConfig) -> wiring.Signature:
    """Machine to the page link: requests out, pages in."""
    return wiring.Signature(
        {
            "req_valid": Out(1),  # pulse: page `req_page` is wanted. It is always taken
            "req_page": Out(PAGE_NUMBER_BITS),  # number of the page in the epoch; requests come in page order
            # `data` holds the next beat. Pages come in the order of their requests, byte 0 first, in the low byte. A
            # beat comes only for a page that was requested; it is always taken. Low: the link stalls
            "valid": In(1),
            "data": In(unsigned(config.link_bytes * 8)),
        }
    )


def record_port(config: MachineConfig) -> wiring.Signature:
    """Machine to the record memory; what is valid stays as it is until the other side is ready."""

    def asked() -> dict[str, wiring.Member]:
        return {"valid": Out(1), "ready": In(1), "address": Out(RECORD_ADDRESS_BITS), "rows": Out(RECORD_ROW_BITS)}

    row = data.ArrayLayout(32, config.lanes)
    return wiring.Signature(
        {
            "ask": Out(wiring.Signature(asked())),  # a record to be read: its address, and its rows less one
            "row_valid": In(1),
            "row": In(row),  # rows of records, in the order in which they were asked for; always taken
            # a record to be written, as `ask`. Its rows come as `word`, in their order; the first is there at the
            # latest when `store` is
            "store": Out(wiring.Signature(asked())),
            # a row of the record that is written; `last` of it
            "word": Out(wiring.Signature({"valid": Out(1), "ready": In(1), "row": Out(row), "last": Out(1)})),
            "stored": In(1),  # pulse: a record has been written
            "busy": Out(1),  # something is to be written, or is on its way
        }
    )


def outbox_write(config: MachineConfig) -> wiring.Signature:
    """Engine to outbox: a row of lanes of each thread a cycle, which is always taken."""
    words = data.ArrayLayout(data.ArrayLayout(32, config.lanes), config.threads)
    return wiring.Signature({"valid": Out(1), "row": Out(tuple_address_bits(config)), "data": Out(words)})


def unpacked(config: MachineConfig) -> dict[str, wiring.Member]:
    """What the unpacker and the access engine have alike."""
    return {
        "settings": In(SETTINGS),
        "tuples": Out(tuple_write(config)),
        "rounds": Out(hand_over(config)),
        "half_release": In(1),  # pulse in the cycle that `docs/machine.md` calls released_q
        "fault": Out(FAULT),
        "waiting_for_engine": Out(64),  # cycles since `start` in which the unpacker waited for a half of tuple memory
        # cycles since `start`, until the end of the last page, in which it had nothing to do
        "waiting_for_pages": Out(64),
    }


def access_engine(config: MachineConfig) -> wiring.Signature:
    """All ports of the access engine."""
    records = {"records": Out(record_port(config)), "outbox": In(outbox_write(config))}
    return wiring.Signature(
        {
            "start": In(1),  # pulse in cycle 0 of an epoch: counters to zero, page 0 requested in cycle 1
            # pulse: forget everything but the memories and be ready for `start` (a fault, or the host's reset). Beats
            # of pages requested before are the link's to drop
            "stop": In(1),
            **unpacked(config),
            "image": In(image_write(config)),
            "page": Out(page_port(config)),
            "skipped": Out(64),  # rows skipped since `start`; final when the last round or `epoch_empty` is handed over
            **(records if config.record_depth else {}),
        }
    )
