"""Figures that are quoted: each with its source, from ``evidence.toml``.

In: nothing. Out: `Evidence`. What has no source cannot be loaded.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from dana.errors import InternalError

CHOSEN = "chosen"
"""The source of figures that no source has."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A number quoted from a source, or chosen because no source has it.

    Attributes
    ----------
    source
        A key of `Evidence.sources`.
    """

    value: float
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSet:
    """A workload of the paper.

    Attributes
    ----------
    rule
        ``linear``, ``logistic``, ``svm`` of the paper's rules, or ``lrmf_dense``.
    rows, columns
        Of a linear model, tuples and features; of a factorisation, the matrix's.
    """

    name: str
    rule: str
    rows: Figure
    columns: Figure


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """Something said.

    Attributes
    ----------
    what
        A claim; a method; a library.
    dataset
        Of which data set; "": of them all.
    passes
        Over the rows, where it is a training's time and they are said.
    type
        Of the elements of the table's array of features; "" of a table without one.
    storage
        Of that array, where it is not PostgreSQL's default.
    """

    what: str
    figure: Figure
    dataset: str = ""
    passes: int = 0
    type: str = ""
    storage: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """All of it.

    Attributes
    ----------
    sources
        Where figures are from, by key.
    claims, trainings, madlib, libraries
        What the paper says of itself; times of DAnA; of MADlib, a pass; of external libraries.
    """

    sources: Mapping[str, str]
    datasets: tuple[DataSet, ...]
    claims: tuple[Statement, ...]
    trainings: tuple[Statement, ...]
    madlib: tuple[Statement, ...]
    libraries: tuple[Statement, ...]


@cache
def evidence() -> Evidence:
    """What the file holds."""
    return parse(files(__package__ or "").joinpath("evidence.toml").read_text(encoding="utf-8"))


def parse(text: str) -> Evidence:
    """A file's text.

    Raises
    ------
    InternalError
        A figure has no source, or one that is not listed.
    """
    found = tomllib.loads(text)
    sources: dict[str, str] = found["sources"]

    def figure(entry: Mapping[str, Any], name: str) -> Figure:
        made = Figure(float(entry[name]["value"]), str(entry[name].get("source")))
        if made.source not in sources:
            raise InternalError(f"{name} of {dict(entry)} is from {made.source!r}, which is no source of the file")
        return made

    def statements(kind: str, what: str) -> tuple[Statement, ...]:
        return tuple(
            Statement(
                what=one.get(what, ""),
                figure=figure(one, "figure"),
                dataset=one.get("dataset", ""),
                passes=one.get("passes", 0),
                type=one.get("type", ""),
                storage=one.get("storage", ""),
            )
            for one in found[kind]
        )

    return Evidence(
        sources=sources,
        datasets=tuple(
            DataSet(name=one["name"], rule=one["rule"], rows=figure(one, "rows"), columns=figure(one, "columns"))
            for one in found["datasets"]
        ),
        claims=statements("claims", "what"),
        trainings=statements("trainings", "dataset"),
        madlib=statements("madlib", "method"),
        libraries=statements("libraries", "library"),
    )
