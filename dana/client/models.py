"""The models of a server: their list, their metrics, and their export for other software.

In: a session. Out: rows, or a file's bytes.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

import psycopg
from psycopg.rows import class_row

from dana.errors import UsageError
from dana.metrics import BY_NAME
from dana.records import Exported, Metrics
from dana.session.calls import value
from dana.session.results import Rows

FORMATS = ("json", "onnx", "pmml")

# the reader may be a superuser: qualified operators cannot resolve to another role's operator of the same name
MODELS = """
SELECT CASE WHEN m.owner::oid OPERATOR(pg_catalog.=) c.oid THEN m.name
        ELSE pg_catalog.concat(m.owner::text, '.', m.name) END AS name,
    m.version, m.version OPERATOR(pg_catalog.=) COALESCE((SELECT a.version FROM dana.model AS a
        WHERE a.owner::oid OPERATOR(pg_catalog.=) m.owner::oid AND a.name OPERATOR(pg_catalog.=) m.name AND a.active),
        (SELECT pg_catalog.max(a.version) FROM dana.model AS a
        WHERE a.owner::oid OPERATOR(pg_catalog.=) m.owner::oid AND a.name OPERATOR(pg_catalog.=) m.name)) AS active,
    m.rule, COALESCE(m.metadata ->> 'source'::text, 'a query') AS source, m.created,
    r.id AS run, r.epochs, r.loss, r.wall_seconds, m.comment
FROM dana.model AS m
JOIN pg_catalog.pg_roles AS c ON c.rolname = CURRENT_USER
LEFT JOIN LATERAL (
    SELECT * FROM dana.run AS r WHERE r.owner::oid OPERATOR(pg_catalog.=) m.owner::oid
        AND r.model OPERATOR(pg_catalog.=) m.name AND r.model_version = m.version ORDER BY r.id DESC LIMIT 1
) AS r ON true
WHERE %(name)s::text IS NULL OR m.name = %(name)s::text
ORDER BY m.created DESC, m.name, m.version DESC
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A version of a model.

    Attributes
    ----------
    name
        As SQL refers to it: with its owner, if that is another role.
    active
        Whether the name without a version refers to this one: chosen by ``dana_activate_model``, else the last.
    source
        Table that it was trained on.
    run, epochs, loss, wall_seconds
        Of its training; None if the history no longer has the run, or the model was renamed.
    metric
        The requested metric; None if it cannot be computed.
    part
        The rows that were evaluated: ``test`` if the training left some out, else ``all``, including those that it was
        trained on.
    """

    name: str
    version: int
    active: bool
    rule: str
    source: str
    created: datetime
    run: int | None
    epochs: int | None
    loss: float | None
    wall_seconds: float | None
    comment: str | None
    metric: float | None = None
    part: str | None = None


def read_models(session: psycopg.Connection, name: str | None = None, metric: str | None = None) -> Rows[Model]:
    """See `dana.client.connection.Connection.models`."""
    with session.cursor(row_factory=class_row(Model)) as cursor:
        found = cursor.execute(MODELS, {"name": name}).fetchall()
    if metric is None:
        return Rows(found)
    evaluated = [_evaluated(session, model) for model in found]
    metrics = [_numbers(each) for each in evaluated]
    # with no metrics at all the models have no labels; then none is unknown
    if any(metrics) and not any(metric in each for each in metrics):
        known = sorted({name for each in metrics for name in each})
        raise UsageError(f"no model has the metric {metric}", hint=f"There are {', '.join(known)}.")
    scored = [
        replace(model, metric=each.get(metric), part=of.get("part") if metric in each else None)
        for model, of, each in zip(found, evaluated, metrics, strict=True)
    ]
    sign = 1 if metric in BY_NAME and BY_NAME[metric].less else -1
    # models without the metric go last in either direction
    return Rows(sorted(scored, key=lambda one: (one.metric is None, sign * (one.metric or 0))))


def _evaluated(session: psycopg.Connection, model: Model) -> Metrics:
    """The metrics of `dana_evaluate`; none of models without labels and of other roles' models."""
    try:
        with session.transaction():  # a savepoint: an error of one model must not end the caller's transaction
            # with the version: the name alone is that of the active one
            found: Metrics = value(session, "dana_evaluate", {"model": f"{model.name}@{model.version}"})
            return found
    except psycopg.Error as error:
        if error.sqlstate is None or error.sqlstate[:2] in ("57", "08"):  # cancelled, or the session is gone
            raise
        return {}


def _numbers(found: Metrics) -> dict[str, float]:
    numbers = {name: float(each) for name, each in found.items() if isinstance(each, int | float)}
    # each == each: a NaN is no number to rank by
    return {name: each for name, each in numbers.items() if name not in ("version", "rows") and each == each}


def format_of(file: Path | None) -> str:
    """The format by the suffix of a file's name; JSON without one.

    Raises
    ------
    UsageError
        The suffix is unknown.
    """
    suffix = "" if file is None else file.suffix[1:].lower()
    if suffix and suffix not in FORMATS:
        raise UsageError(
            f"the suffix of {file} must be .{', .'.join(FORMATS)}", hint="Or choose the format with --format."
        )
    return suffix or "json"


def read_exported(session: psycopg.Connection, model: str) -> Exported:
    """A model as ``dana_export_model`` returns it."""
    found: Exported = value(session, "dana_export_model", {"model": model})
    return found


def encode_model(exported: Exported, format: str) -> bytes:
    """An exported model in one of `FORMATS`."""
    if format == "json":
        return (json.dumps(exported, indent=1) + "\n").encode()
    # imported here: JSON needs no encoder
    from dana.interchange.stored import read_model

    stored = read_model(exported)
    if format == "onnx":
        from dana.interchange.onnx_graph import onnx_model

        return onnx_model(stored)
    if format == "pmml":
        from dana.interchange.pmml import pmml

        return pmml(stored).encode()
    raise UsageError(f"there is no format {format!r}", hint=f"There are {', '.join(FORMATS)}.")
