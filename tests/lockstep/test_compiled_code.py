"""Interpreter = simulator = a rule's own code, bit for bit and cycle for cycle, over random rules, tables, machines."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import llvmlite.binding as llvm
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dana.compiler.passes import simplify
from dana.compiler.target import DoesNotFit
from dana.jit import Unsupported, compile_graph, emit
from dana.simulator import Simulator
from dana.storage.builder import build_pages
from dana.storage.schema import TableSchema
from hwgen.spec.config import MachineConfig
from hwgen.spec.strider import Fault
from tests.dsl.programs import rules
from tests.lockstep.cases import (
    Case,
    assert_same,
    axes_case,
    chosen_case,
    counting_case,
    elements_case,
    finished,
    interpret,
    network_case,
    parts_case,
    phases_case,
    random_case,
    row_states_case,
    rows_case,
    run,
    side_by_side_case,
    tables_case,
)
from tests.lockstep.compiled import CompiledSimulator, LateSimulator
from tests.lockstep.machines import random_config, record_config
from tests.lockstep.rules import loss_rule
from tests.lockstep.test_language_lockstep import generated
from tests.scale import randomised, scaled
from tests.storage.schemas import attribute


def assert_compiled(case: Case) -> bool:
    """Whether there is code; what it gives is what the engine gives, counters included, and the interpreter."""
    try:
        machine = CompiledSimulator(case)
        found = run(case, machine)
    except Unsupported:
        return False
    assert not machine.differs
    if not machine.proved:  # only where the pages that come first have no rows, or a fault
        first = replace(case, pages=case.pages[: 3 * case.bundle.config.page_size])
        assert not any(one.tuples for one in run(first, Simulator(case.bundle.config)).counters)
    assert_same(found, interpret(case), case.source)
    assert_same(found, run(case, Simulator(case.bundle.config)), case.source)
    machine.close()
    return True


def columns(rng: random.Random) -> Case:
    return random_case(rng, random_config(rng), rough=rng.random() < 0.4)


def rows(rng: random.Random) -> Case:
    return rows_case(rng, replace(random_config(rng), index_depth=32), rough=rng.random() < 0.5)


def side_by_side(rng: random.Random) -> Case:
    """Batches are cut where the engine runs; code knows nothing of it, and its times are the same."""
    config = replace(random_config(rng), index_depth=rng.choice([8, 64]), watch_depth=rng.choice([16, 128]))
    return side_by_side_case(rng, config, rough=rng.random() < 0.3)


def records(rng: random.Random) -> Case:
    """Models lie beside the machine; of rules that choose rows in another way too, the machine has an index file."""
    while True:
        with suppress(DoesNotFit):
            rough, judges = rng.random() < 0.3, rng.random() < 0.2
            return side_by_side_case(rng, record_config(rng), rough=rough, judges=judges)


def network(rng: random.Random) -> Case:
    return network_case(rng, replace(random_config(rng), threads=rng.choice([2, 4]), clusters=1, tuple_depth=256))


def losses(rng: random.Random) -> Case:
    return network_case(rng, random_config(rng), loss_rule)


def phases(rng: random.Random) -> Case:
    return phases_case(rng, random_config(rng))


def counting(rng: random.Random) -> Case:
    return counting_case(
        rng, replace(random_config(rng), program_depth=1024, scratch_depth=4096, index_depth=rng.choice([0, 4, 16]))
    )


def axes(rng: random.Random) -> Case:
    return axes_case(rng, random_config(rng))


def elements(rng: random.Random) -> Case:
    return elements_case(rng, random_config(rng))


def row_states(rng: random.Random) -> Case:
    return row_states_case(rng, replace(random_config(rng), index_depth=rng.choice([2, 16])))


def chosen(rng: random.Random) -> Case:
    """Of some the row is computed, which code leaves to the engine."""
    return chosen_case(
        rng, replace(random_config(rng), program_depth=1024, scratch_depth=4096, index_depth=rng.choice([4, 16]))
    )


def tables(rng: random.Random) -> Case:
    config = replace(random_config(rng), program_depth=2048, scratch_depth=4096, index_depth=rng.choice([2, 8]))
    config = replace(config, watch_depth=rng.choice([0, 64]))
    return tables_case(rng, replace(config, threads=1 if rng.random() < 0.6 else config.threads))


def parts(rng: random.Random) -> Case:
    return parts_case(rng, random_config(rng), rough=rng.random() < 0.5)


@pytest.mark.parametrize(
    ("made", "count", "least"),
    [
        (columns, 36, 36),
        (rows, 20, 20),
        (side_by_side, 20, 20),
        (records, 20, 20),
        (network, 8, 8),
        (losses, 12, 12),
        (parts, 10, 10),
        (counting, 8, 8),
        (phases, 20, 20),
        (chosen, 12, 4),
        (tables, 20, 20),
        (axes, 8, 8),
        (elements, 12, 12),
        (row_states, 8, 8),
    ],
)
def test_code_gives_the_engine_s_bits(made: Callable[[random.Random], Case], count: int, least: int) -> None:
    compiled = sum(assert_compiled(made(random.Random(f"compiled {seed}"))) for seed in range(scaled(count)))
    assert compiled >= scaled(least)


@pytest.mark.parametrize("made", [columns, rows, network, losses, phases, counting])
def test_code_without_blocks(made: Callable[[random.Random], Case], monkeypatch: pytest.MonkeyPatch) -> None:
    """What a rule gets whose code for a block would take LLVM seconds: tuples one by one, bit for bit the same."""
    case = made(random.Random("alone"))
    blocks = []
    for most in (emit.MAX_OF_ONE, -1):
        monkeypatch.setattr(emit, "MAX_OF_ONE", most)
        data = compile_graph(simplify(case.binding.graph), case.bundle).data
        blocks.append(bool(data.block) if case.binding.graph.has_merge else most > 0)
    assert blocks == [True, False]
    assert sum(assert_compiled(made(random.Random(f"alone {seed}"))) for seed in range(scaled(4))) >= scaled(4)


@pytest.mark.parametrize(("update", "shares"), [("x", False), ("dana.sigma(A * x, 1)", True)])
def test_blocks_of_rows_that_a_cache_does_not_hold(update: str, shares: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """They have code only where a block's tuples share a matrix."""
    source = WIDE.format(update=update)
    blocks = []
    for most in (16 * 4 * 20, 16 * 4 * 20 - 1):
        monkeypatch.setattr(emit, "block_bytes", lambda most=most: most)
        case = vector_case(source, [1.5] * 20)
        blocks.append(bool(compile_graph(simplify(case.binding.graph), case.bundle).data.block))
        assert assert_compiled(case)
    assert blocks == [True, shares]


