"""What several boards would take: each with a part of every batch."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

import dana
from dana import rules
from dana.codesign.boards import LINK, Boards, Link, over_boards, pause_cycles
from dana.compiler import Binding, bind
from dana.errors import UsageError
from dana.server.places import PAPER
from dana.simulator import Simulator
from dana.storage.builder import build_pages
from dana.storage.declared import declared
from dana.storage.schema import TableSchema
from hwgen.devices import load_device
from hwgen.harness import RtlMachine
from tests.lockstep.cases import Case, interpret
from tests.lockstep.test_pauses import BLOCK, MACHINES, case_of, drawn, together

DEVICE = replace(load_device("lfe5um5g-85"), luts=30_000)
"""Room for eight units, so that few machines are tried."""


def bound(path: str, columns: str) -> tuple[Binding, TableSchema]:
    schema = declared(columns)
    return bind(dana.load(path).hdfg, schema, label="y"), schema


def boards(binding: Binding, schema: TableSchema, most: int, link: Link = LINK, *, pages: int = 1000) -> list[Boards]:
    return over_boards(binding, schema, DEVICE, most=most, pages=pages, page_size=8192, link=link)


LOGISTIC = str(PAPER / "logistic.py")


COLUMNS = "x float4[6], y float4"


def test_a_part_of_the_pages_and_sums_of_each_batch() -> None:
    binding, schema = bound(LOGISTIC, COLUMNS)
    slow = Link(rate=1e6, latency=1e-3)
    one, two = boards(binding, schema, 2, slow)
    assert (one.count, two.count, one.pause, one.exchanging) == (1, 2, 0, 0)
    assert two.working == pytest.approx(one.working / 2, rel=0.3)
    part, config = two.each.bundle, two.each.bundle.config
    assert binding.graph.batch is not None
    assert 2 * part.rule_batch == one.each.bundle.rule_batch == binding.graph.batch
    batches = 1000 * two.each.cycles.tuples / binding.graph.batch
    assert two.pause / config.clock_hz > 1e-3
    # meanwhile the access engine goes on, and hides a part of them
    assert 0.9 < two.exchanging / (batches * two.pause / config.clock_hz) < 1
    assert two.seconds == two.working + two.exchanging > one.seconds


def pages_of(schema: TableSchema, rows: NDArray[np.float32]) -> bytes:
    return build_pages(schema, [(row[:6].tolist(), float(row[6] > 0)) for row in rows])


def test_boards_that_join_sums_take_what_the_model_says() -> None:
    """Two machines, each with half of the pages, and pauses as the model has them: to 2 % of an epoch."""
    binding, schema = bound(LOGISTIC, COLUMNS)
    model = boards(binding, schema, 2, Link(latency=1e-4), pages=24)[1]
    assert model.exchanging > model.working
    bundle, config = model.each.bundle, model.each.bundle.config
    rows = round(model.each.cycles.tuples) * 12 // bundle.batch * bundle.batch
    parts = [np.random.default_rng(k).normal(size=(rows, 7)).astype(np.float32) for k in range(2)]
    pages = [pages_of(schema, part) for part in parts]
    assert [len(one) for one in pages] == [12 * 8192] * 2
    epochs = binding.graph.epochs
    cases = [Case(source="", schema=schema, binding=binding, pages=one, bundle=bundle, epochs=epochs) for one in pages]
    found = together(cases, [Simulator(config, pause=model.pause) for _ in parts])
    slowest = max(outcome.counters[0].cycles for outcome in found)
    assert slowest == pytest.approx(model.seconds * config.clock_hz, rel=0.02)
    # the model is that of both: one machine with rows of the boards in turn
    turns = [part[start : start + bundle.batch] for start in range(0, rows, bundle.batch) for part in parts]
    one = replace(cases[0], pages=pages_of(schema, np.concatenate(turns)))
    expected = interpret(one)
    for outcome in found:
        assert outcome.models.keys() == expected.models.keys()
        for name, bits in expected.models.items():
            np.testing.assert_array_equal(outcome.models[name], bits)


@pytest.mark.parametrize("name", MACHINES)
def test_a_host_takes_its_time(name: str) -> None:
    """The accesses of a pause, over the bus of a board."""
    config = MACHINES[name]
    case = case_of(config, drawn(2 * BLOCK, 1), BLOCK)
    machine = RtlMachine(config)
    machine.load(case.bundle)
    counters = machine.run_epoch(case.pages, lambda own, last: own)
    expected = pause_cycles(case.bundle, 1, Link(latency=0))
    assert counters.paused / counters.batches == pytest.approx(expected, rel=0.02)


@pytest.mark.parametrize(
    ("rule", "columns", "most", "message"),
    [
        (LOGISTIC, "x float4[6], y float4", 3, r"must be a power of two up to 16 that divides the batch of 64 tuples"),
        (LOGISTIC, "x float4[6], y float4", 32, r"a power of two up to 16 that divides .*, not 32"),
        (
            str(rules.FOLDER / "lrmf.py"),
            "i int4, j int4, y float4",
            2,
            r"must merge all that a batch changes; this one changes models tuple by tuple",
        ),
        (LOGISTIC, "batch of 1", 2, r"must merge a batch once, .* or has batches of one tuple on 2 boards"),
    ],
)
def test_what_cannot_be_divided(rule: str, columns: str, most: int, message: str) -> None:
    graph, schema = dana.load(rule).hdfg, declared(COLUMNS if columns == "batch of 1" else columns)
    graph = replace(graph, batch=2) if columns == "batch of 1" else graph
    if "lrmf" in rule:
        graph = graph.bind({"m": 10, "n": 10, "k": 2})
    binding = bind(graph, schema, label="y")
    with pytest.raises(UsageError, match=message):
        boards(binding, schema, most)
