"""The models of a server: which there are, how good they are, and one of them for other software.

In: a session. Out: rows, or a file's bytes.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import psycopg
from psycopg.rows import class_row

from dana.errors import UsageError
from dana.session.calls import value
from dana.session.results import Rows

FORMATS = ("json", "onnx", "pmml")
LESS_IS_BETTER = ("rmse", "mae", "log_loss")

# who looks may be a superuser: operators are PostgreSQL's own, so that nobody else's of that name fits better
MODELS = """
SELECT CASE WHEN m.owner::oid OPERATOR(pg_catalog.=) c.oid THEN m.name
        ELSE pg_catalog.concat(m.owner::text, '.', m.name) END AS name,
    m.version, m.version OPERATOR(pg_catalog.=) COALESCE((SELECT a.version FROM dana.model AS a
        WHERE a.owner::oid OPERATOR(pg_catalog.=) m.owner::oid AND a.name = m.name AND a.active),
        (SELECT pg_catalog.max(a.version) FROM dana.model AS a
        WHERE a.owner::oid OPERATOR(pg_catalog.=) m.owner::oid AND a.name = m.name)) AS active,
    m.rule, COALESCE(m.metadata ->> 'source'::text, 'a query') AS source, m.created,
    r.id AS run, r.epochs, r.loss, r.wall_seconds, m.comment
FROM dana.model AS m
JOIN pg_catalog.pg_roles AS c ON c.rolname = CURRENT_USER
LEFT JOIN LATERAL (
    SELECT * FROM dana.run AS r WHERE r.owner::oid OPERATOR(pg_catalog.=) m.owner::oid AND r.model = m.name
        AND r.model_version = m.version ORDER BY r.id DESC LIMIT 1
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
        As one writes it: that of another role has its owner before it.
    active
        Whether the name alone stands for this version: the one that ``dana_activate_model`` chose, else the last.
    source
        Table that it was trained on.
    run, epochs, loss, wall_seconds
        Of its training; None where the history does not have that any more, or the model was renamed.
    metric
        What was asked for; None where it cannot be had.
    part
        Which rows of its data that is of: ``test`` where the training left some out, else ``all``, those that it was
        trained on among them.
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


def read_models(session: psycopg.Connection[Any], name: str | None = None, metric: str | None = None) -> Rows[Model]:
    """See `dana.client.connection.Connection.models`."""
    with session.cursor(row_factory=class_row(Model)) as cursor:
        found = cursor.execute(MODELS, {"name": name}).fetchall()
    if metric is None:
        return Rows(found)
    judged = [_judged(session, model) for model in found]
    metrics = [_numbers(each) for each in judged]
    if any(metrics) and not any(metric in each for each in metrics):
        known = sorted({name for each in metrics for name in each})
        raise UsageError(f"no model has the metric {metric}", hint=f"There are {', '.join(known)}.")
    scored = [
        replace(model, metric=each.get(metric), part=of.get("part") if metric in each else None)
        for model, of, each in zip(found, judged, metrics, strict=True)
    ]
    sign = 1 if metric in LESS_IS_BETTER else -1
    return Rows(sorted(scored, key=lambda one: (one.metric is None, sign * (one.metric or 0))))


def _judged(session: psycopg.Connection[Any], model: Model) -> dict[str, Any]:
    """What `dana_evaluate` says by default; nothing of models without labels and of other roles' models."""
    try:
        with session.transaction():
            found: dict[str, Any] = value(session, "dana_evaluate", {"model": f"{model.name}@{model.version}"})
            return found
    except psycopg.Error as error:
        if error.sqlstate is None or error.sqlstate[:2] in ("57", "08"):  # cancelled, or the session is gone
            raise
        return {}


def _numbers(found: dict[str, Any]) -> dict[str, float]:
    numbers = {name: float(each) for name, each in found.items() if isinstance(each, int | float)}
    return {name: each for name, each in numbers.items() if name not in ("version", "rows") and each == each}


def format_of(file: Path | None) -> str:
    """The format that the end of a file's name says; JSON where there is none.

    Raises
    ------
    UsageError
        It says no format.
    """
    suffix = "" if file is None else file.suffix[1:].lower()
    if suffix and suffix not in FORMATS:
        raise UsageError(
            f"{file} does not end as a format does: .{', .'.join(FORMATS)}", hint="Or say which with --format."
        )
    return suffix or "json"


def read_exported(session: psycopg.Connection[Any], model: str) -> dict[str, Any]:
    """A model as ``dana_export_model`` gives it."""
    found: dict[str, Any] = value(session, "dana_export_model", {"model": model})
    return found


def encode_model(exported: dict[str, Any], format: str) -> bytes:
    """The same in one of `FORMATS`."""
    if format == "json":
        return (json.dumps(exported, indent=1) + "\n").encode()
    from dana.interchange.stored import read_model

    stored = read_model(exported)
    if format == "onnx":
        from dana.interchange.onnx_graph import onnx_model

        return onnx_model(stored)
    if format == "pmml":
        from dana.interchange.pmml import pmml

        return pmml(stored).encode()
    raise UsageError(f"there is no format {format!r}", hint=f"There are {', '.join(FORMATS)}.")
