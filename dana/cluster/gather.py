"""One table from its shards: pages of all of them in fixed turn.

In: a session on the server that trains, and `Shard`s. Out: a temporary table there with the rows of all, in an order
that follows from the shards' numbers alone: `PAGES` pages of each in turn, or `ROWS` rows. So its models are those of
one server that has these pages, and what precedes the first epoch (classes, categories, statistics, splits, the order
of the rows) needs no second implementation.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import islice

import psycopg
from psycopg import sql

from dana.cluster.agreed import PAGES
from dana.cluster.shards import Look, Shard, check_alike, opened
from dana.records import Gathered
from dana.session.notices import repeat
from dana.session.tables import HEADER, TRAILER

ROWS = 4096
"""Rows of a shard in its turn, where only rows can be had."""

FIELD = 2 + 4
"""Bytes before the value in a row of one column: the number of columns, the length."""

TEXT = 25
"""The OID of type text (catalog/pg_type.dat)."""

TIMEOUT = 60.0
"""Seconds without a message after which a shard is lost."""


def gather(
    session: psycopg.Connection,
    table: str,
    shards: Sequence[str],
    *,
    into: str,
    timeout: float = TIMEOUT,
    kept: bool = True,
) -> str:
    """Make a temporary table of the rows that ``table`` has on all shards; all of it, or none after an error.

    Parameters
    ----------
    table
        Name of the table on each shard, as SQL writes it.
    shards
        Connection strings; their order numbers the shards.
    into
        Name of the temporary table, unquoted.
    kept
        Whether it is for more than one training, which needs the index of its primary key.

    Returns
    -------
    str
        Its name, as SQL writes it.

    Raises
    ------
    UsageError
        There are none, or they are not alike; the message names shard and column.
    ShardError
        An error of one shard, or none of its messages for ``timeout`` seconds; the message names shard and server.
    psycopg.Error
        An error of the server that trains.
    """
    made = sql.Identifier("pg_temp", into)
    with opened(shards, table, timeout) as parts, session.transaction():
        looks = [shard.look() for shard in parts]
        check_alike(parts, looks)
        types = create_like(session, made, looks[0])
        taken = _take_pages(session, made, parts, looks) if _has_alike_pages(session, looks, types) else None
        if taken is None:
            taken = take_rows(session, made, parts, looks[0], types)
        _say_when(looks)
        if not _record(session, made, parts, looks, taken, () if kept else looks[0].key):
            add_key(session, made, looks[0].key)
        return made.as_string(session)


TYPE_HERE = """
SELECT pg_catalog.format_type(t.oid, %(modifier)s) FROM pg_catalog.pg_type AS t
JOIN pg_catalog.pg_roles AS r ON r.oid OPERATOR(pg_catalog.=) t.typowner
WHERE t.oid OPERATOR(pg_catalog.=) COALESCE(%(oid)s::pg_catalog.oid, pg_catalog.to_regtype(%(name)s)::pg_catalog.oid)
    AND (r.rolsuper OR r.rolname OPERATOR(pg_catalog.=) CURRENT_USER)
"""
"""The leader's name for a shard's type: shards are not trusted, and types of other roles may run functions here."""


def create_like(session: psycopg.Connection, made: sql.Identifier, look: Look) -> dict[str, str]:
    """Make a temporary table with a shard's columns; their types here, or text."""
    types = {}
    for column in look.columns:
        wanted = {"oid": column.builtin, "name": None if column.enum else column.type, "modifier": column.modifier}
        found = session.execute(TYPE_HERE, wanted).fetchone()
        types[column.name] = found[0] if found else "text"
    columns = (sql.SQL("{} {}").format(sql.Identifier(name), sql.SQL(type_)) for name, type_ in types.items())
    session.execute(sql.SQL("CREATE TEMPORARY TABLE {} ({})").format(made, sql.SQL(", ").join(columns)))
    return types


def _has_alike_pages(session: psycopg.Connection, looks: Sequence[Look], types: dict[str, str]) -> bool:
    """Whether pages of the shards mean the same on this server."""
    here = session.execute(
        "SELECT pg_catalog.current_setting('block_size')::int, pg_catalog.current_setting('server_encoding')"
    ).fetchall()[0]
    return all(
        look.pages is not None
        and (look.block_size, look.encoding) == here
        and look.columns == looks[0].columns
        and all(column.builtin is not None for column in look.columns)
        for look in looks
    )


