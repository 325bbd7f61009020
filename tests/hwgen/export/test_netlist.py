"""What the script for UltraScale+ makes of units with products, simulated by yosys' models of the device's cells."""

from pathlib import Path

import numpy as np
import pytest
from amaranth.back import verilog
from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hwgen.devices import load_device
from hwgen.export import yosys
from hwgen.export.scripts import scripts
from hwgen.rtl.arith.function import FloatFunction, code
from hwgen.rtl.arith.mul import FloatMul
from hwgen.spec import board, numerics
from hwgen.spec.config import MachineConfig
from hwgen.spec.operations import Opcode
from tests.hwgen import vectors
from tests.hwgen.arith.harness import Unit
from tests.scale import scaled

DSP48E2 = Path(__file__).with_name("dsp48e2.v").read_text()

NEIGHBOUR_17_LOWER = ".OPMODE(9'h055)"
"""In a DSP that adds its product to its neighbour's, 17 places lower."""


LOG = (Opcode.LOG,)


class Units(wiring.Component):
    """A multiplier and a function, which share nothing: yosys takes longer to read its libraries than to map a unit."""

    def __init__(self) -> None:
        self.multiply, self.log = FloatMul(narrow=False), FloatFunction(LOG, narrow=False)
        function = self.log.signature.members["function"]
        super().__init__(
            {**dict.fromkeys("abx", In(32)), "function": function, "start": In(1), "product": Out(32), "value": Out(32)}
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.multiply, m.submodules.log = self.multiply, self.log
        m.d.comb += [
            self.multiply.a.eq(self.a),
            self.multiply.b.eq(self.b),
            self.product.eq(self.multiply.result),
            self.log.a.eq(self.x),
            self.log.function.eq(self.function),
            self.log.start.eq(self.start),
            self.value.eq(self.log.result),
        ]
        return m


@pytest.fixture(scope="module")
def netlist(tmp_path_factory: pytest.TempPathFactory) -> tuple[Units, str]:
    """The units, and Verilog of them with the models of its cells: the exported script with them as its board."""
    units = Units()
    path = tmp_path_factory.mktemp("netlist")
    for folder in ("rtl", "synth"):
        (path / folder).mkdir()
    # there is no model of a block RAM: the tables of functions are made of LUTs
    text = verilog.convert(units, name=board.TOP, strip_internal_attrs=True)
    (path / "rtl" / f"{board.TOP}.v").write_text(text.replace('ram_style = "block"', "rom"))
    for name, script in scripts(MachineConfig(), load_device("xcvu9p")).items():
        (path / "synth" / name).write_text(script.replace("-nosrl", "-nosrl -nobram"))
    commands = f"script yosys.ys; rename {board.TOP} unit; write_verilog -noattr netlist.v"
    yosys.run(commands, path / "synth")
    text = (path / "synth" / "netlist.v").read_text()
    assert ".MREG(1'h1)" in text
    assert text.count(NEIGHBOUR_17_LOWER) == 2  # of each unit
    package = yosys.installed()
    assert package is not None
    return units, text + DSP48E2 + (package / "share" / "xilinx" / "cells_sim.v").read_text()


def test_a_product_whose_sum_is_in_its_dsps(netlist: tuple[Units, str]) -> None:
    units, text = netlist
    a, b = vectors.pairs(scaled(100_000), seed=4)
    unit = Unit(units, latency=units.multiply.LATENCY, text=text)
    got = unit(a=a, b=b, x=a, function=code(Opcode.LOG))["product"]
    vectors.same_bits(got.view("f4"), numerics.mul(a, b), a, b)


def test_a_function_whose_sums_are_in_its_dsps(netlist: tuple[Units, str]) -> None:
    units, text = netlist
    x = vectors.single(scaled(10_000), seed=4)
    unit = Unit(units, latency=Opcode.LOG.stages, text=text)
    got = unit(a=x, b=x, x=x, function=code(Opcode.LOG))["value"]
    vectors.same_bits(got.view(np.float32), numerics.log(x), x)
