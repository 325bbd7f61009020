"""FPGAs that a machine can be designed for, as data: one TOML file for each, a user's own by its path.

In: a name or a file. Out: a `Device`. It knows no machine and runs no tool.
"""

import re
import tomllib
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from hwgen.devices.lattice import lattice_part
from hwgen.spec.config import MAX_LINK_RATE, RATE_CYCLES

WIDE_MULTIPLIERS = {
    **dict.fromkeys(("xcup", "xc7", "versal", "agilex"), True),
    **dict.fromkeys(("ecp5", "nexus", "gowin"), False),
}
"""Whether a DSP multiplies 25 × 18 bits with signs at least, instead of 18 × 18, of each of `FAMILIES`."""

FAMILIES = tuple(WIDE_MULTIPLIERS)
"""UltraScale+, AMD's 7 series and Versal, Agilex 7, Lattice ECP5, Lattice Nexus, and Gowin."""

UNMEASURED = {
    "versal": "as on UltraScale+",
    "agilex": "as on UltraScale+, an ALM for a LUT, an M20K for half a block RAM",
    "gowin": "as on ECP5, with a ninth more LUTs, as in one board synthesised by yosys",
}
"""Families that `dana synth` does not support, and how their areas are chosen; other families were measured."""

ULTRA_FAMILIES = ("xcup", "versal")
"""Those that have UltraRAM."""

PARTS = {
    "xcup": (
        r"x[acq](au|ku|vu|zu|[ku])\d+[a-z]*-[a-z]{4}\d{3,4}-[1-3](lv|l)?(-[a-z]\w*)+",
        "an UltraScale+ as Vivado names it, such as xcvu9p-flga2104-2-i: device, package, speed grade, temperatures",
    ),
    "xc7": (
        r"x[acq]7[aksvz][xh]?\d+(t|s)?[il]?[a-z]{3}\d{3,4}-[1-3][a-z]?",
        "the 7 series as Vivado names it, such as xc7k325tffg900-2: device, package, speed grade",
    ),
    "versal": (
        r"x[acq]v[a-z]\d+-[a-z]{4}\d{3,4}-[1-3][a-z]{1,2}(-[a-z])+",
        "a Versal as Vivado names it, such as xcvc1902-vsva2197-2MP-e-S: device, package, speed grade, temperatures",
    ),
    "agilex": (
        r"ag[fim][a-z]\d{3}r\d{2}[a-z]\d[evix]\d[evx]\w*",
        "an Agilex 7 as Quartus names it, such as AGFB014R24B2E2V: device, package, grades",
    ),
    "gowin": (
        r"gw\d[a-z]+-[a-z]+\d+[a-z]+\d+[a-z]*c\d/i\d",
        "Gowin's, such as GW2A-LV55PG484C8/I7: device, package, speed grade",
    ),
}
"""For families whose toolchain takes an order code: its pattern, ignoring case, and a description for errors."""

MIN_CLOCK = 1_000_000
"""Hertz: a smaller number is one of megahertz."""


class DeviceError(ValueError):
    """No such device, or a file that describes none; says what was expected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """What a device offers."""

    name: str
    """The file's, without its ending."""
    family: str
    """One of `FAMILIES`."""
    part: str
    """The order code that toolchains take."""
    luts: int
    """The whole device's, as all that follow. Of 6 inputs in xcup, xc7, versal, 4 in others; in agilex ALMs."""
    flipflops: int
    dsps: int
    """DSP48E2, DSP48E1, DSP58, a variable-precision block of 27 × 27 bits, MULT18X18D, MULT18X18 (nexus, gowin)."""
    block_rams: int
    """RAMB36, M20K, DP16KD, EBR or BSRAM."""
    ultra_rams: int = 0
    """A file names none where there are none."""
    usable: float
    """Fraction of each that a design may take, so that it can still be routed."""
    clock_hz: int
    """Clock that a design is meant to run at."""
    page_bandwidth: int
    """Bytes a second in which pages arrive."""

    @property
    def wide_multipliers(self) -> bool:
        """Whether a DSP multiplies 25 × 18 bits with signs at least, instead of 18 × 18."""
        return WIDE_MULTIPLIERS[self.family]

    @property
    def link_bytes(self) -> float:
        """Bytes of pages that arrive in a cycle."""
        return self.page_bandwidth / self.clock_hz

    def link_rate(self, clock_hz: int) -> int:
        """`MachineConfig.link_rate` of a machine that runs at this clock, for a link of any width.

        DeviceError where a link cannot be so slow: the clock is too fast for the device's memory.
        """
        rate = RATE_CYCLES * self.page_bandwidth // clock_hz
        if not rate:
            raise DeviceError(
                f"clock_hz with {self.name} must be at most {RATE_CYCLES * self.page_bandwidth:,}, at which its memory "
                f"sends a byte in {RATE_CYCLES:,} cycles, not {clock_hz:,}"
            )
        return min(MAX_LINK_RATE, rate)


