"""Rule text is Python to an editor: a type checker accepts what the language has and refuses what it has not."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.dsl.rules import CHECKOUT, LIBRARY, PAPER
from tests.dsl.test_language_page import BLOCKS, EXAMPLES_OF_ROWS, PRELUDE


def complaints(*files: Path) -> list[str]:
    """What mypy says of rule files, in strict mode."""
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", *map(str, files)]
    done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return done.stdout.splitlines()


def test_rules_and_optimizers_are_typed() -> None:
    assert complaints(*LIBRARY, CHECKOUT / "dana" / "optimizers.py") == []
    assert complaints(*sorted(PAPER.glob("*.py"))) == []  # called like rules of the library


def test_every_construct_of_the_reference_is_typed(tmp_path: Path) -> None:
    bodies = [row[1] for row in EXAMPLES_OF_ROWS if not re.search(r"import|^def", row[1])]
    rows = [f"def row_{k}() -> None:\n    {body}\n" for k, body in enumerate(bodies)]
    reference = tmp_path / "reference.py"
    reference.write_text(PRELUDE + "\n".join(rows), encoding="utf-8")
    first = tmp_path / "first.py"
    first.write_text(BLOCKS[0], encoding="utf-8")
    assert complaints(reference, first) == []


WRONG = {
    "dana.sigmod(x)": 'Module has no attribute "sigmod"; maybe "sigmoid"?',
    "dana.modl([3])": 'Module has no attribute "modl"; maybe "model"?',
    "dana.conect()": 'Module has no attribute "conect"; maybe "connect" or "concat"?',
    "rule.setmodel(x)": '"Algo" has no attribute "setmodel"; maybe "setModel"?',
    'rule.merge(x, "+")': 'Missing positional argument "batch" in call to "merge" of "Algo"',
    'rule.merge(x, 8, "-")': 'Argument 3 to "merge" of "Algo" has incompatible type "Literal[\'-\']"',
    'dana.sigma(x, "1")': 'Argument 2 to "sigma" has incompatible type "str"',
    "x @ 0.5j": 'Unsupported operand types for @ ("Value" and "complex")',
    "x ** 2": 'Unsupported operand types for ** ("Value" and "int")',
    "x.sum()": '"Value" has no attribute "sum"',
    "dana.model([0.5])": 'List item 0 has incompatible type "float"',
    "dana.where(x, 1)": 'Missing positional argument "otherwise" in call to "where"',
}


def test_what_the_language_has_not_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "wrong.py"
    head = "import dana\nx = dana.input([3])\nw = dana.model([3])\nrule = dana.algo(w, x)\n"
    file.write_text(head + "\n".join(WRONG) + "\n", encoding="utf-8")
    said = complaints(file)
    for line, expected in enumerate(WRONG.values(), start=5):
        assert any(f":{line}: error: {expected}" in text for text in said), (expected, said)
    assert len([text for text in said if ": error:" in text]) == len(WRONG)


NOTEBOOK = """
import warnings
from IPython.core.interactiveshell import InteractiveShell

shell = InteractiveShell.instance(colors="NoColor", history_load_length=0)
shell.run_cell("import dana").raise_error()
shell.run_cell('''
rate = 0.25

@dana.rule
def linear():
    w = dana.model([3])
    x = dana.input([3])
    y = dana.output()
    least = dana.algo(w, x, y)
    e = dana.sigma(w * x) - y
    least.setModel(w - rate * e * x)
''').raise_error()
shown, _ = shell.display_formatter.format(shell.user_ns["linear"])
assert shown["image/svg+xml"].startswith("<svg "), shown
assert shell.user_ns["linear"].listing.startswith("least: batches of 1 tuple, 1 epoch")
shell.run_cell("linear")
shell.run_cell('''
@dana.rule
def wrong():
    w = dana.model([3])
    b = dana.sigmod(w)
''')
"""


@pytest.mark.parametrize("cells", [NOTEBOOK])
def test_a_notebook_defines_draws_and_explains(cells: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", cells],
        capture_output=True,
        text=True,
        check=False,
        env={"IPYTHONDIR": str(tmp_path), "PATH": "", "HOME": str(tmp_path)},
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert "<Rule least(w [3], x [3], y) of " in done.stdout
    assert "error[E203]: dana has no 'sigmod'" in done.stdout
    assert "help: did you mean 'sigmoid'?" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr
