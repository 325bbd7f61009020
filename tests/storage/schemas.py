"""Random schemas, rows and pages, valid and damaged."""

from __future__ import annotations

import random
import struct
from operator import attrgetter
from typing import Any

import numpy as np

from dana.compiler.place.rows import InputPlaces
from dana.storage import layout
from dana.storage.builder import PageBuilder, PageFull, build_tuple
from dana.storage.schema import Attribute, TableSchema, Use
from dana.storage.types import ARRAYS, SCALARS
from hwgen.spec.bundle import InputPlace, rows_of

COLUMN = attrgetter("column")
KINDS = {
    **{one.name: (one.oid, one.length, one.align) for one in sorted(SCALARS.values(), key=COLUMN)},
    "text": (25, -1, "i"),
    **{f"{one.name}[]": (oid, -1, "d" if one.length == 8 else "i") for oid, one in ARRAYS.items()},
    "uuid": (2950, 16, "c"),
    "macaddr": (829, 6, "i"),
}


def attribute(name: str, kind: str, **more: Any) -> Attribute:
    oid, length, align = KINDS[kind]
    return Attribute(name=name, type_oid=oid, type_name=kind, length=length, align=align, **more)


def random_schema(rng: random.Random, width: int) -> TableSchema:
    """Columns of any type; runs of one type are as frequent as in real tables."""
    attributes: list[Attribute] = []
    while len(attributes) < width:
        kind = rng.choice(list(KINDS))
        for _ in range(rng.choice([1, 1, 2, rng.randint(1, 20)])):
            attributes.append(attribute(f"c{len(attributes)}", kind))
    return TableSchema(relation="t", attributes=tuple(attributes[:width]))


def random_uses(rng: random.Random, schema: TableSchema, lanes: int, length: int) -> tuple[list[Use], InputPlaces]:
    """A vector input fed by scalar columns, one more for each array column used, and maybe scalar inputs."""
    uses: list[Use] = []
    places: list[InputPlace] = []
    row = 0

    def place(name: str, shape: tuple[int, ...]) -> None:
        nonlocal row
        places.append(InputPlace(name=name, shape=shape, row=row))
        row += rows_of(shape, lanes)

    scalars = [k for k, a in enumerate(schema.attributes) if a.type_oid in SCALARS]
    arrays = [k for k, a in enumerate(schema.attributes) if a.type_oid in ARRAYS]
    chosen = sorted(rng.sample(scalars, rng.randint(0, len(scalars))))
    for k in [k for k in arrays if rng.random() < 0.6] or ([] if chosen else arrays[:1]):
        uses.append(Use(attribute=k, input=f"a{k}", element=0, count=length))
        place(f"a{k}", (length,))
    if len(chosen) > 1 and rng.random() < 0.7:
        label = chosen.pop(rng.randrange(len(chosen)))
        uses.append(Use(attribute=label, input="y", element=0, count=1))
        place("y", ())
    if rng.random() < 0.2:
        rng.shuffle(chosen)
    for element, k in enumerate(chosen):
        uses.append(Use(attribute=k, input="x", element=element, count=1))
    if chosen:
        place("x", (len(chosen),))
    if not uses:
        return random_uses(rng, schema, lanes, length)
    return uses, InputPlaces(lanes=lanes, places=tuple(places))


def random_value(rng: random.Random, a: Attribute, length: int) -> Any:
    """A value of the attribute's type, among them the awkward ones."""
    if a.type_oid in ARRAYS:
        element = attribute("", ARRAYS[a.type_oid].name)
        floats = np.dtype(ARRAYS[a.type_oid].dtype).kind == "f"
        return np.array([rng.gauss(0, 10) if floats else random_value(rng, element, 1) for _ in range(length)])
    match a.type_name:
        case "real" | "double precision":
            return rng.choice([rng.gauss(0, 100), 0.0, -0.0, float("nan"), float("inf"), 1e-40, 1e-46, -1e-39])
        case "boolean":
            return rng.randint(0, 1)
        case "text":
            return "x" * rng.choice([0, 1, 3, 30, 126, 127, 200])
        case _ if a.type_oid in SCALARS:
            bounds = np.iinfo(SCALARS[a.type_oid].dtype)
            return rng.randint(int(bounds.min), int(bounds.max))
        case _:
            return bytes(rng.randrange(256) for _ in range(a.length))


def random_page(
    rng: random.Random, schema: TableSchema, length: int, *, page_size: int = 8192, nulls: float = 0.1
) -> bytes:
    """A page with dead, unused and redirected pointers among its tuples, some of them short of attributes."""
    builder = PageBuilder(page_size)
    try:
        for _ in range(rng.randint(0, 60)):
            kind = rng.random()
            if kind < 0.1:
                builder.add_pointer(
                    rng.choice([layout.LP_UNUSED, layout.LP_DEAD, layout.LP_REDIRECT]), rng.randrange(99)
                )
                continue
            with_nulls = rng.random() < 0.5
            row = [
                None if with_nulls and rng.random() < nulls else random_value(rng, a, length) for a in schema.attributes
            ]
            natts = rng.randint(1, len(row)) if rng.random() < 0.1 else None
            stored = build_tuple(schema.attributes, row, natts=natts, short=rng.random() < 0.7)
            builder.add(stored, layout.LP_DEAD if kind < 0.15 else layout.LP_NORMAL)
    except PageFull:
        pass
    return builder.finish()


def damage(rng: random.Random, page: bytes) -> bytes:
    """The page with a few bytes changed, most of them where it hurts."""
    damaged = bytearray(page)
    for _ in range(rng.randint(1, 3)):
        where = rng.random()
        if where < 0.2:
            at = rng.randrange(layout.PD_LOWER, layout.PAGE_HEADER_SIZE)
        elif where < 0.5:
            at = rng.randrange(layout.PAGE_HEADER_SIZE, layout.PAGE_HEADER_SIZE + 80)
        else:
            (upper,) = struct.unpack_from("<H", page, layout.PD_UPPER)
            at = rng.randrange(min(upper, len(page) - 1), len(page))
        damaged[at] = rng.choice([0, 255, rng.randrange(256), damaged[at] ^ 1 << rng.randrange(8)])
    return bytes(damaged)
