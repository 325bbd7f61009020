"""The Bundle's binary form: what is written is read, and what is of another version or damaged is refused."""

from __future__ import annotations

import struct
import zlib
from dataclasses import fields, replace

import numpy as np
import pytest

from hwgen.spec.bundle import (
    MAGIC,
    VERSION,
    Bundle,
    BundleError,
    Category,
    Fill,
    InputPlace,
    RowChoice,
    Start,
    Symbol,
    Table,
    collect,
    place,
)
from hwgen.spec.columns import Column, ColumnType
from hwgen.spec.config import ConfigError, MachineConfig
from hwgen.spec.engine import Section
from hwgen.spec.fields import EncodingError
from tests.assembly.engine import assemble
from tests.assembly.strider import assemble as assemble_strider

PROGRAM, SECTIONS = assemble(
    "tuple:\n    mul s8 <- t0, s0\n    end wait=20\nbatch:\n    mov s0 <- s8\n    end wait=20\n"
)
BUNDLE = Bundle(
    config=MachineConfig(threads=2, clusters=1),
    program=PROGRAM,
    sections=SECTIONS,
    strider=assemble_strider("ctl end\n"),
    constants=(3, 0xFFFFFFFF),
    columns=(Column(count=3, row=1, lane=2, type=ColumnType.FLOAT8, first=1, last=1),),
    batch=64,
    group=4,
    tuple_rows=2,
    level_stride=5,
    levels=3,
    image=np.arange(16, dtype=np.uint32).reshape(2, 8),
    symbols=(
        Symbol(name="w", kind="model", shape=(2, 3), row=4),
        Symbol(name="", kind="loss", shape=(), row=7),
        Symbol(
            name="U",
            kind="model",
            shape=(5, 3),
            row=0,
            table=1,
            start=Start(kind="normal", first=0.0, second=0.5, seed=7),
        ),
    ),
    tables=(Table(records=5, rows=1),),
    inputs=(InputPlace(name="größe", shape=(3,), row=1), InputPlace(name="y", shape=(), row=0)),
    fills=(Fill(column="größe", input="größe", element=0, count=3),),
    choices=(
        RowChoice(inputs=("i",), element=0, model="U", rows=5, columns=(("c", 1), ("d", None))),
        RowChoice(
            inputs=("i", "j"),
            element=None,
            model="U",
            rows=5,
            category=Category(input="i", element=2, count=4, unknown=True),
        ),
    ),
)


def sealed(body: bytes) -> bytes:
    return body + struct.pack("<I", zlib.crc32(body))


def test_what_is_written_is_read() -> None:
    again = Bundle.from_bytes(BUNDLE.to_bytes())
    for field in fields(Bundle):
        found, wanted = getattr(again, field.name), getattr(BUNDLE, field.name)
        assert np.array_equal(found, wanted) if field.name == "image" else found == wanted, field.name
    assert again.digest == BUNDLE.digest
    assert replace(BUNDLE, batch=32).digest != BUNDLE.digest


@pytest.mark.parametrize("version", [VERSION - 1, VERSION + 1, 0])
def test_another_version_is_refused(version: int) -> None:
    """Though it be whole: what its words mean is not known."""
    data = BUNDLE.to_bytes()
    other = sealed(data[:8] + struct.pack("<I", version) + data[12:-4])
    with pytest.raises(BundleError, match=f"reads Bundle version {VERSION}, found {version}; compile the rule again"):
        Bundle.from_bytes(other)


def test_what_is_damaged_is_refused() -> None:
    data = BUNDLE.to_bytes()
    for at in range(16, len(data), 7):
        with pytest.raises(BundleError, match="its checksum does not match"):
            Bundle.from_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
    with pytest.raises(BundleError, match="a Bundle starts with"):
        Bundle.from_bytes(b"DANABNDK" + data[8:])
    with pytest.raises(BundleError, match="at least 20 bytes, this has 12"):
        Bundle.from_bytes(MAGIC + b"\4\0\0\0")


