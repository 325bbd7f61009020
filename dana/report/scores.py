"""How good a model is on its own rows: what `dana_evaluate` says, and what is drawn of labels and predictions.

In: a session, a `StoredModel`. Out: `Scores`, or why there are none. It reads what the model was trained on, as it is
now, and nothing of another role's model: a table's, a query's and a filter's text is somebody's, and would run as who
reads (docs/security.md). The server makes the curves; what it sends does not grow with the table.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import sql

from dana.report.history import Run
from dana.report.stored import StoredModel
from dana.session.calls import value
from dana.session.notices import Messages

MAX_POINTS = 200
"""Of a curve, about; and half of the pairs of a scatter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """How many rows of each class are predicted to be positive from a threshold on."""

    threshold: float
    positive: int
    negative: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """Rows of two classes by their predictions.

    Attributes
    ----------
    points
        From the largest prediction to the smallest.
    positives, negatives
        Rows of each class.
    least
        The negative class: 0 or -1.
    """

    points: tuple[Point, ...]
    positives: int
    negatives: int
    least: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """An evaluation.

    Attributes
    ----------
    metrics
        By name, as `dana_evaluate` gives them.
    part
        ``test`` where they are of rows that the training left out, else ``all``.
    threshold
        Least prediction that counts as positive, of two classes.
    ranking
        For two classes.
    pairs
        Label and prediction, for numbers; every so many-th row.
    """

    metrics: dict[str, Any]
    part: str
    threshold: float | None = None
    ranking: Ranking | None = None
    pairs: tuple[tuple[float, float], ...] = ()


def read_scores(
    session: psycopg.Connection[Any], run: Run, model: StoredModel | None, threshold: float | None = None
) -> Scores | str:
    """Evaluate one's own model on the rows that its training left out, or if it did not, on those that it read.

    Returns
    -------
    Where there is nothing to see, the reason in sentences.
    """
    if model is None:
        return "The model is gone, or has another name now, or is not yours to read. So it cannot be evaluated."
    if not model.metadata["labels"]:
        return "The rule has no label to compare with, so there are no metrics of it."
    if not model.own:
        return (
            "Metrics are made of the model's rows, and its table, query and filter are its owner's text, which would "
            f"run as you. So only the owner sees them here. As {run.owner}: dana report {run.id}. "
            f"If you may read the rows: dana evaluate '{model.reference}' --source TABLE"
        )
    try:
        with session.transaction():
            # refuses what is not the caller's own, once more, and filters that are more than a condition
            metrics = value(session, "dana_evaluate", {"model": model.reference, "threshold": threshold})
            return _scores(session, run, model, metrics, threshold)
    except psycopg.Error as error:
        if error.sqlstate is None or error.sqlstate[:2] in ("57", "08"):  # cancelled, or the session is gone
            raise
        return f"It could not be evaluated: {error.diag.message_primary}."


def _scores(
    session: psycopg.Connection[Any],
    run: Run,
    model: StoredModel,
    metrics: dict[str, Any],
    threshold: float | None,
) -> Scores:
    part = metrics["part"]
    shown = {name: each for name, each in metrics.items() if name not in ("model", "version", "part")}
    if shown.get("auc") is not None:
        ranking = _ranking(session, model, part)
        usual = 0.0 if ranking.least < 0 or model.metadata["predicts"] == "score" else 0.5
        at = usual if threshold is None else threshold
        return Scores(metrics=shown, part=part, threshold=at, ranking=ranking)
    numbers = "confusion" not in shown and model.metadata["predicts"] == "number"
    pairs = tuple(_rows(session, PAIRS, model, part)) if numbers else ()
    return Scores(metrics=shown, part=part, pairs=pairs)


# operators have operands of their declared types, so that no other of the name fits better
SCORED = """
WITH s AS MATERIALIZED (
    SELECT {label} AS y, dana.dana_predict(%(model)s::pg_catalog.text, r.*)::pg_catalog.float8 AS p
    FROM {rows} AS r WHERE {condition}
), k AS (
    SELECT s.y, s.p FROM s
    WHERE s.y OPERATOR(pg_catalog.>) '-Infinity'::float8 AND s.y OPERATOR(pg_catalog.<) 'Infinity'::float8
        AND s.p OPERATOR(pg_catalog.>) '-Infinity'::float8 AND s.p OPERATOR(pg_catalog.<) 'Infinity'::float8
)
"""

