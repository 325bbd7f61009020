"""The board's ports and registers as data, from which descriptions in other formats are written.

In: a `MachineConfig`. Out: ports, and blocks of addresses with their registers, from the texts in `hwgen.spec`.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from hwgen.rtl.board.board import board_ports
from hwgen.rtl.library import ports
from hwgen.spec import aperture, board, columns
from hwgen.spec.board import BoardRegion, BoardRegister, BoardStatus, Command
from hwgen.spec.config import MachineConfig
from hwgen.spec.described import Described
from hwgen.spec.registers import TABLE_WORDS, Region, Register, TableWord


@dataclass(frozen=True, slots=True)
class Port:
    """A port of the top module."""

    name: str
    input: bool
    bits: int
    bus: str = ""
    """`s_axil`, `m_axi`, `m_axi_records`, or nothing."""
    signal: str = ""
    """Its name on that bus, in the letters of AXI's specification."""


@dataclass(frozen=True, slots=True)
class Bits:
    """A field of a register."""

    name: str
    low: int
    width: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Word:
    """A register; addresses are in bytes, from its block on."""

    name: str
    address: int
    bits: int
    access: str
    """`r`, `w` or `rw`."""
    text: str
    fields: tuple[Bits, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A region: registers, or a memory of words."""

    name: str
    address: int
    words: int
    access: str
    text: str
    registers: tuple[Word, ...] = ()


FAULT = Bits("fault", 8, 8)
FIELDS: dict[str, tuple[Bits, ...]] = {
    "BoardRegister.COMMAND": tuple(Bits(one.name or "", one.bit_length() - 1, 1) for one in Command),
    "BoardRegister.STATUS": (*(Bits(one.name or "", one.bit_length() - 1, 1) for one in BoardStatus), FAULT),
    "BoardRegister.INTERRUPT": (Bits("pending", 0, 1),),
    "BoardRegister.INTERRUPT_ENABLE": (Bits("enable", 0, 1),),
    "Register.CONTROL": (Bits("start", 0, 1), Bits("reset", 1, 1)),
    "Register.STATUS": (Bits("busy", 0, 1), Bits("done", 1, 1), FAULT),
}
"""Registers of several fields; all others are a number."""


def port_list(config: MachineConfig) -> list[Port]:
    """All ports of a board's top module."""
    found = [Port("clk", True, 1), Port("rst", True, 1)]
    for name, (value, direction) in ports(board_ports(config).create()).items():
        bus, _, signal = name.rpartition("_")
        found.append(Port(name, direction.value == "input", len(value), bus, signal.upper() if bus else ""))
    return found


def address_map(config: MachineConfig) -> list[Block]:
    """All regions of a board, in the order of their addresses."""
    registers = {Region.CONTROL: tuple(_machine()), BoardRegion.BOARD: tuple(_board())}
    return [
        Block(
            name=region.name,
            address=aperture.byte_address(region, 0, config),
            words=count,
            access="w" if region.text.endswith("Write only.") else "r" if region.text.endswith("Read only.") else "rw",
            text=region.text,
            registers=registers.get(region, ()),
        )
        for region, count in aperture.region_words(config).items()
    ]


def _machine() -> Iterator[Word]:
    for register in Register:
        if register is Register.TABLES:
            for table in range(columns.MAX_TABLES):
                for word in TableWord:
                    yield _word(word, register + TABLE_WORDS * table + word, f"TABLE_{table + 1}_{word.name}", "w")
        else:
            yield _word(register, register)


def _board() -> Iterator[Word]:
    for register in BoardRegister:
        if register is not BoardRegister.THREADS:
            yield _word(register, register)
    for k, name in enumerate(board.CONFIGURATION):
        yield Word(
            name=name.upper(),
            address=4 * (BoardRegister.THREADS + k),
            bits=32,
            access="r",
            text=f"{name} of the configuration",
            fields=(Bits("value", 0, 32),),
        )


def _word(member: Described, number: int, name: str | None = None, access: str = "rw") -> Word:
    """The marks before a text say what a register is: (r), (w), (64 bits)."""
    marked = re.match(r"\(([^)]*)\) ", member.text)
    marks = marked[1].split(", ") if marked and {"r", "w", "64 bits"}.issuperset(marked[1].split(", ")) else []
    bits = 64 if "64 bits" in marks else 32
    return Word(
        name=name or member.name,
        address=4 * number,
        bits=bits,
        access=next((mark for mark in marks if mark in "rw"), access),
        text=member.text[marked.end() if marks and marked else 0 :],
        fields=FIELDS.get(f"{type(member).__name__}.{member.name}", (Bits("value", 0, bits),)),
    )
