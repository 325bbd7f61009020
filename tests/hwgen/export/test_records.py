"""The package of a machine with a record memory: its testbench passes in both simulators, and can fail."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from pathlib import Path

import pytest

from dana.cli.entry import SETUP, main
from dana.server.places import CHECKOUT
from dana.simulator import Simulator
from hwgen.devices import load_device
from hwgen.export.package import Check, package, write
from hwgen.spec import board
from hwgen.spec.bundle import Table
from hwgen.spec.config import MachineConfig
from tests.hwgen.export.test_package import verilator
from tests.simulator.test_records import Watch, made

CONFIG = MachineConfig(
    scratch_depth=64, tuple_depth=64, strider_depth=64, descriptor_depth=8, program_depth=64, watch_depth=8,
    record_depth=8, link_bytes=16,
)  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    one = made(
        random.Random(3), CONFIG, (Table(records=5, rows=3), Table(records=2, rows=1)),
        (Watch(1, True), Watch(2, True)),
        count=9, group=2,
    )  # fmt: skip
    bundle, pages = one.bundle, b"".join(one.pages)
    simulator = Simulator(CONFIG)
    simulator.load(bundle)
    for _ in range(2):
        simulator.run_epoch(pages)
    records = [
        simulator.read_rows(0, table.records * table.rows, table=t).reshape(table.records, table.rows, -1)
        for t, table in enumerate(bundle.tables, 1)
    ]
    assert all(some.any() for some in records)
    check = Check(
        pages=pages, epochs=2, scratchpad=simulator.read_rows(0, 64), losses=[0, 0], converged=False, records=records
    )
    path = tmp_path_factory.mktemp("records")
    write(path, package(bundle, load_device("lfe5um5g-85"), check, title="records", notes="", texts={}))
    return path


def test_the_testbench_passes_in_icarus_and_sees_a_wrong_record(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{CHECKOUT / '.icarus'}{os.pathsep}{os.environ['PATH']}")

    def icarus(*stall: str) -> subprocess.CompletedProcess[str]:
        command = ["sh", str(folder / "sim" / "icarus.sh"), *stall]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    assert shutil.which("iverilog")
    for stall in ((), ("96",)):
        done = icarus(*stall)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "PASS" in done.stdout
    path = folder / "sim" / "records.hex"
    text = path.read_text()
    first, *rest = text.splitlines()
    path.write_text("\n".join([first[:-1] + ("0" if first[-1] != "0" else "1"), *rest]) + "\n")
    done = icarus()
    path.write_text(text)
    assert done.returncode != 0
    assert "FAIL 1 errors" in done.stdout


def test_what_the_package_says_of_records(folder: Path) -> None:
    report = (folder / "REPORT.md").read_text()
    assert "`m_axi_records` (AXI4, 256 bits of data" in report
    assert "| m1 | model | 5 × 24 | table 1, row 0 | 3 rows |" in report
    lines = (folder / "sim" / "records.hex").read_text().splitlines()
    assert all(len(line.split()[1]) == 2 * 4 * CONFIG.lanes for line in lines)
    assert len({int(line.split()[0][1:], 16) for line in lines}) == len(lines)
    sources = ("rtl/lint.vlt", f"rtl/{board.TOP}.v")
    assert verilator(folder, "--lint-only", "-Wall", "--top-module", board.TOP, *sources).stderr == ""


def test_a_driver_trains_what_the_testbench_trains(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["board", str(folder)]) == 0
    assert capsys.readouterr().out.startswith("PASS: 2 epochs of 9 rows")
    path = folder / "sim" / "records.hex"
    text = path.read_text()
    path.write_text("".join(text.splitlines(keepends=True)[:-1]))
    assert main(["board", str(folder)]) == SETUP
    path.write_text(text)
    assert "1 of 2 records of table 2 differ, the first is 1" in capsys.readouterr().err
