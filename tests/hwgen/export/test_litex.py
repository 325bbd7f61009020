"""A package in a LiteX SoC: a RISC-V processor trains on pages in the SoC's SDRAM, with nothing but the package."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

from dana import rules
from dana.cli.entry import OK, main
from tests.hwgen.export.test_package import ARGUMENTS

SCRIPT = "driver/litex_soc.py"


def test_a_processor_trains_in_a_soc_with_nothing_but_the_package(tmp_path: Path) -> None:
    """The model, losses and status are the simulator's; a word that is not is found."""
    folder = tmp_path / "package"
    assert main([*ARGUMENTS, "-o", str(folder)]) == OK
    done = trained(folder)
    expected = folder / "sim" / "expected.hex"
    lines = expected.read_text().split()
    assert (done.returncode, done.stdout) == (0, f"PASS {len(lines)} words as expected\n"), done.stderr
    last = int(lines[-1], 16)
    expected.write_text("\n".join([*lines[:-1], f"{last ^ 1:016x}", ""]))
    done = trained(folder)
    wrong = f"FAIL line {len(lines)} of sim/expected.hex: the board has another word there\n"
    assert (done.returncode, done.stdout) == (1, wrong), done.stderr


def test_pages_come_over_two_buses(tmp_path: Path) -> None:
    folder = tmp_path / "package"
    wide = ["--device", "xcu55c", "--design", "clusters=4", "--design", "link_bytes=256"]
    assert main([*ARGUMENTS, *wide, "-o", str(folder)]) == OK
    done = trained(folder)
    count = len((folder / "sim" / "expected.hex").read_text().split())
    assert (done.returncode, done.stdout) == (0, f"PASS {count} words as expected\n"), done.stderr


def test_records_are_compared(tmp_path: Path) -> None:
    """All are as expected but the one that is expected wrongly here."""
    folder = tmp_path / "package"
    sizes = ["--hyper", "m=9", "--hyper", "n=5", "--design", "record_depth=16", "--design", "tuple_depth=512"]
    command = ["hdl", str(rules.FOLDER / "lrmf.py"), "--schema", "i int4, j int4, y float4", "--label", "y"]
    assert main([*command, "--device", "lfe5um5g-85", *sizes, "-o", str(folder)]) == OK
    path = folder / "sim" / "records.hex"
    first, *rest = path.read_text().splitlines()
    number, row = first.split()
    path.write_text("\n".join([f"{number} {int(row, 16) ^ 1:0{len(row)}x}", *rest, ""]))
    done = trained(folder)
    wrong = "FAIL line 1 of sim/records.hex: the memory has another row there\n"
    assert (done.returncode, done.stdout) == (1, wrong), done.stderr


def trained(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, SCRIPT]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


WIDTH, BEATS, BAD = 64, 7, 5


def answering(bus: Any, memory: dict[int, int], chance: random.Random) -> Generator[Any, Any, None]:
    """Wishbone: one access at a time, after some cycles; an error at address BAD."""
    while True:
        if (yield bus.cyc) and (yield bus.stb):
            for _ in range(chance.randrange(3)):
                yield
            at = yield bus.adr
            if at == BAD:
                yield bus.err.eq(1)
            else:
                if (yield bus.we):
                    memory[at] = yield bus.dat_w
                yield bus.dat_r.eq(memory.get(at, 0))
                yield bus.ack.eq(1)
            yield
            yield bus.err.eq(0)
            yield bus.ack.eq(0)
        yield


def test_bursts_that_read_become_accesses() -> None:
    """Each beat with its word, the last one marked, an error passed on; also where the board makes it wait."""
    from litex.soc.interconnect.axi import AXIInterface
    from migen import passive, run_simulation

    from hwgen.export.dana_litex import Reads

    axi, chance, got = AXIInterface(data_width=WIDTH, address_width=32, id_width=1), random.Random(1), []
    dut, memory = Reads(axi), {k: 1 << 40 | k for k in range(32)}

    def reading() -> Generator[Any, Any, None]:
        for first in (1, 16):
            yield axi.ar.addr.eq(first * WIDTH // 8)
            yield axi.ar.len.eq(BEATS - 1)
            yield axi.ar.valid.eq(1)
            yield
            while not (yield axi.ar.ready):
                yield
            yield axi.ar.valid.eq(0)
            last = 0
            while not last:
                yield axi.r.ready.eq(chance.randrange(2))
                yield
                if (yield axi.r.valid) and (yield axi.r.ready):
                    last = yield axi.r.last
                    got.append(((yield axi.r.resp), (yield axi.r.data), last))
            yield axi.r.ready.eq(0)

    run_simulation(dut, [reading(), passive(answering)(dut.bus, memory, chance)])
    assert [resp for resp, _, _ in got] == [2 if k == BAD else 0 for k in [*range(1, 8), *range(16, 23)]]
    assert [data for resp, data, _ in got if resp == 0] == [memory[k] for k in [1, 2, 3, 4, 6, 7, *range(16, 23)]]
    assert [last for _, _, last in got] == 2 * [*(BEATS - 1) * [0], 1]


def test_bursts_that_write_become_accesses() -> None:
    """Each beat at its address, one answer for a burst, an error of any beat in it and in no other's."""
    from litex.soc.interconnect.axi import AXIInterface
    from migen import passive, run_simulation

    from hwgen.export.dana_litex import Writes

    axi, chance, answers = AXIInterface(data_width=WIDTH, address_width=32, id_width=1), random.Random(2), []
    dut, memory = Writes(axi), dict[int, int]()

    def writing() -> Generator[Any, Any, None]:
        for first in (1, 16):
            yield axi.aw.addr.eq(first * WIDTH // 8)
            yield axi.aw.valid.eq(1)
            yield
            while not (yield axi.aw.ready):
                yield
            yield axi.aw.valid.eq(0)
            for k in range(BEATS):
                for _ in range(chance.randrange(3)):
                    yield
                yield axi.w.data.eq(1 << 40 | first + k)
                yield axi.w.last.eq(k == BEATS - 1)
                yield axi.w.valid.eq(1)
                yield
                while not (yield axi.w.ready):
                    yield
                yield axi.w.valid.eq(0)
            yield axi.b.ready.eq(1)
            yield
            while not (yield axi.b.valid):
                yield
            answers.append((yield axi.b.resp))
            yield axi.b.ready.eq(0)

    run_simulation(dut, [writing(), passive(answering)(dut.bus, memory, chance)])
    assert answers == [2, 0]
    assert memory == {k: 1 << 40 | k for k in [1, 2, 3, 4, 6, 7, *range(16, 23)]}
