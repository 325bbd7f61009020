"""Enough of Vivado's IP Integrator to run a script that makes a block design, in Python's Tcl.

In: the cells that there are, each with its pins and buses. Out: what was connected to what. An unknown cell, pin or
property and a second driver are errors of the script, and so is what it leaves unconnected. It is no Vivado: what each
IP has is written here from AMD's documents.
"""

from __future__ import annotations

import fnmatch
import re
import tkinter
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Kind:
    """What an IP has."""

    pins: frozenset[str]
    buses: frozenset[str]
    properties: str = ""
    """A pattern of the names of its properties, behind CONFIG."""


def kind(pins: str = "", buses: str = "", properties: str = "") -> Kind:
    return Kind(frozenset(pins.split()), frozenset(buses.split()), properties)


KINDS = {
    "xilinx.com:ip:zynq_ultra_ps_e": kind(
        "pl_clk0 pl_resetn0 pl_ps_irq0 maxihpm0_fpd_aclk saxihp0_fpd_aclk",
        "M_AXI_HPM0_FPD S_AXI_HP0_FPD",
        r"PSU__(USE__(M_AXI_GP[012]|S_AXI_GP2|IRQ0)|SAXIGP2__DATA_WIDTH|CRL_APB__PL0_REF_CTRL__FREQMHZ)",
    ),
    "xilinx.com:ip:proc_sys_reset": kind("slowest_sync_clk ext_reset_in peripheral_reset peripheral_aresetn"),
    "xilinx.com:ip:util_ds_buf": kind("IBUF_OUT IBUF_DS_ODIV2", "CLK_IN_D", "C_BUF_TYPE"),
    "xilinx.com:ip:xdma": kind(
        "sys_clk sys_clk_gt sys_rst_n axi_aclk axi_aresetn usr_irq_req",
        "pcie_mgt M_AXI M_AXI_LITE",
        r"mode_selection|pl_link_cap_max_link_(width|speed)|axi_data_width|axilite_master_(en|size|scale)"
        r"|xdma_num_usr_irq",
    ),
    "xilinx.com:ip:clk_wiz": kind(
        "clk_out1 clk_out2",
        "CLK_IN1_D",
        r"PRIM_SOURCE|PRIM_IN_FREQ|CLKOUT[12]_REQUESTED_OUT_FREQ|CLKOUT2_USED|USE_(RESET|LOCKED)",
    ),
    "xilinx.com:ip:xpm_cdc_gen": kind("src_in src_clk dest_clk dest_out", properties="CDC_TYPE"),
}
HBM = "xilinx.com:ip:hbm"
SMARTCONNECT = "xilinx.com:ip:smartconnect"
DRIVERS = re.compile(
    r".*/(pl_clk0|pl_resetn0|peripheral_a?resetn?|IBUF_\w+|axi_aclk|axi_aresetn|clk_out\d|dest_out|irq)"
)


class ScriptError(Exception):
    """What Vivado would stop at."""


