"""Each figure that is quoted has a source, and what is only remembered is not among them."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from importlib.resources import files
from typing import Any

import pytest

from benchmarks.paper.evidence import CHOSEN, evidence, parse
from dana.errors import InternalError
from tests.benchmarks.recalled import RATIOS, RECALLED

TEXT = files("benchmarks.paper").joinpath("evidence.toml").read_text(encoding="utf-8")
DATASETS = (
    "Remote Sensing LR", "Remote Sensing SVM", "WLAN", "Netflix", "Patient", "Blog Feedback", "S/N Logistic", "S/N SVM",
    "S/N LRMF", "S/N Linear", "S/E Logistic", "S/E SVM", "S/E LRMF", "S/E Linear",
)  # fmt: skip


def numbers(found: Any, name: str = "") -> Iterator[tuple[str, float]]:
    """All of a file, whatever they are called."""
    if isinstance(found, dict):
        for key, value in found.items():
            yield from numbers(value, key)
    elif isinstance(found, list):
        for value in found:
            yield from numbers(value, name)
    elif not isinstance(found, str):
        yield name, float(found)


def test_nothing_that_is_only_remembered() -> None:
    held = {value for _, value in numbers(tomllib.loads(TEXT))}
    assert held & set(RECALLED) == set()
    assert {one.figure.value for one in evidence().claims} & set(RATIOS) == set()


def test_each_number_has_a_source_of_the_file() -> None:
    """A number is the value of a figure, which cannot be loaded without a source, or a count of passes."""
    assert {name for name, _ in numbers(tomllib.loads(TEXT))} == {"value", "passes"}
    assert TEXT.count("value = ") == TEXT.count("source = ")
    used = set(re.findall(r'source = "(\w+)"', TEXT)) | {"device"}
    assert used == set(evidence().sources)


@pytest.mark.parametrize("source", ["", ', source = "memory"'])
def test_a_figure_without_a_source_cannot_be_loaded(source: str) -> None:
    torn = TEXT.replace('figure = { value = 8.3, source = "abstract" }', f"figure = {{ value = 8.3{source} }}")
    assert torn != TEXT
    with pytest.raises(InternalError, match="which is no source of the file"):
        parse(torn)


def test_all_data_sets() -> None:
    found = evidence()
    assert tuple(one.name for one in found.datasets) == DATASETS
    chosen = [one.name for one in found.datasets if CHOSEN in (one.rows.source, one.columns.source)]
    assert chosen == ["S/E SVM"]
    statements = (*found.trainings, *found.madlib, *found.libraries)
    assert {one.dataset for one in statements} <= set(DATASETS)
    shapes = {one.name: (one.rows.value, one.columns.value) for one in found.datasets}
    assert shapes["S/E LRMF"] == (28_002, 45_064)
    assert shapes["S/N LRMF"] == (19_880, 19_880)