def device_names() -> tuple[str, ...]:
    """Devices that come with the package."""
    return tuple(
        sorted(file.name[: -len(".toml")] for file in files(__name__).iterdir() if file.name.endswith(".toml"))
    )


def load_device(name: str) -> Device:
    """A device by name, or by the path of a TOML file.

    Raises
    ------
    DeviceError
        There is none, or the file lacks a field, has one too many, or one that cannot be; says which, and in what file.
    """
    if name in device_names():
        return _parse(files(__name__).joinpath(f"{name}.toml").read_text(encoding="utf-8"), name)
    if not name.endswith(".toml"):
        raise DeviceError(f"no device {name!r}; there are {', '.join(device_names())}, or the path of a .toml file")
    path = Path(name)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DeviceError(f"cannot read the device {name}: {error}") from None
    try:
        return _parse(text, path.stem)
    except DeviceError as error:
        raise DeviceError(f"{path}: {error}") from None


def _parse(text: str, name: str) -> Device:
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise DeviceError(f"the device {name} is no TOML: {error}") from None
    types: dict[str, type] = {field: kind for field, kind in Device.__annotations__.items() if field != "name"}
    missing, unknown = sorted(set(types) - {"ultra_rams", *values}), sorted(set(values) - set(types))
    if missing or unknown:
        raise DeviceError(
            f"the device {name} must have exactly {', '.join(one for one in types if one != 'ultra_rams')}, "
            "and may have ultra_rams"
            + (f"; {', '.join(missing)} missing" if missing else "")
            + (f"; {', '.join(unknown)} unknown" if unknown else "")
        )
    for field, value in values.items():
        _check(name, field, value, types[field])
    if values["family"] not in FAMILIES:
        raise DeviceError(f"family of the device {name} must be one of {', '.join(FAMILIES)}, not {values['family']!r}")
    if not 0 < values["usable"] <= 1:
        raise DeviceError(f"usable of the device {name} must be above 0 and at most 1, not {values['usable']!r}")
    if "ultra_rams" in values and values["family"] not in ULTRA_FAMILIES:
        raise DeviceError(
            f"ultra_rams of the device {name} must be left out: {values['family']} has no UltraRAM, "
            f"{', '.join(ULTRA_FAMILIES)} has"
        )
    if values["clock_hz"] < MIN_CLOCK:
        raise DeviceError(
            f"clock_hz of the device {name} must be in hertz, {MIN_CLOCK:,} at least, not {values['clock_hz']:,}"
        )
    least = -(-values["clock_hz"] // RATE_CYCLES)
    if values["page_bandwidth"] < least:
        raise DeviceError(
            f"page_bandwidth of the device {name} must be at least {least:,} at {values['clock_hz'] / 1e6:g} MHz, one "
            f"byte in {RATE_CYCLES:,} cycles, not {values['page_bandwidth']:,}"
        )
    if values["family"] == "ecp5":
        try:
            lattice_part(values["part"])
        except ValueError as error:
            raise DeviceError(f"part of the device {name} {error}") from None
    pattern, said = PARTS.get(values["family"], (".*", ""))
    if not re.fullmatch(pattern, values["part"], re.IGNORECASE):
        raise DeviceError(f"part of the device {name} must be a whole part of {said}; not {values['part']!r}")
    return Device(name=name, **values)


def _check(device: str, field: str, value: Any, kind: type) -> None:
    if not isinstance(value, kind) or isinstance(value, bool):
        raise DeviceError(f"{field} of the device {device} must be of type {kind.__name__}, not {value!r}")
    if isinstance(value, int) and value <= 0:
        raise DeviceError(f"{field} of the device {device} must be positive, not {value!r}")
