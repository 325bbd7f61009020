"""Rules written as functions under `@dana.rule`: read, never called, and complete as text."""

from __future__ import annotations

import linecache
import math
from enum import IntEnum

import numpy as np
import pytest

import dana
import dana as d
import dana.optimizers as steps
from dana import floor, sigmoid
from dana import max as larger
from dana import sigma as total
from dana.errors import UsageError
from dana.optimizers import clip
from dana.optimizers import sgd as descend
from dsl import Rule, RuleError, compile_rule
from dsl.hdfg.text import graph_text

RATE = 0.25
WIDTH = 3


def test_a_function_is_a_rule() -> None:
    @dana.rule
    def linear() -> None:
        w = dana.model([WIDTH])
        x = dana.input([WIDTH])
        y = d.output()
        rule = dana.algo(w, x, y)
        rule.setModel(w - RATE * (total(w * x, 1) - y) * x)

    assert isinstance(linear, Rule)
    assert linear.name == "rule"
    graph = linear.hdfg.bind({})
    assert graph.concrete_shape(graph.models[0]) == (3,)
    assert 0.25 in [node.value for node in graph.nodes]
    # the text stands alone
    assert graph_text(compile_rule(linear.text).hdfg, spans=False) == graph_text(graph, spans=False)
    lines = [line.strip() for line in linear.text.splitlines()]
    for line in ("import dana", "import dana as d", "from dana import sigma as total", "RATE = 0.25", "WIDTH = 3"):
        assert line in lines


def test_every_function_may_have_a_name_of_its_own() -> None:
    """Also those of `dana.language.elementwise`, where functions of the machine stand for editors."""

    @dana.rule
    def steps() -> None:
        w = dana.model([WIDTH])
        x = dana.input([WIDTH])
        rule = dana.algo(w, x)
        rule.setModel(larger(sigmoid(w * x), floor(x)))

    lines = map(str.strip, steps.text.splitlines())
    assert {"from dana import floor", "from dana import sigmoid", "from dana import max as larger"} <= set(lines)
    assert steps.hdfg


def test_the_body_is_never_run() -> None:
    with pytest.raises(RuleError, match="numpy cannot be imported"):

        @dana.rule
        def hostile() -> None:
            import numpy

            raise SystemExit(numpy)


def test_errors_point_into_the_file() -> None:
    line = test_errors_point_into_the_file.__code__.co_firstlineno + 8
    with pytest.raises(RuleError) as raised:

        @dana.rule
        def wrong() -> None:
            w = dana.model([3])
            x = dana.input([3])
            print(w * x)

    assert f"{__file__}:{line}:13" in str(raised.value)
    assert "'print' is not defined" in str(raised.value)


def test_a_notebook_cell_works() -> None:
    """Notebooks put the source of each cell into linecache, as here."""
    cell = "@dana.rule\ndef cell():\n    w = dana.model()\n    x = dana.input()\n"
    cell += "    r = dana.algo(w, x)\n    r.setModel(x)\n"
    linecache.cache["<cell 1>"] = (len(cell), None, cell.splitlines(keepends=True), "<cell 1>")
    names = {"dana": dana, "__name__": "__main__"}
    exec(compile(cell, "<cell 1>", "exec"), names)
    rule = names["cell"]
    assert isinstance(rule, Rule)
    assert rule.name == "r"


def test_a_function_as_text_is_a_rule_too() -> None:
    text = (
        "import dana\n\n@dana.rule\ndef linear(rate=0.5):\n    '''Docstring.'''\n    w = dana.model()\n"
        "    x = dana.input()\n    rule = dana.algo(w, x)\n    rule.setModel(w - rate * x)\n"
    )
    assert compile_rule(text).name == "rule"


RATES = np.float64(0.25), np.float64(np.inf), -math.inf, math.nan
HALF, ENDLESS, BELOW, UNKNOWN = RATES
FOUR = IntEnum("FOUR", "A B C D").D


def test_numbers_of_functions_inside_come_along_as_the_language_writes_them() -> None:
    @dana.rule
    def nested() -> None:
        def step(value: dana.Value) -> dana.Value:
            def bounded(inner: dana.Value) -> dana.Value:
                return larger(inner * HALF, BELOW)

            return larger(bounded(value) * FOUR, -ENDLESS) + UNKNOWN

        w = dana.model([WIDTH])
        x = dana.input([WIDTH])
        rule = dana.algo(w, x)
        rule.setModel(w - step(x))

    lines = [line.strip() for line in nested.text.splitlines()]
    assert {"HALF = 0.25", "ENDLESS = 1 / 0", "BELOW = -1 / 0", "UNKNOWN = 0 / 0", "FOUR = 4"} <= set(lines)
    assert nested.hdfg


def test_functions_of_modules_come_along() -> None:
    @dana.rule
    def bounded() -> None:
        w = dana.model([WIDTH])
        x = dana.input([WIDTH])
        rule = dana.algo(w, x)
        rule.setModel(w, descend(w, clip(x, 1), steps.inverse_decay(RATE)))

    lines = [line.strip() for line in bounded.text.splitlines()]
    for line in (
        "import dana.optimizers as steps",
        "from dana.optimizers import clip",
        "from dana.optimizers import sgd as descend",
    ):
        assert line in lines
    assert [node.name for node in bounded.hdfg.nodes if node.id in bounded.hdfg.models] == ["w", "state.batches"]


def test_a_function_whose_text_is_lost_is_refused_with_a_way_out() -> None:
    names = {"dana": dana}
    exec("def typed():\n    w = dana.model()\n", names)
    with pytest.raises(UsageError, match=r"the text of typed is needed(?s:.*)into a file or a notebook"):
        dana.rule(names["typed"])
