"""Checks the Host header, against DNS rebinding.

A web page can point its own host name at 127.0.0.1 after it has loaded. The browser then treats
this server as the same origin; only the Host header, which the page cannot change, shows the
difference.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from corral.providers.base.config import ServerSettings
from corral.server.errors import error_response

ANY_HOST = "*"
_AUTHORITY = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\s:/?#@\[\]]+)(?::\d{1,5})?")
_MOST_QUOTED = 100


class HostCheck:
    """ASGI middleware that refuses a request if its Host is not one of the server's names.

    Those are `localhost`, every loopback address, the address that the connection came in on, and
    the names in `server.host` and `server.allowed_hosts`. A server that listens on all addresses
    also accepts every address as Host, because a page cannot claim one; its names must be
    configured. In process, the URL's host is the address, so every URL works.
    """

    def __init__(self, app: ASGIApp, settings: ServerSettings) -> None:
        self.app = app
        names = [settings.host, *settings.allowed_hosts]
        self._names = {name.lower().removesuffix(".") for name in names}
        self._everywhere = _is_unspecified(settings.host)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] in ("http", "websocket"):
            given = Headers(scope=scope).getlist("host")
            here = str((scope.get("server") or ("",))[0]).lower()
            if not all(self._is_ours(host, here) for host in given):
                await _refusal(given)(scope, receive, send)
                return
        await self.app(scope, receive, send)

    def _is_ours(self, given: str, here: str) -> bool:
        if ANY_HOST in self._names:
            return True
        host = _host_of(given)
        if host in self._names or host in (here, "localhost"):
            return True
        try:
            address = ipaddress.ip_address(host)
        except ValueError:
            return host.endswith(".localhost")
        return address.is_loopback or self._everywhere


def _host_of(authority: str) -> str:
    """Return the normalized host of `host:port`, "" if it is malformed."""
    match = _AUTHORITY.fullmatch(authority)
    return match.group(1).strip("[]").lower().removesuffix(".") if match else ""


def _is_unspecified(host: str) -> bool:
    try:
        return ipaddress.ip_address(host or "0.0.0.0").is_unspecified  # noqa: S104 - binds nothing
    except ValueError:
        return False


def _refusal(given: Collection[str]) -> ASGIApp:
    shown = ", ".join(given)[:_MOST_QUOTED]
    return error_response(
        421,
        "unknown_host",
        f"Host {shown!r} is not a name of this server. Use the server's address, or "
        "add the name to server.allowed_hosts.",
        param="host",
    )
