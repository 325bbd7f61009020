"""Values of messages against the types that they are for; and requests of a backend that lies, before any worker."""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from dana.errors import UsageError
from dana.worker.conform import Mismatch, conform
from dana.worker.protocol import (
    ProtocolError,
    categories_request,
    check_request,
    decode,
    explain_request,
    train_request,
)
from tests.postgres.liar import changed_json
from tests.worker.producer import TRAIN_OPTIONS, train_fields


@dataclass(frozen=True, kw_only=True)
class Pair:
    name: str
    sizes: tuple[int, ...] = ()


@pytest.mark.parametrize(
    ("kind", "value", "becomes"),
    [
        (int, 3, 3),
        (float, 3, 3.0),
        (float | None, None, None),
        (str | None, "x", "x"),
        (tuple[str, ...], ["a", "b"], ("a", "b")),
        (Mapping[str, float | None], {"a": 1, "b": None}, {"a": 1.0, "b": None}),
        (Pair, {"name": "n", "sizes": [1]}, Pair(name="n", sizes=(1,))),
        (tuple[Pair, ...], [{"name": "n"}], (Pair(name="n"),)),
        (Any, {"a": [None]}, {"a": [None]}),
    ],
)
def test_values_that_conform(kind: Any, value: Any, becomes: Any) -> None:
    assert conform(kind, value, "it") == becomes


@pytest.mark.parametrize(
    ("kind", "value", "says"),
    [
        (int, True, "it must be of type int, not bool"),
        (int, 1.0, "not float"),
        (int, 1 << 63, "it must be of type int"),
        (float, True, "not bool"),
        (float, 10**400, "it must be of type float"),
        (str, None, "not NoneType"),
        (tuple[int, ...], ["a"], "it must be of type int, not str"),
        (tuple[int, ...], "a", "not str"),
        (Mapping[str, float], {"a": "x"}, r"it\.a must be of type float"),
        (Pair, {"name": 1}, r"it\.name must be of type str"),
        (Pair, {}, "it lacks 'name'"),
        (Pair, {"name": "n", "color": 1}, "it has no 'color'"),
        (Pair | None, [], "it must be of type Pair, not list"),
    ],
)
def test_values_that_do_not(kind: Any, value: Any, says: str) -> None:
    with pytest.raises(Mismatch, match=says):
        conform(kind, value, "it")


@pytest.mark.parametrize(
    "payload",
    [
        *(b'{"a": 1e400}', b'{"a": -1e400}', b'{"a": 1' + b"0" * 5000 + b"}"),
        *(rb'{"a": "\ud800"}', rb'{"\udfff": 1}', rb'{"a": ["\u0000"]}', b'{"a":' + b"[" * 65 + b"]" * 65 + b"}"),
        *(b'{"a": "' + b'\\"' * 9000, b'{"a":' + b"[" * 9000, b'{"\\"]": ' + b"[" * 9000),
        # other encodings: the first character has the byte of a quotation mark
        *(('{"a": ["\N{FOR ALL}", ' + "[" * 9000).encode(encoding) for encoding in ("utf-16-le", "utf-16", "utf-32")),
        *('{"a": 1}'.encode(encoding) for encoding in ("utf-16-be", "utf-8-sig")),
    ],
)
def test_json_that_postgresql_does_not_have(payload: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode(payload)


@pytest.mark.parametrize("constant", ["NaN", "Infinity", "-Infinity"])
def test_an_argument_that_is_not_finite(constant: str) -> None:
    """PostgreSQL writes a float8 that is not finite in this form, so the caller's argument is in error."""
    with pytest.raises(UsageError, match=f'^argument "tolerance" must be a finite number, not {float(constant)}$'):
        decode(f'{{"epochs": 2, "options": {{"tolerance": {constant}}}}}'.encode())
    with pytest.raises(UsageError, match="must be finite"):
        decode(f'{{"values": [{constant}]}}'.encode())


def test_json_that_it_has() -> None:
    fields = {"a": [1e308, -(2**63), "\U0001f600 \\u0000"], "b": {"c": None, "d": True}}
    assert decode(json.dumps(fields).encode()) == fields
    assert decode(b'{"a": 1, "a": 2}') == {"a": 2}, "as jsonb has it"
    assert decode(json.dumps({"a": '["' * 100}).encode()) == {"a": '["' * 100}


ATTRIBUTE = {
    **{"name": "x", "type_oid": 700, "type_name": "real", "length": 4, "align": "i", "not_null": False},
    **{"dropped": False, "generated": "", "has_missing": False, "array_length": None, "out_of_line": False},
}
START = {"parameters": [{"name": "w", "shape": [2, 3], "offset": 0, "size": 6}], "features": ["x", "y"]}


def test_requests_of_a_liar() -> None:
    """Each is read or is one of the two errors of a message; enough that each field has had each kind of value."""
    training = train_fields(
        relation={"name": "t", "pages": 1, "rows": False, "attributes": [ATTRIBUTE]},
        options={**TRAIN_OPTIONS, "features": ["x"], "classes": ["a"], "class_weight": {"a": 1}, "tolerance": 0.5},
        warm_start_from=START,
        largest={"x": 3},
    )
    explain = {"training": training, "device": None, "search": False, "rows": 3, "last": None}
    explain |= {"page_rows": [3], "page_pointers": [4]}
    weights = np.arange(6, dtype=np.float32).tobytes()
    chance = random.Random(34)
    read = 0
    for _ in range(400):
        for fields, ask in (
            (training, lambda text: train_request(raw(text, weights), page_size=8192)),
            (training, lambda text: categories_request(text, page_size=8192)),
            (explain, lambda text: explain_request(text, page_size=8192)),
            ({"text": "rule"}, check_request),
        ):
            with suppress(ProtocolError, UsageError):
                ask(changed_json(json.dumps(fields).encode(), chance))
                read += 1
    assert read > 100


def raw(text: bytes, behind: bytes) -> bytes:
    return struct.pack("=I", len(text)) + text + bytes(-len(text) % 4) + behind
