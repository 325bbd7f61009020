"""A table on several servers: what gathering it takes, and a training on it.

Three databases of the embedded server stand for three servers. Where ``DANA_COORDINATOR`` is a connection string of a
server with the extension and postgres_fdw, which the embedded one has not, the same table is also trained on through
foreign partitions, by rows and by pages.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import NamedTemporaryFile

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from benchmarks.measure import Figure, main, paired_medians
from dana.client.connection import Connection, connect

COORDINATOR = "DANA_COORDINATOR"
ROWS, COLUMNS, SHARDS = 60_000, 54, 3
DATABASES = tuple(f"bench_shard_{number}" for number in range(SHARDS))
REPEATS = 5
MICROSECONDS = 1e6 / (ROWS * SHARDS)
"""A row's microseconds of a second."""


@contextmanager
def shards(db: Connection) -> Iterator[list[str]]:
    """Databases with a table of rows each, and a view of it, which has rows only."""
    columns = ", ".join(f"sin(i * {k})::real AS x{k}" for k in range(1, COLUMNS))
    dsns = [make_conninfo(db.session.info.dsn, dbname=name) for name in DATABASES]
    try:
        for name, dsn in zip(DATABASES, dsns, strict=True):
            db.session.execute(f"DROP DATABASE IF EXISTS {name}")
            db.session.execute(f"CREATE DATABASE {name} TEMPLATE template0")
            with psycopg.connect(dsn, autocommit=True) as shard:
                shard.execute("CREATE EXTENSION dana")
                shard.execute(
                    f"CREATE TABLE bench_rows AS SELECT {columns}, (i % 2)::real AS y FROM generate_series(1, {ROWS}) i"
                )
                shard.execute("CREATE VIEW bench_view AS SELECT * FROM bench_rows")
                shard.execute("VACUUM bench_rows")
        yield dsns
    finally:
        for name in DATABASES:
            db.session.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


def gathering(db: Connection, table: str, dsns: list[str]) -> None:
    """Gather and drop."""
    name = db.gather(table, dsns)
    db.session.execute(f"DROP TABLE {name}")


def copying(dsns: list[str], into: str | None = None) -> None:
    """Receive the same pages as a client of COPY, and write them to a file."""
    with ExitStack() as open_:
        shards = [psycopg.pq.PGconn.connect(dsn.encode()) for dsn in dsns]
        file = open_.enter_context(open(into, "wb", buffering=0)) if into else None
        for shard in shards:
            open_.callback(shard.finish)
            shard.send_query(b"COPY (SELECT dana_shard_pages('bench_rows')) TO STDOUT (FORMAT binary)")
            shard.get_result()
        while shards:
            for shard in list(shards):
                size, pages = shard.get_copy_data(0)
                if size < 0:
                    shards.remove(shard)
                elif file is not None:
                    file.write(pages)


def of_the_map(db: Connection, dsns: list[str]) -> list[Figure]:
    """What gathering in SQL takes beyond the COPY of the pages, and beyond writing them."""
    columns = ", ".join([*(f"x{k} real" for k in range(1, COLUMNS)), "y real"])
    db.session.execute(f"DROP TABLE IF EXISTS bench_rows; CREATE TABLE bench_rows ({columns})")
    for number, dsn in enumerate(dsns, 1):
        db.session.execute(
            "INSERT INTO dana.shard (source, shard, conninfo) VALUES ('bench_rows', %s, %s)", (number, dsn)
        )

    def gather() -> None:
        db.session.execute("SELECT dana_gather('bench_rows', 'bench_gathered')")
        db.session.execute("DROP TABLE bench_gathered")

    figures = []
    with NamedTemporaryFile(dir=Path.home()) as file:
        for what, into, target in (
            ("bare COPY of the same pages", None, 1.3),
            ("COPY into a file", file.name, 1.0),
        ):
            gathered, copied = paired_medians(gather, lambda into=into: copying(dsns, into), repeats=15)
            figures.append(
                Figure(
                    what=f"dana_gather over a {what}",
                    measured=f"{1e3 * gathered:.0f} ms",
                    reference=f"{1e3 * copied:.0f} ms",
                    ratio=gathered / copied,
                    target=target,
                )
            )
    db.session.execute("DELETE FROM dana.shard WHERE source = 'bench_rows'::regclass; DROP TABLE bench_rows")
    return figures


