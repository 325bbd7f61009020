"""Admits the browser of the person that started the window, and no other page or program.

In: requests, a one-time token. Out: the requests that pass. A page of another site reaches a server on loopback by
rebinding its name (Host), by a form or a script (Origin, Sec-Fetch-Site, the cookie's SameSite); a program of another
account connects to the port itself (the token). Cookies do not depend on the port and SameSite ignores it: pages of
another server on this machine are rejected by Origin and Sec-Fetch-Site, and that server receives no cookie, since it
is for a path that only the admitted browser knows.
"""

from __future__ import annotations

import secrets
from hmac import compare_digest

from starlette.datastructures import Headers, MutableHeaders, QueryParams
from starlette.requests import cookie_parser
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dana.loopback import HOST

ENTRY = "/enter"

HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    # not no-referrer, with which browsers send "Origin: null" from forms
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}

# by the page and not by a redirect, which carries no SameSite=Strict cookie if the link was in another site's page
ENTERED = (
    '<!DOCTYPE html><title>DAnA</title><link rel="icon" href="{0}static/icon.svg">'
    '<meta http-equiv="refresh" content="0; url={0}"><a href="{0}">DAnA</a>'
)
STRANGER = "Open the link that dana ui printed. It works once; to get a new one, start dana ui again."


class Guard:
    """ASGI middleware.

    Parameters
    ----------
    app
        The application behind it.
    token
        Exchanged once, at `ENTRY`, for the cookie that all other requests need.
    """

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._token: str | None = token
        self._cookie = secrets.token_urlsafe(32)
        self._path = f"/{secrets.token_urlsafe(16)}/"
        # another server of this host could set a cookie of a known name
        self._name = f"dana-ui-{secrets.token_hex(4)}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def protected(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        answer = self._answer(scope)
        if answer is None:
            await self._app({**scope, "path": f"/{scope['path'].removeprefix(self._path)}"}, receive, protected)
        else:
            answer.headers["connection"] = "close"  # a client that never reads the answer must not hold the connection
            await answer(scope, receive, protected)

    def _answer(self, scope: Scope) -> Response | None:
        """The response to a request that does not pass; None for one that does."""
        headers = Headers(scope=scope)
        hosts = headers.getlist("host")
        if len(hosts) != 1 or not HOST.fullmatch(hosts[0]):
            return PlainTextResponse("The name of this server is localhost.", 421)
        if scope["path"] == ENTRY and scope["method"] == "GET":
            return self._enter(QueryParams(scope["query_string"]).get("token", ""))
        cookie = cookie_parser(headers.get("cookie", "")).get(self._name, "")
        if not compare_digest(cookie.encode(), self._cookie.encode()) or not scope["path"].startswith(self._path):
            return PlainTextResponse(STRANGER, 403)
        reading = scope["method"] in ("GET", "HEAD")
        # "none": typed, or a bookmark
        if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", *(["none"] if reading else [])):
            return PlainTextResponse("A page of another server sent this request.", 403)
        if not reading and headers.getlist("origin") != [f"http://{hosts[0]}"]:
            return PlainTextResponse("A page of another server sent this request, or no page.", 403)
        return None

    def _enter(self, token: str) -> Response:
        if self._token is None or not compare_digest(token.encode(), self._token.encode()):
            return PlainTextResponse(STRANGER, 403)
        self._token = None
        response = HTMLResponse(ENTERED.format(self._path))
        response.set_cookie(self._name, self._cookie, path=self._path, httponly=True, samesite="strict")
        return response
