"""Estimated areas against whole machines as they were synthesised, of rules on devices: half of them were held out.

The other half calibrated `dana/codesign/area.py`. The measured counts stand in `PAIRS`, since a synthesis takes
minutes; `DANA_SYNTHESIS="lrmf on"` synthesises those pairs again whose names begin so, and compares with what comes.
A machine is the one that the design search chose, for the division into threads and clusters that it has.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from benchmarks.measure import Figure, main
from benchmarks.speed.synthesis import Design, synthesised
from dana.codesign.area import area_of
from hwgen.devices import load_device
from hwgen.export.synthesis import SynthesisError
from hwgen.spec.config import MachineConfig

Counts = tuple[int, int, int, float]
"""LUTs, flip-flops, DSPs, block RAMs."""

AT_LEAST, AT_MOST = 0.98, 1.05
"""What an estimate is, as a multiple of the measured count."""

DEVICES = {"xcup": "xczu7ev", "xc7": "xc7k325t", "ecp5": "lfe5um5g-85", "nexus": "lfcpnx-100"}
"""A device of each family: cells depend on the family and the clock alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A rule on a device, and what yosys made of its machine, counted as `dana synth` does."""

    name: str
    family: str
    fields: Mapping[str, int]
    """Of the machine, where they are not `MachineConfig`'s own or those of all pairs."""
    measured: Counts
    held_out: bool = False

    @property
    def config(self) -> MachineConfig:
        """The machine."""
        clock = {} if self.family in ("xcup", "xc7") else {"clock_hz": 80_000_000}
        return MachineConfig(**{"queue_depth": 128, "link_bytes": 16, **clock, **self.fields})

    @property
    def estimate(self) -> Counts:
        """What `area_of` says."""
        area = area_of(self.config, self.family)
        return area.luts, area.flipflops, area.dsps, area.block_rams

    @property
    def ratios(self) -> tuple[float, ...]:
        """Estimate over measured count, of each kind that the machine has."""
        return tuple(guess / found for guess, found in zip(self.estimate, self.measured, strict=True) if found)


SMALL = {"scratch_depth": 512, "tuple_depth": 512}
PAIRS: tuple[Pair, ...] = (
    Pair(
        name="k-means on lfcpnx-100",
        family="nexus",
        fields={"threads": 4, "divide_interval": 3, "functions": 36, **SMALL},
        measured=(60_763, 55_162, 108, 174),
    ),
    Pair(
        name="linear SVM on K26",
        family="xcup",
        fields={
            "threads": 8,
            "striders": 6,
            "scratch_depth": 512,
            "tuple_depth": 64,
            "ultra": 1,
            "divide_interval": 9,
            "functions": 32,
            "crossed": 0,
        },
        measured=(61_026, 88_730, 128, 86),
    ),
    Pair(
        name="lrmf with records on xczu7ev",
        family="xcup",
        fields={
            "threads": 4,
            "clusters": 2,
            "striders": 4,
            "scratch_depth": 64,
            "program_depth": 512,
            "watch_depth": 64,
            "record_depth": 64,
            "queue_depth": 1024,
            "functions": 0,
        },
        measured=(66_615, 95_160, 128, 190),
    ),
    Pair(
        name="logistic on lfe5um5g-85",
        family="ecp5",
        fields={"threads": 2, "striders": 3, "functions": 41, "crossed": 0},
        measured=(38_707, 34_182, 58, 176),
    ),
    Pair(
        name="softmax on xczu7ev",
        family="xcup",
        fields={
            "threads": 2,
            "striders": 1,
            "scratch_depth": 6144,
            "queue_depth": 64,
            "ultra": 2,
            "divide_interval": 9,
            "functions": 44,
        },
        measured=(19_303, 31_245, 42, 49),
    ),
    Pair(
        name="lrmf with records on lfe5um5g-85",
        family="ecp5",
        fields={
            "threads": 2,
            "striders": 1,
            "scratch_depth": 512,
            "program_depth": 512,
            "watch_depth": 64,
            "record_depth": 64,
            "queue_depth": 1024,
            "functions": 0,
        },
        measured=(35_914, 36_289, 48, 153),
    ),
    Pair(
        name="pca on xczu7ev",
        family="xcup",
        fields={"scratch_depth": 1536, "functions": 32},
        measured=(12_457, 18_858, 16, 58),
    ),
    Pair(
        name="logistic on lfe5um5g-85, one Strider",
        family="ecp5",
        fields={
            "striders": 1,
            "scratch_depth": 128,
            "tuple_depth": 64,
            "queue_depth": 2,
            "link_bytes": 8,
            "functions": 41,
            "crossed": 0,
        },
        measured=(21_215, 20_728, 29, 66),
        held_out=True,
    ),
    Pair(
        name="linear on LIFCL-40, 4 columns",
        family="nexus",
        fields={"functions": 32, "crossed": 0, **SMALL},
        measured=(22_849, 19_870, 24, 70),
        held_out=True,
    ),
    Pair(
        name="Poisson on xczu7ev",
        family="xcup",
        fields={"queue_depth": 256, "functions": 44, "crossed": 0},
        measured=(12_766, 19_877, 21, 51),
        held_out=True,
    ),
    Pair(
        name="two threads on xc7k325t, pages of 32 kB",
        family="xc7",
        fields={
            "threads": 2,
            "page_size": 32768,
            "striders": 4,
            "queue_depth": 16,
            "link_bytes": 32,
            "clock_hz": 100_000_000,
            "functions": 1,
            "crossed": 0,
        },
        measured=(19_522, 28_994, 36, 135),
        held_out=True,
    ),
    Pair(
        name="linear on LFE5U-45, float8",
        family="ecp5",
        fields={"striders": 4, "functions": 32, "crossed": 0, **SMALL},
        measured=(28_227, 21_609, 24, 82),
        held_out=True,
    ),
    Pair(
        name="logistic on K26",
        family="xcup",
        fields={"functions": 41, "crossed": 0},
        measured=(12_487, 19_665, 20, 51),
        held_out=True,
    ),
    Pair(
        name="logistic on lfcpnx-100",
        family="nexus",
        fields={"functions": 41, "crossed": 0, **SMALL},
        measured=(24_193, 20_900, 29, 72),
        held_out=True,
    ),
)


