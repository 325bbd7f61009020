"""What fits which machine: sizes grow with the logarithm of n, groups use what there is, errors say what is missing."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dana.compiler.compile import EngineProgram, compile_engine
from dana.compiler.fit import _lacks
from dana.compiler.passes import plan_of
from dana.compiler.rounds import levels_for, power_of_two
from dana.compiler.target import DoesNotFit
from dsl import compile_rule
from dsl.hdfg.graph import Graph
from hwgen.spec.bundle import WHOLE_EPOCH
from hwgen.spec.config import MachineConfig
from tests.compiler.rules import ROOMY, assert_same, train
from tests.compiler.test_compiler_stages import LOGISTIC, MOMENTUM, PLAIN_SGD


def rule(source: str, n: int) -> Graph:
    return compile_rule(source).hdfg.bind({"n": n})


def compiled(graph: Graph, config: MachineConfig, *, max_tuples: int = 1000) -> EngineProgram:
    return compile_engine(graph, config, max_tuples=max_tuples)


def shape(found: EngineProgram) -> tuple[int, int]:
    """Tuples of a thread in a round, levels of the merge stack."""
    return found.draft.target.group, found.draft.target.levels


@pytest.mark.parametrize("source", [LOGISTIC, PLAIN_SGD, MOMENTUM], ids=["logistic", "plain_sgd", "momentum"])
def test_the_program_grows_with_the_logarithm_of_n(source: str) -> None:
    config = MachineConfig(threads=4, clusters=2, **ROOMY)
    programs = [compiled(rule(source, 16 << k), config, max_tuples=64) for k in range(10)]
    lengths = [len(found.program.instructions) for found in programs]
    for before, after in pairwise(programs):
        more = len(after.program.instructions) - len(before.program.instructions)
        # one step more for each fold of the rule, whatever n; and once what it takes to share the batch's work
        set_in = bool(after.draft.shards.of) > bool(before.draft.shards.of)
        assert more in (range(16) if set_in else (1, 2)), lengths
    assert len(compiled(rule(source, 8000), config, max_tuples=64).program.instructions) <= lengths[-1] + 2


def test_a_batch_is_one_round_if_memory_allows() -> None:
    found = compiled(rule(LOGISTIC, 54), MachineConfig(threads=4, clusters=2))
    assert shape(found) == (16, 0)


def test_a_smaller_tuple_memory_makes_more_rounds() -> None:
    found = compiled(rule(LOGISTIC, 54), MachineConfig(threads=4, clusters=2, tuple_depth=32))
    # 5 rows a tuple, two halves: 2 tuples a thread, 8 rounds of 8, 3 levels
    assert (found.draft.inputs.rows, *shape(found)) == (5, 2, 3)


def test_a_smaller_scratchpad_makes_more_rounds() -> None:
    roomy = compiled(rule(LOGISTIC, 54), MachineConfig(threads=4, clusters=2))
    rows = roomy.draft.memory.rows
    found = compiled(rule(LOGISTIC, 54), MachineConfig(threads=4, clusters=2, scratch_depth=power_of_two(rows) // 2))
    assert shape(found)[0] < shape(roomy)[0]
    assert found.draft.memory.rows <= power_of_two(rows) // 2


@pytest.mark.parametrize(
    ("size", "max_tuples", "round_tuples", "levels"),
    [
        (64, 10, 64, 0),
        (65, 10, 64, 1),
        (192, 10, 64, 2),
        (256, 10, 64, 2),
        (257, 10, 64, 3),
        (WHOLE_EPOCH, 1000, 64, 4),
        (WHOLE_EPOCH, 9, 64, 1),
    ],
)
def test_levels_of_the_merge_stack(size: int, max_tuples: int, round_tuples: int, levels: int) -> None:
    plan = plan_of(rule(LOGISTIC, 5))
    assert levels_for(plan, size, max_tuples=max_tuples, round_tuples=round_tuples) == levels


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"tuple_depth": 16},
            "a tuple of rule 'logistic' takes 14 rows of 8 lanes; two of them, one being filled while the other is "
            "worked on, need 28 rows, and tuple memory has 16\nHint: Set tuple_depth to 32, or more clusters.",
        ),
        (
            {"scratch_depth": 16},
            "rule 'logistic' takes 54 rows of 8 lanes of scratchpad (models and literals 17, sums 17, merge stack 0, "
            "temporaries 20), the machine has 16\nHint: Set scratch_depth to 64, or more clusters.",
        ),
        (
            {"program_depth": 16},
            "rule 'logistic' takes 34 engine instructions, the machine holds 16\nHint: Set program_depth to 64.",
        ),
        (
            {"functions": 8},
            "rule 'logistic' computes sigmoid, sqrt; the machine has no unit for that\nHint: Set functions to 25.",
        ),
    ],
)
def test_what_does_not_fit_says_by_how_much_and_what_would_do(fields: dict[str, int], message: str) -> None:
    with pytest.raises(DoesNotFit) as caught:
        compiled(replace(rule(LOGISTIC, 100), batch=1 if "scratch_depth" in fields else 64), MachineConfig(**fields))
    # figures of the compiler may change, the words may not
    assert re.sub(r"\d+", "#", str(caught.value)) == re.sub(r"\d+", "#", message)
    hint = re.search(r"Set (\w+) to (\d+)", str(caught.value))
    assert hint is not None
    enough = MachineConfig(**{**fields, hint[1]: int(hint[2])})
    compiled(replace(rule(LOGISTIC, 100), batch=1 if "scratch_depth" in fields else 64), enough)


FACTORS = """\
import dana
U = dana.model([20, 3], init=1)
w = dana.model()
i = dana.input()
j = dana.input()
y = dana.output()
factors = dana.algo(U, w, i, j, y)
e = dana.sigma(U[i] * U[j], 1) - y
factors.setModel(U[i], U[i] - 0.1 * e * U[j])
{more}
factors.setModel(w, w - factors.merge(e, {batch}, "+"))
"""


@pytest.mark.parametrize(
    ("batch", "more", "fields", "message"),
    [
        (
            4,
            "",
            {},
            "rule 'factors' chooses rows of models by the data, for 4 tuples of a thread in a round; the "
            "machine's index file has 0 entries\nHint: Set index_depth to 4.",
        ),
        (
            5,
            "",
            {"index_depth": 4},
            "rule 'factors' chooses rows of models by the data, for 8 tuples of a thread in a "
            "round; the machine's index file has 4 entries\nHint: Set index_depth to 8.",
        ),
        (
            3000,
            "",
            {"index_depth": 64},
            "rule 'factors' updates rows that the tuples choose, in batches of 3000; a "
            "machine does so in batches of up to 2048\nHint: Merge smaller batches.",
        ),
        (
            2,
            "factors.setModel(U[j], e)",
            {"index_depth": 64},
            "rule 'factors' updates several rows of U for each "
            "tuple, in batches of 2; a machine does so in batches of one\n"
            "Hint: Let the batch be 1, or give each row chosen a model of its own.",
        ),
        (
            1024,
            "",
            {"index_depth": 1024},
            "1024 tuples of rule 'factors' take 3072 rows of 8 lanes; two of them, one "
            "being filled while the other is worked on, need 6144 rows, and tuple memory has 1024\n"
            "Hint: Set tuple_depth to 6144, or more clusters.",
        ),
    ],
)
def test_row_updates_that_do_not_fit(batch: int, more: str, fields: dict[str, int], message: str) -> None:
    # a batch that the text says would be refused with it, one that a training gives a meta is met here
    graph = replace(compile_rule(FACTORS.format(batch=1, more=more)).hdfg, batch=batch)
    with pytest.raises(DoesNotFit) as caught:
        compiled(graph, MachineConfig(**fields), max_tuples=5000)
    assert str(caught.value) == message


AGAIN = """\
import dana
w = dana.model()
x = dana.input()
again = dana.algo(w, x)
total = again.merge(x, 17, "+")
again.setModel(w, w + again.merge(x * total, 17, "+"))
"""


def test_a_machine_holds_as_much_as_it_has_and_no_row_more() -> None:
    draft = compiled(rule(LOGISTIC, 100), MachineConfig(**ROOMY)).draft
    needed = {
        "program_depth": draft.instructions,
        "scratch_depth": draft.memory.rows,
        "tuple_depth": 2 * draft.target.group * draft.inputs.rows,
        "wide_depth": draft.memory.wide,
    }

    def lacks(**fields: int) -> DoesNotFit | None:
        # depths that no machine has: those of machines are powers of two, or whole blocks
        config: Any = SimpleNamespace(lanes=draft.target.lanes, **needed | fields)
        return _lacks(config, draft)

    assert lacks() is None
    for name, depth in needed.items():
        error = lacks(**{name: depth - 1})
        assert error is not None
        assert f"Set {name} to" in str(error)


def test_a_batch_that_its_rows_use_again_is_one_round() -> None:
    """Two threads have nine of its 17 tuples each at most, and so rounds of 16 each."""
    graph = compile_rule(AGAIN).hdfg
    assert shape(compiled(graph, MachineConfig(threads=2, tuple_depth=32))) == (16, 0)
    with pytest.raises(DoesNotFit, match="16 tuples of rule 'again' take 16 rows of 8 lanes"):
        compiled(graph, MachineConfig(threads=2, tuple_depth=16))


def test_several_rows_of_a_model_by_one_tuple_apply_in_the_order_of_the_text() -> None:
    graph = compile_rule(FACTORS.format(batch=1, more="factors.setModel(U[j], e)")).hdfg
    columns = {name: np.float32([1, 1, 2, 3, 3]) for name in ("i", "j", "y")}
    columns["j"] = np.float32([1, 2, 2, 1, 3])
    assert_same(graph, columns, train(graph, columns, MachineConfig(**ROOMY)))


PACKED_IF_IT_CAN = """\
import dana
W = dana.model([60, 20], init=1)
x = dana.input([20])
r = dana.algo(W, x)
s = dana.sigma(W * x, 2)
c = s * s - s + s * s * s - dana.abs(s)
r.setModel(W, W - 0.1 * r.merge(dana.sigma(c * c, 1), 4, "+"))
"""
"""Sums that are broadcast, or packed for what follows."""


def test_a_machine_that_cannot_cross_runs_rules_without_conversions() -> None:
    plain = MachineConfig(crossed=0, **ROOMY)
    assert not any(i.crossed for i in compiled(rule(LOGISTIC, 54), plain, max_tuples=64).program.instructions)
    graph = compile_rule(PACKED_IF_IT_CAN).hdfg
    assert any(i.crossed for i in compiled(graph, replace(plain, crossed=1)).program.instructions)
    assert not any(i.crossed for i in compiled(graph, plain).program.instructions)


NUMBERED = """\
import dana
w = dana.model([20])
i = dana.input()
y = dana.output()
numbered = dana.algo(w, i, y)
numbered.setModel(w[i], w[i] - 0.1 * (w[i] - y))
"""

SUMMED = """\
import dana
W = dana.model([5, 20])
c = dana.model([5])
x = dana.input([20])
summed = dana.algo(W, c, x)
summed.setModel(c, c - summed.merge(dana.sigma(W * x, 2), 4, "+"))
"""

READ_WHOLE = """\
import dana
w = dana.model([20])
i = dana.input()
x = dana.input([20])
read = dana.algo(w, i, x)
read.setModel(w[i], w[i] - 0.1 * dana.sigma(w * x, 1))
"""

MET = """\
import dana
W = dana.model([5, 20])
x = dana.input([20])
z = dana.input([5])
met = dana.algo(W, x, z)
met.setModel(W, W - met.merge(dana.expand(dana.sigma(W * x, 2) - z, 2) * x, 4, "+"))
"""


RANDOM = """\
import dana
w = dana.model([20])
x = dana.input([20])
drawn = dana.algo(w, x)
drawn.setModel(w, w - drawn.merge((dana.random(x) < 0.5) * x, 64, "+"))
"""


def test_threads_that_cannot_cross_do_not_know_their_numbers() -> None:
    graph, plain = compile_rule(RANDOM).hdfg, MachineConfig(threads=4, crossed=0, **ROOMY)
    with pytest.raises(DoesNotFit, match="draws random numbers") as caught:
        compiled(graph, plain)
    assert str(caught.value).endswith("Hint: Set crossed to 1, or threads to 1.")
    for fitting in (replace(plain, crossed=1), replace(plain, threads=1)):
        assert compiled(graph, fitting).program.instructions


@pytest.mark.parametrize("source", [NUMBERED, SUMMED])
def test_the_host_writes_models_as_they_are_used(source: str) -> None:
    """A row for each element, which nothing has to cross for."""
    made = compiled(compile_rule(source).hdfg, MachineConfig(crossed=0, **ROOMY))
    assert not any(i.crossed for i in made.program.instructions)
    (last,) = (symbol for symbol in made.symbols if symbol.broadcast)
    assert last.rows(8) == last.shape[0]


@pytest.mark.parametrize(("source", "name", "what"), [(READ_WHOLE, "read", "w"), (MET, "met", "z")])
def test_what_a_machine_that_cannot_cross_refuses(source: str, name: str, what: str) -> None:
    graph = compile_rule(source).hdfg
    with pytest.raises(DoesNotFit) as caught:
        compiled(graph, MachineConfig(crossed=0, **ROOMY))
    assert str(caught.value) == (
        f"rule {name!r} needs elements of {what} in other lanes than they lie in; the machine's exchanges do not "
        "cross, so it cannot move them\nHint: Set crossed to 1."
    )
    assert any(i.crossed for i in compiled(graph, MachineConfig(**ROOMY)).program.instructions)