def _take_pages(
    session: psycopg.Connection, made: sql.Identifier, shards: Sequence[Shard], looks: Sequence[Look]
) -> list[int] | None:
    """Append the shards' pages; the number of rows of each. None if a column is of a type that only rows can carry."""
    take = sql.SQL("SELECT dana.dana_take_pages({}, %b)").format(sql.Literal(made.as_string(session)))
    try:
        with session.transaction():
            session.execute(take, (b"",))
    except psycopg.errors.FeatureNotSupported:
        return None
    rows = [0] * len(shards)
    copies = [
        shard.copy(f"SELECT {look.pages}({sql.Literal(shard.table).as_string(session)}, {PAGES})")
        for shard, look in zip(shards, looks, strict=True)
    ]
    for number, row in _in_turn(copies, 1):
        [[count]] = session.execute(take, (row[FIELD:],)).fetchall()
        rows[number] += count
    return rows


def take_rows(
    session: psycopg.Connection,
    made: sql.Identifier,
    shards: Sequence[Shard],
    look: Look,
    types: dict[str, str],
    most: int | None = None,
) -> list[int]:
    """Append rows of the shards, at most `most` of each, in their types' binary format; return each shard's count."""
    # by the type's output function: another role may have created a cast to text
    text = "CASE pg_catalog.num_nulls({0}) WHEN 0 THEN pg_catalog.format('%s', {0}) END"
    wanted = (text if types[column.name] == "text" and column.builtin != TEXT else "{0}" for column in look.columns)
    values = sql.SQL(", ").join(
        sql.SQL(each).format(sql.Identifier(column.name)) for each, column in zip(wanted, look.columns, strict=True)
    )
    limit = "" if most is None else f" LIMIT {most}"
    copies = [shard.copy(f"SELECT {values.as_string(session)} FROM {shard.table}{limit}") for shard in shards]
    rows = [0] * len(shards)
    with session.cursor().copy(sql.SQL("COPY {} FROM STDIN (FORMAT binary, FREEZE)").format(made)) as into:
        into.write(HEADER)
        for number, row in _in_turn(copies, ROWS):
            into.write(row)
            rows[number] += 1
        into.write(TRAILER)
    return rows


def _in_turn(copies: Sequence[Iterator[memoryview]], most: int) -> Iterator[tuple[int, memoryview]]:
    """The rows of all with their copies' numbers, at most so many of each in its turn, until the last has ended."""
    left = list(enumerate(copies))
    while left:
        going = []
        for number, copy in left:
            count = 0
            for row in islice(copy, most):
                yield number, row
                count += 1
            if count == most:
                going.append((number, copy))
        left = going


def _say_when(looks: Sequence[Look]) -> None:
    """Say how far apart the snapshots were taken."""
    apart = (looks[-1].snapshot - looks[0].snapshot).total_seconds()
    repeat([f"NOTICE: the snapshots of {len(looks)} shards were taken within {1000 * apart:.0f} ms"])


def _record(
    session: psycopg.Connection,
    made: sql.Identifier,
    shards: Sequence[Shard],
    looks: Sequence[Look],
    rows: list[int],
    key: Sequence[str],
) -> bool:
    """Record the shards for the metadata of models; return whether it is certain that no two rows have the same key.

    Then trainings take it for the primary key, and it needs no index.
    """
    # as dana_gather() writes it
    gathered: Gathered = {
        "source": shards[0].table,
        "shards": [
            {
                "shard": shard.number,
                "server": shard.server,
                "relation": shard.table,
                "rows": count,
                "snapshot": look.snapshot.isoformat(sep=" "),
            }
            for shard, look, count in zip(shards, looks, rows, strict=True)
        ],
    }
    statement = "SELECT dana.dana_record_shards(%s::regclass, %s, %s::pg_catalog.text[])"
    arguments = (made.as_string(session), json.dumps(gathered), list(key))
    [[distinct]] = session.execute(statement, arguments).fetchall()
    return bool(distinct)


def add_key(session: psycopg.Connection, made: sql.Identifier, key: Sequence[str]) -> None:
    """Give the gathered table the shards' primary key, unless shards have the same keys, which is a warning."""
    if not key:
        return
    columns = sql.SQL(", ").join(map(sql.Identifier, key))
    try:
        with session.transaction():
            session.execute(sql.SQL("ALTER TABLE {} ADD PRIMARY KEY ({})").format(made, columns))
    except psycopg.errors.UniqueViolation:
        repeat(
            [
                f"WARNING: the primary key ({', '.join(key)}) is not unique over the shards: its columns are like any "
                "others; list features without them"
            ]
        )
