"""The library of rules: every rule is listed, described, without warnings, and short."""

from __future__ import annotations

import pytest

import dana
from dana import rules
from dana.cli import main
from dana.cli.entry import OK, USAGE
from dana.codesign.default import default_bundle
from dana.compiler import bind
from dana.errors import UsageError
from dana.server.places import CHECKOUT
from dana.storage.columns import column_schema
from dsl import compile_rule
from hwgen.spec import legal
from tests.rules.tables import EXTENTS, table

MAX_LINES = 32


def test_every_file_is_listed_and_every_name_has_a_file() -> None:
    assert sorted(rules.NAMES) == sorted(path.stem for path in rules.FOLDER.glob("*.py") if path.stem != "__init__")


@pytest.mark.parametrize("name", rules.NAMES)
def test_a_rule_has_its_file_s_name_and_nothing_to_complain_of(name: str) -> None:
    rule = getattr(rules, name)
    assert rule.name == name
    assert rule.report == ""
    assert rule.hdfg.prediction is not None
    assert rule.hdfg.loss is not None
    assert len(rules.text(name).splitlines()) <= MAX_LINES
    assert rules.summary(name).endswith(".")


@pytest.mark.parametrize("name", rules.NAMES)
def test_callers_choose_the_batch(name: str) -> None:
    """Unless it is all rows, or one."""
    graph = getattr(rules, name).hdfg
    assert graph.batch in (None, 1) or graph.nodes[graph.batch_meta].name == "batch"


@pytest.mark.parametrize("design", [{}, {"threads": 1, "clusters": 1}, {"divide_interval": 1}], ids=str)
@pytest.mark.parametrize("name", rules.NAMES)
def test_hardware_takes_every_rule(name: str, design: dict[str, int]) -> None:
    """The compiler makes nothing that is rejected when it is loaded."""
    schema = column_schema(table(name, count=50, features=20))
    binding = bind(compile_rule(rules.text(name)).hdfg, schema, extents=EXTENTS.get(name))
    legal.check(default_bundle(binding, schema, max_tuples=1000, design=design))


def test_unknown_rules_are_named_with_what_there_is() -> None:
    with pytest.raises(UsageError, match="there is no rule 'logistics'"):
        rules.text("logistics")
    with pytest.raises(AttributeError):
        _ = rules.logistics
    assert dana.rules is rules


def test_the_command_lists_and_shows(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rules"]) == OK
    listed = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in listed] == list(rules.NAMES)
    assert main(["rules", "show", "lasso"]) == OK
    assert capsys.readouterr().out == (CHECKOUT / "dana" / "rules" / "lasso.py").read_text(encoding="utf-8")
    assert main(["rules", "show", "../__init__"]) == USAGE
    assert "there is no rule '../__init__'" in capsys.readouterr().err
