"""Bundles: rule and table to what a machine is loaded with, on a machine of one's own or on one that suits."""

from __future__ import annotations

import random

import numpy as np
import pytest

from dana.codesign.default import default_bundle, default_config
from dana.compiler import bind
from dana.compiler.place.rows import place_inputs
from dana.errors import UsageError
from dana.storage.builder import build_pages
from dana.storage.reader import convert
from dana.storage.schema import TableSchema
from dsl import compile_rule
from dsl.hdfg.interpreter import Interpreter
from hwgen.spec import numerics
from hwgen.spec.bundle import Bundle
from hwgen.spec.engine import Section
from tests.compiler.test_compiler_stages import LOGISTIC, MOMENTUM, PLAIN_SGD
from tests.oracles.machine import Machine
from tests.oracles.strider import run_page
from tests.storage.schemas import attribute


def table(n: int, kind: str = "real") -> TableSchema:
    columns = [attribute(f"x{k}", kind) for k in range(n)]
    return TableSchema(relation="t", attributes=(*columns, attribute("y", "real")))


@pytest.mark.parametrize("source", [LOGISTIC, PLAIN_SGD, MOMENTUM], ids=["logistic", "plain_sgd", "momentum"])
@pytest.mark.parametrize("n", [1, 9, 54, 500])
def test_a_machine_that_suits_holds_the_rule(source: str, n: int) -> None:
    schema = table(n)
    binding = bind(compile_rule(source).hdfg, schema)
    bundle = default_bundle(binding, schema, max_tuples=100_000)
    assert bundle.config == default_config(binding, schema, max_tuples=100_000)
    assert bundle.config.units == 64 or bundle.batch == 1
    assert Bundle.from_bytes(bundle.to_bytes()).to_bytes() == bundle.to_bytes()
    assert {s.name for s in bundle.of_kind("model")} == {str(binding.graph.nodes[k].name) for k in binding.graph.models}
    assert Section.TUPLE in bundle.sections


def test_a_rule_without_merge_gets_one_thread() -> None:
    schema = table(54)
    binding = bind(compile_rule(PLAIN_SGD).hdfg, schema)
    assert default_config(binding, schema, max_tuples=1000).threads == 1


def test_the_user_may_fix_any_field() -> None:
    schema = table(54)
    binding = bind(compile_rule(LOGISTIC).hdfg, schema)
    design = {"threads": 2, "striders": 3, "page_size": 32768, "scratch_depth": 4096}
    config = default_bundle(binding, schema, max_tuples=1000, design=design).config
    assert {name: getattr(config, name) for name in design} == design
    assert config.units == 64


@pytest.mark.parametrize(
    ("design", "message"),
    [
        ({"treads": 2}, "a machine has no 'treads'; it has threads, clusters"),
        ({"threads": 3}, "no such machine: threads must be a power of two from 1 to 64, not 3"),
        ({"threads": 0}, "no such machine: threads must be a power of two from 1 to 64, not 0"),
        ({"clusters": 16, "link_bytes": 1024}, "no such machine: link_bytes must be at most 512, not 1024: pages come"),
        ({"clusters": 16, "link_bytes": 512}, "no such machine: link_bytes must be at most 256 with pages of 8192"),
        ({"link_latency": 3}, "no such machine: link_latency must be from 4 to 65535 cycles, not 3: the page reader"),
        ({"threads": "2"}, "threads of a machine is a whole number, not '2'"),
        ({"threads": True}, "threads of a machine is a whole number, not True"),
        ({"link_bytes": 7}, "no such machine: link_bytes must be a power of two"),
        ({"tuple_depth": 16, "clusters": 1}, "a tuple of rule 'logistic' takes 14 rows of 8 lanes"),
    ],
)
def test_what_no_machine_has_is_refused(design: dict[str, int], message: str) -> None:
    schema = table(100)
    binding = bind(compile_rule(LOGISTIC).hdfg, schema)
    with pytest.raises(UsageError, match=f"^{message}"):
        default_bundle(binding, schema, max_tuples=1000, design=design)


@pytest.mark.parametrize("design", [{"clusters": 16}, {"clusters": 1}, {"threads": 1}, {"threads": 64}])
def test_a_wish_is_kept_at_the_edges(design: dict[str, int]) -> None:
    schema = table(100)
    binding = bind(compile_rule(LOGISTIC).hdfg, schema)
    config = default_bundle(binding, schema, max_tuples=1000, design=design).config
    assert {name: getattr(config, name) for name in design} == design


@pytest.mark.parametrize("seed", range(6))
def test_from_pages_to_models(seed: int) -> None:
    """Strider program and engine program agree on where the tuple's values lie."""
    rng = random.Random(seed)
    n = rng.choice([1, 5, 9, 20])
    schema = table(n, rng.choice(["real", "integer", "double precision"]))
    rows = [[rng.randint(-4, 4) for _ in range(n)] + [rng.choice([0.0, 1.0])] for _ in range(70)]
    pages = bytes(build_pages(schema, rows, page_size=8192))
    binding = bind(compile_rule([LOGISTIC, PLAIN_SGD, MOMENTUM][seed % 3]).hdfg, schema)
    bundle = default_bundle(binding, schema, max_tuples=1000)
    layout = place_inputs(binding.graph, bundle.config.lanes)
    tuples = []
    for start in range(0, len(pages), 8192):
        page = pages[start : start + 8192]
        for address, number in run_page(bundle.strider, bundle.constants, page, bundle.config).handed:
            column = bundle.columns[number]
            if column.first:
                tuples.append(np.full((layout.rows, layout.lanes), np.nan, np.float32))
            values = convert(page[address : address + column.count * column.type.bytes], column.type)
            if column.scalar:
                tuples[-1][column.row] = values[0]
            else:
                at = column.row * layout.lanes + column.lane
                tuples[-1].ravel()[at : at + column.count] = values
    assert len(tuples) == len(rows)
    machine = Machine(bundle)
    machine.epoch(np.array(tuples))
    data = np.array(rows, dtype=np.float32)
    expected = Interpreter(binding.graph, numerics).train({"x": data[:, :n], "y": data[:, n]}, epochs=1)
    for symbol in bundle.of_kind("model"):
        np.testing.assert_array_equal(
            machine.read(symbol).view(np.uint32), expected.models[symbol.name].view(np.uint32)
        )
