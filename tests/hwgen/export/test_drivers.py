"""The drivers of a package's folder `driver`, on the board's RTL under Verilator."""

from __future__ import annotations

import ctypes
import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from devicetree import dtlib

from hwgen.devices import load_device
from hwgen.export import MANIFEST, registers
from hwgen.export.dana_pynq import BoardError, DanaBoard
from hwgen.export.integration import integration
from hwgen.export.package import LOAD, _pairs
from hwgen.export.values import described
from hwgen.harness import RtlBoard
from hwgen.spec import aperture
from hwgen.spec.bundle import Bundle
from hwgen.spec.load import bundle_blocks
from hwgen.spec.registers import Region
from tests.hwgen.board.table import CONFIG, CONVERGES_BELOW, rule, simulated, table
from tests.hwgen.board.test_driver import MANY, verilog

OK, BUSY, OTHER, TEXT, FAULT, STOPPED, SILENT, NOT_READY = range(8)
WARNINGS = ["-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Werror"]

ACCESS = """\
#include <stdint.h>
uint32_t (*simulated_read)(uint32_t address);
void (*simulated_write)(uint32_t address, uint32_t word);
#define DANA_READ32(board, address) ((void)(board), simulated_read(address))
#define DANA_WRITE32(board, address, word) ((void)(board), simulated_write(address, word))
"""
"""Registers of the simulated board instead of a pointer's."""


class Training(ctypes.Structure):
    """struct dana_training."""

    _fields_ = (
        ("pages", ctypes.c_uint32),
        ("epochs", ctypes.c_uint32),
        ("base", ctypes.c_uint64),
        ("part", ctypes.c_uint64),
        ("slots", ctypes.c_uint32),
    )


class Fault(ctypes.Structure):
    """struct dana_fault."""

    _fields_ = (("code", ctypes.c_uint32), ("page", ctypes.c_uint32), ("pointer", ctypes.c_uint32))


def package(folder: Path, bundle: Bundle) -> Path:
    """What drivers take of one."""
    load = "".join(_pairs(list(bundle_blocks(bundle))))
    made = {
        **integration(bundle.config, load_device("xczu7ev"), "x_dana_board", "rule x", ()),
        "registers.h": registers.header(bundle),
        LOAD: load,
        MANIFEST: json.dumps({"values": described(bundle)}),
    }
    for name, text in made.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    return folder


