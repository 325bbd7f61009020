"""The estimate of cycles against the machine's own count, for whole tables."""

from __future__ import annotations

import pytest

from benchmarks.speed import side_by_side
from dana.codesign.cycles import Cycles, measure_cycles
from dana.codesign.default import default_bundle
from dana.codesign.sample import Sample, sample_pages
from dana.compiler import bind
from dana.errors import UsageError
from dana.simulator import Simulator
from dana.storage.builder import build_pages
from dana.storage.frames import framed
from dana.storage.schema import Attribute, TableSchema
from dsl import compile_rule
from hwgen.spec import cycles
from hwgen.spec.bundle import Bundle
from hwgen.spec.counters import EpochCounters

RULE = """
import dana
n = dana.dim()
w = dana.model([n])
x = dana.input([n])
y = dana.output()
linear = dana.algo(w, x, y)
grad = linear.merge((dana.sigma(w * x, 1) - y) * x, {batch}, "+")
linear.setModel(w - 0.001 * grad)
"""
SPARSE = """import dana
w, v = dana.table([{n}]), dana.table([{n}])
c, x, y = dana.input([{k}]), dana.input([{k}]), dana.output()
r = dana.algo(w, v, c, x, y)
e = dana.sigma(w[c] * x + v[c] * x) - y
r.addRows(w[c], e * x, 16, "+")
"""
PAGES = 2000
"""Several batches of each size: the estimate is for the long run."""


def columns(features: int) -> TableSchema:
    names = (*(f"x{k}" for k in range(features)), "y")
    attributes = (Attribute(name=name, type_oid=700, type_name="real", length=4, align="i") for name in names)
    return TableSchema(relation="t", attributes=tuple(attributes))


def array(features: int, name: str = "x") -> TableSchema:
    wide = Attribute(name=name, type_oid=1021, type_name="real[]", length=-1, align="i", array_length=features)
    return TableSchema(relation="t", attributes=(wide, columns(0).attributes[0]))


def compiled(schema: TableSchema, batch: str, **design: int) -> tuple[Bundle, Sample]:
    graph = compile_rule(RULE.format(batch=batch), filename="rule.py").hdfg
    sample = sample_pages(schema, page_size=design.get("page_size", 8192))
    bundle = default_bundle(bind(graph, schema), schema, max_tuples=PAGES * sample.rows, design=design)
    return bundle, sample


def counted(bundle: Bundle, page: bytes, pages: int) -> int:
    simulator = Simulator(bundle.config)
    simulator.load(bundle)
    return simulator.run_epoch(page * pages).cycles


@pytest.mark.parametrize("batch", ["1", "48", "dana.all"])
def test_an_epoch_that_only_counts_has_the_cycles_of_one_that_trains(batch: str) -> None:
    """And leaves the model as it is."""
    bundle, sample = compiled(columns(5), batch)
    pages = sample.data * 20
    simulator = Simulator(bundle.config)
    simulator.load(bundle)
    trained = simulator.run_epoch(pages)
    row = next(symbol.row for symbol in bundle.symbols if symbol.kind == "model")
    model = simulator.read_rows(row, 1)
    simulator.begin_epoch(trains=False, counts=True)
    simulator.consume(pages)
    assert simulator.end_epoch() == trained
    assert (simulator.read_rows(row, 1) == model).all()


@pytest.mark.parametrize("batch", ["1", "48", "64", "1000", "dana.all"])
@pytest.mark.parametrize(
    ("schema", "design"),
    [
        (columns(5), {}),
        (columns(54), {}),
        (columns(54), {"threads": 1, "clusters": 2, "striders": 1}),
        (array(200), {"threads": 2, "clusters": 4, "queue_depth": 2}),
        (array(1900), {"threads": 4, "clusters": 1, "page_size": 32768, "link_bytes": 64}),
    ],
    ids=["5", "54", "54 narrow", "200", "1900"],
)
def test_within_two_percent_of_the_simulator(schema: TableSchema, design: dict[str, int], batch: str) -> None:
    bundle, sample = compiled(schema, batch, **design)
    estimate = measure_cycles(bundle, sample)
    assert estimate.epoch(PAGES) == pytest.approx(counted(bundle, sample.data, PAGES), rel=0.02)
    # nothing is faster than what it consists of
    assert max(estimate.link, estimate.unpacker, estimate.engine, estimate.rows) <= estimate.page * 1.0001


@pytest.mark.parametrize("pages", [1, 2, 3])
def test_a_batch_without_end_over_a_few_pages(pages: int) -> None:
    """The merge stack counts no more rounds than such a table has, and a few."""
    schema = columns(5)
    sample = sample_pages(schema, page_size=8192)
    binding = bind(compile_rule(RULE.format(batch="dana.all"), filename="rule.py").hdfg, schema)
    bundle = default_bundle(binding, schema, max_tuples=pages * sample.rows)
    most = (bundle.round_tuples << bundle.levels) // sample.rows
    assert most >= pages
    assert measure_cycles(bundle, sample).epoch(most) == pytest.approx(counted(bundle, sample.data, most))


def test_an_epoch_without_pages_costs_nothing_that_depends_on_them() -> None:
    assert measure_cycles(*compiled(columns(5), "64")).epoch(0) == 0


