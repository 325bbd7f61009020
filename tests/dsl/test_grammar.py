"""Text of the shape of the grammar, meaning nothing: printed and read again as the same tree, and never a crash."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from dsl import Rule
from dsl.hdfg.text import graph_text, parse_graph
from dsl.source import Source
from dsl.syntax.ast import Module
from dsl.syntax.parser import parse
from dsl.syntax.printer import rule_text, tree_text
from tests.dsl.rules import HEAD
from tests.scale import randomised, scaled

NAMES = st.sampled_from(["a", "w", "x", "dana", "rule", "sigma", "größe", "_1"])
NUMBERS = st.sampled_from(["0", "7", "1.5", ".5", "2.", "1e-3", "1_000", "1e999", "9007199254740992"])
STRINGS = st.sampled_from(["'+'", '"max"', "''", r"'\''", "'a' \"b\""])
SIGNS = st.sampled_from(["+", "-", "*", "/", "//", "%", "@", "<", ">", "<=", ">=", "=="])


def compound(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Every form of the rule `expression` and below it."""
    listed = st.lists(inner, max_size=3).map(", ".join)
    arguments = st.lists(st.one_of(inner, st.builds("{}={}".format, NAMES, inner)), max_size=3).map(", ".join)
    return st.one_of(
        st.builds("{} {} {}".format, inner, SIGNS, inner),
        st.builds("{}{}".format, st.sampled_from(["-", "+", "- -"]), inner),
        st.builds("({})".format, inner),
        st.builds("({},)".format, inner),
        st.builds("[{}]".format, listed),
        st.builds("{}.{}".format, NAMES, NAMES),
        st.builds("{}({})".format, NAMES, arguments),
        st.builds("dana.sigma({}, {})".format, inner, inner),
        st.builds("{}[{}]".format, NAMES, inner),
        st.builds("{}[{}:, :{}, {}:{}]".format, NAMES, inner, inner, inner, inner),
        st.just("()"),
    )


EXPRESSIONS = st.recursive(st.one_of(NAMES, NUMBERS, STRINGS), compound, max_leaves=8)
SMALL = st.one_of(
    EXPRESSIONS,
    st.builds("{} = {}".format, NAMES, EXPRESSIONS),
    st.builds("{}, {} = {}".format, NAMES, NAMES, EXPRESSIONS),
    st.builds("{} = {} = {}".format, NAMES, NAMES, EXPRESSIONS),
    st.builds("{} {} {}".format, NAMES, st.sampled_from(["+=", "-=", "*=", "/="]), EXPRESSIONS),
    st.builds("{}: {} = {}".format, NAMES, EXPRESSIONS, EXPRESSIONS),
    st.builds("return {}".format, EXPRESSIONS),
    st.sampled_from(["pass", "return", "import dana as d", "from dana import (sigma, pi as p)", "from dana import *"]),
)
HEADERS = st.one_of(
    st.builds("for {} in {}:".format, st.sampled_from(["i", "i, j"]), EXPRESSIONS),
    st.builds("def f({}):".format, st.sampled_from(["", "a", "a, b=1", "a: x, b: y=2"])),
    st.builds("@dana.rule\ndef f(a={}) -> None:".format, EXPRESSIONS),
)


def indented(header: str, body: list[str]) -> str:
    return "\n".join([header, *("    " + line for text in body for line in text.split("\n"))])


STATEMENTS = st.recursive(
    st.lists(SMALL, min_size=1, max_size=2).map("; ".join),
    lambda inner: st.builds(indented, HEADERS, st.lists(inner, min_size=1, max_size=3)),
    max_leaves=4,
)


BEFORE = HEAD + "w = dana.model([n])\nrule = dana.algo(w, x, y)\na = 1\n"


def read(text: str) -> tuple[Module, bool]:
    module, diagnostics = parse(Source(text=text, filename="generated"))
    return module, not diagnostics


def tree(module: Module) -> str:
    return re.sub(r" @ \S+", "", tree_text(module))


@randomised(150)
@given(STATEMENTS)
def test_what_the_grammar_gives_is_printed_and_read_again(text: str) -> None:
    module, fine = read(text)
    if not fine:  # named arguments before others, chained comparisons
        assert Rule(text).diagnostics
        return
    printed = rule_text(module)
    again, fine = read(printed)
    assert fine, printed
    assert tree(again) == tree(module)
    assert rule_text(again) == printed


def calculated(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Forms that are right with any vector or number in them."""
    return st.one_of(
        st.builds("({} {} {})".format, inner, st.sampled_from(["+", "-", "*", "/", "<", ">="]), inner),
        st.builds("-({})".format, inner),
        st.builds("dana.sigmoid({})".format, inner),
        st.builds("dana.sigma(x * {}, 1)".format, inner),
        st.builds("dana.where({}, w, {})".format, inner, inner),
    )


VALUES = st.recursive(st.sampled_from(["w", "x", "y", "0.5", "2", "a"]), calculated, max_leaves=6)
SOUND = st.recursive(
    st.one_of(
        st.builds("a = {}".format, VALUES),
        st.builds("a, _1 = {}, y".format, VALUES),
        st.builds("a {}= {}".format, st.sampled_from("+-*/"), VALUES),
        st.sampled_from(["pass", "from dana import sigma", "def f(v, k=2):\n    return k * v", "a = sigmoid(a)"]),
    ),
    lambda inner: st.builds(
        indented, st.sampled_from(["for i in range(2):", "for i in [x, y]:"]), st.lists(inner, min_size=1)
    ),
    max_leaves=3,
)


def test_generated_text_ends_in_a_graph_or_in_errors() -> None:
    outcomes: list[bool] = []

    @randomised(100)
    @given(st.one_of(st.lists(SOUND, max_size=4), st.lists(st.one_of(SOUND, STATEMENTS), max_size=5)))
    def tried(statements: list[str]) -> None:
        rule = Rule(BEFORE + "\n".join(statements) + "\nrule.setModel(w, w - a * x)\n")
        outcomes.append(not rule.diagnostics)
        if outcomes[-1]:
            graph = rule.hdfg
            assert len(graph.updates) == 1
            assert parse_graph(graph_text(graph)) == graph

    tried()
    assert sum(outcomes) >= scaled(30), f"{sum(outcomes)} of {len(outcomes)} compile"
    assert len(outcomes) - sum(outcomes) >= scaled(20), "the others"