@dataclass
class Design:
    """What a script has made so far."""

    board: Kind
    """Pins and buses of the package's own IP."""
    vlnv: str
    cells: dict[str, tuple[str, dict[str, str]]] = field(default_factory=dict)
    """Of each cell its IP and its properties."""
    ports: dict[str, str] = field(default_factory=dict)
    nets: dict[str, str] = field(default_factory=dict)
    """Of each pin that is driven, what drives it."""
    buses: dict[str, str] = field(default_factory=dict)
    """Of each bus, the one that it is connected to, in both directions."""
    placed: list[tuple[str, ...]] = field(default_factory=list)
    finished: list[str] = field(default_factory=list)

    def run(self, script: Path, name: str) -> None:
        """Run the script for a board; TclError where it ends early."""
        tcl = tkinter.Tcl()
        tcl.eval(f"set argv {{{name}}}")
        for command, does in self._commands().items():
            tcl.createcommand(command, does)
        tcl.eval("proc puts {text} {}")
        tcl.eval(script.read_text())

    def pins(self) -> tuple[set[str], set[str]]:
        """All pins and all buses of the cells."""
        found: tuple[set[str], set[str]] = set(), set()
        for cell, (ip, properties) in self.cells.items():
            has = self._kind(ip, properties)
            found[0].update(f"{cell}/{pin}" for pin in has.pins)
            found[1].update(f"{cell}/{bus}" for bus in has.buses)
        return found

    def _kind(self, ip: str, properties: dict[str, str]) -> Kind:
        if ip == self.vlnv:
            return self.board
        if ip == SMARTCONNECT:
            masters, slaves, clocks = (int(properties.get(f"NUM_{one}", "1")) for one in ("SI", "MI", "CLKS"))
            buses = [f"S{k:02}_AXI" for k in range(masters)] + [f"M{k:02}_AXI" for k in range(slaves)]
            pins = ["aresetn", "aclk", *(f"aclk{k}" for k in range(1, clocks))]
            return Kind(frozenset(pins), frozenset(buses), "NUM_(SI|MI|CLKS)")
        if ip == HBM:
            ports = [f"{k:02}" for k in range(16) if properties.get(f"USER_SAXI_{k:02}") != "false"]
            pins = " ".join(f"AXI_{k}_ACLK AXI_{k}_ARESET_N" for k in ports)
            return kind(
                f"HBM_REF_CLK_0 APB_0_PCLK APB_0_PRESET_N {pins}",
                " ".join(f"SAXI_{k}" for k in ports),
                r"USER_HBM_(DENSITY|STACK)|USER_SAXI_(0[1-9]|1[0-5])",
            )
        return KINDS[ip]

    def _commands(self) -> dict[str, object]:
        def create_cell(*words: str) -> str:
            kind_flag, ip_word, flag, vlnv, name = words
            ip = vlnv if vlnv == self.vlnv else vlnv.rpartition(":1.0")[0] or vlnv
            if (kind_flag, ip_word, flag) != ("-type", "ip", "-vlnv") or name in self.cells:
                raise ScriptError(f"cannot make {words}")
            if ip not in {self.vlnv, SMARTCONNECT, HBM, *KINDS}:
                raise ScriptError(f"the catalogue has no {ip}")
            self.cells[name] = (ip, {})
            return name

        def found(names: set[str] | dict[str, object]) -> object:
            def get(name: str) -> str:
                if name not in (names() if callable(names) else names):
                    raise ScriptError(f"there is no {name}")
                return name

            return get

        def set_property(*words: str) -> None:
            values, what = words[:-1], words[-1]
            if values[0] == "-dict":
                values = tkinter.Tcl().splitlist(values[1])
            if what not in self.cells:
                return
            ip, properties = self.cells[what]
            for key, value in zip(values[::2], values[1::2], strict=True):
                name = key.removeprefix("CONFIG.")
                if name == key or not re.fullmatch(self._kind(ip, properties).properties, name):
                    raise ScriptError(f"{ip} has no property {key}")
                properties[name] = value

        def connect(driver: str, pin: str) -> None:
            if not (DRIVERS.fullmatch(driver) or driver in self.ports) or DRIVERS.fullmatch(pin) or pin in self.nets:
                raise ScriptError(f"{driver} cannot drive {pin}")
            self.nets[pin] = driver

        def connect_buses(one: str, other: str) -> None:
            if one in self.buses or other in self.buses:
                raise ScriptError(f"{one} or {other} is connected already")
            self.buses |= {one: other, other: one}

        def create_port(*words: str) -> None:
            self.ports[words[-1]] = words[1]

        def note(*words: str) -> str:
            self.placed.append(words)
            return words[-1] if words else ""

        return {
            "create_bd_cell": create_cell,
            "create_bd_intf_port": create_port,
            "create_bd_port": create_port,
            "get_bd_cells": found(lambda: self.cells),
            "get_bd_pins": found(lambda: self.pins()[0]),
            "get_bd_intf_pins": found(lambda: self.pins()[1]),
            "get_bd_ports": found(lambda: self.ports),
            "get_bd_intf_ports": found(lambda: self.ports),
            "get_bd_addr_spaces": found({"ps/Data", "xdma/M_AXI_LITE"}),
            "get_bd_addr_segs": found({"board/s_axil/reg0"}),
            "set_property": set_property,
            "connect_bd_net": connect,
            "connect_bd_intf_net": connect_buses,
            "assign_bd_address": note,
            "get_board_parts": lambda pattern: (
                [pattern.replace("*", "1.1")] if fnmatch.fnmatch(pattern, "xilinx*") else []
            ),
            **{
                name: lambda *words, name=name: self.finished.append(name) or ""
                for name in (
                    "apply_bd_automation",
                    "create_project",
                    "current_project",
                    "current_fileset",
                    "update_ip_catalog",
                    "create_bd_design",
                    "validate_bd_design",
                    "save_bd_design",
                    "make_wrapper",
                    "get_files",
                )
            },
        }
