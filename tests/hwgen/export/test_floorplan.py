"""Places for the lanes of a large machine on an ECP5: each cell one of its own, those that the netlist has."""

from __future__ import annotations

import dataclasses
import itertools
import json
import subprocess
import sys
from pathlib import Path

import pytest

from hwgen.devices import load_device
from hwgen.export import yosys
from hwgen.export.floorplan import BANDS, COLUMNS, RING, floorplan
from hwgen.export.pin import pin
from hwgen.export.scripts import ENGINE, FIT, PARTS, scripts
from hwgen.rtl.board.board import generate
from hwgen.spec import board
from hwgen.spec.config import MachineConfig, functions_mask
from hwgen.spec.engine import Opcode

DEVICE = load_device("lfe5um5g-85")
SHAPE = {"link_bytes": 16, "functions": functions_mask([Opcode.SIGMOID]), "crossed": 0}
MEMORIES = {"scratch_depth": 512, "tuple_depth": 512}
LARGE = MachineConfig(threads=4, **SHAPE, **MEMORIES)
LANE = f"{ENGINE}.thread_1.cluster_0.lane_5"


def netlist(cells: dict[str, str]) -> dict[str, object]:
    made = {name: {"type": kind, "attributes": {}} for name, kind in cells.items()}
    return {"modules": {"fit": {"attributes": {"top": "1"}, "cells": made}}}


@pytest.mark.parametrize(
    ("threads", "clusters", "scratch_depth", "tuple_depth", "block_rams"),
    [(4, 1, 512, 512, 4), (2, 2, 256, 512, 4), (1, 4, 512, 512, 4), (2, 1, 1024, 512, 6), (1, 1, 2048, 2048, 16)],
)
def test_no_place_is_given_twice(
    threads: int, clusters: int, scratch_depth: int, tuple_depth: int, block_rams: int
) -> None:
    depths = {"scratch_depth": scratch_depth, "tuple_depth": tuple_depth}
    plan = floorplan(MachineConfig(threads=threads, clusters=clusters, **SHAPE, **depths), DEVICE, ENGINE)
    assert plan is not None
    assert len(plan) == 9 * threads * clusters
    assert all(len(types["DP16KD"]) >= block_rams for types in plan.values())
    places = [place for types in plan.values() for kind in types.values() for place in kind]
    assert len(set(places)) == len(places)


def test_a_scratchpad_lies_between_its_tuples() -> None:
    """Names of its cells come first."""
    plan = floorplan(MachineConfig(threads=2, **SHAPE, scratch_depth=1024, tuple_depth=1024), DEVICE, ENGINE)
    assert plan is not None
    for name, types in plan.items():
        columns = [int(place[1 : place.index("/")]) for place in types["DP16KD"]]
        if ".lane_" in name:
            scratch, tuples = columns[:4], columns[4:]
            assert min(tuples) < min(scratch) < max(scratch) < max(tuples)


def test_a_lane_lies_between_its_multipliers_and_its_memories() -> None:
    plan = floorplan(LARGE, DEVICE, ENGINE)
    assert plan is not None
    for types in plan.values():
        places = [place for kind in types.values() for place in kind]
        columns = [int(place[1 : place.index("/")]) for place in places]
        assert max(columns) - min(columns) < 9
        multipliers, block_rams = (
            {int(place.split("/")[1][1:]) for place in types[kind]} for kind in ("MULT18X18D", "DP16KD")
        )
        assert (*multipliers, *block_rams) in BANDS


def test_lanes_side_by_side_exchange_words() -> None:
    """All around the ring, numbers of neighbours differ in one bit."""
    plan = floorplan(LARGE, DEVICE, ENGINE)
    assert plan is not None
    at = {}
    for lane in range(8):
        x, y = plan[f"{ENGINE}.thread_0.cluster_0.lane_{lane}"]["MULT18X18D"][0].split("/")[:2]
        band = [row for row, _ in BANDS].index(int(y[1:]))
        at[COLUMNS.index(int(x[1:])), band] = lane
    ring = [at[place] for place in RING]
    assert all((a ^ b).bit_count() == 1 for a, b in itertools.pairwise([*ring, ring[0]]))


