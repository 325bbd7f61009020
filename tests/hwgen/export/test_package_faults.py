"""A package's own testbench finds faults that are put into its Verilog by hand, and passes in both simulators."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from dana.cli.entry import OK, main
from hwgen.spec import board
from tests.hwgen.export.test_package import ARGUMENTS, manifest


@dataclass(frozen=True)
class Fault:
    """A module's expression, a group that must be found once, and what is there instead."""

    module: str
    found: str
    instead: str
    said: str
    """By the testbench then."""


FAULTS = {
    "a timeout of 0 is one": Fault(
        "training_loop", r"= (\| settings_bus_timeout);", "1'b1", r"1800008 holds 00000011, expected 00000001"
    ),
    "the high word of a page's address is ignored": Fault(
        "page_reader", r"if \(\\begin \) begin\s+\S+ += (base\[63:13\]);", "{32'd0, base[31:13]}", "outside the pages"
    ),
    "RRESP is ignored": Fault("dana_board", r"\.bus_rresp\((m_axi_rresp)\)", "2'b00", "1800008 holds 00000002, expec"),
    "a stop has no effect": Fault("training_loop", r"= (stop & busy);", "1'b0", r"holds 00000001 after \d+ cycles"),
    "it is written while it trains": Fault("front", r"= (\S+ +& busy);", "1'b0", "write to 2\\w+ is answered with 0"),
    "parts of words are written": Fault(
        "lite_slave", r"= (bus_wstrb == 4'hf);", "1'b1", "to 1800014 is answered with 0"
    ),
    "a column may leave its page": Fault(
        "access.intake", r"assign outside = (.*);", "1'b0", "1800008 holds 00000002, expected 00000100"
    ),
    "the interrupt is always enabled": Fault(
        "front", r"assign irq = (_enabled & _pending);", "_pending", "the interrupt's line is 1, expected 0"
    ),
    "an interrupt stays": Fault(
        "front", r"= _pending;\s+if \((\S+ +)\) begin", "1'b0", "the interrupt was cleared and is still there"
    ),
    "a rejected read is answered with OKAY": Fault(
        "lite_slave", r"assign bus_rresp = (bus__rresp);", "2'b00", r"a read of \w+ is answered with 0, expected 2"
    ),
    "a bool is the lowest bit of its byte": Fault(
        "access.unpacker.converter",
        r"= (\{ 63'h0+, \S+ +\});",
        "{ 63'h0, data[0] }",
        "holds 00000000, expected 3f800000",
    ),
    "CYCLES counts twice": Fault(
        "training_loop", r"= (cycles \+ 1'h1);", "cycles + 2'h2", "says that its training took"
    ),
    "a silent memory is not noticed": Fault("dana_board", r"\.silent\((silent)\)", "1'b0", "no interrupt in"),
    "a start finds answers owed": Fault("front", r"= (\S+ \| owed);", "no_slots_1", "to 1800004 is answered with 0"),
}
CHOICE = '\n  integer by_hand; initial if (!$value$plusargs("FAULT=%d", by_hand)) by_hand = 0;\n'
"""One compilation has them all; none is there without an argument."""


def broken(text: str, prefix: str) -> str:
    """The Verilog with all faults in it, by their numbers from 1 on."""
    modules = {found[1]: found[0] for found in re.finditer(r"^module \\?(\S+?) ?\(.*?^endmodule", text, re.M | re.S)}
    for number, fault in enumerate(FAULTS.values(), 1):
        before = modules[prefix + fault.module]
        found = list(re.finditer(fault.found, before))
        assert len(found) == 1, (fault, found)
        first, last = found[0].span(1)
        chosen = f"(by_hand == {number} ? {fault.instead} : {found[0][1]})"
        modules[prefix + fault.module] = before[:first] + chosen + before[last:]
    changed = {prefix + fault.module for fault in FAULTS.values()}
    for name in changed:
        header, end, body = modules[name].partition(");\n")
        modules[name] = header + end + CHOICE + body
    return "\n\n".join(modules.values()) + "\n"


@pytest.fixture(scope="module")
def testbench(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compiled by the package's script, which runs it without a fault."""
    folder = tmp_path_factory.mktemp("faults")
    assert main([*ARGUMENTS, "-o", str(folder)]) == OK
    verilog = folder / "rtl" / f"{board.TOP}.v"
    verilog.write_text(broken(verilog.read_text(), manifest(folder)["prefix"]))
    environment = {"PATH": "/usr/bin:/bin", "VERILATOR": "none", "PYTHON": sys.executable}
    done = subprocess.run(
        ["sh", "sim/verilator.sh"], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert "PASS" in done.stdout, done.stdout + done.stderr
    return folder / "sim" / "verilated" / "testbench"


@pytest.mark.parametrize("name", FAULTS)
def test_its_own_testbench_fails(name: str, testbench: Path) -> None:
    number = list(FAULTS).index(name) + 1
    command = [str(testbench), f"+FAULT={number}"]
    done = subprocess.run(command, cwd=testbench.parents[1], capture_output=True, text=True, check=True)
    assert re.search(r"^FAIL \d+ errors", done.stdout, re.M), done.stdout
    assert re.search(FAULTS[name].said, done.stdout), done.stdout
