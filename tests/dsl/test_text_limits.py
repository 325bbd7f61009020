"""Hostile and generated text: refused with one clear error, or handled, never a crash, never much work."""

from __future__ import annotations

import cProfile
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dana.errors import UsageError
from dana.language.rulefile import load
from dsl import Rule, RuleError
from dsl.limits import MAX_ERRORS, MAX_SOURCE_BYTES, MAX_STEPS, MAX_SYNTAX_ERRORS, MAX_VALUES
from tests.dsl.hostile import BODY, LONG, WRONG
from tests.dsl.rules import RULES
from tests.scale import randomised

MAX_CALLS = 3_000_000
"""Calls of Python functions that no text may take: less than a second, and the same number on a busy machine."""


def codes(text: str) -> set[str]:
    return {diagnostic.code for diagnostic in Rule(text).diagnostics}


def counted(text: str) -> Rule:
    """The rule, elaborated and, if it is right, lowered, with at most `MAX_CALLS`."""
    profile = cProfile.Profile(subcalls=False, builtins=False)
    start = time.process_time()
    with profile:
        rule = Rule(text)
        _ = rule.report if rule.diagnostics else rule.hdfg
    assert sum(entry.callcount for entry in profile.getstats()) <= MAX_CALLS
    assert time.process_time() - start < 5  # what is quadratic within a call, at this size, takes minutes
    return rule


def test_a_megabyte_gives_one_error() -> None:
    rule = Rule("x = 1\n" * 170_000, filename="large.py")
    assert [diagnostic.code for diagnostic in rule.diagnostics] == ["E601"]
    assert rule.report == (
        "error[E601]: the rule text is too large\n --> large.py\n  = expected: at most 65,536 bytes\n"
        "  = found: 1,020,000 bytes\n"
        "  = help: a rule is a few dozen lines; repetition belongs into functions and loops"
    )


def test_size_is_counted_in_bytes() -> None:
    comment = "# " + "数" * (MAX_SOURCE_BYTES // 3)
    assert codes(comment) == {"E601"}
    assert "E601" not in codes("# " + "a" * (MAX_SOURCE_BYTES - 3))


@pytest.mark.parametrize("text", WRONG, ids=range(len(WRONG)))
def test_pathological_text_ends_in_errors(text: str) -> None:
    rule = counted(text)
    assert rule.diagnostics
    assert len(rule.diagnostics) <= MAX_ERRORS
    assert len(rule.report) < 1_000_000


@pytest.mark.parametrize("text", LONG.values(), ids=LONG)
def test_long_rules_are_no_burden(text: str) -> None:
    assert not counted(text).diagnostics


@randomised(100)
@given(st.binary(max_size=400))
def test_any_bytes_give_a_report_or_a_refusal(content: bytes) -> None:
    with tempfile.NamedTemporaryFile(suffix=".py") as file:
        file.write(content)
        file.flush()
        with pytest.raises((RuleError, UsageError)):
            load(file.name)


@pytest.mark.parametrize(
    "line", ["{}", "e = [{}]", "@{}\ndef f(): pass", "def f(a={}): pass", "def f(a: {}): pass", "[0][{}]"]
)
def test_text_is_not_executed(tmp_path: Path, line: str) -> None:
    mark = tmp_path / "mark"
    path = tmp_path / "rule.py"
    path.write_text(line.format(f"open({str(mark)!r}, 'w')") + f"\n{BODY}rule.setModel(w - y * x)\n")
    _ = Rule(path.read_text()).report
    with suppress(RuleError):  # an annotation is none
        load(path)
    assert not mark.exists()


def test_syntax_errors_are_counted_out() -> None:
    rule = Rule("import dana\n" + "1 2\n" * 1000)
    assert len(rule.diagnostics) == MAX_SYNTAX_ERRORS


def test_errors_are_counted_out() -> None:
    rule = Rule("import dana\n" + "\n".join(f"a{i} = dana.none{i}" for i in range(1000)))
    assert len(rule.diagnostics) == MAX_ERRORS


def test_limits_are_not_narrower_than_they_say() -> None:
    loop = f"e = y\nfor i in range({MAX_VALUES - 20}):\n    e = -e\nrule.setModel(w - e * x)\n"
    assert codes(BODY + loop) == set()
    assert codes(BODY + loop.replace(str(MAX_VALUES - 20), str(MAX_VALUES))) == {"E607"}
    steps = f"for i in range({MAX_STEPS // 2 - 200}):\n    pass\nrule.setModel(w - y * x)\n"
    assert codes(BODY + steps) == set()


def test_a_long_sum_is_no_nesting() -> None:
    assert codes(BODY + "e = " + " + ".join(["y"] * 5000) + "\nrule.setModel(w - e * x)\n") == set()


@randomised(150)
@given(st.text(max_size=300))
def test_any_text_gives_a_report(text: str) -> None:
    rule = Rule(text)
    assert bool(rule.diagnostics) == (rule.report.count("error[") > 0)


WORDS = """
( ) [ ] { } : ; , . = == < + - * / ** @ -> def for in range if else return import from dana as w x y rule algo merge
setModel sigma 1 2.5 1e9 0x1 'a' "b" \"\"\" # \u00df \x00
"""
TOKENS = st.sampled_from([*WORDS.split(), "\n", "\n\n", "\n\t", "\n    ", "\r", "\u2028", "\\\n"])


@randomised(150)
@given(st.lists(TOKENS, max_size=120))
def test_any_tokens_give_a_report(tokens: list[str]) -> None:
    assert Rule(" ".join(tokens)).diagnostics


@randomised(80)
@given(st.sampled_from(sorted(RULES)), st.data())
def test_damaged_rules_give_a_report(name: str, data: st.DataObject) -> None:
    text = RULES[name]
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(text)))
        stop = data.draw(st.integers(start, min(len(text), start + 12)))
        text = text[:start] + data.draw(st.one_of(TOKENS, st.just(""), st.text(max_size=3))) + text[stop:]
    rule = Rule(text)
    if not rule.diagnostics:
        assert rule.hdfg.nodes