def test_rows_over_several_pages() -> None:
    """Also the time of a row: a table of such rows takes what the estimate says, a part more or less."""
    wide = array(20_000)
    schema, frames = framed(wide, bind(compile_rule(RULE.format(batch=8), filename="rule.py").hdfg, wide).uses)
    bundle, sample = compiled(schema, "8", page_size=frames.page_size)
    assert (sample.rows, sample.pages, sample.pages_of(3)) == (1, 5, 15)
    estimate = measure_cycles(bundle, sample)
    assert estimate.epoch(5 * 40) == pytest.approx(counted(bundle, sample.data, 40), rel=0.02)
    assert estimate.per_tuple == pytest.approx(5 * estimate.page)
    assert max(estimate.link, estimate.unpacker, estimate.engine, estimate.rows) <= estimate.page * 1.0001


def bottleneck(schema: TableSchema, **design: int) -> str:
    return estimate(schema, **design).bottleneck


def estimate(schema: TableSchema, **design: int) -> Cycles:
    return measure_cycles(*compiled(schema, "64", **design))


def test_the_bottleneck_is_what_helps_when_it_is_made_faster() -> None:
    """Each machine lacks one thing; with more of it the epoch is shorter."""
    narrow = {"link_bytes": 8}
    assert bottleneck(array(1900), **narrow) == "link"
    assert estimate(array(1900), link_bytes=16).page < 0.6 * estimate(array(1900), **narrow).page

    slow = {"threads": 1, "clusters": 1}
    assert bottleneck(array(1900), **slow) == "engine"
    assert estimate(array(1900), threads=2, clusters=1).page < 0.6 * estimate(array(1900), **slow).page

    few = {"striders": 1}
    assert bottleneck(columns(5), **few) == "striders"
    assert estimate(columns(5), striders=2).page < 0.6 * estimate(columns(5), **few).page


def test_a_row_that_no_page_holds_is_refused() -> None:
    with pytest.raises(UsageError, match=r"a row of t takes \d+ bytes, which a page of 8192 does not hold"):
        sample_pages(array(3000), page_size=8192)


def test_as_many_rows_as_asked_for() -> None:
    assert sample_pages(columns(5), page_size=8192, tuples=7).rows == 7
    assert sample_pages(columns(5), page_size=8192).rows == (8192 - 24) // (4 + 48)


@pytest.mark.parametrize(
    ("design", "bottleneck"),
    [
        ({"record_depth": 0}, "engine"),
        ({"record_depth": 4}, "records"),
        ({"record_depth": 64, "watch_depth": 64, "threads": 1, "clusters": 2}, "records"),
        ({"record_depth": 64, "watch_depth": 64}, "records"),
        ({"record_depth": 64, "watch_depth": 64, "striders": 1}, "striders"),
    ],
)
def test_records_are_waited_for(design: dict[str, int], bottleneck: str) -> None:
    """Of rows that all are others: each tuple's records are fetched and stored, though the sample's are all alike."""
    source = side_by_side.RULE.replace(str(side_by_side.USERS), "20000").replace("[1000,", "[20000,")
    schema = side_by_side.SCHEMA
    bundle = default_bundle(bind(compile_rule(source).hdfg, schema), schema, max_tuples=20_000, design=design)
    assert bool(bundle.tables) == bool(design["record_depth"])
    found = measure_cycles(bundle, sample_pages(schema, page_size=8192))
    simulator = Simulator(bundle.config)
    simulator.load(bundle)
    counted = simulator.run_epoch(build_pages(schema, [(k, k, 1.0) for k in range(20_000)]))
    assert found.epoch(counted.tuples / found.tuples) == pytest.approx(counted.cycles, rel=0.03)
    assert 0 <= found.fixed < 10 * found.page
    assert found.bottleneck == bottleneck


@pytest.mark.parametrize("tables", [1, 2])
def test_what_repeated_rows_cost_is_said_and_not_counted(tables: int) -> None:
    """Sparse rows of numbers that all differ take what the estimate says; of equal ones, what it says beyond that."""
    rows, k, n = 1600, 14, 123
    schema = TableSchema(
        relation="t", attributes=(*(array(k, name).attributes[0] for name in "cx"), columns(0).attributes[0])
    )
    source = SPARSE.format(n=n, k=k) + 'r.addRows(v[c], e * x, 16, "+")\n' * (tables - 1)
    bundle = default_bundle(bind(compile_rule(source).hdfg, schema), schema, max_tuples=rows)
    found = measure_cycles(bundle, sample_pages(schema, page_size=8192))

    def taken(numbers: list[list[float]]) -> EpochCounters:
        simulator = Simulator(bundle.config)
        simulator.load(bundle)
        return simulator.run_epoch(build_pages(schema, [(one, [1.0] * k, 0.0) for one in numbers]))

    others, equal = (
        taken([[float((row * k + e) % n) for e in range(k)] for row in range(rows)]),
        taken([[7.0] * k] * rows),
    )
    estimate = found.epoch(rows / found.tuples)
    assert others.cycles == pytest.approx(estimate, rel=0.02)
    assert equal.cycles == pytest.approx(estimate + rows * found.repeats, rel=0.02)
    # the first number of a batch repeats none
    waits = rows * found.repeats - rows // 16 * tables * cycles.ORDER_WINDOW
    assert equal.engine_busy - others.engine_busy == waits
    assert found.repeats == tables * k * cycles.ORDER_WINDOW