def run() -> list[Figure]:
    """Compare, after synthesising again what is asked for."""
    wanted = os.environ.get("DANA_SYNTHESIS")
    pairs = PAIRS if wanted is None else tuple(_again(pair) for pair in PAIRS if pair.name.startswith(wanted))
    if not pairs:
        raise SystemExit(
            f"DANA_SYNTHESIS={wanted}: no pair's name begins so; they are {'; '.join(pair.name for pair in PAIRS)}"
        )
    figures = [_figure(pair) for pair in pairs]
    for kind in (False, True):
        figures += _summary("held out" if kind else "calibration", [pair for pair in pairs if pair.held_out is kind])
    return figures


def _again(pair: Pair) -> Pair:
    device = replace(load_device(DEVICES[pair.family]), clock_hz=pair.config.clock_hz)
    try:
        made = synthesised(Design(name=pair.name, device=device.name, config=pair.config), device)
    except SynthesisError as error:
        raise SystemExit(str(error)) from None
    return replace(pair, measured=(made.luts, made.flipflops, made.dsps, made.block_rams))


def _figure(pair: Pair) -> Figure:
    return Figure(
        what=f"{pair.name}, {pair.config.units} units, {'held out' if pair.held_out else 'calibration'}",
        measured="{:,} LUT, {:,} FF, {} DSP, {:g} block RAM".format(*pair.measured),
        reference="estimated "
        + ", ".join(
            f"{guess / found - 1:+.1%}" if found else "–"
            for guess, found in zip(pair.estimate, pair.measured, strict=True)
        ),
        ratio=min(pair.ratios),
        target=AT_LEAST,
        at_most=False,
    )


def _summary(kind: str, pairs: Iterable[Pair]) -> list[Figure]:
    """The lowest and the highest of all estimates, and the mean error of LUTs and flip-flops."""
    pairs = list(pairs)
    if not pairs:
        return []
    ratios = [ratio for pair in pairs for ratio in pair.ratios]
    errors = [abs(ratio - 1) for pair in pairs for ratio in pair.ratios[:2]]
    mean = f"mean error of LUTs and flip-flops {sum(errors) / len(errors):.1%}"
    return [
        Figure(
            what=f"{kind}, {len(pairs)} pairs: {what} estimate",
            measured=f"{extreme - 1:+.1%}",
            reference=mean,
            ratio=extreme,
            target=target,
            at_most=at_most,
        )
        for what, extreme, target, at_most in (
            ("lowest", min(ratios), AT_LEAST, False),
            ("highest", max(ratios), AT_MOST, True),
        )
    ]


if __name__ == "__main__":
    main(run)
