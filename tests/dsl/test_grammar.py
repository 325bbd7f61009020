"""Text of the shape of the grammar, meaning nothing: printed and read again as the same tree, and never a crash."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from dsl import Rule
from dsl.source import Source
from dsl.syntax.ast import Module
from dsl.syntax.parser import parse
from dsl.syntax.printer import rule_text, tree_text
from tests.dsl.rules import HEAD
from tests.dsl.scale import randomised

NAMES = st.sampled_from(["a", "w", "x", "dana", "rule", "sigma", "größe", "_1"])
NUMBERS = st.sampled_from(["0", "7", "1.5", ".5", "2.", "1e-3", "1_000", "1e999", "9007199254740992"])
STRINGS = st.sampled_from(["'+'", '"max"', "''", r"'\''", "'a' \"b\""])
SIGNS = st.sampled_from(["+", "-", "*", "/", "//", "%", "<", ">", "<=", ">=", "=="])


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


@randomised(100)
@given(st.lists(STATEMENTS, max_size=5))
def test_generated_text_ends_in_a_graph_or_in_errors(statements: list[str]) -> None:
    rule = Rule(HEAD + "w = dana.model([n])\nrule = dana.algo(w, x, y)\n" + "\n".join(statements))
    if not rule.diagnostics:
        assert rule.hdfg.updates
