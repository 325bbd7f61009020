"""What a user sees for each way a rule can be wrong: golden text for every program in `bad/`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dsl import Rule, RuleError, compile_rule
from tests.dsl.hostile import BODY
from tests.golden import Golden

BAD = sorted((Path(__file__).parent / "bad").glob("*.rule"))
WARNED = sorted((Path(__file__).parent / "warned").glob("*.rule"))
SOURCES = sorted((Path(__file__).parents[2] / "dsl").rglob("*.py"))


@pytest.mark.parametrize("path", BAD, ids=lambda path: path.stem)
def test_bad(path: Path, golden: Golden) -> None:
    rule = Rule(path.read_text(encoding="utf-8"), filename=path.name)
    assert rule.diagnostics, "a bad program must have an error"
    with pytest.raises(RuleError) as raised:
        _ = rule.hdfg
    assert raised.value.diagnostics == rule.diagnostics
    golden(rule.report)


@pytest.mark.parametrize("path", WARNED, ids=lambda path: path.stem)
def test_warned(path: Path, golden: Golden) -> None:
    rule = compile_rule(path.read_text(encoding="utf-8"), filename=path.name)
    assert rule.warnings, "the program must have a warning"
    golden(rule.report)


@pytest.mark.parametrize("statements", ["e = y\ne = e * 2.0", "y = y\ne = y", "for e in [y, x]:\n    pass\ne = y"])
def test_another_name_of_an_input_is_free(statements: str) -> None:
    """Nothing is lost: the input keeps the name that it was declared with."""
    rule = compile_rule(f"{BODY}{statements}\nrule.setModel(w - 0.1 * e * x)\n")
    assert not rule.warnings


@pytest.mark.parametrize(
    "test",
    [
        "dana.sigma(w > 0, 1) > 1",
        "dana.sigma(dana.sigmoid(w), 1) > 1",
        "dana.pi(1 + (w > 0), 1) > 2",
        'rule.merge(dana.sigmoid(e), 8, "+") > 1',
        "dana.norm(g, 1) > 1",
        "dana.tanh(w[0]) < 0",
        "dana.max(w[0], 0) > 0",
    ],
)
def test_a_convergence_test_that_can_go_either_way(test: str) -> None:
    gradient = 'e = dana.sigma(w * x, 1) - y\ng = rule.merge(e * x, 8, "+")\n'
    rule = compile_rule(f"{BODY}{gradient}rule.setModel(w - 0.1 * g)\nrule.setConvergence({test})\n")
    assert not rule.warnings


def test_a_learning_rate_is_no_division() -> None:
    """Though it be the batch size's inverse."""
    mean = 'g = rule.merge(e * x, 100, "+") / 100\n'
    rule = compile_rule(f"{BODY}e = dana.sigma(w * x, 1) - y\n{mean}rule.setModel(w - 0.01 * g)\n")
    assert not rule.warnings


MEANS = BODY.replace("rule = dana.algo(w", "h = dana.model([32])\nrule = dana.algo(w, h")
MEANS += "e = dana.sigma(w * x, 1) - y\nunits, size = 32, 32\n"


@pytest.mark.parametrize(
    ("before", "merged", "warned"),
    [
        ("e * x / 32", 'rule.merge({}, 32, "+") / 32', True),
        ("e * x / size", 'rule.merge({}, size, "+") / size', True),
        ("e * x / units", 'rule.merge({}, size, "+") / size', False),
        ("e * (x * x / 32)", 'rule.merge({}, 32, "+") / 32', False),  # a feature in another unit
        ("x / 32", 'rule.merge({}, 32, "+") / 32', False),
        ("dana.sigma(h * e) / 32 + x", 'rule.merge({}, 32, "+") / 32', False),
        ("dana.sigma(h * e) / 32", 'rule.merge({}, 32, "+") / 32', False),  # the mean of 32 units
        ("-0.5 * (e / 32)", 'rule.merge({}, 32, "+") / 32', True),
        ("e", 'rule.merge({0}, 32, "+") / 32 * rule.merge({0}, 32, "+") / 32', False),  # a product of two means
        ("e", 'rule.merge({0}, 32, "+") / 32 * rule.merge({0}, 32, "+") / 32 / 32', True),
        ("e", 'dana.sigma(h, 1) / 32 * rule.merge({}, 32, "+") / 32', False),
    ],
)
def test_what_is_divided_by_the_batch_size_twice(before: str, merged: str, warned: bool) -> None:
    text = f"rule.setModel(w, w - {merged.format(before)})\nrule.setModel(h, 0.5 * h)\n"
    codes = [one.code for one in compile_rule(MEANS + text).warnings]
    assert codes.count("W706") == warned


@pytest.mark.parametrize(
    ("prediction", "refused"),
    [
        ("p", False),
        ("z", False),
        ("dana.tanh(z)", False),
        ("2 * p - 1", False),
        ("dana.where(p > 0.5, 1, -1)", False),
        ("dana.argmax([1 - p, p]) * 2 - 1", False),
        ("dana.floor(z)", False),
        ("dana.where(dana.training, y, p)", False),
        ("dana.argmax([1 - p, p])", True),
        ("dana.argmin([1 - p, p])", True),
        ("p > 0.5", True),
        ("dana.where(p > 0.5, 1, 0)", True),
        ("dana.round(p)", True),
        ("dana.floor(p + 0.5)", True),
        ("dana.ceil(p)", True),
        ("p // 0.5", True),
        ("1 - p", True),
        ("1 / (1 + dana.exp(-z))", True),  # no dana.sigmoid, so that it counts as a score
        ("dana.softmax([0, z])[1]", True),
    ],
)
@pytest.mark.parametrize("classes", ["2", "k"])
def test_one_number_that_says_the_second_class_of_every_row(prediction: str, refused: bool, classes: str) -> None:
    text = BODY.replace("output()", f"output(classes={classes})").replace(
        "import dana\n", "import dana\nk = dana.dim()\n"
    )
    text += (
        f"z = dana.sigma(w * x, 1)\np = dana.sigmoid(z)\nrule.setModel(w - p * x)\nrule.setPrediction({prediction})\n"
    )
    assert [one.code for one in Rule(text).diagnostics if one.code[0] == "E"] == ["E518"] * refused


def test_there_are_many_bad_programs() -> None:
    assert len(BAD) >= 60


def test_every_code_is_shown_by_some_program() -> None:
    written = {code for path in SOURCES for code in re.findall(r'"([EW][1-7]\d\d)"', path.read_text(encoding="utf-8"))}
    shown: set[str] = set()
    for path in (*BAD, *WARNED):
        rule = Rule(path.read_text(encoding="utf-8"))
        shown |= {diagnostic.code for diagnostic in (*rule.diagnostics, *rule.warnings)}
    assert shown | {"E601"} == written  # E601, the size of the text, has no file of its own


def test_every_span_lies_in_the_text() -> None:
    seen = 0
    for path in BAD:
        rule = Rule(path.read_text(encoding="utf-8"))
        for diagnostic in rule.diagnostics:
            for span in (diagnostic.span, *(note.span for note in diagnostic.notes)):
                if span is not None:
                    assert 1 <= span.line <= len(rule.source.lines), path.stem
                    assert 1 <= span.column <= len(rule.source.lines[span.line - 1]) + 1, path.stem
                    seen += 1
    assert seen >= len(BAD)


def test_five_errors_come_at_once() -> None:
    text = next(path for path in BAD if path.stem == "five_errors").read_text(encoding="utf-8")
    assert len(Rule(text).diagnostics) >= 5
