"""Rules that write rows of tables: interpreter = simulator = compiled code, one row at a time and side by side."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from dana.simulator import Simulator
from dana.storage.builder import build_pages
from dana.storage.schema import TableSchema
from hwgen.spec.config import MachineConfig
from tests.lockstep.cases import assert_same, case_of, finished, interpret, run
from tests.lockstep.test_compiled_code import assert_compiled
from tests.scale import scaled
from tests.storage.schemas import attribute

WRITES = [
    'r.addRows(T[i], 1, 4, "mean")',
    'r.addRows(T[i], r.merge(y, 4, "+"), 4, "+")',
    'r.addRows(A[i], r.merge(A[i] * y, 4, "+"), 4, "mean")',
    'r.addRows(T[3], y, 4, "mean"); r.addRows(T[i], 2 * y, 4, "mean")',
    'r.addRows(A[i], A[0], 4, "+"); r.addRows(D[i], A[i], 4, "+")',
    'r.addRows(A[[i, i]], [A[i], D[i]], 4, "mean")',
    "r.setModel(A[i], A[0]); r.setModel(A[0], D[i]); r.addRows(D[0], A[0])",
    "r.addRows(A[i], y); r.addRows(D[i], A[2] + m); r.setModel(A[2], 0.5)",
    "r.addRows(A[i], dana.random([20])); r.setModel(T[i], T[3] + dana.random())",
    'r.addRows(A[i], dana.random([20]), 4, "+"); r.addRows(T[i], dana.sigma(A[0], 1), 4, "+")',
    'w = dana.model([20]); r.setModel(w, w + r.merge(A[0] * y, 4, "mean")); r.addRows(A[0], y * w); r.addRows(A[i], w)',
]


@pytest.mark.parametrize("batch", ["4", "1", "dana.all"])
@pytest.mark.parametrize("writes", WRITES)
def test_ways_to_write_tables(writes: str, batch: str) -> None:
    """Rows that are values of others, fixed ones, values of the batch, the same number twice."""
    if batch == "dana.all" and ", 4," in writes.replace("* y, 4", ""):
        return  # E503
    more = ", w" if "w = " in writes else ""
    source = f"""import dana
T = dana.table([6], init=0.5)
A = dana.table([6, 20], init=dana.normal(0, 1))
D = dana.table([6, 20], init=dana.normal(0, 1))
m = dana.model()
i, y = dana.input(), dana.output()
{"w = dana.model([20])" if more else ""}
r = dana.algo(T, A, D, m{more}, i, y)
{writes.replace("w = dana.model([20]); ", "")}
r.setModel(m, m + r.merge(y, 4, "+"))
r.setLoss(T[i] * y + T[1])
r.setEpochs(3)
""".replace(", 4", f", {batch}").replace("; ", "\n")
    rng = random.Random(writes + batch)
    columns = (attribute("i", "integer"), attribute("y", "real"))
    config = MachineConfig(index_depth=8, program_depth=2048, scratch_depth=4096, clusters=rng.choice([1, 2]))
    case = case_of(rng, config, source, TableSchema(relation="t", attributes=columns), numbers={"i": 6})
    assert assert_compiled(case)


@pytest.mark.parametrize(
    "writes",
    [
        'r.addRows(A[i], y * D[i], 1, "mean"); r.addRows(T[i], r.merge(y, 1, "+"), 1, "+")',
        'r.addRows(D[j], A[i], 1, "+")',
        "r.setModel(A[i], 0.5 * D[j]); r.addRows(A[i], y); r.setModel(T[i], y)",
        "r.setModel(D[[i, j]], [D[j], y * D[i]]); r.addRows(D[i], D[j])",
    ],
)
def test_ways_to_write_tables_side_by_side(writes: str) -> None:
    """The machine's batches are others than the rule's, which are of one row."""
    source = f"""import dana
