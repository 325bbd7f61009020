"""The Verilator harness: a design runs, is compiled once, and a missing or failing tool is named."""

import ctypes
import multiprocessing
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from hwgen.rtl.verilate import BuildError, cache_folder, object_cache, verilate

COUNTER = """
module counter(input clk, input [31:0] step, output reg [31:0] total = 0);
  always @(posedge clk) total <= total + step;
endmodule
"""

DRIVER = """
#include "Vdut.h"
#include "scale.h"
extern "C" __attribute__((visibility("default"))) unsigned run(unsigned step, unsigned cycles) {
    VerilatedContext context;
    Vdut dut{&context};
    dut.step = step * SCALE;
    for (unsigned cycle = 0; cycle < cycles; ++cycle) {
        dut.clk = 0;
        dut.eval();
        dut.clk = 1;
        dut.eval();
    }
    return dut.total;
}
"""


@pytest.fixture(scope="module")
def shared_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def driver(tmp_path: Path, shared_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(shared_cache))
    path = tmp_path / "driver.cpp"
    path.write_text(DRIVER)
    return path


@pytest.fixture
def empty_cache(driver: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return cache_folder()


def build(driver: Path, scale: int = 1) -> Path:
    return verilate(COUNTER, "counter", driver, files={"scale.h": f"#define SCALE {scale}\n"}, optimize="-O0")


def run(shared_object: Path, step: int, cycles: int) -> int:
    return int(ctypes.CDLL(str(shared_object)).run(ctypes.c_uint(step), ctypes.c_uint(cycles)))


def test_a_design_runs_and_is_compiled_once(driver: Path) -> None:
    first = build(driver)
    assert run(first, 3, 7) == 21
    made = first.stat().st_ino
    assert build(driver) == first
    assert first.stat().st_ino == made


def test_every_input_is_part_of_the_key(driver: Path) -> None:
    first, second = build(driver), build(driver, scale=5)
    assert first != second
    assert (run(first, 3, 7), run(second, 3, 7)) == (21, 105)


def test_two_processes_build_one_object(driver: Path, empty_cache: Path) -> None:
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
        first, second = pool.map(build, [driver, driver])
    assert first == second
    assert run(first, 2, 2) == 4
    # one finished object, Verilator's run-time, and nothing half-built
    assert sorted(path.suffix for path in empty_cache.iterdir()) == [".a", ".so"]


BUILD = """
import sys
from pathlib import Path
from hwgen.rtl.verilate import verilate
design, driver, endless = map(Path, sys.argv[1:])
verilate(design.read_text(), "counter", driver, cxx_flags=("-include", str(endless)))
"""


def inside(folder: Path) -> set[int]:
    """Processes that work in the folder or below it."""
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if (process / "cwd").readlink().is_relative_to(folder):
                found.add(int(process.name))
    return found


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.005)


def test_a_build_ends_with_the_process_that_wants_it(driver: Path, empty_cache: Path, tmp_path: Path) -> None:
    """Also when that is killed, which no handler sees; and what it left is swept."""
    design, endless = tmp_path / "counter.v", tmp_path / "endless.h"
    design.write_text(COUNTER)
    os.mkfifo(endless)
    command = [sys.executable, "-c", BUILD, str(design), str(driver), str(endless)]
    builder = subprocess.Popen(command, cwd=Path(__file__).parents[3])
    try:
        # the compiler proper, which make's g++ started
        until(lambda: any(name_of(pid) == "cc1plus" for pid in inside(empty_cache)))
        assert len(inside(empty_cache)) >= 3, "shell, make, compiler"
        assert not object_cache().sweep(), "somebody is at work there"
        assert list(empty_cache.glob("build-*"))
    finally:
        builder.kill()
        builder.wait()
    until(lambda: not inside(empty_cache))
    until(object_cache().sweep)
    assert list(empty_cache.iterdir()) == []


def name_of(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return ""


def test_a_compiler_without_memory_is_no_broken_design(driver: Path, empty_cache: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (150 << 20, limits[1]))
    try:
        with pytest.raises(MemoryError, match=r"has not enough memory to compile"):
            verilate(COUNTER, "counter", driver, cxx_flags=("-DLARGE", "-include", "bits/stdc++.h"))
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, limits)
    assert list(empty_cache.glob("*.so")) == []


def test_a_design_that_verilator_refuses(driver: Path, empty_cache: Path) -> None:
    with pytest.raises(BuildError, match=r"(?s)^verilator_bin must succeed to translate module counter.*syntax error"):
        verilate(COUNTER.replace("endmodule", "endmodul"), "counter", driver)
    assert list(empty_cache.iterdir()) == []


def test_a_driver_that_the_compiler_refuses(driver: Path) -> None:
    with pytest.raises(
        BuildError, match=r"(?s)^make must succeed to compile the model of counter and its driver.*scale\.h"
    ):
        verilate(COUNTER, "counter", driver, optimize="-O0")


@pytest.mark.parametrize("missing", ["g++", "make"])
def test_a_missing_tool_is_named(driver: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in {"g++", "make"} - {missing}:
        (tools / name).symlink_to("/bin/true")
    monkeypatch.setenv("PATH", str(tools))
    message = (
        rf"^simulating RTL needs {missing.replace('+', '[+]')}, which is not on the PATH: install a C\+\+ compiler"
    )
    with pytest.raises(BuildError, match=message):
        build(driver, scale=7)


def test_a_relative_cache_folder_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert cache_folder() == Path.home() / ".cache" / "dana" / "verilated"