@pytest.mark.parametrize("made", [columns, rows, network, phases, counting])
def test_code_from_any_epoch_on(made: Callable[[random.Random], Case]) -> None:
    """A training that has begun without goes on with code, as if it had always had it."""
    changed = 0
    for seed in range(scaled(8)):
        case = made(random.Random(f"late {seed}"))
        expected = run(case, Simulator(case.bundle.config))
        for epoch in range(1, case.epochs):
            machine = LateSimulator(case, epoch)
            assert_same(run(case, machine), expected, case.source)
            assert not machine.differs
            changed += machine.proved
            assert machine.proved == machine.attached
    assert changed >= scaled(5)


@pytest.mark.parametrize("made", [columns, rows, records, network])
def test_values_without_rows(made: Callable[[random.Random], Case]) -> None:
    """What is read and written where code has it is what rows have, and the next epoch goes on from there."""
    copied = 0
    for seed in range(scaled(8)):
        rng = np.random.default_rng(seed)
        case = made(random.Random(f"values {seed}"))
        lanes = case.bundle.config.lanes
        by_values, by_rows = CompiledSimulator(case), CompiledSimulator(case)
        if run(case, by_values).fault is not None or run(case, by_rows).fault is not None:
            continue
        for s in case.bundle.of_kind("model"):
            found = np.empty(s.shape, np.float32)
            if not by_values.read_values(s.row, found, table=s.table):
                assert not by_values.proved
                continue
            there = s.collect(by_rows.read_rows(s.row, s.rows(lanes), table=s.table).view(np.float32))
            assert found.tobytes() == there.tobytes()
            wanted = rng.choice([1.5, -0.25, 1e-40, 0.0, np.nan], s.shape).astype(np.float32)
            assert by_values.write_values(s.row, wanted, table=s.table)
            by_rows.write_rows(s.row, s.place(wanted, lanes).view(np.uint32), table=s.table)
            copied += 1
        assert by_values.run_epoch(case.pages) == by_rows.run_epoch(case.pages)
        for s in case.bundle.symbols:
            read = [one.read_rows(s.row, s.rows(lanes), table=s.table) for one in (by_values, by_rows)]
            assert read[0].tobytes() == read[1].tobytes(), (case.source, s.name)
    assert copied >= scaled(5)


