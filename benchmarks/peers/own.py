"""A table of the user's as a case: its complete rows, as numbers, in a random order, copied to a table for all peers.

In: a connection, names. Out: a `Case`. The user's table is only read. Its order would be a handicap of those that train
in it, in a table that is sorted by its label say, and not of those that shuffle.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import psycopg
from psycopg import sql

from benchmarks.peers.cases import CENTRES, TASKS, Case
from benchmarks.peers.export import export
from benchmarks.peers.learners import Floats
from benchmarks.peers.stage import registered
from dana.client.connection import Connection
from dana.client.options import TrainOptions
from dana.codesign.size import MAX_WORDS
from dana.errors import UsageError
from dana.session.notices import ServerNotice, ServerWarning
from dana.session.sources import table_of

CLASSES = {"logistic": 2, "linear_svm": 2, "softmax": 10, "mlp": 10}
"""Maximum number of classes of a rule's peers."""
RANK = 10
"""Of a factorisation, the peers' too."""
COLUMNS = """
    SELECT a.attname, coalesce(e.typcategory, t.typcategory) = 'N' OR t.typcategory = 'B', e.oid IS NOT NULL,
        t.typcategory = 'B'
    FROM pg_attribute AS a JOIN pg_type AS t ON t.oid = a.atttypid
        LEFT JOIN pg_type AS e ON e.oid = t.typelem AND t.typcategory = 'A'
    WHERE a.attrelid = %s::regclass AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""

FINITE = "{0}::double precision BETWEEN -1e38 AND 1e38"
FINITE_ARRAY = (
    "pg_catalog.array_length({0}, 1) = {1} AND pg_catalog.array_ndims({0}) = 1"
    " AND (SELECT bool_and(e::double precision BETWEEN -1e38 AND 1e38) FROM pg_catalog.unnest({0}) AS e)"
)
CLASS = "(pg_catalog.array_position((SELECT pg_catalog.array_agg(DISTINCT {0}) FROM {1} WHERE {2}), {0}) - 1)::real"
"""Its number from 0, in their order; a window would bring the rows into that order, too."""


@dataclass(frozen=True, slots=True)
class Column:
    """Whether a column holds numbers (booleans are 0 and 1), is an array, is boolean."""

    number: bool
    array: bool
    boolean: bool

    @property
    def plain(self) -> bool:
        """Whether it is a number."""
        return self.number and not self.array

    def value(self, name: str) -> sql.Composable:
        """An expression of the column that can be cast to a number."""
        return sql.SQL("{}::integer" if self.boolean else "{}").format(sql.Identifier(name))


def own(db: Connection, table: str, rule: str, *, label: str | None, features: Sequence[str] | None) -> Case:
    """The case of a rule on a table; rows with a NULL, a NaN, an infinity or an array of another length are left out.

    Parameters
    ----------
    table
        As SQL would write it.
    label
        Its column, for classes of any type; None for a rule that has none.
    features
        Columns, or one array of numbers; None: those that `dana_train` would choose, as far as they hold numbers.

    Raises
    ------
    UsageError
        The rule has no peers, or the columns are not what it and its peers take.
    psycopg.Error
        The rule cannot be trained on the table.
    """
    session = db.session
    if rule not in TASKS:
        raise UsageError(f"rule {rule!r} has no peers", hint=f"Those that have are {', '.join(TASKS)}.")
    if (label is None) != (rule == "kmeans"):
        wanted = "no label" if rule == "kmeans" else "a label: add --label COLUMN"
        raise UsageError(f"rule {rule!r} takes {wanted}")
    table = table_of(session, table)
    known = {name: Column(*kind) for name, *kind in session.execute(COLUMNS, (table,)).fetchall()}
    if label in (features or ()):
        raise UsageError(f"column {label!r} is the label, and no feature")
    for name in (*(features or ()), *([] if label is None else [label])):
        if name not in known:
            raise UsageError(f"table {table} has no column {name!r}", hint=f"It has {', '.join(known)}.")
        if not (known[name].number or (name == label and rule in CLASSES)):
            raise UsageError(
                f"column {name!r} of table {table} holds no numbers, which the peers need",
                hint="Name columns of numbers with --features.",
            )
    if label is not None and known[label].array:
        raise UsageError(f"column {label!r} of table {table} is an array, and no label")
    trained = list(features or _trained(db, table, rule, label))
    names = [name for name in trained if name in known and known[name].number]
    if not names or (any(known[name].array for name in names) and len(names) > 1):
        raise UsageError("the features must be columns of numbers, or one column that is an array of them")
    width = _length(session, table, names[0]) if known[names[0]].array else None
    complete = _complete(known, names, label, width)
    if label is not None and rule in CLASSES:
        _check_classes(session, table, rule, label, complete, number=known[label].number)
    query, widths = _query(table, known, names, label, width, complete, classes=rule in CLASSES)
    exported = export(session, query, widths)
    rows = len(exported[0])
    if rows == 0:
        raise UsageError(f"table {table} has no row in which all of these columns have numbers")
    order = np.random.default_rng(rows).permutation(rows)
    values = [one[order] for one in exported]
    columns = {"x": values[0]} if width is not None else {f"x{k + 1}": values[k] for k in range(len(names))}
    found = tuple(columns)
    if label is not None:
        columns["y"] = values[-1]
    all_rows = session.execute(sql.SQL("SELECT pg_catalog.count(*) FROM {}").format(sql.SQL(table))).fetchall()[0][0]
    return Case(
        name=table,
        rule=rule,
        columns=columns,
        features=found,
        hyper=_extents(rule, values),
        left_out=max(0, all_rows - rows),
        unused=tuple(name for name in trained if name not in names),
    )


def _trained(db: Connection, table: str, rule: str, label: str | None) -> list[str]:
    """The features of a training that names none, as the server chooses them."""
    with registered(db, rule) as name, warnings.catch_warnings():
        # of what is done to columns; the comparison gets them as they are
        warnings.simplefilter("ignore", ServerNotice)
        warnings.simplefilter("ignore", ServerWarning)
        asked: TrainOptions = {} if label is None else {"label": label}
        return list(db.explain(name, table, format="json", **asked)["features"])


def _length(session: psycopg.Connection[Any], table: str, column: str) -> int:
    """Of the arrays, most of them."""
    query = "SELECT mode() WITHIN GROUP (ORDER BY pg_catalog.array_length({}, 1)) FROM {}"
    found = session.execute(sql.SQL(query).format(sql.Identifier(column), sql.SQL(table))).fetchall()[0][0]
    if not found:
        raise UsageError(f"column {column!r} of table {table} has no array with elements")
    return int(found)


def _complete(
    columns: Mapping[str, Column], features: Sequence[str], label: str | None, width: int | None
) -> sql.Composable:
    """The condition that a row is complete."""
    conditions = [
        sql.SQL(FINITE if width is None else FINITE_ARRAY).format(columns[name].value(name), width) for name in features
    ]
    if label is not None:
        condition = FINITE if columns[label].number else "{} IS NOT NULL"
        conditions.append(sql.SQL(condition).format(columns[label].value(label)))
    return sql.SQL(" AND ").join(conditions)


def _query(
    table: str,
    columns: Mapping[str, Column],
    features: Sequence[str],
    label: str | None,
    width: int | None,
    complete: sql.Composable,
    *,
    classes: bool,
) -> tuple[sql.Composable, list[int | None]]:
    """A query of the complete rows, and its columns' widths."""
    cast = sql.SQL("{}::real" if width is None else "{}::real[]")
    wanted = [cast.format(columns[name].value(name)) for name in features]
    widths = [width] * len(features)
    place = sql.SQL(table)
    if label is not None:
        widths.append(None)
        value = sql.Identifier(label) if classes else columns[label].value(label)
        wanted.append(sql.SQL(CLASS if classes else "{}::real").format(value, place, complete))
    return sql.SQL("SELECT {} FROM {} WHERE {}").format(sql.SQL(", ").join(wanted), place, complete), widths


