"""Devices: those of the package load, and a bad file says what is wrong with it."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from hwgen.devices import FAMILIES, DeviceError, device_names, load_device
from hwgen.devices.lattice import lattice_part

GOOD = """
family = "ecp5"
part = "LFE5U-25F-6BG381C"
luts = 24_288
flipflops = 24_288
dsps = 28
block_rams = 56
usable = 0.8
clock_hz = 50_000_000
page_bandwidth = 400_000_000
"""
XCUP = GOOD.replace("ecp5", "xcup").replace("LFE5U-25F-6BG381C", "xcvu9p-flga2104-2-i")


@pytest.mark.parametrize(
    "part", ["xczu7ev-ffvc1156-2-e", "xcu250-figd2104-2L-e", "xck26-sfvc784-2LV-c", "XCKU5P-FFVB676-3-E"]
)
def test_parts_of_ultrascale(tmp_path: Path, part: str) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(XCUP.replace("xcvu9p-flga2104-2-i", part))
    assert load_device(str(file)).part == part


@pytest.mark.parametrize(
    ("family", "part"),
    [
        ("xc7", "xc7a35ticsg324-1L"),
        ("xc7", "xc7z020clg400-1"),
        ("xc7", "XC7VX690TFFG1761-2"),
        ("versal", "xcvm1802-vfvc1760-2LP-e-S"),
        ("agilex", "AGIB027R31B1E1V"),
        ("gowin", "GW2A-LV18PG256C8/I7"),
    ],
)
def test_parts_of_other_toolchains(tmp_path: Path, family: str, part: str) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(GOOD.replace("ecp5", family).replace("LFE5U-25F-6BG381C", part))
    assert load_device(str(file)).part == part


@pytest.mark.parametrize("name", device_names())
def test_devices_of_the_package_load(name: str) -> None:
    device = load_device(name)
    assert device.name == name
    assert device.luts > device.dsps > 0


def test_every_family_has_a_device_and_another_has_no_width_of_multipliers() -> None:
    devices = [load_device(name) for name in device_names()]
    assert {device.family for device in devices} == set(FAMILIES)
    assert {device.family for device in devices if not device.wide_multipliers} == {"ecp5", "nexus", "gowin"}
    with pytest.raises(KeyError, match="ice40"):
        _ = dataclasses.replace(devices[0], family="ice40").wide_multipliers


def test_the_papers_device_is_there_with_its_figures() -> None:
    device = load_device("xcvu9p")
    assert (round(device.luts, -3), round(device.flipflops, -3), device.dsps) == (1_182_000, 2_364_000, 6_840)
    assert device.link_bytes == pytest.approx(106.7, abs=0.1)


def test_a_file_of_ones_own(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(GOOD)
    device = load_device(str(file))
    assert (device.name, device.luts, device.link_bytes) == ("mine", 24_288, 8)


def test_a_link_is_as_slow_as_it_can_be_told_and_no_slower(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(GOOD.replace("400_000_000", "50_000"))
    device = load_device(str(file))
    assert device.link_rate(device.clock_hz) == 1
    with pytest.raises(DeviceError, match=r"clock_hz with mine must be at most 50,000,000, .* not 50,000,001$"):
        device.link_rate(50_000_001)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("LFE5UM5G-85F-8BG756C", ("--um5g-85k", "CABGA756", "8")),
        ("LFE5U-45F-6BG381I", ("--45k", "CABGA381", "6")),
        ("LFE5U-25F-6MG285C", ("--25k", "CSFBGA285", "6")),
        ("LFE5UM-45F-7BG554C", ("--um-45k", "CABGA554", "7")),
        ("LFE5U-12F-8TG144C", ("--12k", "TQFP144", "8")),
    ],
)
def test_order_codes_of_lattice(code: str, expected: tuple[str, str, str]) -> None:
    assert lattice_part(code) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (GOOD.replace("dsps = 28\n", ""), r"the device mine must have exactly family, .*; dsps missing$"),
        (GOOD + "brams = 3\n", r"; brams unknown$"),
        (GOOD.replace("24_288", "'many'"), r"luts of the device mine must be of type int, not 'many'"),
        (GOOD.replace("24_288", "true"), r"luts of the device mine must be of type int, not True"),
        (GOOD.replace("= 28", "= -1"), r"dsps of the device mine must be positive, not -1"),
        (GOOD.replace("ecp5", "ice40"), r"family of the device mine must be one of xcup, xc7, .*, gowin, not 'ice40'"),
        (GOOD.replace("0.8", "1.5"), r"usable of the device mine must be above 0 and at most 1, not 1.5"),
        (GOOD.replace("LFE5U-25F-6BG381C", "foo"), r"mine.toml: part of the device mine must be .*; not 'foo'$"),
        (GOOD.replace("BG381", "CG381"), r"with a package \(BG256, .*, TG144\), C or I; not 'LFE5U-25F-6CG381C'$"),
        (GOOD.replace("LFE5U-25F", "LFE5UM-12F"), r"a size \(12F of LFE5U only, .*; not 'LFE5UM-12F-6BG381C'$"),
        (GOOD.replace("-6BG", "-5BG"), r"a grade \(6, 7, 8\)"),
        ("luts = = 3", r"the device mine is no TOML: "),
        (GOOD.replace("400_000_000", "49_999"), r"must be at least 50,000 at 50 MHz, one byte in .*, not 49,999$"),
        (
            GOOD.replace("50_000_000", "50"),
            r"clock_hz of the device mine must be in hertz, 1,000,000 at least, not 50$",
        ),
        (XCUP.replace("-flga2104-2-i", ""), r"part of the device mine must be .* as Vivado names it, .* not 'xcvu9p'$"),
        (XCUP.replace("xcvu9p", "xc7k325t"), r"such as xcvu9p-flga2104-2-i: .*; not 'xc7k325t-flga2104-2-i'$"),
        (GOOD.replace("ecp5", "xc7"), r"must be a whole part of the 7 series .*; not 'LFE5U-25F-6BG381C'$"),
        (GOOD.replace("ecp5", "versal"), r"must be a whole part of a Versal .*; not 'LFE5U-25F-6BG381C'$"),
        (GOOD.replace("ecp5", "agilex"), r"must be a whole part of an Agilex 7 .*; not 'LFE5U-25F-6BG381C'$"),
        (
            GOOD + "ultra_rams = 40\n",
            r"ultra_rams of the device mine must be left out: ecp5 has no .*, xcup, versal has$",
        ),
    ],
)
def test_bad_files_say_what_is_wrong(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(text)
    with pytest.raises(DeviceError, match=message):
        load_device(str(file))


def test_unknown_names_and_absent_files() -> None:
    with pytest.raises(DeviceError, match=r"no device 'vu9p'; there are .*xcvu9p.*, or the path"):
        load_device("vu9p")
    with pytest.raises(DeviceError, match=r"cannot read the device absent.toml"):
        load_device("absent.toml")
