"""Modules of functions in rule text, and the states that functions keep."""

from __future__ import annotations

import subprocess
import sys
from argparse import Namespace
from pathlib import Path

import pytest

from dana.cli.rules import run_check
from dana.language.formatting import formatted
from dana.language.rulefile import modules_beside, read_rule
from dsl import Rule, compile_rule
from dsl.hdfg.graph import Graph
from dsl.hdfg.text import graph_text, parse_graph
from dsl.limits import MAX_SOURCE_BYTES

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


HELPERS = "from shared import KEEP\ndef smooth(old, new):\n    return KEEP * old + (1 - KEEP) * new\n"
USES = f"import helpers\nfrom shared import KEEP\n{HEAD}{ALGO}rule.setModel(w, helpers.smooth(w, KEEP * g))\n"


def laid(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    return folder / "rule.py"


def test_a_rule_imports_the_files_beside_it_and_its_text_then_stands_alone(tmp_path: Path) -> None:
    file = laid(tmp_path, rule=USES, helpers=HELPERS, shared="KEEP = 0.75\n", other="nobody imports this")
    text = read_rule(file)
    assert "nobody" not in text
    functions = HELPERS.partition("\n")[2]
    written = f"KEEP = 0.75\n{functions}{HEAD}{ALGO}rule.setModel(w, smooth(w, KEEP * g))\n"
    assert graph_text(compile_rule(text).hdfg, spans=False) == graph_text(compile_rule(written).hdfg, spans=False)
    assert run_check(Namespace(files=[file])) == 0
    assert formatted(USES, filename="rule.py", modules=modules_beside(USES, tmp_path)).startswith("import helpers")


@pytest.mark.parametrize(
    ("helpers", "said"),
    [
        ("def smooth(a, b):\n    return a + missing\n", "helpers.py:2:16"),
        ("def smooth(a, b):\n    return a +\n", "helpers.py:2:"),
        ("\nv = dana.model()\ndef smooth(a, b):\n    return a\n", "helpers.py:2:"),
        ("import dana\nv = dana.model()\ndef smooth(a, b):\n    return a\n", "declared inside a module"),
        ("import shared\ndef smooth(a, b):\n    return a\n", "helpers imports shared imports helpers"),
    ],
)
def test_errors_in_a_module_name_its_file_and_line(tmp_path: Path, helpers: str, said: str) -> None:
    file = laid(tmp_path, rule=USES, helpers=helpers, shared="import helpers\nKEEP = 0.5\n")
    rule = Rule(read_rule(file), filename=str(file))
    if "imports" not in said:
        (tmp_path / "shared.py").write_text("KEEP = 0.5\n")
        rule = Rule(read_rule(file), filename=str(file))
    assert said in rule.report


def test_a_module_cannot_lie_outside_the_rule_s_folder(tmp_path: Path) -> None:
    (tmp_path / "secret.py").write_text("KEEP = 1\n")
    (inner := tmp_path / "inner").mkdir()
    (inner / "helpers.py").symlink_to(tmp_path / "secret.py")
    for line in ("from helpers import KEEP", "from ..secret import KEEP", "import inner.secret"):
        assert modules_beside(f"{line}\n", inner) == ""
    rule = Rule(f"from helpers import KEEP\n{HEAD}{ALGO}rule.setModel(w, KEEP * g)\n")
    assert "a file next to the rule's" in rule.report


def test_the_limit_of_a_text_holds_for_all_modules_together(tmp_path: Path) -> None:
    half = "#" * (MAX_SOURCE_BYTES // 2)
    file = laid(tmp_path, rule=USES, helpers=f"{HELPERS}{half}", shared=f"KEEP = 0.75\n{half}")
    assert [one.code for one in Rule(read_rule(file)).diagnostics] == ["E601"]