def _check_classes(
    session: psycopg.Connection[Any], table: str, rule: str, label: str, complete: sql.Composable, *, number: bool
) -> None:
    query = sql.SQL("SELECT pg_catalog.count(DISTINCT {}) FROM {} WHERE {}")
    found = session.execute(query.format(sql.Identifier(label), sql.SQL(table), complete)).fetchall()[0][0]
    most = CLASSES[rule]
    if not 2 <= found <= most:
        few = "2 classes" if most == 2 else f"2 to {most} classes"
        numbers = [one for one in TASKS if number and one not in CLASSES and one != "kmeans"]
        suit = [*(one for one, count in CLASSES.items() if 2 <= found <= count), *numbers]
        raise UsageError(
            f"rule {rule!r} needs a label of {few}, and the column {label!r} has {found:,}",
            hint=f"Name a rule that suits this label with --rule: {', '.join(suit)}." if suit else "",
        )


def _extents(rule: str, values: Sequence[Floats]) -> dict[str, float]:
    if rule == "kmeans":
        return {"k": CENTRES}
    if rule != "lrmf":
        return {}
    if len(values) != 3 or any(one.ndim > 1 or (one != np.floor(one)).any() or one.min() < 0 for one in values[:2]):
        raise UsageError("rule 'lrmf' takes two features, the numbers of a row and of a column, from 0")
    rows, columns = (int(one.max()) + 1 for one in values[:2])
    if RANK * (rows + columns) > MAX_WORDS:
        raise UsageError(
            f"rule 'lrmf' holds at most {MAX_WORDS // RANK:,} rows and columns of a matrix; they are numbered up to "
            f"{rows - 1:,} and {columns - 1:,}",
            hint="Number them anew, as with dense_rank().",
        )
    return {"m": rows, "n": columns, "k": RANK}
