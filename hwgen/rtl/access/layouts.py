"""What travels between the parts of the access engine: layouts, from the machine's configuration alone."""

from enum import IntEnum

from amaranth.hdl import C, Value
from amaranth.lib import data
from amaranth.utils import exact_log2

from hwgen.rtl.interfaces import FAULT_BITS, thread_bits, tuple_address_bits
from hwgen.spec.columns import TYPE_BITS
from hwgen.spec.config import MachineConfig

POINTER_BITS = 16
"""Bits of %t0 that a fault reports."""


class Kind(IntEnum):
    """What an entry of a queue asks for."""

    COLUMN = 0
    END = 1  # the page is done
    FAULT = 2  # the page is not what it should be; `number` is the fault's code


def bits_for(values: int) -> int:
    """Width of a number from 0 to values - 1, at least 1: Verilog has no empty signals."""
    return max(1, (values - 1).bit_length())


def page_bits(config: MachineConfig) -> int:
    """Width of an address within a page."""
    return (config.page_size - 1).bit_length()


def strider_bits(config: MachineConfig) -> int:
    """Width of a Strider's number."""
    return bits_for(config.striders)


def lane_bits(config: MachineConfig) -> int:
    """Width of a lane's number."""
    return (config.lanes - 1).bit_length()


def row_bytes(config: MachineConfig) -> int:
    """Bytes of one row: what the unpacker takes from the page in a cycle."""
    return 4 * config.lanes


def group_bits(config: MachineConfig, size: int) -> int:
    """Binary logarithm of the elements of `size` bytes that are converted in a cycle."""
    return exact_log2(min(config.converters, row_bytes(config) // size))


def number_bits(config: MachineConfig) -> int:
    """Width of a descriptor's number, or of a fault's code."""
    return max(bits_for(config.descriptor_depth), FAULT_BITS)


def entry_layout(config: MachineConfig) -> data.StructLayout:
    """An entry of a Strider's queue."""
    return data.StructLayout(
        {
            "kind": Kind,
            "number": number_bits(config),
            "address": page_bits(config),  # of the column in the page
            "beyond": 1,  # it is not in the page
            "pointer": POINTER_BITS,  # the low bits of %t0 when the entry was pushed
        }
    )


def line_bits(config: MachineConfig) -> int:
    """Width of a link beat's number within its page."""
    return bits_for(config.page_beats)


def window_layout(config: MachineConfig) -> data.StructLayout:
    """A row's bytes to be read: page addresses `at` (of the first byte) and `ahead` (a row further) in one Strider's
    page; both count modulo the page."""
    return data.StructLayout({"strider": strider_bits(config), "at": page_bits(config), "ahead": page_bits(config)})


def target_layout(config: MachineConfig) -> data.StructLayout:
    """Where a beat of the unpacker goes."""
    # on machines that cut batches: its tuple may turn out to begin a round, and then `own` is the row
    ahead = {"ahead": 1, "own": tuple_address_bits(config)} if config.watch_depth else {}
    return data.StructLayout(
        {
            "valid": 1,
            "half": 1,
            "thread": thread_bits(config),
            "row": tuple_address_bits(config),
            "element": 1,  # converted values, to the group of lanes that `low` is in; else a row
            "spread": 1,  # the first of them, to every lane
            "type": TYPE_BITS,
            "first": 1,  # of these, the lanes from `low` on; else from the first
            "last": 1,  # of these, the lanes below `high`; else up to the last, as for `high` = 0
            "low": lane_bits(config),
            "high": lane_bits(config),
            **ahead,
        }
    )


def exceeds(value: Value, constant: int) -> Value:
    """Whether a value is greater than a constant, as plain logic: a comparison takes a carry chain, however short."""
    greater: Value = C(0)
    for k in range(len(value)):
        greater = value[k] & greater if constant >> k & 1 else value[k] | greater
    return greater if constant < 1 << len(value) else C(0)