@pytest.mark.parametrize("shape", [(), (1,), (8,), (9,), (3, 5), (2, 3, 17)])
def test_values_are_laid_out_and_collected(shape: tuple[int, ...]) -> None:
    value = np.random.default_rng(1).normal(size=shape).astype(np.float32)
    rows = place(value, 8)
    assert rows.shape == (Symbol(name="w", kind="model", shape=shape, row=0).rows(8), 8)
    np.testing.assert_array_equal(collect(rows, shape), value)
    if shape:
        assert np.count_nonzero(rows) == value.size, "zeros behind the end"
        assert rows.reshape(-1)[: min(8, shape[-1])].tolist() == value.reshape(-1)[: min(8, shape[-1])].tolist()
    else:
        assert (rows == value).all()


def test_symbols_and_sections_are_found() -> None:
    assert BUNDLE.symbol("loss") == BUNDLE.symbols[1]
    assert BUNDLE.symbol("model", "w") == BUNDLE.symbols[0]
    assert BUNDLE.symbol("model", "v") is None
    assert BUNDLE.round_tuples == 8
    assert len(BUNDLE.section(Section.BATCH)) == 2
    with pytest.raises(BundleError, match="has no END"):
        replace(BUNDLE, program=PROGRAM[:-1]).section(Section.BATCH)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"wide_depth": 24}, "wide_depth must be a multiple of 16 from 0 to 112, .* not 24"),
        ({"wide_depth": 128}, "wide_depth must be a multiple of 16 from 0 to 112, .* not 128"),
        ({"wide_depth": -16}, "wide_depth must be a multiple of 16 from 0 to 112, .* not -16"),
        ({"wide_depth": 64, "ultra": 6}, "wide_depth must be 0, not 64, where ultra has 2, scratchpads"),
    ],
)
def test_narrow_rows_that_a_machine_cannot_have(fields: dict[str, int], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        MachineConfig(scratch_depth=128, **fields)


@pytest.mark.parametrize("value", [True, "2", 2.0, None])
def test_a_configuration_holds_whole_numbers_alone(value: object) -> None:
    """JSON's true is a whole number to Python, and no number of threads."""
    with pytest.raises(ConfigError, match="threads must be an integer, not"):
        MachineConfig.from_json({"threads": value})


@pytest.mark.parametrize(("count", "lane", "scalar", "kind", "converters", "beats"), [
    (1, 0, 1, ColumnType.FLOAT4, 1, 1),
    (1, 5, 1, ColumnType.FLOAT8, 8, 1),
    (8, 0, 0, ColumnType.FLOAT4, 1, 1),
    (8, 1, 0, ColumnType.FLOAT4, 8, 2),
    (17, 7, 0, ColumnType.FLOAT4, 1, 3),
    (17, 7, 0, ColumnType.FLOAT8, 1, 17),
    (17, 7, 0, ColumnType.FLOAT8, 2, 9),
    (17, 7, 0, ColumnType.FLOAT8, 4, 5),
    (17, 7, 0, ColumnType.FLOAT8, 8, 5),
    (17, 7, 0, ColumnType.INT4, 8, 3),
    (54, 0, 0, ColumnType.FLOAT8, 8, 14),
    (54, 0, 0, ColumnType.BOOL, 8, 7),
])  # fmt: skip
def test_the_cycles_of_a_column(
    count: int, lane: int, scalar: int, kind: ColumnType, converters: int, beats: int
) -> None:
    column = Column(count=count, row=0, lane=lane, scalar=scalar, type=kind)
    assert column.beats(8, converters) == beats
    assert Column.decode(column.encode()) == column


def test_a_field_holds_what_it_has_bits_for() -> None:
    assert Column.decode(Column(count=(1 << 14) - 1, row=65535, type=ColumnType.BOOL).encode()).count == 16383
    for count in (1 << 14, -1):
        with pytest.raises(EncodingError, match="count must be from 0 to 16383"):
            Column(count=count, row=0, type=ColumnType.BOOL).encode()
