"""Waveforms of a training, and the saved view of a board's main signals."""

from __future__ import annotations

import dataclasses
import importlib.util
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType

import pytest

from dana.cli.entry import OK, USAGE, main
from dana.codesign.package import EPOCHS
from dana.server.places import CHECKOUT
from hwgen.export import waves
from hwgen.export.check import bundle_of
from hwgen.spec import board
from tests.golden import Golden
from tests.hwgen.board.test_driver import verilog
from tests.hwgen.export.test_package import ARGUMENTS

SCOPE = f"TOP.{board.TOP}"


def viewed(text: str) -> list[str]:
    return [line for line in text.split("\n") if line and line[0] not in "-@["]


def test_the_view_has_ports_of_blocks_as_the_machine_has_them() -> None:
    found = viewed(waves.view(verilog(), board.TOP, "here"))
    assert {"here.clk", "here.m_axi_araddr[63:0]", "here.machine.engine.finished"} <= set(found)
    assert not any("records" in name for name in found)
    with_records = verilog().replace("input clk;", "input clk;\n  output m_axi_records_arvalid;")
    with pytest.raises(KeyError, match="m_axi_records_arready"):
        waves.view(with_records, board.TOP, "here")


def test_what_has_no_waveforms_is_rejected(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["board", ".", "--trace", "t.fst"]) == USAGE
    assert "--trace must name a file that ends with .vcd, not t.fst" in capsys.readouterr().err
    assert main(["board", ".", "--trace", "t.vcd", "--registers", "a", "--pages", "b"]) == USAGE
    assert "--trace must come without --registers: only simulated Verilog has waveforms" in capsys.readouterr().err


def test_a_traced_training_shows_each_beat_and_the_interrupt(tmp_path: Path, golden: Golden) -> None:
    """Of every signal in the view there are waveforms, as wide as it says; documents show them."""
    folder, file = tmp_path / "package", tmp_path / "t.vcd"
    assert main(["hdl", str(CHECKOUT / "examples" / "paper" / "logistic.py"), *ARGUMENTS[2:], "-o", str(folder)]) == OK
    assert main(["board", str(folder), "--trace", str(file)]) == OK
    for name, (described, drawn) in timing().diagrams(file.read_text()).items():
        stored = dataclasses.replace(golden, folder=CHECKOUT / "docs" / "timing", name=name)
        stored(described, ".json")
        stored(drawn, ".svg")
    header, _, values = file.read_text().partition("$enddefinitions $end")
    signals = dict(declared(header))
    names = viewed((tmp_path / "t.gtkw").read_text())
    assert [name for name in names if name not in signals] == []
    config = bundle_of(folder).config
    pages = (folder / "sim" / "pages.hex").stat().st_size // (2 * config.link_bytes + 1) // config.page_beats
    wanted = ("clk", "irq", "m_axi_rvalid", "m_axi_rready")
    beats, interrupts = counted(values, {signals[f"{SCOPE}.{name}"]: name for name in wanted})
    assert (beats, interrupts) == (EPOCHS * pages * config.page_beats, 1)


def test_what_is_no_board_s_waveform_is_rejected() -> None:
    module = timing()
    with pytest.raises(module.TimingError, match=r"must have a board's clk, irq, .*, as dana board --trace records"):
        module.diagrams("$scope module TOP $end\n$upscope $end\n$enddefinitions $end\n#0\n")


def timing() -> ModuleType:
    """What draws the diagrams, which is in no package."""
    spec = importlib.util.spec_from_file_location("timing", CHECKOUT / "docs" / "timing.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["timing"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def declared(header: str) -> Iterator[tuple[str, str]]:
    """Full names, as GTKWave has them, and the short ones of a VCD file."""
    scopes: list[str] = []
    for line in header.split("\n"):
        word, *rest = line.split() or [""]
        if word == "$scope":
            scopes.append(rest[1])
        elif word == "$upscope":
            scopes.pop()
        elif word == "$var":
            yield ".".join([*scopes, "".join(rest[3:-1])]), rest[2]


def counted(values: str, names: Mapping[str, str]) -> tuple[int, int]:
    """Beats that rising edges take, and interrupts."""
    now = dict.fromkeys(names.values(), "0")
    beats = interrupts = 0
    for value, short in re.findall(r"^([01])(\S+)$", values, re.MULTILINE):
        name = names.get(short)
        if name == "clk" and value == "1":
            beats += now["m_axi_rvalid"] == now["m_axi_rready"] == "1"
        if name == "irq" and value == "1":
            interrupts += 1
        if name is not None:
            now[name] = value
    return beats, interrupts