T = dana.table([6], init=0.5)
A = dana.table([6, 20], init=dana.normal(0, 1))
D = dana.table([6, 20], init=dana.normal(0, 1))
i, j, y = dana.input(), dana.input(), dana.output()
r = dana.algo(T, A, D, i, j, y)
{writes}
r.setLoss(T[i] * y + dana.sigma(D[j] * A[i], 1))
r.setEpochs(3)
""".replace("; ", "\n")
    columns = (attribute("i", "integer"), attribute("j", "integer"), attribute("y", "real"))
    config = MachineConfig(index_depth=16, watch_depth=64, program_depth=2048, scratch_depth=4096)
    schema = TableSchema(relation="t", attributes=columns)
    case = case_of(random.Random(writes), config, source, schema, numbers={"i": 6, "j": 6})
    assert case.bundle.cut
    assert assert_compiled(case)


SAME_ROW = """
import dana
T = dana.table([4, 9], init=dana.uniform(-0.5, 0.5))
b = dana.table([4], init=dana.uniform(-0.5, 0.5))
i = dana.input()
j = dana.input()
y = dana.output()
r = dana.algo(T, b, i, j, y)
e = dana.sigma(T[i] * T[j], 1) + b[j] - b[i] - y
{}
r.setLoss(e * e)
r.setEpochs(2)
"""
UPDATES = (
    "r.addRows(T[i], 0.1 * e * T[j])",
    "r.addRows(T[j], 0.2 * e * T[i])",
    "r.setModel(T[j], 0.5 * T[i])",
    "r.addRows(b[i], 0.1 * e)",
    "r.setModel(b[j], b[i] - e)",
    "r.addRows(b[j], e)",
)


@pytest.mark.parametrize("seed", range(scaled(12)))
@pytest.mark.parametrize("records", [True, False], ids=["beside", "on the chip"])
def test_two_columns_that_name_one_row(seed: int, records: bool) -> None:
    """Each of its rows is what the last update in the text made, whichever column's record is stored last."""
    rng = random.Random(f"same row {seed}")
    columns = [attribute("i", "integer"), attribute("j", "smallint")]
    schema = TableSchema(relation="t", attributes=(*rng.sample(columns, 2), attribute("y", "real")))
    numbers = [{"i": rng.randrange(4), "j": rng.randrange(4), "y": rng.gauss(0, 1)} for _ in range(40)]
    pages = build_pages(schema, [[row[a.name] for a in schema.attributes] for row in numbers])
    config = MachineConfig(clusters=rng.choice([1, 2]), index_depth=8, watch_depth=16, record_depth=rng.choice([8, 16]))
    config = replace(config, threads=rng.choice([1, 2, 4])) if records else replace(config, record_depth=0)
    chosen = "\n".join(rng.sample(UPDATES, rng.randint(1, len(UPDATES))))
    case = finished(config, SAME_ROW.format(chosen), schema, pages)
    assert any(row["i"] == row["j"] for row in numbers)
    assert bool(case.bundle.tables) is records
    assert case.bundle.cut
    assert_same(run(case, Simulator(config)), interpret(case), case.source)


LAZY = """
import dana
T = dana.table([6, 3], init=dana.uniform(-0.5, 0.5))
b = dana.table([6], init=dana.uniform(-0.5, 0.5))
i = dana.input()
{}
y = dana.output()
r = dana.algo(T, b, i, j, y)
r.setLoss((dana.sigma(dana.sigma(T[j], 1) * T[i], 1) + b[i] - y) * (b[i] - y))
r.minimize(dana.optimizers.{}, rate=0.01)
r.setEpochs(2)
"""


@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "nesterov", "adagrad", "rmsprop", "adam"])
@pytest.mark.parametrize("vector", [False, True], ids=["a number", "several"])
def test_optimizers_of_rows(optimizer: str, vector: bool) -> None:
    """Steps of the rows that a tuple chooses, side by side where the machine sees that they are others."""
    rng = random.Random(f"lazy {optimizer} {vector}")
    columns = [attribute("i", "integer"), attribute("j", "real[]", array_length=2 if vector else 1)]
    schema = TableSchema(relation="t", attributes=(*columns, attribute("y", "real")))
    rows = [[rng.randrange(6), [rng.randrange(6) for _ in range(1 + vector)], rng.gauss(0, 1)] for _ in range(60)]
    config = MachineConfig(index_depth=8, watch_depth=128, program_depth=2048, scratch_depth=4096)
    source = LAZY.format("j = dana.input([2])" if vector else "j = dana.input([1])", optimizer)
    case = finished(config, source, schema, build_pages(schema, rows))
    assert case.bundle.cut
    assert_same(run(case, Simulator(config)), interpret(case), case.source)


ADDED = """
import dana
T = dana.table([90, 2])
i, y = dana.input(), dana.output()
r = dana.algo(T, i, y)
r.addRows(T[i], y)
r.setLoss(y * 3)
r.setEpochs(2)
"""


@pytest.mark.parametrize(
    "odd", [[1e30, -1e30], [2e38], [-3e38, 1.0, 3e38], [float("inf")], [float("nan")], [-0.0] * 70]
)
def test_losses_of_all_threads_are_added_in_turn(odd: list[float]) -> None:
    """Sums that overflow and what rounding takes from them; also where the last round is short, or none is full."""
    schema = TableSchema(relation="t", attributes=(attribute("i", "integer"), attribute("y", "real")))
    depths = {"watch_depth": 32, "record_depth": 32, "tuple_depth": 128, "program_depth": 1024}
    for threads, count, twice in ((4, 79, 0), (8, 70, 1), (2, 75, 30), (4, 9, 0)):
        rng = random.Random(f"added {threads} {count}")
        values = [rng.gauss(0, 1) * 10 ** rng.randint(-6, 6) for _ in range(count)]
        values[count // 2 : count // 2 + len(odd)] = odd
        rows = [(k % (20 if k < twice else 90), y) for k, y in enumerate(values[:count])]
        case = finished(MachineConfig(threads=threads, **depths), ADDED, schema, build_pages(schema, rows))
        assert case.bundle.batch == 32
        assert_same(run(case, Simulator(case.bundle.config)), interpret(case), case.source)
