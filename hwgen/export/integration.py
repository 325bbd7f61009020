"""Files with which other tools take a board: FuseSoC, IP-XACT, Vivado's block designs, SystemRDL, and drivers.

In: a `MachineConfig`, a device, names. Out: files by their paths in the package.
"""

from collections.abc import Collection, Mapping

from hwgen.devices import Device
from hwgen.export import file_text
from hwgen.export.address_map import port_list
from hwgen.export.ipxact import ip_xact
from hwgen.export.rdl import system_rdl
from hwgen.spec import board
from hwgen.spec.aperture import aperture_bytes
from hwgen.spec.config import MachineConfig

CONSTRAINTS = {".xdc": "xdc", ".sdc": "SDC"}
"""Of files with constraints of the board itself, by their suffix, what FuseSoC calls them."""

BLOCK_DESIGNS = "xcup"
"""Family of devices for which there is a script for a block design, and a device tree of its board."""

DRIVER = ("dana.h", "dana.c", "dana_pynq.py", "dana_litex.py", "litex_soc.py", "litex_soc.c")
"""Files of the folder `driver`."""


def integration(config: MachineConfig, device: Device, top: str, title: str, files: Collection[str]) -> dict[str, str]:
    """The files; `files` are the package's others, modules behind those that they contain."""
    sources = [name for name in files if name.startswith("rtl/") and name.endswith(".v")]
    data = sorted(name for name in files if name.startswith("sim/") and name.endswith(".hex"))
    constraints = [
        f"      - {name}: {{file_type: {kind}}}"
        for name in sorted(files)
        for suffix, kind in CONSTRAINTS.items()
        if name.endswith(suffix)
    ]
    core = {
        "TOP": top,
        "TITLE": title,
        "SOURCES": "\n".join(f"      - {name}: {{file_type: verilogSource-2005}}" for name in sources),
        "CONSTRAINTS": "\n".join(["  constraints:", "    files:", *constraints] if constraints else []),
        "BUILT": ", ".join(["rtl", "constraints"] if constraints else ["rtl"]),
        "DATA": "\n".join(f"      - {name}: {{file_type: user, copyto: {name.removeprefix('sim/')}}}" for name in data),
    }
    design = {
        "TOP": top,
        "MEGAHERTZ": f"{config.clock_hz / 1e6:g}",
        "APERTURE_KB": aperture_bytes(config) >> 10,
        "APERTURE_BYTES": f"{aperture_bytes(config):#x}",
        "PAGES": " ".join(board.of_bus(board.PAGE_BUS, k) for k in range(config.buses)),
        "MEMORIES": " ".join(sorted({port.bus for port in port_list(config)} - {"", "s_axil"})),
    }
    return {
        f"{board.TOP}.core": filled("board.core", core),
        "component.xml": ip_xact(config, top, title, sources, 2009),
        "ip-xact-2014.xml": ip_xact(config, top, title, sources, 2014),
        "registers.rdl": system_rdl(config, top),
        **{f"driver/{name}": filled(name, design) for name in DRIVER},
        **(
            {
                "synth/block_design.tcl": filled("block_design.tcl", design),
                "driver/dana.dtsi": filled("dana.dtsi", design),
            }
            if device.family == BLOCK_DESIGNS
            else {}
        ),
    }


def filled(name: str, values: Mapping[str, object]) -> str:
    """A template of this folder, with values for the names between `@`."""
    text = file_text(name)
    for key, value in values.items():
        text = text.replace(f"@{key}@", str(value))
    return text
