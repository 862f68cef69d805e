"""Fetch a document's URL if the operator allows its host. Off by default.

A server that fetches any URL in a request can be turned against its own network (server-side
request forgery). Therefore, for the URL and again for every redirect:

* the scheme must be http or https, and the URL must not have credentials;
* the host must equal one of `rag.allowed_url_hosts`;
* the host is resolved once, all its addresses must be public, and the connection goes to one of
  them. There is no second lookup that could answer differently (DNS rebinding);
* the parser of httpx reads the URL for the check as well as for the request.

Proxies and credentials from the environment are not used. Size, time and redirects are limited.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
import socket
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import httpx

from corral.api.errors import ConfigError, InvalidRequest, ProviderTimeout, Unavailable
from corral.providers.base.config import RagSettings

MAX_REDIRECTS = 5
SETTING = "rag.allowed_url_hosts"

IPAddress: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
Resolver: TypeAlias = Callable[[str, int], Awaitable[Sequence[str]]]


@dataclass(frozen=True, slots=True)
class Fetched:
    """The response of a URL.

    Attributes:
        data: The body.
        content_type: The Content-Type header as sent, or None.
        url: The final URL, after redirects.
        etag: The ETag of the response, or None.
        not_modified: True if the page still has the ETag in the request; `data` is then empty.
    """

    data: bytes
    content_type: str | None
    url: str
    etag: str | None = None
    not_modified: bool = False


class PageGone(InvalidRequest):
    """The host has no such page (404 or 410)."""


def is_public(address: IPAddress) -> bool:
    """Return True if an address belongs to the public internet.

    Private, shared, loopback, link-local, multicast and reserved addresses do not, nor do IPv6
    addresses that embed an IPv4 address (mapped, 6to4, Teredo, NAT64), which can reach other
    networks.
    """
    if isinstance(address, ipaddress.IPv6Address):
        carried = address.ipv4_mapped or address.sixtofour or address.teredo
        if carried or address.is_site_local:
            return False
    return address.is_global and not (address.is_multicast or address.is_reserved)


async def resolve(host: str, port: int) -> list[str]:
    """Return the addresses of a host, in the order in which the system would try them.

    Raises:
        OSError: The host has no address.
    """
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


class Fetcher:
    """Fetches documents from allowed hosts.

    Args:
        settings: Allowed hosts, and limits of size and time.
        is_public: Returns True if connections to an address are allowed.
        resolver: Returns the addresses of a host.
        transport: Sends requests; None to create a new one for each fetch.

    Raises:
        ConfigError: An allowed host is not a host name.
    """

    def __init__(
        self,
        settings: RagSettings,
        *,
        is_public: Callable[[IPAddress], bool] = is_public,
        resolver: Resolver = resolve,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._allowed = frozenset(_allowed_host(host) for host in settings.allowed_url_hosts)
        self._max_bytes = int(settings.fetch_max_mib * 1024 * 1024)
        self._timeout = settings.fetch_timeout_seconds
        self._is_public = is_public
        self._resolve = resolver
        self._transport = transport

    async def fetch(self, uri: str, etag: str | None = None) -> Fetched:
        """Return the response of a URL.

        Args:
            etag: ETag of an earlier response; if the page has not changed, the body is not sent.

        Raises:
            PageGone: There is no such page.
            InvalidRequest: The URL or a redirect is not allowed, the host refuses the request, or
                the response is too large.
            Unavailable: The host cannot be reached, or answers with a server error.
            ProviderTimeout: The response was not complete within the time limit.
        """
        url = _parse(uri)
        self._check_host(url)  # Before creating a transport: by default all hosts are refused.
        transport = self._transport or httpx.AsyncHTTPTransport(
            trust_env=False,
            # A connection to one host name must not be reused for another at the same address.
            limits=httpx.Limits(max_keepalive_connections=0),
        )
        try:
            async with asyncio.timeout(self._timeout):
                return await self._follow(transport, url, etag)
        except (TimeoutError, httpx.TimeoutException):
            raise ProviderTimeout(
                f"{url.host} did not answer within {self._timeout:g} s."
            ) from None
        except (httpx.TransportError, OSError) as error:
            raise Unavailable(f"{url.host} cannot be read: {type(error).__name__}.") from error
        finally:
            if self._transport is None:
                await transport.aclose()

    async def _follow(
        self, transport: httpx.AsyncBaseTransport, url: httpx.URL, etag: str | None
    ) -> Fetched:
        for _ in range(MAX_REDIRECTS + 1):
            response = await self._get(transport, url, etag)
            try:
                if etag and response.status_code == 304:
                    return Fetched(b"", None, str(url), etag, not_modified=True)
                headers = response.headers
                location = headers.get("location")
                if not (300 <= response.status_code < 400 and location):
                    body = await self._body(response, url)
                    sent = headers.get("content-type"), str(url), headers.get("etag")
                    return Fetched(body, *sent)
            finally:
                await response.aclose()
            url = _parse(location, base=url)
            self._check_host(url)
        raise _refused(f"More than {MAX_REDIRECTS} redirects.", "Name the final address.")

    async def _get(
        self, transport: httpx.AsyncBaseTransport, url: httpx.URL, etag: str | None
    ) -> httpx.Response:
        """Send a GET request to the first of the host's addresses that accepts a connection."""
        for address in await self._addresses(url):
            request = httpx.Request(
                "GET",
                url.copy_with(host=str(address), fragment=None),
                headers={
                    "host": url.netloc.decode("ascii"),
                    "accept-encoding": "identity",  # No small body can unpack to a large one.
                    "user-agent": "corral",
                    **({"if-none-match": etag} if etag else {}),
                },
                extensions={
                    "sni_hostname": url.raw_host.decode("ascii"),
                    "timeout": httpx.Timeout(self._timeout).as_dict(),
                },
            )
            try:
                return await transport.handle_async_request(request)
            except httpx.ConnectError as error:
                failure = error
        raise failure

    async def _addresses(self, url: httpx.URL) -> list[IPAddress]:
        host = url.raw_host.decode("ascii")
        port = url.port or {"http": 80, "https": 443}[url.scheme]
        addresses = [ipaddress.ip_address(a) for a in await self._resolve(host, port)]
        if not addresses:
            raise OSError(f"{host} has no address")
        if not all(map(self._is_public, addresses)):
            raise _refused(
                f"{url.host} is not on the public internet.",
                "Documents of a private network must be sent as text or as a data: URI.",
            )
        return addresses

    async def _body(self, response: httpx.Response, url: httpx.URL) -> bytes:
        status = response.status_code
        if status >= 500 or status == 429:
            raise Unavailable(f"{url.host} answered with status {status}.")
        if status in {404, 410}:
            message = f"{url.host} answered with status {status}."
            raise PageGone(message, hint="Check the address.", field="content.uri")
        if status != 200:
            raise _refused(f"{url.host} answered with status {status}.", "Check the address.")
        if response.headers.get("content-encoding", "identity").lower() != "identity":
            raise _refused(f"{url.host} sends compressed data only.", "Send the text itself.")
        self._check_size(url, int(response.headers.get("content-length", "0")))
        body = bytearray()
        async for part in response.aiter_raw():
            body += part
            self._check_size(url, len(body))
        return bytes(body)

    def _check_size(self, url: httpx.URL, size: int) -> None:
        if size > self._max_bytes:
            raise _refused(
                f"{url.host} sends more than {self._max_bytes} bytes.",
                "The operator's limit is rag.fetch_max_mib.",
            )

    def _check_host(self, url: httpx.URL) -> None:
        if _host(url) in self._allowed:
            return
        raise _refused(
            f"Documents are not fetched from {url.host!r}.",
            f"Send the text itself, or let the operator add the host to {SETTING}.",
        )


