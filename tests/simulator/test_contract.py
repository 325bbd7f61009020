"""The numbers that the native core repeats from `hwgen.spec`, compared with it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dana.simulator import native
from dana.simulator.problems import KINDS, SETTINGS, Kind, Setting
from hwgen.spec import columns, engine, strider
from hwgen.spec.bundle import WHOLE_EPOCH
from hwgen.spec.config import LANES_PER_CLUSTER

HEADERS = Path(native.__file__).parent / "native"


def text() -> str:
    """Both headers without comments."""
    joined = "".join((HEADERS / name).read_text() for name in ("contract.h", "core.h"))
    return re.sub(r"/\*.*?\*/", "", joined, flags=re.DOTALL)


def c_enum(name: str) -> dict[str, int]:
    body = re.search(rf"enum {name}\s*{{(.*?)}}", text(), re.DOTALL)
    assert body, name
    values: dict[str, int] = {}
    number = 0
    for entry in body[1].split(","):
        if not entry.strip():
            continue
        key, _, value = (part.strip() for part in entry.partition("="))
        number = int(value) if value else number
        values[key.removeprefix("SIM_")] = number
        number += 1
    return values


def c_members(name: str) -> list[str]:
    body = re.search(rf"struct {name}\s*{{(.*?)}}", text(), re.DOTALL)
    assert body, name
    members = []
    for declaration in body[1].split(";"):
        declarators = re.sub(r"^\s*(const\s+)?(struct\s+)?\w+\s", "", declaration, count=1)
        members += [re.sub(r"[*\s]|\[.*?\]", "", each) for each in declarators.split(",") if each.strip()]
    return members


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("sim_opcode", {op.name: int(op) for op in engine.Opcode}),
        ("sim_source", {("MEMORY" if s == 0 else s.name): int(s) for s in engine.Source}),
        ("sim_tuple_mask", {f"MASK_{mask.name}": int(mask) for mask in engine.Mask}),
        ("sim_section", {**{s.name: k for k, s in enumerate(engine.Section)}, "SECTIONS": len(engine.Section)}),
        ("sim_control", {f"CTL_{control.name}": int(control) for control in strider.Control}),
        ("sim_condition", {f"COND_{condition.name}": int(condition) for condition in strider.Condition}),
        ("sim_column_type", {kind.name: int(kind) for kind in columns.ColumnType}),
    ],
)
def test_enumerations_are_the_specs(name: str, expected: dict[str, int]) -> None:
    assert c_enum(name) == expected


def test_strider_opcodes_are_the_specs() -> None:
    renamed = {"SUBTRACT": "SUB", "MULTIPLY": "MUL"}
    found = {renamed.get(name, name): value for name, value in c_enum("sim_strider_opcode").items()}
    assert found == {op.name: int(op) for op in strider.Opcode}


def test_faults_are_the_specs() -> None:
    found = c_enum("sim_fault")
    assert found == {f"FAULT_{fault.name}": int(fault) for fault in strider.Fault if f"FAULT_{fault.name}" in found}
    assert "FAULT_RUNAWAY" in found


def test_structures_have_the_fields_in_order() -> None:
    assert c_members("sim_instruction") == [field.name for field in engine.FIELDS]
    assert c_members("sim_column")[: len(columns.FIELDS)] == [field.name for field in columns.FIELDS]
    assert c_members("sim_strider_instruction") == ["op", "a", "b", "c"]


@pytest.mark.parametrize(
    ("structure", "name"),
    [
        (native.Machine, "sim_machine"),
        (native.BundleData, "sim_bundle"),
        (native.Problem, "sim_problem"),
        (native.Counters, "sim_counters"),
    ],
)
def test_structures_are_mirrored(structure: type, name: str) -> None:
    assert [field[0] for field in structure._fields_] == c_members(name)


def test_problems_have_words() -> None:
    assert [kind.name for kind in Kind] == list(c_enum("sim_problem_kind"))
    assert [setting.name for setting in Setting] == list(c_enum("sim_setting"))
    assert set(SETTINGS) == set(Setting)
    assert set(KINDS) == set(Kind) - {Kind.FITS, Kind.NO_MEMORY, Kind.BAD_SETTING}


def test_sizes_are_the_specs() -> None:
    defined = dict(re.findall(r"#define (SIM_\w+)\s+(\w+)", text()))
    assert int(defined["SIM_CLUSTER"]) == LANES_PER_CLUSTER
    assert int(defined["SIM_TEMPORARIES"]) == strider.TEMPORARIES
    assert int(defined["SIM_REGISTERS"]) == strider.TEMPORARIES + strider.CONFIGURATION
    assert defined["SIM_WHOLE_EPOCH"] == "UINT32_MAX"
    assert WHOLE_EPOCH == 0xFFFFFFFF
    assert int(defined["SIM_ENGINE_CODES"]) == native.ENGINE_CODES == 1 << engine.FIELDS[0].width
