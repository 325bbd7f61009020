"""The table and the rule that a comparison makes on a server for a case, and a training on them.

In: a session, a `Case`. Out: a table with its rows, all-visible, and the case's rule; both are dropped in the end.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import psycopg
from psycopg import sql

from benchmarks import stochastic
from benchmarks.peers.cases import MAX_IN_ROW, Case
from dana.client.connection import Connection
from dana.errors import InternalError, UsageError
from dana.session.frames import columns_of
from dana.session.notices import ServerWarning
from dana.session.tables import create_table

TABLE = "dana_bench_rows"
RULE = "dana_bench_rule"
DROP_MODELS = "SELECT dana_drop_model(name) FROM (SELECT DISTINCT name FROM dana.model WHERE name = %s) AS m"


@contextmanager
def registered(db: Connection, rule: str) -> Iterator[str]:
    """A rule by stochastic gradient descent, under the comparison's name, which it gives; dropped in the end."""
    db.create_rule(RULE, stochastic.text(rule))
    try:
        yield RULE
    finally:
        db.drop_rule(RULE)


@contextmanager
def staged(db: Connection, case: Case) -> Iterator[tuple[int, int]]:
    """The case's table and its rule, dropped in the end with the rule's models; gives its pages and their bytes.

    Raises
    ------
    UsageError
        A table is there that has the name of the comparison's.
    """
    session = db.session
    with ExitStack() as made:
        widest = max(values.shape[1] if values.ndim == 2 else 1 for values in case.columns.values())
        try:
            create_table(session, TABLE, columns_of(case.columns), in_row=widest <= MAX_IN_ROW, replace=False)
        except psycopg.errors.DuplicateTable:
            raise UsageError(
                f"there is a table {TABLE} already, perhaps of a comparison that was killed", hint=f"DROP TABLE {TABLE}"
            ) from None
        made.callback(session.execute, sql.SQL("DROP TABLE {}").format(sql.Identifier(TABLE)))
        session.execute(sql.SQL("VACUUM (FREEZE, ANALYZE) {}").format(sql.Identifier(TABLE)))
        made.enter_context(registered(db, case.rule))
        made.callback(session.execute, DROP_MODELS, (RULE,))
        session.execute("SET max_parallel_workers_per_gather = 0")
        made.callback(session.execute, "RESET max_parallel_workers_per_gather")
        yield session.execute(
            "SELECT pg_relation_size(%s) / s, s FROM (SELECT current_setting('block_size')::int AS s) AS b", (TABLE,)
        ).fetchall()[0]


def train(db: Connection, case: Case, passes: int, *, table: str = TABLE) -> None:
    """Train on the staged table, or another of the case's rows, from the start.

    Raises
    ------
    psycopg.Error
        A statement fails.
    """
    asked: dict[str, Any] = {"label": "y"} if "y" in case.columns else {}
    if case.hyper:
        asked["hyper"] = case.hyper
    # the rows as they lie, as the others take them
    asked["shuffle"] = False
    # all passes, and the model of the last, as the others have it
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ServerWarning)  # that so few rows, or passes, teach nothing
        result = db.train(RULE, table, model=RULE, features=list(case.features), epochs=passes, patience=0, **asked)
    if result.epochs != passes or result.tuples != case.rows:
        raise InternalError(f"{result.epochs} epochs of {result.tuples} rows, not {passes} of {case.rows}")
