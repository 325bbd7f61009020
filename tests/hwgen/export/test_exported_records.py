"""The package of a machine with a record memory: its testbench passes in both simulators, and can fail."""

from __future__ import annotations

import os
import random
import re
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from dana import rules
from dana.cli.entry import OK, SETUP, USAGE, main
from dana.codesign.records import record_image, start_of
from dana.server.places import CHECKOUT
from dana.simulator import Simulator
from dana.storage import layout
from dsl.hdfg.init import Init, InitKind
from dsl.hdfg.start import start_values
from hwgen.devices import load_device
from hwgen.driver import Board
from hwgen.export.check import simulated
from hwgen.export.package import Check, Records, package, write
from hwgen.spec import board
from hwgen.spec.bundle import Bundle, Table
from hwgen.spec.config import MachineConfig
from hwgen.spec.registers import Register
from tests.hwgen.export.test_cocotb import played
from tests.hwgen.export.test_package import manifest, run, verilator
from tests.hwgen.export.test_package_faults import unseen, wrapped
from tests.simulator.test_simulated_records import Watch, made

CONFIG = MachineConfig(
    threads=2, scratch_depth=64, tuple_depth=64, strider_depth=64, descriptor_depth=8, program_depth=64,
    watch_depth=8, record_depth=8, link_bytes=16,
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
    words = np.random.default_rng(3)
    before = [
        words.normal(size=(one.records, one.rows, CONFIG.lanes)).astype(np.float32).view(np.uint32)
        for one in bundle.tables
    ]
    for t, rows in enumerate(before, 1):
        simulator.write_rows(0, rows.reshape(-1, CONFIG.lanes), table=t)
    counters = [simulator.run_epoch(pages) for _ in range(2)][-1]
    records = [
        Records(
            np.arange(one.records),
            before[t - 1],
            simulator.read_rows(0, one.records * one.rows, table=t).reshape(one.records, one.rows, -1),
        )
        for t, one in enumerate(bundle.tables, 1)
    ]
    check = Check(
        pages=pages, epochs=2, scratchpad=simulator.read_rows(0, 64), losses=[0, 0], converged=False,
        counters=counters, records=records,
    )  # fmt: skip
    path = tmp_path_factory.mktemp("records")
    write(path, package(bundle, load_device("lfe5um5g-85"), check, name="factors", title="records", notes="", texts={}))
    return path


def test_the_testbench_passes_in_icarus_and_sees_a_wrong_record(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{CHECKOUT / '.icarus'}{os.pathsep}{os.environ['PATH']}")

    def icarus(*stall: str) -> subprocess.CompletedProcess[str]:
        command = ["sh", str(folder / "sim" / "icarus.sh"), *stall]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    assert shutil.which("iverilog")
    done = icarus("96")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "PASS" in done.stdout
    assert "FAIL: STALL must be 0 to 255, not 256" in icarus("256").stdout
    path = folder / "sim" / "records.hex"
    text = path.read_text()
    first, *rest = text.splitlines()
    path.write_text("\n".join([first[:-1] + ("0" if first[-1] != "0" else "1"), *rest]) + "\n")
    done = icarus()
    path.write_text(text)
    assert done.returncode != 0
    assert "FAIL 1 errors" in done.stdout, "without pauses, all else is as expected"


def test_what_the_package_says_of_records(folder: Path) -> None:
    report = (folder / "REPORT.md").read_text()
    assert "`m_axi_records` (AXI4, 256 bits of data" in report
    assert "| m1 | model | 5 × 24 | table 1, row 0 | 3 rows |" in report
    lines = (folder / "sim" / "records.hex").read_text().splitlines()
    assert all(len(line.split()[1]) == 2 * 4 * CONFIG.lanes for line in lines)
    assert len({int(line.split()[0][1:], 16) for line in lines}) == len(lines)
    sources = ("rtl/lint.vlt", f"rtl/{board.TOP}.v")
    assert verilator(folder, "--lint-only", "-Wall", "--top-module", manifest(folder)["top"], *sources).stderr == ""


def test_cocotb_compares_records(folder: Path, tmp_path: Path) -> None:
    """As they are after the training; one bit that differs is found."""
    copied = shutil.copytree(folder, tmp_path / "package")
    done = played(copied)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
    path = copied / "sim" / "records.hex"
    number, row = path.read_text().split()[:2]
    path.write_text(path.read_text().replace(row, f"{int(row, 16) ^ 1:0{len(row)}x}", 1))
    done = played(copied, COCOTB_TEST_FILTER="pauses=0")
    assert done.returncode == 1
    offset = int(number[1:], 16) * 4 * CONFIG.lanes
    assert f"the record row at {offset:#x} is " in done.stdout


def test_a_driver_trains_what_the_testbench_trains(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["board", str(folder)]) == 0
    assert capsys.readouterr().out.startswith("PASS: 2 epochs of 9 rows")
    path = folder / "sim" / "records.hex"
    text = path.read_text()
    path.write_text("".join(text.splitlines(keepends=True)[:-1]))
    assert main(["board", str(folder)]) == SETUP
    path.write_text(text)
    assert "1 of 2 records of table 2 differ, the first is 1" in capsys.readouterr().err


RECORDS = 100_000, 20_000
"""Of the two tables of a rule that is exported: too many for any chip."""

MUTATIONS = {
    "records[put_row[put_head]] = row": 'if (!$test$plusargs("dropped") || put_row[put_head][1]) {}',
    "(put_address - RECORD_BASE)": "{} % ($test$plusargs(\"near\") ? 64'd4096 : ~64'd0)",
    "now + LATENCY": '{} + ($test$plusargs("late") != 0)',
}
"""What is put in the place of a piece of the testbench: it goes wrong when it is told to."""


@pytest.fixture(scope="module")
def factors(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A package of `lrmf`, whose factors begin with drawn numbers."""
    path = tmp_path_factory.mktemp("factors")
    rule = path / "lrmf.py"
    text, small = (rules.FOLDER / "lrmf.py").read_text(), "dana.dim(1000), dana.dim(1000)"
    assert small in text
    text = text.replace(small, ", ".join(f"dana.dim({size})" for size in RECORDS))
    rule.write_text(text)
    design = [f"--design={name}" for name in ("threads=2", "clusters=1", "record_depth=16", "tuple_depth=512")]
    command = ["hdl", str(rule), "--schema", "i int4, j int4, y float4", "--label", "y", "--device", "lfe5um5g-85"]
    assert main([*command, *design, "-o", str(path)]) == OK
    return path


@pytest.fixture(scope="module")
def faults(factors: Path) -> dict[str, int]:
    """Numbers of faults at the board's outputs, which are compiled with those of the testbench; it passes without."""
    path, verilog = factors / "sim" / "testbench.v", factors / "rtl" / f"{board.TOP}.v"
    text, own = path.read_text(), verilog.read_text()
    for piece, mutated in MUTATIONS.items():
        assert text.count(piece) == 1
        text = text.replace(piece, mutated.format(piece))
    path.write_text(text)
    with_faults, numbers = wrapped(own, manifest(factors)["top"])
    verilog.write_text(with_faults)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHON", sys.executable)
        assert "PASS" in run(["sh", "sim/verilator.sh"], factors)
    verilog.write_text(own)
    return numbers


def test_the_testbench_sees_stores_that_are_lost_and_memories_that_are_late(
    factors: Path, faults: dict[str, int]
) -> None:
    """Without every other row, with some bits of the address, or a cycle late it does not pass."""
    assert faults
    said = {wrong: run(["verilated/testbench", f"+{wrong}"], factors / "sim") for wrong in ("dropped", "near", "late")}
    assert all(re.search(r"^FAIL \d+ errors", one, re.MULTILINE) for one in said.values()), said
    assert "of the records is" in said["dropped"]
    assert "of the records is" in said["near"]
    assert said["late"].endswith("\n")


def test_every_output_of_the_bus_of_records_is_checked(factors: Path, faults: dict[str, int]) -> None:
    of_records = {fault: number for fault, number in faults.items() if fault.startswith("m_axi_records")}
    assert len(of_records) == 24 + 3 * 2, "outputs, and channels that the board drives"
    assert unseen(factors / "sim" / "verilated" / "testbench", of_records) == {}


PADDED = """
import dana

U, c = dana.table([50, 5], init=dana.normal(0, 0.3)), dana.table([50])
i, y = dana.input(), dana.output()
padded = dana.algo(U, c, i, y)
p = c[i] + dana.sigma(U[i], 1)
padded.addRows(U[i], 0.01 * (y - p) * U[i])
padded.addRows(c[i], 0.01 * (y - p))
padded.setPrediction(p)
"""
"""A rule whose records end within a row of lanes."""


def test_what_lies_beyond_a_record_s_end_is_not_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records begin with other numbers there than the simulator's, and so end with others; a scalar fills its row."""
    monkeypatch.setenv("PATH", f"{CHECKOUT / '.icarus'}{os.pathsep}{os.environ['PATH']}")
    rule, made = tmp_path / "padded.py", tmp_path / "made"
    rule.write_text(PADDED)
    schema = "i int4, unwanted float4[100], y float4"
    design = ("threads=1", "clusters=1", "striders=1", "scratch_depth=128", "tuple_depth=128", "record_depth=8")
    command = ["hdl", str(rule), "--schema", schema, "--label", "y", "--device", "xcvu9p", "-o", str(made)]
    assert main([*command, *(f"--design={one}" for one in design)]) == OK
    starts, held = (
        dict(line.split() for line in (made / "sim" / f"{name}.hex").read_text().splitlines())
        for name in ("starts", "held")
    )
    assert set(held.values()) == {"f" * 64, "0" * 24 + "f" * 40}
    bits = {row: int(held[row], 16) for row in held}
    other = {row: int(starts[row], 16) & bits[row] | int("9" * 64, 16) & ~bits[row] for row in starts}
    (made / "sim" / "starts.hex").write_text("".join(f"{row} {other[row]:064x}\n" for row in other))
    assert "PASS" in run(["sh", "icarus.sh"], made / "sim")
    assert main(["board", str(made)]) == OK, capsys.readouterr().err


def ratings(folder: Path) -> list[tuple[int, int, float]]:
    """Rows of the testbench's pages."""
    pages = b"".join(bytes.fromhex(line)[::-1] for line in (folder / "sim" / "pages.hex").read_text().split())
    found = []
    for at in range(0, len(pages), 8192):
        (lower,) = struct.unpack_from("<H", pages, at + layout.PD_LOWER)
        for item in struct.iter_unpack("<I", pages[at + layout.PAGE_HEADER_SIZE : at + lower]):
            start = at + (item[0] & 0x7FFF)
            found.append(struct.unpack_from("<iif", pages, start + pages[start + layout.T_HOFF]))
    return found


def test_rows_choose_records_everywhere_and_again(factors: Path) -> None:
    """Numbers over the whole tables, in batches that are full and cut; ratings of every kind; every choice changes."""
    rows = ratings(factors)
    assert len({round(rating, 3) for *_, rating in rows}) > 300
    bundle = Bundle.from_bytes((factors / "bundle.bin").read_bytes())
    before, after = (
        dict(line.split() for line in (factors / "sim" / name).read_text().splitlines())
        for name in ("starts.hex", "records.hex")
    )
    assert before.keys() == after.keys()
    changed = {int(number[1:], 16) for number in after if after[number] != before[number]}
    for table, records in enumerate(RECORDS):
        numbers = [row[table] for row in rows]
        assert {0, records - 1} < set(numbers)
        assert min(np.histogram(numbers, bins=16, range=(0, records))[0]) > 9
        first = bundle.table_offsets[table] // (4 * bundle.config.lanes)
        assert {first + 4 * number for number in numbers} < changed
    counters = {int(line[:8], 16): int(line[8:], 16) for line in (factors / "sim" / "counters.hex").read_text().split()}
    tuples, batches, cycles = (counters[4 * Register[name]] for name in ("TUPLES", "BATCHES", "CYCLES"))
    assert tuples == len(rows)
    assert tuples / bundle.batch + 1 < batches < tuples / 2
    report = (factors / "REPORT.md").read_text()
    assert f"{tuples} tuples in {batches} batches, the simulator counts {cycles:,} cycles" in report
    assert "A batch ends where a tuple chooses a row of a model again" in report


def test_the_report_says_where_the_tables_lie(factors: Path) -> None:
    """At the addresses that are written to load the machine."""
    written = {line[:8]: line[8:] for line in (factors / "images" / "load.hex").read_text().split()}
    report = (factors / "REPORT.md").read_text()
    rows = re.findall(r"^\| \d \| (\d+) \| \d+ \| 0x(\w+) \| 0x(\w+), 0x(\w+) \|$", report, re.MULTILINE)
    assert tuple(int(records) for records, *_ in rows) == RECORDS
    assert [written[f"{int(low, 16):08x}"] for _, _, low, _ in rows] == [begins for _, begins, _, _ in rows]
    assert "`images/records.bin` has the rule's start values,\n15360000 bytes" in report


def test_the_image_has_the_start_values_of_the_rule(factors: Path, tmp_path: Path) -> None:
    """In the package, as a driver gets them, as a command writes them; and the testbench's rows are of it."""
    bundle = Bundle.from_bytes((factors / "bundle.bin").read_bytes())
    image = (factors / "images" / "records.bin").read_bytes()
    assert image == b"".join(record_image(bundle))
    assert main(["board", str(factors), "--write-records", str(tmp_path / "image")]) == OK
    assert (tmp_path / "image").read_bytes() == image
    lanes = bundle.config.lanes
    words = np.frombuffer(image, "<f4").reshape(-1, lanes)
    for name, offset, records in zip("UV", bundle.table_offsets, RECORDS, strict=False):
        start = Init(kind=InitKind.NORMAL, second=float(np.float32(0.1)))
        symbol = bundle.symbol("model", name)
        assert symbol is not None
        own = words[offset // (4 * lanes) :][: 4 * records].reshape(records, 4, lanes)[:, symbol.row : symbol.row + 2]
        expected = start_values(start, name, (records, 10))
        np.testing.assert_array_equal(symbol.collect(own.reshape(-1, lanes)), expected)
    for line in (factors / "sim" / "starts.hex").read_text().splitlines():
        number, row = line.split()
        at = 4 * lanes * int(number[1:], 16)
        assert image[at : at + 4 * lanes] == bytes.fromhex(row)[::-1]


def test_a_board_is_loaded_with_what_its_records_hold(factors: Path) -> None:
    """By a driver, with the package's image or the function that makes it; never with zeros that nobody asked for."""
    bundle = Bundle.from_bytes((factors / "bundle.bin").read_bytes())
    driver = Board(*simulated(factors, bundle.config))
    with pytest.raises(ValueError, match=r"load\(bundle, record_image\(bundle\)\) of dana.codesign.records puts"):
        driver.load(bundle)
    with pytest.raises(ValueError, match=f"must have {bundle.table_offsets[-1]} bytes, not 3"):
        driver.load(bundle, [b"one"])
    driver.load(bundle, record_image(bundle))
    for name in ("U", "b"):
        symbol = bundle.symbol("model", name)
        assert symbol is not None
        rows = driver.read_rows(symbol.row, symbol.rows(bundle.config.lanes), table=symbol.table)
        init = start_of(symbol)
        np.testing.assert_array_equal(symbol.collect(rows.view(np.float32)), start_values(init, name, symbol.shape))


@pytest.mark.parametrize("option", [["--records", "/dev/zero"], ["--records-base", "0"], ["--base", "0"]])
def test_memory_without_a_board_is_refused(folder: Path, option: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["board", str(folder), *option]) == USAGE
    assert f"{option[0]} must come with --registers" in capsys.readouterr().err
