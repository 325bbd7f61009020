"""A table of the user's as a case: its complete rows, as numbers, copied to a table that everybody then gets.

In: a session, names. Out: a `Case`. The user's table is only read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import psycopg
from psycopg import sql

from dana.errors import UsageError
from dana.peers.cases import TASKS, Case
from dana.peers.export import export
from dana.peers.learners import Floats
from dana.session.sources import table_of

CLASSES = {"logistic": 2, "linear_svm": 2, "softmax": 10, "mlp": 10}
"""How many a rule's peers tell apart."""
CENTRES = 8
COLUMNS = """
    SELECT a.attname, coalesce(e.typcategory, t.typcategory) = 'N', e.oid IS NOT NULL
    FROM pg_attribute AS a JOIN pg_type AS t ON t.oid = a.atttypid
        LEFT JOIN pg_type AS e ON e.oid = t.typelem AND t.typcategory = 'A'
    WHERE a.attrelid = %s::regclass AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""


def own(
    session: psycopg.Connection[Any], table: str, rule: str, *, label: str | None, features: Sequence[str] | None
) -> Case:
    """The case of a rule on a table; rows with a NULL, NaN or infinity are left out.

    Parameters
    ----------
    table
        As SQL would write it.
    label
        Its column; None for a rule that has none.
    features
        Columns, or one array of numbers; None: all columns of numbers but the label.

    Raises
    ------
    UsageError
        The rule has no peers, or the columns are not what it and its peers take.
    """
    if rule not in TASKS:
        raise UsageError(f"rule {rule!r} has no peers", hint=f"Those that have are {', '.join(TASKS)}.")
    if (label is None) != (rule == "kmeans"):
        wanted = "no label" if rule == "kmeans" else "a label: add --label COLUMN"
        raise UsageError(f"rule {rule!r} takes {wanted}")
    table = table_of(session, table)
    known = {name: (number, array) for name, number, array in session.execute(COLUMNS, (table,)).fetchall()}
    listed = list(features or (name for name, (number, array) in known.items() if number and not array))
    names = [name for name in listed if name != label]
    for name in (*names, *([] if label is None else [label])):
        if name not in known:
            raise UsageError(f"table {table} has no column {name!r}", hint=f"It has {', '.join(known)}.")
        if not known[name][0]:
            raise UsageError(
                f"column {name!r} of table {table} holds no numbers, which the peers need",
                hint="Name columns of numbers with --features.",
            )
    if not names or (any(known[name][1] for name in names) and len(names) > 1):
        raise UsageError("the features must be columns of numbers, or one column that is an array of them")
    width = _length(session, table, names[0]) if known[names[0]][1] else None
    query, widths = _complete(table, names, label, width)
    values = export(session, query, widths)
    if len(values[0]) == 0:
        raise UsageError(f"table {table} has no row in which all of these columns have numbers")
    columns = {"x": values[0]} if width is not None else {f"x{k + 1}": values[k] for k in range(len(names))}
    features = tuple(columns)
    if label is not None:
        columns["y"] = _numbered(values[-1], rule, label)
    return Case(name=table, rule=rule, columns=columns, features=features, hyper=_extents(rule, values))


def _length(session: psycopg.Connection[Any], table: str, column: str) -> int:
    """Of the arrays, most of them."""
    query = "SELECT mode() WITHIN GROUP (ORDER BY pg_catalog.array_length({}, 1)) FROM {}"
    found = session.execute(sql.SQL(query).format(sql.Identifier(column), sql.SQL(table))).fetchall()[0][0]
    if not found:
        raise UsageError(f"column {column!r} of table {table} has no array with elements")
    return int(found)


def _complete(
    table: str, features: Sequence[str], label: str | None, width: int | None
) -> tuple[sql.Composable, list[int | None]]:
    """A query of the rows that are complete, and its columns' widths."""
    wanted, known = [], []
    for name in (*features, *([] if label is None else [label])):
        column = sql.Identifier(name)
        if width is not None and name != label:
            wanted.append(sql.SQL("{}::real[]").format(column))
            known.append(
                sql.SQL(
                    "pg_catalog.array_length({0}, 1) = {1} AND pg_catalog.array_ndims({0}) = 1"
                    " AND (SELECT bool_and(e::double precision BETWEEN -1e38 AND 1e38) FROM pg_catalog.unnest({0}) e)"
                ).format(column, width)
            )
            continue
        wanted.append(sql.SQL("{}::real").format(column))
        known.append(sql.SQL("{}::double precision BETWEEN -1e38 AND 1e38").format(column))
    query = sql.SQL("SELECT {} FROM {} WHERE {}").format(
        sql.SQL(", ").join(wanted),
        sql.SQL(table),
        sql.SQL(" AND ").join(known),
    )
    return query, [*([None] * len(features) if width is None else [width]), *([] if label is None else [None])]


def _numbered(values: Floats, rule: str, label: str) -> Floats:
    """Classes as numbers from 0."""
    most = CLASSES.get(rule)
    if most is None:
        return values
    classes, numbers = np.unique(values, return_inverse=True)
    if not 2 <= len(classes) <= most:
        few = "2 classes" if most == 2 else f"2 to {most} classes"
        raise UsageError(f"rule {rule!r} tells {few} apart, of which the column {label!r} has {len(classes)}")
    return numbers.astype(np.float32)


def _extents(rule: str, values: Sequence[Floats]) -> dict[str, float]:
    if rule == "kmeans":
        return {"k": CENTRES}
    if rule != "lrmf":
        return {}
    if len(values) != 3 or any(one.ndim > 1 or (one != np.floor(one)).any() or one.min() < 0 for one in values[:2]):
        raise UsageError("rule 'lrmf' takes two features, the numbers of a row and of a column, from 0")
    return {"m": float(values[0].max() + 1), "n": float(values[1].max() + 1)}
