"""A package whose pages come over two buses: its testbench, its drivers, and faults that only such a board has."""

from __future__ import annotations

import ctypes
import re
import sys
from pathlib import Path

import numpy as np
import pytest

from dana.cli.entry import OK, main
from hwgen.export.check import bundle_of, check, simulated
from hwgen.export.dana_pynq import DanaBoard
from hwgen.harness import RtlBoard
from hwgen.spec import board
from tests.hwgen.export.test_drivers import LOAD, Driven, Registers, Training
from tests.hwgen.export.test_package import ARGUMENTS, manifest, run
from tests.hwgen.export.test_package_faults import Fault, broken, said, unseen, wrapped

DESIGN = {"clusters": 4, "link_bytes": 256}

FAULTS = {
    "pages come from the first bus' address": Fault(
        "page_reader", r"if \(\\begin \) begin\s+\S+ += (base_1\[63:12\]);", "base[63:12]", "outside the pages of bus 1"
    ),
    "RRESP of the second bus is ignored": Fault(
        "dana_board", r"\.bus_1_rresp\((m_axi_1_rresp)\)", "2'b00", r"\b0*8 holds 00000002, expec"
    ),
    "a beat of the second bus is not waited for": Fault(
        "dana_board", r"\.bus_1_rvalid\((m_axi_1_rvalid)\)", "m_axi_rvalid", "FAIL"
    ),
    "the second bus brings the first one's stripes": Fault(
        "dana_board", r"\.bus_1_rdata\((m_axi_1_rdata)\)", "m_axi_rdata", "holds"
    ),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("package")
    words = [word for name, value in DESIGN.items() for word in ("--design", f"{name}={value}")]
    assert main([*ARGUMENTS, "--device", "xcu55c", *words, "-o", str(path)]) == OK
    assert manifest(path)["buses"] == 2
    return path


def test_the_report_names_the_places_of_pages_of_each_bus(folder: Path) -> None:
    assert "change PAGES, EPOCHS, SLOTS, PAGE_BASE and PAGE_BASE_1 only." in (folder / "REPORT.md").read_text()


def test_the_testbench_passes_and_finds_faults_of_the_second_bus(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One compilation for all of them."""
    monkeypatch.setenv("PYTHON", sys.executable)
    path = folder / "rtl" / f"{board.TOP}.v"
    text, top = path.read_text(), manifest(folder)["top"]
    with_ports, ports = wrapped(broken(text, manifest(folder)["prefix"], FAULTS), top)
    path.write_text(with_ports)
    try:
        assert "PASS" in run(["sh", "verilator.sh"], folder / "sim")
    finally:
        path.write_text(text)
    testbench = folder / "sim" / "verilated" / "testbench"
    assert "PASS" in said(testbench, 0, "+STALL=100", "+QUICK")
    found = {fault: said(testbench, number, "+QUICK", "+STALL=64") for number, fault in enumerate(FAULTS, 1)}
    assert {fault for fault, text in found.items() if not re.search(FAULTS[fault].said, text)} == set()
    second = {fault: number for fault, number in ports.items() if "m_axi_1_" in fault}
    assert second
    assert unseen(testbench, second) == {}


@pytest.fixture(scope="module")
def rtl(folder: Path) -> RtlBoard:
    """The package's board, simulated."""
    found, _, _ = simulated(folder, bundle_of(folder).config)
    assert isinstance(found, RtlBoard)
    return found


def words(folder: Path, name: str) -> list[tuple[int, int]]:
    """Byte addresses and words of a file of the package."""
    return [(int(line[:8], 16), int(line[8:], 16)) for line in (folder / name).read_text().split()]


def pages(folder: Path) -> bytes:
    return b"".join(bytes.fromhex(line)[::-1] for line in (folder / "sim" / "pages.hex").read_text().split())


def assert_trained(folder: Path, rtl: RtlBoard) -> None:
    """To what the package expects."""
    wrong = [at for at, word in words(folder, "sim/expected.hex") if int(rtl.read(at // 4, 1)[0]) != word]
    assert wrong == []


def test_the_project_s_driver_trains_what_the_package_expects(folder: Path, rtl: RtlBoard) -> None:
    """Cycles too, over memories that keep to the contract."""
    assert check(folder).epochs == 2
    assert check(folder, (rtl, rtl.pages, None)).epochs == 2


def test_the_c_driver_gives_each_bus_its_part(folder: Path, rtl: RtlBoard) -> None:
    driven = Driven(folder, rtl)
    assert driven.load((folder / LOAD).read_bytes()) == 0
    config, part = bundle_of(folder).config, 1 << 30
    # what the simulation gives to the second bus begins far behind
    far = board.part_bytes(config, rtl.pages.size)
    stripes = np.frombuffer(pages(folder), np.uint8).reshape(-1, config.buses, config.bus_bytes)
    for bus in range(config.buses):
        rtl.pages.write(bus * far, memoryview(stripes[:, bus].tobytes()))
    count = len(pages(folder)) // config.page_size
    started = Training(count, 2, rtl.pages.base, far, 0)
    assert driven.c.dana_start(None, ctypes.byref(started)) == 0
    assert driven.wait() == 0
    assert_trained(folder, rtl)
    # and does not find them elsewhere
    started.part = part
    assert driven.c.dana_start(None, ctypes.byref(started)) == 0
    assert driven.wait() == 4, "a fault: nothing is there"


def test_the_class_for_pynq_gives_each_bus_a_buffer(folder: Path, rtl: RtlBoard) -> None:
    config = bundle_of(folder).config
    far = board.part_bytes(config, rtl.pages.size)
    offsets = iter(range(64, 1 << 62, far))

    class Buffer(np.ndarray):
        def flush(self) -> None:
            rtl.pages.write(self.device_address - rtl.pages.base, memoryview(self.tobytes()))

    def allocate(shape: tuple[int], dtype: str) -> Buffer:
        found = np.zeros(shape, dtype).view(Buffer)
        found.device_address = rtl.pages.base + next(offsets)
        return found

    driven = DanaBoard(Registers(rtl), allocate, folder)
    driven.load()
    assert driven.train(pages(folder), 2) == (2, False)
    assert_trained(folder, rtl)
