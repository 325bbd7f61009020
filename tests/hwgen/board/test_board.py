"""The scenarios of `scenarios.py`, those that are asked for in one run of one simulation; each is a test here."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.hwgen.board.build import run
from tests.hwgen.board.table import CONFIG

SCENARIOS = Path(__file__).with_name("scenarios.py")
NAMES = [
    node.name
    for node in ast.parse(SCENARIOS.read_text()).body
    if isinstance(node, ast.AsyncFunctionDef) and node.decorator_list
]


@pytest.fixture(scope="module")
def outcomes(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    asked = {item.callspec.params["name"] for item in request.session.items if item.path == request.path}
    return run(CONFIG, "tests.hwgen.board.scenarios", sorted(asked), tmp_path_factory.mktemp("board"))


@pytest.mark.parametrize("name", NAMES)
def test_scenario(name: str, outcomes: dict[str, str]) -> None:
    # a parameter's value follows the name
    told = {case: text for case, text in outcomes.items() if case.partition("/")[0] == name}
    assert told
    for case, text in told.items():
        assert text == "", f"{case}: {text}"
