"""Modules of functions in rule text, and the states that functions keep."""

from __future__ import annotations

import subprocess
import sys

import pytest

from dsl import Rule, compile_rule
from dsl.hdfg.graph import Graph
from dsl.hdfg.text import graph_text, parse_graph

HEAD = "import dana\nn = dana.dim()\nw = dana.model([n])\nb = dana.model()\nx = dana.input([n])\n"
ALGO = 'rule = dana.algo(w, b, x)\ng = rule.merge(x, 8, "+")\n'


def models(graph: Graph) -> dict[str, tuple[object, ...]]:
    return {str(graph.nodes[k].name): graph.nodes[k].shape for k in graph.models}


@pytest.mark.parametrize(
    ("statement", "call"),
    [
        ("from dana.optimizers import momentum", "momentum"),
        ("from dana.optimizers import momentum as heavy, adam", "heavy"),
        ("from dana.optimizers import *", "momentum"),
        ("from dana import optimizers", "optimizers.momentum"),
        ("from dana import optimizers as o", "o.momentum"),
        ("import dana.optimizers as o", "o.momentum"),
        ("import dana.optimizers", "dana.optimizers.momentum"),
        ("pass", "dana.optimizers.momentum"),
    ],
)
def test_every_way_to_import_gives_the_same_graph(statement: str, call: str) -> None:
    graphs = [
        graph_text(compile_rule(f"{HEAD}{how}\n{ALGO}rule.setModel(w, {name}(w, g))\n").hdfg, spans=False)
        for how, name in ((statement, call), ("from dana.optimizers import momentum", "momentum"))
    ]
    assert graphs[0] == graphs[1]


def test_a_call_is_what_its_body_says() -> None:
    called = compile_rule(f"{HEAD}{ALGO}rule.setModel(w, dana.optimizers.nesterov(w, g, 0.5, keep=0.25))\n").hdfg
    written = compile_rule(
        f"{HEAD}{ALGO}velocity = dana.state(w)\nstep = 0.5 * g\nahead = 0.25 * velocity + step\n"
        "dana.setState(velocity, ahead)\nrule.setModel(w, w - (step + 0.25 * ahead))\n"
    ).hdfg
    assert [(node.op, node.inputs, node.value) for node in called.nodes] == [
        (node.op, node.inputs, node.value) for node in written.nodes
    ]


def test_states_are_named_after_what_they_are_kept_for() -> None:
    text = (
        f"{HEAD}lr = dana.meta(0.1)\n{ALGO}from dana.optimizers import *\nrate = inverse_decay(lr)\n"
        "rule.setModel(w, adam(w, g, rate / largest(dana.norm(g, 1))))\nrule.setModel(b, momentum(b, 1, 0.1))\n"
        "for k in range(2):\n    count = dana.state(b)\n    dana.setState(count, count + 1)\n"
        "other = dana.state(3, [4], init=dana.uniform(0, 1))\ndana.setState(other, other + 1)\n"
    )
    rule = compile_rule(text)
    scalar: tuple[object, ...] = ()
    vector = models(rule.hdfg)["w"]
    assert models(rule.hdfg) == {
        "w": vector,
        "b": scalar,
        "lr.batches": scalar,
        "state.seen": scalar,
        "w.mean": vector,
        "w.square": vector,
        "w.faded": scalar,
        "w.faded_squares": scalar,
        "b.velocity": scalar,
        "b.count": scalar,
        "b.count.2": scalar,
        "state.other": (4,),
    }
    assert rule.report == ""
    assert parse_graph(graph_text(rule.hdfg)) == rule.hdfg


def test_an_uncalled_function_says_nothing_about_the_rule() -> None:
    text = (
        f"{HEAD}{ALGO}def unused(v):\n    total = dana.state(w)\n    dana.setState(total, total + g)\n"
        '    rule.setModel(w, w + v)\n    rule.setLoss(b)\n    rule.merge(x, 8, "max")\n'
        "rule.setModel(w, g)\nrule.setModel(b, b + 1)\n"
    )
    graph = compile_rule(text).hdfg
    assert set(models(graph)) == {"w", "b"}
    assert graph.loss is None
    assert len(graph.updates) == 2


def test_everything_a_module_makes_stands_at_the_call() -> None:
    text = f"{HEAD}{ALGO}rule.setModel(w, dana.optimizers.adam(w, g))\n"
    rule = Rule(text)
    line = text.count("\n")
    made = [node for node in rule.hdfg.nodes if node.span is not None and node.span.line == line]
    assert len(made) > 15
    assert {str(node.span) for node in made} == {f"{line}:18-{line}:44"}


def test_a_module_is_read_and_never_imported() -> None:
    code = (
        "import sys, dsl\n"
        f"dsl.compile_rule({HEAD + ALGO + 'rule.setModel(w, dana.optimizers.adam(w, g))'!r})\n"
        "assert not {'dana', 'dana.optimizers'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_no_other_module_can_be_read() -> None:
    for name in ("dana.demo", "dana.rules", "dana.optimizers.sub", "os.path", "..etc.passwd"):
        assert not compile_module(name), name


def compile_module(name: str) -> bool:
    return not Rule(f"from {name} import f\n{HEAD}{ALGO}rule.setModel(w, g)\n").diagnostics
