"""What a training over the shards of a list would cost: its sizes, from the shards, for `dana.trainer.shard_costs`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from dana.cluster.agreed import SAMPLE
from dana.cluster.gather import add_key, create_like, take_rows
from dana.cluster.shards import check_alike, opened
from dana.errors import UsageError
from dana.records import Plan
from dana.trainer.contract import ShardSizes
from dana.trainer.shard_costs import Cost, costs_over

SIZES = """
SELECT c.reltuples::float8 AS rows,
    pg_catalog.pg_relation_size(c.oid) / pg_catalog.current_setting('block_size')::float8 AS pages
FROM pg_catalog.pg_class AS c WHERE c.oid = {}::pg_catalog.regclass
"""


def costs_of_shards(
    session: psycopg.Connection,
    table: str,
    shards: Sequence[str],
    plan: Callable[[str], Plan],
    *,
    timeout: float,
) -> list[Cost]:
    """The cost of each mode for the shards of a table; rows are those that ANALYZE last counted there.

    Shards whose connection strings have the same host are on one machine, and those without a host on this one.

    Parameters
    ----------
    plan
        Explains the training over a table of the session.

    Raises
    ------
    UsageError
        The shards are not alike, or ANALYZE never ran on one.
    ShardError
        An error of one shard.
    psycopg.Error
        An error of the server that trains.
    """
    made = sql.Identifier("pg_temp", "dana_shards")
    with opened(shards, table, timeout) as parts, session.transaction(force_rollback=True):
        looks = [shard.look() for shard in parts]
        check_alike(parts, looks)
        types = create_like(session, made, looks[0])
        # labels, texts and means are known from rows alone
        take_rows(session, made, parts, looks[0], types, SAMPLE)
        add_key(session, made, looks[0].key)
        found = plan(made.as_string(session))
        sizes = [shard.rows(SIZES, shard.table)[0] for shard in parts]
        for shard, (rows, _) in zip(parts, sizes, strict=True):
            if rows < 0:  # or of a view, which has no row count
                raise UsageError(f"{shard}: the rows of {table} have not been counted", hint="Run ANALYZE on it there.")
    hosts = {str(conninfo_to_dict(dsn).get("host", "/")) for dsn in shards}
    total = ShardSizes(
        count=len(shards),
        hosts=len({"/" if host.startswith("/") else host for host in hosts}),
        rows=sum(rows for rows, _ in sizes),
        pages=sum(pages for _, pages in sizes),
    )
    return costs_over(found, total)
