"""Serves the window on loopback or on a unix socket.

In: a connection string, a port or a path. Out: HTTP until a signal. Nothing is logged but errors: the first address has
the token, and other accounts of this machine can send requests.
"""

from __future__ import annotations

import asyncio
import secrets
import socket
import stat
import time
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlencode

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from dana.errors import SetupError
from dana.loopback import MAX_CONNECTIONS
from dana.ui.app import application
from dana.ui.database import Database
from dana.ui.guard import ENTRY

ACCEPTED = 16
"""Connections that asyncio accepts at once, before any of them is looked at."""


def listen(port: int) -> socket.socket:
    """A socket on loopback; port 0 is any free one.

    Raises
    ------
    SetupError
        The port is in use.
    """
    made = socket.socket(socket.AF_INET)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind(("127.0.0.1", port))
        made.listen()  # before the address is printed
    except OSError as error:
        made.close()
        message = f"cannot listen on port {port} of 127.0.0.1: {error.strerror}; choose another: --port"
        raise SetupError(message) from None
    return made


def listen_at(path: Path) -> socket.socket:
    """A unix socket that only this account can reach; one that was left there is replaced.

    Raises
    ------
    SetupError
        There is something else, or no such folder.
    """
    made = socket.socket(socket.AF_UNIX)
    try:
        with suppress(FileNotFoundError):
            if stat.S_ISSOCK(path.lstat().st_mode):
                path.unlink()
        made.bind(str(path))
        path.chmod(0o600)
        made.listen()
    except OSError as error:
        made.close()
        raise SetupError(f"cannot listen at {path}: {error.strerror or error}") from None
    return made


def new_token() -> str:
    """A token of 256 bits."""
    return secrets.token_urlsafe(32)


def address(port: int, token: str) -> str:
    """The address that exchanges the token for a cookie."""
    return f"http://127.0.0.1:{port}{ENTRY}?{urlencode({'token': token})}"


class _Connection(H11Protocol):
    """A connection that ends if there are too many and it has waited longest without a request: other accounts can
    open connections, but not keep the browser's from being answered.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._made = time.monotonic()
        if len(self.connections) > MAX_CONNECTIONS:
            every = [one for one in self.connections if isinstance(one, _Connection)]
            waiting = [one for one in every if one.cycle is None or one.cycle.response_complete]
            oldest = min(waiting, key=lambda one: one._made)
            self.connections.discard(oldest)  # it is lost only after others are made
            oldest.transport.abort()


def serve(dsn: str, listening: socket.socket, token: str) -> None:
    """Serve until SIGINT or SIGTERM."""
    config = uvicorn.Config(
        application(Database(dsn), token),
        http=_Connection,
        backlog=ACCEPTED,
        access_log=False,
        log_level="error",
        server_header=False,
        proxy_headers=False,
        lifespan="off",
        ws="none",
        # pages with a stream of events do not end by themselves
        timeout_graceful_shutdown=1,
    )
    uvicorn.Server(config).run(sockets=[listening])
