"""A package's own testbench finds faults that are put into its Verilog by hand, and passes in both simulators."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping
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
    long: bool = False
    """Whether only the longest scenarios find it."""


FAULTS = {
    "a timeout of 0 is one": Fault(
        "training_loop", r"= (\| settings_bus_timeout);", "1'b1", r"\b0*8 holds 00000011, expected 00000001"
    ),
    "the high word of a page's address is ignored": Fault(
        "page_reader", r"if \(\\begin \) begin\s+\S+ += (base\[63:13\]);", "{32'd0, base[31:13]}", "outside the pages"
    ),
    "RRESP is ignored": Fault("dana_board", r"\.bus_rresp\((m_axi_rresp)\)", "2'b00", r"\b0*8 holds 00000002, expec"),
    "a stop has no effect": Fault("training_loop", r"= (stop & busy);", "1'b0", r"holds 00000001 after \d+ cycles"),
    "it is written while it trains": Fault("front", r"= (\S+ +& busy);", "1'b0", "write to \\w+ is answered with 0"),
    "parts of words are written": Fault("lite_slave", r"= (bus_wstrb == 4'hf);", "1'b1", "to 0*14 is answered with 0"),
    "a column may leave its page": Fault(
        "access.intake", r"assign outside = (.*);", "1'b0", r"\b0*8 holds 00000002, expected 00000100"
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
        "converter_64",
        r"= (\{ 63'h0+, \S+ +\});",
        "{ 63'h0, data[0] }",
        "holds 00000000, expected 3f800000",
    ),
    "CYCLES counts twice": Fault(
        "training_loop", r"= (cycles \+ 1'h1);", "cycles + 2'h2", "says that its training took"
    ),
    "a silent memory is not noticed": Fault("dana_board", r"\.silent\((silent)\)", "1'b0", "no interrupt in"),
    "a start finds answers owed": Fault("front", r"= (\S+ \| owed);", "no_slots_1", "to 0*4 is answered with 0"),
    "the reader does not wait for PAGES_READY": Fault(
        "page_reader",
        r"= (\\\$\d+  & \\\$\d+ );\s+assign \\\$\d+  = ~ bus__arvalid;",
        "1'b0",
        r"\b0*2c holds 0000000[1-6]",
    ),
    "the reader is a page ahead of PAGES_READY": Fault(
        "page_reader", r"= (ready == taken);", "ready + 1'b1 == taken", r"\b0*2c holds"
    ),
    "the first burst of a page does not wait": Fault(
        "page_reader", r"= (~ waiting_1);", "~ (waiting_1 & burst)", r"\w+ holds \w+, expected"
    ),
    "the ring has one slot more": Fault("page_reader", r"= (slot == last_slot_1);", "slot > last_slot_1", "holds"),
    "a sum that is a tie is rounded up": Fault("lane.add", r"= (\\\$\d+ \[4\] \| \\\$\d+ );", "1'b1", r"\w+ holds"),
    "a sum beyond the range is the largest number": Fault(
        "lane.add", r"\[30:0\] = (31'h7f800000);", "31'h7f7fffff", r"holds 7f7fffff, expected 7f800000"
    ),
    "a sum's NaN is negative": Fault("lane.add", r"= (32'd2143289344);", "32'hffc00000", "holds ffc00000, expected 7f"),
    "a product that is a tie is rounded up": Fault(
        "lane.multiply", r"= (\\stage_\S+ \[1\] \| \\stage_\S+ );", "1'b1", r"\w+ holds"
    ),
    "a product below the smallest normal number is not 0": Fault(
        "lane.multiply", r"= (\$signed\(\S+ \[32:23\]\) < \$signed\(2'h1\));", "1'b0", r"\w+ holds"
    ),
    "a quotient is cut": Fault("special.divide", r"\[0\] \| (\\stage_\S+ );", "1'b0", r"\w+ holds"),
    "a page's number carries into 16 bits": Fault(
        "page_reader",
        r"= (number \+ 1'h1);",
        "{number[50:16], number[15:0] + 16'd1}",
        r"a burst at 7fffffff\w+ is outside the pages",
    ),
    "the last slot is compared in 8 bits": Fault(
        "page_reader", r"(slot == last_slot_1)\);", "slot[7:0] == last_slot_1[7:0]", "holds 41a80000, expected 421c0000"
    ),
    "slots are counted in 8 bits": Fault(
        "page_reader", r"= (slot \+ 1'h1);", "{25'd0, slot[7:0] + 8'd1}", "outside the pages", long=True
    ),
    "PAGES_READY is compared in 8 bits": Fault(
        "page_reader", r"(ready == taken)\);", "ready[7:0] == taken[7:0]", "no interrupt in"
    ),
    "PAGES_READY is compared in 16 bits": Fault(
        "page_reader", r"(ready == taken)\)\);", "ready[15:0] == taken[15:0]", "no interrupt in"
    ),
    "the failed page has 8 bits": Fault(
        "front", r"= (failed_page) & ", "failed_page[7:0]", r"\b0*40 holds 00000002, expected 00000102", long=True
    ),
    "the last failed page is kept": Fault(
        "page_reader", r"= (~ failed);", "1'b1", r"\b0*40 holds 00000103, expected 00000102", long=True
    ),
    "epochs are compared in 8 bits": Fault(
        "training_loop",
        r"= (\S+ +>= settings_epochs);",
        "epochs_run[7:0] + 8'd1 >= settings_epochs[7:0]",
        r"\b0*18 holds 00000002 after",
        long=True,
    ),
    "losses of 16 epochs are kept": Fault(
        "training_loop",
        r"assign loss_epoch = (epochs_run\[9:0\]);",
        "{6'd0, epochs_run[3:0]}",
        r"\b0*1000 holds",
        long=True,
    ),
    "losses of 512 epochs are kept": Fault(
        "training_loop",
        r"assign loss_epoch = .*(epochs_run\[9:0\])\);",
        "{1'd0, epochs_run[8:0]}",
        r"\b0*1000 holds",
        long=True,
    ),
    "a convergence of -0 holds": Fault(
        "training_loop", r"= (\| port_rdata\[30:0\]);", "| port_rdata", r"\b0*8 holds 00000006, expected 00000002"
    ),
    "a small convergence does not hold": Fault(
        "training_loop",
        r"(\| port_rdata\[30:0\])\);",
        "| port_rdata[30:23]",
        r"\b0*8 holds 00000002, expected 00000006",
    ),
    "a fault has 7 bits": Fault(
        "training_loop",
        r"= (\| port_rdata\[15:8\]);",
        "| port_rdata[14:8]",
        r"\b0*8 holds 00000002, expected 00008000",
    ),
    "a timeout is compared in 31 bits": Fault(
        "training_loop",
        r"= (quiet == settings_bus_timeout);\s+assign \S+ += silent",
        "quiet[30:0] == settings_bus_timeout[30:0]",
        "the interrupt's line is 1, expected 0",
    ),
}
CHOICE = '\n  integer by_hand; initial if (!$value$plusargs("FAULT=%d", by_hand)) by_hand = 0;\n'
"""One compilation has them all; none is there without an argument."""
AT_PORTS = 100
"""Number of the first fault at an output of the board."""


def wrapped(text: str, top: str) -> tuple[str, dict[str, int]]:
    """The Verilog with faults at every output of its top module, and their numbers by what they do.

    The lowest bit of each is inverted; and a message that waits for its channel's `ready` is withdrawn, or changed.
    """
    body = re.search(rf"^module {top}\(.*?^endmodule", text, re.M | re.S)
    assert body is not None
    ports = re.findall(r"^  (input|output) (\[\S+\] )?(\w+);", body[0], re.M)
    outputs = {name: width for direction, width, name in ports if direction == "output"}
    numbers: dict[str, int] = {}

    def when(fault: str) -> str:
        numbers[fault] = AT_PORTS + len(numbers)
        return f"(by_hand == {numbers[fault]})"

    lines = [f"module {top}({', '.join(name for *_, name in ports)});{CHOICE}"]
    lines += [f"  {direction} {width}{name};" for direction, width, name in ports]
    values = {name: f"own_{name} ^ {when(f'{name} inverted')}" for name in outputs}
    for valid in [name for name in outputs if name.endswith("valid")]:
        channel = valid.removesuffix("valid")
        waits = f"waits_{channel}"
        lines.append(f"  reg {waits} = 0; always @(posedge clk) {waits} <= own_{valid} & ~{channel}ready;")
        values[valid] += f" ^ (own_{valid} & {waits} & {when(f'{channel} withdrawn')})"
        first = next(name for name in outputs if name.startswith(channel) and name not in (valid, f"{channel}ready"))
        values[first] += f" ^ ({waits} & {when(f'{channel} changed')})"
    lines += [f"  wire {width}own_{name};\n  assign {name} = {values[name]};" for name, width in outputs.items()]
    wires = ", ".join(f".{name}({'own_' if name in outputs else ''}{name})" for *_, name in ports)
    inner = text.replace(f"module {top}(", f"module {top}_inner(")
    return inner + "\n".join([*lines, f"  {top}_inner inner ({wires});", "endmodule", ""]), numbers


def said(testbench: Path, number: int, *more: str) -> str:
    """By the testbench with a fault."""
    command = [str(testbench), f"+FAULT={number}", *more]
    return subprocess.run(command, cwd=testbench.parents[1], capture_output=True, text=True, check=True).stdout


def unseen(testbench: Path, numbers: Mapping[str, int]) -> dict[str, str]:
    """Faults at outputs that the testbench does not find, or says something else about."""
    wrong = {}
    for fault, number in numbers.items():
        *_, does = fault.split()
        # a memory that never pauses leaves no request waiting
        found = said(testbench, number, "+QUICK", "+STALL=64" if does != "inverted" else "+STALL=0")
        expected = {"withdrawn": "withdrawn before it was taken", "changed": "changed before it was taken"}
        if not re.search(r"^FAIL \d+ errors", found, re.M) or expected.get(does, "") not in found:
            wrong[fault] = found
    return wrong


def broken(text: str, prefix: str, faults: Mapping[str, Fault] = FAULTS) -> str:
    """The Verilog with all faults in it, by their numbers from 1 on."""
    modules = {found[1]: found[0] for found in re.finditer(r"^module \\?(\S+?) ?\(.*?^endmodule", text, re.M | re.S)}
    assert len(faults) < AT_PORTS
    for number, fault in enumerate(faults.values(), 1):
        before = modules[prefix + fault.module]
        found = list(re.finditer(fault.found, before))
        assert len(found) == 1, (fault, found)
        first, last = found[0].span(1)
        chosen = f"(by_hand == {number} ? {fault.instead} : {found[0][1]})"
        modules[prefix + fault.module] = before[:first] + chosen + before[last:]
    changed = {prefix + fault.module for fault in faults.values()}
    for name in changed:
        header, end, body = modules[name].partition(");\n")
        modules[name] = header + end + CHOICE + body
    return "\n\n".join(modules.values()) + "\n"


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, int]]:
    """By the package's script, which runs it without a fault; and numbers of the faults at ports."""
    folder = tmp_path_factory.mktemp("faults")
    assert main([*ARGUMENTS, "-o", str(folder)]) == OK
    verilog = folder / "rtl" / f"{board.TOP}.v"
    text, numbers = wrapped(broken(verilog.read_text(), manifest(folder)["prefix"]), manifest(folder)["top"])
    verilog.write_text(text)
    environment = {"PATH": "/usr/bin:/bin", "VERILATOR": "none", "PYTHON": sys.executable}
    done = subprocess.run(
        ["sh", "sim/verilator.sh"], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert "PASS" in done.stdout, done.stdout + done.stderr
    return folder / "sim" / "verilated" / "testbench", numbers


@pytest.mark.parametrize("name", FAULTS)
def test_its_own_testbench_fails(name: str, compiled: tuple[Path, dict[str, int]]) -> None:
    found = said(compiled[0], list(FAULTS).index(name) + 1, *([] if FAULTS[name].long else ["+QUICK"]))
    assert re.search(r"^FAIL \d+ errors", found, re.M), found
    assert re.search(FAULTS[name].said, found), found


def test_every_output_of_every_bus_is_checked(compiled: tuple[Path, dict[str, int]]) -> None:
    testbench, numbers = compiled
    buses = {fault.split("_")[0] for fault in numbers}
    assert buses == {"s", "m", "irq inverted"}
    assert len(numbers) == 19 + 2 * 3, "outputs, and channels that the board drives"
    assert unseen(testbench, numbers) == {}