def _parse(uri: str, base: httpx.URL | None = None) -> httpx.URL:
    """Parse a URL; refuse it unless it is http or https, has a host, and has no credentials."""
    try:
        url = httpx.URL(uri) if base is None else base.join(uri)
        usable = bool(url.raw_host) and 0 < (1 if url.port is None else url.port) < 65536
    except (httpx.InvalidURL, ValueError):
        raise _refused("The URL is malformed.", "Its form is https://HOST/PATH.") from None
    if url.scheme not in {"http", "https"}:
        raise _refused(
            f"URLs of the scheme {url.scheme!r} are not read.",
            f"Use data:, or http and https where the operator allows the host in {SETTING}.",
        )
    if url.userinfo:
        raise _refused("The URL holds a user name.", "Send the text itself instead.")
    if not usable:
        raise _refused("The URL is malformed.", "Its form is https://HOST/PATH.")
    return url


def _host(url: httpx.URL) -> str:
    """Return a URL's host in canonical form: ASCII (IDNA), lower case, no trailing dot."""
    return url.raw_host.decode("ascii").lower().removesuffix(".")


def _allowed_host(name: str) -> str:
    """Return a configured host in canonical form, or raise ConfigError."""
    shown = f"[{name}]" if name.count(":") > 1 and not name.startswith("[") else name
    try:
        url = httpx.URL(f"http://{shown}/")
    except (httpx.InvalidURL, ValueError):
        url = httpx.URL()
    named = re.fullmatch(r"[a-z0-9._:-]+", _host(url))
    if not named or name.count(":") == 1 or url.userinfo or url.raw_path != b"/":
        raise ConfigError(
            f"{SETTING} holds {name!r}.",
            hint="Write host names only, such as docs.example.org: no scheme, port, path or *.",
            field=SETTING,
        )
    return _host(url)


def _refused(message: str, hint: str) -> InvalidRequest:
    return InvalidRequest(message, hint=hint, field="content.uri")
