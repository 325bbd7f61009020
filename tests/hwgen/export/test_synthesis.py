"""What is counted of a netlist that yosys wrote."""

from __future__ import annotations

import json
from pathlib import Path

from hwgen.export import yosys
from hwgen.export.synthesis import carry_chains

ADDERS = """
module adders(input [19:0] a, b, input [7:0] c, output [7:0] short, output [20:0] long);
  assign short = c + a[15:8];
  assign long = a + b;
endmodule
"""


def test_a_carry_chain_is_counted_however_long_it_is(tmp_path: Path) -> None:
    """With each of its cells for two bits; that of the longer sum has one for the carry that comes out."""
    (tmp_path / "adders.v").write_text(ADDERS)
    yosys.run("read_verilog adders.v; synth_ecp5 -noabc9 -top adders -json adders.json", tmp_path)
    adders = json.loads((tmp_path / "adders.json").read_text())["modules"]["adders"]
    assert sum(cell["type"] == "CCU2C" for cell in adders["cells"].values()) == 4 + 10 + 1
    assert carry_chains(adders) == 2
