"""Designs are found, or made once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dana import rules
from dana.storage.declared import declared
from dana.trainer import designs
from dana.trainer.contract import Notice
from dana.trainer.designs import DesignStore, pass_results
from dana.trainer.streams import declared_request
from dana.trainer.trainer import warm_up
from dsl import compile_rule
from dsl.semantics.modules import statements
from hwgen.cache import CacheFolder

LONG = """
import dana
w, x, y = dana.model(), dana.input(), dana.output()
long = dana.algo(w, x, y)
p = w
for k in range({}):
    p = p * x + w
long.setModel(w, w - 0.001 * (p - y))
long.setPrediction(w * x)
"""


@pytest.mark.parametrize(("turns", "said"), [(400, 0), (600, 1)])
def test_what_takes_seconds_is_said(turns: int, said: int) -> None:
    """Before it is compiled, and not again."""
    rule = compile_rule(LONG.format(turns), filename="long")
    request = declared_request(rule, declared("x float4, y float4"), label="y")
    notices: list[Notice] = []
    store = DesignStore()
    for _ in range(2):
        store.get(request, notify=notices.append)
    assert ["compiling it takes seconds" in one.message for one in notices] == [True] * said
    notices.clear()
    pass_results(request, notices.append)
    assert ["compiling it takes seconds" in one.message for one in notices] == [True] * said


def test_models_that_take_seconds_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    rule = compile_rule(rules.text("lrmf"), filename="lrmf")
    request = replace(
        declared_request(rule, declared("i int4, j int4, y float4"), label="y"), hyper={"m": 20, "n": 10, "k": 3}
    )
    numbers = 20 * 3 + 10 * 3 + 20 + 10 + 3
    for most, said in ((numbers, []), (numbers - 1, [f"rule 'lrmf' has models of {numbers} numbers"])):
        monkeypatch.setattr(designs, "MANY_NUMBERS", most)
        notices: list[Notice] = []
        DesignStore().get(request, notify=notices.append)
        assert [one.message.partition(":")[0] for one in notices] == said


def test_a_rule_with_other_dims_is_compiled_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The machine of the rule's own dims, which the request's columns need not fit, is not made for their names."""
    rule = compile_rule(rules.text("softmax"), filename="softmax")
    schema = declared("a float4, b float4, y int4")
    request = replace(declared_request(rule, schema, label="y"), hyper={"k": 5})
    made: list[object] = []
    compile_design = designs.compile_design

    def counted(*arguments: object, **options: object) -> designs.Design:
        made.append(arguments[2])
        return compile_design(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(designs, "compile_design", counted)
    design = DesignStore().get(request)
    assert made == [{"k": 5}]
    assert DesignStore(CacheFolder(path=tmp_path, limit=1 << 24)).get(request).bundle.digest == design.bundle.digest
    assert made == [{"k": 5}, {"k": 5}]
    assert DesignStore().get(replace(request, hyper={"lr": 0.5})).extents == dict(rule.hdfg.extents)


def test_tables_of_the_same_columns_share_a_bundle() -> None:
    """The digest identifies the machine of a run, and a cached design may come from another table."""
    rule = compile_rule(rules.text("logistic"), filename="logistic")
    first = declared_request(rule, declared("a float4, y bool"), label="y")
    second = replace(first, relation=replace(first.relation, name="another"))
    assert DesignStore().get(first).bundle.digest == DesignStore().get(second).bundle.digest


def test_sessions_inherit_the_modules_that_rules_import() -> None:
    """A worker parses them once, before it forks a process for each session."""
    statements.cache_clear()
    warm_up.__wrapped__()
    parsed = statements.cache_info().misses
    compile_rule(rules.text("linear"))
    assert statements.cache_info().misses == parsed
