"""What each stage makes of a rule, as text: the plan, the operations, the program and the memory map.

A change of the compiler shows here as a difference to read; whether it is right, `test_random` says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import get_type_hints

import pytest

from dana import compiler
from dana.compiler.compile import EngineProgram, compile_engine
from dana.compiler.passes import PASSES, PROGRAM, RULE, TARGET, Draft, Placed, run, text_of
from dana.compiler.place.watch import Watched
from dana.compiler.schedule.encode import ShortRound
from dana.compiler.target import Target
from dana.storage.schema import TableSchema, Use
from dsl import compile_rule
from dsl.hdfg.graph import Graph
from hwgen.spec.config import MachineConfig
from tests.golden import Golden

LOGISTIC = """\
import dana
n = dana.dim()
w = dana.model([n])
x = dana.input([n])
y = dana.output()
lr = dana.meta(0.1)
logistic = dana.algo(w, x, y)
p = dana.sigmoid(dana.sigma(w * x, 1))
grad = logistic.merge((p - y) * x, 64, "+")
logistic.setModel(w - lr * grad / 64)
logistic.setLoss((p - y) * (p - y))
logistic.setConvergence(dana.norm(grad, 1) < 0.01)
"""

PLAIN_SGD = """\
import dana
n = dana.dim()
w = dana.model([n])
x = dana.input([n])
y = dana.output()
lr = dana.meta(0.1)
sgd = dana.algo(w, x, y)
e = dana.sigma(w * x, 1) - y
sgd.setModel(w - lr * e * x)
sgd.setLoss(e * e)
"""

MOMENTUM = """\
import dana
n = dana.dim()
w = dana.model([n])
v = dana.model([n])
x = dana.input([n])
y = dana.output()
momentum = dana.algo(w, v, x, y)
g = momentum.merge((dana.sigma(w * x, 1) - y) * x, dana.all, "+")
step = 0.9 * v + g
momentum.setModel(v, step)
momentum.setModel(w, w - 0.1 * step)
"""


SOFTMAX = """\
import dana
n = dana.dim()
W = dana.model([3, n])
b = dana.model([3])
x = dana.input([n])
y = dana.output()
softmax = dana.algo(W, b, x, y)
s = dana.exp(dana.sigma(W * x, 2) + b)
e = s / dana.sigma(s, 1) - (dana.arange(3) == y)
softmax.setModel(W, W - 0.1 * softmax.merge(dana.expand(e, 2) * x, 8, "+"))
softmax.setModel(b, b - 0.1 * softmax.merge(e, 8, "+"))
softmax.setLoss(dana.sigma(e * e, 1))
"""

PERCEPTRON = """\
import dana
n = dana.dim()
W = dana.model([9, n], init=dana.normal(0, 0.1))
v = dana.model([9], init=dana.normal(0, 0.1))
x = dana.input([n])
y = dana.output()
perceptron = dana.algo(W, v, x, y)
h = dana.sigmoid(dana.sigma(W * x, 2))
e = dana.sigmoid(dana.sigma(v * h, 1)) - y
d = e * v * h * (1 - h)
perceptron.setModel(W, W - 0.1 * perceptron.merge(dana.expand(d, 2) * x, 4, "+"))
perceptron.setModel(v, v - 0.1 * perceptron.merge(e * h, 4, "+"))
"""


NESTEROV = """\
import dana
from dana.optimizers import nesterov
n = dana.dim()
W = dana.model([5, n])
x = dana.input([n])
y = dana.output()
rule = dana.algo(W, x, y)
e = dana.sigma(W * x, 2) - y
rule.setModel(W, nesterov(W, rule.merge(dana.expand(e, 2) * x, 8, "+"), 0.01))
"""


FACTORS = """\
import dana
U = dana.model([20, 3], init=dana.normal(0, 0.1))
V = dana.model([9, 3], init=dana.normal(0, 0.1))
a = dana.model([20])
n = dana.dim()
w = dana.model([n])
i = dana.input()
j = dana.input()
x = dana.input([n])
y = dana.output()
factors = dana.algo(U, V, a, w, i, j, x, y)
e = dana.sigma(U[i] * V[j], 1) + a[i] + dana.sigma(w * x, 1) - y
factors.setModel(U[i], U[i] - 0.1 * e * V[j])
factors.setModel(V[j], V[j] - 0.1 * e * U[i])
factors.setModel(a[i], a[i] - 0.1 * e)
factors.setModel(w, w - 0.1 * factors.merge(e * x, 4, "+"))
factors.setLoss(e * e)
"""


@pytest.mark.parametrize(
    ("source", "n", "threads", "clusters"),
    [
        (LOGISTIC, 54, 4, 2),
        (PLAIN_SGD, 20, 1, 1),
        (MOMENTUM, 9, 2, 1),
        (SOFTMAX, 20, 2, 1),
        (PERCEPTRON, 20, 1, 2),
        (NESTEROV, 50, 4, 1),
        (FACTORS, 5, 1, 1),
    ],
    ids=["logistic", "plain_sgd", "momentum", "softmax", "perceptron", "shards", "factors"],
)
def test_stages(source: str, n: int, threads: int, clusters: int, golden: Golden) -> None:
    graph = compile_rule(source).hdfg.bind({"n": n})
    config = MachineConfig(threads=threads, clusters=clusters, tuple_depth=256, index_depth=8)
    compiled = compile_engine(graph, config, max_tuples=1000)
    results = {**compiled.results, **run(RULE, {"graph": graph})}
    names = [one.name for one in (*RULE, *TARGET, *PROGRAM) if one.shown]
    # what the passes before `pruned` do to a graph is in test_simplify
    texts = [f"--- {name}\n{text_of(results[name])}" for name in names[names.index("pruned") :]]
    golden("\n".join([f"{compiled.draft.target}\n", *texts]))


def test_the_readme_has_the_list_of_passes() -> None:
    rows = []
    for one in PASSES:
        module = one.run.__module__.removeprefix("dana.compiler.").replace(".", "/")
        rows.append(f"| `{one.name}` | `{module}.py`: `{one.run.__name__}` | {one.does} |\n")
    readme = Path(compiler.__file__).with_name("README.md").read_text(encoding="utf-8")
    assert f"|---|---|---|\n{''.join(rows)}\n" in readme


def test_every_pass_reads_what_is_made_before_it() -> None:
    """By its name, and of the type that the maker says."""
    given: dict[str, object] = {
        "graph": Graph,
        "target": Target,
        "over_lanes": bool,
        "sharded": bool,
        "reorder": bool,
        "above": int,
        "config": MachineConfig,
        "schema": TableSchema,
        "uses": Sequence[Use],
        "short": Sequence[ShortRound],
        "watched": Sequence[Watched],
    }
    for one in PASSES:
        types = get_type_hints(one.run)
        made = types.pop("return")
        assert tuple(types) == one.reads
        for name, wanted in types.items():
            assert wanted == given[name], (one.name, name)
        given[one.makes or one.name] = made
    for stage in (Placed, Draft, EngineProgram):
        for name in {one.name for one in fields(stage)} - {"results", "draft", "short"}:
            assert get_type_hints(stage)[name] == given[name], (stage, name)
    assert len({one.name for one in PASSES}) == len(PASSES)
