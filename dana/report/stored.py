"""The stored model of a run: its coefficients and its metadata.

In: a session and a `Run`. Out: a `StoredModel`. It only reads the extension's tables, as `dana.report.history` does.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import psycopg
from numpy.typing import NDArray
from psycopg.rows import dict_row

from dana.records import Metadata
from dana.report.history import Run
from dana.session.calls import lines


@dataclass(frozen=True, slots=True, kw_only=True)
class Standardised:
    """A column that the model standardises: (value - mean) / divisor."""

    column: str
    mean: float
    divisor: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """The coefficients of a column.

    Attributes
    ----------
    coefficients
        In the column's own units, one for each class, or one.
    effect
        The largest coefficient times the column's divisor, comparable between columns. None for a column that is not
        standardised.
    """

    name: str
    coefficients: tuple[float, ...]
    effect: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredModel:
    """A row of dana.model.

    Attributes
    ----------
    reference
        Qualified name and version, valid for every role.
    own
        Whether the reader is the owner itself, not a member of the owner's role or a superuser.
    classes
        Names of the classes with coefficients of their own; empty for a single sum.
    intercepts
        One for each class, or one.
    terms
        The heaviest first.
    """

    reference: str
    own: bool
    comment: str | None
    metadata: Metadata
    standardised: tuple[Standardised, ...]
    classes: tuple[str, ...]
    intercepts: tuple[float, ...]
    terms: tuple[Term, ...]


# excludes a model that was renamed, or created later under the name of a dropped one
MODEL = """
SELECT pg_catalog.concat(m.owner::text, '.', m.name, '@', m.version) AS reference,
    m.owner::oid OPERATOR(pg_catalog.=) c.oid AS own, m.comment, m.metadata
FROM dana.run AS r
JOIN dana.model AS m ON m.owner::oid OPERATOR(pg_catalog.=) r.owner::oid AND m.name OPERATOR(pg_catalog.=) r.model
    AND m.version = r.model_version AND m.rule = r.rule AND m.created <= r.started + '1 second'::interval
JOIN pg_catalog.pg_roles AS c ON c.rolname = CURRENT_USER
WHERE r.id = %s::bigint AND NOT EXISTS (
    SELECT FROM dana.run AS l WHERE l.owner::oid OPERATOR(pg_catalog.=) r.owner::oid
        AND l.model OPERATOR(pg_catalog.=) r.model AND l.model_version = r.model_version AND l.id > r.id)
"""


def read_model(session: psycopg.Connection, run: Run) -> StoredModel | None:
    """The model of a run; None if it was dropped or renamed, or the reader may not read it."""
    with session.cursor(row_factory=dict_row) as cursor:
        found = cursor.execute(MODEL, (run.id,)).fetchone()
    if found is None:
        return None
    asked = {"model": found["reference"], "version": None}
    values = {name: np.asarray(each, float) for name, _, each in lines(session, "dana_parameters", asked)}
    learnt: dict[str | None, dict[str, float]] = {}
    for one, term, coefficient, *_ in lines(session, "dana_coefficients", asked):
        # a dict keeps the order in which the server lists classes and terms
        learnt.setdefault(one, {})[term] = coefficient
    # None is the key of a single sum
    classes = tuple(str(one) for one in learnt if one is not None)
    sums = list(learnt.values())
    columns = [name for name in sums[0] if name != INTERCEPT] if sums else []
    standardised = _standardised(found["metadata"], columns, values)
    divisors = {one.column: one.divisor for one in standardised}
    terms = (_term(name, [one[name] for one in sums], divisors.get(name)) for name in columns)
    return StoredModel(
        **found,
        standardised=standardised,
        classes=classes,
        intercepts=tuple(one[INTERCEPT] for one in sums),
        terms=tuple(sorted(terms, key=lambda one: -abs(one.effect or max(one.coefficients, key=abs)))),
    )


INTERCEPT = "(intercept)"


def _term(name: str, coefficients: list[float], divisor: float | None) -> Term:
    largest = max(coefficients, key=abs)
    return Term(name=name, coefficients=tuple(coefficients), effect=None if divisor is None else largest * divisor)


def _standardised(
    metadata: Metadata, terms: list[str], values: dict[str, NDArray[np.float64]]
) -> tuple[Standardised, ...]:
    """The columns of each input with a stored mean and scale, by name if known."""
    found = []
    for parameter, means in values.items():
        name = parameter.removesuffix(".mean")
        scales = values.get(f"{name}.scale")
        # only pairs of a mean and a scale of equal shapes are a standardisation
        if (
            name == parameter
            or scales is None
            or scales.shape != means.shape
            or not (means.any() or (scales != 1).any())
        ):
            continue  # standardize => false leaves 0 and 1
        known = (terms, metadata.get("encoded") or (), metadata["features"])
        numbered = [f"{name}[{k}]" for k in range(1, means.size + 1)]
        columns = next((names for names in known if len(names) == means.size), numbered)
        # the model stores the factor; a report shows what the column is divided by
        divisors = np.divide(1.0, scales, out=np.full_like(scales, np.inf), where=scales != 0)
        found += [
            Standardised(column=str(column), mean=float(mean), divisor=float(divisor))
            for column, mean, divisor in zip(columns, means, divisors, strict=True)
        ]
    return tuple(found)
