"""The register map as people and C programs read it: generated, complete, and what docs/ holds."""

from __future__ import annotations

import re

import pytest

from hwgen.export import registers
from hwgen.spec import board
from hwgen.spec.board import BoardRegion, BoardRegister
from hwgen.spec.described import Described
from hwgen.spec.registers import Region, Register


def test_the_header_has_every_register_at_its_address() -> None:
    defined = dict(re.findall(r"#define DANA_(\w+) (0x[0-9a-f]+)u", registers.header()))
    for register in Register:
        assert int(defined[register.name], 16) == board.byte_address(Region.CONTROL, register)
    for own in BoardRegister:
        assert int(defined[f"BOARD_{own.name}"], 16) == board.byte_address(BoardRegion.BOARD, own)
    for k, name in enumerate(board.CONFIGURATION):
        at = board.byte_address(BoardRegion.BOARD, BoardRegister.THREADS + k)
        assert int(defined[f"BOARD_{name.upper()}"], 16) == at
    lines = [line for line in registers.header().splitlines() if line.startswith("#define") and " 0x" in line]
    assert len(lines) == len(defined)


def test_a_register_without_a_text_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"each member of Undocumented must .* but 1 has none"):

        class Undocumented(Described):
            TOLD = 0, "Something."
            BARE = 1