@pytest.mark.parametrize(
    ("config", "part"),
    [
        (MachineConfig(threads=2, **SHAPE, **MEMORIES), DEVICE.part),
        (MachineConfig(threads=4, **SHAPE, scratch_depth=1024, tuple_depth=512), DEVICE.part),
        (MachineConfig(threads=4, **SHAPE, scratch_depth=512, tuple_depth=1024), DEVICE.part),
        (LARGE, "LFE5U-45F-6BG381C"),
    ],
)
def test_no_plan_where_none_is_needed_or_known(config: MachineConfig, part: str) -> None:
    device = dataclasses.replace(DEVICE, part=part)
    assert floorplan(config, device, ENGINE) is None
    made = scripts(config, device)
    assert "pin.py" not in made
    assert "static" not in made["nextpnr.sh"]


def test_cells_take_places_in_the_order_of_their_names() -> None:
    """Those without one stay free, and so does another instance."""
    plan = {"a.b": {"DP16KD": ["X1", "X2", "X3"], "MULT18X18D": ["X4"]}, "a.c": {"DP16KD": ["X5"]}}
    made = netlist(
        {
            "a.b.z": "DP16KD",
            "a.b.y": "DP16KD",
            "a.b.m": "MULT18X18D",
            "a.b.n": "MULT18X18D",
            "a.bc.y": "DP16KD",
            "a.b.l": "LUT4",
            "a.c.l": "LUT4",
        }
    )
    cells = pin(made, plan)["modules"]["fit"]["cells"]
    assert {name: cell["attributes"].get("BEL") for name, cell in cells.items()} == {
        "a.b.z": "X2",
        "a.b.y": "X1",
        "a.b.m": "X4",
        "a.b.n": None,
        "a.bc.y": None,
        "a.b.l": None,
        "a.c.l": None,
    }


def test_a_plan_of_another_machine_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^the netlist has no cells of a: the plan is another machine's$"):
        pin(netlist({"ab.x": "DP16KD"}), {"a": {"DP16KD": ["X1/Y1/EBR0"]}})


def test_the_plan_names_instances_of_the_netlist(tmp_path: Path) -> None:
    """As yosys names them after it flattened the board in its stand-in; the script pins its cells."""
    for part in ("rtl", "synth"):
        (tmp_path / part).mkdir()
    (tmp_path / "rtl" / f"{board.TOP}.v").write_text(generate(LARGE, wide_multipliers=False))
    made = scripts(LARGE, DEVICE)
    for name, text in made.items():
        (tmp_path / "synth" / name).write_text(text)
    # lanes and special functions as boxes; what is inside them is the mapping's, which takes minutes
    script = (
        f"read_verilog ../rtl/{board.TOP}.v {FIT}.v; hierarchy -check -top {FIT}; proc; "
        "setattr -mod -set keep_hierarchy 1 lane special; flatten; write_json boxes.json"
    )
    yosys.run(script, tmp_path / "synth")
    boxes = json.loads((tmp_path / "synth" / "boxes.json").read_text())["modules"][FIT]["cells"]
    plan = json.loads(made["floorplan.json"])
    assert set(plan) == {name for name in boxes if name.rpartition(".")[2].startswith(("lane_", "special"))}
    assert {"lane", "special"} <= set(PARTS)

    cells = {f"{name}.{kind}": kind for name, types in plan.items() for kind in types}
    (tmp_path / "synth" / f"{FIT}.json").write_text(json.dumps(netlist(cells)))
    assert "${PYTHON:-python3} pin.py fit.json floorplan.json pinned.json || exit" in made["nextpnr.sh"]
    command = [sys.executable, "pin.py", "fit.json", "floorplan.json", "pinned.json"]
    subprocess.run(command, cwd=tmp_path / "synth", check=True)
    pinned = json.loads((tmp_path / "synth" / "pinned.json").read_text())["modules"]["fit"]["cells"]
    assert pinned[f"{LANE}.DP16KD"]["attributes"]["BEL"] == plan[LANE]["DP16KD"][0]
