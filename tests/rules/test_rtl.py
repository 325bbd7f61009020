"""Every rule of the library on generated hardware: one machine runs them all, cycle for cycle as simulated."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dana import rules
from dana.compiler import compile_bundle
from dana.compiler.binding import bind
from dana.simulator import Simulator
from dana.storage.columns import column_pages, column_schema
from dsl import compile_rule
from hwgen.harness import RtlMachine
from tests.lockstep.cases import Case, assert_same, interpret, run
from tests.lockstep.test_rtl import MACHINES
from tests.rules.tables import EXTENTS, table

CONFIG = MACHINES["two clusters"]
"""A machine that another test builds anyway; builds are kept."""


@pytest.fixture(scope="module")
def machines() -> tuple[RtlMachine, Simulator]:
    return RtlMachine(CONFIG), Simulator(CONFIG)


@pytest.mark.parametrize("name", rules.NAMES)
def test_models_and_cycles(name: str, machines: tuple[RtlMachine, Simulator]) -> None:
    columns = table(name, count=70, features=3)
    schema = column_schema(list(columns))
    source = rules.text(name)
    binding = bind(replace(compile_rule(source, filename=name).hdfg, epochs=2), schema, extents=EXTENTS.get(name))
    bundle = compile_bundle(binding, schema, config=CONFIG, max_tuples=1 << 16)
    pages = column_pages(columns, page_size=CONFIG.page_size).tobytes()
    case = Case(source=source, schema=schema, binding=binding, pages=pages, bundle=bundle, epochs=2)
    rtl, simulator = machines
    simulated = run(case, simulator)
    assert_same(run(case, rtl), simulated, source)
    interpreted = interpret(case)
    assert_same(simulated, interpreted, source)
