"""What several boards would take: each with a part of every batch."""

from __future__ import annotations

from dataclasses import replace

import pytest

import dana
from dana import rules
from dana.codesign.boards import LINK, Boards, Link, merged_numbers, over_boards
from dana.compiler import Binding, bind
from dana.errors import UsageError
from dana.server.places import PAPER
from dana.storage.declared import declared
from dana.storage.schema import TableSchema
from hwgen.devices import load_device

DEVICE = replace(load_device("lfe5um5g-85"), luts=30_000)
"""Room for eight units, so that few machines are tried."""


def bound(path: str, columns: str) -> tuple[Binding, TableSchema]:
    schema = declared(columns)
    return bind(dana.load(path).hdfg, schema, label="y"), schema


def boards(binding: Binding, schema: TableSchema, most: int, link: Link = LINK) -> list[Boards]:
    return over_boards(binding, schema, DEVICE, most=most, pages=1000, page_size=8192, link=link)


LOGISTIC = str(PAPER / "logistic.py")


@pytest.mark.exhaustive
def test_a_part_of_the_pages_and_sums_of_each_batch() -> None:
    binding, schema = bound(LOGISTIC, "x float4[6], y float4")
    slow = Link(rate=1e6, latency=1e-3)
    one, two = boards(binding, schema, 2, slow)
    assert (one.count, two.count, one.exchanging) == (1, 2, 0)
    assert two.working == pytest.approx(one.working / 2, rel=0.3)
    part = two.each.bundle
    assert binding.graph.batch is not None
    assert 2 * part.rule_batch == one.each.bundle.rule_batch == binding.graph.batch
    batches = 1000 * two.each.cycles.tuples / binding.graph.batch
    assert two.exchanging == pytest.approx(batches * (1e-3 + 4e-6 * merged_numbers(binding.graph)), rel=0.01)
    assert two.seconds == two.working + two.exchanging > one.seconds


def test_numbers_that_are_exchanged() -> None:
    """A gradient of ten weights and the loss."""
    assert merged_numbers(bound(LOGISTIC, "x float4[10], y float4")[0].graph) == 11


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
    ],
)
def test_what_cannot_be_divided(rule: str, columns: str, most: int, message: str) -> None:
    schema = declared(columns)
    graph = dana.load(rule).hdfg
    if "lrmf" in rule:
        graph = graph.bind({"m": 10, "n": 10, "k": 2})
    binding = bind(graph, schema, label="y")
    with pytest.raises(UsageError, match=message):
        boards(binding, schema, most)
