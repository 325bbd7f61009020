"""A LiteX SoC with a RISC-V processor, memory and a board, as Verilog: python litex_soc.py PACKAGE FIRMWARE PAGES.

In: a package, a program for address 0, pages. Out: sim.v and the contents of its memories in the current folder, and a
list of the other Verilog files. Words that the program writes to the register `word` come out of the SoC.
"""

import importlib.util
import sys
from pathlib import Path

from litex.build.generic_platform import Pins
from litex.build.sim import SimPlatform
from litex.gen import LiteXModule
from litex.soc.integration.common import get_mem_data
from litex.soc.integration.soc_core import SoCCore
from litex.soc.interconnect.csr import CSRStorage
from migen import ClockDomain

PINS = {"sys_clk": 1, "sys_rst": 1, "word": 32, "written": 1}
ROM, RAM = 1 << 17, 1 << 16


class Clocks(LiteXModule):
    def __init__(self, platform):
        self.cd_sys = ClockDomain()
        self.comb += self.cd_sys.clk.eq(platform.request("sys_clk")), self.cd_sys.rst.eq(platform.request("sys_rst"))


class Output(LiteXModule):
    def __init__(self, platform):
        self.word = CSRStorage(32)
        self.comb += platform.request("word").eq(self.word.storage), platform.request("written").eq(self.word.re)


class Soc(SoCCore):
    def __init__(self, platform, board, firmware, pages):
        none = {"with_uart": False, "with_timer": False, "ident": ""}
        rom, ram = (get_mem_data(name, data_width=32, endianness="little") for name in (firmware, pages))
        memories = {"integrated_rom_size": ROM, "integrated_rom_init": rom, "integrated_sram_size": 0x2000}
        memories |= {"integrated_main_ram_size": RAM, "integrated_main_ram_init": ram}
        super().__init__(platform, 100_000_000, cpu_type="vexriscv", **memories, **none)
        self.clocks = Clocks(platform)
        self.output = Output(platform)
        self.dana = board
        board.add_to(self)


def main() -> None:
    package, firmware, pages = sys.argv[1:]
    spec = importlib.util.spec_from_file_location("dana_litex", Path(package) / "driver" / "dana_litex.py")
    wrapper = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(wrapper)
    platform = SimPlatform("SIM", [(name, 0, Pins(width)) for name, width in PINS.items()])
    soc = Soc(platform, wrapper.DanaBoard(platform, package), firmware, pages)
    soc.finalize()
    platform.get_verilog(soc, name="sim").write("sim.v")
    Path("sources").write_text("\n".join(path for path, *_ in platform.sources))
    Path("soc.h").write_text(f"#define WORD {soc.csr.regions['output'].origin:#x}u\n")


if __name__ == "__main__":
    main()
