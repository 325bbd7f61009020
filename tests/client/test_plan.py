"""The JSON of `Connection.explain` has the members and types that `dana.records.Plan` declares."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints, is_typeddict

import numpy as np
import psycopg
import pytest

from dana.client.connection import Connection
from dana.records import Plan


def faults(value: object, kind: Any, place: str = "plan") -> list[str]:
    """Where a value of JSON is not of a type."""
    origin, arguments = get_origin(kind), get_args(kind)
    expected = dict if is_typeddict(kind) or origin is Mapping else list if origin is list else None
    if expected is not None and not isinstance(value, expected):
        return [f"{place} is {value!r}, not {expected.__name__}"]
    if is_typeddict(kind):
        assert isinstance(value, dict)
        hints = get_type_hints(kind)
        found = [f"{place} has no {name}" for name in sorted(kind.__required_keys__ - value.keys())]
        for name, each in value.items():
            found += faults(each, hints[name], f"{place}.{name}") if name in hints else [f"{place} has {name}"]
        return found
    if origin in (Union, UnionType):
        tried = [faults(value, each, place) for each in arguments]
        return [] if [] in tried else min(tried, key=len)
    if origin is list:
        assert isinstance(value, list)
        return [fault for each in value for fault in faults(each, arguments[0], f"{place}[]")]
    if origin is Mapping:
        assert isinstance(value, dict)
        return [fault for each in value.values() for fault in faults(each, arguments[1], f"{place}[]")]
    # numbers without a fraction are integers in JSON
    fits = {float: (float, int), int: int, str: str, bool: bool, NoneType: NoneType}[kind]
    right = isinstance(value, fits) and (kind is bool or not isinstance(value, bool))
    return [] if right else [f"{place} is {value!r}, not {kind.__name__}"]


@pytest.fixture
def db(pg_uri: str) -> Iterator[Connection]:
    """A client with a rule and a table; what it makes is rolled back."""
    random = np.random.default_rng(0)
    x = random.normal(size=200)
    with psycopg.connect(pg_uri) as session:
        db = Connection(session)
        db.create_rules("linear")
        db.load({"x": x, "y": x + random.normal(size=200)}, "planned")
        yield db
        session.rollback()


def test_a_plan_has_the_declared_members(db: Connection) -> None:
    before = db.explain("linear", "planned", label="y", format="json")
    db.train("linear", "planned", label="y", model="planned")
    after = db.explain("linear", "planned", label="y", device="xczu7ev", format="json")
    query = db.explain("linear", query="SELECT x, y FROM planned", label="y", format="json")
    for plan in (before, after, query):
        assert faults(plan, Plan) == []
    assert before["last_run"] is None
    assert after["last_run"] is not None
    assert query["reads"]["pages"] is None
    assert faults(before | {"epochs": "5"}, Plan) == ["plan.epochs is '5', not int"]
    assert faults(before | {"more": 1}, Plan) == ["plan has more"]


def test_so_has_one_of_a_search(db: Connection) -> None:
    plan = db.explain("linear", "planned", label="y", device="lfe5um5g-85", search=True, format="json")
    assert faults(plan, Plan) == []
    assert plan["search"] is not None