RANKING = """, c AS (
    SELECT k.p, k.y, pg_catalog.row_number() OVER (ORDER BY k.p DESC) AS n, pg_catalog.count(*) OVER () AS rows,
        pg_catalog.count(*) FILTER (WHERE k.y OPERATOR(pg_catalog.=) '1'::float8) OVER w AS tp,
        pg_catalog.count(*) FILTER (WHERE k.y OPERATOR(pg_catalog.<>) '1'::float8) OVER w AS fp,
        pg_catalog.count(*) FILTER (WHERE k.y OPERATOR(pg_catalog.=) '1'::float8) OVER () AS positives,
        pg_catalog.min(k.y) OVER () AS least
    FROM k WINDOW w AS (ORDER BY k.p DESC)
), t AS (
    SELECT c.*, pg_catalog.mod(c.n, GREATEST(pg_catalog.div(c.rows, %(points)s)::bigint, '1'::bigint)) AS by_rows,
        pg_catalog.mod(c.tp, GREATEST(pg_catalog.div(c.positives, %(points)s)::bigint, '1'::bigint)) AS by_positives
    FROM c
)
SELECT DISTINCT t.p, t.tp, t.fp, t.positives, t.rows, t.least FROM t
WHERE t.by_rows OPERATOR(pg_catalog.=) '0'::bigint OR t.n OPERATOR(pg_catalog.=) t.rows
    OR t.y OPERATOR(pg_catalog.=) '1'::float8 AND t.by_positives OPERATOR(pg_catalog.=) '0'::bigint
ORDER BY 1 DESC
"""

PAIRS = """, c AS (
    SELECT k.y, k.p, pg_catalog.row_number() OVER () AS n, pg_catalog.count(*) OVER () AS rows FROM k
)
SELECT c.y, c.p FROM c
WHERE pg_catalog.mod(c.n, GREATEST(pg_catalog.div(c.rows, %(points)s)::bigint, '1'::bigint)) OPERATOR(pg_catalog.=)
    '0'::bigint
"""


def _ranking(session: psycopg.Connection[Any], model: StoredModel, part: str) -> Ranking:
    found = _rows(session, RANKING, model, part)
    positives, rows, least = found[0][3:]
    points = tuple(Point(threshold=p, positive=tp, negative=fp) for p, tp, fp, *_ in found)
    return Ranking(points=points, positives=positives, negatives=rows - positives, least=least)


def _rows(session: psycopg.Connection[Any], what: str, model: StoredModel, part: str) -> list[tuple[Any, ...]]:
    """Rows of a statement over the model's labels and predictions; the metadata are of the caller's own model."""
    kept = model.metadata
    # not r.name: without such a column that calls a function of the name
    label = _literally(sql.Identifier(kept["labels"][0]).as_string(session))
    number = sql.SQL(
        "dana.dana_class({}, %(classes)s::pg_catalog.text[])" if kept.get("classes") else "dana.dana_number({})"
    )
    if kept.get("query"):
        rows: sql.Composable = sql.SQL("({}\n)").format(_literally(kept["query"]))
    else:
        rows = _literally(session.execute("SELECT %s::regclass::text", (kept["source"],)).fetchall()[0][0])
    condition = sql.SQL("({}\n)").format(_literally(kept.get("filter") or "true"))
    if part == "test":
        key = [one["column"] for one in kept.get("test_key", [{"column": "ctid"}])]
        condition += sql.SQL(
            " AND dana.dana_holdout_key(%(part)s::pg_catalog.float8, %(seed)s::pg_catalog.int4, {})"
        ).format(_literally(sql.SQL(", ").join(map(sql.Identifier, key)).as_string(session)))
    statement = sql.SQL(SCORED + what).format(label=number.format(label), rows=rows, condition=condition)
    values = {"model": model.reference, "points": MAX_POINTS, "classes": kept.get("classes")}
    # with parameters, so that the server takes one statement and no more
    with Messages(session):
        return session.execute(statement, values | {"part": kept.get("test_size"), "seed": kept.get("seed")}).fetchall()


def _literally(text: str) -> sql.SQL:
    """Text of the server's as a part of a statement with parameters."""
    return sql.SQL(text.replace("%", "%%"))
