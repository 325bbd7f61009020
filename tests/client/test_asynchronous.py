"""The client for asyncio: the same calls, several at a time, and tasks that are cancelled."""

from __future__ import annotations

import asyncio
import inspect
import threading
import time

import psycopg
import pytest

import dana
from dana.client.asynchronous import AsyncConnection
from dana.client.connection import Connection

LOADED = {"a": [1.0, 2.0, 3.0, 4.0] * 50, "y": [2.0, 4.0, 6.0, 8.0] * 50}
SLEEPS = "SELECT m.* FROM waited AS m, LATERAL pg_sleep(m.a)"


def test_it_has_the_client_s_methods() -> None:
    ours = {name for name, one in inspect.getmembers(AsyncConnection, callable) if not name.startswith("_")}
    theirs = {name for name, one in inspect.getmembers(Connection, callable) if not name.startswith("_")}
    assert ours == theirs | {"run"}
    assert (
        inspect.signature(AsyncConnection.train).parameters.keys()
        == inspect.signature(Connection.train).parameters.keys()
    )


def test_a_model(pg_uri: str) -> None:
    async def main() -> None:
        async with await dana.connect_async(pg_uri) as db, await dana.connect_async(pg_uri) as other:
            await db.create_rules("linear")
            loaded = await db.load(LOADED, "awaited")
            try:
                results = await asyncio.gather(
                    db.train("linear", loaded, model="awaited", label="y"),
                    other.train("linear", "awaited", model="awaited too", label="y"),
                )
                assert [one.version for one in results] == [1, 1]
                names = {one.name for one in await db.models()}
                assert {"awaited", "awaited too"} <= names
                assert await db.run(lambda db: db.session.execute("SELECT 1").fetchall()) == [(1,)]
                with pytest.raises(psycopg.errors.UndefinedColumn):
                    await db.train("linear", "awaited", label="no such column")
            finally:
                for model in ("awaited", "awaited too"):
                    await db.drop_model(model)
                await db.drop_rule("linear")
                await db.run(lambda db: db.session.execute("DROP TABLE awaited"))

    before = threading.active_count()
    asyncio.run(main())
    assert threading.active_count() == before


def test_a_task_that_is_cancelled(pg_uri: str) -> None:
    async def main() -> None:
        async with await dana.connect_async(pg_uri) as db, await dana.connect_async(pg_uri) as other:
            await db.create_rules("linear")
            await db.load(LOADED, "waited")
            try:
                first = asyncio.create_task(db.train("linear", query=SLEEPS, label="y"))
                second = asyncio.create_task(db.drop_rule("linear"))
                sleeping = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'"
                while await other.run(lambda db: db.session.execute(sleeping).fetchall()) != [(1,)]:
                    await asyncio.sleep(0.05)
                for task in (second, first):
                    task.cancel()
                    with pytest.raises(asyncio.CancelledError):
                        await task
                # the session is usable, and what had not begun has not happened
                rules = await db.run(lambda db: db.session.execute("SELECT name FROM dana.rule").fetchall())
                assert ("linear",) in rules
            finally:
                await db.drop_rule("linear")
                await db.run(lambda db: db.session.execute("DROP TABLE waited"))

    asyncio.run(main())


def test_an_error_of_the_address(pg_uri: str) -> None:
    before = threading.active_count()
    with pytest.raises(psycopg.OperationalError):
        asyncio.run(_connected("host=/nowhere"))
    with pytest.raises(dana.UsageError):
        asyncio.run(_connected("mysql://db/shop"))
    # a thread that is not joined ends soon
    deadline = time.monotonic() + 30
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert threading.active_count() <= before


async def _connected(dsn: str) -> None:
    await dana.connect_async(dsn)
