"""The reference of the language is run: every example compiles and has the shape that the table says."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from types import ModuleType

import pytest

import dana.functions
import dana.optimizers
from dsl import Rule, compile_rule
from dsl.hdfg.dims import shape_text
from dsl.semantics.library import DECLARATIONS, FUNCTIONS, GIVEN, METHODS
from tests.dsl.rules import PAPER

DOCS = Path(__file__).parents[2] / "docs"
GUIDE = (DOCS / "language.md").read_text(encoding="utf-8")
TEXT = (DOCS / "language-reference.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", GUIDE, re.S)
RULES = [number for number, block in enumerate(BLOCKS) if "algo(" in block]
(PRELUDE,) = re.findall(r"```python\n(.*?)```", TEXT, re.S)
ALGO = "rule = dana.algo(w, b, W, U, T, x, z, i, c, y)"
ROWS = [
    re.split(r"\s*(?<!\\)\|\s*", line)[1:-1]
    for line in TEXT.splitlines()
    if line.startswith("| ") and not line.startswith(("| construct", "| function"))
]
EXAMPLES_OF_ROWS = [(row[0], row[2].strip("`"), row[3].strip("`")) for row in ROWS if row[2]]


def test_tables_are_read_as_tables() -> None:
    assert {len(row) for row in ROWS} == {4}
    assert len(EXAMPLES_OF_ROWS) >= 40


@pytest.mark.parametrize(("construct", "example", "shape"), EXAMPLES_OF_ROWS, ids=[row[1] for row in EXAMPLES_OF_ROWS])
def test_row(construct: str, example: str, shape: str) -> None:
    prelude = PRELUDE
    if "dana.algo" in example:
        prelude = prelude.replace(ALGO, example)
    elif construct == "`rule.setModel(value)`":  # works where there is one model
        prelude = prelude.replace(ALGO, "rule = dana.algo(w, x, y)").replace("+ b", "")
    text = prelude + example * ("dana.algo" not in example) + "\n"
    trains = "setModel" in example or "minimize" in example
    checked = compile_rule(text if trains else text + "rule.setModel(b, 2 * b)\n").checked
    if shape == "–":
        return
    name = re.match(r"\w+", example.split("; ")[1] if "import" in example else example)
    assert name is not None
    # a state is called after what it is kept for: w.v
    declared = {o.name.split(".")[-1]: o for o in checked.operations if o.name is not None}
    named = {text: checked.operations[number] for number, text in checked.names.items()}
    last = (declared | named)[name.group()]
    assert shape_text(last.shape) == shape


@pytest.mark.parametrize("block", RULES)
def test_whole_rules_compile(block: int) -> None:
    assert compile_rule(BLOCKS[block]).report == ""


PAPER_BLOCKS = re.findall(r"```python\n(.*?)```", (DOCS / "paper.md").read_text(encoding="utf-8"), re.S)


@pytest.mark.parametrize("block", range(6))
def test_the_paper_s_listings_compile(block: int) -> None:
    assert compile_rule(PAPER_BLOCKS[block]).report == ""
    assert len(PAPER_BLOCKS) == 6


def test_the_first_rule_is_the_example() -> None:
    assert BLOCKS[0] == (PAPER / "logistic.py").read_text(encoding="utf-8").replace("# ours: bound", "# bound")


def test_every_name_has_a_row() -> None:
    constructs = " ".join(row[0] for row in ROWS)
    for name in (*DECLARATIONS, *FUNCTIONS):
        assert f"dana.{name}(" in constructs
    for name in GIVEN:
        assert f"dana.{name}`" in constructs
    for name in METHODS:
        assert f"rule.{name}(" in constructs


@pytest.mark.parametrize("module", [dana.functions, dana.optimizers], ids=lambda module: module.__name__)
def test_every_function_of_a_module_has_a_row_with_its_defaults(module: ModuleType) -> None:
    constructs = {row[0].strip("`") for row in ROWS}
    for name, function in vars(module).items():
        if callable(function):
            signature = inspect.signature(function)
            words = [p.name if p.default is p.empty else f"{p.name}={p.default}" for p in signature.parameters.values()]
            assert re.sub("e-0", "e-", f"{name}({', '.join(words)})") in constructs


def test_the_errors_shown_are_what_a_user_sees() -> None:
    shown = re.findall(r"```text\n(error.*? --> (\S+\.rule):.*?)\n```", TEXT, re.S)
    assert len(shown) == 2
    for text, name in shown:
        bad = Path(__file__).parent / "bad" / name
        assert text in Rule(bad.read_text(encoding="utf-8"), filename=name).report
