"""Area and clock of whole boards: what yosys and nextpnr make of them, with the scripts of an exported package.

Minutes for each board; placing and routing takes the longest, and more memory than a small machine has to spare.
`DANA_SYNTHESIS="ECP5, 8"` takes those boards whose names begin so.
"""

from __future__ import annotations

import dataclasses
import json
import os
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.measure import Figure, main
from hwgen.devices import Device, load_device
from hwgen.export import MANIFEST
from hwgen.export.scripts import scripts
from hwgen.export.synthesis import Synthesis, SynthesisError, synthesise, tools
from hwgen.rtl.board.board import generate
from hwgen.spec import board
from hwgen.spec.config import ALL_FUNCTIONS, MachineConfig, functions_mask
from hwgen.spec.engine import Opcode


@dataclass(frozen=True, slots=True, kw_only=True)
class Design:
    """A board, and what is asked of it; None: nothing."""

    name: str
    device: str
    config: MachineConfig
    luts: float | None = None
    dsps: float | None = None
    clock_mhz: float | None = None


LOGISTIC = functions_mask([Opcode.SIGMOID])
LOGISTIC_WITH_LOSS = functions_mask([Opcode.SIGMOID, Opcode.LOG, Opcode.DIV])
LINEAR = functions_mask([Opcode.DIV])
SMALL_MEMORIES = {"scratch_depth": 512, "tuple_depth": 512}
WIDE = {"threads": 8, "striders": 8, "queue_depth": 128, "link_bytes": 64}

DESIGNS = (
    Design(
        name="ECP5, 8 units, everything",
        device="lfe5um5g-85",
        config=MachineConfig(link_bytes=16, functions=ALL_FUNCTIONS, crossed=1, **SMALL_MEMORIES),
        clock_mhz=100,
    ),
    Design(
        name="ECP5, 32 units, sigmoid",
        device="lfe5um5g-85",
        config=MachineConfig(threads=4, link_bytes=16, functions=LOGISTIC, crossed=0, **SMALL_MEMORIES),
        luts=1300,
        clock_mhz=80,
    ),
    Design(
        name="UltraScale+, 64 units, division",
        device="xcvu9p",
        config=MachineConfig(functions=LINEAR, crossed=0, **WIDE),
        luts=1000,
        dsps=2.5,
    ),
    Design(
        name="UltraScale+, 64 units, sigmoid",
        device="xcvu9p",
        config=MachineConfig(functions=LOGISTIC, crossed=0, **WIDE),
        luts=1000,
        dsps=2.5,
    ),
    Design(
        name="UltraScale+, 64 units, logistic with its loss",
        device="xcvu9p",
        config=MachineConfig(functions=LOGISTIC_WITH_LOSS, crossed=0, **WIDE),
        luts=1000,
        dsps=2.5,
    ),
)


def run() -> list[Figure]:
    """Synthesise; place and route those of which a clock is asked."""
    wanted = os.environ.get("DANA_SYNTHESIS", "")
    chosen = [design for design in DESIGNS if design.name.startswith(wanted)]
    if not chosen:
        raise SystemExit(
            f"DANA_SYNTHESIS={wanted}: no board's name begins so; they are {'; '.join(d.name for d in DESIGNS)}"
        )
    try:
        for design in chosen:
            tools(design.device, load_device(design.device).family, place=design.clock_mhz is not None)
        return [figure for design in chosen for figure in _figures(design)]
    except SynthesisError as error:
        raise SystemExit(str(error)) from None


def _figures(design: Design) -> list[Figure]:
    device = load_device(design.device)
    if design.clock_mhz is not None:  # what is asked of the tools, with some to spare
        device = dataclasses.replace(device, clock_hz=round(1.1e6 * design.clock_mhz))
    found = synthesised(design, device)
    wanted = (
        ("LUTs of a unit", found.luts / found.units, design.luts, True),
        ("DSPs of a unit", found.dsps / found.units, design.dsps, True),
        ("clock, MHz", (found.clock_hz or 0) / 1e6, design.clock_mhz, False),
    )
    return [
        Figure(
            what=f"{design.name}: {what}",
            measured=f"{measured:,.1f}",
            reference=f"{found.luts:,} LUT, {found.flipflops:,} FF, {found.dsps} DSP, {found.block_rams:g} block RAM",
            ratio=measured,
            target=target,
            at_most=at_most,
        )
        for what, measured, target, at_most in wanted
        if target is not None
    ]


def synthesised(design: Design, device: Device) -> Synthesis:
    """What the tools make of a board for a device; SynthesisError says why they do not."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        for part in ("rtl", "synth"):
            (folder / part).mkdir()
        text = generate(design.config, wide_multipliers=device.wide_multipliers)
        (folder / "rtl" / f"{board.TOP}.v").write_text(text)
        for file, content in scripts(design.config, device).items():
            (folder / "synth" / file).write_text(content)
        manifest = {"device": dataclasses.asdict(device), "config": design.config.to_json()}
        (folder / MANIFEST).write_text(json.dumps(manifest))
        return synthesise(folder, place=design.clock_mhz is not None)


if __name__ == "__main__":
    main(run)
