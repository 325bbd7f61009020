"""Admits the browser of the person that started the window, and no other page or program.

In: requests, a one-time token. Out: the requests that pass. A page of another site reaches a server on loopback by
rebinding its name (Host), by a form or a script (Origin, Sec-Fetch-Site, the cookie's SameSite); a program of another
account connects to the port itself (the token). Cookies do not depend on the port and SameSite ignores it, so pages of
other servers on this machine are rejected by Origin and Sec-Fetch-Site alone.
"""

from __future__ import annotations

import re
import secrets
from hmac import compare_digest

from starlette.datastructures import Headers, MutableHeaders, QueryParams
from starlette.requests import cookie_parser
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

HOST = re.compile(r"(?:localhost|127\.0\.0\.1|\[::1\])(?::\d{1,5})?")
"""Names that no other site can rebind; any port, as a tunnel of ssh may have another one than the server."""

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
    '<!DOCTYPE html><title>DAnA</title><link rel="icon" href="/static/icon.svg">'
    '<meta http-equiv="refresh" content="0; url=/"><a href="/">DAnA</a>'
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
        # a name of its own: cookies do not depend on the port, and a second window must not end this one
        self._name = f"dana-ui-{secrets.token_hex(4)}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def protected(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        await (self._answer(scope) or self._app)(scope, receive, protected)

    def _answer(self, scope: Scope) -> Response | None:
        """The response to a request that does not pass; None for one that does."""
        headers = Headers(scope=scope)
        hosts = headers.getlist("host")
        if len(hosts) != 1 or not HOST.fullmatch(hosts[0]):
            return PlainTextResponse("The name of this server is localhost.", 421)
        if scope["path"] == ENTRY and scope["method"] == "GET":
            return self._enter(QueryParams(scope["query_string"]).get("token", ""))
        cookie = cookie_parser(headers.get("cookie", "")).get(self._name, "")
        if not compare_digest(cookie.encode(), self._cookie.encode()):
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
        response = HTMLResponse(ENTERED)
        response.set_cookie(self._name, self._cookie, httponly=True, samesite="strict")
        return response
