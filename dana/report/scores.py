"""The metrics of a model on its own rows, and points of labels and predictions to draw.

In: a session, a `StoredModel`. Out: `Scores`, or the reason for none. It reads the current rows of the model's table or
query, and only for the model's owner: with the rights of another reader, the owner's query or filter could do harm
(docs/security.md). The server computes the curves; the size of its answer does not depend on the table.
"""

from __future__ import annotations

from dataclasses import dataclass

import psycopg
from psycopg import sql
from psycopg.rows import TupleRow
from psycopg.types.json import Jsonb

from dana.records import Metrics
from dana.report.history import Run
from dana.report.stored import StoredModel
from dana.session.calls import value
from dana.session.notices import Messages

MAX_POINTS = 200
"""Approximate number of points of a curve; half the number of pairs of a scatter plot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """Numbers of rows of each class with predictions at or above a threshold."""

    threshold: float
    positive: int
    negative: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """Rows of two classes, ordered by prediction.

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
        By name, as `dana_evaluate` returns them.
    part
        ``test`` for held-out rows, else ``all``.
    threshold
        Least prediction that counts as positive, for two classes.
    ranking
        For two classes.
    pairs
        Label and prediction, for numbers; a sample of the rows.
    """

    metrics: Metrics
    part: str
    threshold: float | None = None
    ranking: Ranking | None = None
    pairs: tuple[tuple[float, float], ...] = ()


def read_scores(
    session: psycopg.Connection, run: Run, model: StoredModel | None, threshold: float | None = None
) -> Scores | str:
    """Evaluate the reader's own model on the held-out rows of its training, or without any, on all its rows.

    Returns
    -------
    Scores or str
        If the model cannot be evaluated, the reason in sentences.
    """
    if model is None:
        return "The model cannot be evaluated: it was removed or renamed, or you may not read it."
    if not model.metadata["labels"]:
        return "There are no metrics: the rule has no label."
    if not model.own:
        return (
            "Only the model's owner sees metrics here: its table, query and filter are the owner's text, and an "
            f"evaluation would run it with your rights. As {run.owner}, run: dana report {run.id}. "
            f"If you may read the rows, run: dana evaluate '{model.reference}' --source TABLE"
        )
    try:
        # a savepoint: an error of the evaluation must not end the reader's transaction
        with session.transaction():
            # checks the owner again, and rejects a filter that is more than a condition
            metrics = value(session, "dana_evaluate", {"model": model.reference, "threshold": threshold})
            return _scores(session, run, model, metrics, threshold)
    except psycopg.Error as error:
        if error.sqlstate is None or error.sqlstate[:2] in ("57", "08"):  # cancelled, or the session is gone
            raise
        return f"It could not be evaluated: {error.diag.message_primary}."


def _scores(
    session: psycopg.Connection,
    run: Run,
    model: StoredModel,
    metrics: Metrics,
    threshold: float | None,
) -> Scores:
    part = metrics["part"]
    shown = metrics.copy()
    del shown["model"], shown["version"], shown["part"]
    if shown.get("auc") is not None:
        ranking = _ranking(session, model, part)
        # as in pg_extension/src/predict/metrics.c
        usual = 0.0 if ranking.least < 0 or model.metadata["predicts"] == "score" else 0.5
        at = usual if threshold is None else threshold
        return Scores(metrics=shown, part=part, threshold=at, ranking=ranking)
    numbers = "confusion" not in shown and model.metadata["predicts"] == "number"
    pairs = tuple(_rows(session, PAIRS, model, part)) if numbers else ()
    return Scores(metrics=shown, part=part, pairs=pairs)


# operands are cast to the operators' declared types, so that no other operator of that name fits better
# MATERIALIZED: each row is predicted once, not for every reference. NaN is larger than Infinity in PostgreSQL, so the
# conditions leave it out, too
SCORED = """
WITH s AS MATERIALIZED (
    SELECT {label} AS y, dana.dana_predict_double(%(model)s::pg_catalog.text, {row}.*) AS p
    FROM {rows} WHERE {condition}
), k AS (
    SELECT s.y, s.p FROM s
    WHERE s.y OPERATOR(pg_catalog.>) '-Infinity'::float8 AND s.y OPERATOR(pg_catalog.<) 'Infinity'::float8
        AND s.p OPERATOR(pg_catalog.>) '-Infinity'::float8 AND s.p OPERATOR(pg_catalog.<) 'Infinity'::float8
)
"""

# the default frame of an ordered window includes peers: rows with equal predictions are counted together, as a
# threshold takes all of them. Points are spread over the positive rows as well, which may be rare
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


def _ranking(session: psycopg.Connection, model: StoredModel, part: str) -> Ranking:
    found = _rows(session, RANKING, model, part)
    positives, rows, least = found[0][3:]
    points = tuple(Point(threshold=p, positive=tp, negative=fp) for p, tp, fp, *_ in found)
    return Ranking(points=points, positives=positives, negatives=rows - positives, least=least)


def _rows(session: psycopg.Connection, what: str, model: StoredModel, part: str) -> list[TupleRow]:
    """Rows of a statement over the model's labels and predictions; the metadata are of the caller's own model."""
    kept = model.metadata
    # not r.name: without a column of that name it would call a function of that name
    label = _literally(sql.Identifier(kept["labels"][0]).as_string(session))
    number = sql.SQL(
        "dana.dana_class({}, %(classes)s::pg_catalog.text[])" if kept.get("classes") else "dana.dana_number({})"
    )
    query = kept.get("query")
    if query:
        # the line break ends a comment in the query's last line
        row = sql.SQL("r")
        rows: sql.Composable = sql.SQL("({}\n) AS r").format(_literally(query))
    else:
        [[table]] = session.execute("SELECT dana.dana_trained_on(%s)::text", (Jsonb(kept),)).fetchall()
        row = rows = _literally(table)
    condition = sql.SQL("({}\n)").format(_literally(kept.get("filter") or "true"))
    if part == "test":
        condition += sql.SQL(" AND ") + _literally(value(session, "dana_test_rows", {"model": model.reference}))
    statement = sql.SQL(SCORED + what).format(label=number.format(label), row=row, rows=rows, condition=condition)
    values = {"model": model.reference, "points": MAX_POINTS, "classes": kept.get("classes")}
    # with parameters the server accepts only one statement
    with Messages(session):
        return session.execute(statement, values).fetchall()


def _literally(text: str) -> sql.SQL:
    """Text of the server as a part of a statement with parameters."""
    return sql.SQL(text.replace("%", "%%"))
