"""The manual of the instruction sets: generated, and what docs/ holds."""

from __future__ import annotations

import re

from hwgen.export.manual import manual
from hwgen.spec import cycles, engine, strider
from hwgen.spec.engine import FIELDS


def test_every_operation_and_every_bit_is_in_it() -> None:
    text = manual()
    rows = re.findall(r"^\| (\d+) \| (\w+) \| (\d*) \|", text, re.MULTILINE)
    striders = [(str(int(op)), op.name.lower(), str(cycles.STRIDER_CYCLES[op])) for op in strider.Opcode]
    assert rows[: len(striders)] == striders
    assert {name for _, name, _ in rows[len(striders) :]} >= {op.name.lower() for op in engine.Opcode}
    for field in FIELDS:
        assert f"| [{field.offset + field.width - 1}:{field.offset}] | {field.name} | {field.what} |" in text