class Driven:
    """The C driver of a package, compiled, on a simulated board."""

    def __init__(self, folder: Path, rtl: RtlBoard) -> None:
        self.rtl = rtl
        (folder / "access.h").write_text(ACCESS)
        shared = ["-shared", "-fPIC", "-include", "access.h", "-o", "driver.so", "driver/dana.c"]
        subprocess.run(["gcc", *WARNINGS, *shared], cwd=folder, check=True)
        self.c = ctypes.CDLL(str(folder / "driver.so"))
        read = ctypes.CFUNCTYPE(ctypes.c_uint32, ctypes.c_uint32)(lambda at: int(rtl.read(at // 4, 1)[0]))
        write = ctypes.CFUNCTYPE(None, ctypes.c_uint32, ctypes.c_uint32)(
            lambda at, word: rtl.write(at // 4, np.array([word], dtype=np.uint32))
        )
        self._kept = read, write
        for name, function in (("simulated_read", read), ("simulated_write", write)):
            ctypes.c_void_p.in_dll(self.c, name).value = ctypes.cast(function, ctypes.c_void_p).value
        self.c.dana_loss.restype = ctypes.c_float
        self.c.dana_cycles.restype = ctypes.c_uint64
        self.c.dana_fault.restype = Fault

    def load(self, text: bytes) -> int:
        return int(self.c.dana_load(None, text, ctypes.c_size_t(len(text))))

    def start(self, pages: bytes, epochs: int, slots: int = 0) -> int:
        count = len(pages) // CONFIG.page_size
        return int(self.c.dana_start(None, ctypes.byref(Training(count, epochs, self.rtl.pages.base, 0, slots))))

    def wait(self) -> int:
        while (result := int(self.c.dana_poll(None))) == BUSY:
            self.rtl.wait()
        return result

    def values(self, address: int, count: int) -> np.ndarray:
        found = np.empty(count, dtype=np.float32)
        self.c.dana_read(None, address, found.ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(count))
        return found


def test_the_c_driver_compiles_for_a_mapped_slave(tmp_path: Path) -> None:
    """Without a warning, its header also as C++, and with nothing of a C library."""
    package(tmp_path, rule())
    subprocess.run(["gcc", *WARNINGS, "-O2", "-c", "driver/dana.c"], cwd=tmp_path, check=True)
    names = subprocess.run(["nm", "-u", "dana.o"], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert set(names.split()) <= {"U", "_GLOBAL_OFFSET_TABLE_"}
    subprocess.run(
        ["g++", "-Wall", "-Werror", "-fsyntax-only", "-x", "c++-header", "driver/dana.h"], cwd=tmp_path, check=True
    )


def test_the_c_driver_trains_what_the_simulator_trains(tmp_path: Path) -> None:
    """From its package's files; until the convergence test holds; through a ring of slots."""
    bundle, pages = rule(CONVERGES_BELOW), table(120)
    driven = Driven(package(tmp_path, bundle), RtlBoard(verilog(), CONFIG, memory_bytes=MANY))
    text = (tmp_path / LOAD).read_bytes()
    wanted = simulated(bundle, pages, 8)
    (w,) = bundle.of_kind("model")
    size, count = CONFIG.page_size, len(pages) // CONFIG.page_size
    assert count >= 2
    for slots in (0, 2):
        assert driven.c.dana_identify(None) == OK
        assert driven.load(text) == OK
        driven.rtl.pages.write(0, memoryview(pages[: (slots or count) * size]))
        assert driven.start(pages, 8, slots) == OK
        assert driven.start(pages, 8) == NOT_READY
        ready, end = slots, 8 * count
        if slots:
            driven.c.dana_offer(None, ready)
        while slots and ready < end and driven.c.dana_poll(None) == BUSY:
            if driven.c.dana_pages_read(None) > ready - slots:
                at = ready % count * size
                driven.rtl.pages.write(ready % slots * size, memoryview(pages[at : at + size]))
                ready += 1
                driven.c.dana_offer(None, ready)
            else:
                driven.rtl.wait()
        assert driven.wait() == OK
        assert driven.c.dana_epochs(None) == len(wanted.losses) < 8
        found = np.array([driven.c.dana_loss(None, k) for k in range(len(wanted.losses))], dtype=np.float32)
        assert found.view(np.uint32).tolist() == wanted.losses
        rows = wanted.scratchpad[w.row : w.row + w.rows(CONFIG.lanes)]
        address = aperture.byte_address(Region.SCRATCH, w.row * CONFIG.lanes, CONFIG)
        np.testing.assert_array_equal(driven.values(address, rows.size).view(np.uint32), rows.ravel())
        assert driven.c.dana_cycles(None) > 0


def test_the_c_driver_reports_what_goes_wrong(tmp_path: Path) -> None:
    bundle = rule()
    driven = Driven(package(tmp_path, bundle), RtlBoard(verilog(), CONFIG, memory_bytes=MANY))
    text = (tmp_path / LOAD).read_bytes()
    for wrong in (text[:-3], b"0000000g00000000\n", b"1234"):
        assert driven.load(wrong) == TEXT
    assert driven.load(text.replace(b"\n", b"\r\n")) == OK
    damaged = bytearray(table(120))
    damaged[CONFIG.page_size + 12 : CONFIG.page_size + 14] = b"\xff\xff"  # pd_lower
    driven.rtl.pages.write(0, memoryview(damaged))
    assert driven.start(bytes(damaged), 2) == OK
    assert driven.wait() == FAULT
    fault = driven.c.dana_fault(None)
    assert (fault.code != 0, fault.page) == (True, 1)
    assert driven.load(text) == OK
    assert driven.start(table(120), 1 << 20) == OK
    driven.c.dana_stop(None)
    assert driven.wait() == STOPPED
    (tmp_path / "other").mkdir()
    header = (tmp_path / "registers.h").read_text().replace("DANA_CONFIG_STRIDERS 0x2u", "DANA_CONFIG_STRIDERS 0x3u")
    (tmp_path / "registers.h").write_text(header)
    subprocess.run(
        ["gcc", "-shared", "-fPIC", "-include", "access.h", "-o", "other.so", "driver/dana.c"], cwd=tmp_path, check=True
    )
    other = ctypes.CDLL(str(tmp_path / "other.so"))
    for name, function in zip(("simulated_read", "simulated_write"), driven._kept, strict=True):
        ctypes.c_void_p.in_dll(other, name).value = ctypes.cast(function, ctypes.c_void_p).value
    assert other.dana_identify(None) == OTHER


class Registers:
    """What PYNQ's MMIO has, of the simulated board."""

    def __init__(self, rtl: RtlBoard) -> None:
        self._rtl = rtl

    def read(self, offset: int) -> int:
        return int(self._rtl.read(offset // 4, 1)[0])

    def write(self, offset: int, value: int) -> None:
        self._rtl.write(offset // 4, np.array([value], dtype=np.uint32))


def test_the_class_for_pynq_trains_what_the_simulator_trains(tmp_path: Path) -> None:
    """On registers and buffers with PYNQ's interface, a buffer at no multiple of a page's size."""
    bundle, pages = rule(CONVERGES_BELOW), table(120)
    rtl = RtlBoard(verilog(), CONFIG, memory_bytes=MANY)

    class Buffer(np.ndarray):
        device_address = rtl.pages.base + 64

        def flush(self) -> None:
            rtl.pages.write(64, memoryview(self.tobytes()))

    def allocate(shape: Any, dtype: str) -> np.ndarray:
        return np.zeros(shape, dtype).view(Buffer)

    driven = DanaBoard(Registers(rtl), allocate, package(tmp_path, bundle))
    driven.load()
    wanted = simulated(bundle, pages, 8)
    assert driven.train(pages, 8) == (len(wanted.losses), True)
    assert driven.losses(len(wanted.losses)).view(np.uint32).tolist() == wanted.losses
    w = bundle.symbol("model", "w")
    assert w is not None
    rows = wanted.scratchpad[w.row : w.row + w.rows(CONFIG.lanes)].view(np.float32)
    np.testing.assert_array_equal(driven.read("w"), w.collect(rows))
    assert driven.read("lr") == np.float32(0.1)
    with pytest.raises(ValueError, match="pages must be a multiple of 8192 bytes, not 8193"):
        driven.train(pages[:8193], 1)
    changed = (tmp_path / "registers.h").read_text().replace("CONFIG_STRIDERS 0x2u", "CONFIG_STRIDERS 0x3u")
    (tmp_path / "registers.h").write_text(changed)
    with pytest.raises(BoardError, match="BOARD_STRIDERS of the board must be 0x3, not 0x2"):
        DanaBoard(Registers(rtl), allocate, tmp_path)


def test_a_device_tree_has_the_board_where_the_block_design_puts_it(tmp_path: Path) -> None:
    """As Zephyr's reader of device trees sees it, behind a tree with an interrupt controller."""
    package(tmp_path, rule())
    tree = tmp_path / "tree.dts"
    tree.write_text(
        "/dts-v1/;\n/ { #address-cells = <2>; #size-cells = <2>;\n"
        "  gic: interrupt-controller@f9010000 { reg = <0 0xf9010000 0 0x10000>; #interrupt-cells = <3>;\n"
        '    interrupt-controller; }; };\n/include/ "driver/dana.dtsi"\n'
    )
    node = dtlib.DT(str(tree), include_path=[str(tmp_path)]).label2node["dana_board"]
    assert node.props["reg"].to_nums() == [0, 0xA0000000, 0, aperture.aperture_bytes(CONFIG)]
    assert node.props["interrupt-parent"].to_node().labels == ["gic"]
    assert node.props["memory-region"].to_node().labels == ["dana_pages"]
    assert node.props["compatible"].to_strings() == ["dana,x_dana_board", "dana,board"]
    script = (tmp_path / "synth" / "block_design.tcl").read_text()
    assert "place_registers ps/Data 0xA0000000" in script
