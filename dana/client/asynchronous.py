"""The client for asyncio: the methods of `dana.client.connection.Connection`, awaited.

In: a connection string. Out: coroutines. Each connection has a thread of its own, in which the calls run one after
another, so that both clients have the same statements. A task that is cancelled cancels its statement in the server.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import update_wrapper
from threading import Lock
from types import TracebackType
from typing import Concatenate, ParamSpec, Self, TypeVar

import psycopg

from dana.client.connection import Address, Connection, Engine, connect

__all__ = ["AsyncConnection", "connect_async"]

Given = ParamSpec("Given")
Result = TypeVar("Result")


def _awaited(
    method: Callable[Concatenate[Connection, Given], Result],
) -> Callable[Concatenate[AsyncConnection, Given], Awaitable[Result]]:
    async def call(db: AsyncConnection, /, *arguments: Given.args, **options: Given.kwargs) -> Result:
        return await db.run(method, *arguments, **options)

    update_wrapper(call, method)
    return call


class AsyncConnection:
    """A session on a server with the extension; an asynchronous context manager.

    Tasks may share one: their calls wait for each other. For calls at the same time, open several.
    """

    def __init__(self, connection: Connection, thread: ThreadPoolExecutor) -> None:
        self._connection, self._thread = connection, thread
        self._turn = Lock()
        self._running: object = None
        """Of the call that its thread makes now; `_turn` is held where this changes."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()

    async def run(
        self,
        function: Callable[Concatenate[Connection, Given], Result],
        *arguments: Given.args,
        **options: Given.kwargs,
    ) -> Result:
        """Call a function of a `Connection`: ``await db.run(lambda db: db.session.execute("SELECT 1").fetchall())``."""
        this = object()

        def work() -> Result:
            with self._turn:
                self._running = this
            try:
                return function(self._connection, *arguments, **options)
            finally:
                with self._turn:
                    self._running = None

        try:
            # if it has not begun when the task is cancelled, it will not begin
            return await asyncio.wrap_future(self._thread.submit(work))
        except asyncio.CancelledError:
            # not while another call begins: the server would cancel that
            with self._turn:
                if self._running is this:
                    self._connection.session.cancel()
            raise

    async def close(self) -> None:
        """End the session."""
        await self.run(Connection.close)
        self._thread.shutdown()

    create_rule = _awaited(Connection.create_rule)
    create_rules = _awaited(Connection.create_rules)
    drop_rule = _awaited(Connection.drop_rule)
    load = _awaited(Connection.load)
    gather = _awaited(Connection.gather)
    shards = _awaited(Connection.shards)
    train = _awaited(Connection.train)
    refresh = _awaited(Connection.refresh)
    train_groups = _awaited(Connection.train_groups)
    cross_validate = _awaited(Connection.cross_validate)
    search = _awaited(Connection.search)
    start = _awaited(Connection.start)
    wait = _awaited(Connection.wait)
    cancel = _awaited(Connection.cancel)
    jobs = _awaited(Connection.jobs)
    explain = _awaited(Connection.explain)
    explain_shards = _awaited(Connection.explain_shards)
    curve = _awaited(Connection.curve)
    models = _awaited(Connection.models)
    drop_model = _awaited(Connection.drop_model)
    export_model = _awaited(Connection.export_model)
    test_rows = _awaited(Connection.test_rows)
    evaluate = _awaited(Connection.evaluate)
    importance = _awaited(Connection.importance)
    parameters = _awaited(Connection.parameters)
    coefficients = _awaited(Connection.coefficients)
    predict = _awaited(Connection.predict)
    classify = _awaited(Connection.classify)
    contributions = _awaited(Connection.contributions)
    probabilities = _awaited(Connection.probabilities)


async def connect_async(dsn: str | psycopg.Connection | Address | Engine | None = None) -> AsyncConnection:
    """Connect as `dana.connect` does, for asyncio.

    Examples
    --------
    >>> async with await dana.connect_async() as db:            # doctest: +SKIP
    ...     await db.train("logistic", "cancer", label="y")
    """
    thread = ThreadPoolExecutor(1, "dana")
    try:
        return AsyncConnection(await asyncio.get_running_loop().run_in_executor(thread, connect, dsn), thread)
    except BaseException:
        thread.shutdown(wait=False)
        raise
