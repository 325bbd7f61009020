"""The register map as people and C programs read it: generated, complete, and what docs/ holds."""

from __future__ import annotations

import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from hwgen.export import registers
from hwgen.export.address_map import address_map
from hwgen.spec import aperture, board
from hwgen.spec.board import BoardRegion, BoardRegister
from hwgen.spec.described import Described
from hwgen.spec.registers import Region, Register
from tests.hwgen.board.table import rule


def test_the_header_has_every_register_at_its_address() -> None:
    text = registers.header(rule())
    defined = dict(re.findall(r"#define DANA_(\w+) (0x[0-9a-f]+)u", text))
    for register in Register:
        assert int(defined[register.name], 16) == aperture.byte_address(Region.CONTROL, register)
    for own in BoardRegister:
        assert int(defined[f"BOARD_{own.name}"], 16) == aperture.byte_address(BoardRegion.BOARD, own)
    for k, name in enumerate(board.CONFIGURATION):
        at = aperture.byte_address(BoardRegion.BOARD, BoardRegister.THREADS + k)
        assert int(defined[f"BOARD_{name.upper()}"], 16) == at
    lines = [line for line in text.splitlines() if line.startswith("#define") and " 0x" in line]
    assert len(lines) == len(defined)


def test_what_a_host_may_read_and_write() -> None:
    """Each other access is an error on the bus (`docs/registers.md`)."""
    written = dict.fromkeys(("PROGRAM", "STRIDER", "CONSTANT", "COLUMN"), "w")
    both = dict.fromkeys(("CONTROL", "BOARD", "SCRATCH"), "rw")
    assert {one.name: one.access for one in address_map(rule().config)} == {**written, **both, "LOSSES": "r"}


def test_the_header_is_c_and_its_names_are_different(tmp_path: Path) -> None:
    """Also of values that Verilog and C cannot spell apart."""
    bundle = rule()
    (w,) = (symbol for symbol in bundle.symbols if symbol.name == "w")
    both = tuple(replace(w, name=name) for name in ("x.mean", "x_mean"))
    text = registers.header(replace(bundle, symbols=both))
    assert re.findall(r"(DANA_MODEL_\w+) 0x\w+u\n#define \1_WORDS", text) == ["DANA_MODEL_x_mean", "DANA_MODEL_x_mean_"]
    (tmp_path / "registers.h").write_text(text)
    source = '#include "registers.h"\nunsigned at = DANA_MODEL_x_mean_ + DANA_BOARD_BUS_TIMEOUT;\n'
    command = ["gcc", "-std=c99", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-I", str(tmp_path), "-xc", "-"]
    subprocess.run(command, input=source, text=True, check=True)


def test_a_register_without_a_text_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"each member of Undocumented must .* but 1 has none"):

        class Undocumented(Described):
            TOLD = 0, "Something."
            BARE = 1
