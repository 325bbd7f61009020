"""`dana design`, as a hardware engineer types it."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from dana.cli import main
from dana.server.places import PAPER
from hwgen.spec.config import MachineConfig

RULE = str(PAPER / "logistic.py")


def test_the_best_machine_for_a_device(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--features", "54", "--device", "lfe5um5g-85", "--pages", "100", "--charts", str(tmp_path)]
    assert main(["design", RULE, *arguments]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("rule logistic on lfe5um5g-85, 32 tuples on a page, pages of 8192 bytes\n")
    assert len(re.findall(r"best *$", shown, re.M)) == 1
    tried = re.search(r"(\d+) machines were tried, (\d+) fit", " ".join(shown.split()))
    assert tried is not None
    assert 0 < int(tried[2]) < int(tried[1])  # 64 units have more multipliers than this device
    assert re.search(r"An epoch over 100 pages: [\d,]+ cycles", shown)
    override = re.search(r"design => '(.*)'\)", shown)
    assert override is not None
    MachineConfig(**json.loads(override[1]))  # is one
    drawn = sorted(path.name for path in tmp_path.iterdir())
    assert {"use.svg", "roofline.svg", "tuple.svg"} <= set(drawn)
    for name in ("use.svg", "tuple.svg"):
        assert "<title>rule logistic on lfe5um5g-85, " in (tmp_path / name).read_text()
    assert [name for name in drawn if ElementTree.parse(tmp_path / name).getroot().tag[-4:] != "}svg"] == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--features", "54", "--device", "vu9p"], r"no device 'vu9p'; there are lfcpnx-100, lfe5um5g-85, xcvu9p"),
        (["--schema", "x float4[9000000], y float4"], r"have 9,000,000 numbers, a machine holds at most 8,388,608"),
        ([], r"what is made depends on the table; give --features N or --schema"),
    ],
)
def test_what_is_wrong_is_said(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["design", RULE, *arguments]) == 2
    assert re.search(message, capsys.readouterr().err)


def test_a_rule_that_fits_no_machine_says_by_how_much(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    device = tmp_path / "tiny.toml"
    device.write_text(
        'family = "ecp5"\npart = "LFE5U-12F-6BG256C"\nluts = 10_000\nflipflops = 10_000\ndsps = 20\nblock_rams = 60\n'
        "usable = 1.0\nclock_hz = 50_000_000\npage_bandwidth = 400_000_000\n"
    )
    assert main(["design", RULE, "--features", "54", "--device", str(device)]) == 2
    assert re.search(r"no machine for this rule fits tiny: .* luts of 10,000", capsys.readouterr().err)
