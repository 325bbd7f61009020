"""The shards of a partitioned table: partitions on foreign servers (postgres_fdw), and those of this server.

In: a session, a partitioned table. Out: `Part`s, by name of the partition, so that another partition does not renumber
those before it in the alphabet. Connection strings come from the options of server and user mapping, which the role of
the session must be allowed to see.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from dana.errors import UsageError

PARTITIONS = """
SELECT c.oid::pg_catalog.regclass::text, c.relkind = 'f', w.fdwname::text, s.srvname::text, m.umid IS NOT NULL,
    pg_catalog.array_to_json(COALESCE(s.srvoptions, '{}') || COALESCE(m.umoptions, '{}')),
    pg_catalog.array_to_json(COALESCE(f.ftoptions, '{}')), n.nspname::text, c.relname::text
FROM pg_catalog.pg_partition_tree(%s::pg_catalog.regclass) AS t JOIN pg_catalog.pg_class AS c ON c.oid = t.relid
JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
LEFT JOIN pg_catalog.pg_foreign_table AS f ON f.ftrelid = c.oid
LEFT JOIN pg_catalog.pg_foreign_server AS s ON s.oid = f.ftserver
LEFT JOIN pg_catalog.pg_foreign_data_wrapper AS w ON w.oid = s.srvfdw
LEFT JOIN LATERAL (SELECT u.umid, u.umoptions FROM pg_catalog.pg_user_mappings AS u WHERE u.srvid = s.oid
    AND (u.umuser = 0 OR u.usename = CURRENT_USER) ORDER BY u.umuser DESC LIMIT 1) AS m ON true
WHERE t.isleaf AND t.parentrelid IS NOT NULL ORDER BY n.nspname COLLATE "C", c.relname COLLATE "C"
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Where a shard is: a server, and the name of its table there, as SQL writes it."""

    dsn: str
    table: str


def partitions(session: psycopg.Connection, table: str) -> list[Part]:
    """The partitions of a table, by name.

    Raises
    ------
    UsageError
        It has none; or one is on a server of another foreign-data wrapper, or one that the role has no mapping for, or
        its options do not say where it is.
    """
    rows = session.execute(PARTITIONS, (table,)).fetchall()
    if not rows:
        raise UsageError(f"{table} has no partitions", hint="List the shards' connection strings instead.")
    parts = []
    for name, foreign, wrapper, server, mapped, connection, options, schema, relation in rows:
        if not foreign:
            # the session's own parameters, with the password, which `dsn` leaves out
            own = make_conninfo(
                session.info.dsn, **({"password": session.info.password} if session.info.password else {})
            )
            parts.append(Part(dsn=own, table=sql.Identifier(schema, relation).as_string(session)))
            continue
        if wrapper != "postgres_fdw":
            raise UsageError(f"partition {name} is on server {server} of {wrapper}; expected postgres_fdw")
        if not mapped:
            raise UsageError(
                f"partition {name}: you have no user mapping for server {server}",
                hint=f"CREATE USER MAPPING FOR CURRENT_USER SERVER {server} OPTIONS (user '…', password '…')",
            )
        given, there = _options(connection), _options(options)
        missing = [] if given.keys() & {"host", "hostaddr", "service"} else ["host"]
        missing += [] if given.keys() & {"user", "service"} else ["user"]
        if missing:
            raise UsageError(
                f"partition {name}: the options of server {server} and its user mapping that you may see have no "
                + " and no ".join(missing),
                hint="A client needs both: what the server leaves to its own defaults is not known there.",
            )
        parts.append(
            Part(
                dsn=make_conninfo(**given),
                table=sql.Identifier(there.get("schema_name", schema), there.get("table_name", relation)).as_string(
                    session
                ),
            )
        )
    return parts


def _options(texts: list[str]) -> Mapping[str, str]:
    """Options of libpq among those of a server, a mapping or a table; a table has none but where it is."""
    known = {each.keyword.decode() for each in psycopg.pq.Conninfo.get_defaults()} | {"schema_name", "table_name"}
    pairs = (text.split("=", 1) for text in texts)
    return {name: value for name, value in pairs if name in known}