def train(db: Connection, table: str, **options: object) -> None:
    """Train."""
    db.train("logistic", table, label="y", model="bench_shards", machine="sim", patience=0, **options)  # type: ignore[arg-type]


def on_one_server(db: Connection, dsns: list[str]) -> list[Figure]:
    pages, rows = paired_medians(
        lambda: gathering(db, "bench_rows", dsns), lambda: gathering(db, "bench_view", dsns), repeats=REPEATS, warm_up=1
    )
    table = db.gather("bench_rows", dsns)
    db.session.execute(f"CREATE TABLE bench_whole AS TABLE {table}")
    db.session.execute("VACUUM bench_whole")
    gathered, whole = paired_medians(
        lambda: train(db, table, epochs=20), lambda: train(db, "bench_whole", epochs=20), repeats=REPEATS, warm_up=1
    )
    db.session.execute(f"DROP TABLE bench_whole, {table}")
    return [
        Figure(
            what=f"gathering {SHARDS} × {ROWS:,} rows of {COLUMNS} columns, by pages",
            measured=f"{pages * MICROSECONDS:.2f} µs a row",
            reference=f"by rows: {rows * MICROSECONDS:.2f} µs",
            ratio=pages / rows,
            target=0.3,
        ),
        Figure(
            what="20 epochs on the gathered table",
            measured=f"{1e3 * gathered:.0f} ms",
            reference=f"on a table of this server: {1e3 * whole:.0f} ms",
            ratio=gathered / whole,
            target=1.05,
        ),
    ]


def over_partitions(dsns: list[str], coordinator: str) -> Figure:
    with connect(coordinator) as db, db.session.transaction(force_rollback=True):
        db.session.execute("CREATE EXTENSION IF NOT EXISTS postgres_fdw")
        db.create_rules("logistic")
        columns = ", ".join([*(f"x{k} real" for k in range(1, COLUMNS)), "y real"])
        db.session.execute(f"CREATE TABLE bench_parted ({columns}) PARTITION BY RANGE (x1)")
        for number, dsn in enumerate(dsns):
            where = conninfo_to_dict(dsn)
            db.session.execute(
                f"CREATE SERVER bench_{number} FOREIGN DATA WRAPPER postgres_fdw "
                f"OPTIONS (host '{where['host']}', dbname '{where['dbname']}');"
                f"CREATE USER MAPPING FOR CURRENT_USER SERVER bench_{number} OPTIONS (user '{where['user']}');"
                f"CREATE FOREIGN TABLE bench_part_{number} PARTITION OF bench_parted "
                f"FOR VALUES FROM ({number}) TO ({number + 1}) SERVER bench_{number} OPTIONS (table_name 'bench_rows')"
            )
        pages, rows = paired_medians(
            lambda: train(db, "bench_parted", epochs=1, sync="gather"),
            lambda: train(db, "bench_parted", epochs=1),
            repeats=REPEATS,
            warm_up=1,
        )
    return Figure(
        what="first epoch of a table partitioned over servers of postgres_fdw, by pages",
        measured=f"{pages * MICROSECONDS:.2f} µs a row",
        reference=f"by rows of postgres_fdw: {rows * MICROSECONDS:.1f} µs",
        ratio=pages / rows,
        target=1 / 40,
    )


def run() -> list[Figure]:
    """Measure."""
    with warnings.catch_warnings(action="ignore"), connect() as db, shards(db) as dsns:
        db.create_rules("logistic")
        figures = [*on_one_server(db, dsns), *of_the_map(db, dsns)]
        db.drop_model("bench_shards")
        if COORDINATOR in os.environ:
            figures.append(over_partitions(dsns, os.environ[COORDINATOR]))
    return figures


if __name__ == "__main__":
    main(run)
