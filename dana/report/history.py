"""A run as the database remembers it.

In: a session and the run's number. Out: a `Run`. It reads tables and the catalog, and writes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

import psycopg
from psycopg import sql
from psycopg.rows import dict_row

from dana.errors import UsageError
from dana.storage.schema import Attribute
from dana.storage.types import ARRAYS


@dataclass(frozen=True, slots=True, kw_only=True)
class Epoch:
    """A row of dana.epoch."""

    epoch: int
    loss: float | None
    tuples: int
    cycles: int | None
    seconds: float
    counters: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A row of dana.run with its epochs, and what is still there of its rule and its table.

    Attributes
    ----------
    rule
        Text of the rule, or None: it was dropped.
    attributes
        Columns of the table in attnum order, or empty: it was dropped, or is not the reader's to look at.
    metas
        Values of the rule's metas in this run.
    features, labels
        Columns that it read.
    """

    id: int
    model: str
    model_version: int
    udf: str
    source: str
    backend: str
    started: datetime
    wall_seconds: float
    modelled_seconds: float | None
    epochs: int
    converged: bool
    loss: float | None
    tuples: int
    skipped: int
    pages: int
    cycles: int | None
    design: dict[str, Any]
    rule: str | None
    metas: dict[str, float]
    features: tuple[str, ...]
    labels: tuple[str, ...]
    attributes: tuple[Attribute, ...]
    curve: tuple[Epoch, ...]

    @property
    def config(self) -> dict[str, int]:
        """Fields of the machine; empty for a run of the interpreter."""
        config: dict[str, int] = self.design.get("config", {})
        return config

    @property
    def counted(self) -> dict[str, int]:
        """The machine's counters of all epochs together, `cycles` among them; empty where the backend counts none."""
        if not self.curve or any(epoch.cycles is None or not epoch.counters for epoch in self.curve):
            return {}
        names = self.curve[0].counters
        return {
            "cycles": sum(epoch.cycles or 0 for epoch in self.curve),
            **{name: sum(int(epoch.counters[name]) for epoch in self.curve) for name in names},
        }

    @property
    def pages_of_epoch(self) -> int:
        """Pages that each epoch read."""
        return self.pages // max(1, self.epochs)


RUN = """
SELECT r.id, r.model, r.model_version, r.udf, r.source, r.backend, r.started, r.wall_seconds, r.modelled_seconds,
       r.epochs, r.converged, r.loss, r.tuples, r.skipped, r.pages, r.cycles, r.design,
       u.source AS rule, coalesce(m.metadata -> 'hyper', '{}') AS metas
FROM dana.run r
LEFT JOIN dana.udf u ON u.name = r.udf
LEFT JOIN dana.model m ON (m.name, m.version) = (r.model, r.model_version)
WHERE r.id = %s
"""

TABLE = """
SELECT c.oid, c.oid::regclass::text FROM pg_class c
WHERE c.oid = to_regclass(%s) AND has_table_privilege(c.oid, 'SELECT')
"""

ATTRIBUTES = """
SELECT attname, atttypid, format_type(atttypid, atttypmod), attlen, attalign::text, attnotnull, attisdropped,
       attgenerated::text, atthasmissing
FROM pg_attribute WHERE attrelid = %s AND attnum > 0 ORDER BY attnum
"""


def read_run(session: psycopg.Connection[Any], number: int) -> Run:
    """Read a run.

    Raises
    ------
    UsageError
        There is none of that number, or it is somebody else's.
    """
    with session.cursor(row_factory=dict_row) as cursor:
        found = cursor.execute(RUN, (number,)).fetchone()
        if found is None:
            last = session.execute("SELECT max(id) FROM dana.run").fetchone()
            hint = "No run of yours is on record." if last is None or last[0] is None else f"The last is {last[0]}."
            raise UsageError(f"there is no run {number}, or it is somebody else's", hint=hint)
        curve = cursor.execute(
            "SELECT epoch, loss, tuples, cycles, seconds, counters FROM dana.epoch WHERE run = %s ORDER BY epoch",
            (number,),
        ).fetchall()
    design = found["design"]
    features, labels = tuple(design.get("features", ())), tuple(design.get("labels", ()))
    return Run(
        **found,
        features=features,
        labels=labels,
        attributes=_attributes(session, found["source"], {*features, *labels}),
        curve=tuple(Epoch(**row) for row in curve),
    )


def _attributes(session: psycopg.Connection[Any], source: str, used: set[str]) -> tuple[Attribute, ...]:
    table = session.execute(TABLE, (source,)).fetchone()
    if table is None:
        return ()
    oid_of_table, name_of_table = table
    attributes = []
    for name, oid, type_name, length, align, not_null, dropped, generated, missing in session.execute(
        ATTRIBUTES, (oid_of_table,)
    ).fetchall():
        count = _array_length(session, name_of_table, name) if oid in ARRAYS and name in used else None
        attributes.append(
            Attribute(
                name=name,
                type_oid=oid,
                type_name=type_name,
                length=length,
                align=align,
                not_null=not_null,
                dropped=dropped,
                generated=generated,
                has_missing=missing,
                array_length=count,
            )
        )
    return tuple(attributes)


def _array_length(session: psycopg.Connection[Any], table: str, column: str) -> int | None:
    """Elements of the first array that is there. `table` is as the server writes it, quoted where it has to be."""
    statement = sql.SQL("SELECT array_length({0}, 1) FROM {1} WHERE {0} IS NOT NULL LIMIT 1").format(
        sql.Identifier(column), sql.SQL(table)
    )
    row = session.execute(statement).fetchone()
    return None if row is None else row[0]