@pytest.mark.parametrize("processor", ["x86-64", "haswell"])
def test_code_for_older_processors(processor: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Vectors of 16 floats are two or four of theirs."""
    if processor == "haswell" and not llvm.get_host_cpu_features().get("avx2"):
        pytest.skip("code for haswell has AVX2 instructions, which this processor cannot run")
    monkeypatch.setattr(llvm, "get_host_cpu_name", lambda: processor)
    monkeypatch.setattr(llvm, "get_host_cpu_features", llvm.FeatureMap)
    for made in (columns, rows, network):
        for seed in range(scaled(5)):
            assert_compiled(made(random.Random(f"{processor} {seed}")))


@pytest.mark.parametrize("axes", [1, 2])
@randomised(15)
@given(data=st.data(), seed=st.integers(0, 1000))
def test_code_of_generated_rules(axes: int, data: st.DataObject, seed: int) -> None:
    assert_compiled(generated(data.draw(rules(axes=axes)), random.Random(seed), axes))


WIDE = """
import dana
A = dana.model([3, 20])
w = dana.model([20])
x = dana.input([20])
y = dana.output()
rule = dana.algo((A, w), x, y)
rule.setModel(w, rule.merge({update}, 4, "+"))
"""
SIGNS = """
import dana
s = dana.model()
x = dana.input([{n}])
y = dana.output()
rule = dana.algo(s, x, y)
rule.setModel({update})
rule.setLoss(y + s)
"""


def vector_case(source: str, x: list[float]) -> Case:
    """Six rows, all of this vector."""
    columns = (attribute("x", "real[]", array_length=len(x)), attribute("y", "real"))
    schema = TableSchema(relation="t", attributes=columns)
    pages = build_pages(schema, [[np.array(x), 1.0]] * 6)
    return finished(MachineConfig(), source, schema, pages)


@pytest.mark.parametrize("update", ["dana.sigma(x, 1)", 'rule.merge(dana.sigma(x, 1), 4, "+")'])
def test_a_sum_of_zeros_keeps_their_sign(update: str) -> None:
    """Lanes behind the end of a vector add nothing, not even the sign of a zero."""
    for n in (1, 3, 8, 15, 16, 17, 33, 100):
        case = vector_case(SIGNS.format(n=n, update=update), [-0.0] * n)
        assert interpret(case).models["s"] == 1 << 31
        assert assert_compiled(case)


def test_a_merge_of_what_models_alone_give() -> None:
    """It is known before a batch's end, though only the batch's end reads the merge."""
    update = 's + dana.sigma(rule.merge((s + s + 1) * (1 + dana.arange(3)), 4, "+"), 1)'
    case = vector_case(SIGNS.format(n=3, update=update), [1.0] * 3)
    assert assert_compiled(case)


@pytest.mark.parametrize("value", ["x * 1", "x + s", "dana.max(x, -1)", "dana.where(x, 1, 2)", "dana.floor(x)"])
@pytest.mark.parametrize("update", ["dana.pi({}, 1)", 'rule.merge(dana.amax({}, 1), 4, "max")'])
@pytest.mark.parametrize("processor", [llvm.get_host_cpu_name(), "x86-64"])
def test_subnormals_of_a_page_are_zeros(
    value: str, update: str, processor: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Code reads rows where they lie, with what subnormals are there."""
    if processor == "x86-64":
        monkeypatch.setattr(llvm, "get_host_cpu_features", llvm.FeatureMap)
    monkeypatch.setattr(llvm, "get_host_cpu_name", lambda: processor)
    for x in ([1e-40], [-1e-40] * 17, [1e-40, 1.0, -1e-40]):
        assert assert_compiled(vector_case(SIGNS.format(n=len(x), update=update.format(value)), x))


@pytest.mark.parametrize("value", ["x", "-x", "dana.where(y, x, a)", "dana.abs(x)", "x * 1", "dana.max(x, -1)"])
def test_a_model_that_becomes_an_input(value: str) -> None:
    """What no instruction has taken for a zero is none of itself: a subnormal number would stay one in the model."""
    source = OLD.format(n=3, value=value)
    assert assert_compiled(vector_case(source, [1e-40, 1.0, -1e-40]))


@pytest.mark.parametrize("zero", [0.0, -0.0])
def test_a_condition_is_true_unless_it_is_a_zero(zero: float) -> None:
    update = "dana.sigma(dana.where(x, 1, 0), 1)"
    case = vector_case(SIGNS.format(n=5, update=update), [np.nan, zero, 1.0, np.inf, -3.0])
    assert interpret(case).models["s"].view(np.float32) == 4
    assert assert_compiled(case)


FOLDED = """
import dana
A = dana.model([{extents}], init=dana.normal(0, 1))
w = dana.model([{left}])
x = dana.input([{n}])
y = dana.output()
rule = dana.algo(A, w, x, y)
rule.setModel(w, 0.5 * w + {update})
"""


@pytest.mark.parametrize(
    "extents", [(0, 17), (0, 2), (0, 1), (2, 0), (0, 2, 3), (0, 2, 17), (2, 0, 17), (3, 0, 2), (2, 3, 0)]
)
@pytest.mark.parametrize("update", ["dana.{fold}(A * x, {axis})", 'rule.merge(dana.{fold}(A * x, {axis}), 16, "+")'])
def test_folds_along_any_axis(extents: tuple[int, ...], update: str) -> None:
    """Of more than 16 rows some are left in memory for each vector of the result, and then folded: 0 is the axis."""
    axis, rng = extents.index(0), random.Random(update)
    config = MachineConfig(scratch_depth=16384, program_depth=16384, tuple_depth=256)
    for n, fold in ((15, "sigma"), (16, "amax"), (17, "sigma"), (33, "pi"), (70, "sigma"), (300, "sigma")):
        whole = [extent or n for extent in extents]
        left = whole[:axis] + whole[axis + 1 :]
        source = FOLDED.format(
            extents=str(whole)[1:-1],
            left=str(left)[1:-1],
            n=whole[-1],
            update=update.format(fold=fold, axis=axis + 1),
        )
        columns = (attribute("x", "real[]", array_length=whole[-1]), attribute("y", "real"))
        schema = TableSchema(relation="t", attributes=columns)
        rows = [[np.array([rng.gauss(0, 1) for _ in range(whole[-1])]), 1.0] for _ in range(21)]
        assert assert_compiled(finished(config, source, schema, build_pages(schema, rows)))


OLD = """
import dana
a = dana.model([{n}])
b = dana.model([{n}])
x = dana.input([{n}])
y = dana.output()
rule = dana.algo(a, b, x, y)
rule.setModel(a, {value})
rule.setModel(b, a)
"""


@pytest.mark.parametrize("n", [3, 100])
@pytest.mark.parametrize("value", ["a + x", 'a + rule.merge(x, 4, "+")'])
def test_a_model_that_becomes_what_another_was(value: str, n: int) -> None:
    """New values are stored where the old ones lie only if no update wants the old ones, be it as they are."""
    case = vector_case(OLD.format(value=value, n=n), [1.0 + k for k in range(n)])
    models = interpret(case).models
    assert (models["a"] != models["b"]).all()
    assert assert_compiled(case)


CHOSEN = """
import dana
U = dana.model([4])
V = dana.model([4])
w = dana.model()
i = dana.input()
j = dana.input()
y = dana.output()
rule = dana.algo(U, V, w, i, j, y)
rule.setModel(w, w + rule.merge(U[i] + V[j], {batch}, "+"))
rule.setModel(U[i], U[i] + y)
"""


@pytest.mark.parametrize("batch", [4, 16])
@pytest.mark.parametrize(("i", "j"), [(k, None) for k in range(9)] + [(None, 6), (2, 1), (1, 2), (9, 6), (6, 9)])
def test_a_row_that_there_is_not(batch: int, i: int | None, j: int | None) -> None:
    """Wherever it stands in a round: the tuples i and j choose it by the columns of these names. The first is told.

    Pages without a fault come first: the engine runs those that the code is compared on.
    """
    columns = (attribute("i", "integer"), attribute("j", "integer"), attribute("y", "real"))
    schema = TableSchema(relation="t", attributes=columns)
    rows = [[4 if k == i else k % 4, 7 if k == j else k % 3, 1.0] for k in range(12)]
    config = MachineConfig(threads=2, index_depth=32)
    right = build_pages(schema, [[k % 4, k % 3, 1.0] for k in range(16)])
    case = finished(config, CHOSEN.format(batch=batch), schema, right * 3 + build_pages(schema, rows))
    fault = run(case, Simulator(config)).fault
    assert fault is not None
    assert fault[0] is Fault.INDEX
    first = "i" if j is None or (i is not None and i < j) else "j"
    assert case.bundle.choices[fault[2] or 0].columns == ((first, None),)
    assert assert_compiled(case)


TWICE = """
import dana
a = dana.model([2])
b = dana.model([2])
x = dana.input([2])
y = dana.output()
rule = dana.algo(a, b, x, y)
total = rule.merge(x, {batch}, "+")
rule.setModel(a, 0.5 * a + total)
rule.setModel(b, 0.5 * b + rule.merge(x * total, {batch}, "+"))
"""


@pytest.mark.parametrize("batch", [3, 7, 20])
def test_a_merge_that_the_batch_s_end_reads_beside_a_later_one(batch: int) -> None:
    """Of as many tuples as leave several trees to join, which must happen once."""
    columns = (attribute("x", "real[]", array_length=2), attribute("y", "real"))
    schema = TableSchema(relation="t", attributes=columns)
    rows = [[[1.0 + k, 0.1 * k * k], 1.0] for k in range(5 * batch)]
    assert assert_compiled(finished(MachineConfig(), TWICE.format(batch=batch), schema, build_pages(schema, rows)))


SHARED = """
import dana
b = dana.model([4])
V = dana.model([4, 3], init=dana.normal(0, 1))
U = dana.model([4, 3])
i = dana.input()
j = dana.input()
y = dana.output()
rule = dana.algo(b, V, U, i, j, y)
rule.setModel(U[i + j], U[i + j] + {sum})
rule.setModel(b[j], b[j] + y)
"""


@pytest.mark.parametrize("both", ["b[j] + V[j]", "V[j] + b[j]"])
@pytest.mark.parametrize("wrong", [None, 5])
def test_numbers_that_choose_rows_of_two_models_of_equal_length(wrong: int | None, both: str) -> None:
    """The program sets their entries once, and a fault names the first; beside numbers that tuples compute."""
    columns = (attribute("i", "integer"), attribute("j", "integer"), attribute("y", "real"))
    schema = TableSchema(relation="t", attributes=columns)
    rows = [[k % 2, 4 if k == wrong else k % 3, 1.0] for k in range(12)]
    case = finished(MachineConfig(index_depth=32), SHARED.format(sum=both), schema, build_pages(schema, rows))
    assert (run(case, Simulator(case.bundle.config)).fault is None) is (wrong is None)
    assert assert_compiled(case)


@pytest.mark.parametrize("row", [4, 5, -1, 1 << 30])
def test_a_computed_row_that_there_is_not(row: int) -> None:
    """Pages without a fault come first: the engine runs those that the code is compared on."""
    columns = (attribute("i", "integer"), attribute("j", "integer"), attribute("y", "real"))
    schema = TableSchema(relation="t", attributes=columns)
    rows = [[k % 2, k % 3, 1.0] for k in range(12)]
    right = build_pages(schema, rows)
    rows[5][0] = row - rows[5][1]
    source = SHARED.format(sum="b[j] + V[j]")
    case = finished(MachineConfig(index_depth=32), source, schema, right * 3 + build_pages(schema, rows))
    fault = run(case, Simulator(case.bundle.config)).fault
    assert fault is not None
    assert fault[0] is Fault.INDEX
    assert assert_compiled(case)


def test_pages_without_rows_prove_nothing() -> None:
    """Behind them code is compared, or where they are all that came first it does not run: not even wrong code."""
    source = SIGNS.format(n=3, update="dana.sigma(x, 1)")
    case = vector_case(source, [1.0, 2.0, 4.0])
    empty = bytearray(case.pages[: case.bundle.config.page_size])
    empty[12:14] = (24).to_bytes(2, "little")  # pd_lower: no line pointer
    case = replace(case, pages=bytes(empty) * 20 + case.pages)
    whole, wrong = LateSimulator(case, 0), CompiledSimulator(case)
    assert_same(run(case, whole), interpret(case), case.source)
    assert whole.proved
    other = vector_case(source.replace("dana.sigma(x, 1)", "dana.sigma(2 * x, 1)"), [1.0, 2.0, 4.0])
    wrong._graph = simplify(other.binding.graph)
    assert_same(run(case, wrong), interpret(case), case.source)
    assert (wrong.proved, wrong.differs) == (False, False)
